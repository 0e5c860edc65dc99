"""What plans worked out before, kept on this machine from one command to the next."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import pickle
import platform
import stat
import tempfile
from pathlib import Path
from typing import Any

from planner.version import code_sha256

NO_CACHE = "PLANNER_NO_CACHE"
"""Environment variable that leaves the cache alone."""
MOST_BYTES = 64_000_000
"""Of all entries; a scenario of ten clusters and workloads has some 700 kB."""
_WRITES_PER_LOOK = 256
"""Entries that a process writes between two looks at the size of the folder."""
_DIGEST_BYTES = 32
_ARRAY_PARTS = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
"""What pickled arrays and numbers name."""
_OWN = ("planner.demand.", "planner.errors", "planner.physics.", "planner.plan.")
"""Where the classes of figures are."""


class DiskCache:
    """Figures by the text of all that decides them, each in a file of its own in the user's cache folder.

    An entry is a pickle, since a figure read must have the very types of one computed. Pickles are code, so three
    things guard them: nobody but the user may enter the folder, the checksum of an entry is that of its name and
    content, and no entry can name anything but this planner's own classes and arrays. What fails any of them is not
    there, and is computed. No trouble with the folder is worth a word: everything works without it.
    """

    def __init__(self) -> None:
        self._writes = 0

    def read(self, key: str) -> tuple[Any, ...]:
        """Return the figure of a key, in a tuple; an empty one where there is none."""
        # Whatever is the matter with an entry, its figure can be computed.
        with contextlib.suppress(Exception):
            if folder := _folder():
                name = _name(key)
                content = (folder / name).read_bytes()
                body = content[_DIGEST_BYTES:]
                if content[:_DIGEST_BYTES] == _checksum(name, body):
                    return (_Unpickler(io.BytesIO(body)).load(),)
        return ()

    def write(self, key: str, figure: object) -> None:
        """Keep the figure of a key: whole or not at all, whoever writes the same at the same time."""
        with contextlib.suppress(OSError):
            if folder := _folder():
                if self._writes % _WRITES_PER_LOOK == 0:
                    _drop_oldest(folder)
                self._writes += 1
                name = _name(key)
                body = _pickled(figure)
                handle, unfinished = tempfile.mkstemp(dir=folder)
                try:
                    with os.fdopen(handle, "wb") as stream:
                        stream.write(_checksum(name, body) + body)
                    Path(unfinished).replace(folder / name)
                except OSError:
                    Path(unfinished).unlink(missing_ok=True)
                    raise


class _Unpickler(pickle.Unpickler):
    """Reads what is made of this planner's own classes and arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAY_PARTS:
            return super().find_class(module, name)
        if module.startswith(_OWN):
            found = super().find_class(module, name)
            # A module of ours also has names of what it imports.
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name}")


def _pickled(figure: object) -> bytes:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=4)
    # Libraries teach pickle forms of their own for exceptions, which no other command could read.
    pickler.dispatch_table = {}
    pickler.dump(figure)
    return stream.getvalue()


def _checksum(name: str, body: bytes) -> bytes:
    """Return what tells the entry of a name from a damaged or another's one."""
    return hashlib.blake2b(name.encode() + body, digest_size=_DIGEST_BYTES).digest()


def _name(key: str) -> str:
    """Return the file of a key in this version: any change of the planner's code or of numpy makes another."""
    import numpy as np  # noqa: PLC0415 - the command line makes a cache before it knows whether any plan asks for it

    makers = (code_sha256(), np.__version__, platform.python_version(), platform.machine())
    text = "\n".join((*makers, key))
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


@functools.cache
def _folder() -> Path | None:
    """Return the folder of all entries; None where there is none that is the user's alone."""
    from platformdirs import user_cache_path  # noqa: PLC0415 - as in _name

    if os.environ.get(NO_CACHE):
        return None
    folder = user_cache_path("datacenter-planner", appauthor=False) / "plans"
    # Without a home it would lie wherever the command is called.
    if not folder.is_absolute():
        return None
    with contextlib.suppress(OSError):
        folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        state = folder.lstat()
        # Windows keeps a user's folders from others, and has no such bits.
        is_open = os.name == "posix" and (state.st_uid != os.geteuid() or state.st_mode & 0o077)
        if stat.S_ISDIR(state.st_mode) and not is_open:
            return folder
    return None


def _drop_oldest(folder: Path) -> None:
    """Bring the folder down to three quarters of its bound where it is beyond it."""
    with os.scandir(folder) as entries:
        states = [(entry.stat(), entry.path) for entry in entries]
    files = sorted((state.st_mtime_ns, path, state.st_size) for state, path in states)
    excess = sum(size for _, _, size in files) - MOST_BYTES
    if excess <= 0:
        return
    excess += MOST_BYTES // 4
    for _, path, size in files:
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size
