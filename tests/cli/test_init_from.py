"""``planner init --from``: logs and hourly rates become workloads, and what is wrong is one message."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planner.demand.shape import weekly_profile
from planner.scenario.loading import load_scenario
from planner.scenario.workload import Workload
from tests.conftest import Planner
from tests.demand.shared_traces import trace

WEEK = np.array(weekly_profile(peak_to_mean=1.9, weekend_fraction=0.5)) * 600


def log_file(folder: Path, hours: float = 1.0) -> Path:
    generator = np.random.default_rng(4)
    times_s = np.sort(1.7e9 + generator.random(int(hours * 2000)) * hours * 3600)
    tokens = np.exp([[6.5], [5.0]] + 0.7 * generator.standard_normal((2, times_s.size)))
    rows = "".join(f"{t:.3f},{i:.0f},{o:.0f}\n" for t, i, o in zip(times_s, *tokens, strict=True))
    (folder / "requests.csv").write_text(f"timestamp,input_tokens,output_tokens\n{rows}")
    return folder / "requests.csv"


def rate_file(folder: Path, weeks: int) -> Path:
    dates = np.datetime64("2026-01-05T00:00:00") + np.arange(168 * weeks) * np.timedelta64(1, "h")
    rows = "".join(f"{d},{r}\n" for d, r in zip(dates, np.tile(WEEK, weeks), strict=True))
    (folder / "rate_per_min.csv").write_text(f"timestamp,api\n{rows}")
    return folder / "rate_per_min.csv"


def written(folder: Path, name: str) -> Workload:
    (load,) = load_scenario(folder / f"{name}.yaml").workloads.values()
    return load


def test_a_log_is_a_workload_with_its_errors_beside_it(planner: Planner, tmp_path: Path) -> None:
    told = planner("init", "a", "--from", f"mine={log_file(tmp_path)}", "--model", "llama-3.1-8b")
    assert told.code == 0, told.err
    assert "lengths.input.quantiles" in told.out
    assert "assumed: preset chat, not visible in" in told.out
    load = load_scenario(tmp_path / "a.yaml").workloads["mine"]
    assert load.model == "llama-3.1-8b"
    assert load.requests_per_s == pytest.approx(2000 / 3600, rel=0.01)
    assert load.lengths.input.mean == pytest.approx(np.exp(6.5 + 0.7**2 / 2), rel=0.1)
    assert load.lengths.input.distribution.quantile(0.5) == pytest.approx(np.exp(6.5), rel=0.1)
    text = (tmp_path / "a.yaml").read_text(encoding="utf-8")
    assert "standard error" in text
    assert "preset: chat  # assumed: " in text
    assert "ttft_s: 2  # assumed: preset chat, your SLO is in no file" in text


def test_json_carries_every_figure_and_where_it_is_from(planner: Planner, tmp_path: Path) -> None:
    told = planner("init", "a", "--from", str(log_file(tmp_path)), "--preset", "agentic", "--json")
    answer = json.loads(told.out)
    figures = answer["workloads"]["requests"]["figures"]
    assert answer["scenario"] == "a.yaml"
    assert figures["prefix_cache_hit_fraction"] == {
        "value": 0.963,
        "remark": "assumed: preset agentic, no cached tokens or block hashes seen",
    }
    assert "assumed" not in figures["lengths.input.quantiles"]["remark"]
    assert "0.5" in figures["lengths.input.quantiles"]["value"]


def test_hourly_rates_give_a_weekly_profile_and_a_log_the_rest(
    planner: Planner, tmp_path: Path
) -> None:
    rates = str(rate_file(tmp_path, 2))
    log = str(log_file(tmp_path))
    assert planner("init", "rates", "--from", rates).code == 0
    assert planner("init", "log", "--from", log).code == 0
    assert planner("init", "both", "--from", f"api={log}", "--from", f"api={rates}").code == 0
    alone, logged, both = (written(tmp_path, name) for name in ("rates", "log", "both"))
    assert alone.requests_per_s == both.requests_per_s == pytest.approx(10.0, rel=1e-3)
    for load in (alone, both):
        np.testing.assert_allclose(load.load_profile.weekly_profile or (), WEEK / 600, atol=5e-4)
    assert both.lengths == logged.lengths
    assert both.burst_index_of_dispersion == logged.burst_index_of_dispersion


def test_a_daily_peak_is_raised_to_the_weeks(planner: Planner, tmp_path: Path) -> None:
    day = 1.0 + 0.2 * np.cos(2 * np.pi * np.arange(24) / 24)
    (tmp_path / "rps.csv").write_text(
        "hour,x\n" + "".join(f"{h},{day[h % 24]}\n" for h in range(72))
    )
    assert planner("init", "a", "--from", "rps.csv", "--preset", "code-completion").code == 0
    assert written(tmp_path, "a").load_profile.peak_to_mean == pytest.approx(
        1.2 * 7 / 5.65, rel=1e-3
    )


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--preset", "chatt"], "chat"),
        (["--timezone", "Europe/Berlim"], "Europe/Berlin"),
        (["--model", "a b"], "unknown model"),
        (["--time-unit", "min"], "--time-unit"),
        (["--columns", "input=none"], "no column 'none'"),
        (["--from", "nowhere.csv"], "nowhere.csv"),
        (["--from", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_options_are_one_message(
    planner: Planner, tmp_path: Path, extra: list[str], message: str
) -> None:
    planner("init", "a", "--from", str(log_file(tmp_path)), *extra).refused(message)
    assert not (tmp_path / "a.yaml").exists()


def test_rates_without_a_unit_need_the_rate(planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("hour,x\n" + "".join(f"{h},1\n" for h in range(72)))
    planner("init", "a", "--from", "load.csv").refused("state --requests-per-s")
    assert planner("init", "a", "--from", "load.csv", "--requests-per-s", "5").code == 0
    assert written(tmp_path, "a").requests_per_s == 5.0


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("AzureLLMInferenceTrace_code.csv", []),
        ("AzureLLMInferenceTrace_conv.csv", []),
        ("mooncake_conversation_trace.jsonl", ["--preset", "long-context"]),
        (
            "claude_code_agentic_requests.csv.gz",
            ["--model", "deepseek-v4-pro", "--requests-per-s", "3"],
        ),
        ("servegen_hourly_rate_rps.csv", ["--rate", "m-large", "--preset", "bulk-api"]),
        (
            "azure2024_hourly_digitised_req_per_min.csv",
            ["--rate", "code", "--preset", "code-completion"],
        ),
    ],
)
def test_every_public_trace_becomes_a_workload(
    planner: Planner, tmp_path: Path, name: str, extra: list[str]
) -> None:
    told = planner("init", "a", "--from", f"mine={trace(name)}", *extra)
    assert told.code == 0, told.err
    assert written(tmp_path, "a").requests_per_s > 0


def test_sessions_with_their_own_clock_need_a_stated_rate(planner: Planner) -> None:
    planner("init", "a", "--from", str(trace("claude_code_agentic_requests.csv.gz"))).refused(
        "shows no rate"
    )
