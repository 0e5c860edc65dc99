"""The rows of a sizing's tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.output.columns import tables_of
from planner.scenario.cluster import Cluster
from planner.sizing.candidate import Judged
from planner.sizing.explain import Fewer
from planner.sizing.size import Sized
from planner.units import HOURS_PER_DAY

SIZE_TABLES = tables_of("size")
"""Tables of a sizing by their names, in the order of the reference."""


def plan_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of plan.csv."""
    choices, counts = sized.choices, sized.plan.counts
    rows: list[list[Any]] = []
    fewer = {fewer.purchase: fewer for fewer in sized.explanation.fewer}
    for place, (purchase, nodes) in enumerate(zip(choices.purchases, counts, strict=False)):
        if nodes:
            paid = nodes * sum(choices.node_prices_usd(place, nodes))
            contract = _contract(choices.scenario.clusters[purchase.name])
            cells = [purchase.name, purchase.accelerator, purchase.date, contract, nodes, paid]
            rows.append([*cells, *_without_one(sized, fewer[place])])
    for retirement, day in zip(choices.retirements, counts[len(choices.purchases) :], strict=True):
        if day:
            cluster = choices.scenario.clusters[retirement.cluster]
            leaves = retirement.dates[day - 1]
            cells = [retirement.cluster, cluster.accelerator, leaves, _contract(cluster), -cluster.nodes, 0.0]
            rows.append([*cells, None, None, "", "", None])
    return SIZE_TABLES["plan"].filled(rows)


def _contract(cluster: Cluster) -> str:
    return "bought" if cluster.contract is None else cluster.contract.kind


def _without_one(sized: Sized, fewer: Fewer) -> list[Any]:
    months, loads = sized.choices.plan.months.labels, sized.choices.plan.workloads
    if fewer.month is None:
        return [fewer.saved, fewer.kept_fraction, "", "", None]
    name = "" if fewer.workload is None else loads[fewer.workload].name
    return [fewer.saved, fewer.kept_fraction, str(months[fewer.month]), name, fewer.in_time]


def _figures(sized: Sized, plan: Judged) -> list[float]:
    """Return the cells that every table of plans has."""
    service = plan.service(sized.promise.in_replications_fraction)
    kept = float(plan.kept(sized.promise.in_time_fraction).mean())
    return [plan.cost, plan.net_present_cost_usd, plan.capital_usd, service, kept]


def frontier_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of frontier.csv."""
    bought = len(sized.choices.purchases)
    return SIZE_TABLES["frontier"].filled(
        [*_figures(sized, plan), sum(plan.counts[:bought]), plan.counts == sized.plan.counts, plan_words(sized, plan)]
        for plan in sized.explanation.frontier
    )


def plan_words(sized: Sized, plan: Judged) -> str:
    """Return what a plan buys and retires, as one would say it."""
    return sized.choices.words(plan.counts)


def family_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of families.csv."""
    rows: list[list[Any]] = []
    for family in sized.families:
        bound = family.bound if np.isfinite(family.bound) else None
        if family.plan is None:
            rows.append([family.name, "", None, *[None] * 5, bound, ""])
            continue
        figures = _figures(sized, family.plan)
        for part in sized.choices.accelerators:
            change = family.price_changes.get(part)
            rows.append([family.name, part, change, *figures, bound, plan_words(sized, family.plan)])
    return SIZE_TABLES["families"].filled(rows)


def month_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of months.csv."""
    choices, promise, plan = sized.choices, sized.promise, sized.plan
    enough = max(1, int(np.ceil(promise.in_replications_fraction * plan.worst.size - 1e-9)))
    # The share that enough replications reach, month by month: their ⌈p·n⌉-th best.
    reached = -np.sort(-np.nan_to_num(plan.shares, nan=1.0), axis=0)[enough - 1]
    worst = np.argmin(reached, axis=1)
    least = reached.min(axis=1)
    broken = (np.nan_to_num(plan.shares, nan=1.0) < promise.in_time_fraction).any(axis=2).mean(axis=0)
    edges, rows = choices.plan.month_edges_h, []
    for month, label in enumerate(choices.plan.months.labels):
        end_h = float(edges[month + 1])
        moments = [at for at in choices.moments_h() if edges[month] <= at < end_h]
        power_kw = max(sum(choices.kw_at(plan.counts, at).values()) for at in [float(edges[month]), *moments])
        due = _due_by(sized, end_h)
        load = choices.plan.workloads[int(worst[month])].name if promise.of_workload else ""
        rows.append(
            [str(label), load, float(least[month]), float(least[month]) - promise.in_time_fraction,
             float(broken[month]),
             float(plan.utilisation[month]), power_kw, choices.capital_usd(due), _binds(sized, month, power_kw)]
        )  # fmt: skip
    return SIZE_TABLES["months"].filled(rows)


def _due_by(sized: Sized, end_h: float) -> tuple[int, ...]:
    """Return the purchases of the answer made before a moment."""
    choices = sized.choices
    start, bought = choices.scenario.start, len(choices.purchases)
    nodes = [
        count if (purchase.date - start).days * HOURS_PER_DAY < end_h else 0
        for purchase, count in zip(choices.purchases, sized.plan.counts, strict=False)
    ]
    return (*nodes, *sized.plan.counts[bought:])


def _binds(sized: Sized, month: int, power_kw: float) -> str:
    """Say what binds in a month."""
    choices, choose, plan = sized.choices, sized.choices.choose, sized.plan
    said = dict.fromkeys(
        "capacity for " + ("all together" if fewer.workload is None else choices.plan.workloads[fewer.workload].name)
        for fewer in sized.explanation.fewer
        if fewer.month == month
    )
    places = range(len(choices.purchases))
    if choose.power_kw is not None and power_kw + min(c.nameplate_kw for c in choices.plan.clusters) > choose.power_kw:
        said["power"] = None
    node_usd = min((sum(choices.node_prices_usd(place, 1)) for place in places), default=0.0)
    if choose.budget_usd is not None and choices.capital_usd(plan.counts) + node_usd > choose.budget_usd:
        said["budget"] = None
    if choices.purchases:
        totals = np.bincount(choices.group_of, weights=plan.counts[: len(choices.purchases)])
        if (totals >= choices.nodes_allowed()[1]).all():
            said["nodes"] = None
    return "; ".join(said) or "nothing"


def promise_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of promises.csv."""
    rows: list[list[Any]] = []
    for share, plan in sized.explanation.nines:
        if plan is None:
            rows.append([share, None, None, None, None, ""])
        else:
            figures = [plan.cost, plan.net_present_cost_usd, plan.capital_usd, plan.cost - sized.plan.cost]
            rows.append([share, *figures, plan_words(sized, plan)])
    return SIZE_TABLES["promises"].filled(rows)


def precision_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of precisions.csv."""
    loads, count = sized.choices.plan.workloads, sized.plan.worst.size
    rows = [
        [narrower.cluster, narrower.precision, load.name, ratio if np.isfinite(ratio) else None, narrower.kept / count]
        for narrower in sized.explanation.narrow
        for load, ratio in zip(loads, narrower.rate_ratio, strict=True)
    ]
    return SIZE_TABLES["precisions"].filled(rows)


def review_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of review.csv."""
    rows: list[list[Any]] = []
    for alternative in sized.review.alternatives if sized.review else ():
        figures: list[Any] = [None] * 2
        if alternative.outcome is not None:
            figures = [alternative.outcome.cost, float(alternative.outcome.kept(sized.promise.in_time_fraction).mean())]
        saved = (
            [None] * 3
            if alternative.saved is None
            else [alternative.saved.value, alternative.saved.low, alternative.saved.high]
        )
        rows.append([alternative.name, *figures, *saved, alternative.words])
    return SIZE_TABLES["review"].filled(rows)


def level_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of levels.csv."""
    levels = enumerate(sized.review.levels if sized.review else (), start=1)
    return SIZE_TABLES["levels"].filled(
        [n, level.share, level.late, level.lowest, level.highest, sized.choices.words(level.counts), level_file(n)]
        for n, level in levels
    )


def level_file(number: int) -> str:
    """Return the name of the plan for what is seen at a review."""
    return f"plan-level-{number}.yaml"


_ROWS = {
    "plan": plan_rows, "frontier": frontier_rows, "families": family_rows, "months": month_rows,
    "promises": promise_rows, "precisions": precision_rows, "review": review_rows, "levels": level_rows,
}  # fmt: skip


def size_columns(sized: Sized) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of every table; those of a review have no rows where there is none."""
    return {name: rows(sized) for name, rows in _ROWS.items()}
