"""A sizing from its scenario to its result: survey, search, selection, confirmation, explanation.

A policy with room to spare is confirmed first, so that there is one within a minute. Then the shortlist races on the
selection block, and the cheapest that is likely to pass is confirmed on a block of its own. The same races give cost
against the probability to meet the target, and every way to decide at equal service.
"""

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
from planner.plan.plan import Plan
from planner.records import record
from planner.run.simulate import RunResult
from planner.scenario.scenario import Scenario
from planner.scenario.study import load_study
from planner.sizing.archive import Archive, SizeWork
from planner.sizing.choices import Choices, choices_of
from planner.sizing.evaluate import (
    Clock,
    Evaluator,
    Judged,
    Objective,
    TimeUp,
    Trial,
    Workers,
)
from planner.sizing.explain import Explanation, explain
from planner.sizing.policy import Policy
from planner.sizing.refusal import nothing, nothing_mends
from planner.sizing.search import Levers, Search
from planner.sizing.selection import (
    LEAST_SAVED,
    Arena,
    Confirmation,
    Interval,
    Likelihood,
    mean_interval,
    share_limits,
)
from planner.sizing.surrogate import surveyed
from planner.studies.designs import MonteCarlo, PointSet
from planner.studies.futures import Plans, plans_under
from planner.studies.inputs import UncertainInputs, resolve_inputs, stated

_CONFIRMATION_WORK = 16_000
"""Months times workloads that a confirmation simulates, about: it sets how many replications it may have."""
_MOST_CONFIRMATIONS = 2_000
_FEWEST_CONFIRMATIONS = 128
"""Fewer would confirm policies with much room to spare alone."""
_RACES = 24
"""Runs of a confirmation for each of a policy's first race."""
_FEWEST_RACE = 12
ASKED = (0.85, 0.9, 0.95)
"""Probabilities for which the curve names the cheapest policy."""
_LEVELS = (-0.05, 0.0, 0.02, 0.04, 0.055, 0.07)
"""Added to the probability that is asked, where policies are shortlisted."""
_WAY_LEVELS = (0.02, 0.055)
"""The same, of the ways that are compared with the answer's."""
_LEAST_MISSED = 0.3
"""Of what may be missed: as much is, at the highest of them."""
_SAFE_ODDS = 8.0
"""By how much the odds of the policy that is confirmed first are better than what is asked."""
_CLIMBS = 6
"""Most races of neighbours, where misses have a price."""
_MOST_BESIDE = 5
"""Neighbours of one race."""
_IN_FUTURE = 19
"""Fresh replications in which policies are run in each named future."""


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
        seed=used,
        attainment=scenario.slo_target.attainment,
        confidence=scenario.slo_target.confidence,
        includes_outages=scenario.slo_target.include is not None,
    )


class Effort(NamedTuple):
    """Numbers of replications of a sizing, and who works on it."""

    replications: int = 48
    """Replications that are surveyed."""
    confirmations: int | None = None
    """Most replications that confirm one policy; None for what the size of a run suggests."""
    rivals: bool = True
    """Whether rivals and limits are worked out after the answer."""
    workers: int = 1
    scheduler: str | None = None
    """Of a Dask cluster that does the work."""

    def most_runs(self, plan: Plan) -> int:
        """Return the most replications of a confirmation: fewer where a run takes longer."""
        if self.confirmations is not None:
            return self.confirmations
        work = plan.months.period_count * len(plan.workloads)
        return min(max(_CONFIRMATION_WORK // work, _FEWEST_CONFIRMATIONS), _MOST_CONFIRMATIONS)


@record
class CurvePoint:
    """One simulated policy on the curve of cost against service."""

    judged: Judged
    """Over its replications of the selection block."""
    interval: Interval
    """Of its probability to meet the SLO target."""
    answers: tuple[float, ...]
    """Of :data:`ASKED`, those for which it is the cheapest."""
    is_knee: bool
    """Whether service becomes dear beyond it: the point furthest from the chord of the curve."""
    is_cliff: bool
    """Whether the next cheaper policy loses most service for what it saves."""


@record
class Way:
    """A way to decide, named by its levers, at the probability of the answer on the same replications."""

    name: str
    judged: Judged
    """Of its policies, that whose probability is nearest to the answer's."""
    probability: float
    """At which its cost stands: the answer's, or the highest or lowest of its simulated policies.

    What is known of a policy counts: its runs of the selection, and what is predicted of it."""
    cost: float
    """Interpolated between its simulated policies on either side of that probability."""
    saved: float
    """What the answer's way costs less at that probability."""
    is_answer: bool


class WayInFuture(NamedTuple):
    """A way to decide in a named future, over the first replications of the selection block."""

    way: str
    future: str
    weight: float | None
    outcome: Judged


class Rival(NamedTuple):
    """The best policy of one accelerator alone, as predicted."""

    name: str
    policy: Policy | None
    """None where no plan of the kind meets the SLO target."""
    cost: float
    probability: float


@record
class Sized:
    """The result of a sizing."""

    scenario: Scenario
    """As stated."""
    trial: Trial
    confirmation: Confirmation
    """Of the answer, on a block that nothing had seen."""
    curve: tuple[CurvePoint, ...] = ()
    ways: tuple[Way, ...] = ()
    explanation: Explanation = Explanation()
    predicted_cost: float = math.nan
    """Of the answer, as rivals are predicted."""
    rivals: tuple[Rival, ...] = ()
    futures: tuple[WayInFuture, ...] = ()
    """Each way in each future that the scenario names."""
    runs: int = 0
    stopped: str = ""
    """Why the search ended before its end; empty where it did not."""

    @property
    def choices(self) -> Choices:
        """What may be bought, ordered, rented and retired."""
        return self.trial.choices

    @property
    def plan(self) -> Judged:
        """The answer over its confirmation."""
        return self.confirmation.judged

    @property
    def cost_interval(self) -> Interval:
        """Of the mean cost of the answer, for the error of its sample."""
        return mean_interval(self.plan.costs)

    @property
    def causes(self) -> Mapping[str, int]:
        """Of the replications of the confirmation, those that miss the target whatever is bought, by cause."""
        return past_mending(self.plan.ceilings.T, self.trial.attainment)

    @property
    def unfixable(self) -> float:
        """Share of replications that miss the target whatever is bought."""
        return sum(self.causes.values()) / self.plan.worst.size

    def as_stated(self) -> RunResult:
        """Return one run of the result with all inputs as stated, as ``planner run policy.yaml`` gives."""
        none = UncertainInputs(entries=(), mixing=None)
        as_stated = dataclasses.replace(
            self.trial, inputs=none, design=None, seed=self.scenario.seed
        )
        return Evaluator(as_stated).simulate(self.plan.policy, 0)


def size(
    scenario: Scenario,
    trial: Trial,
    effort: Effort,
    clock: Clock,
    work: SizeWork | None = None,
    write: Callable[[Sized], None] = lambda _: None,
) -> Sized:
    """Return the cheapest policy that meets the SLO target, confirmed; raise CapacityError where there is none.

    Stopped before one is confirmed, by its time or by whoever waits, it raises KeyboardInterrupt with what was reached.
    ``write`` is given every policy that is confirmed, each cheaper than the one before. ``work`` keeps runs as they
    come: with those of a sizing that was stopped, the search is soon where it was.
    """
    futures = plans_under([scenario], scenario.futures)  # refused before anything is searched
    sized: Sized | None = None
    step = "nothing yet"

    def tell(better: Sized) -> None:
        nonlocal sized
        sized = better
        write(better)

    def say(words: str) -> None:
        nonlocal step
        step = words
        clock.say(words)

    timed = dataclasses.replace(clock, say=say)
    with contextlib.closing(Workers(trial, effort.workers, effort.scheduler)) as workers:
        try:
            return _sized(scenario, trial, effort, Archive(workers, timed, work), futures, tell)
        except (TimeUp, KeyboardInterrupt) as reason:
            why = "the time was over" if isinstance(reason, TimeUp) else "it was interrupted"
            if sized is None:
                message = (
                    f"no plan was confirmed before {why}. The last step was: {step}. {workers.runs:,} surveys and runs "
                    "are stored"
                )
                raise KeyboardInterrupt(message) from None
            return dataclasses.replace(sized, stopped=why, runs=workers.runs)


def _sized(
    scenario: Scenario,
    trial: Trial,
    effort: Effort,
    archive: Archive,
    futures: Plans,
    tell: Callable[[Sized], None],
) -> Sized:
    """Return the result, telling each confirmed policy as soon as there is one."""
    clock = archive.clock
    clock.say(f"surveying {effort.replications} replications")
    search = Search(surveyed(trial, archive, effort.replications), archive, clock)
    most_runs = effort.most_runs(trial.choices.plan)
    arena = Arena(trial, archive, most_runs, lambda policy: search.value(policy)[1])
    if search.surrogate.fixable < trial.held_confidence:
        raise CapacityError(nothing_mends(search, arena))
    clock.say("searching")
    levers = _every_lever(search)
    # Where misses have a price, a policy that holds the confidence is where to begin, and then cost alone counts.
    search.confidence = trial.confidence
    first = search.find(search.simple_levers())
    sized: Sized | None = None
    safe = first
    if trial.held_confidence and first is not None:
        safe = search.at(_safe(trial.held_confidence), first, search.simple_levers()) or first
        confirmation = arena.confirm_safe(safe)
        clock.say(_ended(confirmation, trial.choices))
        sized = Sized(scenario=scenario, trial=trial, confirmation=confirmation)
        if confirmation.passed:
            tell(sized)
    best = search.solve(levers, first)
    if not trial.held_confidence:
        search.confidence = 0.0
        best = search.solve(levers, best)
    if best is None:
        raise CapacityError(nothing(search, arena))
    shortlist = _shortlist(search, best, safe or best, levers, arena.needed())
    race_runs = min(max(arena.most_runs // _RACES, _FEWEST_RACE), arena.most_runs)
    raced = arena.race(shortlist, race_runs)
    # A trade-off of costs is followed as long as it pays.
    for _ in range(0 if trial.held_confidence else _CLIMBS):
        cheapest = raced[0]
        beside = _beside(search, raced, levers)
        raced = sorted([*raced, *arena.race(beside, race_runs)], key=lambda one: one.cost)
        if raced[0] is cheapest:
            break
    confirmed = None
    if sized is not None and sized.confirmation.passed:
        confirmed = next(one for one in raced if one.policy == safe)
    candidates = [one for one in raced if one is not confirmed]
    for confirmation in arena.confirmations(candidates, confirmed):
        clock.say(_ended(confirmation, trial.choices))
        latest = Sized(scenario=scenario, trial=trial, confirmation=confirmation)
        if confirmation.passed:
            tell(latest)
        # One that failed stands only as long as none has passed.
        if confirmation.passed or sized is None or not sized.confirmation.passed:
            sized = latest
        known = {one.policy for one in raced}
        more = [
            one
            for one in _as_seen(search, arena, confirmation, raced, levers)
            if one.policy not in known
        ]
        raced += more
        candidates += more
    assert sized is not None  # nothing else ends without a confirmation, passed or not
    sized = dataclasses.replace(
        sized,
        curve=curve_of(raced, sized.confirmation if trial.held_confidence else None),
        ways=_ways(search, arena, sized.plan.policy, raced, race_runs),
        predicted_cost=search.cost(sized.plan.policy),
        runs=archive.workers.runs,
    )
    tell(sized)
    if not effort.rivals:
        return sized
    answer = sized.plan.policy
    sized = dataclasses.replace(
        sized,
        explanation=explain(search, answer),
        rivals=_rivals(search, answer),
        futures=_futures(sized, futures, effort, clock),
    )
    return dataclasses.replace(sized, runs=archive.workers.runs)


def _ended(confirmation: Confirmation, choices: Choices) -> str:
    """Return how a confirmation ended, as a line of progress."""
    verdict = confirmation.judged.verdict
    words = choices.words(confirmation.judged.policy)
    return (
        f"{'confirmed' if confirmation.passed else 'not confirmed'}, {verdict.share:.1%}: {words}"
    )


def _every_lever(search: Search) -> Levers:
    choices = search.choices
    return search.levers(rules=bool(choices.reactive), rent=choices.most_instances > 0)


def _safe(confidence: float) -> float:
    """Return a probability with room to spare."""
    odds = _SAFE_ODDS * confidence / (1.0 - confidence)
    return odds / (1.0 + odds)


def _shortlist(
    search: Search, best: Policy, safe: Policy, levers: Levers, needed: float
) -> list[Policy]:
    """Return the policies to compare: at several probabilities, and the best of every way at two of them.

    ``needed`` is the probability from which on one is likely to be confirmed.
    """
    confidence = search.confidence
    if not confidence:
        near = [*search.neighbours(best, 2, levers), *search.neighbours(best, 1, levers), best]
        within = dict.fromkeys(filter(search.choices.within_limits, near))
        return sorted(within, key=search.cost)[: 2 * len(_LEVELS)][::-1]
    most = 1.0 - _LEAST_MISSED * (1.0 - confidence)
    asked = [*(confidence + added for added in _LEVELS), needed]
    asked_of_ways = [confidence + added for added in _WAY_LEVELS]
    ways = [levers]
    ways += [search.levers(rules=levers.rules)] if levers.rent else []
    ways += [search.levers()] if levers.rules else []
    listed = [safe]
    for way in ways:
        # Without rent there is more of the same; without rules all purchases are to be made anew.
        start: Policy | None = best if way.rent else dataclasses.replace(best, rented_instances=0)
        if way.rules != levers.rules:
            start = search.find(way)
        levels = {min(level, most) for level in (asked if way == levers else asked_of_ways)}
        for level in sorted(levels):
            found = None if start is None else search.at(level, start, way)
            if found is not None:
                start = found
                listed.append(found)
    return [*dict.fromkeys(listed)]


def _beside(search: Search, raced: Sequence[Judged], levers: Levers) -> list[Policy]:
    """Return the neighbours of the cheapest policy that are predicted to cost least, where misses have a price."""
    seen = {one.policy for one in raced}
    neighbours = dict.fromkeys(search.neighbours(raced[0].policy, 1, levers))
    near = [one for one in neighbours if one not in seen and search.choices.within_limits(one)]
    near.sort(key=search.cost)
    return near[:_MOST_BESIDE]


def _as_seen(
    search: Search,
    arena: Arena,
    confirmation: Confirmation,
    raced: Sequence[Judged],
    levers: Levers,
) -> list[Judged]:
    """Return the cheapest policy that is likely to pass, where predictions are as a policy was seen in its block.

    After one that failed it is dearer; after one that passed with room to spare it is cheaper.
    """
    if not arena.confidence:
        return []
    tried = {block.policy for block in arena.blocks}
    selected = {one.policy: one for one in raced if one.policy in tried}
    # A block that was left early is one of many misses, and the selection one of few: together they are fair.
    search.expect(*selected.values(), *arena.blocks)
    fresh = confirmation.judged
    needed = arena.needed()
    if needed >= 1.0:
        return []
    aim = "costs less" if confirmation.passed else "meets the target more often"
    search.clock.say(f"looking for a plan that {aim}")
    found = search.at(needed, fresh.policy, levers)
    if found is None:
        return []
    saved = 1.0 - search.cost(found) / search.cost(fresh.policy)
    if confirmation.passed and saved < LEAST_SAVED:
        return []
    return [arena.selected(found, selected[fresh.policy].worst.size)]


def curve_of(
    raced: Sequence[Judged], confirmation: Confirmation | None = None
) -> tuple[CurvePoint, ...]:
    """Return the raced policies by cost, with what each answers, the knee and the cliff.

    Those two are of the policies that no cheaper one serves better than. Of the probability that was asked, a policy
    that is confirmed is the answer, whatever its share on the selection block.
    """
    by_cost = sorted(raced, key=lambda one: one.cost)
    efficient: list[Judged] = []
    for one in by_cost:
        if not efficient or one.verdict.share > efficient[-1].verdict.share:
            efficient.append(one)
    costs = np.array([one.cost for one in efficient])
    shares = np.array([one.verdict.share for one in efficient])
    knee = cliff = None
    if len(efficient) > 2:
        span_usd = costs[-1] - costs[0]
        chord = (costs - costs[0]) / span_usd
        heights = (shares - shares[0]) / (shares[-1] - shares[0])
        knee = efficient[int((heights - chord).argmax())]
        slopes = np.diff(shares) / np.diff(costs)
        cliff = efficient[1 + int(slopes.argmax())]
    cheapest = {
        level: next((one for one in by_cost if one.verdict.share >= level), None) for level in ASKED
    }
    if confirmation is not None and confirmation.passed:
        confirmed = confirmation.judged
        asked = confirmed.verdict.confidence
        answer = next((one for one in by_cost if one.policy == confirmed.policy), None)
        cheapest |= {asked: answer} if asked in cheapest else {}
    return tuple(
        CurvePoint(
            judged=one,
            interval=share_limits(one.verdict.met, one.verdict.replications, 0.025),
            answers=tuple(level for level, policy in cheapest.items() if policy is one),
            is_knee=one is knee,
            is_cliff=one is cliff,
        )
        for one in by_cost
    )


def _ways(
    search: Search, arena: Arena, answer: Policy, raced: Sequence[Judged], race_runs: int
) -> tuple[Way, ...]:
    """Return every way to decide, brought to the probability of the answer by what is known of each policy."""
    choices = search.choices
    by_name: dict[str, list[Judged]] = {}
    for one in raced:
        by_name.setdefault(choices.levers(one.policy), []).append(one)
    own_name = choices.levers(answer)
    own = next((one for one in raced if one.policy == answer), None)
    if own is None:
        own = arena.selected(answer, race_runs)
        by_name.setdefault(own_name, []).append(own)
    answered = arena.likelihood(own)
    own_policies = by_name[own_name]
    ways = []
    for name, raced_policies in by_name.items():
        # Those that a race left early are run on as many replications as the answer.
        around = _around(raced_policies, answered, arena.likelihood)
        policies = [arena.selected(one.policy, own.verdict.replications) for one in around]
        probability, cost = cost_at(policies, answered, arena.likelihood)
        # Where a way does not reach the answer's probability, the answer's way is taken to that of the other.
        _, own_cost = cost_at(own_policies, probability, arena.likelihood)
        nearest = min(
            policies, key=lambda one: (abs(arena.likelihood(one) - probability), one.cost)
        )
        is_answer = name == own_name
        ways.append(
            Way(
                name=name,
                judged=own if is_answer else nearest,
                probability=probability,
                cost=cost,
                saved=cost - own_cost,
                is_answer=is_answer,
            )
        )
    return tuple(sorted(ways, key=lambda way: way.is_answer))


def _efficient(policies: Sequence[Judged], probability_of: Likelihood) -> list[Judged]:
    """Return the policies that no cheaper one serves at least as often as, the least likely first."""
    efficient: list[Judged] = []
    for one in sorted(policies, key=lambda one: (-probability_of(one), one.cost)):
        if not efficient or one.cost < efficient[-1].cost:
            efficient.append(one)
    return efficient[::-1]


def _around(
    policies: Sequence[Judged], probability: float, probability_of: Likelihood
) -> list[Judged]:
    """Return the efficient policies on either side of a probability: one where none is beyond it."""
    efficient = _efficient(policies, probability_of)
    below = [one for one in efficient if probability_of(one) <= probability]
    above = [one for one in efficient if probability_of(one) >= probability]
    return [*below[-1:], *above[:1]]


def cost_at(
    policies: Sequence[Judged], probability: float, probability_of: Likelihood
) -> tuple[float, float]:
    """Return the cost of a way at a probability, between its simulated policies; and the probability it stands at."""
    efficient = _efficient(policies, probability_of)
    probabilities = np.array([probability_of(one) for one in efficient])
    costs = np.array([one.cost for one in efficient])
    within = float(np.clip(probability, probabilities[0], probabilities[-1]))
    return within, float(np.interp(within, probabilities, costs))


def _futures(sized: Sized, plans: Plans, effort: Effort, clock: Clock) -> tuple[WayInFuture, ...]:
    """Return each way in each future: the same policy, the same replications, what is stated otherwise."""
    rows: list[WayInFuture] = []
    scenario = sized.scenario
    for name, (otherwise,) in plans.items():
        clock.say(f"running the plans in the future {name}")
        other = choices_of(otherwise or scenario, sized.choices.accelerators)
        trial = dataclasses.replace(sized.trial, choices=other)
        with contextlib.closing(Workers(trial, effort.workers, effort.scheduler)) as workers:
            archive = Archive(workers, clock)
            few = min(_IN_FUTURE, effort.most_runs(other.plan))
            for way in sized.ways:
                policy = other.alike(sized.choices, way.judged.policy)
                outcome = Arena(trial, archive, few).selected(policy, few)
                rows.append(WayInFuture(way.name, name, scenario.futures[name].weight, outcome))
    return tuple(rows)


def _rivals(search: Search, best: Policy) -> tuple[Rival, ...]:
    """Return the best plan of each accelerator alone, at the same probability."""
    choices = search.choices
    rivals = []
    for part in choices.accelerators if len(choices.accelerators) > 1 else ():
        if choices.parts(best) == {part}:
            rivals.append(Rival(part, best, *search.value(best)))
            continue
        levers = dataclasses.replace(
            search.levers(rules=best.orders), purchases=tuple(choices.of_part(part))
        )
        policy = search.find(levers)
        figures = (math.inf, 0.0) if policy is None else search.value(policy)
        rivals.append(Rival(part, policy, *figures))
    return tuple(rivals)
