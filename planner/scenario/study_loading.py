"""Reading a study and the scenarios it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError, raise_all
from planner.scenario.loading import document_of, merge, scenario_from_document
from planner.scenario.scenario import Scenario
from planner.scenario.study import Study
from planner.validation import validate
from planner.yaml_io import Document, KeyPath, Location, read_document


def load_study(path: Path, overrides: tuple[str, ...] = ()) -> tuple[Study, dict[str, Scenario]]:
    """Read a study and its scenarios; ``overrides`` are laid over every scenario as ``--set`` lays them over one."""
    document = read_document(path)
    notes: tuple[str, ...] = ()
    written = document.content.keys() if isinstance(document.content, dict) else set()
    if "scenarios" not in written and written & {"workloads", "clusters", "extends"}:
        document, notes = _study_of_priors(path, overrides)
    _mark_priors(document)
    study = validate(Study, document)
    study._document, study._notes = document, notes
    scenarios: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for name, entry in study.scenarios.items():
        try:
            scenarios[name] = _scenario(study, name, path.parent / entry.extends, overrides)
        except ScenarioError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    raise_all(problems)
    _check_horizons(study, scenarios)
    return study, scenarios


def _study_of_priors(path: Path, overrides: tuple[str, ...]) -> tuple[Document, tuple[str, ...]]:
    """Return the study of a scenario for which nobody wrote one, and what it draws in words: priors for all it uses.

    What a scenario states is known, what it leaves to a default is drawn from the default's prior, and what is never
    known (traffic, failures, incidents, resale) is drawn as a factor on whatever is stated. What is zero is not used.
    """
    scenario = scenario_from_document(document_of(path), overrides)
    catalog = scenario.load_catalog()
    filled, stated = scenario.model_dump(by_alias=True), scenario.document.content
    uncertain: dict[str, Any] = {}
    notes = ["what the scenario states is taken as known; what it leaves open is drawn from the catalogue's priors"]
    for name, prior in catalog.priors.items():
        clusters = [
            cluster
            for cluster, entry in scenario.clusters.items()
            if prior.accelerator in (None, entry.accelerator)
            and prior.vendor in (None, catalog.accelerator(entry.accelerator).vendor.value)
        ]
        in_place = None if prior.unless is None else _at(prior.unless.split("."), stated)
        if prior.drawn_for is None or not clusters or in_place is not None:
            continue
        first, *rest = prior.drawn_for.split(".*.")
        names = clusters if first == "clusters" else list(scenario.workloads) if rest else [""]
        drawn = [
            name
            for name in names
            if _left_open(prior.drawn_for.replace("*", name).split("."), filled, {} if prior.times_stated else stated)
        ]
        if drawn:
            names_of = drawn[0] if len(drawn) == 1 else f"{{{','.join(drawn)}}}"
            key = prior.drawn_for.replace("*", names_of)
            uncertain[key] = {"prior": name, "times_stated": prior.times_stated}
            scale, factor = (prior.base, " times what is stated") if prior.times_stated else (1.0, "")
            figures = " to ".join(f"{float(f'{figure / scale:.3g}'):g}" for figure in (prior.low, prior.high))
            notes.append(f"{key} is drawn: {figures}{factor} (P10 to P90; {name}, grade {prior.grade})")
    content = {
        "name": f"{scenario.name}-priors",
        "description": f"How sure is {scenario.name}? Drawn from the catalogue's priors.",
        "scenarios": {scenario.name.replace(".", "-"): {"extends": path.name}},
        "uncertain": uncertain,
    }
    return Document(content, {(): Location(str(path), None)}), tuple(notes)


def _at(path: Sequence[str], content: Any, absent: object = None) -> Any:
    """Return what stands at a path, or what stands for nothing."""
    for key in path:
        content = content.get(key, absent) if isinstance(content, dict) else absent
    return content


def _left_open(path: Sequence[str], content: Any, stated: Any) -> bool:
    """Return whether a scenario has a field, has a use for it (it is not zero), and does not itself state it."""
    return _at(path, content, absent=0) != 0 and _at(path, stated) is None


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
    raise_all(problems)
