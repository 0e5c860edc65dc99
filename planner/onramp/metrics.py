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
from planner.errors import Problem, ScenarioError
from planner.onramp.traffic_fit import EPOCH_HOUR_OF_WEEK, Histogram, ObservedTraffic, level_remark
from planner.onramp.traffic_log import (
    COLUMNS,
    MAX_NUMBER,
    MAX_SPAN_YEARS,
    SECONDS_PER_DAY,
    SECONDS_PER_YEAR,
    HourlyRates,
)
from planner.units import SECONDS_PER_HOUR

ROLES = {row["column"]: row["key"] for row in COLUMNS if row["file"] == "metrics"}
"""What each metric says; of several for one role the first that a file has is read."""
MAX_BYTES = 500_000_000
TIME_LIMIT_S = 60.0
"""Largest file or answer that is read, and how long a server may take for one."""
LONGEST_STEP_S = 2.0 * SECONDS_PER_HOUR
"""Samples further apart do not show an hour; a step of an hour may miss one sample."""
_NAMES = [
    "|".join(name for name in ROLES if name.endswith("_total") == is_counter)
    for is_counter in (True, False)
]
_QUERIES = (
    (f'{{__name__=~"{_NAMES[0]}"}}', 52 * 7, SECONDS_PER_HOUR),
    (f'{{__name__=~"({_NAMES[1]})_(bucket|sum)"}}', 28, SECONDS_PER_DAY),
)
"""What a server is asked: counters hour by hour for a year, and histograms day by day for four weeks."""
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(\S+))?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_START = "process_start_time_seconds"
_REQUESTS = next(iter(ROLES))
MAX_SPAN_S = MAX_SPAN_YEARS * SECONDS_PER_YEAR
_Samples = list[tuple[float, float]]
"""Times and values of one series."""
_Counter = tuple[Floats, Floats]
"""Times, and what was counted since the first of them."""


def is_metrics(path: Path) -> bool:
    """Return whether a file begins as an answer of Prometheus or as a text exposition does."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        start = stream.read(4000).lstrip()
    return (start[:1] in b"{[" and b'"resultType"' in start) or start.startswith(
        (b"# HELP", b"# TYPE", b"vllm:")
    )


def fetch(url: str) -> list[bytes]:
    """Return what a server answers: of an address of the API or of metrics, it alone; else of our own queries."""
    if "/api/v1/" in url or urllib.parse.urlsplit(url).path.endswith("/metrics"):
        return [_fetched(url)]
    now = time.time()
    place = f"{url.rstrip('/')}/api/v1/query_range?"
    spans = [
        {"query": q, "start": now - days * SECONDS_PER_DAY, "end": now, "step": s}
        for q, days, s in _QUERIES
    ]
    return [_fetched(place + urllib.parse.urlencode(span)) for span in spans]


def _fetched(url: str) -> bytes:
    """Return the body of one answer, refused beyond a size and a time."""
    place = url.partition("?")[0]
    content = bytearray()
    end = time.monotonic() + TIME_LIMIT_S
    hint = "name a server that you can reach, or export its answer to a file"
    try:
        with urllib.request.urlopen(url, timeout=TIME_LIMIT_S) as answer:
            while part := answer.read1(1 << 20):
                content += part
                if len(content) > MAX_BYTES or time.monotonic() > end:
                    message = f"sends more than {MAX_BYTES / 1e6:g} MB, or for longer than {TIME_LIMIT_S:g} s"
                    raise ScenarioError(
                        Problem(file=place, message=message, hint="query fewer series")
                    )
    except urllib.error.HTTPError as error:
        message = f"answers {error.code} {error.reason}"
        error.close()
        raise ScenarioError(Problem(file=place, message=message, hint=hint)) from None
    except (OSError, ValueError) as error:
        message = f"cannot be read: {getattr(error, 'reason', None) or error}"
        raise ScenarioError(Problem(file=place, message=message, hint=hint)) from None
    return bytes(content)


def read_metrics(
    contents: Iterable[bytes], place: str, scraped_s: float
) -> dict[str | None, ObservedTraffic]:
    """Return the traffic of each served model; raise ScenarioError for what is no answer or names no known metric.

    ``scraped_s`` is when a text without times was read from its server.
    """
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], _Samples] = defaultdict(list)
    models: dict[str | None, dict[str, dict[float, list[_Counter]]]] = defaultdict(dict)
    try:
        for content in contents:
            text = content.decode("utf-8")
            series = (
                _of_json(json.loads(text))
                if text.lstrip()[:1] in ("{", "[")
                else _of_text(text, scraped_s)
            )
            for name, labels, known in series:
                counts = [
                    (t, v) for t, v in known if 0.0 <= t < 1e11 and 0.0 <= v <= MAX_NUMBER
                ]  # to the year 5138
                samples[name, tuple(sorted(labels.items()))] += counts
        moments = [moment for known in samples.values() for moment, _ in known]
        starts = [
            value for (name, _), known in samples.items() for _, value in known if name == _START
        ]
        first_s = min(moments, default=0.0)
        start_s = min(starts, default=None)
        if moments and not max(moments) < min([first_s, *starts]) + MAX_SPAN_S:
            raise ValueError(f"its times span more than {MAX_SPAN_S / SECONDS_PER_YEAR:g} years")
        for (name, stated), known in samples.items():
            labels = dict(stated)
            base = re.sub("_(bucket|sum)$", "", name)
            if known and base in ROLES and (base != name or base.endswith("_total")):
                parts = models[labels.get("model_name")].setdefault(base, {})
                part = float(labels.get("le", -1.0)) if base != name else 0.0
                parts.setdefault(part, []).append(_counter(known, start_s, first_s))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ScenarioError(
            Problem(file=place, message=f"is no export of metrics: {reason[:200]}")
        ) from None
    if not any(_REQUESTS in counted for counted in models.values()):
        hint = f"query the series themselves, without rate() or sum(): {_QUERIES[0][0]}"
        raise ScenarioError(
            Problem(file=place, message=f"has no {_REQUESTS}, which counts requests", hint=hint)
        )
    return {model: _traffic(counted, place, model) for model, counted in models.items()}


def _of_json(answer: Any) -> Iterable[tuple[str, dict[str, str], _Samples]]:
    """Yield name, labels and samples of each series of an answer of the HTTP API, or of a list of them."""
    for one in answer if isinstance(answer, list) else [answer]:
        if one.get("status") == "error":
            raise ValueError(f"Prometheus says {one.get('error')}")
        for row in one["data"]["result"]:
            pairs = row["values"] if "values" in row else [row["value"]]
            labels = {str(key): str(label) for key, label in row["metric"].items()}
            yield (
                labels.pop("__name__", ""),
                labels,
                [(float(moment), float(value)) for moment, value in pairs],
            )


def _of_text(text: str, scraped_s: float) -> Iterable[tuple[str, dict[str, str], _Samples]]:
    """Yield name, labels and value of each line of a text exposition; times that it states are in milliseconds."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if (match := _LINE.match(line)) is None:
            raise ValueError(f"line {number} is no sample: {line[:60]!r}")
        moment = float(match[4]) / 1000.0 if match[4] else scraped_s
        yield match[1], dict(_LABEL.findall(match[2] or "")), [(moment, float(match[3]))]


def _counter(known: _Samples, start_s: float | None, first_s: float) -> _Counter:
    """Return a counter as if it had never been reset; one sample counts from the start of its server, where known.

    A counter that falls was begun anew, and one that is first seen later than others, ``first_s``, began in the step
    before: what it shows then was counted since.
    """
    times_s, values = np.array(sorted(known), dtype=np.float64).T
    if times_s.size == 1:
        start = times_s[0] if start_s is None else min(start_s, times_s[0])
        times_s = np.array([start, times_s[0]])
        values = np.array([0.0, values[0]])
    elif times_s[0] > first_s + LONGEST_STEP_S:
        times_s = np.array([2.0 * times_s[0] - times_s[1], *times_s])
        values = np.array([0.0, *values])
    steps = np.diff(values)
    return times_s, np.cumsum([0.0, *np.where(steps < 0.0, values[1:], steps)])


def _traffic(
    counted: dict[str, dict[float, list[_Counter]]], place: str, model: str | None
) -> ObservedTraffic:
    """Return what the counters of a served model show, by metric and part: 0, a bucket's bound, or -1 for the sum.

    Engines, servers and reasons to finish are added up. Of the metrics for one role the first is taken.
    """
    totals = dict[str, float]()
    histograms = dict[str, Histogram]()
    for metric, role in reversed(ROLES.items()):
        parts = {
            part: sum(float(rise[-1]) for _, rise in series)
            for part, series in counted.get(metric, {}).items()
        }
        total = parts.pop(-1.0, 0.0)
        if metric.endswith("_total"):
            totals[role] = parts.get(0.0, totals.get(role, 0.0))
        elif max(parts.values(), default=0.0) > 0.0:
            bounds, counts = np.array(sorted(parts.items())).T
            histograms[role] = Histogram(
                bounds=bounds, counts=np.maximum.accumulate(counts), total=total
            )
    rates, level = _hours(counted[_REQUESTS][0.0]) if totals["requests"] > 0.0 else (None, None)
    lengths = {
        side: histograms[side].lengths() for side in ("input", "output") if side in histograms
    }
    return ObservedTraffic(
        source=place,
        model=model,
        level=level,
        rates=rates,
        lengths={side: fit for side, fit in lengths.items() if fit is not None},
        prefix_cache_hit_fraction=totals["hits"] / totals["queries"]
        if totals["queries"] > 0.0
        else None,
        latencies={role: shown for role, shown in histograms.items() if role.endswith("_s")},
    )


def _hours(counters: list[_Counter]) -> tuple[HourlyRates | None, tuple[float, str] | None]:
    """Return requests per second hour by hour, or the level of all where there are not two whole hours."""
    moments = np.unique(np.concatenate([times_s for times_s, _ in counters]))
    first = int(np.ceil(moments[0] / SECONDS_PER_HOUR))
    last = int(moments[-1] // SECONDS_PER_HOUR)
    edges = np.arange(first, last + 1) * SECONDS_PER_HOUR
    step = np.diff(moments)[np.searchsorted(moments, edges[:-1] + 0.5 * SECONDS_PER_HOUR) - 1]
    is_known = step <= LONGEST_STEP_S + 1.0
    if edges.size > 2 and is_known.any():
        counts = sum(np.diff(np.interp(edges, times_s, rise)) for times_s, rise in counters)
        rates = np.where(is_known, np.asarray(counts) / SECONDS_PER_HOUR, np.nan)
        week_hour = (first + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK
        end_s = float(edges[-1])
        return HourlyRates(
            column=_REQUESTS, rates=rates, first_hour_of_week=week_hour, end_s=end_s
        ), None
    if (duration_s := float(moments[-1] - moments[0])) <= 0.0:
        return None, None
    requests = float(sum(rise[-1] for _, rise in counters))
    return None, (requests / duration_s, level_remark(requests, requests**-0.5, duration_s))
