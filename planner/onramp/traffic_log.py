"""Reading request logs and hourly rates: CSV or JSON lines, plain or gzipped, under the names of public traces."""

from __future__ import annotations

import difflib
import gzip
import io
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats
from planner.data_files import data_rows
from planner.demand.tokens import RequestLog
from planner.errors import Problem, ScenarioError, raise_all
from planner.units import HOURS_PER_YEAR, SECONDS_PER_HOUR
from planner.validation import nearest

COLUMNS = data_rows(__file__, "columns.csv")
"""Columns of the files that a scenario is built from, and what each says."""
_LOGGED = [row for row in COLUMNS if row["file"] == "log"]
ROLES = {
    role: tuple(row["column"] for row in _LOGGED if row["key"] == role)
    for role in [row["key"] for row in _LOGGED]
}
"""What each column may be called; case does not matter."""
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
_LONGEST_UNDATED_S = (
    7.0 * SECONDS_PER_DAY
)  # an hour in milliseconds is longer than a week in seconds
_FIRST_DATED_S = 631_152_000.0  # 1990-01-01: numbers above it are taken as epoch times, below as a clock from zero
_SHOWN_ROWS = 10
_UNITS_IN_NAMES = {"per_min": 60.0, "rps": 1.0, "per_s": 1.0, "req_per_s": 1.0, "per_hour": 3600.0}
SECONDS_PER_YEAR = HOURS_PER_YEAR * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyRates:
    """One column of an hourly rate series."""

    column: str
    """Its name in the file."""
    rates: Floats
    """Requests per second, shape (hours,); NaN where there is no record."""
    first_hour_of_week: int | None = None
    """0 is Monday 00:00 UTC; None where the file has no dates."""
    end_s: float | None = None
    """End of the last hour, seconds since 1970 UTC; None where the file has no dates."""


def parse_columns(text: str | None) -> dict[str, str]:
    """Return the column name of each role from text such as ``timestamp=ts,input=prompt,output=reply``."""
    chosen: dict[str, str] = {}
    problems = []
    for part in (text or "").split(","):
        role, equals, column = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if role not in ROLES or not equals or not column:
            hint = nearest(role, ROLES) or f"roles are {', '.join(ROLES)}"
            problems.append(
                Problem(path="--columns", message=f"{part.strip()!r} is not ROLE=COLUMN", hint=hint)
            )
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
    chosen = columns or {}
    by_lower = {str(name).strip().lower(): str(name) for name in table.columns}
    names: dict[str, str] = {}
    problems: list[Problem] = []
    for role, aliases in ROLES.items():  # the user's choice first, then the names public traces use
        wanted = (chosen[role],) if role in chosen else aliases
        if role == "timestamp" and role not in chosen:
            wanted = (*aliases, *(f"{alias}_{unit}" for alias in aliases for unit in TIME_UNITS))
        matches = [by_lower[alias.lower()] for alias in wanted if alias.lower() in by_lower]
        if matches:
            names[role] = matches[0]
        elif role in chosen or role in REQUIRED:
            what = (
                f"no column {chosen[role]!r} for {role}"
                if role in chosen
                else f"no column for {role}"
            )
            near = difflib.get_close_matches(wanted[0].lower(), by_lower, n=1, cutoff=0.5)
            guess = f"nearest is {by_lower[near[0]]!r}; " if near else ""
            hint = f"{guess}the file has {', '.join(map(str, table.columns))}; name it with --columns {role}=COLUMN"
            problems.append(Problem(file=str(path), line=1, message=what, hint=hint))
    raise_all(problems)
    first_row = 1 if _is_json(path) else 2
    unit = (
        "ms" if time_unit == "auto" and "hashes" in names else time_unit
    )  # from zero, by the Mooncake traces' README
    times_s = _times_s(table[names["timestamp"]], unit, path)
    problems += _row_problems(
        path, names["timestamp"], ~np.isfinite(times_s), table[names["timestamp"]], first_row
    )
    tokens: dict[str, Floats] = {}
    for role in ("input", "output", "cached"):
        if role in names:
            tokens[role] = _numbers(table[names[role]])
            bad = ~_is_count(tokens[role])
            problems += _row_problems(path, names[role], bad, table[names[role]], first_row)
    if not problems and "cached" in tokens:
        bad = tokens["cached"] > tokens["input"]
        problems += _row_problems(
            path, names["cached"], bad, table[names["cached"]], first_row, "more than the input"
        )
    if not problems and float(np.ptp(times_s)) > MAX_SPAN_YEARS * SECONDS_PER_YEAR:
        message = f"times span {np.ptp(times_s) / SECONDS_PER_YEAR:,.3g} years; a log may have {MAX_SPAN_YEARS:g}"
        problems.append(
            Problem(
                file=str(path), path=names["timestamp"], message=message, hint="see --time-unit"
            )
        )
    raise_all(problems)
    order = np.argsort(times_s, kind="stable")
    clients = None
    one_clock = True
    if "client" in names:
        clients = np.asarray(
            pd.factorize(table[names["client"]], use_na_sentinel=False)[0], dtype=np.int64
        )[order]
        # Where all of several clients have their first request at time zero, each has a clock of its own.
        first_s = np.full(int(clients.max()) + 1, np.inf)
        np.minimum.at(first_s, clients, times_s[order])
        one_clock = first_s.size == 1 or not bool(np.all(first_s == 0.0))
    back = np.flatnonzero(np.diff(times_s) < 0.0)
    if in_order and one_clock and back.size:
        row = int(back[0]) + 1
        message = f"goes back in time by {times_s[row - 1] - times_s[row]:,.6g} s, and so do {back.size - 1} other rows"
        line = row + first_row
        hint = "sort the log by time"
        raise ScenarioError(
            Problem(file=str(path), line=line, path=names["timestamp"], message=message, hint=hint)
        )
    cached = tokens["cached"][order] if "cached" in tokens else None
    if cached is None and "hashes" in names:  # block hashes are replayed in order of time
        seen: set[int | str] = set()
        cached = np.zeros(order.size)
        blocks = [
            _block_hashes(cell, number)
            for number, cell in enumerate(table[names["hashes"]].tolist(), start=1)
        ]
        for place, index in enumerate(order.tolist()):
            known = next(
                (at for at, block in enumerate(blocks[index]) if block not in seen),
                len(blocks[index]),
            )
            cached[place] = min(known * HASH_BLOCK_TOKENS, tokens["input"][index])
            seen.update(blocks[index])
    return RequestLog(
        models=table[names["model"]].astype(str).to_numpy()[order] if "model" in names else None,
        times_s=times_s[order],
        input_tokens=tokens["input"][order],
        output_tokens=tokens["output"][order],
        has_date=bool(times_s.min() >= _FIRST_DATED_S),
        one_clock=one_clock,
        cached_tokens=cached,
        clients=clients,
    )


def read_hourly_rates(
    path: Path, column: str | None = None, requests_per_s: float | None = None
) -> HourlyRates:
    """Return one column of an hourly series: a plain number per hour, with or without dates.

    Its unit is in its name or the file's; else the mean is the rate that is stated.
    """
    table = read_table(path)
    numeric = [str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    series = [name for name in numeric if not name.lower().startswith("hour")]
    if column is None and len(series) != 1:
        raise ScenarioError(
            Problem(
                file=str(path),
                message=f"has {len(series)} rate columns; name one",
                hint=f"of {', '.join(series)}",
            )
        )
    chosen = column or series[0]
    if chosen not in series:
        hint = nearest(chosen, series) or f"choose from {', '.join(series)}"
        raise ScenarioError(
            Problem(file=str(path), message=f"no rate column {chosen!r}", hint=hint)
        )
    rates = _numbers(table[chosen])
    while rates.size and np.isnan(rates[-1]):
        rates = rates[:-1]
    problems = _row_problems(path, chosen, ~_is_count(rates), table[chosen], 2)
    if not rates.size:
        problems = [Problem(file=str(path), path=chosen, message="holds no numbers")]
    raise_all(problems)
    words = f"{path.name} {chosen}".lower()
    scales = [seconds for unit, seconds in _UNITS_IN_NAMES.items() if unit in words]
    if not scales and requests_per_s is None:
        message = "the unit of the series is in neither its name nor the file's"
        raise ScenarioError(Problem(file=str(path), message=message, hint="state --requests-per-s"))
    rates = rates / (scales[0] if scales else rates.mean() / (requests_per_s or 1.0) or 1.0)
    first_hour = end_s = None
    dated = [
        str(name)
        for name in table.columns
        if str(name).lower() in {f"ts_{chosen}".lower(), *ROLES["timestamp"]}
    ]
    if dated:
        seconds = _times_s(table[dated[0]], "auto", path)
        if not np.all(np.abs(np.diff(seconds[np.isfinite(seconds)]) - 3600.0) < 1.0):
            raise ScenarioError(
                Problem(file=str(path), path=dated[0], message="rows must be one hour apart")
            )
        if seconds[0] >= _FIRST_DATED_S:
            first_hour = int(seconds[0] // 3600.0 + 72) % 168
            end_s = float(seconds[0]) + rates.size * SECONDS_PER_HOUR
    elif any(str(name).lower().startswith("hour_of_week") for name in table.columns):
        first_hour = 0
    return HourlyRates(column=chosen, rates=rates, first_hour_of_week=first_hour, end_s=end_s)


def is_hourly_series(path: Path, columns_named: bool = False) -> bool:
    """Return whether a file has no token columns, and so must be a series of rates."""
    lower = {str(name).lower() for name in read_table(path, rows=1).columns}
    return (
        not columns_named and not lower & {*ROLES["input"], *ROLES["output"]} and not _is_json(path)
    )


def read_table(path: Path, rows: int | None = None) -> pd.DataFrame:
    """Return a CSV or JSON-lines file as columns, or raise an error with the reason."""
    if not path.is_file():
        raise ScenarioError(Problem(file=str(path), message="there is no such file"))
    if path.stat().st_size > MAX_BYTES:
        raise ScenarioError(
            Problem(file=str(path), message=f"is larger than {MAX_BYTES / 1e9:g} GB")
        )
    try:
        packed = path.suffix == ".gz"
        with (
            io.BufferedReader(_Unpacked(gzip.open(path, "rb")))
            if packed
            else path.open("rb") as stream
        ):
            if _is_json(path):
                lines = io.TextIOWrapper(stream, encoding="utf-8")
                table = pd.DataFrame(
                    [
                        _json_row(line, number)
                        for number, line in enumerate(itertools.islice(lines, rows), start=1)
                    ]
                )
            else:
                table = pd.read_csv(stream, nrows=rows, skipinitialspace=True)
    except (ValueError, UnicodeDecodeError, OSError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ScenarioError(
            Problem(file=str(path), message=f"cannot be read as a table: {reason}")
        ) from None
    if table.empty:
        raise ScenarioError(Problem(file=str(path), message="holds no rows"))
    return table


def _json_row(line: str, number: int) -> dict[str, Any]:
    """Return the object on one line of JSON lines; raise ValueError where it is not an object."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is not a JSON object")
    return row


class _Unpacked(io.RawIOBase):
    """A gzipped file limited in unpacked size, since a few kilobytes can unpack to terabytes."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self.packed = packed
        self.left_bytes = MAX_UNPACKED_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self.packed.readinto(buffer)
        self.left_bytes -= count
        if self.left_bytes < 0:
            raise ValueError(f"has more than {MAX_UNPACKED_BYTES:,} bytes once unpacked")
        return count

    def close(self) -> None:
        self.packed.close()
        super().close()


def _is_json(path: Path) -> bool:
    return any(suffix in {".jsonl", ".json", ".ndjson"} for suffix in path.suffixes)


def _times_s(column: pd.Series, unit: str, path: Path) -> Floats:
    """Return times in seconds; dates become seconds since 1970 UTC, bad entries NaN."""
    numbers = _numbers(column)
    if np.isfinite(numbers).mean() < 0.5:
        dates = pd.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
        dates = dates.dt.as_unit(
            "us"
        )  # a slip of the pen may name a year that nanoseconds cannot reach
        seconds = (dates - pd.Timestamp(0, tz="UTC").as_unit("us")) / pd.Timedelta(seconds=1)
        return np.asarray(seconds.to_numpy(), dtype=np.float64)
    unit = _time_unit(numbers, str(column.name), path) if unit == "auto" else unit
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
        return {"seconds": "s", "millis": "ms", "milliseconds": "ms"}.get(stated[1], stated[1])
    low = float(np.nanmin(numbers))
    high = float(np.nanmax(np.abs(numbers)))
    if high >= _FIRST_DATED_S:
        return "ns" if high > 1e17 else "us" if high > 1e14 else "ms" if high > 1e11 else "s"
    if low >= _EXCEL_2000 and high < _EXCEL_2100:
        if np.any(numbers % 1.0 > 0.0):
            return "excel"
        doubt = "whole days of a spreadsheet or seconds"
    elif high - low > _LONGEST_UNDATED_S:
        span = high - low
        doubt = f"{span / SECONDS_PER_DAY:,.0f} days in seconds or {span / 3.6e6:,.1f} hours in milliseconds"
    else:
        return "s"
    message = f"times from {low:,.6g} to {high:,.6g} may be {doubt}"
    raise ScenarioError(
        Problem(file=str(path), path=name, message=message, hint="say which with --time-unit")
    )


def _numbers(column: pd.Series) -> Floats:
    """Return a column as floats, with NaN for entries that are not numbers, and infinity for those too large."""
    column = (
        column.map(str) if column.dtype == object else column
    )  # a whole number of 400 digits is no float
    return np.asarray(
        pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    )


def _is_count(numbers: Floats) -> Bools:
    """Return which entries are valid token counts or rates."""
    return np.asarray(np.isfinite(numbers) & (numbers >= 0.0) & (numbers <= MAX_NUMBER))


def _row_problems(
    path: Path, name: str, bad: Bools, column: pd.Series, first_row: int, why: str = ""
) -> list[Problem]:
    """Return a problem for each of the first bad rows, and one that counts the others."""
    rows = np.flatnonzero(bad)
    wanted = why or (
        f"must be a number from 0 to {MAX_NUMBER:g}"
        if "time" not in name.lower()
        else "must be a time"
    )
    problems = [
        Problem(
            file=str(path),
            line=int(row) + first_row,
            path=name,
            message=f"{column.iloc[row]!s}: {wanted}",
        )
        for row in rows[:_SHOWN_ROWS]
    ]
    if rows.size > _SHOWN_ROWS:
        problems.append(
            Problem(
                file=str(path), path=name, message=f"and {rows.size - _SHOWN_ROWS} more such rows"
            )
        )
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
