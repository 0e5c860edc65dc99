"""Predictions of benchmark rows by formula.

A table becomes arrays, one replica per distinct deployment and one case per row. What first tokens of benchmark
clients show beyond a prediction is their recipe's doing as much as the replica's: TensorRT-LLM's recipes hold short
prompts back until they fill a step (20 steps for prompts of 1,024 tokens, none for 8,192), SGLang's look for requests
every tenth or thirtieth step, and both are set by length of prompt and tuned campaign by campaign. So

    ln(measured / predicted) = Σ effects of a row's groups + noise,

the groups being its engine, its engine at prompts of about its length, model and part under that engine, its campaign,
and its campaign at prompts of about its length. Effects are pulled to zero by priors, rows count by campaign (ten at
most) and rows far off count less. They scale the time to first token and nothing else, and they hold for clients
alone: a recipe for a benchmark says nothing of requests that arrive on their own.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats, Ints
from planner.calibration import benchmarks
from planner.catalog.load import Catalog
from planner.errors import PlannerError
from planner.physics.coefficients import (
    DISAGGREGATED,
    SATURATED,
    SERVING,
    UNSTATED,
    Calibration,
    Groups,
)
from planner.physics.replica import (
    Replicas,
    ReplicaSpec,
    Traffic,
    at_concurrency,
    at_objective,
    at_saturation,
    first_token_apart_s,
    price_replicas,
)
from planner.units import MILLISECOND

_KEYS = [
    *benchmarks.NAME_COLUMNS,
    "tp",
    "ep",
    "attention_dp",
    "max_num_seqs",
    "scenario",
    benchmarks.DRAFT_COLUMN,
]
"""What tells one deployment from another."""
REQUESTS_PER_CLIENT = 10  # the published recipes' usual choice
_PROMPT_POOLS = {("aiconfigurator-core", "vllm", "0.12.0"): 100.0}
"""Distinct prompts of published campaigns that repeat them and do not say so, by source, engine and its version:
103,000 prompt tokens a second of Llama-3.1-8B on one H200 would be 84% of its peak arithmetic."""
_DECODE_ACCELERATORS = 32
"""Accelerators of a decode pool whose workers are not stated: four workers of eight in the published recipes (a
deployment of 36 accelerators is one prefill worker of four and these)."""
_CROWDED_SEQUENCES = 100
"""Sequences per accelerator of one worker from which the same recipes run one worker alone (12 accelerators: four that
prefill and one decode worker of eight for 2,252 sequences)."""
_USUAL_WORKER = 8
"""Accelerators of a worker where a table gives those of the whole deployment."""
_USUAL_BUSY = 0.7
"""Share of time for which a prefill pool works where its workers are not stated, if one alone is not enough."""
PREDICTED = ("ttft_s", "tpot_s", "tokens_per_s_per_accelerator")
"""What is predicted of a row."""
_MODES = (SERVING, SERVING, SATURATED, DISAGGREGATED, UNSTATED)
"""What a deployment may be under: a client's closed loop, independent arrivals, saturation, or a prefill pool apart
whose workers are stated or not."""


@dataclass(frozen=True, slots=True)
class BenchmarkRows:
    """Rows to predict; arrays have shape (rows,) of the frame, NaN or -1 where a row cannot be predicted."""

    deployments: list[benchmarks.ServedModel]
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
    per_prefill_accelerator: Floats
    """Requests in the deployment over the accelerators of its prefill workers."""
    prefill_busy_fraction: Floats
    """Share of time for which those work at most: 0.7 where a row does not state how many there are."""
    is_unlabelled: Bools
    """Whether a row leaves open if tokens are drafted."""
    days: list[list[int]]
    """The days on which each row was measured, counted from year 1; empty where unknown."""

    def traffic(self, pick: Bools, cached_fraction: Floats | None = None) -> Traffic:
        """Return the traffic of some rows, optionally with another cached share of their prompts."""
        return Traffic(
            input_tokens=self.input_tokens[pick],
            output_tokens=self.output_tokens[pick],
            cached_fraction=(self.cached_fraction if cached_fraction is None else cached_fraction)[
                pick
            ],
            burst_fraction=np.where(self.is_open[pick], 0.0, 1.0),
        )


def prepare(frame: pd.DataFrame, catalog: Catalog) -> BenchmarkRows:
    """Resolve names and parallelism of every row; an unresolved row gets the reason."""
    group = frame.groupby(_KEYS, sort=False, dropna=False).ngroup().to_numpy()
    first = frame.drop_duplicates(_KEYS)[_KEYS]
    deployments: list[benchmarks.ServedModel] = []
    by_group = np.full(len(first), -1, dtype=np.intp)
    group_reason = [""] * len(first)
    for index, row in enumerate(first.to_dict("records")):
        try:
            deployments.append(_deployment(row, catalog))
            by_group[index] = len(deployments) - 1
        except (benchmarks.CannotPredictError, PlannerError) as error:
            group_reason[index] = str(error)
    deployment = by_group[group]
    reasons = [group_reason[number] for number in group]
    offline = (frame["scenario"] == "Offline").to_numpy()
    apart = (frame["scenario"] == benchmarks.DISAGGREGATED_SCENARIO).to_numpy()
    factor = np.array([d.layouts[0].replicas_per_concurrency for d in deployments] or [1.0])[
        deployment
    ]
    accelerators = np.array([d.layouts[0].accelerators for d in deployments] or [1], dtype=float)[
        deployment
    ]
    stated = frame["concurrency"].to_numpy()
    workers = frame["decode_workers"].to_numpy()
    # Decode workers share a deployment's concurrency; where their number is not stated it is the recipes'.
    usual = np.where(
        stated >= _CROWDED_SEQUENCES * accelerators, 1.0, _DECODE_ACCELERATORS / accelerators
    )
    workers = np.where(np.isnan(workers), np.maximum(usual, 1.0), workers)
    # Where a table does not say what share of a prompt is in the prefix cache, its source may be known to repeat some:
    # a pool of N prompts sent ten times per unit of concurrency C repeats 1 − N/(10·C) of them.
    cached = frame[benchmarks.HIT_COLUMN].to_numpy(dtype=float)
    known = np.zeros(len(frame))
    if {"source", "engine_version"} <= set(frame.columns):
        sent = REQUESTS_PER_CLIENT * frame["concurrency"].to_numpy(dtype=float)
        for (source, engine, version), prompts in _PROMPT_POOLS.items():
            is_campaign = frame["source"].str.contains(source, regex=False) & (
                frame["engine_version"] == version
            )
            is_campaign &= frame["engine"].map(benchmarks.find_engine) == engine
            known = np.where(is_campaign & (sent > prompts), 1.0 - prompts / sent, known)
    degree = frame["prefill_tp"]  # one that is no worker's is the whole deployment's
    worker = degree.where(
        frame["prefill_workers"].notna() | (degree <= _USUAL_WORKER), float(_USUAL_WORKER)
    )
    rows = BenchmarkRows(
        deployments=deployments,
        deployment=deployment,
        reasons=reasons,
        input_tokens=frame["input_tokens"].to_numpy(),
        output_tokens=frame["output_tokens"].to_numpy(),
        cached_fraction=np.where(np.isnan(cached), known, cached),
        concurrency=np.where(
            offline, np.nan, np.where(apart, np.maximum(stated / workers, 1.0), stated * factor)
        ),
        ttft_objective_s=frame["slo_ttft_ms"].to_numpy() * MILLISECOND,
        tpot_objective_s=frame["slo_tpot_ms"].to_numpy() * MILLISECOND,
        is_offline=offline,
        is_open=frame["scenario"].isin(benchmarks.OPEN_SCENARIOS).to_numpy(),
        is_apart=apart,
        per_prefill_accelerator=stated / (worker * frame["prefill_workers"].fillna(1.0)).to_numpy(),
        prefill_busy_fraction=np.where(frame["prefill_workers"].isna(), _USUAL_BUSY, np.inf),
        is_unlabelled=(frame[benchmarks.DRAFT_COLUMN] == "").to_numpy(),
        days=[days_of(str(text)) for text in frame.get("measured_date", [""] * len(frame))],
    )
    no_objective = np.isnan(rows.ttft_objective_s) & np.isnan(rows.tpot_objective_s)
    no_load = ~offline & np.isnan(rows.concurrency) & no_objective & (deployment >= 0)
    for missing, reason in (
        (
            np.isnan(rows.input_tokens) | np.isnan(rows.output_tokens),
            "input_tokens and output_tokens are needed",
        ),
        (no_load, "a concurrency or an objective (slo_ttft_ms, slo_tpot_ms) is needed"),
    ):
        for index in np.flatnonzero(missing).tolist():
            reasons[index] = reasons[index] or reason
            deployment[index] = -1
    return rows


def days_of(text: str) -> list[int]:
    """Return the days, counted from year 1, that a table names: a day, a month (its 15th), or the ends of a range."""
    dates = [
        (int(y), int(m), int(d or 15))
        for y, m, d in re.findall(r"(\d{4})-(\d{2})(?:-(\d{2}))?", text)
    ]
    try:
        return [datetime.date(*parts).toordinal() for parts in dates]
    except ValueError:  # no such day: as if none were stated
        return []


def lag_speeds(rows: BenchmarkRows, priced: PricedRows, calibration: Calibration) -> Floats:
    """Return the share of full speed of each row, shape (rows,): below 1 for new models that were never measured there.

    A stack runs a new model at the share f of full speed and closes the gap with a third of its weeks w as the time
    constant τ, as in a run. Over a row's dates, from a to b weeks after the launch, (1 − f)·τ·(e^(−a/τ) − e^(−b/τ)) /
    (b − a) are missing in the mean.
    """
    speeds = np.ones(rows.deployment.size)
    placed = zip(
        np.flatnonzero(rows.deployment >= 0).tolist(), priced.specs, priced.kinds, strict=True
    )
    for row, spec, kind in placed:
        begins_at, weeks = spec.part.bring_up.get(spec.engine, (1.0, 0.0))
        days = rows.days[row]
        released = spec.shape.released
        if (
            not days
            or not released
            or not weeks
            or not calibration.is_new(spec.groups(kind), spec.is_unlike)
        ):
            continue
        first, last = (max(day - released.toordinal(), 0) / 7.0 for day in (min(days), max(days)))
        tau = weeks / 3.0
        last = max(last, first + 0.1)
        gap = tau / (last - first) * (math.exp(-first / tau) - math.exp(-last / tau))
        speeds[row] = 1.0 - (1.0 - begins_at) * gap
    return speeds


def _deployment(row: Mapping[Any, Any], catalog: Catalog) -> benchmarks.ServedModel:
    """Resolve one distinct combination of model, accelerator, engine, precision, tp and ep."""
    shape = benchmarks.find_model(str(row["model"]), catalog)
    part = benchmarks.find_part(str(row["accelerator"]), catalog)
    precision = benchmarks.find_precision(str(row["precision"]), part, shape)
    tp, ep, attention_dp, max_sequences = (
        None if np.isnan(row[key]) else int(row[key]) for key in _KEYS[4:8]
    )
    if row["scenario"] == benchmarks.DISAGGREGATED_SCENARIO:
        # A tp that is no power of two is the whole deployment's: tables that know no more write it for both pools.
        degree = tp if tp and tp & (tp - 1) == 0 else _USUAL_WORKER
        if shape.experts and tp and ep and ep > tp * (attention_dp or 1) and ep % tp == 0:
            # Experts lie over all groups of attention.
            degree = ep
            attention_dp = ep // tp
        layouts = benchmarks.lay_out(part, shape, precision, degree, None, attention_dp)
    else:
        layouts = benchmarks.lay_out(part, shape, precision, tp, ep, attention_dp)
    return benchmarks.ServedModel(
        part=part,
        shape=shape,
        precision=precision,
        engine=benchmarks.find_engine(str(row["engine"])),
        layouts=layouts,
        expert_parallel=ep is not None and ep > 1,
        max_sequences=max_sequences,
        drafted_tokens=benchmarks.find_draft(str(row[benchmarks.DRAFT_COLUMN])),
    )


@dataclass(frozen=True, slots=True)
class PricedRows:
    """The candidate replicas of rows, timed by a calibration, and the replica of each row."""

    replicas: Replicas
    index: Ints
    """Each row's replica, shape (rows,); any one where a row has a reason instead."""
    specs: list[ReplicaSpec]
    """The replica of each predictable row."""
    kinds: list[str]
    """The kind of each predictable row."""

    @property
    def groups(self) -> list[Groups]:
        """The measurement groups of each predictable row."""
        return [spec.groups(kind) for spec, kind in zip(self.specs, self.kinds, strict=True)]


def priced_rows(rows: BenchmarkRows, calibration: Calibration) -> PricedRows:
    """Time the candidate replicas of rows, and select the replica of each row.

    Only a saturated row or a decode worker leaves its layout open for the replica itself to decide: saturation takes
    the layout that serves most, a decode worker the one that is fastest at its concurrency.
    """
    specs: list[ReplicaSpec] = []
    kinds: list[str] = []
    first = np.zeros((len(_MODES), max(len(rows.deployments), 1)), dtype=np.intp)
    count = np.ones_like(first)
    for mode, kind in enumerate(_MODES):
        for number, deployment in enumerate(rows.deployments):
            deployed = deployment.specs(is_open=mode == 1)[: 1 if kind == SERVING else None]
            first[mode, number], count[mode, number] = len(specs), len(deployed)
            specs += deployed
            kinds += [kind] * len(deployed)
    if not specs:
        raise PlannerError("no row can be predicted")
    is_stated = rows.is_apart & ~np.isfinite(rows.prefill_busy_fraction)
    mode_of_row = np.select(
        [is_stated, rows.is_apart, rows.is_offline, rows.is_open], [3, 4, 2, 1], 0
    )
    place = (mode_of_row, np.maximum(rows.deployment, 0))
    first = first[place]
    count = count[place]
    replicas = price_replicas(specs, calibration, kinds)
    index = first.copy()
    left_open = (rows.deployment >= 0) & (count > 1)
    for pick in (left_open & rows.is_offline, left_open & rows.is_apart):
        if not pick.any():
            continue
        traffic = rows.traffic(pick)
        most = np.full(int(pick.sum()), -np.inf)
        for offset in range(int(count[pick].max())):
            candidate = first[pick] + np.minimum(offset, count[pick] - 1)
            if rows.is_offline[pick][0]:
                reached = at_saturation(
                    replicas, candidate, traffic
                ).output_tokens_per_s_per_accelerator
            else:
                reached = (
                    1.0
                    / at_concurrency(replicas, candidate, traffic, rows.concurrency[pick]).tpot_s
                )
            index[pick] = np.where(reached > most, candidate, index[pick])
            most = np.maximum(reached, most)
    chosen = index[rows.deployment >= 0].tolist()
    return PricedRows(
        replicas, index, [specs[number] for number in chosen], [kinds[number] for number in chosen]
    )


def predict_rows(rows: BenchmarkRows, calibration: Calibration) -> dict[str, Floats]:
    """Predict TTFT, TPOT (s) and output tokens/s per accelerator of every row; NaN where not predictable."""
    priced = priced_rows(rows, calibration)
    replicas = priced.replicas
    index = priced.index
    usable = rows.deployment >= 0
    result = {name: np.full(usable.size, np.nan) for name in PREDICTED}
    loaded = ~rows.is_offline & ~np.isnan(rows.concurrency)
    decoding = np.where(
        rows.is_apart, 1.0, rows.cached_fraction
    )  # a decode worker prefills nothing
    for chosen in (usable & rows.is_offline, usable & loaded, usable & ~rows.is_offline & ~loaded):
        if not chosen.any():
            continue
        traffic = rows.traffic(chosen, decoding)
        if rows.is_offline[chosen][0]:
            point = at_saturation(replicas, index[chosen], traffic)
        elif loaded[chosen][0]:
            point = at_concurrency(replicas, index[chosen], traffic, rows.concurrency[chosen])
        else:
            stated_s = (rows.ttft_objective_s[chosen], rows.tpot_objective_s[chosen])
            ttft_s, tpot_s = (
                np.where(np.isnan(objective_s), np.inf, objective_s) for objective_s in stated_s
            )
            point = at_objective(replicas, index[chosen], traffic, ttft_s, tpot_s)
        result["ttft_s"][chosen] = point.ttft_s
        result["tpot_s"][chosen] = point.tpot_s
        result["tokens_per_s_per_accelerator"][chosen] = point.output_tokens_per_s_per_accelerator
    speeds = lag_speeds(rows, priced, calibration)
    result["tpot_s"] /= speeds
    result["tokens_per_s_per_accelerator"] *= speeds
    if (apart := usable & rows.is_apart).any():
        share = np.zeros(usable.size)
        share[usable] = [
            calibration.drafted_share.get(groups.campaign, 0.0) for groups in priced.groups
        ]
        if (share := np.where(rows.is_unlabelled, share, 0.0)).any():
            # The middle of what such runs take with and without drafts, in logarithms.
            drafted_s = predict_rows(drafting(rows), replace(calibration, drafted_share={}))[
                "tpot_s"
            ]
            result["tpot_s"] *= (drafted_s / result["tpot_s"]) ** share
        traffic = rows.traffic(apart)
        tpot_s = result["tpot_s"][apart]
        pool = (rows.per_prefill_accelerator[apart], rows.prefill_busy_fraction[apart])
        # What decode workers show beyond serving is not their prefill pool's.
        effects = {
            name: x
            for name, x in calibration.group_log_effect.items()
            if not name.endswith(DISAGGREGATED)
        }
        plain = priced_rows(rows, replace(calibration, group_log_effect=effects))
        result["ttft_s"][apart] = first_token_apart_s(
            plain.replicas, plain.index[apart], traffic, tpot_s, *pool
        )
    shown = calibration.first_token_log_effect.get(FORMULA, {})
    result["ttft_s"] *= factors(first_token_labels(rows, priced), shown)
    return result


def drafting(rows: BenchmarkRows) -> BenchmarkRows:
    """Return the same rows with the usual draft in every step."""
    drafted = [replace(one, drafted_tokens=benchmarks.USUAL_DRAFT) for one in rows.deployments]
    return replace(rows, deployments=drafted)


Labels = tuple[str, ...]
"""A row's groups, one for each level; empty where its first token follows no recipe."""
FORMULA = "formula"
"""What first tokens are held against: the formula's mean."""


def labels_of(groups: Groups, engine: str, input_tokens: float) -> Labels:
    """Return the groups of a row's TTFT effects; prompt lengths within a factor of √2 share a group."""
    about = f"prompts of about {2.0 ** round(np.log2(input_tokens)):g}"
    campaign = groups.campaign
    return (
        engine,
        f"{engine} / {about}",
        groups.model,
        groups.part,
        campaign,
        f"{campaign} / {about}",
    )


def first_token_labels(rows: BenchmarkRows, priced: PricedRows) -> list[Labels]:
    """Return the groups whose TTFT effects apply to each row.

    None where requests arrive on their own, where prompts are prefilled elsewhere, and where more requests than a
    replica holds wait for a place: what these wait for is no recipe.
    """
    usable = rows.deployment >= 0
    room = np.zeros(usable.size)
    room[usable] = at_saturation(
        priced.replicas, priced.index[usable], rows.traffic(usable)
    ).running_sequences
    follows = ~rows.is_open & ~rows.is_apart & (rows.concurrency <= room)
    labels: list[Labels] = [()] * usable.size
    for row, spec, groups in zip(
        np.flatnonzero(usable).tolist(), priced.specs, priced.groups, strict=True
    ):
        if follows[row]:
            labels[row] = labels_of(groups, spec.engine, float(rows.input_tokens[row]))
    return labels


def factors(labels: Sequence[Labels], effects: Mapping[str, float]) -> Floats:
    """Return the factor on each row's predicted TTFT, shape (rows,); 1 where no effect is known."""
    return np.exp([sum(effects.get(label, 0.0) for label in row) for row in labels])
