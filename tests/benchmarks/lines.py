"""How the benchmark prints a figure, and how it times what runs in one thread."""

from __future__ import annotations

import time
from collections.abc import Callable


def figure(
    name: str, value: float, *, at_most: float | None = None, at_least: float | None = None
) -> str:
    """Return a line: the figure, its bar where there is one, and whether it is missed."""
    bar = ""
    is_missed = False
    if at_most is not None:
        bar = f"at most {at_most:g}"
        is_missed = value > at_most
    if at_least is not None:
        bar = f"at least {at_least:g}"
        is_missed = value < at_least
    return f"{name:<52} {value:9,.2f}  {bar}{', missed' if is_missed else ''}".rstrip()


def least_ms(action: Callable[[], object], repetitions: int) -> float:
    """Return the least processor time of several runs, which other work on the machine has disturbed least.

    Everything measured so runs in one thread, for which processor time is what a quiet machine's clock would show.
    """
    times = []
    for _ in range(repetitions):
        start = time.thread_time()
        action()
        times.append(time.thread_time() - start)
    return min(times) * 1e3
