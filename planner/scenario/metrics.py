"""vLLM's Prometheus counters by month: tokens served and SLO attainment, from samples of running totals.

A counter only rises; where it falls, its process was started anew and counts from zero. The increase between two
samples belongs to the month of the earlier one: Prometheus's ``increase`` over the month, without extrapolation.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from planner.finance.months import MonthGrid
from planner.validation import choices

PROMPT = "vllm:prompt_tokens_total"
GENERATED = "vllm:generation_tokens_total"
FIRST_TOKEN = "vllm:time_to_first_token_seconds_bucket"
BETWEEN_TOKENS = (
    "vllm:request_time_per_output_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:time_per_output_token_seconds_bucket",
)
"""Names in vLLM's versions, the nearest to a request's own time per token first (docs.vllm.ai, metrics)."""
_EDGE = datetime.timedelta(days=1)
"""Time at either end of a month that may lie before the first or after the last sample."""

Key = tuple[str, str, str]
"""Workload (empty: the fleet), figure, month."""
Wrong = Callable[[int | None, str, str | None], None]


def monthly_metrics(
    rows: Sequence[tuple[int, Mapping[str, str]]],
    grid: MonthGrid,
    workloads: Mapping[str, str],
    objectives: Mapping[str, tuple[float, float]],
    wrong: Wrong,
) -> dict[Key, float]:
    """Return tokens and SLO attainment by month from rows of time, metric, value and labels.

    ``objectives`` are each workload's seconds to the first token and between tokens; ``wrong`` takes the line, message
    and hint of a problem, after which the figures mean nothing.
    """
    figures: dict[Key, float] = {}
    used = {PROMPT, GENERATED, FIRST_TOKEN, *BETWEEN_TOKENS}
    samples: dict[
        tuple[str, tuple[tuple[str, str], ...]], list[tuple[datetime.datetime, float]]
    ] = defaultdict(list)
    for line, row in rows:
        metric = row["metric"]
        if metric not in used:
            continue
        try:
            time = _time(row["time"])
            total = float(row["value"])
            if not (math.isfinite(total) and total >= 0):
                raise ValueError
        except ValueError:
            wrong(line, f"{row['time']!r}, {row['value']!r} are no time and running total", None)
            continue
        labels = tuple(
            sorted((k, v) for k, v in row.items() if k not in ("time", "metric", "value"))
        )
        samples[metric, labels].append((time, total))
    for needed in (PROMPT, GENERATED):
        if not any(metric == needed for metric, _ in samples):
            wrong(None, f"no rows of {needed}", None)
    models = {dict(labels).get("model_name", "") for _, labels in samples}
    if workloads and (unknown := sorted(models - set(workloads))):
        wrong(
            None,
            f"model_name {choices(unknown)} has no workload",
            "name it under workloads in mapping.yaml",
        )
        return figures
    # A month that the samples cover in part is refused: it would read as a fall in traffic.
    times = [
        time for (metric, _), series in samples.items() if metric == GENERATED for time, _ in series
    ]
    if not times:
        return figures
    first = min(times)
    last = max(times)
    edges = [datetime.datetime.combine(edge, datetime.time()) for edge in grid.edges]
    if first > edges[0] + _EDGE:
        message = f"the first sample is of {first:%Y-%m-%d %H:%M}, the plan begins on {grid.start}"
        wrong(None, message, "export from the plan's first day on")
    covered = [edge for edge in edges if edge <= last + _EDGE]
    if covered and last > covered[-1] + _EDGE and len(covered) < len(edges):
        message = f"the last sample is of {last:%Y-%m-%d %H:%M}: {last:%Y-%m} is there in part"
        wrong(None, message, "export whole months, to the first sample of the next")
    months = set(grid.labels[: max(len(covered) - 1, 0)])
    rises: dict[tuple[str, str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (metric, labels), series in samples.items():
        tags = dict(labels)
        workload = workloads[tags.get("model_name", "")] if workloads else ""
        for (time, before), (_, now) in itertools.pairwise(sorted(series)):
            if (month := f"{time:%Y-%m}") in months:
                rises[workload, metric, month][tags.get("le", "")] += (
                    now - before if now >= before else now
                )
    for workload, month in sorted({(workload, month) for workload, _, month in rises}):
        generated, prompt = (rises[workload, metric, month][""] for metric in (GENERATED, PROMPT))
        figures[workload, "served_tokens", month] = generated + prompt
        figures[workload, "served_output_tokens", month] = generated
        if workload:
            there = {metric for w, metric, _ in rises if w == workload}
            between = next(
                (metric for metric in BETWEEN_TOKENS if metric in there), BETWEEN_TOKENS[0]
            )
            both = zip((FIRST_TOKEN, between), objectives[workload], strict=True)
            shares = [
                _share_within(rises.get((workload, metric, month), {}), limit)
                for metric, limit in both
            ]
            if known := [share for share in shares if share is not None]:
                figures[workload, "slo_attainment_fraction", month] = min(known)
    return figures


def _share_within(buckets: Mapping[str, float], limit: float) -> float | None:
    """Return the share of a histogram at or below a limit, interpolated within its bucket; None if empty.

    Buckets are cumulative: ``le`` counts all that took at most so long.
    """
    edges = sorted(
        (math.inf if le in ("+Inf", "inf", "Inf") else float(le), count)
        for le, count in buckets.items()
    )
    if not edges or edges[-1][1] <= 0:
        return None
    below = 0.0
    so_far = 0.0
    for edge, count in edges:
        if edge >= limit:
            share = (limit - below) / (edge - below) if math.isfinite(edge) else 0.0
            return (so_far + share * (count - so_far)) / edges[-1][1]
        below = edge
        so_far = count
    return 1.0


def _time(text: str) -> datetime.datetime:
    """Return a timestamp as UTC without a zone; raise ValueError where it is invalid."""
    try:
        moment = datetime.datetime.fromtimestamp(float(text), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.datetime.fromisoformat(text)
    return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment
