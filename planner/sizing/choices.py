"""The decisions of a sizing: what may be bought, ordered on a signal, rented and retired; and a policy's scenario.

Purchases are in the order of their figures, so that neither names nor places in the file matter.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.errors import Problem, ScenarioError
from planner.finance.months import add_months
from planner.plan.build import build_plan
from planner.plan.clusters import order_date
from planner.plan.plan import ClusterPlan, Plan
from planner.plan.reuse import Reuse
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.consistency import check_scenario
from planner.scenario.loading import with_catalog
from planner.scenario.scenario import Scenario, Sizing
from planner.sizing.policy import OrderRule, Policy
from planner.studies.inputs import Stated, stated
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR
from planner.validation import choices as listed
from planner.validation import nearest

MIXED = "mixed"
"""The kind of a policy of several accelerators."""
_FEW_NODES = 8  # bought of each offer where figures of one node are taken from a run
_ROUNDING = 1.0 + 1e-9  # of a limit that a sum of its parts just meets
_SPACING = {"monthly": 1, "quarterly": 3}


@record
class PurchaseChoice:
    """Nodes of one cluster that may be bought on one date."""

    cluster: str
    """As the scenario calls it."""
    name: str
    """As the plan calls what is bought on this day."""
    date: datetime.date
    """On which it comes online, or is ordered."""
    accelerator: str


class Retirement(NamedTuple):
    """A cluster that may be retired, and the allowed dates."""

    cluster: str
    dates: tuple[datetime.date, ...]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """All allowed purchases, orders on a signal, rent and retirements of a scenario."""

    base: Stated
    """The scenario with every purchase in it, a few nodes each, as the uncertain inputs of a study see it."""
    choose: Sizing
    purchases: tuple[PurchaseChoice, ...]
    reactive: tuple[str, ...]
    """Clusters that may be ordered on a signal."""
    retirements: tuple[Retirement, ...]
    plan: Plan
    """That scenario, compiled as stated."""
    _power: dict[tuple[int, ...], tuple[Floats, Floats]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def scenario(self) -> Scenario:
        """The scenario with every purchase in it."""
        return self.base.scenario

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerators that may be bought."""
        return tuple(sorted({purchase.accelerator for purchase in self.purchases}))

    @functools.cached_property
    def instance_accelerators(self) -> int:
        """Accelerators of one rented instance."""
        burst = self.scenario.finance.burst_rental
        return burst.accelerators_per_instance if burst else 1

    @functools.cached_property
    def most_instances(self) -> int:
        """Most instances that overflow rent may take."""
        return (self.choose.max_rented_accelerators or 0) // self.instance_accelerators

    @functools.cached_property
    def offers(self) -> tuple[str, ...]:
        """Clusters that may be bought, in the order of their purchases."""
        return tuple(dict.fromkeys(purchase.cluster for purchase in self.purchases))

    @functools.cached_property
    def group_of(self) -> Ints:
        """Index of each purchase's cluster among the offers, shape (purchases,)."""
        places = [self.offers.index(purchase.cluster) for purchase in self.purchases]
        return np.array(places, dtype=np.intp)

    @functools.cached_property
    def nodes_allowed(self) -> tuple[Floats, Floats]:
        """Fewest and most nodes of each offer, shape (offers,) each."""
        limits = [self.choose.clusters[name] for name in self.offers]
        return np.array([limit.min_nodes for limit in limits]), np.array(
            [limit.max_nodes for limit in limits]
        )

    @functools.cached_property
    def most_at_once(self) -> Floats:
        """Most nodes of each purchase, shape (purchases,)."""
        limits = [self.choose.clusters[purchase.cluster] for purchase in self.purchases]
        return np.array(
            [limit.max_nodes_per_date or limit.max_nodes for limit in limits], dtype=np.float64
        )

    @functools.cached_property
    def windows(self) -> tuple[tuple[int, ...], ...]:
        """Of each cluster ordered on a signal, its purchases at reviews: from the end of the first month on.

        Only reviews whose order comes at least a month before the end: a later one serves nobody.
        """
        edges = self.plan.months.edges
        windows = []
        for name in self.reactive:
            order = self.plan.clusters[self.place(self.purchases[self._first(name)].name)].order
            assert order is not None
            wait = datetime.timedelta(hours=order.lead_h + order.slip_h.base)
            places = [
                place
                for place, purchase in enumerate(self.purchases)
                if purchase.cluster == name and edges[1] <= purchase.date < edges[-2] - wait
            ]
            windows.append(tuple(places))
        return tuple(windows)

    def first_of_reactive(self) -> list[int]:
        """Return the first purchase of each cluster that may be ordered on a signal: what a rule enlarges."""
        return [self._first(name) for name in self.reactive]

    def _first(self, cluster: str) -> int:
        places = [
            place for place, purchase in enumerate(self.purchases) if purchase.cluster == cluster
        ]
        return min(places, key=lambda place: self.purchases[place].date)

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {cluster.name: place for place, cluster in enumerate(self.plan.clusters)}

    def place(self, name: str) -> int:
        """Return the index of a cluster in the compiled plan."""
        return self._places[name]

    def nothing(self) -> Policy:
        """Return the policy that buys, orders, rents and retires nothing."""
        return Policy(
            purchases=(0,) * len(self.purchases),
            rules=(None,) * len(self.reactive),
            retirements=(0,) * len(self.retirements),
        )

    @functools.cached_property
    def reference(self) -> Policy:
        """The policy that is run to measure a node's figures: some nodes of every purchase."""
        few = []
        for place, most in enumerate(self.most_at_once):
            few.append(int(most) if self.tiers[place] else min(int(most), _FEW_NODES))
        return dataclasses.replace(
            self.nothing(), purchases=tuple(few), rented_instances=self.most_instances
        )

    def rule(self, place: int, load_percent: int) -> OrderRule:
        """Return the rule from which a search starts: the stated step, else one node, at every review."""
        step_nodes = self.choose.clusters[self.reactive[place]].step_nodes or 1
        reviews = len(self.windows[place])
        return OrderRule(load_percent=load_percent, step_nodes=step_nodes, reviews=reviews)

    def has_free_step(self, place: int) -> bool:
        """Return whether the step of a cluster's rule is open."""
        return self.choose.clusters[self.reactive[place]].step_nodes is None

    def capital_usd(self, policy: Policy) -> float:
        """Return the price of a candidate's purchases, volume discounts included."""
        return sum(
            nodes * sum(self.node_prices_usd(place, nodes))
            for place, nodes in enumerate(policy.purchases)
            if nodes
        )

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
        unit_usd = cluster.price_book.accelerator_usd(
            day, max(nodes, 1) * cluster.accelerators_per_node
        )
        return unit_usd * cluster.accelerators_per_node

    @functools.cached_property
    def tiers(self) -> tuple[tuple[int, ...], ...]:
        """By purchase, the numbers of nodes at which it reaches another volume discount, rising."""
        return tuple(self._tiers_of(place) for place in range(len(self.purchases)))

    def _tiers_of(self, purchase: int) -> tuple[int, ...]:
        cluster = self.scenario.clusters[self.purchases[purchase].name]
        each_node = self.plan.clusters[
            self.place(self.purchases[purchase].name)
        ].accelerators_per_node
        offers = (cluster.volume_discounts, *(quote.volume_discounts for quote in cluster.quotes))
        return tuple(
            sorted({-(-tier.from_accelerators // each_node) for offer in offers for tier in offer})
        )

    def power_kw(self, policy: Policy) -> Floats:
        """Return nameplate IT power on site after each delivery as scheduled, shape (moments,)."""
        days = policy.retirements
        if days not in self._power:
            nothing = dataclasses.replace(self.nothing(), retirements=days)
            names = [purchase.name for purchase in self.purchases]
            one_each = dataclasses.replace(nothing, purchases=(1,) * len(names))
            rows = []
            fixed_kw = []
            for hour in self.moments_h():
                each_one = self.kw_at(one_each, hour)
                rows.append([each_one.get(name, 0.0) for name in names])
                fixed_kw.append(sum(self.kw_at(nothing, hour).values()))
            self._power[days] = np.array(rows), np.array(fixed_kw)
        kw, fixed = self._power[days]
        return np.asarray(kw @ np.array(policy.purchases, dtype=np.float64) + fixed)

    def moments_h(self) -> list[float]:
        """Return the hours at which nodes are due, when power on site peaks."""
        return sorted({max(due_h(cluster), 0.0) for cluster in self.plan.clusters})

    def kw_at(self, policy: Policy, at_h: float) -> dict[str, float]:
        """Return nameplate IT power on site at a time, by cluster, without hosted clusters."""
        bought = {
            purchase.name: nodes
            for purchase, nodes in zip(self.purchases, policy.purchases, strict=True)
        }
        leaves_h = self.leaves_h(policy)
        return {
            cluster.name: bought.get(cluster.name, cluster.nodes) * cluster.nameplate_kw
            for cluster in self.plan.clusters
            if max(due_h(cluster), 0.0) <= at_h < leaves_h.get(cluster.name, cluster.retire_h)
            and not cluster.is_hosted
        }

    def leaves_h(self, policy: Policy) -> dict[str, float]:
        """Return the hour at which each cluster leaves that a policy retires."""
        leaves = {}
        for retirement, day in zip(self.retirements, policy.retirements, strict=True):
            if not day:
                continue
            leaving = retirement.dates[day - 1] - self.scenario.start
            for name in self.names(retirement.cluster):
                leaves[name] = leaving.days * float(HOURS_PER_DAY)
        return leaves

    def names(self, cluster: str) -> list[str]:
        """Return what the plan calls a cluster: itself, or what is bought of it on each date."""
        return [purchase.name for purchase in self.purchases if purchase.cluster == cluster] or [
            cluster
        ]

    def within_limits(self, policy: Policy) -> bool:
        """Return whether a policy's purchases are within nodes, budget and power, and there is any machine at all."""
        choose = self.choose
        nodes = np.array(policy.purchases)
        if self.purchases:
            least, most = self.nodes_allowed
            totals = np.bincount(self.group_of, weights=nodes, minlength=least.size)
            if (nodes < 0).any() or (nodes > self.most_at_once).any() or (totals > most).any():
                return False
            ordered = [name for name, rule in zip(self.reactive, policy.rules, strict=True) if rule]
            # What a rule orders may make up for a minimum.
            is_fixed = ~np.isin(self.offers, ordered)
            if (totals < least)[is_fixed].any():
                return False
        budget_usd = choose.budget_usd
        if budget_usd is not None and self.capital_usd(policy) > budget_usd * _ROUNDING:
            return False
        cap_kw = choose.it_power_cap_kw
        if cap_kw is not None and (self.power_kw(policy) > cap_kw * _ROUNDING).any():
            return False
        bought = {purchase.name for purchase in self.purchases}
        return policy.has_machines or not set(self.scenario.clusters) <= bought

    def content(self, policy: Policy) -> dict[str, Any]:
        """Return the scenario content of a policy, without clusters that are not bought."""
        content = dict(self.base.content)
        clusters = dict(content["clusters"])
        rules = {}
        for place, rule in enumerate(policy.rules):
            if rule is not None:
                first = self.purchases[self._first(self.reactive[place])].name
                rules[first] = self._rule_content(place, rule, first)
        for purchase, nodes in zip(self.purchases, policy.purchases, strict=True):
            if nodes or purchase.name in rules:
                clusters[purchase.name] = {**clusters[purchase.name], "nodes": nodes}
            else:
                del clusters[purchase.name]
        for retirement, day in zip(self.retirements, policy.retirements, strict=True):
            for name in self.names(retirement.cluster) if day else ():
                if name in clusters:
                    clusters[name] = {**clusters[name], "retire": retirement.dates[day - 1]}
        if rules:
            content["expansion"] = {
                **(content.get("expansion") or {}),
                "rules": tuple(rules.values()),
                "budget_usd": self.budget_left_usd(policy),
                "it_power_cap_kw": self.choose.it_power_cap_kw,
            }
        if self.choose.max_rented_accelerators is not None:
            accelerators = policy.rented_instances * self.instance_accelerators
            terms = {**content["finance"]["burst_rental"], "most_accelerators": accelerators}
            rent = terms if accelerators else None
            content["finance"] = {**content["finance"], "burst_rental": rent}
        return _named(content | {"clusters": clusters}, {name: [name] for name in clusters})

    def budget_left_usd(self, policy: Policy) -> float | None:
        """Return what purchases leave of the budget for orders on a signal; None where there is no budget."""
        if self.choose.budget_usd is None:
            return None
        # A budget of nothing is none to the engine.
        return max(self.choose.budget_usd - self.capital_usd(policy), 1.0)

    def _rule_content(self, place: int, rule: OrderRule, first: str) -> dict[str, Any]:
        """Return the rule by which a cluster is ordered up to a load, as a scenario states it."""
        choice = self.choose.clusters[self.reactive[place]]
        order = self.scenario.clusters[first].order
        assert order is not None
        windows = self.windows[place][: rule.reviews]
        content = {
            "when": "forecast_load_above",
            "threshold_fraction": rule.load_percent / 100.0,
            "cluster": first,
            "nodes": rule.step_nodes,
            "max_nodes": choice.max_nodes,
            "windows": tuple(self.purchases[window].date for window in windows),
            "lead_weeks": order.lead_weeks,
            "slip_weeks": order.slip_weeks.model_dump(),
            "forecast_months": self.forecast_months[place],
            "growth_per_year": round(self.expected_growth, 4),
        }
        if choice.max_nodes_per_date:
            content["max_nodes_per_order"] = choice.max_nodes_per_date
        return content

    @functools.cached_property
    def forecast_months(self) -> tuple[int, ...]:
        """Months ahead to which each rule looks: its lead time, and on to the next window."""
        ahead = []
        for name, places in zip(self.reactive, self.windows, strict=True):
            order = self.plan.clusters[self.place(self.purchases[self._first(name)].name)].order
            assert order is not None
            days = [self.purchases[place].date for place in places]
            gap_days = max(
                ((later - day).days for day, later in itertools.pairwise(days)), default=91
            )
            weeks_h = order.lead_h + order.slip_h.base
            ahead.append(
                max(
                    1,
                    math.ceil(
                        (weeks_h + gap_days * HOURS_PER_DAY) * MONTHS_PER_YEAR / HOURS_PER_YEAR
                    ),
                )
            )
        return tuple(ahead)

    @functools.cached_property
    def expected_growth(self) -> float:
        """Growth a year of what cannot wait, as the scenario states it: all that is known before any is seen."""
        plan = self.plan
        need = np.zeros(plan.hours)
        for w, load in enumerate(plan.workloads):
            if (
                not load.deadline_h
                and (rate := np.nan_to_num(plan.requests_per_node_h[:, w, 0]).max()) > 0
            ):
                need += plan.demand.expected_requests_per_s[w] * SECONDS_PER_HOUR / rate
        first = need[: plan.month_edges_h[1]].mean()
        last = need[plan.month_edges_h[-2] :].mean()
        years = (plan.month_edges_h.size - 2) / MONTHS_PER_YEAR
        return float((last / first) ** (1.0 / years) - 1.0) if first > 0 and years > 0 else 0.0

    def stated(self, policy: Policy) -> Stated:
        """Return the scenario of a policy, ready for changes by a study's inputs."""
        return dataclasses.replace(self.base, content=self.content(policy))

    def parts(self, policy: Policy) -> set[str]:
        """Return the accelerators of a policy that are bought or ordered, or paid by the hour where none is."""
        taken = [
            purchase
            for purchase, nodes in zip(self.purchases, policy.purchases, strict=True)
            if nodes
        ]
        for name, rule in zip(self.reactive, policy.rules, strict=True):
            if rule is not None:
                taken.append(self.purchases[self._first(name)])
        lasting = [purchase for purchase in taken if not self._is_paid_by_the_hour(purchase)]
        return {purchase.accelerator for purchase in lasting or taken}

    def family(self, policy: Policy) -> str:
        """Return the kind of a policy: all of one accelerator, or mixed."""
        parts = self.parts(policy)
        if not parts:
            return "nothing"
        return MIXED if len(parts) > 1 else f"all-{next(iter(parts))}"

    def of_part(self, part: str) -> list[bool]:
        """Return which purchases a plan of one accelerator may use: its own, and any paid by the hour."""
        both = [
            (purchase.accelerator == part, self._is_paid_by_the_hour(purchase))
            for purchase in self.purchases
        ]
        is_lasting = any(is_own and not hourly for is_own, hourly in both)
        return [is_own or (is_lasting and hourly) for is_own, hourly in both]

    def _is_paid_by_the_hour(self, purchase: PurchaseChoice) -> bool:
        return self.plan.clusters[self.place(purchase.name)].is_paid_by_the_hour

    def alike(self, other: Choices, policy: Policy) -> Policy:
        """Return the policy that another's is here: what is not on offer here is not bought."""
        names = [purchase.name for purchase in other.purchases]
        bought = dict(zip(names, policy.purchases, strict=True))
        rules = dict(zip(other.reactive, policy.rules, strict=True))
        return dataclasses.replace(
            policy,
            purchases=tuple(bought.get(purchase.name, 0) for purchase in self.purchases),
            rules=tuple(rules.get(name) for name in self.reactive),
        )

    def earlier(self, day: datetime.date) -> Choices:
        """Return the choices with the first purchase of every offer in service by a day, where it comes later."""
        clusters = dict(self.base.content["clusters"])
        purchases = [*self.purchases]
        for place in map(self._first, self.offers):
            purchase = purchases[place]
            content = clusters[purchase.name]
            order = self.plan.clusters[self.place(purchase.name)].order
            last_date = day
            if order is not None:
                last_date -= datetime.timedelta(hours=order.lead_h + order.slip_h.high)
            if purchase.date <= last_date:
                continue
            purchases[place] = dataclasses.replace(purchase, date=last_date)
            moved: dict[str, object] = {"online": last_date}
            if order is not None:
                moved = {"order": {**content["order"], "placed": last_date}}
            clusters[purchase.name] = {**content, **moved}
        base = _base({**self.base.content, "clusters": clusters}, self.scenario)
        plan = build_plan(base.scenario, Reuse(base.scenario))
        return dataclasses.replace(
            self, base=base, purchases=tuple(purchases), plan=plan, _power={}
        )

    def levers(self, policy: Policy) -> str:
        """Return the levers that a policy pulls, which is what a way to decide is called."""
        levers = []
        if any(policy.purchases) or not policy.orders:
            levers.append("fixed purchases")
        if policy.orders:
            levers.append("orders by rule")
        if policy.rented_instances:
            levers.append("overflow rent")
        if any(cluster.api for cluster in self.plan.clusters):
            levers.append("API")
        if any(policy.retirements):
            levers.append("sale")
        return ", ".join(levers)

    def words(self, policy: Policy) -> str:
        """Return a policy in words."""
        words = [
            f"{nodes} × {purchase.accelerator} ({purchase.cluster}) {purchase.date}"
            for purchase, nodes in zip(self.purchases, policy.purchases, strict=True)
            if nodes
        ]
        for name, rule in zip(self.reactive, policy.rules, strict=True):
            if rule is None:
                continue
            accelerator = self.purchases[self._first(name)].accelerator
            words.append(
                f"{accelerator} ({name}) ordered when forecast load passes {rule.load_percent}%, in steps of "
                f"{rule.step_nodes}, at {rule.reviews} reviews"
            )
        if policy.rented_instances:
            accelerators = policy.rented_instances * self.instance_accelerators
            words.append(f"up to {accelerators} accelerators rented")
        for retirement, day in zip(self.retirements, policy.retirements, strict=True):
            if day:
                words.append(f"{retirement.cluster} retired {retirement.dates[day - 1]}")
        return ", ".join(words) or "nothing"


def due_h(cluster: ClusterPlan) -> float:
    """Return the hour at which a cluster's first nodes are due, as stated."""
    return (
        cluster.order.placed_h + cluster.order.lead_h if cluster.order else cluster.online_h or 0.0
    )


def choices_of(scenario: Scenario, parts: Sequence[str] = ()) -> Choices:
    """Return the allowed purchases and retirements of a scenario, optionally of some accelerators only."""
    choose = scenario.sizing
    if choose is None:
        hint = "for example sizing: {clusters: {h200: {dates: [2026-01-01, 2026-07-01], max_nodes: 200}}}"
        raise ScenarioError(
            scenario.document.problem(("sizing",), "does not say what may be bought", hint)
        )
    if not choose.clusters and not choose.retire:
        hint = "name clusters whose nodes sizing may choose, or that may retire"
        raise ScenarioError(scenario.document.problem(("sizing",), "names nothing to choose", hint))
    if scenario.expansion.rules:
        message = "rules buy what the sizing should choose; remove them, e.g. --set expansion=null"
        raise ScenarioError(scenario.document.problem(("expansion", "rules"), message))
    offered = {name: scenario.clusters[name].accelerator for name in choose.clusters}
    for part in parts:
        if part not in offered.values():
            hint = (
                nearest(part, offered.values())
                or f"there are {listed(sorted(set(offered.values())))}"
            )
            raise ScenarioError(
                Problem(
                    path="--accelerators", message=f"no cluster to choose has {part!r}", hint=hint
                )
            )
    content = {
        key: part
        for key, part in stated(scenario.name, scenario).content.items()
        if key != "sizing"
    }
    purchases = _purchases(scenario, parts)
    # The scenario has every purchase in it as a cluster of its own.
    clusters = {name: entry for name, entry in content["clusters"].items() if name not in offered}
    for purchase in purchases:
        if purchase.name in clusters:
            message = f"is already the name of a cluster; purchases of {purchase.cluster} would get the same name"
            raise ScenarioError(
                scenario.document.problem(("clusters", purchase.name), message, "rename it")
            )
        before = dict(content["clusters"][purchase.cluster])
        before.pop("online", None)
        order = before.get("order")
        day = {"order": {**order, "placed": purchase.date}} if order else {"online": purchase.date}
        clusters[purchase.name] = {**before, **day, "nodes": _FEW_NODES}
    names: dict[str, list[str]] = {name: [name] for name in clusters}
    for purchase in purchases:
        names.setdefault(purchase.cluster, []).append(purchase.name)
    content = _named(content | {"clusters": clusters}, names)
    base = _base(content, scenario)
    full = base.scenario
    retirements = tuple(
        Retirement(cluster=name, dates=tuple(sorted(dates)))
        for name, dates in choose.retire.items()
    )
    plan = build_plan(full, Reuse(full))
    reactive = tuple(
        name
        for name in dict.fromkeys(purchase.cluster for purchase in purchases)
        if choose.orders == "reactive" and scenario.clusters[name].order is not None
    )
    return Choices(
        base=base,
        choose=choose,
        purchases=purchases,
        reactive=reactive,
        retirements=retirements,
        plan=plan,
    )


def _base(content: dict[str, Any], scenario: Scenario) -> Stated:
    """Return a scenario with every purchase in it, checked, as a study's inputs see it, with the lines of another."""
    full = Scenario.model_validate(content)
    full._document = scenario.document
    full = with_catalog(full)
    check_scenario(full)
    return Stated(
        name=full.name, scenario=full, content=content, dump=full.model_dump(by_alias=True)
    )


def _purchases(scenario: Scenario, parts: Sequence[str]) -> tuple[PurchaseChoice, ...]:
    """Return every purchasable cluster and date, in column order."""
    assert scenario.sizing is not None
    made = []
    for name, choice in scenario.sizing.clusters.items():
        cluster = scenario.clusters[name]
        if parts and cluster.accelerator not in parts:
            continue
        dates = choice.dates or _window_dates(scenario, cluster) or (order_date(scenario, cluster),)
        for date in sorted(dates):
            full_name = name if len(dates) == 1 else f"{name}-{date}"
            made.append(
                PurchaseChoice(
                    cluster=name, name=full_name, date=date, accelerator=cluster.accelerator
                )
            )
    known = scenario.sizing.clusters

    def figures(purchase: PurchaseChoice) -> tuple[str, ...]:
        stated = scenario.clusters[purchase.cluster].model_dump(
            mode="json", exclude={"nodes", "online"}
        )
        return (
            purchase.accelerator,
            str(stated),
            str(known[purchase.cluster]),
            str(purchase.date),
            purchase.cluster,
        )

    return tuple(sorted(made, key=figures))


def _window_dates(scenario: Scenario, cluster: Cluster) -> tuple[datetime.date, ...]:
    """Return the days of the scenario's order windows from which a delivery would come within the horizon."""
    assert scenario.sizing is not None
    windows = scenario.sizing.windows
    end = add_months(scenario.start, scenario.horizon_months)
    if isinstance(windows, str):
        months = range(0, scenario.horizon_months, _SPACING[windows])
        windows = tuple(add_months(scenario.start, month) for month in months)
    lead = datetime.timedelta(weeks=cluster.order.lead_weeks if cluster.order else 0.0)
    return tuple(day for day in windows or () if day + lead < end)


def _named(content: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    """Return content in which every list of clusters names the clusters that a split cluster became."""

    def spread(listed: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part for name in listed for part in names.get(name, ())))

    content = {**content, "workloads": dict(content["workloads"])}
    for name, load in content["workloads"].items():
        if load.get("cluster_preference"):
            content["workloads"][name] = {
                **load,
                "cluster_preference": spread(load["cluster_preference"]),
            }
    return content
