"""From a run to its summary: key figures, verdict, and why requests miss their SLO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import TypeVar

import numpy as np

from planner.answers.ranking import LOWEST_ATTAINMENT, SHORTFALL
from planner.answers.summaries import (
    CacheFigures,
    ClusterFigures,
    FleetFigures,
    OrderFigures,
    ReconciliationLine,
    ReplicationsSummary,
    RunSummary,
    UseAndCost,
    WorkloadFigures,
)
from planner.answers.verdicts import BaseCase, LowestMonth, PlanVerdict, first_missed_month
from planner.arrays import Floats
from planner.finance.accounting import unit_economics as units
from planner.finance.accounting.booked_run import per_run
from planner.finance.accounting.measures import SUMS, measures, reconciliation, slo_figures, sums_of
from planner.finance.accounting.workload_costs import workload_costs
from planner.output.tables import SCHEMA_VERSION
from planner.plan.attainment import Verdict, run_out, shortfall_over
from planner.plan.quantities import attainment
from planner.run import tables
from planner.run.placement_bound import gap_notes, placement_gaps
from planner.run.replications import Replications
from planner.run.simulate import RunResult
from planner.run.slo_misses import (
    LongPrompts,
    SloMiss,
    long_prompts,
    without_long_prompts,
    worst_reasons,
)
from planner.studies.remedy import NoRemedy, Remedy
from planner.studies.run_out import missed_without_orders
from planner.units import HOURS_PER_YEAR, decimals_of

Record = TypeVar("Record", bound=UseAndCost)


def run_summary(
    result: RunResult,
    replications: Replications | None = None,
    remedy: Remedy | NoRemedy | None = None,
) -> RunSummary:
    """Return the summary of a run; with its replications the key figures have intervals."""
    figures = key_figures(result, replications)
    missed_months = missed_without_orders(result) if figures.orders else ()
    return replace(
        figures,
        missed_without_orders=missed_months[0] if missed_months else None,
        slo_misses=slo_misses(result),
        placement=placement_gaps(result),
        notes=[*figures.notes, *gap_notes(result)],
        remedy=remedy,
    )


@per_run
def slo_misses(result: RunResult) -> list[SloMiss]:
    """Return why most requests are late; kept with the run, as its plan is compiled and routed anew for it."""
    return [
        miss._replace(
            missed_fraction=rounded(miss.missed_fraction),
            worst_missed_fraction=rounded(miss.worst_missed_fraction),
        )
        for miss in worst_reasons(result)
    ]


def key_figures(result: RunResult, replications: Replications | None = None) -> RunSummary:
    """Return the summary without why requests are late, which takes longer than all the rest: work is routed anew."""
    run_sums = sums_of(result).over_run().figures()
    figures = {name: sums[0] for name, sums in run_sums.items()}
    months = result.plan.months
    # Node-hours over the hours of a month are its mean number of nodes.
    # The most of any month: a cluster that comes late would else look smaller than it is.
    nodes_by_month = result.monthly.present_node_h / months.period_hours[:, None]
    present_nodes = nodes_by_month.max(axis=0)
    clusters = {
        cluster.name: _with_use_and_cost(
            ClusterFigures,
            figures,
            place,
            nodes=round(float(present_nodes[place])),
            note=_cluster_note(result, cluster.name),
        )
        for place, cluster in enumerate(result.plan.clusters)
    }
    present_node_h = result.monthly.present_node_h.sum()
    return RunSummary(
        schema_version=SCHEMA_VERSION,
        scenario=result.scenario.name,
        start=months.start.isoformat(),
        horizon_months=result.scenario.horizon_months,
        seed=result.seed,
        replication=result.replication,
        verdict=plan_verdict(result, replications),
        fleet=_fleet_figures(result, figures),
        clusters=clusters,
        workloads=_workload_figures(result),
        measures=rounded_measures(measures(result)),
        replications=None if replications is None else replications_summary(replications),
        slo_misses=(),
        capacity_fraction={
            # A plan that rents an API alone has no node-hours.
            use: rounded(node_h.sum() / present_node_h) if present_node_h > 0 else 0.0
            for use, node_h in result.monthly.fates_node_h.items()
        },
        reconciliation=[
            ReconciliationLine(
                line=line, kind="sum" if line in SUMS else "item", amount_usd=cents / 100
            )
            for line, cents in reconciliation(result).items()
        ],
        caches=_cache_figures(result) if result.plan.caches else None,
        orders=_order_figures(result),
        warnings=list(result.warnings),
        notes=list(result.plan.notes),
    )


def _order_figures(result: RunResult) -> list[OrderFigures]:
    """Return the orders of a run by date, those without nodes in service within the horizon too."""
    plan = result.plan

    def day(hour: float) -> str:
        # A process may order for a day that no calendar has.
        shown_h = min(hour, plan.hours + HOURS_PER_YEAR * 10)
        return str(plan.start + timedelta(hours=shown_h))

    nodes: Counter[tuple[float, str, float]] = Counter()
    for order in result.run.log.orders:
        name = plan.clusters[order.cluster].name
        nodes[order.time_h, name, order.arrival_h] += order.nodes
    return [
        OrderFigures(
            cluster=cluster,
            nodes=number,
            placed=day(time_h) if arrival_h > time_h else None,
            on_site=day(arrival_h),
        )
        for (time_h, cluster, arrival_h), number in sorted(nodes.items())
        if time_h < plan.hours
    ]


def _cache_figures(result: RunResult) -> list[CacheFigures]:
    """Return what workloads find in caches over the run, those first that find most tokens."""
    routing = tables.routing_monthly(result)
    clusters = np.array(routing["cluster"])
    workloads = np.array(routing["workload"])
    figures = []
    tokens_found = []
    for c, w in result.plan.caches:
        cluster = result.plan.clusters[c].name
        workload = result.plan.workloads[w].name
        is_pair = (clusters == cluster) & (workloads == workload)
        sums = {
            name: float(np.nansum(routing[name][is_pair]))
            for name in ("hbm_hit_tokens", "host_hit_tokens", "computed_tokens")
        }
        total = sum(sums.values())
        # Where nothing was served nothing was found.
        if not total:
            continue
        found = total - sums["computed_tokens"]
        tokens_found.append(found)
        figures.append(
            CacheFigures(
                cluster=cluster,
                workload=workload,
                hit_fraction=rounded(found / total),
                host_hit_fraction=rounded(sums["host_hit_tokens"] / total),
                cached_contexts=rounded(float(np.nanmax(routing["cached_contexts"][is_pair]))),
            )
        )
    order = np.argsort(-np.array(tokens_found), kind="stable")
    return [figures[place] for place in order]


def _with_use_and_cost(
    record: Callable[..., Record], figures: Mapping[str, Floats], place: int, **further: object
) -> Record:
    """Return a record of a cluster, or of the fleet, which comes last: its use and cost, and what further it has."""
    # By name, so that a field without a figure, or a figure without a field, fails here.
    names = [field.name for field in fields(UseAndCost)]
    use_and_cost = {name: _json_number(name, figures[name][place]) for name in names}
    return record(**use_and_cost, **further)


def _fleet_figures(result: RunResult, figures: Mapping[str, Floats]) -> FleetFigures:
    sums = sums_of(result).over_run()
    # The last two lines of unit economics are no workload's: idle capacity, and what is paid once.
    costs = units.unit_economics(result).cost_cents
    # Over all months and clusters.
    idle_cents, one_off_cents = costs[:, :, -2:].sum(axis=(0, 1))
    # NaN in months without urgent demand, which have no tightest hour.
    headroom = tables.peak_headroom(result)
    has_hours = np.isfinite(headroom).any()
    tightest = None
    if has_hours:
        tightest = int(np.nanargmin(headroom))
    fleet_sums = sums.fleet_figures()
    totals = {name: _json_number(name, total[0]) for name, total in fleet_sums.items()}
    return _with_use_and_cost(
        FleetFigures,
        figures,
        -1,
        **totals,
        idle_capacity_cost_usd=idle_cents / 100,
        one_off_cost_usd=one_off_cents / 100,
        peak_headroom_fraction=None if tightest is None else rounded(headroom[tightest]),
        peak_headroom_month=None if tightest is None else result.plan.months.labels[tightest],
        peak_facility_kw=rounded(result.monthly.peak_facility_kw.max(), 3),
    )


def _workload_figures(result: RunResult) -> dict[str, WorkloadFigures]:
    workload_sums = tables.workload_sums(result)
    sums = {name: table.sum(axis=0) for name, table in workload_sums.items()}
    missed = result.missed_requests()
    settled = result.settled_requests()
    # Missed over settled requests of all months, not the mean of the months' shares.
    missed_in_all = missed.sum(axis=0)
    settled_in_all = settled.sum(axis=0)
    attainments = attainment(missed_in_all, settled_in_all)
    by_month = attainment(missed, settled)
    costs = workload_costs(result)
    prices = {
        "marginal_cost_per_million_tokens_usd": costs.per_million(costs.marginal_cents),
        "absorbed_cost_per_million_tokens_usd": costs.per_million(costs.absorbed_cents),
        "absorbed_cost_per_million_output_tokens_usd": costs.per_million(
            costs.absorbed_cents, output_only=True
        ),
    }
    labels = result.plan.months.labels
    return {
        workload.name: WorkloadFigures(
            demand_tokens=round(float(sums["demand_tokens"][place])),
            shed_tokens=round(float(sums["shed_tokens"][place])),
            slo_attainment_fraction=_json_number("slo_attainment_fraction", attainments[place]),
            **{name: _json_number(name, price[place]) for name, price in prices.items()},
            lowest=_lowest_month(by_month[:, place], labels),
        )
        for place, workload in enumerate(result.plan.workloads)
    }


def replications_summary(replications: Replications) -> ReplicationsSummary:
    """Return how many replications of a plan there are, and where its figures lie."""
    intervals = {}
    for name in replications.figures[0]:
        interval = replications.interval(name)
        # A figure that some replication lacks has no interval.
        if interval is not None:
            intervals[name] = (rounded(interval.low), rounded(interval.high))
    return ReplicationsSummary(
        number=replications.number,
        coverage_fraction=rounded(replications.coverage_fraction),
        words=replications.words,
        intervals=intervals,
    )


def plan_verdict(result: RunResult, replications: Replications | None = None) -> PlanVerdict:
    """Return a plan's verdict over its replications, with the base case's lowest attainment."""
    slo = result.slo_result()
    labels = result.plan.months.labels
    # Without other replications the base case is all there is.
    figures = (slo_figures(result),) if replications is None else replications.figures
    # A replication without requests has None, which becomes NaN and counts nowhere.
    shortfalls = np.array([row[SHORTFALL] for row in figures], float)
    met_months = np.array([row["slo_met_months"] for row in figures], float)
    counts = Verdict.of(result.scenario, 0, 0)  # untested where there was no request to serve
    base_case = None
    lowest = None
    if slo.worst is not None:
        met = int((shortfalls == 0.0).sum())
        counts = Verdict.of(result.scenario, met, len(figures))
        place = slo.worst.workload
        base_case = BaseCase(
            month=labels[slo.worst.month],
            workload=None if place is None else result.plan.workloads[place].name,
            slo_attainment_fraction=rounded(slo.worst.slo_attainment_fraction),
        )
        lowest_of_each = np.array([row[LOWEST_ATTAINMENT] for row in figures], float)
        lowest = rounded(np.nanmin(lowest_of_each))
    shortfall = rounded(shortfall_over(shortfalls, counts.confidence))
    verdict = PlanVerdict.of(
        counts,
        result.scenario,
        shortfall_fraction=shortfall,
        first_missed_month=first_missed_month(met_months, counts.confidence, labels),
    )
    # The first screen has the base case alone.
    missed_months = (slo.missed_months,) if replications is None else replications.missed_months
    # By month, over all replications: how many miss the target in it.
    missed = Counter(month for months in missed_months for month in months)
    too_long = [] if slo.is_met else [*map(_rounded_prompts, long_prompts(result))]
    otherwise_missed = without_long_prompts(result).first_missed if too_long else None
    run_out_months = run_out(met_months, labels)
    shares = {month: rounded(share) for month, share in run_out_months.items()}
    return replace(
        verdict,
        lowest_fraction=lowest,
        base_case=base_case,
        run_out_fraction=shares,
        missed_months={labels[month]: number for month, number in sorted(missed.items())},
        long_prompts=too_long or None,
        otherwise_missed_month=None if otherwise_missed is None else labels[otherwise_missed.month],
    )


def _rounded_prompts(too_long: LongPrompts) -> LongPrompts:
    """Return prompts that are too long as JSON holds them."""
    return too_long._replace(missed_fraction=rounded(too_long.missed_fraction))


def is_settled(result: RunResult, replications: Replications, share: float) -> bool:
    """Return whether replications are enough: MET or MISSED, and mean net present cost known to a share of it.

    That is where half its 95% t-interval is at most that share.
    """
    from planner.studies.decision import half_width  # noqa: PLC0415 - loads scipy, for more than 19 replications

    verdict = plan_verdict(result, replications)
    # Untested plans have no verdict to wait for.
    if verdict.replications > 0 and verdict.status == "INCONCLUSIVE":
        return False
    costs = np.array([row["npv_usd"] for row in replications.figures], float)
    largest_error = share * abs(costs.mean())
    return bool(half_width(costs) <= largest_error)


def rounded_measures(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return measures as JSON holds them."""
    rounded_figures = dict(figures)
    for name, value in figures.items():
        if value is not None:
            rounded_figures[name] = rounded(value)
    return rounded_figures


def rounded(number: float, decimals: int = 6) -> float:
    """Return a number as JSON holds it."""
    return round(float(number), decimals) + 0.0  # a small loss is 0, not −0


def _json_number(name: str, figure: float) -> float | None:
    """Return a figure as JSON holds it, with the decimals of its unit; None where there was nothing to divide by."""
    if np.isnan(figure):
        return None
    decimals = decimals_of(name)
    # Figures without decimals are whole, and JSON should show them so.
    if decimals:
        return rounded(figure, decimals)
    return round(float(figure))


def _lowest_month(attained: Floats, labels: Sequence[str]) -> LowestMonth | None:
    """Return the month in which a workload attains least; None where it had no request."""
    if np.isnan(attained).all():
        return None
    month = int(np.nanargmin(attained))
    fraction = rounded(attained[month])
    return LowestMonth(month=labels[month], slo_attainment_fraction=fraction)


def _cluster_note(result: RunResult, name: str) -> str:
    """Say when a cluster comes and goes, where that is within the horizon."""
    cluster = result.scenario.clusters[name]
    notes = []
    if cluster.online is not None and cluster.online > result.plan.months.start:
        notes.append(f"from {cluster.online:%Y-%m}")
    if cluster.retire is not None:
        notes.append(f"until {cluster.retire:%Y-%m}")
    return ", ".join(notes)
