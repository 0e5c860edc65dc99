"""Every field of the compiled plan against :mod:`tests.plan.oracle`, which works it out by hand from the YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from planner.plan.build import build_plan
from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import SloTarget
from tests.plan.oracle import Oracle
from tests.plan.oracle_machines import ELSEWHERE

PLANS = Path(__file__).parent / "plans"
WEEK = [1 + hour % 24 % 7 / 4 + hour // 120 / 2 for hour in range(168)]

MINUTES = {"late_tables", "refused_tables"}  # whose bursts the oracle cuts into 500 kinds of minute


def fields_of(record: Any) -> dict[str, Any]:
    """Return a record's fields; the oracle has mappings, and records of physics as they are."""
    if record is None or isinstance(record, Mapping | SloTarget):
        return dict(record or {})
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def differences(found: Any, expected: Any, place: str) -> Iterator[str]:
    """Yield every place where a plan is not what the oracle says; a field it does not know is one."""
    if expected is ELSEWHERE:
        return
    if dataclasses.is_dataclass(found) or isinstance(found, Mapping | SloTarget):
        left = fields_of(found)
        right = fields_of(expected)
        yield from (
            f"{place}.{name}: not worked out by the oracle" for name in left if name not in right
        )
        yield from (f"{place}.{name}: no field of the plan" for name in right if name not in left)
        for name in left.keys() & right.keys():
            yield from differences(left[name], right[name], f"{place}.{name}")
    elif isinstance(found, tuple):
        if len(found) != len(expected):
            yield f"{place}: {len(found)} of them, not {len(expected)}"
        for index, (one, other) in enumerate(zip(found, expected, strict=False)):
            yield from differences(one, other, f"{place}[{index}]")
    elif isinstance(found, np.ndarray) and found.dtype.kind == "U":
        if found.tolist() != expected:
            yield f"{place}: {found.tolist()}, not {expected}"
    elif isinstance(found, np.ndarray | float) and expected is not None:
        is_bursty = place.removeprefix("plan.") in MINUTES or place.endswith(").added")
        relative, absolute = (0.0, 0.02) if is_bursty else (2e-8, 1e-12)
        if np.shape(found) != np.shape(expected):
            yield f"{place}: shape {np.shape(found)}, not {np.shape(expected)}"
        elif not np.allclose(found, expected, rtol=relative, atol=absolute, equal_nan=True):
            yield f"{place}: {found!r:.200}, not {expected!r:.200}"
    elif (found.value if isinstance(found, Enum) else found) != expected:
        yield f"{place}: {found!r}, not {expected!r}"


@pytest.mark.parametrize("name", ["everything", "plain", "claimed"])
def test_every_field_of_a_plan_is_what_a_hand_computes(name: str, write: Any) -> None:
    text = (PLANS / f"{name}.yaml").read_text(encoding="utf-8").replace("WEEK", str(WEEK))
    scenario = load_scenario(write(text))
    reuse = Reuse(scenario)
    services, refused = build_services(scenario, reuse, {})
    assert not refused
    plan = build_plan(scenario, reuse)
    wrong = list(differences(plan, Oracle(yaml.safe_load(text), scenario, services).plan(), "plan"))
    assert not wrong, "\n".join(wrong)


def test_a_field_without_an_oracle_is_told() -> None:
    @dataclasses.dataclass
    class Grown:
        old: float
        new: float

    assert list(differences(Grown(1.0, 2.0), {"old": 1.0}, "plan")) == [
        "plan.new: not worked out by the oracle"
    ]
    assert list(differences(Grown(1.0, 2.0), {"old": 1.1, "new": 2.0}, "plan")) == [
        "plan.old: 1.0, not 1.1"
    ]
