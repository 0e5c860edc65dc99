"""One replication after another of the same scenario."""

from __future__ import annotations

import gc
import weakref

import pytest
import yaml

from planner.finance.accounting.measures import measures, series_of
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY


def test_what_is_worked_out_of_a_run_is_kept_with_it_and_let_go_with_it() -> None:
    result = simulate(load_scenario(yaml.safe_load(TINY)))
    assert series_of(result) is series_of(result)
    assert measures(result) is measures(result)
    with pytest.raises(TypeError):
        measures(result)["tco_usd"] = 0.0  # type: ignore[index]
    kept = weakref.ref(result)
    del result
    gc.collect()
    assert kept() is None
