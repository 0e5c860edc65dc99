"""Advice is held against the table it stands beside, over many made-up plans and a few real ones."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner.answers import comparison_report, run_report, study_report
from planner.answers.judgement import (
    ATTAINED,
    COST,
    SHED,
    SHORTFALL,
    WORST,
    Served,
    choose,
    frontier,
    inconclusive_lines,
    interval_words,
    none_keeps,
    recommendation,
    served,
    sizing,
    sweep_advice,
    verdict_line,
    verdict_record,
    warnings_of,
)
from planner.answers.study import study_table
from planner.output.blocks import Grid, Section, Sentence
from planner.plan.attainment import Verdict
from planner.scenario.loading import load_scenario
from tests.answers.hand_made import contents_of, without_badges
from tests.conftest import TINY, Planner

Write = Callable[..., Path]
Figures = dict[str, float | None]

SHARES = st.one_of(
    st.floats(0.0, 1.0), st.floats(0.985, 1.0), st.sampled_from([0.42, 0.9899, 0.989999, 0.99, 1.0])
)
"""Shares in time, most of them near the mark, where a sentence and a table could part."""
PROMISED = 0.99


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
    return {ATTAINED: attainment, WORST: worst, SHORTFALL: round(max(0.0, PROMISED - worst), 6)}


GOOD = standing(0.999, 0.995)
POOR = standing(0.21, 0.0)


def text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", markup))


MUCH_SHED = re.compile(
    r"\S+ sheds \S+ of the tokens asked of it: every other figure is of the rest\."
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


def shown_met(row: dict[str, str]) -> bool:
    """Judge a row by nothing but what it shows."""
    assert row["SLO"] == "met" or row["SLO"].startswith("missed by ") or row["SLO"] == "–"
    return row["SLO"] == "met"


def comparison_of(plans: Sequence[Figures]) -> Section:
    names = [f"plan{i}" for i in range(len(plans))]
    lines = ["scenario,measure,value"]
    lines += [
        f"{name},{key},{value!r}"
        for name, plan in zip(names, plans, strict=True)
        for key, value in plan.items()
    ]
    section = comparison_report.answer_section(
        contents_of({"kind": "comparison"}, {"comparison": "\n".join(lines)})
    )
    assert section is not None
    return section


@settings(max_examples=40)
@given(st.lists(figures(), min_size=2, max_size=4))
@example([{**GOOD, SHED: 0.0, COST: 1.0}, {**POOR, SHED: 0.79, COST: 0.315}])  # it "saved 68.5%"
@example(
    [{**GOOD, SHED: 0.0, COST: 1.0}, {**standing(0.97, 0.95), SHED: 0.0, COST: 1.087}]
)  # "what it saves", −8.7%
def test_a_comparison_says_what_its_table_shows(plans: list[Figures]) -> None:
    section = comparison_of(plans)
    said = sentences(section)
    rows = table_of(section)
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
    columns = (ATTAINED, WORST, SHORTFALL, SHED, "cost_usd", COST)
    lines = [f"nodes,utilisation_fraction,cost_per_million_tokens_usd,{','.join(columns)}"]
    lines += [
        f"{i},0.5,1.0," + ",".join(repr(plan[key]) if plan else "" for key in columns)
        for i, plan in enumerate(plans)
    ]
    slo_target = {"attainment": PROMISED, "per": "month", "scope": "workload"}
    manifest = {
        "kind": "sweep",
        "vary": {"nodes": [str(i) for i in range(len(plans))]},
        "slo_target": slo_target,
    }
    section = comparison_report.sweep_section(contents_of(manifest, {"sweep": "\n".join(lines)}))
    assert section is not None
    said = sentences(section)
    rows = table_of(section)
    well = [row for row in rows if shown_met(row)]
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


def record_of(
    met: int, replications: int = 19, worst: float = 0.999, shortfall: float = 0.0
) -> dict[str, Any]:
    """Return the verdict of a plan that meets the default SLO target in some of its replications."""
    scenario = load_scenario(yaml.safe_load(TINY))
    moment = {"month": "2027-03", "workload": "chat", "slo_attainment_fraction": worst}
    return verdict_record(
        Verdict(met, replications, 0.9), scenario, shortfall_fraction=shortfall, lowest_fraction=worst,
        first_missed_month="2027-02" if met < 0.9 * replications else None, base_case=moment,
    )  # fmt: skip


def summary_of(worst: float, idle: float, kept: int, replications: int = 19) -> dict[str, Any]:
    """Return a run of 19 replications, of which some meet the SLO target; the one shown has the worst share given."""
    fleet = {
        ATTAINED: worst,
        SHED: 0.0,
        "cost_usd": 1e6,
        "served_tokens": 10**12,
        "utilisation_fraction": 0.4,
    }
    return {
        "clusters": {"fleet": {**fleet, "cost_per_million_tokens_usd": 1.0}},
        "capacity_fraction": {"idle": idle},
        "verdict": record_of(kept, replications, worst),
    }


@given(SHARES, st.floats(0, 1), st.integers(0, 19))
@example(0.909, 0.6, 3)  # it was told both of nodes too many and of too few
@example(0.999, 0.6, 19)
def test_a_run_gets_one_piece_of_advice_about_its_size(
    worst: float, idle: float, kept: int
) -> None:
    summary = summary_of(worst, idle, kept)
    said = " ".join([*run_report.verdict(summary)[1:], *run_report.findings(summary)])
    assert said.count(sizing(summary)) == 1 or not sizing(summary)
    assert ("or too large?" in said) == (kept == 19 and idle > 0.5)
    status = summary["verdict"]["status"]
    assert ("planner run --advise finds how many more nodes" in said) == (status == "MISSED")
    assert run_report.verdict(summary)[0].startswith(f"SLO {status}")


def test_a_plan_without_a_verdict_is_neither_recommended_nor_called_no_alternative() -> None:
    records = {
        "sure": record_of(19),
        "open": record_of(15, 16),
        "never": record_of(3, 19, shortfall=0.1),
    }
    plans = [served(name, {**GOOD, COST: 1.0}, record) for name, record in records.items()]
    choice = choose([plans[1], plans[2], plans[0]])
    assert [plan.name for plan in choice.ranked] == ["sure", "open", "never"]
    assert choice.best is plans[0]
    assert [said.partition(" ")[0] for said in warnings_of(choice)] == ["never"]
    assert inconclusive_lines(plans) == [
        "open: SLO INCONCLUSIVE at n = 16: P(SLO met) 94% [78, 99] against 90%; re-run with -n 256."
    ]
    without = choose(plans[1:])
    assert without.best is None
    assert none_keeps(without) == "None of these plans is known to meet its SLO target."
    assert none_keeps(choose(plans[1:2])) == ""  # one plan is no choice
    assert none_keeps(choose(plans[2:])).startswith(
        "never attains 99.90% and misses its SLO target by 10.00 points"
    )


def test_a_verdict_is_said_in_a_line() -> None:
    said = verdict_line(record_of(19, worst=0.9846))
    assert said == (
        "SLO MET in 19/19 replications (target 99% per month and workload, the default, in 90% of replications). "
        "Lowest 98.46%; base case 98.46%, chat, 2027-03."
    )
    over = record_of(0, 1, 0.9712) | {
        "stated": True,
        "per": "horizon",
        "scope": "fleet",
        "attainment": 0.999,
    }
    assert verdict_line(over) == (
        "SLO MISSED: 0/1 replications meet the target (99.9% over the horizon, all workloads together, in 90% "
        "of replications). First missed 2027-02. Base case 97.12%, chat, 2027-03."
    )
    assert (
        "INCONCLUSIVE at n = 1: P(SLO met) 100% [23, 100] against 90%; re-run with -n 19"
        in verdict_line(record_of(1, 1))
    )
    assert "99.998%" in verdict_line(record_of(1, 1, 0.99998))
    assert "no request to serve" in verdict_line(record_of(0, 0))


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_intervals_are_said_from_low_to_high(one: float, other: float) -> None:
    said = interval_words(one, other)
    assert said == interval_words(other, one)
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
        lines += [f"plan{i},{name},mean,{plan[name]!r},," for name in (ATTAINED, SHED, COST)]
        lines.append(f"plan{i},npv_usd,mean,{-(plan[COST] or 0.0)!r},,")
        met = 20 if plan[SHORTFALL] == 0 else 3
        status = Verdict(met, 20, 0.9).status
        slo_target.append(
            f"plan{i},0.99,month,workload,0.9,no,{status},{met / 20},0,1,{plan[SHORTFALL]!r},,,,,20"
        )
    files = {"percentiles": "\n".join(lines), "slo_target": "\n".join(slo_target)}
    section = study_report.answer_section(
        contents_of({"kind": "study", "objective": objective}, files)
    )
    assert section is not None
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
    assert [plan.name for plan in choice.ranked] == sorted(
        beaten, key=lambda name: (beaten[name], int(name[1:]))
    )
    assert {plan.name for plan in choice.keeping} == {
        f"p{i}" for i, plan in enumerate(plans) if (plan[WORST] or 0.0) >= PROMISED - 5e-7
    }


@given(st.lists(figures(), min_size=1, max_size=6))
def test_the_cheapest_plan_that_meets_its_slo_target_is_on_the_frontier(
    plans: list[Figures],
) -> None:
    judged = [served(f"p{i}", plan) for i, plan in enumerate(plans)]
    best = choose(judged).best
    edge = frontier(judged)
    assert [plan.cost for plan in edge] == sorted(plan.cost or 0 for plan in edge)
    if best is not None:
        assert any(plan.cost == best.cost and plan.meets_slo for plan in edge)


def test_what_is_short_over_replications_is_short_whatever_one_of_them_shows() -> None:
    lucky = served("p", {**GOOD, SHED: 0.0, COST: 1.0}, record_of(3, shortfall=0.02))
    assert not lucky.meets_slo
    assert lucky.standing == "MISSED 3/19"
    assert "2.00 points" in sweep_advice(choose([lucky]))
    assert served("p", {**GOOD, SHED: 0.04, COST: 1.0}, record_of(19)).standing == "MET 19/19"


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(0.1, 0.9))
def test_what_chance_may_explain_is_not_called_a_difference(
    one: float, other: float, cost: float
) -> None:
    low, high = sorted((one, other))
    assume(low != high)
    kept = record_of(19)
    plans = [
        served("base", {ATTAINED: 1.0, COST: 1.0}, kept),
        served("rival", {ATTAINED: 1.0, COST: cost}, kept),
    ]
    summary = {
        "saving_interval_fraction": {"rival": [low, high]},
        "replications": {"rival": {"words": "nine of ten replications"}},
    }
    said = recommendation(plans, "base", summary)
    assert ("no clear difference" in said) == (low <= 0 <= high)


def test_nothing_served_is_not_called_cheap() -> None:
    nothing = [served(name, {ATTAINED: None, COST: None}) for name in ("a", "b")]
    assert recommendation(nothing, "a", {}) == "None of these plans had a request to serve."


def test_real_plans_are_judged_by_their_own_tables(
    planner: Planner, write: Write, tiny: str, tmp_path: Path
) -> None:
    """Fleets from far too small to roomy: in the sweep, the comparison and the terminal the same plan is taken."""
    write(
        tiny.replace("requests_per_s: 5", "requests_per_s: 900").replace("mean: 500", "mean: 2000")
    )
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
    wanted = re.compile(f"cheapest: (?:clusters.h200.nodes|nodes, h200) = {nodes}[,:]")
    assert wanted.search(" ".join(swept.out.split()))
    assert wanted.search(page)

    names = {"roomy": "12", "poor": cheapest["clusters.h200.nodes"]}
    for name, count in names.items():
        write(
            f"extends: tiny.yaml\nname: {name}\nclusters: {{mi325x: null, h200: {{nodes: {count}}}}}\n",
            f"{name}.yaml",
        )
    compared = planner("compare", "roomy.yaml", "poor.yaml", "--out", "c", "--fail-on-miss")
    assert compared.code == 0, compared.err
    page = text_of(without_badges((tmp_path / "c" / "report.html").read_text(encoding="utf-8")))
    for said in (" ".join(compared.out.split()), page):
        assert "roomy is the only one of these plans that is MET" in said
        assert "poor is no alternative as it stands" in said
        assert "saves" not in said
    figures = json.loads((tmp_path / "c" / "summary.json").read_text())
    assert figures["baseline"] == "roomy"

    small = planner("run", "poor.yaml", "--replications", "1", "--out", "r", "--fail-on-miss")
    assert small.code == 3
    assert "SLO MISSED: 0/1 replications" in " ".join(small.out.split())
    assert "planner run --advise finds" in small.out
    assert "fewer nodes" not in small.out


def test_a_study_on_a_terminal_names_the_plans_that_fail() -> None:
    mean = {"value": 1.0, "low": 0.9, "high": 1.1}
    statistics = dict.fromkeys(("mean", "p5", "p10", "p50", "p90", "p95"), mean)
    summary = {
        "study": "both", "objective": COST, "replications": 20, "simulated": 20, "completed": 20, "information": [],
        "scenarios": {"a": statistics, "b": statistics},
        "service": {"b": {ATTAINED: 0.42, SHED: 0.5}, "a": {ATTAINED: 0.999, SHED: 0.0}},
        "verdicts": {
            "a": record_of(20, 20) | {"best_fraction": mean},
            "b": record_of(1, 20, shortfall=0.5) | {"best_fraction": dict.fromkeys(mean)},
        },
        "decisions": [], "drivers": [], "flips": [], "failures": [], "dropped": [],
    }  # fmt: skip
    said = " ".join(study_table(summary).split())
    assert "Cheapest plan that is MET: a." in said
    assert "b is no alternative as it stands: it attains 42.00%" in said
    assert "a is no alternative" not in said
    lines = study_table(summary, verbose=True).splitlines()
    first, second = (re.split(r"  +", line) for line in lines if re.match(r"[ab]  +M", line))
    assert first == ["a", "MET 20/20", "1", "1", "1", "1", "100%"]
    assert second == ["b", "MISSED 1/20", "1", "1", "1", "1"]
    assert max(map(len, lines)) <= 80
