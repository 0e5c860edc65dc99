"""Now or later: the value of deciding on later purchases at a review, by demand and deliveries seen by then.

Two stages, by simulation on common random numbers. The replications fall into a few levels of what is seen at the
review; a policy fixes what is bought before it, and for each level what is bought from then on, and must keep the same
SLO target as a plan: in as many replications of all levels together. Its cost less that of a plan in which all is
fixed on the first day, replication by replication, is what the review is worth.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.sizing.choices import Counts, Policies, due_h
from planner.sizing.evaluate import Archive, Judged, Run, SizingOutcome, judged
from planner.sizing.lp_data import prices_of
from planner.sizing.relaxation import Relaxed, Shared, solve_together
from planner.sizing.replications import Surveyed
from planner.sizing.search import Search, cheaper_as_run, searched
from planner.studies.decision import IntervalEstimate, half_width
from planner.units import HOURS_PER_DAY

NOW, FIXED, REVIEWED = "everything now", "fixed on the first day", "with a review"
_MOST_LEVELS = 3  # of demand: low, middle and high; more would have too few replications each
_FEWEST = 1.0 / 6.0  # share of the replications that a level has at least
_QUARTER = 3  # months over which demand is averaged: one alone may be out of season
_DESIGNED = 2  # replications of each level that the start is to serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels of what is observed at a review: deliveries on schedule or late, and demand within each."""

    months: int
    """Whole months before the review."""
    review_h: float
    cuts: tuple[tuple[float, ...], ...]
    """Forecasts that part the levels, rising: of replications without a late delivery, then of those with one."""

    def of(self, outcome: SizingOutcome, due: Sequence[str]) -> int:
        """Return the level that is observed in a replication."""
        late = len(self.cuts) - 1 if self.is_late(outcome, due) else 0
        before = sum(len(cuts) + 1 for cuts in self.cuts[:late])
        return before + int(np.searchsorted(self.cuts[late], forecast(outcome.tokens, self.months), side="right"))

    def is_late(self, outcome: SizingOutcome, due: Sequence[str]) -> bool:
        """Return whether a delivery due before the review is late."""
        return any(outcome.delivered_h.get(name, np.inf) > self.review_h for name in due)

    @property
    def count(self) -> int:
        """Number of levels."""
        return sum(len(cuts) + 1 for cuts in self.cuts)


def forecast(tokens: Floats, months: int) -> float:
    """Return the last month's demand as forecast after some months, at the growth seen by then.

    With D₀ and D₁ the mean tokens a month of the first and the last quarter seen, m months apart, and n months to go:
    D₁·(D₁ / D₀)^(n/m).
    """
    span = min(_QUARTER, months)
    first, last = tokens[:span].mean(), tokens[months - span : months].mean()
    apart = months - span
    growth = (last / first) ** (1.0 / apart) if apart and first > 0 else 1.0
    return float(last * growth ** (tokens.size - months))


def levels_of(outcomes: Sequence[SizingOutcome], due: Sequence[str], months: int, review_h: float) -> Levels:
    """Return levels with equal numbers of replications, with late deliveries separate where there are enough."""
    fewest = max(1.0, _FEWEST * len(outcomes))
    all_alike = Levels(months=months, review_h=review_h, cuts=((),))
    late = np.array([all_alike.is_late(outcome, due) for outcome in outcomes])
    seen = np.array([forecast(outcome.tokens, months) for outcome in outcomes])
    groups = [seen[~late], seen[late]] if fewest <= late.sum() <= late.size - fewest else [seen]
    cuts = []
    for group in groups:
        ranked, bins = np.sort(group), int(min(_MOST_LEVELS, max(1, group.size // fewest)))
        edges = [group.size * part // bins for part in range(1, bins)]
        cuts.append(tuple(float(ranked[edge - 1] + ranked[edge]) / 2.0 for edge in edges))
    return Levels(months=months, review_h=review_h, cuts=tuple(cuts))


class Reviewed(Surveyed):
    """The replications of a search among policies."""

    def __init__(self, surveyed: Surveyed, archive: Archive, fixed: Counts, review: datetime.date) -> None:
        """Assign each replication its level at the review, from the run of a fixed candidate."""
        vars(self).update(vars(surveyed))  # all that was surveyed is the same; what is bought differs
        self._rent = {}
        self.archive, self.fixed = archive, fixed
        plain = self.trial.choices
        review_h = (review - plain.scenario.start).days * float(HOURS_PER_DAY)
        months = int(np.searchsorted(plain.plan.month_edges_h, review_h, side="right")) - 1
        bought = {purchase.name for purchase, nodes in zip(plain.purchases, fixed, strict=False) if nodes}
        # What nobody ordered tells nothing: only deliveries of the plan itself are seen, where all are due by then.
        self.due = []
        for cluster in (cluster for cluster in plain.plan.clusters if cluster.name in bought):
            waits_h = (cluster.order.deliveries - 1) * cluster.order.interval_h if cluster.order else 0.0
            if due_h(cluster) + waits_h <= review_h:
                self.due.append(cluster.name)
        every = range(len(self.surveys))
        outcomes = archive.outcomes([(fixed, replication) for replication in every])
        self.levels = levels_of(outcomes, self.due, months, review_h)
        self.policies = Policies.of(plain, review, self.levels.count)
        level = np.array([self.level(replication) for replication in every])
        self.shares = [float((level == at).mean()) for at in range(self.levels.count)]
        places, days = len(plain.purchases), self.prices.column[len(plain.purchases) :]
        self.column: Floats = np.concatenate([np.zeros(len(self.policies.purchases)), days])
        for at, share in enumerate(self.shares):
            shown = [self.surveys[replication] for replication in np.flatnonzero(level == at)]
            self.column[self.policies.places(at)] += prices_of(self.trial, shown, bound=False).column[:places] * share

    @property
    def choices(self) -> Policies:
        """The policies to choose from."""
        return self.policies

    def level(self, replication: int) -> int:
        """Return the level observed in a replication."""
        return self.levels.of(self.archive.outcomes([(self.fixed, replication)])[0], self.due)

    def run_of(self, counts: Counts, replication: int) -> Run:
        """Return the run of the candidate that a policy selects in the replication."""
        return self.policies.at(counts, self.level(replication)), replication

    def designed(self, hardest: Sequence[int], sparing: int) -> list[int]:
        """Return the hardest replications of each level that must meet the SLO target."""
        must = [replication for replication in hardest[sparing:] if replication < len(self.surveys)]
        by_level = ([one for one in must if self.level(one) == at] for at in range(self.levels.count))
        return [replication for members in by_level for replication in members[:_DESIGNED]]

    def relaxed(self, design: Sequence[int], margin: Floats, allowed: Sequence[bool]) -> Relaxed | None:
        """Return the cheapest policy that meets the SLO target in some replications with a margin on demand."""
        policies, plain = self.policies, len(self.trial.choices.purchases)
        days = np.arange(self.column.size - len(policies.purchases))
        ends = len(policies.purchases) + days
        shared = Shared(
            places=[np.append(policies.places(self.level(at)), ends).astype(np.int64) for at in design],
            cost=self.column,
            upper=np.concatenate([np.where(allowed, np.inf, 0.0), np.ones(days.size)]),
            purchases=len(policies.purchases),
        )
        programs = self.programs(design, margin)
        assert programs[0].columns == plain + days.size
        return solve_together(programs, integral=True, shared=shared)

    def least_costs(self, allowed: Sequence[bool], *, working: bool = False) -> Floats:  # noqa: ARG002 - none is told
        """Return zeros, since no lower bound is computed for policies."""
        return np.zeros(len(self.surveys))

    def least_with_rent(self, allowed: Sequence[bool]) -> float:  # noqa: ARG002 - none is told
        """Return 0, since no lower bound is computed for policies."""
        return 0.0

    def lumps(self, counts: tuple[float, ...]) -> float:
        """Return a policy's costs that are not per node, averaged over the levels."""
        made = [self.policies.at(tuple(map(int, counts)), level) for level in range(len(self.shares))]
        return sum(share * super(Reviewed, self).lumps(one) for one, share in zip(made, self.shares, strict=True))

    def standing(self, counts: Sequence[float]) -> float:
        """Return the mean cost of a policy's nodes, as in the relaxation."""
        return self._nodes_and_days(counts, self.prices.fixed, self.column)


class ReviewLevel(NamedTuple):
    """One observed level, and the purchases made at it."""

    share: float
    """Of the replications that the search met."""
    late: bool
    lowest: float
    """Forecast over the mean one of all replications."""
    highest: float
    counts: Counts
    """The choice that the policy makes."""


class Alternative(NamedTuple):
    """A decision rule and its outcome over fresh replications."""

    name: str
    words: str
    outcome: Judged | None
    """None where nothing of the kind meets the SLO target."""
    saved: IntervalEstimate | None
    """What the policy with a review saves against it, in the mean, with its 95% interval; None for itself."""


class PurchaseReview(NamedTuple):
    """The value of a review."""

    date: datetime.date
    levels: tuple[ReviewLevel, ...]
    alternatives: tuple[Alternative, ...]
    next_parts: tuple[str, ...]
    """Parts that can be bought from the review on alone."""


Confirm = Callable[[Search], int]
"""Confirms the best of a search on fresh replications, mending it where needed; returns the first of the last ones."""


def review_of(main: Search, review: datetime.date, confirm: Confirm, fresh: range) -> PurchaseReview:
    """Compare a policy with a review to plans without one, and to one without the next accelerator.

    ``fresh`` are the replications on which the answer of the main search was confirmed.
    """
    assert main.best is not None
    choices = main.trial.choices
    later = [purchase.date >= review for purchase in choices.purchases]
    early = {purchase.accelerator for purchase, is_later in zip(choices.purchases, later, strict=True) if not is_later}
    following = tuple(part for part in choices.accelerators if early and part not in early)
    main.clock.say(f"searching among policies with a review on {review}")
    policy = policy_search(main, main.best, review, lambda _: True)
    searches: dict[str, Search | None] = {REVIEWED: policy, FIXED: main}
    firsts = [confirm(policy), fresh.start]
    if early and any(later):
        main.clock.say("searching among plans that buy everything before the review")
        now = [not is_later for is_later in later]
        searches[NOW] = _with_answer(Search(main.surveyed, main.archive, main.clock, now, like=main))
    if following:
        main.clock.say(f"searching among policies without {', '.join(following)}")
        allowed = [purchase.accelerator in early for purchase in choices.purchases]
        without = _with_answer(Search(main.surveyed, main.archive, main.clock, allowed, like=main))
        searches[f"with a review, without {', '.join(following)}"] = without and policy_search(
            main, without.best or (), review, lambda part: part in early
        )
    firsts += [confirm(search) for search in list(searches.values())[2:] if search is not None]
    seen = range(max(firsts), max(firsts) + len(fresh))
    costs = {
        name: None if search is None or search.best is None else search.outcomes(search.best, seen)
        for name, search in searches.items()
    }
    alternatives, reviewed = [], costs[REVIEWED]
    for name, search in searches.items():
        outcomes, saved = costs[name], None
        if search is None or outcomes is None or search.best is None:
            alternatives.append(Alternative(name=name, words="", outcome=None, saved=None))
            continue
        if reviewed is not None and name != REVIEWED:
            less = np.array([one.cost - other.cost for one, other in zip(outcomes, reviewed, strict=True)])
            saved = IntervalEstimate(value=float(less.mean()), half_width=half_width(less), completed=less.size)
        words, outcome = search.choices.words(search.best), judged(search.best, outcomes)
        alternatives.append(Alternative(name=name, words=words, outcome=outcome, saved=saved))
    return PurchaseReview(date=review, levels=_levels(policy), alternatives=tuple(alternatives), next_parts=following)


def policy_search(main: Search, fixed: Counts, review: datetime.date, allowed: Callable[[str], bool]) -> Search:
    """Search among policies, starting from the relaxation's and from the one without a review."""
    reviewed = Reviewed(main.surveyed, main.archive, fixed, review)
    parts = [allowed(purchase.accelerator) for purchase in reviewed.policies.purchases]
    search = Search(reviewed, main.archive, main.clock, parts, like=main)
    start = reviewed.policies.same(fixed)
    counts = search.run()
    if counts is None or search.dearer_by(start, counts) < 0.0:
        same = search.run(start) or start
        search.best = same if counts is None or search.dearer_by(same, counts) < 0.0 else counts
    if search.best is not None:
        search.best = cheaper_as_run(search, search.best)
    return search


def _with_answer(search: Search) -> Search | None:
    return search if searched(search, search.tries) is not None else None


def _levels(policy: Search) -> tuple[ReviewLevel, ...]:
    """Return the levels of a policy, with the purchases at each."""
    reviewed = policy.surveyed
    assert isinstance(reviewed, Reviewed)
    assert policy.best is not None
    outcomes = reviewed.archive.outcomes([(reviewed.fixed, at) for at in range(len(reviewed.surveys))])
    seen = np.array([forecast(outcome.tokens, reviewed.levels.months) for outcome in outcomes])
    level = np.array([reviewed.levels.of(outcome, reviewed.due) for outcome in outcomes])
    first_late = len(reviewed.levels.cuts[0]) + 1
    levels = []
    for at in range(reviewed.levels.count):
        share, shown = float((level == at).mean()), seen[level == at] / seen.mean()
        ends = float(shown.min()), float(shown.max())
        levels.append(ReviewLevel(share, at >= first_late, *ends, reviewed.policies.at(policy.best, at)))
    return tuple(levels)
