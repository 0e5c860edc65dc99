"""The best division of nodes among models, each of which may have one of a few numbers of them on each cluster.

Divisions are compared by the levels of service that they give, stage by stage in ascending order: the first in which
two of them differ decides. Of two sets of levels, the better one stays the better beside any others. So models are
added one by one, and of all divisions of the same nodes among those seen so far the best alone is kept.

Arrays have the moments as last axis. No moment sees another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.records import record

Levels = Sequence[Floats]
"""Levels of service by stage, each of shape (workloads in ascending order, ..., moments)."""


@record
class Choices:
    """What models that share pools may have of a site."""

    units: Ints
    """Of each cluster's nodes, shape (choices, clusters)."""
    levels: Levels
    """What their workloads reach with it, each of shape (workloads, choices, moments)."""


def best_division(models: Sequence[Choices], room: Ints) -> Ints:
    """Return which of its choices each of some models has, shape (models, moments).

    ``room`` has the units of each cluster, shape (clusters, moments). Every model has a choice that takes none.
    """
    width = tuple((room.max(axis=1) + 1).tolist())
    states = (*width, room.shape[1])
    best: list[Floats] = [np.zeros((0, *states)) for _ in models[0].levels]
    chosen = []
    *first_models, last_model = models
    for model in first_models:
        best, choice = _added(best, model, states)
        chosen.append(choice)
    # Backwards, from all the room that there is.
    rest = room.copy()
    moments = np.arange(room.shape[1])
    division = np.zeros((len(models), moments.size), dtype=np.intp)
    division[-1] = _last_choice(best, last_model, room)
    rest -= last_model.units[division[-1]].T
    for place in reversed(range(len(first_models))):
        division[place] = chosen[place][(*rest, moments)]
        rest -= models[place].units[division[place]].T
    return division


def _last_choice(before: Levels, model: Choices, room: Ints) -> Ints:
    """Return what the last model has best where the others have the rest of all room, shape (moments,)."""
    rest = room[:, None, :] - model.units.T[:, :, None]
    is_best = (rest >= 0).all(axis=0)
    state = (slice(None), *np.maximum(rest, 0), np.arange(room.shape[1]))
    for of_stage, own in zip(before, model.levels, strict=True):
        rows = list(of_stage[state])
        for level in own:
            rows = _inserted(rows, level)
        for row in rows:
            highest = np.where(is_best, row, -1.0).max(axis=0)
            is_best &= row == highest
    return np.asarray(is_best.argmax(axis=0))


def _added(before: Levels, model: Choices, states: tuple[int, ...]) -> tuple[list[Floats], Ints]:
    """Return the best levels with a model more by units at most used, and its choice, each by state."""
    best: list[Floats] = []
    choice = np.zeros(states, dtype=np.intp)
    for number, units in enumerate(model.units):
        if any(used >= width for used, width in zip(units.tolist(), states, strict=False)):
            continue
        left = tuple(slice(0, width - used) for used, width in zip(units, states, strict=False))
        taken = tuple(slice(used, None) for used in units)
        levels = []
        for of_stage, own in zip(before, model.levels, strict=True):
            rows = [row[left] for row in of_stage]
            for level in own[:, number]:
                rows = _inserted(rows, level)
            shape = of_stage[(slice(None), *left)].shape[1:]
            levels.append(np.zeros((len(rows), *shape)))
            for place, row in enumerate(rows):
                levels[-1][place] = row
        if not best:
            # The first takes nothing, and is possible in every state.
            best = levels
            continue
        there = [of_stage[(slice(None), *taken)] for of_stage in best]
        is_better = _is_better(levels, there)
        for new, old in zip(levels, there, strict=True):
            np.copyto(old, new, where=is_better)
        np.copyto(choice[taken], number, where=is_better)
    return best, choice


def _inserted(rows: Sequence[Floats], level: Floats) -> list[Floats]:
    """Return ascending rows with one more, which has one figure for each moment."""
    if not rows:
        return [level]
    inserted = [np.minimum(rows[0], level)]
    for lower, upper in itertools.pairwise(rows):
        inserted.append(np.minimum(upper, np.maximum(lower, level)))
    inserted.append(np.maximum(rows[-1], level))
    return inserted


def _is_better(levels: Levels, others: Levels) -> Bools:
    """Return the states in which levels are better than others, of which the first that differs decides."""
    is_better = np.zeros(others[0].shape[1:], dtype=np.bool_)
    is_equal = ~is_better
    for of_stage, of_others in zip(levels, others, strict=True):
        for row, other in zip(of_stage, of_others, strict=True):
            is_better |= is_equal & (row > other)
            is_equal &= row == other
    return is_better
