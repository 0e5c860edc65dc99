from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

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
from planner.onramp.hourly import HourlyRates
from planner.onramp.traffic_fit import (
    Figure,
    Fitted,
    ObservedTraffic,
    ServedModel,
    TrafficOptions,
    fit_hourly_shape,
    fit_lengths,
    fit_trend,
    fitted_workload,
    index_of_dispersion,
    silent_hours,
    traffic_of_log,
)
from planner.onramp.traffic_log import read_request_log
from tests.demand.shared_traces import trace

CHAT = workload_preset("chat")
MODEL = ServedModel(
    figure=Figure(field="model", fitted="llama-3.1-8b", remark="as given"), longest_tokens=131_072
)


def _traffic(
    *, prefix_cache_hit_fraction: float | None = None, **changes: object
) -> ObservedTraffic:
    generator = np.random.default_rng(2)
    times_s = np.sort(generator.random(3000)) * 3600.0
    prompts = np.exp(6 + generator.standard_normal(3000))
    log = RequestLog(
        times_s=times_s,
        input_tokens=prompts,
        output_tokens=np.exp(5 + 0.5 * generator.standard_normal(3000)),
        cached_tokens=None
        if prefix_cache_hit_fraction is None
        else prompts * prefix_cache_hit_fraction,
        **changes,  # type: ignore[arg-type]
    )
    return traffic_of_log(log, "a log\nof two lines.csv")


def _fitted(traffic: ObservedTraffic, **stated: Any) -> Fitted:
    return fitted_workload(
        "mine", traffic, TrafficOptions(**stated), MODEL, datetime.date(2026, 1, 1)
    )


def _by_field(fitted: Fitted) -> dict[str, Figure]:
    return {figure.field: figure for figure in fitted.figures}


def _series(rates: Any, **changes: Any) -> ObservedTraffic:
    known: dict[str, Any] = {
        "column": "x",
        "first_hour_of_week": 0,
        "end_s": MONDAY_S + 3600.0 * len(rates),
    } | changes
    return ObservedTraffic(
        source="rates.csv", rates=HourlyRates(rates=np.asarray(rates, dtype=float), **known)
    )


def test_what_a_log_does_not_show_is_assumed_aloud() -> None:
    figures = _by_field(_fitted(_traffic()))
    for field, name in (
        ("load_profile.peak_to_mean", "peak_to_mean"),
        ("load_profile.weekend_fraction", "weekend_fraction"),
        ("noise.sigma", "noise_sigma"),
        ("noise.correlation_h", "noise_correlation_h"),
        ("prefix_cache_hit_fraction", "prefix_cache_hit_fraction"),
        ("slo.ttft_s", "ttft_s"),
        ("slo.tpot_s", "tpot_s"),
    ):
        assert figures[field].fitted == CHAT[name]
        assert figures[field].remark.startswith("assumed: preset chat, ")
    assert figures["growth.per_year"].remark.startswith("assumed: ")
    assert figures["preset"].remark.startswith("assumed: ")
    assert figures["requests_per_s"].fitted == pytest.approx(3000 / 3600, rel=0.01)
    assert "standard error" in figures["requests_per_s"].remark


def test_what_a_log_shows_is_fitted() -> None:
    figures = _by_field(
        _fitted(
            _traffic(prefix_cache_hit_fraction=0.25),
            requests_per_s={"": 7.0},
            growth_per_year={"mine": 0.3},
        )
    )
    assert figures["prefix_cache_hit_fraction"].fitted == 0.25
    assert figures["requests_per_s"].fitted == 7.0
    assert figures["requests_per_s"].remark.endswith("as given")
    assert figures["growth.per_year"].fitted == 0.3
    assert figures["burst_index_of_dispersion"].fitted == pytest.approx(1.0, abs=1.0)
    assert figures["burst_index_requests_per_s"].fitted == pytest.approx(3000 / 3600, rel=0.01)


def test_a_hit_fraction_of_one_stays_below_what_a_scenario_allows() -> None:
    assert (
        _by_field(_fitted(_traffic(prefix_cache_hit_fraction=1.0)))[
            "prefix_cache_hit_fraction"
        ].fitted
        == 0.999
    )


def test_arrivals_more_even_than_poisson_are_written_as_poisson() -> None:
    even = RequestLog(
        times_s=np.arange(3600.0), input_tokens=np.full(3600, 9.0), output_tokens=np.full(3600, 9.0)
    )
    assert _by_field(_fitted(traffic_of_log(even)))["burst_index_of_dispersion"].fitted == 1.0


@pytest.mark.parametrize("name", ["chat", "code-completion", "batch", "bulk-api"])
def test_a_mean_day_gives_a_week_that_can_be_built(name: str) -> None:
    day = 1.0 + 0.02 * np.cos(2 * np.pi * np.arange(72) / 24)
    figures = _by_field(
        _fitted(_series(day, first_hour_of_week=None, end_s=None), presets={"": name})
    )
    peak = figures["load_profile.peak_to_mean"].fitted
    weekend = figures["load_profile.weekend_fraction"].fitted
    assert isinstance(peak, float)
    assert isinstance(weekend, float)
    week = np.array(weekly_profile(peak_to_mean=peak, weekend_fraction=weekend)).reshape(7, 24)
    assert week[0].max() / week[0].mean() == pytest.approx(1.02)


def test_yaml_reads_back_to_the_figures() -> None:
    fitted = _fitted(_traffic())
    workload = yaml.safe_load(fitted.yaml())["mine"]
    assert workload["model"] == "llama-3.1-8b"
    assert workload["preset"] == "chat"
    assert workload["load_profile"]["timezone"] == "UTC"
    for figure in fitted.figures:
        node = workload
        for key in figure.field.split("."):
            node = node[key]
        assert node == (
            figure.fitted if isinstance(node, str) else pytest.approx(figure.fitted, rel=1e-3)
        )
    assert 0.5 in workload["lengths"]["input"]["quantiles"]
    assert fitted.yaml().splitlines()[0] == "  mine:  # fitted to a log of two lines.csv"


@given(st.floats(1e-7, 1e9))
def test_numbers_are_written_plainly_and_closely(number: float) -> None:
    (row,) = Fitted(
        name="x", source="", figures=[Figure(field="x", fitted=number, remark="")]
    ).rows()
    assert "e" not in row[1]
    assert float(row[1]) == pytest.approx(number, rel=1e-3, abs=1e-9)


def test_silent_hours_are_named_and_move_nothing() -> None:
    """Six hours without a request made a noise of 0.18 of one of 0.05: they were part of the week's profile."""
    week = np.array(weekly_profile(peak_to_mean=1.5, weekend_fraction=0.6))
    noise = np.exp(0.05 * np.random.default_rng(3).standard_normal(4 * 168))
    rates = 10.0 * np.tile(week, 4) * noise
    whole = _by_field(_fitted(_series(rates)))
    rates[200:206] = 0.0
    rates[206] *= 0.02  # back within the hour
    broken = _by_field(_fitted(_series(rates)))
    assert silent_hours(rates).nonzero()[0].tolist() == [*range(200, 207)]
    for field in ("requests_per_s", "noise.sigma", "load_profile.peak_to_mean"):
        assert broken[field].number == pytest.approx(whole[field].number, rel=0.02)
    assert broken["noise.sigma"].number == pytest.approx(0.05, rel=0.1)
    rates = 10.0 * np.tile(week, 2) * noise[:336]
    rates[168:] = 0.0
    assert _by_field(_fitted(_series(rates)))["noise.sigma"].remark.startswith(
        "assumed: "
    )  # one week has no other
    said = "7 hours without a request (7 from 1970-01-13 08:00 UTC on) left out: an outage"
    assert said in broken["requests_per_s"].remark


def test_hours_that_are_always_empty_are_traffic() -> None:
    week = np.where(np.arange(168) % 24 < 6, 0.0, 1.0)
    rates = np.tile(week, 3)
    assert not silent_hours(rates).any()
    fitted = _by_field(_fitted(_series(rates)))
    assert fitted["requests_per_s"].number == pytest.approx(0.75)
    assert (
        "126 hours without a request (6 from 1970-01-05 00:00 UTC on) counted"
        in fitted["requests_per_s"].remark
    )
    assert not silent_hours(
        np.random.default_rng(1).poisson(2.0, 400) / 3600
    ).any()  # few enough to be chance


def test_growth_and_season_are_told_apart_over_two_years() -> None:
    hours = np.arange(130 * 168)
    end_s = 1_767_571_200.0 + 3600 * hours.size
    day_of_year = (
        end_s - 3600 * (hours.size - hours) - 1_767_225_600.0
    ) / 86_400.0 + 1.0  # of 2026
    wave = 1.0 + 0.3 * np.cos(2 * np.pi * (day_of_year - 335.0) / 365.25)
    chance = np.exp(0.05 * np.random.default_rng(2).standard_normal(130)).repeat(168)
    rates = 10.0 * 1.4 ** ((hours - hours.size) / 8766.0) * wave * chance
    trend = fit_trend(rates, end_s)
    assert trend is not None
    assert trend.season is not None
    amplitude, error, peak_day = trend.season
    assert trend.per_year == pytest.approx(0.4, abs=4 * trend.trend.growth.sigma)
    assert amplitude == pytest.approx(0.3, abs=4 * error)
    assert 0.002 < error < 0.02
    assert peak_day == pytest.approx(335.0, abs=5.0)
    figures = _by_field(_fitted(_series(rates, end_s=end_s)))
    years = (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp() - end_s) / 3600 / 8766
    # The level at the end, without its season, grown to the first day.
    assert figures["requests_per_s"].number == pytest.approx(10.0 * 1.4**years, rel=0.04)
    assert figures["load_profile.season.amplitude_fraction"].number == pytest.approx(amplitude)
    assert figures["noise.sigma"].number == pytest.approx(0.05, rel=0.15)
    high = 1.0 + 0.6 * np.cos(
        2 * np.pi * (day_of_year - 100.0) / 365.25
    )  # whose logarithm is far from a cosine
    exact = fit_trend(1.4 ** (hours / 8766.0) * high, end_s)
    assert exact is not None
    assert exact.season is not None
    assert exact.season[0] == pytest.approx(0.6, rel=0.03)
    assert exact.season[2] == pytest.approx(100.0, abs=2.0)
    assert exact.per_year == pytest.approx(0.4, rel=0.05)
    alone = fit_trend(rates[-60 * 168 :], end_s)
    assert alone is not None
    assert alone.season is None


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
    seen = traffic_of_log(_log(_poisson_times_s(8.0, 7200.0, 1)))
    assert seen.level is not None
    assert seen.bursts is not None
    error = float(seen.level[1].partition("%")[0].removeprefix("±")) / 100
    assert 0.002 < error < 0.008  # 1/√57,600, more or less for bursts
    assert abs(seen.level[0] / 8.0 - 1) < 4 * error
    assert abs(seen.bursts[0] - 1.0) < 4 * float(seen.bursts[1].partition(" ")[0].removeprefix("±"))
    assert seen.rates is None
    assert "clients" not in seen.bursts[1]
    assert seen.burst_rate == (6.0, "lowest rate of public chat logs")


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
        assert fit.distribution.quantile(share) == pytest.approx(
            np.quantile(tokens, share), rel=0.01
        )
    assert abs(fit.mean_error_fraction) < 0.01
    assert fit.mean_error_fraction == pytest.approx(
        fit.distribution.mean_tokens / tokens.mean() - 1.0
    )
    assert fit.largest_distribution_error is not None
    assert fit.largest_distribution_error < 0.03


def test_a_fit_through_too_few_quantiles_says_how_far_it_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("planner.onramp.traffic_fit.FITTED_QUANTILES", (0.1, 0.9))
    monkeypatch.setattr("planner.onramp.traffic_fit._MAX_QUANTILES", 2)
    tokens = np.concatenate([np.full(800, 10.0), np.full(200, 1000.0)])
    fit = fit_lengths(tokens)
    assert fit.largest_distribution_error == pytest.approx(
        0.7, abs=0.02
    )  # a lognormal from 10 at 0.1 on


def test_dispersion_of_a_modulated_stream_and_of_a_long_log_with_a_day() -> None:
    generator = np.random.default_rng(5)
    rates = generator.gamma(60 * 20 / 11, 20 / (60 * 20 / 11), 1440)
    counts = generator.poisson(rates * 60)
    times_s = np.sort(
        np.repeat(np.arange(1440) * 60.0, counts) + 60 * generator.random(counts.sum())
    )
    index, error = index_of_dispersion(times_s) or (0.0, 0.0)
    assert abs(index - 12.0) < 4 * error
    day = np.repeat(
        np.arange(1440) * 60.0, generator.poisson(600 * (1.0 + 0.9 * (np.arange(1440) // 60 % 2)))
    )
    times_s = np.sort(day + 60 * generator.random(day.size))
    index, error = index_of_dispersion(times_s) or (0.0, 0.0)
    assert abs(index - 1.0) < 4 * error + 0.05  # hours that differ are not bursts


def test_weekly_shape_is_recovered_from_two_weeks_of_rates() -> None:
    profile = np.array(weekly_profile(peak_to_mean=1.7, weekend_fraction=0.6))
    shape = fit_hourly_shape(np.roll(np.tile(profile, 3), -30) * 50.0, 30)
    assert shape is not None
    assert shape.weekly_profile is not None
    np.testing.assert_allclose(shape.weekly_profile, profile, rtol=1e-9)
    assert (shape.peak_to_mean, shape.weekend_fraction) == pytest.approx((1.7, 0.6))
    assert shape.noise is not None
    assert shape.noise[0] == pytest.approx(0.0, abs=1e-6)


def test_noise_around_the_week_is_recovered() -> None:
    generator = np.random.default_rng(8)
    profile = np.tile(np.array(weekly_profile(peak_to_mean=1.7, weekend_fraction=0.6)), 26)
    residual = np.zeros(profile.size)
    phi = np.exp(-1 / 6.0)
    for hour in range(1, profile.size):
        residual[hour] = (
            phi * residual[hour - 1] + 0.2 * np.sqrt(1 - phi**2) * generator.standard_normal()
        )
    shape = fit_hourly_shape(profile * np.exp(residual), 0)
    assert shape is not None
    assert shape.noise is not None
    assert list(shape.noise) == [pytest.approx(0.2, rel=0.1), pytest.approx(6.0, rel=0.25)]


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
        + np.sort(
            np.repeat(np.arange(336) * 3600.0 + 1800.0, counts)
            + 3600 * generator.random(counts.sum())
        )
    )
    shape = _fitted(traffic_of_log(_log(times_s))).shape
    assert shape is not None
    assert shape.weekly_profile is not None
    assert np.argmax(shape.weekly_profile) % 24 == 10
    assert shape.weekend_fraction == pytest.approx(0.5, rel=0.05)
    assert _fitted(traffic_of_log(_log(times_s, has_date=False))).shape.weekly_profile is None  # type: ignore[union-attr]


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
def test_public_traces_have_their_published_lognormals(
    name: str, side: str, mu: float, sigma: float
) -> None:
    tokens = getattr(read_request_log(trace(name)), f"{side}_tokens")
    logs = np.log(tokens[tokens > 0.0])
    assert (logs.mean(), logs.std()) == pytest.approx((mu, sigma), abs=0.006)


def test_too_little_to_fit_is_said() -> None:
    with pytest.raises(ScenarioError, match="at least two requests"):
        traffic_of_log(_log(np.array([1.0])))
    with pytest.raises(ScenarioError, match="the same time"):
        traffic_of_log(_log(np.array([1.0, 1.0])))
    with pytest.raises(ScenarioError, match="output lengths are zero"):
        fit_lengths(np.zeros(5), "output")


def test_a_log_of_several_models_is_one_log_each() -> None:
    log = replace(
        _log(np.arange(100.0)),
        models=np.array(["a", "b"] * 50, dtype=object),
        clients=np.arange(100) % 4,
    )
    parts = log.by_model()
    assert list(parts) == ["a", "b"]
    np.testing.assert_array_equal(parts["b"].times_s, np.arange(1.0, 100.0, 2.0))
    np.testing.assert_array_equal(parts["b"].input_tokens, log.input_tokens[1::2])
    assert list(np.bincount(parts["b"].clients if parts["b"].clients is not None else [])) == [
        0,
        25,
        0,
        25,
    ]
