"""A bridge between two scenarios: how much of a difference each cause explains, summing to the whole.

The order in which causes are switched from one scenario to the other changes what each seems to explain. The
Shapley value averages over all orders, so it needs no order, splits joint effects evenly, and always sums to
the difference (Shapley 1953).
"""

from __future__ import annotations

from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING

from planner.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAXIMUM_CAUSES = 10
"""2^causes evaluations are made: 1,024 at most."""


def shapley_bridge(causes: Sequence[str], measure: Callable[[frozenset[str]], float]) -> dict[str, float]:
    """Return what each cause adds to the measure; the values sum to measure(all) − measure(none).

    ``measure`` returns the figure with the named causes taken from the second scenario and the others from
    the first. Each set of causes is measured once.
    """
    if len(set(causes)) != len(causes) or not 1 <= len(causes) <= MAXIMUM_CAUSES:
        message = f"a bridge needs 1 to {MAXIMUM_CAUSES} causes, each named once, not {len(causes)}"
        raise ScenarioError(Problem(path="bridge", message=message))
    count = len(causes)
    figures = {
        frozenset(chosen): measure(frozenset(chosen))
        for size in range(count + 1)
        for chosen in combinations(causes, size)
    }
    explained = {}
    for cause in causes:
        explained[cause] = sum(
            factorial(len(others)) * factorial(count - len(others) - 1) / factorial(count)
            * (figures[others | {cause}] - figure)
            for others, figure in figures.items()
            if cause not in others
        )  # fmt: skip
    return explained
