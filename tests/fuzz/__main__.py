"""``make fuzz``: feed every reader with spoiled files, and report how each ended."""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.fuzz.inputs import FAULT, Ending, Tally, target_of

ROOT = Path(__file__).parents[2]
SILENCE_S = 150
"""Longer than the guards allow an input, by the clock: what is silent for so long hangs outside Python."""
GRACE_S = 5
TELL_EVERY = 5000


def run(tally: Tally, last: int) -> None:
    """Feed inputs up to ``last``, in processes of their own: one that dies is a fault of the input it was at."""
    while tally.next < last:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.worker",
            str(tally.seed),
            str(tally.next),
            str(last),
        ]
        before = tally.next
        begun = tally.spent_s - time.monotonic()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as worker:
            try:
                assert worker.stdout is not None
                announced = _follow(worker.stdout, tally, begun)
                code = _end(worker)
            finally:
                worker.kill()
        if announced == tally.next:  # it began an input and did not end it
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            target = target_of(tally.seed, announced)
            tally.add(
                Ending(
                    number=announced, target=target, ending=FAULT, fault=f"its process ended: {how}"
                )
            )
            print(tally.faults[-1], file=sys.stderr, flush=True)
        elif tally.next == before:
            raise SystemExit(f"the process that is fed cannot start: exit code {code}")


def _end(worker: subprocess.Popen[bytes]) -> int:
    """Return how a process ended that says no more; one that hangs is killed."""
    try:
        return worker.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()


def _follow(stream: IO[bytes], tally: Tally, begun: float) -> int:
    """Count endings until the process is silent or gone; return the last input it announced."""
    announced = -1
    for line in _lines(stream):
        if line.isdigit():
            announced = int(line)
            continue
        faults = len(tally.faults)
        tally.add(Ending(**json.loads(line)))
        tally.spent_s = begun + time.monotonic()
        if len(tally.faults) > faults:
            print(tally.faults[-1], file=sys.stderr, flush=True)
        if tally.done % TELL_EVERY == 0:
            rate = tally.done / tally.spent_s
            print(
                f"{tally.done:,} inputs, {len(tally.faults)} faults, {rate:.0f}/s",
                file=sys.stderr,
                flush=True,
            )
    return announced


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Yield whole lines until the end, or until nothing comes for too long."""
    waiting = b""
    while select.select([stream], [], [], SILENCE_S)[0]:
        if not (read := os.read(stream.fileno(), 1 << 16)):
            return
        *whole, waiting = (waiting + read).split(b"\n")
        yield from (line.decode() for line in whole)


def main() -> int:
    """Fuzz, print a table, and fail where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    chosen = parser.parse_args()
    last = chosen.first + chosen.count
    tally = Tally(seed=chosen.seed, first=chosen.first)
    try:
        run(tally, last)
    finally:
        print(tally.summary(), flush=True)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
