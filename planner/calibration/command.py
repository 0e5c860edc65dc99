"""The command ``planner check-benchmarks``: measured runs beside what the throughput model predicts of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.files import Place
from planner.records import record

if TYPE_CHECKING:
    import pandas as pd


@record
class BenchmarkCheck:
    """Measured runs and their predictions."""

    checked: pd.DataFrame
    """A row for each measured quantity."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the measured quantities, worst error first."""
        from planner.calibration.check import entries

        return list(entries(self.checked))

    def summary(self) -> dict[str, Any]:
        """Return the errors in all and by kind of model."""
        from planner.calibration.check import summary

        return summary(self.checked)

    def report(self, worst: int) -> str:
        """Return the errors and the worst rows as text."""
        from planner.calibration.check import check_report

        return check_report(self.checked, worst)


def check_benchmarks(
    table: Place,
    run: Sequence[str] = (),
    calibration: Place | None = None,
    overlay: Place | None = None,
) -> BenchmarkCheck:
    """Predict each measured run of a CSV or of a load generator's JSON; ``run`` is what a JSON does not say of it."""
    # Imported here: the command line reads this signature before it knows which command is asked for.
    from planner.calibration.bench_results import parse_run
    from planner.calibration.benchmarks import read_benchmarks
    from planner.calibration.check import check_benchmarks as check_table
    from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration
    from planner.catalog.load import load_catalog

    coefficients = read_calibration(Path(calibration or SHIPPED_CALIBRATION)).calibration()
    measured = read_benchmarks(Path(table), parse_run(run))
    catalog = load_catalog(overlay=None if overlay is None else Path(overlay))
    return BenchmarkCheck(checked=check_table(measured, catalog, coefficients))
