"""Nothing absurd passes in silence: ranges stand with the fields, and what lies outside is named with its slip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.api import Stopped, sweep
from planner.catalog.load import load_catalog
from planner.plan.build import build_plan
from planner.plan.contradictions import all_warnings
from planner.scenario.loading import load_scenario
from planner.scenario.plausibility import _fields, implausible
from planner.scenario.scenario import Scenario
from planner.scenario.schema import scenario_schema
from tests.conftest import ROOT, Outcome, Planner, WriteScenario
from tests.contracts.test_language import models, parts
from tests.engine.test_scenarios import SCENARIOS

NO_RANGE = {
    "Future.weight",  # in any unit
    "SloTarget.workloads",  # shares, as the common one
    "Scenario.seed",  # any number is as good
    "LoadProfile.weekly_profile",  # in any unit: it is divided by its mean
    "PriceWindow.months", "PriceWindow.start_hour", "PriceWindow.end_hour",  # the calendar allows no others
}  # fmt: skip


def test_every_number_has_a_range_with_a_source_and_its_default_lies_inside() -> None:
    without = set()
    catalog = load_catalog()
    for model in models(Scenario):
        for _, name, mark in _fields(model):
            field = model.model_fields[name]
            if mark is None:
                without |= (
                    {f"{model.__name__}.{name}"}
                    if {int, float} & set(parts(field.annotation))
                    else set()
                )
                continue
            low, high = mark.range(catalog)
            assert low < high, name
            assert mark.source, name
            if isinstance(field.default, int | float) and field.default:
                assert low <= field.default <= high, name
    assert without == NO_RANGE


def test_a_range_from_a_prior_reaches_three_times_beyond_it() -> None:
    """The prior discount_rate is 0.07 to 0.15."""
    schema = scenario_schema()["$defs"]["Finance"]["properties"]["discount_rate_per_year"][
        "x-plausible"
    ]
    assert (schema["low"], schema["high"]) == pytest.approx((0.07 / 3, 0.45), rel=2e-3)
    assert "prior discount_rate" in schema["source"]


def done(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome
    return outcome


SLIPS = [
    ("finance.discount_rate_per_year", "8", "(0.08? 8 looks like a percentage)"),
    ("site.electricity_usd_per_kwh", "8", "(0.08? 8 looks like cents)"),
    ("clusters.h200.accelerator_price_usd", "3", "3 is implausible: 4,670 to 186,000"),
    ("clusters.h200.accelerator_price_usd", "31", "(31,000? 31 looks like thousands)"),
    ("clusters.h200.nodes", "99999", "25,000 is plausible (the largest clusters"),
    ("workloads.chat.requests_per_s", "3000000", "(50,000? 3,000,000 looks like requests a minute)"),
    ("workloads.chat.growth", "{kind: compound, per_year: 80}", "(0.8? 80 looks like a percentage)"),
    ("workloads.chat.slo", "{ttft_s: 2000}", "(2? 2,000 looks like milliseconds)"),
    ("finance.depreciation_months", "3", "(36? 3 looks like years)"),
    ("site.facility_power_cap_kw", "1.5e7", "(15,000? 15,000,000 looks like W)"),
    ("workloads.chat.token_price", "{input_usd_per_million_tokens: 0.5, output_usd_per_million_tokens: 0.000002}",
     "(2? 2e-06 looks like USD per token)"),
    ("reliability.vendor_failure_multiplier.amd", "130", "130 is implausible"),
    ("clusters.h200.throughput_tokens_per_s_per_accelerator", "1.0e+12", "1 to 50,000 is plausible (public benchmarks"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "told"), SLIPS)
def test_a_number_far_off_is_named_with_its_place_and_the_likely_slip(
    write: WriteScenario, tiny: str, path: str, value: str, told: str
) -> None:
    more = ["clusters.h200.throughput_measured_at={input_tokens: 500, output_tokens: 100}"]
    (problem,) = implausible(load_scenario(write(tiny), [*more, f"{path}={value}"]))
    assert str(problem).startswith("--set #2: ")
    assert path in str(problem)
    assert told in str(problem)


def test_the_price_of_a_node_is_no_price_of_an_accelerator(write: WriteScenario, tiny: str) -> None:
    """180,000 lies within the range of all parts: of an MI325X, listed at 18,000, it is a server's."""
    (problem,) = implausible(
        load_scenario(write(tiny), ["clusters.mi325x.accelerator_price_usd=180000"])
    )
    assert "180,000 for one MI325X is implausible: the catalogue has 18,000" in str(problem)
    assert "22,500? 180,000 looks like the price of a node" in str(problem)
    (cheap,) = implausible(
        load_scenario(write(tiny), ["clusters.mi325x.accelerator_price_usd=4000"])
    )
    assert "looks like" not in str(cheap)
    assert (
        implausible(load_scenario(write(tiny), ["clusters.mi325x.accelerator_price_usd=71000"]))
        == []
    )


@pytest.mark.parametrize(
    ("cost", "told"), [(300_000, "6,000,000? 300,000 looks like the cost of one node"), (6e6, "")]
)
def test_what_machines_owned_cost_is_of_all_of_them(
    write: WriteScenario, tiny: str, cost: float, told: str
) -> None:
    owned = [
        f"clusters.h200.owned={{bought: 2024-12-01, cost_usd: {cost}}}",
        "clusters.h200.nodes=20",
    ]
    problems = implausible(load_scenario(write(tiny), [*owned, "clusters.h200.online=null"]))
    assert [told in str(problem) for problem in problems] == [True] * bool(told)


def test_no_shipped_study_warns(planner: Planner) -> None:
    """Scenarios are asked where they are run, in tests/engine."""
    files = [path for path in sorted((ROOT / "scenarios").rglob("*.yaml")) if path not in SCENARIOS]
    assert files
    done(planner("validate", "--strict", *files))


CALENDAR = [
    ("workloads.chat.spikes=[{date: 2027-01-01, multiplier: 3}]", "spikes[0].date: 2027-01-01 is after the horizon"),
    ("workloads.chat.spikes=[{date: 2025-06-01, multiplier: 3}]", "spikes[0].date: 2025-06-01 is before the horizon"),
    ("workloads.chat.model_launch=2030-01-01", "model_launch: 2030-01-01 is after the horizon"),
    ("workloads.chat.growth={kind: steps, steps: [{date: 2029-01-01, multiplier: 2}]}", "the step has no effect"),
    ("workloads.chat.load_profile.holidays=[{date: 2024-12-25}]", "no holiday lies within the horizon"),
    ("site.curtailments=[{date: 2026-07-01, cut_fraction: 0.5}]", "it cuts nothing"),
    ("site.power_blocks=[{date: 2026-01-01, it_kw: 500}, {date: 2040-01-01, it_kw: 500}]", "its power never comes"),
    ("workloads.chat.requests_per_s=0", "there is nothing to serve"),
    ("workloads.chat.growth={kind: s-curve, ceiling_multiplier: 1.0e6, midpoint_years: 0.05}", "tokens/s, more than"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "told"), CALENDAR)
def test_what_has_no_effect_is_said(
    write: WriteScenario, tiny: str, change: str, told: str
) -> None:
    scenario = load_scenario(write(tiny), [change, "workloads.chat.lengths.input.mean=20000"])
    assert any(told in warning for warning in all_warnings(scenario, build_plan(scenario)))


def test_dates_within_the_horizon_are_not(write: WriteScenario, tiny: str) -> None:
    changes = [
        "workloads.chat.spikes=[{date: 2025-12-20, multiplier: 3}, {date: 2026-03-31, multiplier: 3}]",
        "workloads.chat.load_profile.holidays=[{date: 2025-12-25}, {date: 2026-12-25}]",
        "site.curtailments=[{date: 2025-12-31, length_days: 3, cut_fraction: 0.1}]",
        "site.power_blocks=[{date: 2020-01-01, it_kw: 500}]",
    ]
    scenario = load_scenario(write(tiny), changes)
    assert all_warnings(scenario, build_plan(scenario)) == []


def test_no_nodes_anywhere_wait_for_a_sizing(write: WriteScenario, tiny: str) -> None:
    none = ["clusters.h200.nodes=0", "clusters.mi325x=null", "sizing.clusters.h200.max_nodes=9"]
    warnings = build_plan(load_scenario(write(tiny), none)).warnings
    assert any("until planner size has chosen" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            ["2026-01-01,1", "2026-02-01,2"],
            "ends before the horizon: traffic stays level for 334 days",
        ),
        (
            ["2026-06-01,1", "2026-12-31,2"],
            "begins after the start: traffic stays level for 151 days",
        ),
        (["2026-01-01,1", "2026-12-01,2"], ""),
    ],
)
def test_a_growth_table_that_leaves_months_level(
    write: WriteScenario, tiny: str, tmp_path: Path, rows: list[str], told: str
) -> None:
    (tmp_path / "growth.csv").write_text("\n".join(["date,multiplier", *rows]))
    growth = tiny.replace(
        "    requests_per_s: 5\n",
        "    requests_per_s: 5\n    growth: {kind: csv, file: growth.csv}\n",
    )
    warnings = build_plan(load_scenario(write(growth), ["horizon_months=12"])).warnings
    assert [told in warning for warning in warnings] == ([True] if told else [])
    assert all("tiny.yaml:8: workloads.chat.growth.file" in warning for warning in warnings)


def test_a_run_that_sheds_nearly_all_says_so_first(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    write(tiny)
    outcome = done(
        planner(
            "run",
            "tiny.yaml",
            "--replications",
            "1",
            "--set",
            "workloads.chat.requests_per_s=90000",
        )
    )
    assert outcome.out.splitlines()[1].startswith("tiny sheds 9")
    assert next(line for line in outcome.err.splitlines() if "warning" in line).endswith(
        "too small for this traffic"
    )
    page = Path("outputs/tiny/report.html").read_text()
    assert page.index("This plan sheds 9") < page.index("This plan serves")
    planner(
        "run", "tiny.yaml", "--strict", "--out", "x", "--set", "workloads.chat.requests_per_s=90000"
    ).refused("shed")
    assert not Path("x").exists()


STUDY = """\
name: tiny-study
scenarios:
  tiny: {extends: tiny.yaml}
uncertain:
  site.pue_ratio: {kind: pert, low: 1.1, mode: 1.2, high: 1.5}
"""


def test_strict_refuses_in_every_command_and_writes_nothing(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    write(tiny)
    write(tiny.replace("name: tiny", "name: other"), "other.yaml")
    write(STUDY, "study.yaml")
    for command in (
        ("run", "tiny.yaml", "--replications", "1"),
        ("validate", "tiny.yaml", "study.yaml"),
        ("compare", "tiny.yaml", "other.yaml", "--replications", "1"),
        ("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=3,4"),
        ("sweep", "tiny.yaml", "--vary", "finance.discount_rate_per_year=0.1,8"),
        ("montecarlo", "study.yaml", "-n", "4", "--workers", "1"),
        ("sensitivity", "study.yaml", "--workers", "1"),
    ):
        slip = (
            ()
            if any("0.1,8" in word for word in command)
            else ("--set", "finance.discount_rate_per_year=8")
        )
        planner(*command, "--strict", *slip).refused("finance.discount_rate_per_year: 8", "0.08?")
        assert not Path("outputs").exists()


def test_a_sweep_counts_its_warnings_and_a_resumed_one_keeps_them(
    write: WriteScenario, tiny: str, tmp_path: Path
) -> None:
    out = tmp_path / "x"
    scenario = write(tiny)
    vary = {"finance.discount_rate_per_year": [0.1, 8, 9]}

    def stop(text: str) -> None:
        if text == "point 3 of 3":
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        sweep(scenario, vary, out, progress=stop)
    answer = sweep(scenario, vary, out, resume=True)
    assert [len(point.warnings) for point in answer.result.points] == [0, 1, 1]
    assert [warning.rpartition(" (")[2] for warning in answer.warnings] == [
        "1 of 3 combinations)"
    ] * 2
    assert json.loads((out / "manifest.json").read_text())["warnings"] == answer.warnings


def test_a_study_warns_of_what_is_stated_and_of_what_is_drawn(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    write(tiny)
    write(
        STUDY + "  finance.discount_rate_per_year: {kind: uniform, low: 5, high: 9}\n", "study.yaml"
    )
    slip = ("--set", "site.electricity_usd_per_kwh=8")
    outcome = done(planner("montecarlo", "study.yaml", "-n", "4", "--workers", "1", *slip))
    page = Path("outputs/tiny-study/report.html").read_text()
    for told in (
        "site.electricity_usd_per_kwh: 8 is implausible",
        "study.yaml:6: uncertain.finance.discount_rate",
    ):
        assert told in outcome.err
        assert told in page
    assert "uncertain.site.pue_ratio" not in outcome.err
