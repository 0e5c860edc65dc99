"""Explanation of a sizing: the effect of one node fewer, binding constraints, and the cost of a higher SLO.

Or, of a sizing without a solution: which constraint stands in the way, and by how much it would have to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.plan.build import build_plan
from planner.plan.reuse import Reuse
from planner.scenario.scenario import Scenario
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Evaluator, Judged, Trial, judged
from planner.sizing.lp_data import Prices, Survey
from planner.sizing.relaxation import ConstraintRows, Relaxation, minimised, rows_of
from planner.sizing.search import Search, moved

FRONTIER_SCALES = (0.8, 0.9, 0.95, 1.05, 1.1)
"""Times the answer's nodes: plans that serve a little worse and a little better."""
PREDICTED_SCALES = (0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
"""Times the answer's nodes: plans tried with throughput as predicted, until one misses the SLO target too often."""


class Fewer(NamedTuple):
    """The result with one node of a purchase removed."""

    purchase: int
    slo_met_fraction: float
    """Of the replications in which it was run, those that meet the SLO target."""
    refuted: bool
    """Whether those are enough, but not those of all to which the answer is held."""
    saved: float
    """What it saves."""
    month: int | None
    """Month that breaks first in the replication where one node decides; None where it still meets the SLO target."""
    workload: int | None
    attainment: float
    """SLO attainment there."""


class Narrow(NamedTuple):
    """The contribution of a narrower precision than the default to one cluster of the result."""

    cluster: str
    precision: str
    rate_ratio: tuple[float, ...]
    """Requests of a node over those in the usual precision, by workload; NaN where it serves neither way."""
    kept: int
    """Replications that meet the SLO target where the cluster serves in the usual precision instead."""


class Predicted(NamedTuple):
    """The smallest plan of the answer's mix that meets the SLO target where throughput is as predicted."""

    nodes_fraction: float
    """Its nodes over the answer's."""
    saved: float
    """What it would save: so much the error of the throughput model costs."""


class Explanation(NamedTuple):
    """The evidence for a sizing's result."""

    fewer: tuple[Fewer, ...]
    frontier: tuple[Judged, ...]
    """Plans that no other found beats in cost, service and probability, cheapest first."""
    nines: tuple[tuple[float, Judged | None], ...]
    """For each promised share, the cheapest plan found that keeps it in as many replications."""
    narrow: tuple[Narrow, ...]
    predicted: Predicted | None
    """None where replications draw no error of throughput."""


def explain(search: Search, plan: Judged, replications: int) -> Explanation:
    """Return the explanation of a result, over the replications of its search.

    A result that was not confirmed was enlarged, and is then held to the replications that refuted it as well. Plans
    run in those are judged by them; plans that only seem cheaper, since they were not run there, are left out.
    """
    every = range(replications)
    search.clock.say("asking why not less, and what more would cost")
    bought = len(search.trial.choices.purchases)
    for scale in FRONTIER_SCALES:
        scaled = _scaled(plan.counts, bought, scale)
        if search.trial.choices.within_limits(scaled):
            search.outcomes(scaled, every)
    fewer = tuple(_fewer(search, plan, place, every) for place, nodes in enumerate(plan.counts[:bought]) if nodes)
    # The cheapest plan found for each promised share; one for a higher share than promised is searched for.
    missed, confidence = 1.0 - search.attainment, search.trial.slo_target.confidence
    asked = [max(1.0 - 10.0 * missed, 0.0), search.attainment, 1.0 - missed / 10.0]  # one nine fewer, and one more
    nines: list[tuple[float, Judged | None]] = []
    for share in dict.fromkeys(round(share, 9) for share in asked):
        if share > search.attainment:
            search.promising(share).run()
        keeping = [known for known in _known(search, plan, every) if known.keeps(share, confidence)]
        nines.append((share, min(keeping, key=lambda keeper: keeper.cost, default=None)))
    best = frontier(_known(search, plan, every), search, plan.counts)
    narrow, predicted = _narrow(search, plan, every), _predicted(search, plan, every)
    return Explanation(fewer=fewer, frontier=best, nines=tuple(nines), narrow=narrow, predicted=predicted)


def _scaled(counts: Counts, bought: int, scale: float) -> Counts:
    """Return a plan with a multiple of the nodes that it buys, and the same retirements."""
    return (*(round(nodes * scale) for nodes in counts[:bought]), *counts[bought:])


def _predicted(search: Search, plan: Judged, every: Sequence[int]) -> Predicted | None:
    """Return how much smaller the answer could be if throughput were known to be as predicted."""
    trial, least = search.trial, Predicted(nodes_fraction=1.0, saved=0.0)
    if not any(uncertain.throughput_of for uncertain in trial.inputs.entries):
        return None
    for scale in PREDICTED_SCALES:
        counts = _scaled(plan.counts, len(trial.choices.purchases), scale)
        runs = [(counts, replication, None, True) for replication in every]
        smaller = judged(counts, search.archive.workers.all(Evaluator.outcome, runs))
        if not smaller.keeps(search.attainment, trial.slo_target.confidence):
            break
        least = Predicted(nodes_fraction=scale, saved=plan.cost - smaller.cost)
    return least


def _fewer(search: Search, plan: Judged, place: int, every: Sequence[int]) -> Fewer:
    """Return the effect of removing one node: where the SLO target is then missed, and the saving."""
    counts = moved(plan.counts, {place: -1})
    if not any(counts):
        return Fewer(
            place, slo_met_fraction=0.0, refuted=False, saved=plan.cost, month=0, workload=None, attainment=0.0
        )
    less = judged(counts, search.outcomes(counts, every))
    newly = np.flatnonzero(plan.kept(search.attainment) & ~less.kept(search.attainment))
    seen = _in_all(search, less)
    month, workload, attainment = None, None, 1.0
    if newly.size:
        shares = less.shares[newly[int(np.argmax(less.worst[newly]))]]  # where it breaks by least, one node decides
        month = int(np.argmax((np.nan_to_num(shares, nan=1.0) < search.attainment).any(axis=1)))
        worst = int(np.nanargmin(shares[month]))
        workload, attainment = worst if search.trial.slo_target.is_per_workload else None, float(shares[month, worst])
    met, refuted = float(seen.kept(search.attainment).mean()), _only_seems(search, seen)
    return Fewer(place, met, refuted, plan.cost - less.cost, month, workload, attainment)


def _known(search: Search, answer: Judged, every: Sequence[int]) -> list[Judged]:
    """Return every candidate run in all replications of the search, except falsely cheap ones."""
    plans = [judged(counts, search.outcomes(counts, every)) for counts in search.archive.complete(every)]
    judged_in_all = (_in_all(search, plan) for plan in plans)
    return [plan for plan in judged_in_all if plan.cost >= answer.cost or not _only_seems(search, plan)]


def _only_seems(search: Search, plan: Judged) -> bool:
    """Return whether a candidate meets the SLO target only in the fewer replications it was run in."""
    seems = plan.worst.size < len(search.order) and plan.keeps(search.attainment, search.trial.slo_target.confidence)
    return seems and not search.holds(plan.counts, fully=True)


def _in_all(search: Search, plan: Judged) -> Judged:
    """Return a candidate with its attainment over all replications of the result, if run there; costs unchanged."""
    further = search.order if plan.worst.size < len(search.order) else ()
    if not further or not search.archive.knows(plan.counts, further):
        return plan
    seen = judged(plan.counts, search.outcomes(plan.counts, further))
    return replace(plan, worst=seen.worst, shares=seen.shares)


def frontier(plans: Sequence[Judged], search: Search, answer: Counts) -> tuple[Judged, ...]:
    """Return the result, and the plans not dominated in cost, attainment and probability of meeting the SLO.

    A plan that was run in fewer replications may have been lucky in them, and seem to beat the answer.
    """
    share = search.trial.slo_target.confidence

    def figures(plan: Judged) -> tuple[float, float, float]:
        return plan.cost, -plan.service(share), -float(plan.kept(search.attainment).mean())

    kept: list[Judged] = []
    for plan in sorted(plans, key=lambda plan: (*figures(plan), plan.counts)):
        _, service, probability = figures(plan)
        better = all(service < figures(other)[1] - 1e-12 or probability < figures(other)[2] - 1e-12 for other in kept)
        if better or plan.counts == answer:
            kept.append(plan)
    return tuple(kept)


def _narrow(search: Search, plan: Judged, every: Sequence[int]) -> tuple[Narrow, ...]:
    """Return the effect of serving each narrow-precision cluster in the workloads' own precision instead."""
    choices = search.trial.choices
    catalog = choices.scenario.load_catalog()
    usual = catalog.precisions[catalog.precision_with("default")].weight_bytes.value
    narrow = []
    for purchase, nodes in zip(choices.purchases, plan.counts, strict=False):
        precision = choices.scenario.clusters[purchase.name].precision
        if not nodes or precision is None or catalog.precisions[precision].weight_bytes.value >= usual:
            continue
        runs = [(plan.counts, replication, {(purchase.name, "precision"): None}) for replication in every]
        outcomes = search.archive.workers.all(Evaluator.outcome, runs)
        kept, name = int(judged(plan.counts, outcomes).kept(search.attainment).sum()), purchase.name
        clusters = choices.base.content["clusters"]
        content = {**choices.base.content, "clusters": {**clusters, name: {**clusters[name], "precision": None}}}
        wider = Scenario.model_validate(content)
        wider._document = choices.scenario.document
        place = choices.place(name)  # what a node serves on the first day, as stated and in the usual precision
        stated = choices.plan.requests_per_node_h[place, :, 0]
        other = build_plan(wider, Reuse(wider)).requests_per_node_h[place, :, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = tuple((stated / other).tolist())
        narrow.append(Narrow(cluster=name, precision=precision, rate_ratio=ratio, kept=kept))
    return tuple(narrow)


_ALL = frozenset({"nodes", "budget", "power"})


def what_to_relax(trial: Trial, surveys: Sequence[Survey], prices: Prices) -> str:
    """Return why no plan meets the SLO target, and which limits to relax, from the decisive replication.

    Figures are those of the relaxation, so they are the least that would do: no node fails in them.
    """
    program, choose = Relaxation(trial, surveys, prices), trial.choices.choose
    said = []
    if choose.budget_usd is not None and (least := _least(program, _ALL - {"budget"}, "budget")) is not None:
        said.append(f"a budget of at least {least:,.0f} USD in place of {choose.budget_usd:,.0f}")
    if choose.it_power_cap_kw is not None and (least := _least(program, _ALL - {"power"}, "power")) is not None:
        said.append(f"at least {least:,.0f} kW of power in place of {choose.it_power_cap_kw:,.0f}")
    if (least := _least(program, _ALL - {"nodes"}, "nodes")) is not None:
        said.append(f"max_nodes {least:,.2f} times as large")
    lead = "nothing that may be chosen meets the SLO target: "
    if said:
        return lead + "it would take " + ", or ".join(said)
    if _least(program, frozenset(), "nodes") is not None:
        return lead + "budget, power and max_nodes stand in the way together; relax more than one of them"
    return lead + _when(program)


def nearest_miss(search: Search) -> str:
    """Return how close the best plan within the limits comes to the SLO target, where none meets it."""
    slo_target, choices = search.trial.slo_target, search.trial.choices
    tried: dict[Counts, list[float]] = {}
    for (counts, _), outcome in search.archive.known.items():
        tried.setdefault(counts, []).append(outcome.worst)
    nearest = max(tried, key=lambda counts: (float(np.mean(tried[counts])), -sum(counts)))
    outcomes = search.outcomes(nearest, range(len(search.surveyed.surveys)))
    service, worst = judged(nearest, outcomes).service(slo_target.confidence), ""
    if slo_target.is_per_month:
        shares = np.nan_to_num(np.mean([outcome.shares for outcome in outcomes], axis=0), nan=1.0)
        worst = f", least in {choices.plan.months.labels[int(shares.min(axis=1).argmin())]}"
    more = [moved(nearest, {place: 1}) for place in range(len(choices.purchases))]
    room = "" if any(choices.within_limits(counts) for counts in more) else ", and limits allow no node more"
    return (
        f"nothing that may be chosen was found to meet the SLO target: {choices.words(nearest)} comes nearest, with "
        f"{service:.2%} attained in {slo_target.confidence:.0%} of replications{worst}{room}; SLO target no "
        "more than that, or allow more nodes, earlier dates, budget or power"
    )


def _least(program: Relaxation, limits: frozenset[str], of: str) -> float | None:
    """Return the least value of a limit at which the other limits are feasible; None where they are not."""
    size = program.variables + 1  # the last variable is the limit
    cost = np.zeros(size)
    cost[-1] = 1.0
    rows = program.constraints(limits)
    if of == "budget":
        rows.append(_below(program.capital(), size, 1.0, 0.0))
    elif of == "power":
        rows += [_below(kw, size, 1.0, existing) for kw, existing in program.power_rows()]
    else:
        for group, nodes in enumerate(program.choices.nodes_allowed()[1]):
            rows.append(_below(np.where(program.choices.group_of == group, 1.0, 0.0), size, float(nodes), 0.0))
    solved = minimised(cost, rows, np.zeros(size, dtype=np.int64), np.append(program.upper(), np.inf))
    return None if solved is None else float(solved[0][-1])


def _below(coefficients: Floats, size: int, times: float, existing: float) -> ConstraintRows:
    """Return the row Σ coefficients·x + existing ≤ times·limit, of a program whose last variable is the limit."""
    columns = np.append(np.arange(coefficients.size), size - 1)
    return rows_of(0 * columns, columns, np.append(coefficients, -times), most=-existing)


def _when(program: Relaxation) -> str:
    """Return which SLO misses no purchase can avoid: site outages, or months before the first delivery."""
    survey, slo_target, plan = program.survey, program.trial.slo_target, program.choices.plan
    labels = plan.months.labels
    asked, lit = survey.demand.sum(axis=1), survey.lit_demand.sum(axis=1)
    share = np.divide(lit, asked, out=np.ones_like(lit), where=asked > 0)
    if share.min() < slo_target.attainment:
        month, load = (int(place) for place in np.unravel_index(np.argmin(share), share.shape))
        return (
            f"in more replications than may break it the site is dark for too long (in {labels[month]} "
            f"{1.0 - share[month, load]:.2%} of {plan.workloads[load].name} arrives then); lower slo_target.attainment "
            "or slo_target.confidence, or state another site.outages_per_year"
        )
    there = survey.present.max(axis=(0, 2)) > 0
    if not there.all():
        return f"nothing can be there in {labels[int(np.argmax(~there))]}; allow an earlier date"
    rates = survey.rates.max(axis=0)
    unserved = [load.name for load, rate in zip(plan.workloads, rates, strict=True) if not rate.all()]
    if unserved:
        return f"no part that may be bought serves {unserved[0]} in every month within its objective"
    bought = {purchase.name for purchase in program.choices.purchases}
    new = [place for place, cluster in enumerate(plan.clusters) if cluster.name in bought]
    alone = survey.present[new].max(axis=(0, 2)) == 0
    if alone[0]:  # with all limits lifted, only months that nothing new reaches can be in the way
        return (
            f"until {labels[int(np.argmin(alone))]} nothing that is bought can be there, and what is owned "
            "cannot keep it alone; allow an earlier date or a shorter lead time, or rent until then "
            "(a cluster on demand among those to choose)"
        )
    return "not even without limits; allow earlier dates or other parts"
