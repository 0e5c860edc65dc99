"""Figures of the prose follow their runs, and sentences that compare are true."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.blocks import steps
from tests.docs.carrying_out import carry_out
from tests.docs.figures import written_as
from tests.docs.refresh import refreshed

PAGE = """\
# Plans

Later costs 20% less than now, with ten
nodes in place of twelve. Hardly a difference.

<!-- figures: outputs/plan
# less than now = 1 - later.npv_usd / now.npv_usd
with # nodes in place of # = later.clusters.h200.nodes, 12
Hardly a difference ? later.npv_usd > 0.9 * now.npv_usd
-->
"""


def plan(folder: Path, later_npv_usd: float) -> None:
    """Write the folder of a comparison with what the page takes from it."""
    place = folder / "outputs" / "plan"
    place.mkdir(parents=True)
    present = {"now": {"npv_usd": -100.0}, "later": {"npv_usd": -later_npv_usd}}
    (place / "summary.json").write_text(json.dumps({"scenarios": present}), encoding="utf-8")
    rows = "scenario,path,value\nlater,clusters.h200.nodes,9\n"
    (place / "assumptions.csv").write_text(rows, encoding="utf-8")


def test_refreshing_writes_figures_as_they_are_now(tmp_path: Path) -> None:
    plan(tmp_path, later_npv_usd=70.0)
    fresh = refreshed(PAGE, carry_out(PAGE, tmp_path))
    assert "Later costs 30% less than now, with nine\nnodes in place of twelve." in fresh
    assert fresh.count("\n") == PAGE.count("\n")


def test_a_comparison_that_is_not_so_fails_with_its_line(tmp_path: Path) -> None:
    plan(tmp_path, later_npv_usd=120.0)
    (outcome,) = carry_out(PAGE, tmp_path)
    assert outcome.exit_code == 1
    assert outcome.printed == (
        'line 4: "Hardly a difference" is not so: later.npv_usd > 0.9 * now.npv_usd',
    )


def test_a_comment_below_another_is_of_the_same_prose(tmp_path: Path) -> None:
    plan(tmp_path, later_npv_usd=80.0)
    page = PAGE + PAGE.partition("difference.\n\n")[2]
    assert [outcome.printed for outcome in carry_out(page, tmp_path)] == [(), ()]


def test_costs_compare_where_no_plan_is_missed_unless_the_line_says_so(tmp_path: Path) -> None:
    plan(tmp_path, later_npv_usd=80.0)
    file = tmp_path / "outputs" / "plan" / "summary.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    later: dict[str, object] = {"status": "MISSED", "replications": 19}
    summary["verdicts"] = {"now": {"status": "MET", "replications": 19}, "later": later}
    file.write_text(json.dumps(summary), encoding="utf-8")
    (outcome,) = carry_out(PAGE, tmp_path)
    assert outcome.exit_code == 1
    assert outcome.printed == (
        'line 3: "# less than now" has the cost of later, which is MISSED',
        'line 4: "Hardly a difference" has the cost of later, which is MISSED',
    )
    page = PAGE.replace("now.npv_usd\n", "now.npv_usd though MISSED\n")
    (outcome,) = carry_out(page, tmp_path)
    assert not outcome.printed
    later["status"] = "INCONCLUSIVE"
    file.write_text(json.dumps(summary), encoding="utf-8")
    (outcome,) = carry_out(page, tmp_path)
    assert "the cost of later, which is INCONCLUSIVE" in outcome.printed[0]
    # One replication gives no verdict on any plan.
    later["replications"] = 1
    file.write_text(json.dumps(summary), encoding="utf-8")
    (outcome,) = carry_out(PAGE, tmp_path)
    assert not outcome.printed


def test_a_comma_after_a_figure_is_none_of_its_digits(tmp_path: Path) -> None:
    plan(tmp_path, later_npv_usd=80.0)
    page = "It saves 1,084, or more.\n\n<!-- figures: outputs/plan\nsaves # = 20 * abs(later.npv_usd)\n-->\n"
    assert "It saves 1,600, or more." in refreshed(page, carry_out(page, tmp_path))


def test_values_of_a_row_lead_to_its_figure(tmp_path: Path) -> None:
    place = tmp_path / "outputs" / "plan"
    place.mkdir(parents=True)
    rows = "scenario,future,nodes\nnow,late,7\nlater,late,11\n"
    (place / "futures.csv").write_text(rows, encoding="utf-8")
    page = "It takes 11 nodes.\n\n<!-- figures: outputs/plan\n# nodes = futures.later.late.nodes\n-->\n"
    (outcome,) = carry_out(page, tmp_path)
    assert not outcome.corrections
    assert not outcome.printed


def test_words_that_are_not_in_the_prose_fail(tmp_path: Path) -> None:
    plan(tmp_path, later_npv_usd=80.0)
    (outcome,) = carry_out(PAGE.replace("# less than now", "# more than now"), tmp_path)
    assert '"# more than now" stands 0 times in the prose above' in outcome.printed


def test_commands_of_a_comment_come_before_its_figures() -> None:
    page = PAGE.replace("figures: outputs/plan\n", "figures: outputs/plan\n$ planner compare a b\n")
    assert [(step.kind, step.content[:7]) for step in steps(page)] == [
        ("command", "planner"),
        ("figures", "$ plann"),
    ]


@pytest.mark.parametrize(
    ("stated", "value", "written"),
    [
        ("9%", 0.126, "13%"),
        ("12.5%", 0.1, "10.0%"),
        ("+66%", -0.381, "−38%"),
        ("−58%", -0.2, "−20%"),
        ("$0.0419", 0.03, "$0.0300"),
        ("5,200", 12_345.6, "12,346"),
        ("4.95", 5.0, "5.00"),
        ("Ten", 9.2, "Nine"),
        ("ten", 37.0, "37"),
    ],
)
def test_a_figure_is_written_as_its_predecessor(stated: str, value: float, written: str) -> None:
    assert written_as(stated, value) == written
