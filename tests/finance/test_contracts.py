"""Machines under contract: what is paid, what is not, and where renting and owning break even."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from planner.answers.assumptions import assumptions
from planner.engine.dispatch import allowed_loads
from planner.finance.accounting.measures import measures
from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.ledger import Dimension
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario
from tests.ledgers import Run, by_month

SITE_COSTS = (
    Account.ENERGY, Account.COOLING, Account.COLOCATION, Account.CARBON, Account.OPERATIONS_STAFF, Account.MAINTENANCE,
    Account.INSURANCE, Account.SPARES, Account.RMA,
)  # fmt: skip
ALL_COSTS = (
    "finance.carbon_usd_per_tonne=50",
    "finance.operations_staff_per_1000_accelerators=30",
    "finance.spare_part_price_fraction=1",
    "finance.rma_usd_per_repair=500",
    "reliability.failure_multiplier=30",
    "finance.insurance_fraction_per_year=0.01",
)


@pytest.fixture
def run(run: Run) -> Run:
    return lambda contract, *overrides: run(
        "clusters.mi325x=null", f"clusters.h200.contract={contract or 'null'}", *overrides
    )


def test_reserved_machines_cost_their_rent_used_or_not_and_nothing_of_the_site(run: Run) -> None:
    result = run("{kind: reserved, usd_per_accelerator_h: 2.5}", *ALL_COSTS)
    assert by_month(result, Account.RENT) == [32 * hours * 2.5 for hours in (744, 672, 744)]
    assert not any(
        any(by_month(result, account))
        for account in (*CAPEX_ACCOUNTS, *SITE_COSTS, Account.DEPRECIATION)
    )
    assert any(by_month(result, Account.SUPPORT_CONTRACTS))
    assert measures(result)["capex_usd"] == 0
    owned = run("", *ALL_COSTS)
    assert all(any(by_month(owned, account)) for account in SITE_COSTS)
    assert np.array_equal(owned.monthly.served_requests, result.monthly.served_requests)


def test_a_lease_is_rent_in_place_of_capital_and_all_else_is_ones_own(run: Run) -> None:
    leased = run("{kind: operating-lease, usd_per_accelerator_h: 1.5}")
    owned = run("")
    assert sum(by_month(leased, Account.RENT)) == 32 * 2160 * 1.5
    for account in (Account.ENERGY, Account.COOLING, Account.COLOCATION):
        assert by_month(leased, account) == by_month(owned, account)
    assert not any(any(by_month(leased, account)) for account in CAPEX_ACCOUNTS)


@pytest.mark.parametrize(("fee", "owed"), [(1.0, 1.0), (0.25, 0.25), (0.0, 0.0)])
def test_leaving_early_owes_the_rest_of_the_term(run: Run, fee: float, owed: float) -> None:
    result = run(
        f"{{kind: reserved, usd_per_accelerator_h: 2, term_months: 12, exit_fee_fraction: {fee}}}",
        "clusters.h200.retire=2026-02-11",
    )
    left_h = (365 - 31 - 10) * 24
    assert by_month(result, Account.EXIT_FEES) == [0.0, pytest.approx(32 * left_h * 2 * owed), 0.0]
    assert sum(by_month(result, Account.RENT)) == pytest.approx(32 * 41 * 24 * 2)


def test_what_a_term_binds_after_the_horizon_is_told(run: Run) -> None:
    """From 1 April to the end of 2026 are 275 days: 32 accelerators at 2 dollars."""
    notes = run("{kind: reserved, usd_per_accelerator_h: 2, term_months: 12}").plan.notes
    assert any(
        f"the {32 * 275 * 24 * 2:,.0f} USD of rent committed after" in note for note in notes
    )
    assert not any(
        "commits" in note
        for note in run("{kind: reserved, usd_per_accelerator_h: 2, term_months: 3}").plan.notes
    )


def test_on_demand_pays_whole_nodes_while_they_are_held_at_the_months_price(run: Run) -> None:
    """By hand from the requests: the nodes that keep each hour below the SLO's load, for a day after the last need."""
    result = run(
        "{kind: on-demand, usd_per_accelerator_h: 4, change_per_year: 0.3, available_fraction: 1, startup_h: 0}",
        "reliability.failure_multiplier=0", "site.outages_per_year=0",
    )  # fmt: skip
    (window,) = result.run.windows
    speed = result.run.inputs[0].speed.get((0, 0), 1.0)
    allowed = allowed_loads(result.plan, window.demand_requests)[0]
    needed = np.ceil(
        window.demand_requests[0] / result.plan.requests_per_node_h[0, 0, 0] / speed / allowed
    )
    held = [min(4, needed[max(0, hour - 23) : hour + 1].max()) for hour in range(result.plan.hours)]
    months = np.add.reduceat(held, result.plan.month_edges_h[:-1]) * 8
    mean = np.diff(1.3 ** (np.arange(4) / 12)) * 12 / np.log(1.3)  # of the price over each month
    assert by_month(result, Account.RENT) == pytest.approx(months * 4 * mean, abs=0.02)
    assert result.monthly.busy_node_h.sum() < result.monthly.present_node_h.sum() == sum(held)


def test_machines_paid_by_the_hour_work_last_whatever_they_are_called(run: Run) -> None:
    rented = "{accelerator: H200, nodes: 4, contract: {kind: KIND, usd_per_accelerator_h: USD}}"
    named = {
        "clusters.a-dear": rented.replace("KIND", "on-demand").replace("USD", "9"),
        "clusters.b-cheap": rented.replace("KIND", "spot").replace(
            "USD", "2, interruptions_per_year: 0"
        ),
        "clusters.z-owned": "{accelerator: H200, nodes: 4}",
    }
    result = run("", "clusters.h200=null", *(f"{key}={value}" for key, value in named.items()))
    names = [cluster.name for cluster in result.plan.clusters]
    order = result.plan.workloads[0].cluster_order
    assert [names[place] for place in order] == ["z-owned", "b-cheap", "a-dear"]
    busy = dict(zip(names, result.monthly.busy_node_h.sum(axis=0), strict=True))
    assert busy["z-owned"] > 0
    assert busy["a-dear"] == busy["b-cheap"] == 0


def test_spot_machines_are_there_for_their_share_of_the_time(run: Run) -> None:
    """Availability is up / (up + down), 1 / (1 + rate · mean length): an alternating renewal process."""
    result = run(
        "{kind: spot, usd_per_accelerator_h: 1.5, interruptions_per_year: 200, interruption_h: 6, "
        "together_fraction: 0, warm_nodes: all, startup_h: 0, available_fraction: 1}",
        "clusters.h200.nodes=60", "horizon_months=3", "reliability.failure_multiplier=0", "site.outages_per_year=0",
    )  # fmt: skip
    down = result.monthly.failed_node_h.sum() / result.monthly.present_node_h.sum()
    rate = 200 / 8766 * 6
    count = result.monthly.present_node_h.sum() / 6 * rate
    # A month of exponential times has a standard error of √2 of its mean over the root of their number.
    assert abs(down - rate / (1 + rate)) < 4 * np.sqrt(2 / count) * rate
    events = result.events().query("event == 'failure'")
    assert set(events.cause) == {"spot interruption"}


def test_the_catalogues_rent_stands_in_the_assumptions_with_source_and_date(
    write: WriteScenario,
) -> None:
    scenario = load_scenario(write(), ["clusters.h200.contract={kind: reserved}"])
    listed = assumptions(scenario).columns
    row = list(listed["path"]).index("catalog.priors.rent_3yr_h200")
    assert listed["value"][row] == "2.61 / 2.9 / 3.19"
    assert "July 2026" in listed["source"][row]
    assert listed["date"][row] == "2026-07-31"
    result = simulate(scenario, seed=1)
    table = result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
    assert table[0, list(Account).index(Account.RENT)] == 32 * 2160 * 290


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["clusters.h200.contract={kind: hire}"], ["clusters.h200.contract", "reserved"]),
        (
            ["clusters.h200.contract={kind: reserved, term_months: 24}"],
            ["prior rent_24m_h200", "state usd_per_accel"],
        ),
        (["clusters.h200.contract={kind: operating-lease}"], ["usd_per_accelerator_h"]),
        (
            ["clusters.h200.contract={kind: spot, warm_nodes: most}"],
            ["clusters.h200.contract", "warm_nodes"],
        ),
        (
            ["clusters.mi325x.accelerator=MI300X", "clusters.mi325x.contract={kind: on-demand}"],
            ["prior rental_available_mi300x", "state available_fraction"],
        ),
        (
            ["clusters.h200.contract={kind: reserved}", "clusters.h200.owned={bought: 2024-01-01}"],
            ["neither ordered nor owned"],
        ),
        (
            [
                "clusters.h200.contract={kind: reserved}",
                "expansion.rules=[{when: utilisation_below, threshold_fraction: 0.1, cluster: h200, nodes: 1}]",
            ],
            [
                "a review cannot change the number of machines under a term contract",
                "on-demand or spot",
            ],
        ),
        (
            [
                "expansion.rules=[{when: shed_above, threshold_fraction: 0.1, cluster: h200, watch: mi325x, nodes: 1}]"
            ],
            ["expansion.rules[0].watch", "shed_above is measured for the fleet"],
        ),
        (
            [
                "expansion.rules="
                "[{when: utilisation_above, threshold_fraction: 0.1, cluster: h200, watch: mi32, nodes: 1}]"
            ],
            ["expansion.rules[0].watch", "no cluster is called 'mi32'", "mi325x"],
        ),
    ],
)
def test_a_contract_that_cannot_be_is_refused(
    write: WriteScenario, planner: Callable[..., object], overrides: list[str], parts: list[str]
) -> None:
    outcome = planner("run", write(), *(word for change in overrides for word in ("--set", change)))
    outcome.refused(*parts)  # type: ignore[attr-defined]


def test_a_part_with_a_resale_curve_of_its_own_is_sold_by_it(write: WriteScenario) -> None:
    prior = "low: 0.7, base: 0.8, high: 0.9, unit: fraction_of_new, source: three sales, grade: B, date: 2026-10-01"
    ours = write(f"priors:\n  resale_12m_h200: {{{prior}}}\n", "ours.yaml")
    catalog = f"catalog={{overlay: {ours}}}"
    usual, own = (
        load_scenario(write(), [*changes, "horizon_months=12"]) for changes in ((), (catalog,))
    )
    values = []
    for scenario in (usual, own):
        result = simulate(scenario, seed=1)
        value = result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
        values.append(value[:2, list(Account).index(Account.RESIDUAL_VALUE)])
    assert values[1][0] == pytest.approx(
        values[0][0] * 0.8 / 0.625
    )  # the catalogue's at twelve months
    assert values[1][1] == values[0][1]
    listed = [
        path
        for path in assumptions(own).columns["path"]
        if "resale_" in str(path) and "priors" in str(path)
    ]
    assert listed[:1] == ["catalog.priors.resale_12m_amd"]
    assert listed[-1] == "catalog.priors.resale_12m_h200"
    assert "catalog.priors.resale_12m_nvidia" not in listed
