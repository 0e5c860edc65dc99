"""``python -m tests.laws``: hold random scenarios to the laws of placement, and print which break which."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.laws.findings import ALL_LAWS, Tally, check_worlds

SHOWN = 3
"""Broken scenarios printed, the smallest first."""


def main() -> int:
    """Check, print a table and the smallest broken scenarios, and fail where a law is broken without a cause."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--law", action="append", choices=ALL_LAWS, help="one law, or several")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    laws = tuple(options.law or ALL_LAWS)
    tallies = {law: Tally() for law in laws}
    numbers = range(options.first, options.first + options.count)
    check = partial(_check, seed=options.seed, laws=laws)
    with ProcessPoolExecutor(options.workers) as pool:
        for number, found in zip(numbers, pool.map(check, numbers), strict=True):
            for law, tally in found.items():
                tallies[law].worlds += tally.worlds
                tallies[law].breaks += tally.breaks
            print(f"world {number}", end="\r", file=sys.stderr, flush=True)
    print(table(tallies))
    for tally in tallies.values():
        for finding in sorted(tally.breaks, key=lambda finding: finding.size)[:SHOWN]:
            print(f"\n{finding.describe()}")
    return int(any(tally.unexplained for tally in tallies.values()))


def _check(number: int, seed: int, laws: Sequence[str]) -> dict[str, Tally]:
    """Hold one world to laws."""
    return check_worlds([number], seed, laws)


def table(tallies: dict[str, Tally]) -> str:
    """Return the table of laws: worlds tried, breaks, those without a cause, and the worst with its world."""
    lines = ["law                 | tried | broken | unexplained | worst"]
    for law, tally in tallies.items():
        worst = max(tally.breaks, key=lambda finding: finding.breach, default=None)
        shown = "" if worst is None else f"{worst.breach:.2g} (world {worst.world.number})"
        counts = f"{tally.worlds:5} | {len(tally.breaks):6} | {len(tally.unexplained):11}"
        lines.append(f"{law:19} | {counts} | {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
