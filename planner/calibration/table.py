"""Reading a benchmark table: columns, numbers and ranges are checked here, for the whole file at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import Problem, ScenarioError
from planner.validation import nearest

if TYPE_CHECKING:
    import pandas as pd


NUMBER_COLUMNS = (
    "tp", "ep", "input_tokens", "output_tokens", "concurrency", "slo_ttft_ms", "slo_tpot_ms",
    "ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu",
)  # fmt: skip
COLUMNS = (
    "model", "accelerator", "engine", "precision", "tp", "ep", "input_tokens", "output_tokens", "scenario",
    "concurrency", "slo_ttft_ms", "slo_tpot_ms", "ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu",
)  # fmt: skip
MEASURED_COLUMNS = ("ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu")
HIT_COLUMN = "prefix_hit_fraction"
"""Optional: share of each prompt found in the prefix cache."""
OPTIONAL_COLUMNS = (HIT_COLUMN, "attention_dp", "max_num_seqs", "prefill_tp", "prefill_workers", "decode_workers")
"""Optional numbers: that share, groups of attention in data parallel, sequences an engine admits to a group, and of
separate pools the degree of a prefill worker and the number of workers; tp and ep are then those of a decode worker."""
_INTEGRAL = ("tp", "ep", *OPTIONAL_COLUMNS[1:])
DISAGGREGATED_SCENARIO = "Disaggregated"
OPEN_SCENARIOS = ("Server", "Interactive")
"""MLPerf's scenarios in which requests arrive on their own and 99% of them must keep the objectives."""
SCENARIOS = ("Offline", *OPEN_SCENARIOS, "Concurrency", DISAGGREGATED_SCENARIO)
_POOL_COLUMNS = {"decode_tp": "tp", "decode_ep": "ep", "decode_attention_dp": "attention_dp"}
MOST = 1e12
"""No count, length, rate or time in a row of measurements is larger."""
MAX_PROBLEMS = 50
FIRST_ROW = 2  # the header is line 1


def read_benchmarks(path: Path) -> pd.DataFrame:
    """Read a benchmark CSV; raise ScenarioError naming every bad cell by row.

    The frame has the file's own columns and the optional ones, numbers as floats (blank cells as NaN), text stripped,
    and the row's line in the file as its index.
    """
    frame = _from_pools(_read_text(path))
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise ScenarioError(
            [
                Problem(file=str(path), line=1, message=f"the column {column!r} is missing", hint=_near(column, frame))
                for column in missing
            ]
        )
    if frame.empty:
        raise ScenarioError(Problem(file=str(path), message="the file has a header and no rows"))
    frame.index = frame.index + FIRST_ROW
    problems: list[Problem] = []
    for column in OPTIONAL_COLUMNS:
        if column not in frame.columns:
            frame[column] = ""
    for column in NUMBER_COLUMNS + OPTIONAL_COLUMNS:
        frame[column] = _numbers(path, frame[column], problems)
    _check_scenarios(path, frame, problems)
    if problems:
        raise ScenarioError(_limited(sorted(problems, key=lambda problem: problem.line or 0)))
    return frame


def _from_pools(frame: pd.DataFrame) -> pd.DataFrame:
    """Bring a table of separate prefill and decode pools to the usual columns: a row is its decode worker's.

    Such tables write an attention_dp of 1 where they do not say, which is everywhere: it counts as blank.
    """
    if "decode_tp" not in frame.columns or "tp" in frame.columns:
        return frame
    renamed = frame.rename(columns=_POOL_COLUMNS)
    for column in COLUMNS:
        if column not in renamed.columns:
            renamed[column] = DISAGGREGATED_SCENARIO if column == "scenario" else ""
    if "attention_dp" in renamed.columns:
        renamed["attention_dp"] = renamed["attention_dp"].where(~renamed["attention_dp"].isin(["1", "1.0"]), "")
    return renamed


def _read_text(path: Path) -> pd.DataFrame:
    """Read every cell as text; blank cells become the empty string."""
    import pandas as pd  # noqa: PLC0415  (half a second to import, and only this command needs it)

    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig")
    except FileNotFoundError:
        raise ScenarioError(Problem(file=str(path), message="there is no such file")) from None
    except IsADirectoryError:
        raise ScenarioError(Problem(file=str(path), message="is a folder, not a CSV file")) from None
    except pd.errors.EmptyDataError:
        raise ScenarioError(Problem(file=str(path), message="the file is empty")) from None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be read as CSV: {error}")) from None
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the surplus for names of rows
        raise ScenarioError(Problem(file=str(path), message="the rows have more cells than the header has columns"))
    frame.columns = [str(column).strip() for column in frame.columns]
    if twice := [name for name in dict.fromkeys(frame.columns) if list(frame.columns).count(name) > 1]:
        raise ScenarioError(Problem(file=str(path), line=1, message=f"the column {twice[0]!r} is there twice"))
    for column in frame.columns:
        frame[column] = frame[column].fillna("").str.strip()
    return frame


def _numbers(path: Path, cells: pd.Series[str], problems: list[Problem]) -> pd.Series[float]:
    """Turn one column into numbers above zero; blank means absent, anything else is a problem with its row."""
    import pandas as pd  # noqa: PLC0415

    blank = cells == ""
    numbers = pd.to_numeric(cells.where(~blank), errors="coerce").astype(float)
    finite = numbers.notna() & (numbers.abs() < float("inf"))
    column = str(cells.name)
    if column == HIT_COLUMN:
        wrong, allowed = (numbers < 0) | (numbers > 1), "between 0 and 1"
    else:
        wrong, allowed = numbers <= 0, "above zero"
    integral = column in _INTEGRAL
    bad = ~blank & (~finite | wrong | (numbers > MOST) | ((numbers % 1 != 0) if integral else False))
    wanted = f"a whole number {allowed}" if integral else f"a number {allowed}"
    for row in cells.index[bad][: MAX_PROBLEMS + 1]:
        asked = f"at most {MOST:g}" if numbers[row] > MOST else wanted
        problems.append(
            Problem(file=str(path), line=int(row), path=column, message=f"must be {asked}, not {cells[row]!r}")
        )
    return numbers


def _check_scenarios(path: Path, frame: pd.DataFrame, problems: list[Problem]) -> None:
    """Bring scenario names to their usual spelling; a blank one follows from the concurrency."""
    known = {name.lower(): name for name in SCENARIOS}
    scenarios = frame["scenario"].str.lower().map(known)
    blank = frame["scenario"] == ""
    scenarios = scenarios.where(~blank, frame["concurrency"].notna().map({True: "Concurrency", False: "Offline"}))
    for row in frame.index[scenarios.isna()][: MAX_PROBLEMS + 1]:
        name = str(frame.at[row, "scenario"])
        message = f"unknown scenario {name!r}; choose from {', '.join(SCENARIOS)}"
        hint = nearest(name, SCENARIOS)
        problems.append(Problem(file=str(path), line=int(row), path="scenario", message=message, hint=hint))
    frame["scenario"] = scenarios


def _limited(problems: list[Problem]) -> list[Problem]:
    """Keep a readable number of problems and say how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    rest = Problem(message=f"and at least {len(problems) - MAX_PROBLEMS} more")
    return [*problems[:MAX_PROBLEMS], rest]


def _near(column: str, frame: pd.DataFrame) -> str | None:
    return nearest(column, list(frame.columns))
