"""From a study file to a runnable study: scenarios, inputs, a design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.errors import Problem, ScenarioError, raise_all
from planner.plan.build import build_plan
from planner.plan.contradictions import all_warnings
from planner.records import record
from planner.scenario.scenario import Scenario
from planner.scenario.study import Study, load_study
from planner.studies.decision import Targeted
from planner.studies.designs import (
    MAX_DIMENSIONS,
    Design,
    MonteCarlo,
    OneAtATime,
    PointSet,
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


@record
class Prepared:
    """A study that has been read and checked."""

    study: Study
    scenarios: tuple[Stated, ...]
    inputs: UncertainInputs
    seed: int
    warnings: tuple[str, ...] = ()
    """What is implausible: in the scenarios as stated, and at the ends of what is drawn."""

    @property
    def objective(self) -> Output:
        """The output by which scenarios are ranked."""
        place = objective_names().index(self.study.objective)
        return HEADLINES[place]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scenarios."""
        return tuple(base.name for base in self.scenarios)

    def place_of(self, name: str | None) -> int:
        """Return the index of the scenario with a name, the first where none is given."""
        if name is None:
            return 0
        if name not in self.names:
            hint = nearest(name, self.names) or f"there are {choices(self.names)}"
            raise ScenarioError(f"the study has no scenario {name!r} ({hint})")
        return self.names.index(name)

    @property
    def targeted(self) -> tuple[Targeted, ...]:
        """Each scenario, and its SLO target."""
        targeted = []
        for base in self.scenarios:
            slo_target = base.scenario.slo_target
            target = Targeted(base.name, slo_target.attainment, slo_target.confidence)
            targeted.append(target)
        return tuple(targeted)

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
        if design.period == 1:
            return setup
        # Rows of a tornado that move money alone share a simulation.
        money = Replicator(setup).redrawn()
        return replace(setup, money=money)

    def montecarlo(self) -> MonteCarlo:
        """Return the design of a Monte Carlo study."""
        dimensions = len(self.inputs)
        # scipy would raise the same as a ValueError in the middle of a worker.
        if dimensions > MAX_DIMENSIONS:
            raise ScenarioError(
                f"{dimensions} dimensions of inputs; there are Sobol points for {MAX_DIMENSIONS}"
            )
        points = PointSet(dimensions=dimensions, scramblings=self.study.scramblings, seed=self.seed)
        return MonteCarlo(points=points)

    def tornado(self) -> OneAtATime:
        """Return the design that moves one input at a time."""
        if not len(self.inputs):
            message = "the study has no uncertain input to vary"
            raise ScenarioError(self.study.problem(("uncertain",), message))
        return OneAtATime(inputs=len(self.inputs))


def prepare(
    path: Path,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    *,
    plans_stated: bool = True,
) -> Prepared:
    """Read and check a study; ``overrides`` apply to every scenario, ``seed`` replaces the study's.

    ``plans_stated`` plans every scenario as it is stated, and warns of what is implausible; a replay of one replication
    plans what it runs.
    """
    study, scenarios = load_study(path, tuple(overrides))
    _check_objective(study, scenarios)
    bases = {}
    for name, scenario in scenarios.items():
        bases[name] = stated(name, scenario)
    warnings: list[str] = []
    problems: list[Problem] = []
    # A scenario that cannot be planned as stated would fail in all its runs.
    for name, base in bases.items() if plans_stated else ():
        try:
            plan = build_plan(base.scenario)
            remarks = all_warnings(base.scenario, plan)
            warnings += [f"{name}: {remark}" for remark in remarks]
        except ScenarioError as error:
            for problem in error.problems:
                message = f"{problem.message} (scenario {name})"
                problems.append(replace(problem, message=message))
    try:
        inputs = resolve_inputs(study, bases)
    except ScenarioError as error:
        # What is wrong with inputs and scenarios is said at once.
        raise ScenarioError([*error.problems, *problems]) from None
    raise_all(problems)
    # From here on workers have the files that were read, and no others.
    for base in bases.values():
        base.scenario.document.is_sealed = True
    end_warnings = far_ends(study, bases, inputs).values()
    return Prepared(
        study=study,
        scenarios=tuple(bases.values()),
        inputs=inputs,
        seed=study.seed if seed is None else seed,
        warnings=(*warnings, *end_warnings),
    )


def _check_objective(study: Study, scenarios: Mapping[str, Scenario]) -> None:
    """Raise an error for an objective that is no output, or that has no meaning in a scenario."""
    names = objective_names()
    objective = study.objective
    if objective not in names:
        hint = nearest(objective, names) or f"there are {choices(names)}"
        message = f"unknown output {objective!r}"
        raise ScenarioError(study.problem(("objective",), message, hint))
    key = needed_by(objective)
    if not key:
        return
    # Keys are of finance, or workloads.*.token_price, which any workload may state.
    stated_key = key.removeprefix("finance.")
    *workloads, field = stated_key.split(".")
    meaningless = []
    for name, scenario in scenarios.items():
        sections = scenario.workloads.values() if workloads else [scenario.finance]
        settings = [getattr(section, field) for section in sections]
        if all(setting is None for setting in settings):
            meaningless.append(name)
    if meaningless:
        message = f"{objective} has no meaning in {', '.join(meaningless)}: {key} is not stated"
        hint = f"state {key}, or choose another objective"
        problem = study.problem(("objective",), message, hint)
        raise ScenarioError(problem)
