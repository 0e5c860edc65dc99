"""Software over time: upgrades, incidents, bring-up of new models, and the engineers who fix them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import simpy

from planner.engine.log import ChangeLog, SoftwareEvent, Streams
from planner.plan.parts import IncidentPlan, StackPlan, TeamPlan, matured
from planner.plan.plan import Plan
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR

Steps = Generator[simpy.Event, Any, None]
Pair = tuple[int, int]
Pairs = tuple[Pair, ...]
Launch = tuple[float, float, float]
_CONSTANTS = 3.0  # time constants in a bring-up: 95% of the gap is closed (8 to 11 days each, in a month of MI355X)
_LANDINGS = 4  # kernels that make up a bring-up: assumption


def _cadence(interval_h: float, end_h: float, draw: np.random.Generator) -> list[float]:
    """Draw times on a cadence: the first within one interval, each further one half to one and a half of it later."""
    times_h = []
    time_h = draw.random() * interval_h
    while time_h < end_h:
        times_h.append(time_h)
        time_h += interval_h * (0.5 + draw.random())
    return times_h


def launch_of(plan: Plan, stack: StackPlan, pairs: Iterable[Pair]) -> Launch:
    """Return a model's launch, its further incidents then over those of a model long served, and their τ in hours.

    A model of a workload without a launch was launched at minus infinity. ``pairs`` are those that run it on a stack.
    """
    loads = [w for _, w in pairs]
    launches = [plan.workloads[w].launch_h for w in loads]
    course = stack.maturity.get(plan.software.architectures[loads[0]])
    excess = stack.new_model_incident_multiplier - 1.0 if course else 0.0
    constant_h = course.months.base * HOURS_PER_YEAR / 12.0 if course else 1.0
    return min(-math.inf if launch is None else launch for launch in launches), excess, constant_h


class IncidentProcess:
    """The engineering teams, and the processes of upgrades, incidents and bring-ups."""

    def __init__(
        self,
        env: simpy.Environment,
        plan: Plan,
        log: ChangeLog,
        streams: Streams,
        arrived: Mapping[str, simpy.Event],
    ) -> None:
        """Take over the processes of all stacks; ``arrived`` happens, by part, when its first nodes are there."""
        self.env = env
        self.plan = plan
        self.log = log
        self.streams = streams
        self.arrived = arrived
        self.free_h = [0.0] * len(plan.software.teams)
        """By team: when all that it has taken up is done."""
        self.upgrades_h: dict[str, list[float]] = {}
        """By stack: when its canary takes each release."""
        self.gains: dict[Pair, list[float]] = {}
        """By cluster and workload: by how much each upgrade moves log speed."""

    def start(self) -> None:
        """Schedule upgrades, incidents and bring-ups."""
        for stack in self.plan.software.stacks:
            self._schedule_upgrades(stack)
            for model in sorted({workload.model for workload in self.plan.workloads}):
                self._schedule_incidents(stack, model)
            for index, workload in enumerate(self.plan.workloads):
                if workload.launch_h is None or workload.launch_h >= self.plan.hours:
                    continue
                # How hard a new model is on a stack; it is brought up on each part that the stack runs on.
                draw = self.streams(f"software/{stack.name}/{workload.name}/bring-up")
                weeks = (
                    stack.bring_up_weeks.lognormal(draw) * self.plan.software.fix_time_multiplier
                )
                factor = math.log(min(1.0, max(0.05, stack.bring_up_fraction.lognormal(draw))))
                figures = (workload.launch_h, weeks * HOURS_PER_WEEK, factor)
                parts = dict[str, list[Pair]]()
                for pair in (
                    pair for pair in self._pairs(stack, workload.model) if pair[1] == index
                ):
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
            if self.plan.software.stack_of[c, w] == stack.name
        )

    def _change(
        self, time_h: float, pairs: Pairs, log_factors: Iterable[float], kind: str, incident: int
    ) -> None:
        """Log a change of speed, known now or ahead of its time; what lies beyond the horizon is none."""
        if time_h < self.plan.hours:
            self.log.software.append(
                SoftwareEvent(time_h, pairs, tuple(log_factors), kind, incident)
            )

    def _schedule_upgrades(self, stack: StackPlan) -> None:
        """Draw the releases of a stack, its upgrades, and the speed that each upgrade brings.

        Both come on a cadence whatever happens here, so they are known ahead and no process waits for them. A release
        that was out r hours after the start has the level

            min(g, g·(1 − exp(−r/τ)) + σ·z) + Σ stated steps,   at most the roofline,

        in the logarithm of speed over day one: g is what the class of models has still to gain and τ how fast, both
        drawn once; z is drawn anew, so a poor release is over with the next. None passes the best there will be. Where
        a cluster's first image is dated, r counts from the calibration's measurements, and what that image has is off.
        An upgrade takes the newest release that is out. Its speed counts from the end of the canary's bake on.
        """
        pairs = self._pairs(stack, None)
        software = self.plan.software
        hours = self.plan.hours
        draw = self.streams(f"software/{stack.name}/releases")
        course = {
            name: (
                math.log1p(library.gain.lognormal(draw)),
                library.months.lognormal(draw) * HOURS_PER_YEAR / 12.0,
            )
            for name, library in stack.maturity.items()
        }
        deviations = self.streams(f"software/{stack.name}/deviations")
        out_h = (
            _cadence(HOURS_PER_YEAR / stack.releases_per_year, hours, draw)
            if stack.releases_per_year > 0
            else []
        )
        upgrades_h = _cadence(
            stack.upgrade_h, hours, self.streams(f"software/{stack.name}/upgrades")
        )
        self.upgrades_h[stack.name] = upgrades_h
        levels = dict.fromkeys(pairs, 0.0)
        newest = dict[tuple[str, float], float]()
        clocks_h = sorted(set(software.clock_h))
        for time_h, is_upgrade in sorted(
            [(at_h, False) for at_h in out_h] + [(at_h, True) for at_h in upgrades_h]
        ):
            if not is_upgrade:
                for name, z in zip(
                    course, deviations.standard_normal(len(course)).tolist(), strict=True
                ):
                    most, constant_h = course[name]
                    for clock_h in clocks_h:
                        reached = (
                            matured(most, constant_h, clock_h + time_h) + stack.release_sigma * z
                        )
                        newest[name, clock_h] = min(most, reached)
                continue
            changes = dict[str, list[tuple[Pair, float]]]()
            for (c, w), before in levels.items():
                model = self.plan.workloads[w].model
                steps = sum(
                    s.log_gain for s in stack.steps if s.time_h <= time_h and s.model in ("", model)
                )
                dated = float(software.dated_log_gain[c, w])
                reached = (
                    newest.get((software.architectures[w], software.clock_h[c]), dated) - dated
                )
                levels[c, w] = min(reached + steps, float(software.roofline_log_gain[c, w]))
                self.gains.setdefault((c, w), []).append(levels[c, w] - before)
                changes.setdefault(model, []).append(((c, w), levels[c, w] - before))
            for moved in changes.values():
                which, factors = zip(*moved, strict=True)
                self._change(time_h + software.bake_h, which, factors, "upgrade", -1)

    def _schedule_incidents(self, stack: StackPlan, model: str) -> None:
        """Draw every incident of a stack and model; each kind has random numbers of its own.

        Some come with upgrades: at each with the probability p·(1 + (m − 1)·exp(−age/τ)), and so at the launch of the
        model, which is an upgrade for it. The others come at any time: Poisson, and more of them while it is young.
        """
        pairs = self._pairs(stack, model)
        hours = self.plan.hours
        if not pairs:
            return
        launch = launch_h, excess, constant_h = launch_of(self.plan, stack, pairs)
        upgrades_h = [
            launch_h if 0.0 <= launch_h < hours else math.inf,
            *self.upgrades_h[stack.name],
        ]
        ages_h = np.array(upgrades_h) - launch_h
        more = np.where(
            ages_h < 0.0, 0.0, 1.0 + excess * np.exp(-np.maximum(ages_h, 0.0) / constant_h)
        )
        more[0] *= upgrades_h[0] < hours
        for incident in stack.incidents:
            name = f"software/{stack.name}/{model}/{incident.kind}"
            if incident.per_upgrade > 0.0:
                # Drawn for every upgrade: at another probability the same incidents come, and fewer or more of them.
                uniform = self.streams(f"{name}/odds").random((len(upgrades_h), 3))
                normal = self.streams(f"{name}/sizes").standard_normal((len(upgrades_h), 4))
                for place in np.flatnonzero(uniform[:, 0] < incident.per_upgrade * more).tolist():
                    drawn = (*uniform[place, 1:].tolist(), *normal[place].tolist())
                    self._upgrade_incident(stack, pairs, incident, upgrades_h[place], drawn)
            for draw, time_h in self._at_any_time(name, launch, incident.per_year):
                slower = (
                    math.log1p(-min(incident.most_loss, incident.loss.lognormal(draw))),
                ) * len(pairs)
                begin = SoftwareEvent(
                    time_h, pairs, slower, incident.kind, next(self.log.incidents)
                )
                self.env.process(self._mend(stack, incident, draw.standard_normal(), begin, 0.0))

    def _at_any_time(
        self, name: str, launch: Launch, per_year: float
    ) -> Iterator[tuple[np.random.Generator, float]]:
        """Draw Poisson incidents in the order of time: at rate λ, and λ·(m − 1)·exp(−(t − launch)/τ) of a new model.

        Yields the stream of each, of which whoever takes it draws the rest, and when it comes.
        """
        (launch_h, excess, constant_h) = launch
        per_h = per_year / HOURS_PER_YEAR
        draw = self.streams(name)
        gap_h = 1.0 / per_h if per_h > 0.0 else math.inf
        time_h = draw.exponential() * gap_h
        while time_h < self.plan.hours:
            yield draw, time_h
            time_h += draw.exponential() * gap_h
        draw = self.streams(f"{name}/youth")
        most = per_h * excess * constant_h
        begin = math.exp(
            min(launch_h, 0.0) / constant_h
        )  # share of the further incidents that come after the start
        come = draw.exponential()
        while come < most * begin:
            time_h = max(launch_h, 0.0) - constant_h * math.log1p(-come / (most * begin))
            if time_h >= self.plan.hours:
                return
            yield draw, time_h
            come += draw.exponential()

    def _upgrade_incident(
        self,
        stack: StackPlan,
        pairs: Pairs,
        incident: IncidentPlan,
        time_h: float,
        drawn: tuple[float, ...],
    ) -> None:
        """Log what an incident that an upgrade brings costs, from the upgrade to its end.

        The canary alone runs the release while it bakes, so a loss L costs canary share · L of the stack. What is
        noticed by then never reaches the rest, and the canary can return, for the rest runs the release before. What is
        noticed later costs L until the stack is rolled back; where that cannot be, until it is fixed. A roll-back costs
        the gain of the newest release too, until the next upgrade. Wrong output costs no speed until it is noticed, and
        none while it is served because nothing can be rolled back. Incidents do not know of each other.
        """
        software = self.plan.software
        number = next(self.log.incidents)
        kind = incident.kind
        everywhere = len(pairs)
        subtle, stuck, loss_z, detection_z, rollback_z, fix_z = drawn
        loss = min(incident.most_loss, incident.loss.lognormal_at(loss_z))
        is_subtle = subtle < incident.subtle_fraction or loss < incident.subtle_below
        detection_h = incident.subtle_detection_h if is_subtle else incident.detection_h
        baked_h = time_h + software.bake_h
        noticed_h = time_h + detection_h.lognormal_at(detection_z)
        slower = math.log1p(-loss)
        on_canary = math.log1p(-loss * software.canary_fraction)
        is_caught = noticed_h < baked_h
        self._change(time_h, pairs, [on_canary] * everywhere, kind, number)
        if not is_caught:
            self._change(
                baked_h, pairs, [slower - on_canary] * everywhere, f"{kind} spread", number
            )
            widens = incident.falsifies and not math.isnan(software.wide_precision_factor[pairs[0]])
            if widens or stuck < stack.rollback_impossible_fraction:
                wide = (software.wide_precision_factor[pair] if widens else 1.0 for pair in pairs)
                wider = tuple(math.log(max(factor, 0.05)) for factor in wide)
                begin = SoftwareEvent(noticed_h, pairs, wider, kind, number)
                self.env.process(self._mend(stack, incident, fix_z, begin, slower))
                return
        share, lost = (software.canary_fraction, on_canary) if is_caught else (1.0, slower)
        back_h = noticed_h + software.rollback_h.lognormal_at(rollback_z) * share
        self._change(back_h, pairs, [-lost] * everywhere, f"{kind} rolled back", number)
        without_h = baked_h if is_caught else back_h
        taken_h = [upgrade_h + software.bake_h for upgrade_h in self.upgrades_h[stack.name]]
        count = bisect_right(taken_h, without_h)
        gains = [max(0.0, self.gains[pair][count - 1]) if count else 0.0 for pair in pairs]
        self._change(without_h, pairs, [-gain for gain in gains], f"{kind} rolled back", number)
        if count < len(taken_h):
            self._change(taken_h[count], pairs, gains, f"{kind} fixed", number)

    def _mend(
        self,
        stack: StackPlan,
        incident: IncidentPlan,
        z: float,
        begin: SoftwareEvent,
        slower: float,
    ) -> Steps:
        """Log an incident, and its end once it is fixed; ``slower`` is the log speed that it has cost before."""
        fix_days = incident.fix_days.lognormal_at(z)
        software = self.plan.software
        work_h = incident.difficulty(fix_days) * software.engineer_h
        yield self.env.timeout(begin.time_h)
        self.log.software.append(begin)
        vendor_h = fix_days * HOURS_PER_DAY * software.fix_time_multiplier
        yield self.env.timeout(self._mended_after_h(stack, work_h, vendor_h))
        ends = tuple(-slower - factor for factor in begin.log_factors)
        self._change(float(self.env.now), begin.pairs, ends, f"{begin.kind} fixed", begin.incident)

    def _mended_after_h(self, stack: StackPlan, work_h: float, vendor_h: float) -> float:
        """Return the hours until a fix: min(wait + hours of work / engineers, the vendor's time).

        The team takes one thing at a time, first come first served, so its end is known when it begins and no process
        has to wait for a turn. What the vendor mends while it waits is never taken up, and what he mends while they
        work on it frees them. Without engineers the vendor mends alone.
        """
        team = self.plan.software.teams[stack.team]
        now_h = float(self.env.now)
        there = (
            c.accelerators
            for c in self.log.changes
            if c.cluster in team.clusters and c.time_h <= now_h
        )
        engineers = team.engineers.number(sum(there))
        if not engineers:
            return vendor_h
        begin_h = max(now_h, self.free_h[stack.team])
        end_h = min(begin_h + team.hours(work_h, engineers), now_h + vendor_h)
        if end_h > begin_h:
            self.free_h[stack.team] = end_h
        return end_h - now_h

    def _bring_up(
        self, stack: StackPlan, part: str, pairs: Pairs, figures: tuple[float, float, float]
    ) -> Steps:
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
        number = next(self.log.incidents)
        # The gap closes as (e^−3s − e^−3)/(1 − e^−3) with the share s of the work that is done, in steps: kernels land
        # one by one.
        done = 1.0 - left_h / length_h
        last = math.exp(-_CONSTANTS)
        shares = (done + (1.0 - done) * step / _LANDINGS for step in range(_LANDINGS + 1))
        levels = [
            factor * ((math.exp(-_CONSTANTS * share) - last) / (1.0 - last)) for share in shares
        ]
        self._change(float(self.env.now), pairs, [levels[0]] * len(pairs), "bring-up", number)
        each_h = left_h / _LANDINGS
        for step, (before, after) in enumerate(itertools.pairwise(levels), start=1):
            yield self.env.timeout(
                self._mended_after_h(stack, each_h / TeamPlan.hours(1.0, 1), each_h)
            )
            kind = "bring-up done" if step == _LANDINGS else "bring-up eased"
            self._change(float(self.env.now), pairs, [after - before] * len(pairs), kind, number)
