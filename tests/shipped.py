"""What comes with the planner, as many tests want it."""

from __future__ import annotations

import functools

from planner.catalog.calibration import shipped_file
from planner.physics.coefficients import Calibration


@functools.cache
def shipped_calibration() -> Calibration:
    """Return the coefficients that come with the planner."""
    return shipped_file().calibration()
