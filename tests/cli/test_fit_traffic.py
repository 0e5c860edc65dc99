from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from planner.cli.app import app
from planner.demand.shape import weekly_profile
from planner.errors import ScenarioError
from planner.scenario.workload import Workload
from planner.validation import validate
from planner.yaml_io import Document, parse_document
from tests.demand.shared_traces import trace

RUNNER = CliRunner()


def _log_file(folder: Path, hours: float = 1.0) -> Path:
    generator = np.random.default_rng(4)
    times_s = np.sort(1.7e9 + generator.random(int(hours * 2000)) * hours * 3600)
    tokens = np.exp([[6.5], [5.0]] + 0.7 * generator.standard_normal((2, times_s.size)))
    path = folder / "requests.csv"
    rows = zip(times_s, *tokens, strict=True)
    path.write_text(
        "timestamp,input_tokens,output_tokens\n" + "".join(f"{t:.3f},{i:.0f},{o:.0f}\n" for t, i, o in rows)
    )
    return path


def _workload(text: str, name: str = "fitted") -> Workload:
    content = parse_document(text, "fitted.yaml").content["workloads"][name]
    return validate(Workload, Document(content))


def test_fitted_yaml_is_a_workload_the_scenario_language_accepts(tmp_path: Path) -> None:
    out = tmp_path / "fitted.yaml"
    arguments = [
        "fit-traffic",
        str(_log_file(tmp_path)),
        "--name",
        "mine",
        "--model",
        "llama-3.1-8b",
        "--out",
        str(out),
    ]
    result = RUNNER.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    workload = _workload(out.read_text(encoding="utf-8"), "mine")
    assert workload.model == "llama-3.1-8b"
    assert workload.requests_per_s == pytest.approx(2000 / 3600, rel=0.01)
    assert workload.lengths.input.mean == pytest.approx(np.exp(6.5 + 0.7**2 / 2), rel=0.1)
    assert workload.lengths.input.distribution.quantile(0.5) == pytest.approx(np.exp(6.5), rel=0.1)
    assert "standard error" in out.read_text(encoding="utf-8")
    assert "class default: not visible in" in result.stdout
    assert list(tmp_path.glob("tmp*")) == []


def test_table_and_yaml_go_to_the_terminal_without_out(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["fit-traffic", str(_log_file(tmp_path))], catch_exceptions=False)
    assert "lengths.input.quantiles" in result.stdout
    assert _workload(result.stdout[result.stdout.index("# Fitted") :]).requests_per_s > 0


def test_json_carries_every_figure_and_where_it_is_from(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["fit-traffic", str(_log_file(tmp_path)), "--preset", "agentic", "--json"])
    figures = json.loads(result.stdout)["figures"]
    assert figures["prefix_cache_hit_fraction"] == {
        "value": 0.963,
        "remark": "class default: no cached tokens or block hashes in the log",
        "from_class": True,
    }
    assert not figures["lengths.input.quantiles"]["from_class"]


def test_series_of_two_weeks_gives_a_weekly_profile(tmp_path: Path) -> None:
    week = np.array(weekly_profile(peak_to_mean=1.9, weekend_fraction=0.5)) * 600
    dates = np.datetime64("2026-01-05T00:00:00") + np.arange(336) * np.timedelta64(1, "h")
    path = tmp_path / "rate_per_min.csv"
    path.write_text("timestamp,api\n" + "".join(f"{d},{r}\n" for d, r in zip(dates, np.tile(week, 2), strict=True)))
    result = RUNNER.invoke(app, ["fit-traffic", str(path)], catch_exceptions=False)
    workload = _workload(result.stdout[result.stdout.index("# Fitted") :])
    assert workload.requests_per_s == pytest.approx(10.0, rel=1e-3)
    assert workload.load_profile.weekly_profile is not None
    np.testing.assert_allclose(workload.load_profile.weekly_profile, week / 600, atol=5e-4)


def test_a_log_and_a_series_make_one_workload(tmp_path: Path) -> None:
    log, rates = _log_file(tmp_path), tmp_path / "rate_per_min.csv"
    week = np.array(weekly_profile(peak_to_mean=1.9, weekend_fraction=0.5)) * 600
    dates = np.datetime64("2026-01-05T00:00:00") + np.arange(168) * np.timedelta64(1, "h")
    rates.write_text("timestamp,api\n" + "".join(f"{d},{r}\n" for d, r in zip(dates, week, strict=True)))
    alone = RUNNER.invoke(app, ["fit-traffic", str(log)], catch_exceptions=False)
    both = RUNNER.invoke(app, ["fit-traffic", str(log), "--hourly", str(rates)], catch_exceptions=False)
    assert both.exit_code == 0
    first, second = (_workload(found.stdout[found.stdout.index("# Fitted") :]) for found in (alone, both))
    assert second.requests_per_s == pytest.approx(10.0, rel=1e-3)  # the series' level
    assert second.load_profile.weekly_profile is not None
    assert second.lengths == first.lengths
    assert second.burst_index_of_dispersion == first.burst_index_of_dispersion
    with pytest.raises(ScenarioError, match="is an hourly series itself"):
        RUNNER.invoke(app, ["fit-traffic", str(rates), "--hourly", str(rates)], catch_exceptions=False)


def test_daily_peak_is_raised_to_the_weeks(tmp_path: Path) -> None:
    day = 1.0 + 0.2 * np.cos(2 * np.pi * np.arange(24) / 24)
    path = tmp_path / "rps.csv"
    path.write_text("hour,x\n" + "".join(f"{h},{day[h % 24]}\n" for h in range(72)))
    result = RUNNER.invoke(app, ["fit-traffic", str(path), "--preset", "code-completion"], catch_exceptions=False)
    workload = _workload(result.stdout[result.stdout.index("# Fitted") :])
    assert workload.load_profile.peak_to_mean == pytest.approx(1.2 * 7 / 5.65, rel=1e-3)
    weekly_profile(
        peak_to_mean=workload.load_profile.peak_to_mean, weekend_fraction=workload.load_profile.weekend_fraction
    )


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--preset", "chatt"], "chat"),
        (["--timezone", "Europe/Berlim"], "Europe/Berlin"),
        (["--name", "a.b"], "--name"),
        (["--model", "a b"], "--model"),
        (["--time-unit", "min"], "--time-unit"),
        (["--columns", "input=none"], "no column 'none'"),
        (["--out", "nowhere/x.yaml"], "cannot be written"),
    ],
)
def test_bad_options_are_scenario_errors(tmp_path: Path, extra: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["fit-traffic", str(_log_file(tmp_path)), *extra])
    assert isinstance(result.exception, ScenarioError)
    assert message in str(result.exception)


def test_existing_output_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("precious")
    result = RUNNER.invoke(app, ["fit-traffic", str(_log_file(tmp_path)), "--out", str(out)])
    assert isinstance(result.exception, ScenarioError)
    assert out.read_text() == "precious"


def test_series_without_a_unit_asks_for_the_rate(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("hour,x\n" + "".join(f"{h},1\n" for h in range(72)))
    result = RUNNER.invoke(app, ["fit-traffic", str(path)])
    assert "state --requests-per-s" in str(result.exception)
    assert RUNNER.invoke(app, ["fit-traffic", str(path), "--requests-per-s", "5"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("AzureLLMInferenceTrace_code.csv", []),
        ("AzureLLMInferenceTrace_conv.csv", []),
        ("mooncake_conversation_trace.jsonl", ["--preset", "long-context"]),
        ("claude_code_agentic_requests.csv.gz", ["--preset", "agentic", "--requests-per-s", "3"]),
        ("servegen_hourly_rate_rps.csv", ["--series", "m-large", "--preset", "bulk-api"]),
        ("azure2024_hourly_digitised_req_per_min.csv", ["--series", "code", "--preset", "code-completion"]),
    ],
)
def test_every_public_trace_becomes_a_workload(name: str, extra: list[str]) -> None:
    result = RUNNER.invoke(app, ["fit-traffic", str(trace(name)), *extra], catch_exceptions=False)
    try:
        workload = _workload(result.stdout[result.stdout.index("# Fitted") :])
    except ValidationError as error:
        pytest.fail(str(error))
    assert workload.requests_per_s > 0


def test_sessions_with_their_own_clock_need_a_stated_rate() -> None:
    result = RUNNER.invoke(app, ["fit-traffic", str(trace("claude_code_agentic_requests.csv.gz"))])
    assert "shows no rate" in str(result.exception)
