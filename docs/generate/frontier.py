"""Public frontiers beside the planner's choice: tokens/s per accelerator at equal time per token.

A frontier is what the best measured configuration of a model on an accelerator, in one precision, gives within a time
per token, pools for prefill and decode among them. Beside it stands what the planner takes there as it would in a run:
among all engines, degrees, chunks and pools that it knows, measured or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from planner.arrays import Floats
from planner.calibration.benchmarks import DISAGGREGATED_SCENARIO, find_draft
from planner.calibration.columns import DRAFT_COLUMN
from planner.calibration.predictions import predict_rows, prepare
from planner.catalog.load import Catalog
from planner.physics.coefficients import Calibration
from planner.plan.choice import Service, served_by
from planner.plan.reuse import Reuse
from planner.plan.shrinkage import TPOT_S
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import MILLISECOND

_CELL = ["model", "accelerator", "precision", "input_tokens", "output_tokens"]
_CONFIGURATION = [
    "scenario",
    "engine",
    "tp",
    "ep",
    "attention_dp",
    "prefill_tp",
    "prefill_workers",
    "decode_workers",
    "source",
]
_FEWEST_LOADS = 2
"""Loads of one configuration below which nothing is read between them."""
_NEAR = 0.9
"""Time per token of a single run over the time asked for, from which it stands for what is reached there: what is
faster was not loaded further, so that nobody knows."""
_LONGEST_OVER_MEAN = 1.1
"""95th percentile of a length drawn evenly between 0.8 and 1 of a nominal one, over its mean."""
_NODES = 4
"""Of the cluster that is offered: enough for any degree."""
_TTFT_S = 5.0
"""Objective on the mean first token of what is chosen: the published sweeps answer within it."""


class Point(NamedTuple):
    """One model on one accelerator, at one pair of lengths and one time per token."""

    model: str
    accelerator: str
    precision: str
    is_mixture: bool
    input_tokens: float
    output_tokens: float
    tpot_s: float
    measured: float
    """Output tokens/s per accelerator of the best configuration measured."""
    chosen: float
    """The same as predicted of what the planner chooses."""
    log_error: float
    """Standard deviation of its logarithm."""
    engine: str
    grade: str
    """Whether the chosen layout was measured."""

    @property
    def ratio(self) -> float:
        """Return what is predicted of the chosen over the best that was measured."""
        return self.chosen / self.measured


def closed_loops(frame: pd.DataFrame, catalog: Catalog, calibration: Calibration) -> pd.DataFrame:
    """Return the rows of closed loops that draft no tokens and repeat no prompts, with their rates and plain names.

    A client of a closed loop sends its next request when one ends, so Little's law says what all of them are served;
    where a row has no time to the first token it is taken as predicted.
    """
    is_apart = frame["scenario"] == DISAGGREGATED_SCENARIO
    # What does not say whether it drafts is half of it drafted, where pools are apart.
    is_stated = frame["prefill_workers"].notna() & frame["decode_workers"].notna()
    is_stated &= frame[DRAFT_COLUMN] != ""
    is_run = (frame["scenario"] == "Concurrency") | (is_apart & is_stated)
    rows = frame[is_run & frame["tpot_ms"].notna()].copy()
    rows = rows[rows[DRAFT_COLUMN].map(find_draft) == 0]
    # Prompts that a benchmark repeats are found in the cache: such rows say nothing of others.
    rows = pd.DataFrame(rows[prepare(rows, catalog).cached_fraction == 0.0])
    prepared = prepare(rows, catalog)
    deployments = [prepared.deployments[number] for number in prepared.deployment.tolist()]
    accelerators = np.array([served.layouts[0].accelerators for served in deployments])
    # A deployment has all its decode workers' requests, and the prefill workers' accelerators beside.
    apart = (rows["scenario"] == DISAGGREGATED_SCENARIO).to_numpy()
    prefilling = (rows["prefill_tp"] * rows["prefill_workers"]).to_numpy()
    decoding = accelerators * rows["decode_workers"].to_numpy()
    accelerators = np.where(apart, prefilling + decoding, accelerators)
    clients = np.where(apart, rows["concurrency"].to_numpy(), prepared.concurrency)
    predicted_ms = predict_rows(prepared, calibration)["ttft_s"] / MILLISECOND
    tokens_between = rows["output_tokens"] - 1.0
    request_ms = rows["ttft_ms"].fillna(pd.Series(predicted_ms, index=rows.index))
    request_ms = request_ms + tokens_between * rows["tpot_ms"]
    requests_per_s = clients / (request_ms * MILLISECOND)
    rows["tokens_per_s"] = requests_per_s * rows["output_tokens"] / accelerators
    rows["precision"] = [served.precision for served in deployments]
    rows["accelerator"] = [served.part.name for served in deployments]
    rows["model"] = [served.shape.name for served in deployments]
    rows["engine"] = [served.engine for served in deployments]
    return rows


def measured_frontiers(
    frame: pd.DataFrame, catalog: Catalog, calibration: Calibration
) -> pd.DataFrame:
    """Return the largest measured tokens/s per accelerator by cell and time per token."""
    rows = closed_loops(frame, catalog, calibration)
    points = []
    for key, cell in rows.groupby(_CELL, sort=True):
        tpot_s = cell["tpot_ms"].to_numpy()[:, None] * MILLISECOND
        rates = cell["tokens_per_s"].to_numpy()[:, None]
        # What is faster than asked for keeps the time too, but a little less shows what is reached within it.
        at_least = np.where(tpot_s <= TPOT_S, rates, 0.0).max(axis=0)
        is_near = (tpot_s <= TPOT_S) & (tpot_s >= _NEAR * np.array(TPOT_S))
        best = np.where(is_near, rates, 0.0).max(axis=0)
        for _, loads in cell.groupby(_CONFIGURATION, dropna=False):
            if len(loads) >= _FEWEST_LOADS:
                best = np.fmax(best, rates_between(loads))
        for asked_s, tokens_per_s, least in zip(
            TPOT_S, best.tolist(), at_least.tolist(), strict=True
        ):
            # Where the best run is a faster one its sweep ended early, and nobody looked for more.
            if tokens_per_s > 0.0 and tokens_per_s >= least:
                points.append((*key, asked_s, tokens_per_s))
    return pd.DataFrame(points, columns=[*_CELL, "tpot_s", "measured"])


def rates_between(loads: pd.DataFrame) -> Floats:
    """Return the rate of one configuration at each time per token, in logarithms; NaN outside its loads."""
    in_order = loads.sort_values("tpot_ms").drop_duplicates("tpot_ms")
    log_tpot = np.log(in_order["tpot_ms"].to_numpy(dtype=float) * MILLISECOND)
    log_rate = np.log(in_order["tokens_per_s"].to_numpy(dtype=float))
    rates: Floats = np.exp(np.interp(np.log(TPOT_S), log_tpot, log_rate, left=np.nan, right=np.nan))
    return rates


def lengths_about(input_tokens: float, output_tokens: float) -> dict[str, dict[str, float]]:
    """Return lengths as a workload states them, drawn as the benchmarks draw theirs."""
    means = {"input": input_tokens, "output": output_tokens}
    return {name: {"mean": mean, "p95": mean * _LONGEST_OVER_MEAN} for name, mean in means.items()}


def chosen_points(frontiers: pd.DataFrame, scenario: Scenario) -> list[Point]:
    """Return each point of measured frontiers with what the planner chooses there, by mean times."""
    reuse = Reuse(scenario)
    points = []
    for row in frontiers.to_dict("records"):
        workload = Workload.model_validate(
            {
                "model": row["model"],
                "lengths": lengths_about(row["input_tokens"], row["output_tokens"]),
                "requests_per_s": 1.0,
                # Work that can wait is planned by mean times, as runs are measured.
                "priority": "deferrable",
                "slo": {"ttft_s": _TTFT_S, "tpot_s": row["tpot_s"]},
            }
        )
        cluster = Cluster(accelerator=row["accelerator"], precision=row["precision"], nodes=_NODES)
        service = served_by(cluster, workload, scenario, reuse, {})
        if not isinstance(service, Service) or service.evidence is None:
            continue
        requests_per_s = service.requests_per_s / service.accelerators_per_node
        points.append(
            Point(
                **{str(name): value for name, value in row.items()},
                is_mixture=service.spec.shape.experts > 0,
                chosen=requests_per_s * row["output_tokens"],
                log_error=service.evidence.log_error,
                engine=service.spec.engine,
                grade=service.evidence.grade,
            )
        )
    return points


class PartRatio(NamedTuple):
    """What one accelerator serves over another, of a model at one pair of lengths and one time per token."""

    model: str
    accelerator: str
    reference: str
    tpot_s: float
    measured: float
    chosen: float
    log_error: float
    """Standard deviation of the logarithm of ``chosen``."""


def part_ratios(points: Sequence[Point], reference: str) -> list[PartRatio]:
    """Return the ratios of every accelerator to a reference, in the precisions that serve most on either."""

    def best(of: Sequence[Point]) -> tuple[float, float, float]:
        chosen = max(of, key=lambda point: point.chosen)
        return max(point.measured for point in of), chosen.chosen, chosen.log_error

    by_cell: dict[tuple[str, int, int, float], dict[str, list[Point]]] = {}
    for point in points:
        # Nominal lengths and those drawn below them are of one kind.
        about_input = round(math.log2(point.input_tokens))
        about_output = round(math.log2(point.output_tokens))
        cell = by_cell.setdefault((point.model, about_input, about_output, point.tpot_s), {})
        cell.setdefault(point.accelerator, []).append(point)
    ratios = []
    for (model, _, _, tpot_s), parts in by_cell.items():
        if reference not in parts:
            continue
        base_measured, base_chosen, base_error = best(parts[reference])
        for accelerator, own in parts.items():
            if accelerator == reference:
                continue
            measured, chosen, error = best(own)
            ratios.append(
                PartRatio(
                    model=model,
                    accelerator=accelerator,
                    reference=reference,
                    tpot_s=tpot_s,
                    measured=measured / base_measured,
                    chosen=chosen / base_chosen,
                    log_error=math.hypot(error, base_error),
                )
            )
    return ratios
