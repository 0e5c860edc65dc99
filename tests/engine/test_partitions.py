"""The best division of nodes among models, against all divisions."""

from __future__ import annotations

import itertools

import numpy as np

from planner.engine.partitions import Choices, best_division


def test_no_division_has_better_levels() -> None:
    """The first stage decides, in it the lowest level; also where several workloads of a model share its nodes."""
    for seed in range(60):
        random = np.random.default_rng(seed)
        clusters = int(random.integers(1, 3))
        room = random.integers(0, 5, (clusters, 2))
        models = []
        for _ in range(int(random.integers(1, 4))):
            units = np.indices([4] * clusters).reshape(clusters, -1).T
            # Few different levels, so that later ones have to decide.
            levels = [
                np.sort(random.integers(0, 4, (int(random.integers(0, 3)), len(units), 2)), axis=0)
                / 4.0
                for _ in range(2)
            ]
            models.append(Choices(units=units, levels=levels))
        division = best_division(models, room)
        for moment in range(2):
            best = max(
                _figures(models, numbers, moment)
                for numbers in itertools.product(*(range(len(model.units)) for model in models))
                if _fits(models, numbers, room[:, moment].tolist())
            )
            chosen = tuple(division[:, moment].tolist())
            assert _fits(models, chosen, room[:, moment].tolist())
            assert _figures(models, chosen, moment) == best


def _fits(models: list[Choices], numbers: tuple[int, ...], room: list[int]) -> bool:
    taken = [model.units[number] for model, number in zip(models, numbers, strict=True)]
    return bool((np.sum(taken, axis=0) <= room).all())


def _figures(models: list[Choices], numbers: tuple[int, ...], moment: int) -> tuple[float, ...]:
    figures: list[float] = []
    for stage in range(2):
        levels: list[float] = []
        for model, number in zip(models, numbers, strict=True):
            levels += model.levels[stage][:, number, moment].tolist()
        figures += sorted(levels)
    return tuple(figures)
