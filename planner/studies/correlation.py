"""Rank correlations between inputs, by a Gaussian copula.

Normal scores with Pearson correlation r have Spearman's rank correlation 6/π arcsin(r/2) (Pearson 1907), so the matrix
asked for is turned into r = 2 sin(π ρ / 6), factored, and multiplied onto the scores of each point. Each point is
treated alone, so replication 17 has the same inputs however many others there are.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError, raise_all
from planner.scenario import study as language
from planner.validation import choices, nearest
from planner.yaml_io import KeyPath

_SLACK = 1e-9


def score_correlation(ranks: Floats) -> Floats:
    """Return the normal scores' correlations for a matrix of rank correlations."""
    return np.asarray(2.0 * np.sin(np.pi * ranks / 6.0), dtype=np.float64)


def rank_correlation(scores: Floats) -> Floats:
    """Return the rank correlations of normal scores with these correlations: the inverse of ``score_correlation``."""
    return np.asarray(6.0 / np.pi * np.arcsin(np.clip(scores, -1.0, 1.0) / 2.0), dtype=np.float64)


def is_valid(ranks: Floats) -> bool:
    """Say whether inputs with these rank correlations can exist under the copula."""
    return bool(np.linalg.eigvalsh(score_correlation(ranks)).min() >= -_SLACK)


def nearest_valid(ranks: Floats, rounds: int = 500) -> Floats:
    """Return the nearest valid matrix of rank correlations, by alternating projections (Higham 2002).

    Between the cone of matrices without negative eigenvalues and the matrices with unit diagonal, with Dykstra's
    correction; then drawn in by a hair so that it is valid to the digits a user would copy.
    """
    target = score_correlation(ranks)
    correction = np.zeros_like(target)
    for _ in range(rounds):
        reduced = target - correction
        values, vectors = np.linalg.eigh(reduced)
        projected = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = projected - reduced
        target = projected.copy()
        np.fill_diagonal(target, 1.0)
    scores = target * (1.0 - 1e-3) + np.eye(len(target)) * 1e-3
    return rank_correlation(scores)


def factor(ranks: Floats) -> Floats:
    """Return the symmetric root A, A Aᵀ being the scores' correlations.

    It leaves inputs without correlations as they are, and unlike Cholesky's factor it takes perfect correlations.
    """
    values, vectors = np.linalg.eigh(score_correlation(ranks))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, dtype=np.float64)


def correlate(points: Floats, mixing: Floats) -> Floats:
    """Return points of the unit cube, shape (points, inputs), moved so that their columns correlate as asked."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - only where inputs are correlated

    return np.asarray(ndtr(ndtri(np.clip(points, 1e-12, 1.0 - 1e-12)) @ mixing.T), dtype=np.float64)


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
    raise_all(problems)
    if not is_valid(ranks):
        raise ScenarioError(_invalid(study, names, ranks, pairs))
    return factor(ranks)


def _invalid(
    study: language.Study, names: list[str], ranks: Floats, pairs: dict[tuple[int, int], int]
) -> list[Problem]:
    """Say which correlations exclude each other, and what the nearest possible ones are."""
    near = nearest_valid(ranks)
    return [
        study.problem(
            ("correlations", number),
            f"{names[first]} and {names[second]} cannot have rank correlation {ranks[first, second]:g} with the others",
            f"the nearest valid matrix has {np.trunc(near[first, second] * 1000) / 1000:g}",
        )
        for (first, second), number in pairs.items()
        if abs(near[first, second] - ranks[first, second]) > 2e-3
    ]
