"""What plans of one scenario have in common, computed once per process."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from planner.arrays import Floats, Ints
from planner.scenario.scenario import Scenario

Figure = TypeVar("Figure")


# A table or a curve is 2 kB and a workload's hours are 210 kB: some 100 MB at the very most.
@functools.lru_cache(maxsize=8192)
def _place(_key: Hashable) -> list[Any]:
    """Return the cache slot of a key, empty at first; the least recently used slot is dropped first."""
    return []


def once(key: Hashable, compute: Callable[[], Figure]) -> Figure:
    """Return the cached result of a key that holds all figures which decide it, or compute it now."""
    place = _place(key)
    if not place:
        # Threads may compute twice.
        place.append(compute())
    figure: Figure = place[0]
    return figure


def digest(arrays: Iterable[Floats | Ints]) -> bytes:
    """Return what tells arrays from all others, as part of a key that takes less room than they."""
    hashed = hashlib.blake2b(digest_size=16)
    for array in arrays:
        # Where one ends is part of it.
        hashed.update(array.size.to_bytes(8))
        hashed.update(array.tobytes())
    return hashed.digest()


class Reuse:
    """A cache of figures that plans of one scenario have in common, computed once per process.

    A study, a sweep or a notebook compiles the same scenario many times with a few figures changed. Most of a plan does
    not depend on them: what a node sustains depends on models, parts and objectives, the hours of a week on a time
    zone. Each part is kept under the figures that decide it, so whatever was compiled before, the plan is the same.
    """

    def __init__(self, stated: Scenario) -> None:
        """Load the catalogue and the calibration, which no study can vary."""
        self.catalog = stated.load_catalog()
        self._file = stated.load_calibration()
        self.calibration = self.once("calibration", self._file.calibration)

    def once(self, key: Hashable, compute: Callable[[], Figure]) -> Figure:
        """Return the cached result of a key for this catalogue and calibration, or compute it now."""
        # Both are kept beside it, so that their ids are not given to others.
        figure, _, _ = once(
            (id(self.catalog), id(self._file), key), lambda: (compute(), self.catalog, self._file)
        )
        return figure
