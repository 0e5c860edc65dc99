"""One hour request by request as an answer: tables, summary, text, and the sections of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.report import answer_files
from planner.answers.run import scenario_identity
from planner.answers.tables import tables_of
from planner.arrays import Floats
from planner.output.folder import Contents, write_folder
from planner.output.tables import SCHEMA_VERSION, Table
from planner.output.terminal import text_table
from planner.requests.hour import LEAST_REPLICAS
from planner.requests.outcome import PERCENTILES, QUANTITIES, Outcome, outcomes
from planner.requests.zoom import Zoom

SAMPLED_REQUESTS = 2000
"""Requests of requests.csv: enough to draw, few enough to open."""
_CURVE_POINTS = 100
_MANY_MORE = 1.5  # times the requests asked for, which are met about
_WORDS = {"ttft_s": "first token", "tpot_s": "per token", "total_s": "whole request"}
ZOOM_TABLES = tables_of("zoom", sampled=f"{SAMPLED_REQUESTS:,}")
"""The tables of every zoom by their names."""


def _workload_rows(zoom: Zoom, by_workload: Sequence[Outcome]) -> Table:
    hour = zoom.hour
    served = [outcome for outcome in by_workload if outcome.arrived_s.size]
    places = [by_workload.index(outcome) for outcome in served]
    in_time = [outcome.share(outcome.in_time) for outcome in served]
    columns: dict[str, Any] = {
        "workload": [outcome.name for outcome in served],
        "requests": [outcome.arrived_s.size for outcome in served],
        "in_time_fraction": [share.value for share in in_time],
        "in_time_low_fraction": [share.low for share in in_time],
        "in_time_high_fraction": [share.high for share in in_time],
        "late_fraction": [float((~o.in_time & ~o.refused).mean()) for o in served],
        "shed_fraction": [float(o.refused.mean()) for o in served],
        "in_flight_fraction": [float(o.in_flight.mean()) for o in served],
        "hourly_in_time_fraction": (1.0 - hour.late_fraction - hour.shed_fraction)[places],
        "hourly_late_fraction": hour.late_fraction[places],
        "hourly_shed_fraction": hour.shed_fraction[places],
    }
    return Table(ZOOM_TABLES["workloads"], columns)


def _latency_rows(by_workload: Sequence[Outcome]) -> Table:
    rows = [
        (outcome.name, quantity, probability, outcome.percentile(quantity, probability))
        for outcome in by_workload
        for quantity in QUANTITIES
        if np.isfinite(getattr(outcome, quantity)).any()
        for probability in PERCENTILES
    ]
    return ZOOM_TABLES["latencies"].of_rows(
        (*names, estimate.value, estimate.low, estimate.high) for *names, estimate in rows
    )


def _distribution_rows(by_workload: Sequence[Outcome]) -> Table:
    shares = (np.arange(_CURVE_POINTS) + 0.5) / _CURVE_POINTS
    rows: list[tuple[str, str, float, float]] = []
    for outcome in by_workload:
        for quantity in QUANTITIES:
            figures = getattr(outcome, quantity)
            figures = figures[np.isfinite(figures)]
            if figures.size:
                points = zip(shares.tolist(), np.quantile(figures, shares).tolist(), strict=True)
                rows += [(outcome.name, quantity, *point) for point in points]
    return ZOOM_TABLES["distributions"].of_rows(rows)


def _reason_rows(by_workload: Sequence[Outcome]) -> Table:
    rows = [
        (outcome.name, reason, number, number / outcome.arrived_s.size)
        for outcome in by_workload
        if outcome.arrived_s.size
        for reason, number in outcome.reasons().items()
    ]
    return ZOOM_TABLES["reasons"].of_rows(rows)


def _second_rows(zoom: Zoom) -> Table:
    seconds, replica_groups = zoom.seconds.shape[:2]
    flat = zoom.seconds.reshape(-1, 3)
    columns = {
        "second": np.repeat(np.arange(seconds), replica_groups),
        "replicas": group_names(zoom) * seconds,
        "waiting": flat[:, 0],
        "running": flat[:, 1],
        "cache_fraction": flat[:, 2],
    }
    return Table(ZOOM_TABLES["seconds"], columns)


def group_names(zoom: Zoom) -> list[str]:
    """Return what each group of replicas is called."""
    return [f"{zoom.plan.clusters[s.cluster].name} {s.model} x{s.accelerators}" for s in zoom.hour.replica_groups]


def _request_rows(by_workload: Sequence[Outcome]) -> Table:
    """Return requests evenly spaced in order of arrival, all workloads together."""
    owner = np.repeat(np.arange(len(by_workload)), [outcome.arrived_s.size for outcome in by_workload])
    row = np.concatenate([np.arange(outcome.arrived_s.size) for outcome in by_workload])
    arrived = np.concatenate([outcome.arrived_s for outcome in by_workload])
    order = np.lexsort((owner, arrived))
    if order.size > SAMPLED_REQUESTS:
        order = order[np.linspace(0, order.size - 1, SAMPLED_REQUESTS).astype(np.intp)]
    picked = [(by_workload[owner[i]], int(row[i])) for i in order]
    numbers = ("arrived_s", "prompt_tokens", "cached_tokens", "output_tokens", "ttft_s", "tpot_s", "total_s")
    columns: dict[str, Any] = {
        name: [float(getattr(outcome, name)[i]) for outcome, i in picked] for name in (*numbers, "retries", "evictions")
    }
    columns["workload"] = [outcome.name for outcome, _ in picked]
    columns["outcome"] = [_word(outcome, i) for outcome, i in picked]
    names = [*dict.fromkeys(reason for outcome in by_workload[:1] for reason in outcome.reasons())]
    columns["reason"] = [names[outcome.reason[i]] if outcome.reason[i] >= 0 else "" for outcome, i in picked]
    return Table(ZOOM_TABLES["requests"], columns)


def _word(outcome: Outcome, i: int) -> str:
    if outcome.refused[i]:
        return "refused"
    if outcome.in_flight[i]:
        return "in flight"
    return "in time" if outcome.in_time[i] else "late"


def zoom_summary(zoom: Zoom, by_workload: Sequence[Outcome]) -> dict[str, Any]:
    """Return the headline figures of a zoom, ready for JSON."""
    rows = _workload_rows(zoom, by_workload).columns
    latency = _latency_rows(by_workload).columns
    workloads: dict[str, dict[str, Any]] = {
        name: {field: _plain(rows[field][i]) for field in rows if field != "workload"}
        for i, name in enumerate(rows["workload"])
    }
    for name, quantity, probability, value, low, high in zip(*latency.values(), strict=True):
        percentiles = workloads[name].setdefault(quantity, {})
        percentiles[f"p{100 * probability:g}"] = {"value": _plain(value), "low": _plain(low), "high": _plain(high)}
    for outcome in by_workload:
        if outcome.name in workloads:
            workloads[outcome.name]["reasons"] = outcome.reasons()
    arrived, finished, refused, in_flight = zoom.counts
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": zoom.scenario.name,
        "at": zoom.asked.at.isoformat(),
        "minutes": zoom.asked.minutes,
        "seed": zoom.seed,
        "replication": zoom.asked.replication,
        "simulated_share_fraction": zoom.share,
        "requests": {
            "asked_for": zoom.asked.requests,
            "arrived": arrived,
            "finished": finished,
            "refused": refused,
            "in_flight": in_flight,
        },
        "replicas": [
            {"name": name, "simulated": simulated, "in_service": group.replicas}
            for name, simulated, group in zip(group_names(zoom), zoom.replicas, zoom.hour.replica_groups, strict=True)
        ],
        "utilisation_fraction": _by_cluster(zoom, zoom.utilisation_fraction),
        "hourly_utilisation_fraction": _by_cluster(zoom, zoom.hour.utilisation_fraction),
        "workloads": workloads,
    }


def _by_cluster(zoom: Zoom, shares: Floats) -> dict[str, Any]:
    return {cluster.name: _plain(share) for cluster, share in zip(zoom.plan.clusters, shares, strict=True)}


def _plain(number: float) -> float | int | None:
    if not np.isfinite(number):
        return None
    return int(number) if isinstance(number, int | np.integer) else float(number)


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a zoom's figures for a terminal."""
    share = summary["simulated_share_fraction"]
    groups = ", ".join(f"{g['name']} {g['simulated']} of {g['in_service']}" for g in summary["replicas"])
    counts = summary["requests"]
    lines = [
        f"{summary['scenario']} at {summary['at']}, {summary['minutes']} minutes, replication {summary['replication']}",
        f"replicas simulated ({share:.3g} of the fleet and its traffic): {groups}",
        f"{counts['arrived']:,} requests arrived, {counts['finished']:,} finished, {counts['refused']:,} refused, "
        f"{counts['in_flight']:,} in flight at the end",
    ]
    if counts["arrived"] > _MANY_MORE * counts["asked_for"]:
        lines.append(
            f"{counts['asked_for']:,} were asked for: a sample has {LEAST_REPLICAS} replicas of its busiest group at "
            "the least, and one of each other; fewer --minutes take fewer"
        )
    lines.append("")
    header = ("workload", "in time", "95% interval", "late", "shed", "hourly model", "why not in time")
    rows = []
    for name, one in summary["workloads"].items():
        worst = sorted(((n, r) for r, n in one["reasons"].items() if n), reverse=True)[:3]
        why = ", ".join(f"{reason} {number / one['requests']:.2%}" for number, reason in worst)
        interval = f"{one['in_time_low_fraction']:.2%} to {one['in_time_high_fraction']:.2%}"
        hourly = one["hourly_in_time_fraction"]
        rows.append(
            (
                name,
                f"{one['in_time_fraction']:.2%}",
                interval,
                f"{one['late_fraction']:.2%}",
                f"{one['shed_fraction']:.2%}",
                "" if hourly is None else f"{hourly:.2%}",
                why,
            )
        )
    lines.append(text_table(header, rows))
    latency = [
        (name, _WORDS[quantity], *(f"{one[quantity][f'p{100 * p:g}']['value']:.3g} s" for p in PERCENTILES))
        for name, one in summary["workloads"].items()
        for quantity in QUANTITIES
        if quantity in one
    ]
    lines += ["", text_table(("workload", "latency", *(f"P{100 * p:g}" for p in PERCENTILES)), latency)]
    return "\n".join(lines)


def zoom_contents(zoom: Zoom, command: Sequence[str]) -> Contents:
    """Return what a zoom's folder holds."""
    by_workload = outcomes(zoom)
    tables = (
        _workload_rows(zoom, by_workload),
        _latency_rows(by_workload),
        _distribution_rows(by_workload),
        _reason_rows(by_workload),
        _second_rows(zoom),
        _request_rows(by_workload),
    )
    summary = zoom_summary(zoom, by_workload)
    return Contents(
        manifest={
            **scenario_identity(zoom.scenario, zoom.seed, zoom.asked.replication),
            "kind": "zoom",
            "at": summary["at"],
            "minutes": zoom.asked.minutes,
            "command": list(command),
        },
        tables={table.name: table for table in tables},
        summary=summary,
    )


def write_zoom(zoom: Zoom, folder: Path, command: Sequence[str]) -> Mapping[str, Any]:
    """Write a zoom's folder, whole or not at all, and return its summary."""
    contents = zoom_contents(zoom, command)
    write_folder(folder, answer_files(contents, contents.name.lower()), contents.manifest)
    return contents.summary
