"""What the terminal says of a run: the first screen, what its replications add, and with ``-v`` the details."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from planner.answers.ranking import COST, SHORTFALL
from planner.answers.run_report import NODE_HOUR_USES, reconciliation_rows, resale_words
from planner.answers.sentences import (
    fleet_size_advice,
    idle_cluster,
    much_shed,
    objective_words,
    price_change_lines,
    share_words,
    value_line,
    verdict_line,
)
from planner.answers.summaries import OrderFigures, RunSummary
from planner.output.terminal import cell, text_table, wrapped
from planner.output.words import percent, short_dollars, unit_price
from planner.run.replications import Replications
from planner.run.slo_misses import REASONS
from planner.units import MILLION

INPUTS_FIXED = "Inputs are as stated. For P(SLO met) when they vary: planner montecarlo"
MAX_ROWS = 8
"""Clusters and workloads together that the first screen has: all of it fits a terminal of 24 lines."""
MAX_WORKLOADS = 4
MAX_LATER_DATES = 2
"""Dates after the next one that the first screen has one by one; of more it sums up all but the first."""
MAX_CACHES = 2
"""Clusters whose caches the first screen has."""


def first_screen(summary: RunSummary) -> str:
    """Return what the base replication says: its SLO attainment, cost, fleet, clusters and workloads."""
    money = summary.measures
    months = f"{summary.horizon_months} months from {summary.start[:7]}"
    cost = [
        f"{unit_price(money[COST])}/Mtok levelised",
        f"NPC {short_dollars(-(money['npv_usd'] or 0.0))}",
        f"capex {short_dollars(money['capex_usd'])}",
        f"P&L cost {short_dollars(money['pl_cost_usd'])}",
    ]
    value = value_line(money, summary.horizon_months)
    # What sells tokens is judged by its value: net of income, net present cost is no cost.
    if value:
        del cost[1]
    lines = [
        f"{summary.scenario}   {months}   inputs fixed",
        *wrapped(much_shed({summary.scenario: summary.fleet.shed_fraction})),
        _slo_line(summary),
        *([f"VALUE  {value}"] if value else []),
        "COST   " + "   ".join(cost),
        _fleet_line(summary),
        *_cache_lines(summary),
        *wrapped([_next_line(summary)]),
        "",
        *_cluster_lines(summary),
        "",
        *_workload_lines(summary),
    ]
    return "\n".join(lines)


def _slo_line(summary: RunSummary) -> str:
    verdict = summary.verdict
    base = verdict.base_case
    if base is None:
        return "SLO    no request to serve"
    target = verdict.attainment
    # A workload may be held to a target of its own.
    if base.workload is not None:
        target = verdict.workloads.get(base.workload, target)
    attained = base.slo_attainment_fraction
    parts = (share_words(attained), base.workload, base.month)
    lowest = ", ".join(filter(None, parts))
    verb = "meets" if attained >= target else "misses"
    return f"SLO    base case {verb} {target * 100:.6g}%: lowest {lowest}"


def _fleet_line(summary: RunSummary) -> str:
    fleet = summary.fleet
    use = [f"{percent(fleet.utilisation_fraction, 0)} utilised"]
    if fleet.peak_headroom_fraction is not None:
        use.append(f"{_headroom_words(fleet.peak_headroom_fraction)} ({fleet.peak_headroom_month})")
    peak_kw = fleet.peak_facility_kw
    use.append(f"{peak_kw / 1e3:,.1f} MW peak" if peak_kw >= 1e3 else f"{peak_kw:,.0f} kW peak")
    return "FLEET  " + "   ".join(use)


def _headroom_words(fraction: float) -> str:
    """Return the headroom of the tightest hour, as peak-hour headroom 12% or peak hour 11% over capacity."""
    if round(fraction, 2) < 0.0:
        return f"peak hour {percent(-fraction, 0)} over capacity"
    return f"peak-hour headroom {percent(abs(fraction), 0)}"


def _cache_lines(summary: RunSummary) -> list[str]:
    """Return what the workload that finds most in caches finds there, by cluster; the report has the others."""
    caches = summary.caches or ()
    if not caches:
        return []
    workload = caches[0].workload
    own_caches = [cache for cache in caches if cache.workload == workload]
    # The units once: of a second cluster they are the same.
    units = (" contexts", " hits")
    shown: list[str] = []
    for cache in own_caches[:MAX_CACHES]:
        contexts, hits = ("", "") if shown else units
        figures = f"{cache.cached_contexts:,.0f}{contexts}, {percent(cache.hit_fraction, 0)}{hits}"
        shown.append(f"{cache.cluster} {figures}")
    return wrapped([f"CACHE  {workload}: {'; '.join(shown)}"])


def _next_line(summary: RunSummary) -> str:
    """Return what is bought next and by when, then the later dates; without orders, by when more capacity is needed."""
    orders = summary.orders
    missed_month = summary.verdict.first_missed_month
    if not orders:
        too_long = summary.verdict.long_prompts or ()
        # What prompts that are too long miss is missed however much capacity there is.
        if too_long:
            missed_month = summary.verdict.otherwise_missed_month
        words = "NEXT   nothing on order"
        if missed_month is not None:
            words += f", more capacity needed by {missed_month}"
        needs = (f"{prompts.workload} needs {objective_words(prompts)}" for prompts in too_long)
        return "; ".join([words, *needs])
    return f"NEXT   {_order_words(orders)}"


class _Step(NamedTuple):
    """What is ordered by a day, or on site by it."""

    by: str
    is_ordered: bool

    def words(self, nodes: str) -> str:
        return f"order {nodes} by {self.by}" if self.is_ordered else f"{nodes} on site by {self.by}"


def _order_words(orders: Sequence[OrderFigures]) -> str:
    """Return what is bought next and by when, then the later dates."""
    # What is ordered on a day and what is on site that day are two things to plan for.
    steps: dict[_Step, list[OrderFigures]] = {}
    for order in orders:
        step = _Step(order.placed or order.on_site, order.placed is not None)
        steps.setdefault(step, []).append(order)
    first, *later = steps
    words = first.words(" and ".join(f"{order.nodes} {order.cluster}" for order in steps[first]))
    if not later:
        return words
    numbers = {step: sum(order.nodes for order in same_day) for step, same_day in steps.items()}
    shown = []
    for before, step in itertools.pairwise(steps):
        # The verb of the step before goes for the next one too.
        if step.is_ordered == before.is_ordered:
            shown.append(f"{numbers[step]} by {step.by}")
        else:
            shown.append(step.words(str(numbers[step])))
    if len(later) > MAX_LATER_DATES:
        rest = later[1:]
        more = f"{sum(numbers[step] for step in rest)} more"
        if any(step.is_ordered != later[0].is_ordered for step in rest):
            more += " ordered or on site"
        shown[1:] = [f"{more} on {len(rest)} dates by {rest[-1].by}"]
    return f"{words}, then {' and '.join(shown)}"


def _cluster_lines(summary: RunSummary) -> list[str]:
    idle, idle_note = idle_cluster(summary)
    rows = [
        (
            name[:20],  # a screen of 80 columns
            str(figures.nodes),
            cell(figures.availability_fraction, ".1%"),
            cell(figures.utilisation_fraction, ".0%"),
            _amount(figures.served_tokens / 1e12),
            _amount(figures.cost_usd / MILLION),
            ", ".join(filter(None, (figures.note, idle_note if name == idle else ""))),
        )
        for name, figures in summary.clusters.items()
    ]
    header = ("cluster", "nodes", "avail", "util", "Ttok", "accrued M$", "note")
    # Workloads leave room where there are few.
    most = MAX_ROWS - min(len(summary.workloads), MAX_WORKLOADS)
    return _first_rows(header, rows, most, "clusters")


def _workload_lines(summary: RunSummary) -> list[str]:
    def lowest_first(name: str) -> float:
        lowest = summary.workloads[name].lowest
        if lowest is None:
            return 2.0  # without requests: last
        return lowest.slo_attainment_fraction

    names = sorted(summary.workloads, key=lowest_first)
    rows = []
    for name in names:
        figures = summary.workloads[name]
        lowest = figures.lowest
        attained = ""
        month = ""
        if lowest is not None:
            attained = share_words(lowest.slo_attainment_fraction)
            month = lowest.month
        price = cell(figures.absorbed_cost_per_million_tokens_usd, ",.3f")
        output_price = cell(figures.absorbed_cost_per_million_output_tokens_usd, ",.3f")
        marginal = cell(figures.marginal_cost_per_million_tokens_usd, ",.4f")
        rows.append((name[:24], attained, month, price, output_price, marginal))
    header = ("workload", "SLO low", "month", "USD/Mtok", "USD/M generated", "marginal")
    return _first_rows(header, rows, MAX_WORKLOADS, "workloads")


def _first_rows(
    header: Sequence[str], rows: Sequence[Sequence[str]], most: int, plural: str
) -> list[str]:
    """Return a table of at most so many rows, and how many more the report has."""
    if len(rows) <= most:
        return [text_table(header, rows, rule=False)]
    # That there are more takes a line too.
    shown = rows[: most - 1]
    rest = len(rows) - len(shown)
    return [text_table(header, shown, rule=False), f"and {rest} more {plural} in the report"]


def _amount(number: float) -> str:
    """Return a number with a decimal, and a small one with two digits."""
    if abs(number) >= 1.0 or number == 0.0:
        return f"{number:,.1f}"
    return f"{number:.2g}"


def replications_screen(summary: RunSummary) -> str:
    """Return what the replications say below the first screen: verdict, intervals, what follows."""
    lines = [verdict_line(summary.verdict)]
    replications = summary.replications
    # One replication has no intervals, nor has a plan that served no token in one of them.
    if replications is not None and {"npv_usd", COST} <= replications.intervals.keys():
        prices = " to ".join(map(unit_price, replications.intervals[COST]))
        npv_usd = replications.intervals["npv_usd"]
        worth = _worth_interval(*npv_usd, sells=bool(summary.measures["revenue_usd"]))
        lines.append(f"In {replications.words}: {worth}, {prices}/Mtok.")
    lines += price_change_lines(summary.measures)
    if summary.missed_without_orders is not None:
        lines.append(
            "With none of the orders to come, the SLO target is first missed in "
            f"{summary.missed_without_orders}."
        )
    # One remark at a time, what the fleet lacks before what the figures leave open.
    lines.append(f"! {fleet_size_advice(summary) or INPUTS_FIXED}")
    return "\n".join(wrapped(lines))


def progress_line(replications: Replications) -> str:
    """Return where net present cost lies in the replications so far, and how many meet the SLO target."""
    met = sum(figures[SHORTFALL] == 0.0 for figures in replications.figures)
    npv = replications.interval("npv_usd")
    worth = ""
    if npv is not None:
        sells = bool(replications.figures[0]["revenue_usd"])
        worth = f"{_worth_interval(npv.low, npv.high, sells=sells)}, "
    return f"{worth}SLO met in {met}/{replications.number}"


def _worth_interval(low_npv_usd: float, high_npv_usd: float, *, sells: bool) -> str:
    """Return an interval of net present value or, of a plan that sells nothing, of net present cost."""
    name = "NPV"
    ends_usd = (low_npv_usd, high_npv_usd)
    if not sells:
        name = "NPC"
        # The highest value is the lowest cost, so the ends change places.
        ends_usd = (-high_npv_usd, -low_npv_usd)
    ends = " to ".join(short_dollars(end, ",.2f") for end in ends_usd)
    return f"{name} {ends}"


def details(summary: RunSummary) -> str:
    """Return what ``-v`` adds: reasons of misses, lost node-hours, the bound on placement, how costs reconcile."""
    lines = [
        f"{miss.workload}: {miss.missed_fraction:.3%} miss their SLO because of {REASONS[miss.cause]}; worst "
        f"{miss.worst_month}: {miss.worst_missed_fraction:.2%}"
        for miss in summary.slo_misses
    ]
    shares = {
        words: summary.capacity_fraction[column.removesuffix("_node_h")]
        for column, words in NODE_HOUR_USES.items()
        if words != "at work"
    }
    # Of uses with the same share the later name comes first, as tuples sort downwards.
    largest = sorted(shares, key=lambda words: (shares[words], words), reverse=True)
    lost = [f"{words} {shares[words]:.2%}" for words in largest if shares[words] > 0]
    lines += [f"node-hours not at work: {', '.join(lost)}", resale_words(summary.measures)]
    bounds = [
        (
            gap.workload[:24],
            gap.month,
            share_words(gap.served_in_time_fraction),
            share_words(gap.bound_fraction),
            share_words(gap.gap_fraction),
        )
        for gap in summary.placement
    ]
    placement = text_table(("workload", "month", "SLO low", "bound", "mean gap"), bounds)
    costs = text_table(("cost", "USD"), reconciliation_rows(summary))
    return "\n".join([*wrapped(lines), "", placement, "", costs])
