"""The zoom against an engine walked token by token: how many are late, and what deferrable work gets."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
import pytest

from planner.requests.batching import Request, StepTimes
from planner.requests.outcome import outcomes
from planner.requests.zoom import Zoom, ZoomRequest, simulate_zoom
from tests.oracles.token_steps import Job, serve
from tests.requests.agreement import Cell, SharedCell, scenario_of, shared_rates
from tests.requests.test_batching import serve as serve_by_jumps

NOON = datetime(2026, 1, 10, 12)
PACE = 0.7
"""Of the TPOT objective of urgent requests, what a step with others may take."""


def walked(hour: Zoom) -> list[list[Job]]:
    """Serve the requests of a zoom token by token; return them by workload."""
    (group,) = hour.hour.replica_groups
    jobs = [
        [Job(*row) for row in zip(came.times_s.tolist(), [slo.level] * came.times_s.size, came.prompt_tokens.tolist(),
                                  came.cached_tokens.tolist(), came.output_tokens.tolist(), strict=True)]
        for slo, came in zip(hour.slos, hour.arrivals, strict=True)
    ]  # fmt: skip
    level = max((slo.level for slo in hour.slos if slo.is_deferrable), default=99)
    pace_s = [PACE * hour.slos[0].tpot_s] * 3
    until_s = 60.0 * (hour.span.minutes + hour.span.drain)
    serve(group.times, group.replicas, [job for one in jobs for job in one], pace_s, until_s, level)
    return jobs


def late_share(hour: Zoom, jobs: list[Job]) -> float:
    """Return the share of urgent requests that missed an objective, of those that count."""
    slo = hour.slos[0]
    return float(
        np.mean(
            [job.is_late(slo.ttft_s, slo.tpot_s) for job in jobs if _counts(hour, job.arrived_s)]
        )
    )


def _counts(hour: Zoom, time_s: float) -> bool:
    return 0.0 <= time_s < 60.0 * hour.span.minutes


@pytest.mark.parametrize(
    "times",
    [
        StepTimes(fixed_s=0.02, stream_s=0.014, sequence_s=1.3e-4, kv_s_per_token=4e-8, prefill_s_per_token=1.1e-4),
        StepTimes(
            fixed_s=0.01, stream_s=0.004, sequence_s=1e-4, kv_s_per_token=2e-8, prefill_s_per_token=3e-5, routed_s=0.01,
            log_expert_missed=-0.04, chunk_tokens=512, kv_capacity_tokens=12_000,
        ),
    ],
    ids=["dense", "experts in a small cache"],
)  # fmt: skip
def test_a_replica_alone_has_as_many_late_as_token_by_token(times: StepTimes) -> None:
    """Each request the same to a millionth, beside one another, with experts and with a full cache."""
    random = np.random.default_rng(5)
    count = 400
    came = np.cumsum(random.exponential(0.4, count)).tolist()
    prompts = random.integers(50, 3000, count)
    outputs = random.integers(2, 300, count).tolist()
    cached = (prompts * random.choice([0.0, 0.4], count)).astype(int).tolist()
    rows = zip(came, prompts.tolist(), cached, outputs, strict=True)
    jobs = [Job(t, 0, p, c, o) for t, p, c, o in rows]
    requests = [
        Request(i, 0, 0, job.arrived_s, (job.prompt, job.cached, job.output))
        for i, job in enumerate(jobs)
    ]
    serve(times, 1, jobs, [math.inf], 1e9)
    serve_by_jumps(times, requests)
    firsts = np.array(
        [[job.first_s, request.first_token_s] for job, request in zip(jobs, requests, strict=True)]
    )
    lasts = np.array(
        [[job.last_s, request.finished_s] for job, request in zip(jobs, requests, strict=True)]
    )
    if times.kv_capacity_tokens == math.inf:
        assert firsts[:, 0] == pytest.approx(firsts[:, 1], rel=1e-6)
        assert lasts[:, 0] == pytest.approx(lasts[:, 1], rel=1e-6)
        return
    assert sum(job.thrown_out for job in jobs) > 0
    late = [np.mean((firsts[:, k] - came) > 1.0) for k in (0, 1)]
    assert late[0] == pytest.approx(late[1], abs=0.01)


def test_batch_beside_chat_on_mi325x_gets_what_an_engine_gives_it() -> None:
    """Three quarters of a node: it got nothing while all of chat's prompts and a slow step kept it out."""
    cell = SharedCell(work="chat", part="MI325X", load=0.75, minutes=1)
    scenario = scenario_of(cell.urgent, *shared_rates(cell))
    hour = simulate_zoom(scenario, ZoomRequest(start=NOON, minutes=1, requests=10**6))
    urgent, waiting = outcomes(hour)
    chat, batch = walked(hour)
    finished = sum(_counts(hour, job.last_s) for job in batch)
    assert waiting.finished_s.size == pytest.approx(finished, rel=0.05)
    assert finished == pytest.approx(waiting.due, rel=0.1)
    assert 1.0 - urgent.attainment.mean() == pytest.approx(late_share(hour, chat), abs=0.01)


@pytest.mark.prove
@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3"])
@pytest.mark.parametrize("load", [0.9, 1.3])
def test_ten_thousand_requests_are_late_as_often_as_token_by_token(model: str, load: float) -> None:
    """A replica of H200 alone, dense and with experts, at capacity and beyond, to a tenth of a point."""
    cell = Cell(work="chat", part="H200", load=load, pool="replica", overload="queue")
    scenario = scenario_of(cell, 5.0)
    work = scenario.workloads["work"].model_copy(update={"model": model})
    scenario = scenario.model_copy(update={"workloads": {"work": work}})
    hour = simulate_zoom(scenario, ZoomRequest(start=NOON, minutes=1))
    (group,) = hour.hour.replica_groups
    (slo,) = hour.slos
    random = np.random.default_rng(1)
    count = 10_000
    came = np.cumsum(
        random.exponential(1.0 / (load * group.capacity_requests_per_s[0]), count)
    ).tolist()
    lengths = ((mean * random.lognormal(-0.4, 0.9, count)).astype(int) + 1 for mean in (840, 300))
    jobs = [
        Job(t, 0, p, 0, o)
        for t, p, o in zip(came, *(drawn.tolist() for drawn in lengths), strict=True)
    ]
    requests = [
        Request(i, 0, 0, job.arrived_s, (job.prompt, 0, job.output)) for i, job in enumerate(jobs)
    ]
    serve(group.times, 1, jobs, [math.inf], 1e9)
    serve_by_jumps(group.times, requests)
    twins = [
        Job(r.arrived_s, 0, 1, 0, r.output_tokens, first_s=r.first_token_s, last_s=r.finished_s)
        for r in requests
    ]
    late = [np.mean([job.is_late(slo.ttft_s, slo.tpot_s) for job in of]) for of in (jobs, twins)]
    assert late[0] == pytest.approx(late[1], abs=0.001)
    assert late[0] > 0.0
