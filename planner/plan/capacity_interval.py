"""The interval of a capacity: what a service serves within its objective if its steps are slower or faster.

How far a prediction may be off is known of the time of a step (``planner.physics.coefficients``). What is served within
an objective changes by more: where time per token hardly rises with the batch, steps that take a tenth longer leave
room for a third fewer sequences. So the ends are worked out at the ends of speed. All times of a replica scale with its
steps, so at the speed s it serves within its objectives s times what it serves at speed one within objectives of s
times theirs.

Two models know of capacity: requests that arrive on their own, of which a share keeps the objective, and mean times, to
which public runs were fitted. If nearly all requests keep a time per token then so does the mean, so that the lower end
is the lower of the two. Where hits in the cache follow from the load the two find different loads, and only the former
counts.
"""

from __future__ import annotations

from planner.plan.choice import Service, served_by
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload

_ANY_FIRST_TOKEN_S = 1e6
"""No first token takes eleven days."""


def capacity_interval(
    service: Service, cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse
) -> tuple[float, float] | None:
    """Return the ends of the 90% interval of the requests that a node serves; None where no error is known.

    An end is 0 where steps of that speed keep the objective at no load.
    """
    evidence = service.evidence
    if evidence is None:
        return None
    # A throughput that is stated scales as it is.
    if cluster.throughput_tokens_per_s_per_accelerator is not None:
        return evidence.interval(service.requests_per_s)
    in_layout = cluster.model_copy(update=service.as_keys())

    def served(kind: Workload, speed: float) -> float:
        slo = kind.slo
        scaled = {"ttft_s": slo.ttft_s * speed, "tpot_s": slo.tpot_s * speed}
        at_speed = kind.model_copy(update={"slo": slo.model_copy(update=scaled)})
        found = served_by(in_layout, at_speed, scenario, reuse, {})
        return found.requests_per_s * speed if isinstance(found, Service) else 0.0

    slow, fast = evidence.interval(1.0)
    # Curves are worked out at some batches: what is served at slower steps is no more, and at faster ones no less.
    low = min(served(workload, slow), service.requests_per_s)
    high = max(served(workload, fast), service.requests_per_s)
    if workload.reuse is None:
        # Waits of first tokens that routers avoid are none of mean times.
        in_time = workload.slo.model_copy(update={"ttft_s": _ANY_FIRST_TOKEN_S})
        by_mean_times = workload.model_copy(update={"priority": "deferrable", "slo": in_time})
        low = min(low, served(by_mean_times, slow))
    return low, high
