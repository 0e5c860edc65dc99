from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import planner.catalog
from planner.catalog.load import workload_preset, workload_preset_names
from planner.demand.plan import LognormalNoise
from planner.demand.shape import weekly_profile
from planner.demand.tokens import LengthDistribution

NAMES = ("chat", "code-completion", "long-context", "reasoning", "agentic", "batch", "bulk-api")


def test_the_named_classes_are_there() -> None:
    assert workload_preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_class_can_be_run(name: str) -> None:
    figures = workload_preset(name)
    for side in ("input", "output"):
        mean = figures[f"{side}_mean_tokens"]
        p95 = figures[f"{side}_p95_tokens"]
        assert LengthDistribution.from_mean_p95(mean, p95).mean_tokens == pytest.approx(mean)
        assert p95 <= 3.86 * mean
    profile = weekly_profile(
        peak_to_mean=figures["peak_to_mean"],
        trough_to_mean=figures["trough_to_mean"],
        weekend_fraction=figures["weekend_fraction"],
    )
    assert max(profile) == pytest.approx(figures["peak_to_mean"])
    assert (
        LognormalNoise(
            sigma=figures["noise_sigma"], correlation_h=figures["noise_correlation_h"]
        ).sigma
        > 0
    )
    assert 0 <= figures["prefix_cache_hit_fraction"] < 1
    assert figures["burst_index_of_dispersion"] >= 1
    assert figures["priority"] in ("interactive", "standard", "deferrable")
    assert ("completion_window_h" in figures) == (figures["priority"] == "deferrable")


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_source_and_a_grade(name: str) -> None:
    file = Path(planner.catalog.__file__).parent / "workload_presets.yaml"
    for fact in yaml.safe_load(file.read_text(encoding="utf-8"))[name].values():
        assert set(fact) == {"value", "source", "grade"}
        assert fact["grade"] in "ABCD"
        assert " " in fact["source"] or (fact["source"] == "assumption" and fact["grade"] == "D")
