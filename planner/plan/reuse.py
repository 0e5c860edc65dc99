"""What plans of one scenario have in common, computed once per process."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from planner.arrays import Floats, Ints
    from planner.scenario.scenario import Scenario

Figure = TypeVar("Figure")
_KEPT = frozenset({"bursts", "log gains", "most by mean times", "order", "service"})
"""Of what a plan works out, what takes long and fills little room: all that a shelf keeps."""


class Shelf(Protocol):
    """Where figures are kept beyond this process, by the text of all that decides them."""

    def read(self, key: str) -> tuple[Any, ...]:
        """Return the figure of a key, in a tuple; an empty one where there is none."""

    def write(self, key: str, figure: object) -> None:
        """Keep the figure of a key."""


_shelves: list[Shelf] = []
"""That of this process, if it has one."""


def keep_on(*shelves: Shelf) -> None:
    """Keep figures of plans on a shelf from now on, or on none."""
    _shelves[:] = shelves


def shelves() -> tuple[Shelf, ...]:
    """Return the shelf of this process, for others that work for it."""
    return tuple(_shelves)


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

    def __init__(self, stated: Scenario, *, is_kept: bool = True) -> None:
        """Load the catalogue and the calibration, which no study can vary.

        Draws of a study are not ``is_kept`` on a shelf: nobody asks for them again.
        """
        self.catalog = stated.load_catalog()
        self._file = stated.load_calibration()
        self._is_kept = is_kept
        self.calibration = self.once("calibration", self._file.calibration)

    def once(self, key: Hashable, compute: Callable[[], Figure]) -> Figure:
        """Return the cached result of a key for this catalogue and calibration, or compute it now."""

        def kept() -> Figure:
            is_kept = self._is_kept and isinstance(key, tuple) and key[0] in _KEPT
            for shelf in _shelves if is_kept else ():
                text = f"{self._decided_by()} {key!r}"
                for figure in shelf.read(text):
                    found: Figure = figure
                    return found
                computed = compute()
                shelf.write(text, computed)
                return computed
            return compute()

        # Both are kept beside it, so that their ids are not given to others.
        figure, _, _ = once(
            (id(self.catalog), id(self._file), key), lambda: (kept(), self.catalog, self._file)
        )
        return figure

    def _decided_by(self) -> str:
        """Return the hash of all that the catalogue and the calibration say."""

        def hashed() -> str:
            text = f"{self.catalog!r} {self._file!r}"
            return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

        return self.once("decided by", hashed)
