"""Software over time: upgrades, incidents, bring-up of new models, and the engineers who fix them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import simpy

from planner.arrays import Floats
from planner.engine.log import ChangeLog, SoftwareEvent, Streams
from planner.plan.plan import Plan
from planner.plan.software import IncidentPlan, StackPlan, TeamPlan, matured
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR

Steps = Generator[simpy.Event, Any, None]
Pair = tuple[int, int]
"""A cluster and a workload."""
Pairs = tuple[Pair, ...]
_TIME_CONSTANTS = 3.0
"""Time constants in a bring-up: 95% of the gap is closed (8 to 11 days each, in a month of MI355X)."""
_LANDINGS = 4
"""Kernels that make up a bring-up: assumption."""
SLOWEST = 0.05
"""Least share of its speed that a new model, or one at a higher precision, is served at: assumption."""


class Launch(NamedTuple):
    """When a model was launched, and how many more incidents it has while it is young."""

    launch_h: float
    """Minus infinity for a model of a workload without a launch."""
    excess: float
    """Its further incidents at the launch over those of a model long served."""
    constant_h: float
    """The time constant with which these fade."""

    def incident_multiplier(self, times_h: Floats) -> Floats:
        """Return 1 + excess · exp(−age/τ) at each time, and 0 before the launch."""
        ages_h = times_h - self.launch_h
        ages_since_launch_h = np.maximum(ages_h, 0.0)
        fading = np.exp(-ages_since_launch_h / self.constant_h)
        multiplier = 1.0 + self.excess * fading
        return np.where(ages_h < 0.0, 0.0, multiplier)


def launch_of(plan: Plan, stack: StackPlan, pairs: Iterable[Pair]) -> Launch:
    """Return the launch of a model on a stack; ``pairs`` are those that run it there."""
    workloads = [w for _, w in pairs]
    architecture = plan.software.architectures[workloads[0]]
    library = stack.maturity.get(architecture)
    # The oldest workload of a model counts: for the others it is known software.
    launch_h = math.inf
    for w in workloads:
        workload_launch_h = plan.workloads[w].launch_h
        if workload_launch_h is None:
            workload_launch_h = -math.inf
        launch_h = min(launch_h, workload_launch_h)
    if library is None:
        # Nothing to mature: no excess, and any time constant will do.
        return Launch(launch_h, 0.0, 1.0)
    excess = stack.new_model_incident_multiplier - 1.0
    constant_h = library.months.base * HOURS_PER_YEAR / 12.0
    return Launch(launch_h, excess, constant_h)


def _cadence(interval_h: float, end_h: float, draw: np.random.Generator) -> list[float]:
    """Draw times on a cadence: the first within one interval, each further one half to one and a half of it later."""
    times_h = []
    time_h = draw.random() * interval_h
    while time_h < end_h:
        times_h.append(time_h)
        time_h += interval_h * (0.5 + draw.random())
    return times_h


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
        """Take over the processes of all stacks; ``arrived`` happens, by accelerator, with its first nodes."""
        self.env = env
        self.plan = plan
        self.log = log
        self.streams = streams
        self.arrived = arrived
        self.ends_h: list[list[float]] = [[] for _ in plan.software.teams]
        """By team: when each incident that it has taken up, or will once it is free, is mended."""
        self.upgrades_h: dict[str, list[float]] = {}
        """By stack: when its canary takes each release."""
        self.gains: dict[Pair, list[float]] = {}
        """By cluster and workload: by how much each upgrade moves log speed."""

    def start(self) -> None:
        """Schedule upgrades, incidents and bring-ups."""
        models = sorted({workload.model for workload in self.plan.workloads})
        for stack in self.plan.software.stacks:
            # Upgrades first: some incidents come with them.
            self._schedule_upgrades(stack)
            for model in models:
                self._schedule_incidents(stack, model)
            for index, workload in enumerate(self.plan.workloads):
                launch_h = workload.launch_h
                if launch_h is not None and launch_h < self.plan.hours:
                    self._schedule_bring_up(stack, index, launch_h)

    def _is_served(self, model: str, time_h: float) -> bool:
        """Return whether any workload has the model at a time: engineers mend what is served."""
        return any(
            workload.begins_h <= time_h < workload.ends_h
            for workload in self.plan.workloads
            if workload.model == model
        )

    def _pairs(self, stack: StackPlan, model: str | None) -> Pairs:
        """Return the (cluster, workload) pairs that run a model, or any, on a stack."""
        pairs = []
        for w, workload in enumerate(self.plan.workloads):
            if model is None or workload.model == model:
                pairs += [(c, w) for c in sorted(workload.cluster_order)]
        stack_of = self.plan.software.stack_of
        return tuple(pair for pair in pairs if stack_of[pair] == stack.name)

    def _change(
        self, time_h: float, pairs: Pairs, log_factors: Iterable[float], kind: str, incident: int
    ) -> None:
        """Log a change of speed, known now or ahead of its time; what lies beyond the horizon is none."""
        # A run does not tell of what lies beyond its end.
        if time_h < self.plan.hours:
            event = SoftwareEvent(time_h, pairs, tuple(log_factors), kind, incident)
            self.log.software.append(event)

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
        software = self.plan.software
        hours = self.plan.hours
        draw = self.streams(f"software/{stack.name}/releases")
        gains = dict[str, tuple[float, float]]()
        for architecture, library in stack.maturity.items():
            log_gain = math.log1p(library.gain.lognormal(draw))
            constant_h = library.months.lognormal(draw) * HOURS_PER_YEAR / 12.0
            gains[architecture] = (log_gain, constant_h)
        # A stream of its own: more releases leave gains and time constants as drawn.
        deviations = self.streams(f"software/{stack.name}/deviations")
        releases_h = []
        if stack.releases_per_year > 0:
            interval_h = HOURS_PER_YEAR / stack.releases_per_year
            releases_h = _cadence(interval_h, hours, draw)
        upgrade_draw = self.streams(f"software/{stack.name}/upgrades")
        upgrades_h = _cadence(stack.upgrade_h, hours, upgrade_draw)
        self.upgrades_h[stack.name] = upgrades_h
        levels = dict.fromkeys(self._pairs(stack, None), 0.0)
        newest = dict[tuple[str, float], float]()
        """Log speed of the newest release that is out, by architecture and clock."""
        clocks_h = sorted(set(software.clock_h))
        # False sorts before True: a release of the same moment is out before the upgrade looks for it.
        events = [(time_h, False) for time_h in releases_h]
        events += [(time_h, True) for time_h in upgrades_h]
        for time_h, is_upgrade in sorted(events):
            if is_upgrade:
                self._upgrade(stack, time_h, levels, newest)
                continue
            # One score an architecture: all clocks see the same release.
            scores = deviations.standard_normal(len(gains)).tolist()
            for architecture, score in zip(gains, scores, strict=True):
                log_gain, constant_h = gains[architecture]
                deviation = stack.release_sigma * score
                for clock_h in clocks_h:
                    level = matured(log_gain, constant_h, clock_h + time_h)
                    newest[architecture, clock_h] = min(log_gain, level + deviation)

    def _upgrade(
        self,
        stack: StackPlan,
        time_h: float,
        levels: dict[Pair, float],
        newest: Mapping[tuple[str, float], float],
    ) -> None:
        """Take the newest release on all pairs of a stack, whose levels of log speed it moves."""
        software = self.plan.software
        changes = dict[str, dict[Pair, float]]()
        due = [step for step in stack.steps if step.time_h <= time_h]
        for (c, w), level in levels.items():
            model = self.plan.workloads[w].model
            model_steps = [step.log_gain for step in due if step.model in ("", model)]
            steps = sum(model_steps)
            # What the image of the first day has already is no gain any more.
            dated = float(software.dated_log_gain[c, w])
            release = (software.architectures[w], software.clock_h[c])
            released = newest.get(release, dated) - dated
            # No release passes what the hardware can do.
            roofline = float(software.roofline_log_gain[c, w])
            levels[c, w] = min(released + steps, roofline)
            gain = levels[c, w] - level
            gains = self.gains.setdefault((c, w), [])
            gains.append(gain)
            changes.setdefault(model, {})[c, w] = gain
        baked_h = time_h + software.bake_h
        # One event a model, so that the log says which models a release moved.
        for model_gains in changes.values():
            model_pairs = tuple(model_gains)
            self._change(baked_h, model_pairs, model_gains.values(), "upgrade", -1)

    def _schedule_incidents(self, stack: StackPlan, model: str) -> None:
        """Draw every incident of a stack and model; each kind has random numbers of its own.

        Some come with upgrades: at each with the probability p·(1 + (m − 1)·exp(−age/τ)), and so at the launch of the
        model, which is an upgrade for it. The others come at any time: Poisson, and more of them while it is young.
        """
        pairs = self._pairs(stack, model)
        hours = self.plan.hours
        if not pairs:
            return
        launch = launch_of(self.plan, stack, pairs)
        is_launched = 0.0 <= launch.launch_h < hours
        launch_upgrade_h = launch.launch_h if is_launched else math.inf
        upgrades_h = [launch_upgrade_h, *self.upgrades_h[stack.name]]
        multiplier = launch.incident_multiplier(np.array(upgrades_h))
        # The launch is the first of the upgrades; one outside the horizon brings nothing.
        multiplier[0] *= is_launched
        for incident in stack.incidents:
            name = f"software/{stack.name}/{model}/{incident.kind}"
            if incident.per_upgrade > 0.0:
                # Drawn for every upgrade: at another probability the same incidents come, and fewer or more of them.
                count = len(upgrades_h)
                uniform = self.streams(f"{name}/odds").random((count, 3))
                normal = self.streams(f"{name}/sizes").standard_normal((count, 4))
                probability = incident.per_upgrade * multiplier
                is_hit = uniform[:, 0] < probability
                for upgrade in np.flatnonzero(is_hit).tolist():
                    if not self._is_served(model, upgrades_h[upgrade]):
                        continue
                    # The first of the three uniform numbers has decided that it comes.
                    odds = uniform[upgrade, 1:].tolist()
                    scores = (*odds, *normal[upgrade].tolist())
                    self._upgrade_incident(stack, pairs, incident, upgrades_h[upgrade], scores)
            for draw, time_h in self._at_any_time(name, launch, incident.per_year):
                if not self._is_served(model, time_h):
                    continue
                loss = min(incident.most_loss, incident.loss.lognormal(draw))
                # The same loss on every pair that runs the model.
                log_factors = (math.log1p(-loss),) * len(pairs)
                number = next(self.log.incidents)
                begin = SoftwareEvent(time_h, pairs, log_factors, incident.kind, number)
                fix_z = draw.standard_normal()
                fix = self._fix(stack, incident, fix_z, begin, 0.0)
                self.env.process(fix)

    def _at_any_time(
        self, name: str, launch: Launch, per_year: float
    ) -> Iterator[tuple[np.random.Generator, float]]:
        """Draw Poisson incidents in the order of time: at rate λ, and λ·(m − 1)·exp(−(t − launch)/τ) of a new model.

        Yields the stream of each, of which whoever takes it draws the rest, and when it comes.
        """
        per_h = per_year / HOURS_PER_YEAR
        draw = self.streams(name)
        gap_h = 1.0 / per_h if per_h > 0.0 else math.inf
        # Gap by gap: a longer horizon has the same incidents first.
        time_h = draw.exponential() * gap_h
        while time_h < self.plan.hours:
            yield draw, time_h
            time_h += draw.exponential() * gap_h
        draw = self.streams(f"{name}/youth")
        # Further incidents that come after the start, where the launch lies before it; a rate of 1 in this measure.
        # At most 1: a launch to come has all of them ahead.
        before_start_h = min(launch.launch_h, 0.0)
        share = math.exp(before_start_h / launch.constant_h)
        expected = per_h * launch.excess * launch.constant_h * share
        hazard = draw.exponential()
        while hazard < expected:
            # The inverse of the cumulative hazard, expected·(1 − exp(−age/τ)).
            age_h = -launch.constant_h * math.log1p(-hazard / expected)
            time_h = max(launch.launch_h, 0.0) + age_h
            if time_h >= self.plan.hours:
                return
            yield draw, time_h
            hazard += draw.exponential()

    def _upgrade_incident(
        self,
        stack: StackPlan,
        pairs: Pairs,
        incident: IncidentPlan,
        time_h: float,
        scores: tuple[float, ...],
    ) -> None:
        """Log what an incident that an upgrade brings costs, from the upgrade to its end.

        The canary alone runs the release while it bakes, so a loss L costs canary share · L of the stack. What is
        noticed by then never reaches the rest, and the canary can return, for the rest runs the release before. What is
        noticed later costs L until the stack is rolled back; where that cannot be, until it is fixed. A release that
        gains more than its fault costs is kept. Wrong output costs no speed until it is noticed, and none while it is
        served because nothing can be rolled back. Incidents do not know of each other.
        """
        software = self.plan.software
        number = next(self.log.incidents)
        count = len(pairs)
        kind = incident.kind
        rolled_back = f"{kind} rolled back"
        subtle_score, stuck_score, loss_z, detection_z, rollback_z, fix_z = scores
        loss = min(incident.most_loss, incident.loss.lognormal_at(loss_z))
        # Small losses take as long to notice as subtle ones, whatever their kind.
        is_small = loss < incident.subtle_below
        is_subtle = is_small or subtle_score < incident.subtle_fraction
        detection_h = incident.subtle_detection_h if is_subtle else incident.detection_h
        baked_h = time_h + software.bake_h
        noticed_h = time_h + detection_h.lognormal_at(detection_z)
        log_loss = math.log1p(-loss)
        on_canary = math.log1p(-loss * software.canary_fraction)
        rollback_h = software.rollback_h.lognormal_at(rollback_z)
        self._change(time_h, pairs, [on_canary] * count, kind, number)
        if noticed_h < baked_h:
            # Only the canary goes back, which takes its share of the time.
            back_h = noticed_h + rollback_h * software.canary_fraction
            self._change(back_h, pairs, [-on_canary] * count, rolled_back, number)
            given_up = SoftwareEvent(baked_h, pairs, (0.0,) * count, kind, number)
            roll_back = self._roll_back(
                stack, incident, fix_z, noticed_h, given_up, has_spread=False
            )
            self.env.process(roll_back)
            return
        spread = log_loss - on_canary
        self._change(baked_h, pairs, [spread] * count, f"{kind} spread", number)
        factors = software.wide_precision_factor
        has_wide_precision = not math.isnan(factors[pairs[0]])
        is_widened = incident.falsifies and has_wide_precision
        is_stuck = stuck_score < stack.rollback_impossible_fraction
        if is_widened or is_stuck:
            # Until it is fixed, at a higher precision where that helps, and as slow as it is where not.
            log_factors = []
            for pair in pairs:
                wide_speed = factors[pair] if is_widened else 1.0
                log_factors.append(math.log(max(wide_speed, SLOWEST)))
            begin = SoftwareEvent(noticed_h, pairs, tuple(log_factors), kind, number)
            fix = self._fix(stack, incident, fix_z, begin, log_loss)
            self.env.process(fix)
            return
        given_up = SoftwareEvent(noticed_h + rollback_h, pairs, (log_loss,) * count, kind, number)
        roll_back = self._roll_back(stack, incident, fix_z, noticed_h, given_up, has_spread=True)
        self.env.process(roll_back)

    def _roll_back(
        self,
        stack: StackPlan,
        incident: IncidentPlan,
        z: float,
        noticed_h: float,
        given_up: SoftwareEvent,
        *,
        has_spread: bool,
    ) -> Steps:
        """Log the end of a fault by a roll-back, and what that costs besides: the gain of the newest release.

        ``given_up`` is when the release is, and the log speed that its fault has cost until then. It is taken again
        once it is fixed, or the next one is. One that has spread and gains more than its fault costs is kept until it
        is fixed, unless its output is wrong; so is one that is fixed before it could be rolled back.
        """
        yield self.env.timeout(noticed_h)
        fix_h = self._mended_h(stack, incident, z)
        fixed_h = noticed_h + fix_h
        bake_h = self.plan.software.bake_h
        baked_h = [upgrade_h + bake_h for upgrade_h in self.upgrades_h[stack.name]]
        # The newest release that the stack runs at that moment is the one given up.
        count = bisect_right(baked_h, given_up.time_h)
        gains = [0.0] * len(given_up.pairs)
        if count:
            # A release that made a pair slower is no loss when it goes.
            gains = [max(0.0, self.gains[pair][count - 1]) for pair in given_up.pairs]
        ends = [-log_factor for log_factor in given_up.log_factors]
        is_kept = has_spread and not incident.falsifies and sum(gains) >= sum(ends)
        if is_kept or fixed_h <= given_up.time_h:
            self._change(fixed_h, given_up.pairs, ends, f"{given_up.kind} fixed", given_up.incident)
            return
        rolled_back = f"{given_up.kind} rolled back"
        losses = [end - gain for end, gain in zip(ends, gains, strict=True)]
        self._change(given_up.time_h, given_up.pairs, losses, rolled_back, given_up.incident)
        again_h = min([fixed_h, *baked_h[count : count + 1]])
        self._change(again_h, given_up.pairs, gains, f"{given_up.kind} fixed", given_up.incident)

    def _mended_h(self, stack: StackPlan, incident: IncidentPlan, z: float) -> float:
        """Return the hours from now until an incident is fixed, by its team or the vendor."""
        software = self.plan.software
        fix_days = incident.fix_days.lognormal_at(z)
        work_h = incident.difficulty(fix_days) * software.engineer_h
        vendor_h = fix_days * HOURS_PER_DAY * software.fix_time_multiplier
        return self._fix_h(stack, work_h, vendor_h)

    def _fix(
        self,
        stack: StackPlan,
        incident: IncidentPlan,
        z: float,
        begin: SoftwareEvent,
        log_loss: float,
    ) -> Steps:
        """Log an incident, and its end once it is fixed; ``log_loss`` is the log speed that it has cost before."""
        # Whoever is noticed first is taken up first: the team's turn is asked for at that moment, and not ahead.
        yield self.env.timeout(begin.time_h)
        self.log.software.append(begin)
        yield self.env.timeout(self._mended_h(stack, incident, z))
        log_factors = [-log_loss - factor for factor in begin.log_factors]
        kind = f"{begin.kind} fixed"
        fixed_h = float(self.env.now)
        self._change(fixed_h, begin.pairs, log_factors, kind, begin.incident)

    def _fix_h(self, stack: StackPlan, work_h: float, vendor_h: float) -> float:
        """Return the hours until a fix: min(wait + hours of work / engineers, the vendor's time).

        A few engineers work on each, and the team on as many at once as it has of these; first come first served, so
        its end is known when it begins and no process has to wait for a turn. What the vendor mends while it waits is
        never taken up, and what he mends while they work on it frees them. Without engineers the vendor mends alone.
        """
        team = self.plan.software.teams[stack.team]
        now_h = float(self.env.now)
        # Headcount grows with the machines that are there now.
        accelerators = 0
        for change in self.log.changes:
            if change.time_h <= now_h and change.cluster in team.clusters:
                accelerators += change.accelerators
        engineers = team.engineers.number(accelerators)
        if not engineers:
            return vendor_h
        ends_h = sorted(end_h for end_h in self.ends_h[stack.team] if end_h > now_h)
        begin_h = now_h
        # Taken up once fewer are left than the team mends at once.
        ahead = len(ends_h) - team.at_once(engineers)
        if ahead >= 0:
            begin_h = ends_h[ahead]
        team_end_h = begin_h + team.hours(work_h, engineers)
        end_h = min(team_end_h, now_h + vendor_h)
        if end_h > begin_h:  # else the vendor was faster than the queue, and they never took it up
            ends_h.append(end_h)
        self.ends_h[stack.team] = ends_h
        return end_h - now_h

    def _schedule_bring_up(self, stack: StackPlan, index: int, launch_h: float) -> None:
        """Draw how hard a new model is on a stack; it is brought up on each accelerator that the stack runs on."""
        workload = self.plan.workloads[index]
        draw = self.streams(f"software/{stack.name}/{workload.name}/bring-up")
        drawn_weeks = stack.bring_up_weeks.lognormal(draw)
        weeks = drawn_weeks * self.plan.software.fix_time_multiplier
        length_h = weeks * HOURS_PER_WEEK
        drawn_speed = stack.bring_up_fraction.lognormal(draw)
        speed = min(1.0, max(SLOWEST, drawn_speed))
        pairs_of = dict[str, list[Pair]]()
        for c, w in self._pairs(stack, workload.model):
            if w == index:
                accelerator = self.plan.clusters[c].accelerator
                pairs_of.setdefault(accelerator, []).append((c, w))
        log_speed = math.log(speed)
        # Sorted, so that the order of clusters in the scenario does not decide whom the team takes up first.
        for accelerator, pairs in sorted(pairs_of.items()):
            steps = self._bring_up(stack, accelerator, tuple(pairs), launch_h, length_h, log_speed)
            self.env.process(steps)

    def _bring_up(
        self,
        stack: StackPlan,
        accelerator: str,
        pairs: Pairs,
        launch_h: float,
        length_h: float,
        log_speed: float,
    ) -> Steps:
        """Serve a new model at reduced speed until its bring-up on an accelerator is complete.

        The vendor does that in the drawn time, which is also what it takes one engineer. Both begin with the launch or
        with the first machines, whichever comes later; machines that are there on the first day have been there since
        a launch before it, so that part of the work is behind.
        """
        if accelerator in self.arrived:
            yield self.arrived[accelerator]
        begin_h = launch_h
        if self.env.now != 0.0:
            begin_h = max(launch_h, float(self.env.now))
        # Below zero for a launch before the start: that many hours are done.
        rest_h = length_h + min(begin_h, 0.0)
        if rest_h <= 0.0:
            return
        wait_h = max(0.0, begin_h - self.env.now)
        yield self.env.timeout(wait_h)
        number = next(self.log.incidents)
        # The gap closes as (e^−3s − e^−3)/(1 − e^−3) with the share s of the work that is done, in steps: kernels land
        # one by one.
        done_fraction = 1.0 - rest_h / length_h
        floor = math.exp(-_TIME_CONSTANTS)
        levels = []
        for landing in range(_LANDINGS + 1):
            landed = (1.0 - done_fraction) * landing / _LANDINGS
            share = done_fraction + landed
            rest = math.exp(-_TIME_CONSTANTS * share) - floor
            gap = rest / (1.0 - floor)
            levels.append(log_speed * gap)
        opening = [levels[0]] * len(pairs)
        self._change(float(self.env.now), pairs, opening, "bring-up", number)
        landing_h = rest_h / _LANDINGS
        work_h = landing_h / TeamPlan.hours(1.0, 1)
        for landing, (level, eased) in enumerate(itertools.pairwise(levels), start=1):
            fix_h = self._fix_h(stack, work_h, landing_h)
            yield self.env.timeout(fix_h)
            kind = "bring-up done" if landing == _LANDINGS else "bring-up eased"
            steps = [eased - level] * len(pairs)
            self._change(float(self.env.now), pairs, steps, kind, number)
