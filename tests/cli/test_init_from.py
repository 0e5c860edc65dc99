"""``planner init --from``: logs and hourly rates become workloads, and what is wrong is one message."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.load import workload_preset_names
from planner.scenario.loading import load_scenario, plan_in_future
from planner.scenario.workload import Workload
from tests.conftest import Planner
from tests.demand.shared_traces import trace


def log_file(folder: Path, hours: float = 1.0) -> Path:
    generator = np.random.default_rng(4)
    times_s = np.sort(1.7e9 + generator.random(int(hours * 2000)) * hours * 3600)
    tokens = np.exp([[6.5], [5.0]] + 0.7 * generator.standard_normal((2, times_s.size)))
    rows = "".join(f"{t:.3f},{i:.0f},{o:.0f}\n" for t, i, o in zip(times_s, *tokens, strict=True))
    (folder / "requests.csv").write_text(f"timestamp,input_tokens,output_tokens\n{rows}")
    return folder / "requests.csv"


def written(folder: Path, name: str) -> Workload:
    (load,) = load_scenario(folder / f"{name}.yaml").workloads.values()
    return load


def test_json_carries_every_figure_and_where_it_is_from(planner: Planner, tmp_path: Path) -> None:
    told = planner("init", "a", "--from", str(log_file(tmp_path)), "--preset", "agentic", "--json")
    answer = json.loads(told.out)
    figures = answer["workloads"]["requests"]["figures"]
    assert answer["scenario"] == "a.yaml"
    assert figures["prefix_cache_hit_fraction"] == {
        "value": 0.963,
        "remark": "assumed: preset agentic, no cached tokens, sessions or block hashes seen",
    }
    assert "assumed" not in figures["lengths.input.quantiles"]["remark"]
    assert "0.5" in figures["lengths.input.quantiles"]["value"]


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


def test_help_lists_every_preset(planner: Planner) -> None:
    """Written out there, as reading the catalogue would take longer than the help itself."""
    words = re.findall(r"[a-z-]+", " ".join(planner("init", "--help").out.split()))
    assert set(workload_preset_names()) <= set(words)


@pytest.mark.parametrize(
    "value",
    [
        "futures.busy.set.workloads.*.requests_per_s=×2",
        "futures.busy.set.workloads.chat.requests_per_s=×2",
        'futures.busy={set: {"workloads.chat.requests_per_s": ×2}}',
    ],
)
def test_a_future_is_written_as_a_path_of_its_own(
    planner: Planner, tmp_path: Path, value: str
) -> None:
    """What it doubles is resolved in each plan: neither now, nor as a section of the scenario."""
    assert planner("init", "a", "--set", value).code == 0
    scenario = load_scenario(tmp_path / "a.yaml")
    ((path, change),) = scenario.futures["busy"].set.items()
    assert path in ("workloads.*.requests_per_s", "workloads.chat.requests_per_s")
    busy, _ = plan_in_future(scenario, scenario.futures["busy"])
    assert busy is not None
    stated = scenario.workloads["chat"].requests_per_s
    assert (change, busy.workloads["chat"].requests_per_s) == ("×2", 2 * stated)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("futures.busy.set.growth=0.2", "growth: in the future 'busy' of a: unknown key"),
        ("futures.late.set.clusters.b20.delivered=+6 months", "did you mean b200?"),
        ("futures.busy.requests_per_s=2", "futures.busy.requests_per_s: unknown key (allowed: set"),
        ('futures.busy.set={"*": 2}', "in the future 'busy' of a"),
    ],
)
def test_a_future_that_changes_nothing_is_refused_with_the_fix(
    planner: Planner, tmp_path: Path, value: str, message: str
) -> None:
    planner("init", "a", "--set", value).refused(message)
    assert not (tmp_path / "a.yaml").exists()


def test_validate_refuses_a_future_of_an_unknown_key(planner: Planner, tmp_path: Path) -> None:
    assert planner("init", "a").code == 0
    lines = 'futures: {busy: {set: {"workloads.chat.rate": 2}}, elsewhere: {set: {clusters.x.nodes: 2}}}\n'
    file = tmp_path / "a.yaml"
    file.write_text(file.read_text() + "\n" + lines)
    refusal = planner("validate", "a.yaml")
    refusal.refused("workloads.chat.rate: unknown key")
    assert "clusters.x" not in refusal.err
