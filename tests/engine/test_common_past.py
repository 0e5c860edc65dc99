"""A longer horizon, a later date, another name: what has happened by then is the same.

What is drawn for a node, a stack or a workload comes from a stream of its own, in the order of time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.engine.driver import Simulation
from planner.engine.log import ChangeLog, Outage, streams
from tests.engine.worlds import BASE, SHARED, merged, plan_of

EXAMPLES = 10 if settings().max_examples < 200 else 200
ORDER = {
    "placed": "2025-12-20", "lead_weeks": 2, "slip_weeks": {"low": 0, "base": 1, "high": 3},
    "deliveries": 2, "delivery_interval_weeks": 1, "acceptance_failure_fraction": 0.2,
}  # fmt: skip
SPOT = {"kind": "spot", "interruptions_per_year": 200, "usd_per_accelerator_h": 2.0}
PLENTY = {"repair_crews": 500, "rma_weeks": 1e-9}
"""Nobody waits for anybody else's crew or part."""


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A change of the base scenario in which much is drawn."""
    change: dict[str, Any] = {
        "seed": draw(st.integers(0, 1000)),
        "horizon_months": draw(st.integers(1, 2)),
        "workloads": {
            "chat": {
                "noise": {
                    "sigma": draw(st.sampled_from([0.0, 0.2])),
                    "correlation_h": draw(st.sampled_from([0, 9])),
                },
                "tenants": [{"name": "big", "share_fraction": 0.3}],
                "model_launch": draw(st.sampled_from([None, "2026-01-11"])),
            },
        },
        "clusters": {
            "h200": SHARED | {"nodes": draw(st.sampled_from([1, 12]))},
            "mi325x": SHARED
            | {
                "nodes": draw(st.sampled_from([2, 6])),
                "order": draw(st.sampled_from([None, ORDER])),
            },
            "spot": SHARED | {"accelerator": "H200", "nodes": 2, "contract": SPOT},
        },
        "reliability": {
            "failure_multiplier": draw(st.sampled_from([5, 60])),
            "repair_crews": draw(st.integers(1, 3)),
            "spare_fraction": draw(st.sampled_from([0, 0.3])),
        },
        "software": {
            "incident_multiplier": draw(st.sampled_from([1, 30])),
            "upgrade_days": draw(st.sampled_from([5, 40])),
            "engineers": draw(st.sampled_from([0, 2])),
        },
        "site": {"outages_per_year": draw(st.sampled_from([0, 50]))},
    }
    if draw(st.booleans()):
        change["reliability"] |= {
            "failure_domains": {"rack": {"nodes": 2, "failures_per_year": 20, "repair_h": 8}},
            "maintenance": {"per_1000_node_days": 40, "length_h": 2, "every_weeks": 1},
        }
    if draw(st.booleans()):
        rule = {
            "when": "utilisation_above",
            "threshold_fraction": 0.01,
            "months": 1,
            "lead_weeks": 1,
        }
        rule["slip_weeks"] = {"low": 0, "base": 1, "high": 2}
        change["expansion"] = {
            "rules": [{**rule, "cluster": "h200", "nodes": 2, "cooldown_months": 0}]
        }
    return change


class Past(NamedTuple):
    """What has been drawn of a run, whatever its hours then do with it."""

    log: ChangeLog
    outages: list[Outage]
    demand: Any

    def until(self, until_h: float) -> dict[str, list[Any]]:
        """Return what had happened by an hour, with no number of an incident."""
        log = self.log
        return {
            "changes": sorted(c[:4] for c in log.changes if c.time_h < until_h),
            "purchases": sorted(p for p in log.purchases if p.time_h < until_h),
            "outages": sorted(
                (o[0], min(o.end_h, until_h), *o[2:7]) for o in self.outages if o.start_h < until_h
            ),
            "speeds": sorted(s[:5] for s in log.speeds() if s.time_h < until_h),
            "site": sorted(
                (e.start_h, min(e.end_h, until_h)) for e in log.site if e.start_h < until_h
            ),
            "notes": sorted(n for n in log.notes if n.time_h < until_h),
        }


def past_of(*changes: dict[str, Any]) -> Past:
    """Run events alone; with a review, which looks at hours, the whole."""
    plan = plan_of(*changes)
    simulation = Simulation(plan, streams(plan.seed))
    if plan.expansion.rules:
        simulation.run([0, plan.hours])
    else:
        simulation.env.run(until=plan.hours)
    return Past(simulation.log, simulation.shop.outages(), simulation.demand_requests)


def assert_same(one: Past, other: Past, until_h: int) -> None:
    before = one.until(until_h)
    after = other.until(until_h)
    for kind, records in before.items():
        assert records == after[kind], kind
    np.testing.assert_allclose(one.demand[:, :until_h], other.demand[:, :until_h], rtol=1e-12)


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_a_longer_horizon_keeps_the_past(change: dict[str, Any]) -> None:
    one = past_of(change)
    other = past_of(change, {"horizon_months": change["horizon_months"] + 1})
    assert one.outages
    assert_same(one, other, one.demand.shape[1])


@settings(max_examples=EXAMPLES)
@given(worlds(), st.sampled_from(["h200", "mi325x", "spot"]), st.booleans())
def test_a_cluster_that_retires_later_keeps_the_past(
    change: dict[str, Any], name: str, ever: bool
) -> None:
    """Shipments before it, so that no node in repair from its acceptance would have come after."""
    sound = {"clusters": {"mi325x": {"order": None}}}
    early, late = (
        {"clusters": {name: {"retire": date}}}
        for date in ("2026-01-20", None if ever else "2026-01-28")
    )
    assert_same(past_of(change, sound, early), past_of(change, sound, late), 19 * 24)


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_a_cluster_by_another_name_has_the_same_life(change: dict[str, Any]) -> None:
    clusters = merged(BASE, change)["clusters"]
    renamed = dict.fromkeys(clusters) | {
        f"z{n}"[:: 1 - 2 * (n % 2)]: c for n, c in enumerate(clusters.values())
    }
    rules = {"expansion": None}
    one = past_of(change, rules)
    other = past_of(change, rules, {"clusters": renamed})
    assert_same(one, other, one.demand.shape[1])


@settings(max_examples=EXAMPLES)
@given(worlds(), st.sampled_from(["H200", "MI325X", "B200"]))
def test_a_cluster_added_at_the_end_leaves_the_others_alone(
    change: dict[str, Any], accelerator: str
) -> None:
    """Nobody waits for a crew, a part or an engineer: those are shared. So is the bring-up of a model on a part."""
    apart = {"reliability": PLENTY, "software": {"engineers": 0}, "expansion": None}
    more = {"clusters": {"more": {"accelerator": accelerator, "nodes": 3}}}
    one = past_of(change, apart)
    other = past_of(change, apart, more)
    until_h = one.demand.shape[1]
    before = one.until(until_h)
    after = other.until(until_h)
    place = {"changes": 2, "purchases": 1, "outages": 2, "speeds": 1}
    for kind, records in before.items():
        column = place.get(kind)
        others = [r for r in after[kind] if column is None or r[column] != 3]
        drawn = [[r for r in rows if "bring-up" not in str(r[-1])] for rows in (records, others)]
        assert drawn[0] == drawn[1], kind
    np.testing.assert_array_equal(one.demand, other.demand)


@settings(max_examples=EXAMPLES)
@given(worlds(), st.integers(1, 20))
def test_a_cluster_that_comes_later_has_its_own_life_later(
    change: dict[str, Any], days: int
) -> None:
    """Its machines fail at the same ages; the others, traffic and software are as they were."""
    still = {"failure_domains": None, "maintenance": None}
    apart = {
        "reliability": PLENTY | still,
        "software": {"engineers": 0},
        "expansion": None,
        "site": {"outages_per_year": 0},
    }
    later = {"clusters": {"h200": {"online": f"2026-01-{1 + days:02d}"}}}
    one = past_of(change, apart)
    other = past_of(change, apart, later)
    hours = one.demand.shape[1]
    np.testing.assert_array_equal(one.demand, other.demand)
    kept = [[o for o in run.until(hours)["outages"] if o[2] != 0] for run in (one, other)]
    assert kept[0] == kept[1]

    def ages(run: Past, shift_h: float) -> list[tuple[float, int, str]]:
        return sorted(
            (o.start_h - shift_h, o.node, o.cause)
            for o in run.outages
            if o.cluster == 0 and o.start_h < hours
        )

    first = ages(one, 0.0)
    second = ages(other, 24.0 * days)
    first = [row for row in first if row[0] < hours - 24 * days]
    assert [row[1:] for row in first] == [row[1:] for row in second]
    np.testing.assert_allclose([row[0] for row in first], [row[0] for row in second], atol=1e-6)


@pytest.mark.parametrize("nodes", [4, 40])
def test_one_more_node_leaves_the_failures_of_the_others(nodes: int) -> None:
    apart = {"reliability": PLENTY, "software": {"engineers": 0}}
    runs = [
        past_of(apart, {"clusters": {"h200": SHARED | {"nodes": count}}})
        for count in (nodes, nodes + 1)
    ]
    outages = [sorted(o for o in run.outages if o.cluster > 0 or o.node < nodes) for run in runs]
    assert outages[0] == outages[1]
