"""Advice is held against the table it stands beside, over many made-up plans and a few real ones."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner.answers import comparison_report, run_report, study_report
from planner.answers.judgement import (
    COST,
    IN_TIME,
    SHED,
    SHORTFALL,
    WORST,
    Served,
    choose,
    frontier,
    recommendation,
    served,
    sizing,
    slo_verdict,
    sweep_advice,
    undecided,
    undecided_lines,
    warnings_of,
)
from planner.answers.study import study_table
from planner.output.blocks import Grid, Section, Sentence
from tests.answers.hand_made import contents_of
from tests.conftest import Planner

Write = Callable[..., Path]
Figures = dict[str, float | None]

SHARES = st.one_of(st.floats(0.0, 1.0), st.floats(0.985, 1.0), st.sampled_from([0.42, 0.9899, 0.989999, 0.99, 1.0]))
"""Shares in time, most of them near the mark, where a sentence and a table could part."""
PROMISED = 0.99


@st.composite
def figures(draw: st.DrawFn) -> Figures:
    attainment, worst = draw(SHARES), draw(SHARES)
    shed = draw(st.one_of(st.just(0.0), st.floats(0.0, 0.02), st.floats(0.0, 1.0)))
    cost = draw(st.one_of(st.floats(0.001, 90.0), st.sampled_from([1.0, 2.0])))
    return {**standing(max(attainment, worst), min(attainment, worst)), SHED: shed, COST: cost,
            "cost_usd": draw(st.floats(1e3, 1e9))}  # fmt: skip


def standing(attainment: float, worst: float) -> Figures:
    """Return how a plan serves and stands to an SLO target of 99%, as a file holds it."""
    return {IN_TIME: attainment, WORST: worst, SHORTFALL: round(max(0.0, PROMISED - worst), 6)}


GOOD, POOR = standing(0.999, 0.995), standing(0.21, 0.0)


def text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", markup))


MUCH_SHED = re.compile(r"\S+ sheds \S+ of the tokens asked of it: every other figure is of the rest\.")


def sentences(section: Section) -> str:
    """Return what a section says, but for how much is shed, which stands before all advice."""
    return MUCH_SHED.sub("", " ".join(block.text for block in section.blocks if isinstance(block, Sentence)))


def table_of(section: Section) -> list[dict[str, str]]:
    """Return the first grid of a section as a reader sees it, without what is drawn."""
    grid = next(block for block in section.blocks if isinstance(block, Grid))
    return [
        {str(title): cell for title, cell in zip(grid.header, row, strict=True) if isinstance(cell, str)}
        for row in grid.rows
    ]


def number(cell: str) -> float:
    return float(re.sub(r"[$,%<]", "", cell).replace("−", "-"))


def shown_met(row: dict[str, str]) -> bool:
    """Judge a row by nothing but what it shows."""
    assert row["SLO"] == "met" or row["SLO"].startswith("missed by ") or row["SLO"] == "–"
    return row["SLO"] == "met"


def comparison_of(plans: Sequence[Figures]) -> Section:
    names = [f"plan{i}" for i in range(len(plans))]
    lines = ["scenario,measure,value"]
    lines += [f"{name},{key},{value!r}" for name, plan in zip(names, plans, strict=True) for key, value in plan.items()]
    section = comparison_report.answer_section(contents_of({"kind": "comparison"}, {"comparison": "\n".join(lines)}))
    assert section is not None
    return section


@settings(max_examples=40)
@given(st.lists(figures(), min_size=2, max_size=4))
@example([{**GOOD, SHED: 0.0, COST: 1.0}, {**POOR, SHED: 0.79, COST: 0.315}])  # it "saved 68.5%"
@example([{**GOOD, SHED: 0.0, COST: 1.0}, {**standing(0.97, 0.95), SHED: 0.0, COST: 1.087}])  # "what it saves", −8.7%
def test_a_comparison_says_what_its_table_shows(plans: list[Figures]) -> None:
    section = comparison_of(plans)
    said, rows = sentences(section), table_of(section)
    assert "saves" not in said
    well = [row for row in rows if shown_met(row)]
    assert rows == well + [row for row in rows if row not in well]
    if not well:
        assert said.strip().startswith("None of these plans meets its SLO target")
        return
    name = said.split()[0]
    assert rows[0]["scenario"].split()[0] == name or rows[0]["levelised per M tokens"] == "–"
    (chosen,) = (row for row in rows if row["scenario"].split()[0] == name)
    (base,) = (row for row in rows if "(baseline)" in row["scenario"])
    assert chosen in well
    assert number(chosen["levelised per M tokens"]) <= min(number(row["levelised per M tokens"]) for row in well)
    for row in rows:
        label, stands = row["scenario"].split()[0], row["a token, against the baseline"]
        if row is base or (row not in well and base in well):
            assert stands == "–"  # what misses its SLO target is not held against what keeps it
        if row in well and row is not base:
            assert stands != "–"
        assert (f"{label} is no alternative" in said) == (row not in well)
        if "less" in stands:
            assert number(row["levelised per M tokens"]) <= number(base["levelised per M tokens"])
    if chosen is not base and base in well:
        stands = chosen["a token, against the baseline"]
        assert f"{stands} than the baseline" in said
        assert "more" not in stands


@settings(max_examples=40)
@given(st.lists(st.one_of(figures(), st.just({})), min_size=1, max_size=8))
def test_a_sweep_recommends_the_cheapest_row_that_meets_its_slo_target(plans: list[Figures]) -> None:
    columns = (IN_TIME, WORST, SHORTFALL, SHED, "cost_usd", COST)
    lines = [f"nodes,utilisation_fraction,cost_per_million_tokens_usd,{','.join(columns)}"]
    lines += [
        f"{i},0.5,1.0," + ",".join(repr(plan[key]) if plan else "" for key in columns) for i, plan in enumerate(plans)
    ]
    slo_target = {"attainment": PROMISED, "per": "month", "scope": "workload"}
    manifest = {"kind": "sweep", "vary": {"nodes": [str(i) for i in range(len(plans))]}, "slo_target": slo_target}
    section = comparison_report.sweep_section(contents_of(manifest, {"sweep": "\n".join(lines)}))
    assert section is not None
    said, rows = sentences(section), table_of(section)
    well = [row for row in rows if shown_met(row)]
    assert [row["SLO"] == "met" for row in rows] == [True] * len(well) + [False] * (len(rows) - len(well))
    if not well:
        assert "None of these combinations" in said
        return
    wanted = min(well, key=lambda row: (number(row["levelised per M tokens"]), rows.index(row)))
    found = re.search(r"nodes = (\d+)", said)
    assert found
    chosen = next(row for row in rows if row["nodes"] == found[1])
    assert chosen in well
    assert number(chosen["levelised per M tokens"]) == number(wanted["levelised per M tokens"])


def summary_of(worst: float, idle: float, kept: int, replications: int = 19) -> dict[str, Any]:
    """Return a run of 19 replications, of which some meet the SLO target; the one shown has the worst share given."""
    broken = worst < PROMISED
    moment = {"month": "2027-03", "workload": "chat", "slo_attainment_fraction": worst}
    enough = kept >= 0.9 * replications
    fleet = {IN_TIME: worst, SHED: 0.0, "cost_usd": 1e6, "served_tokens": 10**12, "utilisation_fraction": 0.4}
    return {
        "clusters": {"fleet": {**fleet, "cost_per_million_tokens_usd": 1.0}},
        "capacity_fraction": {"idle": idle},
        "slo_target": {
            "attainment": PROMISED, "per": "month", "scope": "workload", "confidence": 0.9, "stated": False,
            "met": enough, "shortfall_fraction": 0.0 if enough else 0.1, "worst": moment,
            "first_missed_month": None if enough else "2027-02", "first_missed": moment if broken else None,
            "replications": replications, "slo_met_replications": kept,
        },
    }  # fmt: skip


@given(SHARES, st.floats(0, 1), st.integers(0, 19))
@example(0.909, 0.6, 3)  # it was told both of nodes too many and of too few
@example(0.999, 0.6, 19)
def test_a_run_gets_one_piece_of_advice_about_its_size(worst: float, idle: float, kept: int) -> None:
    kept = min(max(kept, int(worst >= PROMISED)), 18 if worst < PROMISED else 19)
    summary = summary_of(worst, idle, kept)
    said = " ".join([*run_report.verdict(summary)[1:], *run_report.findings(summary)])
    assert said.count(sizing(summary)) == 1 or not sizing(summary)
    enough = kept >= 0.9 * 19
    assert ("nodes too many" in said) == (kept == 19 and idle > 0.5)
    assert ("planner run --advise finds how many more nodes" in said) == (not enough)
    assert sizing(summary) in said
    first = run_report.verdict(summary)[0]
    assert first.startswith("SLO met (99% of requests in time" if enough else "SLO missed, first in 2027-02 (")
    assert f"met in {kept} of 19 replications" in first
    assert "the default" in first


def test_a_study_that_is_too_small_to_tell_does_not_call_a_plan_no_alternative() -> None:
    slos = {name: {"confidence": 0.9} for name in ("sure", "open", "never")}
    open_still = undecided(slos, {"sure": (0.9, 1.0), "open": (0.625, 1.0), "never": (0.2, 0.8)})
    assert open_still == ["open"]
    assert undecided(slos, {"sure": (None, None)}) == []
    choice = choose([served(name, {**POOR, COST: 1.0}, 0.1) for name in ("open", "never")])
    assert [said.partition(" ")[0] for said in warnings_of(choice, open_still)] == ["never"]
    assert "whether open meets the SLO target" in undecided_lines(open_still)[0]
    assert undecided_lines([]) == []


def test_a_verdict_says_what_is_promised_and_when_it_runs_out() -> None:
    """The words of a stated SLO target over the horizon, of one replication alone."""
    slo_target = summary_of(0.9712, 0.0, 0, 1)["slo_target"]
    said = slo_verdict(slo_target | {"stated": True, "per": "horizon", "scope": "fleet", "attainment": 0.999})
    assert said == (
        "SLO missed, first in 2027-02 (99.9% of requests in time, over the whole horizon and of all workloads "
        "together). This replication misses it first in 2027-03 with 97.12% of chat in time, and worst in 2027-03 "
        "with 97.12% of chat in time."
    )
    almost = summary_of(0.9999996, 0.0, 1, 1)["slo_target"]
    assert "least in 2027-03 with 100.00% of chat in time" in slo_verdict(almost)
    assert "99.998%" in slo_verdict(summary_of(0.99998, 0.0, 1, 1)["slo_target"])
    assert "no request to serve" in slo_verdict(almost | {"worst": None})


@settings(max_examples=40)
@given(st.lists(figures(), min_size=1, max_size=3), st.sampled_from([COST, "npv_usd"]))
def test_a_study_recommends_no_plan_that_fails_its_users(plans: list[Figures], objective: str) -> None:
    lines = ["scenario,output,statistic,value,low,high"]
    slo_target = [
        "scenario,attainment_fraction,per,scope,confidence_fraction,stated,slo_met,slo_met_fraction,slo_met_low,slo_met_high,"
        "shortfall_fraction,first_missed_month,best_fraction,best_low,best_high"
    ]
    for i, plan in enumerate(plans):
        lines += [f"plan{i},{name},mean,{plan[name]!r},," for name in (IN_TIME, SHED, COST)]
        lines.append(f"plan{i},npv_usd,mean,{-(plan[COST] or 0.0)!r},,")
        slo_target.append(f"plan{i},0.99,month,workload,0.9,no,,0.5,0.4,0.6,{plan[SHORTFALL]!r},,,,")
    files = {"percentiles": "\n".join(lines), "slo_target": "\n".join(slo_target)}
    section = study_report.answer_section(contents_of({"kind": "study", "objective": objective}, files))
    assert section is not None
    said = sentences(section)
    well = {f"plan{i}": plan[COST] for i, plan in enumerate(plans) if plan[SHORTFALL] == 0}
    order = [row["scenario"] for row in table_of(section)]
    assert {*order[: len(well)]} == {*well}
    if len(plans) == 1:
        assert ("short of its SLO target" in said) == (not well)
    elif well:
        assert well[said.split()[0]] == min(cost for cost in well.values() if cost is not None)
        assert said.count("is no alternative") == len(plans) - len(well)
    else:
        assert said.strip().startswith("None of these plans meets its SLO target")


def beats(one: Served, other: Served) -> bool:
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
    judged = [served(f"p{i}", plan) for i, plan in enumerate(plans)]
    beaten = {plan.name: sum(beats(other, plan) for other in judged) for plan in judged}
    choice = choose(judged)
    assert [plan.name for plan in choice.ranked] == sorted(beaten, key=lambda name: (beaten[name], int(name[1:])))
    assert {plan.name for plan in choice.keeping} == {
        f"p{i}" for i, plan in enumerate(plans) if (plan[WORST] or 0.0) >= PROMISED - 5e-7
    }


@given(st.lists(figures(), min_size=1, max_size=6))
def test_the_cheapest_plan_that_meets_its_slo_target_is_on_the_frontier(plans: list[Figures]) -> None:
    judged = [served(f"p{i}", plan) for i, plan in enumerate(plans)]
    best, edge = choose(judged).best, frontier(judged)
    assert [plan.cost for plan in edge] == sorted(plan.cost or 0 for plan in edge)
    if best is not None:
        assert any(plan.cost == best.cost and plan.meets_slo for plan in edge)


def test_what_is_short_over_replications_is_short_whatever_one_of_them_shows() -> None:
    lucky = served("p", {**GOOD, SHED: 0.0, COST: 1.0}, 0.02)
    assert not lucky.meets_slo
    assert lucky.standing == "missed by 2.00%"
    assert "2.00 points" in sweep_advice(choose([lucky]))
    assert served("p", {**GOOD, SHED: 0.04, COST: 1.0}, 0.0).standing == "met"


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(0.1, 0.9))
def test_what_chance_may_explain_is_not_called_a_difference(one: float, other: float, cost: float) -> None:
    low, high = sorted((one, other))
    assume(low != high)
    plans = [served("base", {IN_TIME: 1.0, COST: 1.0}, 0.0), served("rival", {IN_TIME: 1.0, COST: cost}, 0.0)]
    summary = {
        "saving_interval_fraction": {"rival": [low, high]},
        "replications": {"rival": {"words": "nine of ten replications"}},
    }
    said = recommendation(plans, "base", summary)
    assert ("cannot be told apart" in said) == (low <= 0 <= high)


def test_nothing_served_is_not_called_cheap() -> None:
    nothing = [served(name, {IN_TIME: None, COST: None}) for name in ("a", "b")]
    assert recommendation(nothing, "a", {}) == "None of these plans had a request to serve."


def test_real_plans_are_judged_by_their_own_tables(planner: Planner, write: Write, tiny: str, tmp_path: Path) -> None:
    """Fleets from far too small to roomy: in the sweep, the comparison and the terminal the same plan is taken."""
    write(tiny.replace("requests_per_s: 5", "requests_per_s: 900").replace("mean: 500", "mean: 2000"))
    swept = planner("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=0,2,12,16", "--set", "clusters.mi325x=null",
                    "--out", "s")  # fmt: skip
    assert swept.code == 0, swept.err
    rows = [line.split(",") for line in (tmp_path / "s" / "sweep.csv").read_text().splitlines()]
    table = [dict(zip(rows[0], row, strict=False)) for row in rows[1:] if row[1]]
    well = [row for row in table if float(row[WORST]) >= 0.99]
    assert [row for row in table if float(row[SHORTFALL]) == 0] == well
    assert 0 < len(well) < len(table)
    cheapest = min(table, key=lambda row: float(row[COST]))
    chosen = min(well, key=lambda row: float(row[COST]))
    assert chosen is not cheapest  # or this test would show nothing
    nodes = chosen["clusters.h200.nodes"]
    page = text_of((tmp_path / "s" / "report.html").read_text(encoding="utf-8"))
    wanted = re.compile(f"(least with|one meets its SLO target:) clusters.h200.nodes = {nodes}[,:]")
    assert wanted.search(" ".join(swept.out.split()))
    assert wanted.search(page)

    names = {"roomy": "12", "poor": cheapest["clusters.h200.nodes"]}
    for name, count in names.items():
        write(
            f"extends: tiny.yaml\nname: {name}\nclusters: {{mi325x: null, h200: {{nodes: {count}}}}}\n", f"{name}.yaml"
        )
    compared = planner("compare", "roomy.yaml", "poor.yaml", "--replications", "1", "--out", "c")
    assert compared.code == 0, compared.err
    page = text_of((tmp_path / "c" / "report.html").read_text(encoding="utf-8"))
    for said in (" ".join(compared.out.split()), page):
        assert "roomy is the only one of these plans that meets its SLO target" in said
        assert "poor is no alternative as it stands" in said
        assert "saves" not in said
    figures = json.loads((tmp_path / "c" / "summary.json").read_text())
    assert figures["baseline"] == "roomy"

    small = planner("run", "poor.yaml", "--replications", "1", "--out", "r")
    assert "SLO missed, first in 2026-0" in " ".join(small.out.split())
    assert "planner run --advise finds" in small.out
    assert "fewer nodes" not in small.out


def test_a_study_on_a_terminal_names_the_plans_that_fail() -> None:
    mean = {"value": 1.0, "low": 0.9, "high": 1.1}
    slo_target = {
        "attainment": 0.99, "per": "month", "scope": "workload", "confidence": 0.9, "stated": True, "met": True,
        "slo_met_fraction": {"value": 0.95, "low": 0.93, "high": 0.97}, "shortfall_fraction": 0.0,
        "first_missed_month": None, "best_fraction": {"value": 1.0, "low": 0.9, "high": 1.1},
    }  # fmt: skip
    statistics = dict.fromkeys(("mean", "p5", "p10", "p50", "p90", "p95"), mean)
    summary = {
        "objective": COST, "replications": 8, "completed": 8, "scenarios": {"a": statistics, "b": statistics},
        "information": [],
        "service": {"b": {IN_TIME: 0.42, SHED: 0.5}, "a": {IN_TIME: 0.999, SHED: 0.0}},
        "slo_target": {
            "a": slo_target,
            "b": slo_target | {"shortfall_fraction": 0.5, "best_fraction": dict.fromkeys(mean)},
        },
        "decisions": [], "drivers": [], "flips": [], "failures": [], "dropped": [],
    }  # fmt: skip
    said = " ".join(study_table(summary).split())
    assert "b is no alternative as it stands: it keeps 42.00% of requests in time" in said
    assert "a is no alternative" not in said
    lines = study_table(summary).splitlines()
    first, second = (re.split(r"  +", line) for line in lines if re.match(r"[ab]  .*%", line))
    assert first == ["a", "met", "95.0%", "2.0%", "99.90%", "1", "100.0%"]
    assert second == ["b", "missed by 50.00%", "95.0%", "2.0%", "42.00%", "1"]
    assert max(map(len, lines)) <= 80
