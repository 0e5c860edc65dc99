"""What plans have in common, worked out once in a process.

A study, a sweep or a notebook compiles the same scenario many times with a few figures changed. Most of a plan does not
depend on them: what a node sustains depends on models, parts and objectives, the hours of a week on a time zone. Each
part is kept under the figures that decide it, so whatever was compiled before, the plan is the same. One part alone is
approximated: the share of late requests at a traffic level that moves, read between tables on a grid about the stated
level (0.2 in the logarithm; tests hold the difference below three in a thousand of all requests).
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.catalog.load import Catalog
from planner.demand.bursts import BurstConditions, miss_share, refused_share
from planner.fleet.window import MISS_CELLS
from planner.language.scenario import Scenario

Floats = NDArray[np.float64]
Kept = TypeVar("Kept")
_MOST_KEPT = 4096  # a table is 2 kB and a workload's hours are 210 kB, so some 100 MB at the very most
_GRID_STEP = 0.2
_kept: OrderedDict[tuple[int, Hashable], tuple[Catalog, Any]] = OrderedDict()
"""By catalogue and key, the longest unused first; the catalogue is held too, so that its number is not given again."""


class Reuse:
    """The process's memory as the plans of one scenario whose figures vary use it.

    The first plan compiled with it must be that of the stated scenario: tables are spaced about what it needs.
    """

    def __init__(self, stated: Scenario) -> None:
        """Remember the catalogue, which a study cannot vary, and the stated traffic, from which tables are spaced."""
        self.catalog: Catalog = stated.load_catalog()
        self._stated_slacks: dict[tuple[str, str], float] = {}
        self._stated_rates = {name: workload.requests_per_s for name, workload in stated.workloads.items()}

    def once(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        """Return what was computed under a key and this catalogue before, or compute it now."""
        place = (id(self.catalog), key)
        held = _kept.pop(place, None) or (self.catalog, compute())
        _kept[place] = held  # at the end: the longest unused goes first
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
        kept: Kept = held[1]
        return kept

    def late_shares(self, pair: tuple[str, str], conditions: BurstConditions) -> Floats:
        """Return a cluster's and workload's late requests, interpolated in the logarithms of rate and slack."""
        stated_rate = self._stated_rates.get(pair[1], 0.0) or conditions.requests_per_s
        slack = self._stated_slacks.setdefault(pair, conditions.slack_s)
        moves = slack > 0.0 and conditions.slack_s > 0.0
        anchors = (stated_rate, slack if moves else conditions.slack_s)
        actual = (conditions.requests_per_s, conditions.slack_s)
        axes = [_neighbours(at, anchor) for at, anchor in zip(actual, anchors, strict=True)]
        table = np.zeros(MISS_CELLS + 1)
        for (rate_step, rate_weight), (slack_step, slack_weight) in itertools.product(*axes):
            node = BurstConditions(
                requests_per_s=stated_rate * float(np.exp(rate_step * _GRID_STEP)),
                slack_s=anchors[1] * float(np.exp(slack_step * _GRID_STEP)),
                index_of_dispersion=conditions.index_of_dispersion,
                refuses=conditions.refuses,
            )
            table += rate_weight * slack_weight * self.once(node, functools.partial(late_shares, node))
        return table


def _neighbours(at: float, anchor: float) -> list[tuple[int, float]]:
    """Return the grid steps on either side of a figure with their weights; one step where it stands on the grid."""
    if at <= 0.0 or anchor <= 0.0:
        return [(0, 1.0)]
    position = float(np.log(at / anchor)) / _GRID_STEP
    lower = int(np.floor(position))
    weight = position - lower
    steps = [(lower, 1.0 - weight), (lower + 1, weight)]
    return [(step, share) for step, share in steps if share > 1e-12]


def late_shares(conditions: BurstConditions) -> Floats:
    """Return the share of requests late on an even grid of utilisations, shape (cells + 1,)."""
    grid = np.arange(MISS_CELLS + 1) / MISS_CELLS
    missed = refused_share(conditions, grid) if conditions.refuses else miss_share(conditions, grid)
    return np.clip(np.maximum.accumulate(missed), 0.0, 1.0)
