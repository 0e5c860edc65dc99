"""What plans have in common, worked out once in a process.

A study, a sweep or a notebook compiles the same scenario many times with a few figures changed. Most of a plan does not
depend on them: what a node sustains depends on models, parts and objectives, the hours of a week on a time zone. Each
part is kept under the figures that decide it, so whatever was compiled before, the plan is the same.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from planner.catalog.calibration import CalibrationFile
from planner.catalog.load import Catalog
from planner.parallel import shared
from planner.physics.coefficients import Calibration
from planner.scenario.scenario import Scenario

Kept = TypeVar("Kept")
Facts = tuple[Catalog, CalibrationFile]
_MOST_KEPT = 4096  # a table is 2 kB and a workload's hours are 210 kB, so some 100 MB at the very most
_kept: OrderedDict[tuple[int, int, Hashable], tuple[Facts, Any]] = OrderedDict()
"""By catalogue, calibration and key, the longest unused first; both are held too, so that their numbers are not given
again."""
_lock = threading.Lock()
_WORTH_A_FORK = 3
"""Pieces of some 30 ms each that are worth the 5 ms of a fork."""


def _given(kept: Kept) -> Kept:
    return kept


class Reuse:
    """The process's memory as the plans of one scenario whose figures vary use it."""

    def __init__(self, stated: Scenario) -> None:
        """Remember catalogue and calibration, which no study can vary."""
        self.catalog: Catalog = stated.load_catalog()
        self._file: CalibrationFile = stated.load_calibration()
        self.calibration: Calibration = self.once("calibration", self._file.calibration)

    def work_out(self, pieces: Mapping[Hashable, Callable[[], Kept]]) -> None:
        """Work out what is not known yet of some keys, forks of this process helping where it takes them long."""
        missing = {key: compute for key, compute in pieces.items() if self._place(key) not in _kept}
        if len(missing) >= _WORTH_A_FORK:
            for key, computed in zip(missing, shared(list(missing.values())), strict=True):
                self.once(key, functools.partial(_given, computed))

    def _place(self, key: Hashable) -> tuple[int, int, Hashable]:
        return id(self.catalog), id(self._file), key

    def once(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        """Return what was computed under a key and these facts before, or compute it now."""
        place = self._place(key)
        with _lock:
            held = _kept.pop(place, None)
        held = held or ((self.catalog, self._file), compute())  # two threads at once compute the same twice
        with _lock:
            _kept[place] = held  # at the end: the longest unused goes first
            while len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
        kept: Kept = held[1]
        return kept
