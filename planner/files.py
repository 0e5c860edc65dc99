"""Output folders that last: written whole, synced to the disk, by one process at a time, over nobody else's files.

A folder is made beside the one whose place it takes and exchanged with it in one step. Where the file system knows no
such step there are two renames; stopped between them, the next command that names the folder completes the swap. What
a stopped process leaves beside a folder is recognised by its name and removed.
"""

from __future__ import annotations

import contextlib
import errno
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

from planner.disk import sync, sync_all, write_synced
from planner.errors import Problem, ScenarioError, printable

PRODUCT = "datacenter-planner"
MANIFEST = "manifest.json"
WORK = "shards"
"""Folder, within an output folder, of work that is not finished; ``--resume`` continues it."""
OWNER = "study.json"
"""File, within that folder, that says whose work it is."""
_CHANGING = ".changing.json"
"""The next manifest of a folder some of whose files are being replaced: every one of them lies beside it, whole."""
_SWAP_FLAG, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux, linux/fs.h and fcntl.h


def json_text(content: Any) -> str:
    """Write JSON the same way every time."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one for what cannot be read or is none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def sha256_of(path: Path) -> str:
    """Return the hash of a file, read piece by piece."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_inside(name: str) -> bool:
    """Say whether a name that a manifest lists lies within its folder."""
    return not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts and "\0" not in name


def unwritable(folder: Path, error: OSError, hint: str = "choose another --out") -> ScenarioError:
    """Return the message for a place that takes nothing, or nothing more."""
    return ScenarioError(Problem(file=str(folder), message=f"cannot be written: {error.strerror or error}", hint=hint))


def replace_synced(path: Path, content: bytes) -> None:
    """Write one file whole or not at all, to stay."""
    part = part_of(path.parent, path.name)
    try:
        write_synced(part, content)
        part.replace(path)
        sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write one file that a user asked for, whole or not at all; raise ScenarioError where that cannot be."""
    try:
        replace_synced(path, content)
    except OSError as error:
        raise unwritable(path, error) from None


def part_of(folder: Path, name: str) -> Path:
    """Return the name under which a file of a folder is written until it is whole: in the folder itself, hidden."""
    return folder / f".{name.replace('/', '__')}.part"


def _beside(folder: Path, suffix: str) -> Path:
    """Return a hidden name beside a folder, also where that is given as ``.`` or ``x/..``."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link in the folder's place
    return absolute.parent / f".{absolute.name}.{suffix}"


class FolderLock:
    """One writer of an output folder: a file beside it, which the writer's process holds locked.

    The system drops the lock with the process, however that ends, so a lock never outlives its holder; the file's text
    only says whose it is or was.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock, or raise ScenarioError with the name of its holder."""
        self.path = _beside(folder, "lock")
        self.taken_from = ""
        """Whose lock was taken over, in words; empty where there was none."""
        try:
            self._handle = self._locked(folder)
        except OSError as error:
            raise unwritable(folder, error) from None
        before = _holder(self._handle)
        if before:
            self.taken_from = f"{folder} was left by {_in_words(before)}, which is gone; its work is taken over"
        text = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "command": sys.argv[:2]})
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)
        self.release = weakref.finalize(self, _let_go, self._handle, self.path)

    def _locked(self, folder: Path) -> int:
        """Return an open file that is locked and still has the lock's name."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                is_free = _lock(handle)
                if is_free and os.path.samestat(os.fstat(handle), os.stat(self.path)):  # noqa: PTH116 - beside fstat
                    return handle
            except FileNotFoundError:
                is_free = True  # its holder took it away between our opening and our locking it
            who = _in_words(_holder(handle))
            os.close(handle)
            if not is_free:
                hint = f"wait for it or choose another --out; if it is gone, remove {self.path}"
                raise ScenarioError(Problem(file=str(folder), message=f"is being written by {who}", hint=hint))

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _lock(handle: int) -> bool:
    """Lock an open file and say whether it was free; where the file system knows no locks, its text decides."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - of Windows alone

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - of the others

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return not _holder(handle)
    return True


def _let_go(handle: int, path: Path) -> None:
    """Take the lock's file away while it is still ours, then let go."""
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
    return printable(f"process {holder.get('process', '?')} on {holder.get('host', 'a host that is not known')}")


def check_target(folder: Path, *, work: bool = False) -> None:
    """Refuse a target that cannot be written, or that exists and holds anything an earlier run did not write.

    ``work`` says that unfinished work in it is ours to continue or to replace.
    """
    try:
        settle(folder)
        _check_place(folder)
        _check_content(folder, work=work)
    except OSError as error:
        raise unwritable(folder, error) from None


def _check_place(folder: Path) -> None:
    """Find out before a long run, not after it, that the folder cannot be made."""
    parent = next((above for above in folder.absolute().parents if above.exists()), Path("/"))
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"no permission to write in {parent}")


def _check_content(folder: Path, *, work: bool) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ScenarioError(Problem(file=str(folder), message="exists and is not a folder", hint="choose --out"))
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    if not present:  # nothing there, or no such folder
        return
    known = _known(folder)
    if not known:
        message = "was not written by planner, and will not be overwritten"
        raise ScenarioError(Problem(file=str(folder), message=message, hint="choose another --out"))
    if strangers := sorted(present - known):
        message = f"holds {strangers[0]!r}, which planner did not write; it will not be overwritten"
        raise ScenarioError(Problem(file=str(folder), message=message, hint="move it away or choose another --out"))
    if not work and WORK in present:
        message = "holds a study or a sweep that is not finished, and will not be overwritten"
        raise ScenarioError(Problem(file=str(folder), message=message, hint="choose another --out"))


def _known(folder: Path) -> set[str]:
    """Return the names in a folder that the planner wrote, by its manifest and by the owner of its unfinished work."""
    known: set[str] = set()
    names = [path.name for path in (folder / WORK).iterdir()] if (folder / WORK).is_dir() else None
    if names is not None:  # its owner's file is the first to be written and the last to go
        is_ours = read_json(folder / WORK / OWNER).get("product") == PRODUCT
        if is_ours or all(_is_part(name) for name in names):
            known = {WORK, *(f"{WORK}/{name}" for name in names if (is_ours and _is_work(name)) or _is_part(name))}
    manifest = read_json(folder / MANIFEST)
    with contextlib.suppress(KeyError, TypeError):
        if manifest["product"] == PRODUCT:
            listed = {MANIFEST, _CHANGING, *manifest["files"]} | {part.name for part in folder.glob(".*.part")}
            known |= listed | {parent.as_posix() for name in listed for parent in Path(name).parents}
    return known


def _is_work(name: str) -> bool:
    """Say whether a file of unfinished work has a name that we give."""
    return name == OWNER or name.removesuffix(".bad").endswith((".parquet", ".jsonl"))


def _is_part(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


@contextlib.contextmanager
def writing(folder: Path, *, work: bool = False) -> Iterator[None]:
    """Hold a folder's lock, with what a stopped process left behind cleared up and the place checked."""
    check_target(folder, work=work)
    with FolderLock(folder):
        clear_up(folder)
        check_target(folder, work=work)
        yield


def settle(folder: Path) -> None:
    """Complete or clear what a stopped process left half done; nothing where another process is at work."""
    if _beside(folder, "partial").exists() or (folder / _CHANGING).exists():
        with contextlib.suppress(ScenarioError), FolderLock(folder):
            clear_up(folder)


def clear_up(folder: Path) -> None:
    """Complete a swap, then a change of files, that were stopped; the caller holds the lock."""
    scratch = _beside(folder, "partial")
    with contextlib.suppress(OSError):
        if scratch.exists():
            if not folder.exists():  # stopped between two renames; the manifest is written last, so it says "whole"
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
    """A folder in the making beside the one whose place it will take; the caller holds that one's lock."""

    def __init__(self, folder: Path) -> None:
        """Make it, empty."""
        self.folder, self._scratch = folder, _beside(folder, "partial")
        self.path = self._scratch / "new"
        self.sums: dict[str, str] = {}
        self._unsynced: list[Path] = []
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.path.mkdir(parents=True)

    def write(self, name: str, content: bytes) -> None:
        """Add a file."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(content)
        self._unsynced.append(self.path / name)
        self.sums[name] = hashlib.sha256(content).hexdigest()

    def add(self, name: str, sha256: str | None = None) -> None:
        """Take in a file that was written into the folder by other means."""
        sync(self.path / name)
        self.sums[name] = sha256 or sha256_of(self.path / name)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, which says that every file is whole, and put the folder in its place."""
        content = json_text({"product": PRODUCT, **manifest, "files": dict(sorted(self.sums.items()))})
        sync_all(self._unsynced)
        for within in {(self.path / name).parent for name in self.sums}:
            sync(within)
        write_synced(self.path / MANIFEST, content.encode())
        sync(self.path)
        swap(self.path, self.folder, self._scratch / "old")
        sync(self.folder.parent)
        self.discard()

    def discard(self) -> None:
        """Remove what is left of it; but never the only copy of earlier results."""
        if self.folder.exists() or not (self._scratch / "old").exists():
            shutil.rmtree(self._scratch, ignore_errors=True)


def swap(fresh: Path, folder: Path, old: Path) -> None:
    """Put a finished folder in the place of an earlier one, in one step where the system has it."""
    if not folder.exists():
        os.replace(fresh, folder)  # noqa: PTH105 - Path.replace would do the same, less plainly
    elif not exchange(fresh, folder):
        os.replace(folder, old)  # noqa: PTH105 - as above
        try:
            os.replace(fresh, folder)  # noqa: PTH105 - as above
        except BaseException:  # an interrupt between the two renames, too
            with contextlib.suppress(OSError):
                os.replace(old, folder)  # noqa: PTH105 - as above
            raise


def exchange(one: Path, other: Path) -> bool:
    """Let two names change places in one step; False where the system or the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # noqa: PLC0415 - only who writes over an earlier folder waits for it

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP_FLAG) == 0)


def change_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Add files to a finished folder, or replace some; the others are not touched, read or moved.

    First every new file lies beside its place, then the next manifest, then they take their places. Stopped before the
    manifest lies there, nothing has changed; stopped after it, the next command that names the folder completes it.
    """
    with writing(folder, work=True):
        manifest = read_json(folder / MANIFEST)
        try:
            for name in manifest["files"]:
                if name not in files and not (folder / name).is_file():
                    message = "is not there, and the manifest lists it"
                    raise ScenarioError(Problem(file=str(folder / name), message=message, hint="run again"))
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
    """Put files that lie beside their places into them, and the manifest that lists them."""
    for name in read_json(folder / _CHANGING).get("files", {}):
        if is_inside(name) and part_of(folder, name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            part_of(folder, name).replace(folder / name)
            sync((folder / name).parent)
    (folder / _CHANGING).replace(folder / MANIFEST)
    sync(folder)
