"""Shrinkage: how fast a layout that nobody measured is taken to be, between its prediction and what was measured.

Predictions err, and the largest of many errs upwards: whoever takes the best of several engines mostly takes one whose
prediction is too good. So an advantage counts by how well it is known. Of an engine without rows of the model on the
accelerator it is, in ln(throughput) over the best engine that has some,

    τ²/(τ² + σ²) · predicted advantage,

the posterior mean where engines differ by τ and predictions err by σ. What does not count is taken for slower steps, by
as much as leaves that advantage at fixed times per token: of a slower stack the hours, the waits and each request know
alike. It is the same whatever objective, size of pool or layout is asked for: what serves more by prediction serves
more then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.catalog.load import part_of, shape_of
from planner.errors import CapacityError
from planner.physics import coefficients, model_on_part
from planner.physics.coefficients import Evidence
from planner.physics.replica import (
    Replicas,
    ReplicaSpec,
    Traffic,
    at_objective,
    price_replicas,
)
from planner.plan.candidates import maturity_factor, replica_specs, supported_options
from planner.plan.reuse import Reuse
from planner.plan.slo_capacity import traffic_of
from planner.scenario.cluster import Cluster
from planner.scenario.workload import Workload

CANDIDATE_SPREAD = 0.16
"""Standard deviation of ln(time per token) between engines that serve a model in one precision on one accelerator, at
equal load and degree: nine pairs of engines in 177 public settings (measurements.csv)."""
TPOT_S = (0.015, 0.02, 0.03, 0.05)
"""Times per token at which candidates are compared: those at which public frontiers are read."""


_LOG_SPEEDS = np.array([0.0, -0.2, -0.45, -0.9])
"""ln(speed of steps) at which frontiers are worked out, to read between them how much slower an advantage is gone."""


class LogGains(NamedTuple):
    """What is added to ln(speed of steps) of an engine on an accelerator."""

    colocated: float
    pools: float
    """Where prompts have accelerators of their own."""


NO_GAINS = LogGains(0.0, 0.0)


def log_gains(option: Cluster, workload: Workload, reuse: Reuse) -> LogGains:
    """Return what evidence adds to the predicted speed of a cluster of one engine and precision."""

    def computed() -> dict[str, LogGains]:
        return _log_gains(option, workload, reuse)

    requests = (workload.model, workload.lengths, workload.prefix_cache_hit_fraction)
    key = ("log gains", option.accelerator, option.precision, option.engine_date, requests)
    return reuse.once(key, computed).get(option.engine, NO_GAINS)


def _log_gains(option: Cluster, workload: Workload, reuse: Reuse) -> dict[str, LogGains]:
    """Return the gains of every engine that is a candidate, in the precision of an option."""
    # As far as the engines are compared, nothing but the precision is stated.
    unbound = Cluster(
        accelerator=option.accelerator,
        nodes=1,
        precision=option.precision,
        engine_date=option.engine_date,
        chunk_tokens=model_on_part.CHUNK_TOKENS,
    )
    in_precision = workload.model_copy(update={"precisions": (option.precision,)})
    part = part_of(option.accelerator, reuse.catalog)
    shape = shape_of(workload.model, reuse.catalog)
    tokens = workload.lengths.input.mean + workload.lengths.output.mean
    options = supported_options(unbound, in_precision, reuse.catalog)
    specs: list[ReplicaSpec] = []
    speeds: list[float] = []
    for candidate in options:
        try:
            layouts = replica_specs(candidate, part, shape, str(option.precision), tokens)
        except CapacityError:
            # What does not fit is refused where it is served.
            return {}
        specs += layouts
        speeds += [maturity_factor(candidate, workload, reuse.catalog)] * len(layouts)
    if not specs:
        return {}
    replicas = price_replicas(specs, reuse.calibration)
    colocated, prefilled, decoded = _frontiers(replicas, traffic_of(workload), np.array(speeds))
    engines = np.array([spec.engine for spec in specs])
    candidates = {}
    for candidate in options:
        is_engine = engines == candidate.engine
        spec = specs[int(np.argmax(is_engine))]
        evidence = spec.evidence(reuse.calibration)
        pool_evidence = spec.evidence(reuse.calibration, coefficients.DISAGGREGATED)
        if evidence is None or pool_evidence is None:
            # Without spreads nothing is known of errors.
            return {}
        candidates[candidate.engine] = _Candidate(
            evidence,
            pool_evidence,
            colocated[..., is_engine].max(axis=-1),
            prefilled[..., is_engine].max(axis=-1),
            decoded[..., is_engine].max(axis=-1),
        )
    standings = {}
    for name, one in candidates.items():
        row = reuse.catalog.support.row(
            name,
            workload.model,
            option.accelerator,
            str(option.precision),
            image_date=option.engine_date,
        )
        is_swept = row is not None and row.status == "public-sweep"
        standings[name] = _standing(one.evidence, is_swept=is_swept)
    best_standing = max(standings.values())
    nearest = [candidates[name] for name in candidates if standings[name] == best_standing]
    anchor = np.max([one.colocated[0] for one in nearest], axis=0)
    gains = {}
    for name, candidate_rates in candidates.items():
        is_nearest = standings[name] == best_standing
        gains[name] = _gains_of(candidate_rates, anchor, is_nearest=is_nearest)
    return gains


class _Candidate(NamedTuple):
    """An engine: what is known of it, and its best rates by speed and time per token, shape (speeds, times)."""

    evidence: Evidence
    pool_evidence: Evidence
    colocated: Floats
    prefilled: Floats
    """Shape (speeds, 1)."""
    decoded: Floats

    @property
    def in_pools(self) -> Floats:
        """Rates of pools in balance: 1/rate = 1/prefilled + 1/decoded."""
        total = self.prefilled + self.decoded
        return self.prefilled * self.decoded / np.where(total > 0.0, total, np.inf)


def _gains_of(candidate: _Candidate, anchor: Floats, *, is_nearest: bool) -> LogGains:
    """Return the gains of an engine, against the best rates of those that are known best."""
    colocated = 0.0
    if not is_nearest:
        colocated = _shrunk(candidate.colocated, anchor, 0.0, candidate.evidence)
    # Public runs with pools show something else than replicas that serve alone.
    pools = candidate.pool_evidence.log_gain - candidate.evidence.log_gain
    if candidate.pool_evidence.grade == "extrapolated":
        pools = _shrunk(candidate.in_pools, candidate.colocated[0], pools, candidate.pool_evidence)
    return LogGains(colocated, colocated + pools)


def _shrunk(rates: Floats, anchor: Floats, log_speed: float, evidence: Evidence) -> float:
    """Return the ln(speed) at which τ²/(τ² + σ²) is left of a predicted advantage; as given where it is none.

    ``rates`` are those by speed and time per token, and ``log_speed`` is where the prediction stands among them.
    """
    is_served = (rates > 0.0).all(axis=0) & (anchor > 0.0)
    if not is_served.any():
        return log_speed
    log_ratios = np.log(rates[:, is_served] / anchor[is_served])
    # Slower steps serve less, so that reversed both rise.
    advantages = log_ratios.mean(axis=1)[::-1]
    log_speeds = _LOG_SPEEDS[::-1]
    advantage = float(np.interp(log_speed, log_speeds, advantages))
    if advantage <= 0.0:
        return log_speed
    counts = CANDIDATE_SPREAD**2 / (CANDIDATE_SPREAD**2 + evidence.log_error**2)
    return float(np.interp(counts * advantage, advantages, log_speeds))


def _standing(evidence: Evidence, *, is_swept: bool) -> int:
    """Return how well an engine is known: by rows of the model, as somebody runs it, by rows of others, or not."""
    if evidence.grade != "extrapolated":
        return 3
    if is_swept:
        return 2
    return 1 if evidence.rows else 0


def _frontiers(
    replicas: Replicas, traffic: Traffic, speeds: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return what replicas serve at the times compared: colocated, and as prefill and as decode workers.

    Requests per second and accelerator, of shape (speeds, times, replicas), prefill workers' (speeds, 1, replicas). A
    stack that is faster than the formula keeps a time with slower steps of the formula's, and makes as many more.
    """
    by_speed = [
        _frontiers_at(replicas, traffic, speeds * speed) for speed in np.exp(_LOG_SPEEDS).tolist()
    ]
    colocated, prefilled, decoded = (np.array(rates) for rates in zip(*by_speed, strict=True))
    return colocated, prefilled, decoded


def _frontiers_at(
    replicas: Replicas, traffic: Traffic, speeds: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the same at one speed of each replica's steps."""
    layouts = np.arange(speeds.size)
    per_accelerator = speeds / replicas["accelerators"]

    def served(requests: Traffic, tpot_s: float) -> Floats:
        point = at_objective(replicas, layouts, requests, np.inf, tpot_s * speeds)
        rates: Floats = np.nan_to_num(point.requests_per_s) * per_accelerator
        return rates

    # A worker that only prefills is one whose replies have a single token, and one that only decodes finds every prompt
    # in its cache.
    prompts = replace(traffic, output_tokens=1.0)
    replies = replace(traffic, cached_fraction=1.0)
    prefilled = np.array([served(prompts, np.inf)])
    colocated = np.array([served(traffic, tpot_s) for tpot_s in TPOT_S])
    decoded = np.array([served(replies, tpot_s) for tpot_s in TPOT_S])
    return colocated, prefilled, decoded
