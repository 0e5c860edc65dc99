"""Contradictions are reported before the run, with the numbers that contradict."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.engine.repair_shop import RepairShop
from planner.errors import ScenarioError
from planner.plan.choice import build_services
from planner.plan.contradictions import MOST_EVENTS, expected_events
from planner.plan.reuse import Reuse
from planner.plan.routing import _routing_order
from planner.run.simulate import run_engine
from tests.conftest import Planner, WriteScenario
from tests.engine.worlds import QUIET, SHARED, merged, plan_of, scenario_of


def refused(*changes: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        plan_of(*changes)
    return str(caught.value)


def test_a_workload_that_no_cluster_can_serve() -> None:
    """405 billion parameters in bf16 are 810 GB; a node of eight H100 has 640."""
    huge = {"workloads": {"chat": {"model": "llama-3.1-405b", "precisions": ["bf16"]}}}
    text = refused(huge, {"clusters": {"h200": {"accelerator": "H100"}, "mi325x": None}})
    assert "workloads.chat" in text
    assert "no cluster can serve it" in text
    assert "GB" in text


def test_a_workload_that_one_cluster_cannot_serve_is_a_note() -> None:
    huge = {"workloads": {"chat": {"model": "llama-3.1-405b", "precisions": ["bf16"]}}}
    plan = plan_of(huge, {"clusters": {"h200": {"accelerator": "H100"}}})
    assert any("workload chat cannot run on h200" in note for note in plan.notes)
    assert plan.workloads[0].cluster_order == (1,)


def test_a_cluster_that_is_late_when_idle_comes_after_one_that_is_not() -> None:
    """One in a hundred may be late, half of that on an idle cluster; up to it the one of less energy is first."""
    scenario = scenario_of(QUIET)
    clusters = plan_of(QUIET).clusters
    assert scenario.slo_target.attainment == 0.99
    services, _ = build_services(scenario, Reuse(scenario), {})
    first, second = _routing_order(scenario, "chat", clusters, services, [0, 0])
    for idle_late, expected in ((0.0049, [first, second]), (0.0051, [second, first])):
        pair = clusters[first].name, "chat"
        late = replace(services[pair].lateness, late_fractions=(idle_late,))
        assert _routing_order(
            scenario,
            "chat",
            clusters,
            {**services, pair: replace(services[pair], lateness=late)},
            [0, 0],
        ) == (expected)


def test_waves_of_one_part_are_one_pool_to_the_router_unless_the_user_ranks_them() -> None:
    waves = {"h200-later": {"accelerator": "H200", "nodes": 3, "online": "2026-02-01"}}
    names = list(plan_of({"clusters": waves}).clusters)
    at = {cluster.name: index for index, cluster in enumerate(names)}
    together = tuple(sorted((at["h200"], at["h200-later"])))
    tiers = [
        tuple(sorted(tier)) for tier in plan_of({"clusters": waves}).workloads[0].cluster_tiers
    ]
    assert sorted(tiers) == sorted([together, (at["mi325x"],)])
    ranked: dict[str, Any] = {"routing": "preference", "clusters": waves}
    ranked["workloads"] = {"chat": {"cluster_preference": ["h200-later", "mi325x"]}}
    assert plan_of(ranked).workloads[0].cluster_tiers == (
        (at["h200-later"],),
        (at["mi325x"],),
        (at["h200"],),
    )
    for other in ({"precision": "bf16"}, {"throughput_multiplier": 0.9}, {"engine": "sglang"}):
        alone = plan_of({"clusters": {"h200-later": waves["h200-later"] | other}})
        assert all(len(tier) == 1 for tier in alone.workloads[0].cluster_tiers), other


def test_an_objective_that_no_batch_can_meet() -> None:
    text = refused({"workloads": {"chat": {"slo": {"ttft_s": 2.0, "tpot_s": 0.0001}}}})
    assert "0.0001 s per token" in text
    assert "a single request takes" in text


def test_a_workload_that_outgrows_its_objective_is_refused_from_a_month_that_is_named() -> None:
    """Prompts of 12,000 tokens that triple in a year: by December most
    take longer than 0.7 s on an idle replica; others keep the fleet."""
    grows: dict[str, object] = {
        "lengths": {"input": {"mean": 12000}, "output": {"mean": 300}, "growth_per_year": 2.0}
    }
    grows |= {
        "model": "llama-3.1-70b",
        "requests_per_s": 0.5,
        "slo": {"ttft_s": 0.7, "tpot_s": 0.05},
    }
    plan = plan_of(QUIET, {"horizon_months": 14, "workloads": {"long": grows}})
    index = [workload.name for workload in plan.workloads].index("long")
    month = int(np.argmax(np.all(plan.requests_per_node_h[:, index] <= 0.0, axis=0)))
    assert 6 <= month <= 12
    assert np.all(plan.requests_per_node_h[:, index, month:] == 0.0)
    assert any(
        "long outgrows its objective" in told and f"2026-{month + 1:02d}" in told
        for told in plan.warnings
    )
    _, monthly = run_engine(plan, 1)
    assert monthly.served_requests[month:, :, index].sum() == 0.0
    assert monthly.busy_node_h[month:].sum() < monthly.busy_node_h[:month].sum()
    others = [w for w in range(len(plan.workloads)) if w != index]
    demand = monthly.demand_requests[:, others].sum()
    # Prompts too long for their objective; before, its class shares what there is.
    assert monthly.shed_requests[month:, others].sum() < 0.002 * demand


@pytest.mark.parametrize("prefill", ["colocated", "disaggregated"])
def test_prompts_too_long_for_every_part_are_a_warning_that_names_the_objective_they_need(
    prefill: str,
) -> None:
    long: dict[str, object] = {"model": "llama-3.1-70b", "requests_per_s": 0.5}
    long |= {"lengths": {"input": {"mean": 12000}, "output": {"mean": 300}}}
    part = {**SHARED, "prefill_decode": prefill}
    alike = merged(QUIET, {"clusters": {"h200": part, "mi325x": part}})
    plans = [
        plan_of(alike, {"workloads": {"long": {**long, "slo": {"ttft_s": ttft_s, "tpot_s": 0.05}}}})
        for ttft_s in (2.0, 60.0)
    ]
    told = [
        [text for text in plan.warnings if "workloads.long.slo.ttft_s" in text] for plan in plans
    ]
    (warning,) = told[0]
    assert "% of its prompts take longer than this on an idle replica of" in warning
    assert plans[0].no_burst_tables is not None
    share = plans[0].no_burst_tables[0, :, -1, 0]
    name = plans[0].clusters[int(share.argmin())].name
    assert f"{share.min():.1%} of" in warning
    assert f"of {name}, and more on any other" in warning
    assert share.max() > share.min() + 0.001
    needed = float(warning.split("state at least ")[1].split(" s")[0])
    assert plans[0].alone_s is not None
    assert needed >= plans[0].alone_s[int(share.argmin()), -1]
    done = plan_of(
        alike, {"workloads": {"long": {**long, "slo": {"ttft_s": needed, "tpot_s": 0.05}}}}
    )
    assert not any("workloads.long.slo.ttft_s" in text for text in done.warnings)
    assert told[1] == []
    assert needed > 2.0


@pytest.mark.parametrize("flood", [1.0, 1000.0])
def test_a_workload_that_outgrows_its_objective_and_queues_is_late_within_its_share(
    flood: float,
) -> None:
    """Alone on one cluster beside chat: late from the month named on, and, however much comes, within its share."""
    tokens = {"input": {"mean": 12000}, "output": {"mean": 300}, "growth_per_year": 2.0}
    grows = {
        "model": "llama-3.1-70b",
        "requests_per_s": 0.5,
        "slo": {"ttft_s": 0.7, "tpot_s": 0.05},
        "lengths": tokens,
    }
    steps = {"kind": "steps", "steps": [{"date": "2027-01-01", "multiplier": flood}]}
    change = {
        "workloads": {"long": grows | {"admission": "queue", "growth": steps}, "nightly": None}
    }
    plan = plan_of(QUIET, change, {"horizon_months": 14, "clusters": {"mi325x": None}})
    chat = 0
    long = 1
    share = plan.workloads[long].overdue_share
    assert share is not None
    month = int(np.argmax(share > 0))
    assert 6 <= month < 12
    before = slice(*plan.month_edges_h[month - 1 : month + 1])
    asked = (
        plan.demand.expected_requests_per_s[:, before].sum(axis=1)
        * plan.tokens_per_request[month - 1]
    )
    assert share[month:] == pytest.approx(np.full(14 - month, asked[long] / asked.sum()))
    (told,) = [
        text for text in plan.warnings if "long outgrows its objective on every cluster" in text
    ]
    assert f"2026-{month + 1:02d}" in told
    _, monthly = run_engine(plan, 1)
    served = monthly.served_requests[:, 0, long]
    assert np.all(served[month:] > 0)
    assert monthly.late_requests[month:, long] == pytest.approx(served[month:])
    used = served / plan.requests_per_node_h[0, long]
    assert np.all(used[month:] <= share[month] * monthly.in_service_node_h[month:, 0] * (1 + 1e-9))
    if flood > 1.0:
        assert used[12:] == pytest.approx(
            share[month] * monthly.in_service_node_h[12:, 0], rel=0.01
        )
        assert monthly.shed_requests[12:, long].sum() > 0
    # Before that month they share the cluster; from then on it has its share, and chat all that it needs.
    demand = monthly.demand_requests[month:, chat].sum()
    assert monthly.shed_requests[month:, chat].sum() < 1e-3 * demand


def test_a_site_with_power_for_a_node_of_its_smallest_cluster_alone_is_a_note() -> None:
    h200, mi325x = (cluster.node_power.full_kw for cluster in plan_of().clusters)
    assert abs(h200 - mi325x) > 0.5
    between = {"site": {"facility_power_cap_kw": (h200 + mi325x) / 2, "pue_ratio": 1.0}}
    assert any("in its tightest hour the site can carry" in note for note in plan_of(between).notes)


def test_a_cap_below_full_load_is_a_note_with_both_figures() -> None:
    plan = plan_of({"site": {"facility_power_cap_kw": 60}})
    assert any(
        "in its tightest hour the site can carry" in note and "at full load" in note
        for note in plan.notes
    )


@pytest.mark.parametrize(
    ("kw", "online", "said"),
    [
        (
            90.0,
            "2026-02-01",
            None,
        ),  # eight nodes of H200 retire on the day on which seven of MI325X come
        (90.0, "2026-01-15", "some nodes wait until others retire"),
        (60.0, "2026-02-01", "some nodes are paid for and will never serve"),
        (200.0, "2026-01-15", None),
    ],
)
def test_power_is_held_against_the_machines_that_are_there_together(
    kw: float, online: str, said: str | None
) -> None:
    fleet = {"h200": {"nodes": 8, "retire": "2026-02-01"}, "mi325x": {"nodes": 7, "online": online}}
    plan = plan_of(
        QUIET, {"clusters": fleet, "site": {"power_blocks": [{"date": "2026-01-01", "it_kw": kw}]}}
    )
    told = [warning for warning in plan.warnings if "power blocks" in warning]
    assert [warning.split(", so ")[1] for warning in told] == ([said] if said else [])


@pytest.mark.parametrize(
    ("policy", "day", "said"),
    [
        ("latest", "2026-01-29", None),
        (
            "latest",
            "2026-01-30",
            "upgrades come every 30 days: a release of 2026-01-30 may take effect only after",
        ),
        ("staged", "2026-01-04", "upgrades come every 75 days"),
        ("pinned", "2026-01-02", "upgrades come every 200 days"),
    ],
)
def test_a_step_of_software_that_is_not_taken_is_a_warning(
    policy: str, day: str, said: str | None
) -> None:
    """Two months from January: thirty days after the 30th is the first of March."""
    software = {"upgrade_policy": policy, "steps": [{"date": day, "gain_fraction": 0.5}]}
    told = [
        warning
        for warning in plan_of({"software": software}).warnings
        if "software.steps[0].date" in warning
    ]
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


def test_what_is_retired_by_the_last_month_does_not_meet_its_demand() -> None:
    asked = {"workloads": {"chat": {"requests_per_s": 5000.0}}}
    fleet = {"clusters": {"h200": {"nodes": 100}, "mi325x": {"nodes": 1}}}
    kept, gone = (
        plan_of(QUIET, asked, fleet, {"clusters": {"h200": {"retire": day}}})
        for day in (None, "2026-02-01")
    )
    assert not any("mean demand is" in note for note in kept.notes)
    assert any("mean demand is" in note for note in gone.notes)


def test_an_order_after_the_horizon() -> None:
    order = {"placed": "2026-01-01", "lead_weeks": 52}
    text = refused({"clusters": {"h200": {"order": order}}})
    assert "clusters.h200.order" in text
    assert "364 days" in text
    assert "59" in text  # days of the horizon
    slips = {
        "placed": "2026-01-01",
        "lead_weeks": 7,
        "slip_weeks": {"low": 2, "base": 3, "high": 4},
    }
    # A promise within the horizon that slips beyond it is a delay: the machines do not come.
    plan = plan_of({"clusters": {"h200": {"order": slips}}})
    assert any(
        "up to 77 days from the start; the horizon is 59" in warning for warning in plan.warnings
    )


def test_an_order_that_may_come_too_late_is_a_warning() -> None:
    order = {
        "placed": "2026-01-01",
        "lead_weeks": 6,
        "slip_weeks": {"low": 0, "base": 1, "high": 20},
    }
    plan = plan_of({"clusters": {"h200": {"order": order}}})
    assert any("h200 may arrive after the horizon" in warning for warning in plan.warnings)


def test_a_plan_without_machines_or_beyond_all_traffic_on_earth_is_a_warning() -> None:
    nodes = {"clusters": {"h200": {"nodes": 0}, "mi325x": None}}
    rules = [
        {"when": f"utilisation_{side}", "threshold_fraction": 0.5, "cluster": "h200", "nodes": 1}
        for side in ("below", "above")
    ]
    for own, warned in (([], True), (rules[:1], True), (rules, False)):
        told = plan_of(nodes, {"expansion": {"rules": own}}).warnings
        assert (
            any("no cluster has a node and no review buys any" in text for text in told) is warned
        )
    busy = plan_of({"workloads": {"chat": {"requests_per_s": 3e6}, "nightly": None}})
    tokens_per_s = float(busy.demand.expected_requests_per_s.max()) * 600
    assert any(f"traffic reaches {tokens_per_s:,.3g} tokens/s" in text for text in busy.warnings)


@pytest.mark.parametrize(("day", "warned"), [("2025-12-31", True), ("2026-01-01", False)])
def test_holidays_up_to_the_first_day_fall_into_the_run(day: str, warned: bool) -> None:
    holidays = [{"date": "2025-12-25", "multiplier": 0.5}, {"date": day, "multiplier": 0.5}]
    plan = plan_of({"workloads": {"chat": {"load_profile": {"holidays": holidays}}}})
    assert any("no holiday lies within the horizon" in text for text in plan.warnings) is warned


def test_demand_beyond_all_clusters_is_a_note() -> None:
    plan = plan_of({"workloads": {"chat": {"requests_per_s": 1e5}}})
    assert any("times what all clusters sustain" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("change", "path", "what"),
    [
        (
            {"reliability": {"failure_multiplier": 1e9}},
            "reliability.failure_multiplier",
            "failures",
        ),
        ({"software": {"incident_multiplier": 1e9}}, "software.incident_multiplier", "incidents"),
        (
            {"site": {"outages_per_year": 1e11, "outage_h": 1e-9}},
            "site.outages_per_year",
            "outages",
        ),
        (
            {
                "workloads": {
                    "chat": {
                        "tenants": [
                            {
                                "name": "x",
                                "share_fraction": 0.1,
                                "mean_on_h": 1e-6,
                                "mean_off_h": 1e-6,
                            }
                        ]
                    }
                }
            },
            "workloads.chat.tenants[0]",
            "starts and stops",
        ),
    ],
)
def test_rates_that_would_exhaust_memory_are_refused_with_the_number(
    change: dict[str, Any], path: str, what: str
) -> None:
    begun = time.process_time()
    text = refused(change)
    assert time.process_time() - begun < 20  # at once, not after filling memory
    assert path in text
    assert what in text
    assert f"{MOST_EVENTS:,}" in text


def test_the_number_expected_is_the_number_that_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of({"reliability": {"failure_multiplier": 50, "lemon_fraction": 0}})
    expected = {what: count for _, what, count in expected_events(plan)}["failures"]
    counts = []
    monkeypatch.setattr(
        RepairShop, "expect", lambda _shop, _cluster, failures: counts.append(failures.time_h.size)
    )
    for seed in range(20):
        run_engine(plan, seed)
    assert sum(counts) / 20 == pytest.approx(expected, rel=0.15)


QUOTE = {
    "name": "vendor-q1",
    "accelerator_price_usd": 24000,
    "valid_from": "2026-02-01",
    "valid_until": "2026-02-10",
}


def quoted(*changes: dict[str, Any]) -> list[str]:
    plan = plan_of({"clusters": {"h200": {"quotes": [QUOTE]}}}, *changes)
    return [warning for warning in plan.warnings if "quote" in warning]


def test_a_quote_that_no_order_can_use_is_named_with_its_dates() -> None:
    (warning,) = quoted()
    assert "cluster h200" in warning
    assert "'vendor-q1'" in warning
    assert "holds from 2026-02-01 until 2026-02-10" in warning
    assert "ordered on 2026-01-01" in warning


@pytest.mark.parametrize(
    "change",
    [
        {"clusters": {"h200": {"online": "2026-02-01"}}},
        {"clusters": {"h200": {"order": {"placed": "2026-02-10", "lead_weeks": 1}}}},
        {"expansion": {"rules": [{"when": "utilisation_above", "threshold_fraction": 0.8, "cluster": "h200",
                                  "nodes": 2}]}},
    ],
    ids=["first day", "last day", "a review may buy while it holds"],
)  # fmt: skip
def test_a_quote_that_some_order_can_use_is_not(change: dict[str, Any]) -> None:
    assert quoted(change) == []


WINDOWS = [{"name": "day", "usd_per_kwh": 0.2, "start_hour": 8, "end_hour": 20},
           {"name": "night", "usd_per_kwh": 0.05, "start_hour": 20, "end_hour": 8}]  # fmt: skip


@pytest.mark.parametrize(
    ("site", "first_night_hour", "warned"),
    [
        ({"tariff": "us-ohio"}, 1, False),  # midnight UTC is seven in the evening in Ohio
        ({"tariff": "us-texas"}, 2, False),
        ({"tariff": "us-average"}, 0, True),
        ({"tariff": "us-ohio", "electricity": {"timezone": "UTC"}}, 0, False),
        ({"tariff": "us-average", "electricity": {"timezone": "America/Denver"}}, 3, False),
    ],
)
def test_windows_are_read_on_the_clock_of_the_tariffs_place(
    site: dict[str, Any], first_night_hour: int, warned: bool
) -> None:
    plan = plan_of({"site": {"electricity": {"windows": WINDOWS}}}, {"site": site})
    prices = plan.money.power.hourly_usd_per_kwh
    assert prices is not None
    assert int((prices == 0.05).argmax()) == first_night_hour
    told = [warning for warning in plan.warnings if "UTC" in warning]
    assert bool(told) is warned
    assert all("us-average" in warning for warning in told)


def test_a_tariff_of_ones_own_with_no_such_zone_is_refused(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    write("tariffs: {home: {energy_usd_per_kwh: 0.1, grid_carbon_g_per_kwh: 0, timezone: Mars/Base, "
          "source: our meter, grade: A}}", "own.yaml")  # fmt: skip
    write(tiny + "catalog: {overlay: own.yaml}\nsite: {tariff: home}\n")
    planner("validate", "tiny.yaml").refused("unknown time zone 'Mars/Base'")
