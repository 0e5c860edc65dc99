"""A policy: what is bought on which day, what rules order on a signal, what is rented and what is retired.

And the policies beside one: small generators, each of one kind of change, from which a search takes its steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from planner.records import record

MAX_LOAD_PERCENT = 150
"""Highest load up to which a rule may let a forecast go: beyond it next to nothing is ever ordered."""
MIN_LOAD_PERCENT = 20
"""Lowest: a forecast of a fifth of what is installed orders five times what is needed."""


@record
class OrderRule:
    """Orders of one cluster on a signal: up to which load, in what steps, at how many reviews."""

    load_percent: int
    """Forecast peak need over what is installed and on order, above which is ordered, and down to which."""
    step_nodes: int
    reviews: int
    """Reviews at which it acts, from the first on."""


@record
class Policy:
    """One decision on everything that is open; hashable, so that its figures are worked out once."""

    purchases: tuple[int, ...]
    """Nodes of each purchase that may be made."""
    rules: tuple[OrderRule | None, ...] = ()
    """By cluster that may be ordered on a signal; None where it is not."""
    rented_instances: int = 0
    """Most instances of overflow rent."""
    retirements: tuple[int, ...] = ()
    """By cluster that may retire, the place of its day, counted from 1; 0 where it stays."""

    @property
    def orders(self) -> bool:
        """Whether anything is ordered on a signal."""
        return any(self.rules)

    @property
    def has_machines(self) -> bool:
        """Whether anything is bought or ordered."""
        return any(self.purchases) or self.orders

    def with_nodes(self, changes: dict[int, int]) -> Policy:
        """Return the policy with nodes added to some purchases, or taken from them."""
        purchases = tuple(
            nodes + changes.get(place, 0) for place, nodes in enumerate(self.purchases)
        )
        return dataclasses.replace(self, purchases=purchases)

    def with_rule(self, place: int, rule: OrderRule | None) -> Policy:
        """Return the policy with another rule for one cluster."""
        rules = (*self.rules[:place], rule, *self.rules[place + 1 :])
        return dataclasses.replace(self, rules=rules)

    def with_retirement(self, place: int, day: int) -> Policy:
        """Return the policy in which one cluster retires on another of its days."""
        days = (*self.retirements[:place], day, *self.retirements[place + 1 :])
        return dataclasses.replace(self, retirements=days)


def fewer_nodes(policy: Policy, step: int) -> Iterator[Policy]:
    """Yield policies that buy fewer nodes on one day."""
    for place, nodes in enumerate(policy.purchases):
        if nodes:
            yield policy.with_nodes({place: -min(step, nodes)})


def more_nodes(policy: Policy, step: int, allowed: Sequence[bool]) -> Iterator[Policy]:
    """Yield policies that buy more nodes on one day."""
    for place, is_allowed in enumerate(allowed):
        if is_allowed:
            yield policy.with_nodes({place: step})


def other_levels(policy: Policy, place: int, step: int) -> Iterator[Policy]:
    """Yield policies whose rule for one cluster lets the forecast load go higher or lower."""
    rule = policy.rules[place]
    assert rule is not None
    for load in (rule.load_percent + step, rule.load_percent - step):
        if MIN_LOAD_PERCENT <= load <= MAX_LOAD_PERCENT:
            yield policy.with_rule(place, dataclasses.replace(rule, load_percent=load))


def other_steps(policy: Policy, place: int) -> Iterator[Policy]:
    """Yield policies whose rule for one cluster orders in smaller or larger steps."""
    rule = policy.rules[place]
    assert rule is not None
    for step_nodes in {1, rule.step_nodes // 2, rule.step_nodes * 2} - {0, rule.step_nodes}:
        yield policy.with_rule(place, dataclasses.replace(rule, step_nodes=step_nodes))


def other_reviews(policy: Policy, place: int, most: int) -> Iterator[Policy]:
    """Yield policies whose rule for one cluster ends one review earlier or later."""
    rule = policy.rules[place]
    assert rule is not None
    for reviews in (rule.reviews - 1, rule.reviews + 1):
        if 1 <= reviews <= most:
            yield policy.with_rule(place, dataclasses.replace(rule, reviews=reviews))


def other_rent(policy: Policy, step: int, most: int) -> Iterator[Policy]:
    """Yield policies that may rent more or fewer instances, and fewer nodes for more of them."""
    for instances in (policy.rented_instances - step, policy.rented_instances + step):
        if 0 <= instances <= most:
            yield dataclasses.replace(policy, rented_instances=instances)
    if policy.rented_instances + step <= most:
        more = dataclasses.replace(policy, rented_instances=policy.rented_instances + step)
        yield from fewer_nodes(more, step)


def other_retirements(policy: Policy, days: Sequence[int]) -> Iterator[Policy]:
    """Yield policies in which one cluster retires on another of its days, or stays."""
    for place, number in enumerate(days):
        for day in range(1 + number):
            if day != policy.retirements[place]:
                yield policy.with_retirement(place, day)
