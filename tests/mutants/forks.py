"""Pieces of work done by forks of one process that has the libraries loaded, so many at a time."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

OUT_OF_TIME = -1
BROKEN = 99
_Piece = TypeVar("_Piece")


def forked(
    pieces: Iterable[_Piece], work: Callable[[_Piece], int], workers: int, limit_s: int
) -> Iterator[tuple[_Piece, int, float]]:
    """Do the work of each piece in a fork of its own; yield piece, what work returned, and its seconds, as they end.

    A piece has so many seconds of processor time, since a busy machine is slow, not wrong, and ten times as many on the
    clock, since a wrong may also wait forever.
    """
    waiting = iter(pieces)
    running: dict[int, tuple[_Piece, float]] = {}
    while True:
        while len(running) < workers and (piece := next(waiting, None)) is not None:
            running[_fork(work, piece, limit_s)] = (piece, time.monotonic())
        if not running:
            return
        child, status = os.wait()
        done, begun = running.pop(child)
        yield (
            done,
            os.WEXITSTATUS(status) if os.WIFEXITED(status) else OUT_OF_TIME,
            time.monotonic() - begun,
        )


def _fork(work: Callable[[_Piece], int], piece: _Piece, limit_s: int) -> int:
    """Start one piece with its output left aside; return its process."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
            signal.alarm(10 * limit_s)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            code = work(piece)
        finally:
            os._exit(code)
    return child
