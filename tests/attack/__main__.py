"""``make attack``: spoiled inputs, kills at file operations, flipped bits, two writers, a worker's stale folder.

Each part prints what it did and what it found: tracebacks, silent wrongs (an answer that differs from the undisturbed
one while the command says that all is well) and losses (earlier results out of sight, or work that cannot go on). The
exit code is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.attack.parts import Findings, flip_bits, kill_often, stale_worker, two_writers

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Attack, print a line for each part, and fail where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument(
        "--fuzz", type=int, default=100_000, help="spoiled inputs; 0 leaves them out"
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--writers", type=int, default=10, help="pairs of writers into one folder")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    findings = Findings()
    parts: dict[str, Callable[[Path], str]] = {
        "kills": lambda place: kill_often(place, chosen.kills, chance, findings),
        "flipped bits": lambda place: flip_bits(place, chosen.flips, chance, findings),
        "two writers": lambda place: two_writers(place, chosen.writers, findings),
        "a worker's stale folder": lambda place: stale_worker(place, findings),
    }
    for name, part in parts.items():
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="planner-attack-") as place:
            told = part(Path(place))
        print(f"{name}: {told} ({time.monotonic() - begun:.0f} s)", flush=True)
    for found in findings.all():
        print(found, file=sys.stderr)
    print(findings.summary(), flush=True)
    failed = bool(findings.all())
    if chosen.fuzz:
        journal = ROOT / "build" / "fuzz.json"
        journal.parent.mkdir(exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            "--count",
            str(chosen.fuzz),
            "--journal",
            str(journal),
        ]
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
