"""Reports of comparisons, sweeps and studies, from small tables written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.reporting.report.build import build_report
from planner.reporting.report.contents import Contents

Planner = Callable[..., Any]
Write = Callable[..., Path]

PERCENTILES = "scenario,output,statistic,value,low,high\n" + "".join(
    f"{name},cost_per_million_tokens_usd,{statistic},{base * factor:.4f},{low},{high}\n"
    for name, base in (("mixed", 0.10), ("all-b200", 0.08))
    for statistic, factor, low, high in (
        ("mean", 1.0, f"{base * 0.95:.4f}", f"{base * 1.05:.4f}"), ("p5", 0.6, "", ""), ("p10", 0.7, "", ""),
        ("p50", 1.0, "", ""), ("p90", 1.3, "", ""), ("p95", 1.5, "", ""),
    )
)  # fmt: skip
DECISION = (
    "scenario,against,probability_better,probability_low,probability_high,mean_difference,difference_low,"
    "difference_high,mean_regret,p95_regret\n"
    "all-b200,mixed,0.90,0.80,0.97,-0.020,-0.025,-0.015,0.001,0.004\n"
    "mixed,all-b200,0.10,0.03,0.20,0.020,0.015,0.025,0.021,0.05\n"
)
BANDS = "scenario,output,month,mean,p5,p10,p50,p90,p95\n" + "".join(
    f"{name},utilisation_fraction,2026-{month:02d},0.5,0.2,0.3,0.5,0.7,0.8\n"
    for name in ("mixed", "all-b200")
    for month in (1, 2, 3)
)
SENSITIVITY = (
    "scenario,against,method,input,measure,value,low,high\n"
    "mixed,,tornado,site.pue_ratio,swing,0.01,0.095,0.105\n"
    "mixed,,tornado,workloads.*.growth,swing,0.05,0.13,0.08\n"
    "mixed,,conditional-mean,site.pue_ratio,swing,0.01,0.095,0.105\n"
    "mixed,all-b200,conditional-mean,site.pue_ratio,swing,0.01,0.015,0.025\n"
    "mixed,,variance-share,site.pue_ratio,share,0.2,,\n"
)
MANIFEST = {
    "kind": "study", "replications": 64,
    "identity": {"version": "0.1.0", "seed": 1, "scenarios": {"mixed": "ab", "all-b200": "cd"}},
}  # fmt: skip


def study(**without: bool) -> Contents:
    files = {"percentiles.csv": PERCENTILES, "decision.csv": DECISION, "monthly_bands.csv": BANDS,
             "sensitivity.csv": SENSITIVITY}  # fmt: skip
    kept = {name: text.encode() for name, text in files.items() if not without.get(name.partition(".")[0])}
    return Contents(manifest=MANIFEST, files=kept)


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page)


def test_a_study_answers_with_interval_baseline_and_odds() -> None:
    page = build_report(study()).decode()
    assert sections(page) == ["answer", "time", "hangs", "reproduce"]
    (headline,) = re.findall(r'<p class="headline">(.*?)</p>', page)
    for part in ("all-b200 does best", "$0.0800 on average", "$0.0760 to $0.0840 with 95% confidence",
                 "between $0.0480 and $0.120", "Against the baseline mixed it is better in 90% of futures",
                 "−$0.0200 (−$0.0250 to −$0.0150)"):  # fmt: skip
        assert part in headline, headline


def test_a_fan_has_a_band_for_each_scenario() -> None:
    page = build_report(study()).decode()
    assert page.count('class="band"') == 2
    assert 'id="fan-utilisation-fraction"' in page


def test_the_tornado_is_widest_first() -> None:
    page = build_report(study()).decode()
    first = page.index("workloads.*.growth")
    assert first < page.index("site.pue_ratio")
    assert page.count('class="tornado"') == 4
    assert "All 5 measures" in page


@pytest.mark.parametrize("name", ["percentiles", "decision", "monthly_bands", "sensitivity"])
def test_a_table_that_is_not_there_takes_its_part_away(name: str) -> None:
    page = build_report(study(**{name: True})).decode()
    assert "reproduce" in sections(page)
    lost = {"percentiles": "answer", "monthly_bands": "time", "sensitivity": "hangs"}.get(name)
    assert lost is None or lost not in sections(page)


def test_the_best_may_be_the_baseline() -> None:
    better = PERCENTILES.replace(
        "mixed,cost_per_million_tokens_usd,mean,0.1000", "mixed,cost_per_million_tokens_usd,mean,0.0100"
    )
    contents = Contents(
        manifest=MANIFEST, files={"percentiles.csv": better.encode(), "decision.csv": DECISION.encode()}
    )
    assert "It is the baseline, mixed." in build_report(contents).decode()


def test_a_comparison_says_who_is_cheaper_and_why(planner: Planner, write: Write, tiny: str, tmp_path: Path) -> None:
    write()
    write(tiny.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9"), "dear.yaml")
    assert planner("compare", "dear.yaml", "tiny.yaml", "--out", "o", "-q").code == 0
    page = (tmp_path / "o" / "report.html").read_text()
    assert sections(page) == ["answer", "time", "why", "reproduce"]
    assert re.search(r"tiny serves a token for least: \$[\d.]+ per million, [\d.]+% less than the baseline dear", page)
    assert "planner compare dear.yaml tiny.yaml --baseline dear --seed 1" in page
    before = (tmp_path / "o" / "report.html").read_bytes()
    assert planner("report", "o", "-q").code == 0
    assert (tmp_path / "o" / "report.html").read_bytes() == before


def test_a_comparison_won_by_the_baseline(planner: Planner, write: Write, tiny: str, tmp_path: Path) -> None:
    write()
    write(tiny.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9"), "dear.yaml")
    assert planner("compare", "tiny.yaml", "dear.yaml", "--out", "o", "-q").code == 0
    assert "It is the baseline: none of the others saves anything." in (tmp_path / "o" / "report.html").read_text()


def test_a_sweep_shows_its_cheapest_points_first(planner: Planner, write: Write, tmp_path: Path) -> None:
    write()
    assert planner("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=2,4,8", "--out", "o", "-q").code == 0
    page = (tmp_path / "o" / "report.html").read_text()
    assert "Of 3 combinations a token costs least with clusters.h200.nodes = 2." in page
    assert [int(n) for n in re.findall(r'<tr><th class="number" scope="row">(\d+)<', page)] == [2, 4, 8]


def test_a_study_writes_and_rebuilds_its_report(planner: Planner, write: Write, tmp_path: Path) -> None:
    write()
    write("name: s\nscenarios:\n  tiny: {extends: tiny.yaml}\nuncertain:\n"
          "  site.pue_ratio: {kind: pert, low: 1.1, mode: 1.2, high: 1.5}\n", "s.yaml")  # fmt: skip
    arguments = ("montecarlo", "s.yaml", "-n", "8", "--workers", "1", "--no-charts", "--out", "o", "-q")
    assert planner(*arguments).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    assert "answer" in sections(before["report.html"].decode())
    assert planner("report", "o", "-q").code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before
