"""The shipped calibration of the throughput model."""

from __future__ import annotations

import functools

from planner.catalog.load import FOLDER
from planner.documents import read_document
from planner.physics.coefficients import Calibration


@functools.cache
def load_calibration() -> Calibration:
    """Read the coefficients that were fitted to the shipped measurements."""
    content = read_document(FOLDER / "calibration.yaml").content
    return Calibration(
        common=content["common"], engine_log_deviation=content["engines"], vendor_log_deviation=content["vendors"]
    )
