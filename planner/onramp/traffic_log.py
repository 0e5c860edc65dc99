"""Reading request logs: CSV or JSON lines, plain or gzipped, under the names of public traces."""

from __future__ import annotations

import difflib
import gzip
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats, Ints
from planner.data_files import data_rows
from planner.demand.tokens import REUSE_GAPS_S, RequestLog
from planner.errors import Problem, ScenarioError, line_of, raise_all
from planner.units import HOURS_PER_YEAR, SECONDS_PER_HOUR
from planner.validation import nearest

COLUMNS = data_rows(__file__, "columns.csv")
"""Columns of the files that a scenario is built from, and what each says."""
ROLES: dict[str, tuple[str, ...]] = {}
"""What each column of a log may be called; case does not matter."""
for _row in COLUMNS:
    if _row["file"] == "log":
        ROLES[_row["key"]] = (*ROLES.get(_row["key"], ()), _row["column"])
REQUIRED = ("timestamp", "input", "output")
HASH_BLOCK_TOKENS = 512
"""Tokens a prefix block hash stands for in the Mooncake traces (their README)."""
MAX_BYTES = 8_000_000_000
MAX_UNPACKED_BYTES = 4_000_000_000
MAX_NUMBER = 1e15
"""No request has more tokens, and no hour more requests: what is larger is a slip, and would overflow a square."""
MAX_SPAN_YEARS = 30.0
"""A log's hours are held one by one."""
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "excel": 86_400.0}
"""Seconds in each unit of numeric times; excel is days since 1900 as spreadsheets count them."""
SECONDS_PER_DAY = 86_400.0
_EXCEL_1970 = 25_569.0
_EXCEL_2000 = 36_526.0
_EXCEL_2100 = 73_051.0
_LONGEST_UNDATED_S = 7.0 * SECONDS_PER_DAY
"""An hour in milliseconds is longer than a week in seconds."""
FIRST_DATED_S = 631_152_000.0
"""1990-01-01: numbers above it are taken as epoch times, below as a clock from zero."""
_PRINTED_ROWS = 10
SECONDS_PER_YEAR = HOURS_PER_YEAR * SECONDS_PER_HOUR


def parse_columns(text: str | None) -> dict[str, str]:
    """Return the column name of each role from text such as ``timestamp=ts,input=prompt,output=reply``."""
    chosen: dict[str, str] = {}
    problems = []
    for part in (text or "").split(","):
        role, equals, column = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        # All mistakes of the option come in one message.
        if role not in ROLES or not equals or not column:
            hint = nearest(role, ROLES) or f"roles are {', '.join(ROLES)}"
            problem = Problem(
                path="--columns", message=f"{part.strip()!r} is not ROLE=COLUMN", hint=hint
            )
            problems.append(problem)
        chosen[role] = column
    raise_all(problems)
    return chosen


def read_request_log(
    path: Path,
    columns: dict[str, str] | None = None,
    time_unit: str = "auto",
    *,
    in_order: bool = False,
) -> RequestLog:
    """Return a request log sorted by time, with every number checked; raise ScenarioError with row numbers.

    A log that must be ``in_order`` may not go back in time, but for clients that each have a clock of their own.
    """
    table = read_table(path)
    names = _find_columns(path, table, columns or {})
    if time_unit == "auto" and "hashes" in names:
        time_unit = "ms"  # from zero, by the Mooncake traces' README
    first_line = 1 if is_json(path) else 2
    times = table[names["timestamp"]]
    times_s = times_in_s(times, time_unit, path)
    is_bad_time = ~np.isfinite(times_s)
    problems = row_problems(path, times, is_bad_time, first_line)
    tokens: dict[str, Floats] = {}
    for role in ("input", "output", "cached"):
        if role in names:
            cells = table[names[role]]
            tokens[role] = numbers_of(cells)
            is_bad = ~is_count(tokens[role])
            problems += row_problems(path, cells, is_bad, first_line)
    # What compares columns is looked at where each alone is good: a bad cell is reported once.
    if not problems and "cached" in tokens:
        is_above = tokens["cached"] > tokens["input"]
        cells = table[names["cached"]]
        problems += row_problems(path, cells, is_above, first_line, "more than the input")
    if not problems:
        span_years = float(np.ptp(times_s)) / SECONDS_PER_YEAR
        if span_years > MAX_SPAN_YEARS:
            message = f"times span {span_years:,.3g} years; a log may have {MAX_SPAN_YEARS:g}"
            hint = "see --time-unit"
            problems = [
                Problem(file=str(path), path=names["timestamp"], message=message, hint=hint)
            ]
    raise_all(problems)
    # Stable: requests of one moment keep the order of the file.
    order = np.argsort(times_s, kind="stable")
    sessions = None
    if "session" in names:
        sessions = _numbered(table[names["session"]])[order]
    clients = sessions
    if "client" in names:
        clients = _numbered(table[names["client"]])[order]
    one_clock = clients is None or _share_clock(clients, times_s[order])
    if in_order and one_clock:
        _check_order(path, names["timestamp"], times_s, first_line)
    cached = None
    reused = None
    if "cached" in tokens:
        cached = tokens["cached"][order]
    if "hashes" in names:
        hashes = table[names["hashes"]].tolist()
        by_hashes, reused = _replay_hashes(hashes, tokens["input"], times_s, order.tolist())
        # What an engine counted at its own memory goes before what an endless cache would find.
        cached = by_hashes if cached is None else cached
    elif sessions is not None:
        inputs = tokens["input"][order]
        outputs = tokens["output"][order]
        reused = _replay_sessions(sessions, times_s[order], inputs, outputs, cached)
    models = None
    if "model" in names:
        model_names = table[names["model"]].astype(str).to_numpy()
        models = model_names[order]
    return RequestLog(
        models=models,
        times_s=times_s[order],
        input_tokens=tokens["input"][order],
        output_tokens=tokens["output"][order],
        has_date=bool(times_s.min() >= FIRST_DATED_S),
        one_clock=one_clock,
        cached_tokens=cached,
        reused_tokens=reused,
        clients=clients,
    )


def _find_columns(path: Path, table: pd.DataFrame, chosen: dict[str, str]) -> dict[str, str]:
    """Return a log's column of each role: the user's choice, or a name that public traces use."""
    # Case and blanks do not matter, but messages show a column as the file has it.
    by_lower = {str(name).strip().lower(): str(name) for name in table.columns}
    names: dict[str, str] = {}
    problems: list[Problem] = []
    for role, aliases in ROLES.items():
        candidates = aliases
        if role in chosen:
            candidates = (chosen[role],)
        elif role == "timestamp":
            for alias in aliases:
                candidates += tuple(f"{alias}_{unit}" for unit in TIME_UNITS)
        lower_names = [name.lower() for name in candidates]
        matches = [by_lower[name] for name in lower_names if name in by_lower]
        if matches:
            names[role] = matches[0]
        elif role in chosen or role in REQUIRED:
            message = f"no column for {role}"
            if role in chosen:
                message = f"no column {chosen[role]!r} for {role}"
            columns = ", ".join(map(str, table.columns))
            hint = f"the file has {columns}"
            wanted = candidates[0].lower()
            similar = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.5)
            if similar:
                hint = f"nearest is {by_lower[similar[0]]!r}; {hint}"
            hint += f"; name it with --columns {role}=COLUMN"
            problems.append(Problem(file=str(path), line=1, message=message, hint=hint))
    raise_all(problems)
    return names


def _share_clock(clients: Ints, times_s: Floats) -> bool:
    """Return whether clients share a clock: each has its own where all of several begin at time zero."""
    number = int(clients.max()) + 1
    start_s = np.full(number, np.inf)
    # The smallest time of each client, in one pass over all requests.
    np.minimum.at(start_s, clients, times_s)
    begin_at_zero = bool(np.all(start_s == 0.0))
    return start_s.size == 1 or not begin_at_zero


def _check_order(path: Path, name: str, times_s: Floats, first_line: int) -> None:
    """Raise an error where a log goes back in time."""
    # The first step back is named, the others are counted.
    steps_back = np.flatnonzero(np.diff(times_s) < 0.0)
    if not steps_back.size:
        return
    row = int(steps_back[0]) + 1
    step_s = times_s[row - 1] - times_s[row]
    rows = f"and so do {steps_back.size - 1} other rows"
    message = f"goes back in time by {step_s:,.6g} s, {rows}"
    line = row + first_line
    hint = "sort the log by time"
    raise refusal(path, message, column=name, hint=hint, line=line)


def _numbered(names: pd.Series) -> Ints:
    """Return a number for each name; cells without one count as one name: a log may leave some empty."""
    codes, _ = pd.factorize(names, use_na_sentinel=False)
    return np.asarray(codes, dtype=np.int64)


def _replay_hashes(
    cells: list[object], input_tokens: Floats, times_s: Floats, order: list[int]
) -> tuple[Floats, Floats]:
    """Return what an endless cache finds of each request in order of time, and that by when it was last used.

    Found are the leading blocks that any request before it had.
    """
    blocks = [_block_hashes(cell, number) for number, cell in enumerate(cells, start=1)]
    last_used_s: dict[int | str, float] = {}
    cached = np.zeros(len(order))
    reused = np.zeros((len(order), len(REUSE_GAPS_S)))
    for position, row in enumerate(order):
        time_s = float(times_s[row])
        used_s = []
        # A prefix ends at its first block that is not in the cache, whatever follows.
        for block in blocks[row]:
            if block not in last_used_s:
                break
            used_s.append(last_used_s[block])
        # The last block may be shorter than the others.
        ends = np.minimum(HASH_BLOCK_TOKENS * np.arange(len(used_s) + 1.0), input_tokens[row])
        cached[position] = ends[-1]
        gaps = np.searchsorted(REUSE_GAPS_S, time_s - np.array(used_s))
        counts = np.bincount(gaps, np.diff(ends), len(REUSE_GAPS_S) + 1)
        reused[position] = np.cumsum(counts)[:-1]
        # After its own look-up: a request does not find its own blocks.
        last_used_s.update(dict.fromkeys(blocks[row], time_s))
    return cached, reused


def _replay_sessions(
    sessions: Ints,
    times_s: Floats,
    input_tokens: Floats,
    output_tokens: Floats,
    cached_tokens: Floats | None,
) -> Floats:
    """Return the tokens of each request that its session had at most some seconds before, of requests in order of time.

    What two turns share is what the log counts as cached, at most the turn before with its reply. Where it counts none,
    a prompt longer than the one before with its reply is taken to begin with both, a shorter one with nothing.
    """
    # Each request follows the one before it in its session, in order of time.
    order = np.argsort(sessions, kind="stable")
    earlier, later = order[:-1], order[1:]
    is_turn = sessions[earlier] == sessions[later]
    earlier, later = earlier[is_turn], later[is_turn]
    before = input_tokens[earlier] + output_tokens[earlier]
    prompts = input_tokens[later]
    if cached_tokens is None:
        shared = np.where(prompts >= before, before, 0.0)
    else:
        shared = np.minimum(cached_tokens[later], before)
    gaps_s = times_s[later] - times_s[earlier]
    reused = np.zeros((sessions.size, len(REUSE_GAPS_S)))
    reused[later] = shared[:, None] * (gaps_s[:, None] <= np.array(REUSE_GAPS_S))
    return reused


def read_table(path: Path, rows: int | None = None) -> pd.DataFrame:
    """Return a CSV or JSON-lines file as columns, or raise an error with the reason."""
    if not path.is_file():
        raise refusal(path, "there is no such file")
    # Looked at before it is read: a file of that size would fill the memory.
    if path.stat().st_size > MAX_BYTES:
        raise refusal(path, f"is larger than {MAX_BYTES / 1e9:g} GB")
    try:
        with _open_binary(path) as stream:
            if is_json(path) and _is_array(stream):
                rows_of_array = json.load(stream)
                if not all(isinstance(row, dict) for row in rows_of_array):
                    raise ValueError("an item of its list is not a JSON object")
                table = pd.DataFrame(rows_of_array[:rows])
            elif is_json(path):
                lines = io.TextIOWrapper(stream, encoding="utf-8")
                head = itertools.islice(lines, rows)
                numbered = enumerate(head, start=1)
                table_rows = [_json_row(line, number) for number, line in numbered]
                table = pd.DataFrame(table_rows)
            else:
                table = pd.read_csv(stream, nrows=rows, skipinitialspace=True)
    except (ValueError, UnicodeDecodeError, OSError, EOFError, RecursionError) as error:
        reasons = [*str(error).splitlines(), type(error).__name__]
        reason = reasons[0]
        line = _undecoded_line(path) if isinstance(error, UnicodeDecodeError) else line_of(error)
        raise refusal(path, f"cannot be read as a table: {reason}", line=line) from None
    if table.empty:
        raise refusal(path, "holds no rows")
    return table


def _undecoded_line(path: Path) -> int | None:
    """Return the first line of a file that is not UTF-8 text."""
    with _open_binary(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return None


def refusal(
    path: Path,
    message: str,
    *,
    column: str | None = None,
    hint: str | None = None,
    line: int | None = None,
) -> ScenarioError:
    """Return the error of a file that cannot be used, with its column and line where they are known."""
    return ScenarioError(
        Problem(file=str(path), line=line, path=column, message=message, hint=hint)
    )


def _open_binary(path: Path) -> BinaryIO:
    """Open a file, plain or gzipped, for reading."""
    if path.suffix == ".gz":
        return io.BufferedReader(_Unpacked(gzip.open(path, "rb")))
    return path.open("rb")


def _json_row(line: str, number: int) -> dict[str, Any]:
    """Return the object on one line of JSON lines; raise ValueError where it is not an object."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is not a JSON object")
    return row


def _is_array(stream: BinaryIO) -> bool:
    """Return whether JSON is one list in place of lines, as gateways export their logs."""
    peek = getattr(stream, "peek", None)
    head = peek(100) if peek is not None else b""
    return bool(head.lstrip()[:1] == b"[")


class _Unpacked(io.RawIOBase):
    """A gzipped file limited in unpacked size, since a few kilobytes can unpack to terabytes."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self.packed = packed
        self.remaining_bytes = MAX_UNPACKED_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self.packed.readinto(buffer)
        # Counted while it is read: the header of an archive may lie.
        self.remaining_bytes -= count
        if self.remaining_bytes < 0:
            raise ValueError(f"has more than {MAX_UNPACKED_BYTES:,} bytes once unpacked")
        return count

    def close(self) -> None:
        self.packed.close()
        super().close()


def is_json(path: Path) -> bool:
    """Return whether a file is JSON lines by its name."""
    return any(suffix in {".jsonl", ".json", ".ndjson"} for suffix in path.suffixes)


def times_in_s(column: pd.Series, unit: str, path: Path) -> Floats:
    """Return times in seconds; dates become seconds since 1970 UTC, bad entries NaN."""
    numbers = numbers_of(column)
    # A column of dates has few cells that read as numbers; a slip or two do not change its kind.
    if np.isfinite(numbers).mean() < 0.5:
        dates = pd.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
        # A slip of the pen may name a year that nanoseconds cannot reach.
        dates = dates.dt.as_unit("us")
        epoch = pd.Timestamp(0, tz="UTC").as_unit("us")
        seconds = (dates - epoch) / pd.Timedelta(seconds=1)
        return np.asarray(seconds.to_numpy(), dtype=np.float64)
    if unit == "auto":
        unit = _time_unit(numbers, str(column.name), path)
    if unit == "excel":  # a day's fraction holds a millisecond, and no more
        return np.asarray(np.round((numbers - _EXCEL_1970) * SECONDS_PER_DAY, 3))
    return numbers * TIME_UNITS[unit]


def _time_unit(numbers: Floats, name: str, path: Path) -> str:
    """Return the unit of numeric times, from the column's name or their size; raise an error where ambiguous.

    Beyond 10⁹ only a clock from 1970 counts in seconds, and each finer unit has a thousand times more. Numbers between
    36,526 and 73,051 with fractions are days since 1900, as spreadsheets write 2000 to 2100: a clock from zero would
    have smaller ones too.
    """
    stated = re.search(r"[_\W](s|ms|us|ns|seconds|millis|milliseconds)\W*$", name.lower())
    if stated:
        long_names = {"seconds": "s", "millis": "ms", "milliseconds": "ms"}
        return long_names.get(stated[1], stated[1])
    low = float(np.nanmin(numbers))
    # Sizes, since a clock may count back from an event.
    high = float(np.nanmax(np.abs(numbers)))
    if high >= FIRST_DATED_S:
        smallest_by_unit = {"ns": 1e17, "us": 1e14, "ms": 1e11}
        for unit, smallest in smallest_by_unit.items():
            if high > smallest:
                return unit
        return "s"
    if low >= _EXCEL_2000 and high < _EXCEL_2100:
        has_fractions = np.any(numbers % 1.0 > 0.0)
        if has_fractions:
            return "excel"
        readings = "whole days of a spreadsheet or seconds"
    elif high - low > _LONGEST_UNDATED_S:
        days = (high - low) / SECONDS_PER_DAY
        hours = (high - low) / 3.6e6
        readings = f"{days:,.0f} days in seconds or {hours:,.1f} hours in milliseconds"
    else:
        return "s"
    message = f"times from {low:,.6g} to {high:,.6g} may be {readings}"
    raise refusal(path, message, column=name, hint="say which with --time-unit")


def numbers_of(column: pd.Series) -> Floats:
    """Return a column as floats, with NaN for entries that are not numbers, and infinity for those too large."""
    if column.dtype == object:
        column = column.map(str)  # a whole number of 400 digits is no float
    numbers = pd.to_numeric(column, errors="coerce")
    cells = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(cells)


def is_count(numbers: Floats) -> Bools:
    """Return which entries are valid token counts or rates."""
    return np.asarray((numbers >= 0.0) & (numbers <= MAX_NUMBER))


def row_problems(
    path: Path, cells: pd.Series, is_bad: Bools, first_line: int, rule: str = ""
) -> list[Problem]:
    """Return a problem for each of the first bad rows of a column, and one that counts the others."""
    name = str(cells.name)
    if not rule:
        is_time = "time" in name.lower()
        rule = "must be a time" if is_time else f"must be a number from 0 to {MAX_NUMBER:g}"
    rows = np.flatnonzero(is_bad).tolist()
    problems = []
    for row in rows[:_PRINTED_ROWS]:
        message = f"{cells.iloc[row]!s}: {rule}"
        line = row + first_line
        problems.append(Problem(file=str(path), line=line, path=name, message=message))
    if len(rows) > _PRINTED_ROWS:
        more = len(rows) - _PRINTED_ROWS
        message = f"and {more} more such rows"
        problems.append(Problem(file=str(path), path=name, message=message))
    return problems


def _block_hashes(cell: object, number: int) -> list[int | str]:
    """Return a request's block hashes; empty where it states none."""
    if cell is None or cell != cell:  # noqa: PLR0124 - pandas writes NaN where a line lacks the key
        return []
    if isinstance(cell, list) and all(isinstance(block, int | str) for block in cell):
        return cell
    raise ScenarioError(
        f"hash_ids of request {number} must be a list of numbers, not {str(cell)[:40]!r}"
    )
