"""Batches on a Dask cluster: the study travels to each worker once, and lost batches are run again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from planner.errors import PlannerError, Problem, ScenarioError
from planner.studies.replicate import Replicator, Rows, Setup

Batch = tuple[int, int]
LOCAL_DASK = "local-dask"
MAX_LOSSES = 3
"""Workers that may die on one batch before the study ends."""
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

_thread = threading.local()


class Todo:
    """Batches that are still to be run, made as they are taken: two million of them in a list take 300 MB."""

    def __init__(self, batches: Iterable[Batch], count: int) -> None:
        """Take batches in the order in which they are to be run, and how many there are."""
        self._further, self._count = iter(batches), count
        self._back: deque[Batch] = deque()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Batch]:
        """Yield what is to be run, taking it."""
        while self._count:
            yield self.take()

    @property
    def next(self) -> Batch:
        """The next batch, which stays."""
        if not self._back:
            self._back.append(next(self._further))
        return self._back[0]

    def take(self) -> Batch:
        """Return the next batch, and go on."""
        self._count -= 1
        return self._back.popleft() if self._back else next(self._further)

    def put_back(self, batches: Sequence[Batch]) -> None:
        """Take batches back that were not finished; they are the next."""
        self._count += len(batches)
        self._back.extendleft(reversed(batches))


def dask_batches(setup: Setup, todo: Todo, workers: int, scheduler: str) -> Iterator[Rows]:
    """Yield the rows of each batch as the cluster finishes it, in no certain order."""
    with _client(scheduler, workers) as client:
        flight = _Flight(client, setup, todo)
        flight.fill()
        while flight.flying:
            landed = flight.landed()
            flight.fill()
            yield from landed


def _work(payload: bytes, digest: str, batches: list[Batch]) -> tuple[list[Rows], float]:
    """Run batches on a Dask worker and say how long one takes; each of its threads keeps its own study."""
    if getattr(_thread, "digest", None) != digest:
        _thread.replicator, _thread.digest = Replicator(pickle.loads(payload)), digest
    begin_s = time.monotonic()
    rows = [_thread.replicator.run(*batch) for batch in batches]
    return rows, (time.monotonic() - begin_s) / len(batches)


class DaskCrew:
    """Workers of a cluster that each make a thing once and work on it, call by call."""

    def __init__(self, make: Callable[[Any], Any], given: object, workers: int, scheduler: str) -> None:
        """Connect to the cluster and give it what the work is on."""
        self._stack = contextlib.ExitStack()
        self._client = self._stack.enter_context(_client(scheduler, workers))
        payload = pickle.dumps((make, given))
        self._digest = hashlib.sha256(payload).hexdigest()
        self._given = self._client.submit(_same, payload, key=f"crew-{self._digest}")

    def map(self, work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what a function makes of the thing and each of some further arguments, in their order."""
        import distributed  # noqa: PLC0415 - the optional extra [dask]

        calls = [
            self._client.submit(_call, self._given, self._digest, work, piece, pure=False, retries=MAX_LOSSES)
            for piece in arguments
        ]
        try:
            yield from (call.result() for call in calls)
        except (distributed.KilledWorker, concurrent.futures.CancelledError, OSError) as error:
            problem = Problem(message=f"the Dask cluster lost its work: {error}", hint="add --resume to go on")
            raise ScenarioError(problem) from None

    def close(self) -> None:
        """Leave the cluster."""
        self._stack.close()


def _call(payload: bytes, digest: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Work on a Dask worker; each of its threads keeps what it made."""
    if getattr(_thread, "crew", None) != digest:
        make, given = pickle.loads(payload)
        _thread.subject, _thread.crew = make(given), digest
    return work(_thread.subject, *arguments)


def _same(payload: bytes) -> bytes:
    return payload


@contextlib.contextmanager
def _client(scheduler: str, workers: int) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine."""
    try:
        import dask.config  # noqa: PLC0415 - the optional extra [dask]
        import distributed  # noqa: PLC0415 - as above
        from distributed.utils import silence_logging_cmgr  # noqa: PLC0415 - as above
    except ImportError:
        raise ScenarioError("--scheduler needs Dask: pip install 'datacenter-planner[dask]'") from None
    if scheduler == LOCAL_DASK:
        with (
            dask.config.set(_QUIET),
            distributed.LocalCluster(
                host=_LOOPBACK,
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=f"{_LOOPBACK}:0",
                worker_dashboard_address=f"{_LOOPBACK}:0",
                silence_logs=50,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    with silence_logging_cmgr(logging.CRITICAL):  # what a user can mend is raised
        try:
            client = distributed.Client(scheduler, timeout=f"{_CONNECT_S}s")
        except (OSError, TimeoutError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ScenarioError(f"no Dask scheduler answers at {scheduler}: {reason}") from None
        with client:
            yield client


class _Flight:
    """Batches that a cluster was given and has not returned: tasks of some seconds, at least two for each thread."""

    def __init__(self, client: Any, setup: Setup, todo: Todo) -> None:
        import distributed  # noqa: PLC0415 - as above

        self.payload = pickle.dumps(setup)
        self.client, self.todo, self.address = client, todo, client.scheduler.address
        self.digest = hashlib.sha256(self.payload).hexdigest()
        self.study = self._sent()
        self.flying: dict[Any, list[Batch]] = {}
        self.batch_s = _TASK_S  # unknown yet: the first tasks are of one batch
        self.losses: dict[Batch, int] = {}
        self.queue = distributed.as_completed()
        self.threads, self.counted_s = 0, 0.0
        try:
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError:
            message = f"the Dask cluster at {self.address} has no workers after {_WORKERS_S} s"
            raise ScenarioError(message) from None

    def _sent(self) -> Any:
        """Give the cluster the study: as a task, which is run again where the worker that held it is lost."""
        return self.client.submit(_same, self.payload, key=f"study-{self.digest}")

    def fill(self) -> None:
        """Give the cluster what it can hold."""
        if time.monotonic() - self.counted_s > _COUNT_EVERY_S:
            self.threads = max(sum(self.client.nthreads().values()), 1)
            self.counted_s = time.monotonic()
        if self.study.cancelled():  # by a connection that was lost and found again
            self.study = self._sent()
        # The last tasks are small again, so that no worker waits long for another's.
        count = max(1, min(int(_TASK_S / self.batch_s), len(self.todo) // (4 * self.threads)))
        while self.todo and len(self.flying) < max(_QUEUED, 2 * self.threads):
            batches = [self.todo.take() for _ in range(min(count, len(self.todo)))]
            future = self.client.submit(_work, self.study, self.digest, batches, pure=False)
            self.flying[future] = batches
            self.queue.add(future)

    def landed(self) -> list[Rows]:
        """Return the batches of the next task that is finished, none where it was lost and will be run again."""
        import distributed  # noqa: PLC0415 - as above

        future = next(self.queue)
        batches = self.flying.pop(future)
        rows: list[Rows]
        try:
            rows, self.batch_s = future.result()
        except (ImportError, AttributeError, TypeError, pickle.UnpicklingError) as error:
            message = f"the Dask workers cannot run a study: {error}; install this planner there"
            raise ScenarioError(message) from None
        except (distributed.KilledWorker, concurrent.futures.CancelledError, OSError) as error:
            if self.client.status != "running":
                message = f"the Dask scheduler at {self.address} is gone; finished replications are kept"
                raise ScenarioError(Problem(message=message, hint="add --resume")) from None
            for batch in batches:
                self.losses[batch] = self.losses.get(batch, 0) + 1
            if self.losses[batches[0]] >= MAX_LOSSES:
                message = f"Dask workers die on replications {batches[0][0]} to {batches[-1][1]}: {error}"
                raise PlannerError(message) from None
            self.todo.put_back(batches)
            return []
        return rows
