"""Sensitivity by new runs: from the rows of a design to measures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from planner.studies.analysis import Driver
from planner.studies.designs import Morris, OneAtATime, Saltelli
from planner.studies.indices import screening, sobol_indices, tornado
from planner.studies.intervals import Estimate
from planner.studies.prepare import Prepared

Floats = NDArray[np.float64]
CHANCE = "chance"
"""What a run draws itself: failures, incidents, demand noise, delivery slips."""


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
        return Driver(
            scenario=who[0],
            against=who[1],
            method=design.name,
            input=name,
            measure=measure,
            value=value,
            low=low,
            high=high,
        )

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
