"""The decisions of a sizing: allowed purchases and retirements, and the scenario of a candidate plan.

A choice is a tuple of whole numbers: the nodes of each purchase, then for each retirement the place of its day, 0 where
the cluster stays. Purchases are in the order of their figures, so that neither names nor places in the file matter.
Policies are choices of which the later depend on what is seen at a review.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats, Ints
from planner.errors import Problem, ScenarioError
from planner.plan.build import build_plan
from planner.plan.clusters import order_date
from planner.plan.plan import ClusterPlan, Plan
from planner.plan.reuse import Reuse
from planner.scenario.consistency import check_scenario
from planner.scenario.loading import with_vendors
from planner.scenario.scenario import Scenario, Sizing
from planner.studies.inputs import Stated, stated
from planner.validation import choices as listed
from planner.validation import nearest

Counts = tuple[int, ...]
MIXED = "mixed"
"""The kind of a choice of several parts."""
_FEW_NODES = 8  # bought of each offer where figures of one node are taken from a run


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseChoice:
    """Nodes of one cluster that may be bought on one date."""

    cluster: str
    """As the scenario calls it."""
    name: str
    """As the plan calls what is bought on this day."""
    date: datetime.date
    """On which it comes online, or is ordered."""
    accelerator: str
    level: int | None = None
    """Place of what is seen at a review, where the purchase depends on it."""


class Retirement(NamedTuple):
    """A cluster that may be retired, and the allowed dates."""

    cluster: str
    dates: tuple[datetime.date, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """All allowed purchases and retirements of a scenario."""

    base: Stated
    """The scenario with every purchase in it, a few nodes each, as the uncertain inputs of a study see it."""
    choose: Sizing
    purchases: tuple[PurchaseChoice, ...]
    retirements: tuple[Retirement, ...]
    plan: Plan
    """That scenario, compiled as stated."""
    mixed: bool = False
    """Whether only plans of several parts are allowed."""

    @property
    def scenario(self) -> Scenario:
        """The scenario with every purchase in it."""
        return self.base.scenario

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerators that may be bought."""
        return tuple(sorted({purchase.accelerator for purchase in self.purchases}))

    @property
    def group_of(self) -> Ints:
        """Index of each purchase's cluster among the clusters to size, shape (purchases,)."""
        names = list(dict.fromkeys(purchase.cluster for purchase in self.purchases))
        return np.array([names.index(purchase.cluster) for purchase in self.purchases], dtype=np.intp)

    def nodes_allowed(self) -> tuple[Floats, Floats]:
        """Return the fewest and the most nodes of each group of purchases, shape (groups,) each."""
        limits = [self.choose.clusters[name] for name in dict.fromkeys(purchase.cluster for purchase in self.purchases)]
        return np.array([limit.min_nodes for limit in limits]), np.array([limit.max_nodes for limit in limits])

    def place(self, name: str) -> int:
        """Return the index of a cluster in the compiled plan."""
        return [cluster.name for cluster in self.plan.clusters].index(name)

    def reference(self, day: int = 0) -> Counts:
        """Return the candidate that is run to measure a node's figures: some nodes of every purchase.

        ``day`` is the place of the day on which retirements leave.
        """
        few = [
            int(most) if self.tiers(place) else min(int(most), _FEW_NODES)
            for place, most in enumerate(self.nodes_allowed()[1][self.group_of])
        ]
        return (*few, *(min(day, len(retirement.dates)) for retirement in self.retirements))

    def capital_usd(self, counts: Counts) -> float:
        """Return the price of a candidate's purchases, volume discounts included."""
        bought = enumerate(counts[: len(self.purchases)])
        return sum(count * sum(self.node_prices_usd(place, count)) for place, count in bought if count)

    def node_prices_usd(self, purchase: int, nodes: int) -> tuple[float, ...]:
        """Return the prices of one node in a purchase of ``nodes``: accelerators, host, network, storage.

        Nothing for what is rented or leased.
        """
        cluster = self.plan.clusters[self.place(self.purchases[purchase].name)]
        if cluster.price_book is None or cluster.lease is not None:
            return 0.0, 0.0, 0.0, 0.0
        return (self.accelerators_usd(purchase, nodes), *cluster.prices_usd[1:])

    def accelerators_usd(self, purchase: int, nodes: int) -> float:
        """Return the price of one node's accelerators in a purchase of ``nodes``; 0 where rented."""
        cluster = self.plan.clusters[self.place(self.purchases[purchase].name)]
        if cluster.price_book is None:
            return 0.0
        day = order_date(self.scenario, self.scenario.clusters[cluster.name])
        unit_usd = cluster.price_book.accelerator_usd(day, max(nodes, 1) * cluster.accelerators_per_node)
        return unit_usd * cluster.accelerators_per_node

    def tiers(self, purchase: int) -> tuple[int, ...]:
        """Return the numbers of nodes at which a purchase reaches another volume discount, rising."""
        cluster = self.scenario.clusters[self.purchases[purchase].name]
        each_node = self.plan.clusters[self.place(self.purchases[purchase].name)].accelerators_per_node
        offers = (cluster.volume_discounts, *(quote.volume_discounts for quote in cluster.quotes))
        return tuple(sorted({-(-tier.from_accelerators // each_node) for offer in offers for tier in offer}))

    def power_kw(self, counts: Counts) -> Floats:
        """Return nameplate IT power on site after each delivery as scheduled, shape (moments,)."""
        return np.array([sum(self.kw_at(counts, at_h).values()) for at_h in self.moments_h()])

    def moments_h(self) -> list[float]:
        """Return the hours at which nodes are due, when power on site peaks."""
        return sorted({max(due_h(cluster), 0.0) for cluster in self.plan.clusters})

    def kw_at(self, counts: Counts, at_h: float) -> dict[str, float]:
        """Return nameplate IT power on site at a time, by cluster, without hosted clusters."""
        bought = {purchase.name: count for purchase, count in zip(self.purchases, counts, strict=False)}
        leaves_h = {
            retirement.cluster: (retirement.dates[place - 1] - self.scenario.start).days * 24.0
            for retirement, place in zip(self.retirements, counts[len(self.purchases) :], strict=True)
            if place
        }
        return {
            cluster.name: bought.get(cluster.name, cluster.nodes) * cluster.nameplate_kw
            for cluster in self.plan.clusters
            if max(due_h(cluster), 0.0) <= at_h < leaves_h.get(cluster.name, cluster.retire_h) and not cluster.is_hosted
        }

    def within_limits(self, counts: Counts) -> bool:
        """Return whether a candidate is within nodes, budget and power, and has any machine at all."""
        choose = self.choose
        bought = np.array(counts[: len(self.purchases)])
        if self.purchases:
            least, most = self.nodes_allowed()
            totals = np.bincount(self.group_of, weights=bought, minlength=least.size)
            if (bought < 0).any() or (totals < least).any() or (totals > most).any():
                return False
        if self.mixed and self.family(counts) != MIXED:
            return False
        if choose.budget_usd is not None and self.capital_usd(counts) > choose.budget_usd * (1.0 + 1e-9):
            return False
        if choose.it_power_cap_kw is not None and (self.power_kw(counts) > choose.it_power_cap_kw * (1.0 + 1e-9)).any():
            return False
        return bool(bought.sum()) or not set(self.scenario.clusters) <= {purchase.name for purchase in self.purchases}

    def content(self, counts: Counts) -> dict[str, Any]:
        """Return the scenario content of a candidate, without clusters that are not bought."""
        content = dict(self.base.content)
        clusters = dict(content["clusters"])
        for purchase, nodes in zip(self.purchases, counts, strict=False):
            if nodes:
                clusters[purchase.name] = {**clusters[purchase.name], "nodes": nodes}
            else:
                del clusters[purchase.name]
        for retirement, place in zip(self.retirements, counts[len(self.purchases) :], strict=True):
            if place:
                clusters[retirement.cluster] = {**clusters[retirement.cluster], "retire": retirement.dates[place - 1]}
        return _named(content | {"clusters": clusters}, {name: [name] for name in clusters})

    def stated(self, counts: Counts) -> Stated:
        """Return the scenario of a candidate, ready for changes by a study's inputs."""
        return dataclasses.replace(self.base, content=self.content(counts))

    def reach(self, counts: Counts) -> NDArray[np.int64]:
        """Return the nodes bought of each cluster up to each date, then retirement dates; more is never worse."""
        bought, groups = len(self.purchases), self.group_of
        nodes, dates = np.array(counts[:bought], dtype=np.int64), [purchase.date for purchase in self.purchases]
        reached = [
            sum(int(nodes[j]) for j in range(bought) if groups[j] == groups[i] and dates[j] <= dates[i])
            for i in range(bought)
        ]
        days = zip(self.retirements, counts[bought:], strict=True)
        return np.array([*reached, *(day or len(retirement.dates) + 1 for retirement, day in days)], dtype=np.int64)

    def bundles(self) -> list[tuple[int, ...]]:
        """Return the purchases that one search step may change together: each alone."""
        return [(place,) for place in range(len(self.purchases))]

    def exchangeable(self, out: tuple[int, ...], into: tuple[int, ...]) -> bool:
        """Return whether nodes of some purchases may be exchanged for nodes of others: any two that differ."""
        return out != into

    def family(self, counts: Counts) -> str:
        """Return the kind of a candidate: all of one accelerator, or mixed.

        What is paid by the hour beside machines of one's own makes no mix of them: it is of a kind only where nothing
        else is.
        """
        taken = [purchase for purchase, nodes in zip(self.purchases, counts, strict=False) if nodes]
        lasting = [purchase for purchase in taken if not self._is_paid_by_the_hour(purchase)]
        parts = {purchase.accelerator for purchase in lasting or taken}
        return MIXED if len(parts) > 1 else f"all-{next(iter(parts))}" if parts else "nothing"

    def of_part(self, part: str) -> list[bool]:
        """Return which purchases a plan of one accelerator may use: its own, and any paid by the hour."""
        both = [(purchase.accelerator == part, self._is_paid_by_the_hour(purchase)) for purchase in self.purchases]
        is_lasting = any(is_own and not hourly for is_own, hourly in both)
        return [is_own or (is_lasting and hourly) for is_own, hourly in both]

    def _is_paid_by_the_hour(self, purchase: PurchaseChoice) -> bool:
        return self.plan.clusters[self.place(purchase.name)].is_paid_by_the_hour

    def words(self, counts: Counts) -> str:
        """Return a candidate plan in words."""
        said = []
        for purchase, nodes in zip(self.purchases, counts, strict=False):
            if nodes:
                said.append(f"{nodes} × {purchase.accelerator} ({purchase.cluster}) {purchase.date}")
        for retirement, place in zip(self.retirements, counts[len(self.purchases) :], strict=True):
            if place:
                said.append(f"{retirement.cluster} retired {retirement.dates[place - 1]}")
        return ", ".join(said) or "nothing"


def due_h(cluster: ClusterPlan) -> float:
    """Return the hour at which a cluster's first nodes are due, as stated."""
    return cluster.order.placed_h + cluster.order.lead_h if cluster.order else cluster.online_h or 0.0


def choices_of(scenario: Scenario, parts: Sequence[str] = ()) -> Choices:
    """Return the allowed purchases and retirements of a scenario, optionally of some accelerators only."""
    choose = scenario.sizing
    if choose is None:
        hint = "for example choose: {clusters: {h200: {dates: [2026-01-01, 2026-07-01], max_nodes: 200}}}"
        raise ScenarioError(scenario.document.problem(("sizing",), "says nothing of what may be bought", hint))
    if not choose.clusters and not choose.retire:
        hint = "name clusters whose nodes are open, or that may retire"
        raise ScenarioError(scenario.document.problem(("sizing",), "names nothing to choose", hint))
    if scenario.expansion.rules:
        message = "buy by themselves what is to be chosen; take them out, e.g. --set expansion=null"
        raise ScenarioError(scenario.document.problem(("expansion", "rules"), message))
    offered = {name: scenario.clusters[name].accelerator for name in choose.clusters}
    for part in parts:
        if part not in offered.values():
            hint = nearest(part, offered.values()) or f"there are {listed(sorted(set(offered.values())))}"
            raise ScenarioError(Problem(path="--accelerators", message=f"no cluster to choose has {part!r}", hint=hint))
    content = {key: part for key, part in stated(scenario.name, scenario).content.items() if key != "sizing"}
    purchases = _purchases(scenario, parts)
    # The scenario has every purchase in it as a cluster of its own.
    clusters = {name: entry for name, entry in content["clusters"].items() if name not in offered}
    for purchase in purchases:
        if purchase.name in clusters:
            message = f"is a cluster already, and what may be bought of {purchase.cluster} would be called the same"
            raise ScenarioError(scenario.document.problem(("clusters", purchase.name), message, "rename it"))
        before = dict(content["clusters"][purchase.cluster])
        before.pop("online", None)
        order = before.get("order")
        day = {"order": {**order, "placed": purchase.date}} if order else {"online": purchase.date}
        clusters[purchase.name] = {**before, **day, "nodes": _FEW_NODES}
    names: dict[str, list[str]] = {name: [name] for name in clusters}
    for purchase in purchases:
        names.setdefault(purchase.cluster, []).append(purchase.name)
    content = _named(content | {"clusters": clusters}, names)
    full = with_vendors(Scenario.model_validate(content))
    full._document = scenario.document
    check_scenario(full)
    retirements = tuple(Retirement(cluster=name, dates=tuple(sorted(dates))) for name, dates in choose.retire.items())
    base = Stated(name=full.name, scenario=full, content=content, dump=full.model_dump(by_alias=True))
    plan = build_plan(full, Reuse(full))
    return Choices(base=base, choose=choose, purchases=purchases, retirements=retirements, plan=plan)


def _purchases(scenario: Scenario, parts: Sequence[str]) -> tuple[PurchaseChoice, ...]:
    """Return every purchasable cluster and date, in column order."""
    assert scenario.sizing is not None
    made = []
    for name, choice in scenario.sizing.clusters.items():
        cluster = scenario.clusters[name]
        if parts and cluster.accelerator not in parts:
            continue
        dates = choice.dates or (order_date(scenario, cluster),)
        for date in sorted(dates):
            full_name = name if len(dates) == 1 else f"{name}-{date}"
            made.append(PurchaseChoice(cluster=name, name=full_name, date=date, accelerator=cluster.accelerator))
    known = scenario.sizing.clusters

    def figures(purchase: PurchaseChoice) -> tuple[str, ...]:
        stated = scenario.clusters[purchase.cluster].model_dump(mode="json", exclude={"nodes", "online"})
        return (purchase.accelerator, str(stated), str(known[purchase.cluster]), str(purchase.date), purchase.cluster)

    return tuple(sorted(made, key=figures))


def _named(content: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    """Return content in which every list of clusters names the clusters that a split cluster became."""

    def spread(listed: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part for name in listed for part in names.get(name, ())))

    content = dict(content)
    site = content.get("site")
    if isinstance(site, dict) and site.get("throttle_order"):
        content["site"] = {**site, "throttle_order": spread(site["throttle_order"])}
    content["workloads"] = dict(content["workloads"])
    for name, load in content["workloads"].items():
        if load.get("cluster_preference"):
            content["workloads"][name] = {**load, "cluster_preference": spread(load["cluster_preference"])}
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Decisions of which the later ones depend on what is observed at a review.

    A policy is a tuple like a choice: nodes of the purchases before the review, then, level by level of what may be
    seen there, those of the purchases from then on, then the days of retirements. It makes a choice for each level.
    """

    plain: Choices
    levels: int
    now: tuple[int, ...]
    """Places of the purchases before the review among all of the plain choices."""
    later: tuple[int, ...]
    purchases: tuple[PurchaseChoice, ...]

    @classmethod
    def of(cls, plain: Choices, review: datetime.date, levels: int) -> Policies:
        """Return the policies with a review on a day."""
        places = range(len(plain.purchases))
        now = tuple(place for place in places if plain.purchases[place].date < review)
        later = tuple(place for place in places if place not in now)
        bought = [plain.purchases[place] for place in now]
        bought += [dataclasses.replace(plain.purchases[at], level=level) for level in range(levels) for at in later]
        return cls(plain=plain, levels=levels, now=now, later=later, purchases=tuple(bought))

    @property
    def retirements(self) -> tuple[Retirement, ...]:
        """Clusters that may be retired, whatever is observed."""
        return self.plain.retirements

    def place(self, name: str) -> int:
        """Return the index of a cluster in the compiled plan."""
        return self.plain.place(name)

    def tiers(self, purchase: int) -> tuple[int, ...]:
        """Return the numbers of nodes at which a purchase reaches another volume discount, rising."""
        return self.plain.tiers([plain.name for plain in self.plain.purchases].index(self.purchases[purchase].name))

    def places(self, level: int) -> list[int]:
        """Return, for each purchase of the plain choices, its index in a policy at an observed level."""
        later = {place: len(self.now) + level * len(self.later) + at for at, place in enumerate(self.later)}
        return [later[place] if place in later else self.now.index(place) for place in range(len(self.plain.purchases))]

    def at(self, policy: Counts, level: int) -> Counts:
        """Return the candidate that a policy selects at an observed level."""
        return (*(policy[place] for place in self.places(level)), *policy[len(self.purchases) :])

    def same(self, counts: Counts) -> Counts:
        """Return the policy that makes the same purchases whatever is observed."""
        chosen = [0] * len(self.purchases)
        for level in range(self.levels):
            for nodes, place in zip(counts, self.places(level), strict=False):
                chosen[place] = nodes
        return (*chosen, *counts[len(self.plain.purchases) :])

    def within_limits(self, policy: Counts) -> bool:
        """Return whether the candidate at every level is within nodes, budget and power."""
        return all(self.plain.within_limits(self.at(policy, level)) for level in range(self.levels))

    def reach(self, policy: Counts) -> NDArray[np.int64]:
        """Return :meth:`Choices.reach` for every level."""
        return np.concatenate([self.plain.reach(self.at(policy, level)) for level in range(self.levels)])

    def bundles(self) -> list[tuple[int, ...]]:
        """Return the purchases that one search step may change together: each alone, or a later one at all levels."""
        alone = [(place,) for place in range(len(self.purchases))]
        count = len(self.later)
        together = [tuple(range(len(self.now) + at, len(self.purchases), count)) for at in range(count)]
        return alone + (together if self.levels > 1 else [])

    def exchangeable(self, out: tuple[int, ...], into: tuple[int, ...]) -> bool:
        """Return whether nodes may be exchanged: at the same levels, or with purchases before the review."""
        reached = [{self.purchases[place].level for place in bundle} for bundle in (out, into)]
        return reached[0] == reached[1] or any(
            one == {None} and (len(other) == self.levels) for one, other in (reached, reached[::-1])
        )

    def words(self, policy: Counts) -> str:
        """Return a policy in words."""
        every, days = dataclasses.replace(self.plain, purchases=self.purchases), policy[len(self.purchases) :]
        said = []
        for level in (None, *range(self.levels)):  # what comes before the review, with the days; then by level
            bought = [nodes * (one.level == level) for nodes, one in zip(policy, self.purchases, strict=False)]
            said.append(every.words((*bought, *(days if level is None else [0] * len(days)))))
        return f"{said[0]}; then {' or '.join(said[1:])}"
