"""Plans side by side: comparisons and studies show what a run shows, one for each plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import PlannerError
from planner.output.report.build import sections_of
from planner.output.report.contents import Contents, read_contents
from planner.output.report.words import dollars
from tests.output.report.test_build import ORDER

Planner = Callable[..., Any]
Write = Callable[..., Path]


@pytest.fixture
def compared(planner: Planner, write: Write, tiny: str, tmp_path: Path) -> Contents:
    write()
    write(tiny.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9"), "dear.yaml")
    assert planner("compare", "dear.yaml", "tiny.yaml", "--out", "o", "-q").code == 0
    return read_contents(tmp_path / "o")


def bodies(contents: Contents) -> dict[str, str]:
    return {section.key: section.body for section in sections_of(contents)}


def test_a_plan_is_read_by_itself(compared: Contents) -> None:
    assert compared.plans == ["dear", "tiny"]
    own = compared.of_plan("tiny")
    ledger, whole = own.table("ledger"), compared.table("ledger")
    assert ledger is not None
    assert whole is not None
    assert "scenario" not in ledger
    assert len(ledger) == whole.texts("scenario").count("tiny")
    assert (own.anchor, compared.anchor) == ("plan-2-", "")


def test_every_question_is_answered_in_order(compared: Contents) -> None:
    assert list(bodies(compared)) == ORDER


def test_every_plan_has_its_timelines_and_no_two_charts_one_name(compared: Contents) -> None:
    found = bodies(compared)
    for key in ("utilisation", "cost", "workload-cost", "workload-hours", "workload-tokens"):
        for place in (1, 2):
            assert f'id="plan-{place}-{key}"' in found["time"]
    names = re.findall(r' id="([^"]+)"', "".join(found.values()))
    assert len(names) == len(set(names))
    assert re.findall(r'<details class="plan"( open)?>', found["time"]) == [" open", ""]


def test_the_money_of_every_plan_is_that_of_its_measures(compared: Contents) -> None:
    measures = compared.table("comparison")
    assert measures is not None
    rows = zip(measures.texts("scenario"), measures.texts("measure"), measures.numbers("value"), strict=True)
    costs = {scenario: value for scenario, measure, value in rows if measure == "cost_usd"}
    (row,) = re.findall(r'<th scope="row">all of it</th>(.*?)</tr>', bodies(compared)["money"])
    assert re.findall(r"<td[^>]*>([^<]+)</td>", row) == [dollars(costs["dear"]), dollars(costs["tiny"])]


def test_assumptions_are_merged_where_plans_agree(compared: Contents) -> None:
    found = bodies(compared)["assumptions"].replace("<wbr>", "")
    rows = re.findall(r'<th scope="row">clusters\.h200\.nodes</th>(.*?)</tr>', found)
    whose = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows]
    assert {(cells[0], cells[-1]) for cells in whose} == {("9", "dear"), ("4", "tiny")}
    (version,) = re.findall(r'<th scope="row">catalog\.version</th>(.*?)</tr>', found)
    assert version.endswith(">all</td>")


def test_the_model_error_is_there(compared: Contents) -> None:
    assert "The model's own measured error".replace("'", "&#39;") in bodies(compared)["error"]


def test_measures_are_shown_with_their_definitions(compared: Contents, contents: Contents) -> None:
    for each in (compared, contents):
        answer = bodies(each)["answer"]
        assert "how each is defined" in answer
        assert "10⁶ · p at which Σ (p·tokens − cost − tax)·v = 0" in answer
        assert "Without meaning here" in answer
    found = contents.table("measures")
    assert found is not None
    known = sum(value is not None for value in found.numbers("value"))
    assert f"All {known} measures" in bodies(contents)["answer"]


def test_a_study_whose_plans_cannot_run_as_stated_still_has_a_report(
    planner: Planner, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PlannerError("no")

    write()
    write("name: s\nscenarios:\n  tiny: {extends: tiny.yaml}\n", "s.yaml")
    monkeypatch.setattr("planner.output.study_folder.simulate", refuse)
    assert planner("montecarlo", "s.yaml", "-n", "8", "--workers", "1", "--no-charts", "--out", "o", "-q").code == 0
    found = bodies(read_contents(tmp_path / "o"))
    assert list(found) == ORDER
    assert "None of the plans could be run as stated" in found["money"]
    assert "Nothing in this study is uncertain but chance" not in found["hangs"]  # the model's own error is


@pytest.mark.parametrize("method", ["tornado", "morris", "sobol"])
def test_a_designed_study_answers_everything(planner: Planner, write: Write, tmp_path: Path, method: str) -> None:
    write()
    write("name: s\nscenarios:\n  one: {extends: tiny.yaml}\n"
          "  two: {extends: tiny.yaml, set: {site: {pue_ratio: 1.6}}}\n"
          "uncertain:\n  finance.discount_rate_per_year: {kind: pert, low: 0.05, mode: 0.1, high: 0.2}\n",
          "s.yaml")  # fmt: skip
    assert (
        planner("sensitivity", "s.yaml", "--method", method, "-n", "4", "--workers", "1", "--out", "o", "-q").code == 0
    )
    contents = read_contents(tmp_path / "o")
    found = bodies(contents)
    assert list(found) == ORDER
    assert "one does best" in found["answer"]
    assert f"planner sensitivity s.yaml --method {method} --size 4 --seed 1" in found["reproduce"]
    assert "finance.<wbr>discount_<wbr>rate_<wbr>per_<wbr>year" in found["assumptions"]
    before = (tmp_path / "o" / "report.html").read_bytes()
    assert planner("report", "o", "-q").code == 0
    assert (tmp_path / "o" / "report.html").read_bytes() == before
