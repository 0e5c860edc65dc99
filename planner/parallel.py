"""Parallel work in forks of this process, which share its memory and so start at once.

A study has workers that live for minutes and may be elsewhere (``planner.studies.engines``). What takes a second or
two, the replications behind a run's intervals or its workbook beside its report, would be over before such a worker had
started. Whoever does a piece of work, the result is the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
MOST_AT_ONCE = 8
"""Processes that work on one thing; assumption: beyond, a second's work is not worth the memory (100 MB each)."""
_forked_with: list[Sequence[Callable[[], Any]]] = []
"""The work that a fork finds in its memory: a closure cannot be sent to it, but the number of one can."""


def cores() -> int:
    """Return the number of processor cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def may_fork() -> bool:
    """Return whether this process can fork safely: on Linux, without threads that a fork would lack.

    A fork has none of its parent's other threads, but any lock that they held. BLAS and Arrow have threads that Python
    does not count.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    with contextlib.suppress(OSError):
        # The system takes a moment to forget the threads of a pool that was shut down.
        for _ in range(5):
            if len(list(Path("/proc/self/task").iterdir())) == 1:
                return True
            time.sleep(0.002)
    return False


def shared(work: Sequence[Callable[[], Result]], workers: int | None = None) -> list[Result]:
    """Return the results of pieces of work, in order, computed by forks where possible."""
    with Begun(work, workers) as pieces:
        return list(pieces.results())


class Begun(Generic[Result]):
    """Pieces of work started in forks, while this process continues until it needs the results.

    Where it may not fork, or a fork dies, it does the pieces itself. Left without an answer, no further piece is begun.
    """

    def __init__(
        self,
        work: Sequence[Callable[[], Result]],
        workers: int | None = None,
        ahead: int | None = None,
    ) -> None:
        """Start a process per core, or ``workers`` of them; with one, the work is done later, in this process.

        At most ``ahead`` pieces are begun before all results so far are taken.
        """
        self.work = work
        self._ahead = ahead or len(work)
        self._futures: list[Future[Result]] = []
        self._pool: ProcessPoolExecutor | None = None
        limit = min(cores(), MOST_AT_ONCE) if workers is None else workers
        count = min(len(work), limit)
        if count > 1 and may_fork():
            # Or a fork that looks for cycles looks through all that there is, and copies it to do so.
            gc.freeze()
            _forked_with.append(work)
            context = get_context("fork")
            self._pool = ProcessPoolExecutor(count, mp_context=context, initializer=_be_fork)
            self._begin(self._pool)

    def _begin(self, pool: ProcessPoolExecutor) -> None:
        places = range(len(self.work))[len(self._futures) :][: self._ahead]
        # No more processes for this user, or none that lives: results() does the rest itself.
        with contextlib.suppress(OSError, BrokenProcessPool):
            self._futures += [pool.submit(_piece, place) for place in places]

    def results(self) -> Iterator[Result]:
        """Yield the results of the pieces, in order; who has enough of them leaves the rest undone."""
        count = 0
        with contextlib.suppress(BrokenProcessPool):
            while count < len(self._futures):
                result = self._futures[count].result()
                count += 1
                yield result
                if self._pool is not None and count == len(self._futures):
                    self._begin(self._pool)
        for piece in self.work[count:]:
            yield piece()

    def __enter__(self) -> Begun[Result]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            _forked_with.pop()
            gc.unfreeze()


def _be_fork() -> None:
    """Initialise a fork: Ctrl-C ends it silently, and it does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG of linux/prctl.h


def _piece(place: int) -> Any:
    return _forked_with[-1][place]()
