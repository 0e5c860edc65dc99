"""The repair shop: crews shared by all clusters, spare parts per cluster, and the outages of accelerators.

It works first come, first served with crews that take one node each; a hard fault also needs a part, which may have to
come back from RMA. Another process may take a crew or a part in between, or take nodes out of service itself.

Failures, repairs and deliveries of parts are on an agenda of the shop's own, by date. The shop works through it up to
the next event of the simulation's clock, and what wakes another process becomes such an event. So all happens in the
order of time, and a failure takes half as long as with events for each of its steps: 25,600 nodes have 128,000 of them.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.engine.failures import HARD, MEDIUM, SEVERITIES, SOFT, Failures
from planner.engine.log import Outage
from planner.plan.plan import ClusterPlan
from planner.plan.reliability import ReliabilityPlan

Steps = Generator[simpy.Event, Any, None]
DOMAIN = "domain"
"""What stands for the severity of a repair where a failure domain failed."""
PLANNED = "planned"
"""What stands for the severity of a repair where nodes are drained for planned work."""
_NEVER = float("inf")
"""The end of an outage that is still open."""


@dataclass(eq=False, slots=True)
class Claim:
    """A cause of downtime for groups of accelerators: a failure until repaired, or a process until done."""

    cause: str
    severity: str
    """Of a failure's repair; :data:`DOMAIN`, :data:`PLANNED`, or empty for what a process took out."""
    cluster: int
    node: int
    groups: range
    """The groups of the node's accelerators that it keeps down."""
    begin_h: float | None = None
    """When its repair began; None while it waits."""
    outages: list[OutageRow] = field(default_factory=list)
    """Open outages that are put down to it: of the groups that it was the first to keep down."""
    repair_h: float = 0.0
    pools: tuple[Pool, ...] = ()
    """What its repair needs, in this order: a part, a crew."""
    turn: simpy.Event | None = None
    """The crew or part that it waits for."""
    is_over: bool = False


@dataclass(eq=False, slots=True)
class OutageRow:
    """Groups of accelerators that went down together, and the claim that is the cause."""

    claim: Claim
    start_h: float
    end_h: float
    """Infinity while it is open."""
    groups: Sequence[int]
    """Their numbers on the node."""


class Pool:
    """A pool of crews or parts: ``yield pool.take()`` waits in turn, ``pool.give()`` returns one."""

    def __init__(self, env: simpy.Environment, free: int) -> None:
        self.env = env
        self.free = free
        self.leaving = 0
        """How many of those at work go for good when they are done."""
        self.waiting: deque[simpy.Event] = deque()

    def take(self) -> simpy.Event:
        """Return an event that fires when one is free and taken; its value is the hour."""
        turn = self.env.event()
        if self.free:
            self.free -= 1
            turn.succeed(float(self.env.now))
        else:
            self.waiting.append(turn)
        return turn

    def give(self, hour: float | None = None) -> None:
        """Pass one to the longest-waiting request, or return it to the pool.

        ``hour`` is the current one to the last bit: the clock adds up delays, and is off by a rounding.
        """
        if self.leaving:
            self.leaving -= 1
        elif self.waiting:
            turn = self.waiting.popleft()
            if hour is None:
                hour = float(self.env.now)
            succeed_at(self.env, turn, hour)
        else:
            self.free += 1

    def leave(self, count: int) -> None:
        """Remove some for good: free ones now, others when they are returned."""
        idle = min(count, self.free)
        self.free -= idle
        self.leaving += count - idle


def succeed_at(env: simpy.Environment, event: simpy.Event, hour: float) -> None:
    """Let an event happen at an hour that the clock may not have reached yet; its value is the hour."""

    def succeed(_: simpy.Event) -> None:
        event.succeed(hour)

    _wake_at(env, hour, succeed)


def _wake_at(env: simpy.Environment, hour: float, wake: Callable[[simpy.Event], None]) -> None:
    """Call something with an event whose value is the hour, as soon as the clock is there."""
    # The clock may be past the hour by a rounding.
    delay_h = max(0.0, hour - env.now)
    timeout = env.timeout(delay_h, hour)
    assert timeout.callbacks is not None  # it has not happened yet
    timeout.callbacks.append(wake)


@dataclass(eq=False, slots=True, kw_only=True)
class _Expected:
    """The failures to come of nodes that entered a cluster together."""

    cluster: int
    rows: Iterator[tuple[float, int, int, int, int, float]]
    """Time, node, group, cause, severity and repair time, by time."""
    groups: range
    """Of accelerators on each node."""
    pools: dict[int, tuple[Pool, ...]]
    """What a repair needs, in this order, by severity."""


class RepairShop:
    """Crews and parts, the claims on nodes that are down, and the record of every outage and broken part."""

    def __init__(
        self, env: simpy.Environment, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]
    ) -> None:
        self.env = env
        self.plan = plan
        self.clusters = clusters
        self.causes = [cause.name for cause in plan.causes]
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        """A heap of what the shop has to do: when, in which order of two at once, what, and with what."""
        self._numbers = itertools.count()
        self._woken_h = _NEVER
        """When it is next woken to work through its agenda."""
        self.crews = Pool(env, plan.crews.fixed)
        self.spares = [Pool(env, plan.spares.fixed) for _ in clusters]
        self.on_site = [0] * len(clusters)
        """Nodes of each cluster that are there, or known to be on their way into service."""
        self.retired = [0] * len(clusters)
        """Nodes that have left for good: those with the lowest numbers."""
        self.service_h: list[list[float]] = [[] for _ in clusters]
        """When each node of a cluster enters service."""
        self.entered_h: list[list[float]] = [[] for _ in clusters]
        """The same in rising order."""
        self.claims: list[dict[int, list[Claim]]] = [{} for _ in clusters]
        """By cluster and node that is down, who keeps it or a part of it down, in the order in which they came."""
        self.node_back = [env.event() for _ in clusters]
        """What happens when the next node of a cluster comes back."""
        self.rows: list[OutageRow] = []
        self.broken: list[tuple[float, int, int]] = []
        """When a part broke, in which cluster and node."""

    @property
    def accelerators(self) -> int:
        """Accelerators on site; hosted machines are repaired by their provider."""
        total = 0
        for count, cluster in zip(self.on_site, self.clusters, strict=True):
            if not cluster.is_hosted:
                total += count * cluster.accelerators_per_node
        return total

    def admit(self, cluster: int, service_h: Floats) -> int:
        """Add nodes of a cluster that enter service at rising times; return the index of the first.

        Each further crew and spare part comes with the node that makes one more needed.
        """
        first_node = len(self.service_h[cluster])
        nodes = self.on_site[cluster]
        accelerators = self.accelerators
        size = self.clusters[cluster].accelerators_per_node
        # A provider's machines need no crew of the site's.
        repaired_here = 0 if self.clusters[cluster].is_hosted else size

        def crews(added_nodes: int) -> int:
            repaired = accelerators + added_nodes * repaired_here
            return self.plan.crews.number(repaired)

        def spares(added_nodes: int) -> int:
            all_nodes = nodes + added_nodes
            return self.plan.spares.number(all_nodes * size, all_nodes)

        self._staff(self.crews, crews, service_h)
        self._staff(self.spares[cluster], spares, service_h)
        self.on_site[cluster] += service_h.size
        self.service_h[cluster] += service_h.tolist()
        self.entered_h[cluster] = sorted(self.service_h[cluster])
        return first_node

    def _staff(self, pool: Pool, needed: Callable[[int], int], service_h: Floats) -> None:
        """Add to a pool what is needed with so many more nodes, each as they enter service."""
        staff = needed(0)
        full_staff = needed(service_h.size)
        for count in range(staff + 1, full_staff + 1):
            # Needs rise with nodes, so the node is found by halving: a few steps for each of thousands of nodes.
            nodes = range(1, service_h.size)
            node = bisect_left(nodes, count, key=needed)
            self._give_at(pool, float(service_h[node]))

    def _give_at(self, pool: Pool, hour: float) -> None:
        """Add a crew or a part to a pool at an hour, which may have passed."""
        if hour <= self.env.now:
            pool.give()
        else:
            self._call_at(hour, pool.give, hour)

    def _call_at(self, hour: float, action: Callable[..., None], *arguments: object) -> None:
        """Do something at an hour to come."""
        heapq.heappush(self._agenda, (hour, next(self._numbers), action, arguments))
        if hour < self._woken_h:
            self._woken_h = hour
            _wake_at(self.env, hour, self._work)

    def _work(self, woken: simpy.Event) -> None:
        """Work through the agenda as far as nothing else happens in between."""
        if woken.value != self._woken_h:
            return  # it has been woken earlier since, and will be again
        # Nothing that is added meanwhile needs to wake the shop.
        self._woken_h = -_NEVER
        agenda = self._agenda
        # The clock may be short of the hour of this waking by a rounding.
        due_h = max(woken.value, self.env.now)
        while agenda and (agenda[0][0] <= due_h or agenda[0][0] < self.env.peek()):
            _, _, action, arguments = heapq.heappop(agenda)
            action(*arguments)
        self._woken_h = _NEVER
        if agenda:
            self._woken_h = agenda[0][0]
            _wake_at(self.env, self._woken_h, self._work)

    def expect(self, cluster: int, failures: Failures) -> None:
        """Schedule the failures drawn for nodes of a cluster."""
        # Stable: of two at the same moment the one drawn first fails first.
        order = np.argsort(failures.time_h, kind="stable")
        by_time = failures.where(order)
        # A provider mends its machines itself: they wait for no crew and no part of the site's.
        pools: dict[int, tuple[Pool, ...]] = {SOFT: (), MEDIUM: (), HARD: ()}
        if not self.clusters[cluster].is_hosted:
            pools[MEDIUM] = (self.crews,)
            pools[HARD] = (self.spares[cluster], self.crews)
        expected = _Expected(
            cluster=cluster,
            rows=iter(by_time.rows()),
            groups=self._groups(cluster),
            pools=pools,
        )
        self._expect_next(expected)

    def _expect_next(self, expected: _Expected) -> None:
        """Put the next failure of some nodes on the agenda, if there is one."""
        row = next(expected.rows, None)
        if row is not None:
            self._call_at(row[0], self._fail, expected, row)

    def _fail(self, expected: _Expected, row: tuple[float, int, int, int, int, float]) -> None:
        """Let a node fail, and start its repair."""
        self._expect_next(expected)
        time_h, node, group, cause, severity, repair_h = row
        cluster = expected.cluster
        groups = expected.groups if group < 0 else range(group, group + 1)
        is_gone = node < self.retired[cluster]
        if is_gone or self._is_down(cluster, node, groups):
            return  # what is down cannot fail again
        claim = Claim(self.causes[cause], SEVERITIES[severity], cluster, node, groups)
        claim.repair_h = repair_h
        claim.pools = expected.pools[severity]
        self._claim(claim, time_h)
        if severity == HARD:
            self.broken.append((time_h, cluster, node))
            if claim.pools:
                self._order_part(cluster, time_h)
        # Nearly every repair finds all it needs at once.
        if all(pool.free for pool in claim.pools):
            for pool in claim.pools:
                pool.free -= 1
            self._begin(claim, time_h)
        else:
            self.env.process(self._wait(claim, time_h))

    def _wait(self, claim: Claim, hour: float) -> Steps:
        """Wait in turn for a part and then for a crew, so that no crew waits for a part; then begin the repair."""
        for pool in claim.pools:
            if pool.free:
                pool.free -= 1
            else:
                claim.turn = pool.take()
                hour = yield claim.turn
        self._begin(claim, hour)

    def _begin(self, claim: Claim, hour: float) -> None:
        """Begin a repair, whose end is known then."""
        claim.begin_h = hour
        back_h = hour + claim.repair_h
        self._call_at(back_h, self._end, claim, back_h)

    def _end(self, claim: Claim, hour: float) -> None:
        """End a repair: its crew is free for the next, and its node is back."""
        if claim.pools:
            self.crews.give(hour)
        self._release(claim, hour)

    def take_spare(self, cluster: int) -> simpy.Event:
        """Return an event that fires when a part is available; a replacement is ordered at once."""
        self._order_part(cluster, float(self.env.now))
        return self.spares[cluster].take()

    def _order_part(self, cluster: int, hour: float) -> None:
        arrival_h = hour + self.plan.rma_h
        self._give_at(self.spares[cluster], arrival_h)

    def _groups(self, cluster: int) -> range:
        """Return the groups of accelerators on each node of a cluster."""
        machine = self.clusters[cluster]
        groups = machine.accelerators_per_node // machine.group_accelerators
        return range(groups)

    def _is_down(self, cluster: int, node: int, groups: range) -> bool:
        """Return whether a node is down as a whole, or each of some groups of it is."""
        claims = self.claims[cluster].get(node)
        if claims is None:
            return False
        whole_node = self._groups(cluster)
        if any(claim.groups == whole_node for claim in claims):
            return True
        return all(_first_claim(claims, group) for group in groups)

    def _claim(self, claim: Claim, hour: float) -> None:
        """Add a claim to a node; outages of groups that others keep down are put down to those."""
        by_node = self.claims[claim.cluster]
        claims = by_node.setdefault(claim.node, [])
        groups: Sequence[int] = claim.groups
        if claims:
            groups = [group for group in groups if _first_claim(claims, group) is None]
        # Those it does not own now may pass to it when an earlier claim ends.
        claims.append(claim)
        if groups:
            self._open(claim, groups, hour)

    def _open(self, claim: Claim, groups: Sequence[int], hour: float) -> None:
        row = OutageRow(claim, hour, _NEVER, groups)
        claim.outages.append(row)
        self.rows.append(row)

    def _release(self, claim: Claim, hour: float) -> None:
        """End a claim on a node; each of its groups returns to service, or its outage passes to the next claim."""
        if claim.is_over:
            return  # its node has left for good
        claim.is_over = True
        claims_by_node = self.claims[claim.cluster]
        claims = claims_by_node[claim.node]
        claims.remove(claim)
        for outage in claim.outages:
            outage.end_h = hour
            if not claims:
                continue
            # Who came next keeps the group down, and its outage begins now.
            for group in outage.groups:
                heir = _first_claim(claims, group)
                if heir is not None:
                    self._open(heir, [group], hour)
        if not claims:
            del claims_by_node[claim.node]
            back = self.node_back[claim.cluster]
            if back.callbacks:  # somebody waits for it
                self.node_back[claim.cluster] = self.env.event()
                succeed_at(self.env, back, hour)

    def hold(self, cluster: int, node: int, cause: str, severity: str = "") -> Claim:
        """Take a node out of service until :meth:`release`; it does not fail meanwhile."""
        now_h = float(self.env.now)
        groups = self._groups(cluster)
        claim = Claim(cause, severity, cluster, node, groups, now_h)
        self._claim(claim, now_h)
        return claim

    def release(self, claim: Claim) -> None:
        """Return a node to service; one that also failed stays down until it is repaired."""
        self._release(claim, float(self.env.now))

    def drop(self, cluster: int, count: int) -> None:
        """Let the nodes with the lowest numbers retire: their outages end, they wait for nothing, and crews leave."""
        crews_needed = self.plan.crews.number(self.accelerators)
        self.on_site[cluster] -= count
        # At least one stays: without any, what is down would never come back.
        crews_still_needed = self.plan.crews.number(self.accelerators)
        crews_left = max(1, crews_still_needed)
        self.crews.leave(crews_needed - crews_left)
        first_node = self.retired[cluster]
        self.retired[cluster] += count
        for node in range(first_node, first_node + count):
            # A copy: each release takes its claim off the list.
            claims = [*self.claims[cluster].get(node, ())]
            for claim in claims:
                for pool in (self.crews, self.spares[cluster]):
                    if claim.turn in pool.waiting:
                        pool.waiting.remove(claim.turn)
                self.release(claim)

    def nodes(self, cluster: int) -> list[int]:
        """Return the nodes of a cluster that have entered service and are not retired, down or not."""
        service_h = self.service_h[cluster]
        nodes = range(self.retired[cluster], len(service_h))
        return [node for node in nodes if service_h[node] <= self.env.now]

    def count(self, cluster: int) -> int:
        """Return the number of nodes of a cluster on site, down or not."""
        entered = bisect_right(self.entered_h[cluster], self.env.now)
        return entered - self.retired[cluster]

    def is_there(self, cluster: int, node: int) -> bool:
        """Return whether a node of a cluster is on site."""
        service_h = self.service_h[cluster]
        is_numbered = self.retired[cluster] <= node < len(service_h)
        return is_numbered and service_h[node] <= self.env.now

    def up(self, cluster: int) -> list[int]:
        """Return the nodes of a cluster with no accelerator down."""
        claims = self.claims[cluster]
        return [node for node in self.nodes(cluster) if node not in claims]

    def hard_failures(self) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return time, cluster and node of each broken part."""
        times = [time_h for time_h, _, _ in self.broken]
        clusters = [cluster for _, cluster, _ in self.broken]
        nodes = [node for _, _, node in self.broken]
        return (
            np.array(times, dtype=np.float64),
            np.array(clusters, dtype=np.int64),
            np.array(nodes, dtype=np.int64),
        )

    def outages(self) -> list[Outage]:
        """Return every outage with its cause, with the groups of one claim combined."""
        groups_by_outage: Counter[tuple[Claim, float, float]] = Counter()
        for row in self.rows:
            # Groups of one claim that went down at once and came back at once are one outage.
            groups_by_outage[row.claim, row.start_h, row.end_h] += len(row.groups)
        outages = []
        for (claim, start_h, end_h), groups in groups_by_outage.items():
            cluster = self.clusters[claim.cluster]
            retired_h = min(end_h, cluster.retire_h)
            # Some would have begun after the cluster was gone.
            if start_h >= retired_h:
                continue
            begin_h = claim.begin_h
            if begin_h is None:
                # It still waits: to this day, or to the end of its outage.
                begin_h = min(end_h, float(self.env.now))
            outage = Outage(
                start_h=start_h,
                end_h=retired_h,
                cluster=claim.cluster,
                node=claim.node,
                accelerators=groups * cluster.group_accelerators,
                cause=claim.cause,
                severity=claim.severity,
                wait_h=max(begin_h - start_h, 0.0),
            )
            outages.append(outage)
        return outages


def _first_claim(claims: Sequence[Claim], group: int) -> Claim | None:
    """Return the first claim that keeps a group of a node's accelerators down."""
    holders = (claim for claim in claims if group in claim.groups)
    return next(holders, None)
