"""Explanation of a sizing: what each node is worth, what limits and other prices would change, and regret.

All of it is worked out by the surrogate as the search left it, calibrated on the runs of the answer. Or, of a sizing
without a solution: which limit stands in the way.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.plan.attainment import past_mending
from planner.scenario.scenario import Sizing
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Changes, Evaluator
from planner.sizing.search import Search, moved
from planner.sizing.survey import survey
from planner.units import HOURS_PER_DAY

ABOUT = (-0.05, -0.025, 0.0, 0.025, 0.05)
"""Added to the probability that is asked, in the curve of cost against probability."""
QUANTILES = (0.1, 0.5, 0.9)
_RELAXED = 1.1  # times a limit, where its price is told
_BINDS = 0.95  # share of a limit from which on it is taken to bind
_CHEAPER = 0.9  # times a price: cost is linear in it, so one more survey gives the slope
_HALVINGS = 6  # of the price at which a part enters the mix
_LEAST_PRICE = 0.2  # of today's: below it none is in prospect


class Marginal(NamedTuple):
    """What one node fewer of a purchase saves, and the probability then."""

    purchase: int
    saved: float
    probability: float
    month: int
    """That decides most often whether the SLO target is met."""


class CurvePoint(NamedTuple):
    """The cheapest plan at a probability."""

    probability: float
    cost: float
    nodes: float
    """Bought, orders on a signal in the mean."""
    counts: Counts


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


class Explanation(NamedTuple):
    """The evidence for a sizing's result; empty until it is worked out."""

    marginal: tuple[Marginal, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    limits: tuple[LimitPrice, ...] = ()
    entries: tuple[EntryPrice, ...] = ()
    regrets: tuple[Regret, ...] = ()
    idle: float = 0.0
    """Share of replications in which a quarter or more of the answer's nodes are never needed."""
    triggers: tuple[Trigger, ...] = ()
    last_safe: datetime.date | None = None
    """Last day on which the first order on a signal still comes before one replication in so many is short."""
    predicted_saves: float | None = None
    """What would be saved if throughput were known to be as predicted; None where no error of it is drawn."""


def explain(search: Search, best: Counts) -> Explanation:
    """Return the explanation of a result."""
    search.clock.say("working out what limits, prices and one node fewer would change")
    choices = search.choices
    regrets, idle = _regrets(search, best)
    return Explanation(
        marginal=tuple(
            _marginal(search, best, place)
            for place, nodes in enumerate(best[choices.bought])
            if nodes
        ),
        curve=_curve(search, best) if search.confidence else (),
        limits=_limits(search, best),
        entries=_entries(search, best),
        regrets=regrets,
        idle=idle,
        triggers=triggers(search, best),
        last_safe=_last_safe(search, best) if search.confidence else None,
        predicted_saves=_predicted(search, best),
    )


def _marginal(search: Search, best: Counts, place: int) -> Marginal:
    surrogate = search.surrogate
    fewer = moved(best, {place: -1})
    logs, months = surrogate.log_loads(surrogate.fleet(best))
    near = np.argsort(np.abs(logs - surrogate.threshold.log), kind="stable")[
        : max(1, logs.size // 4)
    ]
    cost, probability = search.value(fewer)
    month = int(np.bincount(months[near]).argmax())
    return Marginal(place, search.value(best)[0] - cost, probability, month)


def _curve(search: Search, best: Counts) -> tuple[CurvePoint, ...]:
    """Return the cheapest plans at probabilities about the target's."""
    points = []
    most = float(search.surrogate.fixable.mean())
    for about in ABOUT:
        asked = search.confidence + about
        counts = best if about == 0.0 else search.near(best, asked) if asked < most else None
        if counts is not None:
            cost, probability = search.value(counts)
            nodes = float(search.surrogate.nodes(counts).sum(axis=1).mean())
            points.append(CurvePoint(probability, cost, nodes, counts))
    return tuple(points)


def _limits(search: Search, best: Counts) -> tuple[LimitPrice, ...]:
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


def _cost_under(search: Search, best: Counts, choose: Sizing) -> float:
    """Return the cost of the best plan under other limits."""
    other = under(search, choose)
    found_best = other.searched(search.every, best, reacts=any(best[search.choices.loads]))
    return other.value(best if found_best is None else found_best)[0]


def under(search: Search, choose: Sizing) -> Search:
    """Return a search by the same surrogate under other limits."""
    surrogate = copy.copy(search.surrogate)
    surrogate.choices = dataclasses.replace(search.choices, choose=choose, _power={})
    return search.by(surrogate)


def _entries(search: Search, best: Counts) -> tuple[EntryPrice, ...]:
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
            made = search.by(surrogate).searched(
                search.every, best, reacts=any(best[choices.loads])
            )
            return made is not None and part in choices.parts(made)

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
    reference = search.choices.reference()
    before, cheaper = search.archive.workers.all(
        _survey_at, [(reference, 1.0), (reference, _CHEAPER)]
    )
    return np.asarray((before - cheaper) / (1.0 - _CHEAPER)) * search.surrogate.weights[0]


def _survey_at(evaluator: Evaluator, counts: Counts, factor: float) -> Floats:
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
    return survey(evaluator, counts, 0, changes).node_usd


def _regrets(search: Search, best: Counts) -> tuple[tuple[Regret, ...], float]:
    """Return the regret at some quantiles of what replications need, and in how many a quarter of the nodes idles."""
    surrogate = search.surrogate
    nodes = surrogate.nodes(best)
    usd = surrogate.node_usd[surrogate.column]
    rows = []
    for r in np.flatnonzero(~surrogate.hopeless).tolist():
        alone = np.zeros(len(surrogate.surveys), dtype=bool)
        alone[r] = True
        needed = search.master(search.every, float(np.exp(surrogate.threshold.log)), alone)
        if needed is not None:
            rows.append(
                (float(nodes[r].sum()), float(needed.sum()), float((nodes[r] - needed) @ usd))
            )
    if not rows:
        return (), 0.0
    ranked = sorted(rows, key=lambda row: row[1])
    at = [ranked[min(int(q * len(ranked)), len(ranked) - 1)] for q in QUANTILES]
    idle = float(np.mean([needed <= 0.75 * there for there, needed, _ in rows]))
    return tuple(Regret(q, *row) for q, row in zip(QUANTILES, at, strict=True)), idle


def triggers(search: Search, best: Counts) -> tuple[Trigger, ...]:
    """Return what each rule would order at each of its reviews, over the surveyed replications."""
    choices = search.choices
    surrogate = search.surrogate
    nodes = surrogate.nodes(best) - np.array(best[choices.bought], dtype=np.float64)
    made = []
    for which, load in enumerate(best[choices.loads]):
        for place in choices.windows[which] if load else ():
            ordered = tuple(
                float(np.quantile(nodes[:, place], q, method="higher")) for q in QUANTILES
            )
            installed = float(np.median(surrogate.installed(best, which, place)))
            ahead = choices.forecast_months[which]
            date = choices.purchases[place].date
            made.append(
                Trigger(choices.reactive[which], date, load / 100.0, ahead, installed, ordered)
            )
    return tuple(made)


def _last_safe(search: Search, best: Counts) -> datetime.date | None:
    """Return the last day for the first order on a signal: lead and slip before capacity is short in too many."""
    choices = search.choices
    surrogate = search.surrogate
    loads = best[choices.loads]
    if not any(loads):
        return None
    stated = tuple(
        0 if choices.loads.start <= at < choices.loads.stop else n for at, n in enumerate(best)
    )
    scales = surrogate.scales(surrogate.fleet(stated)).min(axis=0)
    short = np.maximum.accumulate(
        np.log(np.maximum(scales, 1e-9)) < surrogate.threshold.log, axis=1
    )
    months = np.flatnonzero(short[~surrogate.hopeless].mean(axis=0) > 1.0 - search.confidence)
    if not months.size:
        return None
    which = next(at for at, load in enumerate(loads) if load)
    order = choices.plan.clusters[
        choices.place(choices.purchases[choices.first_of_reactive()[which]].name)
    ].order
    assert order is not None
    wait = datetime.timedelta(hours=order.lead_h + order.slip_h.base)
    needed_h = float(choices.plan.month_edges_h[months[0]])
    return choices.scenario.start + datetime.timedelta(days=needed_h / HOURS_PER_DAY) - wait


def _predicted(search: Search, best: Counts) -> float | None:
    """Return what would be saved if throughput were as predicted: the draws of its error set to their mean."""
    errors = [
        i for i, uncertain in enumerate(search.trial.inputs.entries) if uncertain.throughput_of
    ]
    if not errors:
        return None
    other = search.by(search.surrogate.with_known(errors))
    made = other.searched(search.every, best, reacts=any(best[search.choices.loads]))
    return None if made is None else max(0.0, search.value(best)[0] - other.value(made)[0])


def nothing_mends(search: Search) -> str:
    """Return that too many replications miss the SLO target whatever is bought, by cause and with the remedy."""
    surrogate = search.surrogate
    trial = search.trial
    causes = past_mending(np.array([one.ceilings for one in surrogate.surveys]).T, trial.attainment)
    said = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in causes.items() if count)
    return (
        f"{surrogate.unfixable:.0%} of replications miss the SLO target whatever is bought ({said} of "
        f"{len(surrogate.surveys)} surveyed), and {1.0 - trial.confidence:.0%} may: a second site, an earlier date, a "
        "lower slo_target.attainment or slo_target.confidence is the remedy, not nodes"
    )


def nothing(search: Search) -> str:
    """Return why no plan meets the SLO target, and which limits to relax."""
    choices, choose = search.choices, search.choices.choose
    lead = "nothing that may be chosen meets the SLO target: "
    wide = {
        name: limit.model_copy(update={"max_nodes": 100_000, "max_nodes_per_date": None})
        for name, limit in choose.clusters.items()
    }
    free = {"clusters": wide, "budget_usd": None, "it_power_cap_kw": None}
    reacts = bool(choices.reactive)

    def without(*limits: str) -> Counts | None:
        other = under(search, choose.model_copy(update={name: free[name] for name in limits}))
        return other.searched(search.every, None, reacts=reacts)

    said = []
    if choose.budget_usd is not None and (made := without("budget_usd")):
        said.append(
            f"a budget of about {choices.capital_usd(made):,.0f} USD in place of {choose.budget_usd:,.0f}"
        )
    if choose.it_power_cap_kw is not None and (made := without("it_power_cap_kw")):
        said.append(
            f"about {choices.power_kw(made).max():,.0f} kW of power in place of {choose.it_power_cap_kw:,.0f}"
        )
    if made := without("clusters"):
        nodes = np.bincount(
            choices.group_of, weights=made[choices.bought], minlength=len(choices.offers)
        )
        times = float((nodes / choices.nodes_allowed[1]).max())
        said.append(
            f"max_nodes about {max(times, 1.0):,.2f} times as large, or more nodes on a date"
        )
    if said:
        return lead + "it would take " + ", or ".join(said)
    if without(*free):
        return (
            lead
            + "budget, power and max_nodes stand in the way together; relax more than one of them"
        )
    logs, months = search.surrogate.log_loads(search.surrogate.fleet(choices.reference()))
    month = choices.plan.months.labels[
        int(np.bincount(months[np.argsort(logs)[: max(1, logs.size // 4)]]).argmax())
    ]
    return (
        lead
        + f"no number of nodes does, least in {month}; allow earlier dates, other parts, or a lower SLO target"
    )
