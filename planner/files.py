"""Output folders written atomically and synced to disk, by one process, never over files of others.

A folder is made beside the one whose place it takes and exchanged with it in one step. Where the file system knows no
such step there are two renames; stopped between them, the next command that names the folder completes the swap. What
a stopped process leaves beside a folder is recognised by its name and removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from planner.errors import Problem, ScenarioError, printable

PRODUCT = "datacenter-planner"
ALLOW_CODE = "PLANNER_ALLOW_CODE"
"""Environment variable that lets the Python files run that a scenario names."""
MANIFEST = "manifest.json"
WORK = "shards"
"""Folder, within an output folder, of work that is not finished; ``--resume`` continues it."""
OWNER = "study.json"
"""File, within that folder, that says whose work it is."""
_CHANGING = ".changing.json"
"""The next manifest of a folder some of whose files are being replaced: every one of them lies beside it, whole."""
_SWAP_FLAG = 2  # RENAME_EXCHANGE and AT_FDCWD of Linux, linux/fs.h and fcntl.h
_HERE = -100


def json_text(content: Any) -> str:
    """Return JSON text in a canonical form."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one where it cannot be read or is not an object."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def sha256_of(path: Path) -> str:
    """Return the hash of a file, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_inside(name: str) -> bool:
    """Return whether a name in a manifest lies within its folder."""
    return (
        not PurePosixPath(name).is_absolute()
        and ".." not in PurePosixPath(name).parts
        and "\0" not in name
    )


def unwritable(folder: Path, error: OSError) -> ScenarioError:
    """Return the error for a folder that cannot be written."""
    message = f"cannot be written: {error.strerror or error}"
    return ScenarioError(Problem(file=str(folder), message=message, hint="choose another --out"))


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync(path: Path) -> None:
    """Wait until a file written by others, or a folder's entries, are on disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replace_synced(path: Path, content: bytes) -> None:
    """Write one file atomically and sync it."""
    part = part_of(path.parent, path.name)
    try:
        write_synced(part, content)
        part.replace(path)
        sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write one output file atomically; raise ScenarioError where that fails."""
    try:
        replace_synced(path, content)
    except OSError as error:
        raise unwritable(path, error) from None


def part_of(folder: Path, name: str) -> Path:
    """Return the hidden temporary name under which a file is written until it is complete."""
    return folder / f".{name.replace('/', '__')}.part"


def _beside(folder: Path, suffix: str) -> Path:
    """Return a hidden path beside a folder, also where that is given as ``.`` or ``x/..``."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link in the folder's place
    return absolute.parent / f".{absolute.name}.{suffix}"


class FolderLock:
    """The lock of an output folder: a file beside it that the writing process locks.

    The system drops the lock with the process, however that ends, so a lock never outlives its holder; the file's text
    only says whose it is or was.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock, or raise ScenarioError with the name of its holder."""
        self.path = _beside(folder, "lock")
        self.taken_from = ""
        """Whose lock was taken over, in words; empty where there was none."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while (handle := self._locked(folder)) is None:
                pass  # its holder took it away between our opening and our locking it
        except OSError as error:
            raise unwritable(folder, error) from None
        if before := _holder(handle):
            self.taken_from = (
                f"{folder} was left by {_in_words(before)}, which is gone; its work is taken over"
            )
        text = json.dumps(
            {"process": os.getpid(), "host": socket.gethostname(), "command": sys.argv[:2]}
        )
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)
        self.release = weakref.finalize(self, _let_go, handle, self.path)

    def _locked(self, folder: Path) -> int | None:
        """Return an open, locked lock file; None where the file was replaced meanwhile."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except OSError as error:  # where the file system knows no locks, the file's text decides
            is_free = not isinstance(error, BlockingIOError) and not _holder(handle)
        if not is_free:
            who = _in_words(_holder(handle))
            os.close(handle)
            hint = f"wait for it or choose another --out; if it is gone, remove {self.path}"
            raise ScenarioError(
                Problem(file=str(folder), message=f"is being written by {who}", hint=hint)
            )
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), self.path.stat()):
                return handle
        os.close(handle)
        return None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _let_go(handle: int, path: Path) -> None:
    """Remove the lock file, then release the lock."""
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        os.close(handle)


def _holder(handle: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(handle, 4096, 0) or b"{}")
    except (OSError, ValueError):
        return {"process": "?"}
    return holder if isinstance(holder, dict) else {"process": "?"}


def _in_words(holder: Mapping[str, Any]) -> str:
    return printable(
        f"process {holder.get('process', '?')} on {holder.get('host', 'a host that is not known')}"
    )


def check_target(folder: Path, *, work: bool = False) -> None:
    """Raise an error for a target that cannot be written, or with files that no earlier run wrote.

    Found out before a long run, not after it. ``work`` says that unfinished work in it is ours to continue or replace.
    """

    def refuse(message: str, hint: str = "choose another --out") -> ScenarioError:
        return ScenarioError(Problem(file=str(folder), message=message, hint=hint))

    try:
        settle(folder)
        parent = next((above for above in folder.absolute().parents if above.exists()), Path("/"))
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{parent} is not a folder")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"no permission to write in {parent}")
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise refuse("exists and is not a folder", "choose --out")
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        known = _known(folder) if present else set()
    except OSError as error:
        raise unwritable(folder, error) from None
    if present and not known:
        raise refuse("was not written by planner, and will not be overwritten")
    if strangers := sorted(present - known):
        message = f"holds {strangers[0]!r}, which planner did not write; it will not be overwritten"
        raise refuse(message, "move it away or choose another --out")
    if not work and WORK in present:
        raise refuse("holds a study or a sweep that is not finished, and will not be overwritten")


def _known(folder: Path) -> set[str]:
    """Return the names in a folder that the planner wrote, from its manifest and its unfinished work."""
    known: set[str] = set()
    if (folder / WORK).is_dir():  # its owner's file is the first to be written and the last to go
        names = {path.name for path in (folder / WORK).iterdir()}
        parts = {name for name in names if name.startswith(".") and name.endswith(".part")}
        is_ours = read_json(folder / WORK / OWNER).get("product") == PRODUCT
        if is_ours or names == parts:
            ours = {
                name
                for name in names
                if name.removesuffix(".bad").endswith((".parquet", ".jsonl", ".yaml"))
            } | {OWNER}
            known = {WORK, *(f"{WORK}/{name}" for name in parts | (ours if is_ours else set()))}
    manifest = read_json(folder / MANIFEST)
    with contextlib.suppress(KeyError, TypeError):
        if manifest["product"] == PRODUCT:
            listed = {MANIFEST, _CHANGING, *manifest["files"]} | {
                part.name for part in folder.glob(".*.part")
            }
            known |= listed | {
                parent.as_posix() for name in listed for parent in Path(name).parents
            }
    return known


@contextlib.contextmanager
def writing(folder: Path, *, work: bool = False) -> Iterator[None]:
    """Hold a folder's lock, after cleaning up an interrupted process and checking the target."""
    check_target(folder, work=work)
    with FolderLock(folder):
        clear_up(folder)
        check_target(folder, work=work)
        yield


def settle(folder: Path) -> None:
    """Complete or clean up an interrupted write; do nothing where another process holds the lock."""
    if _beside(folder, "partial").exists() or (folder / _CHANGING).exists():
        with contextlib.suppress(ScenarioError), FolderLock(folder):
            clear_up(folder)


def clear_up(folder: Path) -> None:
    """Complete an interrupted swap, then an interrupted change of files; the caller holds the lock."""
    scratch = _beside(folder, "partial")
    with contextlib.suppress(OSError):
        if scratch.exists():
            if (
                not folder.exists()
            ):  # stopped between two renames; the manifest is written last, so it says "whole"
                source = scratch / ("new" if (scratch / "new" / MANIFEST).exists() else "old")
                if source.exists():
                    source.replace(folder)
            shutil.rmtree(scratch, ignore_errors=True)
        if (folder / _CHANGING).exists():
            _complete_change(folder)
        if (folder / MANIFEST).exists():
            for part in folder.glob(".*.part"):
                part.unlink()


class Staged:
    """A new folder, written beside the one that it will replace, whose lock the caller holds."""

    def __init__(self, folder: Path) -> None:
        """Create the empty folder."""
        self.folder, self._scratch = folder, _beside(folder, "partial")
        self.path = self._scratch / "new"
        self.sums: dict[str, str] = {}
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.path.mkdir(parents=True)

    def write(self, name: str, content: bytes) -> None:
        """Add a file."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        write_synced(self.path / name, content)
        self.sums[name] = hashlib.sha256(content).hexdigest()

    def add(self, name: str, sha256: str | None = None) -> None:
        """Register a file that was written into the folder by other means."""
        sync(self.path / name)
        self.sums[name] = sha256 or sha256_of(self.path / name)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, which marks the folder complete, and put the folder in its place."""
        content = json_text(
            {"product": PRODUCT, **manifest, "files": dict(sorted(self.sums.items()))}
        )
        for within in {(self.path / name).parent for name in self.sums}:
            sync(within)
        write_synced(self.path / MANIFEST, content.encode())
        sync(self.path)
        old = self._scratch / "old"
        if not self.folder.exists():
            self.path.replace(self.folder)
        elif not exchange(self.path, self.folder):  # in one step where the system has it
            self.folder.replace(old)
            try:
                self.path.replace(self.folder)
            except BaseException:  # an interrupt between the two renames, too
                with contextlib.suppress(OSError):
                    old.replace(self.folder)
                raise
        sync(self.folder.parent)
        self.discard()

    def discard(self) -> None:
        """Delete the folder, but never the only copy of earlier results."""
        if self.folder.exists() or not (self._scratch / "old").exists():
            shutil.rmtree(self._scratch, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically; return False where the system (all but Linux) or file system cannot."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return (
        call is not None
        and call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP_FLAG) == 0
    )


def change_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Add or replace files of a finished folder; the others are not touched.

    First every new file lies beside its place, then the next manifest, then they take their places. Stopped before the
    manifest lies there, nothing has changed; stopped after it, the next command that names the folder completes it.
    """
    with writing(folder, work=True):
        manifest = read_json(folder / MANIFEST)
        try:
            for name in manifest["files"]:
                if name not in files and not (folder / name).is_file():
                    message = "is not there, and the manifest lists it"
                    raise ScenarioError(
                        Problem(file=str(folder / name), message=message, hint="run again")
                    )
            for name, content in files.items():
                write_synced(part_of(folder, name), content)
            sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
            manifest["files"] = dict(sorted({**manifest["files"], **sums}.items()))
            replace_synced(folder / _CHANGING, json_text(manifest).encode())
            _complete_change(folder)
        except OSError as error:
            raise unwritable(folder, error) from None
        finally:
            if not (folder / _CHANGING).exists():  # what was not announced is taken back
                for name in files:
                    part_of(folder, name).unlink(missing_ok=True)


def _complete_change(folder: Path) -> None:
    """Move staged files into place, and the manifest that lists them."""
    for name in read_json(folder / _CHANGING).get("files", {}):
        if is_inside(name) and part_of(folder, name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            part_of(folder, name).replace(folder / name)
            sync((folder / name).parent)
    (folder / _CHANGING).replace(folder / MANIFEST)
    sync(folder)
