"""The process that is fed: a line to the parent before and after each input, so that no death goes unseen."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict

from tests.fuzz.guards import MEMORY_LIMIT_BYTES, Watch, scratch
from tests.fuzz.inputs import feed


def main(seed: int, first: int, last: int) -> int:
    """Run a half-open range of inputs and report each on standard output, which nothing else may use."""
    report = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what an input prints goes to standard error

    def announced() -> Iterator[int]:
        for number in range(first, last):
            report.write(f"{number}\n")
            yield number

    folder = scratch()
    try:
        for ended in feed(seed, announced(), Watch(), folder):
            report.write(json.dumps(asdict(ended)) + "\n")
            if ended.peak_mib * 2**20 > MEMORY_LIMIT_BYTES:
                return 0  # the peak never falls: the next input needs a fresh process
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
