"""The search by simulation: from the relaxation's start down to a plan that cannot be reduced.

Below stand where it may go from a choice in small steps, the search itself, and choices at the limits, where nothing
else begins it, or near its end, held against it as they are run.

All choices meet the same replications. They are raced: replications come hardest first (as the relaxation ranks them),
and a choice is dropped as soon as more of them have broken the SLO target than may. One that stands after the hard
ones is run on the rest only once it is to be the answer.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Floats, Ints
from planner.plan.slo_target import LEAST_SHORTFALL
from planner.sizing.choices import Choices, Counts, due_h
from planner.sizing.evaluate import Archive, Clock, SizingOutcome, gap_fraction
from planner.sizing.relaxation import margins_between
from planner.sizing.replications import Surveyed, allowed_misses

_MOST_LISTED = 20_000  # choices, begun or whole, that are looked at before there are too many to try each
_MOST_RENTING = 2_000  # the same where hours are rented, which takes milliseconds to predict


def moved(counts: Counts, changes: dict[int, int]) -> Counts:
    """Return a candidate with nodes added or removed at some indices."""
    return tuple(count + changes.get(place, 0) for place, count in enumerate(counts))


def carried_on(before: Counts, after: Counts, may: Callable[[Counts], bool]) -> Counts:
    """Return the candidate after repeating a reducing step as often as allowed, by doubling, then halving.

    Where few nodes break what many keep, that ends where single steps would. Other steps are taken once: what comes in
    place of what is worth another look each time.
    """
    step = [now - earlier for earlier, now in zip(before, after, strict=True)]
    times, is_growing = int(max(step) <= 0 > min(step)), True
    while times:
        further = tuple(nodes + times * change for nodes, change in zip(after, step, strict=True))
        is_growing &= (allowed := min(further) >= 0 and may(further))
        after = further if allowed else after
        times = 2 * times if is_growing else times // 2
    return after


_BATCH = 4  # runs between two looks: fixed, so that the answer does not depend on how many workers there are
_CALM = 4  # replications in a row that must meet the SLO target before the easier ones are taken as kept
_MOST_MARGIN = 4.0  # on demand: what needs more than that is no matter of luck
_MOST_STARTS = 14  # margins that are tried
_MENDED_BY = 0.01  # of the nodes: what is added for a stretch that is short
_MENDED_FASTER = 1.2  # by how much more at the next try
_MOST_MENDED = 20
_LEAP_FROM = 0.92  # of the cost: about where a leap begins, to be mended from there
_LEAST_SAVED = 0.002  # of the cost: what a leap must save to be worth its runs
_MOST_TRIED = 12  # choices in a row that fail at one step before the next step is taken
_MOST_LEAST = 4  # choices that meet the SLO target and are predicted to cost less: of those the cheapest is taken
_SAME = 1e-9  # of the cost: what is no difference
RIVAL_TRIES = 4  # the same where only a comparison is wanted


class Search:
    """A search among some purchases, over the surveyed replications."""

    def __init__(
        self, surveyed: Surveyed, archive: Archive, clock: Clock, allowed: Sequence[bool], *,
        tries: int = _MOST_TRIED, like: Search | None = None,
    ) -> None:  # fmt: skip
        """Rank the replications by their lower bounds; ``tries`` candidates in a row may fail at one step.

        A search ``like`` another takes over what that one has learned of which replications are hard.
        """
        self.tries, self.gap = tries, 0.0
        self.trial, self.surveyed, self.archive, self.clock = surveyed.trial, surveyed, archive, clock
        self.choices = surveyed.choices
        self.allowed = tuple(allowed)
        self.attainment = self.trial.slo_target.attainment
        self.allowed_misses = allowed_misses(len(surveyed.surveys), self.trial.slo_target.confidence)
        least = surveyed.least_costs(allowed)
        self.decisive = int(np.argsort(-least, kind="stable")[self.allowed_misses])
        """The replication that decides the bound: of those that must meet the SLO target the hardest."""
        self.bound = max(float(least[self.decisive]), surveyed.least_with_rent(allowed))
        """No choice that meets the SLO target in enough of these replications costs less; infinity where none does."""
        if like is None and math.isfinite(self.bound):
            least = surveyed.least_costs(allowed, working=True)
        self.order: list[int] = np.argsort(-least, kind="stable").tolist()
        if like is not None:
            self.order = [replication for replication in like.order if replication < len(least)]
        self.design = surveyed.designed(self.order, self.allowed_misses)
        self._broke: dict[int, list[NDArray[np.int64]]] = {}
        """By replication: what choices that missed the SLO target in it had bought up to each date."""
        self.best: Counts | None = None
        self.margin, self.started = np.ones(0), 0.0
        """Margins on demand at which the search began, by stretch of months, and what that was predicted to cost."""

    def promising(self, attainment: float) -> Search:
        """Return the same search for another SLO attainment, with fewer tries."""
        slo_target = self.trial.slo_target.model_copy(update={"attainment": attainment})
        other = copy.copy(self.surveyed)  # the surveys do not depend on what is promised
        other.trial = dataclasses.replace(self.trial, slo_target=slo_target)
        return Search(other, self.archive, self.clock, self.allowed, tries=RIVAL_TRIES, like=self)

    def outcomes(self, counts: Counts, replications: Sequence[int]) -> list[SizingOutcome]:
        """Return a candidate's outcomes in some replications."""
        return self.archive.outcomes([self.surveyed.run_of(counts, replication) for replication in replications])

    def holds(self, counts: Counts, *, fully: bool = False) -> bool:
        """Return whether a candidate meets the SLO target in enough replications, hardest first."""
        if self.is_refuted(counts):
            return False
        # Harder ones than those that the best so far is the last to keep break with it, so they are not asked here.
        last = self.order[self.allowed_misses : self.allowed_misses + _BATCH]
        best, known, run_of = self.best, self.archive.known, self.surveyed.run_of
        if not fully and best is not None and self.allowed_misses and all(run_of(best, at) in known for at in last):
            self.clock.check()
            if sum(not kept for kept in self._kept(counts, last).values()) > 1:
                return False
        # A start is mended by what its own runs show.
        inferred = set() if fully or self.best is None else self._inferred(counts)
        broken, calm = len(inferred), 0
        for first in range(0, len(self.order), _BATCH):
            self.clock.check()
            batch = self.order[first : first + _BATCH]
            kept = self._kept(counts, [replication for replication in batch if replication not in inferred])
            for replication in batch:
                calm = calm + 1 if kept.get(replication, False) else 0
            broken += sum(not kept_one for kept_one in kept.values())
            if broken > self.allowed_misses:
                return False
            if not fully and first + _BATCH >= 2 * self.allowed_misses + _CALM and calm >= _CALM:
                return True
        return True

    def is_refuted(self, counts: Counts) -> bool:
        """Return whether known runs already show too many missed SLO targets for a candidate."""
        return len(self._inferred(counts)) > self.allowed_misses

    def _inferred(self, counts: Counts) -> set[int]:
        """Return the replications known to be missed, because a candidate with no less capacity missed them."""
        reach = self.choices.reach(counts)
        return {
            replication
            for replication in self.order
            if any((reach <= broke).all() for broke in self._broke.get(replication, ()))
        }

    def _kept(self, counts: Counts, replications: Sequence[int]) -> dict[int, bool]:
        """Run a candidate in some replications; return in which it meets the SLO target, and record misses."""
        outcomes = zip(replications, self.outcomes(counts, replications), strict=True)
        kept = {replication: outcome.worst > self.attainment - LEAST_SHORTFALL for replication, outcome in outcomes}
        for replication, kept_one in kept.items():
            if not kept_one:
                self._broke.setdefault(replication, []).append(self.choices.reach(counts))
        return kept

    def run(self, start: Counts | None = None) -> Counts | None:
        """Return the cheapest candidate of the search that meets the SLO target, or None.

        It begins with a choice that is known to keep it, or with one that the relaxation makes.
        """
        if not math.isfinite(self.bound):
            return None
        self.best, held = self._start() if start is None else start, None
        while self.best is not None and (held is None or self._cheaper(self.best, held)):
            if self.holds(self.best, fully=True):
                held = self.best
                self.best = self.descend(held)
                if self.best == held and self.tries == _MOST_TRIED:
                    self.best = self.leap(held)
            else:
                self.learn(self.best)
                self.best = self.mend(self.best)
        self.best = held if held is None or not self.tries else self._least(held)
        return self.best

    def _least(self, held: Counts) -> Counts:
        """Return the cheapest candidate that meets the SLO target, by trying all cheaper ones where they are few.

        None costs less than the bound, which counts energy of work besides; rent is not predicted as well.
        """
        least = self.bound + min(0.0, self.surveyed.prices.fixed - self.surveyed.bound_prices.fixed)
        least = -math.inf if self.surveyed.rents else least - 1e-6 * abs(least)
        below = sorted((self.surveyed.predicted(counts), counts) for counts in self.below(held) or [])
        kept = (counts for cost, counts in below if cost > least and self.holds(counts, fully=True))
        return min([held, *itertools.islice(kept, _MOST_LEAST)], key=lambda counts: self.dearer_by(counts, held))

    def _cheaper(self, one: Counts, other: Counts) -> bool:
        """Return whether a candidate costs less than another, or has fewer nodes at the same cost."""
        dearer, nodes = self.dearer_by(one, other), [sum(of[: len(self.choices.purchases)]) for of in (one, other)]
        same = _SAME * abs(self.surveyed.predicted(other))
        return dearer < -same or (dearer <= same and nodes[0] < nodes[1])

    def dearer_by(self, one: Counts, other: Counts) -> float:
        """Return how much more a candidate costs than another, from known runs and predictions."""
        return self.surveyed.dearer_by(one, other, self.archive.known)

    def learn(self, counts: Counts) -> None:
        """Rank the replications by a candidate's simulated attainment in each.

        Those that twice as much would not mend, such as long outages, come first: they are the ones to be spared.
        """
        known, run_of = self.archive.known, self.surveyed.run_of
        runs = {replication: run_of(counts, replication) for replication in self.order}
        worst = {replication: known[run].worst for replication, run in runs.items() if run in known}
        broken = [replication for replication, share in worst.items() if share <= self.attainment - LEAST_SHORTFALL]
        bought = len(self.choices.purchases)
        twice = (*(2 * nodes for nodes in counts[:bought]), *counts[bought:])
        hopeless = {replication for replication, kept in self._kept(twice, broken).items() if not kept}
        self.order.sort(key=lambda replication: (replication not in hopeless, worst.get(replication, 1.0)))

    def extend(self, replications: Sequence[int], counts: Counts, *, margin: bool = True) -> None:
        """Add replications; with a margin, fewer of them may miss the SLO target, by half a standard error."""
        self.order += [replication for replication in replications if replication not in self.order]
        share, count = self.trial.slo_target.confidence, len(self.order)
        fewer = math.ceil(math.sqrt(share * (1.0 - share) * count) / 2.0) if margin else 0
        self.allowed_misses = max(0, allowed_misses(count, share) - fewer)
        self.learn(counts)

    def meet(self, other: Search) -> None:
        """Take over the replications of another search, in its order."""
        self.order, self.allowed_misses = list(other.order), other.allowed_misses

    def _start(self) -> Counts | None:
        """Return the relaxation's candidate at the smallest demand margins that meet the SLO target in simulation.

        Each stretch of months between two deliveries has a margin of its own, halved between one at which it was short
        and one at which nothing was: what the relaxation leaves out does not weigh alike on all.
        """
        stretches = self._stretches()
        margin = np.ones(1 + stretches.max())
        short_at, enough_at = np.zeros_like(margin), np.full_like(margin, np.inf)
        held: Counts | None = None
        last = made = self._relaxed(margin[stretches])
        for _ in range(_MOST_STARTS if self.tries > RIVAL_TRIES else _MOST_STARTS // 2):
            if made is None or margin.max() > _MOST_MARGIN:
                break
            last = made
            if held is None:
                self.margin, self.started = margin, self.surveyed.predicted(made)
            if self.holds(made):
                enough_at = np.minimum(enough_at, margin)
                if held is None or self._cheaper(made, held):
                    held, self.margin, self.started = made, margin, self.surveyed.predicted(made)
            else:
                short_at = np.where(self._short(made, stretches), np.maximum(short_at, margin), short_at)
            margin = margins_between(margin, short_at, enough_at)
            if np.array_equal(margin, enough_at):
                break
            made = self._relaxed(margin[stretches])
        return held if held is not None or last is None else self.mend(last)  # what limits forbid is mended by nodes

    def _stretches(self) -> Ints:
        """Return each month's period between deliveries, counted from 0."""
        moments = np.searchsorted(self.trial.choices.moments_h(), self.trial.choices.plan.month_edges_h[1:])
        return np.asarray(np.unique(moments, return_inverse=True)[1], dtype=np.intp)

    def _short(self, counts: Counts, stretches: Ints) -> Bools:
        """Return the periods in which a candidate misses the SLO target in replications that must meet it."""
        runs = (self.surveyed.run_of(counts, replication) for replication in self.order[self.allowed_misses :])
        must = [self.archive.known[run].shares for run in runs if run in self.archive.known]
        short = np.zeros(1 + stretches.max(), dtype=np.bool_)
        if any(len(shares) != stretches.size for shares in must):  # promised over the whole time
            return ~short
        for shares in must:
            short[stretches[(shares <= self.attainment - LEAST_SHORTFALL).any(axis=1)]] = True
        return short

    def _relaxed(self, margin: Floats, allowed: Sequence[bool] | None = None) -> Counts | None:
        """Return the relaxation's candidate for the decisive replications, with a margin on monthly demand."""
        self.clock.check()
        relaxed = self.surveyed.relaxed(self.design, margin, self.allowed if allowed is None else allowed)
        made = None if relaxed is None else relaxed.counts()
        return made if made is not None and self.choices.within_limits(made) else None

    def mend(self, counts: Counts) -> Counts | None:
        """Return a slightly larger candidate that meets the SLO target; None where limits forbid it.

        Where a stretch of months is short, more is bought for it: of what comes last before it, which costs least.
        """
        tried = itertools.islice(self._ever_wider(counts), _MOST_MENDED)
        mended, step = next((grown for grown in tried if self.holds(grown)), None), 1
        bundles = [bundle for bundle in self.choices.bundles() if self.allowed[bundle[0]]]
        # Or a few more nodes of one purchase, the cheapest first.
        while mended is None and step < 4 * (sum(counts) + 8):
            every = [moved(counts, dict.fromkeys(bundle, step)) for bundle in bundles]
            grown = [candidate for candidate in every if self.choices.within_limits(candidate)]
            mended = next((more for more in sorted(grown, key=self.surveyed.predicted) if self.holds(more)), None)
            if not grown:
                break
            step = step + 1 if step < 4 else 2 * step
        return mended

    def _ever_wider(self, counts: Counts) -> Iterator[Counts]:
        """Yield a candidate, then larger ones for the periods in which the last was short, within limits."""
        stretches, share = self._stretches(), _MENDED_BY
        while True:
            yield counts
            wider = self._widened(counts, self._short(counts, stretches), share)
            if wider == counts or not self.choices.within_limits(wider):
                return
            counts, share = wider, share * _MENDED_FASTER

    def _widened(self, counts: Counts, short: Bools, share: float) -> Counts:
        """Return a candidate with a share more nodes for each short period, by the cheapest suitable purchase.

        Of a part that is there, and one that limits allow: what a vendor allots no more of, the next best part serves.
        """
        bundles = [one for one in self.choices.bundles() if self.allowed[one[0]] and self.worth(one) > 0]
        price = {bundle: self.price(bundle) / self.worth(bundle) for bundle in bundles}
        parts = [purchase.accelerator for purchase in self.choices.purchases]
        used = {part for part, nodes in zip(parts, counts, strict=False) if nodes}
        plan, stretches = self.trial.choices.plan, self._stretches()
        serves = {}  # the stretches of months that a purchase serves, in part or whole
        for bundle in bundles:
            cluster = plan.clusters[self.choices.place(self.choices.purchases[bundle[0]].name)]
            begin = int(np.searchsorted(plan.month_edges_h[1:], max(due_h(cluster), 0.0), side="right"))
            end = int(np.searchsorted(plan.month_edges_h[1:-1], cluster.retire_h))
            serves[bundle] = range(stretches[min(begin, stretches.size - 1)], 1 + stretches[end])
        more = max(1, round(share * sum(counts[: len(self.choices.purchases)])))
        for stretch in np.flatnonzero(short):
            wider = {one: moved(counts, dict.fromkeys(one, more)) for one in bundles if stretch in serves[one]}
            able = [bundle for bundle, grown in wider.items() if self.choices.within_limits(grown)]
            last = [bundle for bundle in able if serves[bundle][0] == max(serves[other][0] for other in able)]
            if last:
                counts = wider[min(last, key=lambda bundle: (parts[bundle[0]] not in used, price[bundle]))]
        return counts

    def descend(self, counts: Counts) -> Counts:
        """Return a cheaper candidate: remove, delay and exchange nodes in ever smaller steps."""
        step = max(1, 2 ** int(math.log2(max(1, sum(counts[: len(self.choices.purchases)]) // 64))))
        while step:
            tried, moves = 0, self.near(counts, step)
            while (move := next(moves, None)) is not None and tried < self.tries:
                if self._improves(counts, move):
                    self.best = move
                    counts, tried = carried_on(counts, move, functools.partial(self._improves, counts)), 0
                    self.best = counts
                    if self._tell() <= self.gap:
                        return counts
                    moves = self.near(counts, step)
                else:
                    tried += 1
            step //= 2
        return counts

    def _improves(self, counts: Counts, other: Counts) -> bool:
        """Return whether another candidate is within limits, meets the SLO target and costs less.

        What a prediction leaves out may turn it: a plan of which one more engineer has to be paid, say.
        """
        return self.choices.within_limits(other) and self.holds(other) and self._cheaper(other, counts)

    def leap(self, counts: Counts) -> Counts:
        """Return a cheaper candidate that drops one purchase entirely; the same where none meets the SLO target.

        The relaxation says what stands in for it, at margins lower than the search has come to; what is short then is
        mended as long as that costs less. No small step leads from a part that stays to one that is sold after a year
        and another that comes then.
        """
        if not self.started:
            return counts
        low = self.margin * _LEAP_FROM * self.surveyed.predicted(counts) / self.started
        most, stretches = self.surveyed.predicted(counts) * (1.0 - _LEAST_SAVED), self._stretches()
        used = [place for place, nodes in enumerate(counts[: len(self.choices.purchases)]) if nodes]
        without = [tuple(may and at != place for at, may in enumerate(self.allowed)) for place in used]
        starts = {made for allowed in without if (made := self._relaxed(low[stretches], allowed)) is not None}
        for start in sorted(starts, key=self.surveyed.predicted):
            cheaper = itertools.takewhile(lambda grown: self.surveyed.predicted(grown) < most, self._ever_wider(start))
            leapt = next((grown for grown in cheaper if self.holds(grown)), None)
            if leapt is not None:
                return leapt
        return counts

    def _tell(self) -> float:
        """Report the best candidate's approximate cost; return its gap to the bound."""
        assert self.best is not None
        cost = self.surveyed.predicted(self.best)
        gap = gap_fraction(cost, self.bound)
        self.clock.say(
            f"{self.archive.workers.runs:,} runs: {self.choices.words(self.best)}; about {cost / 1e6:,.2f} M, "
            f"bound {self.bound / 1e6:,.2f} M, gap {gap:.1%}"
        )
        return gap

    def price(self, bundle: Sequence[int]) -> float:
        """Return the cost of one node of each of some purchases."""
        none = (0,) * (len(self.choices.purchases) + len(self.choices.retirements))
        return self.surveyed.predicted(moved(none, dict.fromkeys(bundle, 1))) - self.surveyed.predicted(none)

    def worth(self, bundle: Sequence[int]) -> float:
        """Return the worth of a node of some purchases in the decisive replication (:meth:`Surveyed.worth`)."""
        return self.surveyed.worth(bundle[0], self.decisive)

    def near(self, counts: Counts, step: int) -> Iterator[Counts]:
        """Yield cheaper candidates nearby: fewer nodes, other accelerators or dates; largest saving first."""
        bundles, before = self.choices.bundles(), self.surveyed.predicted(counts)
        slack = 1e-9 * abs(before)
        most = {bundle: min(counts[place] for place in bundle) for bundle in bundles}
        less = {moved(counts, dict.fromkeys(bundle, -min(step, most[bundle]))) for bundle in bundles if most[bundle]}
        near = {*self.retired(counts), *self.up_to_a_discount(counts)}
        worth = {bundle: self.worth(bundle) for bundle in bundles}
        exchanges = [
            (out, into)
            for out, into in itertools.permutations(bundles, 2)
            if most[out] and self.allowed[into[0]] and self.choices.exchangeable(out, into)
        ]
        for (out, into), times in itertools.product(exchanges, (1, 2, 3)):
            taken = min(times * step, most[out])  # several of a part may be worth one of another
            alike = taken * worth[out] / max(worth[into], 1e-12)
            for given in {taken, math.ceil(alike), math.floor(alike), math.ceil(alike) + 1}:
                if given > 0:
                    near.add(moved(counts, dict.fromkeys(out, -taken) | dict.fromkeys(into, given)))
        for group in (less, near - less):
            for cost, other in sorted((self.surveyed.predicted(other), other) for other in group):
                # Less at the same cost is a move too: nodes paid by the hour cost nothing until they work.
                saves = cost <= before + slack if group is less else cost < before - slack
                if saves and self.choices.within_limits(other):
                    yield other

    def below(self, counts: Counts) -> list[Counts] | None:
        """Return every allowed candidate that costs less than one; None where there are many."""
        bought, most = len(self.choices.purchases), self.surveyed.predicted(counts) * (1.0 - 1e-9)
        standing = self.surveyed.standing  # which never falls with more nodes, as rent of hours at work may
        open_to = self.trial.choices.choose.clusters
        days = itertools.product(*(range(1 + len(retirement.dates)) for retirement in self.choices.retirements))
        below, begun = list[Counts](), [((0,) * bought + days_of, 0) for days_of in days]
        for _ in range(_MOST_RENTING if self.surveyed.rents else _MOST_LISTED):
            if not begun:
                return below
            chosen, place = begun.pop()
            if standing(chosen) >= most:
                continue
            if place < bought:
                begun.append((chosen, place + 1))
                if self.allowed[place] and chosen[place] < open_to[self.choices.purchases[place].cluster].max_nodes:
                    begun.append((moved(chosen, {place: 1}), place))
            elif self.surveyed.predicted(chosen) < most and self.choices.within_limits(chosen):
                below.append(chosen)
        return None

    def up_to_a_discount(self, counts: Counts) -> Iterator[Counts]:
        """Yield candidates with enough more nodes of one purchase to reach its next volume discount."""
        for place in range(len(self.choices.purchases)):
            for nodes in self.choices.tiers(place) if counts[place] else ():
                if nodes > counts[place]:
                    yield moved(counts, {place: nodes - counts[place]})

    def retired(self, counts: Counts) -> Iterator[Counts]:
        """Yield candidates with one retirement on another date."""
        bought = len(self.choices.purchases)
        for place, retirement in enumerate(self.choices.retirements):
            for day in range(1 + len(retirement.dates)):
                yield tuple(day if at == bought + place else count for at, count in enumerate(counts))


_COMPARED = 4  # replications in which two choices' costs are held against each other: they meet the same chance
_NEAR = 1.1  # times what the best is predicted to cost: further off, no error of a prediction makes up for it
_MOST_ALIKE = 8  # times the nodes: where a part serves next to nothing, no number of it stands in for another
_MOST_NEAR = 12  # choices that are run beside it
_MOST_ROUNDS = 4
_SHARES = (1.0, 0.5, 0.75, 0.25)  # of the most of one purchase
_LEAST_AS_RUN = 1e-6  # of the cost: less is no difference


def searched(search: Search, tries: int) -> Counts | None:
    """Return a search's best candidate; start from the largest allowed one where the relaxation has no margin.

    That is far from its best, so that as many tries are taken from there, at least.
    """
    if search.run() is None and math.isfinite(search.bound):
        start = next((counts for counts in fullest(search.trial.choices, search.allowed) if search.holds(counts)), None)
        if start is not None:
            search.tries = max(search.tries, tries)
            search.run(start)
    return search.best


def fullest(choices: Choices, allowed: Sequence[bool]) -> Iterator[Counts]:
    """Yield the candidates with the most of one purchase within limits, then of the others, without retirements.

    Then those that have a part of that of the one, and as much of the others: where a budget allows much of a part that
    serves little, or little of one that serves much, what does may lie between.
    """
    groups, (least, most) = choices.group_of, choices.nodes_allowed()
    places = [place for place in range(len(choices.purchases)) if allowed[place]]
    first_of = [next((place for place in places if groups[place] == group), None) for group in range(len(least))]
    fewest = {place: int(nodes) for place, nodes in zip(first_of, least, strict=True) if nodes}
    if None in fewest:  # something has to be bought that is not allowed
        return
    for share, first in itertools.product(_SHARES, places):
        nodes = [fewest.get(place, 0) for place in range(len(choices.purchases))]
        for turn, place in enumerate((*sorted(places, key=lambda at: at != first), first)):
            taken = sum(nodes[at] for at in places if groups[at] == groups[place])
            low, high = 0, int(most[groups[place]]) - taken
            while low < high:  # limits that forbid some nodes forbid more of them
                middle = (low + high + 1) // 2
                if choices.within_limits(_with(choices, nodes, place, middle)):
                    low = middle
                else:
                    high = middle - 1
            nodes[place] += low if turn else int(share * low)
        if choices.within_limits(made := _with(choices, nodes, first, 0)):
            yield made


def _with(choices: Choices, nodes: list[int], place: int, more: int) -> Counts:
    """Return a candidate with a few more nodes of one purchase."""
    return moved((*nodes, *(0 for _ in choices.retirements)), {place: more})


def cheaper_as_run(search: Search, counts: Counts) -> Counts:
    """Return a nearby candidate that meets the SLO target and costs less in simulation, or the same one.

    A search goes by predictions. These leave out what is no figure of a node, such as energy of work and people who
    come whole; and where hours at work are rented they are off by some hundredths, since who works when is a matter of
    each hour.
    """
    few = range(min(_COMPARED, len(search.surveyed.surveys)))
    for _ in range(_MOST_ROUNDS):
        before, limit = counts, _NEAR * search.surveyed.predicted(counts)
        near = sorted((search.surveyed.predicted(other), other) for other in _neighbours(search, counts))
        tried = [other for predicted, other in near[:_MOST_NEAR] if predicted <= limit]
        search.archive.outcomes([search.surveyed.run_of(run, at) for run in (counts, *tried) for at in few])
        ranked = sorted((search.dearer_by(other, before), other) for other in tried)
        least = -_LEAST_AS_RUN * abs(search.surveyed.predicted(counts))
        better = (other for dearer, other in ranked if dearer < least and search.holds(other, fully=True))
        counts = next(better, counts)
        if counts == before:
            break
    return counts


def _neighbours(search: Search, counts: Counts) -> set[Counts]:
    """Return the nearby candidates that are within limits and not refuted by a known run.

    They have one node more or less, or one exchanged; all of a purchase left out, or as much of another in its place;
    nodes up to a discount; or a retirement on another day.
    """
    places = range(len(search.choices.purchases))
    changes = [{place: step} for place in places for step in (1, -1, -counts[place])]
    for out, into in itertools.permutations(places, 2):
        alike = counts[out] * search.worth((out,)) / max(search.worth((into,)), 1e-12)
        changes += [{out: -1, into: 1}, {out: -counts[out], into: min(math.ceil(alike), _MOST_ALIKE * sum(counts))}]
    near = {*search.up_to_a_discount(counts), *search.retired(counts)}
    for change in changes:
        if all(step < 0 or search.allowed[place] for place, step in change.items()):
            near.add(moved(counts, change))
    return {
        other
        for other in near - {counts}
        if min(other) >= 0 and search.choices.within_limits(other) and not search.is_refuted(other)
    }
