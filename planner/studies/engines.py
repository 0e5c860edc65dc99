"""Execution back ends: this process, local processes, or a Dask cluster; all give the same results."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import hashlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Generic, NamedTuple, TypeVar

from planner.errors import PlannerError, Problem, ScenarioError
from planner.parallel import cores
from planner.studies.replicate import Replicator, Setup

Subject = TypeVar("Subject")
Result = TypeVar("Result")
Piece = tuple[Any, ...]
"""What a function is called with beside the thing that it works on."""
PIECE = "replications {} to {}"
"""A study's piece of work, for messages."""
LOCAL_DASK = "local-dask"
MAX_LOSSES = 3
"""Workers that may die on one piece of work before all of it ends."""
_CONNECT_S = 10
_WORKERS_S = 60
"""How long a cluster may take to have its first worker; one that grows with its work starts with none."""
_COUNT_EVERY_S = 10.0
"""Between two looks at how many workers there are: they come and go."""
_TASK_S = 5.0
"""Work in one task: enough that the scheduler, a millisecond a task, keeps thousands of cores busy."""
_QUEUED = 256
"""Tasks that wait at least: a cluster that grows with its work grows by what it is told of."""
_LOOPBACK = "127.0.0.1"
"""Dask exchanges pickles, which are code, with whoever connects: a cluster of our own listens to this machine alone."""
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.tick.cycle": "5s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Less of Dask's watching over itself, for a cluster of our own: by default each of its processes spends 3 to 4% of a
core on samples of its own stack and state, and here they share the cores with the work."""


class Workforce(NamedTuple):
    """The workers of a study."""

    workers: int = 1
    scheduler: str | None = None


def workforce(workers: int | None, scheduler: str | None) -> Workforce:
    """Return the workers of a study: one process per core by default."""
    if scheduler is not None and scheduler != LOCAL_DASK and "://" not in scheduler:
        raise ScenarioError(
            f"--scheduler must be an address such as tcp://10.0.0.5:8786, or local-dask: {scheduler!r}"
        )
    return Workforce(workers=workers or cores(), scheduler=scheduler)


def replicators(setup: Setup, batches: int, force: Workforce) -> Crew[Replicator]:
    """Return the workers of a study with a number of batches of rows, for :meth:`Replicator.run`."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # one thread per worker: our matrices are small
    count = force.workers if force.scheduler else min(force.workers, batches)
    return Crew(Replicator, setup, count, force.scheduler)


class Crew(Generic[Subject]):
    """Workers on one shared subject: this process, worker processes or a cluster, all with the same results."""

    def __init__(
        self,
        make: Callable[[Any], Subject],
        given: object,
        count: int,
        scheduler: str | None = None,
    ) -> None:
        """Create the subject here and in ``count`` worker processes; with one, the work is done here."""
        self.subject = make(given)
        self.count = count
        self._payload = pickle.dumps((make, given))
        self._cluster = None if scheduler is None else _Cluster(self._payload, count, scheduler)
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._life: list[Connection] = []

    def map(
        self, work: Callable[..., Result], arguments: Sequence[Piece], named: str = "their work"
    ) -> Iterator[Result]:
        """Yield the results of a function on the subject and each argument, in order."""
        early: dict[int, Result] = {}
        due = 0
        for place, result in self.unordered(work, arguments, named):
            early[place] = result
            while due in early:
                yield early.pop(due)
                due += 1

    def unordered(
        self, work: Callable[..., Result], arguments: Sequence[Piece], named: str = "their work"
    ) -> Iterator[tuple[int, Result]]:
        """Yield index and result of each piece as it finishes; ``named`` describes a piece in messages."""
        todo = deque(range(len(arguments)))
        losses = 0
        is_started = self._pool is not None or self._cluster is not None
        if (len(arguments) == 1 and not is_started) or (self.count == 1 and self._cluster is None):
            yield from enumerate(work(self.subject, *piece) for piece in arguments)
            return
        if self._cluster is not None:
            yield from self._cluster.unordered(work, arguments, named)
            return
        while todo:
            flying: dict[concurrent.futures.Future[Result], int] = {}
            try:
                if (
                    self._pool is None
                ):  # each process is a fork of a small server that has read the code
                    context: Any = multiprocessing.get_context("forkserver")
                    context.set_forkserver_preload([__name__])
                    self._life = list(
                        context.Pipe(duplex=False)
                    )  # nothing is ever sent: only we hold the writing end
                    self._pool = concurrent.futures.ProcessPoolExecutor(
                        self.count,
                        mp_context=context,
                        initializer=_join,
                        initargs=(self._payload, self._life[0]),
                    )
                while todo or flying:
                    while todo and len(flying) < 2 * self.count:
                        flying[self._pool.submit(_call, work, arguments[todo[0]])] = todo[0]
                        todo.popleft()
                    done, _ = concurrent.futures.wait(
                        flying, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for future in done:
                        result = future.result()
                        losses = 0
                        yield flying.pop(future), result
            except BrokenProcessPool:  # start anew with what is not finished
                losses += 1
                todo.extendleft(sorted(flying.values(), reverse=True))
                self._end_processes()
                if losses >= MAX_LOSSES:
                    told = f"worker processes die before they finish {named.format(*arguments[todo[0]])}"
                    raise PlannerError(
                        f"{told}; is there enough memory for --workers of them?"
                    ) from None

    def _end_processes(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        while self._life:
            self._life.pop().close()

    def close(self) -> None:
        """Stop the worker processes, or disconnect from the cluster."""
        self._end_processes()
        if self._cluster is not None:
            self._cluster.close()


_joined: dict[str, Any] = {}  # of a worker process: what its crew works on


def _join(payload: bytes, life: Connection) -> None:
    """Initialise a worker process: it ignores Ctrl-C and exits when its parent does."""

    def end_with_parent() -> None:
        with contextlib.suppress(EOFError, OSError):
            life.recv_bytes()  # until the parent's end of the pipe is closed
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    make, given = pickle.loads(payload)
    _joined["subject"] = make(given)
    gc.freeze()  # what is there now stays


def _call(work: Callable[..., Result], piece: Piece) -> Result:
    return work(_joined["subject"], *piece)


class _Cluster:
    """A Dask cluster: the subject is sent to each worker once, and lost pieces are run again."""

    def __init__(self, payload: bytes, workers: int, scheduler: str) -> None:
        """Connect to the cluster, or start a local one, and send it the subject."""
        try:
            import dask.config  # noqa: PLC0415 - the optional extra [dask]
            import distributed  # noqa: PLC0415 - as above
            from distributed.utils import silence_logging_cmgr  # noqa: PLC0415 - as above
        except ImportError:
            raise ScenarioError(
                "--scheduler needs Dask: pip install 'datacenter-planner[dask]'"
            ) from None
        self._stack = contextlib.ExitStack()
        if scheduler == LOCAL_DASK:
            self._stack.enter_context(dask.config.set(_QUIET))
            local = distributed.LocalCluster(
                host=_LOOPBACK,
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=f"{_LOOPBACK}:0",
                worker_dashboard_address=f"{_LOOPBACK}:0",
                silence_logs=50,
            )
            client = distributed.Client(self._stack.enter_context(local))
        else:
            self._stack.enter_context(
                silence_logging_cmgr(logging.CRITICAL)
            )  # what a user can mend is raised
            try:
                client = distributed.Client(scheduler, timeout=f"{_CONNECT_S}s")
            except (OSError, TimeoutError, ValueError) as error:
                self.close()
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ScenarioError(f"no Dask scheduler answers at {scheduler}: {reason}") from None
        self.client = self._stack.enter_context(client)
        self.address = self.client.scheduler.address
        self.payload = payload
        self.digest = hashlib.sha256(payload).hexdigest()
        self._give()
        try:
            self.client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError:
            self.close()
            raise ScenarioError(
                f"the Dask cluster at {self.address} has no workers after {_WORKERS_S} s"
            ) from None

    def _give(self) -> None:
        """Submit the payload as a task's result, which Dask recomputes where its worker is lost."""
        self.given = self.client.submit(bytes, self.payload, key=f"study-{self.digest}")

    def unordered(
        self, work: Callable[..., Result], arguments: Sequence[Piece], named: str
    ) -> Iterator[Any]:
        """Yield index and result of each piece; a task holds some seconds of pieces, two tasks per thread."""
        import distributed  # noqa: PLC0415 - the optional extra [dask]

        todo = deque(range(len(arguments)))
        losses = Counter[int]()
        flying: dict[Any, list[int]] = {}
        queue = distributed.as_completed()
        landed: Sequence[tuple[int, Result]] = ()
        piece_s = _TASK_S  # unknown yet: the first tasks are of one piece
        threads = 1
        counted_s = -_COUNT_EVERY_S
        while True:
            if time.monotonic() - counted_s > _COUNT_EVERY_S:
                threads = max(sum(self.client.nthreads().values()), 1)
                counted_s = time.monotonic()
            if self.given.cancelled():  # by a connection that was lost and found again
                self._give()
            # The last tasks are small again, so that no worker waits long for another's.
            count = max(1, min(int(_TASK_S / max(piece_s, 1e-3)), len(todo) // (4 * threads)))
            while todo and len(flying) < max(_QUEUED, 2 * threads):
                places = [todo.popleft() for _ in range(min(count, len(todo)))]
                pieces = [arguments[place] for place in places]
                future = self.client.submit(
                    _work, self.given, self.digest, work, pieces, pure=False
                )
                flying[future] = places
                queue.add(future)
            yield from landed  # while the cluster has its next tasks
            if not flying:
                return
            future = next(queue)
            places = flying.pop(future)
            landed = ()
            try:
                results, piece_s = future.result()
                landed = list(zip(places, results, strict=True))
            except (ImportError, AttributeError, TypeError, pickle.UnpicklingError) as error:
                message = (
                    f"the Dask workers cannot run a study: {error}; install this planner there"
                )
                raise ScenarioError(message) from None
            except (distributed.KilledWorker, concurrent.futures.CancelledError, OSError) as error:
                if self.client.status != "running":
                    message = f"the Dask scheduler at {self.address} is gone; finished replications are stored"
                    raise ScenarioError(Problem(message=message, hint="add --resume")) from None
                losses.update(places)
                if losses[places[0]] >= MAX_LOSSES:
                    raise PlannerError(
                        f"Dask workers die on {named.format(*arguments[places[0]])}: {error}"
                    ) from None
                todo.extendleft(reversed(places))

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._stack.close()


_thread = threading.local()


def _work(
    payload: bytes, digest: str, work: Callable[..., Result], pieces: list[Piece]
) -> tuple[list[Result], float]:
    """Run pieces on a Dask worker; return their results and the time per piece."""
    if getattr(_thread, "digest", None) != digest:
        make, given = pickle.loads(payload)
        _thread.subject = make(given)
        _thread.digest = digest
    begin_s = time.monotonic()
    results = [work(_thread.subject, *piece) for piece in pieces]
    return results, (time.monotonic() - begin_s) / len(pieces)
