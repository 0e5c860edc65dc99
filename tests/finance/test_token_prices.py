"""Paths of listed token prices: what they move, and the yearly change at which a plan's answer turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from planner.answers.run_screen import first_screen, replications_screen
from planner.answers.run_summary import key_figures
from planner.answers.sentences import value_line
from planner.finance.accounting.measures import measures
from planner.finance.accounts import Account
from planner.finance.present_value import break_even_change
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from planner.scenario.study import load_study
from planner.studies.compare import compare

Write = Callable[..., Path]
Run = Callable[..., RunResult]
POINTS = 0.02
"""Within what a break-even change must be of the one that a search over runs finds."""
SOLD = "workloads.*.token_price={input_usd_per_million_tokens: 3, output_usd_per_million_tokens: 9}"
API = "clusters.api={contract: {kind: api}}"
SERVED_BY_API = (
    "clusters.h200=null",
    "clusters.mi325x=null",
    "clusters.api={contract: {kind: api, serves: all}}",
)
TAXED = "finance.tax={rate_fraction: 0.25, losses: carry-forward}"


@pytest.fixture
def run(write: Write) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(), ("horizon_months=18", *overrides)))

    return runner


def priced(multiple: float) -> tuple[str, ...]:
    """Return tokens sold, and an API's price, at a multiple of 3 and 9 USD."""
    text = f"{{input_usd_per_million_tokens: {3 * multiple}, output_usd_per_million_tokens: {9 * multiple}}}"
    return (f"workloads.*.token_price={text}", f"finance.api_price={text}")


def zero_by_runs(run: Run, overrides: tuple[str, ...], measure: str) -> float:
    """Return the yearly change at which a measure of runs is zero, by halving an interval of runs."""
    low, high = -0.98, 9.0

    def value(change: float) -> float:
        figure = measures(run(*overrides, f"finance.token_price_change_per_year={change!r}"))[
            measure
        ]
        assert figure is not None
        return figure

    sign = np.sign(value(high))
    assert np.sign(value(low)) == -sign
    while high - low > 0.1 * POINTS:
        middle = (low + high) / 2
        low, high = (low, middle) if np.sign(value(middle)) == sign else (middle, high)
    return (low + high) / 2


@pytest.mark.parametrize(
    "further",
    [
        (),
        (TAXED, "finance.receivable_days=45", "finance.payable_days=30"),
        ("finance.token_price_change_per_year=-0.3",),
        (API, "clusters.mi325x=null", "clusters.h200.nodes=1", "workloads.chat.requests_per_s=600"),
    ],
    ids=["sold", "taxed and paid later", "falling already", "and bought from an API"],
)
def test_the_break_even_change_is_where_a_search_over_runs_finds_it(
    run: Run, further: tuple[str, ...]
) -> None:
    """At 1.25 times the price that owning breaks even at, a fall of some share a year takes the gain."""
    dear = run(*priced(1.0), *further)
    ratio = measures(dear)["break_even_api_price_ratio"]
    assert ratio is not None
    overrides = (*priced(1.25 * ratio), *further)
    found = measures(run(*overrides))
    for measure, value in (
        ("break_even_price_change_per_year", "npv_usd"),
        ("break_even_api_price_change_per_year", "api_saving_npv_usd"),
    ):
        change = found[measure]
        assert change is not None
        assert change == pytest.approx(zero_by_runs(run, overrides, value), abs=POINTS)


def test_prices_with_a_change_of_their_own_stay(run: Run) -> None:
    stated = SOLD.replace("}", ", change_per_year: 0}")
    figures = [
        measures(run(stated, f"finance.token_price_change_per_year={change}"))
        for change in (0.0, -0.5)
    ]
    assert figures[0]["npv_usd"] == figures[1]["npv_usd"]
    assert figures[0]["break_even_price_change_per_year"] is None


def test_what_is_sold_and_what_is_bought_change_alike(run: Run) -> None:
    """A plan that passes all requests on at the list by which it sells them earns nothing at any change of it."""
    resold = (*SERVED_BY_API, "workloads.*.token_price=api")
    paid = []
    for change in (-0.5, 0.0, 0.3):
        ledger = run(*resold, f"finance.token_price_change_per_year={change}").ledger
        assert ledger.account_cents(Account.API) == -ledger.account_cents(Account.REVENUE)
        paid.append(ledger.account_cents(Account.API))
    assert 0 < paid[0] < paid[1] < paid[2]


def test_work_that_can_wait_a_day_is_priced_as_batch(run: Run) -> None:
    """Half the list, bought and sold; not where it cannot wait a day, nor where the price is stated."""
    revenues = {}
    for name, changes in {
        "urgent": (),
        "batch": ("workloads.chat.priority=deferrable",),
        "soon": ("workloads.chat.priority=deferrable", "workloads.chat.completion_window_h=23"),
    }.items():
        result = run("workloads.*.token_price=api", *changes)
        price = result.plan.money.market.token_price
        assert price is not None
        revenues[name] = price[0, 0]
    assert revenues["batch"] == pytest.approx(0.5 * revenues["urgent"])
    assert revenues["soon"].tolist() == revenues["urgent"].tolist()
    stated = run(SOLD, "workloads.chat.priority=deferrable").plan.money.market.token_price
    assert stated is not None
    assert stated[0, 0, [0, 2]].tolist() == [3, 9]


def test_one_prior_draws_the_list_wherever_tokens_are_sold_or_bought(write: Write) -> None:
    key = "finance.token_price_change_per_year"
    for overrides, is_drawn in (
        ((), False),
        (("workloads.chat.token_price=api",), True),
        (("finance.api_price=api",), True),
        ((API,), True),
        (("workloads.chat.token_price=api", f"{key}=-0.1"), False),
    ):
        study, _ = load_study(write(), overrides)
        assert (key in study.uncertain) == is_drawn, overrides


def test_plans_that_differ_in_what_they_buy_turn_at_one_change_of_its_price(write: Write) -> None:
    """Owning against an API: at the change found, both are worth the same in new runs."""
    busy = ("horizon_months=18", "workloads.chat.requests_per_s=1500")
    own = ("name=own", *busy)
    bought = ("name=bought", *busy, *SERVED_BY_API)
    scenarios = [load_scenario(write(), overrides) for overrides in (own, bought)]
    figures = compare(scenarios, replications=1).figures[1]
    change = figures["price_change_flip_per_year"]
    assert change is not None
    values = [
        measures(
            simulate(
                load_scenario(
                    write(), (*overrides, f"finance.token_price_change_per_year={change!r}")
                )
            )
        )["npv_usd"]
        for overrides in (own, bought)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    # A loss has no return.
    saving = figures["saving_npv_usd"]
    assert saving is not None
    assert (figures["saving_irr_per_year"] is None) or saving > 0


@pytest.mark.parametrize(
    ("own", "expected"), [(lambda c: c + 0.25, -0.25), (lambda c: 0.4 - c, 0.4)]
)
def test_break_even_of_a_straight_line(own: Callable[[float], float], expected: float) -> None:
    assert break_even_change(lambda change: 1e6 * own(change)) == pytest.approx(expected, abs=1e-8)


def test_a_value_that_keeps_its_sign_has_no_break_even() -> None:
    assert break_even_change(lambda _: 1.0) is None


def test_what_sells_nothing_has_no_line_of_value(run: Run) -> None:
    figures = measures(run())
    assert figures["break_even_price_change_per_year"] is None
    assert value_line(figures, 18) == ""
    assert "IRR" in value_line(measures(run(SOLD)), 18)


def test_the_first_screen_of_what_sells_has_its_value_and_no_net_present_cost(run: Run) -> None:
    """Where something is sold, net present cost is net of income: no cost, and no headline."""
    result = run(*priced(1.0), "workloads.chat.requests_per_s=90")
    summary = key_figures(result)
    lines = first_screen(summary).splitlines()
    value = next(line for line in lines if line.startswith("VALUE"))
    assert "NPV " in value
    assert "gross margin" in value
    assert not any("NPC" in line for line in lines)
    assert len(lines) <= 24
    assert any("NPC" in line for line in first_screen(key_figures(run())).splitlines())
    change = measures(result)["break_even_price_change_per_year"]
    assert change is not None
    percents = f"{abs(change):.0%} a year."
    assert percents in " ".join(replications_screen(summary).split())
