"""Benchmark tables: reading and checking them, and resolving their names, parallelism and layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from planner.catalog.load import Catalog, part_of, shape_of
from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics import model_on_part as on_part
from planner.physics.coefficients import DEFAULT_RESERVED_OUTPUT_FRACTION
from planner.physics.replica import ReplicaSpec
from planner.validation import nearest

NAME_COLUMNS = ("model", "accelerator", "engine", "precision")
MEASURED_COLUMNS = ("ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu")
LENGTH_COLUMNS = ("input_tokens", "output_tokens")
_LOAD_COLUMNS = ("concurrency", "slo_ttft_ms", "slo_tpot_ms")
COLUMNS = (
    *NAME_COLUMNS,
    "tp",
    "ep",
    *LENGTH_COLUMNS,
    "scenario",
    *_LOAD_COLUMNS,
    *MEASURED_COLUMNS,
)
HIT_COLUMN = "prefix_hit_fraction"
"""Optional: share of each prompt found in the prefix cache."""
DRAFT_COLUMN = "speculative"
"""Optional: whether tokens are drafted, by which method and how many; ``mtp``, ``eagle3 k=2``, ``3``, ``none``."""
OPTIONAL_COLUMNS = (
    HIT_COLUMN,
    "attention_dp",
    "max_num_seqs",
    "prefill_tp",
    "prefill_workers",
    "decode_workers",
)
"""Optional numbers: that share, groups of attention in data parallel, sequences an engine admits to a group, and of
separate pools the accelerators of a prefill worker and the number of workers; tp, ep are then a decode worker's."""
_NUMBER_COLUMNS = (
    "tp",
    "ep",
    *LENGTH_COLUMNS,
    *_LOAD_COLUMNS,
    *MEASURED_COLUMNS,
    *OPTIONAL_COLUMNS,
)
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
        frame = pd.read_csv(
            path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig"
        )
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        known: dict[type[Exception], str] = {FileNotFoundError: "there is no such file"}
        known |= {
            IsADirectoryError: "is a folder, not a CSV file",
            pd.errors.EmptyDataError: "the file is empty",
        }
        message = known.get(type(error), f"cannot be read as CSV: {error}")
        raise ScenarioError(Problem(file=at, message=message)) from None
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the surplus for names of rows
        raise ScenarioError(
            Problem(file=at, message="the rows have more cells than the header has columns")
        )
    frame.columns = frame.columns.astype(str).str.strip()
    if len(twice := frame.columns[frame.columns.duplicated(keep=False)]):
        raise ScenarioError(
            Problem(file=at, line=1, message=f"the column {twice[0]!r} is there twice")
        )
    for column in frame.columns:
        frame[column] = frame[column].fillna("").str.strip()
    hints = {
        column: nearest(column, list(frame.columns))
        for column in COLUMNS
        if column not in frame.columns
    }
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
        problems.append(
            Problem(file=at, line=int(row), path="scenario", message=message, hint=hint)
        )
    frame["scenario"] = scenarios
    problems.sort(key=lambda problem: problem.line or 0)
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [
            Problem(message=f"and at least {len(problems) - MAX_PROBLEMS} more")
        ]
    raise_all(problems)
    return frame


def _numbers(path: Path, cells: pd.Series[str], problems: list[Problem]) -> pd.Series[float]:
    """Return one column as numbers above zero; blank is absent, anything else a problem with its row."""
    column = str(cells.name)
    blank = cells == ""
    numbers = pd.to_numeric(cells.where(~blank), errors="coerce").astype(float)
    bad = ~blank & (numbers.isna() | (numbers.abs() > _MOST))
    if column == HIT_COLUMN:
        bad = bad | (numbers < 0) | (numbers > 1)
        wanted = "a number between 0 and 1"
    elif column in _WHOLE_COLUMNS:
        bad = bad | (numbers <= 0) | (~blank & (numbers % 1 != 0))
        wanted = "a whole number above zero"
    else:
        bad = bad | (numbers <= 0)
        wanted = "a number above zero"
    for row in cells.index[bad][: MAX_PROBLEMS + 1]:
        message = f"must be {f'at most {_MOST:g}' if numbers[row] > _MOST else wanted}, not {cells[row]!r}"
        problems.append(Problem(file=str(path), line=int(row), path=column, message=message))
    return numbers


_NAMES = data_rows(__file__, "names.csv")
_ENGINES, _SAME_SHAPE = (
    {row["name"]: row["means"] for row in _NAMES if row["of"] == of} for of in ("engine", "model")
)
"""Engines by what people call them, without spaces, dashes and capitals, where that is not their usual name; releases
of models whose configuration is that of an entry, and short names of a family's large model."""
_ROUTERS = re.compile(r"^(dynamo|mooncake|mori|llmd)(?=.)|(?<=.)(disagg|mesh)$")
"""What stands before or behind an engine's name where it sends requests to several pools."""
_MODEL_SUFFIXES = re.compile(
    r"-(instruct|chat|hf|it|fp8|fp4|nvfp4|mxfp4|bf16|fp16|int4|0324|0528|thinking)(?=-|$)"
)
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
    plain = (
        _MODEL_SUFFIXES.sub("", name.strip().lower().rsplit("/", 1)[-1])
        .replace("_", "-")
        .replace(" ", "-")
    )
    for candidate in (
        name.strip().lower(),
        plain,
        plain.replace("meta-", ""),
        _SAME_SHAPE.get(plain, plain),
    ):
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
    return (
        min(int(stated.group()), max(_ACCEPTANCE))
        if stated and int(stated.group())
        else USUAL_DRAFT
    )


def find_precision(name: str, part: on_part.AcceleratorSpec, shape: on_part.ModelShape) -> str:
    """Return the precision a row names; a blank one is what the model was quantised to when published, or FP8."""
    formats = part.formats
    if not name.strip():
        native = shape.native_precision
        usable = (
            on_part.refusal(part, shape, native) is None and formats[native].role != "activations"
        )
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
        return tuple(
            Layout(degree, groups, fewest)
            for degree in degrees
            for groups in attention_groups(degree)
        )
    if attention_dp is not None and attention_dp > 1:
        total = tp
        if tp % attention_dp or ep == tp * attention_dp or not holds(tp, attention_dp):
            total = tp * attention_dp
        if not holds(total, attention_dp):
            raise CannotPredictError(
                f"{shape.name} at {precision} does not fit {total} × {part.name}"
            )
        return (Layout(total, attention_dp, 1.0),)
    count = tp
    if ep is not None and ep > 1 and tp >= ep * ep and tp % ep == 0 and holds(tp // ep):
        count = tp // ep
    if not shape.divides_heads(count):
        raise CannotPredictError(
            f"tp {count} does not divide the {shape.heads} heads of {shape.name}"
        )
    total = count
    while not holds(total, total // count):
        total *= 2
        if total > _MAX_ACCELERATORS:
            on_part.smallest_fit(part, shape, precision)
            raise CannotPredictError(f"{shape.name} at {precision} does not fit {tp} × {part.name}")
    if total > count:
        return (
            Layout(
                total,
                total // count if shape.experts else 1,
                total / count if shape.experts else 1.0,
            ),
        )
    chosen = attention_groups(count) if attention_dp is None else [1]
    return tuple(Layout(count, groups, 1.0) for groups in chosen)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    hint = nearest(name, names) or f"the catalogue has {', '.join(names)}"
    return f"unknown {what} {name!r} ({hint})"
