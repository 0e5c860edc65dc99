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
from planner.calibration import benchmarks, columns
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
    disaggregated_ttft_s,
    price_replicas,
)
from planner.units import MILLISECOND

_KEYS = [
    *columns.NAME_COLUMNS,
    "tp",
    "ep",
    "attention_dp",
    "max_num_seqs",
    "scenario",
    columns.DRAFT_COLUMN,
]
"""What tells one deployment from another."""
REQUESTS_PER_CLIENT = 10
"""The published recipes' usual choice."""
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
    is_disaggregated: Bools
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
        cached = self.cached_fraction if cached_fraction is None else cached_fraction
        return Traffic(
            input_tokens=self.input_tokens[pick],
            output_tokens=self.output_tokens[pick],
            cached_fraction=cached[pick],
            # Clients of a closed loop send their first requests all at once; others do not.
            burst_fraction=np.where(self.is_open[pick], 0.0, 1.0),
        )


def prepare(frame: pd.DataFrame, catalog: Catalog) -> BenchmarkRows:
    """Resolve names and parallelism of every row; an unresolved row gets the reason."""
    by_keys = frame.groupby(_KEYS, sort=False, dropna=False)
    group = by_keys.ngroup().to_numpy()
    distinct = frame.drop_duplicates(_KEYS)[_KEYS]
    deployments: list[benchmarks.ServedModel] = []
    by_group = np.full(len(distinct), -1, dtype=np.intp)
    group_reason = [""] * len(distinct)
    for index, row in enumerate(distinct.to_dict("records")):
        try:
            deployments.append(_deployment(row, catalog))
            by_group[index] = len(deployments) - 1
        except (benchmarks.CannotPredictError, PlannerError) as error:
            group_reason[index] = str(error)
    deployment = by_group[group]
    reasons = [group_reason[number] for number in group]
    offline = (frame["scenario"] == "Offline").to_numpy()
    disaggregated = (frame["scenario"] == benchmarks.DISAGGREGATED_SCENARIO).to_numpy()
    # Without any deployment a single stand-in: index -1 must find a figure, which is not used.
    factors_of_all = [d.layouts[0].replicas_per_concurrency for d in deployments] or [1.0]
    factor = np.array(factors_of_all)[deployment]
    sizes = [d.layouts[0].accelerators for d in deployments] or [1]
    accelerators = np.array(sizes, dtype=float)[deployment]
    stated = frame["concurrency"].to_numpy()
    workers = frame["decode_workers"].to_numpy()
    # Decode workers share a deployment's concurrency; where their number is not stated it is the recipes'.
    is_crowded = stated >= _CROWDED_SEQUENCES * accelerators
    usual_workers = _DECODE_ACCELERATORS / accelerators
    usual = np.where(is_crowded, 1.0, usual_workers)
    at_least_one = np.maximum(usual, 1.0)
    workers = np.where(np.isnan(workers), at_least_one, workers)
    # Where a table does not say what share of a prompt is in the prefix cache, its source may be known to repeat some:
    # a pool of N prompts sent ten times per unit of concurrency C repeats 1 − N/(10·C) of them.
    cached = frame[columns.HIT_COLUMN].to_numpy(dtype=float)
    repeated = np.zeros(len(frame))
    if {"source", "engine_version"} <= set(frame.columns):
        sent = REQUESTS_PER_CLIENT * frame["concurrency"].to_numpy(dtype=float)
        for (source, engine, version), prompts in _PROMPT_POOLS.items():
            is_source = frame["source"].str.contains(source, regex=False)
            is_campaign = is_source & (frame["engine_version"] == version)
            is_engine = frame["engine"].map(benchmarks.find_engine) == engine
            is_campaign &= is_engine
            is_repeating = is_campaign & (sent > prompts)
            repeated = np.where(is_repeating, 1.0 - prompts / sent, repeated)
    degree = frame["prefill_tp"]  # one that is no worker's is the whole deployment's
    is_one_worker = frame["prefill_workers"].notna() | (degree <= _USUAL_WORKER)
    worker = degree.where(is_one_worker, float(_USUAL_WORKER))
    per_decode_worker = np.maximum(stated / workers, 1.0)
    loads = np.where(disaggregated, per_decode_worker, stated * factor)
    prefill_accelerators = worker * frame["prefill_workers"].fillna(1.0)
    dates = frame.get("measured_date", [""] * len(frame))
    is_unstated = frame["prefill_workers"].isna()
    busy_fraction = np.where(is_unstated, _USUAL_BUSY, np.inf)
    rows = BenchmarkRows(
        deployments=deployments,
        deployment=deployment,
        reasons=reasons,
        input_tokens=frame["input_tokens"].to_numpy(),
        output_tokens=frame["output_tokens"].to_numpy(),
        cached_fraction=np.where(np.isnan(cached), repeated, cached),
        concurrency=np.where(
            offline,
            np.nan,
            loads,
        ),
        ttft_objective_s=frame["slo_ttft_ms"].to_numpy() * MILLISECOND,
        tpot_objective_s=frame["slo_tpot_ms"].to_numpy() * MILLISECOND,
        is_offline=offline,
        is_open=frame["scenario"].isin(benchmarks.OPEN_SCENARIOS).to_numpy(),
        is_disaggregated=disaggregated,
        per_prefill_accelerator=stated / prefill_accelerators.to_numpy(),
        prefill_busy_fraction=busy_fraction,
        is_unlabelled=(frame[columns.DRAFT_COLUMN] == "").to_numpy(),
        days=[days_of(str(text)) for text in dates],
    )
    # A row needs a load, or an objective that sets one.
    no_ttft = np.isnan(rows.ttft_objective_s)
    no_objective = no_ttft & np.isnan(rows.tpot_objective_s)
    is_without_load = ~offline & np.isnan(rows.concurrency)
    no_load = is_without_load & no_objective & (deployment >= 0)
    for missing, reason in (
        (
            np.isnan(rows.input_tokens) | np.isnan(rows.output_tokens),
            "input_tokens and output_tokens are needed",
        ),
        (no_load, "either a concurrency or an objective (slo_ttft_ms, slo_tpot_ms) is needed"),
    ):
        for index in np.flatnonzero(missing).tolist():
            # The first reason stays: a row whose model is unknown needs no second one.
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
    predictable = np.flatnonzero(rows.deployment >= 0).tolist()
    placed = zip(predictable, priced.specs, priced.kinds, strict=True)
    for row, spec, kind in placed:
        begins_at, weeks = spec.part.bring_up.get(spec.engine, (1.0, 0.0))
        days = rows.days[row]
        released = spec.shape.released
        if not (days and released and weeks):
            continue
        if not calibration.is_new(spec.groups(kind), spec.is_unlike):
            continue
        launch = released.toordinal()
        begin = max(min(days) - launch, 0) / 7.0
        end = max(max(days) - launch, 0) / 7.0
        end = max(end, begin + 0.1)  # a single day: the formula divides by the length
        tau = weeks / 3.0
        closed = math.exp(-begin / tau) - math.exp(-end / tau)
        gap = tau / (end - begin) * closed
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
        drafted_tokens=benchmarks.find_draft(str(row[columns.DRAFT_COLUMN])),
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
    # Specs lie one after another: where those of a mode and deployment start, and how many they are.
    # One column at the least, for the rows that no deployment serves.
    deployment_count = max(len(rows.deployments), 1)
    start = np.zeros((len(_MODES), deployment_count), dtype=np.intp)
    count = np.ones_like(start)
    for mode, kind in enumerate(_MODES):
        for number, deployment in enumerate(rows.deployments):
            # While it serves, a deployment has the layout that its row states; the first is that
            # one.
            candidates = deployment.specs(is_open=mode == 1)
            deployed = candidates[: 1 if kind == SERVING else None]
            start[mode, number] = len(specs)
            count[mode, number] = len(deployed)
            specs += deployed
            kinds += [kind] * len(deployed)
    if not specs:
        raise PlannerError("no row can be predicted")
    is_unstated = np.isfinite(rows.prefill_busy_fraction)
    is_stated = rows.is_disaggregated & ~is_unstated
    # The order decides where several hold; the numbers are places in _MODES.
    mode_of_row = np.select(
        [is_stated, rows.is_disaggregated, rows.is_offline, rows.is_open], [3, 4, 2, 1], 0
    )
    # Rows without a deployment read that of any other: their figures are dropped in the end.
    place = (mode_of_row, np.maximum(rows.deployment, 0))
    start = start[place]
    count = count[place]
    replicas = price_replicas(specs, calibration, kinds)
    index = start.copy()
    left_open = (rows.deployment >= 0) & (count > 1)
    for pick in (left_open & rows.is_offline, left_open & rows.is_disaggregated):
        if not pick.any():
            continue
        traffic = rows.traffic(pick)
        # Nothing is slower than no layout: the first one looked at always counts.
        rows_picked = int(pick.sum())
        best = np.full(rows_picked, -np.inf)
        for offset in range(int(count[pick].max())):
            # Rows with fewer layouts look at their last again, which changes nothing.
            last_offset = count[pick] - 1
            candidate = start[pick] + np.minimum(offset, last_offset)
            if rows.is_offline[pick][0]:
                point = at_saturation(replicas, candidate, traffic)
                speed = point.output_tokens_per_s_per_accelerator
            else:
                clients = rows.concurrency[pick]
                point = at_concurrency(replicas, candidate, traffic, clients)
                speed = 1.0 / point.tpot_s
            # Strictly faster: of layouts alike the first stays.
            is_better = speed > best
            index[pick] = np.where(is_better, candidate, index[pick])
            best = np.maximum(speed, best)
    chosen = index[rows.deployment >= 0].tolist()
    chosen_specs = [specs[number] for number in chosen]
    chosen_kinds = [kinds[number] for number in chosen]
    return PricedRows(replicas, index, chosen_specs, chosen_kinds)


def predict_rows(rows: BenchmarkRows, calibration: Calibration) -> dict[str, Floats]:
    """Predict TTFT, TPOT (s) and output tokens/s per accelerator of every row; NaN where not predictable."""
    priced = priced_rows(rows, calibration)
    replicas = priced.replicas
    index = priced.index
    usable = rows.deployment >= 0
    result = {name: np.full(usable.size, np.nan) for name in PREDICTED}
    # Three kinds of load, each solved for all its rows at once.
    is_stated = ~np.isnan(rows.concurrency)
    loaded = ~rows.is_offline & is_stated
    # A decode worker prefills nothing.
    decoding = np.where(rows.is_disaggregated, 1.0, rows.cached_fraction)
    by_objective = usable & ~rows.is_offline & ~loaded
    for chosen in (usable & rows.is_offline, usable & loaded, by_objective):
        if not chosen.any():
            continue
        traffic = rows.traffic(chosen, decoding)
        # All rows of a kind are alike, so the first stands for them.
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
    disaggregated = usable & rows.is_disaggregated
    if disaggregated.any():
        share = np.zeros(usable.size)
        share[usable] = [
            calibration.drafted_share.get(groups.campaign, 0.0) for groups in priced.groups
        ]
        share = np.where(rows.is_unlabelled, share, 0.0)
        if share.any():
            # The middle of what such runs take with and without drafts, in logarithms.
            undrafted = replace(calibration, drafted_share={})
            drafted_s = predict_rows(drafting(rows), undrafted)["tpot_s"]
            # It ends: with no share left in the calibration the call above does not come here
            # again.
            drafted_ratio = drafted_s / result["tpot_s"]
            result["tpot_s"] *= drafted_ratio**share
        traffic = rows.traffic(disaggregated)
        tpot_s = result["tpot_s"][disaggregated]
        pool = (
            rows.per_prefill_accelerator[disaggregated],
            rows.prefill_busy_fraction[disaggregated],
        )
        # What decode workers show beyond serving is not their prefill pool's.
        effects = {
            name: effect
            for name, effect in calibration.group_log_effect.items()
            if not name.endswith(DISAGGREGATED)
        }
        serving_calibration = replace(calibration, group_log_effect=effects)
        plain = priced_rows(rows, serving_calibration)
        pool_index = plain.index[disaggregated]
        result["ttft_s"][disaggregated] = disaggregated_ttft_s(
            plain.replicas, pool_index, traffic, tpot_s, *pool
        )
    ttft_effects = calibration.first_token_log_effect.get(FORMULA, {})
    labels = first_token_labels(rows, priced)
    result["ttft_s"] *= factors(labels, ttft_effects)
    return result


def drafting(rows: BenchmarkRows) -> BenchmarkRows:
    """Return the same rows with the usual draft in every step."""
    drafted = [
        replace(deployment, drafted_tokens=benchmarks.USUAL_DRAFT)
        for deployment in rows.deployments
    ]
    return replace(rows, deployments=drafted)


Labels = tuple[str, ...]
"""A row's groups, one for each level; empty where its first token follows no recipe."""
FORMULA = "formula"
"""What first tokens are held against: the formula's mean."""


def labels_of(groups: Groups, engine: str, input_tokens: float) -> Labels:
    """Return the groups of a row's TTFT effects; prompt lengths within a factor of √2 share a group."""
    about_tokens = 2.0 ** round(np.log2(input_tokens))
    length = f"prompts of about {about_tokens:g}"
    campaign = groups.campaign
    return (
        engine,
        f"{engine} / {length}",
        groups.model,
        groups.part,
        campaign,
        f"{campaign} / {length}",
    )


def first_token_labels(rows: BenchmarkRows, priced: PricedRows) -> list[Labels]:
    """Return the groups whose TTFT effects apply to each row.

    None where requests arrive on their own, where prompts are prefilled elsewhere, and where more requests than a
    replica holds wait for a place: what these wait for is no recipe.
    """
    usable = rows.deployment >= 0
    # Requests that a replica decodes at once when it is full.
    room = np.zeros(usable.size)
    room[usable] = at_saturation(
        priced.replicas, priced.index[usable], rows.traffic(usable)
    ).running_sequences
    # NaN is not below: a row of saturation has no first token that a recipe sets.
    has_place = rows.concurrency <= room
    follows = ~rows.is_open & ~rows.is_disaggregated & has_place
    labels: list[Labels] = [()] * usable.size
    for row, spec, groups in zip(
        np.flatnonzero(usable).tolist(), priced.specs, priced.groups, strict=True
    ):
        if follows[row]:
            input_tokens = float(rows.input_tokens[row])
            labels[row] = labels_of(groups, spec.engine, input_tokens)
    return labels


def factors(labels: Sequence[Labels], effects: Mapping[str, float]) -> Floats:
    """Return the factor on each row's predicted TTFT, shape (rows,); 1 where no effect is known."""
    # Effects are logarithms, so factors of all levels multiply.
    log_factors = [sum(effects.get(label, 0.0) for label in row) for row in labels]
    return np.exp(log_factors)
