"""One hour request by request as an answer: tables, text and folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.answer import Answer
from planner.answers.identity import run_identity
from planner.answers.report import answer_files
from planner.answers.tables import tables_of
from planner.output.folder import Contents, write_folder
from planner.output.tables import Table
from planner.output.terminal import text_table
from planner.requests.outcome import PERCENTILES, QUANTITIES, REASONS, Outcome, outcomes
from planner.requests.zoom import MIN_REPLICAS, Zoom
from planner.requests.zoom_report import zoom_sections
from planner.requests.zoom_summary import WorkloadOutcome, ZoomSummary, group_names, zoom_summary

SAMPLED_REQUESTS = 2000
"""Requests of requests.csv: enough to draw, few enough to open."""
_REQUEST_NUMBERS = (
    "arrived_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "ttft_s",
    "tpot_s",
    "total_s",
)
"""Columns of requests.csv that an outcome holds under the same names."""
_LATENCY_WORDS = {"ttft_s": "first token", "tpot_s": "per token", "total_s": "whole request"}
ZOOM_TABLES = tables_of("zoom", sampled=f"{SAMPLED_REQUESTS:,}")
"""The tables of every zoom by their names."""


def zoom_tables(
    zoom: Zoom, by_workload: Sequence[Outcome], summary: ZoomSummary
) -> dict[str, Table]:
    """Return the tables of a zoom by their names."""
    workloads = list[Sequence[Any]]()
    latencies = list[Sequence[Any]]()
    causes = list[Sequence[Any]]()
    _, *described = ZOOM_TABLES["workloads"].columns
    columns = [column.name for column in described]
    for name, outcome in summary.workloads.items():
        figures = [getattr(outcome, column) for column in columns]
        workloads.append((name, *figures))
        for cause, number in outcome.slo_miss_causes.items():
            causes.append((name, cause, number, number / outcome.requests))
        for quantity, estimates in outcome.latencies().items():
            for probability, estimate in zip(PERCENTILES, estimates.values(), strict=True):
                ends = (estimate.value, estimate.low, estimate.high)
                latencies.append((name, quantity, probability, *ends))
    rows = {
        "workloads": workloads,
        "latencies": latencies,
        "distributions": _distributions(by_workload),
        "slo_miss_causes": causes,
        "seconds": _seconds(zoom),
        "requests": _sampled_requests(by_workload),
    }
    return {name: ZOOM_TABLES[name].of_rows(table) for name, table in rows.items()}


def _distributions(by_workload: Sequence[Outcome]) -> list[Sequence[Any]]:
    """Return the curve of each latency: a hundred even steps of the requests, and the last percentile."""
    # The middle of each hundredth, so that neither end is a single request.
    middles = (np.arange(100) + 0.5) / 100
    shares = np.append(middles, PERCENTILES[-1])
    rows = list[Sequence[Any]]()
    for outcome in by_workload:
        for quantity in QUANTITIES:
            seconds = getattr(outcome, quantity)
            seconds = seconds[np.isfinite(seconds)]
            if seconds.size:
                quantiles = np.quantile(seconds, shares).tolist()
                points = zip(shares.tolist(), quantiles, strict=True)
                rows += [(outcome.name, quantity, *point) for point in points]
    return rows


def _seconds(zoom: Zoom) -> list[Sequence[Any]]:
    """Return queue, batch and cache of each group, second by second."""
    seconds, groups = zoom.seconds.shape[:2]
    second = np.repeat(np.arange(seconds), groups)
    names = group_names(zoom) * seconds
    # Seconds and groups become rows, in the order of the names above.
    figures = zoom.seconds.reshape(-1, 3).T
    return list(zip(second, names, *figures, strict=True))


def _sampled_requests(by_workload: Sequence[Outcome]) -> list[Sequence[Any]]:
    """Return requests evenly spaced in order of arrival, all workloads together."""
    # Index arrays over all requests: whose each is, and its place among its workload's.
    sizes = [outcome.arrived_s.size for outcome in by_workload]
    owner = np.repeat(np.arange(len(by_workload)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    arrived_s = np.concatenate([outcome.arrived_s for outcome in by_workload])
    order = np.lexsort((owner, arrived_s))
    if order.size > SAMPLED_REQUESTS:
        # Evenly over the order of arrival, so that quiet and busy minutes keep their shares.
        sampled = np.linspace(0, order.size - 1, SAMPLED_REQUESTS)
        order = order[sampled.astype(np.intp)]
    return [_request_row(by_workload[owner[index]], place[index]) for index in order]


def _request_row(outcome: Outcome, i: int) -> Sequence[Any]:
    """Return a row of requests.csv."""
    status = "met" if outcome.attainment[i] else "late"
    # Refused and unfinished ones are neither late nor in time.
    if outcome.refused[i]:
        status = "refused"
    elif outcome.in_flight[i]:
        status = "in flight"
    cause = ""
    if outcome.reason[i] >= 0:
        cause = REASONS[outcome.reason[i]]
    numbers = [getattr(outcome, name)[i] for name in _REQUEST_NUMBERS]
    return outcome.name, *numbers, status, cause, outcome.retries[i], outcome.preemptions[i]


def summary_text(summary: ZoomSummary) -> str:
    """Return a zoom's figures for a terminal."""
    groups = ", ".join(
        f"{group.name} {group.simulated} of {group.in_service}" for group in summary.replicas
    )
    counts = summary.requests
    lines = [
        f"{summary.scenario} at {summary.at}, {summary.minutes} minutes, replication {summary.replication}",
        f"replicas simulated ({summary.simulated_share_fraction:.3g} of the fleet and its traffic): {groups}",
        f"{counts.arrived:,} requests arrived, {counts.finished:,} finished, {counts.refused:,} refused, "
        f"{counts.in_flight:,} in flight at the end",
    ]
    # The request is for about so many: half as many more is said, with the reason.
    if counts.arrived > 1.5 * counts.asked_for:
        lines.append(
            f"{counts.asked_for:,} were requested, but a sample has at least {MIN_REPLICAS} replicas of its busiest "
            "group and one of each other group; for fewer requests lower --minutes"
        )
    header = (
        "workload",
        "finished of due",
        "attained",
        "95% interval",
        "late",
        "shed",
        "hourly model",
        "why missed",
    )
    rows = [_workload_row(name, outcome) for name, outcome in summary.workloads.items()]
    latency_rows = []
    for name, outcome in summary.workloads.items():
        for quantity, estimates in outcome.latencies().items():
            seconds = [f"{estimate.value:.3g} s" for estimate in estimates.values()]
            latency_rows.append((name, _LATENCY_WORDS[quantity], *seconds))
    latency_header = ("workload", "latency", *(f"P{100 * p:g}" for p in PERCENTILES))
    lines += ["", text_table(header, rows)]
    lines += ["", text_table(latency_header, latency_rows)]
    return "\n".join(lines)


def _workload_row(name: str, outcome: WorkloadOutcome) -> tuple[str, ...]:
    """Return a workload's line of the terminal, with the three causes that most requests missed by."""
    # By number, and of equal ones by name, so that a table repeats.
    missed = [(number, cause) for cause, number in outcome.slo_miss_causes.items() if number]
    largest = sorted(missed, reverse=True)[:3]
    causes = [f"{cause} {number / outcome.requests:.2%}" for number, cause in largest]
    low = _percent(outcome.slo_attainment_low_fraction)
    high = _percent(outcome.slo_attainment_high_fraction)
    return (
        name,
        f"{outcome.finished:,} of {outcome.due:,}",
        _percent(outcome.slo_attainment_fraction) or outcome.status,
        f"{low} to {high}" if low else "",
        _percent(outcome.late_fraction),
        _percent(outcome.shed_fraction),
        _percent(outcome.hourly_slo_attainment_fraction),
        ", ".join(causes),
    )


def _percent(share: float | None) -> str:
    """Return a share in percent; nothing where it is not known."""
    return "" if share is None else f"{share:.2%}"


def write_zoom(zoom: Zoom, folder: Path, command: Sequence[str]) -> Answer[Zoom]:
    """Write a zoom's folder, whole or not at all, and return it as an answer."""
    by_workload = outcomes(zoom)
    summary = zoom_summary(zoom, by_workload)
    tables = zoom_tables(zoom, by_workload, summary)
    identity = run_identity(zoom.scenario, zoom.seed, zoom.request.replication)
    manifest = {
        **identity,
        "kind": "zoom",
        "at": summary.at,
        "minutes": summary.minutes,
        "command": list(command),
    }
    contents = Contents(manifest=manifest, tables=tables, summary=summary.to_json())
    files = answer_files(contents, contents.name.lower(), own_sections=zoom_sections)
    write_folder(folder, files, manifest)
    return Answer(
        folder=folder,
        result=zoom,
        warnings=(),
        summarise=summary.to_json,
        say=lambda *_: summary_text(summary),
        rows=lambda: tables["workloads"],
    )
