"""Exports of vLLM's metrics give back the traffic that generated them, and a server is read only as it is named."""

from __future__ import annotations

import http.server
import json
import os
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.errors import ScenarioError
from planner.onramp import metrics
from planner.onramp.metrics import read_metrics
from planner.onramp.traffic_fit import Histogram
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Compound
from tests.conftest import Planner, WriteScenario
from tests.onramp.vllm_metrics import Truth, exposition, range_query

CHAT = Truth(weeks=30, growth_per_year=0.6, silent=(300, 306))
CODE = Truth(
    model="Qwen/Qwen3-32B",
    weeks=30,
    requests_per_s=3.0,
    input_mean=2400.0,
    input_sigma=0.8,
    max_model_len=40_960,
    output_mean=40.0,
    hit_fraction=0.7,
    seed=6,
)


@pytest.fixture(scope="module")
def exported() -> str:
    return range_query(CHAT, CODE, restart_hours=700)


def assert_fitted(scenario: Scenario, name: str, truth: Truth, rate: float) -> None:
    """Hold a workload against what generated its metrics, each figure within 5%."""
    load = scenario.workloads[name]
    assert load.requests_per_s == pytest.approx(rate, rel=0.05)
    assert load.lengths.input.distribution.mean_tokens == pytest.approx(truth.input_mean, rel=0.05)
    assert load.lengths.output.distribution.mean_tokens == pytest.approx(
        truth.output_mean, rel=0.05
    )
    for share, score in ((0.5, 0.0), (0.95, 1.645), (0.99, 2.326)):
        lengths = np.log(truth.input_mean) - truth.input_sigma**2 / 2 + truth.input_sigma * score
        assert load.lengths.input.distribution.quantile(share) == pytest.approx(
            np.exp(lengths), rel=0.05
        )
    assert load.prefix_cache_hit_fraction == pytest.approx(truth.hit_fraction, rel=0.05)


def test_a_range_query_gives_back_what_generated_it(
    planner: Planner, write: WriteScenario, tmp_path: Path, exported: str
) -> None:
    """Two models, two servers each, with restarts, rolling updates and an outage: every figure within 5%."""
    write(exported, "prometheus.json")
    told = planner("init", "fleet", "--from", "prometheus.json")
    assert told.code == 0, told.err
    scenario = load_scenario(tmp_path / "fleet.yaml")
    text = (tmp_path / "fleet.yaml").read_text()
    assert scenario.start.isoformat() == "2026-09-01"  # the export ends on 3 August
    years = (scenario.start.toordinal() - 719_163 - (CHAT.start_s / 86_400 + 210)) / 365.25
    names = ("llama-3-1-70b-instruct", "qwen3-32b")
    assert tuple(scenario.workloads) == names
    assert_fitted(scenario, names[0], CHAT, 12.0 * 1.6**years)
    assert_fitted(scenario, names[1], CODE, 3.0)
    chat = scenario.workloads[names[0]]
    assert (chat.model, scenario.workloads[names[1]].model) == ("llama-3.1-70b", "qwen3-32b")
    assert isinstance(chat.growth, Compound)
    assert chat.growth.per_year == pytest.approx(0.6, rel=0.05)
    np.testing.assert_allclose(chat.load_profile.weekly_profile or (), CHAT.week, rtol=0.05)
    assert chat.noise.sigma < 0.02  # the outage is no noise
    assert "6 hours without a request (6 from 2026-01-17 12:00 UTC on) left out: an outage" in text
    assert (
        "# assumed: preset chat, no file contains your SLO; 97.5" in text
    )  # ln 2 s lies 2.37 spreads above ln 0.3
    assert planner("validate", "fleet.yaml").code == 0


def test_a_scrape_shows_rate_lengths_and_latencies(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    path = write(exposition(CHAT), "vllm-metrics.txt")
    end_s = CHAT.start_s + CHAT.weeks * 168 * 3600
    os.utime(path, (end_s, end_s))  # when it was read
    told = planner("init", "one", "--from", "chat=vllm-metrics.txt", "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["workloads"]["chat"]["figures"]["model"]["value"] == "llama-3.1-70b"
    assert_fitted(
        load_scenario(tmp_path / "one.yaml"),
        "chat",
        CHAT,
        CHAT.counts().sum() / (end_s - CHAT.start_s),
    )
    write(exposition(CHAT, has_start=False), "bare.txt")
    planner("init", "two", "--from", "bare.txt").refused(
        "bare.txt: shows no rate", "--requests-per-s"
    )
    assert planner("init", "two", "--from", "bare.txt", "--requests-per-s", "5").code == 0


def test_a_bucket_beyond_the_models_context_ends_there(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    """A server that allows more than its model has bounds beyond the context, but no prompt is as long."""
    write(range_query(replace(CODE, weeks=2, max_model_len=500_000)), "wide.json")
    assert planner("init", "wide", "--from", "wide.json").code == 0
    (load,) = load_scenario(tmp_path / "wide.yaml").workloads.values()
    assert max(load.lengths.input.quantiles.values()) <= 40_960
    assert load.lengths.input.distribution.mean_tokens == pytest.approx(CODE.input_mean, rel=0.05)
    assert "ends at the model's context, 40,960" in (tmp_path / "wide.yaml").read_text()
    # One prompt in fifty are longer than a model of 4,096 tokens could have read.
    short = ("--model", "llama-2-7b")
    planner("init", "no", "--from", "wide.json", *short).refused("wide.json", "longer than the")


def test_sources_of_one_name_are_one_workload(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    """The scrape of an hour has the lengths, a log the bursts, and the hourly rates their level."""
    write(exposition(CHAT), "vllm-metrics.txt")
    week = "".join(f"{hour},{20 + 10 * (hour % 24 > 8)}\n" for hour in range(168))
    write(f"hour_of_week,rps\n{week}", "rates.csv")
    generator = np.random.default_rng(3)
    rows = [f"{1.79e9 + at:.2f},{10},{10},{which}" for at, which in zip(np.sort(generator.random(9000) * 3600),
            generator.choice(["a/b-1", "c"], 9000), strict=True)]  # fmt: skip
    write("\n".join(["timestamp,input_tokens,output_tokens,model", *rows]), "gateway.csv")
    sources = (
        "--from",
        "chat=vllm-metrics.txt",
        "--from",
        "chat=rates.csv",
        "--from",
        "gateway.csv",
    )
    assert planner("init", "all", *sources).code == 0
    scenario = load_scenario(tmp_path / "all.yaml")
    assert set(scenario.workloads) == {"chat", "b-1", "c"}
    assert scenario.workloads["chat"].requests_per_s == pytest.approx(20 + 10 * 15 / 24, rel=1e-3)
    assert scenario.workloads["chat"].lengths.input.distribution.mean_tokens == pytest.approx(
        900, rel=0.05
    )
    assert scenario.workloads["b-1"].requests_per_s == pytest.approx(1.25, rel=0.1)
    text = (tmp_path / "all.yaml").read_text()
    assert "# assumed: the catalogue has no b-1; planner catalog add-model adds it" in text
    planner("init", "x", *sources, "--requests-per-s", "3").refused(
        "is the rate of one workload", "the files have 3: chat"
    )


def test_hours_come_from_the_counters_alone() -> None:
    query = json.loads(range_query(Truth(weeks=1)))
    rows = query["data"]["result"]
    query["data"]["result"] = [row for row in rows if row["metric"]["__name__"].endswith("_total")]
    (seen,) = read_metrics([json.dumps(query).encode()], "x.json", 0.0).values()
    assert not seen.lengths
    assert seen.rates is not None
    assert seen.rates.rates.size == 168
    np.testing.assert_allclose(seen.rates.rates * 3600, Truth(weeks=1).counts(), atol=0.01)


def test_hours_without_samples_are_unknown_and_not_empty() -> None:
    query = json.loads(range_query(Truth(weeks=2), restart_hours=10**6))
    for row in query["data"]["result"]:
        row["values"] = row["values"][:100] + row["values"][140:]
    (seen,) = read_metrics([json.dumps(query).encode()], "x.json", 0.0).values()
    assert seen.rates is not None
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(seen.rates.rates)), np.arange(99, 140))


def test_an_empty_bucket_parts_the_lengths() -> None:
    bounds = np.array([10.0, 20.0, 50.0, 1000.0, 2000.0, np.inf])
    seen = Histogram(bounds=bounds, counts=np.array([10.0, 60, 60, 60, 100, 100]), total=1.0)
    fit = seen.lengths()
    assert fit is not None
    assert fit.distribution.quantile(0.59) < 20
    assert fit.distribution.quantile(0.61) > 1000
    assert fit.distribution.quantile(0.9999) <= 2000
    assert seen.share_within(1500.0) == pytest.approx(0.8)
    assert (
        Histogram(bounds=bounds, counts=np.array([0.0, 0, 0, 0, 9, 9]), total=1.0).lengths() is None
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"status": "error", "error": "bad query", "data": {"resultType": ""}}',
            "Prometheus says bad query",
        ),
        ('{"status": "success", "data": {"resultType": "matrix"}}', "is not an export of metrics"),
        (
            '{"status": "success", "data": {"resultType": "matrix", "result": []}}',
            "has no vllm:request_success_total",
        ),
        (
            '{"data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "x"]]}]}}',
            "is not an export",
        ),
        ("# HELP vllm:x\nvllm:x{a=\n", "line 2 is not a sample"),
        (
            "vllm:request_success_total 5\nprocess_start_time_seconds 3\n",
            "times span more than 30 years",
        ),
        (
            "vllm:request_success_total 5 99999999999999999\nvllm:request_success_total 7 99999999999999999\n",
            "has no",
        ),
        (
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n",
            "without rate() or sum()",
        ),
    ],
)
def test_what_is_no_export_is_said(
    planner: Planner, write: WriteScenario, tmp_path: Path, text: str, message: str
) -> None:
    write(text, "export.json")
    planner("init", "x", "--from", "export.json").refused("export.json", message)
    assert not (tmp_path / "x.yaml").exists()


class _Server(http.server.BaseHTTPRequestHandler):
    answers: dict[str, str] = {}  # noqa: RUF012 - one for a test
    asked: list[dict[str, list[str]]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.asked.append(urllib.parse.parse_qs(query))
        body = self.answers.get(path, "").encode()
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    _Server.answers = {}
    _Server.asked = []
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


def test_a_server_that_is_named_is_read(planner: Planner, server: str, tmp_path: Path) -> None:
    _Server.answers = {
        "/api/v1/query_range": range_query(Truth(weeks=2)),
        "/metrics": exposition(CHAT),
    }
    told = planner("init", "live", "--from", f"chat={server}")
    assert told.code == 0, told.err
    counters, histograms = _Server.asked
    assert "vllm:request_success_total" in counters["query"][0]
    assert (counters["step"], histograms["step"]) == (["3600.0"], ["86400.0"])
    assert "chat:  # fitted to 127.0.0.1" in (tmp_path / "live.yaml").read_text()
    assert planner("init", "scraped", "--from", f"chat={server}/metrics").code == 0


def test_a_server_that_fails_is_one_message(
    planner: Planner, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner("init", "x", "--from", server).refused("answers 404", "export its answer to a file")
    planner("init", "x", "--from", "http://127.0.0.1:1").refused(
        "cannot be read", "Connection refused"
    )
    _Server.answers = {"/metrics": "vllm:x 1\n" * 1000}
    monkeypatch.setattr(metrics, "MAX_BYTES", 5000)
    with pytest.raises(ScenarioError, match="sends more than"):
        metrics.fetch(f"{server}/metrics")
