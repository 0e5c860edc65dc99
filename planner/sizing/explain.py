"""Why this plan: the month that breaks with one node fewer, what binds in each month, what the last nine costs.

Or, of a sizing without a solution: which constraint stands in the way, and by how much it would have to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Floats
from planner.plan.build import build_plan
from planner.plan.reuse import Reuse
from planner.scenario.scenario import Scenario
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Evaluator, Judged, Trial, judged
from planner.sizing.lp_data import Prices, Survey
from planner.sizing.relaxation import ConstraintRows, Relaxation, minimised, rows_of
from planner.sizing.search import Search

FRONTIER_SCALES = (0.8, 0.9, 0.95, 1.05, 1.1)
"""Times the answer's nodes: plans that serve a little worse and a little better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """The answer with one node of a purchase taken away."""

    purchase: int
    kept_fraction: float
    """Of the replications in which it was run, those that keep the promise."""
    refuted: bool
    """Whether those are enough, but not those of all to which the answer is held."""
    saved: float
    """What it saves."""
    month: int | None
    """Month that breaks first in the replication where one node decides; None where it still keeps the promise."""
    workload: int | None
    in_time: float
    """Share in time there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """What a precision narrower than the usual contributes to one cluster of the answer."""

    cluster: str
    precision: str
    rate_ratio: tuple[float, ...]
    """Requests of a node over those in the usual precision, by workload; NaN where it serves neither way."""
    kept: int
    """Replications that keep the promise where the cluster serves in the usual precision instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What stands behind an answer."""

    fewer: tuple[Fewer, ...]
    frontier: tuple[Judged, ...]
    """Plans that no other found beats in cost, service and probability, cheapest first."""
    nines: tuple[tuple[float, Judged | None], ...]
    """For each promised share, the cheapest plan found that keeps it in as many replications."""
    narrow: tuple[Narrow, ...]


def explain(search: Search, plan: Judged, replications: int) -> Explanation:
    """Explain an answer over the replications of its search.

    One that was not confirmed was mended, and the answer is held to the replications that showed it too. What was run
    in those is judged by them; and what only seems cheaper, since it was not, is left out.
    """
    every = range(replications)
    search.clock.say("asking why not less, and what more would cost")
    for scale in FRONTIER_SCALES:
        scaled = _scaled(search, plan.counts, scale)
        if search.trial.choices.within_limits(scaled):
            search.outcomes(scaled, every)
    fewer = tuple(
        _fewer(search, plan, place, every)
        for place, nodes in enumerate(plan.counts[: len(search.trial.choices.purchases)])
        if nodes
    )
    nines = _nines(search, plan, every)
    known = _known(search, plan, every)
    best = frontier(known, search, plan.counts)
    return Explanation(fewer=fewer, frontier=best, nines=nines, narrow=_narrow(search, plan, every))


def _scaled(search: Search, counts: Counts, scale: float) -> Counts:
    bought = len(search.trial.choices.purchases)
    return (*(round(nodes * scale) for nodes in counts[:bought]), *counts[bought:])


def _fewer(search: Search, plan: Judged, place: int, every: Sequence[int]) -> Fewer:
    """Take one node away, and look where the promise breaks that was kept."""
    counts = tuple(nodes - (at == place) for at, nodes in enumerate(plan.counts))
    if not any(counts):
        return Fewer(
            purchase=place, kept_fraction=0.0, refuted=False, saved=plan.cost, month=0, workload=None, in_time=0.0
        )
    less = judged(counts, search.outcomes(counts, every))
    kept = less.kept(search.in_time)
    newly = np.flatnonzero(plan.kept(search.in_time) & ~kept)
    seen = _in_all(search, less)
    saved, share, refuted = plan.cost - less.cost, float(seen.kept(search.in_time).mean()), _only_seems(search, seen)
    if not newly.size:
        return Fewer(
            purchase=place, kept_fraction=share, refuted=refuted, saved=saved, month=None, workload=None, in_time=1.0
        )
    shares = less.shares[newly[int(np.argmax(less.worst[newly]))]]  # where it breaks by least, one node decides
    broken = np.nan_to_num(shares, nan=1.0) < search.in_time
    month = int(np.argmax(broken.any(axis=1)))
    workload = int(np.nanargmin(shares[month]))
    return Fewer(
        purchase=place,
        kept_fraction=share,
        refuted=refuted,
        saved=saved,
        month=month,
        workload=workload if search.trial.promise.of_workload else None,
        in_time=float(shares[month, workload]),
    )


def _nines(search: Search, answer: Judged, every: Sequence[int]) -> tuple[tuple[float, Judged | None], ...]:
    """Return the cheapest plan found for each promised share; one for a higher share than promised is searched for."""
    missed = 1.0 - search.in_time
    asked = [max(1.0 - 10.0 * missed, 0.0), search.in_time, 1.0 - missed / 10.0]  # one nine fewer, and one more
    kept: list[tuple[float, Judged | None]] = []
    for share in dict.fromkeys(round(share, 9) for share in asked):
        if share > search.in_time:
            search.promising(share).run()
        keeping = [plan for plan in _known(search, answer, every) if _keeps(search, plan, share)]
        kept.append((share, min(keeping, key=lambda plan: plan.cost, default=None)))
    return tuple(kept)


def _keeps(search: Search, plan: Judged, share: float) -> bool:
    return plan.keeps(share, search.trial.promise.in_replications_fraction)


def _known(search: Search, answer: Judged, every: Sequence[int]) -> list[Judged]:
    """Return every choice that was run in all replications of the search, but those that only seem to keep it."""
    plans = [judged(counts, search.outcomes(counts, every)) for counts in search.archive.complete(every)]
    judged_in_all = (_in_all(search, plan) for plan in plans)
    return [plan for plan in judged_in_all if plan.cost >= answer.cost or not _only_seems(search, plan)]


def _only_seems(search: Search, plan: Judged) -> bool:
    """Say whether a choice keeps the promise where it was run, and not where the answer is held to it as well."""
    is_partly_run = plan.worst.size < len(search.order)
    return is_partly_run and _keeps(search, plan, search.in_time) and not search.holds(plan.counts, fully=True)


def _in_all(search: Search, plan: Judged) -> Judged:
    """Return a choice with its service in all to which the answer is held, if it was run there; costs stay as found."""
    further = search.order if plan.worst.size < len(search.order) else ()
    if not further or not search.archive.knows(plan.counts, further):
        return plan
    seen = judged(plan.counts, search.outcomes(plan.counts, further))
    return replace(plan, worst=seen.worst, shares=seen.shares)


def frontier(plans: Sequence[Judged], search: Search, answer: Counts) -> tuple[Judged, ...]:
    """Return the answer, and the plans that none beats in cost, in service and in the probability to keep the promise.

    A plan that was run in fewer replications may have been lucky in them, and seem to beat the answer.
    """
    share = search.trial.promise.in_replications_fraction

    def figures(plan: Judged) -> tuple[float, float, float]:
        return plan.cost, -plan.service(share), -float(plan.kept(search.in_time).mean())

    kept: list[Judged] = []
    for plan in sorted(plans, key=lambda plan: (*figures(plan), plan.counts)):
        _, service, probability = figures(plan)
        better = all(service < figures(other)[1] - 1e-12 or probability < figures(other)[2] - 1e-12 for other in kept)
        if better or plan.counts == answer:
            kept.append(plan)
    return tuple(kept)


def _narrow(search: Search, plan: Judged, every: Sequence[int]) -> tuple[Narrow, ...]:
    """Let each cluster that serves in a narrower precision serve as the workloads state instead."""
    choices = search.trial.choices
    catalog = choices.scenario.load_catalog()
    usual = catalog.precisions[catalog.precision_with("default")].weight_bytes.value
    narrow = []
    for purchase, nodes in zip(choices.purchases, plan.counts, strict=False):
        precision = choices.scenario.clusters[purchase.name].precision
        if not nodes or precision is None or catalog.precisions[precision].weight_bytes.value >= usual:
            continue
        changes: dict[tuple[str, str], object] = {(purchase.name, "precision"): None}
        outcomes = search.archive.workers.all(
            Evaluator.outcome, [(plan.counts, replication, changes) for replication in every]
        )
        kept = int(judged(plan.counts, outcomes).kept(search.in_time).sum())
        narrow.append(
            Narrow(cluster=purchase.name, precision=precision, rate_ratio=_ratio(search, purchase.name), kept=kept)
        )
    return tuple(narrow)


def _ratio(search: Search, name: str) -> tuple[float, ...]:
    """Return a node's requests over those in the usual precision, by workload, on the first day."""
    choices = search.trial.choices
    clusters = choices.base.content["clusters"]
    content = {**choices.base.content, "clusters": {**clusters, name: {**clusters[name], "precision": None}}}
    wider = Scenario.model_validate(content)
    wider._document = choices.scenario.document
    place = choices.place(name)
    stated = choices.plan.requests_per_node_h[place, :, 0]
    other = build_plan(wider, Reuse(wider)).requests_per_node_h[place, :, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return tuple(float(ratio) for ratio in stated / other)


_ALL = frozenset({"nodes", "budget", "power"})


def what_to_relax(trial: Trial, surveys: Sequence[Survey], prices: Prices) -> str:
    """Say why nothing keeps the promise, from the replication that decides.

    Figures are those of the relaxation, so they are the least that would do: no node fails in them.
    """
    program, choose = Relaxation(trial, surveys, prices), trial.choices.choose
    said = []
    if choose.budget_usd is not None and (least := _least(program, _ALL - {"budget"}, "budget")) is not None:
        said.append(f"a budget of at least {least:,.0f} USD in place of {choose.budget_usd:,.0f}")
    if choose.power_kw is not None and (least := _least(program, _ALL - {"power"}, "power")) is not None:
        said.append(f"at least {least:,.0f} kW of power in place of {choose.power_kw:,.0f}")
    if (least := _least(program, _ALL - {"nodes"}, "nodes")) is not None:
        said.append(f"most_nodes {least:,.2f} times as large")
    lead = "nothing that may be chosen keeps the promise: "
    if said:
        return lead + "it would take " + ", or ".join(said)
    if _least(program, frozenset(), "nodes") is not None:
        return lead + "budget, power and most_nodes stand in the way together; relax more than one of them"
    return lead + _when(program)


def nearest_miss(search: Search) -> str:
    """Say how near the best within the limits comes, where the relaxation allows a plan and the simulation none."""
    promise, choices = search.trial.promise, search.trial.choices
    every = range(len(search.surveyed.surveys))
    tried: dict[Counts, list[float]] = {}
    for (counts, _), outcome in search.archive.known.items():
        tried.setdefault(counts, []).append(outcome.worst)
    nearest = max(tried, key=lambda counts: (float(np.mean(tried[counts])), -sum(counts)))
    outcomes = search.outcomes(nearest, every)
    service, worst = judged(nearest, outcomes).service(promise.in_replications_fraction), ""
    if promise.each_month:
        shares = np.nan_to_num(np.mean([outcome.shares for outcome in outcomes], axis=0), nan=1.0)
        worst = f", least in {choices.plan.months.labels[int(shares.min(axis=1).argmin())]}"
    more = [tuple(nodes + (at == place) for at, nodes in enumerate(nearest)) for place in range(len(choices.purchases))]
    room = "" if any(choices.within_limits(counts) for counts in more) else ", and limits allow no node more"
    return (
        f"nothing that may be chosen was found to keep the promise: {choices.words(nearest)} comes nearest, with "
        f"{service:.2%} in time in {promise.in_replications_fraction:.0%} of replications{worst}{room}; promise no "
        "more than that, or allow more nodes, earlier dates, budget or power"
    )


def _least(program: Relaxation, limits: frozenset[str], of: str) -> float | None:
    """Return the least of a limit with which the others can be kept; None where they cannot."""
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
            in_group = np.where(program.choices.group_of == group, 1.0, 0.0)
            rows.append(_below(in_group, size, float(nodes), 0.0))
    solved = minimised(cost, rows, np.zeros(size, dtype=np.int64), np.append(program.upper(), np.inf))
    return None if solved is None else float(solved[0][-1])


def _below(coefficients: Floats, size: int, times: float, existing: float) -> ConstraintRows:
    """Return the row Σ coefficients·x + existing ≤ times·limit, of a program whose last variable is the limit."""
    columns = np.append(np.arange(coefficients.size), size - 1)
    return rows_of(0 * columns, columns, np.append(coefficients, -times), most=np.array([-existing]))


def _when(program: Relaxation) -> str:
    """Say what no purchase can mend: outages of the site, or months before anything can be there."""
    survey, promise, plan = program.survey, program.trial.promise, program.choices.plan
    asked, lit = survey.demand.sum(axis=1), survey.lit_demand.sum(axis=1)
    share = np.divide(lit, asked, out=np.ones_like(lit), where=asked > 0)
    if share.min() < promise.in_time_fraction:
        month, load = (int(place) for place in np.unravel_index(np.argmin(share), share.shape))
        return (
            f"in more replications than may break it the site is dark for too long (in {_label(program, month)} "
            f"{1.0 - share[month, load]:.2%} of {plan.workloads[load].name} arrives then); lower promise.in_time "
            "or promise.in_replications, or state another site.outages_per_year"
        )
    there = survey.present.max(axis=(0, 2)) > 0
    if not there.all() and (~there).any():
        month = int(np.argmax(~there))
        return f"nothing can be there in {_label(program, month)}; allow an earlier date"
    unserved = [
        load.name for load, rates in zip(plan.workloads, survey.rates.max(axis=0), strict=True) if not rates.all()
    ]
    if unserved:
        return f"no part that may be bought serves {unserved[0]} in every month within its objective"
    bought = {purchase.name for purchase in program.choices.purchases}
    new = [place for place, cluster in enumerate(plan.clusters) if cluster.name in bought]
    alone = survey.present[new].max(axis=(0, 2)) == 0
    if alone[0]:  # with all limits lifted, only months that nothing new reaches can be in the way
        return (
            f"until {_label(program, int(np.argmin(alone)))} nothing that is bought can be there, and what is owned "
            "cannot keep it alone; allow an earlier date or a shorter lead time, or rent until then "
            "(a cluster on demand among those to choose)"
        )
    return "not even without limits; allow earlier dates or other parts"


def _label(program: Relaxation, month: int) -> str:
    return str(program.choices.plan.months.labels[month])
