"""Programs of the relaxation, solved: one, or several that share what is bought."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Floats
from planner.sizing.choices import Counts
from planner.sizing.program import Places, Rows, minimised
from planner.sizing.relaxation import Relaxation

_ROUNDING = 1e-7  # of a solver's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """The least that a program allows."""

    cost: float
    """As the objective counts it."""
    nodes: Floats
    """Of each purchase, shape (purchases,)."""
    retired: tuple[int, ...]
    """Place of each retirement's day."""

    @property
    def choice(self) -> tuple[float, ...]:
        """Nodes of each purchase, whole or not, then the days."""
        return (*self.nodes.tolist(), *self.retired)

    def counts(self) -> Counts:
        """Return the choice, nodes rounded up."""
        return (*(math.ceil(nodes - 1e-6) for nodes in self.nodes), *self.retired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The columns that several programs share."""

    places: Sequence[Places]
    """Of each program: which of them its own columns are, shape (its columns,)."""
    cost: Floats
    """Shape (columns,)."""
    upper: Floats
    purchases: int
    """How many of them are purchases; days of retirements follow."""


def solve_together(
    programs: Sequence[Relaxation],
    *,
    integral: bool,
    allowed: Sequence[bool] | None = None,
    shared: Shared | None = None,
) -> Relaxed | None:
    """Return the choice of least cost that keeps the promise in each of some replications; None where none does.

    All share the nodes, or those that ``shared`` says; each has its own work, whose cost is the mean over them.
    """
    first = programs[0]
    if shared is None:
        count = first.columns
        shared = Shared(
            places=[np.arange(count)] * len(programs),
            cost=first.prices.column,
            upper=first.upper(allowed)[:count],
            purchases=len(first.choices.purchases),
        )
    rows, costs, upper = list[Rows](), [shared.cost], [shared.upper]
    size = shared.cost.size
    for program, places in zip(programs, shared.places, strict=True):
        count = program.columns
        rows += [
            replace(
                block,
                column=np.where(
                    block.column < count, places[np.minimum(block.column, count - 1)], block.column - count + size
                ),
            )
            for block in program.constraints()
        ]
        costs.append(program.cost()[count:] / len(programs))
        upper.append(program.upper()[count:])
        size += program.variables - count
    marks = np.zeros(size, dtype=np.int64)
    marks[: shared.cost.size] = int(integral)
    solved = minimised(np.concatenate(costs), rows, marks, np.concatenate(upper))
    if solved is None:
        return None
    values, cost = solved
    least = cost + first.prices.fixed
    retired = first.retired(values[shared.places[0]])
    return Relaxed(cost=least - _ROUNDING * abs(least), nodes=values[: shared.purchases], retired=retired)
