"""What was bought, when it was paid and when it serves: the books against hand computation, to the cent."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from planner.engine.log import Change, ChangeLog, Purchase
from planner.errors import ConservationError
from planner.finance.accounting import cohorts
from planner.finance.accounting.cohorts import cohorts_of, cost_cents
from planner.finance.accounting.posting import write_ledger
from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.months import MonthGrid
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario
from tests.engine.plans import cluster_plan, make_plan
from tests.ledgers import Run, by_month

QUIET = [
    "reliability.failure_multiplier=0",
    "software.incident_multiplier=0",
    "software.software_speedup_multiplier=0",
    "site.outages_per_year=0",
    "clusters.mi325x=null",
]
PRICED = ["horizon_months=6", "clusters.h200.nodes=4", "clusters.h200.accelerator_price_usd=37000"]
BLOCKS = "site.power_blocks=[{date: 2026-01-01, it_kw: 11}, {date: 2026-03-17, it_kw: 21}]"


@pytest.fixture
def run(write: WriteScenario) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(), [*QUIET, *overrides]))

    return runner


def node_usd(result: RunResult) -> float:
    return sum(result.plan.clusters[0].prices_usd)


def test_no_purchase_vanishes_on_a_start_date_that_rounds(run: Run) -> None:
    """Ten February has nine of 28 days behind it, a quotient that two formulas round to two numbers."""
    result = run("start=2026-02-10", "clusters.h200.online=2026-02-10")
    assert by_month(result, *CAPEX_ACCOUNTS) == [4 * node_usd(result), 0, 0, 0]


def test_a_purchase_that_vanishes_is_noticed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpolation that once lost 26 million dollars, put back in place."""

    def interpolated(grid: MonthGrid, hours: Any) -> Any:
        return np.interp(hours, *grid.month_firsts)

    monkeypatch.setattr(MonthGrid, "coordinate_of_hour", interpolated)
    monkeypatch.setattr(cohorts, "_months_of", cohorts._months_of.__wrapped__)
    with pytest.raises(
        ConservationError,
        match=r"h200, 2026-02: 0\.00 USD of capex in the ledger, [\d,.]+ delivered",
    ):
        run("start=2026-02-10")


def test_cohorts_that_serve_other_hours_than_their_machines_are_noticed(run: Run) -> None:
    result = run()
    late = tuple(dataclasses.replace(cohort, in_service_h=24.0) for cohort in result.cohorts)
    with pytest.raises(ConservationError, match="node-hours of cohorts in service are off by 96"):
        write_ledger(result.plan, result.run, result.monthly, late, result.rented)


def test_hardware_without_power_is_paid_and_waits_as_construction_in_progress(run: Run) -> None:
    """Nodes of 10.2 kW: one has power at once, two on 17 March, the last never. Six months of 36, a fifth left."""
    result = run(*PRICED, BLOCKS, "finance.operations_fraction_per_year=0.12")
    price = node_usd(result)
    assert by_month(result, *CAPEX_ACCOUNTS) == [4 * price, 0, 0, 0, 0, 0]
    served = [1, 1, 1 + 2 * 15 / 31, 3, 3, 3]
    depreciation = np.array(served) * 0.8 * price / 36
    assert by_month(result, Account.DEPRECIATION) == pytest.approx(depreciation, abs=0.011)
    assert by_month(result, Account.MAINTENANCE) == pytest.approx(
        np.array(served) * price * 0.01, abs=0.011
    )
    book = 4 * price - np.cumsum(depreciation)
    assert result.ledger.book_value_cents().sum(axis=0) / 100 == pytest.approx(book, abs=0.02)
    held = np.array([4 * price, *book[:-1]])
    charge = held * (1.1 ** (1 / 12) - 1)
    assert by_month(result, Account.COST_OF_CAPITAL) == pytest.approx(charge, abs=0.02)
    assert [(c.nodes, c.bought_h, c.in_service_h) for c in result.cohorts] == [
        (1, 0.0, 0.0), (2, 0.0, 75 * 24.0), (1, 0.0, np.inf)
    ]  # fmt: skip
    told = f"1 node of cluster h200, delivered and paid ({price:,.0f} USD), did not enter service"
    assert any(told in warning for warning in result.warnings)
    waiting = result.events().query("event == 'waiting'")
    assert waiting[["end_time", "accelerators"]].to_numpy().tolist() == [
        ["2026-03-17T00:00:00", 16],
        ["", 8],
    ]


def test_power_that_comes_late_moves_depreciation_and_not_the_payment(run: Run) -> None:
    now = run(*PRICED)
    late = run(*PRICED, "site.power_blocks=[{date: 2026-04-01, it_kw: 500}]")
    assert by_month(late, *CAPEX_ACCOUNTS) == by_month(now, *CAPEX_ACCOUNTS)
    assert by_month(late, Account.DEPRECIATION)[:3] == [0, 0, 0]
    assert by_month(late, Account.DEPRECIATION)[3:] == by_month(now, Account.DEPRECIATION)[:3]
    for account in (Account.MAINTENANCE, Account.COLOCATION, Account.ENERGY):
        assert by_month(late, account)[:3] == [0, 0, 0]
        assert by_month(late, account)[4] > 0


@pytest.mark.parametrize("bonus", [0, 1])
def test_what_never_serves_deducts_no_tax_and_leaves_with_its_cluster(run: Run, bonus: int) -> None:
    """Sold at resale value in the fifth month; the whole cost was the basis, so tax falls by the loss."""
    tax = f"finance.tax={{rate_fraction: 0.25, bonus_fraction: {bonus}}}"
    never = "site.power_blocks=[{date: 2026-06-01, it_kw: 500}]"
    result, serving = (
        run(*PRICED, *late, "clusters.h200.retire=2026-05-01", tax) for late in ([never], [])
    )
    cost = 4 * node_usd(result)
    sold = -by_month(result, Account.RESALE)[4]
    server = sum(result.cohorts[0].prices_usd[:2])  # 62.5% after a year: the catalogue's figure
    assert sold == pytest.approx(4 * server * 0.625 ** (4 / 12), abs=0.01)
    assert sold == -by_month(serving, Account.RESALE)[4] > 0
    assert by_month(result, Account.DISPOSAL_LOSS)[4] == pytest.approx(cost - sold, abs=0.01)
    assert not any(by_month(result, Account.DEPRECIATION))
    deducted = np.array(
        by_month(result, Account.ENERGY, Account.COOLING)
    )  # an empty hall is cooled all the same
    deducted[4] += cost - sold
    assert by_month(result, Account.TAX_CASH) == pytest.approx(-0.25 * deducted, abs=0.02)


def test_what_is_owned_at_the_end_is_worth_its_age_since_delivery_in_service_or_not(
    run: Run,
) -> None:
    market = "finance.end_value=market"
    serving = run(*PRICED, market)
    waiting = run(*PRICED, market, "site.power_blocks=[{date: 2026-01-01, it_kw: 1}]")
    assert by_month(waiting, Account.RESIDUAL_VALUE) == by_month(serving, Account.RESIDUAL_VALUE)
    assert by_month(waiting, Account.RESIDUAL_VALUE)[-1] < 0


def test_the_warranty_runs_from_delivery(run: Run) -> None:
    """Delivered in January, powered in March, three months of warranty: parts are paid for from April on."""
    result = run(*PRICED, "site.power_blocks=[{date: 2026-03-01, it_kw: 500}]", "reliability.failure_multiplier=50",
                 "finance.warranty_months=3", "finance.replacement_price_fraction=1")  # fmt: skip
    paid = by_month(result, Account.RMA)
    assert paid[:3] == [0, 0, 0]
    assert min(paid[3:]) > 0


def test_every_order_bears_maintenance_and_insurance_at_its_own_price(run: Run) -> None:
    """Four nodes at 30,000 an accelerator, two more at an offer of 20,000; from then on both prices are borne."""
    result = run(
        "horizon_months=6",
        "workloads.chat.requests_per_s=3000",
        "clusters.h200.accelerator_price_usd=30000",
        "clusters.h200.quotes=[{name: offer, accelerator_price_usd: 20000, valid_from: 2026-01-15}]",
        "expansion={rules: [{when: utilisation_above, threshold_fraction: 0.1, months: 1, cluster: h200, nodes: 2, "
        "lead_weeks: 4, cooldown_months: 60}]}",
        "finance.operations_fraction_per_year=0.12",
        "finance.insurance_fraction_per_year=0.06",
    )
    first, later = (cohort.nodes * sum(cohort.prices_usd) for cohort in result.cohorts)
    assert later / 2 == pytest.approx(first / 4 - 80_000)
    assert result.cohorts[1].in_service_h == 31 * 24 + 4 * 168 + 6
    march = (31 * 24 - (result.cohorts[1].in_service_h - 59 * 24)) / (31 * 24)
    capital = first + later * np.array([0, 0, march, 1, 1, 1])
    assert by_month(result, Account.MAINTENANCE) == pytest.approx(capital * 0.01, abs=0.011)
    assert by_month(result, Account.INSURANCE) == pytest.approx(capital * 0.005, abs=0.011)


def test_a_stated_server_price_takes_the_place_of_the_catalogues(run: Run) -> None:
    """Hosts of 32,010 unless stated; discounts are the accelerators'."""
    plain = run()
    stated = run("clusters.h200.host_usd_per_node=62000", "clusters.h200.discount_fraction=0.5")
    assert sum(by_month(plain, Account.CAPEX_HOSTS)) == 4 * 32_010
    assert sum(by_month(stated, Account.CAPEX_HOSTS)) == 4 * 62_000
    for account in (Account.CAPEX_NETWORK, Account.CAPEX_STORAGE):
        assert by_month(stated, account) == by_month(plain, account)


def purchases(
    *deliveries: tuple[Purchase, list[tuple[float, int]]], retired: tuple[float, int] = (0.0, 0)
) -> Any:
    """A month's log of one cluster: deliveries and when how many of their nodes enter service; what is retired."""
    log = ChangeLog()
    for place, (purchase, entered) in enumerate(deliveries):
        log.purchases.append(purchase)
        log.changes += [
            Change(time_h, "delivered", 0, 8 * nodes, "", place) for time_h, nodes in entered
        ]
    if retired[1]:
        log.changes.append(Change(retired[0], "retired", 0, -8 * retired[1], ""))
    return cohorts_of(make_plan([cluster_plan(nodes=9)], months=3), log)


PRICES = (100.001, 0.0, 0.0, 0.003)


def test_the_cohorts_of_a_delivery_cost_what_was_paid_for_it() -> None:
    """Seven nodes of 100.004: 700.028, whatever they are split into."""
    delivery = (Purchase(5.0, 0, 7, PRICES), [(10.0, 1), (20.0, 1), (800.0, 2), (1500.0, 1)])
    cohorts = purchases(delivery, retired=(900.0, 3))
    assert [(c.name, c.nodes, c.first_node) for c in cohorts] == [
        ("a-1", 2, 0), ("a-1-a", 1, 2), ("a-1-b", 1, 3), ("a-1-c", 1, 4), ("a-1-d", 2, 5)
    ]  # fmt: skip
    assert [(c.in_service_h, c.retired_h) for c in cohorts] == [
        (15.0, 900.0), (800.0, 900.0), (800.0, np.inf), (1500.0, np.inf), (np.inf, np.inf)
    ]  # fmt: skip
    assert cost_cents(cohorts).tolist() == [20001, 10000, 10001, 10000, 20001]
    assert cost_cents(cohorts).sum() == 70003


def test_those_first_in_service_leave_first_whichever_delivery_they_came_with() -> None:
    early = Purchase(0.0, 0, 2, PRICES)
    late = Purchase(50.0, 0, 2, PRICES)
    cohorts = purchases(
        (early, [(700.0, 1), (900.0, 1)]), (late, [(750.0, 2)]), retired=(1000.0, 2)
    )
    assert [(c.name, c.nodes, c.retired_h) for c in cohorts] == [
        ("a-1", 1, 1000.0), ("a-2", 1, 1000.0), ("a-2-a", 1, np.inf), ("a-1-a", 1, np.inf)
    ]  # fmt: skip
