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
FORMAT = 3
"""Of the store: 1 was study.json beside shards without checksums, 2 had the study's name within."""
_IN_WORDS = {
    "study": "the study file",
    "version": "the planner's version",
    "code": "the planner's code",
    "format": "the format of the store",
    "vary": "what is varied",
    "detailed": "detailed_replications",
}
"""Parts of an identity as a message names them, where that is not "the" and their key."""
_NOUNS = {"scenarios": "scenario", "files": "the file"}
"""Parts of an identity that are hashes by name, with what a message calls one of them."""
_LINES = "points.jsonl"
"""File of finished pieces that are lines."""
_SYNC_S = 1.0
"""Seconds after which lines reach the disk: what a power failure can cost."""
_SUM_DIGITS = 16
"""Hexadecimal digits of a checksum: 64 bits, beyond which no accident is likely."""


def scenario_identity(scenarios: Mapping[str, Scenario]) -> Identity:
    """Return the hashes that determine the runs of scenarios: planner, catalogue, scenarios and their files."""
    catalogs = []
    hashes: dict[str, str] = {}
    files_read: dict[str, str] = {}
    for name, scenario in scenarios.items():
        catalog = scenario.load_catalog()
        catalogs.append(catalog.model_dump(mode="json"))
        # What a scenario extends is merged into it, so where that lies decides nothing.
        stated = scenario.model_dump(mode="json", by_alias=True, exclude={"extends"})
        hashes[name] = digest_of(stated)
        # By name alone: a folder that moved holds the same work.
        for path, content in sorted(scenario.document.files.items()):
            label = f"{name}: {Path(path).name}"
            files_read[label] = hashlib.sha256(content).hexdigest()
    return {
        "format": FORMAT,
        "version": __version__,
        "code": code_sha256(),
        "calibration": files.sha256_of(SHIPPED_CALIBRATION),
        "catalogue": digest_of(catalogs),
        "scenarios": hashes,
        "files": files_read,
    }


def inputs_identity(inputs: UncertainInputs, design: object = None) -> str:
    """Return the hash of the uncertain inputs, and of the design where given."""
    parts = [plain(entry) for entry in inputs.entries]
    if design is not None:
        parts.append(plain(design))
    return digest_of(parts)


def plain(part: Any) -> Any:
    """Return a dataclass as plain data, with models as their content."""
    if dataclasses.is_dataclass(part):
        names = [field.name for field in dataclasses.fields(part)]
        return {name: plain(getattr(part, name)) for name in names}
    if hasattr(part, "model_dump"):
        content = part.model_dump(mode="json")
        # Models of two kinds may have the same fields.
        return {"model": type(part).__name__, **content}
    if isinstance(part, tuple):
        return [plain(entry) for entry in part]
    return part


def digest_of(content: Any) -> str:
    """Return the hash of plain data, such as an identity or a part of it."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(stored: Identity, current: Identity) -> list[str]:
    """Return in words the differences between two identities, one of which was read from a file."""
    changed = []
    for key, part in current.items():
        stored_part = stored.get(key)
        if isinstance(part, dict) and key in _NOUNS:
            # A file may have been written by anybody: what it holds may be of any kind.
            by_name = stored_part if isinstance(stored_part, dict) else {}
            all_names = by_name | part
            names = [name for name in all_names if by_name.get(name) != part.get(name)]
            changed += [f"{_NOUNS[key]} {name}" for name in names]
            if not names and list(by_name) != list(part):
                changed.append(f"the order of the {key}")  # in which rows are stored
        elif stored_part != part:
            changed.append(_IN_WORDS.get(key, f"the {key}"))
    return changed


class Work:
    """A folder that one process fills; finished pieces lie in its folder ``shards`` until all are done.

    Earlier results in the folder stay as they are, and look finished, until the new ones take their
    place.
    """

    def __init__(self, folder: Path, kind: str, identity: Identity) -> None:
        """Set the folder; nothing is read or written yet."""
        self.folder = folder
        self.kind = kind
        self.identity = identity
        self.notes: list[str] = []
        """What a user should know: a lock taken over, a damaged file."""
        self.shards = folder / files.WORK
        """Folder of the finished pieces."""
        self._lock: files.FolderLock | None = None

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder and prepare it: new, resumed, or cleared of unfinished work."""
        files.check_target(self.folder, work=True)
        self._lock = files.FolderLock(self.folder)
        try:
            if self._lock.takeover_note:
                self.notes.append(self._lock.takeover_note)
            files.clear_up(self.folder)
            # Again, now that nobody else can write: what was checked above may have changed.
            files.check_target(self.folder, work=True)
            self._check_earlier_work(resume=resume, restart=restart)
            owner = {"product": files.PRODUCT, "kind": self.kind, "identity": self.identity}
            content = files.json_text(owner).encode()
            path = self.shards / files.OWNER
            try:
                self.shards.mkdir(parents=True, exist_ok=True)
                files.replace_synced(path, content)
            except OSError as error:
                raise files.unwritable(self.folder, error) from None
        except BaseException:
            self.close()
            raise

    def _check_earlier_work(self, *, resume: bool, restart: bool) -> None:
        """Raise an error where earlier work cannot be continued or may not be cleared; else clear it."""
        owner = files.read_json(self.shards / files.OWNER)
        unfinished = owner.get("identity")
        if resume:
            earlier = self.finished_identity() if unfinished is None else unfinished
            if earlier is not None:
                self._check_same(earlier)
            return
        is_unfinished = unfinished is not None and self._pieces()
        # A process that was killed before its first piece left nothing to lose.
        if is_unfinished and not restart:
            message = f"holds an unfinished {owner.get('kind', self.kind)}"
            hint = "continue it with --resume, or start again with --restart"
            raise self.refusal(message, hint)
        self.clear()

    def _pieces(self) -> list[Path]:
        """Return the files of finished pieces, not the one that says whose they are."""
        if not self.shards.is_dir():
            return []
        paths = self.shards.iterdir()
        return [path for path in paths if path.name != files.OWNER]

    def clear(self) -> None:
        """Delete finished pieces, but not the file that says whose they are: it is replaced later."""
        for path in self._pieces():
            path.unlink()

    def _check_same(self, earlier: Any) -> None:
        """Raise an error where the folder's earlier work has another identity."""
        # The file may have been written by anybody: it may hold no identity at all.
        stored = earlier if isinstance(earlier, dict) else {}
        changed = differences(stored, self.identity)
        if changed:
            message = f"holds another version of this {self.kind}: {', '.join(changed)} changed"
            hint = "run it without --resume"
            if self._pieces():
                hint = "start again with --restart"
            raise self.refusal(message, hint)

    def close(self) -> None:
        """Release the lock; where nothing was finished, restore the folder to its earlier state."""
        if self._lock is None or not self._lock.release.alive:
            return
        if not self._pieces():
            shutil.rmtree(self.shards, ignore_errors=True)
            with contextlib.suppress(OSError):  # it holds earlier results, or was never made
                self.folder.rmdir()
        self._lock.release()

    def finished_identity(self) -> Identity | None:
        """Return the identity of the finished work in the folder; None where it has none of this kind."""
        manifest = files.read_json(self.folder / files.MANIFEST)
        identity = manifest.get("identity")
        # A manifest may have been edited: what it calls an identity may be of any kind.
        if manifest.get("kind") != self.kind or not isinstance(identity, dict):
            return None
        return identity

    def unwritable(self, error: OSError) -> ScenarioError:
        """Return the error for a disk that cannot be written; finished pieces stay."""
        message = f"cannot be written: {error.strerror or error}; finished work is stored"
        hint = "make room and add --resume"
        return self.refusal(message, hint)

    def refusal(self, message: str, hint: str) -> ScenarioError:
        """Return an error that names the folder."""
        problem = Problem(file=str(self.folder), message=message, hint=hint)
        return ScenarioError(problem)


class LinesWork(Work):
    """Work whose finished pieces are lines of a file, each behind its checksum and a space."""

    def __init__(self, folder: Path, kind: str, identity: Identity) -> None:
        """Set the folder; nothing is read or written yet."""
        super().__init__(folder, kind, identity)
        self.lines: list[Any] = []
        """Pieces of interrupted work."""
        self._path = self.shards / _LINES
        self._synced_s = 0.0

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and read the pieces of interrupted work."""
        super().open(resume=resume, restart=restart)
        lines = []
        if self._path.exists():
            lines = self._path.read_bytes().splitlines()
        sound = []
        for line in lines:
            checksum, _, piece = line.partition(b" ")
            if short_sum(piece).encode() == checksum:
                sound.append(piece)
                self.lines.append(json.loads(piece))
        damaged = len(lines) - len(sound)
        if damaged:
            self.notes.append(
                f"{self._path} has {damaged} damaged lines; their points are run again"
            )
            # Also what a kill cut short: the next line would be written onto its end.
            content = b"".join(map(_line, sound))
            files.replace_synced(self._path, content)

    def write(self, piece: Any) -> None:
        """Store a piece; it reaches the disk within about a second."""
        try:
            with self._path.open("ab") as stream:
                content = json.dumps(piece).encode()
                stream.write(_line(content))
                # A sync takes milliseconds, and a point may take no longer.
                if time.monotonic() - self._synced_s > _SYNC_S:
                    stream.flush()
                    os.fsync(stream.fileno())
                    self._synced_s = time.monotonic()
        except OSError as error:
            raise self.unwritable(error) from None


def _line(piece: bytes) -> bytes:
    """Return a finished piece as a line behind its checksum."""
    checksum = short_sum(piece).encode()
    return checksum + b" " + piece + b"\n"


def short_sum(content: bytes) -> str:
    """Return the checksum of a finished piece: the first digits of its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    return digest[:_SUM_DIGITS]
