"""Lower ends of capacities beside what was measured at the same time per token.

A public run of a closed loop has a mean time per token. If that were the objective of 98% of requests, the layout that
was run should be able to serve no more than the run did, since most of its requests were slower than most may be. So
what the planner says of the capacity at least, the lower end of its interval, should lie below what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from docs.generate.frontier import closed_loops, lengths_about
from planner.calibration.predictions import prepare, priced_rows
from planner.catalog.load import Catalog
from planner.physics.coefficients import Calibration
from planner.plan.capacity_interval import capacity_interval
from planner.plan.choice import Service, served_by
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import MILLISECOND

PERCENTILE = 0.98
_TTFT_S = 5.0
"""Objective on the first token; where a run took longer, what it took."""
_NODES = 4


class LowerEnd(NamedTuple):
    """A measured run, and what the planner says of its layout with the mean time per token as the objective."""

    vendor: str
    is_mixture: bool
    measured: float
    """Output tokens/s per accelerator."""
    capacity: float
    """The same that keeps the objective at the percentile; 0 where no load does."""
    proportional_low: float
    """Lower end if capacity were proportional to the speed of steps."""
    low: float
    """Lower end as stated."""


def lower_ends(
    frame: pd.DataFrame,
    catalog: Catalog,
    calibration: Calibration,
    scenario: Scenario,
    every: int = 1,
) -> Iterator[LowerEnd]:
    """Yield every so many of the closed loops that draft no tokens, repeat no prompts and prefill where they decode."""
    rows = closed_loops(frame, catalog, calibration)
    rows = rows[rows["scenario"] == "Concurrency"].iloc[::every]
    specs = priced_rows(prepare(rows, catalog), calibration).specs
    reuse = Reuse(scenario)
    for row, spec in zip(rows.to_dict("records"), specs, strict=True):
        # A row without a time to the first token compares as not longer.
        first_s = float(row["ttft_ms"]) * MILLISECOND
        workload = Workload.model_validate(
            {
                "model": row["model"],
                "lengths": lengths_about(row["input_tokens"], row["output_tokens"]),
                "requests_per_s": 1.0,
                "slo": {
                    "ttft_s": first_s if first_s > _TTFT_S else _TTFT_S,
                    "tpot_s": row["tpot_ms"] * MILLISECOND,
                    "percentile": PERCENTILE,
                },
            }
        )
        groups = spec.attention_data_parallel > 1
        cluster = Cluster(
            accelerator=row["accelerator"],
            precision=row["precision"],
            engine=row["engine"],
            tensor_parallel=spec.accelerators,
            attention="data-parallel" if groups else "tensor-parallel",
            prefill_decode="colocated",
            nodes=_NODES,
        )
        service = served_by(cluster, workload, scenario, reuse, {})
        capacity = proportional = low = 0.0
        if isinstance(service, Service):
            interval = capacity_interval(service, cluster, workload, scenario, reuse)
            # Of a layout without any evidence nothing is stated.
            if service.evidence is None or interval is None:
                continue
            tokens = row["output_tokens"] / service.accelerators_per_node
            capacity = service.requests_per_s * tokens
            proportional = service.evidence.interval(capacity)[0]
            low = interval[0] * tokens
        yield LowerEnd(
            vendor=spec.part.vendor,
            is_mixture=spec.shape.experts > 0,
            measured=row["tokens_per_s"],
            capacity=capacity,
            proportional_low=proportional,
            low=low,
        )


def kept_shares(ends: Sequence[LowerEnd]) -> tuple[float, float, float]:
    """Return the shares of runs that served no less than capacity, its proportional and its stated lower end."""
    kept = [
        (
            one.capacity <= one.measured,
            one.proportional_low <= one.measured,
            one.low <= one.measured,
        )
        for one in ends
    ]
    of_capacity, proportional, stated = (
        sum(column) / len(kept) for column in zip(*kept, strict=True)
    )
    return of_capacity, proportional, stated
