"""Counts by the hour or day: rates, and with token columns mean lengths; CSV, JSON lines, or a table made elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from planner.arrays import Bools, Floats, Ints
from planner.errors import Problem, raise_all
from planner.onramp.traffic_log import (
    COLUMNS,
    FIRST_DATED_S,
    MAX_SPAN_YEARS,
    ROLES,
    SECONDS_PER_DAY,
    SECONDS_PER_YEAR,
    is_count,
    is_json,
    numbers_of,
    read_table,
    refusal,
    row_problems,
    times_in_s,
)
from planner.records import record
from planner.units import SECONDS_PER_HOUR
from planner.validation import nearest

COUNT_COLUMNS = [row["column"] for row in COLUMNS if row["file"] == "hourly"]
"""Columns that count the requests of their row's hour or day; case does not matter."""
_UNITS = {
    r"rps|qps|(req_)?per_s(ec(ond)?)?": 1.0,
    r"rpm|per_min(ute)?": 60.0,
    r"per_h(our)?": SECONDS_PER_HOUR,
}
"""Seconds of each unit that a file or a column of rates may be named after."""
_MEAN = re.compile(r"^(mean|avg|average)_|_(mean|avg|average)$")
"""Token columns that have a mean of each request in place of a total."""
_TOTAL = re.compile(r"^(total|sum)_|_(total|sum)$")
_DATE_COLUMNS = ("hour", "date", "day", "bucket", "datetime", "hour_start")
_SIDES = ("input", "output", "cached")
_USUAL_BLOCKS = 24
"""Parts of a series that its mean length is told from."""
_FEWEST_BLOCKS = 8
"""Days, or else hours, from which on they show how sure a mean length is."""
_LEAST_ROWS = 24
"""Rows, one hour apart each, that no log of single requests has."""


@record
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
    shows_hours: bool = True
    """Whether hours differ within a day: counts by the day say nothing of that."""


@record
class TokenTotals:
    """Requests and tokens of one workload by stretches of equal length, for mean lengths."""

    requests: Floats
    tokens: dict[str, Floats]
    """By side: input, output, cached."""
    stretches_per_day: int

    def mean(self, side: str) -> float:
        """Return the tokens of a request on one side."""
        return float(np.nansum(self.tokens[side]) / np.nansum(self.requests))

    def half_interval(self, side: str) -> float:
        """Return half the 90% interval of a mean length as a share of it, by how its parts differ; 1 for too few.

        The variance is that of a ratio of sums, Σ (tokens − mean · requests)² of some two dozen parts of whole days,
        times (1 + ρ) / (1 − ρ) for parts that resemble the one before: ρ is their correlation, and (1 + 4ρ) / n above
        what n parts show of it.
        """
        mean = self.mean(side)
        requests = np.nan_to_num(self.requests)
        excess = np.nan_to_num(self.tokens[side]) - mean * requests
        # Hours where there are few days: they show less of what is to come, but something.
        days = requests.size // self.stretches_per_day
        block = max(1, days // _USUAL_BLOCKS) * self.stretches_per_day
        if requests.size < _FEWEST_BLOCKS * block:
            block = 1
        blocks = requests.size // block
        if blocks < _FEWEST_BLOCKS:
            return 1.0
        by_block = excess[: blocks * block].reshape(blocks, block).sum(axis=1)
        square = float(by_block @ by_block) * blocks / (blocks - 1)
        if square == 0.0:
            return 0.0
        seen = float(by_block[1:] @ by_block[:-1] / (by_block @ by_block))
        correlation = min(max(seen + (1.0 + 4.0 * seen) / blocks, 0.0), 0.9)
        alike = (1.0 + correlation) / (1.0 - correlation)
        error = float(np.sqrt(square * alike)) / requests.sum() / mean
        # Student's t at 95%, to a hundredth from four degrees of freedom on.
        degrees = max(blocks / alike - 1.0, 3.0)
        return float(error * (1.645 + 1.52 / degrees + 2.9 / degrees**2))


@record
class HourlyCounts:
    """What a file of counts shows of one workload."""

    rates: HourlyRates
    totals: TokenTotals | None
    """None without token columns."""


def is_hourly_series(path: Path, columns_named: bool = False, rate: str | None = None) -> bool:
    """Return whether a file counts requests in a column, or has no token columns and so must be a series of rates.

    A file that has the column named by ``rate`` is one, whatever else it has.
    """
    # One row is enough: the header says what a file is.
    table = read_table(path, rows=1)
    names = {str(name).strip().lower() for name in table.columns}
    if rate is not None and rate.strip().lower() in names:
        return True
    if columns_named:
        return False
    if any(_counts_requests(name) for name in names):
        return True
    return not is_json(path) and not names & {*ROLES["input"], *ROLES["output"]}


def check_single_requests(path: Path, times_s: Floats) -> None:
    """Raise an error where the rows of a log are hours apart, as no requests are: they must be counts."""
    steps_s = np.diff(times_s)
    are_hours = np.all(steps_s % SECONDS_PER_HOUR == 0.0)
    if times_s.size >= _LEAST_ROWS and are_hours and steps_s.min() > 0.0:
        message = "has a row an hour or a day, and no column that counts their requests"
        raise refusal(path, message, hint="name it with --rate COLUMN")


def read_hourly(
    path: Path, column: str | None = None, requests_per_s: float | None = None
) -> dict[str | None, HourlyCounts]:
    """Return the counts of a file, by the served model where it has a column of models."""
    return counts_of_table(path, read_table(path), column, requests_per_s)


def counts_of_table(
    path: Path,
    table: pd.DataFrame,
    column: str | None = None,
    requests_per_s: float | None = None,
) -> dict[str | None, HourlyCounts]:
    """Return the counts of a table, by the served model where it has a column of models.

    A row is an hour, a part of it or a day, of a model, a user or a key; rows of one time are added up. The unit of a
    rate is in its name or the file's; else its mean is the rate that is stated.
    """
    column = _choose_series(path, table, column)
    cells = numbers_of(table[column])
    # Empty cells at the end are rows of other columns that go on: the series ends before them.
    last = np.flatnonzero(~np.isnan(cells))
    if not last.size:
        raise refusal(path, "holds no numbers", column=column)
    table = table.iloc[: last[-1] + 1]
    requests = cells[: last[-1] + 1]
    first_line = 1 if is_json(path) else 2
    names = {side: _token_column(table, side) for side in _SIDES}
    tokens: dict[str, Floats] = {}
    problems = row_problems(path, table[column], ~is_count(requests), first_line)
    for side, name in names.items():
        if name is None:
            continue
        tokens[side] = numbers_of(table[name])
        problems += row_problems(path, table[name], ~is_count(tokens[side]), first_line)
        has_no_request = (requests == 0.0) & (tokens[side] > 0.0)
        if not _MEAN.search(name.lower()):
            rule = f"tokens without a request in {column}"
            problems += row_problems(path, table[name], has_no_request, first_line, rule)
    raise_all(problems)
    times_s = _times(path, table, column, first_line)
    model_column = _named(table, ROLES["model"])
    models = np.full(len(table), None, dtype=object)
    if model_column is not None:
        models = table[model_column].fillna("").astype(str).to_numpy(dtype=object)
    stretches = _Stretches.of_rows(path, times_s, len(table))
    counts = _requests_per_stretch(path, column, requests, stretches, requests_per_s, bool(tokens))
    for side, name in names.items():
        if name is not None and _MEAN.search(name.lower()):
            tokens[side] = tokens[side] * counts
    by_model: dict[str | None, HourlyCounts] = {}
    for model in dict.fromkeys(models.tolist()):
        is_own = models == model
        rates = stretches.rates(counts, is_own, column)
        totals = None
        if tokens:
            sides = {side: stretches.added(part, is_own) for side, part in tokens.items()}
            totals = TokenTotals(
                requests=stretches.added(counts, is_own),
                tokens=sides,
                stretches_per_day=round(SECONDS_PER_DAY / stretches.seconds),
            )
            _check_totals(path, totals, names)
        by_model[model or None] = HourlyCounts(rates=rates, totals=totals)
    return by_model


@record
class _Stretches:
    """The stretches of time that rows count."""

    place: Ints
    """Of each row: its stretch."""
    number: int
    seconds: float
    """Length of each."""
    start_s: float | None
    """Of the first; None where the file has no dates."""
    first_hour_of_week: int | None

    @staticmethod
    def of_rows(path: Path, times_s: Floats | None, rows: int) -> _Stretches:
        """Find the stretches from the rows' times; without, a row is an hour."""
        if times_s is None:
            return _Stretches(
                place=np.arange(rows),
                number=rows,
                seconds=SECONDS_PER_HOUR,
                start_s=None,
                first_hour_of_week=None,
            )
        distinct_s = np.unique(times_s)
        # A slip in a year would make hours by the billion.
        if distinct_s[-1] - distinct_s[0] > MAX_SPAN_YEARS * SECONDS_PER_YEAR:
            raise refusal(path, f"times span more than {MAX_SPAN_YEARS:g} years")
        steps_s = np.diff(distinct_s)
        seconds = float(steps_s.min()) if steps_s.size else SECONDS_PER_HOUR
        # Clocks may be a second off.
        nominal_s = max(60.0, 60.0 * round(seconds / 60.0))
        is_part = SECONDS_PER_HOUR % nominal_s == 0.0
        is_usual = is_part or nominal_s == SECONDS_PER_DAY
        apart = np.abs(steps_s - nominal_s * np.round(steps_s / nominal_s))
        if not is_usual or np.any(apart > 1.0):
            message = "rows must be one hour apart, a whole part of an hour, or one day"
            raise refusal(path, message, hint="add up the rows of each hour")
        place = np.round((times_s - distinct_s[0]) / nominal_s).astype(np.int64)
        number = int(place.max()) + 1
        start_s = float(distinct_s[0])
        if start_s < FIRST_DATED_S:
            return _Stretches(
                place=place,
                number=number,
                seconds=nominal_s,
                start_s=None,
                first_hour_of_week=None,
            )
        # The clock of 1970 began on a Thursday: 72 hours into a week that begins on Monday.
        hours_since_1970 = start_s // SECONDS_PER_HOUR
        return _Stretches(
            place=place,
            number=number,
            seconds=nominal_s,
            start_s=start_s,
            first_hour_of_week=int(hours_since_1970 + 72) % 168,
        )

    def added(self, cells: Floats, is_own: Bools) -> Floats:
        """Return the sum of the rows of each stretch; NaN where the file has no row at all."""
        has_rows = np.bincount(self.place, minlength=self.number) > 0
        sums = np.bincount(self.place[is_own], weights=cells[is_own], minlength=self.number)
        return np.where(has_rows, sums, np.nan)

    def rates(self, counts: Floats, is_own: Bools, column: str) -> HourlyRates:
        """Return requests per second hour by hour."""
        requests = self.added(counts, is_own)
        parts = int(max(1.0, SECONDS_PER_HOUR // self.seconds))
        hours = int(max(1.0, self.seconds // SECONDS_PER_HOUR))
        start_s = self.start_s
        if parts > 1:
            # An hour seen in part is no hour: what comes before the first whole one goes.
            lead = 0
            if start_s is not None:
                lead = int(-start_s // self.seconds % parts)
                start_s += lead * self.seconds
            whole = (requests.size - lead) // parts * parts
            requests = requests[lead : lead + whole].reshape(-1, parts).sum(axis=1)
        rates = np.repeat(requests, hours) / max(self.seconds, SECONDS_PER_HOUR)
        first_hour = self.first_hour_of_week
        end_s = None
        if start_s is not None:
            first_hour = int(start_s // SECONDS_PER_HOUR + 72) % 168
            end_s = start_s + rates.size * SECONDS_PER_HOUR
        return HourlyRates(
            column=column,
            rates=rates,
            first_hour_of_week=first_hour,
            end_s=end_s,
            shows_hours=hours == 1,
        )


def _requests_per_stretch(
    path: Path,
    column: str,
    cells: Floats,
    stretches: _Stretches,
    requests_per_s: float | None,
    has_totals: bool,
) -> Floats:
    """Return the requests of each row's stretch, by the unit that the column or the file is named after."""
    seconds = _unit_s(column)
    if seconds is None and _counts_requests(column):
        return cells
    if seconds is None:
        seconds = _unit_s(path.name.partition(".")[0])
    if seconds is not None:
        return cells / seconds * stretches.seconds
    if requests_per_s is None and has_totals and np.all(cells % 1.0 == 0.0):
        return cells  # whole numbers beside totals of tokens are counts too
    if requests_per_s is None:
        message = "the unit of the series is in neither its name nor the file's"
        raise refusal(path, message, column=column, hint="state --requests-per-s")
    # Without a unit the series is a shape: its mean is the stated rate. One of zeros stays so.
    scale = cells.mean() / (requests_per_s or 1.0) or 1.0
    return cells / scale * stretches.seconds


def _unit_s(name: str) -> float | None:
    """Return the seconds of the unit in a name; None without one."""
    plain = re.sub(r"[\s/-]+", "_", name.strip().lower())
    for pattern, seconds in _UNITS.items():
        # A whole word: corps has no rps.
        if re.search(rf"(?<![a-z])({pattern})(?![a-z])", plain):
            return seconds
    return None


def _counts_requests(name: str) -> bool:
    """Return whether a column of a name has the requests of each row, as a count or as a rate."""
    plain = re.sub(r"[\s/-]+", "_", name.strip().lower())
    words = set(plain.split("_"))
    names_rate = bool(words & {"rps", "qps", "rpm"}) or "req" in plain
    return plain in COUNT_COLUMNS or (names_rate and _unit_s(plain) is not None)


def _choose_series(path: Path, table: pd.DataFrame, column: str | None) -> str:
    """Return the column of rates: the one that is named, else the only one that counts requests, else the only one."""
    # Columns that count the hours are numeric too, but no rates.
    numeric = [str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    others = {_named(table, aliases) for aliases in ROLES.values()}
    others |= {_token_column(table, side) for side in _SIDES}
    series = [
        name for name in numeric if not name.lower().startswith("hour") and name not in others
    ]
    counted = [str(name) for name in table.columns if _counts_requests(str(name))]
    if column is not None:
        by_lower = {str(name).strip().lower(): str(name) for name in table.columns}
        if column.strip().lower() in by_lower:
            return by_lower[column.strip().lower()]
        message = f"no rate column {column!r}"
        hint = nearest(column, series) or f"choose from {', '.join(series)}"
        raise refusal(path, message, hint=hint)
    for found in (counted, series):
        if len(found) == 1:
            return found[0]
    message = f"has {len(series)} rate columns; name one"
    raise refusal(path, message, hint=f"of {', '.join(series)}: --rate COLUMN")


def _times(path: Path, table: pd.DataFrame, column: str, first_line: int) -> Floats | None:
    """Return the rows' times in seconds; None where there is no column of times."""
    name = _named(table, [f"ts_{column}".lower(), *ROLES["timestamp"]])
    dates = _named(table, _DATE_COLUMNS)
    # Numbers under such a name count hours or days from the first row: they are no dates.
    if name is None and dates is not None and not pd.api.types.is_numeric_dtype(table[dates]):
        name = dates
    if name is None:
        return None
    times_s = times_in_s(table[name], "auto", path)
    raise_all(row_problems(path, table[name], ~np.isfinite(times_s), first_line))
    return times_s


def _named(table: pd.DataFrame, aliases: Collection[str]) -> str | None:
    """Return the first column that has one of some names."""
    by_lower = {str(name).strip().lower(): str(name) for name in table.columns}
    for alias in aliases:
        if alias in by_lower:
            return by_lower[alias]
    return None


def _token_column(table: pd.DataFrame, side: str) -> str | None:
    """Return the column of a side's tokens: as in a log, with a word before or after it that says total or mean."""
    for column in table.columns:
        plain = re.sub(r"[\s/-]+", "_", str(column).strip().lower())
        stem = _MEAN.sub("", _TOTAL.sub("", plain))
        if stem in ROLES[side]:
            return str(column)
    return None


def _check_totals(path: Path, totals: TokenTotals, names: dict[str, str | None]) -> None:
    """Raise an error where totals cannot be: less than a token a request, or more cached than there were."""
    problems = []
    for side in ("input", "output"):
        if side in totals.tokens and 0.0 < totals.mean(side) < 1.0:
            message = f"makes {totals.mean(side):.2g} tokens a request"
            hint = f"if it has means, call it mean_{names[side]}"
            problems.append(Problem(file=str(path), path=names[side], message=message, hint=hint))
    if {"input", "cached"} <= totals.tokens.keys() and totals.mean("cached") > totals.mean("input"):
        message = "has more cached tokens than the input has"
        problems.append(Problem(file=str(path), path=names["cached"], message=message))
    raise_all(problems)
