"""SimPy processes beside the machines: a user's own, and those stated in a scenario.

A process is a generator function of a :class:`SimulationContext`. A scenario names it under ``processes``, and
``planner.simulate(scenario, processes=[f])`` takes the function itself; it starts with the run's clock at hour 0. What
a scenario states of failure domains, maintenance windows and firmware runs as such processes (:func:`stated`); a
process of one's own may call them with other figures, ``return failures_of(world, DomainPlan(name="pdu", nodes=12,
per_year=0.1, repair_h=5.0))``. Nodes of one domain are those with neighbouring numbers in their cluster. Racks, feeds
and windows are the site's: machines at a provider's have no part in them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from planner.engine.log import ChangeLog, Effect, Note, SiteEvent, SoftwareEvent, Streams
from planner.engine.repair_shop import DOMAIN, PLANNED, Claim, Pool, RepairShopProcess
from planner.engine.supply import MonthFigures, Supply
from planner.errors import PlannerError, Problem, ScenarioError
from planner.plan.parts import DomainPlan, PlannedWork, ProcessPlan, ReliabilityPlan
from planner.plan.plan import Plan
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR
from planner.validation import nearest

Process = Callable[["SimulationContext"], Generator[simpy.Event, Any, Any]]
PRICED = (
    *(
        "energy",
        "cooling",
        "demand_charge",
        "colocation",
        "carbon",
        "rent",
        "burst_rental",
        "api",
        "revenue",
    ),
    *(
        "operations_staff",
        "software_engineers",
        "support_contracts",
        "licences",
        "maintenance",
        "insurance",
        "rma",
    ),
)
"""Accounts whose prices a process may change."""
ENTRY_POINTS = "planner.processes"
"""Group of entry points under which an installed package offers processes."""


class SimulationContext:
    """A run in progress as a process sees it; times are hours since the start, nodes are indices in a cluster."""

    def __init__(
        self, env: simpy.Environment, name: str, streams: Streams, run: RunContext
    ) -> None:
        self.env = env
        """The clock, of which ``env.now`` is the hour: whatever SimPy offers can be used with it."""
        self.name = name
        self.random = streams(f"process/{name}")
        """Random numbers of this process alone: the same for the same seed, whatever else happens."""
        self.clusters = tuple(cluster.name for cluster in run.plan.clusters)
        """Names of the clusters."""
        self.on_site = tuple(cluster.name for cluster in run.plan.clusters if not cluster.is_hosted)
        """Names of those whose machines stand at the site, and not at a provider's."""
        keys = zip(self.clusters, run.supply.keys, strict=True)
        self.random_of = {cluster: streams(f"process/{name}/{key}") for cluster, key in keys}
        """By cluster, random numbers of this process and that cluster alone."""
        self._run = run

    @property
    def now_h(self) -> float:
        """The current hour."""
        return float(self.env.now)

    @property
    def hours(self) -> int:
        """The hour at which the run ends."""
        return self._run.plan.hours

    @property
    def last_month(self) -> MonthFigures | None:
        """How the last finished month went; None in the first."""
        return self._run.months[-1] if self._run.months else None

    @property
    def crews(self) -> Pool:
        """The repair crews: ``yield world.crews.take()`` waits for one, ``world.crews.give()`` releases it."""
        return self._run.shop.crews

    def spare(self, cluster: str) -> simpy.Event:
        """Return an event that fires when a cluster's spare part is available; a replacement is ordered at once."""
        return self._run.shop.take_spare(self._index(cluster))

    def timeout(self, hours: float) -> simpy.Event:
        """Return an event that fires after some hours."""
        return self.env.timeout(hours)

    def nodes(self, cluster: str) -> list[int]:
        """Return the nodes of a cluster on site, in service or not."""
        return self._run.shop.nodes(self._index(cluster))

    def nodes_up(self, cluster: str) -> list[int]:
        """Return the nodes of a cluster with no accelerator down."""
        return self._run.shop.up(self._index(cluster))

    def is_there(self, cluster: str, node: int) -> bool:
        """Say whether a node of a cluster is on site, in service or not."""
        return self._run.shop.is_there(self._index(cluster), node)

    def within_reserve(
        self, cluster: str, reserve: int | None = None
    ) -> Generator[simpy.Event, Any, None]:
        """Wait until fewer nodes of a cluster are down than its reserve, as planned work does: ``yield from`` it."""
        index = self._index(cluster)
        shop = self._run.shop
        plan = self._run.plan.reliability
        while shop.nodes_down[index] >= (
            plan.reserve(shop.count(index)) if reserve is None else reserve
        ):
            yield shop.back[index]

    def take_out(
        self, cluster: str, nodes: Sequence[int], cause: str, kind: str = ""
    ) -> list[Claim]:
        """Take nodes out of service, also if already down; pass the result to :meth:`bring_back`."""
        index = self._index(cluster)
        if missing := [node for node in nodes if not self.is_there(cluster, node)]:
            raise ScenarioError(
                f"cluster {cluster} has no node {missing[0]} on site at hour {self.now_h:g}"
            )
        return [self._run.shop.hold(index, node, cause, kind) for node in nodes]

    def bring_back(self, held: Sequence[Claim]) -> None:
        """Return nodes to service; nodes that failed meanwhile stay down until repaired."""
        for claim in held:
            self._run.shop.release(claim)

    def order(
        self, cluster: str, nodes: int, lead_h: float = 0.0, price_factor: float = 1.0
    ) -> None:
        """Order nodes; they arrive and are paid after the lead time, and serve once commissioned.

        ``price_factor`` is today's list price against the scenario's; a quote that holds today goes before it.
        """
        if nodes < 1 or lead_h < 0:
            raise ScenarioError(
                f"an order is of one node or more and comes later: {nodes} after {lead_h:g} hours"
            )
        index = self._index(cluster)
        prices = self._run.plan.clusters[index].order_prices_usd(
            self.now_h, int(nodes), price_factor
        )
        self._run.supply.expand(index, int(nodes), self.now_h + lead_h, prices)

    def retire(self, cluster: str, nodes: int) -> int:
        """Retire nodes for good, first in first out; return how many were retired."""
        return self._run.supply.retire(self._index(cluster), nodes)

    def slow(self, cluster: str, speed_fraction: float, hours: float, workload: str = "") -> None:
        """Let a cluster work at a fraction of its speed for some hours, on one workload or on all it serves."""
        self._check(
            0.0 < speed_fraction <= 1.0,
            hours,
            f"{speed_fraction!r} is no fraction of speed above 0",
        )
        index = self._index(cluster)
        loads = self._run.plan.workloads
        which = [self._workload(workload)] if workload else range(len(loads))
        pairs = tuple((index, w) for w in which if index in loads[w].cluster_order)
        number = next(self._run.log.incidents)
        begun_h = self.now_h
        for time_h, factor in (
            (begun_h, math.log(speed_fraction)),
            (begun_h + hours, -math.log(speed_fraction)),
        ):
            event = SoftwareEvent(
                time_h, pairs, (factor,) * len(pairs), "slowed", number, self.name
            )
            self._run.log.software.append(event)

    def curtail(self, cap_kw: float, hours: float) -> None:
        """Limit what the site draws for some hours; those it begins and ends in count as a whole."""
        self._check(0.0 <= cap_kw < math.inf, hours, f"{cap_kw!r} kW is no limit")
        self._affect("curtailment", "", cap_kw, hours)
        self.note(f"site limited to {cap_kw:,.0f} kW for {hours:g} h")

    def add_demand(self, workload: str, requests_per_s: float, hours: float) -> None:
        """Let more requests of a workload come for some hours."""
        self._check(
            0.0 <= requests_per_s < math.inf,
            hours,
            f"{requests_per_s!r} requests/s cannot be added",
        )
        self._workload(workload)
        self._affect("demand", workload, requests_per_s, hours)
        self.note(f"{workload}: {requests_per_s:g} requests/s more for {hours:g} h")

    def reprice(self, account: str, factor: float, hours: float = math.inf) -> None:
        """Multiply what is posted to an account from now on, for some hours or to the end; a month by its hours."""
        if account not in PRICED:
            raise ScenarioError(
                f"no price is of the account {account!r}; {nearest(account, PRICED) or PRICED}"
            )
        self._check(0.0 <= factor < math.inf, hours, f"{factor!r} is no factor of a price")
        self._affect("price", account, factor, hours)
        self.note(
            f"{account} at {factor:g} times its price"
            + (f" for {hours:g} h" if hours < math.inf else "")
        )

    def note(self, text: str, cluster: str = "") -> None:
        """Write a line into ``events.csv``."""
        if cluster:
            self._index(cluster)
        self._run.log.notes.append(Note(self.now_h, self.name, text, cluster))

    def _affect(self, kind: str, target: str, amount: float, hours: float) -> None:
        self._run.log.effects.append(
            Effect(self.now_h, self.now_h + hours, self.name, kind, target, float(amount))
        )

    def _check(self, is_sound: bool, hours: float, message: str) -> None:
        if not (is_sound and hours > 0.0):
            raise ScenarioError(
                message if not is_sound else f"{hours!r} hours from now are no time to come"
            )

    def _workload(self, name: str) -> int:
        names = [workload.name for workload in self._run.plan.workloads]
        if name not in names:
            raise ScenarioError(f"no workload is called {name!r}; {nearest(name, names) or names}")
        return names.index(name)

    def _index(self, cluster: str) -> int:
        if cluster not in self.clusters:
            raise ScenarioError(
                f"no cluster is called {cluster!r}; {nearest(cluster, self.clusters) or self.clusters}"
            )
        return self.clusters.index(cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """State shared by the processes of one run."""

    plan: Plan
    shop: RepairShopProcess
    supply: Supply
    log: ChangeLog
    months: list[MonthFigures]


def name_of(process: Process) -> str:
    """Return a process's name as ``module:function``."""
    return (
        f"{getattr(process, '__module__', '?')}:{getattr(process, '__qualname__', repr(process))}"
    )


def numbered(processes: Sequence[Process]) -> dict[str, Process]:
    """Return processes by name; a repeated name gets a number appended."""
    names = [name_of(process) for process in processes]
    again = [names[: number + 1].count(name) for number, name in enumerate(names)]
    ordered = zip(names, again, processes, strict=True)
    return {name if time == 1 else f"{name}/{time}": process for name, time, process in ordered}


def guarded(process: Process, world: SimulationContext) -> Generator[simpy.Event, Any, None]:
    """Run a process; any exception ends the run as bad input, with the process's name and line."""
    yield world.timeout(0.0)  # after the machines of the first day, which come in the same hour
    try:
        steps = process(world)
        if not isinstance(steps, Generator):
            raise TypeError("is not a process: nothing in it is yielded, such as world.timeout(24)")
        event = next(steps, None)
        while event is not None:
            if not isinstance(event, simpy.Event):
                raise TypeError(
                    f"yielded {event!r}, which is no event to wait for, such as world.timeout(24)"
                )
            happened = yield event
            try:
                event = steps.send(happened)
            except StopIteration:
                return
    except (Exception, SystemExit) as error:
        code = getattr(process, "__code__", None)
        file = getattr(code, "co_filename", None)
        line = getattr(code, "co_firstlineno", None)
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
        ]
        what = str(error) if isinstance(error, PlannerError) else f"{type(error).__name__}: {error}"
        message = f"process {world.name} failed at hour {world.now_h:g}: {what}"
        raise ScenarioError(
            Problem(file=file, line=frames[-1].lineno if frames else line, message=message)
        ) from error


@functools.cache
def load_process(named: ProcessPlan) -> Process:
    """Return the function of a process that a scenario names, from its file or from an installed package."""
    try:
        if not named.file:
            (entry,) = importlib.metadata.entry_points(group=ENTRY_POINTS, name=named.function)
            loaded: Process = entry.load()
        else:
            names: dict[str, Any] = {"__name__": Path(named.file).stem, "__file__": named.file}
            exec(compile(named.source, named.file, "exec"), names)
            loaded = names[named.function]
        if not callable(loaded):
            raise TypeError(f"{named.function} is no function")
    except (Exception, SystemExit) as error:
        name = f"{Path(named.file).stem}:{named.function}".lstrip(":")
        message = f"cannot load the process {name}: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(path="processes", message=message)) from error
    return loaded


Steps = Generator[simpy.Event, Any, None]
_LOOK_AGAIN_H = 30 * HOURS_PER_DAY  # how often the number of domains is counted anew


def stated(plan: ReliabilityPlan) -> dict[str, Process]:
    """Return the processes stated in a plan, by name."""
    processes: dict[str, Process] = {
        f"failure domain {domain.name}": functools.partial(failures_of, domain=domain)
        for domain in plan.domains
        if domain.per_year > 0.0
    }
    if plan.maintenance is not None:
        processes["maintenance"] = functools.partial(windows, work=plan.maintenance)
    if plan.firmware is not None:
        processes["firmware"] = functools.partial(rollouts, work=plan.firmware)
    return processes


def failures_of(world: SimulationContext, domain: DomainPlan) -> Steps:
    """Simulate failure domains: each fails as a Poisson process and is down until a crew has repaired it.

    Waits are exponential, which has no memory, so a wait that is cut short to count the domains anew changes nothing.
    """

    def mend(cluster: str, nodes: Sequence[int]) -> Steps:
        held = world.take_out(cluster, nodes, domain.name, DOMAIN)
        yield world.crews.take()
        for claim in held:
            claim.begin_h = world.now_h
        yield world.timeout(domain.repair_h)
        world.crews.give()
        world.bring_back(held)

    def fail(cluster: str, draw: np.random.Generator) -> Steps:
        while True:
            places = sorted({node // domain.nodes for node in world.nodes(cluster)})
            wait_h = draw.exponential(HOURS_PER_YEAR / (domain.per_year * max(len(places), 1)))
            yield world.timeout(min(wait_h, _LOOK_AGAIN_H))
            if wait_h <= _LOOK_AGAIN_H and places:
                place = places[int(draw.integers(len(places)))]
                nodes = [node for node in world.nodes(cluster) if node // domain.nodes == place]
                world.env.process(mend(cluster, nodes))

    yield simpy.AllOf(
        world.env, [world.env.process(fail(c, world.random_of[c])) for c in world.on_site]
    )


def windows(world: SimulationContext, work: PlannedWork, reserve: int | None = None) -> Steps:
    """Simulate maintenance windows that drain a Poisson number of nodes on site, within the reserve."""
    while True:
        yield world.timeout(work.every_h)
        for cluster in world.on_site:
            nodes = world.nodes(cluster)
            draw = world.random_of[cluster]
            count = min(int(draw.poisson(work.nodes_fraction * len(nodes))), len(nodes))
            chosen = sorted(draw.choice(nodes, count, replace=False).tolist()) if count else []
            world.env.process(_drain(world, cluster, chosen, "maintenance", work.length_h, reserve))


def rollouts(
    world: SimulationContext, work: PlannedWork, reserve: int | None = None, cause: str = "firmware"
) -> Steps:
    """Simulate rollouts that drain every node on site once per round, never more of a cluster than its reserve.

    Rounds begin one interval apart, the first after one interval; one that takes longer puts off the next.
    """
    number = 0
    while True:
        number += 1
        yield world.timeout(max(0.0, number * work.every_h - world.now_h))
        begun_h = world.now_h
        drains = [
            _drain(world, name, world.nodes(name), cause, work.length_h, reserve)
            for name in world.on_site
        ]
        yield simpy.AllOf(world.env, [world.env.process(drain) for drain in drains])
        world.note(f"round {number} done after {(world.now_h - begun_h) / HOURS_PER_DAY:.1f} days")


def _drain(
    world: SimulationContext,
    cluster: str,
    nodes: Sequence[int],
    cause: str,
    length_h: float,
    reserve: int | None,
) -> Steps:
    """Drain nodes one by one, each when fewer nodes than the reserve are down."""
    at_work = []
    for node in nodes:
        yield from world.within_reserve(cluster, reserve)
        if world.is_there(cluster, node):  # it may have been retired meanwhile
            at_work.append(
                world.env.process(
                    _finish(world, world.take_out(cluster, [node], cause, PLANNED), length_h)
                )
            )
    yield simpy.AllOf(world.env, at_work)


def _finish(world: SimulationContext, held: Sequence[Claim], length_h: float) -> Steps:
    yield world.timeout(length_h)
    world.bring_back(held)


def site_outages(env: simpy.Environment, plan: Plan, log: ChangeLog, streams: Streams) -> Steps:
    """Let the whole site lose power now and then, each time for an exponential while; a provider's machines keep on."""
    draw = streams("site/outages")
    if plan.site.outages_per_year <= 0:
        return
    while True:
        yield env.timeout(draw.exponential(HOURS_PER_YEAR / plan.site.outages_per_year))
        length_h = draw.exponential(plan.site.outage_h)
        log.site.append(SiteEvent(float(env.now), float(env.now) + length_h))
        yield env.timeout(length_h)
