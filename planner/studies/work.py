"""Work that takes long and may be stopped: whose it is, whether it may go on, and the folder it becomes in the end."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError
from planner.files import (
    MANIFEST,
    OWNER,
    PRODUCT,
    WORK,
    FolderLock,
    check_target,
    clear_up,
    json_text,
    read_json,
    replace_synced,
    unwritable,
)
from planner.studies.identity import Identity, differences

_KEPT = "make room and add --resume"


class Work:
    """A folder that one process fills; what is finished of its work lies in its folder ``shards`` until all is done.

    Earlier results in the folder stay as they are, and look finished, until the new ones take their place.
    """

    def __init__(self, folder: Path, kind: str, who: Identity) -> None:
        """Point at a folder; nothing is read or written yet."""
        self.folder, self.kind, self.identity = folder, kind, who
        self.notes: list[str] = []
        """What a user should know: a lock taken over, a damaged file."""
        self._lock: FolderLock | None = None

    @property
    def shards(self) -> Path:
        """Folder of what is finished."""
        return self.folder / WORK

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder and prepare it: new, continued, or with unfinished work thrown away."""
        self._refuse_older_format()
        check_target(self.folder, work=True)
        self._lock = FolderLock(self.folder)
        try:
            if self._lock.taken_from:
                self.notes.append(self._lock.taken_from)
            clear_up(self.folder)
            check_target(self.folder, work=True)
            self._prepare(resume=resume, restart=restart)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others write to the folder; where no work was finished, leave it as it was found."""
        if self._lock is None or not self._lock.release.alive:
            return
        if self.shards.is_dir() and all(path.name == OWNER for path in self.shards.iterdir()):
            shutil.rmtree(self.shards, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        self._lock.release()

    def _prepare(self, *, resume: bool, restart: bool) -> None:
        owner = read_json(self.shards / OWNER)
        begun = owner.get("identity")
        if resume:
            before = begun if begun is not None else self.finished_identity()
            if before is not None:
                self.check_same(before, "run it without --resume")
        elif begun is not None and not restart and any(path.name != OWNER for path in self.shards.iterdir()):
            message = f"holds an unfinished {owner.get('kind', self.kind)}"
            hint = "continue it with --resume, or begin anew with --restart"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))
        else:
            self._clear()
        try:
            self.shards.mkdir(parents=True, exist_ok=True)
            mine = {"product": PRODUCT, "kind": self.kind, "identity": self.identity}
            replace_synced(self.shards / OWNER, json_text(mine).encode())
        except OSError as error:
            raise unwritable(self.folder, error) from None

    def _clear(self) -> None:
        """Throw unfinished work away; the file that says whose it is stays, to be replaced."""
        for path in self.shards.iterdir() if self.shards.is_dir() else ():
            if path.name != OWNER:
                path.unlink()

    def _refuse_older_format(self) -> None:
        """Recognise a study of the format before shards had checksums: its owner's file lay in the folder itself."""
        if read_json(self.folder / OWNER).get("product") == PRODUCT:
            message = f"holds a {self.kind} in the format of another version of planner, which this one cannot continue"
            hint = "choose another --out, or delete the folder"
            raise ScenarioError(Problem(file=str(self.folder), message=message, hint=hint))

    def finished_identity(self) -> Identity | None:
        """Return what is finished in the folder; None where nothing of this kind is."""
        manifest = read_json(self.folder / MANIFEST)
        found = manifest.get("identity")
        return found if manifest.get("kind") == self.kind and isinstance(found, dict) else None

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
