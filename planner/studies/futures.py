"""Plans in named futures: what happens to each where growth, deliveries or prices turn out otherwise than stated.

A future is no plan: nobody decides it, so it is never ranked. All plans meet it under the same random numbers as they
meet what is stated.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from planner.errors import Problem, ScenarioError, raise_all
from planner.parallel import shared
from planner.plan.attainment import Verdict
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, simulate
from planner.scenario.fields import EntryName
from planner.scenario.loading import under
from planner.scenario.scenario import Future, Scenario
from planner.studies.remedy import Remedy, find_remedy
from planner.validation import Strict, validate
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InFuture:
    """One plan in one future."""

    scenario: str
    """The plan, by its name."""
    future: str
    weight: float | None
    result: RunResult
    chance: Replications
    remedy: Remedy | None = None
    """Nodes that would meet the SLO target there; None where it is met, or more of no cluster would."""

    @property
    def verdict(self) -> Verdict:
        """Whether the plan meets its SLO target in the future, by its replications there."""
        met = sum(figures["slo_shortfall_fraction"] == 0.0 for figures in self.chance.figures)
        return Verdict.of(self.result.scenario, met, self.chance.number)


def load_futures(file: Path) -> Futures:
    """Return the futures that a file names."""
    document = read_document(file)
    if isinstance(document.content, dict):
        stated = (
            {"futures": document.content.get("futures")} if "futures" in document.content else {}
        )
        document = Document(stated, document.locations)
    return validate(_FuturesFile, document).futures


def stated_futures(scenarios: Sequence[Scenario]) -> Futures:
    """Return the futures that plans name, each of which has one meaning."""
    stated: dict[str, Future] = {}
    for scenario in scenarios:
        for name, future in scenario.futures.items():
            if stated.setdefault(name, future) != future:
                message = "is another future in another of these plans"
                raise ScenarioError(
                    scenario.document.problem(("futures", name), message, "give it another name")
                )
    return stated


def plans_under(scenarios: Sequence[Scenario], futures: Futures) -> Plans:
    """Return each plan in each future; None where nothing of it is otherwise than stated. Raise all problems."""
    problems = []
    made = dict[str, list[Scenario | None]]()
    for name, future in futures.items():
        made[name] = []
        reached: set[str] = set()
        for scenario in scenarios:
            try:
                changed, paths = under(scenario, future)
            except ScenarioError as error:
                lead = f"in the future {name!r} of {scenario.name}"
                problems += [
                    Problem(path=p.path, message=f"{lead}: {p.message}", hint=p.hint)
                    for p in error.problems
                ]
                continue
            reached.update(paths)
            made[name].append(changed)
        nowhere = f"the future {name!r} reaches nothing in any of the plans"
        if not problems:
            problems += [
                Problem(path=path, message=nowhere) for path in future.set if path not in reached
            ]
    raise_all(problems)
    return made


def in_futures(
    stated: Sequence[tuple[RunResult, Replications]],
    futures: Futures,
    made: Plans,
    progress: Callable[[str], object] = lambda _: None,
) -> tuple[InFuture, ...]:
    """Run plans in every future, as often as each was drawn as stated; with nodes that would meet a missed target.

    ``made`` are the plans in the futures, as :func:`plans_under` has them.
    """
    cells = []
    for name, scenarios in {AS_STATED: [None] * len(stated), **made}.items():
        weight = futures[name].weight if name in futures else None
        for (base, drawn), scenario in zip(stated, scenarios, strict=True):
            result = base
            chance = drawn
            if scenario is not None:
                progress(f"{base.scenario.name}, {name}")
                result = simulate(scenario, base.seed)
                chance = draw_again(result, drawn.number)
            cells.append(
                InFuture(
                    scenario=base.scenario.name,
                    future=name,
                    weight=weight,
                    result=result,
                    chance=chance,
                )
            )
    missed = [place for place, cell in enumerate(cells) if cell.verdict.status == "MISSED"]
    if missed:
        progress("more nodes where the SLO target is missed")
    remedies = shared([functools.partial(_remedied, cells[place]) for place in missed])
    for place, remedy in zip(missed, remedies, strict=True):
        cells[place] = dataclasses.replace(cells[place], remedy=remedy)
    return tuple(cells)


def _remedied(cell: InFuture) -> Remedy | None:
    """Return the nodes that would meet the SLO target of a plan in a future."""
    hardest = np.argsort(
        [-(figures["slo_shortfall_fraction"] or 0.0) for figures in cell.chance.figures],
        kind="stable",
    )
    return find_remedy(cell.result, cell.chance.number, lambda _: None, hardest.tolist())
