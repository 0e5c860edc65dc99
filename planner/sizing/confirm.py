"""Confirmation of a search's result on fresh replications, with repair where too few meet the SLO target."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from planner.sizing.choices import Counts
from planner.sizing.evaluate import Judged, judged
from planner.sizing.search import Search

FEWER_TRIES = 6
"""Choices in a row that may fail where only a rival is wanted, or a plan is mended."""
_MOST_DESCENTS = 4  # after a plan was mended
_MOST_ROUNDS = 3  # of confirmation: one that fails is mended with what it showed, and confirmed on others
_MOST_CHEAPER = 12  # plans that cost less than a mended answer and are run in all that it is held to
_MOST_CONFIRMED = 2  # of those: so many are confirmed


class Effort(NamedTuple):
    """Numbers of replications and the time limit of a search."""

    replications: int = 48
    """Replications that every choice of the search meets."""
    confirmations: int = 200
    """Fresh replications on which the answer is confirmed."""
    gap: float = 0.0
    """Distance from the bound at which the search may stop."""
    workers: int = 1
    scheduler: str | None = None
    """Of a Dask cluster that does the work."""


class Confirmation(NamedTuple):
    """The result on replications that the search has not used."""

    outcome: Judged
    first: int
    """Number of the first of them."""
    kept: int
    """Of them meet the SLO target."""

    @property
    def replications(self) -> int:
        """Number of fresh replications."""
        return self.outcome.worst.size

    def keeps(self, search: Search) -> bool:
        """Return whether enough replications meet the SLO target."""
        return self.outcome.keeps(search.attainment, search.trial.slo_target.confidence)


def answered(main: Search, rivals: Mapping[str, Search], effort: Effort) -> Confirmation:
    """Return the confirmed result; a cheaper plan that is confirmed as well replaces it.

    An answer that was mended is held to more replications than those among which it was found. So are then the rivals,
    and whatever was found on the way, which a search that went on from the one plan need not have met.
    """
    main.clock.say("confirming on fresh replications")
    confirmation = confirmed(main, effort)
    assert main.best is not None
    for name, rival in rivals.items():
        if main.trial.choices.family(main.best) == name:
            rival.best = main.best
        elif rival.best is not None and len(main.order) > len(rival.order):
            rival.meet(main)
            if not rival.holds(rival.best):
                rival.best = rival.mend(rival.best)
                rival.best = None if rival.best is None else rival.descend(rival.best)
    if len(main.order) > effort.replications:
        fresh = range(confirmation.first, confirmation.first + effort.confirmations)  # to it as well
        for counts in _cheaper(main, rivals, range(effort.replications)):
            main.clock.say("a cheaper plan holds as much: confirming it")
            other = _confirm(main, counts, fresh)
            if other.keeps(main):
                main.best = counts
                return other
    return confirmation


def _cheaper(main: Search, rivals: Mapping[str, Search], every: range) -> list[Counts]:
    """Return the cheapest known plans that cost less than the result and meet the SLO target as it does."""
    assert main.best is not None
    known = dict.fromkeys([*main.archive.complete(every), *(rival.best for rival in rivals.values() if rival.best)])
    plans = {counts: judged(counts, main.outcomes(counts, every)) for counts in (main.best, *known)}
    likely = [
        plan
        for plan in plans.values()
        if plan.cost < plans[main.best].cost
        and plan.keeps(main.attainment, main.trial.slo_target.confidence)
        and main.choices.within_limits(plan.counts)
    ]
    likely.sort(key=lambda plan: (plan.cost, plan.counts))
    held = (plan.counts for plan in likely[:_MOST_CHEAPER] if main.holds(plan.counts, fully=True))
    return list(itertools.islice(held, _MOST_CONFIRMED))


def confirmed(search: Search, effort: Effort) -> Confirmation:
    """Confirm the result on fresh replications; enlarge it and repeat where too few meet the SLO target."""
    first = effort.replications
    for last in [False] * (_MOST_ROUNDS - 1) + [True]:
        assert search.best is not None
        fresh = range(first, first + effort.confirmations)
        confirmation = _confirm(search, search.best, fresh)
        if last or confirmation.keeps(search):
            break
        met = f"{confirmation.kept} of {len(fresh)} fresh replications meet the SLO target"
        search.clock.say(f"{met}; mending the plan")
        search.extend(fresh, search.best)
        mended = search.mend(search.best)
        if mended is None:  # what no purchase mends, such as outages, may leave no room for a margin
            search.extend((), search.best, margin=False)
            mended = search.mend(search.best)
        if mended is None:
            break
        search.tries = min(search.tries, FEWER_TRIES)
        search.best = _settled(search, mended)
        first += effort.confirmations
    return confirmation


def _settled(search: Search, counts: Counts) -> Counts:
    """Return a candidate that cannot be reduced further, starting from an enlarged one.

    The steps of a search are judged by the hardest replications alone, as the choices before found them. So what it
    ends with is run in all, and mended where it breaks too many: which are hard may change from one to the next.
    """
    held = None
    for _ in range(_MOST_DESCENTS):
        counts = search.descend(counts)
        if search.holds(counts, fully=True):
            held, counts = counts, search.leap(counts)
            if counts == held:
                break
        else:
            search.learn(counts)
            mended = search.mend(counts)
            if mended is None:
                break
            counts = mended
    return counts if held is None else held


def _confirm(search: Search, counts: Counts, fresh: range) -> Confirmation:
    """Run a choice on fresh replications."""
    outcome = judged(counts, search.outcomes(counts, fresh))
    return Confirmation(outcome=outcome, first=fresh.start, kept=int(outcome.kept(search.attainment).sum()))
