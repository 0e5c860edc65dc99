"""Benchmarks request by request: clients in a closed loop on one replica, and arrivals that a node must answer in time.

*Clients*: N of them start together, each sends its next request when the last has answered, ten in all, as the
published recipes do, with lengths drawn evenly within a ninth of their mean (from 0.8 to 1.0 of the nominal ones). That
draw matters: equal lengths keep all clients in step, so that each waits for everybody's prompt, where the published
runs drift apart. To the first token that the simulation finds come the steps for which engines hold a request back in
such runs (``ttft_burst_steps``), and what first tokens of its groups show beyond (``first_token``).

*Promises* (MLPerf Server and Interactive): requests of one length arrive on their own at the replicas of a node, and
what is predicted is the throughput at the largest rate of which 99% keep both objectives.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from planner.arrays import Floats
from planner.calibration.first_token import REQUESTS, factors
from planner.calibration.layout import Deployment
from planner.calibration.rows import PREDICTED, BenchmarkRows, first_token_labels, priced_rows
from planner.calibration.table import OPEN_SCENARIOS
from planner.physics.coefficients import Calibration
from planner.physics.replica import price_replicas
from planner.physics.replica_times import Asked, Lengths, ReplicaTimes
from planner.physics.slo_model import Curve, late_curve
from planner.requests.batching import Replica
from planner.requests.request import Request
from planner.requests.steps import StepTimes

if TYPE_CHECKING:
    import pandas as pd


_REQUESTS_PER_CLIENT = 10  # the published recipes' usual choice
_MOST_REQUESTS = 4000  # of one run: means no longer move
_LENGTH_SPREAD = 1.0 / 9.0  # of the mean: the usual generator draws from 0.8 to 1.0 of the nominal length
_PROMISED = 0.99  # of requests, in every round of MLPerf
_NODE_ACCELERATORS = 8  # of a submission whose parallelism is not stated
_MOST_SEQUENCES = 2000  # running at once in a simulated node: more replicas than hold these pool no better
_LEAST_ARRIVALS = 3000  # a hundredth of the half that counts is then fifteen requests
_COUNTED = (0.3, 0.8)  # of the arrivals: after batches have filled, and before they empty
_BRACKET, _HALVINGS = 2.5, 7  # around the hourly model's capacity, to a factor of 1.014


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
    spread = 1.0 + _LENGTH_SPREAD * np.random.default_rng(0).uniform(-1.0, 1.0, (wanted, 2))
    prompts = np.maximum(np.rint(load.prompt_tokens * spread[:, 0]), 1).astype(int).tolist()
    outputs = np.maximum(np.rint(load.output_tokens * spread[:, 1]), 1).astype(int).tolist()

    def send() -> None:
        number = len(requests)
        prompt = prompts[number]
        cached = min(int(load.cached_fraction * prompt), prompt - 1)
        request = Request(number, 0, 0, float(env.now), (prompt, cached, outputs[number]))
        requests.append(request)
        replica.take(request)

    def done(_: Replica, __: Request) -> None:
        if len(requests) < wanted:
            send()

    replica = Replica(env, times, [math.inf], done)
    env.run(until=0.0 + 1e-12)  # the replica is asleep before the first request comes
    for _ in range(load.clients):
        send()
    env.run()
    first_s, token_s = _latencies_s(requests)
    return float(first_s.mean()), float(token_s.mean())


def _latencies_s(requests: list[Request]) -> tuple[Floats, Floats]:
    """Return the time to first token and per token of requests that are done."""
    first_s = np.array([request.first_token_s - request.arrived_s for request in requests])
    rest_s = np.array([request.finished_s - request.first_token_s for request in requests])
    return first_s, rest_s / np.maximum([request.output_tokens - 1 for request in requests], 1)


def rows_by_request(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that can be simulated: those of clients, and those with both objectives, less their latencies.

    What first token and time per token a submission had depends on how much of its promise it left unused.
    """
    is_open = frame["scenario"].isin(OPEN_SCENARIOS) & frame["slo_ttft_ms"].notna() & frame["slo_tpot_ms"].notna()
    frame = frame[((frame["scenario"] == "Concurrency") & frame["concurrency"].notna()) | is_open].copy()
    frame.loc[frame["scenario"].isin(OPEN_SCENARIOS), ["ttft_ms", "tpot_ms"]] = np.nan
    return frame


def predict_by_request(rows: BenchmarkRows, calibration: Calibration) -> dict[str, Floats]:
    """Predict rows that state a concurrency by running their clients, and those with a promise by its arrivals."""
    result = {name: np.full(rows.deployment.size, np.nan) for name in PREDICTED}
    usable = (rows.deployment >= 0) & ~rows.is_offline & ~rows.is_apart
    replicas, index = priced_rows(rows, calibration)
    for row in np.flatnonzero(usable & ~rows.is_open & ~np.isnan(rows.concurrency)).tolist():
        load = Load(
            clients=max(round(float(rows.concurrency[row])), 1),
            prompt_tokens=round(float(rows.input_tokens[row])),
            output_tokens=round(float(rows.output_tokens[row])),
            cached_fraction=float(rows.cached_fraction[row]),
        )
        ttft_s, tpot_s = closed_loop(StepTimes.of(replicas, int(index[row])), load)
        ttft_s += float(replicas.ttft_burst_steps[index[row]]) * tpot_s
        result["ttft_s"][row], result["tpot_s"][row] = ttft_s, tpot_s
        rate = load.clients * load.output_tokens / (ttft_s + tpot_s * (load.output_tokens - 1))  # Little's law
        result["tokens_per_s_per_accelerator"][row] = rate / float(replicas.accelerators[index[row]])
    result["ttft_s"] *= factors(
        first_token_labels(rows, calibration), calibration.first_token_log_effect.get(REQUESTS, {})
    )
    promised = usable & rows.is_open & ~np.isnan(rows.ttft_objective_s) & ~np.isnan(rows.tpot_objective_s)
    for row in np.flatnonzero(promised).tolist():
        promises = promised_tokens_per_s(
            rows.deployments[int(rows.deployment[row])],
            calibration,
            (float(rows.input_tokens[row]), float(rows.output_tokens[row])),
            (float(rows.ttft_objective_s[row]), float(rows.tpot_objective_s[row])),
        )
        result["tokens_per_s_per_accelerator"][row] = promises
    return result


def promised_tokens_per_s(
    deployment: Deployment, calibration: Calibration, lengths: tuple[float, float], objectives_s: tuple[float, float]
) -> float:
    """Return the output tokens/s and accelerator at which 99% of requests keep both objectives.

    A layout left open is the one that the hourly model has serve most; its capacity is where the search begins.
    """
    prompt, output = lengths
    one = np.ones(1)
    alike = Lengths(
        prompt_tokens=one * prompt, prompt_weights=one, output_tokens=one * output, output_weights=one,
        cached_fraction=0.0,
    )  # fmt: skip
    specs = deployment.specs(is_open=True)
    replicas = price_replicas(specs, calibration)
    pooled = [max(_NODE_ACCELERATORS // spec.accelerators, 1) for spec in specs]
    curves: list[Curve] = []
    for place, count in enumerate(pooled):
        asked = Asked(ttft_s=objectives_s[0], tpot_s=objectives_s[1], percentile=_PROMISED, pooled_replicas=count)
        curves.append(late_curve(ReplicaTimes(replicas, place, 1.0, alike), asked))
    rates = [curve.capacity_requests_per_s for curve in curves]
    best = int(np.argmax(np.array(rates) / replicas.accelerators))
    if rates[best] <= 0.0:
        return 0.0
    batch, token_s = curves[best].at(rates[best])
    count = max(min(pooled[best], int(_MOST_SEQUENCES / batch)), 1)
    times = StepTimes.of(replicas, best)
    low, high = math.log(rates[best] / _BRACKET), math.log(rates[best] * _BRACKET)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        arrivals = max(int(4.0 * count * math.exp(middle) * output * token_s), _LEAST_ARRIVALS)
        kept = _share_in_time(times, count, math.exp(middle), (arrivals, round(prompt), round(output)), objectives_s)
        low, high = (middle, high) if kept >= _PROMISED else (low, middle)
    return math.exp(low) * output / float(replicas.accelerators[best])


def _share_in_time(
    times: StepTimes, count: int, rate: float, load: tuple[int, int, int], objectives_s: tuple[float, float]
) -> float:
    """Return the share of requests that keep both objectives on replicas behind one router, ``rate`` being of each."""
    arrivals, prompt, output = load
    env = simpy.Environment()
    replicas = [Replica(env, times, [math.inf], lambda _, __: None) for _ in range(count)]
    gaps_s = np.random.default_rng(0).exponential(1.0 / (count * rate), arrivals).tolist()
    requests: list[Request] = []

    def arrive() -> Generator[simpy.Event, Any, None]:
        for number, gap_s in enumerate(gaps_s):
            yield env.timeout(gap_s)
            request = Request(number, 0, 0, float(env.now), (prompt, 0, output))
            requests.append(request)
            min(replicas, key=lambda replica: replica.expected_ttft_s(request)).take(request)

    env.process(arrive())
    env.run()
    begin, end = (int(share * arrivals) for share in _COUNTED)
    first_s, token_s = _latencies_s(requests[begin:end])
    return float(((first_s <= objectives_s[0]) & (token_s <= objectives_s[1])).mean())
