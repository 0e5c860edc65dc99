"""Why requests were not in time: a run's hours evaluated again with one cause after another taken away.

Each rung of the ladder takes one cause more away than the one before, in the order of :data:`REASONS`, and what is
missed less is lost to that cause:

1. the power cap: no limit on what the site draws, and no idle node parked;
2. outages: every machine on site in service, the site never dark;
3. incidents: software as fast as without those that are open;
4. bursts: each hour's requests come evenly;
5. no capacity: whatever exceeds what nodes sustain at the objective is served as late as at it, and nothing is shed;
6. queueing: every replica idle when a request comes;
7. a prompt too long for its objective: what is left, late on an idle replica.

The order goes from what happens to a fleet to what is asked of it, so that a cause is charged for what it costs the
plan as it stands. No rung may miss more than the one before (work that moves between clusters can): the parts are none
of them negative, and sum to all that was missed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Bools, Floats
from planner.engine.hourly import WindowInput
from planner.engine.rented import rent_by_hour
from planner.engine.window import Missed, missed_under
from planner.finance.unit_costs import ratio
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.run.caching import per_run
from planner.run.remedies import (
    CAPACITY_CELL,
    Ladder,
    Mend,
    calm,
    mends_of,
    power_mend,
    spread,
    with_more,
    without_cap,
)
from planner.run.replication import Replication
from planner.units import rounded_up

REASONS: Mapping[str, str] = {
    "power_cap": "the power cap or parked nodes",
    "outage": "outages",
    "incident": "software incidents",
    "bursts": "bursts within the hour",
    "no_capacity": "no capacity",
    "queueing": "queueing",
    "too_long": "prompts too long for the objective",
}
"""What takes requests, from the first rung to the last, in words."""
LEAST_NAMED = 1e-5
"""Share of a workload's requests below which nothing is named."""
_HALVED = ("bursts", "queueing", "too_long")
"""What a mend is said to halve; the rest it is said to carry."""
_CARRIED = 0.9  # of what a cause took: nodes come whole, and some of what they carry is late
_NEARLY = 0.9  # of what is said: the same hours, and not those of another run
_SPREADING = "routing: proportional, on what idles"
SPREAD = f"{_SPREADING}, would halve it"
"""What mends queues where more nodes do not."""
_TIMES = (1.0, 1.5, 2.0)  # what was worked out for a mend, and what is tried where it is too little


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What each cause took; arrays of shape (reasons, months, workloads)."""

    fraction: Floats
    """Of the month's settled requests; over reasons they sum to 1 − the share in time."""
    requests: Floats
    mend_amount: Floats
    """How much would mend it, NaN where nothing stated would."""
    mends: tuple[tuple[Mend, ...], ...]
    """What of, by reason and workload."""


@per_run
def lost_requests(result: Replication) -> Lost:
    """Return what each cause took of a run's requests."""
    plan = result.plan
    hourly = _rungs(result)
    missed = np.stack([_missed_by_month(result, late, shed) for late, shed in hourly])
    missed[4:] = np.where(_outgrown(plan), missed[3], missed[4:])  # missed since no batch meets the objective
    missed = np.minimum.accumulate(missed, axis=0)
    requests = np.append(missed[:-1] - missed[1:], missed[-1:], axis=0)
    ladder = Ladder(hourly=[late + shed for late, shed in hourly], requests=requests)
    power = power_mend(result, ladder)
    by_workload = [mends_of(result, ladder, power, w) for w in range(len(plan.workloads))]
    return Lost(
        fraction=np.nan_to_num(ratio(requests, result.settled_requests())),
        requests=requests,
        mend_amount=np.moveaxis(np.array([[mend.amount for mend in mends] for mends in by_workload]), 0, -1),
        mends=tuple(zip(*by_workload, strict=True)),
    )


Hourly = tuple[Floats, Floats]
"""Requests late and shed, shape (workloads, hours) each."""


def _rungs(result: Replication) -> list[Hourly]:
    """Return what the run missed, and what with one cause more taken away each time."""
    plan, inputs, windows = result.plan, result.run.inputs, result.run.windows
    rungs = [_joined([(window.late_requests, window.shed_requests) for window in windows])]
    if plan.site.cap_kw is None and plan.site.parking is None:
        rungs += rungs
    else:
        plan = without_cap(plan)
        rungs += _missed(plan, inputs, [_as_it_is])
    machines = result.run.node_hours
    inputs = tuple(
        replace(given, nodes=nodes.present, lit_fraction=None) for given, nodes in zip(inputs, machines, strict=True)
    )
    is_whole = not any(nodes.failed.any() or nodes.dark.any() for nodes in machines)
    rungs += rungs[-1:] if is_whole else _missed(plan, inputs, [_as_it_is])
    inputs = tuple(replace(given, speed=_mended(given), incidents={}) for given in inputs)
    rungs += _missed(plan, inputs, [_as_it_is, calm, _up_to_capacity, _idle])
    for _, shed in rungs[5:]:
        shed[:] = 0.0  # had there been room, it would have been served, late as the rest
    return rungs


def _missed(plan: Plan, inputs: Iterable[WindowInput], changes: Sequence[Callable[[Plan], Plan]]) -> list[Hourly]:
    """Return what windows, one after another, miss under each change of the plan's tables."""
    windows: list[Missed] = []
    for given in inputs:
        waiting, replicas = given.waiting_requests, given.replicas_before
        if windows:
            waiting, replicas = windows[-1].waiting_requests, windows[-1].replicas_after
        followed = replace(given, waiting_requests=waiting, replicas_before=replicas)
        windows.append(missed_under(plan, followed, changes))
    return [
        _joined([(window.late_requests[number], window.shed_requests[number]) for window in windows])
        for number in range(len(changes))
    ]


def _joined(windows: Sequence[Hourly]) -> Hourly:
    late, shed = (np.concatenate(hours, axis=-1) for hours in zip(*windows, strict=True))
    return late, shed


def _mended(given: WindowInput) -> dict[tuple[int, int], Floats]:
    """Return a window's speeds without what open incidents take of them."""
    speeds = dict(given.speed)
    for pair, slowed in given.incidents.items():
        left = 1.0 - slowed.lost_fraction
        speeds[pair] = speeds[pair].copy()
        slow = speeds[pair][slowed.hours]
        speeds[pair][slowed.hours] = np.divide(slow, left, out=np.ones_like(slow), where=left > 1e-6)
    return speeds


def _as_it_is(plan: Plan) -> Plan:
    return plan


def _up_to_capacity(plan: Plan, last_cell: int = CAPACITY_CELL) -> Plan:
    """Return a plan without bursts in which loads beyond a cell are as late as at it, and nothing is refused."""
    even = calm(plan)
    late = even.late_tables.copy()
    late[..., last_cell:] = late[..., last_cell, None]
    return replace(even, late_tables=late, refused_tables=np.zeros_like(late))


def _idle(plan: Plan) -> Plan:
    """Return a plan in which every request finds an idle replica."""
    return _up_to_capacity(plan, 0)


def _missed_by_month(result: Replication, late: Floats, shed: Floats) -> Floats:
    """Return requests late, or shed and not rented for, shape (months, workloads)."""
    horizon = replace(result.run.windows[0], first_hour=0, shed_requests=shed)
    rented, _ = rent_by_hour(result.plan, horizon)
    starts = result.plan.month_edges_h[:-1]
    by_month = [np.add.reduceat(requests, starts, axis=-1).T for requests in (late, shed, rented)]
    return quantities.missed_requests(by_month[0], quantities.shed_requests(*by_month[1:]))


def _outgrown(plan: Plan) -> Bools:
    """Say in which months no batch meets a workload's objective on any cluster, shape (months or 1, workloads)."""
    rates = plan.requests_per_node_h
    columns = []
    for w, load in enumerate(plan.workloads):
        unserved = np.all(rates[list(load.cluster_order), w] <= 0.0, axis=0)
        columns.append(unserved if load.overdue_share is None else load.overdue_share > 0.0)
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def worst_reasons(result: Replication, most: int = 3) -> list[dict[str, str | float | None]]:
    """Return what takes the largest shares of a workload's requests over the run, and what would mend its worst month.

    Nothing is named that takes less than one request in a hundred thousand.
    """
    lost, plan = lost_requests(result), result.plan
    settled = result.settled_requests().sum(axis=0)
    spreading = functools.cache(lambda: _missed_where_spread(result))  # for as many workloads as queue
    share = np.nan_to_num(ratio(lost.requests.sum(axis=1), settled))  # (reasons, workloads)
    reasons: list[dict[str, str | float | None]] = []
    for place in np.argsort(-share, axis=None, kind="stable")[:most].tolist():
        r, w = (int(index) for index in np.unravel_index(place, share.shape))
        month = int(lost.fraction[r, :, w].argmax())
        if share[r, w] >= LEAST_NAMED:
            name, amount, words = [*REASONS][r], _enough(result, lost, r, (month, w)), lost.mends[r][w].words[month]
            if name == "queueing":
                less = result.missed_requests()[:, w].sum() - spreading()[w]
                if less >= _NEARLY * 0.5 * lost.requests[r, :, w].sum():
                    words = SPREAD if amount is None else f"{words}, and so would {_SPREADING}"
            reasons.append(
                {
                    "workload": plan.workloads[w].name,
                    "reason": name,
                    "lost_fraction": float(share[r, w]),
                    "worst_month": plan.months.labels[month],
                    "worst_lost_fraction": float(lost.fraction[r, month, w]),
                    "mend_amount": amount,
                    "mend": words,
                }
            )
    return reasons


def _missed_where_spread(result: Replication) -> Floats:
    """Return requests that a run would miss were work spread evenly, shape (workloads,); all that it can, if it is."""
    windows = spread(result)
    if windows is None:
        return np.full(len(result.plan.workloads), np.inf)
    late, shed = _joined([(window.late_requests, window.shed_requests) for window in windows])
    return np.asarray(_missed_by_month(result, late, shed).sum(axis=0), dtype=np.float64)


def _enough(result: Replication, lost: Lost, r: int, place: tuple[int, int]) -> float | None:
    """Return how much mends what a cause took of a workload's month; None where nothing that was tried does.

    The plan is compiled and its hours are evaluated again with it: as much less must be missed as is said to be given
    back. Whoever shares machines may have to leave to others what was added for it, work may be routed elsewhere, or
    another layout be chosen: no formula knows all of that.
    """
    month, w = place
    mend, name = lost.mends[r][w], [*REASONS][r]
    amount = float(mend.amount[month])
    if not np.isfinite(amount):
        return None
    now, taken = result.missed_requests()[place], lost.requests[r, month, w]
    wanted = _NEARLY * (0.5 if name in _HALVED else _CARRIED) * taken
    for times in _TIMES:
        more = rounded_up(times * amount, 3) if mend.of == "ttft_s" else float(np.ceil(times * amount))
        windows = with_more(result, mend, place, more)
        if windows is None:
            continue
        late, shed = _joined([(window.late_requests, window.shed_requests) for window in windows])
        if now - _missed_by_month(result, late, shed)[place] >= wanted:
            return amount if times == 1.0 else more
    return None
