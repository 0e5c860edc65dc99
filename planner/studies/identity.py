"""What makes a study the same study: hashes of all that decides its numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import planner
from planner.catalog.calibration import SHIPPED_CALIBRATION
from planner.scenario.study import Study
from planner.studies.replicate import Setup

Identity = dict[str, Any]


def identity(study: Study, setup: Setup, batch: int) -> Identity:
    """Return the parts that must agree for stored rows to belong to a study; how many rows there are is not one."""
    first = setup.scenarios[0].scenario
    return {
        "version": planner.__version__,
        "design": _plain(setup.design),
        "seed": setup.seed,
        "batch": batch,
        "study": _sha256(study.model_dump(mode="json", exclude={"description", "headline", "scenarios"})),
        "inputs": _sha256([_plain(found) for found in setup.inputs.each]),
        "calibration": hashlib.sha256(SHIPPED_CALIBRATION.read_bytes()).hexdigest(),
        "catalogue": _sha256(first.load_catalog().model_dump(mode="json")),
        "scenarios": {
            base.name: _sha256(base.scenario.model_dump(mode="json", by_alias=True, exclude={"extends"}))
            for base in setup.scenarios
        },
    }


def differences(stored: Identity, wanted: Identity) -> list[str]:
    """Return in words what differs between two identities."""
    found = [
        {"study": "the study file", "version": "the planner's version"}.get(key, f"the {key}")
        for key in wanted
        if key != "scenarios" and stored.get(key) != wanted[key]
    ]
    before, now = stored.get("scenarios", {}), wanted["scenarios"]
    if list(before) != list(now):
        found.append(f"the scenarios ({', '.join(before)} before)")
    found += [f"scenario {name}" for name in now if name in before and before[name] != now[name]]
    return found


def _plain(part: Any) -> Any:
    """Return a dataclass as plain data, with models by their content."""
    if dataclasses.is_dataclass(part):
        return {field.name: _plain(getattr(part, field.name)) for field in dataclasses.fields(part)}
    if hasattr(part, "model_dump"):
        return {"model": type(part).__name__, **part.model_dump(mode="json")}
    return list(map(_plain, part)) if isinstance(part, tuple) else part


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
