"""Writing an output folder whole or not at all, and never over anything the planner did not write."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError

PRODUCT = "datacenter-planner"
MANIFEST = "manifest.json"
CHARTS = "charts"
"""Folder, within an output folder, of the pictures that ``planner charts`` draws."""


def command_line(verb: str, files: Sequence[str], options: Sequence[str], overrides: Sequence[str] = ()) -> list[str]:
    """Return the words of the command that writes a folder's bytes again, its files named as they were at first."""
    named = [f"./{file}" if file.startswith("-") else file for file in files]  # a path, not an option
    return ["planner", verb, *named, *options, *(word for override in overrides for word in ("--set", override))]


def json_text(content: Any) -> str:
    """Write JSON the same way every time."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_target(folder: Path) -> None:
    """Refuse a target that cannot be written, or that exists and holds anything an earlier run did not write."""
    try:
        _check_place(folder)
        _check_content(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> ScenarioError:
    message = f"cannot be written: {error.strerror or error}"
    return ScenarioError(Problem(file=str(folder), message=message, hint="choose another --out"))


def _check_place(folder: Path) -> None:
    """Find out before a long run, not after it, that the folder cannot be made."""
    parent = next((above for above in folder.absolute().parents if above.exists()), Path("/"))
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"no permission to write in {parent}")


def _check_content(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ScenarioError(Problem(file=str(folder), message="exists and is not a folder", hint="choose --out"))
    if not folder.exists():
        return
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    if not present:
        return
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = {MANIFEST, *manifest["files"]} if manifest["product"] == PRODUCT else set()
        known |= {parent.as_posix() for name in known for parent in Path(name).parents}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = set()
    if not known:
        message = "was not written by planner, and will not be overwritten"
        raise ScenarioError(Problem(file=str(folder), message=message, hint="choose another --out"))
    if strangers := sorted(present - known):
        message = f"holds {strangers[0]!r}, which planner did not write; it will not be overwritten"
        raise ScenarioError(Problem(file=str(folder), message=message, hint="move it away or choose another --out"))


def write_folder(folder: Path, files: Mapping[str, str | bytes], manifest: Mapping[str, Any]) -> None:
    """Write the files and their manifest to a temporary folder beside the target, then put it in the target's place."""
    check_target(folder)
    encoded = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(encoded.items())}
    encoded[MANIFEST] = json_text({"product": PRODUCT, **manifest, "files": sums}).encode()
    scratch: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".partial", dir=folder.parent))
        fresh = scratch / "new"
        fresh.mkdir()
        for name, content in encoded.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            with (fresh / name).open("wb") as stream:
                stream.write(content)
        _swap(fresh, folder, scratch / "old")
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        if scratch is not None and (folder.exists() or not (scratch / "old").exists()):
            shutil.rmtree(scratch, ignore_errors=True)  # but never the only copy of the earlier results


def add_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put further files into a finished folder, whole or not at all; those already there are not read or copied."""
    check_target(folder)
    scratch: Path | None = None
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".partial", dir=folder.parent))
        fresh = scratch / "new"
        for name in manifest["files"]:
            if name not in files:
                if not (folder / name).is_file():
                    message = "is not there, and the manifest lists it"
                    raise ScenarioError(Problem(file=str(folder / name), message=message, hint="run again"))
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                _link(folder / name, fresh / name)
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        manifest["files"] = dict(sorted({**manifest["files"], **sums}.items()))
        for name, content in {**files, MANIFEST: json_text(manifest).encode()}.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(content)
        _swap(fresh, folder, scratch / "old")
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        if scratch is not None and (folder.exists() or not (scratch / "old").exists()):
            shutil.rmtree(scratch, ignore_errors=True)


def _link(there: Path, here: Path) -> None:
    """Give a file a second name; copy it where the file system knows no such thing."""
    try:
        os.link(there, here)
    except OSError:
        shutil.copyfile(there, here)


def _swap(fresh: Path, folder: Path, old: Path) -> None:
    """Put a finished folder in the place of an earlier one; put the earlier one back if that fails."""
    if folder.exists():
        os.replace(folder, old)  # noqa: PTH105 - Path.replace would do the same, less plainly
    try:
        os.replace(fresh, folder)  # noqa: PTH105 - as above
    except BaseException:  # an interrupt between the two renames, too
        if old.exists():
            with contextlib.suppress(OSError):
                os.replace(old, folder)  # noqa: PTH105 - as above
        raise


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Put one file of a finished folder in the place of its earlier version, and its hash into the manifest.

    Each of the two is replaced whole. Stopped between them, the folder has the new file and the old hash of it.
    """
    scratch: Path | None = None
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".partial", dir=folder.parent))
        manifest["files"] = dict(sorted({**manifest["files"], name: hashlib.sha256(content).hexdigest()}.items()))
        (scratch / "file").write_bytes(content)
        (scratch / MANIFEST).write_bytes(json_text(manifest).encode())
        os.replace(scratch / "file", folder / name)  # noqa: PTH105 - as below
        os.replace(scratch / MANIFEST, folder / MANIFEST)  # noqa: PTH105 - as below
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
