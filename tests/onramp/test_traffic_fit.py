from __future__ import annotations

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.load import workload_class
from planner.demand.shape import weekly_profile
from planner.demand.tokens import RequestLog
from planner.onramp.traffic_fit import (
    Figure,
    Heading,
    class_length_figures,
    figure_rows,
    fit_json,
    log_figures,
    reported_rows,
    shape_figures,
    workload_yaml,
)
from planner.onramp.traffic_statistics import ShapeFit, TrafficFit, fit_traffic

HEADING = Heading(name="mine", model="llama-3.1-8b", workload_class="chat", source="a log\nof two lines.csv")
CHAT = workload_class("chat")


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
        "trough_to_mean": 0.5,
        "weekend_fraction": 0.6,
        "weekly_profile": weekly_profile(peak_to_mean=1.5, weekend_fraction=0.6),
        "noise_sigma": 0.2,
        "noise_correlation_h": 5.0,
    }
    return ShapeFit(**{**known, **changes})  # type: ignore[arg-type]


def test_what_a_log_does_not_show_comes_from_the_class_and_says_so() -> None:
    figures = _by_field(log_figures(_fit(), CHAT, None))
    for field, name in (
        ("shape.peak_to_mean", "peak_to_mean"),
        ("shape.weekend_fraction", "weekend_fraction"),
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
    assert figures["shape.peak_to_mean"].fitted == 1.5
    assert figures["noise.correlation_h"].fitted == 5.0


@pytest.mark.parametrize("name", ["chat", "code-completion", "batch", "bulk-api"])
def test_a_mean_day_gives_a_week_that_can_be_built(name: str) -> None:
    day = _shape(weekend_fraction=None, weekly_profile=None, peak_to_mean=1.02)
    figures = _by_field(shape_figures(day, workload_class(name), "unused"))
    peak, weekend = figures["shape.peak_to_mean"].fitted, figures["shape.weekend_fraction"].fitted
    assert isinstance(peak, float)
    assert isinstance(weekend, float)
    week = np.array(weekly_profile(peak_to_mean=peak, weekend_fraction=weekend)).reshape(7, 24)
    assert week[0].max() / week[0].mean() == pytest.approx(1.02)


def test_yaml_reads_back_to_the_figures() -> None:
    figures = log_figures(_fit(), CHAT, None)
    text = workload_yaml(HEADING, figures, None)
    workload = yaml.safe_load(text)["workloads"]["mine"]
    assert workload["model"] == "llama-3.1-8b"
    assert workload["class"] == "chat"
    assert workload["shape"]["timezone"] == "UTC"
    for figure in figures:
        node = workload
        for key in figure.field.split("."):
            node = node[key]
        assert node == pytest.approx(figure.fitted, rel=1e-3)
    assert 0.5 in workload["tokens"]["input"]["quantiles"]
    assert text.splitlines()[0] == "# Fitted by planner fit-traffic to a log of two lines.csv"


def test_weekly_profile_is_written_a_day_a_line() -> None:
    shape = _shape()
    text = workload_yaml(HEADING, shape_figures(shape, CHAT, "unused") + class_length_figures(CHAT, "unused"), shape)
    profile = yaml.safe_load(text)["workloads"]["mine"]["shape"]["weekly_profile"]
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
    data = fit_json(HEADING, log_figures(fit, CHAT, None), fit)
    assert data["figures"]["tokens.input.quantiles"]["value"]["0.5"] == fit.input.quantiles[0.5]
    assert data["reported"]["clients"] == 2
    assert data["reported"]["largest_client_fraction"] == pytest.approx(2 / 3)
    assert fit_json(HEADING, [], None)["reported"] == {}
    assert "66.7%" in {row[0]: row[1] for row in reported_rows(fit)}["largest client's share"]
