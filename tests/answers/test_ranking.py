"""Advice is held against the table it stands beside, over many made-up plans and a few real ones."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner.answers import comparison_report, run_report, study_report
from planner.answers.manifests import Manifest
from planner.answers.ranking import (
    ATTAINMENT,
    COST,
    LOWEST_ATTAINMENT,
    SHED,
    SHORTFALL,
    RankedPlan,
    frontier,
    rank,
    ranked_plan,
)
from planner.answers.sentences import (
    fleet_size_advice,
    inconclusive_lines,
    interval_words,
    no_alternatives,
    none_met,
    recommendation,
    sweep_advice,
    verdict_line,
)
from planner.answers.study_results import StudyResults
from planner.answers.study_screen import study_text
from planner.answers.summaries import StudySummary
from planner.answers.sweep_report import sweep_section
from planner.answers.verdicts import Estimate
from planner.errors import ScenarioError
from planner.output.blocks import Grid, Section, Sentence
from planner.output.folder import Contents
from planner.output.tables import SCHEMA_VERSION
from planner.plan.attainment import Verdict
from tests.answers.hand_made import comparison_of, contents_of, run_of, verdict_of
from tests.conftest import Planner, WriteScenario

Figures = dict[str, float | None]

SHARES = st.one_of(
    st.floats(0.0, 1.0), st.floats(0.985, 1.0), st.sampled_from([0.42, 0.9899, 0.989999, 0.99, 1.0])
)
"""Shares in time, most of them near the mark, where a sentence and a table could part."""
TARGET = 0.99


@st.composite
def figures(draw: st.DrawFn) -> Figures:
    attainment = draw(SHARES)
    worst = draw(SHARES)
    shed = draw(st.one_of(st.just(0.0), st.floats(0.0, 0.02), st.floats(0.0, 1.0)))
    cost = draw(st.one_of(st.floats(0.001, 90.0), st.sampled_from([1.0, 2.0])))
    return {**standing(max(attainment, worst), min(attainment, worst)), SHED: shed, COST: cost,
            "cost_usd": draw(st.floats(1e3, 1e9))}  # fmt: skip


def standing(attainment: float, worst: float) -> Figures:
    """Return how a plan serves and stands to an SLO target of 99%, as a file holds it."""
    return {
        ATTAINMENT: attainment,
        LOWEST_ATTAINMENT: worst,
        SHORTFALL: round(max(0.0, TARGET - worst), 6),
    }


GOOD = standing(0.999, 0.995)
POOR = standing(0.21, 0.0)


def text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", markup))


MUCH_SHED = re.compile(
    r"\S+ sheds \S+ of its tokens; all other figures cover only the tokens that it serves\."
)


def sentences(section: Section) -> str:
    """Return what a section says, but for how much is shed, which stands before all advice."""
    return MUCH_SHED.sub(
        "", " ".join(block.text for block in section.blocks if isinstance(block, Sentence))
    )


def table_of(section: Section) -> list[dict[str, str]]:
    """Return the first grid of a section as a reader sees it."""
    grid = next(block for block in section.blocks if isinstance(block, Grid))
    return [dict(zip(grid.header, row, strict=True)) for row in grid.rows]


def number(cell: str) -> float:
    return float(re.sub(r"[$,%<]", "", cell).replace("−", "-"))


def is_met(row: dict[str, str]) -> bool:
    """Judge a row by nothing but what it shows."""
    return row["SLO"] == "met" or row["SLO"].startswith("MET ")


@settings(max_examples=40)
@given(st.lists(figures(), min_size=2, max_size=4))
@example([{**GOOD, SHED: 0.0, COST: 1.0}, {**POOR, SHED: 0.79, COST: 0.315}])  # it "saved 68.5%"
@example(
    [{**GOOD, SHED: 0.0, COST: 1.0}, {**standing(0.97, 0.95), SHED: 0.0, COST: 1.087}]
)  # "what it saves", −8.7%
def test_a_comparison_says_what_its_table_shows(plans: list[Figures]) -> None:
    summary = comparison_of({f"plan{place}": plan for place, plan in enumerate(plans)})
    section = comparison_report.answer_section(Contents(manifest={}, tables={}), summary)
    said = sentences(section)
    rows = table_of(section)
    assert "saves" not in said
    well = [row for row in rows if is_met(row)]
    assert rows == well + [row for row in rows if row not in well]
    if not well:
        assert said.strip().startswith("None of these plans meets its SLO target")
        return
    name = said.split()[0]
    assert rows[0]["scenario"].split()[0] == name or rows[0]["levelised per M tokens"] == "–"
    (chosen,) = (row for row in rows if row["scenario"].split()[0] == name)
    (base,) = (row for row in rows if "(baseline)" in row["scenario"])
    assert chosen in well
    assert number(chosen["levelised per M tokens"]) <= min(
        number(row["levelised per M tokens"]) for row in well
    )
    for row in rows:
        label = row["scenario"].split()[0]
        stands = row["against the baseline"]
        if row is base or (row not in well and base in well):
            assert stands == "–"  # what misses its SLO target is not held against what keeps it
        if row in well and row is not base:
            assert stands != "–"
        assert (f"{label} is no alternative" in said) == (row not in well)
        if "less" in stands:
            assert number(row["levelised per M tokens"]) <= number(base["levelised per M tokens"])
    if chosen is not base and base in well:
        stands = chosen["against the baseline"]
        assert f"{stands} than the baseline" in said
        assert "more" not in stands


@settings(max_examples=40)
@given(st.lists(st.one_of(figures(), st.just({})), min_size=1, max_size=8))
def test_a_sweep_recommends_the_cheapest_row_that_meets_its_slo_target(
    plans: list[Figures],
) -> None:
    columns = (ATTAINMENT, LOWEST_ATTAINMENT, SHORTFALL, SHED, "cost_usd", COST)
    lines = [f"nodes,utilisation_fraction,cost_per_million_tokens_usd,{','.join(columns)}"]
    lines += [
        f"{i},0.5,1.0," + ",".join(repr(plan[key]) if plan else "" for key in columns)
        for i, plan in enumerate(plans)
    ]
    slo_target = {"attainment": TARGET, "per": "month", "scope": "workload"}
    manifest = {
        "kind": "sweep",
        "vary": {"nodes": [str(i) for i in range(len(plans))]},
        "slo_target": slo_target,
    }
    contents = contents_of(manifest, {"sweep": "\n".join(lines)})
    section = sweep_section(contents, Manifest.read(contents))
    said = sentences(section)
    rows = table_of(section)
    well = [row for row in rows if is_met(row)]
    assert [row["SLO"] == "met" for row in rows] == [True] * len(well) + [False] * (
        len(rows) - len(well)
    )
    if not well:
        assert "None of these combinations" in said or len(plans) == 1
        return
    wanted = min(well, key=lambda row: (number(row["levelised per M tokens"]), rows.index(row)))
    found = re.search(r"nodes = (\d+)", said)
    assert found
    chosen = next(row for row in rows if row["nodes"] == found[1])
    assert chosen in well
    assert number(chosen["levelised per M tokens"]) == number(wanted["levelised per M tokens"])


@given(SHARES, st.floats(0, 1), st.integers(0, 19))
@example(0.909, 0.6, 3)  # it was told both of nodes too many and of too few
@example(0.999, 0.6, 19)
def test_a_run_gets_one_piece_of_advice_about_its_size(
    worst: float, idle: float, kept: int
) -> None:
    summary = run_of(verdict_of(kept, lowest=worst), idle)
    advice = fleet_size_advice(summary)
    said = " ".join([*run_report.verdict_lines(summary)[1:], *run_report.findings(summary)])
    assert said.count(advice) == 1 or not advice
    assert ("look for a smaller plan" in said) == (kept == 19 and idle > 0.5)
    status = summary.verdict.status
    assert ("meet the target: planner run --advise" in said) == (status == "MISSED")
    assert run_report.verdict_lines(summary)[0].startswith(f"SLO {status}")


def test_a_plan_without_a_verdict_is_neither_recommended_nor_called_no_alternative() -> None:
    verdicts = {
        "sure": verdict_of(19),
        "open": verdict_of(15, 16),
        "never": verdict_of(3, 19, shortfall=0.1),
    }
    plans = [ranked_plan(name, {**GOOD, COST: 1.0}, verdict) for name, verdict in verdicts.items()]
    choice = rank([plans[1], plans[2], plans[0]])
    assert [plan.name for plan in choice.plans] == ["sure", "open", "never"]
    assert choice.best is plans[0]
    assert [said.partition(" ")[0] for said in no_alternatives(choice)] == ["never"]
    assert inconclusive_lines(choice) == [
        "open: SLO INCONCLUSIVE at n = 16: P(SLO met) 94% [78, 99] against 90% required; re-run with -n 256."
    ]
    without = rank(plans[1:])
    assert without.best is None
    assert none_met(without) == "None of these plans is known to meet its SLO target."
    assert none_met(rank(plans[1:2])) == ""  # one plan is no choice
    assert none_met(rank(plans[2:])).startswith(
        "never serves 99.90% of requests within the SLO over the horizon and misses its SLO target by 10.00 points in "
        "its worst month."
    )


def test_a_verdict_is_said_in_a_line() -> None:
    said = verdict_line(verdict_of(19, lowest=0.9846))
    assert said == (
        "SLO MET in 19/19 replications (target 99% per month and workload, the default, in 90% of replications). "
        "Lowest of them 98.46%; base case 98.46% (chat, 2027-03)."
    )
    over = replace(
        verdict_of(0, 1, 0.9712), stated=True, per="horizon", scope="fleet", attainment=0.999
    )
    assert verdict_line(over) == (
        "SLO MISSED: 0/1 replications meet the target (99.9% over the horizon, all workloads together, in 90% "
        "of replications). First missed 2027-02. Base case 97.12% (chat, 2027-03)."
    )
    assert (
        "INCONCLUSIVE at n = 1: P(SLO met) 100% [23, 100] against 90% required; re-run with -n 19"
        in verdict_line(verdict_of(1, 1))
    )
    assert "99.998%" in verdict_line(verdict_of(1, 1, 0.99998))
    assert "no request to serve" in verdict_line(verdict_of(0, 0))


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_intervals_are_said_from_low_to_high(one: float, other: float) -> None:
    said = interval_words((one, other))
    assert said == interval_words((other, one))
    ends = [float(end) for end in re.findall(r"([\d.]+)%", said)]
    if len(ends) == 2 and said.count("less") + said.count("more") == 1:
        assert ends == sorted(ends)
    if "less" in said and "more" in said:
        assert said.index("less") < said.index("more")


@settings(max_examples=40)
@given(st.lists(figures(), min_size=1, max_size=3), st.sampled_from([COST, "npv_usd"]))
def test_a_study_recommends_no_plan_that_fails_its_users(
    plans: list[Figures], objective: str
) -> None:
    lines = ["scenario,output,statistic,value,low,high"]
    slo_target = [
        "scenario,attainment_fraction,per,scope,confidence_fraction,stated,verdict,slo_met_fraction,slo_met_low,"
        "slo_met_high,shortfall_fraction,first_missed_month,best_fraction,best_low,best_high,replications"
    ]
    for i, plan in enumerate(plans):
        lines += [f"plan{i},{name},mean,{plan[name]!r},," for name in (ATTAINMENT, SHED, COST)]
        lines.append(f"plan{i},npv_usd,mean,{-(plan[COST] or 0.0)!r},,")
        met = 20 if plan[SHORTFALL] == 0 else 3
        status = Verdict(met, 20, 0.9).status
        slo_target.append(
            f"plan{i},0.99,month,workload,0.9,no,{status},{met / 20},0,1,{plan[SHORTFALL]!r},,,,,20"
        )
    files = {"percentiles": "\n".join(lines), "slo_target": "\n".join(slo_target)}
    contents = contents_of({"kind": "study", "objective": objective}, files)
    section = study_report.answer_section(contents, StudyResults.read(contents))
    said = sentences(section)
    well = {f"plan{i}": plan[COST] for i, plan in enumerate(plans) if plan[SHORTFALL] == 0}
    order = [row["scenario"] for row in table_of(section)]
    assert {*order[: len(well)]} == {*well}
    if len(plans) == 1:
        assert ("MISSED 3/20" in said) == (not well)
    elif well:
        assert well[said.split()[0]] == min(cost for cost in well.values() if cost is not None)
        assert said.count("is no alternative") == len(plans) - len(well)
    else:
        assert said.strip().startswith("None of these plans meets its SLO target.")


def beats(one: RankedPlan, other: RankedPlan) -> bool:
    """Say whether a plan must stand before another, as one would explain it to a buyer."""
    keeps = [plan.shortfall_fraction == 0 for plan in (one, other)]
    if keeps[0] != keeps[1]:
        return keeps[0]
    assert one.cost is not None
    assert other.cost is not None
    if keeps[0] or one.shortfall_fraction == other.shortfall_fraction:
        return one.cost < other.cost
    return (one.shortfall_fraction or 0) < (other.shortfall_fraction or 0)


@given(st.lists(figures(), min_size=1, max_size=6))
def test_the_ranking_is_what_comparing_every_pair_gives(plans: list[Figures]) -> None:
    """In order of how many others beat it, and of those alike the one named first."""
    judged = [ranked_plan(f"p{i}", plan) for i, plan in enumerate(plans)]
    beaten = {plan.name: sum(beats(other, plan) for other in judged) for plan in judged}
    choice = rank(judged)
    assert [plan.name for plan in choice.plans] == sorted(
        beaten, key=lambda name: (beaten[name], int(name[1:]))
    )
    assert {plan.name for plan in choice.met_plans} == {
        f"p{i}" for i, plan in enumerate(plans) if (plan[LOWEST_ATTAINMENT] or 0.0) >= TARGET - 5e-7
    }


@given(st.lists(figures(), min_size=1, max_size=6))
def test_the_cheapest_plan_that_meets_its_slo_target_is_on_the_frontier(
    plans: list[Figures],
) -> None:
    judged = [ranked_plan(f"p{i}", plan) for i, plan in enumerate(plans)]
    best = rank(judged).best
    edge = frontier(judged)
    assert [plan.cost for plan in edge] == sorted(plan.cost or 0 for plan in edge)
    if best is not None:
        assert any(plan.cost == best.cost and plan.meets_slo for plan in edge)


def test_what_is_short_over_replications_is_short_whatever_one_of_them_shows() -> None:
    lucky = ranked_plan("p", {**GOOD, SHED: 0.0, COST: 1.0}, verdict_of(3, shortfall=0.02))
    assert not lucky.meets_slo
    assert lucky.standing == "MISSED 3/19"
    assert "2.00 points" in sweep_advice(rank([lucky]))
    assert ranked_plan("p", {**GOOD, SHED: 0.04, COST: 1.0}, verdict_of(19)).standing == "MET 19/19"


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(0.1, 0.9))
def test_what_chance_may_explain_is_not_called_a_difference(
    one: float, other: float, cost: float
) -> None:
    low, high = sorted((one, other))
    assume(low != high)
    plans = {"base": {ATTAINMENT: 1.0, COST: 1.0}, "rival": {ATTAINMENT: 1.0, COST: cost}}
    summary = comparison_of(plans, {"rival": (low, high)})
    said = recommendation(comparison_report.compared_plans(summary), summary)
    assert ("no clear difference" in said) == (low <= 0 <= high)


def test_a_comparison_won_by_the_baseline_names_the_next() -> None:
    good = {ATTAINMENT: 1.0, COST: 1.0}
    summary = comparison_of({"tiny": good, "dear": {**good, COST: 2.0}})
    said = recommendation(comparison_report.compared_plans(summary), summary)
    assert said.endswith("It is the baseline; the next cheapest, dear, costs 100.0% more.")


def test_a_baseline_that_is_not_there_is_named() -> None:
    summary = replace(comparison_of({"mixed": {COST: 1.0}}), baseline="mixd")
    with pytest.raises(ScenarioError, match="names 'mixd' as the baseline"):
        comparison_report.compared_plans(summary)


def test_nothing_served_is_not_called_cheap() -> None:
    summary = comparison_of({name: {ATTAINMENT: None, COST: None} for name in ("a", "b")})
    said = recommendation(comparison_report.compared_plans(summary), summary)
    assert said == "None of these plans had a request to serve."


def test_real_plans_are_judged_by_their_own_tables(
    planner: Planner, write: WriteScenario, tiny: str, tmp_path: Path
) -> None:
    """Fleets from far too small to roomy: in the table, on the page and on the terminal the same plan is taken."""
    write(
        tiny.replace("requests_per_s: 5", "requests_per_s: 900").replace("mean: 500", "mean: 2000")
    )
    swept = planner("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=0,2,12,16", "--set", "clusters.mi325x=null",
                    "--out", "s")  # fmt: skip
    assert swept.code == 0, swept.err
    rows = [line.split(",") for line in (tmp_path / "s" / "sweep.csv").read_text().splitlines()]
    table = [dict(zip(rows[0], row, strict=False)) for row in rows[1:] if row[1]]
    well = [row for row in table if float(row[LOWEST_ATTAINMENT]) >= 0.99]
    assert [row for row in table if float(row[SHORTFALL]) == 0] == well
    assert 0 < len(well) < len(table)
    cheapest = min(table, key=lambda row: float(row[COST]))
    chosen = min(well, key=lambda row: float(row[COST]))
    assert chosen is not cheapest  # or this test would show nothing
    nodes = chosen["clusters.h200.nodes"]
    page = text_of((tmp_path / "s" / "report.html").read_text(encoding="utf-8"))
    wanted = re.compile(f"[Cc]heapest of them is (?:clusters.h200.nodes|nodes, h200) = {nodes},")
    assert wanted.search(" ".join(swept.out.split()))
    assert wanted.search(page)


def test_a_study_on_a_terminal_names_the_plans_that_fail() -> None:
    mean = Estimate(value=1.0, low=0.9, high=1.1)
    statistics = dict.fromkeys(("mean", "p5", "p10", "p50", "p90", "p95"), mean)
    unknown = Estimate(value=None, low=None, high=None)
    summary = StudySummary(
        schema_version=SCHEMA_VERSION,
        study="both",
        objective=COST,
        replications=20,
        simulated=20,
        completed=20,
        scenarios={"a": statistics, "b": statistics},
        service={"b": {ATTAINMENT: 0.42, SHED: 0.5}, "a": {ATTAINMENT: 0.999, SHED: 0.0}},
        verdicts={
            "a": replace(verdict_of(20, 20), best_fraction=mean),
            "b": replace(verdict_of(1, 20, shortfall=0.5), best_fraction=unknown),
        },
        decisions=[],
        drivers=[],
        flips=[],
        npv_above_zero={},
        warnings=[],
        failures=[],
        dropped=[],
    )
    said = " ".join(study_text(summary).split())
    assert "Cheapest plan that is MET: a, with P(SLO met) 100% " in said
    assert "b is no alternative: it serves 42.00% of requests within the SLO" in said
    assert "a is no alternative" not in said
    lines = study_text(summary, verbose=True).splitlines()
    first, second = (re.split(r"  +", line) for line in lines if re.match(r"[ab]  +M", line))
    assert first == ["a", "MET 20/20", "1", "1", "1", "1", "100%"]
    assert second == ["b", "MISSED 1/20", "1", "1", "1", "1"]
    assert max(map(len, lines)) <= 80
