"""Writing an output folder whole or not at all, and never over anything the planner did not write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.files import Staged, unwritable, writing

CHARTS = "charts"
"""Folder, within an output folder, of the pictures that ``planner charts`` draws."""


def command_line(verb: str, files: Sequence[str], options: Sequence[str], overrides: Sequence[str] = ()) -> list[str]:
    """Return the words of the command that writes a folder's bytes again, its files named as they were at first."""
    named = [f"./{file}" if file.startswith("-") else file for file in files]  # a path, not an option
    return ["planner", verb, *named, *options, *(word for override in overrides for word in ("--set", override))]


def write_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Write the files and their manifest to a temporary folder beside the target, then put it in the target's place."""
    with writing(folder):
        place_folder(folder, files, manifest)


def place_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Do the same where the caller holds the folder's lock and has checked it."""
    staged: Staged | None = None
    try:
        staged = Staged(folder)
        for name, content in files.items():
            staged.write(name, content)
        staged.commit(manifest)
    except OSError as error:
        raise unwritable(folder, error) from None
    finally:
        if staged is not None:
            staged.discard()
