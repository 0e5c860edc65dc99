"""The first screen of a run: what is bought next and by when, on a terminal of 24 lines."""

from __future__ import annotations

import dataclasses
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import api
from planner.answers.charts import figures_of
from planner.answers.run_screen import first_screen
from planner.answers.run_summary import key_figures
from planner.answers.summaries import OrderFigures
from planner.output.blocks import VerticalRule
from planner.output.folder import read_contents
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.studies.run_out import missed_without_orders
from tests.conftest import ROOT, TINY

ORDERED: dict[str, Any] = {
    "accelerator": "H200",
    "nodes": 2,
    "order": {
        "placed": "2026-01-10",
        "lead_weeks": 3,
        "slip_weeks": {"low": 0, "base": 0, "high": 0},
        "acceptance_failure_fraction": 0.0,
    },
}
"""On site on 31 January."""
RULE = {
    "when": "utilisation_above",
    "threshold_fraction": 0.01,
    "months": 1,
    "cluster": "h200",
    "nodes": 1,
    "lead_weeks": 2,
    "max_nodes": 2,
}


def growing(**changes: Any) -> dict[str, Any]:
    """Return a plan of one node, whose traffic outgrows it in the second month."""
    content: dict[str, Any] = yaml.safe_load(TINY)
    content["workloads"]["chat"] |= {
        "model": "llama-3.1-70b",
        "requests_per_s": 80,
        "growth": {"kind": "compound", "per_year": 60.0},
    }
    content["clusters"] = {"h200": {"accelerator": "H200", "nodes": 1}}
    content["slo_target"] = {"attainment": 0.9}
    return content | changes


def next_line(screen: str) -> str:
    """Return the line of a screen that says what is bought next."""
    return next(line for line in screen.splitlines() if line.startswith("NEXT"))


def test_a_plan_says_what_to_order_next_and_when_it_runs_out_without(tmp_path: Path) -> None:
    content = growing()
    content["clusters"]["later"] = ORDERED
    answer = api.run(content, tmp_path / "o", replications=2)
    assert next_line(answer.text()) == "NEXT   order 2 later by 2026-01-10"
    (order,) = answer.summary()["orders"]
    assert (order["cluster"], order["nodes"]) == ("later", 2)
    assert (order["placed"], order["on_site"]) == ("2026-01-10", "2026-01-31")
    alone = simulate(load_scenario(growing()))
    missed = alone.slo_result().missed_months
    assert missed, "the plan without the order is to miss a month"
    first = alone.plan.months.labels[missed[0]]
    assert answer.summary()["missed_without_orders"] == first
    assert f"the SLO target is first missed in {first}." in answer.text()
    assert len(answer.text().splitlines()) <= 23  # and where the results are
    events = answer.table("events")
    ordered = events[events["event"] == "ordered"]
    assert ordered["detail"].tolist() == ["2 nodes"]
    marks = figures_of(read_contents(tmp_path / "o"))["demand"].panels[0].marks
    notes = [mark.note for mark in marks if isinstance(mark, VerticalRule)]
    assert notes == ["order 1", "runs out"]


def test_what_a_review_orders_is_an_order_too() -> None:
    scenario = load_scenario(growing(expansion={"rules": [RULE]}))
    result = simulate(scenario)
    (order,) = result.run.log.orders
    assert (order.nodes, order.is_stated) == (1, False)
    # At the end of the first month, two weeks before it is on site.
    assert order.arrival_h == order.time_h + 14 * 24
    alone = simulate(load_scenario(growing()))
    missed = [alone.plan.months.labels[month] for month in alone.slo_result().missed_months]
    assert missed_without_orders(result) == tuple(missed)


def test_a_replay_runs_out_with_what_its_replication_drew(tmp_path: Path) -> None:
    """Traffic and throughput are drawn; the fleet of the first day alone stands in the same study."""
    ordered = growing(name="ordered")
    order = ORDERED["order"] | {"placed": date(2026, 1, 10)}
    ordered["clusters"]["later"] = ORDERED | {"order": order}
    for content in (ordered, growing(name="alone")):
        text = yaml.safe_dump(content)
        (tmp_path / f"{content['name']}.yaml").write_text(text, encoding="utf-8")
    study = {
        "name": "drawn",
        "scenarios": {name: {"extends": f"{name}.yaml"} for name in ("ordered", "alone")},
        "uncertain": {
            "workloads.chat.requests_per_s": {
                "kind": "lognormal",
                "median": 0.6,
                "sigma": 0.6,
                "times_stated": True,
            }
        },
    }
    file = tmp_path / "drawn.yaml"
    file.write_text(yaml.safe_dump(study), encoding="utf-8")
    first_months = set()
    for replication in range(4):
        alone = api.replay(file, replication, tmp_path / f"a{replication}", scenario="alone").result
        labels = alone.plan.months.labels
        missed = tuple(labels[month] for month in alone.slo_result().missed_months)
        place = tmp_path / f"o{replication}"
        answer = api.replay(file, replication, place, scenario="ordered")
        assert missed_without_orders(answer.result) == missed
        assert answer.summary().get("missed_without_orders") == (missed[0] if missed else None)
        first_months.add(missed[:1])
    assert len(first_months) > 1, "each replication is to run out on its own"


def test_the_screen_dates_an_order_by_rule_at_its_review(tmp_path: Path) -> None:
    """Each is on site its seventeen weeks after it is placed, as events and screen have it."""
    rule = RULE | {"lead_weeks": 17, "cooldown_months": 0, "max_nodes": 4}
    content = growing(expansion={"rules": [rule]}, horizon_months=7)
    content["workloads"]["chat"]["growth"]["per_year"] = 3.0
    answer = api.run(content, tmp_path / "o", replications=1)
    orders = answer.summary()["orders"]
    placed = [order["placed"] for order in orders]
    assert placed == ["2026-02-01", "2026-03-01", "2026-04-01"]
    lead = timedelta(weeks=17)
    assert [date.fromisoformat(order["on_site"]) for order in orders] == [
        date.fromisoformat(day) + lead for day in placed
    ]
    assert next_line(answer.text()) == (
        "NEXT   order 1 h200 by 2026-02-01, then 1 by 2026-03-01 and 1 by 2026-04-01"
    )
    events = answer.table("events")
    ordered = events[events["event"] == "ordered"]
    assert [str(time)[:10] for time in ordered["time"]] == placed
    # The last is ordered on the day on which the plan would run out.
    assert answer.summary()["missed_without_orders"] == "2026-04"
    marks = figures_of(read_contents(tmp_path / "o"))["demand"].panels[0].marks
    notes = [mark.note for mark in marks if isinstance(mark, VerticalRule)]
    assert notes == ["order 1", "order 2", "order 3, runs out"]


def order_of(nodes: int, day: str, cluster: str = "a", *, is_ordered: bool = True) -> OrderFigures:
    placed = day if is_ordered else None
    return OrderFigures(
        cluster=cluster, nodes=nodes, placed=placed, on_site="2030-01-01" if placed else day
    )


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        (
            [order_of(2, "2026-03-01"), order_of(3, "2026-03-01", "b")],
            "order 2 a and 3 b by 2026-03-01",
        ),
        (
            [order_of(2, "2026-03-01"), order_of(5, "2026-12-01")],
            "order 2 a by 2026-03-01, then 5 by 2026-12-01",
        ),
        (
            # Two clusters that are ordered on a day are one step of it.
            [
                order_of(2, "2026-03-01"),
                order_of(5, "2026-12-01"),
                order_of(1, "2026-12-01", "b"),
                order_of(4, "2027-09-01"),
            ],
            "order 2 a by 2026-03-01, then 6 by 2026-12-01 and 4 by 2027-09-01",
        ),
        (
            [
                order_of(2, "2026-03-01"),
                order_of(5, "2026-12-01"),
                order_of(7, "2027-09-01"),
                order_of(8, "2028-03-01"),
                order_of(5, "2028-09-01"),
            ],
            "order 2 a by 2026-03-01, then 5 by 2026-12-01 and 20 more on 3 dates by 2028-09-01",
        ),
        (
            # Of a plan that states the day of service alone nothing is said of its order.
            [order_of(36, "2027-01-01", is_ordered=False), order_of(20, "2027-12-01")],
            "36 a on site by 2027-01-01, then order 20 by 2027-12-01",
        ),
        (
            [
                order_of(1, "2026-02-01"),
                order_of(2, "2026-03-01", is_ordered=False),
                order_of(3, "2026-04-01"),
                order_of(4, "2026-04-01", is_ordered=False),
            ],
            "order 1 a by 2026-02-01, then 2 on site by 2026-03-01 and 7 more ordered or on site on 2 dates by "
            "2026-04-01",
        ),
    ],
)
def test_the_screen_names_the_next_dates_and_sums_up_the_rest(
    orders: list[OrderFigures], said: str
) -> None:
    """No order is hidden behind a later one: who plans cash needs the earliest date that is not the next."""
    summary = key_figures(simulate(load_scenario(growing())))
    lines = first_screen(dataclasses.replace(summary, orders=orders)).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("NEXT"))
    end = lines.index("", place)
    assert " ".join(" ".join(lines[place:end]).split()) == f"NEXT {said}"
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("fraction", "said"),
    [
        (0.16, "peak-hour headroom 16% (2026-02)"),
        (-0.001, "peak-hour headroom <1% (2026-02)"),
        (-0.11, "peak hour 11% over capacity (2026-02)"),
    ],
)
def test_a_peak_hour_without_headroom_is_over_capacity(fraction: float, said: str) -> None:
    summary = key_figures(simulate(load_scenario(growing())))
    fleet = dataclasses.replace(
        summary.fleet, peak_headroom_fraction=fraction, peak_headroom_month="2026-02"
    )
    assert said in first_screen(dataclasses.replace(summary, fleet=fleet))


def test_without_orders_it_says_by_when_more_is_needed(tmp_path: Path) -> None:
    answer = api.run(growing(), tmp_path / "o", replications=1)
    first = answer.summary()["verdict"]["first_missed_month"]
    assert next_line(answer.text()) == f"NEXT   nothing on order, more capacity needed by {first}"
    assert "missed_without_orders" not in answer.text()


def test_the_shipped_plans_fit_a_terminal(tmp_path: Path) -> None:
    """The README's screen is what `make run` printed, which the tests of pages hold."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("simulating fleet-2026")[2].partition("$ planner charts")[0]
    _, *sized = shown.splitlines()
    assert sized[-1].startswith("results in")
    answer = api.run(ROOT / "scenarios" / "mixed-fleet.yaml", tmp_path / "o", replications=2)
    # The last line says where the results are.
    for lines in (sized, [*answer.text().splitlines(), ""]):
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
