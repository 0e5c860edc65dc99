"""A workload that changes its model on dates: its traffic goes on, and nothing before the date changes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from planner.engine.hourly import joined
from planner.errors import ScenarioError
from planner.finance.accounts import Account
from planner.plan.plan import Plan
from planner.requests.outcome import outcomes
from planner.requests.zoom import ZoomRequest, simulate_zoom
from planner.requests.zoom_summary import zoom_summary
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from planner.scenario.study import load_study
from planner.studies.inputs import changed, resolve_inputs, stated
from planner.ui.settings import settings_of

Floats = NDArray[np.float64]
PLAN = """\
name: changing
start: 2026-01-01
horizon_months: 5
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 40
    growth: {kind: compound, per_year: 0.5}
    lengths: {input: {mean: 900}, output: {mean: 120}}
    tenants: [{name: shop, share_fraction: 0.3}]
    token_price: api
  code:
    model: CODE
    requests_per_s: 10
    lengths: {input: {mean: 2000}, output: {mean: 200}}
clusters:
  h200: {accelerator: H200, nodes: NODES}
  mi325x: {accelerator: MI325X, nodes: 2}
slo_target: {workloads: {chat: 0.97}}
"""
CHANGE = "workloads.chat.models=[{from: 2026-03-11, model: gpt-oss-120b}]"
LATER = "chat-2026-03-11"
MONTH_OF_CHANGE = 2
PER_MILLION = 1e6


def _run(folder: Path, *overrides: str, code: str = "gpt-oss-120b", nodes: int = 3) -> RunResult:
    path = folder / "plan.yaml"
    path.write_text(PLAN.replace("CODE", code).replace("NODES", str(nodes)))
    return simulate(load_scenario(path, overrides))


def _place(plan: Plan, name: str) -> int:
    return [load.name for load in plan.workloads].index(name)


def _requests(result: RunResult, field: str, name: str) -> Floats:
    """Return hourly requests of a workload, over all clusters where the field has them."""
    series = joined(field, result.run.windows)
    return np.asarray(series[..., _place(result.plan, name), :], dtype=np.float64)


@pytest.mark.parametrize(
    ("code", "nodes"), [("gpt-oss-120b", 3), ("llama-3.1-8b", 3), ("llama-3.3-70b", 1)]
)
def test_nothing_before_the_date_changes_and_no_request_is_lost(
    tmp_path: Path, code: str, nodes: int
) -> None:
    """Requests bit for bit, late ones in all; money in the months before that of the change to 1e-7."""
    plain = _run(tmp_path, code=code, nodes=nodes)
    moved = _run(tmp_path, CHANGE, code=code, nodes=nodes)
    hour = int(moved.plan.workloads[0].ends_h)
    assert hour == (31 + 28 + 10) * 24
    for field in ("demand_requests", "served_requests", "shed_requests", "late_requests"):
        for name in ("chat", "code"):
            before, after = (_requests(run, field, name)[..., :hour] for run in (plain, moved))
            if field == "late_requests":
                # Where an hour is short, replicas of equal worth may stand on other nodes.
                assert after.sum() == pytest.approx(before.sum(), rel=1e-4)
            else:
                assert np.array_equal(before, after), (field, name)
    early, late = (
        _requests(moved, "demand_requests", "chat"),
        _requests(moved, "demand_requests", LATER),
    )
    assert np.array_equal(early + late, _requests(plain, "demand_requests", "chat"))
    assert not early[hour:].any()
    assert not late[:hour].any()
    cost = [run.cost_cents()[:MONTH_OF_CHANGE] for run in (plain, moved)]
    assert cost[1] == pytest.approx(cost[0], rel=1e-7, abs=1)
    served = _requests(moved, "served_requests", LATER).sum()
    assert served == pytest.approx(late.sum(), rel=0.01)


def test_prices_and_speed_are_those_of_the_model_then_served(tmp_path: Path) -> None:
    moved = _run(tmp_path, CHANGE)
    other = _run(tmp_path, "workloads.chat.model=gpt-oss-120b")
    place = _place(moved.plan, LATER)
    assert np.array_equal(
        moved.plan.requests_per_node_h[:, place],
        other.plan.requests_per_node_h[:, _place(other.plan, "chat")],
    )
    # Revenue by hand: tokens served at the list of the model then served.
    tokens = moved.plan.request_tokens[0, place]
    listed = other.plan.money.market.token_price
    assert listed is not None
    request_usd = tokens @ listed[0, _place(other.plan, "chat")] / PER_MILLION
    last_month = _requests(moved, "served_requests", LATER)[:, moved.plan.month_edges_h[-2] :].sum()
    rows = moved.ledger.rows_of(Account.REVENUE)
    is_last = moved.ledger.month_index[rows] == moved.plan.months.period_count - 1
    earned = -moved.ledger.amount_cents[rows][is_last].sum() / 100
    assert earned == pytest.approx(last_month * request_usd, rel=1e-5)
    own = _run(
        tmp_path,
        CHANGE.replace("120b}", "120b, token_price: {PRICES}}").replace(
            "PRICES", "input_usd_per_million_tokens: 7, output_usd_per_million_tokens: 9"
        ),
    )
    prices = own.plan.money.market.token_price
    assert prices is not None
    assert prices[0, place, [0, 2]].tolist() == [7, 9]
    assert prices[0, _place(own.plan, "chat")].tolist() == listed_of(moved, "chat")


def listed_of(result: RunResult, name: str) -> list[float]:
    """Return the prices of a workload's tokens by kind in the first month."""
    prices = result.plan.money.market.token_price
    assert prices is not None
    month: list[float] = prices[0, _place(result.plan, name)].tolist()
    return month


def test_a_change_to_the_same_model_serves_the_same(tmp_path: Path) -> None:
    plain = _run(tmp_path)
    moved = _run(tmp_path, CHANGE.replace("gpt-oss-120b", "llama-3.1-8b"))
    served = sum(_requests(moved, "served_requests", name).sum() for name in ("chat", LATER))
    assert served == pytest.approx(_requests(plain, "served_requests", "chat").sum(), rel=1e-9)
    revenue = [run.ledger.account_cents(Account.REVENUE) for run in (plain, moved)]
    assert revenue[1] == pytest.approx(revenue[0], abs=5)


def test_no_engineer_works_on_a_model_before_it_is_served(tmp_path: Path) -> None:
    """Incidents of both models, each only while it is: many of them, so that there are some."""
    result = _run(tmp_path, CHANGE, "software.incident_multiplier=30", code="llama-3.3-70b")
    plan = result.plan
    begins_h = plan.workloads[_place(plan, LATER)].begins_h
    begun: dict[tuple[int, str], float] = {}
    for change in result.run.log.software:
        if change.incident >= 0:
            for _, w in change.pairs:
                key = (change.incident, plan.workloads[w].name)
                begun[key] = min(begun.get(key, np.inf), change.time_h)
    later = [time_h for (_, name), time_h in begun.items() if name == LATER]
    earlier = [time_h for (_, name), time_h in begun.items() if name == "chat"]
    assert later
    assert min(later) >= begins_h
    assert earlier
    assert max(earlier) < begins_h


def test_events_targets_and_zoom_know_both_models(tmp_path: Path) -> None:
    result = _run(tmp_path, CHANGE)
    events = result.events()
    (event,) = events[events.event == "model change"].itertuples()
    assert (str(event.time)[:10], event.cause, event.detail) == (
        "2026-03-11",
        LATER,
        "gpt-oss-120b",
    )
    assert result.plan.slo_target.attainment_of(LATER) == 0.97
    path = tmp_path / "plan.yaml"
    for day, served in (("2026-03-10", "chat"), ("2026-03-11", LATER)):
        start = datetime.fromisoformat(f"{day}T12:00")
        request = ZoomRequest(start=start, minutes=2, requests=400)
        hour = simulate_zoom(load_scenario(path, [CHANGE]), request)
        assert {"chat", LATER} & set(zoom_summary(hour, outcomes(hour)).workloads) == {served}


def test_studies_and_the_page_set_the_workload_as_the_user_wrote_it(tmp_path: Path) -> None:
    """A draw of chat's requests, and of all workloads', moves what follows chat with it."""
    scenario = _run(tmp_path, CHANGE).scenario
    path = tmp_path / "study.yaml"
    path.write_text(
        "name: drawn\nscenarios: {one: {extends: changed.yaml}}\n"
        "uncertain:\n  workloads.*.requests_per_s: "
        "{kind: triangular, low: 0.5, mode: 1, high: 2, times_stated: true}\n"
    )
    changed_file = tmp_path / "changed.yaml"
    changed_file.write_text(
        (tmp_path / "plan.yaml")
        .read_text()
        .replace(
            "    tenants", "    models: [{from: 2026-03-11, model: gpt-oss-120b}]\n    tenants"
        )
    )
    study, scenarios = load_study(path)
    bases = {name: stated(name, one) for name, one in scenarios.items()}
    inputs = resolve_inputs(study, bases)
    (place,) = [n for n, one in enumerate(inputs.entries) if "requests_per_s" in one.name]
    paths = {path[1] for path in inputs.entries[place].targets[0]}
    assert paths == {"chat", "code"}
    values = np.ones(len(inputs.entries))
    values[place] = 1.5
    drawn, _ = changed(bases["one"], 0, inputs, values)
    assert drawn.workloads["chat"].requests_per_s == 60
    assert drawn.workloads[LATER].requests_per_s == 60
    assert not any(LATER in setting.path for setting in settings_of(scenario))


@pytest.mark.parametrize(
    ("models", "place", "message"),
    [
        ("{from: 2026-01-01, model: gpt-oss-120b}", "[0].from", "is not after 2026-01-01"),
        (
            "{from: 2026-04-01, model: gpt-oss-120b}, {from: 2026-03-01, model: gpt-oss-20b}",
            "[1].from",
            "is not after 2026-04-01",
        ),
        ("{from: 2026-03-01, model: gpt-os-120b}", "[0].model", "did you mean gpt-oss-120b"),
        ("{model: gpt-oss-120b}", "[0].from", "is required"),
        ("{from: 2026-03-01, model: gpt-oss-120b, until: 2026-04-01}", "[0].until", "unknown key"),
    ],
)
def test_a_wrong_change_is_named_with_file_and_line(
    tmp_path: Path, models: str, place: str, message: str
) -> None:
    path = tmp_path / "wrong.yaml"
    content = PLAN.replace("CODE", "llama-3.1-8b").replace("NODES", "1")
    path.write_text(content.replace("    tenants", f"    models: [{models}]\n    tenants"))
    with pytest.raises(ScenarioError) as error:
        load_scenario(path)
    (problem,) = error.value.problems
    assert problem.path == f"workloads.chat.models{place}"
    assert problem.line == 10
    assert message in str(problem)


def test_a_name_taken_and_a_change_after_the_end(tmp_path: Path) -> None:
    taken: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "requests_per_s": 1,
        "lengths": {"input": {"mean": 9}, "output": {"mean": 9}},
    }
    with pytest.raises(ScenarioError, match="another workload has that name"):
        _run(tmp_path, CHANGE, f"workloads.{LATER}={str(taken).replace(chr(39), '')}")
    late = _run(tmp_path, CHANGE.replace("2026-03-11", "2027-03-11"))
    assert len(late.plan.workloads) == 2
    assert any("gpt-oss-120b never comes" in warning for warning in late.plan.warnings)
