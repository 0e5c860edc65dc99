"""Progress on stderr: a bar on a terminal, one line elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stages(title: str, count: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the stages of a command; the function that is handed out begins the next one."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar(title, count)
    else:
        print(f"simulating {title}", file=sys.stderr)
        yield lambda _: None


def _bar(title: str, count: int) -> Iterator[Callable[[str], None]]:
    """Draw a bar that vanishes when the command is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=count)
        begun = 0

        def begin(stage: str) -> None:
            nonlocal begun
            progress.update(task, completed=begun, description=f"{title}: {stage}")
            begun += 1

        yield begin
