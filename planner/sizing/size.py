"""A sizing from its scenario to its result: survey, bound, search, families, confirmation."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner.errors import CapacityError
from planner.plan.slo_target import Verdict
from planner.run.simulate import RunResult
from planner.scenario.scenario import Scenario, SloTarget
from planner.scenario.study import load_study
from planner.sizing import evaluate
from planner.sizing.choices import MIXED, Choices, Counts, choices_of
from planner.sizing.confirm import FEWER_TRIES, Confirmation, Effort, answered, confirmed
from planner.sizing.evaluate import Archive, Clock, Evaluator, Judged, Objective, SizeWork, TimeUp, Trial, judged
from planner.sizing.explain import Explanation, explain, nearest_miss, what_to_relax
from planner.sizing.replications import Surveyed
from planner.sizing.review import PurchaseReview, review_of
from planner.sizing.search import RIVAL_TRIES, Search, cheaper_as_run, moved, searched
from planner.studies.designs import MonteCarlo, PointSet
from planner.studies.inputs import UncertainInputs, resolve_inputs, stated

_MOST_CHANGE = 4.0  # of a price, as a share of it: beyond it none is in prospect


class Family(NamedTuple):
    """The best plan of one kind: all of one accelerator, or mixed."""

    name: str
    plan: Judged | None
    """None where no plan of the kind meets the SLO target."""
    bound: float
    price_changes: Mapping[str, float]
    """By part: the change of its accelerators' price at which this plan costs as much as the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The result of a finished sizing."""

    scenario: Scenario
    """As stated."""
    trial: Trial
    plan: Judged
    """The answer over the replications of the search."""
    bound: float
    """No plan that meets the SLO target in enough of those replications costs less."""
    confirmation: Confirmation
    families: tuple[Family, ...]
    explanation: Explanation
    review: PurchaseReview | None
    """What a review is worth; None where the scenario states none."""
    runs: int
    stopped: str
    """Why the search ended before its end; empty where it did not."""

    @property
    def choices(self) -> Choices:
        """The allowed purchases and retirements."""
        return self.trial.choices

    @property
    def slo_target(self) -> SloTarget:
        """The SLO target of the sizing."""
        return self.trial.slo_target

    @property
    def verdict(self) -> Verdict:
        """Of the fresh replications."""
        return Verdict(self.confirmation.kept, self.confirmation.replications, self.slo_target.confidence)

    def as_stated(self) -> RunResult:
        """Return one run of the result with all inputs as stated, as ``planner run plan.yaml`` gives."""
        stated = dataclasses.replace(
            self.trial, inputs=UncertainInputs(entries=(), mixing=None), design=None, seed=self.scenario.seed
        )
        return Evaluator(stated).simulate(self.plan.counts, 0)

    @property
    def gap(self) -> float:
        """Optimality gap: how far the lower bound is below the result's cost, as a share of the cost."""
        return evaluate.gap_fraction(self.plan.cost, self.bound)

    @property
    def family(self) -> str:
        """Kind of the result: all of one accelerator, or mixed."""
        return self.choices.family(self.plan.counts)


def trial_of(
    scenario: Scenario, parts: Sequence[str], study: Path | None, objective: Objective, seed: int | None
) -> Trial:
    """Return the trial of a sizing: its choices, and a study's uncertain inputs."""
    choices = choices_of(scenario, parts)
    slo_target = scenario.slo_target
    if study is None:
        used = scenario.seed if seed is None else seed
        none = UncertainInputs(entries=(), mixing=None)
        return Trial(choices=choices, objective=objective, inputs=none, design=None, seed=used, slo_target=slo_target)
    written, scenarios = load_study(study)
    # The scenario with all its parts comes first, so that what is drawn does not depend on those that are allowed.
    bases = {"": choices_of(scenario).base}  # no scenario is called so
    bases |= {name: stated(name, scenario) for name, scenario in scenarios.items()}
    inputs = resolve_inputs(written, bases)
    used = written.seed if seed is None else seed
    points = PointSet(sampling=written.sampling, dimensions=len(inputs), scramblings=written.scramblings, seed=used)
    design = MonteCarlo(points=points)
    return Trial(choices=choices, objective=objective, inputs=inputs, design=design, seed=used, slo_target=slo_target)


def size(scenario: Scenario, trial: Trial, effort: Effort, clock: Clock, work: SizeWork | None = None) -> Sized:
    """Return the cheapest plan that meets the SLO target, confirmed; raise CapacityError where there is none.

    ``work`` keeps runs as they come: with those of a sizing that was stopped, the search is soon where it was.
    """
    with contextlib.closing(evaluate.Workers(trial, effort.workers, effort.scheduler)) as workers:
        clock.say(f"surveying {effort.replications} replications")
        surveyed = Surveyed(trial, workers, effort.replications)
        archive, stopped = Archive(workers, work), ""
        main = Search(surveyed, archive, clock, [True] * len(trial.choices.purchases))
        main.gap = effort.gap
        if not math.isfinite(main.bound):
            raise CapacityError(what_to_relax(trial, surveyed.surveys[main.decisive], surveyed.bound_prices))
        rivals: dict[str, Search] = {}
        try:
            _search(main, rivals)
        except (TimeUp, KeyboardInterrupt) as reason:
            stopped = "the time was over" if isinstance(reason, TimeUp) else "it was interrupted"
        clock.minutes = math.inf  # what was found is confirmed and explained whatever time that takes
        main.best = main.best or _cheapest(rivals, main)
        if main.best is None:
            answer = f"no plan that meets the SLO target was found before {stopped}"
            raise CapacityError(answer if stopped else nearest_miss(main))
        confirmation = answered(main, rivals, effort)
        assert main.best is not None
        plan = judged(main.best, main.outcomes(main.best, range(effort.replications)))
        _mixed(main, rivals)
        families = tuple(_family(name, rival, plan, main) for name, rival in rivals.items())
        explanation = explain(main, plan, effort.replications)
        review = None
        for date in trial.choices.choose.decision_dates:
            fresh = range(confirmation.first, confirmation.first + confirmation.replications)
            review = review_of(main, date, lambda search: confirmed(search, effort).first, fresh)
        return Sized(
            scenario=scenario,
            trial=trial,
            plan=plan,
            bound=min(main.bound, plan.cost),
            confirmation=confirmation,
            families=families,
            explanation=explanation,
            review=review,
            runs=workers.runs,
            stopped=stopped,
        )


def _search(main: Search, rivals: dict[str, Search]) -> None:
    """Search among all plans, and among those of each accelerator alone, and take the cheapest."""
    searched(main, main.tries)
    _families(main, rivals)
    cheapest = _cheapest({"": main, **rivals}, main)
    if cheapest != main.best:
        main.run(cheapest)
    if main.best is not None:
        main.best = cheaper_as_run(main, main.best)


def _families(main: Search, rivals: dict[str, Search]) -> None:
    """Search for the best plan of each accelerator alone; results are added to ``rivals`` as they appear.

    One that its bound keeps from being the answer is told by the start of a search, which is near its best.
    """
    choices = main.trial.choices
    for part in choices.accelerators if len(choices.accelerators) > 1 else ():
        rival = Search(main.surveyed, main.archive, main.clock, choices.of_part(part), tries=FEWER_TRIES, like=main)
        rivals[f"all-{part}"] = rival
        if main.best is not None and choices.family(main.best) == f"all-{part}":
            rival.best = main.best
            continue
        main.clock.say(f"searching among plans of {part} alone")
        if main.best is not None and rival.bound > main.surveyed.predicted(main.best):
            rival.tries = 0
        searched(rival, FEWER_TRIES)


def _mixed(main: Search, rivals: dict[str, Search]) -> None:
    """Search for the best mixed plan where the result has one accelerator, starting from it plus one other node."""
    choices = main.trial.choices
    if main.best is None or len(choices.accelerators) < 2 or choices.family(main.best) == MIXED:
        return
    main.clock.say("searching among plans of several parts")
    search = Search(main.surveyed, main.archive, main.clock, main.allowed, tries=RIVAL_TRIES, like=main)
    search.meet(main)
    search.choices = dataclasses.replace(choices, mixed=True)
    more = [moved(main.best, {place: 1}) for place in range(len(choices.purchases))]
    allowed = [counts for counts in more if search.choices.within_limits(counts)]
    held = (counts for counts in sorted(allowed, key=main.surveyed.predicted) if search.holds(counts))
    if (start := next(held, None)) is not None:
        search.best = start
        rivals[MIXED] = search
        search.best = search.descend(start)


def _cheapest(rivals: Mapping[str, Search], main: Search) -> Counts | None:
    """Return the cheapest best candidate of some searches, by simulated cost."""
    every = range(len(main.surveyed.surveys))
    plans = [rival.best for rival in rivals.values() if rival.best is not None]
    return min(plans, key=lambda counts: judged(counts, main.outcomes(counts, every)).cost, default=None)


def _family(name: str, rival: Search, plan: Judged, main: Search) -> Family:
    """Return the best plan of a kind, and the price changes at which it would be the cheapest."""
    if rival.best is None:
        return Family(name=name, plan=None, bound=rival.bound, price_changes={})
    outcome = judged(rival.best, main.outcomes(rival.best, range(len(main.surveyed.surveys))))
    answer = {part: price_change(main, outcome, plan, part) for part in main.trial.choices.accelerators}
    changes = {part: change for part, change in answer.items() if change is not None}
    return Family(name=name, plan=outcome, bound=rival.bound, price_changes=changes)


def price_change(main: Search, rival: Judged, plan: Judged, part: str) -> float | None:
    """Return the price change of an accelerator at which a rival costs the same as the result, or None.

    Cost is linear in the price of accelerators, so one run of each at another price gives the slope.
    """
    its, answers = (_slope(main, counts, part) for counts in (rival.counts, plan.counts))
    change = (plan.cost - rival.cost) / (its - answers) if its != answers else _MOST_CHANGE
    return change if -1.0 < change < _MOST_CHANGE else None


_NEARBY = 0.9  # of the price: any other would give the same slope


def _slope(main: Search, counts: Counts, part: str) -> float:
    """Return the cost that doubling an accelerator's price adds to a candidate, over the first replications."""
    choices, few = main.trial.choices, range(min(4, len(main.surveyed.surveys)))
    taken = [one for one, nodes in zip(choices.purchases, counts, strict=False) if nodes and one.accelerator == part]
    names = [one.name for one in taken if choices.plan.clusters[choices.place(one.name)].rent is None]
    if not names:
        return 0.0
    cheaper = main.archive.workers.all(cost_at_price, [(counts, replication, names, _NEARBY) for replication in few])
    before = [outcome.cost for outcome in main.outcomes(counts, few)]
    return float(np.mean([(a - b) / (1.0 - _NEARBY) for a, b in zip(before, cheaper, strict=True)]))


def cost_at_price(evaluator: Evaluator, counts: Counts, replication: int, names: Sequence[str], factor: float) -> float:
    """Return a candidate's cost in a replication where some clusters' accelerator prices are multiplied."""
    clusters = evaluator.simulate(counts, replication).scenario.clusters
    changes: evaluate.Changes = {}
    catalog = evaluator.trial.choices.scenario.load_catalog()
    for name in names:
        cluster = clusters[name]
        entry, price = catalog.accelerator(cluster.accelerator).accelerator_price_usd, cluster.accelerator_price_usd
        if price is None:
            price = entry.value if entry else 0.0
        changes[name, "accelerator_price_usd"] = price * factor
        changes[name, "quotes"] = tuple(
            {**quote.model_dump(), "accelerator_price_usd": quote.accelerator_price_usd * factor}
            for quote in cluster.quotes
        )
    return evaluator.outcome(counts, replication, changes).cost
