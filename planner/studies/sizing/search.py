"""The search by simulation: from the relaxation's start down to a plan from which nothing can be taken.

All choices meet the same replications. They are raced: replications come hardest first (as the relaxation ranks them),
and a choice is dropped as soon as more of them have broken the promise than may. One that stands after the hard ones is
run on the rest only once it is to be the answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.fleet.promise import LEAST_SHORTFALL
from planner.studies.sizing.choices import Counts
from planner.studies.sizing.evaluate import Archive, Outcome, Trial, Workers
from planner.studies.sizing.relaxation import Relaxation, solve_together
from planner.studies.sizing.survey import Prices, Survey, averaged, prices_of, survey

Floats = NDArray[np.float64]
_BATCH = 4  # runs between two looks: fixed, so that the answer does not depend on how many workers there are
_CALM = 4  # replications in a row that must keep the promise before the easier ones are taken as kept
_DESIGNED = 5  # replications that the start is to serve: the hardest of those that must keep the promise
_MOST_MARGIN = 4.0  # on demand: what needs more than that is no matter of luck
_MARGIN_STEP = 1.02
_MOST_TRIED = 24  # choices in a row that fail at one step before the next step is taken
_AMPLE = 1.5  # times what the relaxation needs: nodes of the run that figures are read off, so that nothing waits


class TimeUp(Exception):  # noqa: N818 - not an error: the best so far stands
    """The time that was given is over."""


@dataclass(slots=True)
class Clock:
    """How long the search may take, and whom to tell."""

    minutes: float = math.inf
    say: Callable[[str], None] = lambda _: None
    started_s: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise TimeUp where the time is over."""
        if time.monotonic() - self.started_s > 60.0 * self.minutes:
            raise TimeUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A choice over several replications."""

    counts: Counts
    cost: float
    """Mean over the replications."""
    net_present_cost_usd: float
    capital_usd: float
    worst: Floats
    """The least share in time of each replication, shape (replications,)."""
    shares: Floats
    """In time, shape (replications, months, workloads or 1)."""
    utilisation: Floats
    """Mean over the replications, shape (months,)."""

    def kept(self, in_time: float) -> NDArray[np.bool_]:
        """Say which replications keep a promised share, shape (replications,)."""
        return np.asarray(self.worst > in_time - LEAST_SHORTFALL)

    def service(self, in_replications: float) -> float:
        """Return the share in time that so many replications reach: their ⌈p·n⌉-th best."""
        enough = max(1, math.ceil(in_replications * self.worst.size - 1e-9))
        return float(np.sort(self.worst)[::-1][enough - 1])


def judged(counts: Counts, outcomes: Sequence[Outcome]) -> Judged:
    """Return a choice over its outcomes."""
    return Judged(
        counts=counts,
        cost=float(np.mean([each.cost for each in outcomes])),
        net_present_cost_usd=float(np.mean([each.net_present_cost_usd for each in outcomes])),
        capital_usd=float(np.mean([each.capital_usd for each in outcomes])),
        worst=np.array([each.worst for each in outcomes]),
        shares=np.stack([each.shares for each in outcomes]),
        utilisation=np.mean([each.utilisation for each in outcomes], axis=0),
    )


def spared(replications: int, share: float) -> int:
    """Return how many of some replications may break the promise: ⌊(1 − p)·n⌋."""
    return replications - math.ceil(share * replications - 1e-9)


class Surveyed:
    """Every replication's figures, and the least that its relaxation costs."""

    def __init__(self, trial: Trial, workers: Workers, replications: int) -> None:
        """Survey the replications, with nodes enough that no hour of their runs has to be planned anew."""
        choices = trial.choices
        self.trial = trial
        variants = 1 + max((len(each.dates) for each in choices.retirements), default=0)
        few = [survey(workers.own, choices.reference(day), 0) for day in range(variants)]
        one = Relaxation(trial, few, prices_of(trial, [few], bound=True), margin=_AMPLE).solve(whole=False)
        reference = choices.reference()
        if one is not None:
            reference = tuple(max(a, b) for a, b in zip(reference, one.counts(), strict=True))
        bought = reference[: len(choices.purchases)]
        days = [(*bought, *choices.reference(day)[len(bought) :]) for day in range(variants)]
        made = workers.map(survey, [(day, each) for each in range(replications) for day in days])
        self.surveys: list[list[Survey]] = [made[place : place + variants] for place in range(0, len(made), variants)]
        self.bound_prices: Prices = prices_of(trial, self.surveys, bound=True)
        self.prices: Prices = prices_of(trial, self.surveys, bound=False)

    def least_costs(self, allowed: Sequence[bool], *, working: bool = False) -> Floats:
        """Return each replication's least cost with some purchases alone, infinity where nothing keeps the promise."""
        promise = self.trial.promise
        least = self._least(self.surveys, allowed, working=working)
        if working or not (promise.each_month and promise.of_workload):
            return least
        means = [[averaged(each, promise.in_time_fraction) for each in days] for days in self.surveys]
        return np.maximum(least, self._least(means, allowed))  # both are bounds: of peaks, and of the month's mean

    def _least(self, surveys: Sequence[list[Survey]], allowed: Sequence[bool], *, working: bool = False) -> Floats:
        solved = [
            Relaxation(self.trial, each, self.bound_prices, working=working).solve(whole=False, allowed=allowed)
            for each in surveys
        ]
        return np.array([np.inf if each is None else each.cost for each in solved])

    def predicted(self, counts: Counts) -> float:
        """Return what the nodes of a choice cost, as the relaxation counts it."""
        choices, place, cost = self.trial.choices, len(self.trial.choices.purchases), self.prices.fixed
        cost += float(np.dot(counts[:place], self.prices.column[:place]))
        for each, day in zip(choices.retirements, counts[place:], strict=True):
            cost += float(self.prices.column[place + day])
            place += 1 + len(each.dates)
        return cost


class Search:
    """A search among some purchases, over the replications that were surveyed."""

    def __init__(
        self, surveyed: Surveyed, archive: Archive, clock: Clock, allowed: Sequence[bool], *,
        tries: int = _MOST_TRIED, gap: float = 0.0,
    ) -> None:  # fmt: skip
        """Rank the replications by what they cost at least; ``tries`` choices in a row may fail at one step."""
        self.tries, self.gap = tries, gap
        self.trial, self.surveyed, self.archive, self.clock = surveyed.trial, surveyed, archive, clock
        self.allowed = tuple(allowed)
        self.in_time = self.trial.promise.in_time_fraction
        self.spared = spared(len(surveyed.surveys), self.trial.promise.in_replications_fraction)
        least = surveyed.least_costs(allowed)
        self.decisive = int(np.argsort(-least, kind="stable")[self.spared])
        """The replication that decides the bound: of those that must keep the promise the hardest."""
        self.bound = float(least[self.decisive])
        """No choice that keeps the promise in enough of these replications costs less; infinity where none does."""
        hard = surveyed.least_costs(allowed, working=True) if math.isfinite(self.bound) else least
        self.order = [int(place) for place in np.argsort(-hard, kind="stable")]
        self.design = self.order[self.spared : self.spared + _DESIGNED]
        self._failed: list[NDArray[np.int64]] = []
        self.best: Counts | None = None

    def promising(self, in_time: float) -> Search:
        """Return the same search for another promised share, with fewer tries."""
        trial = dataclasses.replace(
            self.trial, promise=dataclasses.replace(self.trial.promise, in_time_fraction=in_time)
        )
        other = Surveyed.__new__(Surveyed)
        other.trial, other.surveys = trial, self.surveyed.surveys
        other.bound_prices, other.prices = self.surveyed.bound_prices, self.surveyed.prices
        return Search(other, self.archive, self.clock, self.allowed, tries=4)

    def holds(self, counts: Counts, *, fully: bool = False) -> bool:
        """Say whether a choice keeps the promise in enough replications, hardest first."""
        reach = self._reach(counts)
        if any((reach <= failed).all() for failed in self._failed):
            return False  # one with as much at every date, or more, did not
        broken = calm = 0
        for first in range(0, len(self.order), _BATCH):
            self.clock.check()
            for outcome in self.archive.outcomes(counts, self.order[first : first + _BATCH]):
                kept = outcome.worst > self.in_time - LEAST_SHORTFALL
                broken, calm = broken + (not kept), calm + 1 if kept else 0
            if broken > self.spared:
                self._failed.append(reach)
                return False
            if not fully and first + _BATCH >= 2 * self.spared + _CALM and calm >= _CALM:
                return True
        return True

    def _reach(self, counts: Counts) -> NDArray[np.int64]:
        """Return nodes bought of each cluster up to each date, then the days of retirements, later being more."""
        choices = self.trial.choices
        bought = len(choices.purchases)
        groups, nodes = choices.group_of, np.array(counts[:bought], dtype=np.int64)
        dates = [purchase.date for purchase in choices.purchases]
        reached = [
            sum(int(nodes[j]) for j in range(bought) if groups[j] == groups[i] and dates[j] <= dates[i])
            for i in range(bought)
        ]
        stays = [len(each.dates) + 1 if day == 0 else day
                 for each, day in zip(choices.retirements, counts[bought:], strict=True)]  # fmt: skip
        return np.array([*reached, *stays], dtype=np.int64)

    def run(self, start: Counts | None = None) -> Counts | None:
        """Return the best choice found, which keeps the promise in these replications; None where none was."""
        if not math.isfinite(self.bound):
            return None
        begun = [self._start(), start if start is not None and self.holds(start, fully=True) else None]
        # A start among all parts may mix them, which single steps from the best plan of one part hardly find.
        self.best = min((each for each in begun if each is not None), key=self.surveyed.predicted, default=None)
        held = self.best
        while self.best is not None:
            self.best = self._descend(self.best)
            if self.holds(self.best, fully=True):
                return self.best
            self.learn(self.best)
            self.best = self.mend(self.best)
        self.best = held
        return held

    def learn(self, counts: Counts) -> None:
        """Rank the replications by what a choice keeps in each: better than by what the relaxation thought."""
        known = self.archive.known
        self.order.sort(key=lambda each: known[counts, each].worst if (counts, each) in known else 1.0)

    def extend(self, replications: Sequence[int], counts: Counts) -> None:
        """Take in further replications, of which no more may break the promise than chance would explain."""
        self.order += [each for each in replications if each not in self.order]
        share, count = self.trial.promise.in_replications_fraction, len(self.order)
        self.spared = max(0, spared(count, share) - math.ceil(math.sqrt(share * (1.0 - share) * count) / 2.0))
        self._failed.clear()
        self.learn(counts)

    def meet(self, other: Search) -> None:
        """Take over the replications of another search, in its order."""
        self.order, self.spared = list(other.order), other.spared
        self._failed.clear()

    def _start(self) -> Counts | None:
        """Return the relaxation's choice at the least margin on demand at which the simulation keeps the promise."""
        low, high, step, held = 1.0, 1.0, 0.05, None
        while held is None:
            made = self._relaxed(high)
            if made is None or high > _MOST_MARGIN:
                made = self._relaxed(low)  # limits allow no more: mend what is short by single nodes
                return None if made is None else self.mend(made)
            if self.holds(made):
                stands = self.holds(made, fully=True)
                self.learn(made)
                held = made if stands else None
            if held is None:
                low, high, step = high, high * (1.0 + step), 1.5 * step
        while high / low > _MARGIN_STEP and high > 1.0:
            middle = math.sqrt(low * high)
            made = self._relaxed(middle)
            if made is not None and self.holds(made, fully=True):
                high, held = middle, made
            else:
                low = middle
        return held

    def _relaxed(self, margin: float) -> Counts | None:
        """Return the relaxation's choice for the replications that decide, with a margin on demand."""
        self.clock.check()
        programs = [
            Relaxation(self.trial, self.surveyed.surveys[each], self.surveyed.prices, margin, working=True)
            for each in self.design
        ]
        relaxed = solve_together(programs, whole=True, allowed=self.allowed)
        made = None if relaxed is None else relaxed.counts()
        return made if made is not None and self.trial.choices.within_limits(made) else None

    def mend(self, counts: Counts) -> Counts | None:
        """Return one with a little more that keeps the promise, the cheapest found; None where limits forbid it."""
        choices, step = self.trial.choices, 1
        places = [place for place, allowed in enumerate(self.allowed) if allowed]
        while step < 4 * (sum(counts) + 8):
            grown = [_moved(counts, {place: step}) for place in places]
            grown = [each for each in grown if choices.within_limits(each)]
            for each in sorted(grown, key=self.surveyed.predicted):
                if self.holds(each):
                    return each
            if not grown:
                return None
            step = step + 1 if step < 4 else 2 * step
        return None

    def _descend(self, counts: Counts) -> Counts:
        """Take away, move later and swap, in ever smaller steps, while the promise is kept."""
        bought = counts[: len(self.trial.choices.purchases)]
        step = max(1, 2 ** int(math.log2(max(1, sum(bought) // 16))))
        while step:
            tried, moves = 0, self._moves(counts, step)
            while (found := next(moves, None)) is not None and tried < self.tries:
                if self.holds(found):
                    counts, tried = found, 0
                    self.best = counts
                    if self._tell() <= self.gap:
                        return counts
                    moves = self._moves(counts, step)
                else:
                    tried += 1
            step //= 2
        return counts

    def _tell(self) -> float:
        """Say what the best so far costs, about; return how far it is from the bound."""
        assert self.best is not None
        cost = self.surveyed.predicted(self.best)
        gap = max(0.0, 1.0 - self.bound / cost)
        self.clock.say(
            f"{self.archive.workers.runs:,} runs: {self.trial.choices.words(self.best)}; about {cost / 1e6:,.2f} M, "
            f"bound {self.bound / 1e6:,.2f} M, gap {gap:.1%}"
        )
        return gap

    def _moves(self, counts: Counts, step: int) -> Iterator[Counts]:
        """Yield cheaper choices near one, those that save most first."""
        choices, before = self.trial.choices, self.surveyed.predicted(counts)
        bought = len(choices.purchases)
        near: set[Counts] = set()
        for place in range(bought):
            if counts[place]:
                near.add(_moved(counts, {place: -min(step, counts[place])}))
        for (out, into), times in itertools.product(itertools.permutations(range(bought), 2), (1, 2, 3)):
            if not counts[out] or not self.allowed[into]:
                continue
            taken = min(times * step, counts[out])  # several of a part may be worth one of another
            ratio = self._worth(out) / max(self._worth(into), 1e-12)
            for given in {taken, math.ceil(taken * ratio), math.floor(taken * ratio), math.ceil(taken * ratio) + 1}:
                if given > 0:
                    near.add(_moved(counts, {out: -taken, into: given}))
        for place, each in enumerate(choices.retirements):
            for day in range(1 + len(each.dates)):
                near.add(tuple(day if at == bought + place else count for at, count in enumerate(counts)))
        cheaper = [(self.surveyed.predicted(other), other) for other in near]
        for cost, other in sorted(cheaper):
            if cost < before - 1e-9 * abs(before) and choices.within_limits(other):
                yield other

    def _worth(self, purchase: int) -> float:
        """Return what a node serves of the mean traffic of the last month, in its proportions."""
        first = self.surveyed.surveys[self.decisive][0]
        place = self.trial.choices.place(self.trial.choices.purchases[purchase].name)
        asked, rates = first.demand[-1].sum(axis=0), first.rates[place, :, -1]
        with np.errstate(divide="ignore"):
            needed = np.where(asked > 0, asked / rates, 0.0).sum()
        return 0.0 if not np.isfinite(needed) or needed <= 0 else float(1.0 / needed)


def _moved(counts: Counts, changes: dict[int, int]) -> Counts:
    return tuple(count + changes.get(place, 0) for place, count in enumerate(counts))
