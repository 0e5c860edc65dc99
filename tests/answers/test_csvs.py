"""The files of a run and of a comparison as a person with a spreadsheet reads them: sums, joins and cents."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from planner.answers.comparison import write_comparison
from planner.answers.run import write_run
from planner.answers.tables import tables_of
from planner.finance.accounts import NOT_COST_ACCOUNTS, Account, View
from planner.finance.bridge import account_bridge
from planner.run.simulate import simulate
from planner.run.slo_misses import REASONS
from planner.scenario.loading import load_scenario
from planner.studies.compare import compare
from tests.conftest import TINY

CHANGES = [
    "horizon_months=4",
    "site.outages_per_year=40",
    "workloads.*.token_price={input_usd_per_million_tokens: 0.5, output_usd_per_million_tokens: 1}",
    "finance.tax={rate_fraction: 0.25}",
    "clusters.mi325x.retire=2026-04-10",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """The CSV files of a run, by name."""
    folder = tmp_path_factory.mktemp("csvs")
    (folder / "tiny.yaml").write_text(TINY)
    write_run(
        simulate(load_scenario(folder / "tiny.yaml", CHANGES), seed=2), folder / "out", hourly=True
    )
    return {
        path.stem: pd.read_csv(path, keep_default_na=False, na_values=[""])
        for path in (folder / "out").glob("*.csv")
    }


def test_no_file_has_a_total_among_its_parts(files: dict[str, pd.DataFrame]) -> None:
    for name, table in files.items():
        assert "fleet" not in set(table.get("cluster", ())), name
        if f"{name}_clusters" in files:
            parts = files[f"{name}_clusters"]
            shared = [
                column for column in map(str, parts.select_dtypes("number")) if column in table
            ]
            added = [
                column for column in shared if column.endswith(("_tokens", "_kwh", "accelerator_h"))
            ]
            added += (
                [c for c in shared if c.endswith("_usd") and "_per_" not in c]
                if name.startswith("statement")
                else []
            )
            assert added, name
            for column in added:
                assert parts[column].sum() == pytest.approx(
                    table[column].sum(), rel=1e-6, abs=0.02
                ), (name, column)
    amounts = files["reconciliation"]
    assert amounts.amount_usd.cumsum().tolist() == pytest.approx(amounts.sum_usd.tolist())
    measures = files["measures"].set_index("measure").value
    assert amounts.amount_usd.sum() == pytest.approx(-measures["npv_usd"], abs=0.005)
    assert dict(zip(amounts.reaches, amounts.sum_usd, strict=True))["TCO"] == pytest.approx(
        measures["tco_usd"]
    )


def test_every_cause_of_a_miss_is_described(files: dict[str, pd.DataFrame]) -> None:
    """In the order in which one after another is taken away, which is that of the rows."""
    described = {
        column.name: column.description for column in tables_of("run")["slo_misses"].columns
    }
    named = [re.split(r"[ .]", words)[0] for words in described["cause"].split("; ")]
    assert named == [*REASONS]
    assert list(files["slo_misses"].cause.unique()) == named


def test_every_key_joins(files: dict[str, pd.DataFrame]) -> None:
    months = set(files["timeline_monthly"].month)
    clusters = set(files["clusters"].cluster)
    workloads = set(files["timeline_workloads"].workload)
    accounts = set(files["accounts"].account)
    assert months == {"2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"}
    known = {
        "scenario": {"tiny"},
        "month": months,
        "cluster": clusters | {"site"},
        "account": accounts,
    }
    known |= {"workload": workloads, "ServiceName": accounts, "ResourceId": clusters | {"site"}}
    known |= {"SubAccountName": {"tiny"}, "ResourceType": set(files["clusters"].accelerator)}
    seen = set()
    for name, table in files.items():
        if name not in (
            "accounts",
            "focus",
            "model_error",
        ):  # the same in every run, or named by its standard
            assert table.columns[0] == "scenario", name
        for key in known.keys() & set(table.columns):
            assert set(table[key].dropna()) <= known[key], (name, key)
            seen.add(key)
    assert seen == known.keys()
    joined = (
        files["ledger"]
        .merge(files["clusters"], "left", ["scenario", "cluster"])
        .merge(files["accounts"], on="account")
    )
    assert len(joined) == len(files["ledger"])
    assert (
        set(joined[joined.cluster != "site"].accelerator)
        == set(files["clusters"].accelerator)
        == {"H200", "MI325X"}
    )


def test_focus_has_the_ledgers_cash_and_accrual_to_the_cent(files: dict[str, pd.DataFrame]) -> None:
    focus = files["focus"]
    ledger = files["ledger"].merge(files["accounts"], on="account")
    cost = ledger[~ledger.account.isin([str(account) for account in NOT_COST_ACCOUNTS])]
    keys = ["month", "cluster", "account"]
    focus = focus.assign(
        month=focus.ChargePeriodStart.str[:10], cluster=focus.ResourceId, account=focus.ServiceName
    )
    assert (ledger.account == "revenue").any()
    billed = cost[cost.is_cash]
    # Nobody bills a charge for capital.
    effective = cost[cost.is_accrual & (cost.category != "imputed")]
    for column, rows in (("BilledCost", billed), ("EffectiveCost", effective)):
        ours = (rows.groupby(keys).amount_usd.sum() * 100).round().astype(int)
        theirs = (focus.groupby(keys)[column].sum() * 100).round().astype(int)
        assert theirs[theirs != 0].to_dict() == ours[ours != 0].to_dict()
    accrued = files["measures"].set_index("measure").value["cost_usd"]
    imputed = ledger[ledger.is_accrual & (ledger.category == "imputed")].amount_usd.sum()
    assert imputed > 0
    assert focus.EffectiveCost.sum() == pytest.approx(accrued - imputed, abs=0.005)
    assert focus.ConsumedQuantity.sum() == pytest.approx(
        files["timeline_monthly"].energy_kwh.sum(), abs=0.02
    )
    categories = set(focus.ChargeCategory)
    assert (
        {"Usage", "Purchase", "Credit", "Adjustment"}
        <= categories
        <= {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
    )
    bought = focus[focus.ChargeCategory == "Purchase"]
    assert (bought.EffectiveCost == 0).all()
    assert not focus.duplicated(
        ["SubAccountName", "ChargePeriodStart", "ResourceId", "ServiceName"]
    ).any()


@pytest.mark.parametrize("rate", [0.0, 0.12])
def test_a_bridge_by_cluster_and_account_sums_to_the_difference_to_the_cent(
    rate: float, tmp_path: Path
) -> None:
    """Undiscounted, each row is what the two ledgers say."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "more.yaml").write_text(
        "extends: tiny.yaml\nname: more\nclusters: {h200: {nodes: 5}, mi325x: null}\n"
    )
    settings = [*CHANGES[:-1], f"finance.discount_rate_per_year={rate}"]
    scenarios = [load_scenario(tmp_path / name, settings) for name in ("tiny.yaml", "more.yaml")]
    write_comparison(compare(scenarios, replications=1), tmp_path / "out")
    bridge, measures = (
        pd.read_csv(tmp_path / "out" / f"{name}.csv") for name in ("bridge_accounts", "comparison")
    )
    npv = measures[measures.measure == "npv_usd"].set_index("scenario").value
    cents = (
        bridge.groupby("scenario")[["baseline_usd", "plan_usd", "difference_usd"]].sum() * 100
    ).round()
    whole = [round(-100 * npv["tiny"]), round(-100 * npv["more"])]
    assert cents.to_numpy().tolist() == [[*whole, whole[1] - whole[0]]]
    assert {"h200", "mi325x", "site"} == set(bridge.cluster)
    if rate == 0.0:
        counted = [str(account) for account in Account if View.ECONOMIC in account.views]
        ledger = pd.read_csv(tmp_path / "out" / "ledger.csv")
        ledger = ledger[ledger.account.isin(counted)]
        posted = ledger.pivot_table(
            "amount_usd", ["cluster", "account"], "scenario", "sum", fill_value=0.0
        )
        rows = bridge.set_index(["cluster", "account"])
        expected = (posted["more"] - posted["tiny"]).reindex(rows.index).fillna(0.0)
        assert rows.difference_usd.tolist() == pytest.approx(expected.tolist(), abs=0.011)


def test_what_is_the_same_in_both_plans_differs_by_nothing() -> None:
    before = {("a", "capex"): 1000.4, ("a", "energy"): 10.4, ("b", "energy"): 20.4}
    rows = {
        row[:2]: row[2:]
        for row in account_bridge(before, {**before, ("b", "energy"): 0.2, ("c", "rent"): 7.4})
    }
    assert rows["a", "capex"][2] == rows["a", "energy"][2] == 0
    assert [sum(column) for column in zip(*rows.values(), strict=True)] == [1031, 1018, -13]
    assert all(after - first == apart for first, after, apart in rows.values())
