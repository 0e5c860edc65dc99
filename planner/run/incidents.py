"""Software incidents: what they cost by stack and kind, and what the practice of upgrades is worth by vendor.

What a run lost is read from its log. What is *expected* follows from the plan alone: the faults in closed form, the
gains of releases over drawn courses of releases and upgrades, which are the same for every practice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.elementwise import in_hours
from planner.engine.log import streams
from planner.engine.software import launch_of
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.clusters import POLICIES, policy_days
from planner.plan.parts import IncidentPlan, StackPlan, TeamPlan
from planner.plan.plan import Plan
from planner.run.monthly import slowed_hours
from planner.run.simulate import RunResult
from planner.run.slo_misses import INCIDENT, lost_requests
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR

Pair = tuple[int, int]
_ROWS = 128  # courses of releases and upgrades, each with its deviations and with their opposites
_ENDS = (" rolled back", " fixed", " done")


Outlook = tuple[float, dict[str, tuple[float, float]]]
"""Mean speed-up that upgrades bring over day one; by kind, the number of incidents and the share of speed they take."""


def outlooks(plan: Plan) -> dict[Pair, Outlook]:
    """Return what is expected of each cluster and workload that it serves, bring-ups apart.

    Incidents are few and short, so none meets another or finds the engineers at work.
    """
    expected = dict[Pair, Outlook]()
    hours = float(plan.hours)
    software = plan.software
    for stack in software.stacks:
        pairs = np.argwhere(software.stack_of == stack.name).tolist()
        alike = defaultdict[str, list[Pair]](list)
        for c, w in pairs:  # many clusters have the same course on a model
            figures = (
                software.dated_log_gain,
                software.roofline_log_gain,
                software.wide_precision_factor,
            )
            key = (
                plan.workloads[w].model,
                software.clock_h[c],
                *(float(figure[c, w]) for figure in figures),
            )
            alike[str(key)].append((c, w))
        upgrades_h, levels = _courses(plan, stack, [same[0] for same in alike.values()])
        spans_h = np.diff(np.minimum(upgrades_h + software.bake_h, hours), append=hours)
        for pair, *others in alike.values():
            of_model = [
                (c, w) for c, w in pairs if plan.workloads[w].model == plan.workloads[pair[1]].model
            ]
            launch_h, excess, constant_h = launch_of(plan, stack, of_model)
            there = (upgrades_h >= launch_h) & (upgrades_h < hours)
            more = there * (
                1.0 + excess * np.exp(-np.maximum(upgrades_h - launch_h, 0.0) / constant_h)
            )
            at_launch = 1.0 + excess if 0.0 <= launch_h < hours else 0.0
            begun, ended = (
                math.exp(-max(0.0, at_h - launch_h) / constant_h) for at_h in (0.0, hours)
            )
            years = (hours + excess * constant_h * (begun - ended)) / HOURS_PER_YEAR
            given_up = -np.expm1(-np.maximum(np.diff(levels[pair], prepend=0.0), 0.0))
            kinds = {}
            for kind in stack.incidents:
                fault_h, back, late_h = _of_an_upgrade(plan, stack, kind, pair)
                odds = np.minimum(kind.per_upgrade * more, 1.0)
                number = odds.sum(axis=-1).mean() + min(kind.per_upgrade * at_launch, 1.0)
                gain_h = (
                    (odds * given_up * np.maximum(back * spans_h - late_h, 0.0)).sum(axis=-1).mean()
                )
                lost_h = (
                    number * fault_h
                    + gain_h
                    + kind.per_year * years * kind.mean_loss * _fix_h(plan, stack, kind)
                )
                kinds[kind.kind] = (float(number) + kind.per_year * years, float(lost_h) / hours)
            speedup = float((np.expm1(levels[pair]) * spans_h).sum(axis=-1).mean()) / hours
            expected |= dict.fromkeys([pair, *others], (speedup, kinds))
    return expected


def _courses(plan: Plan, stack: StackPlan, pairs: list[Pair]) -> tuple[Floats, dict[Pair, Floats]]:
    """Return drawn upgrades of a stack, and by pair the log speed that each brings, shape (2, courses, upgrades).

    As the simulation draws them, all at once; the second half has every release's deviation with the other sign, so
    that deviations cancel. Upgrades after the end are there, and are of no effect.
    """
    draw = streams(plan.seed)(f"practice/{stack.name}")
    software = plan.software
    levels = dict[Pair, Floats]()
    quantiles = [NormalDist().inv_cdf((place + 0.5) / _ROWS) for place in range(_ROWS)]

    def cadence(interval_h: float) -> Floats:
        interval_h = max(
            interval_h, plan.hours / 2000.0
        )  # nobody upgrades every few hours, and memory is finite
        steps = draw.random((_ROWS, int(2.0 * plan.hours / interval_h) + 2)) + 0.5
        return np.asarray((np.cumsum(steps, axis=1) - 0.5) * interval_h, dtype=np.float64)

    out_h = (
        cadence(HOURS_PER_YEAR / stack.releases_per_year)
        if stack.releases_per_year
        else np.zeros((_ROWS, 0))
    )
    deviations = (
        draw.standard_normal(out_h.shape) * stack.release_sigma * np.array([[[1.0]], [[-1.0]]])
    )
    gain_z = draw.permutation(quantiles)
    pace_z = draw.permutation(quantiles)
    upgrades_h = cadence(stack.upgrade_h)
    newest = (out_h[:, None, :] <= upgrades_h[:, :, None]).sum(axis=2)[None]
    for c, w in pairs:
        dated = float(software.dated_log_gain[c, w])
        library = stack.maturity.get(software.architectures[w])
        reached = np.full(deviations.shape, dated)
        if library is not None:
            most = np.log1p([[library.gain.lognormal_at(z)] for z in gain_z])
            months = np.array([[library.months.lognormal_at(z)] for z in pace_z])
            times = (software.clock_h[c] + out_h) / np.maximum(months * HOURS_PER_YEAR / 12.0, 1e-9)
            reached = np.minimum(most, deviations - most * np.expm1(-times))
        of_model = [step for step in stack.steps if step.model in ("", plan.workloads[w].model)]
        steps = sum(step.log_gain * (upgrades_h >= step.time_h) for step in of_model)
        before = np.pad(
            reached - dated, ((0, 0), (0, 0), (1, 0))
        )  # before the first release nothing is gained
        level = np.take_along_axis(before, newest, axis=2) + steps
        levels[c, w] = np.minimum(level, float(software.roofline_log_gain[c, w]))
    return upgrades_h, levels


def _of_an_upgrade(
    plan: Plan, stack: StackPlan, kind: IncidentPlan, pair: Pair
) -> tuple[float, float, float]:
    """Return the hours of capacity that an upgrade's incident takes, the odds of a roll-back, and hours until then.

    With canary share c, bake time B, detection after D, roll-back in R, fix in F, and s the share that cannot be
    rolled back, a loss L takes E[L·(c·min(D, B) + c²·R·1(D < B) + (D − B)⁺ + ((1 − s)·R + s·F)·1(D ≥ B))]. The hours
    until a roll-back are (D − B)⁺ + R where the release had spread, in which it is not given up yet.
    """
    software, share, bake_h = plan.software, plan.software.canary_fraction, plan.software.bake_h
    rollback_h = software.rollback_h.lognormal_mean
    fix_h = _fix_h(plan, stack, kind)
    wide = 1.0
    stuck = stack.rollback_impossible_fraction
    if kind.falsifies and not math.isnan(software.wide_precision_factor[pair]):
        stuck = 1.0
        wide = max(float(software.wide_precision_factor[pair]), 0.05)
    mild, mild_loss, _ = kind.loss.below(kind.subtle_below)
    if kind.most_loss < kind.subtle_below:
        mild = 1.0
        mild_loss = kind.mean_loss
    # Of what is subtle and of what is gross: how likely, the mean loss times that, and when it is noticed.
    gross = (1.0 - kind.subtle_fraction) * np.array([1.0 - mild, kind.mean_loss - mild_loss])
    odds, loss = np.stack((np.array([1.0, kind.mean_loss]) - gross, gross), axis=1)
    noticed_h = (kind.subtle_detection_h, kind.detection_h)
    caught, early_h, _ = np.array([detection_h.below(bake_h) for detection_h in noticed_h]).T
    spread = 1.0 - caught
    beyond_h = (
        np.array([detection_h.lognormal_mean for detection_h in noticed_h])
        - early_h
        - spread * bake_h
    )
    on_canary_h = early_h + spread * bake_h + caught * share * rollback_h
    taken_h = loss @ (
        share * on_canary_h + beyond_h + spread * ((1.0 - stuck) * rollback_h + stuck * fix_h)
    )
    taken_h += odds @ spread * fix_h * (1.0 - wide)
    back = odds @ (caught + spread * (1.0 - stuck))
    late_h = (1.0 - stuck) * odds @ (beyond_h + spread * rollback_h)
    return float(taken_h), float(back), float(late_h)


def _fix_h(plan: Plan, stack: StackPlan, kind: IncidentPlan) -> float:
    """Return the mean hours of a fix within the run: the vendor's, or the engineers' of the clusters as stated."""
    software, team = plan.software, plan.software.teams[stack.team]
    there = (plan.clusters[c] for c in team.clusters)
    engineers = team.engineers.number(
        sum(cluster.nodes * cluster.accelerators_per_node for cluster in there)
    )
    per_day = HOURS_PER_DAY * software.fix_time_multiplier
    if engineers:
        per_day = min(
            per_day, TeamPlan.hours(kind.difficulty(1.0) * software.engineer_h, engineers)
        )
    return per_day * kind.fix_days.mean_within(plan.hours / per_day)


def practices(scenario: Scenario, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield a plan under each practice of upgrades: as planned, by each policy, and without what limits an incident."""
    software = plan.software
    catalog = scenario.load_catalog()
    policies = {
        policy: {"upgrade_h": policy_days(policy, catalog) * HOURS_PER_DAY} for policy in POLICIES
    }
    changes = {
        "planned": dict[str, Any](),
        **policies,
        "no_rollback": {"rollback_impossible_fraction": 1.0},
    }
    for practice, change in changes.items():
        stacks = tuple(replace(stack, **change) for stack in software.stacks)
        yield practice, replace(plan, software=replace(software, stacks=stacks))
    yield "no_canary", replace(plan, software=replace(software, canary_fraction=1.0, bake_h=0.0))


def practice_rows(result: RunResult) -> list[tuple[Any, ...]]:
    """One row per vendor and practice of upgrades: incidents, what they take, and what upgrades bring."""
    plan = result.plan
    rows = list[tuple[Any, ...]]()
    usual = dict[str, float]()
    for practice, tried in practices(result.scenario, plan):
        expected = outlooks(tried)
        for vendor in {plan.clusters[c].vendor for c, _ in expected}:
            pairs = [pair for pair in expected if plan.clusters[pair[0]].vendor == vendor]
            sums = [
                (*np.sum([*expected[pair][1].values(), (0.0, 0.0)], axis=0), expected[pair][0])
                for pair in pairs
            ]
            number, lost, gained = (_weights(plan, pairs) @ np.array(sums)).tolist()
            capacity = (1.0 + gained) * (1.0 - lost)
            change = (
                capacity / usual.setdefault(vendor, capacity) - 1.0
            )  # the practice planned comes first
            days = tried.software.stacks[0].upgrade_h / HOURS_PER_DAY
            rows.append((vendor, practice, days, number, lost, gained, change))
    return sorted(rows, key=lambda row: str(row[0]))


def _weights(plan: Plan, pairs: list[Pair]) -> Floats:
    """Return the weight of each pair in a vendor's or stack's mean: its cluster's nodes, or all alike without any."""
    return quantities.shares(np.array([plan.clusters[c].nodes for c, _ in pairs], dtype=np.float64))


def _missed_per_node_h(result: RunResult) -> Floats:
    """Return the requests missed for incidents per node-hour that these take away, shape (workloads, hours).

    What a workload misses in an hour is shared by the node-hours that incidents take away from it then; where they take
    none, by those they take from others, whose work takes its machines. A month sums to what ``slo_misses`` has.
    """
    plan = result.plan
    lost = lost_requests(result)
    less = np.zeros((len(plan.workloads), plan.hours))
    for (_, w), hours, changes, share, _, node_h in slowed_hours(result.run):
        less[w, hours] += node_h * share[[not change.process for change in changes]].sum(axis=0)
    together = less.sum(axis=0)
    starts = plan.month_edges_h[:-1]
    months = plan.months.hour_periods
    missed = np.where(together > 0.0, lost.hourly_to_incidents, 0.0)
    some = np.add.reduceat(missed, starts, axis=1)
    missed = np.where(
        in_hours(some, months) > 0.0, missed, together
    )  # what came of a backlog, in a later month
    missed *= np.nan_to_num(
        in_hours(ratio(lost.requests[INCIDENT].T, np.add.reduceat(missed, starts, axis=1)), months)
    )
    others = np.where(less > 0.0, 0.0, missed).sum(axis=0)
    return np.nan_to_num(ratio(np.where(less > 0.0, missed, 0.0), less)) + np.nan_to_num(
        ratio(others, together)
    )


def incident_rows(result: RunResult) -> list[tuple[Any, ...]]:
    """One row per stack and kind of incident: how many, how long, what they took, and what was missed for them."""
    plan, expected, settled = (
        result.plan,
        outlooks(result.plan),
        float(result.settled_requests().sum()),
    )
    kind_of = dict[int, tuple[str, str]]()
    spans_h = dict[int, list[float]]()
    taken = defaultdict[tuple[str, str], Floats](lambda: np.zeros(2))
    for event in sorted(result.run.log.software, key=lambda event: event.time_h):
        if event.incident >= 0 and not event.process:
            kind_of.setdefault(
                event.incident, (str(plan.software.stack_of[event.pairs[0]]), event.kind)
            )
            span_h = spans_h.setdefault(event.incident, [event.time_h, plan.hours])
            if event.kind.endswith(_ENDS):
                span_h[1] = min(span_h[1], event.time_h)
    per_node_h = _missed_per_node_h(result)
    for (_, w), at, changes, share, worked, less in slowed_hours(result.run):
        lost = share @ np.stack((worked, less * per_node_h[w, at]), axis=1)
        for change, node_h_and_missed in zip(changes, lost, strict=True):
            if not change.process:
                taken[kind_of[change.incident]] += node_h_and_missed
    rated = {
        (str(plan.software.stack_of[pair]), kind)
        for pair, (_, kinds) in expected.items()
        for kind in kinds
    }
    rows = []
    for stack, kind in sorted(rated | set(kind_of.values())):
        pairs = [pair for pair in expected if plan.software.stack_of[pair] == stack]
        figures = np.array([expected[pair][1].get(kind, (math.nan, math.nan)) for pair in pairs])
        by_model = dict(
            zip((plan.workloads[w].model for _, w in pairs), figures[:, 0].tolist(), strict=True)
        )
        lengths = [
            end_h - begin_h
            for n, (begin_h, end_h) in spans_h.items()
            if kind_of[n] == (stack, kind)
        ]
        node_h, missed = taken[stack, kind].tolist()
        lost = float(_weights(plan, pairs) @ figures[:, 1])
        vendor = plan.clusters[pairs[0][0]].vendor
        number = sum(by_model.values())
        share = missed / (settled or math.nan)
        rows.append(
            (vendor, stack, kind, len(lengths), number, sum(lengths), node_h, lost, missed, share)
        )
    return sorted(rows)
