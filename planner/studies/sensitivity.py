"""Sensitivity analysis: from rows already run, or from runs designed for it (one input at a time)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.studies.decision import IntervalEstimate, half_width
from planner.studies.designs import Integers, OneAtATime
from planner.studies.prepare import Prepared

BINS = 10
"""Equal-count bins of an input: deciles, as the trade's tornado has them."""


class Driver(NamedTuple):
    """One sensitivity of the objective to one input: a row of sensitivity.csv."""

    scenario: str
    against: str
    """Where not empty, what is followed is the headline less that of this scenario."""
    method: str
    input: str
    measure: str
    value: float
    low: float = float("nan")
    high: float = float("nan")


def importance(
    values: Floats, output: Floats, inputs: int = 1
) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return how strongly one output depends on one of several inputs; both of shape (rows,), without NaN.

    By method and measure, a figure, and of the conditional tornado the ends of its bar:

    * the lowest and the highest mean of the output over the ten bins of the input, and Spearman's rank correlation;
    * the variance of the bins' means over the output's, less what noise alone gives (the first-order index), and the
      share that none of the inputs without any influence exceeds on so many rows, 99 times in 100.

    What ε² of idle inputs stays below is a point of F with k − 1 and n − k degrees of freedom. With
    F = (SS_between / (k − 1)) / MS_within, ε² = (F − 1)(k − 1) / (F (k − 1) + n − k), normal outputs taken for granted.
    The largest of m inputs stays below the point of 1 − 0.01 / m in 99 of 100 studies or more (Bonferroni).
    """
    from scipy.special import fdtri  # noqa: PLC0415 - only where a study asks for it

    bins = bin_of(values)
    counts = np.bincount(bins)
    means = _bin_means(bins, output)
    degrees_between = len(means) - 1
    degrees_within = len(output) - len(means)
    share = 0.0
    noise_share = 1.0
    if degrees_between > 0 and degrees_within > 0:
        quantile = 1.0 - 0.01 / inputs
        idle = float(fdtri(degrees_between, degrees_within, quantile))
        idle_between = idle * degrees_between
        noise_share = (idle - 1.0) * degrees_between / (idle_between + degrees_within)
    # ε², the correlation ratio less its bias: (SS_between − (k − 1) MS_within) / SS_total (Kelley 1935).
    mean = output.mean()
    squares = (output - mean) ** 2
    total = float(squares.sum())
    # A constant output has no variance to share out.
    if total > 0.0 and degrees_within > 0:
        squares_between = counts * (means - mean) ** 2
        sum_between = float(squares_between.sum())
        mean_square_within = (total - sum_between) / degrees_within
        share = (sum_between - degrees_between * mean_square_within) / total
    # Less its bias, the share of an idle input may lie below zero.
    first_order = float(np.clip(share, 0.0, 1.0))
    correlation = spearman(values, output)
    low = float(means.min())
    high = float(means.max())
    return {
        ("conditional-mean", "swing"): (high - low, low, high),
        ("rank-correlation", "spearman"): (correlation,),
        ("variance-share", "first_order"): (first_order,),
        ("variance-share", "noise_level"): (noise_share,),
    }


def _bin_means(bins: Integers, figures: Floats) -> Floats:
    """Return the mean of figures in each bin."""
    # Every bin up to the highest has rows, so no mean is of nothing.
    numbers = range(bins.max() + 1)
    means = [figures[bins == number].mean() for number in numbers]
    return np.array(means)


def bin_of(values: Floats) -> Integers:
    """Return each row's bin, 0 to at most 9: equal counts, or one bin per value for ten values or fewer."""
    # Discrete inputs have few values, and bins of equal counts would cut through one of them.
    distinct, place = np.unique(values, return_inverse=True)
    if len(distinct) <= BINS:
        return np.asarray(place, dtype=np.int64)
    # A stable sort: ties fall into bins in row order, the same on every machine.
    order = np.argsort(values, kind="stable")
    ranks = np.arange(len(values))
    bins = np.empty(len(values), dtype=np.int64)
    bins[order] = ranks * BINS // len(values)
    return bins


def spearman(values: Floats, output: Floats) -> float:
    """Return Spearman's rank correlation, that of Pearson between ranks; 0 where either is constant."""
    from scipy.stats import rankdata  # noqa: PLC0415 - only where a study asks for it

    # From zero on: smaller numbers lose fewer digits in the sums.
    a = rankdata(values) - 1.0
    b = rankdata(output) - 1.0
    spread = a.std() * b.std()
    if spread <= 0:
        return 0.0
    a_distance = a - a.mean()
    b_distance = b - b.mean()
    covariance = np.mean(a_distance * b_distance)
    return float(covariance / spread)


def flip(values: Floats, difference: Floats) -> float | None:
    """Return the input value at which the mean of a difference changes sign; None where it does not.

    Means are taken in the ten bins and joined by straight lines. A change counts only where the
    difference follows the input by more than noise, and between bins whose means are three standard
    errors from zero, so that noise alone flips no decision.
    """
    # The rank correlation of independent figures has a standard error of about 1 / √n.
    correlation = abs(spearman(values, difference))
    if correlation * np.sqrt(len(values)) < 4.0:
        return None
    bins = bin_of(values)
    centre = _bin_means(bins, values)
    mean = _bin_means(bins, difference)
    numbers = range(len(mean))
    deviations = [difference[bins == number].std() for number in numbers]
    roots = np.sqrt(np.bincount(bins))
    error = np.array(deviations) / roots
    is_certain = np.abs(mean) > 3.0 * error
    certain_bins = np.flatnonzero(is_certain)
    for low, high in itertools.pairwise(certain_bins):
        if mean[low] * mean[high] < 0.0:
            # Bins between the two may be near zero: the line crosses it after one of them.
            crossing = low
            while mean[crossing] * mean[crossing + 1] > 0.0:
                crossing += 1
            low_mean = mean[crossing]
            share = low_mean / (low_mean - mean[crossing + 1])
            distance = centre[crossing + 1] - centre[crossing]
            return float(centre[crossing] + share * distance)
    return None


def outputs_to_explain(names: tuple[str, ...], objective: Floats) -> list[tuple[str, str, Floats]]:
    """Return the outputs to explain: each scenario's objective, and the first's less each other's.

    The objective has shape (rows, scenarios); each part has the scenario's name, the other's or none, and the figures.
    """
    outputs = []
    for name, figures in zip(names, objective.T, strict=True):
        outputs.append((name, "", figures))
    base = objective[:, 0]
    for rival in range(1, len(names)):
        difference = base - objective[:, rival]
        outputs.append((names[0], names[rival], difference))
    return outputs


Measures = dict[str, IntervalEstimate]
"""How an output follows one input, by the measure's name; NaN ends where a measure has no interval."""


def tornado(design: OneAtATime, output: Floats) -> list[Measures]:
    """Return each input's bar from the output of each row: the output at its P10 and P90, all others at their median.

    Means are over replications, intervals of the change.
    """
    periods = len(output) // design.period
    # Rows of a replication that was begun and not finished are left out.
    complete = output[: periods * design.period]
    by_replication = complete.reshape(-1, design.period)
    # A replication with one failed row has no complete set of changes.
    is_sound = np.isfinite(by_replication).all(axis=1)
    by_replication = by_replication[is_sound]
    base = by_replication[:, 0]

    def moved(column: int) -> IntervalEstimate:
        change = by_replication[:, column] - base
        value = float(base.mean() + change.mean())
        width = half_width(change)
        return IntervalEstimate(value=value, half_width=width)

    base_mean = float(base.mean())
    bars: list[Measures] = []
    for place in range(design.inputs):
        # The base is column 0; each input has two columns behind it.
        low = moved(1 + 2 * place)
        high = moved(2 + 2 * place)
        distance = abs(high.value - low.value)
        swing = IntervalEstimate(value=distance)
        middle = IntervalEstimate(value=base_mean)
        bar = {"base": middle, "at_p10": low, "at_p90": high, "swing": swing}
        bars.append(bar)
    return bars


def measures(prepared: Prepared, design: OneAtATime, objective: Floats) -> Iterator[Driver]:
    """Yield a design's sensitivities of each scenario's objective, and of the first's less each other's."""
    outputs = outputs_to_explain(prepared.names, objective)
    for scenario, rival, output in outputs:
        by_input = tornado(design, output)
        for name, by_measure in zip(prepared.inputs.names, by_input, strict=True):
            for measure, figure in by_measure.items():
                ends = (figure.value, figure.low, figure.high)
                yield Driver(scenario, rival, design.name, name, measure, *ends)
