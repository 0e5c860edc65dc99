"""What the plans of one study have in common, worked out once.

A study compiles the same scenario thousands of times with a few figures changed. Most of a plan does not depend on
them: what a node sustains depends on models, parts and objectives, the hours of a week on a time zone. Each part is
kept under the figures that decide it, so a plan compiled with memory equals one compiled without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from planner.catalog.load import Catalog
from planner.language.scenario import Scenario
from planner.physics.coefficients import Calibration
from planner.physics.node_power import NodePower

Kept = TypeVar("Kept")
_MOST_KEPT = 4096  # a table is 2 kB and a workload's hours are 210 kB, so some 100 MB at the very most


class Reuse:
    """A memory for the plans of one scenario whose figures vary; not shared between threads or processes."""

    def __init__(self, stated: Scenario) -> None:
        """Remember catalogue and calibration, which no study can vary."""
        self.catalog: Catalog = stated.load_catalog()
        self.calibration: Calibration = stated.load_calibration().calibration()
        self.node_powers: dict[str, NodePower] = {}
        """The first node power compiled for each cluster: its throttling table serves where nothing throttles."""
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def once(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        """Return what was computed under a key before, or compute it now; the longest unused goes first."""
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self._kept[key] = compute()
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        kept: Kept = self._kept[key]
        return kept
