"""Work shared with forks of this process: they have read what it has read, so they begin at once and are told nothing.

A study has workers that live for minutes and may be elsewhere (``planner.studies.engines``). What takes a second or
two, the replications behind a run's intervals or its workbook beside its report, would be over before such a worker had
started. Whoever does a piece of work, the result is the same.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
MOST_AT_ONCE = 8
"""Processes that work on one thing; assumption: beyond, a second's work is not worth the memory (100 MB each)."""
_TOKEN_BYTES = 4
_MOST_TOKENS = 4096  # 16 kB: a quarter of what a pipe takes in before anybody reads
_at_work: set[int] = set()
"""Processes that help out just now."""


def cores() -> int:
    """Return the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def may_fork() -> bool:
    """Say whether a fork of this process can do the same work: on Linux, and with no thread that it would lack.

    A fork has none of its parent's other threads, but any lock that they held. BLAS and Arrow have threads that Python
    does not count.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def shared(work: Sequence[Callable[[], Result]], workers: int | None = None) -> list[Result]:
    """Return what each piece of work comes to, in their order; done by forks of this process as well as by itself.

    ``workers`` counts this process too, a core each unless given.
    """
    with begun(work, workers) as finished:
        return finished()


@contextlib.contextmanager
def begun(work: Sequence[Callable[[], Result]], workers: int | None = None) -> Iterator[Callable[[], list[Result]]]:
    """Have forks of this process begin with pieces of work; the function that is handed out does what is left of them.

    What this process does before it calls that function, it does while they work. Where it never does, because of an
    error say, they are stopped. Work that is shared meanwhile has the cores that they leave.
    """
    count = min(cores() - len(_at_work), MOST_AT_ONCE) if workers is None else workers
    helpers = min(count, len(work)) - 1 if may_fork() else 0
    if helpers < 1:
        yield lambda: [piece() for piece in work]
        return
    tokens = min(len(work), _MOST_TOKENS)
    portions = [range(first, len(work), tokens) for first in range(tokens)]
    todo = _todo(tokens)
    gc.freeze()  # or whoever next looks for cycles looks through all that there is, and a fork copies it to do so
    try:
        with _helping(lambda: _take(work, portions, todo), helpers) as helped:

            def finished() -> list[Result]:
                done = _take(work, portions, todo)
                for part in helped():
                    done |= part
                # A helper that died, for want of memory perhaps, has left its pieces to do.
                return [done[place] if place in done else piece() for place, piece in enumerate(work)]

            yield finished
    finally:
        gc.unfreeze()
        os.close(todo)


def _todo(tokens: int) -> int:
    """Return a pipe that holds the number of each portion; whoever reads one has taken it."""
    read, write = os.pipe()
    os.write(write, b"".join(token.to_bytes(_TOKEN_BYTES, "little") for token in range(tokens)))
    os.close(write)
    return read


def _take(work: Sequence[Callable[[], Result]], portions: Sequence[range], todo: int) -> dict[int, Result]:
    """Do portions until none is left, and return what each of their pieces came to, by its place."""
    done: dict[int, Result] = {}
    while token := os.read(todo, _TOKEN_BYTES):
        for place in portions[int.from_bytes(token, "little")]:
            done[place] = work[place]()
    return done


@contextlib.contextmanager
def _helping(
    help_out: Callable[[], dict[int, Result]], helpers: int
) -> Iterator[Callable[[], Iterator[dict[int, Result]]]]:
    """Have forks help out; the function that is handed out waits for what each has done. None is left behind."""
    children: list[tuple[int, int]] = []
    try:
        for _ in range(helpers):
            try:
                children.append(_fork(help_out))
            except OSError:  # no more processes or files for this user: those that there are do the work
                break
            _at_work.add(children[-1][0])
        yield lambda: (_read(read) for _, read in children)
    finally:
        for child, read in children:
            os.close(read)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)  # it has said what it did, or nobody wants to know any more
            os.waitpid(child, 0)
            _at_work.discard(child)


def _fork(help_out: Callable[[], dict[int, Result]]) -> tuple[int, int]:
    """Return a helper's process and the pipe in which it says what it did."""
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        raise
    if child == 0:
        os.close(read)  # or it would wait for itself to read what it says, for good, were its parent killed
        _be_helper(help_out, write)
    os.close(write)
    return child, read


def _be_helper(help_out: Callable[[], dict[int, Result]], write: int) -> None:
    """Help out, say what came of it, and end without anything that this process would do at its end."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches it too, and its parent says what there is to say
        with open(write, "wb") as told:
            pickle.dump(help_out(), told)
        status = 0
    except BaseException:
        pass
    finally:
        os._exit(status)


def _read(pipe: int) -> dict[int, Result]:
    """Return what a helper says; nothing of one that died."""
    with open(os.dup(pipe), "rb") as told:  # noqa: PTH123 - a pipe
        try:
            done: dict[int, Result] = pickle.load(told)
        except (EOFError, pickle.UnpicklingError):
            return {}
    return done
