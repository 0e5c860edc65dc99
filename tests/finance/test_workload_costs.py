"""What workloads cost in present value: closed forms, runs at +1% demand, and laws on random plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from planner.finance.accounting.measures import measures, reconciliation, running_factors
from planner.finance.accounting.unit_economics import unit_economics
from planner.finance.accounting.workload_costs import WorkloadCosts, workload_costs
from planner.finance.accounts import Account
from planner.run.simulate import RunResult, simulate, simulate_plan
from planner.scenario.loading import load_scenario

PLAN = """\
name: costs
start: 2026-01-01
horizon_months: 2
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: {chat}
    lengths: {{input: {{mean: 900}}, output: {{mean: 120}}}}
    prefix_cache_hit_fraction: 0.4
  notes:
    model: llama-3.1-8b
    requests_per_s: {notes}
    lengths: {{input: {{mean: 500}}, output: {{mean: 100}}}}
    priority: {priority}
clusters:
  owned: {{accelerator: {accelerator}, nodes: {nodes}}}
{second}site: {{electricity_usd_per_kwh: {kwh}, electricity: {{demand_charge_usd_per_kw_month: {demand_charge}}}}}
finance: {{depreciation_months: {months}, allocation: {allocation}}}
"""
STATED: Mapping[str, Any] = {
    "chat": 200.0,
    "notes": 150.0,
    "priority": "standard",
    "accelerator": "H200",
    "nodes": 4,
    "second": "",
    "kwh": 0.08,
    "demand_charge": 0,
    "months": 60,
    "allocation": "peak-responsibility",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("costs")


def _run(folder: Path, *overrides: str, seed: int = 0, **changed: Any) -> RunResult:
    path = folder / "plan.yaml"
    path.write_text(PLAN.format(**{**STATED, **changed}))
    return simulate(load_scenario(path, overrides), seed)


def _net_present_cents(result: RunResult) -> int:
    return reconciliation(result)["net present cost"]


FEATURES = {
    "sold": ("workloads.*.token_price=api",),
    "taxed": ("finance.tax={rate_fraction: 0.25}",),
    "late": ("clusters.owned.online=2026-02-01",),
    "api": ("clusters.hosted={contract: {kind: api, serves: all}}",),
    "by use": ("finance.allocation=by-use",),
    "burst": ("finance.burst_rental={usd_per_accelerator_h: 4, available_fraction: 1}",),
    "nobody": ("workloads.*.requests_per_s=0",),
    "rented": (
        "clusters.rented={accelerator: B200, nodes: 2, contract: {kind: on-demand, usd_per_accelerator_h: 5}}",
    ),
}


@pytest.mark.parametrize("feature", ["", *sorted(FEATURES)])
def test_absorbed_costs_and_what_none_bears_are_net_present_cost_to_the_cent(
    folder: Path, feature: str
) -> None:
    result = _run(folder, *FEATURES.get(feature, ()))
    costs = workload_costs(result)
    whole = int(costs.absorbed_cents.sum()) + costs.income_and_tax_cents
    assert whole == _net_present_cents(result)
    if feature not in ("sold", "taxed"):
        assert costs.income_and_tax_cents == 0
    table = result.workload_costs()
    assert round(100 * table.absorbed_usd.sum()) == _net_present_cents(result)
    parts = table.marginal_usd + table.own_capacity_usd + table.idle_capacity_usd
    assert parts[:2].tolist() == pytest.approx(table.absorbed_usd[:2].tolist(), abs=1e-6)


def test_rates_recover_what_is_absorbed(folder: Path) -> None:
    """Tokens of each kind at their rates are absorbed cost; the fleet's levelised cost is the mean of workloads'."""
    result = _run(folder)
    costs = workload_costs(result)
    # Notes caches nothing, so it has no rate for it.
    earned = (np.nan_to_num(costs.rates()) * costs.tokens / 1e6).sum(axis=1)
    assert earned == pytest.approx(costs.absorbed_cents / 100)
    per_million = costs.per_million(costs.absorbed_cents)
    weights = costs.tokens.sum(axis=1)
    levelised = measures(result)["levelised_cost_per_million_tokens_usd"]
    assert per_million @ weights / weights.sum() == pytest.approx(levelised)


def test_capacity_is_shared_as_in_the_closed_form(folder: Path) -> None:
    """One cluster, recomputed from hours: need over what is on site in the peaks, and the rest by need."""
    result = _run(folder)
    costs = workload_costs(result)
    plan = result.plan
    demand = np.concatenate([w.demand_requests for w in result.run.windows], axis=1)
    served = np.concatenate([w.served_requests for w in result.run.windows], axis=2)[0]
    present = np.concatenate([h.present for h in result.run.node_hours], axis=1)[0]
    per_request = 1.0 / plan.requests_per_node_h[0, :, 0]
    needed = np.zeros(2)
    on_site = 0.0
    rate = plan.money.capital.discount_rate_per_year
    for month in range(2):
        hours = slice(*plan.month_edges_h[month : month + 2])
        work = per_request @ demand[:, hours]
        # The hour of rank 99% from below, and all that need as much.
        threshold = np.sort(work)[int(0.99 * (work.size - 1))]
        peaks = np.flatnonzero(work >= threshold)
        middle = (
            0.5
            * (
                plan.months.edge_coordinates[month : month + 2] - plan.months.edge_coordinates[0]
            ).sum()
        )
        factor = (1 + rate) ** (-middle / 12)
        needed += factor * per_request * served[:, hours][:, peaks].sum(axis=1)
        on_site += factor * present[hours][peaks].sum()
    capacity = _net_present_cents(result) - costs.marginal_cents.sum()
    assert costs.own_capacity_cents == pytest.approx(capacity * needed / on_site, rel=1e-6)
    idle = capacity * (1 - needed.sum() / on_site)
    assert costs.idle_capacity_cents == pytest.approx(idle * needed / needed.sum(), rel=1e-6)


def test_batch_outside_the_peaks_bears_no_peak_capacity(folder: Path) -> None:
    """Notes arrives by night and may wait for a day, chat peaks by day: notes takes no hour that sizes the fleet."""
    shape = "peak_to_mean: 3.5, trough_to_mean: 0, weekend_fraction: 1"
    night = f"workloads.notes.load_profile={{{shape}, timezone: Pacific/Auckland}}"
    day = f"workloads.chat.load_profile={{{shape}}}"
    batch = _run(folder, night, day, priority="deferrable", notes=20.0)
    costs = workload_costs(batch)
    bearing = costs.absorbed_cents - costs.marginal_cents
    assert bearing[1] < 0.005 * bearing[0]
    # By day it is there when capacity is short, and bears its part.
    awake = workload_costs(
        _run(folder, day.replace("chat", "notes"), day, priority="deferrable", notes=20.0)
    )
    assert awake.own_capacity_cents[1] > 20 * costs.own_capacity_cents[1]


def _is_served_here(result: RunResult) -> bool:
    return bool(result.monthly.shed_requests.sum() == 0)


plan_parts = st.fixed_dictionaries(
    {
        "chat": st.floats(30.0, 250.0),
        "notes": st.floats(10.0, 150.0),
        "accelerator": st.sampled_from(["H200", "MI325X", "B200"]),
        "nodes": st.integers(3, 12),
        "kwh": st.floats(0.04, 0.3),
        "demand_charge": st.sampled_from([0, 12]),
        "priority": st.sampled_from(["standard", "deferrable"]),
        "allocation": st.sampled_from(["peak-responsibility", "by-use"]),
    }
)


def _second(nodes: int) -> str:
    return f"  second: {{accelerator: MI325X, nodes: {nodes}}}\n" if nodes else ""


def _by_node(plan: dict[str, Any]) -> dict[str, Any]:
    return {
        **plan,
        "chat": plan["chat"] * plan["nodes"],
        "notes": plan["notes"] * plan["nodes"],
    }


plans = plan_parts.map(_by_node)
"""Plans at a few percent of load and more: traffic is drawn per node."""
seeds = st.integers(0, 1_000)
law = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@law
@given(plans, st.sampled_from([0, 0, 3]), seeds)
def test_a_fleet_twice_as_large_never_lowers_an_absorbed_cost(
    folder: Path, plan: dict[str, Any], others: int, seed: int
) -> None:
    single = _run(folder, seed=seed, **{**plan, "second": _second(others)})
    larger = {**plan, "nodes": 2 * plan["nodes"], "second": _second(2 * others)}
    double = _run(folder, seed=seed, **larger)
    assume(_is_served_here(single) and _is_served_here(double))
    one: WorkloadCosts = workload_costs(single)
    two: WorkloadCosts = workload_costs(double)
    assert (two.absorbed_cents >= one.absorbed_cents).all()


@law
@given(plans, st.sampled_from([0, 3]), st.integers(24, 120), seeds)
def test_costs_do_not_move_with_book_lives(
    folder: Path, plan: dict[str, Any], others: int, months: int, seed: int
) -> None:
    stated = {**plan, "second": _second(others)}
    first, second = (_run(folder, seed=seed, months=life, **stated) for life in (36, months))
    assert (months == 36) == (first.cost_cents().sum() == second.cost_cents().sum())
    for part in ("marginal_cents", "own_capacity_cents", "idle_capacity_cents"):
        one, two = (getattr(workload_costs(run), part).tolist() for run in (first, second))
        assert one == two, part


@law
@given(plans, st.sampled_from([0, 3]), seeds)
def test_batch_bears_capacity_only_as_it_runs_in_the_peaks(
    folder: Path, plan: dict[str, Any], others: int, seed: int
) -> None:
    """Night work beside urgent day work, in any plan: its share of capacity is at most its share of the peaks' work."""
    shape = "peak_to_mean: 3.5, trough_to_mean: 0, weekend_fraction: 1"
    night = f"workloads.notes.load_profile={{{shape}, timezone: Pacific/Auckland}}"
    day = f"workloads.chat.load_profile={{{shape}}}"
    stated = {
        **plan,
        "second": _second(others),
        "notes": 0.1 * plan["chat"],
        "chat": 0.5 * plan["chat"],
        "priority": "deferrable",
        "allocation": "peak-responsibility",
    }
    result = _run(folder, night, day, seed=seed, **stated)
    assume(_is_served_here(result))
    costs = workload_costs(result)
    bearing = costs.absorbed_cents - costs.marginal_cents
    assert bearing[1] < 0.01 * bearing[0]


def _more_on_the_same_replicas(result: RunResult, factor: float) -> RunResult:
    """Return a run at more demand, of which the reviews that place replicas know nothing."""
    plan = result.plan
    demand = replace(
        plan.demand,
        expected_requests_per_s=factor * plan.demand.expected_requests_per_s,
        noise_base_requests_per_s=factor * plan.demand.noise_base_requests_per_s,
    )
    return simulate_plan(result.scenario, replace(plan, demand=demand), result.seed)


spilling = st.fixed_dictionaries(
    {
        "chat": st.floats(300.0, 900.0),
        "notes": st.floats(100.0, 500.0),
        "accelerator": st.sampled_from(["H200", "B200"]),
        "nodes": st.just(1),
        "second": st.just(_second(4)),
        "demand_charge": st.sampled_from([0, 12]),
        "priority": st.sampled_from(["standard", "deferrable"]),
    }
)
"""One node of the cluster that is filled first, and others for what it has no room for."""


@law
@given(spilling, st.sampled_from(["llama-3.1-8b", "gpt-oss-20b"]), seeds)
@example(
    {**STATED, "chat": 700.0, "notes": 300.0, "nodes": 1, "second": _second(4)}, "gpt-oss-20b", 1
)
def test_marginal_cost_where_a_full_cluster_spills_to_the_next(
    folder: Path, plan: dict[str, Any], notes_model: str, seed: int
) -> None:
    """All workloads raised together by one percent, on replicas as placed: a hundred times what that costs."""
    base = _run(folder, f"workloads.notes.model={notes_model}", seed=seed, **plan)
    busy_fraction = base.monthly.busy_node_h.sum(axis=0) / base.monthly.present_node_h.sum(axis=0)
    assume(_is_served_here(base) and (busy_fraction > 0.01).all())
    more = _more_on_the_same_replicas(base, 1.01)
    factors = running_factors(base.plan)
    again = 100 * float(factors @ (more.cost_cents() - base.cost_cents()).sum(axis=1))
    assert workload_costs(base).marginal_cents.sum() == pytest.approx(again, rel=0.05)


@law
@given(plans, seeds)
def test_marginal_cost_is_what_one_percent_more_demand_costs(
    folder: Path, plan: dict[str, Any], seed: int
) -> None:
    """A hundred times the difference of two runs, energy, cooling and demand charge together.

    Power is read at the nearest of 8,193 loads: below 4% of load a hundredth of it is three points, and no measure.
    """
    base = _run(folder, seed=seed, **plan)
    more = _run(
        folder, seed=seed, **{**plan, "chat": 1.01 * plan["chat"], "notes": 1.01 * plan["notes"]}
    )
    assume(_is_served_here(base) and _is_served_here(more))
    assume(base.monthly.busy_node_h.sum() > 0.04 * base.monthly.present_node_h.sum())
    again = 100 * (more.cost_cents() - base.cost_cents()).sum(axis=1)
    assert unit_economics(base).running_cents.sum() == pytest.approx(again.sum(), rel=0.05)
    present = float(running_factors(base.plan) @ again)
    assert workload_costs(base).marginal_cents.sum() == pytest.approx(present, rel=0.05)


def test_idle_power_is_capacity(folder: Path) -> None:
    """A fleet at a few percent of load draws most of its power idle: the running part is the smaller one."""
    result = _run(folder, chat=2.0, notes=1.0, nodes=12)
    running = int(unit_economics(result).running_cents.sum())
    power = result.ledger_table().query("account in ('energy', 'cooling')").amount_usd.sum()
    assert 0 < running < 0.2 * 100 * power


def test_what_overflows_to_an_api_costs_its_price_at_the_margin(folder: Path) -> None:
    """A full node in every hour: of 900 tokens 360 are cached, and all that is more is bought at 2, 0.5 and 8 USD."""
    level = "load_profile={peak_to_mean: 1, weekend_fraction: 1}"
    price = (
        "{input_usd_per_million_tokens: 2, cached_input_usd_per_million_tokens: 0.5,"
        " output_usd_per_million_tokens: 8}"
    )
    result = _run(
        folder,
        f"workloads.*.{level}",
        "workloads.*.noise.sigma=0",
        f"clusters.hosted={{contract: {{kind: api, token_prices: {{llama-3.1-8b: {price}}}}}}}",
        nodes=1,
        chat=9000.0,
        notes=0.0,
    )
    api = result.ledger.account_cents(Account.API)
    assert api > 0
    costs = workload_costs(result)
    bought = (540 * 2 + 360 * 0.5 + 120 * 8) / 1_020
    assert costs.per_million(costs.marginal_cents)[0] == pytest.approx(bought, rel=0.01)
    # On average it costs less, since the node serves a part.
    assert unit_economics(result).running_cents.sum() < 0.95 * costs.marginal_cents.sum()


API = """\
name: bought
start: 2026-01-01
horizon_months: 2
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 20
    lengths: {input: {mean: 1000}, output: {mean: 200}}
    prefix_cache_hit_fraction: 0.5
clusters:
  hosted:
    contract:
      kind: api
      serves: all
      token_prices:
        llama-3.1-8b:
          input_usd_per_million_tokens: 1.0
          cached_input_usd_per_million_tokens: 0.1
          output_usd_per_million_tokens: 4.0
"""


def test_an_api_bill_is_split_by_its_prices(tmp_path: Path) -> None:
    """500 at 1, 500 at 0.1 and 200 at 4 USD per million: 500, 50 and 800 of 1,350 parts."""
    path = tmp_path / "api.yaml"
    path.write_text(API)
    result = simulate(load_scenario(path))
    table: Any = result.unit_economics().query("line == 'workload' and cluster == 'hosted'")
    parts = table[["input_cost_usd", "cached_input_cost_usd", "output_cost_usd"]].sum()
    bill = table.cost_usd.sum()
    assert bill > 0
    assert parts.tolist() == pytest.approx([bill * part / 1350 for part in (500, 50, 800)], abs=0.1)
    rates = workload_costs(result).rates()[0]
    # What else the site costs falls to the only workload, in the same proportion.
    assert rates / rates[0] == pytest.approx([1.0, 0.1, 4.0], rel=1e-4)
