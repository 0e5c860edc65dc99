"""Plans in named futures: what happens to each where growth, deliveries or prices turn out otherwise than stated.

A future is no plan: nobody decides it, so it is never ranked. All plans meet it under the same random numbers as they
meet what is stated.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from planner.errors import Problem, ScenarioError, raise_all
from planner.parallel import shared
from planner.plan.attainment import Verdict
from planner.records import record
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, simulate
from planner.scenario.fields import EntryName
from planner.scenario.loading import plan_in_future
from planner.scenario.scenario import Future, Scenario
from planner.studies.remedy import NoRemedy, Remedy, find_remedy
from planner.validation import Strict, choices, nearest, validate
from planner.yaml_io import Document, read_document

AS_STATED = "as stated"
"""The future that every plan is written for."""
Futures = Mapping[str, Future]
Plans = Mapping[str, Sequence[Scenario | None]]
"""Plans in each future; None where nothing of one is otherwise than stated."""


class _FuturesFile(Strict):
    """What is read of a file that names futures: a scenario, or a file of nothing else."""

    futures: Annotated[dict[EntryName, Future], Field(min_length=1, max_length=32)]
    """Futures by name."""


@record
class InFuture:
    """One plan in one future."""

    scenario: str
    """The plan, by its name."""
    future: str
    weight: float | None
    result: RunResult
    replications: Replications
    remedy: Remedy | NoRemedy | None = None
    """Nodes that would meet the SLO target there, or why none are named; None where it is not MISSED."""

    @property
    def verdict(self) -> Verdict:
        """Whether the plan meets its SLO target in the future, by its replications there."""
        met_replications = 0
        for figures in self.replications.figures:
            met_replications += figures["slo_shortfall_fraction"] == 0.0
        return Verdict.of(self.result.scenario, met_replications, self.replications.number)


def load_futures(file: Path) -> Futures:
    """Return the futures that a file names."""
    document = read_document(file)
    if isinstance(document.content, dict):
        # A scenario's other sections are no part of what is read here.
        sections = document.content.items()
        stated = {key: part for key, part in sections if key == "futures"}
        document = Document(stated, document.locations)
    return validate(_FuturesFile, document).futures


def stated_futures(scenarios: Sequence[Scenario]) -> Futures:
    """Return the futures that plans name, each of which has one meaning."""
    stated: dict[str, Future] = {}
    for scenario in scenarios:
        for name, future in scenario.futures.items():
            # The table has one column for a future: two meanings would mix in it.
            if stated.setdefault(name, future) != future:
                message = "names different futures in two of these plans"
                hint = "rename one of them"
                problem = scenario.document.problem(("futures", name), message, hint)
                raise ScenarioError(problem)
    return stated


def plans_under(scenarios: Sequence[Scenario], futures: Futures) -> Plans:
    """Return each plan in each future; None where nothing of it is otherwise than stated. Raise all problems."""
    problems = []
    plans = dict[str, list[Scenario | None]]()
    for name, future in futures.items():
        plans[name] = []
        reached: set[str] = set()
        for scenario in scenarios:
            try:
                changed, paths = plan_in_future(scenario, future)
            except ScenarioError as error:
                lead = f"in the future {name!r} of {scenario.name}"
                for problem in error.problems:
                    message = f"{lead}: {problem.message}"
                    in_future = Problem(path=problem.path, message=message, hint=problem.hint)
                    problems.append(in_future)
                continue
            reached.update(paths)
            plans[name].append(changed)
        # A plan that could not be changed may be the one that a path reaches.
        if not problems:
            message = f"the future {name!r} changes nothing in any of the plans"
            unreached = [path for path in future.set if path not in reached]
            problems += [
                Problem(path=path, message=message, hint=_nearest_entry(path, scenarios))
                for path in unreached
            ]
    raise_all(problems)
    return plans


def _nearest_entry(path: str, scenarios: Sequence[Scenario]) -> str | None:
    """Return a hint to the clusters or workloads that a path may have meant; None of any other path."""
    section, _, rest = path.partition(".")
    if section not in ("clusters", "workloads"):
        return None
    names = {name for scenario in scenarios for name in getattr(scenario, section)}
    return nearest(rest.partition(".")[0], names) or f"{section} are {choices(names)}"


def in_futures(
    stated: Sequence[tuple[RunResult, Replications]],
    futures: Futures,
    plans: Plans,
    progress: Callable[[str], object] = lambda _: None,
) -> tuple[InFuture, ...]:
    """Run plans in every future, as often as each was drawn as stated; with nodes that would meet a missed target.

    ``plans`` are those in the futures, as :func:`plans_under` has them.
    """
    cells = []
    # The future as stated comes first, and needs no new run.
    all_plans = {AS_STATED: [None] * len(stated), **plans}
    for name, scenarios in all_plans.items():
        weight = futures[name].weight if name in futures else None
        for (result, replications), scenario in zip(stated, scenarios, strict=True):
            plan_name = result.scenario.name
            if scenario is not None:
                progress(f"{plan_name}, {name}")
                result = simulate(scenario, result.seed)  # noqa: PLW2901 - in the future
                replications = draw_again(result, replications.number)  # noqa: PLW2901 - as above
            cell = InFuture(
                scenario=plan_name,
                future=name,
                weight=weight,
                result=result,
                replications=replications,
            )
            cells.append(cell)
    missed = [place for place, cell in enumerate(cells) if cell.verdict.status == "MISSED"]
    if missed:
        progress("more nodes where the SLO target is missed")
    # Each search is a second or two of runs: long enough to be shared out.
    searches = [functools.partial(_remedy_in, cells[place]) for place in missed]
    remedies = shared(searches)
    for place, remedy in zip(missed, remedies, strict=True):
        cells[place] = dataclasses.replace(cells[place], remedy=remedy)
    return tuple(cells)


def _remedy_in(cell: InFuture) -> Remedy | NoRemedy:
    """Return the nodes that would meet the SLO target of a plan in a future, or why none are named."""
    figures = cell.replications.figures
    shortfalls = [figure["slo_shortfall_fraction"] or 0.0 for figure in figures]
    # The hardest replications first: a number of nodes that fails there need not be run elsewhere.
    largest_first = -np.array(shortfalls)
    hardest = np.argsort(largest_first, kind="stable")
    return find_remedy(cell.result, cell.replications.number, lambda _: None, hardest.tolist())
