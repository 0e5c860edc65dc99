"""The result store: shards as they come, one file when all is done.

A shard holds batches of rows as they were finished. It is written by one process, synced to the disk and renamed into
place when it is whole; its name ends in the hash of its bytes, and within it stands whose study it belongs to. So what
a killed study, a failing disk or another study left is known for what it is when it is read: a shard that does not
match its name, its study or its row numbers is set aside, and its rows are run again. At the end all rows are laid into
``replications.parquet`` in their order, in row groups of a fixed size: the same bytes whichever worker ran what, and
however often the study was interrupted.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, Staged, check_target, read_json, settle, sha256_of, sync, write_synced
from planner.studies.identity import Identity, digest_of
from planner.studies.replicate import NOT_RUN, Rows, Setup
from planner.studies.stored_columns import WRITING, month_column, schema_of, table_of
from planner.studies.work import Work

if TYPE_CHECKING:
    import pyarrow as pa


SINGLE = "replications.parquet"
SHARD_ROWS = 512
"""Replications that fill a shard."""
_SHARD_S, _SHARD_SHARE = 5.0, 0.1
"""A shard is written before it is full after this many seconds, or this share of the time since the study was opened:
what a kill can cost, and a bound on the number of small shards."""
_ROW_GROUP = 2048
_TABLES_KEPT = 8


class Store(Work):
    """The folder of one study."""

    def __init__(self, folder: Path, setup: Setup, who: Identity) -> None:
        """Point at a folder; nothing is read or written yet."""
        super().__init__(folder, "study", who)
        self.setup = setup
        self.batch: int = who["batch"]
        self._digest = digest_of(who)
        self._single: Path | None = None
        """The file of all rows, once they are joined or where they were before; None while there are shards alone."""
        self._homes: dict[int, Path] = {}
        """First rows of the batches that are stored, each with the file that holds it."""
        self._waiting: list[Rows] = []
        self._opened_s = self._written_s = time.monotonic()
        self._staged: Staged | None = None
        self._read = functools.lru_cache(maxsize=_TABLES_KEPT)(self._checked_shard)

    def open(self, *, resume: bool, restart: bool) -> None:
        """Prepare the folder: new, continued, or cleared of an earlier study."""
        super().open(resume=resume, restart=restart)
        if resume:
            self._take_in_single()
            for path in sorted(self.shards.glob("*.parquet")):
                self._take_in_shard(path)

    def _take_in_single(self) -> None:
        """Take in the rows of a finished study that is this one, unless their hash is not the manifest's."""
        if self.finished_identity() != self.identity:
            return
        manifest = read_json(self.folder / MANIFEST)
        if not _is_intact(self.folder / SINGLE, manifest):
            self.notes.append(f"{self.folder / SINGLE} is damaged; its replications are run again")
            return
        self._single = self.folder / SINGLE
        rows = self._rows_in_single()
        self._homes = dict.fromkeys(range(0, rows // self.batch * self.batch, self.batch), self._single)
        for row, _, message in list(self.errors(rows)):
            if message.startswith(NOT_RUN):
                self._homes.pop(row // self.batch * self.batch, None)

    def _take_in_shard(self, path: Path) -> None:
        """Take in a shard's batches, or set it aside."""
        try:
            table = self._read(path)
        except ValueError as error:
            path.replace(path.with_name(f"{path.name}.bad"))
            self.notes.append(f"{path} {error}; it is set aside, and its replications are run again")
            return
        per_batch = self.batch * len(self.setup.scenarios)
        for place, first in enumerate(self._batches_in(table)):
            messages = table.column("error").slice(place * per_batch, per_batch).drop_null().to_pylist()
            if not any(message.startswith(NOT_RUN) for message in messages):
                self._homes[first] = path

    def _checked_shard(self, path: Path) -> pa.Table:
        """Return a shard; raise ValueError where it is damaged or another study's."""
        import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that only a study needs
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        content = path.read_bytes()
        if _shard_sum(content) != path.stem.rpartition("-")[2]:
            raise ValueError("is damaged")
        try:
            table = pq.read_table(io.BytesIO(content))
        except (OSError, pa.ArrowException):
            raise ValueError("is no shard") from None
        if (table.schema.metadata or {}).get(b"study") != self._digest.encode():
            raise ValueError("belongs to another study")
        scenarios = len(self.setup.scenarios)
        rows = table.column("replication").to_numpy() if table.schema.equals(schema_of(self.setup)) else np.array([-1])
        firsts = rows[:: self.batch * scenarios]
        wanted = (firsts[:, None] + np.repeat(np.arange(self.batch), scenarios)).ravel()
        if np.any(firsts % self.batch) or np.any(firsts < 0) or not np.array_equal(rows, wanted):
            raise ValueError("does not hold whole batches of rows")
        return table

    def finished_rows(self) -> int:
        """Return the replications of a study that is finished and is this one; raise where it is neither."""
        settle(self.folder)
        manifest = read_json(self.folder / MANIFEST)
        before = self.finished_identity()
        if before is None:
            message = "holds no finished study"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint="run planner montecarlo first"))
        self.check_same(before, "run planner montecarlo again")
        if not _is_intact(self.folder / SINGLE, manifest):
            message, hint = "has changed since planner wrote it", "run planner montecarlo with --resume, which mends it"
            raise ScenarioError(Problem(file=str(self.folder / SINGLE), message=message, hint=hint))
        self._single = self.folder / SINGLE
        return self._rows_in_single()

    def check_extends(self, rows: int) -> None:
        """Refuse to leave a finished study with fewer replications than it has."""
        if (held := self._rows_in_single()) > rows:
            self.close()
            message = f"holds {held:,} finished replications, more than the {rows:,} asked for"
            hint = "ask for more, or leave out --resume to begin anew"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def finished(self) -> list[tuple[int, int]]:
        """Return the batches that are stored, in order."""
        return [(first, first + self.batch) for first in sorted(self._homes)]

    def batches(self, rows: int) -> list[tuple[int, int]]:
        """Return the batches that a number of rows needs; the last may hold more."""
        return [(first, first + self.batch) for first in range(0, rows, self.batch)]

    def write(self, rows: Rows) -> None:
        """Take one batch, and write a shard where enough of them wait or have waited long enough."""
        self._waiting.append(rows)
        now = time.monotonic()
        longest_s = min(_SHARD_S, _SHARD_SHARE * (now - self._opened_s))
        if len(self._waiting) * self.batch >= SHARD_ROWS or now - self._written_s >= longest_s:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a shard; once this returns it is on the disk."""
        if not self._waiting:
            return
        waiting, self._waiting = sorted(self._waiting, key=lambda rows: rows.first), []
        try:
            path = write_shard(self.shards, self.setup, waiting, self._digest)
        except OSError as error:
            raise self.unwritable(error) from None
        self._homes.update(dict.fromkeys((rows.first for rows in waiting), path))
        self._written_s = time.monotonic()

    def consolidate(self, rows: int) -> None:
        """Lay the first rows of all shards into one file, of the folder that will take this one's place."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        self.flush()
        try:
            self._staged = Staged(self.folder)
            path = self._staged.path / SINGLE
            with pq.ParquetWriter(path, schema_of(self.setup), **WRITING) as writer:
                for table in self._in_groups(rows):
                    writer.write_table(table, row_group_size=_ROW_GROUP)
            self._staged.add(SINGLE)
        except OSError as error:
            self.discard()
            raise self.unwritable(error) from None
        self._single, self._homes = path, {}

    @property
    def staged(self) -> Staged:
        """The folder in the making, once rows are joined."""
        assert self._staged is not None
        return self._staged

    def commit(self, manifest: dict[str, Any]) -> None:
        """Put the new folder in the place of this one, shards and all, and let others write to it."""
        check_target(self.folder, work=True)  # what somebody laid into it in the meantime is not swept away
        try:
            self.staged.commit(manifest)
        except OSError as error:
            raise self.unwritable(error) from None
        self._single = self.folder / SINGLE
        self.close()

    def discard(self) -> None:
        """Give up a folder in the making; the shards stay."""
        if self._staged is not None:
            self._staged.discard()

    def _in_groups(self, rows: int) -> Iterator[pa.Table]:
        """Yield the rows in order in tables of one row group each."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        wanted = rows * len(self.setup.scenarios)
        held: list[pa.Table] = []
        count = taken = 0
        for table in self._tables():
            table = table.slice(0, min(len(table), wanted - taken))  # noqa: PLW2901 - the rest of it is not wanted
            taken += len(table)
            held.append(table)
            count += len(table)
            while count >= _ROW_GROUP:
                joined = pa.concat_tables(held)
                yield joined.slice(0, _ROW_GROUP).combine_chunks()
                held, count = [joined.slice(_ROW_GROUP)], count - _ROW_GROUP
            if taken == wanted:
                break
        if count:
            yield pa.concat_tables(held).combine_chunks()

    def _tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield what is stored in order of rows, whole batches at a time: runs of them that lie in one file."""
        per_batch = self.batch * len(self.setup.scenarios)
        for path, firsts in itertools.groupby(sorted(self._homes), key=self._homes.__getitem__):
            if path == self._single:
                for run in _runs(list(firsts), self.batch):
                    first, last = run[0] // self.batch * per_batch, (run[-1] // self.batch + 1) * per_batch
                    yield from self._slices(first, last, columns)
                continue
            try:
                table = self._read(path)
            except ValueError as error:
                problem = Problem(file=str(path), message=str(error), hint="add --resume to run its replications again")
                raise ScenarioError(problem) from None
            places = {first: place for place, first in enumerate(self._batches_in(table))}
            for first in firsts:
                part = table.slice(places[first] * per_batch, per_batch)
                yield part if columns is None else part.select(columns)

    def _batches_in(self, shard: pa.Table) -> list[int]:
        """Return the first rows of a shard's batches, in the order in which it holds them."""
        firsts: list[int] = shard.column("replication").to_numpy()[:: self.batch * len(self.setup.scenarios)].tolist()
        return firsts

    def _slices(self, first: int, last: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield a range of rows of the whole file's table, row group by row group.

        Arrow's own iterator reads far ahead, half a gigabyte in a study of 64,000 replications.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        with pq.ParquetFile(self._single) as file:
            begin = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                low, high = max(first, begin), min(last, begin + count)
                if low < high:
                    table = file.read_row_group(group, columns=None if columns is None else list(columns))
                    yield table.slice(low - begin, high - low)
                begin += count

    def _pruned(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the wanted columns of all that is stored: of the shards while there are any, else of the whole file."""
        if self._homes:
            return self._tables(columns)
        return self._slices(0, self._rows_in_single() * len(self.setup.scenarios), columns)

    def _stored(self) -> int:
        """Return how many rows of the table ``_pruned`` yields."""
        rows = len(self._homes) * self.batch if self._homes else self._rows_in_single()
        return rows * len(self.setup.scenarios)

    def column(self, name: str, rows: int | None = None) -> Floats:
        """Return one column of what is stored, shape (rows, scenarios); of the whole file, or of the shards before."""
        joined = np.empty(self._stored())
        first = 0
        for table in self._pruned([name]):
            joined[first : first + len(table)] = table.column(name).to_numpy()
            first += len(table)
        shaped = joined[:first].reshape(-1, len(self.setup.scenarios))
        return shaped if rows is None else shaped[:rows]

    def errors(self, rows: int) -> Iterator[tuple[int, int, str]]:
        """Yield row, scenario and message of each run of the whole file that failed, in order."""
        first, per_row = 0, len(self.setup.scenarios)
        for table in self._slices(0, rows * per_row, ["error"]):
            for place in np.flatnonzero(table.column("error").is_valid().to_numpy()).tolist():
                row, scenario = divmod(first + place, per_row)
                yield row, scenario, table.column("error")[place].as_py()
            first += len(table)

    def parts(self, rows: int) -> Iterator[pa.Table]:
        """Yield the whole file in order, at most so many rows of the table at a time."""
        for table in self._slices(0, self._rows_in_single() * len(self.setup.scenarios)):
            for first in range(0, len(table), rows):
                yield table.slice(first, rows)

    def monthly(self, name: str, cluster: str, scenario: int, months: range) -> Floats:
        """Return some months of a monthly figure of one scenario's fleet or cluster, shape (rows, months)."""
        per_row = len(self.setup.scenarios)
        joined = np.empty((self._stored() // per_row, len(months)))
        first = passed = 0
        for table in self._pruned([month_column(name, cluster)]):
            flat = table.column(0).combine_chunks().flatten().to_numpy(zero_copy_only=False)
            # A row group may begin within a replication: three scenarios do not divide its rows.
            part = flat.reshape(-1, self.setup.months)[(scenario - passed) % per_row :: per_row]
            joined[first : first + len(part)] = part[:, months.start : months.stop]
            first += len(part)
            passed += len(table)
        return joined[:first]

    def _rows_in_single(self) -> int:
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        return 0 if self._single is None else int(pq.read_metadata(self._single).num_rows) // len(self.setup.scenarios)


def write_shard(folder: Path, setup: Setup, batches: Sequence[Rows], study: str) -> Path:
    """Write finished batches, in order of their rows, as one shard of a study; return it when it is on the disk."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    content = io.BytesIO()
    pq.write_table(table_of(setup, batches).replace_schema_metadata({"study": study}), content, **WRITING)
    name = f"{batches[0].first:08d}-{_shard_sum(content.getvalue())}.parquet"
    part = folder / f".{name}.part"
    try:
        write_synced(part, content.getvalue())
        part.replace(folder / name)
        sync(folder)
    finally:
        part.unlink(missing_ok=True)
    return folder / name


def _shard_sum(content: bytes) -> str:
    """Return what a shard's name ends in: 16 of the 64 digits of its hash, one chance in 10¹⁹ to miss a damage."""
    return hashlib.sha256(content).hexdigest()[:16]


def _is_intact(path: Path, manifest: dict[str, Any]) -> bool:
    """Say whether a file has the hash that the manifest lists."""
    listed = manifest.get("files")
    try:
        return isinstance(listed, dict) and sha256_of(path) == listed.get(path.name)
    except OSError:
        return False


def _runs(firsts: list[int], step: int) -> Iterator[list[int]]:
    """Yield the runs of numbers that follow each other without a gap."""
    begin = 0
    for place in range(1, len(firsts) + 1):
        if place == len(firsts) or firsts[place] != firsts[place - 1] + step:
            yield firsts[begin:place]
            begin = place
