"""Benchmark clients: N of them, each with one request at a time, against one replica, as load generators run them.

All start together, send their next request when the last has answered, and send ten each, as the published recipes do.
Nothing is fitted to them: what a request waits for are the steps, prompts and cache that are really in its way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import simpy

from planner.physics.arrays import Floats
from planner.physics.coefficients import Calibration
from planner.simulation.zoom.batching import Replica
from planner.simulation.zoom.request import Request
from planner.simulation.zoom.steps import StepTimes
from planner.tools.benchmarks.rows import BenchmarkRows, priced_rows

_REQUESTS_PER_CLIENT = 10  # the published recipes' usual choice
_MOST_REQUESTS = 4000  # of one run: means no longer move


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the clients send."""

    clients: int
    prompt_tokens: int
    output_tokens: int
    cached_fraction: float = 0.0


def closed_loop(times: StepTimes, load: Load) -> tuple[float, float]:
    """Return the mean time to first token and per token of clients on one replica, in seconds."""
    if load.prompt_tokens + load.output_tokens > times.kv_capacity_tokens:
        return float("inf"), float("inf")
    env = simpy.Environment()
    requests: list[Request] = []
    wanted = max(min(_REQUESTS_PER_CLIENT * load.clients, _MOST_REQUESTS), 2 * load.clients)

    def send() -> None:
        number = len(requests)
        cached = min(int(load.cached_fraction * load.prompt_tokens), load.prompt_tokens - 1)
        request = Request(number, 0, 0, float(env.now), (load.prompt_tokens, cached, load.output_tokens))
        requests.append(request)
        replica.take(request)

    def done(_: Replica, __: Request) -> None:
        if len(requests) < wanted:
            send()

    replica = Replica(env, times, [float("inf")], done)
    env.run(until=0.0 + 1e-12)  # the replica is asleep before the first request comes
    for _ in range(load.clients):
        send()
    env.run()
    first_s = np.array([request.first_token_s - request.arrived_s for request in requests])
    rest_s = np.array([request.finished_s - request.first_token_s for request in requests])
    return float(first_s.mean()), float(rest_s.mean() / max(load.output_tokens - 1, 1))


def predict_by_request(rows: BenchmarkRows, calibration: Calibration) -> dict[str, Floats]:
    """Predict the rows that state a concurrency by running their clients; NaN for all others."""
    size = rows.deployment.size
    found = {name: np.full(size, np.nan) for name in ("ttft_s", "tpot_s", "tokens_per_s_per_accelerator")}
    replicas, index = priced_rows(rows, calibration)
    loaded = (rows.deployment >= 0) & ~rows.is_offline & ~rows.is_apart & ~np.isnan(rows.concurrency)
    for row in np.flatnonzero(loaded).tolist():
        load = Load(
            clients=max(round(float(rows.concurrency[row])), 1),
            prompt_tokens=round(float(rows.input_tokens[row])),
            output_tokens=round(float(rows.output_tokens[row])),
            cached_fraction=float(rows.cached_fraction[row]),
        )
        ttft_s, tpot_s = closed_loop(StepTimes.of(replicas, int(index[row])), load)
        found["ttft_s"][row], found["tpot_s"][row] = ttft_s, tpot_s
        whole_s = ttft_s + tpot_s * (load.output_tokens - 1)
        rate = load.clients * load.output_tokens / whole_s  # Little's law over one request
        found["tokens_per_s_per_accelerator"][row] = rate / float(replicas.accelerators[index[row]])
    return found
