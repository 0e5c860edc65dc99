"""What a command says about its progress while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.errors import printable

PrintLine = Callable[[str], None]
"""Takes a few words about what is being done."""


def silent(_: object) -> None:
    """Say nothing."""


def tell_notes(notes: Iterable[str], progress: PrintLine) -> None:
    """Report the state of a folder or a study: a lock taken over, damaged files."""
    for note in notes:
        progress(f"note: {printable(note)}")
