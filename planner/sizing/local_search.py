"""Choices at the limits, where nothing else begins a search, and near its end, held against it as they are run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from planner.sizing.choices import Choices, Counts
from planner.sizing.moves import moved
from planner.sizing.search import Search

_COMPARED = 4  # replications in which two choices' costs are held against each other: they meet the same chance
_NEAR = 1.1  # times what the best is predicted to cost: further off, no error of a prediction makes up for it
_MOST_ALIKE = 8  # times the nodes: where a part serves next to nothing, no number of it stands in for another
_MOST_NEAR = 12  # choices that are run beside it
_MOST_ROUNDS = 4
_SHARES = (1.0, 0.5, 0.75, 0.25)  # of the most of one purchase
_LEAST_SAVED = 1e-6  # of the cost: less is no difference


def searched(search: Search, tries: int) -> Counts | None:
    """Run a search among plans; where limits leave the relaxation no margin, from the most that they allow.

    That is far from its best, so that as many tries are taken from there, at least.
    """
    if search.run() is None and math.isfinite(search.bound):
        start = next((counts for counts in fullest(search.trial.choices, search.allowed) if search.holds(counts)), None)
        if start is not None:
            search.tries = max(search.tries, tries)
            search.run(start)
    return search.best


def fullest(choices: Choices, allowed: Sequence[bool]) -> Iterator[Counts]:
    """Yield the choices that have as much as limits allow of one purchase, then of each other; nothing is retired.

    Then those that have a part of that of the one, and as much of the others: where a budget allows much of a part that
    serves little, or little of one that serves much, what does may lie between.
    """
    groups, (least, most) = choices.group_of, choices.nodes_allowed()
    places = [place for place in range(len(choices.purchases)) if allowed[place]]
    fewest = {
        next((place for place in places if groups[place] == group), None): int(nodes)
        for group, nodes in enumerate(least)
        if nodes
    }
    if None in fewest:  # something has to be bought that is not allowed
        return
    for share, first in itertools.product(_SHARES, places):
        nodes = [fewest.get(place, 0) for place in range(len(choices.purchases))]
        for turn, place in enumerate((*sorted(places, key=lambda at: at != first), first)):
            taken = sum(nodes[at] for at in places if groups[at] == groups[place])
            low, high = 0, int(most[groups[place]]) - taken
            while low < high:  # limits that forbid some nodes forbid more of them
                middle = (low + high + 1) // 2
                if choices.within_limits(_with(choices, nodes, place, middle)):
                    low = middle
                else:
                    high = middle - 1
            nodes[place] += low if turn else int(share * low)
        if choices.within_limits(made := _with(choices, nodes, first, 0)):
            yield made


def _with(choices: Choices, nodes: list[int], place: int, more: int) -> Counts:
    """Return the choice of some nodes and a few more of one purchase."""
    return moved((*nodes, *(0 for _ in choices.retirements)), {place: more})


def cheaper_as_run(search: Search, counts: Counts) -> Counts:
    """Return a choice near one that keeps the promise and costs less as it is run, or itself.

    A search goes by predictions. These leave out what is no figure of a node, such as energy of work and people who
    come whole; and where hours at work are rented they are off by some hundredths, since who works when is a matter of
    each hour.
    """
    few = range(min(_COMPARED, len(search.surveyed.surveys)))
    for _ in range(_MOST_ROUNDS):
        before, limit = counts, _NEAR * search.surveyed.predicted(counts)
        near = sorted((search.surveyed.predicted(other), other) for other in _neighbours(search, counts))
        tried = [other for predicted, other in near[:_MOST_NEAR] if predicted <= limit]
        search.archive.outcomes([search.surveyed.run_of(run, at) for run in (counts, *tried) for at in few])
        ranked = sorted((search.dearer_by(other, before), other) for other in tried)
        least = -_LEAST_SAVED * abs(search.surveyed.predicted(counts))
        better = (other for dearer, other in ranked if dearer < least and search.holds(other, fully=True))
        counts = next(better, counts)
        if counts == before:
            break
    return counts


def _neighbours(search: Search, counts: Counts) -> set[Counts]:
    """Return the choices near one that limits allow and that nothing which was run refutes.

    They have one node more or less, or one exchanged; all of a purchase left out, or as much of another in its place;
    nodes up to a discount; or a retirement on another day.
    """
    places, around = range(len(search.choices.purchases)), search.around
    changes = [{place: step} for place in places for step in (1, -1, -counts[place])]
    for out, into in itertools.permutations(places, 2):
        alike = counts[out] * around.worth((out,)) / max(around.worth((into,)), 1e-12)
        changes += [{out: -1, into: 1}, {out: -counts[out], into: min(math.ceil(alike), _MOST_ALIKE * sum(counts))}]
    near = {
        moved(counts, change)
        for change in changes
        if all(step < 0 or search.allowed[place] for place, step in change.items())
    }
    near |= {*around.up_to_a_discount(counts), *around.retired(counts)}
    return {
        other
        for other in near - {counts}
        if min(other) >= 0 and search.choices.within_limits(other) and not search.is_refuted(other)
    }
