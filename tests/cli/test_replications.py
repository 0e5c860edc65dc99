"""Intervals of chance in what ``run`` and ``compare`` print and write."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import planner as library
from planner.answers.ranking import SHORTFALL
from planner.answers.run_summary import is_settled
from planner.finance.accounting.measures import Figures
from planner.run.replications import Replications, figures_of
from tests.conftest import TINY, Planner, WriteScenario


def test_a_run_says_where_its_headline_lies(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    outcome = planner("run", write(), "--out", "out")
    assert "In nine of ten replications: NPC $" in outcome.out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["replications"]["number"] == 19
    assert summary["replications"]["coverage_fraction"] == 0.9
    low, high = summary["replications"]["intervals"]["cost_per_million_tokens_usd"]
    assert low < high
    table = pd.read_csv(tmp_path / "out" / "measures.csv").set_index("measure")
    known = table.dropna(subset=["low"])
    assert (
        (known.low <= known.value) & (known.value <= known.high)
    ).all()  # the run is one of the nineteen
    assert table.low["cost_per_million_tokens_usd"] == pytest.approx(low, abs=1e-6)
    assert table.low["capex_usd"] == table.high["capex_usd"]


def test_more_draws_are_said_in_percent_and_remembered(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    assert (
        "In 67% of replications: "
        in planner("run", write(), "--out", "out", "--replications", "5").out
    )
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["replications"] == 5
    assert manifest["command"][-2:] == ["--replications", "5"]


def test_one_draw_has_no_interval(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    assert (
        "replications: NPC"
        not in planner("run", write(), "--out", "out", "--replications", "1", "-v").out
    )
    assert pd.read_csv(tmp_path / "out" / "measures.csv").low.isna().all()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["replications"] is None


def test_a_comparison_holds_draw_against_draw(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    """Two plans that differ by one price alone differ by the same sum in every draw, whatever chance does to each."""
    write()
    dear = (
        TINY.replace("name: tiny", "name: dear", 1)
        + "finance: {operations_staff_per_1000_accelerators: 30}\n"
    )
    outcome = planner("compare", "tiny.yaml", write(dear, "dear.yaml"), "--out", "out")
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert (
        "Cost per token compared with tiny, in nine of ten replications with inputs as stated: dear "
        in said
    )
    assert re.search(r"dear [\d.]+%( to [\d.]+%)? more", said)
    assert "saves" not in said
    table = pd.read_csv(tmp_path / "out" / "comparison.csv")
    cost = table[table.measure == "cost_usd"].set_index("scenario")
    apart = cost.difference_high - cost.difference_low
    assert cost.high["dear"] > cost.low["dear"]
    assert apart["dear"] < 0.02 * (cost.high - cost.low)["dear"] + 0.05
    assert apart.isna()["tiny"]


def half_share(costs: list[float]) -> float:
    """Half the 95% interval of a mean over the mean, by the standard library's deviation and Student's t."""
    t = float(stats.t.ppf(0.975, len(costs) - 1))
    return t * statistics.stdev(costs) / math.sqrt(len(costs)) / abs(statistics.fmean(costs))


def test_the_first_screen_is_there_before_others_are_drawn(
    write: WriteScenario, tmp_path: Path
) -> None:
    told: list[str] = []

    def first(answer: library.Answer[library.RunResult]) -> None:
        assert not (tmp_path / "out").exists()
        told.append(answer.text())

    answer = library.run(
        write(), tmp_path / "out", replications=3, first=first, progress=told.append
    )
    at = told.index(next(line for line in told if line.startswith("tiny   3 months")))
    assert [line.partition(":")[0] for line in told[at + 1 :]] == [
        "2 of 3 replications",
        "3 of 3 replications",
        "writing",
    ]
    assert re.search(r"NPC \$[\d.]+\w? to \$[\d.]+\w?, SLO met in \d/3$", told[-2])
    assert answer.text().startswith(told[at] + "\nSLO ")
    assert "SLO    base case m" in told[at]


def test_a_pipe_gets_each_line_once(planner: Planner, write: WriteScenario) -> None:
    quick = planner("run", write(), "-n", "2", "--out", "o")
    slow = library.run("tiny.yaml", "p", replications=2)
    assert quick.out == f"{slow.text()}\nresults in o/report.html; more: -v\n"
    assert planner("run", "tiny.yaml", "-n", "2", "--out", "o", "--json").out.startswith("{")


def test_a_run_stops_where_its_interval_is_narrow_whoever_draws(
    write: WriteScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is worked out beside it: from runs of their own, Student's t and the Beta distribution."""
    path = write()
    scenario = library.load(path)
    drawn = [figures_of(library.simulate(scenario, replication=number)) for number in range(38)]
    costs = [row["npv_usd"] or 0.0 for row in drawn]
    short = [row[SHORTFALL] for row in drawn]
    limit = 1.01 * half_share(costs[:38])
    assert half_share(costs[:19]) > limit  # or it would stop there

    def status(number: int) -> str:
        met = sum(one == 0.0 for one in short[:number])
        confidence = scenario.slo_target.confidence
        low, high = (
            float(stats.beta.ppf(end, met + 0.5, number - met + 0.5)) for end in (0.05, 0.95)
        )
        return (
            "MET"
            if met and low >= confidence
            else "MISSED"
            if met < number and high < confidence
            else "INCONCLUSIVE"
        )

    assert status(38) != "INCONCLUSIVE"
    monkeypatch.setattr("planner.api.SETTLED_COST_FRACTION", limit)
    for cores in (1, 3):
        monkeypatch.setattr("planner.parallel.cores", lambda cores=cores: cores)
        folder = library.run(path, tmp_path / str(cores), replications=500).folder
        assert json.loads((folder / "manifest.json").read_text())["replications"] == 38
    library.run(path, tmp_path / "stated", replications=38)
    for path in (tmp_path / "stated").iterdir():
        assert (tmp_path / "1" / path.name).read_bytes() == (
            tmp_path / "3" / path.name
        ).read_bytes(), path.name
        assert (tmp_path / "1" / path.name).read_bytes() == path.read_bytes(), path.name
    command = json.loads((tmp_path / "1" / "manifest.json").read_text())["command"]
    assert command[-2:] == ["--replications", "38"]


def test_replications_settle_what_is_met_or_missed_and_narrow(write: WriteScenario) -> None:
    result = library.simulate(write())
    base = figures_of(result)

    def of(met: int, number: int, spread: float) -> Replications:
        costs = -1e6 * (1.0 + spread * np.linspace(-1.0, 1.0, number))
        shortfalls = [0.0 if place < met else 0.1 for place in range(number)]
        rows: list[Figures] = [
            {**base, "npv_usd": float(cost), SHORTFALL: short}
            for cost, short in zip(costs, shortfalls, strict=True)
        ]
        return Replications(figures=tuple(rows))

    assert is_settled(result, of(19, 19, 0.001), 0.005)
    assert is_settled(result, of(0, 19, 0.001), 0.005)
    assert not is_settled(result, of(18, 19, 0.001), 0.005), "the verdict is open"
    wide = half_share([row["npv_usd"] or 0.0 for row in of(19, 19, 0.02).figures])
    assert is_settled(result, of(19, 19, 0.02), 1.001 * wide)
    assert not is_settled(result, of(19, 19, 0.02), 0.999 * wide), (
        "the cost is not known well enough"
    )
