"""Shrinkage: how fast a layout that nobody measured is taken to be, between its prediction and what was measured.

Predictions err, and the largest of many errs upwards: whoever takes the best of many engines and layouts mostly takes
one whose prediction is too good. So a lead counts by how well it is known. Layouts come in the order of what is known
of them: those that were measured, others of a pair that was, engines that somebody runs there, engines with rows of
other models, all others; and of each those with attention in groups last. Of a lead in ln(tokens per second and
accelerator) at equal time per token over the best of those that come first there,

    τ²/(τ² + e²·σ²)

counts: the posterior mean where engines and layouts differ by τ, and where times per token are off by σ beyond those
of a measured layout. e is by how much throughput at equal time per token changes with the speed of steps: where time
per token hardly rises with the batch, a small error of it is a large one of throughput.

What does not count is taken for slower steps, by as much as leaves what counts at fixed times per token: of a slower
layout the hours, the waits and each request know alike. It is the same whatever objective, size of pool or layout is
asked for: what serves more by prediction serves more then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.catalog.load import Catalog, part_of, shape_of
from planner.errors import CapacityError
from planner.physics import coefficients, model_on_part
from planner.physics.coefficients import Calibration, Evidence
from planner.physics.replica import (
    Replicas,
    ReplicaSpec,
    Traffic,
    at_objective,
    at_speed,
    price_replicas,
)
from planner.plan.candidates import (
    maturity_factor,
    replica_specs,
    supported_options,
    traffic_of,
)
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.workload import Workload

LEAD_SPREAD = 0.31
"""Standard deviation of ln(tokens per second and accelerator) of one engine over another that serves a model in one
precision on one accelerator, at equal time per token: 0.27 in nine pairs of engines in public runs, 0.41 with a tenth
whose runs mix ten months of versions."""
TPOT_S = (0.015, 0.02, 0.03, 0.05)
"""Times per token at which candidates are compared: those at which public frontiers are read."""

_LOG_SPEEDS = np.array([0.0, -0.1, -0.2, -0.45, -0.9])
"""ln(speed of steps) at which frontiers are worked out, to read between them how much slower a lead is gone."""


class Belief(NamedTuple):
    """ln(speed of steps) that evidence adds to predictions of a model on an accelerator in one precision."""

    colocated: dict[tuple[str, int, int], float]
    """By engine, accelerators of a replica and attention groups."""
    pools: dict[str, float]
    """By engine, where prompts have accelerators of their own."""

    def of(self, specs: Sequence[ReplicaSpec]) -> Floats:
        """Return what is added to each replica, shape (replicas,)."""
        return np.array([self.colocated.get(_key(spec), 0.0) for spec in specs])


AS_PREDICTED = Belief({}, {})


def belief(option: Cluster, workload: Workload, reuse: Reuse) -> Belief:
    """Return what evidence adds to the predicted speeds of all engines and layouts in the precision of an option."""
    # Of a stated throughput nobody need be convinced.
    if option.throughput_tokens_per_s_per_accelerator is not None:
        return AS_PREDICTED

    def computed() -> Belief:
        return belief_of(option, workload, reuse.catalog, reuse.calibration)

    requests = (workload.model, workload.lengths, workload.prefix_cache_hit_fraction)
    key = ("belief", option.accelerator, option.precision, option.engine_date, requests)
    return reuse.once(key, computed)


def belief_of(
    option: Cluster, workload: Workload, catalog: Catalog, calibration: Calibration
) -> Belief:
    """Return the same of a calibration."""
    try:
        candidates = _candidates(option, workload, catalog, calibration)
    except CapacityError:
        # What does not fit is refused where it is served.
        return AS_PREDICTED
    return _belief(candidates)


def _key(spec: ReplicaSpec) -> tuple[str, int, int]:
    return spec.engine, spec.accelerators, spec.attention_data_parallel


class _Candidate(NamedTuple):
    """A layout: what is known of it, and its rates by speed and time per token, shape (speeds, times)."""

    spec: ReplicaSpec
    standing: tuple[int, ...]
    """How well it is known, higher is better."""
    excess: float
    """Standard deviation of its ln(time per token) beyond that of a measured layout."""
    pools_excess: float
    """The same where prompts are prefilled elsewhere."""
    pools_log_gain: float
    """What public runs with pools show beyond those of replicas that serve alone."""
    colocated: Floats
    prefilled: Floats
    """Shape (speeds, 1)."""
    decoded: Floats

    def in_pools(self, prefilled: Floats) -> Floats:
        """Return rates of pools in balance: 1/rate = 1/prefilled + 1/decoded."""
        total = prefilled + self.decoded
        return prefilled * self.decoded / np.where(total > 0.0, total, np.inf)


def _candidates(
    option: Cluster, workload: Workload, catalog: Catalog, calibration: Calibration
) -> list[_Candidate]:
    """Return all layouts of all engines in the precision of an option; none where nothing is known of errors."""
    # As far as layouts are compared, nothing but the precision is stated.
    unbound = Cluster(
        accelerator=option.accelerator,
        nodes=1,
        precision=option.precision,
        engine_date=option.engine_date,
        chunk_tokens=model_on_part.CHUNK_TOKENS,
    )
    in_precision = workload.model_copy(update={"precisions": (option.precision,)})
    part = part_of(option.accelerator, catalog)
    shape = shape_of(workload.model, catalog)
    tokens = workload.lengths.input.mean + workload.lengths.output.mean
    specs: list[ReplicaSpec] = []
    speeds: list[float] = []
    for engine in supported_options(unbound, in_precision, catalog):
        # Attention in groups may be stated where nobody is known to run it.
        widest = engine.model_copy(update={"attention": "auto"})
        layouts = replica_specs(widest, part, shape, str(option.precision), tokens)
        specs += layouts
        speeds += [maturity_factor(engine, workload, catalog)] * len(layouts)
    if not specs:
        return []
    replicas = price_replicas(specs, calibration)
    colocated, prefilled, decoded = _frontiers(replicas, traffic_of(workload), np.array(speeds))
    candidates = []
    for place, spec in enumerate(specs):
        evidence = spec.evidence(calibration)
        pools = spec.evidence(calibration, coefficients.DISAGGREGATED)
        if evidence is None or pools is None:
            return []
        usual = calibration.class_spread(part.vendor, shape.experts > 0)
        assert usual is not None, "a calibration that grades a replica has spreads"
        excess = _beyond(evidence.log_error, usual.setting)
        in_groups = spec.attention_data_parallel > 1
        # A pair's spread is that of its usual layout: groups that nobody measured are a step further.
        if in_groups and evidence.grade == "extrapolated":
            excess = float(np.hypot(excess, usual.layout))
        candidates.append(
            _Candidate(
                spec=spec,
                standing=_standing(spec, evidence, option, catalog),
                excess=excess,
                pools_excess=_beyond(pools.log_error, usual.setting),
                pools_log_gain=pools.log_gain - evidence.log_gain,
                colocated=colocated[..., place],
                prefilled=prefilled[..., place],
                decoded=decoded[..., place],
            )
        )
    return candidates


def _beyond(log_error: float, usual: float) -> float:
    """Return the standard deviation that is left of an error without its usual part."""
    return float(np.sqrt(max(log_error**2 - usual**2, 0.0)))


def _standing(
    spec: ReplicaSpec, evidence: Evidence, option: Cluster, catalog: Catalog
) -> tuple[int, ...]:
    """Return how well a layout is known: by its rows, then by its engine, then by whether attention is in groups."""
    row = catalog.support.row(
        spec.engine,
        spec.shape.name,
        option.accelerator,
        str(option.precision),
        image_date=option.engine_date,
    )
    of_engine = 1 if evidence.rows else 0
    if row is not None and row.status == "public-sweep":
        of_engine = 2
    if evidence.grade != "extrapolated":
        of_engine = 3
    is_measured = evidence.grade == "measured"
    return int(is_measured), of_engine, int(spec.attention_data_parallel == 1)


def _belief(candidates: Sequence[_Candidate]) -> Belief:
    """Return what is added to candidates, each held to the best of those that are known best."""
    if not candidates:
        return AS_PREDICTED
    anchor = _anchor(candidates)
    colocated = {
        _key(one.spec): _shrunk(one.colocated, anchor, 0.0, one.excess) for one in candidates
    }
    pools = {}
    for engine in dict.fromkeys(one.spec.engine for one in candidates):
        own = [one for one in candidates if one.spec.engine == engine]
        # What an engine does with pools is held to what it does without, as far as that is known.
        alone = np.max([_at(one.colocated, colocated[_key(one.spec)]) for one in own], axis=0)
        prefilled = np.max([one.prefilled for one in own], axis=0)
        # The layout that decodes most decides; what is known of pools hardly hangs on it.
        rates = np.max([one.in_pools(prefilled) for one in own], axis=0)
        excess = min(one.pools_excess for one in own)
        pools[engine] = _shrunk(rates, alone, own[0].pools_log_gain, excess)
    return Belief(colocated, pools)


def _at(rates: Floats, log_speed: float) -> Floats:
    """Return rates by time at a speed, read between those worked out."""
    by_time = [np.interp(log_speed, _LOG_SPEEDS[::-1], of_time[::-1]) for of_time in rates.T]
    return np.array(by_time)


def _anchor(candidates: Sequence[_Candidate]) -> Floats:
    """Return the best rate at each time per token of those that are known best among what keeps it."""
    anchor: Floats = np.zeros(len(TPOT_S))
    for standing in sorted({one.standing for one in candidates}, reverse=True):
        best = np.max([one.colocated[0] for one in candidates if one.standing == standing], axis=0)
        anchor = np.where(anchor > 0.0, anchor, best)
    return anchor


def _shrunk(rates: Floats, anchor: Floats, log_speed: float, excess: float) -> float:
    """Return the ln(speed) at which a predicted lead is what counts of it; as given where it leads nowhere.

    ``rates`` are those by speed and time per token, and ``log_speed`` is where the prediction stands among them. At
    none of the times more counts.
    """
    if excess <= 0.0:
        return log_speed
    slower = []
    for of_time, known in zip(rates.T, anchor.tolist(), strict=True):
        is_served = of_time > 0.0
        if not (known > 0.0 and is_served[0]):
            continue
        # Slower steps serve less, so that reversed both rise.
        log_speeds = _LOG_SPEEDS[is_served][::-1]
        leads = np.log(of_time[is_served] / known)[::-1]
        lead = float(np.interp(log_speed, log_speeds, leads))
        if lead <= 0.0 or log_speeds.size < 2:
            continue
        change = float(leads[-1] - leads[-2]) / float(log_speeds[-1] - log_speeds[-2])
        counts = LEAD_SPREAD**2 / (LEAD_SPREAD**2 + (change * excess) ** 2)
        slower.append(float(np.interp(counts * lead, leads, log_speeds)))
    return min(slower, default=log_speed)


def _frontiers(
    replicas: Replicas, traffic: Traffic, speeds: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return what replicas serve at the times compared: colocated, and as prefill and as decode workers.

    Requests per second and accelerator, of shape (speeds, times, replicas), prefill workers' (speeds, 1, replicas).
    """
    factors = np.exp(_LOG_SPEEDS)[:, None] * speeds
    copies = {name: np.tile(column, len(factors)) for name, column in replicas.items()}
    at_speeds = at_speed(copies, factors.ravel())

    def served(requests: Traffic, tpot_s: Sequence[float]) -> Floats:
        # One case for each speed, time and replica, in that order.
        by_speed = np.arange(factors.size).reshape(-1, 1, speeds.size)
        cases = np.repeat(by_speed, len(tpot_s), axis=1)
        objective_s = np.broadcast_to(np.array(tpot_s)[:, None], cases.shape)
        point = at_objective(at_speeds, cases.ravel(), requests, np.inf, objective_s.ravel())
        rates: Floats = np.nan_to_num(point.requests_per_s).reshape(cases.shape)
        return rates / replicas["accelerators"]

    # A worker that only prefills is one whose replies have a single token, and one that only decodes finds every prompt
    # in its cache.
    prompts = replace(traffic, output_tokens=1.0)
    replies = replace(traffic, cached_fraction=1.0)
    return served(traffic, TPOT_S), served(prompts, [np.inf]), served(replies, TPOT_S)
