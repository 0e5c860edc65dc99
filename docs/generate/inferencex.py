"""``python -m docs.generate.inferencex FILE.json OUT.csv``: results of the InferenceX project as measured rows.

The project (https://github.com/SemiAnalysisAI/InferenceX, utils/process_result.py) publishes one JSON object, or a list
of them, with the hardware (``hw``), model, framework, precision, nominal lengths (``isl``, ``osl``), concurrency
(``conc``), degrees of parallelism, of one replica (``tp``, ``ep``, ``dp_attention``) or of each pool (``prefill_tp``,
``decode_tp``, ...), and figures in seconds and tokens per second, beside them or under ``metrics``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from planner.calibration.benchmarks import (
    DISAGGREGATED_SCENARIO,
    CannotPredictError,
    find_engine,
    find_model,
    find_part,
    find_precision,
)
from planner.calibration.columns import COLUMNS, DRAFT_COLUMN
from planner.catalog.load import Catalog, load_catalog
from planner.errors import PlannerError, Problem, ScenarioError
from planner.files import write_file
from planner.units import MILLISECOND
from planner.yaml_io import MAX_FILE_BYTES, read_bytes

_LENGTH_FRACTION = 0.9
"""Mean length over the nominal one: that benchmark draws lengths evenly between 0.8 and 1 of it."""
_POOL_COUNTS = {
    "prefill_tp": "prefill_tp",
    "prefill_workers": "prefill_num_workers",
    "decode_workers": "decode_num_workers",
}
"""What a table says of separate pools beyond its decode workers' degrees, and the project's keys for it."""
_IMPORTED_COLUMNS = (
    *COLUMNS,
    "attention_dp",
    *_POOL_COUNTS,
    DRAFT_COLUMN,
    "engine_version",
    "measured_date",
    "source",
)
_PREFIXES = {
    "dsr1": "deepseek-r1",
    "gptoss": "gpt-oss-120b",
    "70b": "llama-3.3-70b",
    "dsv4": "deepseek-v4-pro",
}
"""What the project calls models for short."""


def read_inferencex(path: Path) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Return the rows of a results file, and the number left out for each reason."""
    try:
        content = json.loads(read_bytes(path, MAX_FILE_BYTES))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScenarioError(Problem(file=str(path), message=f"is not JSON: {error}")) from None
    results = content if isinstance(content, list) else [content]
    if not results or not all(isinstance(result, dict) for result in results):
        raise ScenarioError(
            Problem(file=str(path), message="must hold a result, or a list of results, as objects")
        )
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
        raise ScenarioError(
            Problem(file=str(path), message=f"holds no result that can be used: {told}")
        )
    return rows, left_out


def csv_of(rows: list[dict[str, str]]) -> str:
    """Return rows as the text of a CSV file."""
    return pd.DataFrame(rows, columns=[*_IMPORTED_COLUMNS]).to_csv(index=False, lineterminator="\n")


def _row(result: Mapping[str, Any], catalog: Catalog) -> dict[str, str]:
    """Return one result as a row; raise CannotPredictError with the reason where it is unusable."""
    input_tokens, output_tokens = (
        _number(result, key) * _LENGTH_FRACTION for key in ("isl", "osl")
    )
    part = find_part(_text(result, "hw", "hardware"), catalog)
    model = _model(result, catalog)
    precision = _text(result, "precision")
    find_precision(precision, part, find_model(model, catalog))
    concurrency = _number(result, "conc")
    # The mean over requests or, where only that is published, the median.
    of = {
        name: "median" if result.get(f"mean_{name}") is None else "mean"
        for name in ("tpot", "ttft")
    }
    tpot_s, ttft_s = (_number(result, f"{which}_{name}") for name, which in of.items())
    # A result of separate pools, and some of one replica, writes the degrees of its decode workers.
    apart = _is_true(result, "disagg")
    side = "decode_" if apart or result.get("tp") is None else ""
    tp = _number(result, f"{side}tp")
    rate = result.get("output_tput_per_gpu")
    row = {
        "model": model,
        "accelerator": part.name,
        "engine": find_engine(_text(result, "framework")),
        "precision": precision,
        "input_tokens": f"{input_tokens:g}",
        "output_tokens": f"{output_tokens:g}",
        "concurrency": f"{concurrency:g}",
        "tpot_ms": f"{tpot_s / MILLISECOND:.6g}",
        "ttft_ms": f"{ttft_s / MILLISECOND:.6g}",
        "engine_version": _text(result, "image"),
        "measured_date": _text(result, "date"),
        "source": "InferenceX",
        DRAFT_COLUMN: _text(result, "spec_decoding", "spec_method", "mtp"),
        "scenario": DISAGGREGATED_SCENARIO if apart else "Concurrency",
        "tp": f"{tp:g}",
        "ep": f"{_number(result, f'{side}ep', 1.0):g}",
        "attention_dp": f"{tp:g}" if _is_true(result, f"{side}dp_attention") else "",
    }
    if apart:
        counts = {column: _number(result, key, 0.0) for column, key in _POOL_COUNTS.items()}
        return row | {column: f"{count:g}" for column, count in counts.items() if count > 0}
    return row | {"output_tokens_per_s_per_gpu": "" if rate is None else f"{float(rate):.6g}"}


def _model(result: Mapping[str, Any], catalog: Catalog) -> str:
    """Return the catalogue's name of a result's model, by the served model or the project's short name."""
    short = _text(result, "infmax_model_prefix").lower()
    names = [
        _text(result, "model"),
        short,
        _PREFIXES.get(short, ""),
        _PREFIXES.get(_text(result, "model").lower(), ""),
    ]
    error = CannotPredictError("no model is named")
    for name in filter(None, names):
        try:
            return find_model(name, catalog).name
        except CannotPredictError as unknown:
            error = unknown if str(error).startswith("no model") else error
    raise error


def _text(result: Mapping[str, Any], *keys: str) -> str:
    """Return the value of the first key present, as text."""
    return next((str(result[key]) for key in keys if result.get(key) is not None), "")


def _is_true(result: Mapping[str, Any], key: str) -> bool:
    return _text(result, key).lower() in ("true", "1")


def _number(result: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return a number above zero, or the default where the key is absent or has none."""
    try:
        number = float(_text(result, key))
    except ValueError:
        number = 0.0
    if 0.0 < number < float("inf"):
        return number
    if default is None:
        raise CannotPredictError(f"{key} is not a number above zero")
    return default


def main(file: str, out: str) -> int:
    """Write the table, and print how many rows it has and what was left out."""
    try:
        rows, left_out = read_inferencex(Path(file))
        write_file(Path(out), csv_of(rows).encode())
    except PlannerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{len(rows)} rows written to {out}")
    for reason, count in left_out.items():
        print(f"left out {count}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
