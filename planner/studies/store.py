"""The result store: shards while a study runs, consolidated files when it is finished.

A shard holds batches of rows as they were finished. It is written by one process, synced to the disk and renamed into
place when it is whole; its name ends in the hash of its bytes, and within it stands whose study it belongs to. So what
a killed study, a failing disk or another study left is known for what it is when it is read: a shard that does not
match its name, its study or its row numbers is set aside, and its rows are run again.

At the end all rows are laid in their order into files that are read a row group at a time: the same bytes whichever
worker ran what, and however often the study was interrupted. The first ones, kept in detail, make
``replications.parquet``. Those beyond, without their months, make ``replications_further.parquet``: a file of its own,
since a month that is not there takes as much memory as one that is once it is read.
"""

from __future__ import annotations

import functools
import io
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, Staged, check_target, read_json, replace_synced, sha256_of
from planner.run.measure_names import FLEET
from planner.scenario.study import Study
from planner.studies.replicate import HEADLINES, NOT_RUN, Rows, Setup
from planner.studies.work import (
    Identity,
    Work,
    digest_of,
    inputs_identity,
    plain,
    scenario_identity,
    short_sum,
)

SINGLE = "replications.parquet"
FURTHER = "replications_further.parquet"
_TOLD_APART = {"description", "objective", "scenarios", "detailed_replications"}
"""Keys of a study that do not decide its rows, or that stand beside its hash."""
SHARD_ROWS = 512
"""Replications that fill a shard; eight times as many where they have no months."""
_WITHOUT_MONTHS = 8
_SHARD_S = 5.0
_SHARD_SHARE = 0.1
"""A shard is written before it is full after this many seconds, or this share of the time since the study was opened:
what a kill can cost, and a bound on the number of small shards."""
_TABLES_KEPT = 8
_ROW_GROUP = 2048
"""Fixed, so that the bytes do not depend on who ran what."""
_FURTHER_GROUP = 32_768
"""Without months a row takes a tenth: groups of sixteen times the rows, whose description is read with every column."""
_WRITING: dict[str, Any] = {"use_dictionary": ["scenario", "error"]}
"""How columns are written: drawn numbers hardly ever repeat, and to look for it takes six times as long as to write."""


def identity(study: Study, setup: Setup, batch: int) -> Identity:
    """Return the parts that must agree for stored rows to belong to a study, whatever the number of rows."""
    return {
        **scenario_identity({base.name: base.scenario for base in setup.scenarios}),
        "design": plain(setup.design),
        "seed": setup.seed,
        "batch": batch,
        "detailed": setup.detailed_rows,
        "study": digest_of(study.model_dump(mode="json", exclude=_TOLD_APART)),
        "inputs": inputs_identity(setup.inputs),
    }


def month_column(name: str, cluster: str) -> str:
    """Return the column name of a monthly figure of the fleet or of a cluster."""
    return f"month:{name}" if cluster == FLEET else f"month:{name}@{cluster}"


def schema_of(setup: Setup, *, detailed: bool) -> pa.Schema:
    """Return the columns of the store, for rows with or without monthly figures."""
    fields = [
        pa.field("replication", pa.int64()),
        pa.field("scenario", pa.string()),
        pa.field("chance", pa.int64()),
    ]
    fields += [pa.field(f"in:{name}", pa.float64()) for name in setup.inputs.names]
    fields += [pa.field(f"out:{output.name}", pa.float64()) for output in HEADLINES]
    for name, cluster in setup.monthly if detailed else ():
        # Clusters are many: half the digits of a float hold a percentile to the dollar.
        number = pa.float64() if cluster == FLEET else pa.float32()
        fields.append(pa.field(month_column(name, cluster), pa.list_(number, setup.months)))
    return pa.schema([*fields, pa.field("error", pa.string())])


def table_of(setup: Setup, batches: Sequence[Rows]) -> pa.Table:
    """Return batches as one table, one row per replication and scenario, all with or all without months."""
    detailed = setup.is_detailed(batches[0].first)
    scenarios = len(setup.scenarios)
    schema = schema_of(setup, detailed=detailed)
    numbers = np.concatenate([np.arange(rows.first, rows.last) for rows in batches])
    inputs = np.concatenate([rows.inputs for rows in batches])
    headlines = np.concatenate([rows.headlines for rows in batches])
    monthly = np.concatenate([rows.monthly for rows in batches]) if detailed else np.empty(0)
    failed = {
        (row, scenario): message for rows in batches for row, scenario, message in rows.errors
    }
    columns: list[Any] = [
        np.repeat(numbers, scenarios),
        [base.name for base in setup.scenarios] * len(numbers),
        np.repeat(np.concatenate([rows.chance for rows in batches]), scenarios),
        *(np.repeat(inputs[:, place], scenarios) for place in range(len(setup.inputs))),
        *(headlines[:, :, place].ravel() for place in range(len(HEADLINES))),
        *(
            pa.FixedSizeListArray.from_arrays(
                pa.array(
                    monthly[:, :, place].ravel(),
                    type=schema.field(month_column(*which)).type.value_type,
                ),
                setup.months,
            )
            for place, which in enumerate(setup.monthly if detailed else ())
        ),
        [failed.get((row, which)) for row in numbers.tolist() for which in range(scenarios)],
    ]
    return pa.table(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)],
        schema,
    )


class Joined:
    """The consolidated files of a finished study's replications, in row order."""

    def __init__(self, paths: Sequence[Path], setup: Setup) -> None:
        """Open the files' metadata."""
        self.paths = paths
        self.setup = setup
        self.scenarios = len(setup.scenarios)
        rows = [int(pq.read_metadata(path).num_rows) // self.scenarios for path in paths] or [0]
        self.rows, self.detailed = sum(rows), rows[0]
        """Replications, and those that have months, the first ones."""

    def tables(
        self, first: int, last: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield a range of whole replications, about one row group at a time.

        Arrow's own iterator reads far ahead, half a gigabyte in a study of 64,000 replications.
        """
        begin = 0  # the row group's first row among all
        left: list[pa.Table] = []
        for path in self.paths:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    count = file.metadata.row_group(group).num_rows
                    low = max(first * self.scenarios - begin, 0)
                    high = min(last * self.scenarios - begin, count)
                    begin += count
                    if low < high:
                        table = file.read_row_group(
                            group, columns=None if columns is None else list(columns)
                        )
                        table = pa.concat_tables([*left, table.slice(low, high - low)])
                        # A group may end within a replication: three scenarios do not divide its rows.
                        cut = len(table) // self.scenarios * self.scenarios
                        left = [table.slice(cut)] if cut < len(table) else []
                        yield table.slice(0, cut)

    def column(self, name: str, rows: int | None = None) -> Floats:
        """Return a column of the first rows (all by default), shape (rows, scenarios)."""
        parts = [
            table.column(name).to_numpy()
            for table in self.tables(0, self.rows if rows is None else rows, [name])
        ]
        return np.concatenate(parts).reshape(-1, self.scenarios)

    def monthly(self, name: str, cluster: str, scenario: int) -> Floats:
        """Return a monthly figure of one scenario's fleet or cluster, shape (detailed rows, months)."""
        shape = (-1, self.scenarios, self.setup.months)
        lists = (
            table.column(0)
            for table in self.tables(0, self.detailed, [month_column(name, cluster)])
        )
        flat = (
            column.combine_chunks().flatten().to_numpy(zero_copy_only=False) for column in lists
        )
        return np.concatenate(
            [part.reshape(shape)[:, scenario].astype(np.float64) for part in flat]
        )

    def errors(self, rows: int) -> Iterator[tuple[int, int, str]]:
        """Yield row, scenario and message of each failed run, in order."""
        first = 0
        for table in self.tables(0, rows, ["error"]):
            for place in np.flatnonzero(table.column("error").is_valid().to_numpy()).tolist():
                row, scenario = divmod(first + place, self.scenarios)
                yield row, scenario, table.column("error")[place].as_py()
            first += len(table)

    def parts(self, rows: int) -> Iterator[pa.Table]:
        """Yield all replications in order without monthly figures, at most ``rows`` table rows at a time."""
        for table in self.tables(0, self.rows, schema_of(self.setup, detailed=False).names):
            for first in range(0, len(table), rows):
                yield table.slice(first, rows)


class Store(Work):
    """The result folder of one study."""

    def __init__(self, folder: Path, setup: Setup, who: Identity) -> None:
        """Set the folder; nothing is read or written yet."""
        super().__init__(folder, "study", who)
        self.setup = setup
        self.batch: int = who["batch"]
        self._digest = digest_of(who)
        self.joined = Joined((), setup)
        """All rows, once they are joined or where they were before; none while there are shards alone."""
        self._homes: dict[int, Path] = {}
        """The file that holds each batch, by its number; of joined rows the first of their files."""
        self._waiting: list[Rows] = []
        self._opened_s = self._written_s = time.monotonic()
        self.staged: Staged
        """The folder in the making, once rows are joined."""
        self._read = functools.lru_cache(maxsize=_TABLES_KEPT)(self._checked_shard)

    def open(self, *, resume: bool, restart: bool) -> None:
        """Prepare the folder: new, resumed, or cleared of an earlier study."""
        super().open(resume=resume, restart=restart)
        if resume and self.finished_identity() == self.identity:
            intact, damaged = self._finished_files()
            if damaged is not None:
                self.notes.append(f"{damaged} is damaged; its replications are run again")
            self.joined = Joined(intact, self.setup)
            batches = self.joined.rows // self.batch  # a last batch that was cut short is run again
            self._homes = dict.fromkeys(range(batches), intact[0]) if intact else {}
            for row, _, message in self.joined.errors(batches * self.batch):
                if message.startswith(NOT_RUN):
                    self._homes.pop(row // self.batch, None)
        for path in sorted(self.shards.glob("*.parquet")) if resume else ():
            try:
                table = self._read(path, ("replication", "error"))
            except ValueError as error:
                path.replace(path.with_name(f"{path.name}.bad"))
                self.notes.append(
                    f"{path} {error}; it is set aside, and its replications are run again"
                )
                continue
            said = zip(
                table.column("replication").to_pylist(),
                table.column("error").to_pylist(),
                strict=True,
            )
            again = {
                row // self.batch for row, message in said if (message or "").startswith(NOT_RUN)
            }
            self._homes |= dict.fromkeys(
                (n for n in self._numbers_in(table).tolist() if n not in again), path
            )

    def _finished_files(self) -> tuple[list[Path], Path | None]:
        """Return a finished study's intact files, and the first one whose hash is not the manifest's."""
        listed = read_json(self.folder / MANIFEST).get("files")
        sums = listed if isinstance(listed, dict) else {}
        intact: list[Path] = []
        for path in (
            self.folder / name for name in (SINGLE, FURTHER) if name in sums or name == SINGLE
        ):
            try:
                if sha256_of(path) != sums.get(path.name):
                    return intact, path
            except OSError:
                return intact, path
            intact.append(path)
        return intact, None

    def _numbers_in(self, shard: pa.Table) -> NDArray[np.int64]:
        """Return the batch numbers of a shard, in order."""
        firsts = shard.column("replication").to_numpy()[:: self.batch * len(self.setup.scenarios)]
        return np.asarray(firsts // self.batch, dtype=np.int64)

    def _checked_shard(self, path: Path, columns: tuple[str, ...] | None = None) -> pa.Table:
        """Return a shard, or some of its columns; raise ValueError where it is damaged or of another study."""
        content = path.read_bytes()
        if short_sum(content) != path.stem.rpartition("-")[2]:
            raise ValueError("is damaged")
        try:
            file = pq.ParquetFile(io.BytesIO(content))
            schema = file.schema_arrow
            table = file.read(columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException):
            raise ValueError("is no shard") from None
        if (schema.metadata or {}).get(b"study") != self._digest.encode():
            raise ValueError("belongs to another study")
        numbers = self._numbers_in(table)
        rows = (numbers[:, None] * self.batch + np.arange(self.batch)).ravel()
        detailed = {self.setup.is_detailed(number * self.batch) for number in numbers.tolist()}
        if (
            not np.array_equal(
                table.column("replication").to_numpy(), np.repeat(rows, len(self.setup.scenarios))
            )
            or np.any(np.diff(rows, prepend=-1) < 1)
            or len(detailed) > 1
            or not schema.equals(schema_of(self.setup, detailed=True in detailed))
        ):
            raise ValueError("does not hold whole batches of rows")
        return table

    def check_extends(self, rows: int) -> None:
        """Raise an error where a finished study would end with fewer replications than it has."""
        if self.joined.rows > rows:
            self.close()
            message = f"holds {self.joined.rows:,} finished replications, more than the {rows:,} requested"
            hint = "ask for more, or leave out --resume to begin anew"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def finished(self) -> NDArray[np.int64]:
        """Return the numbers of the stored batches, in order."""
        return np.array(sorted(self._homes), dtype=np.int64)

    def write(self, rows: Rows) -> None:
        """Add whole batches, and write a shard when enough rows wait or have waited long enough."""
        self._waiting.append(rows)
        now = time.monotonic()
        longest_s = min(_SHARD_S, _SHARD_SHARE * (now - self._opened_s))
        full = (
            SHARD_ROWS
            if self.setup.is_detailed(self._waiting[0].first)
            else _WITHOUT_MONTHS * SHARD_ROWS
        )
        if (
            sum(part.last - part.first for part in self._waiting) >= full
            or now - self._written_s >= longest_s
        ):
            self.flush()

    def flush(self) -> None:
        """Write waiting batches to the disk as a shard, or as two where some have months."""
        waiting = sorted(self._waiting, key=lambda rows: rows.first)
        self._waiting = []
        for _, alike in itertools.groupby(
            waiting, key=lambda rows: self.setup.is_detailed(rows.first)
        ):
            batches = list(alike)
            content = io.BytesIO()
            table = table_of(self.setup, batches).replace_schema_metadata({"study": self._digest})
            pq.write_table(table, content, **_WRITING)
            path = self.shards / f"{batches[0].first:08d}-{short_sum(content.getvalue())}.parquet"
            try:
                replace_synced(path, content.getvalue())
            except OSError as error:
                raise self.unwritable(error) from None
            self._homes |= dict.fromkeys(self._numbers_in(table).tolist(), path)
            self._written_s = time.monotonic()

    def tables(
        self, first: int, last: int, columns: tuple[str, ...] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the stored rows of a range in order, in pieces that are consecutive within one file.

        ``columns``, all unless given, must have the number of the replication among them.
        """
        scenarios = len(self.setup.scenarios)
        batch = self.batch
        wanted = [
            number
            for number in sorted(self._homes)
            if first < (number + 1) * batch and number * batch < last
        ]
        # Batches that follow each other have the same distance from their places in the list.
        runs = itertools.groupby(
            enumerate(wanted), key=lambda at: (self._homes[at[1]], at[1] - at[0])
        )
        for (path, _), run in runs:
            numbers = [number for _, number in run]
            low = max(first, numbers[0] * batch)
            high = min(last, (numbers[-1] + 1) * batch)
            if path in self.joined.paths:
                yield from self.joined.tables(low, high, columns)
                continue
            try:
                table = self._read(path, columns)
            except ValueError as error:
                problem = Problem(
                    file=str(path),
                    message=str(error),
                    hint="add --resume to run its replications again",
                )
                raise ScenarioError(problem) from None
            before = int(np.searchsorted(self._numbers_in(table), numbers[0])) * batch
            yield table.slice(
                (before + low - numbers[0] * batch) * scenarios, (high - low) * scenarios
            )

    def consolidate(self, rows: int) -> None:
        """Write the first rows of all shards into files of the folder that will replace this one."""
        self.flush()
        detailed = min(rows, -(-self.setup.detailed_rows // self.batch) * self.batch)
        ranges = {SINGLE: (0, detailed), FURTHER: (detailed, rows)}
        written = [name for name, (first, last) in ranges.items() if name == SINGLE or first < last]
        try:
            self.staged = Staged(self.folder)
            for name in written:
                schema = schema_of(self.setup, detailed=name == SINGLE)
                size = _ROW_GROUP if name == SINGLE else _FURTHER_GROUP
                with pq.ParquetWriter(self.staged.path / name, schema, **_WRITING) as writer:
                    held = schema.empty_table()
                    for table in self.tables(*ranges[name]):
                        held = pa.concat_tables([held, table])
                        while len(held) >= size:
                            writer.write_table(
                                held.slice(0, size).combine_chunks(), row_group_size=size
                            )
                            held = held.slice(size)
                    if len(held):
                        writer.write_table(held.combine_chunks(), row_group_size=size)
                self.staged.add(name)
        except OSError as error:
            self.discard()
            raise self.unwritable(error) from None
        self.joined = Joined([self.staged.path / name for name in written], self.setup)
        self._homes.clear()
        self._read.cache_clear()

    def commit(self, manifest: dict[str, Any]) -> None:
        """Replace this folder, shards included, with the new one, and release the lock."""
        check_target(
            self.folder, work=True
        )  # what somebody laid into it in the meantime is not swept away
        try:
            self.staged.commit(manifest)
        except OSError as error:
            raise self.unwritable(error) from None
        self.joined = Joined([self.folder / path.name for path in self.joined.paths], self.setup)
        self.close()

    def discard(self) -> None:
        """Delete the staged folder; the shards stay."""
        if hasattr(self, "staged"):
            self.staged.discard()
