"""Sensitivity from designed runs: one at a time, Morris's screening, Sobol's indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.studies.analysis import Driver
from planner.studies.designs import Morris, OneAtATime, Saltelli
from planner.studies.intervals import Estimate, half_width
from planner.studies.prepare import Prepared

CHANCE = "chance"
"""What a run draws itself: failures, incidents, demand noise, delivery slips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a tornado: the output with one input at P10 and at P90, all others at their median."""

    base: float
    low: Estimate
    high: Estimate

    @property
    def swing(self) -> float:
        """Length of the bar."""
        return abs(self.high.value - self.low.value)


def tornado(design: OneAtATime, output: Floats) -> list[Bar]:
    """Return a bar for each input from the output of each row: means over chances, intervals of the change."""
    by_chance = output[: len(output) // design.period * design.period].reshape(-1, design.period)
    by_chance = by_chance[np.isfinite(by_chance).all(axis=1)]
    base = by_chance[:, 0]

    def at(column: int) -> Estimate:
        change = by_chance[:, column] - base
        return Estimate(value=float(base.mean() + change.mean()), half_width=half_width(change))

    return [
        Bar(base=float(base.mean()), low=at(1 + 2 * place), high=at(2 + 2 * place)) for place in range(design.inputs)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Elementary effects of one input, per move from P10 to P90."""

    mean: float
    mean_absolute: Estimate
    """μ*: how much the input matters."""
    sd: float
    """σ: how much its effect depends on the others, or is curved."""


def screening(design: Morris, output: Floats) -> list[Screening]:
    """Return Morris's measures from the output of each row."""
    count = len(output) // design.period
    effects = np.full((count, design.inputs), np.nan)
    for which in range(count):
        trajectory = output[which * design.period : (which + 1) * design.period]
        levels = design.trajectory(which)
        for step, moved in enumerate(design.order(which)):
            direction = np.sign(levels[step + 1, moved] - levels[step, moved])
            effects[which, moved] = (
                direction * (trajectory[step + 1] - trajectory[step]) * 1.5
            )  # two of three intervals
    results = []
    for place in range(design.inputs):
        known = effects[np.isfinite(effects[:, place]), place]
        absolute = Estimate(value=float(np.abs(known).mean()), half_width=half_width(np.abs(known)))
        results.append(Screening(mean=float(known.mean()), mean_absolute=absolute, sd=float(known.std(ddof=1))))
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Indices:
    """Sobol's indices of one input, or of chance."""

    first: Estimate
    """Share of the variance that the input alone explains."""
    total: Estimate
    """Share that would remain, on average, if all but this input were known."""


def sobol_indices(design: Saltelli, output: Floats) -> list[Indices]:
    """Return indices for each input and, last, for chance.

    First order: mean of f(B) (f(AB) − f(A)) over the variance (Saltelli and others 2010); total: half the mean of
    (f(A) − f(AB))² over the variance (Jansen 1999). Intervals are from the independent randomisations.
    """
    table = output[: len(output) // design.period * design.period].reshape(-1, design.period)
    scramblings = design.points.scramblings
    parts = [table[which::scramblings] for which in range(scramblings)]
    by_scrambling = np.array([_indices(part) for part in parts if len(part)])
    pooled = _indices(table)
    return [
        Indices(
            first=Estimate(value=float(pooled[0, place]), half_width=half_width(by_scrambling[:, 0, place])),
            total=Estimate(value=float(pooled[1, place]), half_width=half_width(by_scrambling[:, 1, place])),
        )
        for place in range(design.inputs + 1)
    ]


def _indices(table: Floats) -> Floats:
    """Return first-order and total indices, shape (2, inputs + 1), from the output of A, B and the mixed samples."""
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 2:
        return np.full((2, table.shape[1] - 2), np.nan)
    table = table - table[:, :2].mean()
    a, b, mixed = table[:, :1], table[:, 1:2], table[:, 2:]
    variance = float(table[:, :2].var())
    if variance <= 0.0:
        return np.zeros((2, mixed.shape[1]))
    first = (b * (mixed - a)).mean(axis=0) / variance
    total = 0.5 * ((a - mixed) ** 2).mean(axis=0) / variance
    return np.stack([first, total])


def measures(prepared: Prepared, design: OneAtATime | Morris | Saltelli, headline: Floats) -> Iterator[Driver]:
    """Yield a design's measures of each scenario's headline, and of the first's less each other's."""
    names = prepared.names
    for which, scenario in enumerate(names):
        yield from _of(prepared, design, headline[:, which], (scenario, ""))
    for which, other in enumerate(names[1:], start=1):
        yield from _of(prepared, design, headline[:, 0] - headline[:, which], (names[0], other))


def _of(
    prepared: Prepared, design: OneAtATime | Morris | Saltelli, output: Floats, who: tuple[str, str]
) -> Iterator[Driver]:
    names = prepared.inputs.names

    def driver(name: str, measure: str, figure: Estimate | float) -> Driver:
        value, low, high = (
            (figure, np.nan, np.nan) if isinstance(figure, float) else (figure.value, figure.low, figure.high)
        )
        return Driver(*who, design.name, name, measure, value, low, high)

    match design:
        case OneAtATime():
            for name, bar in zip(names, tornado(design, output), strict=True):
                yield driver(name, "base", bar.base)
                yield driver(name, "at_p10", bar.low)
                yield driver(name, "at_p90", bar.high)
                yield driver(name, "swing", bar.swing)
        case Morris():
            for name, effect in zip(names, screening(design, output), strict=True):
                yield driver(name, "mu_star", effect.mean_absolute)
                yield driver(name, "mu", effect.mean)
                yield driver(name, "sigma", effect.sd)
        case Saltelli():
            for name, index in zip((*names, CHANCE), sobol_indices(design, output), strict=True):
                yield driver(name, "first_order", index.first)
                yield driver(name, "total", index.total)
