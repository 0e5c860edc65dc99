"""A sizing from its scenario to its result: survey, search, finalists on fresh replications, explanation."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner.errors import CapacityError
from planner.plan.attainment import past_mending
from planner.records import record
from planner.run.simulate import RunResult
from planner.scenario.scenario import Scenario
from planner.scenario.study import load_study
from planner.sizing.choices import Choices, Counts, choices_of
from planner.sizing.evaluate import (
    DRAWS,
    Archive,
    Clock,
    Evaluator,
    Judged,
    Objective,
    SizeWork,
    TimeUp,
    Trial,
    Workers,
    drawn_by,
    judged,
)
from planner.sizing.explain import Explanation, explain, nothing, nothing_mends
from planner.sizing.search import MOST_RUNS, ROUNDS, Search
from planner.sizing.surrogate import Surrogate
from planner.sizing.survey import survey
from planner.studies.decision import IntervalEstimate, half_width
from planner.studies.designs import MonteCarlo, PointSet
from planner.studies.futures import Plans, plans_under
from planner.studies.inputs import UncertainInputs, resolve_inputs, stated


def trial_of(
    scenario: Scenario,
    parts: Sequence[str],
    study: Path | None,
    objective: Objective,
    seed: int | None,
) -> Trial:
    """Return the trial of a sizing: its choices, and a study's uncertain inputs."""
    choices = choices_of(scenario, parts)
    inputs = UncertainInputs(entries=(), mixing=None)
    design = None
    used = scenario.seed if seed is None else seed
    if study is not None:
        written, scenarios = load_study(study)
        # The scenario with all its parts comes first, so that what is drawn does not depend on those that are allowed.
        bases = {"": (choices_of(scenario) if parts else choices).base}  # no scenario is called so
        bases |= {name: stated(name, scenario) for name, scenario in scenarios.items()}
        inputs = resolve_inputs(written, bases)
        used = written.seed if seed is None else seed
        points = PointSet(
            dimensions=len(inputs),
            scramblings=written.scramblings,
            seed=used,
        )
        design = MonteCarlo(points=points)
    return Trial(
        choices=choices,
        objective=objective,
        inputs=inputs,
        design=design,
        values=drawn_by(inputs, design, 0, DRAWS),
        seed=used,
        attainment=scenario.slo_target.attainment,
        confidence=scenario.slo_target.confidence,
    )


_LEAVING = 4  # replications in which the cost of a retirement is measured


def surveyed(trial: Trial, workers: Workers, replications: int) -> Surrogate:
    """Survey the replications, and the first few with every retirement on each of its days."""
    choices = trial.choices
    reference = choices.reference()
    surveys = workers.all(survey, [(reference, replication) for replication in range(replications)])
    few = range(min(_LEAVING, replications))
    leaving = []
    for at, retirement in zip(
        range(choices.days.start, choices.days.stop), choices.retirements, strict=True
    ):
        days = [
            (*reference[:at], day, *reference[at + 1 :])
            for day in range(1, 1 + len(retirement.dates))
        ]
        made = workers.all(survey, [(day, replication) for day in days for replication in few])
        leaving.append([made[first : first + len(few)] for first in range(0, len(made), len(few))])
    return Surrogate(trial, surveys, leaving)


class Effort(NamedTuple):
    """Numbers of replications of a sizing, and who works on it."""

    replications: int = 64
    """Replications that are surveyed."""
    confirmations: int = 200
    """Fresh replications on which an answer is confirmed, at a time."""
    blocks: int = 3
    """Most times that fresh replications are added, as long as the interval on cost is wide."""
    rivals: bool = True
    """Whether rivals and limits are worked out after the answer."""
    workers: int = 1
    scheduler: str | None = None
    """Of a Dask cluster that does the work."""


class Way(NamedTuple):
    """A way to decide, and its best policy over the fresh replications."""

    name: str
    outcome: Judged | None
    """None where nothing of the kind meets the SLO target."""
    saved: IntervalEstimate | None
    """What the answer saves against it, replication by replication; None for the answer itself."""


class WayInFuture(NamedTuple):
    """A way to decide in a named future, over the first of the fresh replications."""

    way: str
    future: str
    weight: float | None
    outcome: Judged


class Rival(NamedTuple):
    """The best policy of one accelerator alone, by the surrogate, calibrated on runs of its like."""

    name: str
    counts: Counts | None
    """None where no plan of the kind meets the SLO target."""
    cost: float
    probability: float


@record
class Sized:
    """The result of a sizing."""

    scenario: Scenario
    """As stated."""
    trial: Trial
    plan: Judged
    """The answer over the fresh replications."""
    probability: IntervalEstimate
    """That the answer meets the SLO target: expected over many draws, and what fresh replications show beyond that."""
    cost_range: tuple[float, float]
    """What plans cost whose probability is at either end of that interval."""
    unfixable: float
    """Share of replications that miss the SLO target whatever is bought."""
    causes: Mapping[str, int]
    """Of the fresh replications, those that do, by cause."""
    ways: tuple[Way, ...]
    explanation: Explanation
    rivals: tuple[Rival, ...]
    futures: tuple[WayInFuture, ...]
    """Each way in each future that the scenario names."""
    runs: int
    stopped: str
    """Why the search ended before its end; empty where it did not."""

    @property
    def choices(self) -> Choices:
        """What may be bought, ordered, rented and retired."""
        return self.trial.choices

    def as_stated(self) -> RunResult:
        """Return one run of the result with all inputs as stated, as ``planner run policy.yaml`` gives."""
        none = UncertainInputs(entries=(), mixing=None)
        stated = dataclasses.replace(
            self.trial, inputs=none, design=None, values=np.zeros((1, 0)), seed=self.scenario.seed
        )
        return Evaluator(stated).simulate(self.plan.counts, 0)


FIXED = "fixed on the first day"
REACTIVE = "ordered on a signal"
RENTED = "with overflow rent"
_TOO_LOW = 0.01  # probability below and above what is asked at which an answer is searched anew
_TOO_HIGH = 0.025
_IN_FUTURE = 64  # fresh replications in which policies are run in each named future
_NARROW = 0.04  # of the cost: half its interval at which no more replications are run


def size(
    scenario: Scenario, trial: Trial, effort: Effort, clock: Clock, work: SizeWork | None = None,
    write: Callable[[Sized], None] = lambda _: None,
) -> Sized:  # fmt: skip
    """Return the cheapest policy that meets the SLO target, confirmed; raise CapacityError where there is none.

    ``write`` is given the answer as soon as it is confirmed, and again with its rivals. ``work`` keeps runs as they
    come: with those of a sizing that was stopped, the search is soon where it was.
    """
    futures = plans_under([scenario], scenario.futures)  # refused before anything is searched
    with contextlib.closing(Workers(trial, effort.workers, effort.scheduler)) as workers:
        clock.say(f"surveying {effort.replications} replications")
        made = surveyed(trial, workers, effort.replications)
        most = (
            ROUNDS
            * MOST_RUNS
            * (1 + bool(trial.choices.reactive) + bool(trial.choices.most_instances))
        )
        clock.say(
            f"searching{workers.about(most + effort.confirmations)} to a confirmed policy at most"
        )
        search = Search(made, Archive(workers, work), clock)
        # Where misses have a price no confidence is held, once a policy that holds it is known.
        is_free = trial.choices.choose.miss_cost_usd is not None
        if search.surrogate.fixable.mean() < trial.confidence and not is_free:
            raise CapacityError(nothing_mends(search))
        every = search.every
        stopped = ""
        ways: dict[str, Counts | None] = {}
        try:
            best = ways[FIXED] = search.solve(every)
            if is_free and best is not None:
                search.confidence = 0.0
                best = ways[FIXED] = search.solve(every, best)
            if trial.choices.reactive:
                best = ways[REACTIVE] = search.solve(every, best, reacts=True)
            if trial.choices.most_instances:
                best = ways[RENTED] = search.solve(
                    every, best, reacts=bool(trial.choices.reactive), rents=True
                )
        except (TimeUp, KeyboardInterrupt) as reason:
            stopped = _why(reason)
            best = search.best
            effort = effort._replace(blocks=1)
            clock.minutes = math.inf
        if best is None:
            late = f"no plan that meets the SLO target was found before {stopped}"
            raise CapacityError(late if stopped else nothing(search))
        last = [*ways][-1] if ways else FIXED
        sized: Sized | None = None

        def say_so(counts: Counts, fresh: range) -> None:
            nonlocal sized
            sized = _sized(scenario, search, fresh, {last: counts}, stopped)
            write(sized)

        try:
            best, fresh = confirmed(search, best, effort, say_so)
            sized = _sized(scenario, search, fresh, {**ways, last: best}, stopped)
            if effort.rivals and not stopped and not clock.is_over:
                sized = dataclasses.replace(sized, explanation=explain(search, best))
                sized = dataclasses.replace(sized, rivals=_rivals(search, best), runs=workers.runs)
                sized = dataclasses.replace(
                    sized, futures=_futures(sized, futures, effort, fresh, clock)
                )
        except (TimeUp, KeyboardInterrupt) as reason:
            if sized is None:
                raise
            sized = dataclasses.replace(sized, stopped=_why(reason))
        return sized


def _why(reason: BaseException) -> str:
    """Return why a search ended before its end."""
    return "the time was over" if isinstance(reason, TimeUp) else "it was interrupted"


def confirmed(
    search: Search, best: Counts, effort: Effort, say_so: Callable[[Counts, range], None]
) -> tuple[Counts, range]:
    """Return the policy and the fresh replications that it is held to, searched on with what they show.

    Each block of them narrows what is known of the surrogate's error. It ends where the interval on cost is narrow.
    """
    first = effort.replications
    every = search.every
    held_to: dict[Counts, range] = {}
    for block in range(effort.blocks):
        fresh = held_to[best] = range(first, first + effort.confirmations)
        search.clock.say(
            f"confirming on {len(fresh)} fresh replications{search.archive.workers.about(len(fresh))}"
        )
        search.outcomes(best, fresh)
        search.fresh += fresh
        search.calibrate(best)
        say_so(best, fresh)
        cost, probability = search.value(best)
        low, high = cost_range(search, best)
        is_narrow = high - low <= 2.0 * _NARROW * abs(cost)
        off = probability - search.confidence if search.confidence else 0.0
        search.clock.say(
            f"P(SLO met) about {probability:.1%}, cost {low / 1e6:,.1f} to {high / 1e6:,.1f} M"
        )
        if (
            block == effort.blocks - 1
            or (is_narrow and -_TOO_LOW <= off <= _TOO_HIGH)
            or search.clock.is_over
        ):
            break
        reacts = any(best[search.choices.loads])
        rents = any(best[search.choices.rent])
        best = search.solve(every, best, reacts=reacts, rents=rents, rounds=1) or best
        first = fresh.stop
    enough = [made for made in held_to if search.value(made)[1] >= search.confidence - _TOO_LOW]
    best = min(
        enough,
        key=lambda made: search.value(made)[0],
        default=max(held_to, key=lambda made: search.value(made)[1]),
    )
    return best, held_to[best]


def cost_range(search: Search, counts: Counts) -> tuple[float, float]:
    """Return what policies like one cost whose probabilities are off by the error of the surrogate's."""
    if not search.confidence:
        seen = [
            outcome.cost for (made, _), outcome in search.archive.known.items() if made == counts
        ]
        error = half_width(np.array(seen))
        cost = search.value(counts)[0]
        return cost - error, cost + error
    error = search.surrogate.bias.half_width
    ends = (search.near(counts, search.confidence + side * error) for side in (-1.0, 1.0))
    costs = [search.value(counts)[0], *(search.value(made)[0] for made in ends if made is not None)]
    return min(costs), max(costs)


def _sized(
    scenario: Scenario,
    search: Search,
    fresh: range,
    ways: Mapping[str, Counts | None],
    stopped: str,
) -> Sized:
    """Return the result as far as it is known: the last of the ways is the answer."""
    trial = search.trial
    best = [*ways.values()][-1]
    assert best is not None
    plan = judged(trial, best, search.outcomes(best, fresh))
    made = []
    for name, counts in ways.items():
        outcome = None if counts is None else judged(trial, counts, search.outcomes(counts, fresh))
        saved = None
        if outcome is not None and counts != best:
            less = outcome.costs - plan.costs
            saved = IntervalEstimate(
                value=float(less.mean()), half_width=half_width(less), completed=less.size
            )
        made.append(Way(name, outcome, saved))
    low, high = cost_range(search, best)
    cost, probability = search.value(best)
    return Sized(
        scenario=scenario,
        trial=trial,
        plan=plan,
        probability=dataclasses.replace(search.surrogate.bias, value=probability),
        cost_range=(low - cost + plan.cost, high - cost + plan.cost),
        unfixable=search.surrogate.unfixable,
        causes=past_mending(plan.ceilings.T, trial.attainment),
        ways=tuple(made),
        explanation=Explanation(),
        rivals=(),
        futures=(),
        runs=search.archive.workers.runs,
        stopped=stopped,
    )


def _futures(
    sized: Sized, plans: Plans, effort: Effort, fresh: range, clock: Clock
) -> tuple[WayInFuture, ...]:
    """Return each way in each future: the same policy, the same fresh replications, what is stated otherwise."""
    made: list[WayInFuture] = []
    scenario, choices, parts = sized.scenario, sized.choices, sized.choices.accelerators
    ways = [way for way in sized.ways if way.outcome is not None]
    for name, (otherwise,) in plans.items():
        clock.say(f"running the policies in the future {name}")
        other = choices_of(otherwise or scenario, parts)
        policies = [
            other.alike(choices, way.outcome.counts) for way in ways if way.outcome is not None
        ]
        trial = dataclasses.replace(sized.trial, choices=other)
        with contextlib.closing(Workers(trial, effort.workers, effort.scheduler)) as workers:
            few = fresh[:_IN_FUTURE]
            outcomes = workers.all(
                Evaluator.outcome, [(counts, r) for counts in policies for r in few]
            )
        for place, (way, counts) in enumerate(zip(ways, policies, strict=True)):
            seen = judged(trial, counts, outcomes[place * len(few) : (place + 1) * len(few)])
            made.append(WayInFuture(way.name, name, scenario.futures[name].weight, seen))
    return tuple(made)


def _rivals(search: Search, best: Counts) -> tuple[Rival, ...]:
    """Return the best plan of each accelerator alone, at the same probability."""
    choices = search.choices
    rivals = []
    for part in choices.accelerators if len(choices.accelerators) > 1 else ():
        if choices.family(best) == f"all-{part}":
            rivals.append(Rival(part, best, *search.value(best)))
            continue
        search.clock.say(f"searching among plans of {part} alone")
        counts = search.solve(choices.of_part(part), reacts=any(best[choices.loads]), rounds=2)
        rivals.append(
            Rival(part, None, math.inf, 0.0)
            if counts is None
            else Rival(part, counts, *search.value(counts))
        )
    search.calibrate(best)
    return tuple(rivals)
