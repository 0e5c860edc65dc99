"""One run through every reader: the same word is the same number."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner.engine import driver
from planner.engine.review import MonthFigures, Review
from planner.finance.accounting.measures import series_of, service
from planner.finance.accounts import NOT_COST_ACCOUNTS, Account, View
from planner.finance.bridge import CAUSES, Factors
from planner.run.replications import figures_of
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from planner.studies.compare import factors_of
from planner.studies.replicate import MONTHLY, headlines, monthly_series, objective_names
from planner.studies.sweep import parse_axes, sweep
from tests.conftest import TINY, Planner

SOLD = "workloads.*.token_price={input_usd_per_million_tokens: 0.2, output_usd_per_million_tokens: 1.0}"
BUSY = [
    "workloads.chat.requests_per_s=1500",
    "workloads.chat.admission=queue",
    "workloads.night={model: llama-3.1-8b, requests_per_s: 900, lengths: {input: {mean: 900}, output: {mean: 300}}, "
    "priority: deferrable, completion_window_h: 12}",
    "clusters.h200.nodes=2",
    "site.outages_per_year=60",
    "site.electricity.demand_charge_usd_per_kw_month=14",
    "reliability.failure_multiplier=30",
    "software.incident_multiplier=9",
    SOLD,
    "finance.burst_rental={usd_per_accelerator_h: 3, most_accelerators: 6, accelerators_per_instance: 2, gap_days: 1}",
    "finance.sla_credit_usd_per_million_tokens=1",
    "finance.tax={rate_fraction: 0.25}",
    "expansion.rules=[{when: slo_miss_above, threshold_fraction: 0.99, cluster: h200, nodes: 1}]",
]  # fmt: skip
"""Outages, rental, a queue, credits, tax: all that may tell two formulas apart. The rule never acts."""


class Seen:
    """One run, and what its review saw."""

    def __init__(self, path: Path) -> None:
        self.path, self.months = path, list[MonthFigures]()

        class Watching(Review):
            def close_month(review, figures: MonthFigures) -> None:  # noqa: N805 - self is the one outside
                self.months.append(figures)
                super().close_month(figures)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(driver, "Review", Watching)
            self.result: RunResult = simulate(load_scenario(path, BUSY))
        self.timeline = self.result.timeline_monthly(clusters=True)
        self.fleet = self.result.timeline_monthly()
        self.workloads = self.result.timeline_workloads()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    path = tmp_path_factory.mktemp("one") / "tiny.yaml"
    path.write_text(TINY)
    return Seen(path)


def from_tables(seen: Seen) -> dict[str, float]:
    """The headline figures as a reader with a spreadsheet works them out from the monthly tables."""
    days = seen.fleet["month"].map(lambda month: pd.Period(month, "M").days_in_month)
    in_service = seen.fleet["accelerators_in_service"] * days
    sums = seen.fleet[
        ["cost_usd", "served_tokens", "served_output_tokens", "shed_tokens", "demand_tokens"]
    ].sum()
    return {
        "utilisation_fraction": (seen.fleet["utilisation_fraction"] * in_service).sum()
        / in_service.sum(),
        "availability_fraction": in_service.sum()
        / (in_service / seen.fleet["availability_fraction"]).sum(),
        "cost_usd": sums["cost_usd"],
        "served_tokens": sums["served_tokens"],
        "cost_per_million_tokens_usd": sums["cost_usd"] / sums["served_tokens"] * 1e6,
        "cost_per_million_output_tokens_usd": sums["cost_usd"] / sums["served_output_tokens"] * 1e6,
        "levelised_cost_per_million_tokens_usd": seen.fleet[
            "levelised_cost_per_million_tokens_usd"
        ].iloc[-1],
        "shed_fraction": sums["shed_tokens"] / sums["demand_tokens"],
        "energy_kwh": seen.fleet["energy_kwh"].sum(),
    }


def test_the_run_is_one_in_which_formulas_could_differ(seen: Seen) -> None:
    monthly = seen.result.monthly
    assert seen.result.rented.requests.sum() > 0
    assert seen.result.shed_requests().sum() > 0
    assert monthly.late_requests.sum() > 0
    assert all(
        lost.sum() > 0 for lost in (monthly.dark_node_h, monthly.failed_node_h, monthly.drag_node_h)
    )
    assert seen.fleet["backlog_tokens"].max() > 0


def test_every_reader_finds_the_same_number_for_the_same_word(
    seen: Seen, planner: Planner, tmp_path: Path
) -> None:
    options = [part for setting in BUSY for part in ("--set", setting)]
    assert (
        planner(
            "run", seen.path, *options, "--replications", "1", "--out", tmp_path / "run", "-q"
        ).code
        == 0
    )
    told = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    with (tmp_path / "run" / "measures.csv").open(encoding="utf-8", newline="") as file:
        listed = {
            row["measure"]: float(row["value"]) for row in csv.DictReader(file) if row["value"]
        }
    point = sweep(load_scenario(seen.path, BUSY), parse_axes(["seed=1,2"]))[0].figures
    assert point is not None
    readers: dict[str, dict[str, float | None]] = {
        "tables": dict(from_tables(seen)),
        "summary.json": {
            name: value
            for name, value in (told["clusters"]["fleet"] | told["measures"]).items()
            if not isinstance(value, str)
        },
        "measures.csv": dict(listed),
        "sweep": point,
        "study": {
            name: None if np.isnan(figure) else figure
            for name, figure in zip(objective_names(), headlines(seen.result).tolist(), strict=True)
        },
        "measures": figures_of(seen.result),
    }
    for name in set().union(*readers.values()):
        found = {
            reader: figures[name]
            for reader, figures in readers.items()
            if figures.get(name) is not None
        }
        first = next(iter(found.values()), None)
        assert found == {reader: pytest.approx(first, rel=2e-6, abs=2e-6) for reader in found}, name
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    fleet = told["clusters"]["fleet"]
    assert f"{fleet['utilisation_fraction']:.1%}" in page
    assert f"{fleet['slo_attainment_fraction']:.2%}" in page


def test_the_review_sees_what_the_timeline_shows(seen: Seen) -> None:
    by_cluster = seen.timeline.pivot(
        index="month", columns="cluster", values="utilisation_fraction"
    )
    names = [cluster.name for cluster in seen.result.plan.clusters]
    reviewed = np.array([list(figures.utilisation.values()) for figures in seen.months])
    np.testing.assert_allclose(reviewed, np.nan_to_num(by_cluster[names].to_numpy()), rtol=1e-9)
    shed = seen.fleet["shed_tokens"] / seen.fleet["demand_tokens"]
    np.testing.assert_allclose([figures.shed_fraction for figures in seen.months], shed, rtol=1e-9)
    missed = 1 - seen.fleet["slo_attainment_fraction"]
    np.testing.assert_allclose(
        [figures.missed_fraction for figures in seen.months], missed, rtol=1e-9
    )
    assert 0.001 < shed.min() < missed.max() < 1


def test_a_study_s_months_are_the_timeline_s(seen: Seen) -> None:
    names = [output.name for output in MONTHLY]
    kept = [(name, "fleet") for name in names] + [("cost_usd", "h200"), ("served_tokens", "h200")]
    rows = dict(zip(kept, monthly_series(seen.result, kept), strict=True))
    for name in (
        "utilisation_fraction",
        "cost_per_million_tokens_usd",
        "cost_usd",
        "served_tokens",
    ):
        np.testing.assert_allclose(rows[name, "fleet"], seen.fleet[name], rtol=1e-12)
    for name in ("cost_usd", "served_tokens"):
        own = seen.timeline[seen.timeline["cluster"] == "h200"][name]
        np.testing.assert_allclose(rows[name, "h200"], own, rtol=1e-12)


def test_requests_in_time_are_those_of_the_workloads(seen: Seen) -> None:
    """Late and shed over served and shed, in requests, from the run's own hours."""
    windows = seen.result.run.windows
    rented = seen.result.rented.requests.sum()
    late, refused, served = (
        sum(getattr(window, f"{name}_requests").sum() for window in windows)
        for name in ("late", "shed", "served")
    )
    assert service(seen.result)["slo_attainment_fraction"] == pytest.approx(
        1 - (late + refused - rented) / (served + refused)
    )


def test_break_even_use_is_of_accelerators(tmp_path: Path) -> None:
    """Selling in proportion to use, revenue covers cost at it; a node of four accelerators weighs half one of eight."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    less = [
        SOLD,
        "clusters.h200.nodes=1",
        "clusters.mi325x.accelerator=GB200",
        "reliability.failure_multiplier=0",
    ]
    result = simulate(load_scenario(path, less))
    figures = figures_of(result)
    ledger = result.ledger
    used = result.monthly.busy_node_h.sum(axis=0)
    busy = result.monthly.in_service_node_h.sum(axis=0)
    assert result.plan.accelerators_per_node.tolist() == [8, 4]
    assert figures["utilisation_fraction"] == pytest.approx((used @ [8, 4]) / (busy @ [8, 4]))
    assert figures["utilisation_fraction"] != pytest.approx(used.sum() / busy.sum(), rel=1e-3)
    energy = (ledger.account_cents(Account.ENERGY) + ledger.account_cents(Account.COOLING)) / 100
    scale = (figures["break_even_utilisation_fraction"] or 0.0) / (
        figures["utilisation_fraction"] or 0.0
    )
    earned = figures["revenue_usd"] or 0.0
    cost = figures["cost_usd"] or 0.0
    assert earned * scale == pytest.approx(cost - energy + energy * scale)


FACTOR_NAMES = [field.name for field in dataclasses.fields(Factors)]


def test_the_bridge_has_every_accrued_dollar(seen: Seen) -> None:
    factors = factors_of(seen.result)
    assert factors is not None
    spent = sum(getattr(factors, name) for name in FACTOR_NAMES if name.endswith("_usd"))
    on_site = series_of(seen.result).sums.on_site_h[:, -1].sum()
    accrued = (
        seen.result.ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS).sum() / 100
    )
    assert spent * on_site == pytest.approx(accrued, abs=0.005)
    assert factors.utilised_fraction == service(seen.result)["utilisation_fraction"]
    assert factors.available_fraction == service(seen.result)["availability_fraction"]


@pytest.mark.parametrize("account", Account)
def test_an_account_names_its_cause_where_it_is_accrued_cost(account: Account) -> None:
    is_cost = View.ACCRUAL in account.views and account not in NOT_COST_ACCOUNTS
    assert (f"{account.cause}_usd" in CAUSES.get(account.cause, ())) == is_cost
    assert bool(account.cause) == is_cost


def test_credits_are_due_for_what_misses_beyond_one_in_a_hundred_settled(seen: Seen) -> None:
    monthly = seen.result.monthly
    rented = seen.result.rented.requests
    settled = monthly.served_requests.sum(axis=1) + monthly.shed_requests
    beyond = np.maximum(
        monthly.late_requests + monthly.shed_requests - rented - 0.01 * settled, 0.0
    )
    owed = (beyond * [600.0, 1200.0]).sum() / 1e6  # one dollar for a million tokens
    assert seen.result.ledger.account_cents(Account.SLA_CREDITS) / 100 == pytest.approx(
        owed, abs=0.02
    )
