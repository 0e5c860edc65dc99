"""A benchmark table as arrays: one replica per distinct deployment, one case per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.calibration.first_token import FORMULA, Labels, factors, labels_of
from planner.calibration.fit import Measurements
from planner.calibration.layout import (
    USUAL_WORKER,
    CannotPredictError,
    Deployment,
    decode_worker,
    decode_workers,
    find_engine,
    find_model,
    find_part,
    find_precision,
    lay_out,
)
from planner.calibration.table import DISAGGREGATED_SCENARIO, HIT_COLUMN, OPEN_SCENARIOS
from planner.catalog.load import Catalog
from planner.errors import PlannerError
from planner.physics.coefficients import DISAGGREGATED, SATURATED, SERVING, Calibration
from planner.physics.operating import Traffic, at_concurrency, at_objective, at_saturation, first_token_apart_s
from planner.physics.replica import Replicas, ReplicaSpec, describe, price_replicas
from planner.physics.uncertainty import Doubt, Groups
from planner.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd


_KEYS = [
    "model", "accelerator", "engine", "precision", "tp", "ep", "attention_dp", "max_num_seqs", "scenario",
]  # fmt: skip
_REQUESTS_PER_CLIENT = 10.0
_PROMPT_POOLS = {("aiconfigurator-core", "vllm", "0.12.0"): 100.0}
"""Distinct prompts of published campaigns that repeat them and do not say so, by source, engine and its version:
103,000 prompt tokens a second of Llama-3.1-8B on one H200 would be 84% of its peak arithmetic."""
PREDICTED = ("ttft_s", "tpot_s", "tokens_per_s_per_accelerator")
"""What is predicted of a row."""
_MODES = (SERVING, SERVING, SATURATED, DISAGGREGATED)
"""What a deployment may be under: a client's closed loop, independent arrivals, saturation, or a prefill pool apart."""


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
    concurrency: Floats
    """Requests in the whole replica; NaN for saturation or an objective."""
    ttft_objective_s: Floats
    tpot_objective_s: Floats
    is_offline: Bools
    is_open: Bools
    """Server and Interactive: independent arrivals rather than a client's closed loop."""
    is_apart: Bools
    """Disaggregated: prompts are prefilled by another pool."""


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
    factor = np.array([d.layouts[0].replicas_per_concurrency for d in deployments] or [1.0])[deployment]
    apart = (frame["scenario"] == DISAGGREGATED_SCENARIO).to_numpy()
    accelerators = np.array([d.layouts[0].accelerators for d in deployments] or [1], dtype=float)[deployment]
    stated = frame["concurrency"].to_numpy()
    workers = decode_workers(frame["decode_workers"].to_numpy(), accelerators, stated)
    concurrency = np.where(offline, np.nan, np.where(apart, np.maximum(stated / workers, 1.0), stated * factor))
    rows = BenchmarkRows(
        deployments=deployments,
        deployment=deployment,
        reasons=[group_reason[g] for g in group],
        input_tokens=frame["input_tokens"].to_numpy(),
        output_tokens=frame["output_tokens"].to_numpy(),
        cached_fraction=_cached_fraction(frame),
        concurrency=concurrency,
        ttft_objective_s=frame["slo_ttft_ms"].to_numpy() * MILLISECOND,
        tpot_objective_s=frame["slo_tpot_ms"].to_numpy() * MILLISECOND,
        is_offline=offline,
        is_open=frame["scenario"].isin(OPEN_SCENARIOS).to_numpy(),
        is_apart=apart,
    )
    _reason_gaps(rows)
    return rows


def _deployment(row: object, catalog: Catalog) -> Deployment:
    """Resolve one distinct combination of model, accelerator, engine, precision, tp and ep."""
    shape = find_model(str(row.model), catalog)  # type: ignore[attr-defined]
    part = find_part(str(row.accelerator), catalog)  # type: ignore[attr-defined]
    precision = find_precision(str(row.precision), part, shape)  # type: ignore[attr-defined]
    numbers = (row.tp, row.ep, row.attention_dp, row.max_num_seqs)  # type: ignore[attr-defined]
    tp, ep, attention_dp, max_sequences = (None if np.isnan(number) else int(number) for number in numbers)
    if row.scenario == DISAGGREGATED_SCENARIO:  # type: ignore[attr-defined]
        layouts = decode_worker(part, shape, precision, tp or USUAL_WORKER, attention_dp)
    else:
        layouts = lay_out(part, shape, precision, tp, ep, attention_dp)
    return Deployment(
        part=part,
        shape=shape,
        precision=precision,
        engine=find_engine(str(row.engine)),  # type: ignore[attr-defined]
        layouts=layouts,
        expert_parallel=ep is not None and ep > 1,
        max_sequences=max_sequences,
    )


def _cached_fraction(frame: pd.DataFrame) -> Floats:
    """Return the share of each prompt found in the prefix cache where the table says so, or its source is known to.

    A pool of N prompts sent ten times per unit of concurrency C repeats 1 − N/(10·C) of them.
    """
    given: Floats = frame[HIT_COLUMN].to_numpy(dtype=float)
    known = np.zeros(given.size)
    if {"source", "engine_version"} <= set(frame.columns):
        sent = _REQUESTS_PER_CLIENT * frame["concurrency"].to_numpy(dtype=float)
        for (source, engine, version), prompts in _PROMPT_POOLS.items():
            is_campaign = frame["source"].str.contains(source, regex=False) & (frame["engine_version"] == version)
            is_campaign &= frame["engine"].map(find_engine) == engine
            known = np.where(is_campaign & (sent > prompts), 1.0 - prompts / sent, known)
    return np.where(np.isnan(given), known, given)


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
    replicas, index = priced_rows(rows, calibration)
    usable = rows.deployment >= 0
    result = {name: np.full(usable.size, np.nan) for name in PREDICTED}
    loaded = ~rows.is_offline & ~np.isnan(rows.concurrency)
    decoding = np.where(rows.is_apart, 1.0, rows.cached_fraction)  # a decode worker prefills nothing
    for chosen in (usable & rows.is_offline, usable & loaded, usable & ~rows.is_offline & ~loaded):
        if not chosen.any():
            continue
        traffic = _traffic(rows, chosen, decoding)
        if rows.is_offline[chosen][0]:
            point = at_saturation(replicas, index[chosen], traffic)
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
    if (apart := usable & rows.is_apart).any():
        traffic, tpot_s = _traffic(rows, apart), result["tpot_s"][apart]
        result["ttft_s"][apart] = first_token_apart_s(replicas, index[apart], traffic, tpot_s)
    shown = calibration.first_token_log_effect.get(FORMULA, {})
    result["ttft_s"] *= factors(first_token_labels(rows, calibration), shown)
    return result


def first_token_labels(rows: BenchmarkRows, calibration: Calibration) -> list[Labels]:
    """Return the groups whose recipes each row's first token follows.

    None where requests arrive on their own, where prompts are prefilled elsewhere, and where more requests than a
    replica holds wait for a place: what these wait for is no recipe.
    """
    replicas, index = priced_rows(rows, calibration)
    usable = rows.deployment >= 0
    room = np.zeros(usable.size)
    room[usable] = at_saturation(replicas, index[usable], _traffic(rows, usable)).running_sequences
    follows = ~rows.is_open & ~rows.is_apart & (rows.concurrency <= room)
    labels: list[Labels] = [()] * usable.size
    specs, kinds = specs_of(rows, calibration)
    for row, spec, kind in zip(np.flatnonzero(usable).tolist(), specs, kinds, strict=True):
        if follows[row]:
            labels[row] = labels_of(spec.groups(kind), spec.engine, float(rows.input_tokens[row]))
    return labels


def _traffic(rows: BenchmarkRows, pick: Bools, cached_fraction: Floats | None = None) -> Traffic:
    return Traffic(
        input_tokens=rows.input_tokens[pick],
        output_tokens=rows.output_tokens[pick],
        cached_fraction=(rows.cached_fraction if cached_fraction is None else cached_fraction)[pick],
        burst_fraction=np.where(rows.is_open[pick], 0.0, 1.0),
    )


def _specs(rows: BenchmarkRows) -> tuple[list[ReplicaSpec], list[str], Ints, Ints]:
    """Return the replicas that rows may mean, their kinds, each row's first replica, and how many follow it.

    Only a saturated row or a decode worker leaves its layout open for the replica itself to decide.
    """
    specs: list[ReplicaSpec] = []
    kinds: list[str] = []
    first = np.zeros((len(_MODES), max(len(rows.deployments), 1)), dtype=np.intp)
    count = np.ones_like(first)
    for mode, kind in enumerate(_MODES):
        for number, deployment in enumerate(rows.deployments):
            first[mode, number] = len(specs)
            deployed = deployment.specs(is_open=mode == 1)[: 1 if kind == SERVING else None]
            count[mode, number] = len(deployed)
            specs += deployed
            kinds += [kind] * len(deployed)
    mode_of_row = np.select([rows.is_apart, rows.is_offline, rows.is_open], [3, 2, 1], 0)
    place = (mode_of_row, np.maximum(rows.deployment, 0))
    return specs, kinds, first[place], count[place]


def priced_rows(rows: BenchmarkRows, calibration: Calibration) -> tuple[Replicas, Ints]:
    """Price the replicas that rows may mean and return each row's own.

    Saturation takes the layout that serves most, a decode worker the one that is fastest at its concurrency.
    """
    specs, kinds, first, count = _specs(rows)
    if not specs:
        raise PlannerError("no row can be predicted")
    replicas = price_replicas(specs, calibration, kinds)
    index = first.copy()
    is_open = (rows.deployment >= 0) & (count > 1)
    for pick in (is_open & rows.is_offline, is_open & rows.is_apart):
        if not pick.any():
            continue
        traffic, most = _traffic(rows, pick), np.full(int(pick.sum()), -np.inf)
        for offset in range(int(count[pick].max())):
            candidate = first[pick] + np.minimum(offset, count[pick] - 1)
            if rows.is_offline[pick][0]:
                reached = at_saturation(replicas, candidate, traffic).output_tokens_per_s_per_accelerator
            else:
                reached = 1.0 / at_concurrency(replicas, candidate, traffic, rows.concurrency[pick]).tpot_s
            index[pick] = np.where(reached > most, candidate, index[pick])
            most = np.maximum(reached, most)
    return replicas, index


def specs_of(rows: BenchmarkRows, calibration: Calibration) -> tuple[list[ReplicaSpec], list[str]]:
    """Return the replica and the kind of each predictable row, open layouts settled by the calibration given."""
    _, index = priced_rows(rows, calibration)
    specs, kinds, *_ = _specs(rows)
    chosen = index[rows.deployment >= 0]
    return [specs[number] for number in chosen], [kinds[number] for number in chosen]


def row_doubts(rows: BenchmarkRows, calibration: Calibration) -> list[Doubt | None]:
    """Return the doubt about each row's prediction; None where it has a reason or the calibration knows none."""
    doubts: list[Doubt | None] = [None] * rows.deployment.size
    specs, kinds = specs_of(rows, calibration)
    known: dict[tuple[Groups, bool], Doubt | None] = {}
    for row, spec, kind in zip(np.flatnonzero(rows.deployment >= 0), specs, kinds, strict=True):
        key = (spec.groups(kind), spec.shape.experts > 0)
        if key not in known:
            known[key] = calibration.doubt(*key)
        doubts[row] = known[key]
    return doubts


def measurements(frame: pd.DataFrame, rows: BenchmarkRows, calibration: Calibration) -> Measurements:
    """Turn predictable rows into what the fit takes; an open layout is settled by the calibration given."""
    pick = rows.deployment >= 0
    chosen, kinds = specs_of(rows, calibration)
    return Measurements(
        work=describe(chosen),
        engine=[spec.engine for spec in chosen],
        vendor=[spec.part.vendor for spec in chosen],
        groups=[spec.groups(kind) for spec, kind in zip(chosen, kinds, strict=True)],
        traffic=_traffic(rows, pick),
        concurrency=rows.concurrency[pick],
        measured={
            "tpot_s": frame["tpot_ms"].to_numpy()[pick] * MILLISECOND,
            "ttft_s": frame["ttft_ms"].to_numpy()[pick] * MILLISECOND,
            "output_tokens_per_s_per_accelerator": frame["output_tokens_per_s_per_gpu"].to_numpy()[pick],
        },
        first_token=[labels for labels, used in zip(first_token_labels(rows, calibration), pick, strict=True) if used],
    )
