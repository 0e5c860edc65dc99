"""Unit economics held against sums over the hours in pandas, the ledger's cents, and runs at other resale values."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.finance.accounting.measures import measures
from planner.finance.accounting.unit_economics import IDLE_CAPACITY, loaded_cents, peak_hours
from planner.finance.accounts import Account
from planner.plan.build import build_plan
from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from planner.studies.compare import compare

PLAN = """\
name: sold
start: 2026-01-01
horizon_months: 4
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 260
    lengths: {input: {mean: 900}, output: {mean: 120}}
    prefix_cache_hit_fraction: 0.4
    token_price: {input_usd_per_million_tokens: 3, output_usd_per_million_tokens: 9, change_per_year: -0.9}
  batch:
    model: llama-3.1-8b
    requests_per_s: 120
    lengths: {input: {mean: 700}, output: {mean: 90}}
    priority: deferrable
    token_price: api
clusters:
  h200: {accelerator: H200, nodes: 4, retire: 2026-03-16}
  mi325x: {accelerator: MI325X, nodes: 5, online: 2026-02-10}
"""
POLICIES = ("peak-responsibility", "by-use")
CENTS = ("revenue_usd", "running_cost_usd", "cost_usd", "margin_usd")
USE = ("sla_credits", "burst_rental")
ONCE = ("disposal_loss", "exit_fees")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unit") / "sold.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def results(written: Path) -> dict[str, RunResult]:
    return {
        name: simulate(load_scenario(written, [f"finance.allocation={name}"])) for name in POLICIES
    }


def hours_of(result: RunResult) -> Any:
    """By hour, cluster and workload: requests served, accelerators on site, at work, and at work for it.

    A request that a slower layout serves takes the time of more than one.
    """
    plan = result.plan
    rows = []
    for window, machines in zip(result.run.windows, result.run.node_hours, strict=True):
        shape = window.served_requests.shape
        worth = window.served_requests.copy()
        for pair, slower in window.slower_requests.items():
            worth[pair] += slower
        index = pd.MultiIndex.from_product(
            [[c.name for c in plan.clusters], [w.name for w in plan.workloads],
             range(window.first_hour, window.first_hour + shape[2])], names=["cluster", "workload", "hour"],
        )  # fmt: skip
        columns = {"served": window.served_requests.ravel(), "worth": worth.ravel()}
        frame = pd.DataFrame(columns, index)
        for name, nodes in (("busy", window.busy_nodes), ("present", machines.present)):
            frame[name] = np.repeat(nodes[:, None], shape[1], axis=1).ravel() * 8
        rows.append(frame)
    hours: Any = pd.concat(rows).reset_index()
    hours["month"] = (pd.Timestamp(plan.start) + pd.to_timedelta(hours.hour, "h")).dt.strftime(
        "%Y-%m-01"
    )
    rates = {(c.name, w.name): plan.requests_per_node_h[i, j, 0] for i, c in enumerate(plan.clusters)
             for j, w in enumerate(plan.workloads)}  # fmt: skip
    hours["time"] = hours.worth / [
        rates[pair] for pair in zip(hours.cluster, hours.workload, strict=True)
    ]
    return hours


def costs_of(result: RunResult) -> Any:
    """Running, capacity and one-off cost by month and cluster, from the ledger's rows."""
    ledger: Any = result.ledger_table()
    accrued = {account.value for account in Account if account.cause}
    kind = ledger.account.map(
        lambda name: "use" if name in USE else "once" if name in ONCE else "capacity"
    )
    ledger = ledger[ledger.account.isin(accrued)]
    cost = ledger.pivot_table("amount_usd", ["month", "cluster"], kind, "sum", fill_value=0.0)
    # Of power, what is not idle: tests/finance/test_workload_costs.py holds it to runs at more demand.
    cost["use"] = cost.get("use", 0.0)
    clusters = [*(cluster.name for cluster in result.plan.clusters), "site"]
    months = cost.index.get_level_values("month").unique()
    loaded = pd.DataFrame(loaded_cents(result) / 100, months, clusters).stack()
    loaded = loaded.reindex(cost.index, fill_value=0.0)
    cost["use"] += loaded
    cost["capacity"] -= loaded
    return cost


def test_capacity_is_paid_by_who_is_at_work_in_the_peak_hours(
    results: dict[str, RunResult],
) -> None:
    """Recomputed in pandas: the highest 1% of a month's hours by the accelerators that chat keeps busy."""
    result = results["peak-responsibility"]
    hours = hours_of(result)
    cost = costs_of(result)
    time = hours.groupby("hour").time.sum()
    assert measures(result)["cost_usd"] == pytest.approx(cost.to_numpy().sum())
    chat = hours[hours.workload == "chat"].groupby("hour").time.sum() / time
    busy = hours[hours.workload == "chat"].groupby("hour").busy.sum()  # of all clusters, once
    needed = (busy * chat).fillna(0.0)
    assert (result.monthly.shed_requests[:, 0] < 1e-6).all()
    month = hours.drop_duplicates("hour").set_index("hour").month
    rank = needed.groupby(month).rank(ascending=False, method="first")
    wanted = (
        rank <= np.ceil(month.map(month.value_counts()) * 0.01) + 1
    )  # quantiles take the lower neighbour
    assert peak_hours(result)[wanted[wanted].index].mean() > 0.95
    peak = hours[hours.hour.isin(np.flatnonzero(peak_hours(result)))]
    assert 0.008 < peak_hours(result).mean() < 0.02
    table: Any = result.unit_economics().set_index(["month", "cluster", "line", "workload"])
    for (when, cluster), part in peak.groupby(["month", "cluster"]):
        present = part.drop_duplicates("hour").present.sum()
        at_work = part.drop_duplicates("hour").busy.sum()
        share: Any = (
            part.groupby("workload").time.sum() / part.time.sum() * at_work / present
            if at_work
            else 0.0
        )
        everyone = (
            hours[(hours.month == when) & (hours.cluster == cluster)].groupby("workload").time.sum()
        )
        if (when, cluster) not in cost.index:
            continue
        paid = cost.loc[when, cluster]
        for name in ("chat", "batch"):
            use = everyone[name] / everyone.sum() if everyone.sum() else 0.0
            expected = paid.use * use + (paid.capacity * share[name] if at_work else 0.0)
            row = table["cost_usd"].get((when, cluster, "workload", name), 0.0)
            assert row == pytest.approx(expected, abs=0.03), (when, cluster, name)
            assert table["running_cost_usd"].get(
                (when, cluster, "workload", name), 0.0
            ) == pytest.approx(paid.use * use, abs=0.02)
    once = table.xs("one-off", level="line").cost_usd
    assert once.sum() == pytest.approx(cost.once.sum()) != 0


def test_by_use_all_cost_goes_with_machine_time(results: dict[str, RunResult]) -> None:
    result = results["by-use"]
    time = hours_of(result).groupby(["month", "cluster", "workload"]).time.sum()
    cost = costs_of(result)
    economics = result.unit_economics()
    table: Any = economics.set_index(["month", "cluster", "line", "workload"]).cost_usd
    for (month, cluster, load), machine_h in time[time > 0].items():
        paid = cost.loc[month, cluster]
        expected = (paid.use + paid.capacity) * machine_h / time[month, cluster].sum()
        assert table[month, cluster, "workload", load] == pytest.approx(expected, abs=0.03)
    idle = economics[economics.line == IDLE_CAPACITY]
    assert (idle.cost_usd == 0).all()
    assert idle.accelerator_h.sum() > 0


def test_tokens_and_revenue_are_the_requests_at_each_workloads_own_price(
    results: dict[str, RunResult],
) -> None:
    """A price that falls by 90% a year is the mean over each month, here of 4,000 moments of it."""
    result = results["by-use"]
    served = hours_of(result).groupby(["month", "cluster", "workload"]).served.sum()
    table: Any = (
        result.unit_economics()
        .query("line == 'workload'")
        .set_index(["month", "cluster", "workload"])
    )
    for (when, _, load), row in table.iterrows():
        requests = served[when, row.name[1], load]
        start = int(str(when)[5:7]) - 1
        prompt, output = {"chat": (900, 120), "batch": (700, 90)}[load]
        kinds = (
            np.array(
                [prompt * 0.6, prompt * 0.4, output] if load == "chat" else [prompt, 0, output]
            )
            * requests
        )
        names = ["input_tokens", "cached_input_tokens", "output_tokens"]
        assert row[names].tolist() == pytest.approx(kinds)
        fall = (
            np.mean([0.1 ** ((start + (k + 0.5) / 4000) / 12) for k in range(4000)])
            if load == "chat"
            else 1.0
        )
        # The list of the small model, of which batch is half; cached tokens at a fifth of input.
        price = np.array([3, 0.6, 9]) if load == "chat" else np.array([0.01, 0.002, 0.02])
        assert row.revenue_usd == pytest.approx(float(kinds @ price) * fall / 1e6, abs=0.02)
        assert row.margin_usd == pytest.approx(row.revenue_usd - row.cost_usd, abs=1e-6)
    assert table.revenue_usd.sum() == pytest.approx(measures(result)["revenue_usd"])


def test_accelerator_hours_of_a_cluster_are_those_on_site(results: dict[str, RunResult]) -> None:
    for result in results.values():
        hours = (
            hours_of(result)
            .drop_duplicates(["cluster", "hour"])
            .groupby(["month", "cluster"])[["busy", "present"]]
        )
        table = result.unit_economics()
        on_site = table.groupby(["month", "cluster"]).accelerator_h.sum()
        at_work = table[table.line == "workload"].groupby(["month", "cluster"]).accelerator_h.sum()
        for (when, cluster), row in hours.sum().query("present > 0").iterrows():
            assert on_site[when, cluster] == pytest.approx(row.present)
            assert at_work.get((when, cluster), 0.0) == pytest.approx(row.busy, abs=1e-6)


def test_prompts_and_replies_bear_prefill_and_decode_time(
    written: Path, results: dict[str, RunResult]
) -> None:
    """The parts are those of a loaded replica's time: prefill, of it attention to the cache, and decode."""
    scenario = load_scenario(written)
    services, _ = build_services(scenario, Reuse(scenario), {})
    table: Any = (
        results["by-use"].unit_economics().query("line == 'workload' and cluster != 'site'")
    )
    parts = ["input_cost_usd", "cached_input_cost_usd", "output_cost_usd"]
    for (cluster, load), service in services.items():
        rows = table[(table.cluster == cluster) & (table.workload == load)]
        total = rows[parts].sum()
        fresh, cached, decode = service.token_time
        assert (
            fresh + cached == pytest.approx(service.prefill_fraction) == pytest.approx(1 - decode)
        )
        assert total.tolist() == pytest.approx(
            np.array(service.token_time) * rows.cost_usd.sum(), abs=0.05
        )
        assert (cached > 0) == (load == "chat")
        assert rows[parts].sum(axis=1).tolist() == pytest.approx(rows.cost_usd.tolist(), abs=1e-6)
    table = table[table.output_tokens > 0]
    again = table.output_cost_usd / table.output_tokens * 1e6
    assert table.output_cost_per_million_tokens_usd.tolist() == pytest.approx(again.tolist())
    plan = build_plan(scenario)
    assert plan.token_time is not None
    assert plan.token_time.sum(axis=2) == pytest.approx(np.ones((2, 2)))


def test_attention_to_the_cache_grows_with_the_cached_share(written: Path) -> None:
    """Of prefill, n·(a + L·b) for n of L tokens computed, the cached h·L take h·L·b / (a + L·b)."""
    shares = []
    for hit in (0.3, 0.6):
        scenario = load_scenario(written, [f"workloads.chat.prefix_cache_hit_fraction={hit}"])
        fresh, cached, _ = build_services(scenario, Reuse(scenario), {})[0][
            "mi325x", "chat"
        ].token_time
        shares.append(cached / (fresh + cached))
    assert shares[1] == pytest.approx(2 * shares[0])
    assert 0 < shares[0] < 0.3


FEATURES: dict[str, tuple[str, ...]] = {
    "credits": ("finance.sla_credit_usd_per_million_tokens=2", "workloads.chat.requests_per_s=2500"),
    "burst": ("finance.burst_rental={usd_per_accelerator_h: 4, available_fraction: 1}",
              "workloads.chat.requests_per_s=2500"),
    "tax": ("finance.tax={rate_fraction: 0.3}",),
    "nobody": ("workloads.*.requests_per_s=0",),
    "by the hour": ("clusters.mi325x.contract={kind: on-demand, usd_per_accelerator_h: 3}",),
    "unsold": ("workloads.chat.token_price=null",),
    "batch alone": ("workloads.chat.priority=deferrable",),
}  # fmt: skip


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sets(st.sampled_from(sorted(FEATURES)), max_size=3),
    st.integers(0, 99),
    st.sampled_from(POLICIES),
)
def test_every_line_sums_to_the_ledger_in_whole_cents(
    written: Path, chosen: set[str], seed: int, policy: str
) -> None:
    changes = itertools.chain.from_iterable(FEATURES[name] for name in sorted(chosen))
    result = simulate(
        load_scenario(written, [*changes, f"finance.allocation={policy}", "horizon_months=3"]), seed
    )
    summed: Any = None
    for span in ("year", "quarter", "month"):
        table = result.unit_economics(span)
        cents = (table[list(CENTS)] * 100).round().astype(int)
        assert summed is None or cents.sum().equals(summed)
        summed = cents.sum()
    keys = [table.month, table.cluster]
    assert table.cost_usd.tolist() == pytest.approx((cents.cost_usd / 100).tolist())
    by_cluster = cents.groupby(keys)[["cost_usd", "revenue_usd"]].sum()
    ledger = result.cost_cents()
    clusters = [*(cluster.name for cluster in result.plan.clusters), "site"]
    for m, month in enumerate(result.plan.months.labels):
        for c, cluster in enumerate(clusters):
            assert by_cluster.cost_usd.get((f"{month}-01", cluster), 0) == ledger[m, c]
    assert summed.revenue_usd == -result.ledger.account_cents(Account.REVENUE)
    assert summed.cost_usd - summed.revenue_usd == -summed.margin_usd
    assert (table[table.line == "workload"].running_cost_usd >= 0).all()


def test_credits_are_the_cost_of_who_missed(written: Path) -> None:
    overload = ("workloads.chat.requests_per_s=4000", "finance.sla_credit_usd_per_million_tokens=2")
    result = simulate(load_scenario(written, overload))
    assert result.ledger.account_cents(Account.SLA_CREDITS) > 0
    site = result.unit_economics().query("cluster == 'site'")
    chat = site[site.workload == "chat"].cost_usd.sum()
    assert chat * 100 == pytest.approx(result.ledger.account_cents(Account.SLA_CREDITS), rel=0.2)


@pytest.mark.parametrize("file", ["mixed-fleet.yaml", "buy-mi325x-now.yaml"])
def test_batch_costs_no_more_than_chat_on_one_model(root: Path, file: str) -> None:
    """Overnight work fills hours that size no fleet; by use it pays for the machines that idle around it."""
    cost = {}
    for policy in POLICIES:
        result = simulate(
            load_scenario(root / "scenarios" / file, [f"finance.allocation={policy}"])
        )
        loads = result.timeline_workloads().groupby("workload")[["cost_usd", "served_tokens"]].sum()
        cost[policy] = loads.cost_usd / loads.served_tokens
    assert cost["peak-responsibility"]["overnight-batch"] <= cost["peak-responsibility"]["chat"]
    if file == "mixed-fleet.yaml":
        assert cost["by-use"]["overnight-batch"] > cost["by-use"]["chat"]


RESOLD = (
    "clusters.h200.owned={bought: 2025-01-01}",
    "clusters.h200.retire=2026-03-16",
    "clusters.mi325x.online=2026-02-10",
)


@pytest.mark.parametrize("tax", [(), ("finance.tax={rate_fraction: 0.3, bonus_fraction: 0.4}",),
                                 ("finance.tax={rate_fraction: 0.3, losses: carry-forward}",)])  # fmt: skip
def test_cost_without_resale_is_that_of_a_run_in_which_nothing_is_fetched(
    written: Path, tax: tuple[str, ...]
) -> None:
    result = simulate(load_scenario(written, [*RESOLD, *tax]))
    nothing = measures(
        simulate(load_scenario(written, [*RESOLD, *tax, "finance.resale_multiplier=0"]))
    )
    name = "levelised_cost_without_resale_per_million_tokens_usd"
    figures = measures(result)
    assert figures[name] == pytest.approx(
        nothing["levelised_cost_per_million_tokens_usd"], rel=1e-9
    )
    assert nothing[name] == pytest.approx(
        nothing["levelised_cost_per_million_tokens_usd"], rel=1e-12
    )
    assert nothing["resale_pv_usd"] == 0
    ledger = result.ledger_table()
    sold = ledger[ledger.account == "resale"].amount_usd.sum()
    last = ledger[ledger.account == "residual_value"].amount_usd.sum()
    day = 2 + 15 / 31  # 16 March
    assert figures["resale_pv_usd"] == pytest.approx(
        -sold * 1.1 ** (-day / 12) - last * 1.1 ** (-4 / 12)
    )
    assert -sold > 0 < -last


def test_at_the_flip_two_plans_cost_the_same_per_token(written: Path) -> None:
    """One plan buys, the other leases what goes back: dearer unless used machines fetch little."""
    bought = ["clusters.h200.retire=null", "clusters.mi325x=null", "finance.end_value=market"]
    lease = "clusters.h200.contract={kind: finance-lease, rate_per_year: 0.1, term_months: 4, at_end: return}"

    def plans(multiplier: float) -> list[Any]:
        common = [
            *bought,
            f"finance.resale_multiplier={multiplier!r}",
            "clusters.h200.accelerator_price_usd=9000",
        ]
        owned = load_scenario(written, [*common, "name=owned"])
        return [owned, load_scenario(written, [*common, lease, "name=leased"])]

    found = compare(plans(1.0), replications=1)
    flip = found.figures[1]["resale_flip_ratio"]
    assert found.figures[0]["resale_flip_ratio"] is None
    assert flip is not None
    again = [
        measures(simulate(one))["levelised_cost_per_million_tokens_usd"] for one in plans(flip)
    ]
    assert again[0] == pytest.approx(again[1], rel=1e-6)


def test_cost_per_megawatt_is_of_the_nameplate_on_site(results: dict[str, RunResult]) -> None:
    result = results["by-use"]
    node_h = (
        hours_of(result).drop_duplicates(["cluster", "hour"]).groupby("cluster").present.sum() / 8
    )
    kw = {cluster.name: cluster.nameplate_kw for cluster in result.plan.clusters}
    mw_years = sum(node_h[name] * kw[name] for name in kw) / 1000 / 8766
    figures = measures(result)
    assert figures["cost_per_mw_year_usd"] == pytest.approx((figures["cost_usd"] or 0.0) / mw_years)
