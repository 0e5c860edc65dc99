"""Output folders written atomically and synced to disk, by one process, never over files of others.

A new folder is written beside the one whose place it takes and exchanged with it in one step; files
that do not change are hard links in both. Where the file system knows no exchange there are two
renames; stopped between them, the next command that names the folder completes the swap. What a
stopped process leaves beside a folder is recognised by its name and removed.
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
ONLY_UNDER = "PLANNER_ONLY_UNDER"
"""Environment variable that names the one folder in which files that a user names may lie."""
MANIFEST = "manifest.json"
WORK = "shards"
"""Folder, within an output folder, of work that is not finished; ``--resume`` continues it."""
OWNER = "study.json"
"""File, within that folder, that says whose work it is."""
_RENAME_EXCHANGE = 2
"""Flag of renameat2 that swaps two paths (linux/fs.h)."""
_AT_FDCWD = -100
"""In place of an open folder: paths are relative to the working directory (fcntl.h)."""

Place = str | os.PathLike[str]
"""A file or folder, as a caller names it."""


def output_folder(out: Place | None, name: str) -> Path:
    """Return the output folder: the one stated, or one of the plan's name under outputs."""
    if out is None:
        return Path("outputs") / name
    return Path(out)


def json_text(content: Any) -> str:
    """Return JSON text in a canonical form."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n"


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
        digest = hashlib.file_digest(stream, "sha256")
    return digest.hexdigest()


def is_inside(name: str) -> bool:
    """Return whether a name in a manifest lies within its folder."""
    path = PurePosixPath(name)
    # A zero byte ends a name for the system, which would then open another file.
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def check_place(path: Path, *, own: bool = False) -> None:
    """Raise an error for a path outside the folder of ``PLANNER_ONLY_UNDER``, wherever its links and dots lead.

    ``own`` says that the planner's own data may be meant, which are only ever read.
    """
    only = os.environ.get(ONLY_UNDER)
    if not only:
        return
    roots = [os.path.realpath(only)]
    if own:
        roots.append(os.path.realpath(Path(__file__).parent))
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(root) for root in roots):
        message = "lies outside the folder whose files may be read and written"
        raise ScenarioError(message, file=str(path), hint=f"that is {only}")


def unwritable(folder: Path, error: OSError) -> ScenarioError:
    """Return the error for a folder that cannot be written."""
    message = f"cannot be written: {error.strerror or error}"
    problem = Problem(file=str(folder), message=message, hint="choose another --out")
    return ScenarioError(problem)


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
    # Beside it, since only within one file system a rename is one step.
    part = path.with_name(f".{path.name}.part")
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


def _beside(folder: Path, suffix: str) -> Path:
    """Return a hidden path beside a folder, also where that is given as ``.`` or ``x/..``."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link in the folder's place
    return absolute.parent / f".{absolute.name}.{suffix}"


class FolderLock:
    """The lock of an output folder: a file beside it that the writing process locks.

    The system drops the lock with the process, however that ends, so a lock never outlives its
    holder; the file's text only says whose it is or was.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock, or raise ScenarioError with the name of its holder."""
        self.path = _beside(folder, "lock")
        self.takeover_note = ""
        """Whose lock was taken over, in words; empty where there was none."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = None
            # Its holder may take the file away between our opening and our locking it: try anew.
            while handle is None:
                handle = self._locked(folder)
        except OSError as error:
            raise unwritable(folder, error) from None
        if predecessor := _holder(handle):
            note = f"{folder} was left by {_in_words(predecessor)}, which is gone"
            self.takeover_note = f"{note}; its work is taken over"
        holder = {"process": os.getpid(), "host": socket.gethostname(), "command": sys.argv[:2]}
        # The text of the one before may be longer than ours.
        os.ftruncate(handle, 0)
        text = json.dumps(holder)
        os.pwrite(handle, text.encode(), 0)
        # Also where the caller forgets to, or ends by an error: when the lock is no longer used.
        self.release = weakref.finalize(self, _release, handle, self.path)

    def _locked(self, folder: Path) -> int | None:
        """Return an open, locked lock file; None where the file was replaced meanwhile."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        except OSError:  # where the file system knows no locks, the file's text decides
            is_free = not _holder(handle)
        if not is_free:
            message = f"is being written by {_in_words(_holder(handle))}"
            os.close(handle)
            hint = f"wait for it or choose another --out; if it is gone, remove {self.path}"
            problem = Problem(file=str(folder), message=message, hint=hint)
            raise ScenarioError(problem)
        with contextlib.suppress(FileNotFoundError):
            # Whoever removed the file in the meantime let another process make a new one.
            ours = os.fstat(handle)
            if os.path.samestat(ours, self.path.stat()):
                return handle
        os.close(handle)
        return None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _release(handle: int, path: Path) -> None:
    """Remove the lock file, then release the lock: the other order would remove another's file."""
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        os.close(handle)


def _holder(handle: int) -> dict[str, Any]:
    """Return what a lock file says of its holder; empty where it says nothing."""
    try:
        # 4,096 bytes hold any text that a holder writes.
        text = os.pread(handle, 4096, 0)
        holder = json.loads(text or b"{}")
    except (OSError, ValueError):
        holder = None
    return holder if isinstance(holder, dict) else {"process": "?"}


def _in_words(holder: Mapping[str, Any]) -> str:
    """Return the holder of a lock as a message names it."""
    host = holder.get("host", "a host that is not known")
    return printable(f"process {holder.get('process', '?')} on {host}")


def check_target(folder: Path, *, work: bool = False) -> None:
    """Raise an error for a target that cannot be written, or with files that no earlier run wrote.

    This is found out before a long run, not after it. ``work`` says that unfinished work in the
    folder is ours to continue or replace.
    """

    def refuse(message: str, hint: str = "choose another --out") -> ScenarioError:
        problem = Problem(file=str(folder), message=message, hint=hint)
        return ScenarioError(problem)

    check_place(folder)
    try:
        settle(folder)
        # The nearest folder that is there: those below it will be made.
        parents = folder.absolute().parents
        parent = next((parent for parent in parents if parent.exists()), Path("/"))
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{parent} is not a folder")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"no permission to write in {parent}")
        is_file = folder.exists() and not folder.is_dir()
        if folder.is_symlink() or is_file:
            raise refuse("exists and is not a folder", "choose --out")
        paths = folder.rglob("*")
        present = {path.relative_to(folder).as_posix() for path in paths}
        ours = _work_names(folder) | _listed_names(folder)
    except OSError as error:
        raise unwritable(folder, error) from None
    if present and not ours:
        raise refuse("was not written by planner, and will not be overwritten")
    if strangers := sorted(present - ours):
        message = f"holds {strangers[0]!r}, which planner did not write; it will not be overwritten"
        raise refuse(message, "move it away or choose another --out")
    if not work and WORK in present:
        raise refuse("holds a study or a sweep that is not finished, and will not be overwritten")


def _work_names(folder: Path) -> set[str]:
    """Return the names in a folder that belong to unfinished work of the planner."""
    work = folder / WORK
    if not work.is_dir():
        return set()
    names = {path.name for path in work.iterdir()}
    parts = {name for name in names if name.startswith(".") and name.endswith(".part")}
    # The owner's file is the first to be written and the last to go: without it, only what was
    # being written when a process was killed can be ours.
    owner = read_json(work / OWNER)
    if owner.get("product") == PRODUCT:
        kinds = (".parquet", ".jsonl", ".yaml")
        ours = {name for name in names if name.removesuffix(".bad").endswith(kinds)}
        ours |= parts | {OWNER}
    elif names == parts:
        ours = parts
    else:
        return set()
    return {WORK, *(f"{WORK}/{name}" for name in ours)}


def _listed_names(folder: Path) -> set[str]:
    """Return the names in a folder that its manifest lists, with the folders that they lie in."""
    manifest = read_json(folder / MANIFEST)
    listed = manifest.get("files")
    is_ours = manifest.get("product") == PRODUCT
    if not is_ours or not isinstance(listed, dict):
        return set()
    names = {MANIFEST, *listed}
    for name in listed:
        parents = Path(name).parents
        names |= {parent.as_posix() for parent in parents}
    return names


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
    if _beside(folder, "partial").exists():
        with contextlib.suppress(ScenarioError), FolderLock(folder):
            clear_up(folder)


def clear_up(folder: Path) -> None:
    """Complete an interrupted swap of folders; the caller holds the lock."""
    scratch = _beside(folder, "partial")
    with contextlib.suppress(OSError):
        is_between = scratch.exists() and not folder.exists()
        if is_between:
            # Stopped between two renames. The manifest is written last, so it says "whole".
            is_whole = (scratch / "new" / MANIFEST).exists()
            source = scratch / ("new" if is_whole else "old")
            if source.exists():
                source.replace(folder)
        shutil.rmtree(scratch, ignore_errors=True)


class Staged:
    """A new folder, written beside the one that it will replace, whose lock the caller holds."""

    def __init__(self, folder: Path) -> None:
        """Create the empty folder."""
        self.folder = folder
        self._scratch = _beside(folder, "partial")
        self.path = self._scratch / "new"
        self.sums: dict[str, str] = {}
        """SHA-256 of each file, by its name."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.path.mkdir(parents=True)

    def write(self, name: str, content: bytes) -> None:
        """Add a file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A link to an earlier file of this name must go, or that one would be written over.
        path.unlink(missing_ok=True)
        write_synced(path, content)
        digest = hashlib.sha256(content)
        self.sums[name] = digest.hexdigest()

    def add(self, name: str, sha256: str | None = None) -> None:
        """Register a file that was written into the folder by other means."""
        path = self.path / name
        sync(path)
        self.sums[name] = sha256 or sha256_of(path)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, which marks the folder complete, and put the folder in its place."""
        files = dict(sorted(self.sums.items()))
        subfolders = {(self.path / name).parent for name in files}
        # A file is there after a power failure only if its folder's entry is.
        for subfolder in subfolders:
            sync(subfolder)
        # Written last of all: a folder with a manifest is complete.
        content = json_text({"product": PRODUCT, **manifest, "files": files})
        path = self.path / MANIFEST
        write_synced(path, content.encode())
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
        old = self._scratch / "old"
        if self.folder.exists() or not old.exists():
            shutil.rmtree(self._scratch, ignore_errors=True)


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Staged]:
    """Yield a new folder, and discard it where it was not committed; the caller holds the lock."""
    try:
        staged = Staged(folder)
        try:
            yield staged
        finally:
            staged.discard()
    except OSError as error:
        raise unwritable(folder, error) from None


def exchange(path: Path, partner: Path) -> bool:
    """Swap two paths atomically; return False where the system (all but Linux) or file system cannot."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is None:
        return False
    source = os.fsencode(path)
    target = os.fsencode(partner)
    names = (_AT_FDCWD, source, _AT_FDCWD, target)
    return bool(call(*names, _RENAME_EXCHANGE) == 0)


def change_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Add or replace files of a finished folder; the others are not touched, nor unfinished work in it."""
    with writing(folder, work=True), staging(folder) as staged:
        manifest = read_json(folder / MANIFEST)
        ignore = shutil.ignore_patterns(MANIFEST)
        shutil.copytree(folder, staged.path, ignore=ignore, copy_function=_link, dirs_exist_ok=True)
        for name in manifest["files"]:
            is_copied = (staged.path / name).is_file()
            if name not in files and not is_copied:
                message = "is not there, and the manifest lists it"
                problem = Problem(file=str(folder / name), message=message, hint="run again")
                raise ScenarioError(problem)
        # What is linked keeps the hash that it was written with, damaged or not.
        staged.sums |= manifest["files"]
        for name, content in files.items():
            staged.write(name, content)
        staged.commit(manifest)


def _link(source: str, target: str) -> None:
    """Give a file a second name, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
