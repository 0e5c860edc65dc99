"""Predictions of benchmark rows by simulating their clients or arrivals, request by request.

It is the proof of the simulation that ``planner zoom`` runs: the same replicas, under clients and arrivals that were
measured. There are two kinds of rows. *Clients*: N of them start together, each sends its next request when
the last has answered, ten in all, as the published recipes do, with lengths drawn evenly within a ninth of their mean
(from 0.8 to 1.0 of the nominal ones). That draw matters: equal lengths keep all clients in step, so that each waits for
everybody's prompt, where the published runs drift apart. To the first token that the simulation finds come the steps
for which engines hold a request back in such runs (``ttft_burst_steps``), and what recipes show
beyond them (``planner/calibration/predictions.py``). *SLO targets* (MLPerf
Server and Interactive): requests of one length arrive on their own at the replicas of a node, and what is predicted is
the throughput at the largest rate of which 99% keep both objectives.

``python -m docs.generate.by_request MEASUREMENTS.csv`` prints the errors, as ``planner check-benchmarks`` does for the
formula.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import simpy

from planner.arrays import Floats
from planner.calibration import benchmarks
from planner.calibration.check import check_benchmarks, check_report
from planner.calibration.predictions import (
    PREDICTED,
    REQUESTS_PER_CLIENT,
    BenchmarkRows,
    factors,
    first_token_labels,
    priced_rows,
)
from planner.catalog.calibration import shipped_file
from planner.catalog.load import load_catalog
from planner.physics.coefficients import Calibration
from planner.physics.replica import Lengths, ReplicaTimes, ServiceTerms, price_replicas
from planner.physics.slo_model import late_curve
from planner.requests.batching import Replica, Request, StepTimes

REQUESTS = "requests"
"""What first tokens are held against in the calibration: the clients' simulation request by request."""
_MOST_REQUESTS = 4000  # of one run: means no longer move
_LENGTH_SPREAD = (
    1.0 / 9.0
)  # of the mean: the usual generator draws from 0.8 to 1.0 of the nominal length
_PROMISED = 0.99  # of requests, in every round of MLPerf
_NODE_ACCELERATORS = 8  # of a submission whose parallelism is not stated
_MOST_SEQUENCES = (
    2000  # running at once in a simulated node: more replicas than hold these pool no better
)
_LEAST_ARRIVALS = 3000  # a hundredth of the half that counts is then fifteen requests
_COUNTED = (0.3, 0.8)  # of the arrivals: after batches have filled, and before they empty
_BRACKET = 2.5  # around the hourly model's capacity, to a factor of 1.014
_HALVINGS = 7


def rows_by_request(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows to simulate: closed-loop clients, and open arrivals with both objectives.

    What first token and time per token a submission had depends on how much of its SLO target it left unused.
    """
    is_open = (
        frame["scenario"].isin(benchmarks.OPEN_SCENARIOS)
        & frame["slo_ttft_ms"].notna()
        & frame["slo_tpot_ms"].notna()
    )
    frame = frame[
        ((frame["scenario"] == "Concurrency") & frame["concurrency"].notna()) | is_open
    ].copy()
    frame.loc[frame["scenario"].isin(benchmarks.OPEN_SCENARIOS), ["ttft_ms", "tpot_ms"]] = np.nan
    return frame


def predict_by_request(rows: BenchmarkRows, calibration: Calibration) -> dict[str, Floats]:
    """Return simulated predictions: closed-loop rows by their clients, SLO rows by their arrivals."""
    result = {name: np.full(rows.deployment.size, np.nan) for name in PREDICTED}
    usable = (rows.deployment >= 0) & ~rows.is_offline & ~rows.is_disaggregated
    priced = priced_rows(rows, calibration)
    for row in np.flatnonzero(usable & ~rows.is_open & ~np.isnan(rows.concurrency)).tolist():
        replica = int(priced.index[row])
        clients = max(round(float(rows.concurrency[row])), 1)
        prompt = round(float(rows.input_tokens[row]))
        output = round(float(rows.output_tokens[row]))
        times = StepTimes.of_replica(priced.replicas, replica)
        ttft_s, tpot_s = closed_loop(
            times, clients, prompt, output, float(rows.cached_fraction[row])
        )
        ttft_s += float(priced.replicas["ttft_burst_steps"][replica]) * tpot_s
        result["ttft_s"][row] = ttft_s
        result["tpot_s"][row] = tpot_s
        rate = clients * output / (ttft_s + tpot_s * (output - 1))  # Little's law
        result["tokens_per_s_per_accelerator"][row] = rate / float(
            priced.replicas["accelerators"][replica]
        )
    shown = calibration.first_token_log_effect.get(REQUESTS, {})
    result["ttft_s"] *= factors(first_token_labels(rows, priced), shown)
    targeted = (
        usable & rows.is_open & ~np.isnan(rows.ttft_objective_s) & ~np.isnan(rows.tpot_objective_s)
    )
    for row in np.flatnonzero(targeted).tolist():
        lengths = (float(rows.input_tokens[row]), float(rows.output_tokens[row]))
        objectives_s = (float(rows.ttft_objective_s[row]), float(rows.tpot_objective_s[row]))
        deployment = rows.deployments[int(rows.deployment[row])]
        kept = slo_tokens_per_s(deployment, calibration, *lengths, *objectives_s)
        result["tokens_per_s_per_accelerator"][row] = kept
    return result


def closed_loop(
    times: StepTimes,
    clients: int,
    prompt_tokens: int,
    output_tokens: int,
    cached_fraction: float = 0.0,
) -> tuple[float, float]:
    """Return the mean time to first token and per token of clients on one replica, in seconds."""
    if prompt_tokens + output_tokens > times.kv_capacity_tokens:
        return float("inf"), float("inf")
    env = simpy.Environment()
    requests: list[Request] = []
    wanted = max(min(REQUESTS_PER_CLIENT * clients, _MOST_REQUESTS), 2 * clients)
    spread = 1.0 + _LENGTH_SPREAD * np.random.default_rng(0).uniform(-1.0, 1.0, (wanted, 2))
    prompts = np.maximum(np.rint(prompt_tokens * spread[:, 0]), 1).astype(int).tolist()
    outputs = np.maximum(np.rint(output_tokens * spread[:, 1]), 1).astype(int).tolist()

    def send() -> None:
        number = len(requests)
        prompt = prompts[number]
        cached = min(int(cached_fraction * prompt), prompt - 1)
        request = Request(number, 0, 0, float(env.now), (prompt, cached, outputs[number]))
        requests.append(request)
        replica.take(request)

    def done(_: Replica, __: Request) -> None:
        if len(requests) < wanted:
            send()

    replica = Replica(env, times, [math.inf], done)
    env.run(until=0.0 + 1e-12)  # the replica is asleep before the first request comes
    for _ in range(clients):
        send()
    env.run()
    first_s, token_s = _latencies_s(requests)
    return float(first_s.mean()), float(token_s.mean())


def _latencies_s(requests: list[Request]) -> tuple[Floats, Floats]:
    """Return TTFT and TPOT of finished requests, in seconds."""
    first_s = np.array([request.first_token_s - request.arrived_s for request in requests])
    rest_s = np.array([request.finished_s - request.first_token_s for request in requests])
    return first_s, rest_s / np.maximum([request.output_tokens - 1 for request in requests], 1)


def slo_tokens_per_s(
    deployment: benchmarks.ServedModel,
    calibration: Calibration,
    prompt: float,
    output: float,
    ttft_s: float,
    tpot_s: float,
) -> float:
    """Return the output tokens/s per accelerator at which 99% of requests meet both objectives.

    A layout left open is the one that the hourly model has serve most; its capacity is where the search begins.
    """
    one = np.ones(1)
    alike = Lengths(
        prompt_tokens=one * prompt,
        prompt_weights=one,
        output_tokens=one * output,
        output_weights=one,
        cached_fraction=0.0,
    )
    specs = deployment.specs(is_open=True)
    replicas = price_replicas(specs, calibration)
    pooled = [max(_NODE_ACCELERATORS // spec.accelerators, 1) for spec in specs]
    curves = []
    for place, count in enumerate(pooled):
        terms = ServiceTerms(
            ttft_s=ttft_s, tpot_s=tpot_s, percentile=_PROMISED, pooled_replicas=count
        )
        curves.append(late_curve(ReplicaTimes(replicas, place, 1.0, alike), terms))
    rates = [curve.capacity_requests_per_s for curve in curves]
    best = int(np.argmax(np.array(rates) / replicas["accelerators"]))
    if rates[best] <= 0.0:
        return 0.0
    batch, token_s = curves[best].at(rates[best])
    count = max(min(pooled[best], int(_MOST_SEQUENCES / batch)), 1)
    times = StepTimes.of_replica(replicas, best)
    low = math.log(rates[best] / _BRACKET)
    high = math.log(rates[best] * _BRACKET)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        arrivals = max(int(4.0 * count * math.exp(middle) * output * token_s), _LEAST_ARRIVALS)
        first_s, next_s = open_loop(
            times, count, math.exp(middle), arrivals, round(prompt), round(output)
        )
        attainment = float(((first_s <= ttft_s) & (next_s <= tpot_s)).mean())
        low, high = (middle, high) if attainment >= _PROMISED else (low, middle)
    return math.exp(low) * output / float(replicas["accelerators"][best])


def open_loop(
    times: StepTimes, count: int, rate: float, arrivals: int, prompt: int, output: int
) -> tuple[Floats, Floats]:
    """Return TTFT and TPOT of requests that arrive independently at replicas behind one router.

    ``rate`` is that of each replica; requests before batches have filled, and while they empty, are left out.
    """
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
    return _latencies_s(requests[begin:end])


def main(arguments: Sequence[str]) -> int:
    """Simulate the rows of the table named and print their errors; return the exit code."""
    if len(arguments) != 1:
        print("usage: python -m docs.generate.by_request MEASUREMENTS.csv", file=sys.stderr)
        return 2
    frame = rows_by_request(benchmarks.read_benchmarks(Path(arguments[0])))
    checked = check_benchmarks(
        frame, load_catalog(), shipped_file().calibration(), predict_by_request
    )
    print(check_report(checked, worst=15))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
