"""What the usual load generators write of a run, as rows of a benchmark table: vLLM, SGLang, GenAI-Perf and AIPerf."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from planner.calibration.columns import COLUMNS, DRAFT_COLUMN, NAME_COLUMNS, OPTIONAL_COLUMNS
from planner.errors import Problem, ScenarioError, line_of, raise_all
from planner.validation import nearest
from planner.yaml_io import read_bytes

_MAX_BYTES = 200_000_000
STATED = (*NAME_COLUMNS, "tp", "ep", *OPTIONAL_COLUMNS, DRAFT_COLUMN)
"""What a result does not say of its run, and ``--run`` may."""
_NEEDED = ("model", "accelerator", "engine", "tp")
_METADATA = {
    "tensor_parallel_size": "tp",
    "gpu": "accelerator",
    "quantization": "precision",
    **{name: name for name in STATED},
}
"""Keys of a result that its user added with vLLM's --metadata, and the columns they fill."""
_ENGINES = ("vllm", "sglang")


def parse_run(texts: Sequence[str]) -> dict[str, str]:
    """Return what is stated of a run by ``COLUMN=VALUE,...``; raise ScenarioError for what is none."""
    stated: dict[str, str] = {}
    problems = []
    for part in ",".join(texts).split(","):
        name, equals, word = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if name not in STATED or not equals or not word:
            hint = nearest(name, STATED) or f"columns are {', '.join(STATED)}"
            message = f"{part.strip()!r} is not COLUMN=VALUE"
            problems.append(Problem(path="--run", message=message, hint=hint))
        stated[name] = word
    raise_all(problems)
    return stated


def is_result(path: Path) -> bool:
    """Return whether a file begins as JSON does: a benchmark table is a CSV."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(64).lstrip()[:1] in (b"{", b"[")


def read_results(path: Path, stated: Mapping[str, str]) -> pd.DataFrame:
    """Return the runs of a file as a benchmark table of texts, each with the line that it begins on as its index."""
    problems: list[Problem] = []
    rows: dict[int, dict[str, str]] = {}
    for begin, result in _results(path):
        # Runs on one line are counted on, so that each has a number of its own.
        line = max(begin, max(rows, default=0) + 1)
        try:
            row = _row(result)
        except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            reason = str(error).strip("'\"") or type(error).__name__
            message = (
                f"is not a result of vllm bench serve, SGLang, GenAI-Perf or AIPerf: {reason:.100}"
            )
            problems.append(Problem(file=str(path), line=line, message=message))
            continue
        row |= stated
        for name in _NEEDED:
            if not row.get(name):
                hint = f"add --run {name}=..."
                message = "is not in the result"
                problems.append(
                    Problem(file=str(path), line=line, path=name, message=message, hint=hint)
                )
        if not problems:
            # The generators count all accelerators as one server.
            throughput = float(row.pop("output_tokens_per_s"))
            row["output_tokens_per_s_per_gpu"] = repr(throughput / _whole(path, line, row["tp"]))
        rows[line] = row
    raise_all(problems[:50])
    if not rows:
        raise ScenarioError(Problem(file=str(path), message="holds no result"))
    names = (*COLUMNS, *OPTIONAL_COLUMNS, DRAFT_COLUMN)
    cells = [[row.get(name, "") for name in names] for row in rows.values()]
    return pd.DataFrame(cells, columns=list(names), index=list(rows))


def _whole(path: Path, line: int, text: str) -> int:
    """Return the accelerators of a run."""
    if text.isdigit() and int(text) > 0:
        return int(text)
    message = f"must be a whole number above zero, not {text!r}"
    raise ScenarioError(Problem(file=str(path), line=line, path="tp", message=message))


def _results(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield each JSON value of a file with the line it begins on: one, a list, one a line, or several in a row."""
    try:
        text = read_bytes(path, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        message = "is not UTF-8 text"
        raise ScenarioError(Problem(file=str(path), line=line_of(error), message=message)) from None
    decoder = json.JSONDecoder()
    position = 0
    line = 1
    while True:
        rest = len(text) - len(text[position:].lstrip())
        line += text.count("\n", position, rest)
        position = rest
        if position >= len(text):
            return
        try:
            node, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise ScenarioError(
                Problem(file=str(path), line=error.lineno, message=f"is not JSON: {error.msg}")
            ) from None
        except RecursionError:
            message = "is nested too deeply"
            raise ScenarioError(Problem(file=str(path), line=line, message=message)) from None
        entries = node if isinstance(node, list) else [node]
        for number, entry in enumerate(entries):
            # Entries of a list have no lines of their own: they are told apart by their number.
            yield line + number, entry
        line += text.count("\n", position, end)
        position = end


def _row(result: Any) -> dict[str, str]:
    """Return the row of a result, but for what it does not say."""
    if "time_to_first_token" in result:
        return _perf_row(result)
    return _bench_row(result)


def _bench_row(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the row of vLLM's or SGLang's benchmark: lengths are totals over requests that were completed."""
    completed = _positive(result, "completed")
    concurrency = result.get("max_concurrency")
    rate = str(result.get("request_rate", "inf"))
    if concurrency is None and rate not in ("inf", "Infinity"):
        raise ValueError(f"ran at {rate} requests/s without --max-concurrency, so no load is known")
    if concurrency is None:
        # All at once: as many as there are.
        concurrency = _positive(result, "num_prompts" if "num_prompts" in result else "completed")
    backend = str(result.get("backend") or result.get("endpoint_type") or "")
    row = {
        "model": str(result.get("model_id") or result.get("model") or ""),
        "engine": next((engine for engine in _ENGINES if engine in backend.lower()), ""),
        "input_tokens": _text(_positive(result, "total_input_tokens") / completed),
        "output_tokens": _text(_positive(result, "total_output_tokens") / completed),
        "concurrency": _text(float(concurrency)),
        "ttft_ms": _text(_middle(result, "ttft")),
        "tpot_ms": _text(_middle(result, "tpot")),
        "output_tokens_per_s": _text(_positive(result, "output_throughput")),
        "scenario": "Concurrency",
    }
    metadata = {
        column: str(result[key]) for key, column in _METADATA.items() if result.get(key) is not None
    }
    return row | metadata


def _perf_row(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the row of GenAI-Perf's or AIPerf's summary: a statistic by name for each metric."""
    settings = result.get("input_config") or {}
    endpoint = settings.get("endpoint") or {}
    models = endpoint.get("model_names") or settings.get("model") or settings.get("model_names")
    if isinstance(models, list):
        models = models[0]
    stimulus = (settings.get("perf_analyzer") or {}).get("stimulus") or {}
    load = settings.get("loadgen") or {}
    concurrency = load.get("concurrency") or stimulus.get("concurrency")
    concurrency = concurrency or settings.get("concurrency")
    if not concurrency:
        raise ValueError("ran without --concurrency, so no load is known")
    tpot = result.get("inter_token_latency") or result["time_per_output_token"]
    return {
        "model": str(models or ""),
        "input_tokens": _text(_positive(result["input_sequence_length"], "avg")),
        "output_tokens": _text(_positive(result["output_sequence_length"], "avg")),
        "concurrency": _text(float(concurrency)),
        "ttft_ms": _text(_middle_ms(result["time_to_first_token"])),
        "tpot_ms": _text(_middle_ms(tpot)),
        "output_tokens_per_s": _text(_positive(result["output_token_throughput"], "avg")),
        "scenario": "Concurrency",
    }


def _middle(result: Mapping[str, Any], name: str) -> float:
    """Return the median of a latency, or its mean where that alone is there."""
    key = f"median_{name}_ms"
    return _positive(result, key if key in result else f"mean_{name}_ms")


def _middle_ms(metric: Mapping[str, Any]) -> float:
    """Return the median of a metric in milliseconds, whatever its unit."""
    scales = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
    scale = scales[str(metric.get("unit", "ms")).lower()]
    return scale * _positive(metric, "p50" if "p50" in metric else "avg")


def _positive(node: Mapping[str, Any], key: str) -> float:
    """Return a number above zero of an object; raise ValueError where there is none."""
    if key not in node:
        raise ValueError(f"no {key}")
    number = node[key]
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e12:
        raise ValueError(f"{key} must be a number above zero, not {number!r:.40}")
    return float(number)


def _text(number: float) -> str:
    return f"{number:.10g}"
