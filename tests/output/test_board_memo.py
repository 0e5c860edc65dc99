"""The memo: every figure of it against the files it comes from, or against a run that was made for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.answers.manifests import Manifest
from planner.answers.run import write_run
from planner.errors import ScenarioError
from planner.finance.accounting.measures import measures
from planner.memo.board_memo import cash_by_year, memo_sections
from planner.memo.exposures import exposures_of
from planner.memo.memo_pages import markdown, memo_html
from planner.output.blocks import Grid, Section, Sentence
from planner.output.folder import Contents, contents_of, read_contents
from planner.output.words import dollars
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY, Planner


def _folder(place: Path, text: str) -> Contents:
    place.mkdir()
    (place / "plan.yaml").write_text(text)
    write_run(simulate(load_scenario(place / "plan.yaml"), seed=3), place / "out")
    return read_contents(place / "out")


def _measures(contents: Contents) -> dict[str, float | None]:
    table = contents.table("measures")
    assert table is not None
    return dict(zip(table.texts("measure"), table.numbers("value"), strict=True))


def test_cash_by_year_is_the_cash_of_the_statements(contents: Contents) -> None:
    ledger = contents.table("ledger")
    statement = contents.table("statement_yearly")
    assert ledger is not None
    assert statement is not None
    years = cash_by_year(ledger)
    flow = statement.numbers("net_cash_flow_usd")
    paid_in = statement.numbers("paid_in_usd")
    years_of = zip(statement.texts("period"), flow, paid_in, strict=True)
    stated = {year: (net or 0.0) - (owner or 0.0) for year, net, owner in years_of}
    assert {
        f"FY{year}": pytest.approx(-row["paid in all"]) for year, row in years.items()
    } == stated
    assert years["2026"]["purchases"] == pytest.approx(_measures(contents)["capex_usd"])


def test_a_run_answers_every_heading(contents: Contents) -> None:
    parts = {part.title: part for part in memo_sections(contents)}
    assert list(parts) == [
        "Question", "Answer", "SLO target", "Cost", "Reconciliation of cost",
        "Cost of each workload, present value", "Cash by year",
        "Alternatives at equal service", "Sensitivities", "Risks", "Remarks", "Assumptions", "Reproduce",
    ]  # fmt: skip
    assert parts["SLO target"].blocks[-1] == Sentence(
        text="Capacity lasts to the end of the horizon in at least 90% of replications."
    )
    cost = parts["Cost"].blocks[-1]
    assert isinstance(cost, Grid)
    assert cost.rows[0][0] == "per million tokens, levelised"


RISKY = """
name: risky
start: 2026-01-01
horizon_months: 4
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 40
    lengths: {input: {mean: 1500}, output: {mean: 400}}
clusters:
  old: {accelerator: H200, nodes: 1, owned: {bought: 2025-01-01}}
  new: {accelerator: H200, nodes: 1, online: 2026-02-01}
"""


def test_risks_and_assumed_values_are_simulated_and_the_largest_come_first(tmp_path: Path) -> None:
    """Against the same changes made by hand, in the replications after those of the run."""
    contents = _folder(tmp_path / "a", RISKY)
    sections = memo_sections(contents, tmp_path / "a" / "out")
    grids = {
        part.title: block for part in sections for block in part.blocks if isinstance(block, Grid)
    }
    risks = {row[0]: row for row in grids["Risks"].rows}
    assert len(risks) == 3
    plan = load_scenario(tmp_path / "a" / "plan.yaml")
    first = Manifest.read(contents).replications or 19
    unseen = range(first, first + 4)
    dearer = plan.laid_over(["clusters.new.accelerator_price_usd=×1.2"])
    costs = [
        [measures(simulate(one, seed=3, replication=r))["npv_usd"] or 0.0 for r in unseen]
        for one in (plan, dearer)
    ]
    stated, raised = (sum(npv) / 4 for npv in costs)
    assert risks["accelerators a fifth more expensive"][1] == f"+{dollars(stated - raised)}"
    exposures = exposures_of(contents, tmp_path / "a" / "out", "")
    assert exposures is not None
    swings = [abs(one.added_usd) for one in exposures.assumed]
    assert swings == sorted(swings, reverse=True)
    # A plan of NVIDIA's machines alone rests on nothing that is assumed of AMD's.
    assert not [one for one in exposures.assumed if re.search("amd|rocm|MI3", one.name)]


def test_without_its_scenario_no_risk_is_made_up(tmp_path: Path) -> None:
    contents = _folder(tmp_path / "a", RISKY)
    (tmp_path / "a" / "plan.yaml").unlink()
    parts = {part.title: part for part in memo_sections(contents, tmp_path / "a" / "out")}
    (said,) = parts["Risks"].blocks
    assert isinstance(said, Sentence)
    assert said.text.startswith("Risks were not simulated")


def test_a_plan_that_sells_nothing_has_a_net_present_cost_and_no_margin(tmp_path: Path) -> None:
    contents = _folder(tmp_path / "a", RISKY)
    text = markdown("plan", memo_sections(contents))
    assert "| net present cost | $" in text
    assert "net present value |" not in text
    assert not re.search(r"\bmargin\b", text)


def test_text_of_a_user_cannot_break_out(tmp_path: Path) -> None:
    text = TINY.replace(
        "accelerator: H200",
        "accelerator: H200\n    accelerator_price_usd: 9e5\n    price_source: '<b>|x'",
    )
    found = _folder(tmp_path / "a", text)
    sections = memo_sections(found)
    assert b"<b>" not in memo_html("plan", sections)
    assert "<b>" not in markdown("plan", sections)


def test_a_folder_without_a_decision_is_refused(planner: Planner) -> None:
    with pytest.raises(ScenarioError, match="has no decision to write a memo about"):
        memo_sections(contents_of({"kind": "zoom"}, {}))
    planner("memo", "nowhere").refused("cannot be read")


def test_markdown_has_the_same_words() -> None:
    grid = Grid(caption="C", header=("a", "b"), rows=[("x|y", "<b>")])
    text = markdown("T", [Section(key="k", title="Why?", blocks=[Sentence(text="1 < 2"), grid])])
    assert text == "# T\n\n## Why?\n\n1 &lt; 2\n\n| a | b |\n| --- | --- |\n| x\\|y | &lt;b&gt; |\n"
