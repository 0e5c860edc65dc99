from __future__ import annotations

import numpy as np
import pytest
import pyxirr
from scipy.integrate import quad

from planner.finance.accounting.measures import (
    SUMS,
    levelised_to_date,
    measures,
    ownership,
    reconciliation,
    series_of,
    service,
)
from planner.finance.accounts import (
    CAPEX_ACCOUNTS,
    COST_OF_SERVING_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    OPERATING_EXPENSE_ACCOUNTS,
    Account,
    View,
)
from planner.finance.ledger import Dimension
from planner.finance.statements import Frequency
from planner.run.simulate import RunResult
from planner.run.tables import peak_headroom, statement
from tests.ledgers import Run, total

SOLD = (
    "workloads.*.token_price={input_usd_per_million_tokens: 30, output_usd_per_million_tokens: 90}"
)
SOLD_AT = (
    "workloads.*.token_price={input_usd_per_million_tokens: %r, cached_input_usd_per_million_tokens: %r, "
    "output_usd_per_million_tokens: %r}"
)
AT_ONCE = "clusters.mi325x.online=2026-01-01"


def known(result: RunResult) -> dict[str, float]:
    return {name: value for name, value in measures(result).items() if value is not None}


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (SOLD, "finance.tax={rate_fraction: 0.25}"),
        ("finance.loan={share_of_purchases_fraction: 0.5, rate_per_year: 0.08, term_months: 24}",),
        ("clusters.mi325x.contract={kind: finance-lease, rate_per_year: 0.1, term_months: 12}",),
    ],
    ids=["plain", "sold and taxed", "borrowed", "leased"],
)
def test_pl_cost_is_that_of_the_statements_and_leads_to_net_present_cost(
    run: Run, overrides: tuple[str, ...]
) -> None:
    """Each sum is its measure to the cent, the first line what the income statements add up to."""
    result = run(*overrides)
    steps = reconciliation(result)
    found = measures(result)
    so_far = 0
    for line, cents in steps.items():
        if line in SUMS:
            assert cents == so_far, line
        else:
            so_far += cents
    sums = {"cost incl. capital charge": "cost_usd", "TCO": "tco_usd", "P&L cost": "pl_cost_usd"}
    for line, name in sums.items():
        assert steps[line] == round(100 * (found[name] or 0.0)), line
    assert steps["net present cost"] == round(-100 * (found["npv_usd"] or 0.0))
    fleet = statement(result, Frequency.YEAR)
    columns = ("cost_of_serving_usd", "operating_expense_usd", "interest_usd")
    stated = sum(int(fleet[name].sum()) for name in columns)
    assert steps["P&L cost"] == stated


@pytest.mark.parametrize(
    "more", [(), (SOLD, "finance.tax={rate_fraction: 0.25}")], ids=["plain", "sold and taxed"]
)
def test_without_a_discount_rate_nothing_is_discounted(run: Run, more: tuple[str, ...]) -> None:
    steps = reconciliation(run("finance.discount_rate_per_year=0", *more))
    assert steps["discounting"] == 0
    assert (steps["tax, less revenue"] == 0) == (not more)
    assert steps["TCO"] + steps["tax, less revenue"] == steps["net present cost"]


def test_headroom_grows_with_nodes_and_is_not_taken_by_work_that_can_wait(run: Run) -> None:
    """A peak hour without failures: what chat needs of the machines in service then, whatever batch does beside."""
    busy = ("workloads.chat.requests_per_s=400", AT_ONCE, "reliability.failure_multiplier=0")
    night = (
        "workloads.night={model: llama-3.1-8b, requests_per_s: 900, priority: deferrable, completion_window_h: 12, "
        "lengths: {input: {mean: 900}, output: {mean: 300}}}"
    )
    small, large, beside = (
        run(*busy, *more) for more in ((), ("clusters.h200.nodes=8",), (night,))
    )
    tightest = [float(np.nanmin(peak_headroom(result))) for result in (small, large, beside)]
    assert 0.0 < tightest[0] < tightest[1] < 1.0
    assert tightest[2] == pytest.approx(tightest[0], abs=0.1)
    utilised = [figures["utilisation_fraction"] or 0.0 for figures in map(service, (small, beside))]
    assert utilised[1] > 1.5 * utilised[0]  # so that it would be seen


def test_what_needs_a_price_is_empty_without_one(run: Run) -> None:
    figures = measures(run())
    for name in ("revenue_usd", "gross_margin_fraction", "operating_margin_fraction",
                 "margin_after_capital_charge_fraction", "irr_per_year", "payback_months", "tax_usd",
                 "break_even_utilisation_fraction", "break_even_api_price_ratio"):  # fmt: skip
        assert figures[name] is None, name


def test_headlines_from_the_ledger_by_hand(run: Run) -> None:
    result = run(AT_ONCE)
    figures = known(result)
    ledger = result.ledger
    economic = ledger.monthly_cents(View.ECONOMIC) / 100
    capital = total(result, *CAPEX_ACCOUNTS)
    worth = -total(result, Account.RESIDUAL_VALUE)
    running = economic.copy()
    running[0] -= capital  # all is bought on the first day
    running[-1] += worth
    factors = 1.1 ** (-(np.arange(3) + 0.5) / 12)
    spent = capital + running @ factors - worth * 1.1 ** (-3 / 12)
    tokens = result.monthly.served_requests.sum(axis=(1, 2)) * 600
    assert figures["tco_usd"] == pytest.approx(economic.sum())
    assert figures["npv_usd"] == pytest.approx(-spent)
    assert figures["levelised_cost_per_million_tokens_usd"] == pytest.approx(
        spent / (tokens @ factors) * 1e6
    )
    assert figures["levelised_cost_per_million_output_tokens_usd"] == pytest.approx(
        6 * figures["levelised_cost_per_million_tokens_usd"]
    )
    assert figures["cost_per_million_tokens_usd"] == pytest.approx(
        figures["cost_usd"] / tokens.sum() * 1e6
    )
    assert figures["capex_usd"] == capital
    assert figures["cash_usd"] == pytest.approx(figures["tco_usd"] + figures["end_value_usd"])


def test_purchases_and_sales_count_on_their_day(run: Run) -> None:
    """Starts on 16 January; bought on 11 February, sold on 10 March: months by hand, the share of their own days."""
    result = run(
        "start=2026-01-16", "clusters.h200.retire=2026-03-10", "clusters.mi325x.online=2026-02-11"
    )
    ledger = result.ledger
    start = 15 / 31
    table = ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT) / 100
    at = list(Account).index
    capital = table[:, :, [at(account) for account in CAPEX_ACCOUNTS]].sum(axis=(0, 2))
    dated = [
        (capital[0], 0.0),
        (capital[1], 1 + 10 / 28 - start),
        (table[:, 0, at(Account.RESALE)].sum(), 2 + 9 / 31 - start),
        (table[:, :, at(Account.RESIDUAL_VALUE)].sum(), 3 + 15 / 30 - start),  # to 16 April
    ]
    assert all(amount for amount, _ in dated)
    codes = [at(account) for account in Account if View.CASH in account.views]
    running = table[:, :, codes].sum(axis=(1, 2))
    running -= table[:, :, [at(account) for account in (*CAPEX_ACCOUNTS, Account.RESALE)]].sum(
        axis=(1, 2)
    )
    middles = np.array([(start + 1) / 2, 1.5, 2.5, 3.25]) - start
    value = -sum(amount * 1.1 ** (-month / 12) for amount, month in dated) - running @ 1.1 ** (
        -middles / 12
    )
    figures = known(result)
    assert figures["npv_usd"] == pytest.approx(value, rel=1e-9)
    tokens = series_of(result).tokens @ 1.1 ** (-middles / 12)
    assert figures["levelised_cost_per_million_tokens_usd"] == pytest.approx(
        -value / tokens * 1e6, rel=1e-9
    )


CASH_MEASURES = (
    "npv_usd",
    "tco_usd",
    "end_value_usd",
    "cash_usd",
    "irr_per_year",
    "payback_months",
    "levelised_cost_per_million_tokens_usd",
    "levelised_cost_per_accelerator_h_usd",
)


def test_no_choice_of_the_books_moves_a_measure_of_cash(run: Run) -> None:
    others = (
        SOLD,
        "clusters.h200.retire=2026-05-20",
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.2}",
    )
    stated = known(run("horizon_months=8", *others))
    for choice in ("depreciation_months=72", "residual_fraction=0", "depreciation_method=declining-balance",
                   "residual_basis=vendor-prior"):  # fmt: skip
        figures = known(run("horizon_months=8", *others, f"finance.{choice}"))
        assert figures["cost_usd"] != stated["cost_usd"]
        assert {name: figures[name] for name in CASH_MEASURES} == {
            name: stated[name] for name in CASH_MEASURES
        }, choice


TAXES = (
    "{rate_fraction: 0.25, bonus_fraction: 0}",
    "{rate_fraction: 0.4, bonus_fraction: 1}",
    "{rate_fraction: 0.25, bonus_fraction: 0.4, losses: carry-forward}",
    "{rate_fraction: 0.6, bonus_fraction: 0, losses: carry-forward}",
)


@pytest.mark.parametrize("tax", TAXES)
@pytest.mark.parametrize("timing", ["mid_month", "month_end"])
def test_selling_every_token_at_the_levelised_cost_leaves_the_owner_nothing(
    run: Run, tax: str, timing: str
) -> None:
    plan = ("start=2026-01-16", "horizon_months=26", "clusters.mi325x.online=2026-09-10", f"finance.tax={tax}",
            "clusters.h200.retire=2027-11-05", f"finance.cash_flow_timing={timing}",
            "workloads.chat.prefix_cache_hit_fraction=0.5")  # fmt: skip
    unsold = known(run(*plan))
    price = unsold["levelised_cost_per_million_tokens_usd"]
    sold = known(run(*plan, SOLD_AT % (price, price, price)))
    # Each month's income and tax is rounded to the cent.
    assert sold["npv_usd"] == pytest.approx(0, abs=1.0)
    assert sold["irr_per_year"] == pytest.approx(0.1, abs=1e-6)
    assert sold["levelised_cost_per_million_tokens_usd"] == pytest.approx(price, rel=1e-9)
    untaxed = known(run(*plan, "finance.tax=null"))["levelised_cost_per_million_tokens_usd"]
    assert price > untaxed * 1.001
    output = unsold["levelised_cost_per_million_output_tokens_usd"]
    assert known(run(*plan, SOLD_AT % (0.0, 0.0, output)))["npv_usd"] == pytest.approx(0, abs=1.0)


def test_an_hour_at_its_levelised_cost_under_tax_has_a_closed_form(run: Run) -> None:
    result = run(
        "finance.tax={rate_fraction: 0.3, bonus_fraction: 1}",
        "horizon_months=14",
        "clusters.mi325x=null",
    )
    ledger = result.ledger
    hours = series_of(result).sums.in_service_h[:, -1]
    capital = total(result, *CAPEX_ACCOUNTS)
    worth = -total(result, Account.RESIDUAL_VALUE)
    running = (
        ledger.monthly_cents(View.CASH) / 100
        - ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)[
            :, list(Account).index(Account.TAX_CASH)
        ]
        / 100
    )
    running[0] -= capital
    factors = 1.1 ** (-(np.arange(14) + 0.5) / 12)
    end = 1.1 ** (-14 / 12)
    # All is deducted at once, spread over the first year; what a sale brings is taxed whole.
    deducted = capital * factors[:12].mean()
    after_tax = capital + 0.7 * (running @ factors) - 0.3 * deducted - 0.7 * worth * end
    price = known(result)["levelised_cost_per_accelerator_h_usd"]
    assert price == pytest.approx(after_tax / 0.7 / (hours @ factors), rel=1e-9)


@pytest.mark.parametrize("losses", ["offset", "carry-forward"])
def test_the_tax_basis_left_is_worth_the_same_at_no_resale_and_at_hardly_any(
    run: Run, losses: str
) -> None:
    tax = f"finance.tax={{rate_fraction: 0.25, bonus_fraction: 0, losses: {losses}}}"
    values = [
        known(run(SOLD, tax, choice))["npv_usd"]
        for choice in (
            "finance.resale_multiplier=0",
            "finance.resale_multiplier=1e-9",
            "finance.end_value=none",
        )
    ]
    assert values == pytest.approx([values[0]] * 3, abs=0.05)
    ledger = run(SOLD, tax, "finance.resale_multiplier=0").ledger
    assert ledger.account_cents(Account.RESIDUAL_VALUE) == 0
    assert ledger.account_cents(Account.TAX_ON_END_VALUE) < 0  # what is scrapped is still deducted


def test_sold_tokens_have_a_margin_a_rate_and_a_payback(run: Run) -> None:
    result = run(SOLD, AT_ONCE, "horizon_months=24")
    figures = known(result)
    ledger = result.ledger
    left = 1 - figures["cost_usd"] / figures["revenue_usd"]
    assert figures["margin_after_capital_charge_fraction"] == pytest.approx(left)
    capital = total(result, *CAPEX_ACCOUNTS)
    worth = -total(result, Account.RESIDUAL_VALUE)
    cash = -ledger.monthly_cents(View.CASH) / 100
    cash[0] += capital
    flows = np.zeros(49)  # half months
    flows[0] = -capital
    flows[1::2] = cash
    flows[-1] += worth
    half_month = pyxirr.irr(flows.tolist())
    assert half_month is not None
    assert figures["irr_per_year"] == pytest.approx((1 + half_month) ** 24 - 1, rel=1e-6)
    assert figures["npv_usd"] == pytest.approx(
        pyxirr.npv(1.1 ** (1 / 24) - 1, flows.tolist()), rel=1e-9
    )
    paid_back = np.cumsum(cash)
    turn = int(np.flatnonzero(paid_back >= capital)[0])
    share = (capital - paid_back[turn] + cash[turn]) / cash[turn]
    assert figures["payback_months"] == pytest.approx(turn + share, rel=1e-9)
    assert figures["discounted_payback_months"] > figures["payback_months"]


def test_margins_take_off_what_their_names_say(run: Run) -> None:
    """The charge for capital is in neither the gross nor the operating margin, people are not in the gross."""
    result = run(SOLD, "finance.insurance_fraction_per_year=0.02", "finance.operations_staff_per_1000_accelerators=10",
                 "clusters.h200.retire=2026-03-10")  # fmt: skip
    figures = known(result)

    def spent(*names: str) -> float:
        return sum(result.ledger.account_cents(Account(name)) for name in names) / 100

    machines = spent("depreciation", "energy", "cooling", "colocation", "maintenance")
    people = spent(
        "operations_staff", "software_engineers", "support_contracts", "insurance", "disposal_loss"
    )
    revenue = -spent("revenue")
    assert revenue == figures["revenue_usd"]
    assert figures["gross_margin_fraction"] == pytest.approx(1 - machines / revenue)
    assert figures["operating_margin_fraction"] == pytest.approx(1 - (machines + people) / revenue)
    charge = figures["operating_margin_fraction"] - figures["margin_after_capital_charge_fraction"]
    assert charge == pytest.approx(spent("cost_of_capital") / revenue)
    assert min(machines, people, spent("cost_of_capital")) > 0
    dearer = known(run(SOLD, "finance.discount_rate_per_year=0.3"))
    plain = known(run(SOLD))
    for name in ("gross_margin_fraction", "operating_margin_fraction"):
        assert dearer[name] == plain[name]
    assert (
        dearer["margin_after_capital_charge_fraction"]
        < plain["margin_after_capital_charge_fraction"]
    )


def test_every_cost_is_in_exactly_one_step_of_the_margins() -> None:
    accrued = {account for account in Account if View.ACCRUAL in account.views} - set(
        NOT_COST_ACCOUNTS
    )
    leased = (Account.LEASE_INTEREST, Account.OTHER_CAPITAL)
    steps = [
        *COST_OF_SERVING_ACCOUNTS,
        *OPERATING_EXPENSE_ACCOUNTS,
        Account.COST_OF_CAPITAL,
        *leased,
    ]
    assert sorted(steps) == sorted(accrued)


CACHED = "%s={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 8, " + (
    "cached_input_usd_per_million_tokens: %s, change_per_year: -0.5}"
)


@pytest.mark.parametrize(
    ("stated", "cached_usd"), [("0.3", 0.3), ("null", 2 * 0.2), ("2", 2.0), ("0", 0.0)]
)
def test_cached_prompt_tokens_are_sold_and_bought_at_their_own_price(
    run: Run, stated: str, cached_usd: float
) -> None:
    """500 prompt tokens of which 0.6 are cached, and 100 generated; prices fall by half a year."""
    result = run(
        CACHED % ("workloads.*.token_price", stated),
        CACHED % ("finance.api_price", stated),
        "workloads.chat.prefix_cache_hit_fraction=0.6",
    )
    served = result.monthly.served_requests.sum(axis=(1, 2))
    fall = [quad(lambda t: 0.5 ** (t / 12), month, month + 1)[0] for month in range(3)]
    bill = served * fall * (200 * 2 + 300 * cached_usd + 100 * 8) / 1e6
    figures = known(result)
    assert figures["revenue_usd"] == pytest.approx(bill.sum(), abs=0.02)
    # What is sold at the API's prices earns what buying there would have cost.
    assert figures["api_saving_npv_usd"] == pytest.approx(figures["npv_usd"], abs=0.02)


def test_an_api_at_the_break_even_price_saves_nothing(run: Run) -> None:
    price = (
        "finance.api_price={input_usd_per_million_tokens: %r, output_usd_per_million_tokens: %r, "
        + ("change_per_year: -0.6}")
    )
    ratio = known(run(price % (1.0, 4.0)))["break_even_api_price_ratio"]
    there = known(run(price % (ratio, 4 * ratio)))
    assert there["break_even_api_price_ratio"] == pytest.approx(1)
    assert there["api_saving_npv_usd"] == pytest.approx(0, abs=1)


def test_energy_and_emissions_of_a_token(run: Run) -> None:
    result = run(
        "site.grid_carbon_g_per_kwh=500",
        "clusters.mi325x=null",
        "clusters.h200.embodied_kg_per_node=6000",
    )
    figures = known(result)
    tokens = series_of(result).tokens.sum()
    assert figures["energy_kwh_per_million_tokens"] == pytest.approx(
        result.monthly.facility_kwh.sum() / tokens * 1e6
    )
    assert figures["operational_kg_per_million_tokens"] == pytest.approx(
        0.5 * figures["energy_kwh_per_million_tokens"]
    )
    assert figures["embodied_kg_per_million_tokens"] == pytest.approx(
        4 * 6000 * 3 / 60 / tokens * 1e6
    )
    both = known(run("site.grid_carbon_g_per_kwh=500"))  # of all clusters
    assert both["operational_kg_per_million_tokens"] == pytest.approx(
        0.5 * both["energy_kwh_per_million_tokens"]
    )


def test_an_unpublished_footprint_is_unknown_not_zero(run: Run) -> None:
    result = run(
        "clusters.mi325x.accelerator=MI355X", "clusters.mi325x.accelerator_price_usd=30000"
    )
    assert measures(result)["embodied_kg_per_million_tokens"] is None


def test_a_plan_that_serves_nothing_has_no_cost_per_token(run: Run) -> None:
    result = run("workloads.chat.requests_per_s=0")
    figures = measures(result)
    assert figures["cost_usd"]
    for name, value in figures.items():
        assert (value is None) if "tokens" in name else True, name
    assert service(result)["shed_fraction"] is None


def test_the_levelised_series_ends_at_the_measure(run: Run) -> None:
    tax = "finance.tax={rate_fraction: 0.2, bonus_fraction: 0.5%s}"
    for choice in ("", ", losses: carry-forward"):
        result = run(tax % choice, SOLD, "horizon_months=5")
        frame = result.timeline_monthly()
        figures = known(result)
        for name in ("tokens", "output_tokens"):
            last = frame[f"levelised_cost_per_million_{name}_usd"].iloc[-1]
            assert last == pytest.approx(figures[f"levelised_cost_per_million_{name}_usd"]), choice
            gathered = frame[f"cumulative_cost_per_million_{name}_usd"].iloc[-1]
            assert gathered == pytest.approx(figures[f"cost_per_million_{name}_usd"])


def test_the_levelised_cost_to_date_is_that_of_a_shorter_horizon(run: Run) -> None:
    quiet = ("reliability.failure_multiplier=0", "software.incident_multiplier=0", "site.outages_per_year=0",
             "software.software_speedup_multiplier=0")  # fmt: skip
    whole = run("horizon_months=6", *quiet)
    half = run("horizon_months=3", *quiet)
    tokens = np.tile(series_of(whole).tokens[:, None], 3)
    until = levelised_to_date(ownership(whole), tokens)[2, -1]
    shorter = levelised_to_date(ownership(half), np.tile(series_of(whole).tokens[:3, None], 3))[
        -1, -1
    ]
    assert until == pytest.approx(shorter, rel=1e-3)  # the same machines, other random demand


@pytest.mark.parametrize(
    "slo_target", ["{}", "{per: horizon}", "{scope: fleet, attainment: 0.999}"]
)
def test_a_run_is_judged_by_the_slo_target_of_its_scenario(run: Run, slo_target: str) -> None:
    """Two nodes of four are taken away, and requests multiplied, until the later months break."""
    result = run(
        "clusters.h200.nodes=1", "clusters.mi325x.online=2026-03-01", "workloads.chat.requests_per_s=400",
        f"slo_target={slo_target}",
    )  # fmt: skip
    stated = result.scenario.slo_target
    figures = service(result)
    timeline = result.timeline_workloads()
    shares = timeline.slo_attainment_fraction
    if stated.per == "month":
        worst = shares.min()
        broken = shares[shares < stated.attainment]
        assert figures["slo_met_months"] == (broken.index[0] if len(broken) else 3)
    else:
        worst = figures["slo_attainment_fraction"]
    assert worst is not None
    assert figures["slo_attainment_lowest_fraction"] == pytest.approx(worst)
    assert figures["slo_shortfall_fraction"] == pytest.approx(max(0.0, stated.attainment - worst))
    assert result.slo_result().is_met == (worst >= stated.attainment)
