"""Plans in named futures: what a future changes, what it leaves, and what it is not: a rival."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from planner.errors import ScenarioError
from planner.finance.accounting.measures import measures
from planner.output.words import dollars
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Future
from planner.studies.compare import compare
from planner.studies.futures import AS_STATED, load_futures, stated_futures
from planner.studies.remedy import Remedy
from tests.conftest import Planner, WriteScenario
from tests.studies.test_remedy import SHORT, scenario

FUTURES = """
futures:
  twice-the-traffic: {weight: 1, set: {"workloads.*.requests_per_s": ×2}}
  b200-late: {weight: 3, set: {"clusters.b200.online": +1 month}}
"""


def plans() -> list[Any]:
    one = scenario(
        name="two-parts", clusters={k: v | {"nodes": 3} for k, v in SHORT["clusters"].items()}
    )
    return [
        one,
        scenario(name="h200-alone", clusters={"h200": {"accelerator": "H200", "nodes": 6}}),
    ]


@pytest.mark.parametrize(
    ("override", "read", "becomes"),
    [
        ("workloads.chat.requests_per_s=×2", lambda s: s.workloads["chat"].requests_per_s, 120.0),
        ("workloads.*.growth.per_year=x0.5", lambda s: s.workloads["chat"].growth.per_year, 1.5),
        ("clusters.b200.nodes=×3", lambda s: s.clusters["b200"].nodes, 3),
        (
            "clusters.h200.online=+2 weeks",
            lambda s: s.clusters["h200"].online,
            datetime.date(2026, 1, 15),
        ),
        (
            "clusters.sold.retire=-10 days",
            lambda s: s.clusters["sold"].retire,
            datetime.date(2026, 1, 22),
        ),
        ("finance.resale_multiplier=×0.5", lambda s: s.finance.resale_multiplier, 0.5),
    ],
)
def test_a_value_may_be_given_by_what_is_stated(override: str, read: Any, becomes: Any) -> None:
    assert read(scenario().laid_over([override])) == becomes


def test_a_price_left_to_the_catalogue_is_multiplied_and_years_are_each() -> None:
    half = scenario().laid_over(["clusters.h200.accelerator_price_usd=×0.5"])
    price = half.load_catalog().accelerator("H200").accelerator_price_usd
    assert price is not None
    assert half.clusters["h200"].accelerator_price_usd == pytest.approx(0.5 * price.value)
    by_year = scenario().laid_over(
        ["workloads.chat.growth={kind: by-year, per_year: {2026: 0.4, 2027: 0.2}}"]
    )
    twice = by_year.laid_over(["workloads.chat.growth.per_year=×2"])
    assert twice.workloads["chat"].growth.model_dump()["per_year"] == {"2026": 0.8, "2027": 0.4}


def test_what_is_no_number_cannot_be_multiplied() -> None:
    with pytest.raises(ScenarioError, match="needs a number to change"):
        scenario().laid_over(["clusters.b200.accelerator=×2"])


def test_a_plan_in_a_future_is_the_plan_with_that_changed(write: WriteScenario) -> None:
    futures = load_futures(write(FUTURES, "futures.yaml"))
    cells = {
        (one.scenario, one.future): one
        for one in compare(plans(), replications=2, futures=futures).futures
    }
    changed = {
        "twice-the-traffic": "workloads.chat.requests_per_s=120",
        "b200-late": "clusters.b200.online=2026-02-01",
    }
    for plan in plans():
        for future, change in changed.items():
            if "b200" in change and "b200" not in plan.clusters:  # as stated, and not drawn again
                assert cells[plan.name, future].result is cells[plan.name, AS_STATED].result
                continue
            alone = simulate(plan.laid_over([change]), plans()[0].seed)
            there = cells[plan.name, future]
            assert measures(there.result)["npv_usd"] == measures(alone)["npv_usd"]
            assert there.replications.number == 2


def test_the_nodes_named_meet_the_target_there() -> None:
    lean = scenario(name="lean", clusters={"h200": {"accelerator": "H200", "nodes": 6}})
    futures = {"busier": Future.model_validate({"set": {"workloads.chat.requests_per_s": "×4"}})}
    stated, busier = compare([lean], replications=3, futures=futures).futures
    assert (stated.verdict.met, busier.verdict.met) == (3, 0)
    assert stated.remedy is None
    assert isinstance(busier.remedy, Remedy)
    enough = f"clusters.h200.nodes={busier.remedy.nodes_in_all}"
    for number, met in (
        (enough, True),
        (f"clusters.h200.nodes={busier.remedy.nodes_in_all - 1}", False),
    ):
        there = lean.laid_over(["workloads.chat.requests_per_s=240", number])
        assert (
            all(simulate(there, lean.seed, place).slo_result().is_met for place in range(3)) is met
        )


def test_the_grid_is_written_and_a_future_is_no_rival(
    planner: Planner, write: WriteScenario
) -> None:
    nodes = {"few": 3, "many": 9}
    files = [
        write(
            f"name: {name}\nextends: short.yaml\nclusters: {{h200: {{nodes: {count}}}}}",
            f"{name}.yaml",
        )
        for name, count in nodes.items()
    ]
    write(re.sub(r'"(\d{4}-\d\d-\d\d)"', r"\1", json.dumps(SHORT)), "short.yaml")
    write(FUTURES, "futures.yaml")
    out = planner("compare", *files, "--futures", "futures.yaml", "-n", "2", "--out", "grid")
    assert out.code == 0, out.err
    grid = pd.read_csv(Path("grid") / "futures.csv")
    assert grid.shape[0] == 6  # two plans, two futures and what is stated
    assert set(grid.future) == {AS_STATED, "twice-the-traffic", "b200-late"}
    ranked = pd.read_csv(Path("grid") / "comparison.csv").scenario
    assert set(ranked) == {"few", "many"}
    cost = grid[grid.scenario == "many"].set_index("future")["net_present_cost_usd"].to_dict()
    weighted = (cost["twice-the-traffic"] + 3 * cost["b200-late"]) / 4
    assert (
        f"Weighted over the futures, many has a net present cost of {dollars(weighted)}"
        in out.out.replace("\n  ", " ")
    )
    report = (Path("grid") / "report.html").read_text(encoding="utf-8")
    assert "Each plan in each future" in report
    one = planner("compare", files[1], "--futures", "futures.yaml", "-n", "1", "--out", "one")
    assert one.code == 0, one.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "futures: {a: {set: {clusters.b300.nodes: 3}}}",
            "the future 'a' changes nothing in any of the plans",
        ),
        ("futures: {a: {set: {start: 2027-01-01}}}", "a future cannot set it"),
        ("futures: {a: {set: {clusters.h200.nodse: 3}}}", "nodse"),
        ("futures: {a: {sets: {}}}", "sets"),
        ("name: b", "futures"),
    ],
)
def test_a_wrong_future_is_one_message(
    planner: Planner, write: WriteScenario, text: str, said: str
) -> None:
    write(text, "futures.yaml")
    out = planner("compare", write(), "--futures", "futures.yaml", "-n", "1", "--out", "none")
    assert (out.code, said in out.err) == (2, True), out.err
    assert not Path("none").exists()


def test_futures_of_the_plans_themselves_are_taken_and_one_name_is_one_future() -> None:
    stated = {"busier": {"set": {"workloads.chat.requests_per_s": "×2"}}}
    one = load_scenario(SHORT | {"futures": stated})
    other = load_scenario(SHORT | {"name": "other"})
    assert set(stated_futures([one, other])) == {"busier"}
    unlike = {"busier": {"set": {"workloads.chat.requests_per_s": "×3"}}}
    with pytest.raises(ScenarioError, match="names different futures in two of these plans"):
        stated_futures([one, load_scenario(SHORT | {"name": "other", "futures": unlike})])


def test_a_factor_beyond_any_number_is_no_factor(planner: Planner, write: WriteScenario) -> None:
    out = planner("validate", write(), "--set", f"clusters.h200.nodes=×{'9' * 400}")
    assert out.code == 2
    assert "clusters.h200.nodes" in out.err


def test_a_sizing_refuses_a_wrong_future_before_it_searches(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    sizing = "sizing: {clusters: {h200: {max_nodes: 4}}}\nfutures: {a: {set: {clusters.b300.nodes: 3}}}\n"
    out = planner("size", write(tiny + sizing), "--out", "none")
    assert (out.code, "changes nothing in any of the plans" in out.err) == (2, True), out.err
    assert "surveying" not in out.err
    assert not Path("none").exists()
