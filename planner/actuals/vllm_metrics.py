"""vLLM's Prometheus counters by month: tokens served and SLO attainment, from samples of running totals.

A counter only rises; where it falls, its process was started anew and counts from zero. The increase between two
samples belongs to the month of the earlier one: Prometheus's ``increase`` over the month, without extrapolation.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

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
_METRICS = frozenset({PROMPT, GENERATED, FIRST_TOKEN, *BETWEEN_TOKENS})
_EDGE = datetime.timedelta(days=1)
"""Time at either end of a month that may lie before the first or after the last sample."""

Key = tuple[str, str, str]
"""Workload (empty: the fleet), figure, month."""
AddProblem = Callable[[int | None, str, str | None], None]
"""Takes the line, message and hint of a problem."""


class _Sample(NamedTuple):
    """A running total at a time."""

    time: datetime.datetime
    total: float


class _Counter(NamedTuple):
    """A counter of one process: its metric and labels."""

    metric: str
    labels: tuple[tuple[str, str], ...]

    def label(self, name: str) -> str:
        """Return a label; empty where it has none."""
        return dict(self.labels).get(name, "")


Samples = Mapping[_Counter, Sequence[_Sample]]
Increases = Mapping[Key, Mapping[str, float]]
"""By workload, metric and month: the increase of each bucket of a histogram, or of a counter under no bucket."""


def monthly_metrics(
    rows: Iterable[tuple[int, Mapping[str, str]]],
    grid: MonthGrid,
    workloads: Mapping[str, str],
    objectives: Mapping[str, tuple[float, float]],
    add_problem: AddProblem,
) -> dict[Key, float]:
    """Return tokens and SLO attainment by month from rows of time, metric, value and labels.

    ``objectives`` are each workload's seconds to the first token and between tokens; after a problem the figures mean
    nothing.
    """
    samples = _samples(rows, add_problem)
    for metric in (PROMPT, GENERATED):
        has_rows = any(counter.metric == metric for counter in samples)
        if not has_rows:
            add_problem(None, f"no rows of {metric}", None)
    # Without workloads in the mapping all models together are the fleet's.
    models = {counter.label("model_name") for counter in samples}
    unknown = sorted(models - set(workloads))
    if workloads and unknown:
        hint = "name it under workloads in mapping.yaml"
        add_problem(None, f"model_name {choices(unknown)} has no workload", hint)
        return {}
    months = _covered_months(samples, grid, add_problem)
    increases = _increases(samples, months, workloads)
    figures: dict[Key, float] = {}
    pairs = {(workload, month) for workload, _, month in increases}
    for workload, month in sorted(pairs):
        generated = increases[workload, GENERATED, month][""]
        prompt = increases[workload, PROMPT, month][""]
        figures[workload, "served_tokens", month] = generated + prompt
        figures[workload, "served_output_tokens", month] = generated
        # The fleet has no such figure: objectives are each workload's own.
        if workload:
            share = _attainment(increases, workload, month, objectives[workload])
            if share is not None:
                figures[workload, "slo_attainment_fraction", month] = share
    return figures


def _samples(rows: Iterable[tuple[int, Mapping[str, str]]], add_problem: AddProblem) -> Samples:
    """Return the samples of each counter that is used."""
    samples = defaultdict[_Counter, list[_Sample]](list)
    for line, row in rows:
        if row["metric"] not in _METRICS:
            continue
        try:
            value = float(row["value"])
            sample = _Sample(_time(row["time"]), value)
        except ValueError:
            sample = None
        if sample is None or not 0 <= sample.total < math.inf:
            message = f"{row['time']!r}, {row['value']!r} are not a time and a running total"
            add_problem(line, message, None)
            continue
        labels = {
            name: cell for name, cell in row.items() if name not in ("time", "metric", "value")
        }
        sorted_labels = tuple(sorted(labels.items()))
        counter = _Counter(row["metric"], sorted_labels)
        samples[counter].append(sample)
    return samples


def _covered_months(samples: Samples, grid: MonthGrid, add_problem: AddProblem) -> set[str]:
    """Return the months that the samples cover whole.

    A month that they cover in part is refused: it would read as a fall in traffic.
    """
    # Every request generates a token, so that this counter is there from the first to the last.
    times = [
        sample.time
        for sample in itertools.chain.from_iterable(
            series for counter, series in samples.items() if counter.metric == GENERATED
        )
    ]
    if not times:
        return set()
    start = min(times)
    end = max(times)
    midnight = datetime.time()
    edges = [datetime.datetime.combine(edge, midnight) for edge in grid.edges]
    if start > edges[0] + _EDGE:
        message = f"the first sample is of {start:%Y-%m-%d %H:%M}, the plan begins on {grid.start}"
        add_problem(None, message, "export from the plan's first day on")
    covered = [edge for edge in edges if edge <= end + _EDGE]
    # After the plan's last month samples may go on as they like.
    has_further_edges = len(covered) < len(edges)
    if covered and end > covered[-1] + _EDGE and has_further_edges:
        message = f"the last sample is of {end:%Y-%m-%d %H:%M}: {end:%Y-%m} is incomplete"
        add_problem(None, message, "export whole months, to the first sample of the next")
    # Edges are one more than months.
    whole_months = max(len(covered) - 1, 0)
    return set(grid.labels[:whole_months])


def _increases(samples: Samples, months: set[str], workloads: Mapping[str, str]) -> Increases:
    """Return the increases of all counters, summed by workload, metric, month and bucket."""
    increases = defaultdict[Key, dict[str, float]](lambda: defaultdict(float))
    for counter, series in samples.items():
        workload = ""
        if workloads:
            workload = workloads[counter.label("model_name")]
        bucket = counter.label("le")
        # A step counts to the month in which it begins; samples are near enough to one another.
        steps = itertools.pairwise(sorted(series))
        for (time, earlier), (_, later) in steps:
            month = f"{time:%Y-%m}"
            if month in months:
                # A total that fell began again at zero.
                increase = later - earlier if later >= earlier else later
                increases[workload, counter.metric, month][bucket] += increase
    return increases


def _attainment(
    increases: Increases, workload: str, month: str, objectives: tuple[float, float]
) -> float | None:
    """Return the smaller share within the two objectives, an upper limit of the share within both; None of neither."""
    metrics = {metric for name, metric, _ in increases if name == workload}
    present = [metric for metric in BETWEEN_TOKENS if metric in metrics]
    token_metric = present[0] if present else BETWEEN_TOKENS[0]
    shares = []
    pairs = zip((FIRST_TOKEN, token_metric), objectives, strict=True)
    for metric, limit in pairs:
        buckets = increases.get((workload, metric, month), {})
        share = _share_within(buckets, limit)
        if share is not None:
            shares.append(share)
    return min(shares, default=None)


def _share_within(buckets: Mapping[str, float], limit: float) -> float | None:
    """Return the share of a histogram at or below a limit, interpolated within its bucket; None if empty.

    Buckets are cumulative: ``le`` counts all that took at most so long.
    """
    # Sorted as numbers: as text 10 would come before 2, and "+Inf" is infinite.
    edges = sorted((float(edge), count) for edge, count in buckets.items())
    if not edges or edges[-1][1] <= 0:
        return None
    total = edges[-1][1]
    lower_edge = 0.0
    lower_count = 0.0
    for edge, count in edges:
        if edge >= limit:
            # Nothing is known of where in an endless bucket its requests lie: none counts as within.
            share = 0.0
            if math.isfinite(edge):
                share = (limit - lower_edge) / (edge - lower_edge)
            within = lower_count + share * (count - lower_count)
            return within / total
        lower_edge = edge
        lower_count = count
    return 1.0


def _time(text: str) -> datetime.datetime:
    """Return a timestamp as UTC without a zone; raise ValueError where it is invalid."""
    try:
        moment = datetime.datetime.fromtimestamp(float(text), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(datetime.UTC).replace(tzinfo=None)
