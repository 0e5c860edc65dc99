"""The correlations a study asks for, as a factor that mixes its inputs; refused with the nearest where impossible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.documents import KeyPath
from planner.errors import Problem, ScenarioError
from planner.language import study as language
from planner.studies import correlation
from planner.validation import choices, nearest

Floats = NDArray[np.float64]


def mixing_of(study: language.Study, names: list[str]) -> Floats | None:
    """Return the factor of the correlation matrix, or raise with the nearest one that is valid."""
    if not study.correlations:
        return None
    ranks = np.eye(len(names))
    problems: list[Problem] = []
    pairs: dict[tuple[int, int], int] = {}
    for number, entry in enumerate(study.correlations):
        where: KeyPath = ("correlations", number)
        unknown = [name for name in entry.between if name not in names]
        problems += [
            study.problem(where, f"{name!r} is not an input", nearest(name, names) or f"there are {choices(names)}")
            for name in unknown
        ]
        if unknown:
            continue
        first, second = sorted(names.index(name) for name in entry.between)
        if first == second:
            problems.append(study.problem(where, f"{entry.between[0]} is correlated with itself"))
        elif (first, second) in pairs:
            problems.append(study.problem(where, f"the pair is already at correlations[{pairs[first, second]}]"))
        else:
            pairs[first, second] = number
            ranks[first, second] = ranks[second, first] = entry.rank
    if problems:
        raise ScenarioError(problems)
    if not correlation.is_valid(ranks):
        raise ScenarioError(_invalid(study, names, ranks, pairs))
    return correlation.factor(ranks)


def _invalid(
    study: language.Study, names: list[str], ranks: Floats, pairs: dict[tuple[int, int], int]
) -> list[Problem]:
    """Say which correlations exclude each other, and what the nearest possible ones are."""
    near = correlation.nearest_valid(ranks)
    return [
        study.problem(
            ("correlations", number),
            f"{names[first]} and {names[second]} cannot have rank correlation {ranks[first, second]:g} with the others",
            f"the nearest valid matrix has {np.trunc(near[first, second] * 1000) / 1000:g}",
        )
        for (first, second), number in pairs.items()
        if abs(near[first, second] - ranks[first, second]) > 2e-3
    ]
