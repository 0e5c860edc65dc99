"""Reports of comparisons, sweeps and studies, from small tables written by hand and from small runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from planner import api
from planner.answers.ranking import ATTAINMENT, SHED
from planner.answers.report import build_report, sections_of
from planner.answers.run import write_run
from planner.answers.sections import TITLES
from planner.answers.sensitivity_report import tornadoes
from planner.answers.study_report import DESIGN_NOTES
from planner.answers.study_results import StudyResults
from planner.errors import PlannerError
from planner.output.folder import Contents, read_contents
from planner.output.html import section_html
from planner.output.words import dollars, input_words
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.answers.hand_made import contents_of, without_badges
from tests.conftest import TINY, Planner, WriteScenario, files_of

PERCENTILES = "scenario,output,statistic,value,low,high\n" + "".join(
    f"{name},levelised_cost_per_million_tokens_usd,{statistic},{base * factor:.4f},{low},{high}\n"
    for name, base in (("mixed", 0.10), ("all-b200", 0.08))
    for statistic, factor, low, high in (
        ("mean", 1.0, f"{base * 0.95:.4f}", f"{base * 1.05:.4f}"), ("p5", 0.6, "", ""), ("p10", 0.7, "", ""),
        ("p50", 1.0, "", ""), ("p90", 1.3, "", ""), ("p95", 1.5, "", ""),
    )
)  # fmt: skip
SERVICE = "".join(
    f"{name},{ATTAINMENT},mean,0.999,,\n{name},{SHED},mean,0,,\n" for name in ("mixed", "all-b200")
)
PROMISE = (
    "scenario,attainment_fraction,per,scope,confidence_fraction,stated,verdict,slo_met_fraction,slo_met_low,slo_met_high,"
    "shortfall_fraction,first_missed_month,best_fraction,best_low,best_high,replications\n"
    "mixed,0.99,month,workload,0.9,no,MET,0.99,0.97,1,0,,0.1,0.05,0.15,200\n"
    "all-b200,0.99,month,workload,0.9,no,MET,0.99,0.97,1,0,,0.9,0.85,0.95,200\n"
)
DECISION = (
    "scenario,against,probability_better,probability_low,probability_high,mean_difference,difference_low,"
    "difference_high,mean_regret,p95_regret\n"
    "all-b200,mixed,0.90,0.80,0.97,-0.020,-0.025,-0.015,0.001,0.004\n"
    "mixed,all-b200,0.10,0.03,0.20,0.020,0.015,0.025,0.021,0.05\n"
)
BANDS = "scenario,output,month,mean,p5,p10,p50,p90,p95\n" + "".join(
    f"{name},utilisation_fraction,2026-{month:02d}-01,0.5,0.2,0.3,0.5,0.7,0.8\n"
    for name in ("mixed", "all-b200")
    for month in (1, 2, 3)
)
SENSITIVITY = (
    "scenario,against,method,input,measure,value,low,high\n"
    "mixed,,tornado,site.pue_ratio,base,0.1,,\n"
    "mixed,,tornado,site.pue_ratio,at_p10,0.095,0.094,0.096\n"
    "mixed,,tornado,site.pue_ratio,at_p90,0.105,0.104,0.106\n"
    "mixed,,tornado,site.pue_ratio,swing,0.01,,\n"
    "mixed,,tornado,workloads.*.growth,base,0.1,,\n"
    "mixed,,tornado,workloads.*.growth,at_p10,0.13,0.12,0.14\n"
    "mixed,,tornado,workloads.*.growth,at_p90,0.08,0.07,0.09\n"
    "mixed,,tornado,workloads.*.growth,swing,0.05,,\n"
    "mixed,all-b200,tornado,site.pue_ratio,at_p10,-0.01,,\n"
    "mixed,all-b200,tornado,site.pue_ratio,at_p90,0.03,,\n"
    "mixed,,conditional-mean,site.pue_ratio,swing,0.01,0.095,0.105\n"
    "mixed,all-b200,conditional-mean,site.pue_ratio,swing,0.01,0.015,0.025\n"
    "mixed,,variance-share,site.pue_ratio,first_order,0.2,,\n"
    "mixed,,variance-share,site.pue_ratio,noise_level,0.15,,\n"
    "mixed,,variance-share,workloads.*.growth.per_year,first_order,0.12,,\n"
    "mixed,,variance-share,workloads.*.growth.per_year,noise_level,0.15,,\n"
)
MANIFEST: dict[str, Any] = {
    "kind": "study", "replications": 64,
    "identity": {"version": "0.1.0", "seed": 1, "scenarios": {"mixed": "ab", "all-b200": "cd"}},
}  # fmt: skip

QUESTIONS = [key for key in TITLES if key not in ("futures", "loan")]
"""The sections of a report whose plans name no futures."""


UNCERTAIN = (
    "input,distribution,p10,p50,p90,unit,source,date,grade\n"
    "site.pue_ratio,percentiles,1.2,1.3,1.4,ratio,Uptime,2026-11-01,B\n"
    "clusters.*.accelerator_price_usd,lognormal,28000,31000.04,37000,USD,s.yaml:4,,user\n"
)


def answered(percentiles: str, *, manifest: dict[str, Any] = MANIFEST, **files: str) -> Contents:
    """Return a study of these statistics, in which every plan meets its SLO target."""
    return contents_of(
        manifest, {"percentiles": percentiles + SERVICE, "slo_target": PROMISE, **files}
    )


def study(without: str = "") -> Contents:
    files = {"percentiles": PERCENTILES + SERVICE, "slo_target": PROMISE, "decision": DECISION, "monthly_bands": BANDS,
             "sensitivity": SENSITIVITY, "uncertain": UNCERTAIN}  # fmt: skip
    return contents_of(MANIFEST, {name: text for name, text in files.items() if name != without})


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page)


def test_a_study_answers_with_interval_baseline_and_odds() -> None:
    page = build_report(study()).decode()
    assert sections(page) == ["answer", "time", "sensitivities", "assumptions", "reproduce"]
    (headline,) = re.findall(r'<p class="headline">(.*?)</p>', page)
    for part in ("all-b200 does best", "$0.0800 on average", "$0.0760 to $0.0840 with 95% confidence",
                 "between $0.0480 and $0.120", "It is better than the baseline, mixed, in 90% of replications",
                 "and its mean is $0.0200 (20.0%) less, $0.0150 to $0.0250 with 95% confidence"):  # fmt: skip
        assert part in headline, headline


def test_what_is_uncertain_has_source_and_grade() -> None:
    page = build_report(study()).decode()
    row = re.search(r'<th scope="row">clusters\.\*\.accelerator_price_usd</th>(.*?)</tr>', page)
    assert row
    assert re.findall(r"<td[^>]*>([^<]*)</td>", row[1]) == [
        "28,000", "31,000", "37,000", "USD", "lognormal", "s.yaml:4", "", "user",
    ]  # fmt: skip


def test_a_fan_has_a_band_for_each_scenario() -> None:
    page = build_report(study()).decode()
    assert page.count('class="band"') == 2
    assert 'id="fan-utilisation-fraction"' in page


def test_the_tornado_is_widest_first() -> None:
    page = build_report(study()).decode()
    answer, hangs = page.split('<section id="sensitivities"')
    assert answer.count("<title>Sensitivities of levelised cost per million tokens") == 1, (
        "drawn once"
    )
    body = hangs[hangs.index("<tbody>") :]
    assert body.index("growth, all workloads") < body.index("pue")
    row = r'<th scope="row">growth, all[^<]*</th><td[^>]*>[^<]*</td><td class="number">([^<]*)</td>.*?>([^<]*)</td></tr>'  # noqa: E501
    first = re.search(row, hangs)
    assert first
    assert first.groups() == ("$0.130", "$0.0800")  # at P10, then at P90: more growth is cheaper
    assert "Which of mixed and all-b200 is better changes within the range of pue." in hangs
    assert (
        "Inputs explain these shares of the variance of mixed: pue 20%. The bars of other inputs may be noise."
        in hangs
    )
    assert ">1.2 to 1.4 ratio<" in hangs


@pytest.mark.parametrize("name", ["decision", "monthly_bands", "sensitivity"])
def test_a_table_that_is_not_there_takes_its_part_away(name: str) -> None:
    page = build_report(study(without=name)).decode()
    assert "reproduce" in sections(page)
    assert "answer" in sections(page)
    assert (name == "sensitivity") is ("sensitivities" not in sections(page))


def test_the_best_may_be_the_baseline() -> None:
    better = PERCENTILES.replace(
        "mixed,levelised_cost_per_million_tokens_usd,mean,0.1000",
        "mixed,levelised_cost_per_million_tokens_usd,mean,0.0100",
    )
    page = build_report(answered(better, decision=DECISION)).decode()
    assert (
        "It is the baseline, mixed. It is better than the next best, all-b200, in 10% of replications"
        in page
    )


def headline_of_page(contents: Contents) -> str:
    (headline,) = re.findall(r'<p class="headline">(.*?)</p>', build_report(contents).decode())
    return without_badges(headline)


def test_where_more_is_better_the_highest_wins() -> None:
    values = PERCENTILES.replace("levelised_cost_per_million_tokens_usd", "npv_usd")
    found = headline_of_page(answered(values, manifest={**MANIFEST, "objective": "npv_usd"}))
    assert found.startswith("mixed does best, with P(SLO met) 99% ")


def test_a_difference_within_its_error_is_called_so() -> None:
    contents = answered(PERCENTILES, decision=DECISION.replace("-0.025,-0.015", "-0.045,0.005"))
    assert (
        "−$0.0450 to $0.00500 with 95% confidence, is not clearly different from zero"
        in headline_of_page(contents)
    )


def test_one_scenario_has_no_baseline_and_failed_ones_no_figure() -> None:
    lines = PERCENTILES.splitlines(keepends=True)
    alone = "".join(line for line in lines if not line.startswith("all-b200"))
    assert headline_of_page(answered(alone)).endswith("It is MET 198/200.")
    empty = lines[0] + "mixed,levelised_cost_per_million_tokens_usd,mean,,,\n"
    assert headline_of_page(answered(empty)).startswith(
        "No replication of any scenario could be run"
    )


def test_a_designed_study_says_what_its_headline_is_of() -> None:
    lines = PERCENTILES.splitlines(keepends=True)
    means = "".join(line for line in lines if ",mean," in line or line.startswith("scenario"))
    identity = {**MANIFEST["identity"], "design": {"name": "tornado"}}
    page = build_report(answered(means, manifest={**MANIFEST, "identity": identity})).decode()
    assert escape(DESIGN_NOTES["tornado"].split(";")[0]) in page
    assert "nine replications in ten" not in page
    assert "P95" not in page


def test_a_sweep_shows_its_cheapest_points_first(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    assert (
        planner(
            "sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=2,4,8", "--out", "o", "-q"
        ).code
        == 0
    )
    page = (tmp_path / "o" / "report.html").read_text()
    assert "In one replication of each, 3 of 3 combinations meet the SLO target." in page
    assert "The cheapest of them is nodes, h200 = 2, at a levelised $" in page
    assert [int(n) for n in re.findall(r'<tr><th class="number" scope="row">(\d+)<', page)] == [
        2,
        4,
        8,
    ]
    assert "SLO target: 99% per month and workload." in page
    (picture,) = re.findall(r'<div class="picture"[^>]*><svg.*?</svg></div>', page, re.DOTALL)
    assert (
        picture.count("<circle") == 3 + 1 + 4
    )  # three points, the cheapest that meets it again, and the legend


def test_a_study_writes_and_rebuilds_its_report(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    write("name: s\nscenarios:\n  tiny: {extends: tiny.yaml}\nuncertain:\n"
          "  site.pue_ratio: {kind: pert, low: 1.1, mode: 1.2, high: 1.5}\n", "s.yaml")  # fmt: skip
    arguments = (
        "montecarlo",
        "s.yaml",
        "-n",
        "8",
        "--workers",
        "1",
        "--out",
        "o",
        "-q",
    )
    assert planner(*arguments).code == 0
    before = files_of(tmp_path / "o")
    page = before["report.html"].decode()
    assert sections(page) == QUESTIONS
    assert "planner montecarlo s.yaml --replications 8 --seed 1" in page
    assert ">s: Monte Carlo report<" in page
    assert planner("report", "o", "-q").code == 0
    assert files_of(tmp_path / "o") == before


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("workloads.*.requests_per_s", "requests per s, all workloads"),
        ("workloads.chat.growth.per_year", "growth per year, chat"),
        ("clusters.h200*.accelerator_price_usd", "accelerator price, h200"),
        ("finance.discount_rate_per_year", "discount rate per year"),
        (
            "throughput_error.MI325X.vllm.llama-3.1-70b",
            "throughput against the formula, MI325X.vllm.llama-3.1-70b",
        ),
        ("seed", "seed"),
    ],
)
def test_an_input_in_words(path: str, words: str) -> None:
    assert input_words(path) == words


def test_bars_within_noise_are_known() -> None:
    rows = (
        "scenario,against,method,input,measure,value,low,high\n"
        "a,,conditional-mean,x,swing,2,1,3\n"
        "a,,conditional-mean,y,swing,1,1.5,2.5\n"
        "a,,variance-share,x,first_order,0.5,,\n"
        "a,,variance-share,x,noise_level,0.2,,\n"
        "a,,variance-share,y,first_order,0.1,,\n"
        "a,,variance-share,y,noise_level,0.2,,\n"
        "a,,tornado,x,at_p10,1,0.9,1.1\n"
        "a,,tornado,x,at_p90,2,1.9,2.1\n"
        "a,,tornado,y,at_p10,1,0.8,1.2\n"
        "a,,tornado,y,at_p90,1.1,0.9,1.3\n"
    )
    drivers = StudyResults.read(answered(PERCENTILES, sensitivity=rows)).drivers
    found = {tornado.method: tornado.noise for tornado in tornadoes(drivers)}
    assert found == {"conditional-mean": {"y"}, "tornado": {"y"}}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """A comparison that tests only read."""
    place = tmp_path_factory.mktemp("compared")
    (place / "tiny.yaml").write_text(TINY)
    (place / "dear.yaml").write_text(
        TINY.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9")
    )
    api.compare([place / "dear.yaml", place / "tiny.yaml"], place / "o", replications=2)
    return read_contents(place / "o")


def bodies(contents: Contents) -> dict[str, str]:
    return {section.key: section_html(section) for section in sections_of(contents)}


def test_a_plan_is_read_by_itself(compared: Contents) -> None:
    assert compared.plans == ["dear", "tiny"]
    own = compared.of_plan("tiny")
    ledger = own.table("ledger")
    whole = compared.table("ledger")
    assert ledger is not None
    assert whole is not None
    assert "scenario" not in ledger
    assert len(ledger) == whole.texts("scenario").count("tiny")
    assert (own.anchor, compared.anchor) == ("plan-2-", "")


def test_every_plan_has_its_timelines_and_no_two_charts_one_name(compared: Contents) -> None:
    found = bodies(compared)
    assert list(found) == [key for key in QUESTIONS if key != "sensitivities"]
    for key in ("utilisation", "cost", "workload-cost", "workload-hours", "workload-tokens"):
        for place in (1, 2):
            assert f'id="plan-{place}-{key}"' in found["time"]
    names = re.findall(r' id="([^"]+)"', "".join(found.values()))
    assert len(names) == len(set(names))
    assert re.findall(r'<details class="plan"( open)?>', found["time"]) == [" open", ""]


def test_the_money_of_every_plan_is_that_of_its_measures(compared: Contents) -> None:
    measures = compared.table("comparison")
    assert measures is not None
    rows = zip(
        measures.texts("scenario"),
        measures.texts("measure"),
        measures.numbers("value"),
        strict=True,
    )
    costs = {scenario: value for scenario, measure, value in rows if measure == "cost_usd"}
    (row,) = re.findall(r'<th scope="row">all of it</th>(.*?)</tr>', bodies(compared)["money"])
    assert re.findall(r"<td[^>]*>([^<]+)</td>", row) == [
        dollars(costs["dear"]),
        dollars(costs["tiny"]),
    ]


def test_assumptions_are_merged_where_plans_agree(compared: Contents) -> None:
    found = bodies(compared)["assumptions"]
    rows = re.findall(r'<th scope="row">clusters\.h200\.nodes</th>(.*?)</tr>', found)
    whose = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows]
    assert {(cells[0], cells[-1]) for cells in whose} == {("9", "dear"), ("4", "tiny")}
    (version,) = re.findall(r'<th scope="row">catalog\.version</th>(.*?)</tr>', found)
    assert version.endswith(">all</td>")


def test_measures_are_shown_with_their_definitions(
    compared: Contents, write: WriteScenario, tmp_path: Path
) -> None:
    write_run(simulate(load_scenario(write()), seed=3), tmp_path / "run")
    contents = read_contents(tmp_path / "run")
    for each in (compared, contents):
        answer = bodies(each)["answer"]
        assert "how each is defined" in answer
        assert "10⁶ · p at which Σ (p·tokens − cost − tax)·v = 0" in answer
        assert "Not defined here" in answer
    found = contents.table("measures")
    assert found is not None
    known = sum(value is not None for value in found.numbers("value"))
    assert f"All {known} measures" in bodies(contents)["answer"]


def test_a_study_whose_plans_cannot_run_as_stated_still_has_a_report(
    planner: Planner, write: WriteScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PlannerError("no")

    write()
    write("name: s\nscenarios:\n  tiny: {extends: tiny.yaml}\n", "s.yaml")
    monkeypatch.setattr("planner.answers.study.simulate", refuse)
    assert (
        planner("montecarlo", "s.yaml", "-n", "8", "--workers", "1", "--out", "o", "-q").code == 0
    )
    found = bodies(read_contents(tmp_path / "o"))
    assert list(found) == [key for key in QUESTIONS if key not in ("money", "losses")]


def test_a_designed_study_answers_everything(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    write("name: s\nscenarios:\n  one: {extends: tiny.yaml}\n"
          "  two: {extends: tiny.yaml, set: {site: {pue_ratio: 1.6}}}\n"
          "uncertain:\n  finance.discount_rate_per_year: {kind: pert, low: 0.05, mode: 0.1, high: 0.2}\n"
          "throughput_error: false\n",
          "s.yaml")  # fmt: skip
    assert (
        planner(
            "sensitivity",
            "s.yaml",
            "-n",
            "4",
            "--workers",
            "1",
            "--out",
            "o",
            "-q",
        ).code
        == 0
    )
    contents = read_contents(tmp_path / "o")
    found = bodies(contents)
    assert list(found) == QUESTIONS
    assert "None of these plans is known to meet its SLO target." in without_badges(found["answer"])
    assert "one, two: SLO INCONCLUSIVE at n = 4" in without_badges(found["answer"])
    assert "planner sensitivity s.yaml --size 4 --seed 1" in found["reproduce"]
    assert "finance.discount_rate_per_year" in found["assumptions"]
    before = (tmp_path / "o" / "report.html").read_bytes()
    assert planner("report", "o", "-q").code == 0
    assert (tmp_path / "o" / "report.html").read_bytes() == before
