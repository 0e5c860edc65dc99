"""Reading a study and the scenarios it names."""

from __future__ import annotations

from pathlib import Path

from planner.documents import Document, KeyPath, Location, read_document
from planner.errors import Problem, ScenarioError
from planner.language.loading import document_of, merge, scenario_from_document
from planner.language.scenario import Scenario
from planner.language.study import Study
from planner.validation import validate


def load_study(path: Path, overrides: tuple[str, ...] = ()) -> tuple[Study, dict[str, Scenario]]:
    """Read a study and its scenarios; ``overrides`` are laid over every scenario as ``--set`` lays them over one."""
    document = read_document(path)
    if isinstance(document.content, dict) and document.content.keys() & {"workloads", "clusters"}:
        hint = f"planner run {path} runs it; a study names scenarios and what is uncertain about them"
        raise ScenarioError(document.problem((), "is a scenario, not a study", hint))
    _mark_priors(document)
    study = validate(Study, document)
    study._document = document
    scenarios: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for name, entry in study.scenarios.items():
        try:
            scenarios[name] = _scenario(study, name, path.parent / entry.extends, overrides)
        except ScenarioError as error:
            problems += [found for found in error.problems if found not in problems]
    if problems:
        raise ScenarioError(problems)
    _check_horizons(study, scenarios)
    return study, scenarios


def _mark_priors(document: Document) -> None:
    """Let ``{prior: name}`` stand for ``{kind: prior, prior: name}``."""
    uncertain = document.content.get("uncertain") if isinstance(document.content, dict) else None
    if isinstance(uncertain, dict):
        for entry in uncertain.values():
            if isinstance(entry, dict) and "prior" in entry:
                entry.setdefault("kind", "prior")


def _scenario(study: Study, name: str, path: Path, overrides: tuple[str, ...]) -> Scenario:
    """Return one scenario of a study: its file, what the study sets, what the command line sets."""
    if not path.is_file():
        message = f"no such file: {path}"
        raise ScenarioError(study.problem(("scenarios", name, "extends"), message))
    base = document_of(path)
    within: KeyPath = ("scenarios", name, "set")
    locations: dict[KeyPath, Location] = {
        key[len(within) :]: place
        for key, place in study.document.locations.items()
        if key[: len(within)] == within and len(key) > len(within)
    }
    changes = (study.document.content["scenarios"][name].get("set")) or {}
    merge(base, Document({**changes, "name": name}, locations))
    return scenario_from_document(base, overrides)


def _check_horizons(study: Study, scenarios: dict[str, Scenario]) -> None:
    """Refuse scenarios whose months do not line up."""
    (first_name, first), *others = scenarios.items()
    problems = [
        study.problem(
            ("scenarios", name),
            f"runs {other.horizon_months} months from {other.start}, but {first_name} runs {first.horizon_months} from "
            f"{first.start}; scenarios of one study share their months",
        )
        for name, other in others
        if (other.start, other.horizon_months) != (first.start, first.horizon_months)
    ]
    if problems:
        raise ScenarioError(problems)
