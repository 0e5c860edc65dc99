"""Every figure in the files of a real run, comparison, sweep and study has an entry on the page of metrics."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate.pages import reference_page
from planner.finance.measure_names import AGAINST_BASELINE, MEASURES, SERVICE
from planner.units import unit_of
from tests.conftest import Planner, WriteScenario, csv_rows

PAGE = reference_page("metrics.md")
STUDY = """\
name: tiny-study
scenarios:
  tiny: {extends: tiny.yaml}
  more: {extends: tiny.yaml, set: {clusters: {h200: {nodes: 6}}}}
uncertain:
  site.electricity_usd_per_kwh: {kind: uniform, low: 0.05, high: 0.1}
throughput_error: false
"""


def _listed(title: str) -> list[str]:
    """Return the metrics listed below a heading of the page."""
    _, _, rest = PAGE.partition(f"\n## {title}\n")
    assert rest, title
    return re.findall(r"^\| `([^`]+)` \|", rest.partition("\n## ")[0], re.MULTILINE)


def test_every_measure_of_a_run_has_its_formula_unit_and_meaning() -> None:
    for measure in (*MEASURES, *AGAINST_BASELINE):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{measure.name}` |"))
        assert str(unit_of(measure.name)) in row
        assert measure.meaning.endswith(".")
        assert measure.meaning in row
    assert _listed("Of a run") == [measure.name for measure in MEASURES]
    assert _listed("How a plan served") == list(SERVICE)


def test_what_a_run_writes_is_on_the_page(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    assert planner("run", "tiny.yaml", "-n", "2", "-q").code == 0
    folder = tmp_path / "outputs" / "tiny"
    assert {row["measure"] for row in csv_rows(folder / "measures.csv")} == set(_listed("Of a run"))
    for name, title in (
        ("timeline_monthly", "By month"),
        ("timeline_workloads", "By month and workload"),
        ("losses", "Where node-hours went"),
    ):
        columns = set(csv_rows(folder / f"{name}.csv")[0]) - {
            "scenario",
            "month",
            "cluster",
            "workload",
        }
        assert columns == set(_listed(title)), name


def test_what_a_comparison_and_a_sweep_write_is_on_the_page(
    planner: Planner, write: WriteScenario, tmp_path: Path, tiny: str
) -> None:
    write()
    write(tiny.replace("name: tiny", "name: more").replace("nodes: 4", "nodes: 6"), "more.yaml")
    assert planner("compare", "tiny.yaml", "more.yaml", "--out", "both", "-n", "2", "-q").code == 0
    known = {*_listed("Of a run"), *_listed("How a plan served"), *_listed("Against a baseline")}
    assert {row["measure"] for row in csv_rows(tmp_path / "both" / "comparison.csv")} == known
    assert {row["cause"] for row in csv_rows(tmp_path / "both" / "bridge.csv")} == set(
        _listed("Causes of a difference")
    )
    assert (
        planner(
            "sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=4,6", "--out", "grid", "-q"
        ).code
        == 0
    )
    swept = set(csv_rows(tmp_path / "grid" / "sweep.csv")[0]) - {"clusters.h200.nodes", "problem"}
    assert swept == {*_listed("Of a run"), *_listed("How a plan served")}


def test_what_a_study_writes_is_on_the_page(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    write(STUDY, "study.yaml")
    assert planner("montecarlo", "study.yaml", "-n", "4", "--workers", "1", "-q").code == 0
    folder = tmp_path / "outputs" / "tiny-study"
    known = set(_listed("Of a study"))
    samples = csv_rows(folder / "samples.csv")[0]
    assert (
        set(samples) - {"replication", "scenario", "error", "site.electricity_usd_per_kwh"} <= known
    )
    assert {row["output"] for row in csv_rows(folder / "percentiles.csv")} <= known
    assert {row["output"] for row in csv_rows(folder / "monthly_bands.csv")} <= known
    decision = set(csv_rows(folder / "decision.csv")[0]) - {"scenario", "against"}
    assert decision == set(_listed("Between two plans of a study"))
