"""Machines at a provider's: what of power, upkeep and break-evens is the site's beside them, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from planner.engine.dispatch import allowed_loads
from planner.finance.accounting.measures import measures
from planner.finance.accounts import Account
from tests.ledgers import Run, by_cluster

AT_ONCE = "available_fraction: 1, startup_h: 0, hold_h: 1"
RESERVED = "clusters.rented={accelerator: H200, nodes: 4, contract: {kind: reserved, usd_per_accelerator_h: 4}}"
ON_DEMAND = RESERVED.replace("nodes: 4", "nodes: 40").replace("reserved", f"on-demand, {AT_ONCE}")
SPOT = ON_DEMAND.replace("on-demand", "spot, interruptions_per_year: 20")
STEADY = ("reliability.failure_multiplier=0", "site.outages_per_year=0")
BUSY = "workloads.chat.requests_per_s=3300"
CAPPED = ("site.facility_power_cap_kw=20", "site.pue_fixed_fraction=0", BUSY, *STEADY)


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *overrides: run("clusters.mi325x=null", *overrides)


@pytest.mark.parametrize("rented", [ON_DEMAND, SPOT])
def test_machines_that_nobody_rents_change_no_figure_of_power(run: Run, rented: str) -> None:
    stated = (
        "finance.carbon_usd_per_tonne=50", "site.electricity.demand_charge_usd_per_kw_month=10",
        "site.pue_fixed_fraction=0.5", *STEADY,
        "workloads.*.token_price={input_usd_per_million_tokens: 1, output_usd_per_million_tokens: 3}",
        "finance.licence_usd_per_accelerator_year=4500", "reliability.repair_crews=2",
        "finance.repair_crew_usd_per_year=9e4", "software.engineers={nvidia: {per_1000_accelerators: 25}}",
    )  # fmt: skip
    alone = run(*stated)
    beside = run(*stated, rented)
    assert beside.monthly.busy_node_h[:, 1].sum() == 0
    for name in ("facility_kwh", "it_kwh"):
        assert np.array_equal(
            getattr(beside.monthly, name), np.pad(getattr(alone.monthly, name), ((0, 0), (0, 1)))
        )
    assert np.array_equal(beside.monthly.peak_facility_kw, alone.monthly.peak_facility_kw)
    for account in (
        Account.ENERGY, Account.COOLING, Account.DEMAND_CHARGE, Account.CARBON, Account.SUPPORT_CONTRACTS,
        Account.LICENCES, Account.OPERATIONS_STAFF,
    ):  # fmt: skip
        own, *none = by_cluster(beside, account)
        assert own == by_cluster(alone, account)[0] > 0
        assert not any(none)
    was = measures(alone)
    now = measures(beside)
    for name in ("energy_kwh_per_million_tokens", "operational_kg_per_million_tokens"):
        assert now[name] == was[name]


def test_support_of_rented_machines_is_paid_for_the_hours_they_are_rented(run: Run) -> None:
    result = run(BUSY, ON_DEMAND, "software.support_usd_per_accelerator_year=1000", *STEADY)
    owned, rented, _ = by_cluster(result, Account.SUPPORT_CONTRACTS)
    assert owned == pytest.approx(32 * 3 / 12 * 1000, abs=0.02)
    hours = result.monthly.present_node_h[:, 1] * 8
    assert result.monthly.busy_node_h[:, 1].sum() * 8 < hours.sum() < 40 * 8 * 2160 * 0.9
    assert rented == pytest.approx((hours / (744, 672, 744)).sum() / 12 * 1000, abs=0.02)
    assert by_cluster(result, Account.RENT)[1] == pytest.approx(hours.sum() * 4, abs=0.05)


def test_rent_by_the_hour_falls_with_use_in_the_break_even(run: Run) -> None:
    """F / (Q·(p − v)) by hand from the ledger: rent of hours at work is in v, not in F."""
    price = "workloads.*.token_price={input_usd_per_million_tokens: 1, output_usd_per_million_tokens: 3}"
    result = run(BUSY, ON_DEMAND, price, *STEADY)
    with_use = sum(
        sum(by_cluster(result, account))
        for account in (Account.ENERGY, Account.COOLING, Account.RENT)
    )
    revenue = -sum(by_cluster(result, Account.REVENUE))
    cost = result.cost_cents().sum() / 100
    used = result.monthly.busy_node_h.sum() / result.monthly.in_service_node_h.sum()
    by_hand = (cost - with_use) / (revenue - with_use) * used
    assert measures(result)["break_even_utilisation_fraction"] == pytest.approx(by_hand, rel=1e-6)


def test_a_cap_binds_the_site_and_not_the_provider(run: Run) -> None:
    """The site serves what it would alone under its cap, and machines by the hour the rest: nobody rents more."""
    alone = run(*CAPPED)
    beside = run(*CAPPED, ON_DEMAND)
    asked = alone.monthly.demand_requests.sum()
    assert alone.monthly.shed_requests.sum() > 0.3 * asked
    assert beside.monthly.shed_requests.sum() < 0.001 * asked
    assert beside.monthly.peak_facility_kw.max() == pytest.approx(20)
    own, rented = beside.monthly.served_requests.sum(axis=(0, 2))
    assert beside.monthly.busy_node_h[:, 0] == pytest.approx(
        alone.monthly.busy_node_h[:, 0], rel=0.005
    )
    assert own + rented == pytest.approx(asked, rel=0.001)
    assert beside.monthly.it_kwh[:, 0] == pytest.approx(alone.monthly.it_kwh[:, 0], rel=1e-6)
    assert beside.monthly.it_kwh[:, 1].sum() == 0


def test_at_the_cap_reserved_machines_work_before_the_sites_own(run: Run) -> None:
    """They are paid anyway and take none of the power, so owned nodes serve what is left over, and draw for no more."""
    result = run(*CAPPED, RESERVED)
    own, reserved = result.monthly.busy_node_h.sum(axis=0) / result.monthly.present_node_h.sum(
        axis=0
    )
    assert reserved > 0.8
    assert 0 < own < 0.2
    assert result.monthly.it_kwh[:, 1].sum() == 0
    assert result.monthly.shed_requests.sum() < 0.02 * result.monthly.demand_requests.sum()


DAY = "{name: day, usd_per_kwh: 0.1, end_hour: 12}"
NIGHT = "{name: night, usd_per_kwh: 0.1, start_hour: 12}"
CHARGE = "site.electricity.demand_charge_usd_per_kw_month=10"


@pytest.mark.parametrize(
    "price", ["site.electricity_usd_per_kwh=0.1", f"site.electricity.windows=[{DAY}, {NIGHT}]"]
)
def test_before_the_sites_own_machines_come_a_providers_pay_none_of_its_power(
    run: Run, price: str
) -> None:
    """A month in which nothing runs here: cooling is built as machines come, and is never theirs."""
    result = run(
        price, CHARGE, "site.electricity.timezone=UTC", "clusters.h200.online=2026-03-01", ON_DEMAND
    )
    assert result.monthly.it_kwh[0].sum() == 0
    assert result.monthly.facility_kwh[0].sum() == 0
    for account in (Account.COOLING, Account.DEMAND_CHARGE):
        own, rented, _ = by_cluster(result, account)
        assert own > 0
        assert rented == 0


def test_power_blocks_are_the_sites(run: Run) -> None:
    blocks = "site.power_blocks=[{date: 2026-01-01, it_kw: 30}]"
    result = run(blocks, ON_DEMAND.replace("hold_h: 1", "warm_nodes: all"), BUSY, *STEADY)
    owned, rented = result.monthly.present_node_h[-1] / 744
    assert owned < 4
    assert rented == 40


OUTAGES = ("reliability.failure_multiplier=0", "site.outages_per_year=60", "site.outage_h=6")


@pytest.mark.parametrize("rented", [ON_DEMAND, SPOT, RESERVED])
def test_an_outage_of_the_site_leaves_a_providers_machines_their_users(
    run: Run, rented: str
) -> None:
    """What comes in the dark is served there as far as there is room, and shed where there is none."""
    alone = run(*OUTAGES)
    beside = run(*OUTAGES, rented)
    assert alone.monthly.dark_node_h[:, 0].sum() > 100
    assert beside.monthly.dark_node_h[:, 0] == pytest.approx(alone.monthly.dark_node_h[:, 0])
    assert beside.monthly.dark_node_h[:, 1].sum() == 0
    assert alone.monthly.shed_requests.sum() > 0.01 * alone.monthly.demand_requests.sum()
    assert beside.monthly.shed_requests.sum() < 1e-6 * beside.monthly.demand_requests.sum()


def test_in_an_outage_a_provider_serves_what_its_machines_have_room_for(run: Run) -> None:
    """Of what comes in the dark one node's rate, but for the 0.3% that a full node refuses; in the light, all."""
    few = ON_DEMAND.replace("40", "1")
    result = run(
        *OUTAGES, few, "workloads.chat.requests_per_s=1000", "workloads.chat.noise.sigma=0"
    )
    plan = result.plan
    (window,) = result.run.windows
    dark_h = np.zeros(plan.hours)
    for start_h, end_h in result.run.log.site:
        hour = np.arange(plan.hours)
        dark_h += np.clip(np.minimum(hour + 1, end_h) - np.maximum(hour, start_h), 0.0, 1.0)
    black = dark_h == 1.0
    came = window.demand_requests[0]
    shed = window.shed_requests[0]
    speed = result.run.inputs[0].speed.get((1, 0), np.ones(plan.hours))
    one_node = plan.requests_per_node_h[1, 0, 0] * speed
    assert black.sum() > 20
    assert (came[black] > one_node[black]).mean() > 0.5
    assert window.served_requests[0, 0, black].sum() == 0
    refused = shed - np.maximum(came - one_node, 0.0) * dark_h
    assert refused.min() > -1e-6
    assert np.all(refused < 0.003 * one_node * dark_h + 1e-6)


def test_what_breaks_at_the_site_breaks_nothing_at_a_providers(run: Run) -> None:
    """Domains, windows and rounds of the site; and where it has one crew and no parts, a provider waits for neither."""
    breaking = (
        "reliability.failure_domains={rack: {nodes: 1, failures_per_year: 50, repair_h: 10}}",
        "reliability.maintenance={per_1000_node_days: 50, length_h: 5}", "reliability.firmware={rollouts_per_year: 12}",
        "site.outages_per_year=0",
    )  # fmt: skip
    result = run(*breaking, "reliability.failure_multiplier=0", ON_DEMAND)
    own, rented = result.monthly.failed_node_h.sum(axis=0)
    assert own > 50
    assert rented == 0
    broken = (
        "reliability.failure_multiplier=30", "reliability.spares=0", "reliability.repair_crews=1",
        "site.outages_per_year=0",
    )  # fmt: skip
    for more in ((), breaking[:1]):  # by the fast kernel, and event by event
        result = run(*broken, *more, RESERVED)
        outages = result.run.shop.outages()
        waits = [
            [outage.wait_h for outage in outages if outage.cluster == index] for index in (0, 1)
        ]
        assert max(waits[0]) > 24 * 7
        assert len(waits[1]) > 20
        assert max(waits[1]) == 0


@pytest.mark.parametrize("routing", ["cheapest-marginal", "proportional"])
def test_a_provider_is_paid_for_what_the_own_machines_waits_do_not_allow_and_no_more(
    run: Run, routing: str
) -> None:
    """The rent of an hour is what of its work is beyond own capacity, however many machines may be rented."""
    busy = (
        "workloads.chat.requests_per_s=2600",
        "workloads.chat.noise.sigma=0.05",
        f"routing={routing}",
        *STEADY,
    )
    paid = []
    for nodes in ("2", "10", "40"):
        result = run(*busy, ON_DEMAND.replace("40", nodes))
        (window,) = result.run.windows
        came = window.demand_requests[0]
        speed = result.run.inputs[0].speed.get((0, 0), 1.0)
        beyond = np.maximum(came - 4 * result.plan.requests_per_node_h[0, 0, 0] * speed, 0.0)
        assert beyond.sum() > 0.05 * came.sum()
        assert window.served_requests[1, 0].sum() == pytest.approx(beyond.sum(), rel=0.005)
        paid.append(by_cluster(result, Account.RENT)[1])
    assert paid[1:] == pytest.approx(paid[:1] * 2, rel=0.005)


def test_own_machines_are_filled_no_further_than_their_waits_allow(run: Run) -> None:
    """With 99.8% promised, a load at which fewer are in time is left to the provider; rent buys what is promised."""
    held = "workloads.chat.slo.percentile=0.99"  # what a node holds is the same of both
    busy = (
        "workloads.chat.requests_per_s=2600",
        "workloads.chat.noise.sigma=0.05",
        *STEADY,
        ON_DEMAND,
        held,
    )
    lax = run(*busy)
    strict = run(*busy, "slo_target={attainment: 0.998}")
    requests = strict.run.inputs[0].demand_requests
    (allowed,) = set(allowed_loads(strict.plan, requests)[0].tolist())
    assert 0.85 < allowed < 1 == allowed_loads(lax.plan, requests)[0, 0]
    own = strict.run.windows[0].busy_nodes[0] / strict.run.windows[0].nodes[0]
    assert own.max() == pytest.approx(allowed, rel=1e-4)  # less what is refused
    assert by_cluster(strict, Account.RENT)[1] > 1.05 * by_cluster(lax, Account.RENT)[1]
    missed = [
        (r.monthly.late_requests + r.monthly.shed_requests).sum() / r.monthly.demand_requests.sum()
        for r in (lax, strict)
    ]
    assert missed[1] < 0.002 < missed[0] < 0.01


def test_who_ranks_rented_machines_first_has_them_work_first(run: Run) -> None:
    busy = ("workloads.chat.requests_per_s=500", *STEADY, ON_DEMAND, "routing=preference")
    ranked = run(*busy, "workloads.chat.cluster_preference=[rented]")
    assert ranked.monthly.busy_node_h[:, 0].sum() == 0
    left_open = run(*busy, "workloads.chat.cluster_preference=[h200]")
    assert left_open.monthly.busy_node_h[:, 1].sum() == 0
