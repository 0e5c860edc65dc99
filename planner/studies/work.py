"""Long work that can be interrupted and resumed: its identity, its lock and its folder.

Work is the same work where hashes of all that decides its numbers agree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner import files
from planner.catalog.calibration import SHIPPED_CALIBRATION
from planner.errors import Problem, ScenarioError
from planner.scenario.scenario import Scenario
from planner.studies.inputs import UncertainInputs
from planner.version import __version__, code_sha256

Identity = dict[str, Any]
FORMAT = 2
"""Of the store: 1 was study.json beside shards without checksums."""
_TOLD_BY = {
    "study": "the study file",
    "version": "the planner's version",
    "code": "the planner's code",
    "format": "the format of the store",
    "vary": "what is varied",
    "detailed": "detailed_replications",
}
_LINES = "points.jsonl"
_SYNC_S = 1.0


def scenario_identity(scenarios: Mapping[str, Scenario]) -> Identity:
    """Return the hashes that determine the runs of scenarios: planner, catalogue, scenarios and their files."""
    return {
        "format": FORMAT,
        "version": __version__,
        "code": code_sha256(),
        "calibration": hashlib.sha256(SHIPPED_CALIBRATION.read_bytes()).hexdigest(),
        "catalogue": digest_of(
            [scenario.load_catalog().model_dump(mode="json") for scenario in scenarios.values()]
        ),
        "scenarios": {
            name: digest_of(scenario.model_dump(mode="json", by_alias=True, exclude={"extends"}))
            for name, scenario in scenarios.items()
        },
        "files": {
            f"{name}: {Path(path).name}": hashlib.sha256(content).hexdigest()
            for name, scenario in scenarios.items()
            for path, content in sorted(scenario.document.files.items())
        },
    }


def inputs_identity(inputs: UncertainInputs, design: object = None) -> str:
    """Return the hash of the uncertain inputs, and of the design where given."""
    return digest_of(
        [*(plain(drawn) for drawn in inputs.entries), *([] if design is None else [plain(design)])]
    )


def plain(part: Any) -> Any:
    """Return a dataclass as plain data, with models as their content."""
    if dataclasses.is_dataclass(part):
        return {field.name: plain(getattr(part, field.name)) for field in dataclasses.fields(part)}
    if hasattr(part, "model_dump"):
        return {"model": type(part).__name__, **part.model_dump(mode="json")}
    return list(map(plain, part)) if isinstance(part, tuple) else part


def digest_of(content: Any) -> str:
    """Return the hash of plain data, such as an identity or a part of it."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def differences(stored: Identity, wanted: Identity) -> list[str]:
    """Return in words the differences between two identities, one of which was read from a file."""
    changed = [
        _TOLD_BY.get(key, f"the {key}")
        for key in wanted
        if key not in ("scenarios", "files") and stored.get(key) != wanted[key]
    ]
    # A file may have been written by anybody.
    before, read = (
        named if isinstance(named := stored.get(key), dict) else {}
        for key in ("scenarios", "files")
    )
    now = wanted["scenarios"]
    reads = wanted["files"]
    if list(before) != list(now):
        changed.append(f"the scenarios ({', '.join(before)} before)")
    changed += [f"scenario {name}" for name in now if name in before and before[name] != now[name]]
    return changed + [
        f"the file {name}" for name in {**read, **reads} if read.get(name) != reads.get(name)
    ]


class Work:
    """A folder that one process fills; finished pieces lie in its folder ``shards`` until all are done.

    Earlier results in the folder stay as they are, and look finished, until the new ones take their place.
    """

    def __init__(self, folder: Path, kind: str, who: Identity) -> None:
        """Set the folder; nothing is read or written yet."""
        self.folder = folder
        self.kind = kind
        self.identity = who
        self.notes: list[str] = []
        """What a user should know: a lock taken over, a damaged file."""
        self._lock: files.FolderLock | None = None

    @property
    def shards(self) -> Path:
        """Folder of the finished pieces."""
        return self.folder / files.WORK

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder and prepare it: new, resumed, or cleared of unfinished work."""
        files.check_target(self.folder, work=True)
        self._lock = files.FolderLock(self.folder)
        try:
            if self._lock.taken_from:
                self.notes.append(self._lock.taken_from)
            files.clear_up(self.folder)
            files.check_target(self.folder, work=True)
            owner = files.read_json(self.shards / files.OWNER)
            begun = owner.get("identity")
            if resume:
                before = begun if begun is not None else self.finished_identity()
                if before is not None:
                    self.check_same(before, "run it without --resume")
            elif (
                begun is not None
                and not restart
                and any(path.name != files.OWNER for path in self.shards.iterdir())
            ):
                message = f"holds an unfinished {owner.get('kind', self.kind)}"
                hint = "continue it with --resume, or begin anew with --restart"
                raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))
            else:
                self.clear()
            try:
                self.shards.mkdir(parents=True, exist_ok=True)
                mine = {"product": files.PRODUCT, "kind": self.kind, "identity": self.identity}
                files.replace_synced(self.shards / files.OWNER, files.json_text(mine).encode())
            except OSError as error:
                raise files.unwritable(self.folder, error) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock; where nothing was finished, restore the folder to its earlier state."""
        if self._lock is None or not self._lock.release.alive:
            return
        if self.shards.is_dir() and all(path.name == files.OWNER for path in self.shards.iterdir()):
            shutil.rmtree(self.shards, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        self._lock.release()

    def clear(self) -> None:
        """Delete unfinished work, except for its identity file, which is replaced later."""
        for path in self.shards.iterdir() if self.shards.is_dir() else ():
            if path.name != files.OWNER:
                path.unlink()

    def finished_identity(self) -> Identity | None:
        """Return the identity of the finished work in the folder; None where it has none of this kind."""
        manifest = files.read_json(self.folder / files.MANIFEST)
        identity = manifest.get("identity")
        return (
            identity if manifest.get("kind") == self.kind and isinstance(identity, dict) else None
        )

    def check_same(self, before: Any, hint: str) -> None:
        """Raise an error where the folder's earlier work has another identity."""
        changed = differences(before if isinstance(before, dict) else {}, self.identity)
        if changed:
            message = f"holds another version of this {self.kind}: {', '.join(changed)} changed"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def unwritable(self, error: OSError) -> ScenarioError:
        """Return the error for a disk that cannot be written; finished pieces stay."""
        message = f"cannot be written: {error.strerror or error}; finished work is stored"
        return ScenarioError(
            Problem(file=str(self.folder), message=message, hint="make room and add --resume")
        )


class LinesWork(Work):
    """Work whose finished pieces are lines of a file, each with a hash."""

    def __init__(self, folder: Path, kind: str, who: Identity) -> None:
        """Set the folder; nothing is read or written yet."""
        super().__init__(folder, kind, who)
        self.lines: list[Any] = []
        """Pieces that were done before."""
        self._synced_s = 0.0

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and read the pieces of interrupted work."""
        super().open(resume=resume, restart=restart)
        path = self.shards / _LINES
        lines = path.read_bytes().splitlines() if path.exists() else []
        sound = [line for line in lines if short_sum(line[17:]).encode() == line[:16]]
        self.lines = [json.loads(line[17:]) for line in sound]
        if len(sound) < len(lines):
            self.notes.append(
                f"{path} has {len(lines) - len(sound)} damaged lines; their points are run again"
            )
            files.replace_synced(path, b"".join(line + b"\n" for line in sound))

    def write(self, piece: Any) -> None:
        """Store a piece; it reaches the disk within about a second."""
        line = json.dumps(piece).encode()
        try:
            with (self.shards / _LINES).open("ab") as stream:
                stream.write(short_sum(line).encode() + b" " + line + b"\n")
                if time.monotonic() - self._synced_s > _SYNC_S:
                    stream.flush()
                    os.fsync(stream.fileno())
                    self._synced_s = time.monotonic()
        except OSError as error:
            raise self.unwritable(error) from None


def short_sum(content: bytes) -> str:
    """Return the checksum of a finished piece: the first 16 digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]
