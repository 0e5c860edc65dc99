"""Growth by calendar year: what a year that is not stated grows by, and that years alike are compound growth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import ScenarioError
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.scenario.loading import load_scenario
from tests.engine.worlds import BASE, merged

CHAT = "workloads.chat.growth"


def grown(growth: dict[str, Any], *overrides: str, **changes: Any) -> Plan:
    months = {"horizon_months": 30, "start": "2026-04-10"} | changes
    plain = {"load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0}, "noise": {"sigma": 0}}
    whole = merged(
        BASE, months, {"workloads": {"chat": {"growth": growth, **plain}, "nightly": None}}
    )
    return build_plan(load_scenario(whole, overrides))


def test_years_alike_are_compound_growth() -> None:
    same = grown({"kind": "by-year", "per_year": {str(year): 0.7 for year in range(2026, 2030)}})
    compound = grown({"kind": "compound", "per_year": 0.7})
    np.testing.assert_allclose(
        same.demand.expected_requests_per_s, compound.demand.expected_requests_per_s, rtol=1e-10
    )


def test_each_year_grows_at_its_rate_and_one_not_stated_like_the_last_before_it() -> None:
    plan = grown(
        {"kind": "by-year", "per_year": {"2026": 0.6, "2028": -0.2}}, f"{CHAT}.per_year.2026=0.5"
    )
    rates = plan.demand.expected_requests_per_s[0]
    years = (np.datetime64(plan.start, "h") + np.arange(plan.hours)).astype("datetime64[Y]").astype(
        int
    ) + 1970
    inside = np.diff(years) == 0
    expected = 1.0 + np.where(years[1:] < 2028, 0.5, -0.2)
    np.testing.assert_allclose(
        (rates[1:] / rates[:-1])[inside], (expected ** (1 / 8766))[inside], rtol=1e-10
    )
    turn = int(np.argmax(years == 2028))  # half of that hour's step is of either year
    assert rates[turn] / rates[turn - 1] == pytest.approx((1.5 * 0.8) ** (0.5 / 8766), rel=1e-10)


@pytest.mark.parametrize(
    ("growth", "message"),
    [
        ({"per_year": {"26": 0.6}}, "keyed by calendar years"),
        ({"per_year": {"next": 0.6}}, "keyed by calendar years"),
        ({"per_year": {"2026": -1}}, "workloads.chat.growth.per_year.2026"),
        ({"per_year": {}}, "workloads.chat.growth.per_year"),
        ({"per_year": 0.5}, "workloads.chat.growth.per_year"),
        ({"per_yaer": {"2026": 0.6}}, "did you mean per_year?"),
    ],
)
def test_growth_that_cannot_be_is_refused(growth: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        grown({"kind": "by-year", **growth})
    assert message in str(caught.value)
