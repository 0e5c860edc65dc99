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
from planner.plan.reuse import keep_on, shelves
from planner.studies.replicate import Replicator, Setup

Subject = TypeVar("Subject")
Result = TypeVar("Result")
Piece = tuple[Any, ...]
"""What a function is called with beside the thing that it works on."""
PIECE = "replications {} to {}"
"""A study's piece of work, for messages."""
LOCAL_DASK = "local-dask"
"""In place of an address: a Dask cluster of our own on this machine."""
MAX_LOSSES = 3
"""Workers that may die on one piece of work before all of it ends."""
_CONNECT_S = 10
"""How long a scheduler may take to answer."""
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
    is_address = scheduler is None or "://" in scheduler
    if not is_address and scheduler != LOCAL_DASK:
        example = "an address such as tcp://10.0.0.5:8786, or local-dask"
        raise ScenarioError(f"--scheduler must be {example}: {scheduler!r}")
    return Workforce(workers=workers or cores(), scheduler=scheduler)


def replicators(setup: Setup, batches: int, force: Workforce) -> Crew[Replicator]:
    """Return the workers of a study with a number of batches of rows, for :meth:`Replicator.run`."""
    # One thread per worker: our matrices are small, and all cores have a worker.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A cluster has the workers it has; of our own, none is started for nothing.
    count = force.workers
    if not force.scheduler:
        count = min(count, batches)
    return Crew(Replicator, setup, count, force.scheduler)


class Crew(Generic[Subject]):
    """Workers on one shared subject: this process, worker processes or a cluster, all with the same results."""

    def __init__(
        self,
        factory: Callable[[Any], Subject],
        argument: object,
        count: int,
        scheduler: str | None = None,
    ) -> None:
        """Create the subject here and in ``count`` worker processes; with one, the work is done here."""
        self.subject = factory(argument)
        self.count = count
        self._payload = pickle.dumps((factory, argument, shelves()))
        self._cluster: _Cluster | None = None
        if scheduler is not None:
            self._cluster = _Cluster(self._payload, count, scheduler)
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._lifeline: list[Connection] = []
        """A pipe through which nothing is sent: only we hold its writing end, so it closes with us."""

    def map(
        self, work: Callable[..., Result], arguments: Sequence[Piece], label: str = "their work"
    ) -> Iterator[Result]:
        """Yield the results of a function on the subject and each argument, in order."""
        early: dict[int, Result] = {}
        due = 0
        for place, result in self.unordered(work, arguments, label):
            early[place] = result
            # Results that come early wait here until all before them have come.
            while due in early:
                yield early.pop(due)
                due += 1

    def unordered(
        self, work: Callable[..., Result], arguments: Sequence[Piece], label: str = "their work"
    ) -> Iterator[tuple[int, Result]]:
        """Yield index and result of each piece as it finishes; ``label`` describes a piece in messages."""
        # To start a process takes longer than one piece of work.
        is_single = len(arguments) == 1 and self._pool is None
        if self._cluster is not None:
            yield from self._cluster.unordered(work, arguments, label)
        elif self.count == 1 or is_single:
            yield from enumerate(work(self.subject, *piece) for piece in arguments)
        else:
            yield from self._by_processes(work, arguments, label)

    def _by_processes(
        self, work: Callable[..., Result], arguments: Sequence[Piece], label: str
    ) -> Iterator[tuple[int, Result]]:
        """Yield index and result of each piece as a worker process finishes it; begin anew where one dies."""
        waiting = deque(range(len(arguments)))
        losses = 0
        while waiting:
            running: dict[concurrent.futures.Future[Result], int] = {}
            try:
                pool = self._processes()
                while waiting or running:
                    # Two pieces a process: the next is there when one ends, and few are lost with it.
                    while waiting and len(running) < 2 * self.count:
                        place = waiting[0]
                        future = pool.submit(_call, work, arguments[place])
                        running[future] = place
                        # Only now: a pool that refuses it leaves the piece among the waiting.
                        waiting.popleft()
                    finished, _ = concurrent.futures.wait(
                        running, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for future in finished:
                        result = future.result()
                        losses = 0
                        yield running.pop(future), result
            except BrokenProcessPool:
                # Nobody knows which piece killed its worker: all that are not finished go back.
                losses += 1
                unfinished = sorted(running.values(), reverse=True)
                waiting.extendleft(unfinished)
                self._end_processes()
                if losses >= MAX_LOSSES:
                    arguments_of_piece = arguments[waiting[0]]
                    piece = label.format(*arguments_of_piece)
                    message = f"worker processes end before they finish {piece}"
                    hint = "is there enough memory for that many --workers?"
                    raise PlannerError(f"{message}; {hint}") from None

    def _processes(self) -> concurrent.futures.ProcessPoolExecutor:
        """Return the worker processes, each a fork of a small server that has read the code."""
        if self._pool is None:
            context: Any = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
            self._lifeline = list(context.Pipe(duplex=False))
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.count,
                mp_context=context,
                initializer=_start_worker,
                initargs=(self._payload, self._lifeline[0]),
            )
        return self._pool

    def _end_processes(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        while self._lifeline:
            self._lifeline.pop().close()

    def close(self) -> None:
        """Stop the worker processes, or disconnect from the cluster."""
        self._end_processes()
        if self._cluster is not None:
            self._cluster.close()


_worker = threading.local()
"""Of a worker: what it works on, and the hash of the payload that this was made of."""


def _start_worker(payload: bytes, lifeline: Connection) -> None:
    """Initialise a worker process: it ignores Ctrl-C and exits when its parent does."""

    def end_with_parent() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv_bytes()  # until the parent's end of the pipe is closed
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A daemon, so that a worker whose work is done need not wait for its parent.
    watch = threading.Thread(target=end_with_parent, daemon=True)
    watch.start()
    _make_subject(payload)
    gc.freeze()  # what is there now stays: the collector need not look at it again


def _make_subject(payload: bytes) -> None:
    """Make of a payload what this worker works on."""
    factory, argument, shelves_of_parent = pickle.loads(payload)
    keep_on(*shelves_of_parent)
    _worker.subject = factory(argument)


def _call(work: Callable[..., Result], piece: Piece) -> Result:
    return work(_worker.subject, *piece)


class _Cluster:
    """A Dask cluster: the subject is sent to each worker once, and lost pieces are run again."""

    def __init__(self, payload: bytes, workers: int, scheduler: str) -> None:
        """Connect to the cluster, or start a local one, and send it the subject."""
        try:
            import dask.config  # noqa: PLC0415 - the optional extra [dask]
            import distributed  # noqa: PLC0415 - as above
            from distributed.utils import silence_logging_cmgr  # noqa: PLC0415 - as above
        except ImportError:
            hint = "pip install 'datacenter-planner[dask]'"
            raise ScenarioError(f"--scheduler needs Dask: {hint}") from None
        self._stack = contextlib.ExitStack()
        if scheduler == LOCAL_DASK:
            quiet = dask.config.set(_QUIET)
            self._stack.enter_context(quiet)
            try:
                local = distributed.LocalCluster(
                    host=_LOOPBACK,
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address=f"{_LOOPBACK}:0",
                    worker_dashboard_address=f"{_LOOPBACK}:0",
                    silence_logs=50,
                )
            except (RuntimeError, OSError):
                self.close()
                hint = "is there enough memory for that many --workers?"
                raise PlannerError(f"the Dask workers die as they start; {hint}") from None
            local = self._stack.enter_context(local)
            client = distributed.Client(local)
        else:
            # What a user can mend is raised; Dask would log it, with tracebacks, besides.
            silence = silence_logging_cmgr(logging.CRITICAL)
            self._stack.enter_context(silence)
            try:
                client = distributed.Client(scheduler, timeout=f"{_CONNECT_S}s")
            except (OSError, TimeoutError, ValueError) as error:
                self.close()
                lines = str(error).splitlines() or [type(error).__name__]
                message = f"no Dask scheduler answers at {scheduler}: {lines[0]}"
                raise ScenarioError(message) from None
        self.client = self._stack.enter_context(client)
        self.address = self.client.scheduler.address
        self.payload = payload
        self.digest = hashlib.sha256(payload).hexdigest()
        self._send_payload()
        try:
            self.client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError:
            self.close()
            message = f"the Dask cluster at {self.address} has no workers after {_WORKERS_S} s"
            raise ScenarioError(message) from None

    def _send_payload(self) -> None:
        """Submit the payload as a task's result, which Dask recomputes where its worker is lost."""
        # Keyed by its content, so that studies on one cluster do not take each other's.
        key = f"study-{self.digest}"
        self.sent_payload = self.client.submit(bytes, self.payload, key=key)

    def _threads(self) -> int:
        """Return how many pieces the cluster works on at a time."""
        threads = sum(self.client.nthreads().values())
        # A cluster may for a moment have lost all its workers.
        return max(int(threads), 1)

    def unordered(
        self, work: Callable[..., Result], arguments: Sequence[Piece], label: str
    ) -> Iterator[Any]:
        """Yield index and result of each piece; a task holds some seconds of pieces, two tasks per thread."""
        import distributed  # noqa: PLC0415 - the optional extra [dask]

        waiting = deque(range(len(arguments)))
        losses = Counter[int]()
        running: dict[Any, list[int]] = {}
        queue = distributed.as_completed()
        finished: Sequence[tuple[int, Result]] = ()
        piece_s = _TASK_S  # unknown yet: the first tasks are of one piece
        threads = self._threads()
        counted_s = time.monotonic()
        while True:
            if time.monotonic() - counted_s > _COUNT_EVERY_S:
                threads = self._threads()
                counted_s = time.monotonic()
            if self.sent_payload.cancelled():  # by a connection that was lost and found again
                self._send_payload()
            pieces_in_time = int(_TASK_S / max(piece_s, 1e-3))
            # The last tasks are small again, so that no worker waits long for another's.
            pieces_left = len(waiting) // (4 * threads)
            pieces_per_task = max(1, min(pieces_in_time, pieces_left))
            most_running = max(_QUEUED, 2 * threads)
            while waiting and len(running) < most_running:
                count = min(pieces_per_task, len(waiting))
                places = [waiting.popleft() for _ in range(count)]
                pieces = [arguments[place] for place in places]
                future = self.client.submit(
                    _work, self.sent_payload, self.digest, work, pieces, pure=False
                )
                running[future] = places
                queue.add(future)
            yield from finished  # while the cluster has its next tasks
            if not running:
                return
            future = next(queue)
            places = running.pop(future)
            finished = ()
            try:
                results, piece_s = future.result()
                finished = list(zip(places, results, strict=True))
            except (ImportError, AttributeError, TypeError, pickle.UnpicklingError) as error:
                message = f"the Dask workers cannot run a study: {error}"
                raise ScenarioError(f"{message}; install this planner there") from None
            except (distributed.KilledWorker, concurrent.futures.CancelledError, OSError) as error:
                if self.client.status != "running":
                    message = f"the Dask scheduler at {self.address} is gone"
                    message = f"{message}; finished replications are stored"
                    problem = Problem(message=message, hint="add --resume")
                    raise ScenarioError(problem) from None
                losses.update(places)
                if losses[places[0]] >= MAX_LOSSES:
                    arguments_of_piece = arguments[places[0]]
                    piece = label.format(*arguments_of_piece)
                    raise PlannerError(f"Dask workers die on {piece}: {error}") from None
                waiting.extendleft(reversed(places))

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._stack.close()


def _work(
    payload: bytes, digest: str, work: Callable[..., Result], pieces: list[Piece]
) -> tuple[list[Result], float]:
    """Run pieces on a Dask worker; return their results and the time per piece."""
    if getattr(_worker, "digest", None) != digest:
        _make_subject(payload)
        _worker.digest = digest
    begin_s = time.monotonic()
    results = [_call(work, piece) for piece in pieces]
    elapsed_s = time.monotonic() - begin_s
    return results, elapsed_s / len(pieces)
