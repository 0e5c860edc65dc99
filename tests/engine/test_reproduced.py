"""Answers that were wrong once, each with what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.plan.build import build_plan
from planner.run.simulate import run_engine, simulate
from planner.scenario.scenario import Scenario
from tests.engine.worlds import QUIET, SHARED, merged, plan_of, scenario_from

STEADY: dict[str, Any] = {
    "load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0},
    "noise": {"sigma": 0},
}
TOKENS = {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}}


def two_pools(big: str, small: str, small_per_s: float = 900) -> dict[str, Any]:
    """A model that only ten large nodes hold, and one that thirty others serve as well, under any names."""
    slo = {"big": {"ttft_s": 4.0, "tpot_s": 0.1}, "small": {"ttft_s": 2.0, "tpot_s": 0.05}}
    model = {"big": "llama-3.1-405b", "small": "qwen3-32b"}
    precision = {"big": {"precisions": ["bf16"]}, "small": {}}
    rates = {"big": 20.0, "small": small_per_s}
    return {
        "name": "names",
        "start": "2026-01-01",
        "horizon_months": 1,
        "workloads": {
            name: {
                "model": model[kind],
                "requests_per_s": rates[kind],
                "lengths": TOKENS,
                "slo": slo[kind],
            }
            | precision[kind]
            | STEADY
            for kind, name in (("big", big), ("small", small))
        },
        "clusters": {
            "b200": SHARED | {"accelerator": "B200", "nodes": 10},
            "h200": SHARED | {"accelerator": "H200", "nodes": 30, "tensor_parallel": 1},
        },
    }


def test_a_name_sheds_nothing() -> None:
    """Renamed, the small model took the large nodes first: 46% of the large one was shed while thirty nodes idled."""
    missed = []
    for big, small in (("big", "small"), ("z-big", "a-small")):
        result = simulate(scenario_from(merged(two_pools(big, small), QUIET)))
        missed.append(result.missed_requests()[0] / result.settled_requests()[0])
        assert (
            result.shed_requests().sum() < 1e-4 * result.settled_requests().sum()
        )  # while the first weights load
    assert missed[0].tolist() == missed[1].tolist()
    assert missed[0].max() < 0.01


@pytest.mark.parametrize("share", [0.6, 0.96])
def test_no_cluster_is_crowded_while_a_paid_one_stands_idle(share: float) -> None:
    """One pool is filled to 85% and the other takes the rest; beyond, both are as full, and requests in time."""

    def work(per_s: float) -> Scenario:
        return scenario_from(
            merged(two_pools("big", "small", per_s), {"workloads": {"big": None}}, QUIET)
        )

    nodes = np.array([10.0, 30.0])
    whole_per_s = float(nodes @ build_plan(work(1.0)).requests_per_node_h[:, 0, 0]) / 3600.0
    result = simulate(work(share * whole_per_s))
    loads = (result.monthly.busy_node_h / result.monthly.present_node_h)[0]
    assert loads.max() == pytest.approx(max(0.85, share), abs=0.005)
    if share > 0.85:
        assert loads.min() == pytest.approx(share, abs=0.005)
    assert float(result.missed_requests().sum() / result.settled_requests().sum()) < 0.01


def test_buying_under_a_cap_does_not_lower_what_is_served() -> None:
    """Traffic doubles under 85 kW: with a rule that buys at every miss no month serves less than without it."""
    growing = {
        "horizon_months": 10,
        "workloads": {
            "chat": {"requests_per_s": 4000, "growth": {"kind": "compound", "per_year": 2.0}},
            "nightly": None,
        },
        "clusters": {"h200": SHARED | {"nodes": 6}, "mi325x": None},
        "site": {"facility_power_cap_kw": 85, "outages_per_year": 0},
    }
    rule = {
        "when": "slo_miss_above",
        "threshold_fraction": 0.01,
        "cluster": "h200",
        "nodes": 2,
        "months": 1,
    }
    buying = {"expansion": {"rules": [rule | {"lead_weeks": 4, "cooldown_months": 0}]}}
    (_, plain), (run, grown) = (
        run_engine(plan_of(QUIET, growing, more), 1) for more in ({}, buying)
    )
    assert plain.shed_requests[-1].sum() > 0.0
    assert len(run.log.purchases) > 1
    served = [monthly.served_requests.sum(axis=(1, 2)) for monthly in (plain, grown)]
    assert np.all(served[1] >= served[0] * (1.0 - 1e-6))
    assert served[1].sum() == pytest.approx(served[0].sum(), rel=0.5)
    assert grown.peak_facility_kw.max() <= 85 * (1.0 + 1e-9)
