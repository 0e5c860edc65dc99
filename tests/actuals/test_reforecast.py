"""The forecast after months that happened: held against hidden truths, and against a closed form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from planner.actuals.actuals_summary import actuals_summary, input_table
from planner.actuals.months import Actuals, ActualsMapping, FiguresFile
from planner.actuals.reforecast import (
    Forecast,
    NormalScores,
    PlanRuns,
    StudyRuns,
    Target,
    effective,
    fit_linear,
    importance_weights,
    reforecast,
    standard_normal,
    weighted_quantiles,
)
from planner.actuals.review import COST, FORECAST, ActualsReview
from planner.finance.accounting.measures import observed
from planner.finance.measure_names import FLEET, SLO_MISSED, SeriesKey
from planner.run.simulate import simulate
from planner.studies.engines import Workforce
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import Replicator

Floats = NDArray[np.float64]
PLAN = """\
name: rented
start: 2026-01-01
horizon_months: 12
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 3000
    growth: {kind: compound, per_year: 0.5}
    lengths: {input: {mean: 1500}, output: {mean: 400}}
clusters:
  b200:
    accelerator: B200
    nodes: 200
    contract: {kind: on-demand, usd_per_accelerator_h: 6.0, hold_h: 1, startup_h: 0, available_fraction: 1}
software: {engineers: 0}
"""
STUDY = """\
name: rented-study
scenarios: {rented: {extends: plan.yaml}}
uncertain:
  workloads.chat.requests_per_s: {kind: lognormal, median: 1.0, sigma: 0.25, times_stated: true}
  workloads.chat.growth.per_year: {kind: normal, mean: 0.5, sd: 0.3, low: -0.5, high: 2.0}
  reliability.failure_multiplier: {kind: lognormal, median: 1.0, sigma: 0.4, times_stated: true}
  software.incident_multiplier: {kind: lognormal, median: 1.0, sigma: 0.4, times_stated: true}
"""
MONTHS = 6
ERROR = 0.02
SEEN = (
    *(
        SeriesKey("cluster", "b200", name)
        for name in (
            "availability_fraction",
            "utilisation_fraction",
            "served_tokens",
            "lost_to_software_node_h",
        )
    ),
    SeriesKey("cluster", FLEET, "demand_tokens"),
    SeriesKey("account", FLEET, "rent"),
)
EVERY = tuple(dict.fromkeys((*SEEN, *FORECAST, SLO_MISSED)))


def _prepared(folder: Path) -> Prepared:
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "study.yaml").write_text(STUDY)
    return prepare(folder / "study.yaml")


def _seen_of(truth: Floats, generator: np.random.Generator) -> Actuals:
    """Return the first months of a hidden truth, each series off by the stated error, and each month of it."""
    off = (
        1.0
        + ERROR * generator.standard_normal((len(SEEN), 1))
        + ERROR * generator.standard_normal((len(SEEN), MONTHS))
    )
    values = truth[[EVERY.index(series) for series in SEEN], :MONTHS] * off
    mapping = ActualsMapping(files={"seen.csv": FiguresFile(kind="figures")}, error_fraction=ERROR)
    months = tuple(f"2026-{month:02d}" for month in range(1, MONTHS + 1))
    return Actuals(
        months=months, series=dict(zip(SEEN, values, strict=True)), mapping=mapping, notes=()
    )


def _cases(prepared: Prepared, cases: Sequence[int], rows: int) -> Floats:
    """Return truth, old P5, P50, P95, new P5, P50, P95 of the remaining cost for hidden truths, shape (cases, 7)."""
    plan = PlanRuns(prepared=prepared, scenario_index=0, keys=EVERY, force=Workforce())
    old = plan.run(prepared.montecarlo(), rows)
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    found = []
    ends = np.array([0.05, 0.5, 0.95])
    for case in cases:
        values, chance = replicator.setup.values(10_000 + case, 10_001 + case)
        truth = observed(replicator.simulate(0, values[0], int(chance[0])), EVERY)
        forecast = reforecast(plan, old, _seen_of(truth, np.random.default_rng(case)))
        place = EVERY.index(COST)
        before = old.monthly[:, place, MONTHS:].sum(axis=1)
        after = forecast.posterior.monthly[:, place, MONTHS:].sum(axis=1)
        bands = (
            weighted_quantiles(before, np.ones(rows), ends),
            weighted_quantiles(after, forecast.weights, ends),
        )
        found.append([truth[place, MONTHS:].sum(), *np.concatenate(bands)])
    return np.array(found)


def _judged(found: Floats) -> tuple[float, float]:
    """Return the share of truths inside the new bands, and by how much the error of the median fell."""
    truth = found[:, 0]
    inside = float(((found[:, 4] <= truth) & (truth <= found[:, 6])).mean())
    old, new = (np.abs(found[:, place] - truth).mean() for place in (2, 5))
    return inside, float(1.0 - new / old)


@pytest.mark.prove
def test_bands_cover_hidden_truths_and_the_error_falls(tmp_path: Path) -> None:
    inside, fell = _judged(_cases(_prepared(tmp_path), range(200), 64))
    print(f"inside {inside:.3f}, error fell by {fell:.3f}")
    assert 0.85 <= inside <= 0.95
    assert fell >= 0.4


def test_a_hidden_truth_is_found(tmp_path: Path) -> None:
    found = _cases(_prepared(tmp_path), [8], 40)  # half as much again as was thought
    truth, _, old, _, low, middle, high = found[0]
    assert truth > 1.4 * old
    assert abs(middle - truth) < 0.4 * abs(old - truth)
    assert low < truth < high


def test_the_linear_model_gives_the_conjugate_posterior() -> None:
    """One input, one figure x = 3 + 2 z + r, r ~ N(0, 1), seen as 7 with error variance 4: N(8/9, 5/9) by hand."""
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((200_000, 1))
    figures = 3.0 + 2.0 * scores + generator.standard_normal((200_000, 1))
    model = fit_linear(scores, figures, np.ones(len(scores)))
    target = Target(figures=np.array([7.0]), error_variance=np.array([4.0]))
    assert model.posterior(target).mean == pytest.approx([8 / 9], abs=0.01)
    assert model.posterior(target).covariance == pytest.approx(np.array([[5 / 9]]), abs=0.005)
    for proposal in (standard_normal(1), NormalScores(mean=np.array([1.5]), covariance=np.eye(1))):
        drawn = proposal.draw(generator, 200_000)
        weights = importance_weights(drawn, model, target, proposal)
        assert float(weights @ drawn[:, 0]) == pytest.approx(8 / 9, abs=0.01)
        assert float(weights @ (drawn[:, 0] - 8 / 9) ** 2) == pytest.approx(5 / 9, abs=0.01)


def test_figures_that_move_together_are_not_counted_twice() -> None:
    """The same figure seen twice, with the same chance in both, says no more than once."""
    generator = np.random.default_rng(1)
    scores = generator.standard_normal((50_000, 1))
    once = scores + generator.standard_normal((50_000, 1))
    model = fit_linear(scores, np.hstack([once, once]), np.ones(50_000))
    target = Target(figures=np.array([1.0, 1.0]), error_variance=np.full(2, 1e-6))
    assert model.posterior(target).covariance[0, 0] == pytest.approx(0.5, abs=0.01)


def test_weighted_quantiles_are_those_of_repeated_values() -> None:
    values = np.array([3.0, 1.0, 2.0])
    counts = np.array([1.0, 2.0, 1.0])
    ends = weighted_quantiles(values, counts, np.array([0.25, 0.625, 0.875]))
    assert ends == pytest.approx(
        [1.0, 2.0, 3.0]
    )  # 1 holds the lower half, so its middle is at a quarter
    assert effective(counts / counts.sum()) == pytest.approx(16 / 6)


def test_what_lies_far_outside_moves_no_input_that_it_does_not_depend_on() -> None:
    generator = np.random.default_rng(2)
    scores = generator.standard_normal((48, 2))
    figures = 0.1 * scores[:, :1] + 0.01 * generator.standard_normal(
        (48, 1)
    )  # the second input has no part in it
    model = fit_linear(scores, figures, np.ones(48))
    target = Target(figures=np.array([3.0]), error_variance=np.array([0.02**2]))
    assert model.posterior(target).mean[1] == 0.0
    assert model.posterior(target).mean[0] > 20.0


def test_quantiles_of_nothing_are_nothing() -> None:
    assert weighted_quantiles(np.zeros((5, 0)), np.ones(5), np.array([0.5])).shape == (1, 0)


def test_inputs_that_move_the_forecast_sum_to_its_headline(tmp_path: Path) -> None:
    """Made-up replications and weights: the rows of the inputs and the rest sum to the difference to the cent."""
    prepared = _prepared(tmp_path)
    result = simulate(prepared.scenarios[0].scenario)
    count = len(EVERY)
    inputs = len(prepared.inputs)
    months = tuple(f"2026-{month:02d}" for month in range(1, MONTHS + 1))
    mapping = ActualsMapping(files={"seen.csv": FiguresFile(kind="figures")})
    for case in range(30):
        generator = np.random.default_rng(case)
        old, new = (
            StudyRuns(
                scores=generator.normal(size=(16, inputs)),
                inputs=generator.normal(size=(16, inputs)),
                monthly=generator.lognormal(9, 1, (16, count, 12)),
            )
            for _ in range(2)
        )
        weights = generator.dirichlet(np.ones(16))
        informed = generator.random(inputs) < 0.5
        forecast = Forecast(
            prior=old, posterior=new, weights=weights, rounds=1, unused={}, informed=informed
        )
        rent = {SeriesKey("account", FLEET, "rent"): generator.lognormal(9, 1, MONTHS)}
        held = ActualsReview(
            result=result,
            prepared=prepared,
            actuals=Actuals(months=months, series=rent, mapping=mapping, notes=()),
            keys=EVERY,
            budget=observed(result, EVERY),
            interval=np.zeros((2, count, 12)),
            accounts=(),
            noise_usd=0.0,
            forecast=forecast,
            paid_usd=generator.normal(0, 1e3, 12),
        )
        summary = actuals_summary(held)
        ends = summary.remaining_cost_usd
        assert round(sum(row["moved_usd"] for row in input_table(held).records()), 2) == round(
            ends.posterior.mean - ends.prior.mean, 2
        )
        moved = summary.moved_by_usd
        assert {name for name in prepared.inputs.names if name in moved} <= set(
            np.array(prepared.inputs.names)[informed].tolist()
        )
