"""What a run's software incidents cost by stack and kind, read from its log."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.elementwise import in_hours
from planner.engine.monthly import slowed_hours
from planner.finance.accounting.booked_run import BookedRun
from planner.finance.present_value import ratio
from planner.run.slo_misses import INCIDENT, lost_requests

_ENDS = (" rolled back", " fixed", " done")
"""How the kind of an event ends that is the end of an incident."""


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
    settled = float(result.settled_requests().sum())
    kind_of = dict[int, tuple[str, str, str]]()
    """By number of an incident, its vendor, stack and kind."""
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
        kind = (plan.clusters[pair[0]].vendor, stack, event.kind)
        kind_of.setdefault(event.incident, kind)
        span_h = spans_h.setdefault(event.incident, [event.time_h, plan.hours])
        if event.kind.endswith(_ENDS):
            span_h[1] = min(span_h[1], event.time_h)
    losses = _node_h_and_misses(result, kind_of)
    lengths_h = defaultdict[tuple[str, str, str], list[float]](list)
    for number, (start_h, end_h) in spans_h.items():
        lengths_h[kind_of[number]].append(end_h - start_h)
    rows = []
    for kind, lengths in sorted(lengths_h.items()):
        node_h, missed = losses[kind].tolist()
        share = missed / (settled or math.nan)
        rows.append((*kind, len(lengths), sum(lengths), node_h, missed, share))
    return rows


def _node_h_and_misses(
    result: BookedRun, kind_of: Mapping[int, tuple[str, str, str]]
) -> dict[tuple[str, str, str], Floats]:
    """Return the node-hours that incidents took and the requests missed for them, by vendor, stack and kind."""
    losses = defaultdict[tuple[str, str, str], Floats](lambda: np.zeros(2))
    missed_per_node_h = _missed_per_node_h(result)
    for (_, w), hours, changes, share, worked, slowed in slowed_hours(result.run):
        missed = slowed * missed_per_node_h[w, hours]
        taken = np.stack((worked, missed), axis=1)
        by_change = share @ taken
        for change, loss in zip(changes, by_change, strict=True):
            if not change.process:
                losses[kind_of[change.incident]] += loss
    return losses
