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
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from planner.engine.log import ChangeLog, Effect, Note, SiteEvent, SoftwareEvent, Streams
from planner.engine.repair_shop import DOMAIN, PLANNED, Claim, Pool, RepairShop
from planner.engine.review import MonthFigures
from planner.engine.supply import Supply
from planner.errors import PlannerError, Problem, ScenarioError
from planner.finance.accounts import Account
from planner.plan.plan import Plan, ProcessPlan
from planner.plan.reliability import DomainPlan, PlannedWork, ReliabilityPlan
from planner.records import record
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR
from planner.validation import nearest

Process = Callable[["SimulationContext"], Generator[simpy.Event, Any, Any]]
PRICED = tuple(str(account) for account in Account if account.is_repriced)
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
        clusters = run.plan.clusters
        self.clusters = tuple(cluster.name for cluster in clusters)
        """Names of the clusters."""
        self.on_site = tuple(cluster.name for cluster in clusters if not cluster.is_hosted)
        """Names of those whose machines stand at the site, and not at a provider's."""
        self.random_of: dict[str, np.random.Generator] = {}
        """By cluster, random numbers of this process and that cluster alone."""
        for cluster, key in zip(self.clusters, run.supply.keys, strict=True):
            self.random_of[cluster] = streams(f"process/{name}/{key}")
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
        months = self._run.months
        return months[-1] if months else None

    @property
    def crews(self) -> Pool:
        """The repair crews: ``yield world.crews.take()`` waits for one, ``world.crews.give()`` releases it."""
        return self._run.shop.crews

    def spare(self, cluster: str) -> simpy.Event:
        """Return an event that fires when a cluster's spare part is available; a replacement is ordered at once."""
        index = self._index(cluster)
        return self._run.shop.take_spare(index)

    def timeout(self, hours: float) -> simpy.Event:
        """Return an event that fires after some hours."""
        return self.env.timeout(hours)

    def nodes(self, cluster: str) -> list[int]:
        """Return the nodes of a cluster on site, in service or not."""
        index = self._index(cluster)
        return self._run.shop.nodes(index)

    def nodes_up(self, cluster: str) -> list[int]:
        """Return the nodes of a cluster with no accelerator down."""
        index = self._index(cluster)
        return self._run.shop.up(index)

    def is_there(self, cluster: str, node: int) -> bool:
        """Say whether a node of a cluster is on site, in service or not."""
        index = self._index(cluster)
        return self._run.shop.is_there(index, node)

    def within_reserve(
        self, cluster: str, reserve: int | None = None
    ) -> Generator[simpy.Event, Any, None]:
        """Wait until fewer nodes of a cluster are down than its reserve, as planned work does: ``yield from`` it."""
        index = self._index(cluster)
        shop = self._run.shop
        plan = self._run.plan.reliability
        # Asked again with each node that comes back: the reserve grows with the nodes on site.
        while True:
            most_down = plan.reserve(shop.count(index)) if reserve is None else reserve
            if len(shop.claims[index]) < most_down:
                return
            yield shop.node_back[index]

    def take_out(
        self, cluster: str, nodes: Sequence[int], cause: str, kind: str = ""
    ) -> list[Claim]:
        """Take nodes out of service, also if already down; pass the result to :meth:`bring_back`."""
        index = self._index(cluster)
        # Refused as a whole: none is taken out where one is missing.
        missing = [node for node in nodes if not self.is_there(cluster, node)]
        if missing:
            raise ScenarioError(
                f"cluster {cluster} has no node {missing[0]} on site at hour {self.now_h:g}"
            )
        shop = self._run.shop
        return [shop.hold(index, node, cause, kind) for node in nodes]

    def bring_back(self, claims: Sequence[Claim]) -> None:
        """Return nodes to service; nodes that failed meanwhile stay down until repaired."""
        for claim in claims:
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
        cluster_plan = self._run.plan.clusters[index]
        # The price is fixed now, whatever prices are when it comes.
        prices = cluster_plan.order_prices_usd(self.now_h, int(nodes), price_factor)
        placed_h = self.now_h
        self._run.supply.expand(index, int(nodes), placed_h, placed_h + lead_h, prices)

    def retire(self, cluster: str, nodes: int) -> int:
        """Retire nodes for good, first in first out; return how many were retired."""
        index = self._index(cluster)
        return self._run.supply.retire(index, nodes)

    def slow(self, cluster: str, speed_fraction: float, hours: float, workload: str = "") -> None:
        """Let a cluster work at a fraction of its speed for some hours, on one workload or on all it serves."""
        message = f"{speed_fraction!r} is not a fraction of speed above 0"
        self._check(0.0 < speed_fraction <= 1.0, hours, message)
        index = self._index(cluster)
        loads = self._run.plan.workloads
        chosen: Sequence[int] = range(len(loads))
        if workload:
            chosen = [self._workload(workload)]
        pairs = tuple((index, w) for w in chosen if index in loads[w].cluster_order)
        number = next(self._run.log.incidents)
        log_factor = math.log(speed_fraction)
        # Its end is logged with its begin: the log takes events ahead of their time.
        for time_h, sign in ((self.now_h, 1.0), (self.now_h + hours, -1.0)):
            log_factors = (sign * log_factor,) * len(pairs)
            event = SoftwareEvent(time_h, pairs, log_factors, "slowed", number, self.name)
            self._run.log.software.append(event)

    def curtail(self, cap_kw: float, hours: float) -> None:
        """Limit what the site draws for some hours; those it begins and ends in count as a whole."""
        message = f"{cap_kw!r} kW is not a limit"
        self._check(0.0 <= cap_kw < math.inf, hours, message)
        self._affect("curtailment", "", cap_kw, hours)
        self.note(f"site limited to {cap_kw:,.0f} kW for {hours:g} h")

    def add_demand(self, workload: str, requests_per_s: float, hours: float) -> None:
        """Let more requests of a workload come for some hours."""
        message = f"{requests_per_s!r} requests/s cannot be added"
        self._check(0.0 <= requests_per_s < math.inf, hours, message)
        self._workload(workload)
        self._affect("demand", workload, requests_per_s, hours)
        self.note(f"{workload}: {requests_per_s:g} requests/s more for {hours:g} h")

    def reprice(self, account: str, factor: float, hours: float = math.inf) -> None:
        """Multiply what is posted to an account from now on, for some hours or to the end; a month by its hours."""
        if account not in PRICED:
            raise ScenarioError(
                f"no price is of the account {account!r}; {nearest(account, PRICED) or PRICED}"
            )
        message = f"{factor!r} is not a factor of a price"
        self._check(0.0 <= factor < math.inf, hours, message)
        self._affect("price", account, factor, hours)
        duration = f" for {hours:g} h" if hours < math.inf else ""
        self.note(f"{account} at {factor:g} times its price{duration}")

    def note(self, text: str, cluster: str = "") -> None:
        """Write a line into ``events.csv``."""
        if cluster:
            self._index(cluster)
        note = Note(self.now_h, self.name, text, cluster)
        self._run.log.notes.append(note)

    def _affect(self, kind: str, target: str, amount: float, hours: float) -> None:
        end_h = self.now_h + hours
        effect = Effect(self.now_h, end_h, self.name, kind, target, float(amount))
        self._run.log.effects.append(effect)

    def _check(self, is_sound: bool, hours: float, message: str) -> None:
        if not is_sound:
            raise ScenarioError(message)
        if not hours > 0.0:  # NaN is none either
            raise ScenarioError(f"{hours!r} hours from now is not in the future")

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


@record
class RunContext:
    """State shared by the processes of one run."""

    plan: Plan
    shop: RepairShop
    supply: Supply
    log: ChangeLog
    months: list[MonthFigures]


def name_of(process: Process) -> str:
    """Return a process's name as ``module:function``."""
    module = getattr(process, "__module__", "?")
    function = getattr(process, "__qualname__", repr(process))
    return f"{module}:{function}"


def numbered(processes: Sequence[Process]) -> dict[str, Process]:
    """Return processes by name; a repeated name gets a number appended."""
    by_name: dict[str, Process] = {}
    # The number is part of the name, and so of the stream: two of one function draw different numbers.
    uses: Counter[str] = Counter()
    for process in processes:
        name = name_of(process)
        uses[name] += 1
        if uses[name] > 1:
            name = f"{name}/{uses[name]}"
        by_name[name] = process
    return by_name


def guarded(process: Process, world: SimulationContext) -> Generator[simpy.Event, Any, None]:
    """Run a process; any exception ends the run as bad input, with the process's name and line."""
    # After the machines of the first day, which come in the same hour.
    yield world.timeout(0.0)
    try:
        steps = process(world)
        if not isinstance(steps, Generator):
            raise TypeError("is not a process: nothing in it is yielded, such as world.timeout(24)")
        # Driven by hand and not by SimPy, so that an exception has the process's name and line.
        event = next(steps, None)
        while event is not None:
            if not isinstance(event, simpy.Event):
                raise TypeError(
                    f"yielded {event!r}, which is not an event to wait for, such as world.timeout(24)"
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
        # The innermost line of the process's own file: a library's would tell the user nothing.
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == file:
                line = frame.lineno
        reason = str(error)
        if not isinstance(error, PlannerError):
            reason = f"{type(error).__name__}: {error}"
        message = f"process {world.name} failed at hour {world.now_h:g}: {reason}"
        raise ScenarioError(Problem(file=file, line=line, message=message)) from error


@functools.cache
def load_process(named: ProcessPlan) -> Process:
    """Return the function of a process that a scenario names, from its file or from an installed package."""
    try:
        if not named.file:
            (entry,) = importlib.metadata.entry_points(group=ENTRY_POINTS, name=named.function)
            loaded: Process = entry.load()
        else:
            names: dict[str, Any] = {"__name__": Path(named.file).stem, "__file__": named.file}
            code = compile(named.source, named.file, "exec")
            exec(code, names)
            loaded = names[named.function]
        if not callable(loaded):
            raise TypeError(f"{named.function} is not a function")
    # A file that calls exit() when it is imported must not end the program.
    except (Exception, SystemExit) as error:
        name = f"{Path(named.file).stem}:{named.function}".lstrip(":")
        message = f"cannot load the process {name}: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(path="processes", message=message)) from error
    return loaded


Steps = Generator[simpy.Event, Any, None]
_RECOUNT_H = 30 * HOURS_PER_DAY
"""How often the number of domains is counted anew."""


def stated(plan: ReliabilityPlan) -> dict[str, Process]:
    """Return the processes stated in a plan, by name."""
    processes: dict[str, Process] = {}
    for domain in plan.domains:
        if domain.per_year > 0.0:
            process = functools.partial(failures_of, domain=domain)
            processes[f"failure domain {domain.name}"] = process
    if plan.maintenance is not None:
        processes["maintenance"] = functools.partial(windows, work=plan.maintenance)
    if plan.firmware is not None:
        processes["firmware"] = functools.partial(rollouts, work=plan.firmware)
    return processes


def failures_of(world: SimulationContext, domain: DomainPlan) -> Steps:
    """Simulate failure domains: each fails as a Poisson process and is down until a crew has repaired it.

    Waits are exponential, which has no memory, so a wait that is cut short to count the domains anew changes nothing.
    """

    def repair(cluster: str, nodes: Sequence[int]) -> Steps:
        claims = world.take_out(cluster, nodes, domain.name, DOMAIN)
        yield world.crews.take()
        for claim in claims:
            claim.begin_h = world.now_h
        yield world.timeout(domain.repair_h)
        world.crews.give()
        world.bring_back(claims)

    def fail(cluster: str, draw: np.random.Generator) -> Steps:
        while True:
            # Counted at each turn: nodes come and leave, and with them domains.
            numbers = sorted({node // domain.nodes for node in world.nodes(cluster)})
            # Without a domain yet the wait is that of one, and nothing fails at its end.
            failures_per_year = domain.per_year * max(len(numbers), 1)
            wait_h = draw.exponential(HOURS_PER_YEAR / failures_per_year)
            yield world.timeout(min(wait_h, _RECOUNT_H))
            if wait_h <= _RECOUNT_H and numbers:
                number = numbers[int(draw.integers(len(numbers)))]
                # Those on site now: some may have come or left while it waited.
                nodes = world.nodes(cluster)
                hit_nodes = [node for node in nodes if node // domain.nodes == number]
                world.env.process(repair(cluster, hit_nodes))

    clusters = [world.env.process(fail(c, world.random_of[c])) for c in world.on_site]
    yield simpy.AllOf(world.env, clusters)


def windows(world: SimulationContext, work: PlannedWork, reserve: int | None = None) -> Steps:
    """Simulate maintenance windows that drain a Poisson number of nodes on site, within the reserve."""
    while True:
        yield world.timeout(work.every_h)
        for cluster in world.on_site:
            nodes = world.nodes(cluster)
            draw = world.random_of[cluster]
            expected = work.nodes_fraction * len(nodes)
            node_count = int(draw.poisson(expected))
            count = min(node_count, len(nodes))
            chosen = []
            if count:
                drawn_nodes = draw.choice(nodes, count, replace=False)
                chosen = sorted(drawn_nodes.tolist())
            drain = _drain(world, cluster, chosen, "maintenance", work.length_h, reserve)
            world.env.process(drain)


def rollouts(
    world: SimulationContext, work: PlannedWork, reserve: int | None = None, cause: str = "firmware"
) -> Steps:
    """Simulate rollouts that drain every node on site once per round, never more of a cluster than its reserve.

    Rounds begin one interval apart, the first after one interval; one that takes longer puts off the next.
    """
    number = 0
    while True:
        number += 1
        # From the start and not from the last round: rounds keep their dates.
        begin_h = number * work.every_h
        yield world.timeout(max(0.0, begin_h - world.now_h))
        begun_h = world.now_h
        drains = []
        for name in world.on_site:
            nodes = world.nodes(name)
            drain = _drain(world, name, nodes, cause, work.length_h, reserve)
            drains.append(world.env.process(drain))
        yield simpy.AllOf(world.env, drains)
        days = (world.now_h - begun_h) / HOURS_PER_DAY
        world.note(f"round {number} done after {days:.1f} days")


def _drain(
    world: SimulationContext,
    cluster: str,
    nodes: Sequence[int],
    cause: str,
    length_h: float,
    reserve: int | None,
) -> Steps:
    """Drain nodes one by one, each when fewer nodes than the reserve are down."""

    def finish(claims: Sequence[Claim]) -> Steps:
        yield world.timeout(length_h)
        world.bring_back(claims)

    at_work = []
    for node in nodes:
        yield from world.within_reserve(cluster, reserve)
        if world.is_there(cluster, node):  # it may have been retired meanwhile
            # Taken out here and not in the process, which begins later: the next node must find it down.
            claims = world.take_out(cluster, [node], cause, PLANNED)
            at_work.append(world.env.process(finish(claims)))
    yield simpy.AllOf(world.env, at_work)


def site_outages(env: simpy.Environment, plan: Plan, log: ChangeLog, streams: Streams) -> Steps:
    """Let the whole site lose power now and then, each time for an exponential while; a provider's machines keep on."""
    draw = streams("site/outages")
    if plan.site.outages_per_year <= 0:
        return
    mean_gap_h = HOURS_PER_YEAR / plan.site.outages_per_year
    while True:
        yield env.timeout(draw.exponential(mean_gap_h))
        # Logged with its end, which is known now; the next cannot begin before it is over.
        length_h = draw.exponential(plan.site.outage_h)
        begin_h = float(env.now)
        log.site.append(SiteEvent(begin_h, begin_h + length_h))
        yield env.timeout(length_h)
