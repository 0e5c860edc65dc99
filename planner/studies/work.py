"""Work that takes long and may be stopped: whose it is, whether it may go on, and the folder it becomes in the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from planner import files
from planner.errors import Problem, ScenarioError
from planner.studies.identity import Identity, differences

_KEPT = "make room and add --resume"
_LINES, _SYNC_S = "points.jsonl", 1.0


class Work:
    """A folder that one process fills; what is finished of its work lies in its folder ``shards`` until all is done.

    Earlier results in the folder stay as they are, and look finished, until the new ones take their place.
    """

    def __init__(self, folder: Path, kind: str, who: Identity) -> None:
        """Point at a folder; nothing is read or written yet."""
        self.folder, self.kind, self.identity = folder, kind, who
        self.notes: list[str] = []
        """What a user should know: a lock taken over, a damaged file."""
        self._lock: files.FolderLock | None = None

    @property
    def shards(self) -> Path:
        """Folder of what is finished."""
        return self.folder / files.WORK

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder and prepare it: new, continued, or with unfinished work thrown away."""
        self._refuse_older_format()
        files.check_target(self.folder, work=True)
        self._lock = files.FolderLock(self.folder)
        try:
            if self._lock.taken_from:
                self.notes.append(self._lock.taken_from)
            files.clear_up(self.folder)
            files.check_target(self.folder, work=True)
            self._prepare(resume=resume, restart=restart)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others write to the folder; where no work was finished, leave it as it was found."""
        if self._lock is None or not self._lock.release.alive:
            return
        if self.shards.is_dir() and all(path.name == files.OWNER for path in self.shards.iterdir()):
            shutil.rmtree(self.shards, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        self._lock.release()

    def _prepare(self, *, resume: bool, restart: bool) -> None:
        owner = files.read_json(self.shards / files.OWNER)
        begun = owner.get("identity")
        if resume:
            before = begun if begun is not None else self.finished_identity()
            if before is not None:
                self.check_same(before, "run it without --resume")
        elif begun is not None and not restart and any(path.name != files.OWNER for path in self.shards.iterdir()):
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

    def clear(self) -> None:
        """Throw unfinished work away; the file that says whose it is stays, to be replaced."""
        for path in self.shards.iterdir() if self.shards.is_dir() else ():
            if path.name != files.OWNER:
                path.unlink()

    def _refuse_older_format(self) -> None:
        """Recognise a study of the format before shards had checksums: its owner's file lay in the folder itself."""
        if files.read_json(self.folder / files.OWNER).get("product") == files.PRODUCT:
            message = f"holds a {self.kind} in the format of another version of planner, which this one cannot continue"
            hint = "choose another --out, or delete the folder"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def finished_identity(self) -> Identity | None:
        """Return what is finished in the folder; None where nothing of this kind is."""
        manifest = files.read_json(self.folder / files.MANIFEST)
        identity = manifest.get("identity")
        return identity if manifest.get("kind") == self.kind and isinstance(identity, dict) else None

    def check_same(self, before: Any, hint: str) -> None:
        """Refuse work that was begun on other terms."""
        changed = differences(before if isinstance(before, dict) else {}, self.identity)
        if changed:
            message = f"holds another version of this {self.kind}: {', '.join(changed)} changed"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def unwritable(self, error: OSError) -> ScenarioError:
        """Return the message for a disk that takes no more; what is finished stays."""
        message = f"cannot be written: {error.strerror or error}; finished work is kept"
        return ScenarioError(Problem(file=str(self.folder), message=message, hint=_KEPT))


class LinesWork(Work):
    """Work whose pieces are lines of a file, each with a hash of it, until all of them are done."""

    def __init__(self, folder: Path, kind: str, who: Identity) -> None:
        """Point at a folder; nothing is read or written yet."""
        super().__init__(folder, kind, who)
        self.lines: list[Any] = []
        """Pieces that were done before."""
        self._synced_s = 0.0

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and take in the pieces of work that was stopped."""
        super().open(resume=resume, restart=restart)
        path = self.shards / _LINES
        lines = path.read_bytes().splitlines() if path.exists() else []
        sound = [line for line in lines if _sum_of(line[17:]) == line[:16]]
        self.lines = [json.loads(line[17:]) for line in sound]
        if len(sound) < len(lines):
            self.notes.append(f"{path} has {len(lines) - len(sound)} damaged lines; their points are run again")
            files.replace_synced(path, b"".join(line + b"\n" for line in sound))

    def write(self, piece: Any) -> None:
        """Keep a piece; at most a second of them is not on the disk yet."""
        line = json.dumps(piece).encode()
        try:
            with (self.shards / _LINES).open("ab") as stream:
                stream.write(_sum_of(line) + b" " + line + b"\n")
                if time.monotonic() - self._synced_s > _SYNC_S:
                    stream.flush()
                    os.fsync(stream.fileno())
                    self._synced_s = time.monotonic()
        except OSError as error:
            raise self.unwritable(error) from None


def _sum_of(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest()[:16].encode()
