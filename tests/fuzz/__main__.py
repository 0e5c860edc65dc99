"""``make fuzz``: feed every reader with spoiled files and report how each ended."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from tests.fuzz.guards import Watch, guarded, scratch, verdict
from tests.fuzz.targets import TARGETS, Corpus, Target


def fuzz(
    count: int, seed: int, watch: Watch, folder: Path, *, first: int = 0, slices: int = 0
) -> tuple[Counter[str], list[str], float]:
    """Run inputs from the number ``first`` on; return how they ended, the faults, and the slowest one's seconds."""
    corpus = Corpus.make(folder)
    warnings.simplefilter("error")  # a warning on a user's terminal is half a traceback
    endings: Counter[str] = Counter()
    faults: list[str] = []
    slowest = 0.0
    targets, weights = list(TARGETS), list(TARGETS.values())
    begun = time.monotonic()
    for number in range(first, first + count):
        chance = random.Random(f"{seed}/{number}")  # any input can be had again by its number
        (target,) = chance.choices(targets, weights)
        start = time.monotonic()
        try:
            with guarded(watch, folder):
                ending = verdict(lambda chosen=target, luck=chance: chosen(corpus, luck))  # type: ignore[misc]
        except BaseException as fault:
            if isinstance(fault, KeyboardInterrupt):
                raise
            ending = "fault"
            faults.append(_describe(number, target, fault))
            print(faults[-1], file=sys.stderr, flush=True)
        slowest = max(slowest, time.monotonic() - start)
        endings[f"{target.__name__} {ending}"] += 1
        tried = number + 1 - first
        if slices and tried % slices == 0:
            rate = tried / (time.monotonic() - begun)
            print(f"{tried:,} inputs, {len(faults)} faults, {rate:.0f}/s", file=sys.stderr, flush=True)
    return endings, faults, slowest


def _describe(number: int, target: Target, fault: BaseException) -> str:
    last = "".join(traceback.format_exception(fault)[-6:])
    return f"input {number}, {target.__name__}: {type(fault).__name__}: {fault}\n{last}"


def main() -> int:
    """Fuzz, print a table, and fail where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    chosen = parser.parse_args()
    folder = scratch()
    try:
        endings, faults, slowest = fuzz(chosen.count, chosen.seed, Watch(), folder, first=chosen.first, slices=5000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, number in sorted(endings.items()):
        print(f"{name:<24}{number:>9,}")
    import resource  # noqa: PLC0415

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{chosen.count:,} inputs, {len(faults)} faults, slowest {slowest:.2f} s, peak memory {peak:,.0f} MiB")
    for fault in faults[:20]:
        print("\n" + fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
