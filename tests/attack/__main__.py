"""``make attack``: spoiled inputs, kills at file operations, flipped bits.

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

from tests.attack.parts import Findings, flip_bits, kill_often

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Attack, print a line for each part, and fail where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument(
        "--fuzz", type=int, default=100_000, help="spoiled inputs; 0 leaves them out"
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    generator = random.Random(chosen.seed)
    findings = Findings()
    parts: dict[str, Callable[[Path], str]] = {
        "kills": lambda place: kill_often(place, chosen.kills, generator, findings),
        "flipped bits": lambda place: flip_bits(place, chosen.flips, generator, findings),
    }
    for name, part in parts.items():
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="planner-attack-") as place:
            summary = part(Path(place))
        print(f"{name}: {summary} ({time.monotonic() - begun:.0f} s)", flush=True)
    for finding in findings.all():
        print(finding, file=sys.stderr)
    print(findings.summary(), flush=True)
    failed = bool(findings.all())
    if chosen.fuzz:
        command = [sys.executable, "-m", "tests.fuzz", "--count", str(chosen.fuzz)]
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
