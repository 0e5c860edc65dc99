"""Software incidents: what they cost by stack and kind, and what the practice of upgrades is worth by vendor.

What a run lost is read from its log. What is *expected* follows from the plan alone: the faults in closed form, the
gains of releases over drawn courses of releases and upgrades, which are the same for every practice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.elementwise import in_hours
from planner.engine.log import streams
from planner.engine.monthly import slowed_hours
from planner.engine.software import SLOWEST, launch_of
from planner.finance.accounting.booked_run import BookedRun
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.plan.software import UPGRADE_POLICIES, IncidentPlan, StackPlan, TeamPlan, policy_days
from planner.run.slo_misses import INCIDENT, lost_requests
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR

Pair = tuple[int, int]
_HISTORIES = 128
"""Drawn histories of releases and upgrades, each with its deviations and with their opposites."""
_ENDS = (" rolled back", " fixed", " done")
"""How the kind of an event ends that is the end of an incident."""
_FEWEST_UPGRADES = 2000.0
"""Upgrades in a horizon beyond which none is drawn: nobody upgrades every few hours, and memory is finite."""


class Outlook(NamedTuple):
    """What is expected of the software of a cluster on a workload."""

    speedup_fraction: float
    """Mean speed-up that upgrades bring over day one."""
    incidents: dict[str, tuple[float, float]]
    """By kind, the number of incidents and the share of speed they take."""


def outlooks(plan: Plan) -> dict[Pair, Outlook]:
    """Return what is expected of each cluster and workload that it serves, bring-ups apart.

    Incidents are few and short, so none meets another or finds the engineers at work.
    """
    expected = dict[Pair, Outlook]()
    for stack in plan.software.stacks:
        groups = _pair_groups(plan, stack)
        leaders = [pairs[0] for pairs in groups]
        upgrades_h, levels = _upgrade_histories(plan, stack, leaders)
        for pairs in groups:
            leader = pairs[0]
            outlook = _outlook(plan, stack, leader, upgrades_h, levels[leader])
            expected |= dict.fromkeys(pairs, outlook)
    return expected


def _pair_groups(plan: Plan, stack: StackPlan) -> list[list[Pair]]:
    """Return the pairs on a stack in groups of one outlook: many clusters have the same history on a model."""
    software = plan.software
    groups = defaultdict[str, list[Pair]](list)
    on_stack = np.argwhere(software.stack_of == stack.name)
    for c, w in on_stack.tolist():
        figures = (
            plan.workloads[w].model,
            software.clock_h[c],
            float(software.dated_log_gain[c, w]),
            float(software.roofline_log_gain[c, w]),
            float(software.wide_precision_factor[c, w]),
        )
        groups[str(figures)].append((c, w))  # as text, in which NaN equals itself
    return [*groups.values()]


def _outlook(
    plan: Plan, stack: StackPlan, pair: Pair, upgrades_h: Floats, levels: Floats
) -> Outlook:
    """Return what is expected of a pair over drawn upgrades and the log speed that each brings."""
    hours = float(plan.hours)
    model = plan.workloads[pair[1]].model
    on_stack = np.argwhere(plan.software.stack_of == stack.name)
    of_model = [(c, w) for c, w in on_stack.tolist() if plan.workloads[w].model == model]
    launch = launch_of(plan, stack, of_model)
    # Upgrades drawn after the end bring no incident.
    multiplier = launch.incident_multiplier(upgrades_h) * (upgrades_h < hours)
    launches_inside = 0.0 <= launch.launch_h < hours
    at_launch = 1.0 + launch.excess if launches_inside else 0.0
    # The further incidents of a young model fade with its age: what comes in the horizon is between two ages.
    begin, end = (
        math.exp(-max(0.0, time_h - launch.launch_h) / launch.constant_h) for time_h in (0.0, hours)
    )
    extra_h = launch.excess * launch.constant_h * (begin - end)
    years = (hours + extra_h) / HOURS_PER_YEAR
    # By the hours that each release serves, from the end of its bake to that of the next.
    baked_h = np.minimum(upgrades_h + plan.software.bake_h, hours)
    spans_h = np.diff(baked_h, append=hours)
    # A roll-back gives up what the release gained over the one before it, if it gained anything.
    level_changes = np.diff(levels, prepend=0.0)
    gained = np.maximum(level_changes, 0.0)
    given_up = -np.expm1(-gained)
    incidents = {}
    for kind in stack.incidents:
        fault_h, back, late_h, until_fixed_h = _of_an_upgrade(plan, stack, kind, pair)
        odds = np.minimum(kind.per_upgrade * multiplier, 1.0)
        launch_odds = min(kind.per_upgrade * at_launch, 1.0)
        mean_number = odds.sum(axis=-1).mean()
        number = mean_number + launch_odds
        # A release that is rolled back is given up until the next or until it is fixed, but for the hours it still
        # served. One that gains more than the fault costs is kept, and costs that.
        until_next_h = np.maximum(back * spans_h - late_h, 0.0)
        hours_without = np.minimum(until_next_h, until_fixed_h)
        cost = given_up if kind.falsifies else np.minimum(given_up, kind.mean_loss)
        gain_h = odds * cost * hours_without
        fix_h = _fix_h(plan, stack, kind)
        anytime_h = kind.per_year * years * kind.mean_loss * fix_h
        mean_gain_h = gain_h.sum(axis=-1).mean()
        lost_h = number * fault_h + mean_gain_h + anytime_h
        expected_number = float(number) + kind.per_year * years
        lost_fraction = float(lost_h) / hours
        incidents[kind.kind] = (expected_number, lost_fraction)
    gain_by_release_h = np.expm1(levels) * spans_h
    speedup_h = gain_by_release_h.sum(axis=-1).mean()
    return Outlook(float(speedup_h) / hours, incidents)


def _upgrade_histories(
    plan: Plan, stack: StackPlan, pairs: list[Pair]
) -> tuple[Floats, dict[Pair, Floats]]:
    """Return drawn upgrades of a stack, and by pair the log speed that each brings, shape (2, histories, upgrades).

    As the simulation draws them, all at once; the second half has every release's deviation with the other sign, so
    that deviations cancel. Upgrades after the end are there, and are of no effect.
    """
    draw = streams(plan.seed)(f"practice/{stack.name}")
    software = plan.software
    levels = dict[Pair, Floats]()
    # One quantile of each rank, in a drawn order: the mean over histories is nearly the distribution's own.
    ranks = (np.arange(_HISTORIES) + 0.5) / _HISTORIES
    quantiles = [NormalDist().inv_cdf(rank) for rank in ranks.tolist()]

    def cadence(interval_h: float) -> Floats:
        interval_h = max(interval_h, plan.hours / _FEWEST_UPGRADES)
        # Steps are half an interval or longer, so twice as many as intervals reach the end for certain.
        count = int(2.0 * plan.hours / interval_h) + 2
        steps = draw.random((_HISTORIES, count)) + 0.5
        # Half an interval earlier: the first is as likely at any hour of the first interval.
        intervals = np.cumsum(steps, axis=1) - 0.5
        times_h: Floats = intervals * interval_h
        return times_h

    releases_h = np.zeros((_HISTORIES, 0))
    if stack.releases_per_year:
        releases_h = cadence(HOURS_PER_YEAR / stack.releases_per_year)
    signs = np.array([[[1.0]], [[-1.0]]])
    deviations = draw.standard_normal(releases_h.shape) * stack.release_sigma * signs
    gain_z = draw.permutation(quantiles)
    pace_z = draw.permutation(quantiles)
    upgrades_h = cadence(stack.upgrade_h)
    is_out = releases_h[:, None, :] <= upgrades_h[:, :, None]
    # How many releases are out at each upgrade: the newest one's number.
    newest = is_out.sum(axis=2)[None]
    for c, w in pairs:
        dated = float(software.dated_log_gain[c, w])
        library = stack.maturity.get(software.architectures[w])
        reached = np.full(deviations.shape, dated)
        if library is not None:
            # A row for each history, which all of its releases share.
            gains = [[library.gain.lognormal_at(z)] for z in gain_z]
            gain = np.log1p(gains)
            paces = [[library.months.lognormal_at(z)] for z in pace_z]
            months = np.array(paces)
            # A library that is mature at once has no months to divide by.
            constants_h = np.maximum(months * HOURS_PER_YEAR / 12.0, 1e-9)
            ages = (software.clock_h[c] + releases_h) / constants_h
            # No release brings more than the library will ever gain.
            matured = deviations - gain * np.expm1(-ages)
            reached = np.minimum(gain, matured)
        models = ("", plan.workloads[w].model)
        of_model = [step for step in stack.steps if step.model in models]
        steps = sum(step.log_gain * (upgrades_h >= step.time_h) for step in of_model)
        # Before the first release nothing is gained: a column of zeros.
        # One ahead on the last axis, which is that of the releases.
        gained = reached - dated
        by_release = np.pad(gained, ((0, 0), (0, 0), (1, 0)))
        level = np.take_along_axis(by_release, newest, axis=2) + steps
        # No software is faster than the hardware.
        ceiling = float(software.roofline_log_gain[c, w])
        levels[c, w] = np.minimum(level, ceiling)
    return upgrades_h, levels


def _of_an_upgrade(
    plan: Plan, stack: StackPlan, kind: IncidentPlan, pair: Pair
) -> tuple[float, float, float, float]:
    """Return the hours of capacity that an upgrade's incident takes, the odds of a roll-back, hours until then and on.

    With canary share c, bake time B, detection after D, roll-back in R, fix in F, and s the share that cannot be
    rolled back, a loss L takes E[L·(c·min(D, B) + c²·R·1(D < B) + (D − B)⁺ + ((1 − s)·R + s·F)·1(D ≥ B))]. The hours
    until a roll-back are (D − B)⁺ + R where the release had spread, in which it is not given up yet. The last are those
    from then until it is fixed: F − R, or D + F − B where it had not spread.
    """
    software = plan.software
    share = software.canary_fraction
    bake_h = software.bake_h
    rollback_h = software.rollback_h.lognormal_mean
    fix_h = _fix_h(plan, stack, kind)
    wide = 1.0
    stuck = stack.rollback_impossible_fraction
    wide_factor = float(software.wide_precision_factor[pair])
    if kind.falsifies and not math.isnan(wide_factor):
        # Wrong output that a wider precision avoids is never rolled back: it runs wider until it is fixed.
        stuck = 1.0
        wide = max(wide_factor, SLOWEST)
    # A small loss is subtle whatever its kind: probability and mean loss below the bound.
    mild, mild_loss, _ = kind.loss.below(kind.subtle_below)
    if kind.most_loss < kind.subtle_below:
        mild = 1.0
        mild_loss = kind.mean_loss
    # Probability and mean loss of what is noticed at once.
    gross_fraction = 1.0 - kind.subtle_fraction
    gross_loss = kind.mean_loss - mild_loss
    gross = gross_fraction * np.array([1.0 - mild, gross_loss])
    subtle = np.array([1.0, kind.mean_loss]) - gross
    # Of what is subtle and of what is gross: how likely, the mean loss times that, and when it is noticed.
    odds, loss = np.stack((subtle, gross), axis=1)
    noticed_h = (kind.subtle_detection_h, kind.detection_h)
    # Noticed within the bake, it is still on the canary alone.
    detections = [detection_h.below(bake_h) for detection_h in noticed_h]
    caught, early_h, _ = np.array(detections).T
    spread = 1.0 - caught
    mean_h = np.array([detection_h.lognormal_mean for detection_h in noticed_h])
    beyond_h = mean_h - early_h - spread * bake_h
    on_canary_h = early_h + spread * bake_h + caught * share * rollback_h
    # What is fixed before it could be rolled back is not.
    repair_h = (1.0 - stuck) * min(rollback_h, fix_h) + stuck * fix_h
    fault_h = share * on_canary_h + beyond_h + spread * repair_h
    lost_h = loss @ fault_h
    lost_h += odds @ spread * fix_h * (1.0 - wide)
    back = odds @ (caught + spread * (1.0 - stuck))
    late_h = (1.0 - stuck) * odds @ (beyond_h + spread * rollback_h)
    from_bake_h = np.maximum(early_h + caught * (fix_h - bake_h), 0.0)
    from_rollback_h = (1.0 - stuck) * spread * max(fix_h - rollback_h, 0.0)
    until_fixed_h = odds @ (from_bake_h + from_rollback_h)
    return float(lost_h), float(back), float(late_h), float(until_fixed_h)


def _fix_h(plan: Plan, stack: StackPlan, kind: IncidentPlan) -> float:
    """Return the mean hours of a fix within the run: the vendor's, or the engineers' of the clusters as stated."""
    software = plan.software
    team = software.teams[stack.team]
    clusters = (plan.clusters[c] for c in team.clusters)
    accelerators = sum(cluster.nodes * cluster.accelerators_per_node for cluster in clusters)
    engineers = team.engineers.number(accelerators)
    per_day = HOURS_PER_DAY * software.fix_time_multiplier
    # Whoever is faster; without engineers of one's own there is only the vendor.
    if engineers:
        work_h = kind.difficulty(1.0) * software.engineer_h
        per_day = min(per_day, TeamPlan.hours(work_h, engineers))
    # No incident lasts beyond the end of the run.
    most_days = plan.hours / per_day
    return per_day * kind.fix_days.mean_within(most_days)


def practices(scenario: Scenario, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield a plan under each practice of upgrades: as planned, by each policy, and without what limits an incident."""
    software = plan.software
    catalog = scenario.load_catalog()
    changes: dict[str, dict[str, Any]] = {"planned": {}}
    for policy in UPGRADE_POLICIES:
        days = policy_days(policy, catalog)
        changes[policy] = {"upgrade_h": days * HOURS_PER_DAY}
    changes["no_rollback"] = {"rollback_impossible_fraction": 1.0}
    for practice, change in changes.items():
        stacks = tuple(replace(stack, **change) for stack in software.stacks)
        changed = replace(software, stacks=stacks)
        yield practice, replace(plan, software=changed)
    # Without a canary all of the stack takes a release at once, and nothing bakes.
    no_canary = replace(software, canary_fraction=1.0, bake_h=0.0)
    yield "no_canary", replace(plan, software=no_canary)


def practice_rows(result: BookedRun) -> list[tuple[Any, ...]]:
    """One row per vendor and practice of upgrades: incidents, what they take, and what upgrades bring."""
    plan = result.plan
    rows = list[tuple[Any, ...]]()
    planned = dict[str, float]()
    """Capacity by vendor under the practice planned, which comes first."""
    for practice, changed in practices(result.scenario, plan):
        expected = outlooks(changed)
        vendors = {plan.clusters[c].vendor for c, _ in expected}
        for vendor in vendors:
            pairs = [pair for pair in expected if plan.clusters[pair[0]].vendor == vendor]
            figures = []
            for pair in pairs:
                incidents = expected[pair].incidents.values()
                # A row of zeros, since a stack may have no kind of incident to sum.
                number, lost = np.sum([*incidents, (0.0, 0.0)], axis=0)
                figures.append((number, lost, expected[pair].speedup_fraction))
            means = _weights(plan, pairs) @ np.array(figures)
            number, lost, gained = means.tolist()
            capacity = (1.0 + gained) * (1.0 - lost)
            # The practice planned comes first, and sets what the others are held against.
            planned_capacity = planned.setdefault(vendor, capacity)
            change = capacity / planned_capacity - 1.0
            # Inside the loop: a plan of APIs alone has no vendor's stack.
            days = changed.software.stacks[0].upgrade_h / HOURS_PER_DAY
            rows.append((vendor, practice, days, number, lost, gained, change))
    # Stable, so that the practices of a vendor keep their order.
    return sorted(rows, key=lambda row: str(row[0]))


def _weights(plan: Plan, pairs: list[Pair]) -> Floats:
    """Return the weight of each pair in a vendor's or stack's mean: its cluster's nodes, or all alike without any."""
    clusters = [plan.clusters[c] for c, _ in pairs]
    nodes = np.array([cluster.nodes for cluster in clusters], float)
    return quantities.shares(nodes)


def _missed_per_node_h(result: BookedRun) -> Floats:
    """Return the requests missed for incidents per node-hour that these take away, shape (workloads, hours).

    What a workload misses in an hour is shared by the node-hours that incidents take away from it then; where they take
    none, by those they take from others, whose work takes its machines. A month sums to what ``slo_misses`` has.
    """
    plan = result.plan
    lost = lost_requests(result)
    slowed_node_h = np.zeros((len(plan.workloads), plan.hours))
    for (_, w), hours, changes, share, _, node_h in slowed_hours(result.run):
        # Processes of one's own slow machines too, and are no incidents.
        is_incident = [not change.process for change in changes]
        by_incidents = share[is_incident].sum(axis=0)
        slowed_node_h[w, hours] += node_h * by_incidents
    all_node_h = slowed_node_h.sum(axis=0)
    starts = plan.month_edges_h[:-1]
    months = plan.months.hour_periods
    missed = np.where(all_node_h > 0.0, lost.hourly_to_incidents, 0.0)
    # A month that misses only what came of an earlier backlog goes by node-hours.
    monthly_missed = np.add.reduceat(missed, starts, axis=1)
    has_misses = in_hours(monthly_missed, months) > 0.0
    missed = np.where(has_misses, missed, all_node_h)
    monthly_missed = np.add.reduceat(missed, starts, axis=1)
    # Hours give the proportions, the month its sum, which has been evened out.
    scale = ratio(lost.requests[INCIDENT].T, monthly_missed)
    missed *= np.nan_to_num(in_hours(scale, months))
    is_slowed = slowed_node_h > 0.0
    own_missed = np.where(is_slowed, missed, 0.0)
    crowded_missed = np.where(is_slowed, 0.0, missed)
    by_own = ratio(own_missed, slowed_node_h)
    by_others = ratio(crowded_missed.sum(axis=0), all_node_h)
    return np.nan_to_num(by_own) + np.nan_to_num(by_others)


def incident_rows(result: BookedRun) -> list[tuple[Any, ...]]:
    """One row per stack and kind of incident: how many, how long, what they took, and what was missed for them."""
    plan = result.plan
    expected = outlooks(plan)
    settled = float(result.settled_requests().sum())
    kind_of = dict[int, tuple[str, str]]()
    """By number of an incident, its stack and kind."""
    spans_h = dict[int, list[float]]()
    events = sorted(result.run.log.software, key=lambda event: event.time_h)
    for event in events:
        # Bring-ups and the like have no number.
        is_incident = event.incident >= 0 and not event.process
        if not is_incident:
            continue
        pair = event.pairs[0]
        stack = str(plan.software.stack_of[pair])
        # Its first event has the plain name; later ones say how it went on.
        kind_of.setdefault(event.incident, (stack, event.kind))
        span_h = spans_h.setdefault(event.incident, [event.time_h, plan.hours])
        if event.kind.endswith(_ENDS):
            span_h[1] = min(span_h[1], event.time_h)
    losses = _node_h_and_misses(result, kind_of)
    kinds = set(kind_of.values())
    # Kinds that are expected have a row even where none came.
    for pair, outlook in expected.items():
        stack = str(plan.software.stack_of[pair])
        kinds |= {(stack, kind) for kind in outlook.incidents}
    unrated = (math.nan, math.nan)
    rows = []
    for stack, kind in sorted(kinds):
        pairs = [pair for pair in expected if plan.software.stack_of[pair] == stack]
        by_pair = [expected[pair].incidents.get(kind, unrated) for pair in pairs]
        figures = np.array(by_pair)
        models = [plan.workloads[w].model for _, w in pairs]
        # Clusters of a model have its incidents together.
        expected_numbers = figures[:, 0].tolist()
        by_model = dict(zip(models, expected_numbers, strict=True))
        numbers = [number for number in spans_h if kind_of[number] == (stack, kind)]
        lengths_h = []
        for number in numbers:
            start_h, end_h = spans_h[number]
            lengths_h.append(end_h - start_h)
        node_h, missed = losses[stack, kind].tolist()
        weights = _weights(plan, pairs)
        lost = float(weights @ figures[:, 1])
        rows.append(
            (
                plan.clusters[pairs[0][0]].vendor,
                stack,
                kind,
                len(lengths_h),
                sum(by_model.values()),
                sum(lengths_h),
                node_h,
                lost,
                missed,
                missed / (settled or math.nan),
            )
        )
    return sorted(rows)


def _node_h_and_misses(
    result: BookedRun, kind_of: Mapping[int, tuple[str, str]]
) -> dict[tuple[str, str], Floats]:
    """Return the node-hours that incidents took and the requests missed for them, by stack and kind."""
    losses = defaultdict[tuple[str, str], Floats](lambda: np.zeros(2))
    missed_per_node_h = _missed_per_node_h(result)
    for (_, w), hours, changes, share, worked, slowed in slowed_hours(result.run):
        missed = slowed * missed_per_node_h[w, hours]
        taken = np.stack((worked, missed), axis=1)
        by_change = share @ taken
        for change, loss in zip(changes, by_change, strict=True):
            if not change.process:
                losses[kind_of[change.incident]] += loss
    return losses
