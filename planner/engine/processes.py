"""A user's own SimPy processes: what they see of a run, how they change it, and where they come from.

A process is a generator function of a :class:`World`; ``planner.simulate(scenario, processes=[f])`` and ``planner run
--process module:function`` start it with the run's clock at hour 0.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from planner.engine.expansion import MonthFigures
from planner.engine.log import ChangeLog, Note
from planner.engine.open_shop import Claim, OpenShop, Pool
from planner.engine.supply import Supply
from planner.errors import PlannerError, Problem, ScenarioError
from planner.plan.plan import Plan
from planner.validation import nearest

Process = Callable[["World"], Generator[simpy.Event, Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the last finished month went."""

    utilisation: Mapping[str, float]
    """By cluster; 0 where none is in service."""
    shed_fraction: float
    """Tokens shed over tokens asked for."""
    missed_fraction: float
    """Requests late or shed over those settled."""


class World:
    """A run in progress, as a process sees it. Times are hours since the start, nodes numbers within their cluster."""

    def __init__(self, env: simpy.Environment, name: str, random: np.random.Generator, run: Surroundings) -> None:
        self.env = env
        """The clock, of which ``env.now`` is the hour: whatever SimPy offers can be used with it."""
        self.name = name
        self.random = random
        """Random numbers of this process alone: the same for the same seed, whatever else happens."""
        self.clusters = tuple(cluster.name for cluster in run.plan.clusters)
        """Names of the clusters."""
        self.on_site = tuple(cluster.name for cluster in run.plan.clusters if not cluster.is_hosted)
        """Names of those whose machines stand at the site, and not at a provider's."""
        self._run = run

    @property
    def now_h(self) -> float:
        """The hour it is."""
        return float(self.env.now)

    @property
    def hours(self) -> int:
        """The hour at which the run ends."""
        return self._run.plan.hours

    @property
    def last_month(self) -> Load | None:
        """How the last finished month went; None in the first."""
        figures = self._run.months[-1] if self._run.months else None
        if figures is None:
            return None
        by_cluster = dict(zip(self.clusters, figures.utilisation, strict=True))
        return Load(
            utilisation=by_cluster, shed_fraction=figures.shed_fraction, missed_fraction=figures.missed_fraction
        )

    @property
    def crews(self) -> Pool:
        """The repair crews: ``yield world.crews.take()`` waits for one, ``world.crews.give()`` lets it go."""
        return self._run.shop.crews

    def spare(self, cluster: str) -> simpy.Event:
        """Return an event that happens when a spare part of a cluster is there; its replacement is ordered at once."""
        return self._run.shop.take_spare(self._index(cluster))

    def timeout(self, hours: float) -> simpy.Event:
        """Return an event that happens after some hours."""
        return self.env.timeout(hours)

    def nodes(self, cluster: str) -> list[int]:
        """Return the nodes of a cluster on site, in service or not."""
        return self._run.shop.nodes(self._index(cluster))

    def nodes_up(self, cluster: str) -> list[int]:
        """Return those of which nothing is down."""
        return self._run.shop.up(self._index(cluster))

    def is_there(self, cluster: str, node: int) -> bool:
        """Say whether a node of a cluster is on site, in service or not."""
        return self._run.shop.is_there(self._index(cluster), node)

    def within_reserve(self, cluster: str, reserve: int | None = None) -> Generator[simpy.Event, Any, None]:
        """Wait until fewer nodes of a cluster are down than its reserve, as planned work does: ``yield from`` it."""
        index, shop, plan = self._index(cluster), self._run.shop, self._run.plan.reliability
        while shop.nodes_down[index] >= (plan.reserve(shop.count(index)) if reserve is None else reserve):
            yield shop.next_back(index)

    def take_out(self, cluster: str, nodes: Sequence[int], cause: str, kind: str = "") -> list[Claim]:
        """Take nodes out of service, whatever else keeps them down; hand the answer to :meth:`bring_back`."""
        index = self._index(cluster)
        if missing := [node for node in nodes if not self.is_there(cluster, node)]:
            raise ScenarioError(f"cluster {cluster} has no node {missing[0]} on site at hour {self.now_h:g}")
        return [self._run.shop.hold(index, node, cause, kind) for node in nodes]

    def bring_back(self, held: Sequence[Claim]) -> None:
        """Bring nodes back that were taken out; those that have broken meanwhile stay down until they are repaired."""
        for claim in held:
            self._run.shop.release(claim)

    def order(self, cluster: str, nodes: int, lead_h: float = 0.0, price_factor: float = 1.0) -> None:
        """Order nodes; they come after the lead time, are paid then, and serve once they are commissioned.

        ``price_factor`` is today's list price against the scenario's; a quote that holds today goes before it.
        """
        if nodes < 1 or lead_h < 0:
            raise ScenarioError(f"an order is of one node or more and comes later: {nodes} after {lead_h:g} hours")
        index = self._index(cluster)
        prices = self._run.plan.clusters[index].order_prices_usd(self.now_h, int(nodes), price_factor)
        self._run.supply.expand(index, int(nodes), self.now_h + lead_h, prices)

    def retire(self, cluster: str, nodes: int) -> int:
        """Take nodes out for good, those first in; return how many there were."""
        return self._run.supply.retire(self._index(cluster), nodes)

    def note(self, text: str, cluster: str = "") -> None:
        """Write a line into ``events.csv``."""
        if cluster:
            self._index(cluster)
        self._run.log.notes.append(Note(self.now_h, self.name, text, cluster))

    def _index(self, cluster: str) -> int:
        if cluster not in self.clusters:
            raise ScenarioError(f"no cluster is called {cluster!r}; {nearest(cluster, self.clusters) or self.clusters}")
        return self.clusters.index(cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the processes of one run share."""

    plan: Plan
    shop: OpenShop
    supply: Supply
    log: ChangeLog
    months: list[MonthFigures]


def name_of(process: Process) -> str:
    """Return ``module:function``."""
    return f"{getattr(process, '__module__', '?')}:{getattr(process, '__qualname__', repr(process))}"


def numbered(processes: Sequence[Process]) -> dict[str, Process]:
    """Return processes by name; one that runs twice has its number behind it."""
    names = [name_of(process) for process in processes]
    again = [names[: number + 1].count(name) for number, name in enumerate(names)]
    ordered = zip(names, again, processes, strict=True)
    return {name if time == 1 else f"{name}/{time}": process for name, time, process in ordered}


def guarded(process: Process, world: World) -> Generator[simpy.Event, Any, None]:
    """Run a process; whatever it raises ends the run as bad input, with its name and line."""
    yield world.timeout(0.0)  # after the machines of the first day, which come in the same hour
    try:
        steps = process(world)
        if not isinstance(steps, Generator):
            raise TypeError("is not a process: nothing in it is yielded, such as world.timeout(24)")
        event = next(steps, None)
        while event is not None:
            if not isinstance(event, simpy.Event):
                raise TypeError(f"yielded {event!r}, which is no event to wait for, such as world.timeout(24)")
            happened = yield event
            try:
                event = steps.send(happened)
            except StopIteration:
                return
    except Exception as error:
        raise ScenarioError(_blame(process, world, error)) from error


def _blame(process: Process, world: World, error: Exception) -> Problem:
    """Say which process failed, on which line of it, at which hour."""
    file = getattr(getattr(process, "__code__", None), "co_filename", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = frames[-1].lineno if frames else getattr(getattr(process, "__code__", None), "co_firstlineno", None)
    what = str(error) if isinstance(error, PlannerError) else f"{type(error).__name__}: {error}"
    return Problem(file=file, line=line, message=f"process {world.name} failed at hour {world.now_h:g}: {what}")


def load_process(named: str) -> Process:
    """Return the function that ``module:function`` names; modules are looked for in the current folder first."""
    module, colon, function = named.partition(":")
    if not colon or not module or not function:
        raise ScenarioError(Problem(path="--process", message=f"{named!r} is not of the form module:function"))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        loaded = getattr(importlib.import_module(module), function)
    except Exception as error:
        message = f"cannot load {named}: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(path="--process", message=message)) from error
    if not callable(loaded):
        raise ScenarioError(Problem(path="--process", message=f"{named} is no function"))
    process: Process = loaded
    return process
