"""Software over time: releases, incidents, bring-up of new models, and who mends them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Generator, Mapping
from typing import Any

import simpy

from planner.fleet.plan import IncidentPlan, Plan, StackPlan, TeamPlan, WorkloadPlan
from planner.simulation.log import ChangeLog, SoftwareEvent
from planner.simulation.streams import Streams
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR

Steps = Generator[simpy.Event, Any, None]
Pairs = tuple[tuple[int, int], ...]
_MOST_LOST = 0.95  # an incident slows a stack, it does not stop it: assumption


class SoftwareDesk:
    """Teams of engineers, and the processes that keep them busy."""

    def __init__(
        self,
        env: simpy.Environment,
        plan: Plan,
        log: ChangeLog,
        streams: Streams,
        arrived: Mapping[str, simpy.Event] | None = None,
    ) -> None:
        """Take over the processes of all stacks; ``arrived`` happens, by part, when its first nodes are there."""
        self.arrived = arrived or {}
        self.env = env
        self.plan = plan
        self.log = log
        self.streams = streams
        self.free_h = [0.0] * len(plan.software.teams)
        """By team: when all that it has taken up is done."""
        self.incidents = 0
        self.releases: dict[str, list[tuple[float, float]]] = {}
        """By stack: when each release is taken, and by how much it moves the logarithm of speed."""

    def start(self) -> None:
        """Set releases, incidents and bring-ups going."""
        for stack in self.plan.software.stacks:
            if stack.release_delay_h is not None and stack.releases_per_year > 0:
                self._schedule_releases(stack)
            for model in sorted({workload.model for workload in self.plan.workloads}):
                self._schedule_incidents(stack, model)
            for index, workload in enumerate(self.plan.workloads):
                if workload.launch_h is not None and workload.launch_h < self.plan.hours:
                    self._schedule_bring_ups(stack, index, workload)

    def _pairs(self, stack: StackPlan, model: str | None) -> Pairs:
        """Return the (cluster, workload) pairs that run a model, or any, on a stack."""
        return tuple(
            (c, w)
            for w, workload in enumerate(self.plan.workloads)
            if model is None or workload.model == model
            for c in sorted(workload.cluster_order)
            if self.plan.clusters[c].stack == stack.name
        )

    def _change(self, pairs: Pairs, log_factors: tuple[float, ...], kind: str, incident: int) -> None:
        self.log.software.append(SoftwareEvent(float(self.env.now), pairs, log_factors, kind, incident))

    def _schedule_releases(self, stack: StackPlan) -> None:
        """Draw the releases of a stack: each moves the speed of everything it serves, up or down, for good.

        They come on a cadence whatever happens here, so they are known ahead and no process waits for them.
        """
        pairs = self._pairs(stack, None)
        if not pairs:
            return
        draw = self.streams(f"software/{stack.name}/releases")
        taken = self.releases.setdefault(stack.name, [])
        interval_h = HOURS_PER_YEAR / stack.releases_per_year
        time_h = draw.random() * interval_h + (stack.release_delay_h or 0.0)
        while time_h < self.plan.hours:
            gain = max(-0.9, stack.release_gain.normal(draw) * stack.release_gain_multiplier)
            moved = math.log1p(gain)
            taken.append((time_h, moved))
            self.log.software.append(SoftwareEvent(time_h, pairs, (moved,) * len(pairs), "release", -1))
            time_h += interval_h * (0.5 + draw.random())

    def _last_gain(self, stack: StackPlan) -> float:
        """Return what the newest release of a stack gained, in the logarithm of speed."""
        taken = self.releases.get(stack.name, [])
        count = bisect_right(taken, (float(self.env.now), math.inf))
        return taken[count - 1][1] if count else 0.0

    def _schedule_incidents(self, stack: StackPlan, model: str) -> None:
        """Draw every incident of a stack and model in one block and start each at its time."""
        pairs = self._pairs(stack, model)
        if not pairs or sum(incident.per_year for incident in stack.incidents) <= 0:
            return
        draw = self.streams(f"software/{stack.name}/{model}")
        for incident in stack.incidents:
            count = draw.poisson(incident.per_year * self.plan.hours / HOURS_PER_YEAR)
            for time_h in sorted((draw.random(count) * self.plan.hours).tolist()):
                loss = min(_MOST_LOST, incident.loss.lognormal(draw))  # drawn even where it is certain or unused
                fix_days = incident.fix_days.lognormal(draw)
                work_h = incident.difficulty(fix_days) * self.plan.software.engineer_h
                vendor_h = fix_days * HOURS_PER_DAY * self.plan.software.fix_time_multiplier
                self.env.process(self._incident(stack, pairs, incident, (time_h, loss, work_h, vendor_h)))

    def _incident(
        self, stack: StackPlan, pairs: Pairs, incident: IncidentPlan, figures: tuple[float, float, float, float]
    ) -> Steps:
        """Slow the stack from the incident until its engineers or its vendor have mended it."""
        time_h, loss, work_h, vendor_h = figures
        yield self.env.timeout(time_h)
        self.incidents += 1
        number = self.incidents
        factors = self._factors(stack, pairs, incident, loss)
        self._change(pairs, factors, incident.kind, number)
        yield self.env.timeout(self._mended_after_h(stack, work_h, vendor_h))
        self._change(pairs, tuple(-factor for factor in factors), incident.kind + " fixed", number)

    def _factors(self, stack: StackPlan, pairs: Pairs, incident: IncidentPlan, loss: float) -> tuple[float, ...]:
        """Return what an incident does to the logarithm of speed."""
        if not incident.falsifies:
            return (math.log1p(-loss),) * len(pairs)
        wide = self.plan.software.wide_precision_factor
        rolled_back = -max(self._last_gain(stack), 0.0)
        return tuple(rolled_back if math.isnan(wide[c, w]) else math.log(max(wide[c, w], 0.05)) for c, w in pairs)

    def _engineers(self, team: TeamPlan) -> int:
        """Return how many engineers a team has now, by the accelerators that are on site."""
        there = (c.accelerators for c in self.log.changes if c.cluster in team.clusters and c.time_h <= self.env.now)
        return team.engineers.whole(sum(there))

    def _mended_after_h(self, stack: StackPlan, work_h: float, vendor_h: float) -> float:
        """Return the hours until something is mended: min(wait + hours of work / engineers, the vendor's time).

        The team takes one thing at a time, first come first served, so its end is known when it begins and no process
        has to wait for a turn. What the vendor mends while it waits is never taken up, and what he mends while they
        work on it frees them. Without engineers the vendor mends alone.
        """
        team, now_h = self.plan.software.teams[stack.team], float(self.env.now)
        engineers = self._engineers(team)
        if not engineers:
            return vendor_h
        begin_h = max(now_h, self.free_h[stack.team])
        end_h = min(begin_h + team.hours(work_h, engineers), now_h + vendor_h)
        if end_h > begin_h:
            self.free_h[stack.team] = end_h
        return end_h - now_h

    def _schedule_bring_ups(self, stack: StackPlan, index: int, workload: WorkloadPlan) -> None:
        """Draw how hard a new model is on a stack, and bring it up on each part that the stack runs on."""
        pairs = tuple(pair for pair in self._pairs(stack, workload.model) if pair[1] == index)
        draw = self.streams(f"software/{stack.name}/{workload.name}/bring-up")
        weeks = stack.bring_up_weeks.lognormal(draw) * self.plan.software.fix_time_multiplier
        factor = math.log(min(1.0, max(0.05, stack.bring_up_fraction.lognormal(draw))))
        for part in sorted({self.plan.clusters[c].accelerator for c, _ in pairs}):
            own = tuple(pair for pair in pairs if self.plan.clusters[pair[0]].accelerator == part)
            figures = (workload.launch_h or 0.0, weeks * HOURS_PER_WEEK, factor)
            self.env.process(self._bring_up(stack, part, own, figures))

    def _bring_up(self, stack: StackPlan, part: str, pairs: Pairs, figures: tuple[float, float, float]) -> Steps:
        """Serve a new model on a slow fallback until it is brought up on the machines of a part.

        The vendor does that in the drawn time, which is also what it takes one engineer. Both begin with the launch or
        with the first machines, whichever comes later; machines that are there on the first day have been there since
        a launch before it, so that part of the work is behind.
        """
        launch_h, length_h, factor = figures
        if part in self.arrived:
            yield self.arrived[part]
        begin_h = launch_h if self.env.now == 0.0 else max(launch_h, float(self.env.now))
        left_h = length_h + min(begin_h, 0.0)
        if left_h <= 0.0:
            return
        yield self.env.timeout(max(0.0, begin_h - self.env.now))
        self.incidents += 1
        number = self.incidents
        self._change(pairs, (factor,) * len(pairs), "bring-up", number)
        yield self.env.timeout(self._mended_after_h(stack, left_h / TeamPlan.hours(1.0, 1), left_h))
        self._change(pairs, (-factor,) * len(pairs), "bring-up done", number)
