"""The result store: shards as they come, one file when all is done.

A shard holds one batch of rows and is renamed into place when it is whole, so a killed study leaves whole shards and
nothing else that counts. At the end they are laid into ``replications.parquet`` in order of rows, in row groups of a
fixed size: the same bytes whichever worker ran what, and however often the study was interrupted.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import Problem, ScenarioError
from planner.studies.identity import Identity, differences
from planner.studies.replicate import Rows, Setup
from planner.studies.stored_columns import schema_of, table_of

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
PRODUCT = "datacenter-planner"
STUDY, SHARDS, WHOLE, MANIFEST = "study.json", "shards", "replications.parquet", "manifest.json"
CLEARED = ".cleared.json"
"""The manifest of a finished study while its files are being removed or replaced."""
_ROW_GROUP = 8192


class Store:
    """The folder of one study."""

    def __init__(self, folder: Path, setup: Setup, who: Identity) -> None:
        """Point at a folder; nothing is read or written yet."""
        self.folder, self.setup, self.identity = folder, setup, who
        self.batch: int = who["batch"]

    def open(self, *, resume: bool, restart: bool) -> None:
        """Prepare the folder: new, continued, or cleared of an earlier study."""
        before = _read_json(self.folder / STUDY)
        is_ours = isinstance(before, dict) and before.get("product") == PRODUCT
        if is_ours and resume:
            if changed := differences(before["identity"], self.identity):
                message = f"holds another version of this study: {', '.join(changed)} changed"
                raise ScenarioError(Problem(file=str(self.folder), message=message, hint="run it without --resume"))
            if (self.folder / MANIFEST).exists():
                (self.folder / CLEARED).unlink(missing_ok=True)
            elif (self.folder / CLEARED).exists():
                self._clear(keep_rows=True)
        elif is_ours:
            rows = sum(last - first for first, last in self.finished())
            if rows and not (restart or (self.folder / MANIFEST).exists()):
                message = f"holds an unfinished study of {rows:,} replications"
                hint = "continue it with --resume, or begin anew with --restart"
                raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))
            self._clear()
        elif self.folder.is_dir() and any(path.name != _part_of(STUDY) for path in self.folder.iterdir()):
            message = "is not a study's folder, and will not be overwritten"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint="choose another --out"))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"product": PRODUCT, "kind": "study", "identity": self.identity}, indent=2) + "\n"
            self.replace(STUDY, text.encode())  # first: it says whose the folder is
            (self.folder / SHARDS).mkdir(exist_ok=True)
        except OSError as error:
            message = f"cannot be written: {error.strerror or error}"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint="choose another --out")) from None

    def finished_rows(self) -> int:
        """Return the replications of a study that is finished and is this one; raise where it is neither."""
        manifest = _read_json(self.folder / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("kind") != "study" or not (self.folder / WHOLE).exists():
            message = "holds no finished study"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint="run planner montecarlo first"))
        if changed := differences(manifest["identity"], self.identity):
            message = f"holds another version of this study: {', '.join(changed)} changed"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint="run planner montecarlo again"))
        return int(manifest["replications"])

    def check_extends(self, rows: int) -> None:
        """Refuse to leave a finished study with fewer replications than it has."""
        if (held := self._rows_in_whole()) > rows:
            with contextlib.suppress(OSError):
                (self.folder / SHARDS).rmdir()
            message = f"holds {held:,} finished replications, more than the {rows:,} asked for"
            hint = "ask for more, or leave out --resume to begin anew"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def unwritable(self, error: OSError) -> ScenarioError:
        """Return the message for a disk that takes no more; what is finished stays."""
        message = f"cannot be written: {error.strerror or error}; finished replications are kept"
        return ScenarioError(Problem(file=str(self.folder), message=message, hint="make room and add --resume"))

    def replace(self, name: str, content: bytes) -> None:
        """Write one file whole or not at all."""
        part = self.folder / _part_of(name)
        try:
            part.write_bytes(content)
            part.replace(self.folder / name)
        finally:
            part.unlink(missing_ok=True)

    def _clear(self, *, keep_rows: bool = False) -> None:
        """Remove what an earlier study wrote here, but for its replications where those are kept, and nothing else.

        Killed at any moment, it leaves a folder that does not look finished and is known to be a study's: the manifest
        goes out of sight first and is read by the next that clears, and the study's own file stays to be replaced.
        """
        self.unfinish()
        manifest = _read_json(self.folder / CLEARED)
        known = manifest.get("files", {}) if isinstance(manifest, dict) else {}
        kept = {STUDY, WHOLE} if keep_rows else {STUDY}
        for name in {*known, WHOLE} - kept:
            if not Path(name).is_absolute() and ".." not in Path(name).parts:
                (self.folder / name).unlink(missing_ok=True)
        for within in {Path(name).parent for name in known} - {Path()}:
            with contextlib.suppress(OSError):  # it is not there, or holds something that is not ours
                (self.folder / within).rmdir()
        if not keep_rows:
            shutil.rmtree(self.folder / SHARDS, ignore_errors=True)
        (self.folder / CLEARED).unlink(missing_ok=True)

    def unfinish(self) -> None:
        """Take the manifest out of sight, so that the folder does not look finished while its files change."""
        if (self.folder / MANIFEST).exists():
            (self.folder / MANIFEST).replace(self.folder / CLEARED)

    def finish(self, manifest: bytes) -> None:
        """Write the manifest, which says that every other file is whole."""
        self.replace(MANIFEST, manifest)
        (self.folder / CLEARED).unlink(missing_ok=True)

    def finished(self) -> list[tuple[int, int]]:
        """Return the batches that are stored, whole file and shards together, in order."""
        found = set()
        whole = self._rows_in_whole() // self.batch * self.batch
        found |= {(first, first + self.batch) for first in range(0, whole, self.batch)}
        for path in sorted((self.folder / SHARDS).glob("*.parquet")):
            first, last = map(int, path.stem.split("-"))
            if last - first == self.batch and first % self.batch == 0 and self._is_whole(path):
                found.add((first, last))
        return sorted(found)

    def batches(self, rows: int) -> list[tuple[int, int]]:
        """Return the batches that a number of rows needs; the last may hold more."""
        return [(first, first + self.batch) for first in range(0, rows, self.batch)]

    def write(self, rows: Rows) -> None:
        """Store one batch."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - a tenth of a second that only a study needs

        path = self.folder / SHARDS / f"{rows.first:08d}-{rows.last:08d}.parquet"
        part = path.with_suffix(".part")
        try:
            pq.write_table(table_of(self.setup, rows), part)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise self.unwritable(error) from None

    def consolidate(self, rows: int) -> None:
        """Lay the first rows of all shards into one file, and remove the shards."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        part = self.folder / f".{WHOLE}.part"
        if self._rows_in_whole() != rows:
            self.unfinish()
        try:
            with pq.ParquetWriter(part, schema_of(self.setup)) as writer:
                for table in self._in_groups(rows):
                    writer.write_table(table, row_group_size=_ROW_GROUP)
            part.replace(self.folder / WHOLE)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise self.unwritable(error) from None
        shutil.rmtree(self.folder / SHARDS, ignore_errors=True)

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

    def _tables(self) -> Iterator[pa.Table]:
        """Yield stored tables in order of rows: the whole file's finished batches, then shards beyond them."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        per_row = len(self.setup.scenarios)
        whole = self._rows_in_whole() // self.batch * self.batch
        left = whole * per_row
        if whole:
            with pq.ParquetFile(self.folder / WHOLE) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    yield table.slice(0, max(min(len(table), left), 0))
                    left -= len(table)
        for first, last in self.finished():
            if first >= whole:
                yield pq.read_table(self.folder / SHARDS / f"{first:08d}-{last:08d}.parquet")

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
        """Yield row, scenario and message of each run that failed, in order."""
        first, per_row = 0, len(self.setup.scenarios)
        for table in self._pruned(["error"]):
            for place in np.flatnonzero(table.column("error").is_valid().to_numpy()).tolist():
                row, scenario = divmod(first + place, per_row)
                if row < rows:
                    yield row, scenario, table.column("error")[place].as_py()
            first += len(table)

    def parts(self, rows: int) -> Iterator[pa.Table]:
        """Yield the finished study in order, at most so many rows of the table at a time.

        Row group by row group: Arrow's own iterator reads far ahead, half a gigabyte in a study of 64,000 replications.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        with pq.ParquetFile(self.folder / WHOLE) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                for first in range(0, len(table), rows):
                    yield table.slice(first, rows)

    def monthly(self, name: str, scenario: int, months: range) -> Floats:
        """Return some months of a monthly figure of one scenario, shape (rows, months)."""
        per_row = len(self.setup.scenarios)
        joined = np.empty((self._stored() // per_row, len(months)))
        first = 0
        for table in self._pruned([f"month:{name}"]):
            flat = table.column(0).combine_chunks().flatten().to_numpy(zero_copy_only=False)
            part = flat.reshape(-1, per_row, self.setup.months)[:, scenario, months.start : months.stop]
            joined[first : first + len(part)] = part
            first += len(part)
        return joined[:first]

    def _pruned(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the wanted columns of the whole file row group by row group; of the shards where there is none."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        if not self._is_joined():
            for table in self._tables():
                yield table.select(columns)
            return
        with pq.ParquetFile(self.folder / WHOLE) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=list(columns))

    def _is_joined(self) -> bool:
        """Say whether all that is stored is in the whole file."""
        return (self.folder / WHOLE).exists() and not any((self.folder / SHARDS).glob("*.parquet"))

    def _stored(self) -> int:
        """Return how many rows of the table ``_pruned`` yields."""
        per_row = len(self.setup.scenarios)
        if not self._is_joined():
            return len(self.finished()) * self.batch * per_row
        return self._rows_in_whole() * per_row

    def _rows_in_whole(self) -> int:
        path = self.folder / WHOLE
        return _row_count(path) // len(self.setup.scenarios) if path.exists() else 0

    def _is_whole(self, path: Path) -> bool:
        return _row_count(path) == self.batch * len(self.setup.scenarios)


def _part_of(name: str) -> str:
    """Return the name under which a file is written until it is whole."""
    return f".{Path(name).name}.part"


def _row_count(path: Path) -> int:
    """Return a Parquet file's rows; 0 for one that a lost machine left unreadable."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return 0


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
