"""The ledger of real runs: every account against a figure worked out another way."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from planner.finance.accounting.measures import series_of
from planner.finance.accounts import ACCOUNT_ORDER, CAPEX_ACCOUNTS, NOT_COST_ACCOUNTS, Account, View
from planner.finance.ledger import Dimension
from planner.finance.months import MonthGrid
from planner.run.simulate import RunResult
from tests.ledgers import Run, by_cluster, by_month, total

QUIET = [
    "reliability.failure_multiplier=0",
    "software.incident_multiplier=0",
    "software.software_speedup_multiplier=0",
    "site.outages_per_year=0",
]


EVERYTHING = [
    "horizon_months=24",
    "finance.books=ifrs",
    "finance.receivable_days=30",
    "finance.payable_days=45",
    "clusters.leased={accelerator: H200, nodes: 1, retire: 2027-02-03,"
    " contract: {kind: operating-lease, usd_per_accelerator_h: 2}}",
    "clusters.old={accelerator: H200, nodes: 1, owned: {bought: 2024-05-01}}",
    "clusters.booked={accelerator: H200, nodes: 1, order: {placed: 2027-10-01, lead_weeks: 10,"
    " slip_weeks: {low: 0, base: 0, high: 0}, payments: [{fraction: 0.2}, {fraction: 0.1, when: delivery, weeks: 4}]}}",
    "clusters.hired={accelerator: H200, nodes: 1, contract: {kind: finance-lease, rate_per_year: 0.15}}",
    "software.engineers={amd: 1, nvidia: {per_1000_accelerators: 20}}",
    "clusters.h200.retire=2026-11-17",
    "clusters.mi325x.online=2026-02-11",
    "finance.depreciation_months=48",
    "finance.depreciation_method=declining-balance",
    "finance.residual_basis=vendor-prior",
    "finance.resale_multiplier=0.9",
    "finance.insurance_fraction_per_year=0.01",
    "finance.operations_staff_per_1000_accelerators=30",
    "finance.licence_usd_per_accelerator_year=1000",
    "finance.people_escalator_per_year=0.03",
    "finance.spare_part_price_fraction=1.1",
    "finance.rma_usd_per_repair=500",
    "finance.warranty_months=3",
    "finance.replacement_price_fraction=0.9",
    "finance.sla_credit_usd_per_million_tokens=5",
    "finance.sla_objective_fraction=1",
    "finance.loan={share_of_purchases_fraction: 0.6, rate_per_year: 0.1, term_months: 24, fee_fraction: 0.01}",
    "finance.property_tax_fraction_per_year=0.037",
    "finance.carbon_usd_per_tonne=80",
    "finance.carbon_change_per_year=0.05",
    "workloads.*.token_price="
    "{input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 9, change_per_year: -0.3}",
    "finance.api_price={input_usd_per_million_tokens: 0.3, output_usd_per_million_tokens: 1.2, change_per_year: -0.5}",
    "finance.burst_rental={usd_per_accelerator_h: 3}",
    "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.6}",
    "site.electricity.windows=[{name: peak, usd_per_kwh: 0.2, start_hour: 14, end_hour: 20},"
    " {name: rest, usd_per_kwh: 0.05, start_hour: 20, end_hour: 14}]",
    "site.electricity.timezone=America/Chicago",
    "site.electricity.escalator_per_year=0.04",
    "site.electricity.demand_charge_usd_per_kw_month=12",
    "site.electricity.demand_ratchet_fraction=0.8",
    "site.colocation_escalator_per_year=0.05",
    "reliability.failure_multiplier=20",
    "workloads.chat.requests_per_s=3000",
    "workloads.chat.admission=queue",  # so that some are late, and owed for
]


def test_everything_at_once_reconciles_however_it_is_grouped(run: Run) -> None:
    result = run(*EVERYTHING)
    ledger = result.ledger
    used = {ACCOUNT_ORDER[code] for code in ledger.account_code}
    assert used == set(Account) - {
        Account.API
    }  # tests/run/test_api.py has it; nothing is left that no scenario can reach
    cents = int(ledger.amount_cents.sum())
    for dimension in Dimension:
        assert int(ledger.totals_cents(dimension).sum()) == cents
    for view in View:
        assert ledger.monthly_cents(view).sum() == ledger.totals_cents(view=view)
    accrued = ledger.monthly_cents(View.ACCRUAL)
    assert cents == accrued.sum()  # the balance sheet's counter-entries leave accrued cost
    costs = ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS)
    assert np.array_equal(result.cost_cents().sum(axis=1), costs)
    assert series_of(result).accrued_usd == pytest.approx(costs / 100)


NVIDIA = {12: 0.625, 24: 0.425, 36: 0.3, 48: 0.175, 60: 0.125}
AMD = {12: 0.417, 24: 0.283, 36: 0.2, 48: 0.117, 60: 0.083}
"""What used servers fetch by age: the catalogue's figures, for arithmetic by hand."""
SERVERS = (Account.CAPEX_ACCELERATORS, Account.CAPEX_HOSTS)
"""What can be sold."""


def test_a_cohort_is_written_off_to_cost_less_residual(run: Run) -> None:
    result = run("horizon_months=40", "clusters.h200.retire=null", *QUIET)
    capital = total(result, *CAPEX_ACCOUNTS)
    assert total(result, Account.DEPRECIATION) == pytest.approx(0.8 * capital, abs=0.01)
    beyond = (
        NVIDIA[36] * (NVIDIA[48] / NVIDIA[36]) ** (4 / 12),
        AMD[36] * (AMD[48] / AMD[36]) ** (3 / 12),
    )
    assert -total(result, Account.RESIDUAL_VALUE) == pytest.approx(
        np.dot(by_cluster(result, *SERVERS)[:2], beyond), abs=0.01
    )
    assert total(result, Account.DISPOSAL_LOSS) == 0


def test_an_asset_retired_early_mid_month(run: Run) -> None:
    result = run("horizon_months=12", "clusters.h200.retire=2026-07-17", *QUIET)
    (h200,) = [cohort for cohort in result.cohorts if cohort.cluster == 0]
    cost = h200.nodes * sum(h200.prices_usd)
    grid = MonthGrid(start=datetime.date(2026, 1, 1), horizon_months=12)
    age = grid.coordinate(datetime.date(2026, 7, 17))
    assert age == pytest.approx(6 + 16 / 31)
    charged = 0.8 * cost * age / 36
    sold = h200.nodes * sum(h200.prices_usd[:2]) * NVIDIA[12] ** (age / 12)
    posted = result.ledger.totals_cents(Dimension.COHORT, Dimension.ACCOUNT)[0] / 100
    column = list(Account).index
    assert posted[column(Account.DEPRECIATION)] == pytest.approx(charged, abs=0.01)
    assert posted[column(Account.RESALE)] == pytest.approx(-sold, abs=0.01)
    assert posted[column(Account.DISPOSAL_LOSS)] == pytest.approx(cost - charged - sold, abs=0.02)
    assert posted[column(Account.RESIDUAL_VALUE)] == 0


@pytest.mark.parametrize(
    ("choice", "share"),
    [
        ("finance.end_value=market", NVIDIA[12] ** (3 / 12)),
        ("finance.end_value=none", 0.0),
        ("finance.resale_multiplier=0.5", 0.5 * NVIDIA[12] ** (3 / 12)),
        ("clusters.h200.resale_multiplier=0.5", 0.5 * NVIDIA[12] ** (3 / 12)),
        ("clusters.h200.resale_curve=[{age_months: 6, fraction_of_new: 0.8}]", 0.8 ** (3 / 6)),
    ],
)
def test_what_outlives_the_horizon_counts_as_chosen(run: Run, choice: str, share: float) -> None:
    result = run("clusters.mi325x=null", choice, *QUIET)
    assert -total(result, Account.RESIDUAL_VALUE) == pytest.approx(
        share * by_cluster(result, *SERVERS)[0], rel=1e-9, abs=0.01
    )
    assert not any(by_month(result, Account.RESIDUAL_VALUE)[:-1])


def test_the_residual_of_each_vendor_is_its_prior(run: Run) -> None:
    result = run("finance.residual_basis=vendor-prior", "horizon_months=48", *QUIET)
    capital = by_cluster(result, *CAPEX_ACCOUNTS)
    servers = by_cluster(result, *SERVERS)
    written = by_cluster(result, Account.DEPRECIATION)
    assert written[0] == pytest.approx(capital[0] - NVIDIA[36] * servers[0], abs=0.01)
    assert written[1] == pytest.approx(capital[1] - AMD[36] * servers[1], abs=0.01)
    longer = run(
        "finance.residual_basis=vendor-prior",
        "finance.depreciation_months=72",
        "horizon_months=80",
        *QUIET,
    )
    kept = (
        NVIDIA[60] * NVIDIA[60] / NVIDIA[48]
    )  # a year beyond the last point, as over the last step
    assert by_cluster(longer, Account.DEPRECIATION)[0] == pytest.approx(
        capital[0] - kept * servers[0], abs=0.01
    )


def hourly_kw(result: RunResult) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    windows = result.run.windows
    facility = np.concatenate([window.facility_kw for window in windows])
    return np.concatenate([window.it_kw for window in windows], axis=1), facility


WORKDAYS = "[monday, tuesday, wednesday, thursday, friday]"
PEAK = (
    "site.electricity.windows=["
    f"{{name: peak, usd_per_kwh: 0.3, start_hour: 16, end_hour: 21, weekdays: {WORKDAYS}}}, "
    f"{{name: rest, usd_per_kwh: 0.06, start_hour: 21, end_hour: 16, weekdays: {WORKDAYS}}}, "
    "{name: weekend, usd_per_kwh: 0.04, weekdays: [saturday, sunday]}]"
)


def test_each_hour_is_billed_at_its_own_price(run: Run) -> None:
    result = run(PEAK)
    it, facility = hourly_kw(result)
    price = np.empty(facility.size)
    for hour in range(facility.size):  # the calendar walked hour by hour
        moment = datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=hour)
        weekend = moment.weekday() >= 5
        price[hour] = 0.04 if weekend else 0.3 if 16 <= moment.hour < 21 else 0.06
    assert by_cluster(result, Account.ENERGY)[:2] == pytest.approx(it @ price, abs=0.02)
    paid = total(result, Account.ENERGY) + total(result, Account.COOLING)
    assert paid == pytest.approx(float(facility @ price), abs=0.05)


def test_demand_is_charged_on_the_highest_hour_and_remembered_by_the_ratchet(run: Run) -> None:
    charge = "site.electricity.demand_charge_usd_per_kw_month=10"
    plain = run(charge)
    held = run(charge, "site.electricity.demand_ratchet_fraction=1")
    _, facility = hourly_kw(plain)
    edges = plain.plan.month_edges_h
    peaks = np.array([facility[first:last].max() for first, last in itertools.pairwise(edges)])
    cents = 0.01 * len(
        plain.plan.clusters
    )  # running sums are rounded, so a month is off by up to a cent a cluster
    assert by_month(plain, Account.DEMAND_CHARGE) == pytest.approx(10 * peaks, abs=cents)
    assert by_month(held, Account.DEMAND_CHARGE) == pytest.approx(
        10 * np.maximum.accumulate(peaks), abs=cents
    )


def test_people_contracts_and_insurance(run: Run) -> None:
    result = run("finance.operations_staff_per_1000_accelerators=10", "finance.licence_usd_per_accelerator_year=600",
                 "finance.insurance_fraction_per_year=0.02", "clusters.mi325x=null", *QUIET)  # fmt: skip
    quarter = 3 / 12
    assert total(result, Account.OPERATIONS_STAFF) == pytest.approx(
        32 * 0.01 * 150_000 * quarter, abs=0.01
    )
    assert total(result, Account.LICENCES) == pytest.approx(32 * 600 * quarter, abs=0.01)
    capital = total(result, *CAPEX_ACCOUNTS)
    assert total(result, Account.INSURANCE) == pytest.approx(0.02 * capital * quarter, abs=0.01)


NO_STAFF = "finance.operations_staff_per_1000_accelerators=0"


def test_people_there_are_from_the_first_machine_on(run: Run) -> None:
    """32 H200, and 24 MI325X from the second month on: an engineer for each vendor, and a person for 1,000 of them."""
    result = run(*QUIET)
    assert by_month(result, Account.SOFTWARE_ENGINEERS) == pytest.approx(
        [280_000 * n / 12 for n in (1, 2, 2)], abs=0.05
    )
    staff = [150_000 * accelerators / 1000 / 12 for accelerators in (32, 56, 56)]
    assert by_month(result, Account.OPERATIONS_STAFF) == pytest.approx(staff, abs=0.05)


def test_people_by_rate_are_paid_in_whole_ones_from_when_they_are_needed(run: Run) -> None:
    """32 and 24 accelerators, the second from the second month on, at 40 per 1,000: 1.28 and 2.24, so 1, 2, 2."""
    rate = "{per_1000_accelerators: 40}"
    result = run(
        f"reliability.repair_crews={rate}",
        "finance.repair_crew_usd_per_year=120000",
        NO_STAFF,
        *QUIET,
    )
    assert by_month(result, Account.OPERATIONS_STAFF) == pytest.approx(
        [10_000, 20_000, 20_000], abs=0.05
    )
    up = run(
        "software.engineers={nvidia: {per_1000_accelerators: 1, rounding: up}, amd: 0}", *QUIET
    )
    assert total(up, Account.SOFTWARE_ENGINEERS) == pytest.approx(280_000 * 3 / 12, abs=0.05)


def test_spares_grow_with_what_is_bought(run: Run) -> None:
    """One part for two nodes; a review doubles the cluster in the second month, and pays for the parts it needs."""
    rule = (
        "{when: utilisation_above, threshold_fraction: 0.0001, months: 1, cluster: h200, nodes: 4, lead_weeks: 0.1, "
        "cooldown_months: 12}"
    )
    settings = (
        "finance.spare_part_price_fraction=0.5",
        "reliability.spare_fraction=0.5",
        "clusters.mi325x=null",
    )
    result = run(*settings, f"expansion.rules=[{rule}]", *QUIET)
    each = result.plan.clusters[0].prices_usd[0] / 8 * 0.5
    assert [purchase.nodes for purchase in result.run.log.purchases] == [4, 4]
    assert by_month(result, Account.SPARES) == pytest.approx([2 * each, 2 * each, 0.0], abs=0.01)
    assert result.run.shop.spares[0].free == 4


def hard_failures(result: RunResult) -> dict[int, list[float]]:
    """Return the time of each hard failure by cluster, from the table of outages."""
    starts_h: dict[int, dict[int, float]] = {0: {}, 1: {}}
    for row in result.run.shop.rows:
        if row.claim.severity == "hard":
            starts_h[row.claim.cluster].setdefault(id(row.claim), row.start_h)
    return {cluster: sorted(by_claim.values()) for cluster, by_claim in starts_h.items()}


def test_every_hard_failure_costs_freight_and_after_the_warranty_a_part(run: Run) -> None:
    settings = (
        "reliability.failure_multiplier=40",
        "horizon_months=12",
        "finance.rma_usd_per_repair=500",
    )
    result = run(*settings, seed=4)
    failures = hard_failures(result)
    assert len(failures[0]) > 5
    assert len(failures[1]) > 5
    expected = [500.0 * len(failures[cluster]) for cluster in range(2)]
    assert by_cluster(result, Account.RMA)[:2] == pytest.approx(expected, abs=0.01)
    late = run(
        *settings, "finance.warranty_months=6", "finance.replacement_price_fraction=1", seed=4
    )
    half_year = 8766.0 / 2
    bought = [0.0, 31 * 24.0]
    parts = [
        sum(t - bought[c] >= half_year for t in failures[c])
        * result.plan.clusters[c].prices_usd[0]
        / 8
        for c in range(2)
    ]
    assert by_cluster(late, Account.RMA)[:2] == pytest.approx(np.add(expected, parts), abs=0.01)


def test_credits_are_due_for_what_is_missed_beyond_the_objective(run: Run) -> None:
    busy = ("workloads.chat.requests_per_s=3500", "finance.sla_credit_usd_per_million_tokens=7")
    result = run(*busy, "finance.sla_objective_fraction=0.9", *QUIET)
    monthly = result.monthly
    missed = (monthly.late_requests + monthly.shed_requests)[:, 0]
    beyond = np.maximum(missed - 0.1 * monthly.demand_requests[:, 0], 0) * 600
    assert beyond.sum() > 0
    assert by_month(result, Account.SLA_CREDITS) == pytest.approx(beyond * 7 / 1e6, abs=0.011)
    assert not any(by_cluster(result, Account.SLA_CREDITS)[:2])  # the site's, no cluster's
    assert (
        total(run("finance.sla_credit_usd_per_million_tokens=7", *QUIET), Account.SLA_CREDITS) == 0
    )


def test_burst_rental_serves_what_would_be_shed(run: Run) -> None:
    busy = ("workloads.chat.requests_per_s=3000", *QUIET)
    price = "workloads.*.token_price={input_usd_per_million_tokens: 0.5, output_usd_per_million_tokens: 2.0}"
    at_once = "{usd_per_accelerator_h: 3, accelerators_per_instance: 1, available_fraction: 1, startup_h: 0, hold_h: 1}"
    without = run(*busy)
    rented = run(*busy, f"finance.burst_rental={at_once}", price)
    shed = without.monthly.shed_requests
    assert shed.sum() > 0
    assert rented.rented.requests == pytest.approx(shed)
    assert rented.shed_requests().sum() == pytest.approx(0, abs=1e-6 * shed.sum())
    best = max(without.plan.requests_per_node_h[:, 0, 0] / 8)
    busy_usd = 3 * float(shed.sum()) / best
    hours = without.plan.hours
    assert (
        busy_usd <= total(rented, Account.BURST_RENTAL) <= busy_usd + 3 * hours
    )  # each hour's up to a whole one
    sold = (
        float(rented.monthly.demand_requests.sum()) * (500 * 0.5 + 100 * 2.0) / 1e6
    )  # on one's own or on theirs
    assert -total(rented, Account.REVENUE) == pytest.approx(sold, rel=1e-9)
    fleet = rented.timeline_monthly()
    assert fleet["shed_tokens"].sum() == pytest.approx(0, abs=1)
    assert fleet["served_tokens"].sum() == pytest.approx(fleet["demand_tokens"].sum(), rel=1e-9)


def test_carbon_is_priced_at_the_grids_intensity(run: Run) -> None:
    result = run("finance.carbon_usd_per_tonne=100", "site.grid_carbon_g_per_kwh=250")
    assert total(result, Account.CARBON) == pytest.approx(
        result.monthly.facility_kwh.sum() * 0.25 / 1000 * 100, abs=0.05
    )


def test_tax_of_the_books_is_the_rate_on_book_income(run: Run) -> None:
    price = "workloads.*.token_price={input_usd_per_million_tokens: 900, output_usd_per_million_tokens: 900}"
    result = run(
        "horizon_months=12", price, "finance.tax={rate_fraction: 0.3, bonus_fraction: 1}", *QUIET
    )
    left_out = (Account.COST_OF_CAPITAL, Account.TAX_CASH, Account.TAX_DEFERRED)
    income = -result.ledger.monthly_cents(View.ACCRUAL, leave_out=left_out).sum() / 100
    expense = total(result, Account.TAX_CASH) + total(result, Account.TAX_DEFERRED)
    assert expense == pytest.approx(0.3 * income, abs=0.02)
    capital = total(result, *CAPEX_ACCOUNTS)
    running = income + total(result, Account.DEPRECIATION)
    assert total(result, Account.TAX_CASH) == pytest.approx(0.3 * (running - capital), abs=0.02)
    worth = -total(result, Account.RESIDUAL_VALUE)
    assert total(result, Account.TAX_ON_END_VALUE) == pytest.approx(
        0.3 * worth, abs=0.02
    )  # tax basis is gone


def expansion(*quotes: str) -> Sequence[str]:
    return [
        "horizon_months=12",
        "clusters.mi325x=null",
        "workloads.chat.requests_per_s=3000",
        "clusters.h200.accelerator_price_usd=30000",
        "expansion={rules: [{when: utilisation_above, threshold_fraction: 0.1, months: 1, cluster: h200, nodes: 2, "
        "lead_weeks: 4, cooldown_months: 60}], price_change_per_year: -0.5}",
        *quotes,
        *QUIET,
    ]


def test_later_purchases_take_the_quote_that_holds_or_the_moving_list_price(run: Run) -> None:
    moving = run(*expansion())
    assert [cohort.nodes for cohort in moving.cohorts] == [4, 2]
    first, later = (cohort.prices_usd for cohort in moving.cohorts)
    ratios = np.divide(later, first)
    assert ratios == pytest.approx(np.full(4, ratios[0]))
    assert 0.5 < ratios[0] < 1
    quoted = run(
        *expansion(
            "clusters.h200.quotes=[{name: year, accelerator_price_usd: 25000, valid_from: 2026-01-15}]"
        )
    )
    assert quoted.cohorts[0].prices_usd[0] == pytest.approx(8 * 30_000)
    assert quoted.cohorts[1].prices_usd[0] == pytest.approx(8 * 25_000)
    assert quoted.cohorts[1].prices_usd[1:] == pytest.approx(later[1:])


def test_the_same_money_in_another_window_length(run: Run) -> None:
    """A review that may retire makes windows of months; its ledger is that of one window over the horizon."""
    never = "expansion={rules: [{when: utilisation_below, threshold_fraction: 0, months: 1, cluster: h200, nodes: 1}]}"
    one = run(PEAK)
    many = run(PEAK, never)
    assert len(many.run.windows) > len(one.run.windows)
    for account in Account:
        assert by_month(many, account) == pytest.approx(by_month(one, account), abs=0.011), account
