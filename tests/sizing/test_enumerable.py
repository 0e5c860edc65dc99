"""Answers on replications nobody looked at: feasible, nearly the cheapest, and with an interval that covers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sizing.enumerable import outcomes


@pytest.mark.prove
def test_answers_hold_on_untouched_replications() -> None:
    rows = [row for problem in range(30) for row in outcomes(problem, range(1, 6))]
    confirmed = [row for row in rows if row.is_confirmed]
    assert np.mean([row.is_feasible for row in confirmed]) >= 0.95
    assert np.mean([row.is_covered for row in rows]) >= 0.91
    excess = [row.excess for row in rows if not math.isnan(row.excess)]
    assert np.mean([saved <= 0.01 for saved in excess]) >= 0.90
    assert max(row.bound for row in rows if not math.isnan(row.bound)) <= 1.0
    assert max(row.seconds for row in rows) <= 60.0
