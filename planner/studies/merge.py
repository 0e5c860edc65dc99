"""The replications of a finished study, in their order, in files that are read a row group at a time.

The first ones, kept in detail, make ``replications.parquet``. Those beyond, without their months, make
``replications_further.parquet``: a file of its own, since a month that is not there takes as much memory as one that is
once it is read. Row groups have a fixed size, so the bytes do not depend on who ran what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import Floats
from planner.studies.replicate import Setup
from planner.studies.stored_columns import WRITING, month_column, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

SINGLE = "replications.parquet"
FURTHER = "replications_further.parquet"
JOINED = (SINGLE, FURTHER)
_ROW_GROUP = 2048
_FURTHER_GROUP = 32_768
"""Without months a row takes a tenth: groups of sixteen times the rows, whose description is read with every column."""


class Joined:
    """The files of a study's replications."""

    def __init__(self, paths: Sequence[Path], setup: Setup) -> None:
        """Point at the files, in the order of their rows."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - a tenth of a second that only a study needs

        self.paths, self.setup = paths, setup
        self.scenarios = len(setup.scenarios)
        self._rows = [int(pq.read_metadata(path).num_rows) // self.scenarios for path in paths]
        self.rows, self.detailed = sum(self._rows), self._rows[0]
        """Replications, and those that have months, the first ones."""

    def tables(self, first: int, last: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield a range of replications, whole ones, about a row group at a time.

        Arrow's own iterator reads far ahead, half a gigabyte in a study of 64,000 replications.
        """
        begin = 0
        for path, rows in zip(self.paths, self._rows, strict=True):
            low, high = max(first - begin, 0), min(last - begin, rows)
            if low < high:
                yield from self._of_file(path, low * self.scenarios, high * self.scenarios, columns)
            begin += rows

    def _of_file(self, path: Path, first: int, last: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """Yield a range of rows of one file's table that begins and ends with a replication."""
        import pyarrow as pa  # noqa: PLC0415 - as above
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        left: list[pa.Table] = []
        with pq.ParquetFile(path) as file:
            begin = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                low, high = max(first, begin), min(last, begin + count)
                if low < high:
                    table = file.read_row_group(group, columns=None if columns is None else list(columns))
                    table = pa.concat_tables([*left, table.slice(low - begin, high - low)])
                    # A group may end within a replication: three scenarios do not divide its rows.
                    cut = len(table) // self.scenarios * self.scenarios
                    left = [table.slice(cut)] if cut < len(table) else []
                    yield table.slice(0, cut)
                begin += count

    def column(self, name: str, rows: int | None = None, which: int | None = None) -> Floats:
        """Return a column of the first rows, shape (rows, scenarios), or of one scenario, shape (rows,)."""
        rows = self.rows if rows is None else min(rows, self.rows)
        joined = np.empty((rows, self.scenarios) if which is None else rows)
        first = 0
        for table in self.tables(0, rows, [name]):
            part = table.column(name).to_numpy().reshape(-1, self.scenarios)
            joined[first : first + len(part)] = part if which is None else part[:, which]
            first += len(part)
        return joined

    def monthly(self, name: str, cluster: str, scenario: int, months: range) -> Floats:
        """Return some months of a monthly figure of one scenario's fleet or cluster, shape (detailed rows, months)."""
        joined = np.empty((self.detailed, len(months)))
        first = 0
        for table in self.tables(0, self.detailed, [month_column(name, cluster)]):
            flat = table.column(0).combine_chunks().flatten().to_numpy(zero_copy_only=False)
            part = flat.reshape(-1, self.scenarios, self.setup.months)[:, scenario, months.start : months.stop]
            joined[first : first + len(part)] = part
            first += len(part)
        return joined

    def errors(self, rows: int) -> Iterator[tuple[int, int, str]]:
        """Yield row, scenario and message of each run that failed, in order."""
        first = 0
        for table in self.tables(0, rows, ["error"]):
            for place in np.flatnonzero(table.column("error").is_valid().to_numpy()).tolist():
                row, scenario = divmod(first + place, self.scenarios)
                yield row, scenario, table.column("error")[place].as_py()
            first += len(table)

    def parts(self, rows: int) -> Iterator[pa.Table]:
        """Yield all replications in order without their months, at most so many rows of the table at a time."""
        for table in self.tables(0, self.rows, schema_of(self.setup, detailed=False).names):
            for first in range(0, len(table), rows):
                yield table.slice(first, rows)


def write_joined(path: Path, setup: Setup, tables: Iterable[pa.Table], *, detailed: bool) -> None:
    """Write tables in the order of their rows as one file, in row groups of a fixed size."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    size = _ROW_GROUP if detailed else _FURTHER_GROUP
    with pq.ParquetWriter(path, schema_of(setup, detailed=detailed), **WRITING) as writer:
        for table in _in_groups(tables, size):
            writer.write_table(table, row_group_size=size)


def _in_groups(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield the rows of tables in order in tables of one row group each."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += len(table)
        while count >= size:
            joined = pa.concat_tables(held)
            yield joined.slice(0, size).combine_chunks()
            held, count = [joined.slice(size)], count - size
    if count:
        yield pa.concat_tables(held).combine_chunks()
