"""One hour request by request as an answer: tables, summary, text, and the sections of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.answer import Answer
from planner.answers.report import answer_files
from planner.answers.run import scenario_identity
from planner.answers.tables import tables_of
from planner.output.folder import Contents, write_folder
from planner.output.tables import SCHEMA_VERSION, Table
from planner.output.terminal import text_table
from planner.requests.outcome import PERCENTILES, QUANTITIES, REASONS, Outcome, outcomes
from planner.requests.zoom import LEAST_REPLICAS, Zoom

SAMPLED_REQUESTS = 2000
"""Requests of requests.csv: enough to draw, few enough to open."""
_NUMBERS = (
    "arrived_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "ttft_s",
    "tpot_s",
    "total_s",
)
_WORDS = {"ttft_s": "first token", "tpot_s": "per token", "total_s": "whole request"}
ZOOM_TABLES = tables_of("zoom", sampled=f"{SAMPLED_REQUESTS:,}")
"""The tables of every zoom by their names."""


def zoom_tables(zoom: Zoom) -> dict[str, Table]:
    """Return the tables of a zoom by their names."""
    by_workload = outcomes(zoom)
    hour = zoom.hour
    shares = np.append((np.arange(100) + 0.5) / 100, PERCENTILES[-1])
    workloads, latencies, curves, misses = (list[Sequence[Any]]() for _ in range(4))
    for place, outcome in enumerate(by_workload):
        if outcome.arrived_s.size:
            attained = outcome.attained()
            late = hour.late_fraction[place]
            shed = hour.shed_fraction[place]
            missed = (
                ~outcome.attainment
                & ~outcome.refused
                & ~(outcome.in_flight & outcome.is_deferrable)
            )
            became = (float(part.mean()) for part in (missed, outcome.refused, outcome.in_flight))
            ended = (round(outcome.due), outcome.finished_s.size)
            status = "INCONCLUSIVE" if np.isnan(attained.value) else "MEASURED"
            simulated = (*ended, status, attained.value, attained.low, attained.high, *became)
            workloads.append(
                (outcome.name, outcome.arrived_s.size, *simulated, 1.0 - late - shed, late, shed)
            )
            why = outcome.reasons().items()
            misses += [
                (outcome.name, reason, number, number / outcome.arrived_s.size)
                for reason, number in why
            ]
        for quantity in QUANTITIES:
            figures = getattr(outcome, quantity)
            if not (figures := figures[np.isfinite(figures)]).size:
                continue
            for probability in PERCENTILES:
                estimate = outcome.percentile(quantity, probability)
                latencies.append(
                    (
                        outcome.name,
                        quantity,
                        probability,
                        estimate.value,
                        estimate.low,
                        estimate.high,
                    )
                )
            points = zip(shares.tolist(), np.quantile(figures, shares).tolist(), strict=True)
            curves += [(outcome.name, quantity, *point) for point in points]
    seconds, groups = zoom.seconds.shape[:2]
    second = np.repeat(np.arange(seconds), groups)
    names = group_names(zoom) * seconds
    steps = zip(second, names, *zoom.seconds.reshape(-1, 3).T, strict=True)
    made = {
        "workloads": workloads,
        "latencies": latencies,
        "distributions": curves,
        "slo_miss_causes": misses,
    }
    tables = {
        name: ZOOM_TABLES[name].of_rows(rows) for name, rows in {**made, "seconds": steps}.items()
    }
    return {**tables, "requests": _request_rows(by_workload)}


def group_names(zoom: Zoom) -> list[str]:
    """Return what each group of replicas is called."""
    return [
        f"{zoom.plan.clusters[s.cluster].name} {s.model} x{s.accelerators}"
        for s in zoom.hour.replica_groups
    ]


def _request_rows(by_workload: Sequence[Outcome]) -> Table:
    """Return requests evenly spaced in order of arrival, all workloads together."""
    owner = np.repeat(
        np.arange(len(by_workload)), [outcome.arrived_s.size for outcome in by_workload]
    )
    place = np.concatenate([np.arange(outcome.arrived_s.size) for outcome in by_workload])
    order = np.lexsort((owner, np.concatenate([outcome.arrived_s for outcome in by_workload])))
    if order.size > SAMPLED_REQUESTS:
        order = order[np.linspace(0, order.size - 1, SAMPLED_REQUESTS).astype(np.intp)]
    rows = []
    for outcome, i in ((by_workload[owner[at]], place[at]) for at in order):
        settled = "met" if outcome.attainment[i] else "late"
        became = (
            "refused" if outcome.refused[i] else "in flight" if outcome.in_flight[i] else settled
        )
        cause = REASONS[outcome.reason[i]] if outcome.reason[i] >= 0 else ""
        numbers = (getattr(outcome, name)[i] for name in _NUMBERS)
        rows.append(
            (outcome.name, *numbers, became, cause, outcome.retries[i], outcome.preemptions[i])
        )
    return ZOOM_TABLES["requests"].of_rows(rows)


def zoom_summary(zoom: Zoom, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return the headline figures of a zoom, ready for JSON."""
    workloads: dict[str, dict[str, Any]] = {
        row.pop("workload"): row for row in tables["workloads"].records()
    }
    for load, slo in zip(zoom.plan.workloads, zoom.slos, strict=True):
        if load.name in workloads and not slo.is_deferrable:
            workloads[load.name]["slo"] = {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s}
    for row in tables["latencies"].records():
        ends = {end: row[end] for end in ("value", "low", "high")}
        workloads[row["workload"]].setdefault(row["quantity"], {})[
            f"p{100 * row['percentile']:g}"
        ] = ends
    for row in tables["slo_miss_causes"].records():
        workloads[row["workload"]].setdefault("slo_miss_causes", {})[row["cause"]] = row["requests"]
    utilised = {}
    for whose, shares in (
        ("", zoom.utilisation_fraction),
        ("hourly_", zoom.hour.utilisation_fraction),
    ):
        known = zip(zoom.plan.clusters, shares.tolist(), strict=True)
        by_cluster = {
            cluster.name: share if np.isfinite(share) else None for cluster, share in known
        }
        utilised[f"{whose}utilisation_fraction"] = by_cluster
    counts = zip(("arrived", "finished", "refused", "in_flight"), zoom.counts, strict=True)
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": zoom.scenario.name,
        "at": zoom.asked.at.isoformat(),
        "minutes": zoom.asked.minutes,
        "seed": zoom.seed,
        "replication": zoom.asked.replication,
        "simulated_share_fraction": zoom.share,
        "requests": {"asked_for": zoom.asked.requests, **dict(counts)},
        "replicas": [
            {"name": name, "simulated": simulated, "in_service": group.replicas}
            for name, simulated, group in zip(
                group_names(zoom), zoom.replicas, zoom.hour.replica_groups, strict=True
            )
        ],
        **utilised,
        "workloads": workloads,
    }


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a zoom's figures for a terminal."""
    share = summary["simulated_share_fraction"]
    groups = ", ".join(
        f"{g['name']} {g['simulated']} of {g['in_service']}" for g in summary["replicas"]
    )
    counts = summary["requests"]
    lines = [
        f"{summary['scenario']} at {summary['at']}, {summary['minutes']} minutes, replication {summary['replication']}",
        f"replicas simulated ({share:.3g} of the fleet and its traffic): {groups}",
        f"{counts['arrived']:,} requests arrived, {counts['finished']:,} finished, {counts['refused']:,} refused, "
        f"{counts['in_flight']:,} in flight at the end",
    ]
    if counts["arrived"] > 1.5 * counts["asked_for"]:  # which are met about
        lines.append(
            f"{counts['asked_for']:,} were requested: a sample has {LEAST_REPLICAS} replicas of its busiest group at "
            "the least, and one of each other; fewer --minutes take fewer"
        )
    lines.append("")
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
    rows = []
    for name, one in summary["workloads"].items():
        worst = sorted(((n, r) for r, n in one["slo_miss_causes"].items() if n), reverse=True)[:3]
        why = ", ".join(f"{reason} {number / one['requests']:.2%}" for number, reason in worst)
        parts = (
            "slo_attainment",
            "slo_attainment_low",
            "slo_attainment_high",
            "late",
            "shed",
            "hourly_slo_attainment",
        )
        shares = (one[f"{part}_fraction"] for part in parts)
        attained, low, high, *others = ("" if share is None else f"{share:.2%}" for share in shares)
        ended = f"{one['finished']:,} of {one['due']:,}"
        rows.append(
            (
                name,
                ended,
                attained or one["status"],
                f"{low} to {high}" if low else "",
                *others,
                why,
            )
        )
    lines.append(text_table(header, rows))
    latency = [
        (
            name,
            _WORDS[quantity],
            *(f"{one[quantity][f'p{100 * p:g}']['value']:.3g} s" for p in PERCENTILES),
        )
        for name, one in summary["workloads"].items()
        for quantity in QUANTITIES
        if quantity in one
    ]
    lines += [
        "",
        text_table(("workload", "latency", *(f"P{100 * p:g}" for p in PERCENTILES)), latency),
    ]
    return "\n".join(lines)


def write_zoom(zoom: Zoom, folder: Path, command: Sequence[str]) -> Answer[Zoom]:
    """Write a zoom's folder, whole or not at all, and return it as an answer."""
    tables = zoom_tables(zoom)
    manifest = {
        **scenario_identity(zoom.scenario, zoom.seed, zoom.asked.replication),
        "kind": "zoom",
        "at": zoom.asked.at.isoformat(),
        "minutes": zoom.asked.minutes,
        "command": list(command),
    }
    contents = Contents(manifest=manifest, tables=tables, summary=zoom_summary(zoom, tables))
    write_folder(folder, answer_files(contents, contents.name.lower()), manifest)
    return Answer(
        folder=folder,
        result=zoom,
        warnings=(),
        summarise=lambda: contents.summary,
        say=lambda *_: summary_text(contents.summary),
        rows=lambda: tables["workloads"],
    )
