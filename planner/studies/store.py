"""The result store: shards as they come, one file when all is done.

A shard holds batches of rows as they were finished. It is written by one process, synced to the disk and renamed into
place when it is whole; its name ends in the hash of its bytes, and within it stands whose study it belongs to. So what
a killed study, a failing disk or another study left is known for what it is when it is read: a shard that does not
match its name, its study or its row numbers is set aside, and its rows are run again. At the end all rows are laid into
``replications.parquet`` in their order, those beyond the detailed ones into a file of their own (``joined.py``): the
same bytes whichever worker ran what, and however often the study was interrupted.
"""

from __future__ import annotations

import functools
import hashlib
import io
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.disk import sync, write_synced
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, Staged, check_target, read_json, settle, sha256_of
from planner.studies.identity import Identity, digest_of
from planner.studies.merge import FURTHER, JOINED, SINGLE, Joined, write_joined
from planner.studies.replicate import NOT_RUN, Rows, Setup
from planner.studies.shard_index import Homes, Numbers
from planner.studies.stored_columns import WRITING, schema_of, stored_bytes, table_of
from planner.studies.work import Work

if TYPE_CHECKING:
    import pyarrow as pa


SHARD_ROWS = 512
"""Replications that fill a shard; eight times as many where they have no months."""
_WITHOUT_MONTHS = 8
_SHARD_S, _SHARD_SHARE = 5.0, 0.1
"""A shard is written before it is full after this many seconds, or this share of the time since the study was opened:
what a kill can cost, and a bound on the number of small shards."""
_TABLES_KEPT = 8


class Store(Work):
    """The folder of one study."""

    def __init__(self, folder: Path, setup: Setup, who: Identity) -> None:
        """Point at a folder; nothing is read or written yet."""
        super().__init__(folder, "study", who)
        self.setup = setup
        self.batch: int = who["batch"]
        self._detailed_batches = -(-setup.detailed_rows // self.batch)
        self._digest = digest_of(who)
        self._joined: Joined | None = None
        """All rows, once they are joined or where they were before; None while there are shards alone."""
        self._homes = Homes()
        """The file that holds each batch; of joined rows the first of their files."""
        self._waiting: list[Rows] = []
        self._opened_s = self._written_s = time.monotonic()
        self._staged: Staged | None = None
        self._read = functools.lru_cache(maxsize=_TABLES_KEPT)(self._checked_shard)

    @property
    def joined(self) -> Joined:
        """All rows of a finished study."""
        assert self._joined is not None
        return self._joined

    def open(self, *, resume: bool, restart: bool) -> None:
        """Prepare the folder: new, continued, or cleared of an earlier study."""
        super().open(resume=resume, restart=restart)
        if resume:
            self._take_in_joined()
            for path in sorted(self.shards.glob("*.parquet")):
                self._take_in_shard(path)

    def _take_in_joined(self) -> None:
        """Take in the rows of a finished study that is this one, up to a file whose hash is not the manifest's."""
        if self.finished_identity() != self.identity:
            return
        listed, intact = _sums(read_json(self.folder / MANIFEST)), []
        for path in (self.folder / name for name in JOINED if name in listed or name == SINGLE):
            if not _is_intact(path, listed):
                self.notes.append(f"{path} is damaged; its replications are run again")
                break
            intact.append(path)
        if not intact:
            return
        self._joined = Joined(intact, self.setup)
        rows = self._joined.rows
        self._homes.put(np.arange(rows // self.batch), intact[0])
        for row, _, message in list(self._joined.errors(rows)):
            if message.startswith(NOT_RUN) and row // self.batch < rows // self.batch:
                self._homes.remove(row // self.batch)

    def _take_in_shard(self, path: Path) -> None:
        """Take in a shard's batches, or set it aside."""
        try:
            table = self._read(path, ("replication", "error"))
        except ValueError as error:
            path.replace(path.with_name(f"{path.name}.bad"))
            self.notes.append(f"{path} {error}; it is set aside, and its replications are run again")
            return
        errors = table.column("error")
        per_batch = self.batch * len(self.setup.scenarios)
        again = {
            place // per_batch
            for place in np.flatnonzero(errors.is_valid().to_numpy()).tolist()
            if errors[place].as_py().startswith(NOT_RUN)
        }
        self._homes.put(np.delete(self._numbers_in(table), sorted(again)), path)

    def _checked_shard(self, path: Path, columns: tuple[str, ...] | None = None) -> pa.Table:
        """Return a shard, or some of its columns; raise ValueError where it is damaged or another study's."""
        import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that only a study needs
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        content = path.read_bytes()
        if _shard_sum(content) != path.stem.rpartition("-")[2]:
            raise ValueError("is damaged")
        try:
            file = pq.ParquetFile(io.BytesIO(content))
            schema = file.schema_arrow
            table = file.read(columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException):
            raise ValueError("is no shard") from None
        if (schema.metadata or {}).get(b"study") != self._digest.encode():
            raise ValueError("belongs to another study")
        rows = table.column("replication").to_numpy() if "replication" in table.column_names else np.array([-1])
        firsts = rows[:: self.batch * len(self.setup.scenarios)]
        wanted = (firsts[:, None] + np.repeat(np.arange(self.batch), len(self.setup.scenarios))).ravel()
        detailed = {self.setup.is_detailed(first) for first in firsts.tolist()}
        if (
            np.any(firsts % self.batch)
            or np.any(firsts < 0)
            or not np.array_equal(rows, wanted)
            or len(detailed) > 1
            or not schema.equals(schema_of(self.setup, detailed=True in detailed))
        ):
            raise ValueError("does not hold whole batches of rows")
        return table

    def finished_rows(self) -> int:
        """Return the replications of a study that is finished and is this one; raise where it is neither."""
        settle(self.folder)
        listed = _sums(read_json(self.folder / MANIFEST))
        before = self.finished_identity()
        if before is None:
            message = "holds no finished study"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint="run planner montecarlo first"))
        self.check_same(before, "run planner montecarlo again")
        paths = [self.folder / name for name in JOINED if name in listed or name == SINGLE]
        for path in paths:
            if not _is_intact(path, listed):
                hint = "run planner montecarlo with --resume, which mends it"
                raise ScenarioError(Problem(file=str(path), message="has changed since planner wrote it", hint=hint))
        self._joined = Joined(paths, self.setup)
        return self._joined.rows

    def check_extends(self, rows: int) -> None:
        """Refuse to leave a finished study with fewer replications than it has."""
        if (held := 0 if self._joined is None else self._joined.rows) > rows:
            self.close()
            message = f"holds {held:,} finished replications, more than the {rows:,} asked for"
            hint = "ask for more, or leave out --resume to begin anew"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def short_of_disk(self, rows: int) -> list[str]:
        """Return a note where the disk has no room for so many rows, which lie there twice while they are joined."""
        stored = min(len(self._homes.numbers()) * self.batch, rows)
        needed = 2 * stored_bytes(self.setup, rows) - stored_bytes(self.setup, stored)
        free = shutil.disk_usage(self.folder).free
        if needed <= free:
            return []
        gigabytes = f"{needed / 1e9:,.1f} GB to be written and joined, and {free / 1e9:,.1f} GB are free"
        return [f"{self.folder} needs about {gigabytes}; fewer replications need less, or fewer detailed_replications"]

    def finished(self) -> Numbers:
        """Return the numbers of the batches that are stored, in order."""
        return self._homes.numbers()

    def write(self, rows: Rows) -> None:
        """Take one batch, and write a shard where enough of them wait or have waited long enough."""
        self._waiting.append(rows)
        now = time.monotonic()
        longest_s = min(_SHARD_S, _SHARD_SHARE * (now - self._opened_s))
        full = SHARD_ROWS if self.setup.is_detailed(self._waiting[0].first) else _WITHOUT_MONTHS * SHARD_ROWS
        if len(self._waiting) * self.batch >= full or now - self._written_s >= longest_s:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a shard, or as two where some of it has months; once this returns it is on the disk."""
        waiting, self._waiting = sorted(self._waiting, key=lambda rows: rows.first), []
        for detailed in (True, False):
            batches = [rows for rows in waiting if self.setup.is_detailed(rows.first) == detailed]
            if not batches:
                continue
            try:
                path = write_shard(self.shards, self.setup, batches, self._digest)
            except OSError as error:
                raise self.unwritable(error) from None
            self._homes.put(np.array([rows.first for rows in batches]) // self.batch, path)
            self._written_s = time.monotonic()

    def consolidate(self, rows: int) -> None:
        """Lay the first rows of all shards into files of the folder that will take this one's place."""
        self.flush()
        detailed = min(rows, self._detailed_batches * self.batch)
        ranges = {SINGLE: (0, detailed), FURTHER: (detailed, rows)}
        try:
            self._staged = Staged(self.folder)
            written = [name for name, (first, last) in ranges.items() if name == SINGLE or first < last]
            for name in written:
                tables = self._first_rows(*ranges[name])
                write_joined(self._staged.path / name, self.setup, tables, detailed=name == SINGLE)
                self._staged.add(name)
        except OSError as error:
            self.discard()
            raise self.unwritable(error) from None
        self._joined = Joined([self._staged.path / name for name in written], self.setup)
        self._homes.clear()
        self._read.cache_clear()

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
        self._joined = Joined([self.folder / path.name for path in self.joined.paths], self.setup)
        self.close()

    def discard(self) -> None:
        """Give up a folder in the making; the shards stay."""
        if self._staged is not None:
            self._staged.discard()

    def _first_rows(self, first: int, last: int) -> Iterator[pa.Table]:
        """Yield a range of rows that begins with a batch, and may end within one."""
        left = (last - first) * len(self.setup.scenarios)
        for table in self.tables(None, first // self.batch, -(-last // self.batch)):
            yield table.slice(0, left)
            left -= min(left, len(table))

    def tables(
        self, columns: tuple[str, ...] | None = None, first: int = 0, last: int | None = None
    ) -> Iterator[pa.Table]:
        """Yield what is stored of a range of batches in order, as much at a time as follows each other in one file."""
        per_batch = self.batch * len(self.setup.scenarios)
        for path, numbers in self._homes.runs(first, last):
            if self._joined is not None and path == self._joined.paths[0]:
                for run in _runs(numbers):
                    yield from self._joined.tables(run[0] * self.batch, (run[-1] + 1) * self.batch, columns)
                continue
            try:
                table = self._read(path, columns)
            except ValueError as error:
                problem = Problem(file=str(path), message=str(error), hint="add --resume to run its replications again")
                raise ScenarioError(problem) from None
            held = self._numbers_in(table)
            order = np.argsort(held)
            for run in _runs(order[np.searchsorted(held, numbers, sorter=order)]):
                yield table.slice(run[0] * per_batch, len(run) * per_batch)

    def _numbers_in(self, shard: pa.Table) -> Numbers:
        """Return the numbers of a shard's batches, in the order in which it holds them."""
        firsts = shard.column("replication").to_numpy()[:: self.batch * len(self.setup.scenarios)]
        return np.asarray(firsts // self.batch, dtype=np.int64)


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


def _sums(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the hashes of files that a manifest lists."""
    listed = manifest.get("files")
    return listed if isinstance(listed, dict) else {}


def _is_intact(path: Path, listed: dict[str, Any]) -> bool:
    """Say whether a file has the hash that is listed."""
    try:
        return bool(sha256_of(path) == listed.get(path.name))
    except OSError:
        return False


def _runs(numbers: Numbers) -> list[Numbers]:
    """Return the runs of numbers that follow each other without a gap."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
