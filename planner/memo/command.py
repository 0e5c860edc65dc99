"""The command ``planner memo``: two pages for the board, beside the files of an output folder."""

from __future__ import annotations

from pathlib import Path

from planner.files import Place


def memo(folder: Place) -> list[Path]:
    """Write memo.html and memo.md of an output folder, as ``planner memo`` does; return their paths."""
    # Imported here: the command line reads this signature before it knows which command is asked for.
    from planner.memo.board_memo import write_memo

    return write_memo(Path(folder))
