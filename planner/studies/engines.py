"""Who does the work: this process, local processes, or a Dask cluster. All give the same rows."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from planner.errors import PlannerError, ScenarioError
from planner.studies.replicate import Replicator, Rows, Setup

Batch = tuple[int, int]
LOCAL_DASK = "local-dask"
_MAX_LOSSES = 3  # batches in a row during which workers died without any result
_CONNECT_S = 10


def run_batches(
    setup: Setup, batches: Iterable[Batch], workers: int, scheduler: str | None
) -> Generator[Rows, None, None]:
    """Yield the rows of each batch as it is finished, in no certain order."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one thread per worker: our matrices are small
    todo = deque(batches)
    if not todo:
        return
    if scheduler is not None:
        yield from _dask(setup, todo, workers, scheduler)
    elif workers == 1:
        replicator = Replicator(setup)
        for first, last in todo:
            yield replicator.run(first, last)
    else:
        yield from _processes(setup, todo, workers)


_own: dict[str, Replicator] = {}  # of a worker process: what it was started with


def _start(payload: bytes) -> None:
    """Prepare a worker process; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _own["study"] = Replicator(pickle.loads(payload))


def _work(first: int, last: int) -> Rows:
    return _own["study"].run(first, last)


def _processes(setup: Setup, todo: deque[Batch], workers: int) -> Iterator[Rows]:
    """Run batches in worker processes; when one dies, start anew with what is not finished."""
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload([__name__])
    payload = pickle.dumps(setup)
    losses = 0
    while todo:
        flying: dict[concurrent.futures.Future[Rows], Batch] = {}
        pool = concurrent.futures.ProcessPoolExecutor(
            min(workers, len(todo)), mp_context=context, initializer=_start, initargs=(payload,)
        )
        try:
            while todo or flying:
                while todo and len(flying) < 2 * workers:
                    flying[pool.submit(_work, *todo[0])] = todo[0]
                    todo.popleft()
                done, _ = concurrent.futures.wait(flying, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    rows = future.result()
                    del flying[future]
                    losses = 0
                    yield rows
        except BrokenProcessPool:
            losses += 1
            todo.extendleft(sorted(flying.values(), reverse=True))
            if losses >= _MAX_LOSSES:
                raise PlannerError(
                    f"worker processes die before they finish replications {todo[0][0]} to {todo[0][1]}; "
                    "is there enough memory for --workers of them?"
                ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_thread = threading.local()


def _dask_work(payload: bytes, digest: str, first: int, last: int) -> Rows:
    """Run a batch on a Dask worker; each of its threads keeps its own study."""
    if getattr(_thread, "digest", None) != digest:
        _thread.replicator, _thread.digest = Replicator(pickle.loads(payload)), digest
    rows: Rows = _thread.replicator.run(first, last)
    return rows


def _same(payload: bytes) -> bytes:
    return payload


@contextlib.contextmanager
def _client(scheduler: str, workers: int) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine."""
    try:
        import distributed  # noqa: PLC0415 - the optional extra [dask]
    except ImportError:
        raise ScenarioError("--scheduler needs Dask: pip install 'datacenter-planner[dask]'") from None
    if scheduler == LOCAL_DASK:
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(scheduler, timeout=f"{_CONNECT_S}s")
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ScenarioError(f"no Dask scheduler answers at {scheduler}: {reason}") from None
    with client:
        yield client


def _dask(setup: Setup, todo: deque[Batch], workers: int, scheduler: str) -> Iterator[Rows]:
    """Run batches on a Dask cluster; the study travels to each worker once, and lost batches are run again."""
    payload = pickle.dumps(setup)
    digest = hashlib.sha256(payload).hexdigest()
    with _client(scheduler, workers) as client:
        import distributed  # noqa: PLC0415 - the optional extra [dask]

        study = client.submit(_same, payload, key=f"study-{digest}")
        losses: dict[Batch, int] = {}
        flying: dict[Any, Batch] = {}

        def submit() -> Any:
            batch = todo.popleft()
            future = client.submit(_dask_work, study, digest, *batch, pure=False)
            flying[future] = batch
            return future

        threads = max(sum(client.nthreads().values()), 1)
        queue = distributed.as_completed([submit() for _ in range(min(2 * threads, len(todo)))])
        for future in queue:
            batch = flying.pop(future)
            try:
                rows: Rows = future.result()
            except (distributed.KilledWorker, concurrent.futures.CancelledError, OSError) as error:
                losses[batch] = losses.get(batch, 0) + 1
                if losses[batch] >= _MAX_LOSSES:
                    raise PlannerError(f"Dask workers die on replications {batch[0]} to {batch[1]}: {error}") from None
                todo.appendleft(batch)
            except ImportError as error:
                raise ScenarioError(
                    f"the Dask workers cannot run a study: {error}; install the planner there"
                ) from None
            else:
                yield rows
            if todo:
                queue.add(submit())
