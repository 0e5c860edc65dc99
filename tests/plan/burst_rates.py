"""What bursts add in hours of some requests, read off a plan's tables."""

import numpy as np

from planner.arrays import Floats
from planner.plan.load_tables import BurstTables


def at_rate(tables: BurstTables, requests: float) -> Floats:
    """Return what bursts add in hours of some requests, shape (2, cells + 1)."""
    between = tables.between(np.array([requests]))
    (row,) = between.row
    (further,) = between.further
    after = min(row + 1, tables.added.shape[1] - 1)
    return np.asarray((1.0 - further) * tables.added[:, row] + further * tables.added[:, after])
