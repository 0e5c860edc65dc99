"""A sizing without a solution: which constraint stands in the way, and by how much it would have to give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.sizing.candidate import judged
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Trial
from planner.sizing.lp_data import Survey
from planner.sizing.prices import Prices
from planner.sizing.program import Rows, minimised, rows_of
from planner.sizing.relaxation import Relaxation
from planner.sizing.search import Search

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


def _below(coefficients: Floats, size: int, times: float, existing: float) -> Rows:
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
