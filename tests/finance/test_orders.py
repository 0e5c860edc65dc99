"""Deposits and milestones of orders, worked by hand to the cent."""

from __future__ import annotations

import pytest

from planner.finance.accounting.measures import measures, ownership
from planner.finance.accounts import CAPEX_ACCOUNTS, Account, View
from planner.finance.ledger import usd
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario
from tests.ledgers import Run, total

TERMS = "{fraction: 0.3}, {fraction: 0.2, weeks: 2}, {fraction: 0.1, when: delivery, weeks: 8}"
"""Three tenths with the order, two a fortnight later, one eight weeks after delivery, four on delivery."""


@pytest.fixture
def run(run: Run) -> Run:
    def runner(
        terms: str, *overrides: str, placed: str = "2026-01-01", weeks: int = 6
    ) -> RunResult:
        order = f"{{placed: {placed}, lead_weeks: {weeks}, slip_weeks: {{low: 0, base: 0, high: 0}}, payments: [{terms}]}}"  # noqa: E501
        return run(f"clusters.mi325x.order={order}", "clusters.mi325x.online=null", *overrides)

    return runner


def price_of(result: RunResult) -> float:
    return sum(
        sum(each.prices_usd) * each.nodes for each in result.run.log.purchases if each.cluster == 1
    )


def lines(result: RunResult, name: str, cluster: str = "mi325x") -> list[float]:
    table = result.statements(clusters=cluster != "fleet")
    return [
        float(amount)
        for amount in (table if cluster == "fleet" else table.query(f"cluster == {cluster!r}"))[
            name
        ]
    ]


def test_an_order_is_paid_as_agreed(run: Run) -> None:
    """Ordered on 1 January and delivered on 12 February; the last tenth falls due on 9 April, after the horizon."""
    result = run(TERMS)
    price = price_of(result)
    assert lines(result, "investing_cash_flow_usd") == pytest.approx(
        [-0.5 * price, -0.4 * price, 0], abs=0.01
    )
    assert lines(result, "deposits_usd") == pytest.approx(
        [0.5 * price, -0.1 * price, -0.1 * price], abs=0.01
    )
    assert lines(result, "hardware_usd") == lines(run(""), "hardware_usd")
    assert total(result, Account.ORDER_BALANCE) == pytest.approx(0.1 * price, abs=0.01)
    assert total(result, *CAPEX_ACCOUNTS) == total(run(""), *CAPEX_ACCOUNTS)
    assert measures(result)["capex_usd"] == measures(run(""))["capex_usd"]


def test_paying_ahead_costs_the_price_of_capital_until_delivery(run: Run) -> None:
    """Month coordinates: order 0, fortnight 14/31, delivery 1 + 11/28, end 3. Accrued cost bears the same charge."""
    paid = run(TERMS)
    plain = run("")
    price = price_of(paid)
    delivered = 1 + 11 / 28
    end = 3.0

    def worth(months: float) -> float:
        return float(1.1 ** (-months / 12))

    more = 0.3 * worth(0) + 0.2 * worth(14 / 31) + 0.1 * worth(end) - 0.6 * worth(delivered)
    value, usual = (float(measures(result)["npv_usd"] or 0) for result in (paid, plain))
    # Both payments of January count on their mean day, which is off by a millionth of the price.
    assert usual - value == pytest.approx(price * more, abs=1e-6 * price)
    assert -float(ownership(paid).cost_pv_usd[-1, -1]) == pytest.approx(value, abs=0.05)

    def charge(months: float) -> float:
        return float(1.1 ** (months / 12)) - 1

    january = 0.3 * charge(1) + 0.2 * charge(17 / 31)
    charges = [january, 0.5 * charge(11 / 28) - 0.1 * charge(17 / 28), -0.1 * charge(1)]
    accrued = [usd(result.cost_cents(View.ACCRUAL).sum(axis=1)) for result in (paid, plain)]
    assert (accrued[0] - accrued[1]).tolist() == pytest.approx(
        [price * share for share in charges], abs=0.03
    )


def test_what_was_paid_before_the_start_is_an_opening_claim(run: Run) -> None:
    """Ordered on 4 December, delivered on 15 January: half was paid by the start, and is worth that then."""
    result = run(TERMS, placed="2025-12-04")
    price = price_of(result)
    assert total(result, Account.OPENING_VALUE) == pytest.approx(0.5 * price, abs=0.01)
    assert lines(result, "investing_cash_flow_usd") == pytest.approx(
        [-0.4 * price, 0, -0.1 * price], abs=0.01
    )
    assert lines(result, "deposits_usd") == pytest.approx([-0.1 * price, -0.1 * price, 0], abs=0.01)


def test_what_is_paid_on_nodes_that_never_come_is_lost(run: Run) -> None:
    """Due on 12 March, after the cluster is given up on 20 February, and after a horizon that ends on 1 March."""
    gone = run(TERMS, "clusters.mi325x.retire=2026-02-20", weeks=10)
    assert not price_of(gone)
    (order,) = gone.run.log.undelivered
    price = order.nodes * sum(order.prices_usd)
    assert total(gone, Account.EXIT_FEES) == pytest.approx(0.5 * price, abs=0.01)
    assert lines(gone, "deposits_usd") == pytest.approx([0.5 * price, 0, 0], abs=0.01)
    assert lines(gone, "investing_cash_flow_usd") == pytest.approx(
        [-0.5 * price, 0.5 * price, 0], abs=0.01
    )
    late = run(TERMS, "horizon_months=2", weeks=8)  # 26 February
    assert price_of(late)
    later = simulate(
        load_scenario(
            late.scenario, ["clusters.mi325x.order.slip_weeks={low: 0, base: 0, high: 9}"]
        ),
        seed=3,
    )
    assert not price_of(later)
    assert total(later, Account.ORDER_BALANCE) == pytest.approx(-0.5 * price, abs=0.01)
    assert lines(later, "deposits_usd") == pytest.approx([0.5 * price, 0.5 * price], abs=0.01)


@pytest.mark.parametrize(
    ("terms", "parts"),
    [
        (
            "{fraction: 0.7}, {fraction: 0.5}",
            ["clusters.mi325x.order", "1.2 of the price", "at most 1"],
        ),
        ("{fraction: 0}", ["fraction", "greater than 0"]),
        ("{fraction: 0.5, when: signing}", ["when", "delivery"]),
    ],
)
def test_terms_that_cannot_be_are_refused(
    write: WriteScenario, planner: Planner, terms: str, parts: list[str]
) -> None:
    order = f"clusters.mi325x.order={{placed: 2026-01-01, payments: [{terms}]}}"
    planner("run", write(), "--set", order, "--set", "clusters.mi325x.online=null").refused(*parts)
