"""Reading results as the InferenceX project publishes them, into rows that ``check-benchmarks`` and ``calibrate`` read.

A file holds one result, or a list of them: JSON objects with the hardware (``hw``), model, framework, precision,
nominal lengths (``isl``, ``osl``), concurrency (``conc``), degrees of parallelism, of one replica (``tp``, ``ep``,
``dp_attention``) or of each pool (``prefill_tp``, ``decode_tp``, ...), and figures in seconds and tokens per second,
beside them or under ``metrics`` (https://github.com/SemiAnalysisAI/InferenceX, utils/process_result.py).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.calibration.layout import CannotPredictError, find_engine, find_model, find_part, find_precision
from planner.calibration.table import COLUMNS, DISAGGREGATED_SCENARIO
from planner.catalog.load import Catalog, load_catalog
from planner.errors import Problem, ScenarioError
from planner.units import MILLISECOND
from planner.yaml_io import MAX_FILE_BYTES, read_bytes

LENGTH_FRACTION = 0.9
"""Mean length over the nominal one: that benchmark draws lengths evenly between 0.8 and 1 of it."""
IMPORTED_COLUMNS = (
    *COLUMNS, "attention_dp", "prefill_tp", "prefill_workers", "decode_workers", "engine_version", "measured_date",
    "source",
)  # fmt: skip
_PREFIXES = {"dsr1": "deepseek-r1", "gptoss": "gpt-oss-120b", "70b": "llama-3.3-70b", "dsv4": "deepseek-v4-pro"}
"""What the project calls models for short."""


def read_inferencex(path: Path) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Return the rows of a file of results, and how many were left out for each reason."""
    try:
        content = json.loads(read_bytes(path, MAX_FILE_BYTES))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScenarioError(Problem(file=str(path), message=f"is not JSON: {error}")) from None
    results = content if isinstance(content, list) else [content]
    if not results or not all(isinstance(result, dict) for result in results):
        raise ScenarioError(Problem(file=str(path), message="must hold a result, or a list of results, as objects"))
    catalog = load_catalog()
    rows: list[dict[str, str]] = []
    left_out: dict[str, int] = {}
    for result in results:
        try:
            rows.append(_row({**result, **(result.get("metrics") or {})}, catalog))
        except CannotPredictError as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
    if not rows:
        told = "; ".join(f"{count} × {reason}" for reason, count in left_out.items())
        raise ScenarioError(Problem(file=str(path), message=f"holds no result that can be used: {told}"))
    return rows, left_out


def csv_of(rows: list[dict[str, str]]) -> str:
    """Return rows as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, IMPORTED_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(result: Mapping[str, Any], catalog: Catalog) -> dict[str, str]:
    """Turn one result into a row; raise CannotPredictError with why where it is of no use."""
    if _text(result, "spec_decoding", "spec_method", "mtp").lower() not in ("", "none", "off", "false"):
        raise CannotPredictError("speculative decoding: its acceptance is not published")
    input_tokens, output_tokens = (_number(result, key) * LENGTH_FRACTION for key in ("isl", "osl"))
    part = find_part(_text(result, "hw", "hardware"), catalog)
    model = _model(result, catalog)
    precision = _text(result, "precision")
    find_precision(precision, part, find_model(model, catalog))
    row = {
        "model": model,
        "accelerator": part.name,
        "engine": find_engine(_text(result, "framework")),
        "precision": precision,
        "input_tokens": f"{input_tokens:g}",
        "output_tokens": f"{output_tokens:g}",
        "concurrency": f"{_number(result, 'conc'):g}",
        "tpot_ms": f"{_seconds(result, 'tpot') / MILLISECOND:.6g}",
        "ttft_ms": f"{_seconds(result, 'ttft') / MILLISECOND:.6g}",
        "engine_version": _text(result, "image"),
        "measured_date": _text(result, "date"),
        "source": "InferenceX",
    }
    return {**row, **_layout(result)}


def _layout(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the degrees of a replica, or those of the decode workers where prompts are prefilled elsewhere."""
    apart = _truth(result, "disagg")
    side = "decode_" if apart or result.get("tp") is None else ""
    tp = _number(result, f"{side}tp")
    cells = {
        "scenario": DISAGGREGATED_SCENARIO if apart else "Concurrency",
        "tp": f"{tp:g}",
        "ep": f"{_number(result, f'{side}ep', 1.0):g}",
        "attention_dp": f"{tp:g}" if _truth(result, f"{side}dp_attention") else "",
    }
    if not apart:
        rate = result.get("output_tput_per_gpu")
        return {**cells, "output_tokens_per_s_per_gpu": "" if rate is None else f"{float(rate):.6g}"}
    pools = {"prefill_tp": "prefill_tp", "prefill_workers": "prefill_num_workers"}
    pools["decode_workers"] = "decode_num_workers"
    return cells | {name: f"{number:g}" for name, key in pools.items() if (number := _number(result, key, 0.0)) > 0}


def _model(result: Mapping[str, Any], catalog: Catalog) -> str:
    """Return the catalogue's name of a result's model, by what was served or by the project's short name."""
    short = _text(result, "infmax_model_prefix").lower()
    names = [_text(result, "model"), short, _PREFIXES.get(short, ""), _PREFIXES.get(_text(result, "model").lower(), "")]
    error = CannotPredictError("no model is named")
    for name in filter(None, names):
        try:
            return find_model(name, catalog).name
        except CannotPredictError as unknown:
            error = unknown if str(error).startswith("no model") else error
    raise error


def _text(result: Mapping[str, Any], *keys: str) -> str:
    """Return the first of several keys that is there, as text."""
    return next((str(result[key]) for key in keys if result.get(key) is not None), "")


def _truth(result: Mapping[str, Any], key: str) -> bool:
    return _text(result, key).lower() in ("true", "1")


def _number(result: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return a number above zero, or the default where the key is not there or no such number."""
    try:
        number = float(_text(result, key))
    except ValueError:
        number = 0.0
    if 0.0 < number < float("inf"):
        return number
    if default is None:
        raise CannotPredictError(f"{key} is not a number above zero")
    return default


def _seconds(result: Mapping[str, Any], name: str) -> float:
    """Return the mean of a latency over requests or, where only that is published, its median."""
    return _number(result, f"mean_{name}" if result.get(f"mean_{name}") is not None else f"median_{name}")
