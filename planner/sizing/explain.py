"""Explanation of a sizing: what each node is worth, what limits and other prices would change, and regret.

Most of it is estimated by the surrogate as the search left it; by when to order is simulated.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.plan.attainment import LEAST_SHORTFALL
from planner.scenario.scenario import Sizing
from planner.sizing.evaluate import Changes, Evaluator
from planner.sizing.policy import Policy
from planner.sizing.refusal import under
from planner.sizing.search import Levers, Search
from planner.sizing.selection import Arena
from planner.sizing.survey import survey
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK

QUANTILES = (0.1, 0.5, 0.9)
_RELAXED = 1.1  # times a limit, where its price is told
_BINDS = 0.95  # share of a limit from which on it is taken to bind
_CHEAPER = 0.9  # times a price: cost is linear in it, so one more survey gives the slope
_HALVINGS = 6  # of the price at which a part enters the mix
_LEAST_PRICE = 0.2  # of today's: below it none is in prospect
_MOVES = 0.005  # change of the probability below which an input moves prices alone
_SWANSON = (0.3, 0.4, 0.3)  # weights of the three quantiles whose mean is about that of the input


class Marginal(NamedTuple):
    """What one node fewer of a purchase saves, and the probability then."""

    purchase: int
    saved: float
    probability: float
    month: int
    """That decides most often whether the SLO target is met."""


class LimitPrice(NamedTuple):
    """What a tenth more of a limit would save."""

    limit: str
    value: float
    saved: float


class EntryPrice(NamedTuple):
    """The price change at which the first node of an accelerator enters the mix."""

    accelerator: str
    price_change: float | None
    """None where none within reach does."""


class Regret(NamedTuple):
    """A replication of middling, low or high demand, with the plan that would have done in it alone."""

    quantile: float
    nodes: float
    """Of the answer there, orders included."""
    needed: float
    """That would have done."""
    regret: float
    """What the answer costs more than that."""


class Trigger(NamedTuple):
    """One review of a rule: what is seen then, and what is ordered."""

    cluster: str
    date: datetime.date
    load: float
    forecast_months: int
    """Months ahead to which the forecast looks."""
    installed: float
    """Nodes that count as installed then, in the middling replication, in nodes of the cluster."""
    ordered: tuple[float, ...]
    """Nodes ordered, at each of :data:`QUANTILES` of the replications."""


class LastSafe(NamedTuple):
    """Last day on which the first order on a signal still comes before too many replications miss their target."""

    date: datetime.date
    month: int
    """First month in which too many replications have missed it where nothing is ordered; simulated."""
    wait_weeks: float
    """From order to delivery: the lead time and the usual slip."""


class InputSwing(NamedTuple):
    """What one uncertain input moves, between a tenth and nine tenths of its draws; all others as drawn."""

    name: str
    values: tuple[float, float]
    sized: tuple[float | None, float | None]
    """Cost of a plan that is sized for the case, at the probability that is asked; None where none will do."""
    answer: tuple[float, float]
    """Cost of the answer as it is."""
    probabilities: tuple[float, float]
    """Of the answer to meet the SLO target."""
    known_saves: float
    """What is saved where the input is known before anything is decided."""

    @property
    def swing(self) -> float:
        """Between the costs of the two plans; infinite where only one is."""
        low, high = self.sized
        return math.inf if low is None or high is None else abs(high - low)


class Explanation(NamedTuple):
    """The evidence for a sizing's result; empty until it is worked out."""

    marginal: tuple[Marginal, ...] = ()
    limits: tuple[LimitPrice, ...] = ()
    entries: tuple[EntryPrice, ...] = ()
    regrets: tuple[Regret, ...] = ()
    idle: float = 0.0
    """Share of replications in which a quarter or more of the answer's nodes are never needed."""
    triggers: tuple[Trigger, ...] = ()
    last_safe: LastSafe | None = None
    """By when the first order on a signal is to be placed; None without such orders."""
    perfect_information_saves: float | None = None
    """At most what a policy that knew each future would save, in the unit of the objective: a bound for any policy."""
    sensitivity: tuple[InputSwing, ...] = ()
    """What each uncertain input moves, most first."""


def explain(search: Search, best: Policy) -> Explanation:
    """Return the explanation of a result."""
    search.clock.say("estimating the effects of limits, of prices and of one node fewer")
    regrets, idle, perfect_saves = _regrets(search, best)
    return Explanation(
        marginal=tuple(
            _marginal(search, best, place) for place, nodes in enumerate(best.purchases) if nodes
        ),
        limits=_limits(search, best),
        entries=_entries(search, best),
        regrets=regrets,
        idle=idle,
        perfect_information_saves=perfect_saves,
        triggers=triggers(search, best),
        last_safe=_last_safe(search, best) if search.confidence else None,
        sensitivity=sensitivity(search, best),
    )


def _marginal(search: Search, best: Policy, place: int) -> Marginal:
    surrogate = search.surrogate
    fewer = best.with_nodes({place: -1})
    logs, months = surrogate.log_loads(surrogate.fleet(best))
    near = np.argsort(np.abs(logs - surrogate.threshold.log), kind="stable")[
        : max(1, logs.size // 4)
    ]
    cost, probability = search.value(fewer)
    month = int(np.bincount(months[near]).argmax())
    return Marginal(place, search.value(best)[0] - cost, probability, month)


def _limits(search: Search, best: Policy) -> tuple[LimitPrice, ...]:
    """Return what a tenth more of each limit that binds would save."""
    choices, choose = search.choices, search.choices.choose
    nodes = search.surrogate.nodes(best).mean(axis=0)
    relaxed: list[tuple[str, float, Sizing]] = []

    def with_choice(name: str, **changes: object) -> Sizing:
        wider = choose.clusters[name].model_copy(update=changes)
        return choose.model_copy(update={"clusters": {**choose.clusters, name: wider}})

    for group, name in enumerate(choices.offers):
        limit = choose.clusters[name]
        bought = nodes[choices.group_of == group]
        if bought.sum() > _BINDS * limit.max_nodes:
            more = int(np.ceil(_RELAXED * limit.max_nodes))
            relaxed.append(
                (f"max_nodes of {name}", limit.max_nodes, with_choice(name, max_nodes=more))
            )
        per_date = limit.max_nodes_per_date
        if per_date is not None and bought.max() > _BINDS * per_date:
            more = int(np.ceil(_RELAXED * per_date))
            relaxed.append(
                (
                    f"max_nodes_per_date of {name}",
                    per_date,
                    with_choice(name, max_nodes_per_date=more),
                )
            )
    if choose.budget_usd is not None and choices.capital_usd(best) > _BINDS * choose.budget_usd:
        more_usd = _RELAXED * choose.budget_usd
        relaxed.append(
            ("budget_usd", choose.budget_usd, choose.model_copy(update={"budget_usd": more_usd}))
        )
    cap_kw = choose.it_power_cap_kw
    if cap_kw is not None and choices.power_kw(best).max() > _BINDS * cap_kw:
        more_kw = choose.model_copy(update={"it_power_cap_kw": _RELAXED * cap_kw})
        relaxed.append(("it_power_cap_kw", cap_kw, more_kw))
    return tuple(
        LimitPrice(
            limit, float(value), max(0.0, search.value(best)[0] - _cost_under(search, best, wider))
        )
        for limit, value, wider in relaxed
    )


def _cost_under(search: Search, best: Policy, choose: Sizing) -> float:
    """Return the cost of the best plan under other limits."""
    other = under(search, choose)
    return other.cost(other.find(_levers_of(search, best), best) or best)


def _levers_of(search: Search, policy: Policy) -> Levers:
    """Return the levers of a search that a policy pulls."""
    return search.levers(rules=policy.orders, rent=bool(policy.rented_instances))


def _entries(search: Search, best: Policy) -> tuple[EntryPrice, ...]:
    """Return the price change at which each accelerator that the answer has none of enters the mix."""
    choices = search.choices
    absent = [part for part in choices.accelerators if part not in choices.parts(best)]
    if not absent or search.trial.objective == "levelised":
        return ()
    slopes = price_slopes(search)
    entries = []
    for part in absent:
        columns = [
            p for p, purchase in enumerate(choices.purchases) if purchase.accelerator == part
        ]

        def enters(factor: float, columns: Sequence[int] = columns, part: str = part) -> bool:
            surrogate, places = copy.copy(search.surrogate), search.surrogate.column[columns]
            surrogate.node_usd = surrogate.node_usd.copy()
            surrogate.node_usd[places] += (factor - 1.0) * slopes[places]
            cheapest = search.by(surrogate).find(_levers_of(search, best), best)
            return cheapest is not None and part in choices.parts(cheapest)

        low = _LEAST_PRICE
        high = 1.0
        if not enters(low):
            entries.append(EntryPrice(part, None))
            continue
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if enters(middle) else (low, middle)
        entries.append(EntryPrice(part, low - 1.0))
    return tuple(entries)


def price_slopes(search: Search) -> Floats:
    """Return the cost of a node that the whole of its accelerators' price makes up, shape (clusters,)."""
    reference = search.choices.reference
    before, cheaper = search.archive.workers.all(
        _survey_at, [(reference, 1.0), (reference, _CHEAPER)]
    )
    return np.asarray((before - cheaper) / (1.0 - _CHEAPER)) * search.surrogate.weights[0]


def _survey_at(evaluator: Evaluator, policy: Policy, factor: float) -> Floats:
    """Return the cost of a node of every cluster in the first replication, accelerators at a multiple of their price.

    Prices are those stated, not those that a study draws, so that two surveys differ by the factor alone.
    """
    choices = evaluator.trial.choices
    changes = Changes()
    catalog = choices.scenario.load_catalog()
    for purchase in choices.purchases:
        cluster = choices.scenario.clusters[purchase.name]
        entry = catalog.accelerator(cluster.accelerator).accelerator_price_usd
        price = cluster.accelerator_price_usd
        price = (entry.value if entry else 0.0) if price is None else price
        changes[purchase.name, "accelerator_price_usd"] = price * factor
        changes[purchase.name, "quotes"] = tuple(
            {**quote.model_dump(), "accelerator_price_usd": quote.accelerator_price_usd * factor}
            for quote in cluster.quotes
        )
    return survey(evaluator, policy, 0, changes).node_usd


def _regrets(search: Search, best: Policy) -> tuple[tuple[Regret, ...], float, float | None]:
    """Return the regret at some quantiles of what replications need, in how many a quarter idles, and the bound.

    The bound: what nodes cost that are enough in each replication alone, in parts of nodes, and none where the target
    may be missed, in the dearest. No policy that has to decide without knowing the future costs less.
    """
    surrogate = search.surrogate
    nodes = surrogate.nodes(best)
    usd = surrogate.node_usd[surrogate.column]
    threshold = float(np.exp(surrogate.threshold.log))
    rows = []
    needed_usd = []
    for r in np.flatnonzero(~surrogate.hopeless).tolist():
        alone = np.zeros(len(surrogate.surveys), dtype=bool)
        alone[r] = True
        needed = search.master(search.levers().purchases, threshold, alone)
        if needed is not None:
            rows.append(
                (float(nodes[r].sum()), float(needed.sum()), float((nodes[r] - needed) @ usd))
            )
            needed_usd.append(float(needed @ usd))
    if not rows:
        return (), 0.0, None
    ranked = sorted(rows, key=lambda row: row[1])
    places = [min(int(quantile * len(ranked)), len(ranked) - 1) for quantile in QUANTILES]
    regrets = [
        Regret(quantile, *ranked[place]) for quantile, place in zip(QUANTILES, places, strict=True)
    ]
    idle = float(np.mean([needed <= 0.75 * there for there, needed, _ in rows]))
    must_meet = math.ceil(search.confidence * len(needed_usd))
    least_usd = sum(sorted(needed_usd)[:must_meet]) / len(needed_usd)
    return tuple(regrets), idle, float((nodes @ usd).mean()) - least_usd


def triggers(search: Search, best: Policy) -> tuple[Trigger, ...]:
    """Return what each rule would order at each of its reviews, over the surveyed replications."""
    choices = search.choices
    surrogate = search.surrogate
    ordered = surrogate.nodes(best) - np.array(best.purchases, dtype=np.float64)
    reviews = []
    for place, rule in enumerate(best.rules):
        for window in choices.windows[place][: rule.reviews] if rule else ():
            assert rule is not None
            orders = [
                float(np.quantile(ordered[:, window], quantile, method="higher"))
                for quantile in QUANTILES
            ]
            installed = float(np.median(surrogate.installed(best, place, window)))
            reviews.append(
                Trigger(
                    cluster=choices.reactive[place],
                    date=choices.purchases[window].date,
                    load=rule.load_percent / 100.0,
                    forecast_months=choices.forecast_months[place],
                    installed=installed,
                    ordered=tuple(orders),
                )
            )
    return tuple(reviews)


def _last_safe(search: Search, best: Policy) -> LastSafe | None:
    """Return by when the first order on a signal is to be placed, from runs of the policy without such orders."""
    choices = search.choices
    if not best.orders:
        return None
    without_orders = dataclasses.replace(best, rules=(None,) * len(best.rules))
    replications = len(search.surrogate.surveys)
    arena = Arena(search.trial, search.archive, replications)
    # Of months without requests no share is known, and none misses.
    shares = np.nan_to_num(arena.selected(without_orders, replications).shares, nan=1.0)
    is_missed = (shares <= search.trial.attainment - LEAST_SHORTFALL).any(axis=2)
    missed_so_far = np.maximum.accumulate(is_missed, axis=1)
    months = np.flatnonzero(missed_so_far.mean(axis=0) > 1.0 - search.confidence)
    if not months.size:
        return None
    month = int(months[0])
    which = next(place for place, rule in enumerate(best.rules) if rule)
    order = choices.plan.clusters[
        choices.place(choices.purchases[choices.first_of_reactive()[which]].name)
    ].order
    assert order is not None
    wait_h = order.lead_h + order.slip_h.base
    needed_h = float(choices.plan.month_edges_h[month])
    days = (needed_h - wait_h) / HOURS_PER_DAY
    return LastSafe(
        date=choices.scenario.start + datetime.timedelta(days=days),
        month=month,
        wait_weeks=wait_h / HOURS_PER_WEEK,
    )


def sensitivity(search: Search, best: Policy) -> tuple[InputSwing, ...]:
    """Return what each uncertain input moves, most first: of plans sized for either case, and of the answer as it is.

    An input that does not move the probability moves prices alone: the answer is then the plan for either case. What
    knowing an input saves is the mean of the re-sized costs over its quantiles, which weigh as Swanson has them.
    """
    levers = _levers_of(search, best)
    swings = []
    for place, name in enumerate(search.trial.inputs.names):
        values, scores = search.surrogate.scores(place, QUANTILES)
        cases = [search.by(search.surrogate.given(place, score)) for score in scores.tolist()]
        usd, probabilities = zip(*(case.value(best) for case in cases), strict=True)
        costs: list[float | None] = [*usd]
        saves = 0.0
        if abs(probabilities[0] - probabilities[-1]) >= _MOVES:
            plans = [case.at(search.confidence, best, levers) for case in cases]
            sized = zip(cases, plans, strict=True)
            costs = [None if plan is None else case.cost(plan) for case, plan in sized]
            known = [cost for cost in costs if cost is not None]
            if len(known) == len(costs):
                saves = max(0.0, search.cost(best) - float(np.dot(known, _SWANSON)))
        swings.append(
            InputSwing(
                name=name,
                values=(float(values[0]), float(values[-1])),
                sized=(costs[0], costs[-1]),
                answer=(usd[0], usd[-1]),
                probabilities=(probabilities[0], probabilities[-1]),
                known_saves=saves,
            )
        )
    return tuple(sorted(swings, key=lambda one: -one.swing))
