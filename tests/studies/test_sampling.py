"""How even points pay off on the reference scenario itself, chance and correlations included."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f

from planner.scenario.study import Sampling
from planner.studies.designs import MonteCarlo, PointSet
from planner.studies.replicate import Replicator, objective_names
from tests.benchmarks.study import reference_study

SAMPLES = 12
POINTS = 16
"""Independent samples of each kind, and the points of one: a power of two, as Sobol's need. The runner's tests show as
much on a small scenario in every run of the suite."""


def variance_of_means(sampling: Sampling) -> dict[str, float]:
    """Return the variance, over independent samples, of each headline's mean over one sample."""
    prepared = reference_study()
    points = PointSet(
        sampling=sampling, dimensions=len(prepared.inputs), scramblings=SAMPLES, seed=prepared.seed
    )
    rows = Replicator(prepared.setup(MonteCarlo(points=points))).run(0, SAMPLES * POINTS)
    assert rows.errors == ()
    means = (
        rows.headlines[:, 0].reshape(POINTS, SAMPLES, -1).mean(axis=0)
    )  # replication i is of sample i % SAMPLES
    return dict(zip(objective_names(), means.var(axis=0, ddof=1).tolist(), strict=True))


@pytest.mark.prove
def test_sobol_points_have_lower_variance_than_plain_ones_on_the_reference_scenario() -> None:
    """By the F-test for two variances, at one in a thousand, for the headline and for what it is made of."""
    plain = variance_of_means("plain")
    sobol = variance_of_means("sobol")
    beyond_luck = float(f.isf(1e-3, SAMPLES - 1, SAMPLES - 1))
    assert beyond_luck == pytest.approx(7.76, abs=0.01)
    for name in ("cost_per_million_tokens_usd", "served_tokens"):
        assert plain[name] > beyond_luck * sobol[name], name
    assert np.median([sobol[name] / plain[name] for name in plain]) < 0.5
