from __future__ import annotations

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.catalog.load import workload_preset
from planner.demand.shape import weekly_profile
from planner.demand.tokens import RequestLog
from planner.errors import ScenarioError
from planner.onramp.traffic_fit import (
    Figure,
    Fitted,
    LogReading,
    ShapeFit,
    TrafficFit,
    class_length_figures,
    figure_rows,
    fit_hourly_shape,
    fit_lengths,
    fit_traffic,
    index_of_dispersion,
    log_figures,
    reported_rows,
    shape_figures,
)
from planner.onramp.traffic_log import read_request_log
from tests.demand.shared_traces import trace

ASKED = LogReading(name="mine", model="llama-3.1-8b", workload_preset="chat")
CHAT = workload_preset("chat")


def _fit(*, prefix_cache_hit_fraction: float | None = None, **changes: object) -> TrafficFit:
    generator = np.random.default_rng(2)
    times_s = np.sort(generator.random(3000)) * 3600.0
    prompts = np.exp(6 + generator.standard_normal(3000))
    log = RequestLog(
        times_s=times_s,
        input_tokens=prompts,
        output_tokens=np.exp(5 + 0.5 * generator.standard_normal(3000)),
        cached_tokens=None if prefix_cache_hit_fraction is None else prompts * prefix_cache_hit_fraction,
        **changes,  # type: ignore[arg-type]
    )
    return fit_traffic(log)


def _by_field(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.field: figure for figure in figures}


def _shape(**changes: object) -> ShapeFit:
    known: dict[str, object] = {
        "peak_to_mean": 1.5,
        "weekend_fraction": 0.6,
        "weekly_profile": weekly_profile(peak_to_mean=1.5, weekend_fraction=0.6),
        "noise_sigma": 0.2,
        "noise_correlation_h": 5.0,
    }
    return ShapeFit(**{**known, **changes})  # type: ignore[arg-type]


def test_what_a_log_does_not_show_comes_from_the_class_and_says_so() -> None:
    figures = _by_field(log_figures(_fit(), CHAT, None))
    for field, name in (
        ("load_profile.peak_to_mean", "peak_to_mean"),
        ("load_profile.weekend_fraction", "weekend_fraction"),
        ("noise.sigma", "noise_sigma"),
        ("noise.correlation_h", "noise_correlation_h"),
        ("prefix_cache_hit_fraction", "prefix_cache_hit_fraction"),
    ):
        assert figures[field].from_class
        assert figures[field].fitted == CHAT[name]
        assert figures[field].remark.startswith("class default: ")
    assert not figures["requests_per_s"].from_class
    assert figures["requests_per_s"].fitted == pytest.approx(3000 / 3600, rel=0.01)


def test_what_a_log_shows_is_fitted() -> None:
    figures = _by_field(log_figures(_fit(prefix_cache_hit_fraction=0.25), CHAT, 7.0))
    assert figures["prefix_cache_hit_fraction"].fitted == 0.25
    assert figures["requests_per_s"].fitted == 7.0
    assert figures["requests_per_s"].remark == "as given"
    assert figures["burst_index_of_dispersion"].fitted == pytest.approx(1.0, abs=1.0)


def test_a_hit_fraction_of_one_stays_below_what_a_scenario_allows() -> None:
    assert (
        _by_field(log_figures(_fit(prefix_cache_hit_fraction=1.0), CHAT, None))["prefix_cache_hit_fraction"].fitted
        == 0.999
    )


def test_arrivals_more_even_than_poisson_are_written_as_poisson() -> None:
    even = RequestLog(times_s=np.arange(3600.0), input_tokens=np.full(3600, 9.0), output_tokens=np.full(3600, 9.0))
    assert _by_field(log_figures(fit_traffic(even), CHAT, None))["burst_index_of_dispersion"].fitted == 1.0


def test_seen_shape_and_noise_replace_the_class() -> None:
    figures = _by_field(shape_figures(_shape(), CHAT, "unused"))
    assert not any(figure.from_class for figure in figures.values())
    assert figures["load_profile.peak_to_mean"].fitted == 1.5
    assert figures["noise.correlation_h"].fitted == 5.0


@pytest.mark.parametrize("name", ["chat", "code-completion", "batch", "bulk-api"])
def test_a_mean_day_gives_a_week_that_can_be_built(name: str) -> None:
    day = _shape(weekend_fraction=None, weekly_profile=None, peak_to_mean=1.02)
    figures = _by_field(shape_figures(day, workload_preset(name), "unused"))
    peak, weekend = figures["load_profile.peak_to_mean"].fitted, figures["load_profile.weekend_fraction"].fitted
    assert isinstance(peak, float)
    assert isinstance(weekend, float)
    week = np.array(weekly_profile(peak_to_mean=peak, weekend_fraction=weekend)).reshape(7, 24)
    assert week[0].max() / week[0].mean() == pytest.approx(1.02)


def test_yaml_reads_back_to_the_figures() -> None:
    figures = log_figures(_fit(), CHAT, None)
    text = Fitted(asked=ASKED, source="a log\nof two lines.csv", figures=figures).yaml()
    workload = yaml.safe_load(text)["workloads"]["mine"]
    assert workload["model"] == "llama-3.1-8b"
    assert workload["preset"] == "chat"
    assert workload["load_profile"]["timezone"] == "UTC"
    for figure in figures:
        node = workload
        for key in figure.field.split("."):
            node = node[key]
        assert node == pytest.approx(figure.fitted, rel=1e-3)
    assert 0.5 in workload["lengths"]["input"]["quantiles"]
    assert text.splitlines()[0] == "# Fitted by planner fit-traffic to a log of two lines.csv"


def test_weekly_profile_is_written_a_day_a_line() -> None:
    shape = _shape()
    figures = shape_figures(shape, CHAT, "unused") + class_length_figures(CHAT, "unused")
    text = Fitted(asked=ASKED, source="", figures=figures, shape=shape).yaml()
    profile = yaml.safe_load(text)["workloads"]["mine"]["load_profile"]["weekly_profile"]
    np.testing.assert_allclose(profile, shape.weekly_profile or (), atol=5e-4)


@given(st.floats(1e-7, 1e9))
def test_numbers_are_written_plainly_and_closely(number: float) -> None:
    (row,) = figure_rows([Figure(field="x", fitted=number, remark="")])
    assert "e" not in row[1]
    assert float(row[1]) == pytest.approx(number, rel=1e-3, abs=1e-9)


def test_a_figure_without_a_number_is_an_empty_cell() -> None:
    assert figure_rows([Figure(field="x", fitted=None, remark="why")]) == [("x", "", "why")]


def test_json_holds_what_is_only_reported() -> None:
    fit = _fit(clients=np.repeat([0, 1], [1000, 2000]))
    data = Fitted(asked=ASKED, source="", figures=log_figures(fit, CHAT, None), log=fit).json()
    assert data["figures"]["lengths.input.quantiles"]["value"]["0.5"] == fit.input.quantiles[0.5]
    assert data["reported"]["clients"] == 2
    assert data["reported"]["largest_client_fraction"] == pytest.approx(2 / 3)
    assert Fitted(asked=ASKED, source="", figures=[]).json()["reported"] == {}
    assert "66.7%" in {row[0]: row[1] for row in reported_rows(fit)}["largest client's share"]


MONDAY_S = 4 * 86_400.0  # 5 January 1970


def _log(times_s: NDArray[np.float64], seed: int = 0, has_date: bool = True) -> RequestLog:
    generator = np.random.default_rng(seed)
    return RequestLog(
        times_s=times_s,
        input_tokens=np.exp(6.5 + 0.9 * generator.standard_normal(times_s.size)),
        output_tokens=np.exp(5.0 + 0.7 * generator.standard_normal(times_s.size)),
        has_date=has_date,
    )


def _poisson_times_s(requests_per_s: float, duration_s: float, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return np.sort(generator.random(generator.poisson(requests_per_s * duration_s)) * duration_s)


def test_poisson_log_is_recovered_within_its_own_errors() -> None:
    fit = fit_traffic(_log(_poisson_times_s(8.0, 7200.0, 1)))
    assert fit.requests_per_s is not None
    assert fit.requests_per_s_error_fraction is not None
    assert abs(fit.requests_per_s / 8.0 - 1) < 4 * fit.requests_per_s_error_fraction
    assert fit.index_of_dispersion is not None
    assert fit.index_of_dispersion_error is not None
    assert abs(fit.index_of_dispersion - 1.0) < 4 * fit.index_of_dispersion_error
    assert fit.interarrival_cv == pytest.approx(1.0, abs=4 / np.sqrt(fit.requests))
    assert fit.shape is None
    assert fit.largest_client_fraction is None


@pytest.mark.parametrize("kind", ["lognormal", "piled up", "two sorts", "alike"])
def test_fitted_lengths_have_the_logs_quantiles_and_mean(kind: str) -> None:
    generator = np.random.default_rng(3)
    tokens = np.rint(np.exp(6.5 + 0.9 * generator.standard_normal(20_000)))
    match kind:
        case "piled up":  # at a context limit
            tokens = np.minimum(tokens, 2048)
        case "two sorts":  # templates beside free text: p95 beyond any lognormal of this mean
            tokens = np.where(generator.random(20_000) < 0.9, 20.0, 50.0 * tokens)
        case "alike":
            tokens = np.full(20_000, 77.0)
    fit = fit_lengths(tokens)
    for share in (0.5, 0.95, 0.99):
        assert fit.distribution.quantile(share) == pytest.approx(np.quantile(tokens, share), rel=0.01)
    assert abs(fit.mean_error_fraction) < 0.01
    assert fit.mean_error_fraction == pytest.approx(fit.distribution.mean_tokens / tokens.mean() - 1.0)
    assert fit.largest_distribution_error < 0.03


def test_a_fit_through_too_few_quantiles_says_how_far_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.onramp.traffic_fit.FITTED_QUANTILES", (0.1, 0.9))
    monkeypatch.setattr("planner.onramp.traffic_fit._MOST_QUANTILES", 2)
    tokens = np.concatenate([np.full(800, 10.0), np.full(200, 1000.0)])
    fit = fit_lengths(tokens)
    assert fit.largest_distribution_error == pytest.approx(0.7, abs=0.02)  # a lognormal from 10 at 0.1 on


def test_dispersion_of_a_modulated_stream_and_of_a_long_log_with_a_day() -> None:
    generator = np.random.default_rng(5)
    rates = generator.gamma(60 * 20 / 11, 20 / (60 * 20 / 11), 1440)
    counts = generator.poisson(rates * 60)
    times_s = np.sort(np.repeat(np.arange(1440) * 60.0, counts) + 60 * generator.random(counts.sum()))
    index, error = index_of_dispersion(times_s)
    assert index is not None
    assert error is not None
    assert abs(index - 12.0) < 4 * error
    day = np.repeat(np.arange(1440) * 60.0, generator.poisson(600 * (1.0 + 0.9 * (np.arange(1440) // 60 % 2))))
    times_s = np.sort(day + 60 * generator.random(day.size))
    index, error = index_of_dispersion(times_s)
    assert index is not None
    assert error is not None
    assert abs(index - 1.0) < 4 * error + 0.05  # hours that differ are not bursts


def test_short_log_shows_no_dispersion() -> None:
    assert index_of_dispersion(np.linspace(0, 300, 100)) == (None, None)


def test_weekly_shape_is_recovered_from_two_weeks_of_rates() -> None:
    profile = np.array(weekly_profile(peak_to_mean=1.7, weekend_fraction=0.6))
    shape = fit_hourly_shape(np.roll(np.tile(profile, 3), -30) * 50.0, 30)
    assert shape is not None
    assert shape.weekly_profile is not None
    np.testing.assert_allclose(shape.weekly_profile, profile, rtol=1e-9)
    assert (shape.peak_to_mean, shape.weekend_fraction) == pytest.approx((1.7, 0.6))
    assert shape.noise_sigma == pytest.approx(0.0, abs=1e-6)


def test_noise_around_the_week_is_recovered() -> None:
    generator = np.random.default_rng(8)
    profile = np.tile(np.array(weekly_profile(peak_to_mean=1.7, weekend_fraction=0.6)), 26)
    residual = np.zeros(profile.size)
    phi = np.exp(-1 / 6.0)
    for hour in range(1, profile.size):
        residual[hour] = phi * residual[hour - 1] + 0.2 * np.sqrt(1 - phi**2) * generator.standard_normal()
    shape = fit_hourly_shape(profile * np.exp(residual), 0)
    assert shape is not None
    assert shape.noise_sigma == pytest.approx(0.2, rel=0.1)
    assert shape.noise_correlation_h == pytest.approx(6.0, rel=0.25)


def test_undated_or_short_rates_show_a_day_only() -> None:
    day = 1.0 + 0.5 * np.cos(2 * np.pi * np.arange(24) / 24)
    for hours, first in ((72, 0), (24 * 14, None)):
        shape = fit_hourly_shape(np.tile(day, hours // 24), first)
        assert shape is not None
        assert shape.weekly_profile is None
        assert shape.weekend_fraction is None
        assert shape.peak_to_mean == pytest.approx(1.5)
    assert fit_hourly_shape(np.ones(47), 0) is None
    assert fit_hourly_shape(np.zeros(100), 0) is None


def test_log_of_weeks_yields_its_hour_of_the_week() -> None:
    generator = np.random.default_rng(9)
    profile = np.array(weekly_profile(peak_to_mean=2.0, weekend_fraction=0.5, peak_hour=10))
    counts = generator.poisson(np.tile(profile, 2) * 400)
    times_s = (
        MONDAY_S
        - 1800.0
        + np.sort(np.repeat(np.arange(336) * 3600.0 + 1800.0, counts) + 3600 * generator.random(counts.sum()))
    )
    fit = fit_traffic(_log(times_s))
    assert fit.shape is not None
    assert fit.shape.weekly_profile is not None
    assert np.argmax(fit.shape.weekly_profile) % 24 == 10
    assert fit.shape.weekend_fraction == pytest.approx(0.5, rel=0.05)
    assert fit_traffic(_log(times_s, has_date=False)).shape.weekly_profile is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "side", "mu", "sigma"),
    [
        ("AzureLLMInferenceTrace_conv.csv", "input", 6.63, 0.99),
        ("AzureLLMInferenceTrace_conv.csv", "output", 5.02, 0.86),
        ("AzureLLMInferenceTrace_code.csv", "input", 7.00, 1.36),
        ("AzureLLMInferenceTrace_code.csv", "output", 2.79, 0.85),
        ("mooncake_conversation_trace.jsonl", "input", 8.74, 1.20),
        ("mooncake_conversation_trace.jsonl", "output", 5.34, 1.36),
    ],
)
def test_public_traces_have_their_published_lognormals(name: str, side: str, mu: float, sigma: float) -> None:
    tokens = getattr(read_request_log(trace(name)), f"{side}_tokens")
    logs = np.log(tokens[tokens > 0.0])
    assert (logs.mean(), logs.std()) == pytest.approx((mu, sigma), abs=0.006)


def test_too_little_to_fit_is_said() -> None:
    with pytest.raises(ScenarioError, match="at least two requests"):
        fit_traffic(_log(np.array([1.0])))
    with pytest.raises(ScenarioError, match="the same time"):
        fit_traffic(_log(np.array([1.0, 1.0])))
    with pytest.raises(ScenarioError, match="output lengths are zero"):
        fit_lengths(np.zeros(5), "output")


def test_clients_are_counted() -> None:
    log = _log(np.arange(100.0))
    owned = RequestLog(
        times_s=log.times_s,
        input_tokens=log.input_tokens,
        output_tokens=log.output_tokens,
        clients=np.repeat([0, 1, 2], [60, 30, 10]),
    )
    fit = fit_traffic(owned)
    assert (fit.largest_client_fraction, fit.clients) == (0.6, 3)
