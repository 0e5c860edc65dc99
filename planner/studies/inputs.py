"""Uncertain inputs: what each is drawn from, which fields of which scenario it sets, and a scenario with them set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.scenario.scenario import Scenario
from planner.studies import correlation, paths
from planner.studies.distributions import Resolved, quantile, value_of
from planner.yaml_io import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One uncertain input."""

    name: str
    distribution: Resolved
    times_stated: bool = False
    targets: tuple[tuple[KeyPath, ...], ...] = ()
    """Fields it sets, by scenario."""
    throughput_of: tuple[str, str, str] | None = None
    """Accelerator, engine and model whose modelled throughput it multiplies, for model error; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All uncertain inputs of a study."""

    entries: tuple[Input, ...]
    mixing: Floats | None
    """The factor of the scores' correlations; None where inputs are independent."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in column order."""
        return tuple(drawn.name for drawn in self.entries)

    def drawn(self, points: Floats) -> Floats:
        """Return the inputs' values for points of the unit cube, both of shape (points, inputs)."""
        if self.mixing is not None:
            points = correlation.correlate(points, self.mixing)
        columns = [quantile(uncertain.distribution, points[:, place]) for place, uncertain in enumerate(self.entries)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One scenario of a study as stated, ready to be changed."""

    name: str
    scenario: Scenario
    content: dict[str, Any]
    """What the user wrote, merged, with tuples for lists."""
    dump: dict[str, Any]
    """Every field with its value, defaults included."""


def stated(name: str, scenario: Scenario) -> Stated:
    """Prepare a scenario for changes."""
    content = _frozen(scenario.document.content)
    return Stated(name=name, scenario=scenario, content=content, dump=scenario.model_dump(by_alias=True))


def _frozen(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _frozen(part) for key, part in content.items()}
    return tuple(map(_frozen, content)) if isinstance(content, list | tuple) else content


def changed(
    base: Stated, which: int, inputs: Inputs, values: Floats
) -> tuple[Scenario, dict[tuple[str, str, str], float]]:
    """Return a scenario with every input's value set, and the throughput factors that are no scenario's field."""
    content = base.content
    factors: dict[tuple[str, str, str], float] = {}
    for uncertain, drawn in zip(inputs.entries, values, strict=True):
        if uncertain.throughput_of is not None:
            factors[uncertain.throughput_of] = float(drawn)
            continue
        for path in uncertain.targets[which]:
            content = paths.replaced(content, path, new_value(uncertain, paths.at(base.dump, path), float(drawn)))
    scenario = Scenario.model_validate(content)
    scenario._document = base.scenario.document
    return scenario, factors


def new_value(uncertain: Input, before: Any, drawn: float) -> Any:
    """Return what a draw makes of a field: whole numbers stay whole."""
    value = value_of(uncertain.distribution, drawn)
    if uncertain.times_stated and isinstance(value, int | float):
        value = before * value
    if type(before) is int and isinstance(value, float):
        return round(value)
    return value
