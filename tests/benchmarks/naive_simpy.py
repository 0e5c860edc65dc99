"""The reference scenario as a first version would be written: SimPy walks every hour, every node has its process.

It simulates the same things: hourly demand with noise, node failures with crews, spares and RMA, releases and incidents
with engineers, priorities, spill and deferral, power and cooling. It is kept to show what walking hours costs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from planner.plan.parts import StackPlan
from planner.plan.plan import ClusterPlan, Plan
from planner.units import HOURS_PER_YEAR, SECONDS_PER_HOUR

Steps = Generator[simpy.Event, Any, None]


class NaiveFleet:
    """State that processes change directly, and hours that read it."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.env = simpy.Environment()
        self.draw = np.random.default_rng(seed)
        self.up = [0.0] * len(plan.clusters)
        self.speed = {
            (c, w): 1.0 for c in range(len(plan.clusters)) for w in range(len(plan.workloads))
        }
        accelerators = sum(
            cluster.nodes * cluster.accelerators_per_node for cluster in plan.clusters
        )
        self.crews = simpy.Resource(self.env, capacity=plan.reliability.crews.number(accelerators))
        self.spares = [
            simpy.Container(
                self.env,
                init=plan.reliability.spares.number(
                    cluster.nodes * cluster.accelerators_per_node, cluster.nodes
                ),
            )
            for cluster in plan.clusters
        ]
        engineers = sum(team.engineers.number(accelerators) for team in plan.software.teams)
        self.engineers = simpy.Resource(self.env, capacity=max(1, engineers))
        self.log_noise = [0.0] * len(plan.workloads)
        self.backlogs: list[deque[list[float]]] = [deque() for _ in plan.workloads]
        self.served = np.zeros((len(plan.clusters), len(plan.workloads)))
        self.shed = np.zeros(len(plan.workloads))
        self.kwh = 0.0
        self.failures = 0

    def run(self) -> NaiveFleet:
        """Run the horizon."""
        for index, cluster in enumerate(self.plan.clusters):
            for _ in range(cluster.nodes):
                self.env.process(self._node(index, cluster))
        for stack in self.plan.software.stacks:
            self.env.process(self._stack(stack))
        self.env.process(self._hours())
        self.env.run(until=self.plan.hours)
        return self

    def _node(self, index: int, cluster: ClusterPlan) -> Steps:
        """One node: up, failed, waiting for part and crew, repaired, up."""
        reliability = self.plan.reliability
        yield self.env.timeout(cluster.online_h or 0.0)
        self.up[index] += 1.0
        rate = sum(cause.per_node_h for cause in reliability.causes) * cluster.failure_multiplier
        shares = np.array([cause.per_node_h for cause in reliability.causes])
        shares = shares / shares.sum()
        while True:
            yield self.env.timeout(self.draw.exponential(1.0 / rate))
            cause = reliability.causes[self.draw.choice(len(shares), p=shares)]
            lost = (
                1.0
                if cause.whole_node
                else cluster.group_accelerators / cluster.accelerators_per_node
            )
            self.failures += 1
            self.up[index] -= lost
            heal = self.draw.random()
            kind = (
                0
                if heal < cause.soft_fraction
                else 1
                if heal < cause.soft_fraction + cause.medium_fraction
                else 2
            )
            repair_h = float(
                self.draw.gamma(1 / reliability.repair_cv**2, reliability.repair_cv**2)
            )
            repair_h *= reliability.repair_h[kind]
            if kind == 2:
                self.env.process(self._return_part(index))
                yield self.spares[index].get(1)
            if kind == 0:
                yield self.env.timeout(repair_h)
            else:
                with self.crews.request() as turn:
                    yield turn
                    yield self.env.timeout(repair_h)
            self.up[index] += lost

    def _return_part(self, index: int) -> Steps:
        yield self.env.timeout(self.plan.reliability.rma_h)
        yield self.spares[index].put(1)

    def _stack(self, stack: StackPlan) -> Steps:
        """One stack: incidents and releases, one after another."""
        pairs = [pair for pair in self.speed if self.plan.software.stack_of[pair] == stack.name]
        incidents = sum(
            kind.per_year + kind.per_upgrade * stack.upgrades_per_year for kind in stack.incidents
        )
        rate = (
            incidents * len({workload.model for workload in self.plan.workloads})
            + stack.releases_per_year
        )
        while rate > 0:
            yield self.env.timeout(self.draw.exponential(HOURS_PER_YEAR / rate))
            if self.draw.random() < stack.releases_per_year / rate:
                for pair in pairs:
                    self.speed[pair] = math.exp(stack.release_sigma * self.draw.standard_normal())
            else:
                self.env.process(self._incident(stack, pairs))

    def _incident(self, stack: StackPlan, pairs: list[tuple[int, int]]) -> Steps:
        kept = 1.0 - min(0.95, stack.incidents[0].loss.lognormal(self.draw))
        for pair in pairs:
            self.speed[pair] *= kept
        with self.engineers.request() as turn:
            yield turn
            yield self.env.timeout(self.plan.software.engineer_h)
        yield self.env.timeout(stack.incidents[0].fix_days.lognormal(self.draw) * 24.0)
        for pair in pairs:
            self.speed[pair] /= kept

    def _hours(self) -> Steps:
        for hour in range(self.plan.hours):
            self._hour(hour)
            yield self.env.timeout(1.0)

    def _hour(self, hour: int) -> None:
        """Demand, routing by priority with spill, deferral, power: one hour."""
        plan = self.plan
        used = [0.0] * len(plan.clusters)
        rates = plan.requests_per_node_h
        month = (
            0
            if rates.shape[2] == 1
            else int(np.searchsorted(plan.month_edges_h, hour, side="right")) - 1
        )
        for w in plan.by_priority:
            workload = plan.workloads[w]
            noise = plan.demand.noises[w]
            phi = noise.hourly_correlation
            innovation = noise.sigma * math.sqrt(1 - phi * phi) * self.draw.standard_normal()
            self.log_noise[w] = phi * self.log_noise[w] + innovation
            wanted = (
                plan.demand.noise_base_requests_per_s[w, hour]
                * math.exp(self.log_noise[w])
                * SECONDS_PER_HOUR
            )
            if workload.deadline_h:
                self.backlogs[w].append([hour, wanted])
                wanted = sum(requests for _, requests in self.backlogs[w])
            left = wanted
            each = {c: rates[c, w, month] * self.speed[c, w] for c in workload.cluster_order}
            for c, rate in each.items():
                part = min(max(self.up[c] * plan.preferred_utilisation - used[c], 0.0), left / rate)
                used[c] += part
                left -= part * rate
                self.served[c, w] += part * rate
            free = {c: max(self.up[c] - used[c], 0.0) * rate for c, rate in each.items()}
            whole = sum(free.values())
            spread = min(left, whole) / whole if whole > 0 else 0.0
            for c, rate in each.items():
                used[c] += free[c] * spread / rate
                left -= free[c] * spread
                self.served[c, w] += free[c] * spread
            if workload.deadline_h:
                self._settle(w, hour, wanted - left)
            else:
                self.shed[w] += left
        self._power(hour, used)

    def _settle(self, w: int, hour: int, served: float) -> None:
        queue = self.backlogs[w]
        while queue and served > 0:
            part = min(served, queue[0][1])
            queue[0][1] -= part
            served -= part
            if queue[0][1] > 1e-9:
                break
            queue.popleft()
        while queue and hour - queue[0][0] >= self.plan.workloads[w].deadline_h:
            self.shed[w] += queue.popleft()[1]

    def _power(self, hour: int, used: list[float]) -> None:
        plan = self.plan
        it = 0.0
        for c, cluster in enumerate(plan.clusters):
            load = np.array([used[c] / self.up[c] if self.up[c] > 0 else 0.0])
            it += float(cluster.node_power.node_kw(load)[0]) * self.up[c]
        rated = sum(cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters)
        fixed = plan.site.fixed_fraction
        self.kwh += it + float(plan.site.overhead_ratio[hour]) * (fixed * rated + (1 - fixed) * it)
