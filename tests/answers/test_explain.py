"""``planner explain``: parts give the figure, by arithmetic that is not the planner's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import planner as planner_package
from planner.answers.explain import explain
from planner.finance.measure_names import FIGURES
from tests.conftest import TINY, Planner, WriteScenario

PRICE = "levelised_cost_per_million_tokens_usd"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("explained")
    (place / "tiny.yaml").write_text(TINY)
    answer = planner_package.run(place / "tiny.yaml", place / "run", replications=1)
    return answer.folder


def parts_of(figure: str, place: Path) -> dict[str, float]:
    explanation = planner_package.explain(figure, place)
    return {part.name: part.value for part in explanation.parts if part.value is not None}


def test_levelised_cost_is_present_cost_over_discounted_tokens(folder: Path) -> None:
    parts = parts_of(PRICE, folder)
    price = -parts["npv_usd"] / parts["served_tokens·v"] * 1e6
    # Files have six decimals of a price, and cents.
    assert planner_package.explain(PRICE, folder).value == pytest.approx(price, abs=1e-6)


def test_tokens_are_discounted_by_the_runs_own_rate_and_timing(write: WriteScenario) -> None:
    stated = (
        "finance.discount_rate_per_year=0.5",
        "finance.discount_rate_basis=real",
        "finance.inflation_per_year=0.2",
        "finance.cash_flow_timing=month_end",
        "start=2026-01-16",
    )
    explanation = planner_package.explain(PRICE, write(), overrides=stated)
    present = {part.name: part.value or 0.0 for part in explanation.parts}
    price = -present["npv_usd"] / present["served_tokens·v"] * 1e6
    assert explanation.value == pytest.approx(price, abs=1e-6)


@pytest.mark.parametrize("figure", ["cost_usd", "tco_usd", "cash_usd"])
def test_accounts_sum_to_the_cost_they_explain(figure: str, folder: Path) -> None:
    explanation = planner_package.explain(figure, folder)
    assert explanation.value == pytest.approx(sum(parts_of(figure, folder).values()), abs=0.006)


def test_lines_sum_to_net_present_cost(folder: Path) -> None:
    value = planner_package.explain("npv_usd", folder).value
    assert value == pytest.approx(-sum(parts_of("npv_usd", folder).values()), abs=0.011)


@pytest.mark.parametrize(
    "figure", ["shed_fraction", "utilisation_fraction", "availability_fraction"]
)
def test_a_share_is_its_first_part_over_its_second(figure: str, folder: Path) -> None:
    numerator, denominator = parts_of(figure, folder).values()
    value = planner_package.explain(figure, folder).value
    assert value == pytest.approx(numerator / denominator, abs=1e-6)


def test_inputs_have_their_source_and_grade(folder: Path) -> None:
    inputs = {row["path"]: row for row in planner_package.explain(PRICE, folder, inputs=999).inputs}
    assert inputs["clusters.h200.nodes"]["source"] == "tiny.yaml:12"
    assert inputs["clusters.h200.nodes"]["grade"] == "user"
    tdp = inputs["catalog.accelerators.H200.tdp_w"]
    assert (tdp["value"], tdp["unit"]) == ("700", "W")
    assert tdp["date"]
    # What enters a part enters the figure.
    assert "workloads.chat.requests_per_s" in inputs
    few = planner_package.explain(PRICE, folder, inputs=5)
    assert [row["grade"] for row in few.inputs] == ["user"] * 5
    assert few.inputs_left_out == len(inputs) - 5


def test_every_figure_is_explained_and_every_part_and_input_is_there(folder: Path) -> None:
    for name, line in FIGURES.items():
        explanation = planner_package.explain(name, folder)
        is_of_a_run = line["kind"] == "measure" and not line["needs"]
        assert (explanation.value is not None) or not is_of_a_run, name
        assert all(part.value is not None or line["needs"] for part in explanation.parts), name


def test_a_scenario_is_explained_without_a_folder(
    folder: Path, write: WriteScenario, planner: Planner
) -> None:
    file = write()
    found = planner("explain", PRICE, str(file), "--json")
    assert found.code == 0, found.err
    stated = json.loads(found.out)
    assert stated["value"] == pytest.approx(planner_package.explain(PRICE, folder).value, abs=1e-6)
    assert sorted(path.name for path in file.parent.iterdir()) == ["tiny.yaml"]


def test_accounts_and_columns_are_explained_too(folder: Path) -> None:
    energy = planner_package.explain("energy", folder)
    assert (energy.view, energy.unit) == ("cash accrual economic", "USD")
    assert energy.value == parts_of("cost_usd", folder)["energy"]
    assert explain("marginal_usd", 0).tables == ["run/workload_costs"]


def test_a_name_that_is_not_there_says_the_nearest(planner: Planner, tmp_path: Path) -> None:
    for name, near in (("cost_uds", "cost_usd"), ("levelised_cost", PRICE)):
        outcome = planner("explain", name)
        assert outcome.code == 2
        assert near in outcome.err
    assert planner("explain", "cost_usd", str(tmp_path)).code == 2
