"""Benchmark tables: reading and checking them, and resolving their names, parallelism and layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from planner.calibration.bench_results import is_result, read_results
from planner.calibration.columns import (
    COLUMNS,
    DRAFT_COLUMN,
    HIT_COLUMN,
    LENGTH_COLUMNS,
    LOAD_COLUMNS,
    MEASURED_COLUMNS,
    OPTIONAL_COLUMNS,
)
from planner.catalog.load import Catalog, part_of, shape_of
from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics import model_on_part as on_part
from planner.physics.coefficients import DEFAULT_RESERVED_OUTPUT_FRACTION
from planner.physics.replica import ReplicaSpec
from planner.validation import nearest

_NUMBER_COLUMNS = (
    "tp",
    "ep",
    *LENGTH_COLUMNS,
    *LOAD_COLUMNS,
    *MEASURED_COLUMNS,
    *OPTIONAL_COLUMNS,
)
_WHOLE_COLUMNS = ("tp", "ep", *OPTIONAL_COLUMNS[1:])
DISAGGREGATED_SCENARIO = "Disaggregated"
OPEN_SCENARIOS = ("Server", "Interactive")
"""MLPerf's scenarios in which requests arrive on their own and 99% of them must keep the objectives."""
SCENARIOS = ("Offline", *OPEN_SCENARIOS, "Concurrency", DISAGGREGATED_SCENARIO)
_MAX_NUMBER = 1e12
"""No count, length, rate or time in a row of measurements is larger."""
MAX_PROBLEMS = 50
_FIRST_LINE = 2
"""Line of the first row: the header is line 1."""


def read_benchmarks(path: Path, run: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a benchmark CSV or results of load generators as a table; raise ScenarioError naming every bad cell.

    ``run`` is what a result does not say of its run, by column: accelerator, tp, precision.

    The frame has the file's own columns and the optional ones, numbers as floats (blank cells as NaN), text stripped,
    and the row's line in the file as its index.
    """
    file = str(path)
    if is_result(path):
        return _checked(path, read_results(path, run or {}))
    if run:
        message = "is for results of load generators, and this is a table with columns of its own"
        raise ScenarioError(Problem(file=file, path="--run", message=message))
    try:
        frame = pd.read_csv(
            path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig"
        )
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        messages: dict[type[Exception], str] = {
            FileNotFoundError: "there is no such file",
            IsADirectoryError: "is a folder, not a CSV file",
            pd.errors.EmptyDataError: "the file is empty",
        }
        message = messages.get(type(error), f"cannot be read as CSV: {error}")
        raise ScenarioError(Problem(file=file, message=message)) from None
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the surplus for names of rows
        raise ScenarioError(
            Problem(file=file, message="the rows have more cells than the header has columns")
        )
    frame.columns = frame.columns.astype(str).str.strip()
    repeated = frame.columns[frame.columns.duplicated(keep=False)]
    if len(repeated):
        message = f"the column {repeated[0]!r} is there twice"
        raise ScenarioError(Problem(file=file, line=1, message=message))
    # A row that ends early has no text in its last cells.
    for column in frame.columns:
        frame[column] = frame[column].fillna("").str.strip()
    problems: list[Problem] = []
    for column in COLUMNS:
        if column not in frame.columns:
            message = f"the column {column!r} is missing"
            hint = nearest(column, list(frame.columns))
            problem = Problem(file=file, line=1, message=message, hint=hint)
            problems.append(problem)
    raise_all(problems)
    if frame.empty:
        raise ScenarioError(Problem(file=file, message="the file has a header and no rows"))
    # Lines of the file are the index, so that every message can name its row.
    frame.index = frame.index + _FIRST_LINE
    return _checked(path, frame)


def _checked(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts with its numbers as such; raise ScenarioError naming every bad cell by row."""
    file = str(path)
    problems: list[Problem] = []
    for column in (*OPTIONAL_COLUMNS, DRAFT_COLUMN):
        if column not in frame.columns:
            frame[column] = ""
    for column in _NUMBER_COLUMNS:
        frame[column] = _numbers(path, frame[column], problems)
    # Scenarios in their usual spelling; a blank one follows from the concurrency.
    spellings = {name.lower(): name for name in SCENARIOS}
    scenarios = frame["scenario"].str.lower().map(spellings)
    has_load = frame["concurrency"].notna()
    usual = has_load.map({True: "Concurrency", False: "Offline"})
    scenarios = scenarios.where(frame["scenario"] != "", usual)
    unknown_rows = frame.index[scenarios.isna()]
    for row in unknown_rows[: MAX_PROBLEMS + 1]:
        name = str(frame.at[row, "scenario"])
        message = f"unknown scenario {name!r}; choose from {', '.join(SCENARIOS)}"
        hint = nearest(name, SCENARIOS)
        problems.append(
            Problem(file=file, line=int(row), path="scenario", message=message, hint=hint)
        )
    frame["scenario"] = scenarios
    # By line, as the file is read: problems were found column by column.
    problems.sort(key=lambda problem: problem.line or 0)
    if len(problems) > MAX_PROBLEMS:
        remainder = f"and at least {len(problems) - MAX_PROBLEMS} more"
        problems[MAX_PROBLEMS:] = [Problem(message=remainder)]
    raise_all(problems)
    return frame


def _numbers(path: Path, cells: pd.Series[str], problems: list[Problem]) -> pd.Series[float]:
    """Return one column as numbers above zero; blank is absent, anything else a problem with its row."""
    column = str(cells.name)
    is_blank = cells == ""
    stated = cells.where(~is_blank)
    numbers = pd.to_numeric(stated, errors="coerce").astype(float)
    is_no_number = numbers.isna() | (numbers.abs() > _MAX_NUMBER)
    is_bad = ~is_blank & is_no_number
    if column == HIT_COLUMN:
        is_bad |= (numbers < 0) | (numbers > 1)
        rule = "a number between 0 and 1"
    elif column in _WHOLE_COLUMNS:
        has_fraction = ~is_blank & (numbers % 1 != 0)
        is_bad |= (numbers <= 0) | has_fraction
        rule = "a whole number above zero"
    else:
        is_bad |= numbers <= 0
        rule = "a number above zero"
    # One more than is printed, so that the caller knows that there are more.
    bad_rows = cells.index[is_bad]
    for row in bad_rows[: MAX_PROBLEMS + 1]:
        # A number that is too large breaks this rule, whatever its column's own.
        limit = f"at most {_MAX_NUMBER:g}" if numbers[row] > _MAX_NUMBER else rule
        message = f"must be {limit}, not {cells[row]!r}"
        problem = Problem(file=str(path), line=int(row), path=column, message=message)
        problems.append(problem)
    return numbers


_NAMES = data_rows(__file__, "names.csv")
_ENGINES = {row["name"]: row["means"] for row in _NAMES if row["of"] == "engine"}
"""Engines by what people call them, without spaces, dashes and capitals, where that is not their usual name."""
_SAME_SHAPE = {row["name"]: row["means"] for row in _NAMES if row["of"] == "model"}
"""Releases of models whose configuration is that of an entry, and short names of a family's large model."""
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
    lower = name.strip().lower()
    base_name = lower.rpartition("/")[2]
    plain_name = _MODEL_SUFFIXES.sub("", base_name)
    plain = re.sub("[_ ]", "-", plain_name)
    # As it is written first, so that a catalogue's own entry of a variant comes before its family.
    same_shape = _SAME_SHAPE.get(plain, plain)
    for candidate in (lower, plain, plain.replace("meta-", ""), same_shape):
        if candidate in catalog.models:
            return shape_of(candidate, catalog)
    raise CannotPredictError(_unknown("model", name, catalog.models))


def find_part(name: str, catalog: Catalog) -> on_part.AcceleratorSpec:
    """Return the accelerator a row names; ``H200 SXM`` or ``NVIDIA H200-SXM-141GB`` is an H200."""
    words = re.split(r"[\s_\-/()]+", name.strip().upper())
    # The longest name first: GB200 before B200.
    for candidate in sorted(catalog.accelerators, key=len, reverse=True):
        if candidate.upper() in words or candidate.upper() == name.strip().upper():
            return part_of(candidate, catalog)
    raise CannotPredictError(_unknown("accelerator", name, catalog.accelerators))


def find_engine(name: str) -> str:
    """Return the engine's usual name; one without calibration rows takes the common coefficients."""
    # A router sends to several pools of the engine it is named with.
    joined = re.sub(r"[\s_\-]+", "", name.strip().lower())
    plain = _ROUTERS.sub("", joined)
    return _ENGINES.get(plain, plain)


_ACCEPTANCE = {0: 1.0, 1: 1.82, 2: 2.15, 3: 2.49, 4: 3.07, 8: 4.4}
"""Mean tokens of a step by drafted ones, of multi-token prediction on prose: DeepSeek-R1, DeepSeek-V4 (two and three),
GLM-5 and vLLM's Model Runner V2 (vllm#12755, vllm#41044, InferenceX#2522, vllm#53906, vllm#48892)."""
USUAL_DRAFT = 3


def acceptance_length(drafted_tokens: int) -> float:
    """Return the mean tokens that a step with this many drafted ones yields, the certain one included."""
    # Between the measured numbers of drafts on a straight line.
    measured_drafts = list(_ACCEPTANCE)
    accepted_tokens = list(_ACCEPTANCE.values())
    return float(np.interp(drafted_tokens, measured_drafts, accepted_tokens))


def find_draft(text: str) -> int:
    """Return the tokens that a row's steps draft: the number it states, or the usual one of its method; 0 for none."""
    # The 3 of EAGLE-3 is its version, not a number of tokens.
    plain = re.sub(r"eagle[\s_\-]*\d", "eagle", text.strip().lower())
    if plain in ("", "none", "off", "false", "no", "0", "0.0", "nan"):
        return 0
    stated = re.search(r"\d+", plain)
    number = 0
    if stated:
        number = int(stated.group())
    # Beyond the largest that was measured nothing is known: it counts as that.
    if number:
        return min(number, max(_ACCEPTANCE))
    return USUAL_DRAFT


def find_precision(name: str, part: on_part.AcceleratorSpec, shape: on_part.ModelShape) -> str:
    """Return the precision a row names; a blank one is what the model was quantised to when published, or FP8."""
    formats = part.formats
    if not name.strip():
        native = shape.native_precision
        is_accepted = on_part.refusal(part, shape, native) is None
        if is_accepted and formats[native].role != "activations":
            return native
        return on_part.format_with(formats, "default")
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
    fit = _Fit(part, shape, precision)
    if tp is None:
        smallest = on_part.smallest_fit(part, shape, precision)
        fewest = float(smallest.accelerators)
        layouts: list[Layout] = []
        for degree in on_part.candidate_degrees(part, shape):
            if fit.holds(degree):
                layouts += [Layout(degree, groups, fewest) for groups in fit.groups(degree)]
        return tuple(layouts)
    if attention_dp is not None and attention_dp > 1:
        return (fit.in_groups(tp, ep, attention_dp),)
    count = tp
    # Both written as one product: a replica of tp accelerators would be as many times larger.
    is_product = ep is not None and ep > 1 and tp >= ep * ep and tp % ep == 0
    if ep is not None and is_product and fit.holds(tp // ep):
        count = tp // ep
    if not shape.divides_heads(count):
        heads = f"the {shape.heads} heads of {shape.name}"
        raise CannotPredictError(f"tp {count} does not divide {heads}")
    total = count
    # Doubled until the weights fit; the largest replica that is sold ends it.
    while not fit.holds(total, total // count):
        total *= 2
        if total > _MAX_ACCELERATORS:
            on_part.smallest_fit(part, shape, precision)  # raises where no number would do
            raise fit.refusal(tp)
    # Where the row says one group, no other is tried.
    if total == count:
        groups = [1]
        if attention_dp is None:
            groups = fit.groups(count)
        return tuple(Layout(count, number, 1.0) for number in groups)
    if shape.experts:
        # Experts lie over all accelerators, attention in as many groups as the row's tp fits into
        # it.
        return (Layout(total, total // count, total / count),)
    return (Layout(total, 1, 1.0),)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Which numbers of an accelerator hold a model at a precision."""

    part: on_part.AcceleratorSpec
    shape: on_part.ModelShape
    precision: str

    def holds(self, accelerators: int, groups: int = 1) -> bool:
        """Return whether a replica with attention in some groups has room for the weights."""
        if not self.shape.divides_heads(accelerators // groups):
            return False
        fit = on_part.memory_fit(self.part, self.shape, self.precision, accelerators, groups)
        return fit.fits

    def groups(self, accelerators: int) -> list[int]:
        """Return attention groups worth trying: one, and for mixtures one per accelerator where it fits."""
        is_wide = self.shape.experts and accelerators > 1 and self.holds(accelerators, accelerators)
        if is_wide:
            return [1, accelerators]
        return [1]

    def in_groups(self, tp: int, ep: int | None, groups: int) -> Layout:
        """Return the layout of stated attention groups: they divide tp, or multiply it where they cannot."""
        total = tp
        # As a product where the quotient is no whole number, or holds no weights.
        multiplies = tp % groups or ep == tp * groups or not self.holds(tp, groups)
        if multiplies:
            total = tp * groups
        if not self.holds(total, groups):
            raise self.refusal(total)
        return Layout(total, groups, 1.0)

    def refusal(self, accelerators: int) -> CannotPredictError:
        """Return the error of too few accelerators."""
        return CannotPredictError(
            f"{self.shape.name} at {self.precision} does not fit {accelerators} × {self.part.name}"
        )


def _unknown(kind: str, name: str, candidates: Iterable[str]) -> str:
    names = list(candidates)
    hint = nearest(name, names) or f"the catalogue has {', '.join(names)}"
    return f"unknown {kind} {name!r} ({hint})"
