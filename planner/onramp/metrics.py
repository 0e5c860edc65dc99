"""Metrics of serving engines: a Prometheus range query as JSON, a text exposition, or a server that the user names."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.demand.shape import HOURS_PER_WEEK
from planner.errors import Problem, ScenarioError, line_of
from planner.onramp.hourly import HourlyRates
from planner.onramp.traffic_fit import (
    EPOCH_HOUR_OF_WEEK,
    Histogram,
    LengthFit,
    ObservedTraffic,
    level_remark,
)
from planner.onramp.traffic_log import (
    COLUMNS,
    MAX_NUMBER,
    MAX_SPAN_YEARS,
    SECONDS_PER_DAY,
    SECONDS_PER_YEAR,
)
from planner.units import SECONDS_PER_HOUR

ROLES = {row["column"]: row["key"] for row in COLUMNS if row["file"] == "metrics"}
"""What each metric says; of several for one role the first that a file has is read."""
MAX_BYTES = 500_000_000
"""Largest file or answer that is read."""
TIME_LIMIT_S = 60.0
"""How long a server may take for an answer."""
LONGEST_STEP_S = 2.0 * SECONDS_PER_HOUR
"""Samples further apart do not show an hour; a step of an hour may miss one sample."""
_COUNTERS = "|".join(name for name in ROLES if name.endswith("_total"))
_HISTOGRAMS = "|".join(name for name in ROLES if not name.endswith("_total"))
_COUNTER_QUERY = f'{{__name__=~"{_COUNTERS}"}}'
_QUERIES = (
    (_COUNTER_QUERY, 52 * 7, SECONDS_PER_HOUR),
    (f'{{__name__=~"({_HISTOGRAMS})_(bucket|sum)"}}', 28, SECONDS_PER_DAY),
)
"""What a server is asked: counters hour by hour for a year, and histograms day by day for four weeks."""
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(\S+))?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_START = "process_start_time_seconds"
_REQUESTS = next(iter(ROLES))
MAX_SPAN_S = MAX_SPAN_YEARS * SECONDS_PER_YEAR
_Samples = list[tuple[float, float]]
"""Times and values of one series."""
_SamplesBySeries = dict[tuple[str, tuple[tuple[str, str], ...]], _Samples]
"""Samples by name and labels of a series."""
_Counter = tuple[Floats, Floats]
"""Times, and what was counted since the first of them."""
_Counters = dict[str, dict[float, list[_Counter]]]
"""Counters by metric and part: 0, a bucket's bound, or -1 for the sum."""
_LATEST_S = 1e11
"""The year 5138: no sample is later."""


def is_metrics(path: Path) -> bool:
    """Return whether a file begins as an answer of Prometheus or as a text exposition does."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        # Enough for the head of either format, and little of a file of half a gigabyte.
        start = stream.read(4000).lstrip()
    is_json = start[:1] in b"{[" and b'"resultType"' in start
    return is_json or start.startswith((b"# HELP", b"# TYPE", b"vllm:"))


def fetch(url: str) -> list[bytes]:
    """Return what a server answers: of an address of the API or of metrics, it alone; else of our own queries."""
    # An address with a query of its own is taken as it is.
    path = urllib.parse.urlsplit(url).path
    if "/api/v1/" in url or path.endswith("/metrics"):
        return [_fetched(url)]
    end_s = time.time()
    address = f"{url.rstrip('/')}/api/v1/query_range?"
    answers = []
    for query, days, step_s in _QUERIES:
        start_s = end_s - days * SECONDS_PER_DAY
        span = {"query": query, "start": start_s, "end": end_s, "step": step_s}
        query_text = urllib.parse.urlencode(span)
        answers.append(_fetched(address + query_text))
    return answers


def _fetched(url: str) -> bytes:
    """Return the body of one answer, refused beyond a size and a time."""
    # Neither the query nor a password that stands before the server's name.
    place = re.sub(r"//[^/@]*@", "//", url.partition("?")[0])
    content = bytearray()
    end = time.monotonic() + TIME_LIMIT_S
    hint = "name a server that you can reach, or export its answer to a file"
    try:
        with urllib.request.urlopen(url, timeout=TIME_LIMIT_S) as answer:
            # In pieces, so that neither size nor time can run away.
            while part := answer.read1(1 << 20):
                content += part
                is_too_much = len(content) > MAX_BYTES or time.monotonic() > end
                if is_too_much:
                    message = f"sends more than {MAX_BYTES / 1e6:g} MB, or for longer than {TIME_LIMIT_S:g} s"
                    raise ScenarioError(
                        Problem(file=place, message=message, hint="query fewer series")
                    )
    except urllib.error.HTTPError as error:
        message = f"answers {error.code} {error.reason}"
        # Closed here: the answer of an error is a stream of its own.
        error.close()
        raise ScenarioError(Problem(file=place, message=message, hint=hint)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        message = f"cannot be read: {reason}"
        raise ScenarioError(Problem(file=place, message=message, hint=hint)) from None
    return bytes(content)


def read_metrics(
    contents: Iterable[bytes], place: str, scraped_s: float
) -> dict[str | None, ObservedTraffic]:
    """Return the traffic of each served model; raise ScenarioError for what is no answer or names no known metric.

    ``scraped_s`` is when a text without times was read from its server.
    """
    try:
        samples = _read_samples(contents, scraped_s)
        models = _count_by_model(samples)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # An export is nested JSON of any shape: whatever does not fit ends here, as one message.
        reason = str(error).partition("\n")[0] or type(error).__name__
        message = f"is not an export of metrics: {reason[:200]}"
        raise ScenarioError(Problem(file=place, line=line_of(error), message=message)) from None
    has_requests = any(_REQUESTS in counters for counters in models.values())
    if not has_requests:
        hint = f"query the series themselves, without rate() or sum(): {_COUNTER_QUERY}"
        raise ScenarioError(
            Problem(file=place, message=f"has no {_REQUESTS}, which counts requests", hint=hint)
        )
    # By model, so that each becomes a workload of its own.
    return {model: _traffic(counters, place, model) for model, counters in models.items()}


def _read_samples(contents: Iterable[bytes], scraped_s: float) -> _SamplesBySeries:
    """Return the samples of all series by name and labels, without times and values that none can have."""
    samples: _SamplesBySeries = defaultdict(list)
    for content in contents:
        text = content.decode("utf-8")
        # By the first character: neither format can begin like the other.
        is_json = text.lstrip()[:1] in ("{", "[")
        series = _of_json(json.loads(text)) if is_json else _of_text(text, scraped_s)
        for name, labels, pairs in series:
            series_key = name, tuple(sorted(labels.items()))
            samples[series_key] += [
                (time_s, value)
                for time_s, value in pairs
                if 0.0 <= time_s < _LATEST_S and 0.0 <= value <= MAX_NUMBER
            ]
    return samples


def _count_by_model(samples: _SamplesBySeries) -> dict[str | None, _Counters]:
    """Return the counters of each served model."""
    times_s: list[float] = []
    starts_s: list[float] = []
    for (name, _), pairs in samples.items():
        times_s += [time_s for time_s, _ in pairs]
        if name == _START:
            starts_s += [value for _, value in pairs]
    first_s = min(times_s, default=0.0)
    start_s = min(starts_s, default=None)
    # Hours are held one by one, so a wrong clock would take all memory.
    earliest_s = min([first_s, *starts_s])
    if times_s and not max(times_s) < earliest_s + MAX_SPAN_S:
        raise ValueError(f"its times span more than {MAX_SPAN_S / SECONDS_PER_YEAR:g} years")
    models: dict[str | None, _Counters] = defaultdict(dict)
    for (name, pairs_of_labels), pairs in samples.items():
        labels = dict(pairs_of_labels)
        metric = re.sub("_(bucket|sum)$", "", name)
        is_histogram = metric != name
        is_counter = is_histogram or metric.endswith("_total")
        if pairs and metric in ROLES and is_counter:
            by_metric = models[labels.get("model_name")]
            parts = by_metric.setdefault(metric, {})
            # The sum of a histogram has no bound: −1 stands for it, as no bound is negative.
            part = 0.0
            if is_histogram:
                part = float(labels.get("le", -1.0))
            counter = _counter(pairs, start_s, first_s)
            parts.setdefault(part, []).append(counter)
    return models


def _of_json(answer: Any) -> Iterable[tuple[str, dict[str, str], _Samples]]:
    """Yield name, labels and samples of each series of an answer of the HTTP API, or of a list of them."""
    replies = answer if isinstance(answer, list) else [answer]
    for reply in replies:
        if reply.get("status") == "error":
            raise ValueError(f"Prometheus says {reply.get('error')}")
        for row in reply["data"]["result"]:
            # An instant query has one value where a range query has many.
            pairs = row["values"] if "values" in row else [row["value"]]
            samples = [(float(time_s), float(value)) for time_s, value in pairs]
            labels = {str(key): str(label) for key, label in row["metric"].items()}
            yield labels.pop("__name__", ""), labels, samples


def _of_text(text: str, scraped_s: float) -> Iterable[tuple[str, dict[str, str], _Samples]]:
    """Yield name, labels and value of each line of a text exposition; times that it states are in milliseconds."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        try:
            if match is None:
                raise ValueError
            value = float(match[3])
            moment = float(match[4]) / 1000.0 if match[4] else scraped_s
        except ValueError:
            raise ValueError(f"line {number} is not a sample: {line[:60]!r}") from None
        labels = dict(_LABEL.findall(match[2] or ""))
        yield match[1], labels, [(moment, value)]


def _counter(samples: _Samples, start_s: float | None, first_s: float) -> _Counter:
    """Return a counter as if it had never been reset; one sample counts from the start of its server, where known.

    A counter that falls was begun anew, and one that is first seen later than others, ``first_s``, began in the step
    before: what it shows then was counted since.
    """
    # Sorted by time: files of several answers may overlap.
    # One row for each sample, so that the columns are times and values.
    by_time = np.array(sorted(samples), dtype=np.float64)
    times_s, values = by_time.T
    if times_s.size == 1:
        # Without a start the counter shows no rate: both times are one, and nothing is fitted.
        start = times_s[0]
        if start_s is not None:
            start = min(start_s, start)
        times_s = np.array([start, times_s[0]])
        values = np.array([0.0, values[0]])
    elif times_s[0] > first_s + LONGEST_STEP_S:
        # It began one step before it was first seen.
        start = 2.0 * times_s[0] - times_s[1]
        times_s = np.array([start, *times_s])
        values = np.array([0.0, *values])
    steps = np.diff(values)
    # A counter that fell began at zero: all it shows now was counted since.
    rises = np.where(steps < 0.0, values[1:], steps)
    return times_s, np.cumsum([0.0, *rises])


def _traffic(counters: _Counters, place: str, model: str | None) -> ObservedTraffic:
    """Return what the counters of a served model show.

    Engines, servers and reasons to finish are added up. Of the metrics for one role the first is taken.
    """
    totals = dict[str, float]()
    histograms = dict[str, Histogram]()
    # In reverse, so that the first metric of a role overwrites the others.
    for metric, role in reversed(ROLES.items()):
        by_part = counters.get(metric, {})
        parts = {
            part: sum(float(rise[-1]) for _, rise in series) for part, series in by_part.items()
        }
        total = parts.pop(-1.0, 0.0)
        if metric.endswith("_total"):
            totals[role] = parts.get(0.0, totals.get(role, 0.0))
        elif max(parts.values(), default=0.0) > 0.0:
            by_bound = np.array(sorted(parts.items()))
            bounds, counts = by_bound.T
            # Servers are read one after another, so a bucket may lag behind the one below it.
            counts = np.maximum.accumulate(counts)
            histograms[role] = Histogram(bounds=bounds, counts=counts, total=total)
    rates = level = hit_fraction = None
    if totals["requests"] > 0.0:
        rates, level = _hours(counters[_REQUESTS][0.0])
    if totals["queries"] > 0.0:
        hit_fraction = totals["hits"] / totals["queries"]
    lengths: dict[str, LengthFit] = {}
    for side in ("input", "output"):
        fit = None
        if side in histograms:
            fit = histograms[side].lengths()
        if fit is not None:
            lengths[side] = fit
    return ObservedTraffic(
        source=place,
        model=model,
        level=level,
        rates=rates,
        lengths=lengths,
        prefix_cache_hit_fraction=hit_fraction,
        latencies={role: latency for role, latency in histograms.items() if role.endswith("_s")},
    )


def _hours(counters: list[_Counter]) -> tuple[HourlyRates | None, tuple[float, str] | None]:
    """Return requests per second hour by hour, or the level of all where there are not two whole hours."""
    all_times_s = [times_s for times_s, _ in counters]
    times_s = np.unique(np.concatenate(all_times_s))
    first_hour = int(np.ceil(times_s[0] / SECONDS_PER_HOUR))
    end_hour = int(times_s[-1] // SECONDS_PER_HOUR)
    edges_s = np.arange(first_hour, end_hour + 1) * SECONDS_PER_HOUR
    # The step between samples in which the middle of each hour lies: too long a step shows no hour.
    middles_s = edges_s[:-1] + 0.5 * SECONDS_PER_HOUR
    step_of_middle = np.searchsorted(times_s, middles_s) - 1
    steps_s = np.diff(times_s)[step_of_middle]
    # A second of tolerance: scrapes are not exactly on time.
    is_known = steps_s <= LONGEST_STEP_S + 1.0
    if edges_s.size > 2 and is_known.any():
        at_edges = (np.interp(edges_s, times_s, rise) for times_s, rise in counters)
        by_counter = map(np.diff, at_edges)
        counts = sum(by_counter)
        hourly_rates = np.asarray(counts) / SECONDS_PER_HOUR
        rates = np.where(is_known, hourly_rates, np.nan)
        week_hour = (first_hour + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK
        hourly = HourlyRates(
            column=_REQUESTS,
            rates=rates,
            first_hour_of_week=week_hour,
            end_s=float(edges_s[-1]),
        )
        return hourly, None
    duration_s = float(times_s[-1] - times_s[0])
    if duration_s <= 0.0:
        return None, None
    requests = float(sum(rise[-1] for _, rise in counters))
    # Counts are taken as Poisson: the relative error of n requests is 1/√n.
    remark = level_remark(requests, requests**-0.5, duration_s)
    return None, (requests / duration_s, remark)
