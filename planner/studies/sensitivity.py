"""Sensitivity analysis: from rows already run, or from designed runs (one at a time, Sobol)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.studies.decision import IntervalEstimate, half_width
from planner.studies.designs import Integers, OneAtATime, Saltelli
from planner.studies.prepare import Prepared

CHANCE = "chance"
"""What a run draws itself: failures, incidents, demand noise, delivery slips."""
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
    means = np.array([output[bins == which].mean() for which in range(bins.max() + 1)])
    counts = np.bincount(bins)
    # ε², the correlation ratio less its bias: (SS_between − (k − 1) MS_within) / SS_total (Kelley 1935).
    total = float(((output - output.mean()) ** 2).sum())
    left = len(output) - len(means)
    share = 0.0
    variance_noise = 1.0
    apart = len(means) - 1
    if apart > 0 and left > 0:
        idle = float(fdtri(apart, left, 1.0 - 0.01 / inputs))
        variance_noise = (idle - 1.0) * apart / (idle * apart + left)
    if total > 0.0 and left > 0:
        between = float((counts * (means - output.mean()) ** 2).sum())
        within = (total - between) / left
        share = float(np.clip((between - apart * within) / total, 0.0, 1.0))
    low = float(means.min())
    high = float(means.max())
    return {
        ("conditional-mean", "swing"): (high - low, low, high),
        ("rank-correlation", "spearman"): (spearman(values, output),),
        ("variance-share", "first_order"): (share,),
        ("variance-share", "noise_level"): (variance_noise,),
    }


def bin_of(values: Floats) -> Integers:
    """Return each row's bin, 0 to at most 9: equal counts, or one bin per value for ten values or fewer."""
    distinct, place = np.unique(values, return_inverse=True)
    if len(distinct) <= BINS:
        return np.asarray(place, dtype=np.int64)
    order = np.argsort(values, kind="stable")
    bins = np.empty(len(values), dtype=np.int64)
    bins[order] = np.arange(len(values)) * BINS // len(values)
    return bins


def spearman(first: Floats, second: Floats) -> float:
    """Return the rank correlation; 0 where either is constant."""
    from scipy.stats import rankdata  # noqa: PLC0415 - only where a study asks for it

    a = rankdata(first) - 1.0
    b = rankdata(second) - 1.0
    spread = a.std() * b.std()
    return float(np.mean((a - a.mean()) * (b - b.mean())) / spread) if spread > 0 else 0.0


def flip(values: Floats, difference: Floats) -> float | None:
    """Return the input value at which the mean of a difference changes sign; None where it does not.

    Means are taken in the ten bins and joined by straight lines. A change counts only where the difference follows the
    input by more than noise, and between bins whose means are three standard errors from zero, so that chance alone
    flips no decision.
    """
    if abs(spearman(values, difference)) * np.sqrt(len(values)) < 4.0:
        return None
    bins = bin_of(values)
    count = bins.max() + 1
    centre = np.array([values[bins == which].mean() for which in range(count)])
    mean = np.array([difference[bins == which].mean() for which in range(count)])
    error = np.array(
        [difference[bins == which].std() / np.sqrt((bins == which).sum()) for which in range(count)]
    )
    for left, right in itertools.pairwise(np.flatnonzero(np.abs(mean) > 3.0 * error)):
        if mean[left] * mean[right] < 0.0:
            crossing = left
            while mean[crossing] * mean[crossing + 1] > 0.0:
                crossing += 1
            share = mean[crossing] / (mean[crossing] - mean[crossing + 1])
            return float(centre[crossing] + share * (centre[crossing + 1] - centre[crossing]))
    return None


def followed(names: tuple[str, ...], objective: Floats) -> list[tuple[str, str, Floats]]:
    """Return the outputs to explain: each scenario's objective, and the first's less each other's.

    The headline has shape (rows, scenarios); each part has the scenario's name, the other's or none, and the figures.
    """
    alone = [(name, "", objective[:, which]) for which, name in enumerate(names)]
    return alone + [
        (names[0], names[k], objective[:, 0] - objective[:, k]) for k in range(1, len(names))
    ]


Measures = dict[str, IntervalEstimate]
"""How an output follows one input, by the measure's name; NaN ends where a measure has no interval."""


def tornado(design: OneAtATime, output: Floats) -> list[Measures]:
    """Return each input's bar from the output of each row: the output at its P10 and P90, all others at their median.

    Means are over chances, intervals of the change.
    """
    by_chance = output[: len(output) // design.period * design.period].reshape(-1, design.period)
    by_chance = by_chance[np.isfinite(by_chance).all(axis=1)]
    base = by_chance[:, 0]

    def at(column: int) -> IntervalEstimate:
        change = by_chance[:, column] - base
        return IntervalEstimate(
            value=float(base.mean() + change.mean()), half_width=half_width(change)
        )

    bars: list[Measures] = []
    for place in range(design.inputs):
        low = at(1 + 2 * place)
        high = at(2 + 2 * place)
        swing = IntervalEstimate(value=abs(high.value - low.value))
        bars.append(
            {
                "base": IntervalEstimate(value=float(base.mean())),
                "at_p10": low,
                "at_p90": high,
                "swing": swing,
            }
        )
    return bars


def sobol_indices(design: Saltelli, output: Floats) -> list[Measures]:
    """Return Sobol indices for each input and, last, for the replication.

    First order, the share of the variance that the input alone explains: mean of f(B) (f(AB) − f(A)) over the variance
    (Saltelli and others 2010). Total, the share that would remain, on average, if all but this input were known: half
    the mean of (f(A) − f(AB))² over the variance (Jansen 1999). Intervals are from the independent randomisations.
    """
    table = output[: len(output) // design.period * design.period].reshape(-1, design.period)
    scramblings = design.points.scramblings
    parts = [table[which::scramblings] for which in range(scramblings)]
    by_scrambling = np.array([_indices(part) for part in parts if len(part)])
    pooled = _indices(table)
    results: list[Measures] = []
    for place in range(design.inputs + 1):
        both = zip(pooled[:, place], by_scrambling[:, :, place].T, strict=True)
        first, total = (
            IntervalEstimate(value=float(value), half_width=half_width(parts))
            for value, parts in both
        )
        results.append({"first_order": first, "total": total})
    return results


def _indices(table: Floats) -> Floats:
    """Return first-order and total indices, shape (2, inputs + 1), from the outputs of A, B and the mixed samples."""
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 2:
        return np.full((2, table.shape[1] - 2), np.nan)
    table = table - table[:, :2].mean()
    a = table[:, :1]
    b = table[:, 1:2]
    mixed = table[:, 2:]
    variance = float(table[:, :2].var())
    if variance <= 0.0:
        return np.zeros((2, mixed.shape[1]))
    first = (b * (mixed - a)).mean(axis=0) / variance
    total = 0.5 * ((a - mixed) ** 2).mean(axis=0) / variance
    return np.stack([first, total])


def measures(
    prepared: Prepared, design: OneAtATime | Saltelli, objective: Floats
) -> Iterator[Driver]:
    """Yield a design's sensitivities of each scenario's objective, and of the first's less each other's."""
    for scenario, against, output in followed(prepared.names, objective):
        match design:
            case OneAtATime():
                measured = tornado(design, output)
            case Saltelli():
                measured = sobol_indices(design, output)
        names = (*prepared.inputs.names, CHANCE)  # Sobol's alone have chance
        for name, by_measure in zip(names, measured, strict=False):
            for measure, figure in by_measure.items():
                yield Driver(
                    scenario,
                    against,
                    design.name,
                    name,
                    measure,
                    figure.value,
                    figure.low,
                    figure.high,
                )
