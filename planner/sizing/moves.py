"""Where a search may go from a choice in small steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from planner.sizing.choices import Choices, Counts
from planner.sizing.policies import Policies
from planner.sizing.replications import Surveyed

_MOST_LISTED = 20_000  # choices, begun or whole, that are looked at before there are too many to try each
_MOST_RENTING = 2_000  # the same where hours are rented, which takes milliseconds to predict


def moved(counts: Counts, changes: dict[int, int]) -> Counts:
    """Return a choice with some more or fewer nodes at some places."""
    return tuple(count + changes.get(place, 0) for place, count in enumerate(counts))


def carried_on(before: Counts, after: Counts, may: Callable[[Counts], bool]) -> Counts:
    """Return a step that took nodes away, taken again as often as may be: ever twice as often, then half as often.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """The choices near one, with what they are predicted to cost."""

    surveyed: Surveyed
    choices: Choices | Policies
    allowed: tuple[bool, ...]
    decisive: int
    """The replication by which nodes of purchases are weighed against each other."""

    def price(self, bundle: Sequence[int]) -> float:
        """Return what a node of each of some purchases costs."""
        none = (0,) * (len(self.choices.purchases) + len(self.choices.retirements))
        return self.surveyed.predicted(moved(none, dict.fromkeys(bundle, 1))) - self.surveyed.predicted(none)

    def worth(self, bundle: Sequence[int]) -> float:
        """Return what a node of some purchases is worth to the replication that decides."""
        return self.surveyed.worth(bundle[0], self.decisive)

    def near(self, counts: Counts, step: int) -> Iterator[Counts]:
        """Yield cheaper choices near one: with less, then with other parts or dates, those that save most first."""
        bundles, before = self.choices.bundles(), self.surveyed.predicted(counts)
        slack = 1e-9 * abs(before)
        most = {bundle: min(counts[place] for place in bundle) for bundle in bundles}
        less = {moved(counts, dict.fromkeys(bundle, -min(step, most[bundle]))) for bundle in bundles if most[bundle]}
        near = {*self.retired(counts), *self.up_to_a_discount(counts)}
        worth = {bundle: self.worth(bundle) for bundle in bundles}
        for (out, into), times in itertools.product(self._exchanges(counts), (1, 2, 3)):
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
        """Return every allowed choice that costs less than one; None where there are many."""
        bought, most = len(self.choices.purchases), self.surveyed.predicted(counts) * (1.0 - 1e-9)
        standing = self.surveyed.standing  # which never falls with more nodes, as rent of hours at work may
        open_to = self.surveyed.trial.choices.choose.clusters
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
                if self.allowed[place] and chosen[place] < open_to[self.choices.purchases[place].cluster].most_nodes:
                    begun.append((moved(chosen, {place: 1}), place))
            elif self.surveyed.predicted(chosen) < most and self.choices.within_limits(chosen):
                below.append(chosen)
        return None

    def _exchanges(self, counts: Counts) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield the purchases of which nodes may be exchanged for those of others."""
        for out, into in itertools.permutations(self.choices.bundles(), 2):
            has_some = all(counts[place] for place in out)
            if has_some and self.allowed[into[0]] and self.choices.exchangeable(out, into):
                yield out, into

    def up_to_a_discount(self, counts: Counts) -> Iterator[Counts]:
        """Yield a choice with as many more nodes of each purchase in it as get another discount on all of them."""
        for place in range(len(self.choices.purchases)):
            for nodes in self.choices.tiers(place) if counts[place] else ():
                if nodes > counts[place]:
                    yield moved(counts, {place: nodes - counts[place]})

    def retired(self, counts: Counts) -> Iterator[Counts]:
        """Yield a choice with each retirement on each other day."""
        bought = len(self.choices.purchases)
        for place, retirement in enumerate(self.choices.retirements):
            for day in range(1 + len(retirement.dates)):
                yield tuple(day if at == bought + place else count for at, count in enumerate(counts))
