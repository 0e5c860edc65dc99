"""The job of an infrastructure lead, from the files there are to two pages for the board, in six commands."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pytest

from planner import api
from tests.conftest import Planner, WriteScenario

START = datetime.datetime(2025, 1, 6)
WORKLOADS = {"chat": (2.0, 900, 250), "code": (0.8, 2400, 60), "docs": (0.3, 6000, 300)}
"""Requests a second at the beginning, and mean lengths."""
HALL = ("--set", "site.facility_power_cap_kw=1200")


def year_of_counts(name: str) -> str:
    """Return twelve months of a workload by the hour, growing by 40% a year."""
    rate, prompt, reply = WORKLOADS[name]
    hours = np.arange(52 * 168)
    day = 1.0 + 0.4 * np.cos(2 * np.pi * (hours % 24 - 14) / 24)
    week = np.where(hours % 168 < 120, 1.1, 0.6)
    expected = 3600 * rate * 1.4 ** (hours / 8766) * day * week
    counts = np.random.default_rng(len(name)).poisson(expected).tolist()
    lines = ["timestamp,requests,input_tokens,output_tokens"]
    for hour, count in enumerate(counts):
        moment = START + datetime.timedelta(hours=hour)
        lines.append(f"{moment},{count},{count * prompt},{count * reply}")
    return "\n".join(lines)


@pytest.mark.slow
def test_from_files_to_a_memo_in_six_commands(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    for name in WORKLOADS:
        write(year_of_counts(name), f"{name}.csv")
    write("host,accelerator,bought\n" + "".join(f"gpu{n},H200,2025-03-01\n" for n in range(10)),
          "owned.csv")  # fmt: skip
    write("accelerator,price_usd,lead_weeks,vendor\nB200,39500,20,Acme\nH200,31000,20,Other\n",
          "quotes.csv")  # fmt: skip
    sources = [word for name in WORKLOADS for word in ("--from", f"{name}.csv")]
    own = ("--model", "code=qwen3-32b", "--preset", "code=code-completion")
    lists = ("--fleet", "owned.csv", "--quotes", "quotes.csv")
    one = ("-n", "1", "-q")
    commands = [
        ("init", "lead", *sources, *own, *lists),
        ("run", "lead.yaml", *HALL, *one),
        ("run", "lead.yaml", *HALL, "--set", "workloads.*.growth.per_year=×2", "--out", "twice", *one),
        ("run", "lead.yaml", *HALL, "--set", "clusters.b200-quote.nodes=4", "--out", "more", *one),
        ("memo", "outputs/lead"),
    ]  # fmt: skip
    assert len(commands) + 1 <= 6  # the API is the sixth
    for command in commands:
        told = planner(*command)
        assert told.code == 0, (command, told.err)
    # The same from a program: what the page of the first command says, by the API.
    scenario = api.load(tmp_path / "lead.yaml", [HALL[1]])
    for name, (rate, prompt, reply) in WORKLOADS.items():
        load = scenario.workloads[name]
        weekly_mean = (5 * 1.1 + 2 * 0.6) / 7
        years = (scenario.start - START.date()).days / 365.25
        assert load.requests_per_s == pytest.approx(rate * weekly_mean * 1.4**years, rel=0.03)
        assert load.lengths.input.distribution.mean_tokens == pytest.approx(prompt, rel=0.01)
        assert load.lengths.output.distribution.mean_tokens == pytest.approx(reply, rel=0.01)
    assert scenario.clusters["h200-2025-03"].nodes == 10
    assert (tmp_path / "outputs" / "lead" / "memo.html").exists()
    costs = [
        json.loads((tmp_path / folder / "summary.json").read_text())
        for folder in ("outputs/lead", "twice", "more")
    ]
    assert len({json.dumps(cost, sort_keys=True) for cost in costs}) == 3
