"""Counts by the hour or day give rates and mean lengths, and are never taken for a log of requests."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from planner.errors import ScenarioError
from planner.onramp.hourly import HourlyCounts, HourlyRates, is_hourly_series, read_hourly
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario
from tests.demand.shared_traces import trace


def _write(folder: Path, text: str, name: str = "counts.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _rates(path: Path, column: str | None = None, rate: float | None = None) -> HourlyRates:
    (counts,) = read_hourly(path, column, rate).values()
    return counts.rates


def _table(header: str, rows: Sequence[str], step_h: float = 1.0) -> str:
    """Return a CSV whose rows begin with the hours from Monday, 5 January 2026 on."""
    start = datetime.datetime(2026, 1, 5)
    step = datetime.timedelta(hours=step_h)
    lines = [f"{start + step * number:%Y-%m-%d %H:%M:%S},{row}" for number, row in enumerate(rows)]
    return "\n".join([f"timestamp,{header}", *lines]) + "\n"


def test_hourly_series_and_its_place_in_the_week(tmp_path: Path) -> None:
    rows = "".join(f"2026-01-0{1 + h // 24} {h % 24:02d}:00:00,{100 + h}\n" for h in range(48))
    path = _write(tmp_path, "timestamp,rps\n" + rows)
    hourly = _rates(path)
    assert is_hourly_series(path)
    assert (hourly.column, hourly.rates.size) == ("rps", 48)
    assert hourly.first_hour_of_week == 72  # a Thursday


def test_undated_series_and_trailing_gaps(tmp_path: Path) -> None:
    path = _write(tmp_path, "hour_index,a,b_per_hour\n0,1,3600\n1,2,7200\n2,,3600\n")
    # Its unit is not known, the mean is.
    assert _rates(path, "a", 3.0).rates.tolist() == [2, 4]
    assert _rates(path, "b_per_hour").rates.tolist() == [1, 2, 1]
    assert _rates(path, "b_per_hour").first_hour_of_week is None
    with pytest.raises(ScenarioError, match="state --requests-per-s"):
        _rates(path, "a")
    with pytest.raises(ScenarioError, match=r"has 2 rate columns; name one \(of a, b_per_hour"):
        _rates(path)
    with pytest.raises(ScenarioError, match="no rate column 'c'"):
        _rates(path, "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hour,rps\n0,1\n1,-2\n2,3\n", ":3: rps"),
        ("timestamp,rps\n2026-01-01 00:00,1\n2026-01-01 05:00,2\n", "one hour apart"),
        ("timestamp,name\n2026-01-01 00:00,x\n", "rate columns"),
        ("timestamp,requests\n2026-01-01 00:00,1\nnever,2\n", ":3: timestamp: never"),
        (_table("requests,input_tokens", ["3,900", "0,5"]), ":3: input_tokens: 5.*without a req"),
        (_table("requests,input_tokens", ["30,9"]), "0.3 tokens a request .*mean_input_tokens"),
        (_table("requests,input_tokens,cached_tokens", ["3,9,10"]), "more cached tokens than"),
    ],
)
def test_bad_series_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_hourly(_write(tmp_path, text))


def test_a_file_of_a_company_is_named_after_no_unit(tmp_path: Path) -> None:
    """``corps`` ends in rps."""
    with pytest.raises(ScenarioError, match="the unit of the series is in neither"):
        read_hourly(_write(tmp_path, _table("load", ["1", "2"]), "corps.csv"))


def test_public_week_starts_on_a_sunday() -> None:
    path = trace("azure2024_hourly_digitised_req_per_min.csv")
    assert _rates(path, "conv").first_hour_of_week == 144


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("requests,input_tokens,output_tokens", "40,36000,10000"),
        ("Requests,Total Prompt Tokens,completion_tokens_total", "40,36000,10000"),
        ("n_requests,avg_prompt_tokens,mean_output_tokens", "40,900,250"),
        ("requests_per_min,prompt_tokens,completion_tokens", f"{40 / 60},36000,10000"),
        ("rps,input_tokens,output_tokens", f"{40 / 3600},36000,10000"),
    ],
)
def test_a_rate_column_wins_over_token_columns(tmp_path: Path, header: str, row: str) -> None:
    """Such a file was read as a log of one request an hour: 0.000278 requests/s for 0.011."""
    path = _write(tmp_path, _table(header, [row] * 48))
    assert is_hourly_series(path)
    (counts,) = read_hourly(path).values()
    assert counts.rates.rates == pytest.approx(np.full(48, 40 / 3600))
    assert counts.totals is not None
    assert counts.totals.mean("input") == pytest.approx(900)
    assert counts.totals.mean("output") == pytest.approx(250)


@pytest.mark.parametrize(("step_h", "requests"), [(0.25, 10), (1.0, 40), (24.0, 960)])
def test_counts_by_the_quarter_hour_hour_or_day(
    tmp_path: Path, step_h: float, requests: int
) -> None:
    rows = [f"{requests},{requests * 900}"] * int(96 / step_h)
    rates = _rates(_write(tmp_path, _table("requests,input_tokens", rows, step_h)))
    assert rates.rates == pytest.approx(np.full(96, 40 / 3600))
    assert rates.first_hour_of_week == 0
    assert rates.shows_hours == (step_h < 24)


def test_rows_of_one_hour_are_added_and_missing_hours_are_known_to_be(tmp_path: Path) -> None:
    """A row for each model and key, none where a model had no request, and an hour that nobody recorded."""
    lines = [
        "timestamp,model,key,requests,input_tokens",
        "2026-01-05 00:00,a,x,10,1000",
        "2026-01-05 00:00,a,y,5,2000",
        "2026-01-05 01:00,b,x,7,70",
        "2026-01-05 03:00,a,x,1,10",
    ]
    by_model = read_hourly(_write(tmp_path, "\n".join(lines)))
    rates = {model: counts.rates.rates * 3600 for model, counts in by_model.items()}
    np.testing.assert_allclose(rates["a"], [15, 0, np.nan, 1])
    np.testing.assert_allclose(rates["b"], [0, 7, np.nan, 0])
    first: HourlyCounts = by_model["a"]
    assert first.totals is not None
    assert first.totals.mean("input") == pytest.approx(3010 / 16)


def test_the_command_reads_hourly_counts(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    generator = np.random.default_rng(1)
    counts = generator.poisson(40, 24 * 28)
    rows = [f"{count},{count * 900},{count * 250},{count * 300}" for count in counts.tolist()]
    write(_table("requests,input_tokens,output_tokens,cached_tokens", rows), "hourly.csv")
    assert planner("init", "a", "--from", "hourly.csv").code == 0
    (load,) = load_scenario(tmp_path / "a.yaml").workloads.values()
    assert load.requests_per_s == pytest.approx(counts.mean() / 3600, rel=0.02)
    assert load.lengths.input.distribution.mean_tokens == pytest.approx(900, rel=0.01)
    assert load.lengths.output.distribution.mean_tokens == pytest.approx(250, rel=0.01)
    assert load.prefix_cache_hit_fraction == pytest.approx(1 / 3, rel=1e-3)


def test_a_rate_that_is_named_is_obeyed_or_refused(planner: Planner, write: WriteScenario) -> None:
    rows = [f"{40 + hour % 5},9,36000,10000" for hour in range(48)]
    write(_table("prompts_sent,errors,input_tokens,output_tokens", rows), "hourly.csv")
    write("timestamp,input_tokens,output_tokens\n1.79e9,9,9\n1790000009,9,9\n", "log.csv")
    planner("init", "a", "--from", "hourly.csv").refused("hourly.csv", "--rate COLUMN")
    planner("init", "a", "--from", "log.csv", "--rate", "rps").refused("no file has a column 'rps'")
    told = planner("init", "a", "--from", "hourly.csv", "--rate", "prompts_sent", "--json")
    assert told.code == 0, told.err
    figures = json.loads(told.out)["workloads"]["hourly"]["figures"]
    assert figures["requests_per_s"]["value"] == pytest.approx(42 / 3600, rel=0.02)


def test_each_workload_has_its_own_model_and_preset(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write(_table("rps", ["3", "4"] * 24), "chat.csv")
    write(_table("rps", ["1", "2"] * 24), "code.csv")
    sources = ("--from", "chat.csv", "--from", "code.csv")
    own = ("--model", "qwen3-32b", "--model", "chat=llama-3.1-8b", "--preset", "code=batch")
    assert planner("init", "a", *sources, *own).code == 0
    loads = load_scenario(tmp_path / "a.yaml").workloads
    assert (loads["chat"].model, loads["code"].model) == ("llama-3.1-8b", "qwen3-32b")
    text = (tmp_path / "a.yaml").read_text()
    assert len(re.findall("preset: batch  # as given", text)) == 1
    planner("init", "b", *sources, "--model", "chst=qwen3-32b").refused(
        "--model: no workload 'chst'", "did you mean chat"
    )
    planner("init", "b", *sources, "--preset", "chat", "--preset", "batch").refused("twice")
