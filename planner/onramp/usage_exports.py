"""What hosted APIs and gateways say of their use, as counts by day or hour: OpenAI's usage pages, LiteLLM's days."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from planner.errors import Problem, ScenarioError, line_of
from planner.onramp.hourly import HourlyCounts, counts_of_table
from planner.yaml_io import read_bytes

_MAX_BYTES = 500_000_000
_HEAD_BYTES = 4000
_Rows = Iterator[dict[str, Any]]
_OPENAI = "organization.usage.completions.result"


def is_usage_export(path: Path) -> bool:
    """Return whether a file begins as pages of OpenAI's usage API or as days of LiteLLM's activity do."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES).lstrip()
    if head[:1] not in (b"{", b"["):
        return False
    is_openai = b'"bucket"' in head and b'"start_time"' in head
    is_litellm = b'"results"' in head and b'"metrics"' in head and b'"date"' in head
    return is_openai or is_litellm


def read_usage(path: Path) -> dict[str | None, HourlyCounts]:
    """Return the counts of each model of an export; raise ScenarioError with the place of what does not fit."""
    content = read_bytes(path, _MAX_BYTES)
    try:
        document = json.loads(content.decode("utf-8"))
    except ValueError as error:
        reason = getattr(error, "msg", str(error).partition("\n")[0])
        message = f"is not JSON: {reason}"
        raise ScenarioError(Problem(file=str(path), line=line_of(error), message=message)) from None
    except RecursionError:
        raise ScenarioError(Problem(file=str(path), message="is nested too deeply")) from None
    pages = document if isinstance(document, list) else [document]
    rows: list[dict[str, Any]] = []
    for number, page in enumerate(pages):
        place = f"[{number}]." if isinstance(document, list) else ""
        key = "results" if "results" in _object(path, page, place or "the file") else "data"
        read: Callable[[Path, str, Any], _Rows] = _openai_rows if key == "data" else _litellm_rows
        for index, entry in enumerate(_list(path, page, key, place)):
            rows += read(path, f"{place}{key}[{index}]", entry)
    if not rows:
        raise ScenarioError(Problem(file=str(path), message="holds no usage"))
    return counts_of_table(path, pd.DataFrame(rows), "requests")


def _openai_rows(path: Path, place: str, bucket: Any) -> _Rows:
    """Yield a row for each result of a bucket; one without a result is a time without requests."""
    start = _number(path, _object(path, bucket, place), "start_time", place)
    results = _list(path, bucket, "results", f"{place}.")
    if not results:
        yield _row(start, None, {})
    for index, result in enumerate(results):
        inner = f"{place}.results[{index}]"
        kind = _object(path, result, inner).get("object", _OPENAI)
        if kind != _OPENAI:
            hint = "export the usage of completions"
            raise _misfit(path, f"{inner}.object", f"is {kind!r}, not {_OPENAI!r}", hint)
        counts = {
            "requests": _number(path, result, "num_model_requests", inner),
            "input_tokens": _number(path, result, "input_tokens", inner),
            "output_tokens": _number(path, result, "output_tokens", inner),
            "cached_tokens": _number(path, result, "input_cached_tokens", inner, 0.0),
        }
        yield _row(start, result.get("model"), counts)


def _litellm_rows(path: Path, place: str, day: Any) -> _Rows:
    """Yield a row for each model of a day, or one for all where no model is named."""
    date = _object(path, day, place).get("date")
    if not isinstance(date, str):
        raise _misfit(path, f"{place}.date", "must be a date")
    breakdown = day.get("breakdown") or {}
    models = _object(path, breakdown, f"{place}.breakdown").get("models") or {}
    entries = _object(path, models, f"{place}.breakdown.models")
    by_model: list[tuple[str | None, Any]] = [(None, day)]
    if entries:
        by_model = list(entries.items())
    for model, entry in by_model:
        inner = f"{place}.breakdown.models.{model}.metrics"
        metrics = _object(path, _object(path, entry, inner).get("metrics"), inner)
        cached = _number(path, metrics, "cache_read_input_tokens", inner, 0.0)
        counts = {
            # A request that failed was served no token.
            "requests": _number(path, metrics, "successful_requests", inner),
            "input_tokens": _number(path, metrics, "prompt_tokens", inner),
            "output_tokens": _number(path, metrics, "completion_tokens", inner),
            "cached_tokens": cached,
        }
        yield _row(date, model, counts)


def _row(time: float | str, model: str | None, counts: Mapping[str, float]) -> dict[str, Any]:
    """Return a row of counts; those that are not stated are zero."""
    sides = ("requests", "input_tokens", "output_tokens", "cached_tokens")
    return {
        "timestamp": time,
        "model": "" if model is None else str(model),
        **{side: counts.get(side, 0.0) for side in sides},
    }


def _object(path: Path, node: Any, place: str) -> dict[str, Any]:
    if isinstance(node, dict):
        return node
    raise _misfit(path, place, "must be an object")


def _list(path: Path, node: dict[str, Any], key: str, place: str) -> list[Any]:
    entries = node.get(key)
    if isinstance(entries, list):
        return entries
    raise _misfit(path, f"{place}{key}", "must be a list")


def _number(
    path: Path, node: dict[str, Any], key: str, place: str, absent: float | None = None
) -> float:
    """Return a count of an object; raise an error where there is none, or none to take for it."""
    number = node.get(key)
    if number is None and absent is not None:
        return absent
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if is_number and 0 <= number <= 1e15:  # type: ignore[operator]
        return float(number)  # type: ignore[arg-type]
    raise _misfit(path, f"{place}.{key}", f"must be a number from 0 to 1e15, not {number!r:.40}")


def _misfit(path: Path, place: str, message: str, hint: str | None = None) -> ScenarioError:
    """Return the error of what an export may not have at a place."""
    return ScenarioError(Problem(file=str(path), path=place, message=message, hint=hint))
