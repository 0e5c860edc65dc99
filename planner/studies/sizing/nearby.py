"""Choices at the limits, where nothing else begins a search, and near its end, held against it as they are run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.studies.sizing.choices import Choices, Counts
from planner.studies.sizing.moves import moved
from planner.studies.sizing.search import Search

_COMPARED = 4  # replications in which two choices' costs are held against each other: they meet the same chance
_NEAR = 1.1  # times what the best is predicted to cost: further off, no error of a prediction makes up for it
_MOST_NEAR = 12  # choices that are run beside it
_MOST_ROUNDS = 4


def fullest(choices: Choices) -> Iterator[Counts]:
    """Yield the choices that have as much as limits allow of one purchase, then of each other; nothing is retired."""
    groups, (least, most) = choices.group_of, choices.nodes_allowed()
    places = range(len(choices.purchases))
    for first in places:
        nodes = [0] * len(places)
        for group, fewest in enumerate(least.astype(int).tolist()):
            nodes[int(np.argmax(groups == group))] = fewest
        for place in sorted(places, key=lambda at: at != first):
            taken = sum(nodes[at] for at in places if groups[at] == groups[place])
            low, high = 0, int(most[groups[place]]) - taken
            while low < high:  # limits that forbid some nodes forbid more of them
                middle = (low + high + 1) // 2
                if choices.within_limits(_with(choices, nodes, place, middle)):
                    low = middle
                else:
                    high = middle - 1
            nodes[place] += low
        if choices.within_limits(made := _with(choices, nodes, first, 0)):
            yield made


def _with(choices: Choices, nodes: list[int], place: int, more: int) -> Counts:
    """Return the choice of some nodes and a few more of one purchase."""
    return moved((*nodes, *(0 for _ in choices.retirements)), {place: more})


def cheaper_as_run(search: Search, counts: Counts) -> Counts:
    """Return a choice near one that keeps the promise and costs less as it is run, or itself.

    A search goes by predictions. Where hours at work are rented these are off by some hundredths, since who works when
    is a matter of each hour, and so may be their order.
    """

    def cost(choice: Counts) -> float:
        few = range(min(_COMPARED, len(search.surveyed.surveys)))
        return float(np.mean([outcome.cost for outcome in search.outcomes(choice, few)]))

    for _ in range(_MOST_ROUNDS):
        limit = _NEAR * search.surveyed.predicted(counts)
        near = sorted((search.surveyed.predicted(other), other) for other in _neighbours(search, counts))
        ranked = sorted((cost(other), other) for predicted, other in near[:_MOST_NEAR] if predicted <= limit)
        below = cost(counts) * (1.0 - 1e-6)
        better = next((other for usd, other in ranked if usd < below and search.holds(other, fully=True)), None)
        if better is None:
            return counts
        counts = better
    return counts


def _neighbours(search: Search, counts: Counts) -> set[Counts]:
    """Return the choices of one node more or less, or one exchanged, that limits allow."""
    places = range(len(search.choices.purchases))
    changes = [{place: step} for place in places for step in (1, -1)]
    changes += [{out: -1, into: 1} for out in places for into in places if out != into]
    near = {
        moved(counts, change)
        for change in changes
        if all(step < 0 or search.allowed[place] for place, step in change.items())
    }
    return {other for other in near if min(other) >= 0 and search.choices.within_limits(other)}
