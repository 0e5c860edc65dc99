"""The files of one run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import planner
from planner.catalog.load import VERSION
from planner.reporting.assumptions import assumptions
from planner.reporting.csv_text import csv_text
from planner.reporting.folder import json_text, write_folder
from planner.reporting.summary import summary
from planner.scenario.scenario import Scenario
from planner.simulation import tables
from planner.simulation.result import RunResult


def scenario_sha256(scenario: Scenario) -> str:
    """Return the hash of what the scenario says, defaults included, wherever it was written."""
    return _sha256(scenario, exclude={"extends"})


def _sha256(model: BaseModel, exclude: set[str] | None = None) -> str:
    content = model.model_dump(mode="json", by_alias=True, exclude=exclude)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def manifest(result: RunResult, overrides: Sequence[str]) -> dict[str, Any]:
    """Return what identifies a run: the same manifest means the same bytes."""
    return {
        "kind": "run",
        "version": planner.__version__,
        "scenario": result.scenario.name,
        "scenario_sha256": scenario_sha256(result.scenario),
        "overrides": list(overrides),
        "seed": result.seed,
        "replication": result.replication,
        "catalog": {
            "assumptions": result.scenario.catalog.assumptions,
            "version": VERSION,
            "sha256": _sha256(result.scenario.load_catalog()),
        },
    }


def write_run(result: RunResult, folder: Path, overrides: Sequence[str] = ()) -> None:
    """Write a run's folder, whole or not at all."""
    files = {
        "timeline_monthly.csv": csv_text(tables.timeline_monthly(result)),
        "ledger.csv": csv_text(tables.ledger(result)),
        "events.csv": csv_text(tables.events(result)),
        "assumptions.csv": csv_text(assumptions(result.scenario)),
        "summary.json": json_text(summary(result)),
    }
    write_folder(folder, files, manifest(result, overrides))
