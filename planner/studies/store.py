"""The result store of a study: Parquet files of finished rows, read alike while it runs and after it.

While a study runs, a shard holds batches of rows in the order in which they finished. One process
writes it, syncs it to the disk and renames it into place when it is whole. Its name ends in a
checksum of its bytes and of the study's identity, so a shard that a failing disk or another study
left is found when it is read: it is set aside, and its rows are run again.

At the end all rows are laid in their order into files with row groups of fixed size: the same bytes
whichever worker ran what, and however often the study was interrupted. The first rows, kept in
detail, make ``replications.parquet``. Those beyond, without their months, make
``replications_further.parquet``: a file of its own, since a month that is not there takes as much
memory as one that is once it is read.

A pyarrow dataset reads such files, but it neither keeps the order of rows nor limits how far it
reads ahead (half a gigabyte in a study of 64,000 replications). So the store knows in which row
group each batch lies, and reads one row group at a time.
"""

from __future__ import annotations

import functools
import io
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, Staged, check_target, read_json, replace_synced, sha256_of
from planner.finance.measure_names import FLEET
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
"""File of the rows with months; of all rows, unless a study keeps few in detail."""
FURTHER = "replications_further.parquet"
"""File of the rows without months."""
SHARD_ROWS = 512
"""Replications that fill a shard with months."""
_SHARD_ROWS_WITHOUT_MONTHS = 8 * SHARD_ROWS
"""Replications that fill a shard without months."""
_SHARD_S = 5.0
"""A shard is written before it is full after this many seconds: what a kill can cost."""
_SHARD_SHARE = 0.1
"""Or after this share of the time since the study was opened, which bounds the small shards."""
_SHARDS_IN_MEMORY = 8
"""Shards kept read while rows are laid in order: neighbours hold each other's batches."""
_ROW_GROUP = 2048
"""Table rows of a row group with months, at most."""
_FURTHER_ROW_GROUP = 32_768
"""Table rows of a row group without months: a row takes a tenth of the bytes."""
_WRITER_OPTIONS: dict[str, Any] = {"use_dictionary": ["scenario", "error"]}
"""Drawn numbers hardly ever repeat, and to look for it takes six times as long as to write them."""
_NOT_IN_STUDY_HASH = {"description", "objective", "scenarios", "detailed_replications"}
"""Keys of a study that do not decide its rows, or that stand beside its hash."""


def identity(study: Study, setup: Setup, batch: int) -> Identity:
    """Return what must agree for stored rows to belong to a study, whatever the number of rows."""
    scenarios = {base.name: base.scenario for base in setup.scenarios}
    stated = study.model_dump(mode="json", exclude=_NOT_IN_STUDY_HASH)
    return {
        **scenario_identity(scenarios),
        "design": plain(setup.design),
        "seed": setup.seed,
        "batch": batch,
        "detailed": setup.detailed_rows,
        "study": digest_of(stated),
        "inputs": inputs_identity(setup.inputs),
    }


def month_column(name: str, cluster: str) -> str:
    """Return the column name of a monthly figure of the fleet or of a cluster."""
    return f"month:{name}" if cluster == FLEET else f"month:{name}@{cluster}"


def schema_of(setup: Setup, *, detailed: bool) -> pa.Schema:
    """Return the columns of the store, for rows with or without monthly figures."""
    number = pa.float64()
    whole = pa.int64()
    text = pa.string()
    fields = [("replication", whole), ("scenario", text), ("chance", whole)]
    fields += [(f"in:{name}", number) for name in setup.inputs.names]
    fields += [(f"out:{output.name}", number) for output in HEADLINES]
    for name, cluster in setup.monthly if detailed else ():
        # Clusters are many: half the digits of a float hold a percentile to the dollar.
        month = number if cluster == FLEET else pa.float32()
        column = month_column(name, cluster)
        months = pa.list_(month, setup.months)
        fields.append((column, months))
    fields.append(("error", text))
    return pa.schema(fields)


def table_of(setup: Setup, batches: Sequence[Rows]) -> pa.Table:
    """Return batches as one table, one row per replication and scenario, all with or all without months."""
    detailed = setup.is_detailed(batches[0].start)
    scenarios = len(setup.scenarios)
    schema = schema_of(setup, detailed=detailed)
    ranges = [np.arange(batch.start, batch.stop) for batch in batches]
    rows = np.concatenate(ranges)
    replications = np.concatenate([batch.replications for batch in batches])
    inputs = np.concatenate([batch.inputs for batch in batches])
    headlines = np.concatenate([batch.headlines for batch in batches])
    table_rows = len(rows) * scenarios
    # Most rows have no error: the list is made whole, and few places are filled.
    messages: list[str | None] = [None] * table_rows
    places = {row: place for place, row in enumerate(rows.tolist())}
    for batch in batches:
        for row, scenario, message in batch.errors:
            place = places[row] * scenarios + scenario
            messages[place] = message
    names = [base.name for base in setup.scenarios]
    columns: list[Any] = [
        np.repeat(rows, scenarios),
        names * len(rows),
        np.repeat(replications, scenarios),
    ]
    columns += [np.repeat(values, scenarios) for values in inputs.T]
    # Copies in row order: a transposed view would be read column by column at every scenario.
    for place in range(len(HEADLINES)):
        figures = headlines[:, :, place]
        columns.append(figures.ravel())
    if detailed:
        monthly = np.concatenate([batch.monthly for batch in batches])
        for place, figure in enumerate(setup.monthly):
            field = schema.field(month_column(*figure))
            figures = monthly[:, :, place]
            number_type = field.type.value_type
            months = pa.array(figures.ravel(), type=number_type)
            # Each cell is a list of all months, which fits in one flat array.
            cells = pa.FixedSizeListArray.from_arrays(months, setup.months)
            columns.append(cells)
    columns.append(messages)
    typed = zip(columns, schema.types, strict=True)
    arrays = [pa.array(column, type=kind) for column, kind in typed]
    return pa.table(arrays, schema)


class _Location(NamedTuple):
    """Where a batch of rows lies on the disk."""

    path: Path
    row_group: int
    offset: int
    """Table row of the row group at which the batch begins."""


class Store(Work):
    """The result folder of one study."""

    def __init__(self, folder: Path, setup: Setup, study_identity: Identity) -> None:
        """Set the folder; nothing is read or written yet."""
        super().__init__(folder, "study", study_identity)
        self.setup = setup
        self.batch: int = study_identity["batch"]
        self.rows = 0
        """Replications of a finished study; 0 while there are shards alone."""
        self.detailed = 0
        """Those of them that have months, the first ones."""
        self.staged: Staged
        """The folder in the making, once rows are laid in order."""
        self._scenarios = len(setup.scenarios)
        self._table_rows = self.batch * self._scenarios
        """Table rows of a batch."""
        self._digest = digest_of(study_identity).encode()
        self._locations: dict[int, _Location] = {}
        """Where each stored batch lies, by its number."""
        self._unwritten: list[Rows] = []
        self._opened_s = time.monotonic()
        self._written_s = self._opened_s
        keep_shards = functools.lru_cache(maxsize=_SHARDS_IN_MEMORY)
        self._read_shard = keep_shards(self._checked_shard)
        # There are two files at most, and both are read by turns.
        self._file = functools.lru_cache(maxsize=2)(pq.ParquetFile)

    def open(self, *, resume: bool, restart: bool) -> None:
        """Prepare the folder: new, resumed, or cleared of an earlier study."""
        super().open(resume=resume, restart=restart)
        if not resume:
            return
        if self.finished_identity() == self.identity:
            self._locate_finished(self._intact_files())
            # A last batch that was cut short is run again.
            self._locations.pop(self.rows // self.batch, None)
        columns = ("replication", "error")
        for path in sorted(self.shards.glob("*.parquet")):
            try:
                self._locate_shard(path, self._read_shard(path, columns))
            except ValueError as error:
                path.replace(path.with_name(f"{path.name}.bad"))
                note = f"{path} {error}; the file is set aside and its replications are run again"
                self.notes.append(note)
        # What failed for want of memory, a file or a network may succeed this time.
        for row, _, message in list(self.failures()):
            if message.startswith(NOT_RUN):
                self._locations.pop(row // self.batch, None)

    def _intact_files(self) -> list[Path]:
        """Return a finished study's files up to the first one whose hash is not the manifest's."""
        manifest = read_json(self.folder / MANIFEST)
        sums = manifest.get("files")
        intact: list[Path] = []
        for name in (SINGLE, FURTHER):
            path = self.folder / name
            # A study that keeps all its rows in detail has no second file.
            if name == FURTHER and not path.exists():
                continue
            try:
                is_intact = isinstance(sums, dict) and sha256_of(path) == sums.get(name)
            except OSError:
                is_intact = False
            if not is_intact:
                self.notes.append(f"{path} is damaged; its replications are run again")
                break
            intact.append(path)
        return intact

    def _locate_finished(self, paths: Iterable[Path]) -> None:
        """Note where rows lie in the files of a finished study, whose row groups are whole batches."""
        self._locations.clear()
        self.rows = 0
        for path in paths:
            metadata = self._file(path).metadata
            number = self.rows // self.batch
            for group in range(metadata.num_row_groups):
                group_rows = metadata.row_group(group).num_rows
                for offset in range(0, group_rows, self._table_rows):
                    self._locations[number] = _Location(path, group, offset)
                    number += 1
            self.rows += metadata.num_rows // self._scenarios
            if path.name == SINGLE:
                self.detailed = self.rows

    def _locate_shard(self, path: Path, table: pa.Table) -> None:
        """Note where rows lie in a shard, which is one row group of whole batches."""
        # Every batch is whole, so each of this many table rows begins one.
        rows = table.column("replication").to_numpy()
        numbers = rows[:: self._table_rows] // self.batch
        for place, number in enumerate(numbers.tolist()):
            offset = place * self._table_rows
            self._locations[number] = _Location(path, 0, offset)

    def _checksum(self, content: bytes) -> str:
        """Return the checksum in a shard's name, which no shard of another study has."""
        return short_sum(self._digest + content)

    def _checked_shard(self, path: Path, columns: tuple[str, ...] | None = None) -> pa.Table:
        """Return a shard, or some of its columns; raise ValueError where it is not as it was written."""
        content = path.read_bytes()
        _, _, stated_sum = path.stem.rpartition("-")
        if self._checksum(content) != stated_sum:
            raise ValueError("is damaged, or belongs to another study")
        file = pq.ParquetFile(io.BytesIO(content))
        return file.read(columns=columns and list(columns))

    def check_extends(self, rows: int) -> None:
        """Raise an error where a finished study would end with fewer replications than it has."""
        if self.rows > rows:
            self.close()
            message = f"holds {self.rows:,} finished replications, more than the {rows:,} requested"
            hint = "request more, or leave out --resume to start again"
            raise self.refusal(message, hint)

    def finished(self) -> NDArray[np.int64]:
        """Return the numbers of the stored batches, in order."""
        return np.array(sorted(self._locations), dtype=np.int64)

    def write(self, rows: Rows) -> None:
        """Add whole batches, and write a shard when enough rows wait or have waited long enough."""
        self._unwritten.append(rows)
        now_s = time.monotonic()
        open_s = now_s - self._opened_s
        longest_s = min(_SHARD_S, _SHARD_SHARE * open_s)
        # Rows with months take ten times the memory: fewer of them fill a shard.
        earliest = self._unwritten[0].start
        is_detailed = self.setup.is_detailed(earliest)
        full = SHARD_ROWS if is_detailed else _SHARD_ROWS_WITHOUT_MONTHS
        waiting_rows = sum(part.stop - part.start for part in self._unwritten)
        if waiting_rows >= full or now_s - self._written_s >= longest_s:
            self.flush()

    def flush(self) -> None:
        """Write waiting batches to the disk as a shard, or as two where some have months."""
        # Workers finish in any order; a shard in row order is read in long runs.
        waiting = sorted(self._unwritten, key=lambda rows: rows.start)
        self._unwritten = []
        # Rows with and without months have other columns, and so a shard each.
        by_detail = itertools.groupby(waiting, lambda rows: self.setup.is_detailed(rows.start))
        for _, group in by_detail:
            batches = list(group)
            table = table_of(self.setup, batches)
            target = io.BytesIO()
            pq.write_table(table, target, **_WRITER_OPTIONS)
            content = target.getvalue()
            path = self.shards / f"{batches[0].start:08d}-{self._checksum(content)}.parquet"
            try:
                replace_synced(path, content)
            except OSError as error:
                raise self.unwritable(error) from None
            self._locate_shard(path, table)
            self._written_s = time.monotonic()

    def tables(
        self, start: int, stop: int, columns: tuple[str, ...] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the stored rows of a range in order, in pieces that follow each other in one row group."""
        first_batch = start // self.batch
        end_batch = -(-stop // self.batch)  # rounded up: the last may be asked for in part
        numbers = range(first_batch, end_batch)
        stored = [number for number in numbers if number in self._locations]

        def neighbours(number: int) -> tuple[Path, int, int]:
            """Return what batches have in common that follow each other in one row group."""
            path, row_group, offset = self._locations[number]
            return path, row_group, offset - number * self._table_rows

        # A run of batches is one slice: batch by batch, a million rows would take minutes.
        for (path, row_group, origin), group in itertools.groupby(stored, neighbours):
            batches = list(group)
            # Of the first and the last batch only what is asked for.
            low = max(start, batches[0] * self.batch)
            stop_batch = batches[-1] + 1
            high = min(stop, stop_batch * self.batch)
            if path.parent == self.shards:
                table = self._shard_rows(path, columns)
            else:
                file = self._file(path)
                table = file.read_row_group(row_group, columns=columns and list(columns))
            first_row = origin + low * self._scenarios
            table_rows = (high - low) * self._scenarios
            yield table.slice(first_row, table_rows)

    def _shard_rows(self, path: Path, columns: tuple[str, ...] | None) -> pa.Table:
        """Return a shard that was sound when the study was opened; raise an error where it is no longer."""
        try:
            return self._read_shard(path, columns)
        except ValueError as error:
            hint = "add --resume to run its replications again"
            problem = Problem(file=str(path), message=str(error), hint=hint)
            raise ScenarioError(problem) from None

    def column(self, name: str, rows: int | None = None) -> Floats:
        """Return a column of a finished study's first rows (all by default), shape (rows, scenarios)."""
        stop = self.rows if rows is None else rows
        tables = self.tables(0, stop, (name,))
        parts = [table.column(name).to_numpy() for table in tables]
        return np.concatenate(parts).reshape(-1, self._scenarios)

    def monthly(self, name: str, cluster: str, scenario: int) -> Floats:
        """Return a monthly figure of one scenario's fleet or cluster, shape (detailed rows, months)."""
        shape = (-1, self._scenarios, self.setup.months)
        parts = []
        column = month_column(name, cluster)
        for table in self.tables(0, self.detailed, (column,)):
            months = table.column(0).combine_chunks().flatten()
            figures = months.to_numpy(zero_copy_only=False).reshape(shape)
            # A copy of one scenario's months, so that those of all others are let go at once.
            parts.append(figures[:, scenario].astype(np.float64))
        return np.concatenate(parts)

    def failures(self, rows: int | None = None) -> Iterator[tuple[int, str, str]]:
        """Yield row, scenario and message of each failed run of the first rows, all by default, in order."""
        names = ("replication", "scenario", "error")
        if rows is None:
            batches = max(self._locations, default=-1) + 1
            rows = batches * self.batch
        for table in self.tables(0, rows, names):
            is_failed = pc.is_valid(table.column("error"))
            failed = table.filter(is_failed)
            columns = [failed.column(name).to_pylist() for name in names]
            yield from zip(*columns, strict=True)

    def samples(self, table_rows: int) -> Iterator[pa.Table]:
        """Yield a finished study in order without monthly figures, some table rows at a time."""
        schema = schema_of(self.setup, detailed=False)
        names = tuple(schema.names)
        for table in self.tables(0, self.rows, names):
            for start in range(0, len(table), table_rows):
                yield table.slice(start, table_rows)

    def consolidate(self, rows: int) -> None:
        """Write the first rows of all shards into files of the folder that will replace this one."""
        self.flush()
        # A batch that begins below the detailed rows is stored with its months as a whole.
        batches = -(-self.setup.detailed_rows // self.batch)
        detailed = min(rows, batches * self.batch)
        try:
            self.staged = Staged(self.folder)
            self._write_in_order(SINGLE, 0, detailed, _ROW_GROUP)
            if detailed < rows:
                self._write_in_order(FURTHER, detailed, rows, _FURTHER_ROW_GROUP)
        except OSError as error:
            self.discard()
            raise self.unwritable(error) from None
        # The shards are no longer read, and their memory is needed for what follows.
        self._read_shard.cache_clear()
        self._file.cache_clear()
        paths = (self.staged.path / name for name in self.staged.sums)
        self._locate_finished(paths)

    def _write_in_order(self, name: str, start: int, stop: int, row_group: int) -> None:
        """Write a range of rows in order into a file of the new folder.

        Row groups are whole batches, so that a batch lies in one of them. Their size is fixed, so
        that the bytes do not depend on who ran what.
        """
        # A batch of many scenarios may be larger than a row group: then it is one.
        batches = max(1, row_group // self._table_rows)
        step = batches * self.batch
        schema = schema_of(self.setup, detailed=name == SINGLE)
        path = self.staged.path / name
        with pq.ParquetWriter(path, schema, **_WRITER_OPTIONS) as writer:
            for begin in range(start, stop, step):
                end = min(begin + step, stop)
                group = pa.concat_tables(self.tables(begin, end))
                writer.write_table(group.combine_chunks())
        self.staged.add(name)

    def commit(self, manifest: dict[str, Any]) -> None:
        """Replace this folder, shards included, with the new one, and release the lock."""
        # What somebody laid into the folder in the meantime is not swept away.
        check_target(self.folder, work=True)
        try:
            self.staged.commit(manifest)
        except OSError as error:
            raise self.unwritable(error) from None
        # Open files would stay those of the staged folder, and their names are gone.
        self._file.cache_clear()
        names = [name for name in (SINGLE, FURTHER) if name in self.staged.sums]
        self._locate_finished(self.folder / name for name in names)
        self.close()

    def discard(self) -> None:
        """Delete the staged folder; the shards stay."""
        if hasattr(self, "staged"):
            self.staged.discard()
