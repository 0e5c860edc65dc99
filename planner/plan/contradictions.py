"""Contradictions in a compiled scenario: errors for impossible plans, warnings for implausible ones.

A warning names what is likely a slip, or money spent on nothing; a note names what follows from a plan and may well be
meant, such as a power cap that binds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date

import numpy as np

from planner.demand.plan import TableGrowth, WorkloadDemand
from planner.errors import CapacityError, Problem, raise_all
from planner.plan.capacity import Services, service_of
from planner.plan.clusters import order_date, upgrade_days
from planner.plan.plan import ClusterPlan, Plan, Reuse, allowed_it_kw, full_load_kw, on_site_kw
from planner.scenario.consistency import implausible
from planner.scenario.scenario import Scenario
from planner.scenario.site import dated_quotes, window_zone
from planner.scenario.workload import GrowthSteps
from planner.units import HOURS_PER_YEAR, SECONDS_PER_HOUR, rounded_up
from planner.yaml_io import KeyPath

MOST_TOKENS_PER_S = 1e9
"""Google reported 1.3e15 tokens a month in October 2025, 5e8 a second; twice that is nobody's plan."""
MOST_EVENTS = 2_000_000
"""A run keeps every event, in about half a kilobyte: this many fill a gigabyte."""
_TABLE_MARGIN_H = 62.0 * 24.0  # a table by months has its last row on the first of the last one


def contradictions(
    scenario: Scenario, plan: Plan, demands: Sequence[WorkloadDemand]
) -> tuple[list[str], list[str]]:
    """Raise ScenarioError for an impossible plan; return warnings and notes with the figures that contradict."""
    problems: list[Problem] = []
    warnings: list[str] = []

    def refuse(path: KeyPath, message: str) -> None:
        problems.append(scenario.document.problem(path, message))

    for cluster in plan.clusters:
        if (order := cluster.order) is None:
            continue
        promised = order.placed_h + order.lead_h + plan.site.commissioning_h
        earliest = promised + order.slip_h.low
        latest = promised + order.slip_h.high + (order.deliveries - 1) * order.interval_h
        if earliest >= plan.hours:
            when = f"arrives {earliest / 24:,.0f} days after the start at the earliest"
            refuse(
                ("clusters", cluster.name, "order"),
                f"{when}; the horizon is {plan.hours / 24:,.0f}",
            )
        elif latest >= plan.hours:
            warnings.append(
                f"cluster {cluster.name} may arrive after the horizon: up to {latest / 24:,.0f} days in, "
                f"of {plan.hours / 24:,.0f}"
            )
    for path, what, count in expected_events(plan):
        if count > MOST_EVENTS:
            refuse(
                path,
                f"about {count:,.0f} {what} are to be expected in this run; at most {MOST_EVENTS:,} may be",
            )
    notes = [*_power(plan, refuse), *_notes(scenario, plan)]
    warnings += [
        *_nothing(scenario, plan),
        *_out_of_time(scenario, plan, demands),
        *_unused_quotes(scenario, plan),
    ]
    tariff = scenario.load_catalog().tariff(scenario.site.tariff)
    if scenario.site.electricity.windows and window_zone(scenario.site, tariff) is None:
        warnings.append(
            "site.electricity.windows are read on UTC clocks: neither site.electricity.timezone nor the tariff "
            f"{scenario.site.tariff} names a time zone"
        )
    warnings += [*_outgrown(plan), *_too_long(scenario, plan), *_unchanged(scenario, plan)]
    raise_all(problems)
    return warnings, notes


def hardly_meant(scenario: Scenario, plan: Plan) -> list[str]:
    """Return all warnings before a run: implausible figures of the scenario, then contradictions of its plan."""
    return [*(str(problem) for problem in implausible(scenario)), *plan.warnings]


def expected_events(plan: Plan) -> Iterator[tuple[KeyPath, str, float]]:
    """Yield the key path, the kind and the expected number over the horizon of each kind of event."""
    failures = sum(expected_failures(plan, cluster) for cluster in plan.clusters)
    yield ("reliability", "failure_multiplier"), "failures", failures
    years = plan.hours / HOURS_PER_YEAR
    models = {workload.model for workload in plan.workloads}
    per_year = sum(
        i.per_year + i.per_upgrade * s.upgrades_per_year
        for s in plan.software.stacks
        for i in s.incidents
    )
    yield ("software", "incident_multiplier"), "incidents", per_year * years * len(models)
    if plan.site.outages_per_year > 0:
        outages = plan.hours / (HOURS_PER_YEAR / plan.site.outages_per_year + plan.site.outage_h)
        yield ("site", "outages_per_year"), "outages", outages
    for name, tenants in zip(plan.demand.names, plan.demand.tenants, strict=True):
        for index, tenant in enumerate(tenants):
            switches = 2.0 * plan.hours / (tenant.mean_on_h + tenant.mean_off_h)
            yield ("workloads", name, "tenants", index), "starts and stops", switches


def expected_failures(plan: Plan, cluster: ClusterPlan) -> float:
    """Return the expected failures of a cluster's n nodes in T hours: n·λ·(T + (m − 1)·τ·(1 − exp(−T/τ)))."""
    reliability = plan.reliability
    order = cluster.order
    start_h = order.placed_h + order.lead_h + order.slip_h.low if order else cluster.online_h or 0.0
    hours = max(0.0, min(plan.hours, cluster.retire_h) - max(0.0, start_h))
    early = (reliability.early_life_multiplier - 1.0) * reliability.early_life_h
    exposure_h = hours - early * np.expm1(-hours / reliability.early_life_h)
    per_node_h = sum(cause.per_node_h for cause in reliability.causes) * cluster.failure_multiplier
    return float(cluster.nodes * per_node_h * exposure_h)


def _power(plan: Plan, refuse: Callable[[KeyPath, str], None]) -> Iterator[str]:
    """Check the power cap against the full-load power of one node and of all nodes."""
    if plan.site.cap_kw is None:
        return
    cap = float(np.min(plan.site.cap_kw))
    hours = np.array([int(np.argmin(plan.site.cap_kw))])
    allowed = float(allowed_it_kw(plan, plan.site.cap_kw[hours], hours)[0])
    one = min(
        (cluster.node_power.full_kw for cluster in plan.clusters if not cluster.is_hosted),
        default=0.0,
    )
    full = full_load_kw(plan.clusters, plan.hours)
    if cap == np.max(plan.site.cap_kw) and one > allowed:
        message = (
            f"{cap:,.1f} kW of facility power carry {allowed:,.1f} kW of IT load, "
            f"but a single node draws {one:,.1f} kW at full load"
        )
        refuse(("site", "facility_power_cap_kw"), message)
    elif full > allowed:
        yield (
            f"the site can carry {allowed:,.0f} kW of IT load at its tightest; "
            f"the clusters draw {full:,.0f} kW at full load"
        )


def _notes(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield notes on the last month's demand, served precisions, early orders and rent terms past the horizon."""
    last = slice(int(plan.month_edges_h[-2]), int(plan.month_edges_h[-1]))
    wanted = plan.demand.expected_requests_per_s[:, last].mean(axis=1) * SECONDS_PER_HOUR
    share = 0.0  # of the last month's mean demand in what all the nodes bought that are there then sustain
    for w, load in enumerate(plan.workloads):
        there = [c for c in load.cluster_order if plan.clusters[c].retire_h > last.start]
        capacity = sum(plan.clusters[c].nodes * plan.requests_per_node_h[c, w, -1] for c in there)
        share += wanted[w] / capacity if capacity > 0 else 0.0
    if share > 1.0 and not plan.expansion.rules:
        times = f"{share:.2f} times what all clusters sustain"
        yield f"by the last month mean demand is {times} with the software of day one"
    document = scenario.document
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        for c, (cluster_name, stated) in enumerate(scenario.clusters.items()):
            allowed = (None, *workload.precisions)
            if (
                workload.precisions
                and stated.precision not in allowed
                and c in plan.workloads[w].cluster_order
            ):
                mine = ("workloads", name, "precisions")
                other = ("clusters", cluster_name, "precision")
                said = document.problem(mine, ", ".join(workload.precisions))
                yield f"{said} goes before {document.problem(other, str(stated.precision))} on {cluster_name}"
    for cluster in plan.clusters:
        if (
            order := cluster.order
        ) is not None and order.placed_h + order.lead_h + order.slip_h.low < 0:
            yield (
                f"cluster {cluster.name} is ordered long before the start and may arrive before it: what has arrived "
                "by then counts as owned, its price is no capital of the horizon"
            )
    for cluster in plan.clusters:  # a long term signed late looks as free to leave as a short one
        usd = cluster.rent.bound_usd_per_accelerator if cluster.rent is not None else 0.0
        if (bound := cluster.nodes * cluster.accelerators_per_node * usd) > 0:
            yield (
                f"cluster {cluster.name}: its term runs on after the horizon and binds {bound:,.0f} USD of rent by "
                "then, which no figure counts"
            )


def _nothing(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield warnings for power that never comes, an empty fleet, and no demand or an implausibly large one."""
    needed = on_site_kw(plan.clusters, plan.hours, lambda cluster: cluster.nameplate_kw)
    if plan.site.block_kw.size and (has := plan.site.block_kw[-1]) < (most := max(needed)):
        waits = "some nodes wait until others retire"
        so = "some nodes are paid for and will never serve" if needed[-1] > has else waits
        yield f"power blocks energise {has:,.0f} kW in all; the clusters' nameplate is {most:,.0f} kW at once, so {so}"
    buys = any(rule.enlarges for rule in scenario.expansion.rules)
    for name, cluster in scenario.machines.items():
        entry = scenario.load_catalog().accelerator(cluster.accelerator)
        stated = {
            "host": entry.host_usd_per_accelerator or cluster.host_usd_per_node,
            "network": entry.network_usd_per_accelerator,
            "storage": entry.storage_usd_per_accelerator,
        }
        missing = [kind for kind, price in stated.items() if price is None]
        if missing and cluster.contract is None and not cluster.owned:
            yield (
                f"clusters.{name}: no {' or '.join(missing)} price is stated for {cluster.accelerator}, so 0 USD is "
                "paid for it; state it in an overlay of the catalogue"
            )
    rentals = {f"clusters.{c.name}.contract": c.rent.hourly for c in plan.clusters if c.rent}
    if (burst := plan.money.market.burst) is not None:
        rentals["finance.burst_rental"] = burst.hourly
    for place, terms in rentals.items():
        if terms is not None and terms.available_fraction == 0.0:
            why = (
                f"available_fraction, else prior rental_available_{terms.accelerator.lower()}, is 0"
            )
            yield f"{place}: no {terms.accelerator} is to be had by the hour on any day, so none is rented ({why})"
    if not buys and not any(cluster.nodes or cluster.api for cluster in plan.clusters):
        nothing = "no cluster has a node and no review buys any: nothing can be served"
        yield (
            nothing
            if scenario.sizing is None
            else f"{nothing} until planner size has chosen how many to buy"
        )
    edges = plan.month_edges_h[:-1].astype(np.intp)
    peaks = np.maximum.reduceat(plan.demand.expected_requests_per_s, edges, axis=1)
    if not peaks.any():
        yield "no workload brings a request: there is nothing to serve"
    busiest = float(
        (peaks * [load.tokens_per_request for load in plan.workloads]).sum(axis=0).max()
    )
    if busiest > MOST_TOKENS_PER_S:
        yield (
            f"traffic reaches {busiest:,.3g} tokens/s, more than twice what the largest operator has reported; "
            "look at requests_per_s, growth and tokens"
        )


def _out_of_time(
    scenario: Scenario, plan: Plan, demands: Sequence[WorkloadDemand]
) -> Iterator[str]:
    """Yield a note for each date outside the horizon, and for growth tables that do not cover all months."""
    end = plan.months.end
    for path, first, last, what in _dated(scenario):
        if first >= end or last < scenario.start:
            side = "after" if first >= end else "before"
            said = f"{first} is {side} the horizon, {scenario.start} to {end}: {what}"
            yield str(scenario.document.problem(path, said))
    for name, demand in zip(scenario.workloads, demands, strict=True):
        if not isinstance(demand.growth, TableGrowth):
            continue
        before = demand.growth.hours_h[0]
        after = plan.hours - demand.growth.hours_h[-1]
        for level_h, what in (
            (before, "begins after the start"),
            (after, "ends before the horizon"),
        ):
            if level_h > _TABLE_MARGIN_H:
                message = f"the table {what}: traffic stays level for {min(level_h, plan.hours) / 24.0:,.0f} days"
                yield str(scenario.document.problem(("workloads", name, "growth", "file"), message))


def _dated(scenario: Scenario) -> Iterator[tuple[KeyPath, date, date, str]]:
    """Yield each date's key path, the first and last day of its effect, and the consequence of lying outside."""
    for index, block in enumerate(scenario.site.power_blocks):
        yield ("site", "power_blocks", index, "date"), block.date, date.max, "its power never comes"
    for index, cut in enumerate(scenario.site.curtailments):
        last = _later(cut.date, cut.length_days)
        yield ("site", "curtailments", index, "date"), cut.date, last, "it cuts nothing"
    for name, workload in scenario.workloads.items():
        path: KeyPath = ("workloads", name)
        if workload.model_launch is not None:
            yield (*path, "model_launch"), workload.model_launch, date.max, "it brings no traffic"
        for index, spike in enumerate(workload.spikes):
            gone = _later(spike.date, 5.0 * spike.decay_days)  # below a hundredth of its height
            yield (*path, "spikes", index, "date"), spike.date, gone, "it brings no traffic"
        for index, step in enumerate(
            workload.growth.steps if isinstance(workload.growth, GrowthSteps) else ()
        ):
            yield (
                (*path, "growth", "steps", index, "date"),
                step.date,
                date.max,
                "the step has no effect",
            )
        # A calendar of several years is no slip: one that holds no day of this run is.
        if days := [holiday.date for holiday in workload.load_profile.holidays]:
            yield (
                (*path, "load_profile", "holidays"),
                min(days),
                max(days),
                "no holiday falls into the run",
            )


def _later(day: date, days: float) -> date:
    """Return the date some days later, or the last date possible."""
    return date.fromordinal(min(day.toordinal() + math.ceil(days), date.max.toordinal()))


def _unused_quotes(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield a note for each quote that is valid on no day on which the cluster can order."""
    for name, cluster in scenario.clusters.items():
        first = order_date(scenario, cluster)
        reviewed = bool(scenario.expansion.enlarging(name))
        for quote in dated_quotes(cluster):
            begins = quote.valid_from or date.min
            ends = quote.valid_until or date.max
            if not (
                quote.holds_on(first)
                or (reviewed and begins < plan.months.end and ends >= scenario.start)
            ):
                held = f"from {begins} " if quote.valid_from else ""
                held += f"until {ends}" if quote.valid_until else "on"
                later = f", and a review buys from {scenario.start} on" if reviewed else ""
                yield (
                    f"cluster {name}: no order can use the quote {quote.name!r}, which holds {held}; its nodes are "
                    f"ordered on {first}{later}, at the cluster's own price"
                )


def _outgrown(plan: Plan) -> Iterator[str]:
    """Yield the workloads whose requests grow too long for their SLO, and from which month on."""
    for w, workload in enumerate(plan.workloads):
        if workload.overdue_share is not None:
            begins = plan.months.labels[int(workload.overdue_share.argmax())]
            yield (
                f"workload {workload.name} outgrows its objective on every cluster in {begins}: from then on all "
                f"its requests are late, and served within {workload.overdue_share.max():.1%} of the fleet, the share "
                "of its tokens until then"
            )
        for c in workload.cluster_order:
            months = np.flatnonzero(plan.requests_per_node_h[c, w] <= 0.0)
            if months.size:
                begins = plan.months.labels[int(months[0])]
                yield (
                    f"workload {workload.name} outgrows its objective on {plan.clusters[c].name} in {begins}: "
                    "its requests are then so long that no batch meets it, and are refused there"
                )


def _too_long(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield the workloads whose TTFT objective no cluster meets at the stated percentile, even when idle."""
    assert plan.no_burst_tables is not None  # a compiled plan has both
    assert plan.alone_s is not None
    for w, workload in enumerate(plan.workloads):
        slo = scenario.workloads[workload.name].slo
        idle = plan.no_burst_tables[0, :, w, 0]
        too_long, best = min(
            ((float(idle[c]), c) for c in workload.cluster_order), default=(0.0, 0)
        )
        if too_long > 1.0 - slo.share + 1e-9:
            message = (
                f"{too_long:.1%} of its prompts take longer than this on an idle replica of "
                f"{plan.clusters[best].name}, and more on any other cluster, where {1.0 - slo.share:.2g} may: "
                f"state at least {rounded_up(plan.alone_s[best, w], 2):g} s, shorter prompts, or a faster part"
            )
            yield str(
                scenario.document.problem(("workloads", workload.name, "slo", "ttft_s"), message)
            )


def _unchanged(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield clusters that planned work can drain entirely, and software steps that take effect after the horizon."""
    work = plan.reliability
    for cluster in plan.clusters:
        reserve = work.reserve(cluster.nodes)
        if 0 < cluster.nodes <= reserve and (work.maintenance or work.firmware):
            yield (
                f"planned work may drain every node of cluster {cluster.name} at once: it has {cluster.nodes} and the "
                f"reserve (reliability.reserve_nodes) is {reserve}"
            )
    days = upgrade_days(scenario, scenario.load_catalog())
    for index, step in enumerate(scenario.software.steps):
        if _later(step.date, days) >= plan.months.end:
            said = f"upgrades come every {days:g} days: a release of {step.date} may be taken only beyond the horizon"
            yield str(scenario.document.problem(("software", "steps", index, "date"), said))


def slower_drafts(scenario: Scenario, services: Services, reuse: Reuse) -> Iterator[str]:
    """Yield a warning for each pair where speculative decoding lowers the throughput."""
    for (name, workload), service in services.items():
        cluster = scenario.clusters[name].model_copy(update=service.as_keys())
        if cluster.speculation is None or cluster.speculation.use == "auto":
            continue
        both = [cluster, cluster.model_copy(update={"speculation": None})]
        drafted, plain = (
            service_of(one, scenario.workloads[workload], scenario, reuse) for one in both
        )
        if isinstance(drafted, CapacityError) or isinstance(plain, CapacityError):
            continue
        if drafted.requests_per_s < plain.requests_per_s:
            yield (
                f"clusters.{name}.speculation: {workload} is served worse with it, {drafted.requests_per_s:.3g} "
                f"requests/s a node where plain decoding serves {plain.requests_per_s:.3g}; with `use: auto` it is "
                "taken only where it serves more"
            )
