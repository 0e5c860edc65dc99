"""The planner's version, and a hash of its code."""

from __future__ import annotations

import functools
from pathlib import Path

__version__ = "0.4.0.dev0"
"""The one place of the version: pyproject.toml reads it here."""
_PRESENTATION = ("answers", "calibration", "cli", "output", "ui")
"""Packages that only show what was computed: no replication depends on them."""


@functools.cache
def code_sha256() -> str:
    """Return the hash of the installed code that affects a replication."""
    import hashlib  # noqa: PLC0415 - a study asks; the command line only says the version

    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in (".py", ".yaml", ".csv", ".json") and name.parts[0] not in _PRESENTATION:
            digest.update(
                f"{name.as_posix()}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
            )
    return digest.hexdigest()
