"""What identifies an answer, and the command that makes it again: the same means the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from planner.answers.json_records import Json
from planner.catalog.load import VERSION
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, read_json
from planner.output.folder import command_line
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.version import __version__


def scenario_sha256(scenario: Scenario) -> str:
    """Return the hash of what the scenario says, defaults included, wherever it was written."""
    # What a scenario extends is laid into it: two ways to write it are one scenario.
    return _sha256(scenario, exclude={"extends"})


def _sha256(model: BaseModel, exclude: set[str] | None = None) -> str:
    content = model.model_dump(mode="json", by_alias=True, exclude=exclude)
    # Keys sorted, so that the order of a file is no part of its meaning.
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def scenario_file(scenario: Scenario) -> str:
    """Return the file that a scenario was read from, as it was named; nothing where it was given as a dict."""
    place = scenario.document.locate(())
    # A dict has a place too, but no line in it.
    if place is not None and place.line is not None:
        return place.file
    return ""


def command_again(
    verb: str, scenarios: Sequence[Scenario], options: Mapping[str, object]
) -> list[str]:
    """Return the command that writes the same bytes; none where there is none: no file, or overrides that differ."""
    files = [scenario_file(scenario) for scenario in scenarios]
    overrides = common_overrides(scenarios)
    # --set applies to all files of a command: overrides of one alone cannot be written.
    if not all(files) or overrides is None:
        return []
    processes = [process for scenario in scenarios for process in scenario.processes]
    # Code in a file runs only where the user says so, again each time.
    runs_code = any(process.file for process in processes)
    all_options = {**options, "--allow-code": runs_code}
    return command_line(verb, files, all_options, overrides)


def common_overrides(scenarios: Sequence[Scenario]) -> tuple[str, ...] | None:
    """Return the overrides laid over all scenarios alike; None where they differ."""
    # A set: as many members as there are different overrides.
    overrides, *different = {scenario.document.overrides for scenario in scenarios}
    return None if different else overrides


def planned_from(plan: Path) -> tuple[Path, list[str], int | None]:
    """Return the file, overrides and seed of a plan: a scenario or study itself, or what a run's folder was made of."""
    if not plan.is_dir():
        return plan, [], None
    manifest = read_json(plan / MANIFEST)
    if manifest.get("kind") != "run" or not manifest.get("scenario_file"):
        hint = "give a scenario, a study, or a folder that planner run wrote"
        problem = Problem(file=str(plan), message="is not the folder of a run", hint=hint)
        raise ScenarioError(problem)
    file = Path(str(manifest["scenario_file"]))
    overrides = [str(override) for override in manifest.get("overrides", ())]
    # Months that happened are compared with the plan that was run, not with a file edited since.
    present_sha256 = scenario_sha256(load_scenario(file, overrides))
    if present_sha256 != manifest.get("scenario_sha256"):
        message = f"{file} has changed since the run"
        hint = "run it again, or give the scenario itself"
        raise ScenarioError(Problem(file=str(plan), message=message, hint=hint))
    return file, overrides, int(manifest["seed"])


def run_identity(scenario: Scenario, seed: int, replication: int) -> Json:
    """Return what identifies one replication of a scenario."""
    files = sorted(scenario.document.files.items())
    # By name, without the folder: a run elsewhere reads the same files.
    hashes = {}
    for path, content in files:
        digest = hashlib.sha256(content)
        hashes[Path(path).name] = digest.hexdigest()
    identity: Json = {
        "kind": "run",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_file": scenario_file(scenario),
        "scenario_sha256": scenario_sha256(scenario),
        "overrides": list(scenario.document.overrides),
        "seed": seed,
        "replication": replication,
        "catalog": {
            "assumptions": scenario.catalog.assumptions,
            "version": VERSION,
            "sha256": _sha256(scenario.load_catalog()),
        },
    }
    # The key is there only where files were read.
    if hashes:
        return identity | {"files": hashes}
    return identity
