"""Policies: choices of which the later depend on what is seen at a review."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.sizing.choices import Choices, Counts, Purchase, Retirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Choices of which the later depend on what is seen at a review.

    A policy is a tuple like a choice: nodes of the purchases before the review, then, level by level of what may be
    seen there, those of the purchases from then on, then the days of retirements. It makes a choice for each level.
    """

    plain: Choices
    levels: int
    now: tuple[int, ...]
    """Places of the purchases before the review among all of the plain choices."""
    later: tuple[int, ...]
    purchases: tuple[Purchase, ...]

    @classmethod
    def of(cls, plain: Choices, review: datetime.date, levels: int) -> Policies:
        """Return the policies with a review on a day."""
        places = range(len(plain.purchases))
        now = tuple(place for place in places if plain.purchases[place].date < review)
        later = tuple(place for place in places if place not in now)
        bought = [plain.purchases[place] for place in now]
        bought += [
            dataclasses.replace(plain.purchases[place], level=level) for level in range(levels) for place in later
        ]
        return cls(plain=plain, levels=levels, now=now, later=later, purchases=tuple(bought))

    @property
    def retirements(self) -> tuple[Retirement, ...]:
        """Clusters that may leave, whatever is seen."""
        return self.plain.retirements

    def place(self, name: str) -> int:
        """Return the place of a cluster in the compiled plan."""
        return self.plain.place(name)

    def tiers(self, purchase: int) -> tuple[int, ...]:
        """Return the numbers of nodes from which a purchase has another discount, rising."""
        return self.plain.tiers([plain.name for plain in self.plain.purchases].index(self.purchases[purchase].name))

    def places(self, level: int) -> list[int]:
        """Return, for each purchase of the plain choices, its place in a policy at a level."""
        later = {place: len(self.now) + level * len(self.later) + at for at, place in enumerate(self.later)}
        return [later[place] if place in later else self.now.index(place) for place in range(len(self.plain.purchases))]

    def at(self, policy: Counts, level: int) -> Counts:
        """Return the choice that a policy makes at a level."""
        return (*(policy[place] for place in self.places(level)), *policy[len(self.purchases) :])

    def same(self, counts: Counts) -> Counts:
        """Return the policy that makes one choice whatever is seen."""
        chosen = [0] * len(self.purchases)
        for level in range(self.levels):
            for nodes, place in zip(counts, self.places(level), strict=False):
                chosen[place] = nodes
        return (*chosen, *counts[len(self.plain.purchases) :])

    def within_limits(self, policy: Counts) -> bool:
        """Say whether the choice at every level stays within nodes, budget and power."""
        return all(self.plain.within_limits(self.at(policy, level)) for level in range(self.levels))

    def reach(self, policy: Counts) -> NDArray[np.int64]:
        """Return what :meth:`Choices.reach` does, level by level."""
        return np.concatenate([self.plain.reach(self.at(policy, level)) for level in range(self.levels)])

    def bundles(self) -> list[tuple[int, ...]]:
        """Return the purchases that a step of a search may change together: each alone, or a later one at all."""
        alone = [(place,) for place in range(len(self.purchases))]
        count = len(self.later)
        together = [tuple(range(len(self.now) + at, len(self.purchases), count)) for at in range(count)]
        return alone + (together if self.levels > 1 else [])

    def exchangeable(self, out: tuple[int, ...], into: tuple[int, ...]) -> bool:
        """Say whether nodes may be exchanged: at the same levels, or, of what comes before the review, at all."""
        reached = [{self.purchases[place].level for place in bundle} for bundle in (out, into)]
        return reached[0] == reached[1] or any(
            one == {None} and (len(other) == self.levels) for one, other in (reached, reached[::-1])
        )

    def words(self, policy: Counts) -> str:
        """Return a policy as one would say it."""
        now = dataclasses.replace(self.plain, purchases=self.purchases)
        first = now.words((*policy[: len(self.now)], *[0] * (len(self.purchases) - len(self.now)),
                           *policy[len(self.purchases) :]))  # fmt: skip
        later = [
            now.words(tuple(
                nodes if place < len(self.purchases) and self.purchases[place].level == level else 0
                for place, nodes in enumerate(policy)
            ))
            for level in range(self.levels)
        ]  # fmt: skip
        return f"{first}; then {' or '.join(later)}"
