"""Numbers of people and spare parts: fixed, or in proportion to the machines."""

from __future__ import annotations

import math

from planner.records import record
from planner.scenario.fields import PerThousand

_ROUNDING_SHIFTS = {"nearest": 0.5 + 1e-9, "up": 1.0 - 1e-9, "down": 1e-9}
"""What is added to a number before its fraction is cut off, by rounding; 1e-9 is the hair beside a whole number."""


@record
class Headcount:
    """A whole number of people or spare parts: fixed, or a rate per accelerator or node on site."""

    fixed: int = 0
    per_accelerator: float = 0.0
    per_node: float = 0.0
    rounding: str = "nearest"
    minimum: int = 0
    """How many there are at least, once there is a machine."""

    def number(self, accelerators: float, nodes: float = 0.0) -> int:
        """Return fixed + max(minimum, rounded(per accelerator · accelerators + per node · nodes)).

        A hair beside a whole number is that number: 400 at 0.0025 are one, whichever way is rounded.
        """
        # Without machines nobody is needed for them, not even the minimum.
        if accelerators <= 0.0:
            return self.fixed
        number = self.per_accelerator * accelerators + self.per_node * nodes
        shift = _ROUNDING_SHIFTS[self.rounding]
        people = math.floor(number + shift)
        return self.fixed + max(self.minimum, people)


def headcount(stated: float | PerThousand, minimum: int = 0) -> Headcount:
    """Compile a number of people or spare parts: a fixed number rounded to whole, or a rate."""
    if isinstance(stated, PerThousand):
        return Headcount(
            per_accelerator=stated.per_1000_accelerators / 1000.0,
            rounding=stated.rounding,
            minimum=minimum,
        )
    return Headcount(fixed=Headcount(per_accelerator=stated).number(1.0))
