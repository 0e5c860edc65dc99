"""Software over time: releases, incidents, bring-up of new models, and the engineers who fix them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import simpy

from planner.engine.log import ChangeLog, SoftwareEvent, Streams
from planner.plan.parts import IncidentPlan, StackPlan, TeamPlan
from planner.plan.plan import Plan
from planner.plan.quantities import matured
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR

Steps = Generator[simpy.Event, Any, None]
Pair = tuple[int, int]
Pairs = tuple[Pair, ...]
_MOST_LOST = 0.95  # an incident slows a stack, it does not stop it: assumption
_CONSTANTS = 3.0  # time constants in a bring-up: 95% of the gap is closed (8 to 11 days each, in a month of MI355X)
_LANDINGS = 4  # kernels that make up a bring-up: assumption


class IncidentProcess:
    """The engineering teams, and the processes of releases, incidents and bring-ups."""

    def __init__(
        self, env: simpy.Environment, plan: Plan, log: ChangeLog, streams: Streams, arrived: Mapping[str, simpy.Event]
    ) -> None:
        """Take over the processes of all stacks; ``arrived`` happens, by part, when its first nodes are there."""
        self.env, self.plan, self.log, self.streams, self.arrived = env, plan, log, streams, arrived
        self.free_h = [0.0] * len(plan.software.teams)
        """By team: when all that it has taken up is done."""
        self.incidents = 0
        self.releases: dict[str, dict[tuple[int, int], list[tuple[float, float]]]] = {}
        """By stack, then cluster and workload: when each release is taken, and by how much it moves log speed."""

    def start(self) -> None:
        """Schedule releases, incidents and bring-ups."""
        for stack in self.plan.software.stacks:
            self._schedule_releases(stack)
            for model in sorted({workload.model for workload in self.plan.workloads}):
                self._schedule_incidents(stack, model)
            for index, workload in enumerate(self.plan.workloads):
                if workload.launch_h is None or workload.launch_h >= self.plan.hours:
                    continue
                # How hard a new model is on a stack; it is brought up on each part that the stack runs on.
                draw = self.streams(f"software/{stack.name}/{workload.name}/bring-up")
                weeks = stack.bring_up_weeks.lognormal(draw) * self.plan.software.fix_time_multiplier
                factor = math.log(min(1.0, max(0.05, stack.bring_up_fraction.lognormal(draw))))
                figures, parts = (workload.launch_h, weeks * HOURS_PER_WEEK, factor), dict[str, list[Pair]]()
                for pair in (pair for pair in self._pairs(stack, workload.model) if pair[1] == index):
                    parts.setdefault(self.plan.clusters[pair[0]].accelerator, []).append(pair)
                for part, pairs in sorted(parts.items()):
                    self.env.process(self._bring_up(stack, part, tuple(pairs), figures))

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
        """Draw the releases of a stack and the speed that each brings.

        They come on a cadence whatever happens here, so they are known ahead and no process waits for them. A release
        that was out r hours after the start has the level

            min(g, g·(1 − exp(−r/τ)) + σ·z) + Σ stated steps,   at most the roofline,

        in the logarithm of speed over day one: g is what the class of models has still to gain and τ how fast, both
        drawn once; z is drawn anew, so a poor release is over with the next. None passes the best there will be. Where
        a cluster's first image is dated, r counts from the calibration's measurements, and what that image has is off.
        """
        pairs, software = self._pairs(stack, None), self.plan.software
        delay_h = stack.release_delay_h
        if not pairs or delay_h is None:
            return
        draw = self.streams(f"software/{stack.name}/releases")
        course = {
            name: (math.log1p(library.gain.lognormal(draw)), library.months.lognormal(draw) * HOURS_PER_YEAR / 12.0)
            for name, library in stack.maturity.items()
        }
        out_h = {step.time_h: "step" for step in stack.steps}
        if stack.releases_per_year > 0:
            interval_h = HOURS_PER_YEAR / stack.releases_per_year
            time_h = draw.random() * interval_h
            while time_h + delay_h < self.plan.hours:
                out_h[time_h] = "release"
                time_h += interval_h * (0.5 + draw.random())
        levels, taken = dict.fromkeys(pairs, 0.0), dict[tuple[str, float], float]()
        clocks_h = sorted(set(software.clock_h))
        for time_h, kind in sorted(out_h.items()):
            if kind == "release":
                noise = draw.standard_normal(len(course)).tolist()
                for name, z in zip(course, noise, strict=True):
                    most, constant_h = course[name]
                    for clock_h in clocks_h:
                        reached = matured(most, constant_h, clock_h + time_h) + stack.release_sigma * z
                        taken[name, clock_h] = min(most, reached)
            taken_h, changes = time_h + delay_h, dict[str, list[tuple[Pair, float]]]()
            if taken_h >= self.plan.hours:
                continue
            for (c, w), before in levels.items():
                model = self.plan.workloads[w].model
                steps = sum(s.log_gain for s in stack.steps if s.time_h <= time_h and s.model in ("", model))
                dated = float(software.dated_log_gain[c, w])
                reached = taken.get((software.architectures[w], software.clock_h[c]), dated) - dated
                levels[c, w] = min(reached + steps, float(software.roofline_log_gain[c, w]))
                gain = levels[c, w] - before
                self.releases.setdefault(stack.name, {}).setdefault((c, w), []).append((taken_h, gain))
                changes.setdefault(model, []).append(((c, w), gain))
            for moved in changes.values():
                which, factors = zip(*moved, strict=True)
                self.log.software.append(SoftwareEvent(taken_h, which, factors, kind, -1))

    def _schedule_incidents(self, stack: StackPlan, model: str) -> None:
        """Draw every incident of a stack and model in one block and start each at its time."""
        pairs = self._pairs(stack, model)
        if not pairs or sum(incident.per_year for incident in stack.incidents) <= 0:
            return
        for young in (False, True):  # those of any model, then what a new one has beyond them
            draw = self.streams(f"software/{stack.name}/{model}{'/young' if young else ''}")
            for incident in stack.incidents:
                if young:
                    times_h = self._youth(stack, pairs, incident.per_year, draw)
                else:
                    count = draw.poisson(incident.per_year * self.plan.hours / HOURS_PER_YEAR)
                    times_h = sorted((draw.random(count) * self.plan.hours).tolist())
                for time_h in times_h:
                    loss = min(_MOST_LOST, incident.loss.lognormal(draw))  # drawn even where it is certain or unused
                    fix_days = incident.fix_days.lognormal(draw)
                    work_h = incident.difficulty(fix_days) * self.plan.software.engineer_h
                    vendor_h = fix_days * HOURS_PER_DAY * self.plan.software.fix_time_multiplier
                    self.env.process(self._incident(stack, pairs, incident, (time_h, loss, work_h, vendor_h)))

    def _youth(self, stack: StackPlan, pairs: Pairs, per_year: float, draw: np.random.Generator) -> list[float]:
        """Draw the times of the additional incidents of a newly launched model.

        Their rate is λ·(m − 1)·exp(−(t − launch)/τ), with the τ of its class's maturing; a model long served, of a
        workload without a launch, has none.
        """
        launches = [self.plan.workloads[w].launch_h for _, w in pairs]
        excess = stack.new_model_incident_multiplier - 1.0
        course = stack.maturity.get(self.plan.software.architectures[pairs[0][1]])
        if None in launches or excess <= 0.0 or course is None:
            return []
        launch_h = min(launch for launch in launches if launch is not None)
        constant_h = course.months.base * HOURS_PER_YEAR / 12.0
        # The share of a launch's further incidents that falls into the run, by age at its beginning and at its end.
        begun, ended = (math.exp(-max(0.0, at_h - launch_h) / constant_h) for at_h in (0.0, float(self.plan.hours)))
        count = draw.poisson(per_year * excess * constant_h / HOURS_PER_YEAR * (begun - ended))
        left = ended + (begun - ended) * draw.random(count)
        return sorted((launch_h - constant_h * np.log(left)).tolist())

    def _incident(
        self, stack: StackPlan, pairs: Pairs, incident: IncidentPlan, figures: tuple[float, float, float, float]
    ) -> Steps:
        """Slow the stack until its engineers or its vendor have fixed the incident."""
        time_h, loss, work_h, vendor_h = figures
        yield self.env.timeout(time_h)
        self.incidents += 1
        number = self.incidents
        factors = self._factors(stack, pairs, incident, loss)
        self._change(pairs, factors, incident.kind, number)
        yield self.env.timeout(self._mended_after_h(stack, work_h, vendor_h))
        self._change(pairs, tuple(-factor for factor in factors), incident.kind + " fixed", number)

    def _factors(self, stack: StackPlan, pairs: Pairs, incident: IncidentPlan, loss: float) -> tuple[float, ...]:
        """Return an incident's effect on the log speed of each pair."""
        if not incident.falsifies:
            return (math.log1p(-loss),) * len(pairs)
        factors = []
        for pair in pairs:
            wide = self.plan.software.wide_precision_factor[pair]
            if math.isnan(wide):  # without a wider precision it takes what the newest release has gained
                taken = self.releases.get(stack.name, {}).get(pair, [])
                count = bisect_right(taken, (float(self.env.now), math.inf))
                factors.append(-max(taken[count - 1][1] if count else 0.0, 0.0))
            else:
                factors.append(math.log(max(wide, 0.05)))
        return tuple(factors)

    def _mended_after_h(self, stack: StackPlan, work_h: float, vendor_h: float) -> float:
        """Return the hours until a fix: min(wait + hours of work / engineers, the vendor's time).

        The team takes one thing at a time, first come first served, so its end is known when it begins and no process
        has to wait for a turn. What the vendor mends while it waits is never taken up, and what he mends while they
        work on it frees them. Without engineers the vendor mends alone.
        """
        team, now_h = self.plan.software.teams[stack.team], float(self.env.now)
        there = (c.accelerators for c in self.log.changes if c.cluster in team.clusters and c.time_h <= now_h)
        engineers = team.engineers.number(sum(there))
        if not engineers:
            return vendor_h
        begin_h = max(now_h, self.free_h[stack.team])
        end_h = min(begin_h + team.hours(work_h, engineers), now_h + vendor_h)
        if end_h > begin_h:
            self.free_h[stack.team] = end_h
        return end_h - now_h

    def _bring_up(self, stack: StackPlan, part: str, pairs: Pairs, figures: tuple[float, float, float]) -> Steps:
        """Serve a new model at reduced speed until its bring-up on an accelerator is complete.

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
        # The gap closes as (e^−3s − e^−3)/(1 − e^−3) with the share s of the work that is done, in steps: kernels land
        # one by one.
        done, last = 1.0 - left_h / length_h, math.exp(-_CONSTANTS)
        shares = (done + (1.0 - done) * step / _LANDINGS for step in range(_LANDINGS + 1))
        levels = [factor * ((math.exp(-_CONSTANTS * share) - last) / (1.0 - last)) for share in shares]
        self._change(pairs, (levels[0],) * len(pairs), "bring-up", number)
        each_h = left_h / _LANDINGS
        for step, (before, after) in enumerate(itertools.pairwise(levels), start=1):
            yield self.env.timeout(self._mended_after_h(stack, each_h / TeamPlan.hours(1.0, 1), each_h))
            kind = "bring-up done" if step == _LANDINGS else "bring-up eased"
            self._change(pairs, (after - before,) * len(pairs), kind, number)
