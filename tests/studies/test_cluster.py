"""A Dask cluster of real processes, as a site would have it: the same bytes, and losses that cost nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from planner.errors import PlannerError, ScenarioError
from planner.scenario.loading import load_scenario
from planner.sizing.evaluate import Clock
from planner.sizing.size import Effort, size, trial_of
from planner.studies import engines
from planner.studies.engines import Workforce, replicators
from planner.studies.prepare import prepare
from tests.sizing.toys import toy
from tests.studies.processes import (
    LIMIT_S,
    Process,
    end,
    files,
    finish,
    start,
    start_study,
    wait_for,
)

dask = pytest.importorskip("dask.config", reason="as below")
distributed = pytest.importorskip(
    "distributed", reason="Dask is an extra: pip install 'datacenter-planner[dask]'"
)


@dataclass(frozen=True)
class Cluster:
    """A scheduler and its workers, each a process without a guardian that would start it anew."""

    address: str
    scheduler: Process
    workers: tuple[Process, ...]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    started: list[Process] = []

    def dask(*arguments: str) -> Process:
        started.append(start([sys.executable, "-m", "dask", *arguments, "--no-dashboard"]))
        return started[-1]

    def begin(workers: int) -> Cluster:
        place = tmp_path / "scheduler.json"
        scheduler = dask(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(place)
        )
        wait_for(
            lambda: (place.exists() and bool(place.read_text())) or scheduler.poll() is not None
        )
        address = json.loads(place.read_text())["address"]
        limits = ("--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path / "spill"))
        own = tuple(
            dask("worker", address, "--name", f"worker-{number}", *limits)
            for number in range(workers)
        )
        return Cluster(address=address, scheduler=scheduler, workers=own)

    yield begin
    for process in reversed(started):
        end(process)


@pytest.mark.prove
def test_an_existing_cluster_writes_the_same_bytes(
    study: Path, tmp_path: Path, cluster: Callable[[int], Cluster], whole: dict[str, bytes]
) -> None:
    address = cluster(2).address
    assert address.startswith("tcp://127.0.0.1:")
    done = finish(study, tmp_path / "out", "--scheduler", address)
    assert "Traceback" not in done.stderr
    assert files(tmp_path / "out") == whole
    finish(study, tmp_path / "again", "--scheduler", address)  # the cluster is left as it was found
    assert files(tmp_path / "again") == whole


@pytest.mark.prove
def test_a_lost_machine_costs_nothing(
    study: Path, tmp_path: Path, cluster: Callable[[int], Cluster], whole: dict[str, bytes]
) -> None:
    found = cluster(2)
    process = start_study(study, tmp_path / "out", "--scheduler", found.address)
    try:
        os.kill(found.workers[0].pid, signal.SIGKILL)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, (out, err)
    finally:
        end(process)
    assert found.workers[1].poll() is None
    assert files(tmp_path / "out") == whole


@pytest.mark.prove
def test_a_lost_scheduler_is_one_message_and_the_study_is_resumed(
    study: Path, tmp_path: Path, cluster: Callable[[int], Cluster], whole: dict[str, bytes]
) -> None:
    found = cluster(1)
    process = start_study(study, tmp_path / "out", "--scheduler", found.address)
    try:
        os.kill(found.scheduler.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        end(process)
    assert process.returncode == 2, err
    assert "Traceback" not in err, err
    assert f"the Dask scheduler at {found.address} is gone; finished replications are stored" in err
    assert "--resume" in err
    finish(study, tmp_path / "out", "--workers", "1", "--resume")
    assert files(tmp_path / "out") == whole


def test_a_cluster_without_workers_is_one_message(
    study: Path, tmp_path: Path, cluster: Callable[[int], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_WORKERS_S", 0.5)
    address = cluster(0).address
    prepared = prepare(study)
    setup = prepared.setup(prepared.montecarlo())
    with pytest.raises(
        ScenarioError, match=rf"the Dask cluster at {address} has no workers after 0.5 s"
    ):
        replicators(setup, 1, Workforce(scheduler=address))


@pytest.mark.prove
def test_a_sizing_on_a_cluster_finds_the_same(cluster: Callable[[int], Cluster]) -> None:
    scenario = load_scenario(toy(("2026-01-01",), 4))
    trial = trial_of(scenario, (), None, "net-present-cost", None)
    here, there = (
        size(scenario, trial, Effort(replications=4, confirmations=8, scheduler=scheduler), Clock())
        for scheduler in (None, cluster(2).address)
    )
    assert here.plan.policy == there.plan.policy
    assert here.plan.cost == there.plan.cost
    assert (here.plan.worst == there.plan.worst).all()
    assert here.runs == there.runs


def test_workers_that_die_as_they_start_are_one_message(
    study: Path,
) -> None:
    prepared = prepare(study)
    setup = prepared.setup(prepared.montecarlo())
    preload = {"distributed.worker.preload": ["import os; os._exit(3)"]}
    force = Workforce(workers=1, scheduler=engines.LOCAL_DASK)
    with dask.set(preload), pytest.raises(PlannerError, match="die as they start"):
        replicators(setup, 1, force)
