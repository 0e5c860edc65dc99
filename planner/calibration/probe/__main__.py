"""Runs the probe without the rest of the planner: torch and the standard library are all it needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planner.calibration.probe.measure import ProbeOptions, measure_machine
from planner.calibration.probe.rows import write_rows
from planner.errors import PlannerError


def main(arguments: list[str] | None = None) -> int:
    """Measure this machine, write the CSV, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m planner.calibration.probe", description="Measures the machine it runs on."
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--device", default="auto", help="auto, cuda, cuda:<index> or cpu")
    parser.add_argument("--quick", action="store_true", help="fewer points, shorter runs")
    parser.add_argument("--seconds", type=float, default=None, help="seconds a point runs")
    parsed = parser.parse_args(arguments)
    options = ProbeOptions(device=parsed.device, quick=parsed.quick, seconds=parsed.seconds)
    try:
        rows = measure_machine(options, progress=lambda text: print(text, file=sys.stderr, flush=True))
        write_rows(rows, parsed.out)
    except PlannerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{len(rows)} rows written to {parsed.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
