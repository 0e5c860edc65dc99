"""Random scenarios held to the laws: which break which, by how much, and the smallest of those that do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import yaml

from tests.laws.causes import SMALL_GAIN, STATEMENTS, cause_of
from tests.laws.laws import LAWS
from tests.laws.outcomes import Outcome, Runs, is_exactly_as_good, lost
from tests.laws.partitions import best_partition
from tests.laws.worlds import Nodes, Stream, World, random_world

PARTITION = "partition"
"""The law that needs many runs: never below the best static partition."""
ALL_LAWS = (*LAWS, PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A law that a world breaks."""

    law: str
    world: World
    changed: World
    """What the law makes of it; the world itself where it is held against partitions."""
    breach: float
    cause: str | None
    """What explains it, where that is physical."""
    before: Outcome
    after: Outcome

    @property
    def size(self) -> tuple[int, int]:
        """How much there is to look at: workloads and clusters, then nodes."""
        return len(self.world.workloads) + len(self.world.clusters), self.world.nodes

    def describe(self) -> str:
        """Return the scenario as YAML, under what is wrong with it."""
        text = yaml.safe_dump(self.world.document(), sort_keys=False, default_flow_style=None)
        lines = [
            f"# {self.law} is broken by {self.breach:.4g} in world {self.world.number}",
            f"# cause:  {self.cause or 'not known'}",
            f"# change: {self._change() or 'none'}",
            f"# before: {self.before.describe()}; {self.before.energy_kwh:.6g} kWh",
            f"# after:  {self.after.describe()}; {self.after.energy_kwh:.6g} kWh",
            text,
        ]
        return "\n".join(lines)

    def _change(self) -> str:
        """Return what the changed world states and the world does not."""
        parts = []
        if self.changed.months != self.world.months:
            parts.append(f"{self.changed.months} months")
        stated: set[Stream | Nodes] = {*self.world.workloads, *self.world.clusters}
        items: list[Stream | Nodes] = [*self.changed.workloads, *self.changed.clusters]
        for item in items:
            if item not in stated:
                text = yaml.safe_dump({item.name: item.document()}, default_flow_style=True)
                parts.append(" ".join(text.split()))
        remaining = {workload.name for workload in self.changed.workloads}
        gone = [load.name for load in self.world.workloads if load.name not in remaining]
        parts += [f"without {name}" for name in gone]
        return "; ".join(parts)


@dataclass(slots=True)
class Tally:
    """Worlds held to one law."""

    worlds: int = 0
    breaks: list[Break] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Break]:
        """Breaks that have no physical cause."""
        return [finding for finding in self.breaks if finding.cause is None]


def check_law(law: str, world: World, runs: Runs) -> Break | None:
    """Return the break of a law by a world, or None where it holds; raise NotApplicable where it says nothing."""
    if law == PARTITION:
        return _check_partition(world, runs)
    change = LAWS[law](world)
    if change is None:
        raise NotApplicableError
    before = runs.outcome(change.reference or world)
    after = runs.outcome(change.world)
    breach = change.expectation(before, after)
    if breach == 0.0:
        return None
    return Break(
        law=law,
        world=world,
        changed=change.world,
        breach=breach,
        cause=cause_of(world, change, runs),
        before=before,
        after=after,
    )


class NotApplicableError(Exception):
    """A law says nothing about a world: it has nothing of what the law changes."""


def _check_partition(world: World, runs: Runs) -> Break | None:
    """Return the break of the law of partitions."""
    best = best_partition(world, runs)
    if best is None:
        raise NotApplicableError
    shared = runs.outcome(world)
    breach = lost(best, shared)
    if breach == 0.0:
        return None
    kept = SMALL_GAIN if is_exactly_as_good(best, shared) else None
    for cause, stated in STATEMENTS.items():
        if kept is not None:
            break
        as_stated = stated(world, shared)
        best_as_stated = best_partition(as_stated, runs)
        if best_as_stated is None or lost(best_as_stated, runs.outcome(as_stated)) == 0.0:
            kept = cause
    return Break(
        law=PARTITION,
        world=world,
        changed=world,
        breach=breach,
        cause=kept,
        before=best,
        after=shared,
    )


def check_worlds(
    numbers: Iterable[int], seed: int, laws: Sequence[str] = ALL_LAWS
) -> dict[str, Tally]:
    """Hold random worlds to laws."""
    tallies = {law: Tally() for law in laws}
    for number in numbers:
        world = random_world(seed, number)
        # Of one world alone: runs hold hours.
        runs = Runs()
        for law, tally in tallies.items():
            try:
                finding = check_law(law, world, runs)
            except NotApplicableError:
                continue
            tally.worlds += 1
            if finding is not None:
                tally.breaks.append(finding)
    return tallies
