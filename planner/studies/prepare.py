"""From a study file to a runnable study: scenarios, inputs, a design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.errors import Problem, ScenarioError, raise_all
from planner.plan.build import build_plan
from planner.plan.contradictions import hardly_meant
from planner.scenario.study import Study, load_study
from planner.studies.decision import Targeted
from planner.studies.designs import (
    MAX_DIMENSIONS,
    Design,
    MonteCarlo,
    OneAtATime,
    PointSet,
    Saltelli,
)
from planner.studies.inputs import Stated, UncertainInputs, far_ends, resolve_inputs, stated
from planner.studies.replicate import (
    HEADLINES,
    Output,
    Replicator,
    Setup,
    needed_by,
    objective_names,
)
from planner.validation import choices, nearest
from planner.version import code_sha256

_DESIGNED = {"tornado": "", "sobol": "Sobol's indices"}
"""Methods with a design of their own, each with its name in a sentence where it asks for independent inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A study that has been read and checked."""

    study: Study
    scenarios: tuple[Stated, ...]
    inputs: UncertainInputs
    seed: int
    warnings: tuple[str, ...] = ()
    """What is hardly meant: in the scenarios as stated, and at the ends of what is drawn."""

    @property
    def objective(self) -> Output:
        """The output by which scenarios are ranked."""
        return HEADLINES[objective_names().index(self.study.objective)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scenarios."""
        return tuple(base.name for base in self.scenarios)

    def place_of(self, name: str | None) -> int:
        """Return the index of the scenario with a name, the first where none is given."""
        if name is not None and name not in self.names:
            hint = nearest(name, self.names) or f"there are {choices(self.names)}"
            raise ScenarioError(f"the study has no scenario {name!r} ({hint})")
        return 0 if name is None else self.names.index(name)

    @property
    def targeted(self) -> tuple[Targeted, ...]:
        """Each scenario, and what it is held to."""
        targets = ((base.name, base.scenario.slo_target) for base in self.scenarios)
        return tuple(
            Targeted(name, target.attainment, target.confidence) for name, target in targets
        )

    def setup(self, design: Design) -> Setup:
        """Return the setup that is sent to workers."""
        setup = Setup(
            seed=self.seed,
            scenarios=self.scenarios,
            inputs=self.inputs,
            design=design,
            detailed_rows=self.study.detailed_replications,
            code=code_sha256(),
        )
        return replace(setup, money=Replicator(setup).redrawn()) if design.period > 1 else setup

    def montecarlo(self) -> MonteCarlo:
        """Return the design of a Monte Carlo study."""
        return MonteCarlo(points=self._points(len(self.inputs)))

    def design(self, method: str) -> MonteCarlo | OneAtATime | Saltelli:
        """Return the design of a method."""
        if method not in _DESIGNED:
            return self.montecarlo()
        count = len(self.inputs)
        if self.inputs.mixing is not None and _DESIGNED[method]:
            words = "are defined for independent inputs; planner montecarlo says what drives correlated ones"
            raise ScenarioError(
                self.study.problem(("correlations",), f"{_DESIGNED[method]} {words}")
            )
        if not count:
            message = f"nothing is uncertain, so there is nothing for {method} to vary"
            raise ScenarioError(self.study.problem(("uncertain",), message))
        if method == "tornado":
            return OneAtATime(inputs=count)
        return Saltelli(points=self._points(2 * count))

    def _points(self, dimensions: int) -> PointSet:
        if dimensions > MAX_DIMENSIONS:
            raise ScenarioError(
                f"{dimensions} dimensions of inputs; there are Sobol points for {MAX_DIMENSIONS}"
            )
        return PointSet(
            sampling=self.study.sampling,
            dimensions=dimensions,
            scramblings=self.study.scramblings,
            seed=self.seed,
        )


def prepare(path: Path, overrides: Sequence[str] = (), seed: int | None = None) -> Prepared:
    """Read and check a study; ``overrides`` apply to every scenario, ``seed`` replaces the study's."""
    study, scenarios = load_study(path, tuple(overrides))
    if study.objective not in objective_names():
        hint = (
            nearest(study.objective, objective_names()) or f"there are {choices(objective_names())}"
        )
        raise ScenarioError(
            study.problem(("objective",), f"unknown output {study.objective!r}", hint)
        )
    if key := needed_by(study.objective):
        *loads, field = key.removeprefix("finance.").split(".")
        places = {
            name: one.workloads.values() if loads else [one.finance]
            for name, one in scenarios.items()
        }
        without = [
            name
            for name, parts in places.items()
            if all(getattr(part, field) is None for part in parts)
        ]
        if without:
            message = (
                f"{study.objective} has no meaning in {', '.join(without)}: {key} is not stated"
            )
            raise ScenarioError(
                study.problem(("objective",), message, f"state {key}, or another headline")
            )
    bases = {name: stated(name, scenario) for name, scenario in scenarios.items()}
    warnings: list[str] = []
    problems: list[Problem] = []
    for (
        name,
        base,
    ) in bases.items():  # one that cannot be planned as stated would fail in all its runs
        try:
            warnings += [
                f"{name}: {said}" for said in hardly_meant(base.scenario, build_plan(base.scenario))
            ]
        except ScenarioError as error:
            problems += [
                replace(problem, message=f"{problem.message} (scenario {name})")
                for problem in error.problems
            ]
    try:
        inputs = resolve_inputs(study, bases)
    except ScenarioError as error:
        raise ScenarioError([*error.problems, *problems]) from None
    raise_all(problems)
    for base in bases.values():
        base.scenario.document.is_sealed = True
    return Prepared(
        study=study,
        scenarios=tuple(bases.values()),
        inputs=inputs,
        seed=study.seed if seed is None else seed,
        warnings=(*warnings, *far_ends(study, bases, inputs).values()),
    )
