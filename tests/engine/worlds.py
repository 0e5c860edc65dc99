"""Small scenarios for the whole engine: written as a user would, changed by keyword."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np

from planner.engine.monthly import Monthly
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.scenario.loading import scenario_from_document
from planner.scenario.scenario import Scenario
from planner.yaml_io import Document, parse_scalar

BASE: dict[str, Any] = {
    "name": "world",
    "start": "2026-01-01",
    "horizon_months": 2,
    "workloads": {
        "chat": {
            "model": "llama-3.1-8b",
            "requests_per_s": 300,
            "lengths": {"input": {"mean": 500}, "output": {"mean": 100}},
        },
        "nightly": {
            "model": "llama-3.1-70b",
            "requests_per_s": 10,
            "lengths": {"input": {"mean": 900}, "output": {"mean": 250}},
            "slo": {"ttft_s": 60, "tpot_s": 0.2},
            "priority": "deferrable",
            "completion_window_h": 12,
        },
    },
    "clusters": {
        "h200": {"accelerator": "H200", "nodes": 4},
        "mi325x": {"accelerator": "MI325X", "nodes": 3},
    },
    "reliability": {"failure_multiplier": 20},
    "software": {"incident_multiplier": 10},
    "site": {"outages_per_year": 4},
}

QUIET: dict[str, Any] = {
    "reliability": {"failure_multiplier": 0},
    "software": {"incident_multiplier": 0, "software_speedup_multiplier": 0},
    "site": {"outages_per_year": 0},
}
"""Nothing fails."""

SHARED: dict[str, Any] = {
    "engine": "vllm",
    "precision": "fp8",
    "prefill_decode": "colocated",
    "chunk_tokens": 8192,
}
"""A cluster that chooses nothing but its width: replicas of one engine, each of which prefills its own prompts."""


def merged(base: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """Lay changes over a document, key by key; None takes a key away."""
    whole = copy.deepcopy(base)
    for change in changes:
        for key, part in change.items():
            if part is None:
                whole.pop(key, None)
            elif isinstance(part, dict) and isinstance(whole.get(key), dict):
                whole[key] = merged(whole[key], part)
            else:
                whole[key] = copy.deepcopy(part)
    return whole


def dated(part: Any) -> Any:
    """Turn what reads as a date into one, as YAML would."""
    if isinstance(part, dict):
        return {key: dated(value) for key, value in part.items()}
    if isinstance(part, list):
        return [dated(value) for value in part]
    return parse_scalar(part) if isinstance(part, str) else part


def scenario_from(whole: dict[str, Any]) -> Scenario:
    """A scenario from a whole document."""
    return scenario_from_document(Document(dated(whole)))


def scenario_of(*changes: dict[str, Any]) -> Scenario:
    """The base scenario with changes."""
    return scenario_from(merged(BASE, *changes))


def plan_of(*changes: dict[str, Any]) -> Plan:
    """The base scenario with changes, compiled."""
    return build_plan(scenario_of(*changes))


def assert_same_months(one: Monthly, other: Monthly) -> None:
    """Two runs that differ in nothing but rounding, which follows the largest of each kind of figure.

    Hours short of room are planned by a linear program, which ends within a millionth of a node.
    """
    scales = {"requests": other.demand_requests, "node_h": other.present_node_h}
    for name in [field.name for field in dataclasses.fields(Monthly)]:
        left = getattr(one, name)
        right = getattr(other, name)
        scale = float(np.abs(scales.get(name.partition("_")[2], right)).max(initial=0.0))
        np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-9 * scale + 1e-9, err_msg=name)
