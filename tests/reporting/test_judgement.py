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

from planner.reporting.judgement import COST, IN_TIME, SHED, Served, choose, recommendation, served, sweep_advice
from planner.reporting.report import compare_sections, run_answer, study_sections
from planner.reporting.report.contents import Contents
from planner.reporting.report.page import Section
from planner.reporting.study_summary import study_table
from tests.conftest import Planner

Write = Callable[..., Path]
Figures = dict[str, float | None]

SHARES = st.one_of(st.floats(0.0, 1.0), st.floats(0.985, 1.0), st.sampled_from([0.42, 0.989949, 0.98995, 0.99, 1.0]))
"""Shares in time, most of them near the mark, where a sentence and a table could part."""


@st.composite
def figures(draw: st.DrawFn) -> Figures:
    in_time = draw(SHARES)
    shed = draw(st.one_of(st.just(0.0), st.floats(0.0, 0.02), st.floats(0.0, 1.0)))
    return {IN_TIME: in_time, SHED: shed, COST: draw(st.floats(0.001, 90.0)), "cost_usd": draw(st.floats(1e3, 1e9))}


def text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", markup))


MUCH_SHED = re.compile(r"\S+ sheds \S+ of the tokens asked of it: every other figure is of the rest\.")


def sentences(section: Section) -> str:
    """Return what a section says, but for how much is shed, which stands before all advice."""
    said = " ".join(text_of(part) for part in re.findall(r"<p\b.*?</p>", section.body, re.DOTALL))
    return MUCH_SHED.sub("", said)


def table_of(section: Section) -> list[dict[str, str]]:
    """Return the first table of a section as a reader sees it."""
    body = section.body[section.body.index("<table") : section.body.index("</table>")]
    rows = [[text_of(cell).strip() for cell in re.findall(r"<t[hd]\b.*?</t[hd]>", row, re.DOTALL)]
            for row in re.findall(r"<tr\b.*?</tr>", body, re.DOTALL)]  # fmt: skip
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def number(cell: str) -> float:
    return float(re.sub(r"[$,%<]", "", cell).replace("−", "-"))


def shown_well(row: dict[str, str]) -> bool:
    """Judge a row by nothing but what it shows."""
    return number(row["in time"]) >= 99.0 and number(row["shed"]) <= 1.0


def comparison_of(plans: Sequence[Figures]) -> Section:
    names = [f"plan{i}" for i in range(len(plans))]
    lines = ["scenario,measure,value"]
    lines += [f"{name},{key},{value!r}" for name, plan in zip(names, plans, strict=True) for key, value in plan.items()]
    files = {"comparison.csv": "\n".join(lines).encode() + b"\n"}
    section = compare_sections.answer_section(Contents(manifest={"kind": "comparison"}, files=files))
    assert section is not None
    return section


@settings(max_examples=40)
@given(st.lists(figures(), min_size=2, max_size=4))
@example([{IN_TIME: 0.999, SHED: 0.0, COST: 1.0}, {IN_TIME: 0.21, SHED: 0.79, COST: 0.315}])  # it "saved 68.5%"
@example(
    [{IN_TIME: 0.999, SHED: 0.0, COST: 1.0}, {IN_TIME: 0.95, SHED: 0.0, COST: 1.087}]
)  # and "what it saves", −8.7%
def test_a_comparison_says_what_its_table_shows(plans: list[Figures]) -> None:
    section = comparison_of(plans)
    said, rows = sentences(section), table_of(section)
    assert "saves" not in said
    well = [row for row in rows if shown_well(row)]
    if not well:
        assert said.strip().startswith("None of these plans serves well")
        return
    name = said.split()[0]
    (chosen,) = (row for row in rows if row["scenario"].split()[0] == name)
    assert chosen in well
    assert number(chosen["levelised per M tokens"]) <= min(number(row["levelised per M tokens"]) for row in well)
    for row in rows:
        label, stands = row["scenario"].split()[0], row["a token, against the baseline"]
        worse = row not in well and number(row["in time"]) < number(rows[0]["in time"]) - 0.985  # clearly, by a point
        assert (stands == "–") >= (row is rows[0] or worse)
        assert (stands == "–") <= (row is rows[0] or (row not in well and row["in time"] != rows[0]["in time"]))
        assert (f"{label} is no alternative" in said) == (row not in well)
        if "less" in stands:
            assert number(row["levelised per M tokens"]) <= number(rows[0]["levelised per M tokens"])
    if chosen is not rows[0] and rows[0] in well:
        stands = chosen["a token, against the baseline"]
        assert f"{stands} than the baseline" in said
        assert "more" not in stands


@settings(max_examples=40)
@given(st.lists(st.one_of(figures(), st.just({})), min_size=1, max_size=8))
def test_a_sweep_recommends_the_cheapest_row_that_serves_well(plans: list[Figures]) -> None:
    lines = [
        "nodes,utilisation_fraction,slo_attainment_fraction,shed_fraction,cost_usd,levelised_cost_per_million_tokens_usd"
    ]
    columns = (IN_TIME, SHED, "cost_usd", COST)
    lines += [
        f"{i},0.5," + ",".join(repr(plan[key]) if plan else "" for key in columns) for i, plan in enumerate(plans)
    ]
    manifest = {"kind": "sweep", "vary": {"nodes": [str(i) for i in range(len(plans))]}}
    contents = Contents(manifest=manifest, files={"sweep.csv": "\n".join(lines).encode() + b"\n"})
    section = compare_sections.sweep_section(contents)
    assert section is not None
    said, rows = sentences(section), table_of(section)
    well = [row for row in rows if row["in time"] != "–" and shown_well(row)]
    assert [row["serves well"] for row in rows] == ["yes"] * len(well) + ["no"] * (len(rows) - len(well))
    if not well:
        assert "None of these combinations" in said
        return
    wanted = min(well, key=lambda row: (number(row["levelised per M tokens"]), rows.index(row)))
    found = re.search(r"nodes = (\d+)", said)
    assert found
    chosen = next(row for row in rows if row["nodes"] == found[1])
    assert chosen in well
    assert number(chosen["levelised per M tokens"]) == number(wanted["levelised per M tokens"])


def summary_of(plan: Figures, idle: float, missed: float, low: float | None) -> dict[str, Any]:
    fleet = {**plan, "cost_usd": 1e6, "served_tokens": 10**12, "utilisation_fraction": 0.4}
    chance = None if low is None else {"draws": 19, "words": "w", "intervals": {IN_TIME: [low, 1.0]}}
    return {
        "clusters": {"fleet": fleet},
        "capacity_fraction": {"without_demand": idle},
        "worst_month": {"month": "2027-03", "missed_fraction": missed},
        "chance": chance,
    }


@given(figures(), st.floats(0, 1), st.floats(0, 1), st.one_of(st.none(), SHARES))
@example({IN_TIME: 0.909, SHED: 0.03, COST: 1.0}, 0.6, 0.2, 0.85)  # it was told both "fewer nodes" and "more room"
@example({IN_TIME: 0.999, SHED: 0.0, COST: 1.0}, 0.6, 0.0, 0.999)
def test_a_run_gets_one_piece_of_advice_about_its_size(
    plan: Figures, idle: float, missed: float, low: float | None
) -> None:
    said = " ".join(run_answer.findings(summary_of(plan, idle, missed, low)))
    larger = [words for words in ("too small", "Leave more room") if words in said]
    smaller = "fewer nodes" in said
    assert len(larger) + smaller <= 1
    in_time, shed = plan[IN_TIME], plan[SHED]
    assert in_time is not None
    assert shed is not None
    well = number(f"{in_time:.2%}") >= 99 and number(f"{shed:.2%}") <= 1
    assert ("too small" in said) == (not well)
    unlucky = well and low is not None and number(f"{low:.2%}") < 99
    assert ("Luck decides" in said) == unlucky
    assert ("but in 2027-03" in said) == (well and not unlucky and number(f"{missed:.2%}") > 1)
    if smaller:
        assert well
        assert idle > 0.5
        assert number(f"{missed:.2%}") <= 1
        assert low is None or number(f"{low:.2%}") >= 99


@settings(max_examples=40)
@given(st.lists(figures(), min_size=1, max_size=3), st.sampled_from([COST, "npv_usd"]))
def test_a_study_recommends_no_plan_that_fails_its_users(plans: list[Figures], headline: str) -> None:
    lines = ["scenario,output,statistic,value,low,high"]
    for i, plan in enumerate(plans):
        lines += [f"plan{i},{name},mean,{plan[name]!r},," for name in (IN_TIME, SHED, COST)]
        lines.append(f"plan{i},npv_usd,mean,{-(plan[COST] or 0.0)!r},,")
    manifest = {"kind": "study", "headline": headline}
    contents = Contents(manifest=manifest, files={"percentiles.csv": "\n".join(lines).encode() + b"\n"})
    section = study_sections.answer_section(contents)
    assert section is not None
    said = sentences(section)
    well = {f"plan{i}": plan[COST] for i, plan in enumerate(plans) if served("", plan).serves_well}
    if len(plans) == 1:
        assert ("too small" in said) == (not well)
    elif well:
        assert well[said.split()[0]] == min(cost for cost in well.values() if cost is not None)
        assert said.count("is no alternative") == len(plans) - len(well)
    else:
        assert said.strip().startswith("None of these plans serves well")


@given(st.lists(figures(), min_size=1, max_size=6))
def test_the_choice_is_what_going_through_the_list_finds(plans: list[Figures]) -> None:
    best: Served | None = None
    judged = [served(f"p{i}", plan) for i, plan in enumerate(plans)]
    for plan in judged:
        assert plan.in_time_fraction is not None
        if number(f"{plan.in_time_fraction:.2%}") < 99 or number(f"{plan.shed_fraction or 0:.2%}") > 1:
            continue
        if best is None or (plan.cost or 0) < (best.cost or 0):
            best = plan
    choice = choose(judged)
    assert choice.best is best
    assert sorted(plan.name for plan in choice.ranked) == sorted(plan.name for plan in judged)


def test_a_promise_of_its_own_moves_the_mark() -> None:
    plan = Served(name="p", in_time_fraction=0.96, shed_fraction=0.04, cost=1.0, promise_fraction=0.95)
    assert plan.serves_well
    assert not Served(name="p", in_time_fraction=0.96, shed_fraction=0.06, cost=1.0, promise_fraction=0.95).serves_well
    assert "95%" in sweep_advice(choose([Served(name="p", in_time_fraction=0.9, shed_fraction=0.0, cost=1.0,
                                                 promise_fraction=0.95)]))  # fmt: skip


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(0.1, 0.9))
def test_what_chance_may_explain_is_not_called_a_difference(one: float, other: float, cost: float) -> None:
    low, high = sorted((one, other))
    assume(low != high)
    plans = [served("base", {IN_TIME: 1.0, COST: 1.0}), served("rival", {IN_TIME: 1.0, COST: cost})]
    said = recommendation(plans, "base", (low, high, "nine of ten draws of chance"))
    assert ("cannot be told apart" in said) == (low <= 0 <= high)


def test_nothing_served_is_not_called_cheap() -> None:
    nothing = [served(name, {IN_TIME: None, COST: None}) for name in ("a", "b")]
    assert recommendation(nothing, "a") == "None of these plans had a request to serve."


def test_real_plans_are_judged_by_their_own_tables(planner: Planner, write: Write, tiny: str, tmp_path: Path) -> None:
    """Fleets from far too small to roomy: in the sweep, the comparison and the terminal the same plan is taken."""
    write(tiny.replace("requests_per_s: 5", "requests_per_s: 900").replace("mean: 500", "mean: 2000"))
    swept = planner("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=0,2,12,16", "--set", "clusters.mi325x=null",
                    "--out", "s")  # fmt: skip
    assert swept.code == 0, swept.err
    rows = [line.split(",") for line in (tmp_path / "s" / "sweep.csv").read_text().splitlines()]
    table = [dict(zip(rows[0], row, strict=False)) for row in rows[1:] if row[1]]
    well = [row for row in table if float(row[IN_TIME]) >= 0.99 and float(row[SHED]) <= 0.01]
    assert 0 < len(well) < len(table)
    cheapest = min(table, key=lambda row: float(row[COST]))
    chosen = min(well, key=lambda row: float(row[COST]))
    assert chosen is not cheapest  # or this test would show nothing
    nodes = chosen["clusters.h200.nodes"]
    page = text_of((tmp_path / "s" / "report.html").read_text(encoding="utf-8"))
    wanted = re.compile(f"(least with|one serves well:) clusters.h200.nodes = {nodes}[,:]")
    assert wanted.search(" ".join(swept.out.split()))
    assert wanted.search(page)

    names = {"roomy": "12", "poor": cheapest["clusters.h200.nodes"]}
    for name, count in names.items():
        write(
            f"extends: tiny.yaml\nname: {name}\nclusters: {{mi325x: null, h200: {{nodes: {count}}}}}\n", f"{name}.yaml"
        )
    compared = planner("compare", "roomy.yaml", "poor.yaml", "--draws", "1", "--out", "c")
    assert compared.code == 0, compared.err
    page = text_of((tmp_path / "c" / "report.html").read_text(encoding="utf-8"))
    for said in (" ".join(compared.out.split()), page):
        assert "roomy is the only one of these plans that serves well" in said
        assert "poor is no alternative as it stands" in said
        assert "saves" not in said
    figures = json.loads((tmp_path / "c" / "summary.json").read_text())
    assert figures["baseline"] == "roomy"

    small = planner("run", "poor.yaml", "--draws", "1", "--out", "r")
    assert "This plan is too small" in " ".join(small.out.split())
    assert "fewer nodes" not in small.out


def test_a_study_on_a_terminal_names_the_plans_that_fail() -> None:
    mean = {"value": 1.0, "low": 0.9, "high": 1.1}
    statistics = dict.fromkeys(("mean", "p5", "p10", "p50", "p90", "p95"), mean)
    summary = {
        "headline": COST, "replications": 8, "completed": 8, "scenarios": {"a": statistics, "b": statistics},
        "service": {"a": {IN_TIME: 0.999, SHED: 0.0}, "b": {IN_TIME: 0.42, SHED: 0.5}},
        "decisions": [], "drivers": [], "flips": [], "failures": [], "dropped": [],
    }  # fmt: skip
    said = " ".join(study_table(summary).split())
    assert "b is no alternative as it stands: it keeps 42.00% of requests in time" in said
    assert "a is no alternative" not in said
