"""Who does the work: this process, local processes, or a Dask cluster. All give the same rows."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from planner.errors import PlannerError
from planner.studies.dask_engine import MAX_LOSSES, Batch, DaskCrew, Todo, dask_batches
from planner.studies.replicate import Replicator, Rows, Setup

Subject = TypeVar("Subject")
Result = TypeVar("Result")


def run_batches(
    setup: Setup, batches: Todo | Sequence[Batch], workers: int, scheduler: str | None
) -> Generator[Rows, None, None]:
    """Yield the rows of each batch as it is finished, in no certain order."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one thread per worker: our matrices are small
    todo = batches if isinstance(batches, Todo) else Todo(batches, len(batches))
    if not todo:
        return
    if scheduler is not None:
        yield from dask_batches(setup, todo, workers, scheduler)
    elif workers == 1:
        replicator = Replicator(setup)
        for first, last in todo:
            yield replicator.run(first, last)
    else:
        yield from _processes(setup, todo, workers)


class Crew(Generic[Subject]):
    """Those who work on one thing: this process, processes of their own or a cluster, all with the same results."""

    def __init__(self, make: Callable[[Any], Subject], given: object, count: int, scheduler: str | None = None) -> None:
        """Make what the work is on here, and in as many processes as are wanted; with one, the work is done here."""
        self.subject, self.count = make(given), count
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._cluster = None if scheduler is None else DaskCrew(make, given, count, scheduler)
        if count > 1 and scheduler is None:
            context = _context()
            self._life, self._held = context.Pipe(duplex=False)
            self._pool = concurrent.futures.ProcessPoolExecutor(
                count, mp_context=context, initializer=_join, initargs=(make, pickle.dumps(given), self._life)
            )

    def map(self, work: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield what a function makes of the thing and each of some further arguments, in their order."""
        if self._cluster is not None and len(arguments) > 1:
            yield from self._cluster.map(work, arguments)
            return
        if self._pool is None or len(arguments) == 1:
            yield from (work(self.subject, *piece) for piece in arguments)
            return
        try:
            yield from self._pool.map(_call, [work] * len(arguments), arguments)
        except BrokenProcessPool:
            raise PlannerError("worker processes die; is there enough memory for --workers of them?") from None

    def close(self) -> None:
        """End the processes, or leave the cluster."""
        if self._cluster is not None:
            self._cluster.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._held.close()
            self._life.close()
            self._pool = None


_joined: dict[str, Any] = {}  # of a worker process: what its crew works on


def _join(make: Callable[[Any], Any], payload: bytes, life: Connection) -> None:
    """Start in a worker process: Ctrl-C is the parent's to handle, and it ends with the parent, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    _joined["subject"] = make(pickle.loads(payload))


def _call(work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    return work(_joined["subject"], *arguments)


def _context() -> Any:
    """Return how worker processes are made: each a fork of a small server that has read the code."""
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload([__name__])
    return context


def _end_with(life: Connection) -> None:
    """Wait until the study's process is gone, however it ended: its end of the pipe is closed then; leave at once."""
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)


def _processes(setup: Setup, todo: Todo, workers: int) -> Iterator[Rows]:
    """Run batches in worker processes; when one dies, start anew with what is not finished."""
    context = _context()
    payload = pickle.dumps(setup)
    life, held = context.Pipe(duplex=False)  # nothing is ever sent: only this process holds the writing end
    losses = 0
    while todo:
        flying: dict[concurrent.futures.Future[Rows], Batch] = {}
        pool = concurrent.futures.ProcessPoolExecutor(
            min(workers, len(todo)), mp_context=context, initializer=_join, initargs=(Replicator, payload, life)
        )
        try:
            while todo or flying:
                while todo and len(flying) < 2 * workers:
                    flying[pool.submit(_call, Replicator.run, todo.next)] = todo.next
                    todo.take()
                done, _ = concurrent.futures.wait(flying, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    rows = future.result()
                    del flying[future]
                    losses = 0
                    yield rows
        except BrokenProcessPool:
            losses += 1
            todo.put_back(sorted(flying.values()))
            if losses >= MAX_LOSSES:
                raise PlannerError(
                    f"worker processes die before they finish replications {todo.next[0]} to {todo.next[1]}; "
                    "is there enough memory for --workers of them?"
                ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    held.close()
    life.close()
