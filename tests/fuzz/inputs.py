"""Spoiled inputs by number, and how each one ended."""

from __future__ import annotations

import random
import resource
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.guards import Watch, guarded, verdict
from tests.fuzz.targets import TARGETS, Corpus

FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one input ended."""

    number: int
    target: str
    ending: str
    """accepted, refused or fault."""
    seconds: float = 0.0
    peak_mib: float = 0.0
    fault: str = ""
    """What went wrong, with the end of its traceback."""


@dataclass(slots=True)
class Tally:
    """Endings counted."""

    seed: int
    first: int
    done: int = 0
    endings: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest_number: int = -1
    peak_mib: float = 0.0
    spent_s: float = 0.0

    @property
    def next(self) -> int:
        """Number of the next input."""
        return self.first + self.done

    def add(self, ended: Ending) -> None:
        """Count one ending."""
        self.done += 1
        name = f"{ended.target} {ended.ending}"
        self.endings[name] = self.endings.get(name, 0) + 1
        if ended.fault:
            self.faults.append(f"input {ended.number}, {ended.target}: {ended.fault}")
        if ended.seconds > self.slowest_s:
            self.slowest_s = ended.seconds
            self.slowest_number = ended.number
        self.peak_mib = max(self.peak_mib, ended.peak_mib)

    def summary(self) -> str:
        """Return the table that is printed at the end."""
        lines = [f"{name:<24}{number:>9,}" for name, number in sorted(self.endings.items())]
        counts: Counter[str] = Counter()
        for name, number in self.endings.items():
            counts[name.rpartition(" ")[2]] += number
        told = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("accepted", "refused"))
        lines.append(
            f"{self.done:,} inputs from {self.first:,} of seed {self.seed}: {told}, {len(self.faults)} faults; "
            f"slowest {self.slowest_s:.2f} s (input {self.slowest_number}), peak memory {self.peak_mib:,.0f} MiB, "
            f"{self.spent_s / 60:,.0f} minutes"
        )
        return "\n".join([*lines, *(f"\n{fault}" for fault in self.faults[:20])])


def feed(seed: int, numbers: Iterable[int], watch: Watch, folder: Path) -> Iterator[Ending]:
    """Run inputs one by one; each has its own luck, so any of them can be had again by its number alone."""
    corpus = Corpus.make(folder)
    targets = list(TARGETS)
    weights = list(TARGETS.values())
    for number in numbers:
        chance = random.Random(f"{seed}/{number}")
        (target,) = chance.choices(targets, weights)
        start = time.monotonic()
        fault = ""
        try:
            with warnings.catch_warnings(), guarded(watch, folder):
                warnings.simplefilter("error")  # a warning on a user's terminal is half a traceback
                ending = verdict(lambda chosen=target, luck=chance: chosen(corpus, luck))  # type: ignore[misc]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            ending = FAULT
            fault = _describe(error)
        yield Ending(
            number=number,
            target=target.__name__,
            ending=ending,
            seconds=time.monotonic() - start,
            peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            fault=fault,
        )


def target_of(seed: int, number: int) -> str:
    """Return what an input is fed to, without running it."""
    (target,) = random.Random(f"{seed}/{number}").choices(list(TARGETS), list(TARGETS.values()))
    return target.__name__


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)[-6:])}"
