"""What makes a study the same study: hashes of all that decides its numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.catalog.calibration import SHIPPED_CALIBRATION
from planner.scenario.scenario import Scenario
from planner.scenario.study import Study
from planner.studies.inputs import Inputs
from planner.studies.replicate import Setup
from planner.version import __version__, code_sha256

Identity = dict[str, Any]
FORMAT = 2
"""Of the store: 1 was study.json beside shards without checksums."""
_TOLD_BY = {
    "study": "the study file",
    "version": "the planner's version",
    "code": "the planner's code",
    "format": "the format of the store",
    "vary": "what is varied",
    "detailed": "detailed_replications",
}
_TOLD_APART = {"description", "headline", "scenarios", "detailed_replications"}
"""Keys of a study that do not decide its rows, or that stand beside its hash."""


def identity(study: Study, setup: Setup, batch: int) -> Identity:
    """Return the parts that must agree for stored rows to belong to a study; how many rows there are is not one."""
    scenarios = {base.name: base.scenario for base in setup.scenarios}
    return {
        **scenario_identity(scenarios),
        "design": _plain(setup.design),
        "seed": setup.seed,
        "batch": batch,
        "detailed": setup.detailed_rows,
        "study": digest_of(study.model_dump(mode="json", exclude=_TOLD_APART)),
        "inputs": inputs_identity(setup.inputs),
    }


def inputs_identity(inputs: Inputs, design: object = None) -> str:
    """Return the hash of what is drawn, and where a study does not say it by how."""
    return digest_of([*(_plain(drawn) for drawn in inputs.entries), *([] if design is None else [_plain(design)])])


def scenario_identity(scenarios: Mapping[str, Scenario]) -> Identity:
    """Return what decides the runs of scenarios: planner, catalogue, each scenario and every file it reads."""
    return {
        "format": FORMAT,
        "version": __version__,
        "code": code_sha256(),
        "calibration": hashlib.sha256(SHIPPED_CALIBRATION.read_bytes()).hexdigest(),
        "catalogue": digest_of([scenario.load_catalog().model_dump(mode="json") for scenario in scenarios.values()]),
        "scenarios": {
            name: digest_of(scenario.model_dump(mode="json", by_alias=True, exclude={"extends"}))
            for name, scenario in scenarios.items()
        },
        "files": {
            f"{name}: {Path(path).name}": hashlib.sha256(content).hexdigest()
            for name, scenario in scenarios.items()
            for path, content in sorted(scenario.document.files.items())
        },
    }


def differences(stored: Identity, wanted: Identity) -> list[str]:
    """Return in words what differs between two identities."""
    changed = [
        _TOLD_BY.get(key, f"the {key}")
        for key in wanted
        if key not in ("scenarios", "files") and stored.get(key) != wanted[key]
    ]
    before, now = _hashes(stored, "scenarios"), wanted["scenarios"]
    if list(before) != list(now):
        changed.append(f"the scenarios ({', '.join(before)} before)")
    changed += [f"scenario {name}" for name in now if name in before and before[name] != now[name]]
    before, now = _hashes(stored, "files"), wanted["files"]
    return changed + [f"the file {name}" for name in _union(before, now) if before.get(name) != now.get(name)]


def _hashes(stored: Identity, key: str) -> dict[str, Any]:
    """Return a part of an identity that was read from a file, which may have been written by anybody."""
    hashes = stored.get(key)
    return hashes if isinstance(hashes, dict) else {}


def _union(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for part in names for name in part))


def _plain(part: Any) -> Any:
    """Return a dataclass as plain data, with models by their content."""
    if dataclasses.is_dataclass(part):
        return {field.name: _plain(getattr(part, field.name)) for field in dataclasses.fields(part)}
    if hasattr(part, "model_dump"):
        return {"model": type(part).__name__, **part.model_dump(mode="json")}
    return list(map(_plain, part)) if isinstance(part, tuple) else part


def digest_of(content: Any) -> str:
    """Return one hash of plain data: of a part of an identity, or of all of it for every shard to carry."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
