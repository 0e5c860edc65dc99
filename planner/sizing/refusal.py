"""Why no policy meets the SLO target: which workload misses it, when, by how much and for what, and what would do.

All of it is simulated on replications of the selection. A limit is named only where a policy within a looser one meets
the target there: what was not simulated is not said.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.plan.attainment import LEAST_SHORTFALL, past_mending
from planner.plan.plan import Plan
from planner.records import record
from planner.run.slo_misses import REASONS, lost_requests
from planner.scenario.scenario import Sizing
from planner.sizing.archive import Archive
from planner.sizing.choices import Choices
from planner.sizing.evaluate import Evaluator, Judged, Trial, Workers
from planner.sizing.policy import Policy
from planner.sizing.search import Levers, Search
from planner.sizing.selection import Arena
from planner.sizing.surrogate import surveyed

_TRIES = 4
"""Policies simulated under one looser limit: each is searched by what the one before it showed."""
_HALVINGS = 6
"""Of the range in which the least of a limit is looked for, as predicted."""
_GLANCE = 3
"""Part of the replications after which a policy is given up that can no longer meet the target often enough."""
_UNLIMITED_NODES = 100_000
_CAPACITY = ("no_capacity", "bursts", "queueing")
"""Causes that more machines mend."""


class Miss(NamedTuple):
    """Where a policy misses its SLO target most."""

    workload: str
    """Whose requests they are; "the fleet" where the target is of all together."""
    column: int
    """Of the workload among those that the target applies to."""
    month: int
    replications: int
    """That miss it there."""
    attainment: float
    """There, the median of those replications."""
    target: float
    replication: int
    """Place of the replication that has that median."""


def worst_miss(plan: Plan, attainment: float, shares: Floats) -> Miss | None:
    """Return the month and workload that most replications miss, of those the one furthest off; None where none does.

    ``shares`` are of shape (replications, months, workloads or 1), each as far from the common attainment as from its
    workload's own.
    """
    short = np.nan_to_num(attainment - shares)
    is_missed = short >= LEAST_SHORTFALL
    missed = is_missed.sum(axis=0)
    if not missed.any():
        return None
    depth = (short * is_missed).sum(axis=0)
    is_most = missed == missed.max()
    month, column = np.unravel_index(int(np.where(is_most, depth, -1.0).argmax()), depth.shape)
    rows = np.flatnonzero(is_missed[:, month, column])
    ranked = rows[np.argsort(short[rows, month, column], kind="stable")]
    median = int(ranked[ranked.size // 2])
    target = float(np.broadcast_to(plan.slo_attainments, shares.shape[2])[column])
    is_fleet = plan.slo_target.scope == "fleet"
    return Miss(
        workload="the fleet" if is_fleet else plan.workloads[int(column)].name,
        column=int(column),
        month=int(month),
        replications=int(rows.size),
        attainment=target - float(short[median, month, column]),
        target=target,
        replication=median,
    )


def miss_words(plan: Plan, miss: Miss, cause: str = "") -> str:
    """Say where a policy misses its target most, by how much, and for what where that is known."""
    share = f"{miss.attainment:.2%}"
    # Two digits may round a miss to what is asked.
    if share == f"{miss.target:.2%}":
        share = f"{miss.attainment:.4%}"
    why = f". The main cause is {cause}" if cause else ""
    by = "up to" if plan.slo_target.per == "horizon" else "in"
    return (
        f"{miss.workload} misses the target most {by} {plan.months.labels[miss.month]}, in {miss.replications} "
        f"replications: {share} of its requests meet their SLO (median of these replications), against "
        f"{miss.target:.2%} required{why}"
    )


def main_cause(evaluator: Evaluator, policy: Policy, replication: int, miss: Miss) -> str:
    """Return the cause that takes most of what a policy misses in one replication, one of :data:`REASONS`."""
    result = evaluator.simulate(policy, replication)
    target = result.plan.slo_target
    first = 0 if target.per == "horizon" else miss.month
    requests = lost_requests(result).requests[:, first : miss.month + 1].sum(axis=1)
    by_cause = requests.sum(axis=1) if target.scope == "fleet" else requests[:, miss.column]
    causes = [*REASONS]
    if not evaluator.trial.includes_outages:
        for left_out in ("outage", "too_long"):
            by_cause[causes.index(left_out)] = 0.0
    return causes[int(by_cause.argmax())]


# Limits


@record
class Limit:
    """A limit of a sizing, and how to loosen it."""

    key: str
    """As the scenario calls it."""
    value: float
    """As stated."""
    loosened: Callable[[Sizing, float], Sizing]
    """Returns what may be chosen with another value of it."""
    taken: Callable[[Policy], float]
    """Returns what a policy takes of it."""


def limits_of(choices: Choices) -> list[Limit]:
    """Return the limits that a sizing states."""
    choose = choices.choose
    limits = []
    if choose.budget_usd is not None:
        limits.append(_simple_limit("budget_usd", choose.budget_usd, choices.capital_usd))
    if choose.it_power_cap_kw is not None:

        def peak_kw(policy: Policy) -> float:
            return float(choices.power_kw(policy).max())

        limits.append(_simple_limit("it_power_cap_kw", choose.it_power_cap_kw, peak_kw))
    for name in choices.offers:
        limits.append(_node_limit(choices, name, "max_nodes"))
        if choose.clusters[name].max_nodes_per_date is not None:
            limits.append(_node_limit(choices, name, "max_nodes_per_date"))
    return limits


def _simple_limit(key: str, value: float, taken: Callable[[Policy], float]) -> Limit:
    def loosened(choose: Sizing, most: float) -> Sizing:
        return choose.model_copy(update={key: most if np.isfinite(most) else None})

    return Limit(key=f"sizing.{key}", value=value, loosened=loosened, taken=taken)


def _node_limit(choices: Choices, name: str, field: str) -> Limit:
    """Return a limit on the nodes of one cluster, over all dates or on one."""
    own = np.flatnonzero(choices.group_of == choices.offers.index(name)).tolist()

    def loosened(choose: Sizing, most: float) -> Sizing:
        nodes = int(min(most, _UNLIMITED_NODES))
        cluster = choose.clusters[name].model_copy(update={field: nodes})
        return choose.model_copy(update={"clusters": {**choose.clusters, name: cluster}})

    def taken(policy: Policy) -> float:
        nodes = [policy.purchases[place] for place in own]
        return float(sum(nodes) if field == "max_nodes" else max(nodes))

    value = float(getattr(choices.choose.clusters[name], field))
    key = f"sizing.clusters.{name}.{field}"
    return Limit(key=key, value=value, loosened=loosened, taken=taken)


def under(search: Search, choose: Sizing) -> Search:
    """Return a search by the same surrogate under other limits."""
    surrogate = copy.copy(search.surrogate)
    surrogate.choices = dataclasses.replace(search.choices, choose=choose, _power={})
    return search.by(surrogate)


def _fixed_levers(search: Search) -> Levers:
    """Return the levers of policies that decide everything on the first day, and so take the same in all futures."""
    return search.levers(rent=search.choices.most_instances > 0)


# What would do


class _Remedies:
    """Looks for looser limits under which a policy meets the SLO target as simulated."""

    def __init__(self, search: Search, arena: Arena) -> None:
        self.search = search
        self.choices = search.choices
        self.replications = len(search.surrogate.surveys)
        needed = arena.needed()
        self.level = search.confidence if needed >= 1.0 else max(needed, search.confidence)
        """Share of replications that is to meet the target: that of a policy which a sizing would confirm."""

    def policy(self, search: Search) -> Judged | None:
        """Return a policy that meets the target as simulated; None where the search has none.

        Purchases alone: what they take of a limit is the same in every replication.
        """
        search.confidence = self.level
        levers = _fixed_levers(search)
        arena = Arena(search.trial, search.archive, self.replications)
        # A search adds rent to what serves; where nothing serves without it, it begins with all of it.
        policy = search.find(levers, search.fullest(levers) if levers.rent else None)
        for _ in range(_TRIES):
            if policy is None:
                return None
            outcome = self._simulated(arena, policy)
            share = outcome.verdict.share
            if share >= self.level:
                return outcome
            search.expect(outcome)
            policy = search.at(self.level, policy, levers)
        return None

    def _simulated(self, arena: Arena, policy: Policy) -> Judged:
        """Return a policy over the replications, or over the first of them where those settle that it misses."""
        glance = arena.selected(policy, max(1, self.replications // _GLANCE))
        missed = glance.worst.size - glance.verdict.met
        if missed > (1.0 - self.level) * self.replications:
            return glance
        return arena.selected(policy, self.replications)

    def alone(self, limit: Limit) -> Judged | None:
        """Return a policy that meets the target within all limits but one, of which it takes as little as is found."""
        choose = self.choices.choose
        wide = under(self.search, limit.loosened(choose, np.inf))
        enough = self.policy(wide)
        if enough is None:
            return None
        low = limit.value
        high = limit.taken(enough.policy)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            # With the threshold that the runs under the loosest limit have shown.
            nearer = under(wide, limit.loosened(choose, middle))
            policy = nearer.find(_fixed_levers(nearer), enough.policy)
            if policy is None:
                low = middle
            else:
                high = limit.taken(policy)
        least = self.policy(under(wide, limit.loosened(choose, high)))
        return least or enough

    def together(self, limits: Sequence[Limit]) -> Judged | None:
        """Return a policy that meets the target within none of the limits."""
        choose = self.choices.choose
        for limit in limits:
            choose = limit.loosened(choose, np.inf)
        return self.policy(under(self.search, choose))

    def earlier(self, month: int) -> str:
        """Say which purchases would do if they came before a month; nothing where none is later, or none would do."""
        day = self.choices.plan.months.edges[month]
        choices = self.choices.earlier(day)
        if choices.purchases == self.choices.purchases:
            return ""
        trial = dataclasses.replace(self.search.trial, choices=choices)
        with searched(self.search, trial) as search:
            enough = self.policy(search)
        if enough is None:
            return ""
        dates = zip(self.choices.purchases, choices.purchases, enough.policy.purchases, strict=True)
        moved = [
            f"{nodes} × {after.accelerator} ({after.cluster}) {after.date} instead of {before.date}"
            for before, after, nodes in dates
            if nodes and before.date != after.date
        ]
        return f"{', '.join(moved)} ({_share_words(enough)})" if moved else ""


@contextlib.contextmanager
def searched(search: Search, trial: Trial) -> Iterator[Search]:
    """Yield a search of another trial, surveyed anew."""
    with contextlib.closing(Workers(trial, search.archive.workers.count)) as workers:
        archive = Archive(workers, search.clock)
        surrogate = surveyed(trial, archive, len(search.surrogate.surveys))
        yield Search(surrogate, archive, search.clock)


def _share_words(outcome: Judged) -> str:
    return f"{outcome.verdict.met} of {outcome.worst.size} replications"


def _value_words(limit: Limit, policy: Policy) -> str:
    """Say what a policy takes of a limit, rounded up, and what is stated."""
    return f"{limit.key} {np.ceil(limit.taken(policy)):,.0f} instead of {limit.value:,.0f}"


# The refusals


def nothing_mends(search: Search, arena: Arena) -> str:
    """Return that too many replications miss the SLO target whatever is bought: who, when, why and the remedy."""
    surrogate = search.surrogate
    trial = search.trial
    ceilings = np.array([one.ceilings for one in surrogate.surveys]).T
    causes = past_mending(ceilings, trial.attainment)
    counted = [f"{name.replace('_', ' ')} {number}" for name, number in causes.items() if number]
    listed = ", ".join(counted)
    sentences = [
        f"{1.0 - surrogate.fixable:.0%} of replications miss the SLO target whatever is bought ({listed} of "
        f"{len(surrogate.surveys)} surveyed), but only {1.0 - trial.confidence:.0%} may miss it",
    ]
    remedies = _Remedies(search, arena)
    of_capacity = dataclasses.replace(trial, includes_outages=False)
    with searched(search, of_capacity) as other:
        enough = remedies.policy(other)
        policy = other.fullest(_fixed_levers(other)) if enough is None else enough.policy
    sentences += _where(search, arena, policy, "A plan that would otherwise be enough")
    if enough is not None:
        sentences.append(
            f"Without slo_target.include the same plan meets the target in {_share_words(enough)}"
        )
    return ". ".join(sentences)


def nothing(search: Search, arena: Arena) -> str:
    """Return why no plan meets the SLO target, and which limits to loosen by how much, as simulated."""
    choices = search.choices
    search.clock.say("no plan meets the SLO target: looking for the limit that prevents it")
    fullest = search.fullest(_fixed_levers(search))
    limits = limits_of(choices)
    sentences = ["no plan within the limits meets the SLO target"]
    if not choices.within_limits(fullest):
        sentences.append(_out_of_limits(choices, fullest, limits))
    else:
        sentences += _where(search, arena, fullest, "The plan that serves most within the limits")
    sentences += _would_do(search, arena, fullest, limits)
    return ". ".join(sentences)


def _out_of_limits(choices: Choices, least: Policy, limits: Sequence[Limit]) -> str:
    """Say that the limits allow no machine, or which of them are broken by the fewest nodes that must be bought."""
    if not least.has_machines:
        return "The limits allow no machine at all, so every workload misses the target from the first month on"
    broken = [_value_words(limit, least) for limit in limits if limit.taken(least) > limit.value]
    return f"The fewest nodes that must be bought, {choices.words(least)}, take {', '.join(broken)}"


def _where(search: Search, arena: Arena, policy: Policy, subject: str) -> list[str]:
    """Say how often a policy meets the target, who misses it most, where, by how much and why."""
    plan = search.choices.plan
    trial = search.trial
    outcome = arena.selected(policy, len(search.surrogate.surveys))
    sentences = [
        f"{subject}, {search.choices.words(policy)}, meets the target in {_share_words(outcome)} as simulated; "
        f"{trial.confidence:.0%} must meet it"
    ]
    miss = worst_miss(plan, trial.attainment, outcome.shares)
    if miss is None:
        return sentences
    run = arena.replication(miss.replication)
    (cause,) = search.archive.workers.all(main_cause, [(policy, run, miss)])
    sentences.append(miss_words(plan, miss, REASONS[cause]))
    if cause in _CAPACITY:
        sentences += _not_there(search, miss.month)
    return sentences


def _not_there(search: Search, month: int) -> list[str]:
    """Say that nothing that may be bought is in service as a month begins, where that is so."""
    surrogate = search.surrogate
    present = surrogate.present[:, surrogate.column]
    if not present.size or present[:, :, month].any():
        return []
    first = min(search.choices.purchases, key=lambda purchase: purchase.date)
    label = search.choices.plan.months.labels[month]
    return [
        f"Nothing that may be bought is in service at the start of {label}: the first date allowed is {first.date}, "
        f"for {first.cluster}"
    ]


def _would_do(
    search: Search, arena: Arena, fullest: Policy, limits: Sequence[Limit]
) -> Iterator[str]:
    """Yield what would do: each limit alone, an earlier date alone, or else all limits together."""
    remedies = _Remedies(search, arena)
    alone = []
    for limit in limits:
        enough = remedies.alone(limit)
        if enough is not None:
            alone.append(f"{_value_words(limit, enough.policy)} ({_share_words(enough)})")
    if search.choices.within_limits(fullest):
        outcome = arena.selected(fullest, len(search.surrogate.surveys))
        has_missed = (search.trial.attainment - outcome.shares >= LEAST_SHORTFALL).any(axis=2)
        missed_so_far = np.maximum.accumulate(has_missed, axis=1).mean(axis=0)
        too_often = np.flatnonzero(missed_so_far > 1.0 - search.trial.confidence)
        earlier = remedies.earlier(int(too_often[0])) if too_often.size else ""
        if earlier:
            alone.append(earlier)
    if alone:
        lead = "Any one of these changes" if len(alone) > 1 else "This change"
        yield f"{lead} would be enough, as simulated: {'; '.join(alone)}"
        return
    enough = remedies.together(limits)
    if enough is not None:
        more = [
            _value_words(limit, enough.policy)
            for limit in limits
            if limit.taken(enough.policy) > limit.value
        ]
        yield (
            f"Loosening one limit is not enough. Loosening these together is (simulated): {'; '.join(more)} "
            f"({_share_words(enough)})"
        )
