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
from planner.plan.choice import Services, service_of
from planner.plan.clusters import order_date
from planner.plan.plan import ClusterPlan, Plan
from planner.plan.reuse import Reuse
from planner.plan.site import allowed_it_kw, full_load_kw, on_site_kw
from planner.plan.software import upgrade_days
from planner.scenario.plausibility import implausible
from planner.scenario.scenario import Scenario
from planner.scenario.site import dated_quotes, window_zone
from planner.scenario.workload import GrowthSteps
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, SECONDS_PER_HOUR, rounded_up
from planner.yaml_io import KeyPath

MOST_TOKENS_PER_S = 1e9
"""Google reported 1.3e15 tokens a month in October 2025, 5e8 a second; twice that is nobody's plan."""
MOST_EVENTS = 2_000_000
"""A run keeps every event, in about half a kilobyte: this many fill a gigabyte."""
_TABLE_MARGIN_H = 62.0 * HOURS_PER_DAY
"""Level hours of a growth table that are no slip: a table by months has its last row on the first of the last one."""
_FADED_DECAYS = 5.0
"""Decays after which a spike is below a hundredth of its height."""


Refuse = Callable[[KeyPath, str], None]
"""Takes the key path and the message of an error."""


def contradictions(
    scenario: Scenario, plan: Plan, demands: Sequence[WorkloadDemand]
) -> tuple[list[str], list[str]]:
    """Raise ScenarioError for an impossible plan; return warnings and notes with the figures that contradict."""
    problems: list[Problem] = []

    def refuse(path: KeyPath, message: str) -> None:
        problems.append(scenario.document.problem(path, message))

    # All checks run before any error is raised, so that a user sees every problem at once.
    warnings = [*_late_orders(plan, refuse)]
    for path, events, count in expected_events(plan):
        if count > MOST_EVENTS:
            expected = f"about {count:,.0f} {events} are expected in this run"
            refuse(path, f"{expected}; at most {MOST_EVENTS:,} are simulated")
    notes = [
        *_power_cap(plan, refuse),
        *_outgrown_capacity(plan),
        *_overridden_precisions(scenario, plan),
        *_early_orders_and_late_terms(plan),
    ]
    # What may well be meant is a note above; what hardly is, a warning.
    warnings += [
        *_unpowered(plan),
        *_unpriced(scenario),
        *_nothing_to_rent(plan),
        *_no_machines_or_traffic(scenario, plan),
        *_outside_horizon(scenario, plan),
        *_short_tables(scenario, plan, demands),
        *_unused_quotes(scenario, plan),
        *_utc_windows(scenario),
        *_outgrown(plan),
        *_too_long(scenario, plan),
        *_whole_clusters_drained(plan),
        *_late_releases(scenario, plan),
    ]
    raise_all(problems)
    return warnings, notes


def _late_orders(plan: Plan, refuse: Refuse) -> Iterator[str]:
    """Refuse orders that are promised for after the horizon, and yield those that may slip beyond it."""
    for cluster in plan.clusters:
        order = cluster.order
        if order is None:
            continue
        promised_h = order.placed_h + order.lead_h + plan.site.commissioning_h
        spread_h = (order.deliveries - 1) * order.interval_h
        latest_h = promised_h + order.slip_h.high + spread_h
        horizon_days = f"{plan.hours / 24:,.0f}"
        # A promise beyond the horizon is a mistake; a slip beyond it is a delay, and the machines do not come.
        if promised_h >= plan.hours:
            arrival = (
                f"arrives {promised_h / 24:,.0f} days after the start even if it does not slip"
            )
            refuse(("clusters", cluster.name, "order"), f"{arrival}; the horizon is {horizon_days}")
        elif latest_h >= plan.hours:
            yield (
                f"cluster {cluster.name} may arrive after the horizon, up to {latest_h / 24:,.0f} days from the start; "
                f"the horizon is {horizon_days}"
            )


def _utc_windows(scenario: Scenario) -> Iterator[str]:
    """Yield a warning where tariff windows have no time zone."""
    site = scenario.site
    tariff = scenario.load_catalog().tariff(site.tariff)
    if site.electricity.windows and window_zone(site, tariff) is None:
        yield (
            "site.electricity.windows are read as UTC hours, because neither site.electricity.timezone nor the tariff "
            f"{site.tariff} names a time zone"
        )


def all_warnings(scenario: Scenario, plan: Plan) -> list[str]:
    """Return all warnings before a run: implausible figures of the scenario, then contradictions of its plan."""
    return [*(str(problem) for problem in implausible(scenario)), *plan.warnings]


def expected_events(plan: Plan) -> Iterator[tuple[KeyPath, str, float]]:
    """Yield the key path, the kind and the expected number over the horizon of each kind of event."""
    # Each of these is kept as an event of the run, and fills memory.
    failures = sum(expected_failures(plan, cluster) for cluster in plan.clusters)
    yield ("reliability", "failure_multiplier"), "failures", failures
    years = plan.hours / HOURS_PER_YEAR
    models = {workload.model for workload in plan.workloads}
    per_year = 0.0
    for stack in plan.software.stacks:
        for incident in stack.incidents:
            from_upgrades = incident.per_upgrade * stack.upgrades_per_year
            per_year += incident.per_year + from_upgrades
    # Rates are by served model; a stack that serves fewer of them makes this a bound from above.
    incidents = per_year * years * len(models)
    yield ("software", "incident_multiplier"), "incidents", incidents
    if plan.site.outages_per_year > 0:
        # An outage ends before the next begins.
        cycle_h = HOURS_PER_YEAR / plan.site.outages_per_year + plan.site.outage_h
        outages = plan.hours / cycle_h
        yield ("site", "outages_per_year"), "outages", outages
    for name, tenants in zip(plan.demand.names, plan.demand.tenants, strict=True):
        for index, tenant in enumerate(tenants):
            # In each cycle a tenant starts once and stops once.
            cycle_h = tenant.mean_on_h + tenant.mean_off_h
            switches = 2.0 * plan.hours / cycle_h
            path = ("workloads", name, "tenants", index)
            yield path, "starts and stops", switches


def expected_failures(plan: Plan, cluster: ClusterPlan) -> float:
    """Return the expected failures of a cluster's n nodes in T hours: n·λ·(T + (m − 1)·τ·(1 − exp(−T/τ)))."""
    reliability = plan.reliability
    end_h = min(plan.hours, cluster.retire_h)
    hours = max(0.0, end_h - cluster.earliest_h)
    # Young machines fail more often, by a factor that decays with time.
    early = (reliability.early_life_multiplier - 1.0) * reliability.early_life_h
    exposure_h = hours - early * np.expm1(-hours / reliability.early_life_h)
    per_node_h = sum(cause.per_node_h for cause in reliability.causes) * cluster.failure_multiplier
    return float(cluster.nodes * per_node_h * exposure_h)


def _power_cap(plan: Plan, refuse: Refuse) -> Iterator[str]:
    """Check the power cap against the full-load power of one node and of all nodes."""
    cap_kw = plan.site.cap_kw
    if cap_kw is None:
        return
    lowest_cap_kw = float(np.min(cap_kw))
    tightest_hours = np.array([int(np.argmin(cap_kw))])
    allowed_kw = float(allowed_it_kw(plan, cap_kw[tightest_hours], tightest_hours)[0])
    nodes_kw = [cluster.node_power.full_kw for cluster in plan.clusters if not cluster.is_hosted]
    node_kw = min(nodes_kw, default=0.0)
    full_kw = full_load_kw(plan.clusters, plan.hours)
    # A curtailment may stop every node for some hours; a cap that never rises may not.
    is_constant = lowest_cap_kw == np.max(cap_kw)
    if is_constant and node_kw > allowed_kw:
        message = (
            f"{lowest_cap_kw:,.1f} kW of facility power carry {allowed_kw:,.1f} kW of IT load, "
            f"but a single node draws {node_kw:,.1f} kW at full load"
        )
        refuse(("site", "facility_power_cap_kw"), message)
    elif full_kw > allowed_kw:
        yield (
            f"in its tightest hour the site can carry {allowed_kw:,.0f} kW of IT load; "
            f"the clusters draw {full_kw:,.0f} kW at full load"
        )


def _outgrown_capacity(plan: Plan) -> Iterator[str]:
    """Yield a note where the last month's mean demand exceeds what all the nodes that are there then sustain."""
    begin_h, end_h = plan.month_edges_h[-2:].tolist()
    requests_per_s = plan.demand.expected_requests_per_s[:, begin_h:end_h]
    demand = requests_per_s.mean(axis=1) * SECONDS_PER_HOUR
    # Shares of the fleet that each workload alone would take: they add up, whichever cluster serves it.
    share = 0.0
    for w, workload in enumerate(plan.workloads):
        capacity = sum(
            plan.clusters[c].nodes * plan.requests_per_node_h[c, w, -1]
            for c in workload.cluster_order
            if plan.clusters[c].retire_h > begin_h
        )
        share += demand[w] / capacity if capacity > 0 else 0.0
    # Rules may still enlarge the fleet by then.
    if share > 1.0 and not plan.expansion.rules:
        times = f"{share:.2f} times what all clusters sustain"
        yield f"in the last month, mean demand is {times} with the software of day one"


def _overridden_precisions(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield a note for each cluster whose stated precision a workload does not allow."""
    document = scenario.document
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        if not workload.precisions:
            continue
        for c, (cluster_name, cluster) in enumerate(scenario.clusters.items()):
            is_allowed = cluster.precision in (None, *workload.precisions)
            if is_allowed or c not in plan.workloads[w].cluster_order:
                continue
            precisions = ", ".join(workload.precisions)
            stated = document.problem(("workloads", name, "precisions"), precisions)
            overridden = document.problem(
                ("clusters", cluster_name, "precision"), str(cluster.precision)
            )
            yield f"{stated} takes precedence over {overridden} on {cluster_name}"


def _early_orders_and_late_terms(plan: Plan) -> Iterator[str]:
    """Yield notes on orders that arrive before the start, and on rent that is owed after the horizon."""
    for cluster in plan.clusters:
        if cluster.order is not None and cluster.order.earliest_h < 0:
            yield (
                f"cluster {cluster.name} is ordered long before the start and may arrive before it: nodes that have "
                "arrived by then count as owned, and their price does not count as capital of the horizon"
            )
    # A long term signed late looks as free to leave as a short one.
    for cluster in plan.clusters:
        if cluster.rent is None:
            continue
        accelerators = cluster.nodes * cluster.accelerators_per_node
        owed_usd = accelerators * cluster.rent.bound_usd_per_accelerator
        if owed_usd > 0:
            yield (
                f"cluster {cluster.name}: its term ends after the horizon; the {owed_usd:,.0f} USD of rent committed "
                "after the horizon is not in any figure"
            )


def _unpowered(plan: Plan) -> Iterator[str]:
    """Yield a warning where power blocks never carry all nodes that are on site at once."""
    if not plan.site.block_kw.size:
        return
    needed_kw = on_site_kw(plan.clusters, plan.hours, lambda cluster: cluster.nameplate_kw)
    block_kw = plan.site.block_kw[-1]
    if block_kw < max(needed_kw):
        result = "some nodes wait until others retire"
        if needed_kw[-1] > block_kw:
            result = "some nodes are paid for and will never serve"
        yield (
            f"power blocks energise {block_kw:,.0f} kW in all, but the nameplate power of clusters on site at once "
            f"reaches {max(needed_kw):,.0f} kW, so {result}"
        )


def _unpriced(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for each cluster that is bought without a price of host, network or storage."""
    for name, cluster in scenario.machines.items():
        if cluster.contract is not None or cluster.owned:
            continue
        entry = scenario.load_catalog().accelerator(cluster.accelerator)
        prices = {
            "host": entry.host_usd_per_accelerator or cluster.host_usd_per_node,
            "network": entry.network_usd_per_accelerator,
            "storage": entry.storage_usd_per_accelerator,
        }
        missing = [kind for kind, price in prices.items() if price is None]
        if missing:
            yield (
                f"clusters.{name}: no {' or '.join(missing)} price is stated for {cluster.accelerator}, so the plan "
                "pays 0 USD for it; state it in an overlay of the catalogue"
            )


def _nothing_to_rent(plan: Plan) -> Iterator[str]:
    """Yield a warning for each rental by the hour whose machines are never to be had."""
    rentals = {
        f"clusters.{cluster.name}.contract": cluster.rent.hourly
        for cluster in plan.clusters
        if cluster.rent
    }
    if plan.money.market.burst is not None:
        rentals["finance.burst_rental"] = plan.money.market.burst.hourly
    for place, terms in rentals.items():
        # Reserved machines have no hourly terms: they are there on every day.
        if terms is not None and terms.available_fraction == 0.0:
            part = terms.accelerator
            cause = f"available_fraction, or if not stated the prior rental_available_{part.lower()}, is 0"
            yield f"{place}: no {part} is available by the hour on any day, so none is rented ({cause})"


def _no_machines_or_traffic(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield warnings for an empty fleet, and for no demand or an implausibly large one."""
    buys = any(rule.enlarges for rule in scenario.expansion.rules)
    if not buys and not any(cluster.nodes or cluster.api for cluster in plan.clusters):
        empty = "no cluster has a node and no review buys any, so nothing can be served"
        if scenario.sizing is not None:
            empty += " until planner size has chosen how many nodes to buy"
        yield empty
    # The busiest hour of each month: tokens of a request are known by month.
    month_starts = plan.month_edges_h[:-1].astype(np.intp)
    peaks = np.maximum.reduceat(plan.demand.expected_requests_per_s, month_starts, axis=1)
    if not peaks.any():
        yield "no workload has any requests, so there is nothing to serve"
    tokens_per_s = peaks * [workload.tokens_per_request for workload in plan.workloads]
    busiest = float(tokens_per_s.sum(axis=0).max())
    if busiest > MOST_TOKENS_PER_S:
        yield (
            f"traffic reaches {busiest:,.3g} tokens/s, more than twice what the largest operator has reported; "
            "check requests_per_s, growth and tokens"
        )


def _outside_horizon(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield a warning for each date whose effect lies outside the horizon."""
    end = plan.months.end
    for path, begins, ends, consequence in _dated(scenario):
        if begins >= end or ends < scenario.start:
            side = "after" if begins >= end else "before"
            message = f"{begins} is {side} the horizon, {scenario.start} to {end}: {consequence}"
            yield str(scenario.document.problem(path, message))


def _short_tables(
    scenario: Scenario, plan: Plan, demands: Sequence[WorkloadDemand]
) -> Iterator[str]:
    """Yield a warning for each growth table that does not cover all months."""
    for name, demand in zip(scenario.workloads, demands, strict=True):
        if not isinstance(demand.growth, TableGrowth):
            continue
        hours_h = demand.growth.hours_h
        # Before its first row and after its last a table stays level.
        gaps = {
            "begins after the start": hours_h[0],
            "ends before the horizon": plan.hours - hours_h[-1],
        }
        path = ("workloads", name, "growth", "file")
        for gap, level_h in gaps.items():
            if level_h > _TABLE_MARGIN_H:
                days = min(level_h, plan.hours) / 24.0
                message = f"the table {gap}: traffic stays level for {days:,.0f} days"
                yield str(scenario.document.problem(path, message))


def _dated(scenario: Scenario) -> Iterator[tuple[KeyPath, date, date, str]]:
    """Yield each date's key path, the first and last day of its effect, and the consequence of lying outside."""
    for index, block in enumerate(scenario.site.power_blocks):
        yield ("site", "power_blocks", index, "date"), block.date, date.max, "its power never comes"
    for index, cut in enumerate(scenario.site.curtailments):
        final_day = _later(cut.date, cut.length_days)
        yield ("site", "curtailments", index, "date"), cut.date, final_day, "it cuts nothing"
    for name, workload in scenario.workloads.items():
        path: KeyPath = ("workloads", name)
        # Those within the horizon are workloads of their own by now.
        for change in workload.models:
            consequence = f"{change.model} never comes"
            yield (*path, "models"), change.begins, date.max, consequence
        if workload.model_launch is not None:
            place = (*path, "model_launch")
            yield place, workload.model_launch, date.max, "it brings no traffic"
        for index, spike in enumerate(workload.spikes):
            # A spike before the start may still fade into the run.
            faded = _later(spike.date, _FADED_DECAYS * spike.decay_days)
            place = (*path, "spikes", index, "date")
            yield place, spike.date, faded, "it brings no traffic"
        steps = workload.growth.steps if isinstance(workload.growth, GrowthSteps) else ()
        for index, step in enumerate(steps):
            place = (*path, "growth", "steps", index, "date")
            yield place, step.date, date.max, "the step has no effect"
        # A calendar of several years is no slip: one that holds no day of this run is.
        if days := [holiday.date for holiday in workload.load_profile.holidays]:
            place = (*path, "load_profile", "holidays")
            yield place, min(days), max(days), "no holiday lies within the horizon"


def _later(day: date, days: float) -> date:
    """Return the date some days later, or the last date possible."""
    later_day = day.toordinal() + math.ceil(days)
    return date.fromordinal(min(later_day, date.max.toordinal()))


def _unused_quotes(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield a note for each quote that is valid on no day on which the cluster can order."""
    for name, cluster in scenario.clusters.items():
        ordered_on = order_date(scenario, cluster)
        reviewed = bool(scenario.expansion.enlarging(name))
        for quote in dated_quotes(cluster):
            begins = quote.valid_from or date.min
            ends = quote.valid_until or date.max
            overlaps_run = begins < plan.months.end and ends >= scenario.start
            is_reviewed = reviewed and overlaps_run
            # Either the first order or a review of the run may use it.
            if not quote.holds_on(ordered_on) and not is_reviewed:
                validity = f"from {begins} " if quote.valid_from else ""
                validity += f"until {ends}" if quote.valid_until else "on"
                later = f", and a review buys from {scenario.start} on" if reviewed else ""
                yield (
                    f"cluster {name}: no order can use the quote {quote.name!r}, which holds {validity}; its nodes are "
                    f"ordered on {ordered_on}{later}, at the cluster's own price"
                )


def _outgrown(plan: Plan) -> Iterator[str]:
    """Yield the workloads whose requests grow too long for their SLO, and from which month on."""
    for w, workload in enumerate(plan.workloads):
        if workload.overdue_share is not None:
            begins = plan.months.labels[int(workload.overdue_share.argmax())]
            yield (
                f"workload {workload.name} outgrows its objective on every cluster in {begins}: from then on all its "
                f"requests are late, and it gets {workload.overdue_share.max():.1%} of the fleet, the share of tokens "
                "that it had until then"
            )
        for c in workload.cluster_order:
            # A capacity of zero is how the plan says that no batch meets the objective.
            months = np.flatnonzero(plan.requests_per_node_h[c, w] <= 0.0)
            if months.size:
                begins = plan.months.labels[int(months[0])]
                yield (
                    f"workload {workload.name} outgrows its objective on {plan.clusters[c].name} in {begins}: "
                    "its requests are then so long that no batch meets the objective, so that cluster refuses them"
                )


def _too_long(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield the workloads whose TTFT objective no cluster meets at the stated percentile, even when idle."""
    assert plan.alone_s is not None  # a compiled plan has them
    for w, workload in enumerate(plan.workloads):
        slo = scenario.workloads[workload.name].slo
        idle = plan.idle_late_shares[:, w]
        by_cluster = [(float(idle[c]), c) for c in workload.cluster_order]
        # Of clusters as good as each other the first in the file.
        too_long, best = min(by_cluster, default=(0.0, 0))
        may_be_late = 1.0 - slo.share
        # Shares are sums over cells of probability: a hair more is none.
        if too_long > may_be_late + 1e-9:
            alone_s = float(plan.alone_s[best, w])
            # Of a pair that no layout serves the time is not known.
            longer = (
                f"state at least {rounded_up(alone_s, 2):g} s, "
                if np.isfinite(alone_s)
                else "state "
            )
            elsewhere = ", and more on any other cluster" if len(by_cluster) > 1 else ""
            message = (
                f"{too_long:.1%} of its prompts take longer than this on an idle replica of "
                f"{plan.clusters[best].name}{elsewhere}; at most {may_be_late:.2g} of them may. To meet the objective, "
                f"{longer}shorter prompts, or a faster accelerator"
            )
            path = ("workloads", workload.name, "slo", "ttft_s")
            yield str(scenario.document.problem(path, message))


def _whole_clusters_drained(plan: Plan) -> Iterator[str]:
    """Yield a warning for each cluster that planned work can drain entirely."""
    work = plan.reliability
    for cluster in plan.clusters:
        reserve = work.reserve(cluster.nodes)
        has_planned_work = work.maintenance or work.firmware
        if 0 < cluster.nodes <= reserve and has_planned_work:
            yield (
                f"planned work may drain every node of cluster {cluster.name} at once: it has {cluster.nodes}, and the "
                f"reserve (reliability.reserve_nodes) is {reserve}"
            )


def _late_releases(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yield a warning for each software step that may take effect only after the horizon."""
    days = upgrade_days(scenario, scenario.load_catalog())
    for index, step in enumerate(scenario.software.steps):
        # A step takes effect with the upgrade after it, up to an interval later.
        if _later(step.date, days) >= plan.months.end:
            release = f"a release of {step.date} may take effect only after the horizon"
            message = f"upgrades come every {days:g} days: {release}"
            path = ("software", "steps", index, "date")
            yield str(scenario.document.problem(path, message))


def slower_drafts(scenario: Scenario, services: Services, reuse: Reuse) -> Iterator[str]:
    """Yield a warning for each pair where speculative decoding lowers the throughput."""
    for (name, workload), service in services.items():
        cluster = scenario.clusters[name].model_copy(update=service.as_keys())
        # On auto it is taken only where it serves more.
        if cluster.speculation is None or cluster.speculation.use == "auto":
            continue
        load = scenario.workloads[workload]
        undrafted = cluster.model_copy(update={"speculation": None})
        drafted = service_of(cluster, load, scenario, reuse)
        plain = service_of(undrafted, load, scenario, reuse)
        # What cannot serve at all has been refused with its own words.
        if isinstance(drafted, CapacityError) or isinstance(plain, CapacityError):
            continue
        if drafted.requests_per_s < plain.requests_per_s:
            yield (
                f"clusters.{name}.speculation: {workload} is served worse with it: {drafted.requests_per_s:.3g} "
                f"requests/s per node, and {plain.requests_per_s:.3g} with plain decoding; with `use: auto` it is used "
                "only if it serves more"
            )
