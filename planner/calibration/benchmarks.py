"""Benchmark tables: reading and checking them, and resolving their names, parallelism and layouts.

The last part turns results as the InferenceX project publishes them into such a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from planner.catalog.load import Catalog, load_catalog, part_of, shape_of
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics import model_on_part as on_part
from planner.physics.coefficients import DEFAULT_RESERVED_OUTPUT_FRACTION
from planner.physics.replica import ReplicaSpec
from planner.units import MILLISECOND
from planner.validation import nearest
from planner.yaml_io import MAX_FILE_BYTES, read_bytes

NAME_COLUMNS = ("model", "accelerator", "engine", "precision")
MEASURED_COLUMNS = ("ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu")
LENGTH_COLUMNS = ("input_tokens", "output_tokens")
_LOAD_COLUMNS = ("concurrency", "slo_ttft_ms", "slo_tpot_ms")
COLUMNS = (*NAME_COLUMNS, "tp", "ep", *LENGTH_COLUMNS, "scenario", *_LOAD_COLUMNS, *MEASURED_COLUMNS)
HIT_COLUMN = "prefix_hit_fraction"
"""Optional: share of each prompt found in the prefix cache."""
DRAFT_COLUMN = "speculative"
"""Optional: whether tokens are drafted, by which method and how many; ``mtp``, ``eagle3 k=2``, ``3``, ``none``."""
OPTIONAL_COLUMNS = (HIT_COLUMN, "attention_dp", "max_num_seqs", "prefill_tp", "prefill_workers", "decode_workers")
"""Optional numbers: that share, groups of attention in data parallel, sequences an engine admits to a group, and of
separate pools the accelerators of a prefill worker and the number of workers; tp, ep are then a decode worker's."""
_NUMBER_COLUMNS = ("tp", "ep", *LENGTH_COLUMNS, *_LOAD_COLUMNS, *MEASURED_COLUMNS, *OPTIONAL_COLUMNS)
_WHOLE_COLUMNS = ("tp", "ep", *OPTIONAL_COLUMNS[1:])
DISAGGREGATED_SCENARIO = "Disaggregated"
OPEN_SCENARIOS = ("Server", "Interactive")
"""MLPerf's scenarios in which requests arrive on their own and 99% of them must keep the objectives."""
SCENARIOS = ("Offline", *OPEN_SCENARIOS, "Concurrency", DISAGGREGATED_SCENARIO)
_MOST = 1e12
"""No count, length, rate or time in a row of measurements is larger."""
MAX_PROBLEMS = 50
_FIRST_ROW = 2  # the header is line 1


def read_benchmarks(path: Path) -> pd.DataFrame:
    """Return a benchmark CSV as a table; raise ScenarioError naming every bad cell by row.

    The frame has the file's own columns and the optional ones, numbers as floats (blank cells as NaN), text stripped,
    and the row's line in the file as its index.
    """
    at = str(path)
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig")
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        known: dict[type[Exception], str] = {FileNotFoundError: "there is no such file"}
        known |= {IsADirectoryError: "is a folder, not a CSV file", pd.errors.EmptyDataError: "the file is empty"}
        message = known.get(type(error), f"cannot be read as CSV: {error}")
        raise ScenarioError(Problem(file=at, message=message)) from None
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the surplus for names of rows
        raise ScenarioError(Problem(file=at, message="the rows have more cells than the header has columns"))
    frame.columns = frame.columns.astype(str).str.strip()
    if len(twice := frame.columns[frame.columns.duplicated(keep=False)]):
        raise ScenarioError(Problem(file=at, line=1, message=f"the column {twice[0]!r} is there twice"))
    for column in frame.columns:
        frame[column] = frame[column].fillna("").str.strip()
    if "decode_tp" in frame.columns and "tp" not in frame.columns:
        # A table of separate prefill and decode pools: a row is its decode worker's. Such tables write an attention_dp
        # of 1 where they do not say, which is everywhere: it counts as blank.
        frame = frame.rename(columns={"decode_tp": "tp", "decode_ep": "ep", "decode_attention_dp": "attention_dp"})
        for column in COLUMNS:
            if column not in frame.columns:
                frame[column] = DISAGGREGATED_SCENARIO if column == "scenario" else ""
        if "attention_dp" in frame.columns:
            frame["attention_dp"] = frame["attention_dp"].where(~frame["attention_dp"].isin(["1", "1.0"]), "")
        if {"prefill_attention_dp", "prefill_ep"} <= set(frame.columns):
            names = ("prefill_tp", "prefill_attention_dp", "prefill_ep")
            tp, groups, ep = (pd.to_numeric(frame[name], errors="coerce") for name in names)
            # Accelerators of a worker: its groups together, or all over which its experts are spread.
            wide = pd.concat([tp * groups.fillna(1.0), ep], axis=1).max(axis=1)
            frame["prefill_tp"] = frame["prefill_tp"].where(tp.isna(), wide.map("{:g}".format))
    hints = {column: nearest(column, list(frame.columns)) for column in COLUMNS if column not in frame.columns}
    absent = [(f"the column {column!r} is missing", hint) for column, hint in hints.items()]
    raise_all([Problem(file=at, line=1, message=message, hint=hint) for message, hint in absent])
    if frame.empty:
        raise ScenarioError(Problem(file=at, message="the file has a header and no rows"))
    frame.index = frame.index + _FIRST_ROW
    problems: list[Problem] = []
    for column in (*OPTIONAL_COLUMNS, DRAFT_COLUMN):
        if column not in frame.columns:
            frame[column] = ""
    for column in _NUMBER_COLUMNS:
        frame[column] = _numbers(path, frame[column], problems)
    # Scenarios in their usual spelling; a blank one follows from the concurrency.
    scenarios = frame["scenario"].str.lower().map({name.lower(): name for name in SCENARIOS})
    usual = frame["concurrency"].notna().map({True: "Concurrency", False: "Offline"})
    scenarios = scenarios.where(frame["scenario"] != "", usual)
    for row in frame.index[scenarios.isna()][: MAX_PROBLEMS + 1]:
        name = str(frame.at[row, "scenario"])
        message = f"unknown scenario {name!r}; choose from {', '.join(SCENARIOS)}"
        hint = nearest(name, SCENARIOS)
        problems.append(Problem(file=at, line=int(row), path="scenario", message=message, hint=hint))
    frame["scenario"] = scenarios
    problems.sort(key=lambda problem: problem.line or 0)
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [Problem(message=f"and at least {len(problems) - MAX_PROBLEMS} more")]
    raise_all(problems)
    return frame


def _numbers(path: Path, cells: pd.Series[str], problems: list[Problem]) -> pd.Series[float]:
    """Return one column as numbers above zero; blank is absent, anything else a problem with its row."""
    column = str(cells.name)
    blank = cells == ""
    numbers = pd.to_numeric(cells.where(~blank), errors="coerce").astype(float)
    bad = ~blank & (numbers.isna() | (numbers.abs() > _MOST))
    if column == HIT_COLUMN:
        bad, wanted = bad | (numbers < 0) | (numbers > 1), "a number between 0 and 1"
    elif column in _WHOLE_COLUMNS:
        bad, wanted = bad | (numbers <= 0) | (~blank & (numbers % 1 != 0)), "a whole number above zero"
    else:
        bad, wanted = bad | (numbers <= 0), "a number above zero"
    for row in cells.index[bad][: MAX_PROBLEMS + 1]:
        message = f"must be {f'at most {_MOST:g}' if numbers[row] > _MOST else wanted}, not {cells[row]!r}"
        problems.append(Problem(file=str(path), line=int(row), path=column, message=message))
    return numbers


_ENGINES = {
    **dict.fromkeys(("trt", "trtllm", "tensorrt", "tensorrtllm"), "tensorrt-llm"),
    "textgenerationinference": "tgi",
}
"""Engines by what people call them, without spaces, dashes and capitals, where that is not their usual name."""
_ROUTERS = re.compile(r"^(dynamo|mooncake|mori|llmd)(?=.)|(?<=.)(disagg|mesh)$")
"""What stands before or behind an engine's name where it sends requests to several pools."""
_MODEL_SUFFIXES = re.compile(r"-(instruct|chat|hf|it|fp8|fp4|nvfp4|mxfp4|bf16|fp16|int4|0324|0528|thinking)(?=-|$)")
_SAME_SHAPE = {
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-v4": "deepseek-v4-pro",
    "glm-5.1": "glm-5",
    "gpt-oss": "gpt-oss-120b",
    "kimi-k2.6": "kimi-k2.5",
    "minimax-m2": "minimax-m2.5",
    "minimax-m2.1": "minimax-m2.5",
    "minimax-m2.7": "minimax-m2.5",
    "qwen3.5": "qwen3.5-397b-a17b",
}
"""Releases whose configuration is that of an entry, and short names of a family's large model."""
_MAX_ACCELERATORS = 128


class CannotPredictError(Exception):
    """A row that the formula cannot predict; its message is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Accelerators and attention groups of a replica."""

    accelerators: int
    attention_data_parallel: int
    replicas_per_concurrency: float
    """By how much the row's concurrency is multiplied to count the whole replica."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The deployment of a row: a model at a precision under an engine, and its possible layouts."""

    part: on_part.AcceleratorSpec
    shape: on_part.ModelShape
    precision: str
    engine: str
    layouts: tuple[Layout, ...]
    """One, or several where the row leaves the layout open; the best is taken."""
    expert_parallel: bool
    max_sequences: int | None
    drafted_tokens: int = 0

    def specs(self, is_open: bool) -> list[ReplicaSpec]:
        """Return the replica of each layout; ``is_open`` says whether arrivals are independent of completions."""
        return [
            ReplicaSpec(
                part=self.part,
                shape=self.shape,
                precision=self.precision,
                accelerators=layout.accelerators,
                engine=self.engine,
                attention_data_parallel=layout.attention_data_parallel,
                expert_parallel=self.expert_parallel or layout.attention_data_parallel > 1,
                max_sequences=self.max_sequences,
                drafted_tokens=self.drafted_tokens,
                mean_acceptance_length=acceptance_length(self.drafted_tokens),
                # Servers tuned for independent arrivals admit by what is written, not by what might be.
                reserved_output_fraction=DEFAULT_RESERVED_OUTPUT_FRACTION if is_open else None,
            )
            for layout in self.layouts
        ]


def find_model(name: str, catalog: Catalog) -> on_part.ModelShape:
    """Return the model a row names, whatever its case, publisher prefix or ``-instruct`` suffix."""
    plain = _MODEL_SUFFIXES.sub("", name.strip().lower().rsplit("/", 1)[-1]).replace("_", "-").replace(" ", "-")
    for candidate in (name.strip().lower(), plain, plain.replace("meta-", ""), _SAME_SHAPE.get(plain, plain)):
        if candidate in catalog.models:
            return shape_of(candidate, catalog)
    raise CannotPredictError(_unknown("model", name, catalog.models))


def find_part(name: str, catalog: Catalog) -> on_part.AcceleratorSpec:
    """Return the accelerator a row names; ``H200 SXM`` or ``NVIDIA H200-SXM-141GB`` is an H200."""
    words = re.split(r"[\s_\-/()]+", name.strip().upper())
    for candidate in sorted(catalog.accelerators, key=len, reverse=True):
        if candidate.upper() in words or candidate.upper() == name.strip().upper():
            return part_of(candidate, catalog)
    raise CannotPredictError(_unknown("accelerator", name, catalog.accelerators))


def find_engine(name: str) -> str:
    """Return the engine's usual name; one without calibration rows takes the common coefficients."""
    plain = _ROUTERS.sub("", re.sub(r"[\s_\-]+", "", name.strip().lower()))
    return _ENGINES.get(plain, plain)


_ACCEPTANCE = {0: 1.0, 1: 1.82, 2: 2.15, 3: 2.49, 4: 3.07, 8: 4.4}
"""Mean tokens of a step by drafted ones, of multi-token prediction on prose: DeepSeek-R1, DeepSeek-V4 (two and three),
GLM-5 and vLLM's Model Runner V2 (vllm#12755, vllm#41044, InferenceX#2522, vllm#53906, vllm#48892)."""
USUAL_DRAFT = 3


def acceptance_length(drafted_tokens: int) -> float:
    """Return the mean tokens that a step with this many drafted ones yields, the certain one included."""
    return float(np.interp(drafted_tokens, list(_ACCEPTANCE), list(_ACCEPTANCE.values())))


def find_draft(text: str) -> int:
    """Return the tokens that a row's steps draft: the number it states, or the usual one of its method; 0 for none."""
    plain = re.sub(r"eagle[\s_\-]*\d", "eagle", text.strip().lower())
    if plain in ("", "none", "off", "false", "no", "0", "0.0", "nan"):
        return 0
    stated = re.search(r"\d+", plain)
    return min(int(stated.group()), max(_ACCEPTANCE)) if stated and int(stated.group()) else USUAL_DRAFT


def find_precision(name: str, part: on_part.AcceleratorSpec, shape: on_part.ModelShape) -> str:
    """Return the precision a row names; a blank one is what the model was quantised to when published, or FP8."""
    formats = part.formats
    if not name.strip():
        native = shape.native_precision
        usable = on_part.refusal(part, shape, native) is None and formats[native].role != "activations"
        return native if usable else on_part.format_with(formats, "default")
    precision = on_part.canonical_precision(formats, name)
    if precision is None:
        raise CannotPredictError(_unknown("precision", name, formats))
    reason = on_part.refusal(part, shape, precision)
    if reason:
        raise CannotPredictError(reason)
    return precision


def lay_out(
    part: on_part.AcceleratorSpec,
    shape: on_part.ModelShape,
    precision: str,
    tp: int | None,
    ep: int | None,
    attention_dp: int | None = None,
) -> tuple[Layout, ...]:
    """Return the layouts a row may mean; several where it leaves parallelism open.

    Published tables write parallelism in several ways. ``tp`` alone is tensor parallelism. With ``ep`` > 1 some write
    the product of both (64 for tp 8, ep 8): recognised where tp ≥ ep² and the smaller replica holds the model. A
    ``tp`` on which the weights cannot fit means attention in parallel groups of tp over a larger expert-parallel
    replica, with the concurrency counted per group. ``attention_dp`` groups divide tp, or multiply it where they
    cannot divide it, or where ep says so.
    """

    def holds(accelerators: int, groups: int = 1) -> bool:
        fits = shape.divides_heads(accelerators // groups)
        return fits and on_part.memory_fit(part, shape, precision, accelerators, groups).fits

    def attention_groups(accelerators: int) -> list[int]:
        """Return what is worth trying: one group, and for mixtures one per accelerator where it fits."""
        is_wide = shape.experts and accelerators > 1 and holds(accelerators, accelerators)
        return [1, accelerators] if is_wide else [1]

    if tp is None:
        fewest = float(on_part.smallest_fit(part, shape, precision).accelerators)
        degrees = [d for d in on_part.candidate_degrees(part, shape) if holds(d)]
        return tuple(Layout(degree, groups, fewest) for degree in degrees for groups in attention_groups(degree))
    if attention_dp is not None and attention_dp > 1:
        total = tp
        if tp % attention_dp or ep == tp * attention_dp or not holds(tp, attention_dp):
            total = tp * attention_dp
        if not holds(total, attention_dp):
            raise CannotPredictError(f"{shape.name} at {precision} does not fit {total} × {part.name}")
        return (Layout(total, attention_dp, 1.0),)
    count = tp
    if ep is not None and ep > 1 and tp >= ep * ep and tp % ep == 0 and holds(tp // ep):
        count = tp // ep
    if not shape.divides_heads(count):
        raise CannotPredictError(f"tp {count} does not divide the {shape.heads} heads of {shape.name}")
    total = count
    while not holds(total, total // count):
        total *= 2
        if total > _MAX_ACCELERATORS:
            on_part.smallest_fit(part, shape, precision)
            raise CannotPredictError(f"{shape.name} at {precision} does not fit {tp} × {part.name}")
    if total > count:
        return (Layout(total, total // count if shape.experts else 1, total / count if shape.experts else 1.0),)
    chosen = attention_groups(count) if attention_dp is None else [1]
    return tuple(Layout(count, groups, 1.0) for groups in chosen)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    hint = nearest(name, names) or f"the catalogue has {', '.join(names)}"
    return f"unknown {what} {name!r} ({hint})"


# Results as the InferenceX project publishes them (https://github.com/SemiAnalysisAI/InferenceX,
# utils/process_result.py): a file holds one JSON object, or a list of them, with the hardware (``hw``), model,
# framework, precision, nominal lengths (``isl``, ``osl``), concurrency (``conc``), degrees of parallelism, of one
# replica (``tp``, ``ep``, ``dp_attention``) or of each pool (``prefill_tp``, ``decode_tp``, ...), and figures in
# seconds and tokens per second, beside them or under ``metrics``.
_LENGTH_FRACTION = 0.9
"""Mean length over the nominal one: that benchmark draws lengths evenly between 0.8 and 1 of it."""
_POOL_COUNTS = {
    "prefill_tp": "prefill_tp",
    "prefill_workers": "prefill_num_workers",
    "decode_workers": "decode_num_workers",
}
"""What a table says of separate pools beyond its decode workers' degrees, and the project's keys for it."""
_IMPORTED_COLUMNS = (*COLUMNS, "attention_dp", *_POOL_COUNTS, DRAFT_COLUMN, "engine_version", "measured_date", "source")
_PREFIXES = {"dsr1": "deepseek-r1", "gptoss": "gpt-oss-120b", "70b": "llama-3.3-70b", "dsv4": "deepseek-v4-pro"}
"""What the project calls models for short."""


def read_inferencex(path: Path) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Return the rows of a results file, and the number left out for each reason."""
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
    return pd.DataFrame(rows, columns=[*_IMPORTED_COLUMNS]).to_csv(index=False, lineterminator="\n")


def _row(result: Mapping[str, Any], catalog: Catalog) -> dict[str, str]:
    """Return one result as a row; raise CannotPredictError with the reason where it is unusable."""
    input_tokens, output_tokens = (_number(result, key) * _LENGTH_FRACTION for key in ("isl", "osl"))
    part = find_part(_text(result, "hw", "hardware"), catalog)
    model = _model(result, catalog)
    precision = _text(result, "precision")
    find_precision(precision, part, find_model(model, catalog))
    concurrency = _number(result, "conc")
    # The mean over requests or, where only that is published, the median.
    of = {name: "median" if result.get(f"mean_{name}") is None else "mean" for name in ("tpot", "ttft")}
    tpot_s, ttft_s = (_number(result, f"{which}_{name}") for name, which in of.items())
    # A result of separate pools, and some of one replica, writes the degrees of its decode workers.
    apart = _is_true(result, "disagg")
    side = "decode_" if apart or result.get("tp") is None else ""
    tp, rate = _number(result, f"{side}tp"), result.get("output_tput_per_gpu")
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
    names = [_text(result, "model"), short, _PREFIXES.get(short, ""), _PREFIXES.get(_text(result, "model").lower(), "")]
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
