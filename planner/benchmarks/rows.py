"""A benchmark table as arrays: one replica per distinct deployment, one case per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.benchmarks.layout import (
    CannotPredictError,
    Deployment,
    find_engine,
    find_model,
    find_part,
    find_precision,
    lay_out,
    open_degrees,
)
from planner.benchmarks.table import HIT_COLUMN
from planner.errors import PlannerError
from planner.physics.calibration import Measurements
from planner.physics.coefficients import DEFAULT_RESERVED_OUTPUT_FRACTION, Calibration
from planner.physics.operating import Traffic, at_concurrency, at_objective, at_saturation
from planner.physics.replica import Replicas, ReplicaSpec, describe, price_replicas
from planner.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

    from planner.catalog.load import Catalog
    from planner.physics.arrays import Bools, Floats, Ints

DISTINCT_PROMPTS = 100
"""Prompts a load generator draws from when it is told lengths in round numbers: AIPerf's default data set size."""
REQUESTS_PER_CONCURRENCY = 10
"""Requests such a client sends per unit of concurrency, the published recipes' usual choice."""
_KEYS = ["model", "accelerator", "engine", "precision", "tp", "ep"]


@dataclass(frozen=True, slots=True)
class BenchmarkRows:
    """Rows ready to predict; arrays have shape (rows,) of the frame, NaN or -1 where a row has a reason instead."""

    deployments: list[Deployment]
    deployment: Ints
    """Index into ``deployments`` of each row; -1 where there is none."""
    reasons: list[str]
    """Why a row cannot be predicted; the empty string where it can."""
    input_tokens: Floats
    output_tokens: Floats
    cached_fraction: Floats
    repeated_fraction: Floats
    concurrency: Floats
    """Requests in the whole replica; NaN for saturation or an objective."""
    ttft_objective_s: Floats
    tpot_objective_s: Floats
    is_offline: Bools
    is_open: Bools
    """Server and Interactive: independent arrivals rather than a client's closed loop."""


def prepare(frame: pd.DataFrame, catalog: Catalog) -> BenchmarkRows:
    """Resolve names and parallelism of every row; what cannot be resolved becomes the row's reason."""
    group = frame.groupby(_KEYS, sort=False, dropna=False).ngroup().to_numpy()
    first = frame.drop_duplicates(_KEYS)[_KEYS]
    deployments: list[Deployment] = []
    by_group = np.full(len(first), -1, dtype=np.intp)
    group_reason = [""] * len(first)
    for index, row in enumerate(first.itertuples(index=False)):
        try:
            deployments.append(_deployment(row, catalog))
            by_group[index] = len(deployments) - 1
        except (CannotPredictError, PlannerError) as error:
            group_reason[index] = str(error)
    deployment = by_group[group]
    offline = (frame["scenario"] == "Offline").to_numpy()
    factor = np.array([d.replicas_per_concurrency for d in deployments] or [1.0])[deployment]
    concurrency = np.where(offline, np.nan, frame["concurrency"].to_numpy() * factor)
    rows = BenchmarkRows(
        deployments=deployments,
        deployment=deployment,
        reasons=[group_reason[g] for g in group],
        input_tokens=frame["input_tokens"].to_numpy(),
        output_tokens=frame["output_tokens"].to_numpy(),
        cached_fraction=_cached_fraction(frame),
        repeated_fraction=_repeated_fraction(frame, concurrency),
        concurrency=concurrency,
        ttft_objective_s=frame["slo_ttft_ms"].to_numpy() * MILLISECOND,
        tpot_objective_s=frame["slo_tpot_ms"].to_numpy() * MILLISECOND,
        is_offline=offline,
        is_open=frame["scenario"].isin(["Server", "Interactive"]).to_numpy(),
    )
    _reason_gaps(rows)
    return rows


def _deployment(row: object, catalog: Catalog) -> Deployment:
    """Resolve one distinct combination of model, accelerator, engine, precision, tp and ep."""
    shape = find_model(str(row.model), catalog)  # type: ignore[attr-defined]
    part = find_part(str(row.accelerator), catalog)  # type: ignore[attr-defined]
    precision = find_precision(str(row.precision), part, shape)  # type: ignore[attr-defined]
    tp, ep = (None if np.isnan(number) else int(number) for number in (row.tp, row.ep))  # type: ignore[attr-defined]
    accelerators, factor = lay_out(part, shape, precision, tp, ep)
    return Deployment(
        part=part,
        shape=shape,
        precision=precision,
        engine=find_engine(str(row.engine)),  # type: ignore[attr-defined]
        accelerators=None if tp is None else accelerators,
        replicas_per_concurrency=factor,
    )


def _cached_fraction(frame: pd.DataFrame) -> Floats:
    """Return the share of each prompt found in the prefix cache where the table says so, else 0."""
    if HIT_COLUMN not in frame.columns:
        return np.zeros(len(frame))
    given: Floats = frame[HIT_COLUMN].to_numpy(dtype=float)
    return np.where(np.isnan(given), 0.0, given)


def _repeated_fraction(frame: pd.DataFrame, concurrency: Floats) -> Floats:
    """Return the share of requests that repeat a whole prompt, which a table without ``prefix_hit_fraction`` hides.

    Clients told round lengths (1000, 2000, …) draw prompts from a pool of 100 and send ten per unit of concurrency, so
    all but the first hundred repeat. Public runs of that kind process more prompt tokens a second than the arithmetic
    of the part allows unless most were cached.
    """
    round_lengths = ((frame["input_tokens"] % 1000 == 0) & (frame["output_tokens"] % 100 == 0)).to_numpy()
    pooled = round_lengths & (frame["scenario"] == "Concurrency").to_numpy() & (concurrency > 0)
    if HIT_COLUMN in frame.columns:
        pooled &= frame[HIT_COLUMN].isna().to_numpy()
    sent = REQUESTS_PER_CONCURRENCY * np.where(pooled, concurrency, 1.0)
    return np.where(pooled, np.maximum(1.0 - DISTINCT_PROMPTS / sent, 0.0), 0.0)


def _reason_gaps(rows: BenchmarkRows) -> None:
    """Give a reason to rows that lack what their scenario needs."""
    lengths = np.isnan(rows.input_tokens) | np.isnan(rows.output_tokens)
    no_objective = np.isnan(rows.ttft_objective_s) & np.isnan(rows.tpot_objective_s)
    no_load = ~rows.is_offline & np.isnan(rows.concurrency) & no_objective & (rows.deployment >= 0)
    for missing, reason in (
        (lengths, "input_tokens and output_tokens are needed"),
        (no_load, "a concurrency or an objective (slo_ttft_ms, slo_tpot_ms) is needed"),
    ):
        for index in np.flatnonzero(missing):
            rows.reasons[index] = rows.reasons[index] or reason
            rows.deployment[index] = -1


def predict_rows(rows: BenchmarkRows, calibration: Calibration) -> dict[str, Floats]:
    """Predict TTFT, TPOT (s) and output tokens/s per accelerator of every row; NaN where a row has a reason."""
    replicas, index, degrees = _replicas(rows, calibration)
    usable = rows.deployment >= 0
    result = {name: np.full(usable.size, np.nan) for name in ("ttft_s", "tpot_s", "tokens_per_s_per_accelerator")}
    loaded = ~rows.is_offline & ~np.isnan(rows.concurrency)
    for chosen in (usable & rows.is_offline, usable & loaded, usable & ~rows.is_offline & ~loaded):
        if not chosen.any():
            continue
        traffic = _traffic(rows, chosen)
        if rows.is_offline[chosen][0]:
            point = at_saturation(replicas, _best_index(replicas, index[chosen], degrees, traffic), traffic)
        elif loaded[chosen][0]:
            point = at_concurrency(replicas, index[chosen], traffic, rows.concurrency[chosen])
        else:
            ttft_s, tpot_s = rows.ttft_objective_s[chosen], rows.tpot_objective_s[chosen]
            endless = np.full(ttft_s.size, np.inf)
            point = at_objective(
                replicas,
                index[chosen],
                traffic,
                np.where(np.isnan(ttft_s), endless, ttft_s),
                np.where(np.isnan(tpot_s), endless, tpot_s),
            )
        result["ttft_s"][chosen] = point.ttft_s
        result["tpot_s"][chosen] = point.tpot_s
        result["tokens_per_s_per_accelerator"][chosen] = point.output_tokens_per_s_per_accelerator
    return result


def _traffic(rows: BenchmarkRows, pick: Bools) -> Traffic:
    return Traffic(
        input_tokens=rows.input_tokens[pick],
        output_tokens=rows.output_tokens[pick],
        cached_fraction=rows.cached_fraction[pick],
        repeated_fraction=rows.repeated_fraction[pick],
        burst_fraction=np.where(rows.is_open[pick], 0.0, 1.0),
    )


def _replicas(rows: BenchmarkRows, calibration: Calibration) -> tuple[Replicas, Ints, Ints]:
    """Price the replicas of all deployments, open and closed arrivals apart, each open degree after the other.

    Returns the replicas, each row's first replica, and for each replica how many degrees start there.
    """
    specs: list[ReplicaSpec] = []
    degrees: list[int] = []
    first = np.zeros((2, max(len(rows.deployments), 1)), dtype=np.intp)
    for is_open in (0, 1):
        for number, deployment in enumerate(rows.deployments):
            first[is_open, number] = len(specs)
            found = _specs(deployment, bool(is_open))
            specs += found
            degrees += [len(found) - offset for offset in range(len(found))]
    index = first[rows.is_open.astype(np.intp), np.maximum(rows.deployment, 0)]
    if not specs:
        raise PlannerError("no row can be predicted")
    return price_replicas(specs, calibration), index, np.array(degrees, dtype=np.intp)


def priced_rows(rows: BenchmarkRows, calibration: Calibration) -> tuple[Replicas, Ints]:
    """Return the replicas of all rows, priced, and each row's own."""
    replicas, index, _ = _replicas(rows, calibration)
    return replicas, index


def _specs(deployment: Deployment, is_open: bool) -> list[ReplicaSpec]:
    """Return the replicas a deployment may be: one, or one per degree where the row leaves it open."""
    part, shape, precision = deployment.part, deployment.shape, deployment.precision
    counts = [deployment.accelerators] if deployment.accelerators else open_degrees(part, shape, precision)
    return [
        ReplicaSpec(
            part=part,
            shape=shape,
            precision=precision,
            accelerators=count,
            engine=deployment.engine,
            # Servers tuned for independent arrivals admit by what is written, not by what might be.
            reserved_output_fraction=DEFAULT_RESERVED_OUTPUT_FRACTION if is_open else None,
        )
        for count in counts
    ]


def measurements(frame: pd.DataFrame, rows: BenchmarkRows, calibration: Calibration) -> Measurements:
    """Turn predictable rows into what the fit takes; an open degree is settled by the calibration given."""
    pick = rows.deployment >= 0
    replicas, index, degrees = _replicas(rows, calibration)
    settled = index[pick].copy()
    offline = rows.is_offline[pick]
    if offline.any():
        settled[offline] = _best_index(replicas, settled[offline], degrees, _traffic(rows, pick & rows.is_offline))
    specs = [spec for is_open in (False, True) for d in rows.deployments for spec in _specs(d, is_open)]
    chosen = [specs[number] for number in settled]
    return Measurements(
        work=describe(chosen),
        engine=[spec.engine for spec in chosen],
        vendor=[spec.part.vendor for spec in chosen],
        traffic=_traffic(rows, pick),
        concurrency=rows.concurrency[pick],
        measured={
            "tpot_s": frame["tpot_ms"].to_numpy()[pick] * MILLISECOND,
            "ttft_s": frame["ttft_ms"].to_numpy()[pick] * MILLISECOND,
            "output_tokens_per_s_per_accelerator": frame["output_tokens_per_s_per_gpu"].to_numpy()[pick],
        },
    )


def _best_index(replicas: Replicas, index: Ints, degrees: Ints, traffic: Traffic) -> Ints:
    """Return the replica with most saturated tokens per accelerator among a row's open degrees."""
    best = index.copy()
    most = np.full(index.size, -np.inf)
    for offset in range(int(degrees.max(initial=1))):
        candidate = index + np.minimum(offset, degrees[index] - 1)
        reached = at_saturation(replicas, candidate, traffic).output_tokens_per_s_per_accelerator
        best = np.where(reached > most, candidate, best)
        most = np.maximum(reached, most)
    return best
