"""What settings do to a plan, and what is written of it."""

from __future__ import annotations

import datetime
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from planner.answers.futures import future_row
from planner.answers.run import write_run
from planner.answers.run_summary import run_summary
from planner.errors import ScenarioError
from planner.output.folder import read_contents
from planner.output.html import section_html
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.studies.compare import compare
from planner.studies.futures import load_futures
from planner.ui import workbench as workbench_module
from planner.ui.page import controls_html
from planner.ui.settings import FUTURE_SETTINGS, SETTING_KINDS, Setting, settings_of
from planner.ui.workbench import EXAMPLES, Workbench, plan_name
from tests.conftest import TINY
from tests.ui.conftest import TOKEN, Post

EVERY = """\
extends: tiny.yaml
name: every
workloads:
  grown: {model: llama-3.1-8b, requests_per_s: 1, lengths: {input: {mean: 100}, output: {mean: 20}},
    growth: {kind: compound, per_year: 0.3}}
  curved: {model: llama-3.1-8b, requests_per_s: 1, lengths: {input: {mean: 100}, output: {mean: 20}},
    growth: {kind: s-curve, ceiling_multiplier: 3, midpoint_years: 1}}
  yearly: {model: llama-3.1-8b, requests_per_s: 1, lengths: {input: {mean: 100}, output: {mean: 20}},
    growth: {kind: by-year, per_year: {2026: 0.3}}}
clusters:
  ordered: {accelerator: H200, nodes: 1, order: {placed: 2025-10-01}}
  rented: {accelerator: H200, nodes: 1, contract: {kind: operating-lease, usd_per_accelerator_h: 3}}
  owned: {accelerator: H200, nodes: 1, owned: {bought: 2025-01-01}}
  quoted: {accelerator: H200, nodes: 1, quotes: [{name: offer, accelerator_price_usd: 25000}]}
"""
OTHER = {
    "accelerator": "H100",
    "engine": "sglang",
    "precision": "bf16",
    "tariff": "us-texas",
    "per": "horizon",
    "model": "qwen3-32b",
}
"""Words that take the place of those stated."""


@pytest.fixture
def every(tmp_path: Path) -> Workbench:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "every.yaml").write_text(EVERY)
    return Workbench([load_scenario(tmp_path / "every.yaml")], tmp_path / "outputs")


def text_of(answered: Any) -> str:
    """Return all that an answer shows."""
    return "".join(html for _, html in answered.json()["parts"])


def turned(setting: Setting) -> str:
    """Return a turn of a setting away from what is stated."""
    field = setting.path.rpartition(".")[2]
    if setting.is_date:
        first = datetime.date.fromisoformat(setting.value or setting.default)
        text = (first + datetime.timedelta(days=20)).isoformat()
    elif setting.choices:
        text = OTHER.get(field, "fleet")
    elif field == "attainment":
        text = "0.95"
    elif field == "confidence":
        text = "0.8"
    else:
        number = float(setting.value or setting.default or 500)
        text = (
            f"{number + 1:.0f}"
            if field in ("nodes", "depreciation_months")
            else f"{number * 1.1 + 0.01:g}"
        )
    return f"{setting.path}={setting.kind.template.replace('%', text)}"


def test_every_kind_of_setting_is_there_and_changes_what_it_says(every: Workbench) -> None:
    found = {setting.path: setting for setting in settings_of(every.stated(""))}
    patterns = set()
    for path, setting in found.items():
        word = (
            turned(setting)
            if not setting.is_new_cluster
            else f"{path}={setting.kind.template.replace('%', setting.choices[0])}"
        )
        patterns.add(
            next(pattern for pattern, turn in SETTING_KINDS.items() if turn is setting.kind)
        )
        if path in FUTURE_SETTINGS:
            continue
        after = {each.path: each.value for each in settings_of(every.scenario(("every", word)))}
        if setting.is_new_cluster:
            assert after[f"{path}.nodes"] == "8"
            assert after[f"{path}.accelerator"] == setting.choices[0]
            continue
        changed = {
            each: value
            for each, value in after.items()
            if value != getattr(found.get(each), "value", None)
        }
        own = f"{path}.per_year" if path.endswith(".growth") else path
        assert changed == {own: word.rpartition(" ")[2].rpartition("=")[2].strip("}")}, path
    assert patterns == set(SETTING_KINDS), "a kind of setting that no scenario of this test has"


def test_a_setting_without_effect_is_not_there(every: Workbench) -> None:
    paths = {setting.path for setting in settings_of(every.stated(""))}
    for absent in (
        "clusters.ordered.online",
        "clusters.owned.online",
        "clusters.owned.accelerator_price_usd",
        "clusters.quoted.accelerator_price_usd",
        "clusters.quoted.discount_fraction",
        "clusters.rented.accelerator_price_usd",
        "workloads.grown.growth",
        "workloads.yearly.growth",
        "workloads.yearly.growth.per_year",
        "workloads.chat.growth.per_year",
    ):
        assert absent not in paths
    assert {"clusters.quoted.nodes", "clusters.rented.online", "workloads.chat.growth"} <= paths


def test_sliders_hold_what_is_stated_and_move_in_plain_steps(every: Workbench) -> None:
    for setting in settings_of(every.stated("")):
        if setting.slider is None:
            continue
        low, high, step = setting.slider
        assert low <= float(setting.value or setting.default) <= high
        assert 50 <= (high - low) / step <= 300 or step == 1.0, setting.path
        if setting.path.endswith("nodes"):
            assert step == int(step)


def test_the_page_s_controls_carry_every_setting(every: Workbench) -> None:
    shown = str(controls_html(settings_of(every.stated(""))))
    for setting in settings_of(every.stated("")):
        if not setting.is_new_cluster:
            assert f'id="setting-{setting.path}"' in shown
    assert 'value="clusters.h200-2={accelerator: H200, nodes: 8}"' in shown, (
        "machines of a name that is taken"
    )


def test_a_live_plan_has_the_figures_of_a_run_of_the_same_overrides(
    workbench: Workbench, scenario_file: Path
) -> None:
    changes = ("clusters.h200.nodes=2", "workloads.chat.requests_per_s=50")
    contents = workbench.contents(workbench.plan(("tiny", *changes)))
    plain = run_summary(simulate(load_scenario(scenario_file, changes))).to_json()
    # The page does not work out the bound on placement while somebody waits.
    assert contents.summary == json.loads(json.dumps(plain | {"placement": []}))


def test_what_is_saved_extends_the_scenario_states_the_changes_alone_and_runs_to_the_same_figures(
    workbench: Workbench, post: Post, scenario_file: Path
) -> None:
    changes = [
        "clusters.h200.nodes=2",
        "clusters.mi325x.online=2026-03-01",
        "workloads.chat.growth={kind: compound, per_year: 0.4}",
        "workloads.chat.growth.per_year=0.5",
        "site.facility_power_cap_kw=40",
        "clusters.b200={accelerator: B200, nodes: 8}",
        "clusters.b200.nodes=1",
    ]
    answered = post("save", set=changes, name="what-if-1")
    assert answered.status_code == 200, answered.text
    path = scenario_file.with_name("what-if-1.yaml")
    assert answered.json() == {"said": f"saved as what-if-1.yaml in {path.parent}"}
    assert yaml.safe_load(path.read_text()) == {
        "name": "what-if-1",
        "extends": "tiny.yaml",
        "clusters": {
            "h200": {"nodes": 2},
            "mi325x": {"online": datetime.date(2026, 3, 1)},
            "b200": {"accelerator": "B200", "nodes": 1},
        },
        "workloads": {"chat": {"growth": {"kind": "compound", "per_year": 0.5}}},
        "site": {"facility_power_cap_kw": 40},
    }
    saved = run_summary(simulate(load_scenario(path))).to_json()
    live = workbench.contents(workbench.plan(("tiny", *changes))).summary
    assert json.loads(json.dumps(saved | {"scenario": "tiny", "placement": []})) == live


def test_a_value_taken_away_is_saved_as_null(tmp_path: Path) -> None:
    (tmp_path / "capped.yaml").write_text(TINY + "site: {facility_power_cap_kw: 30}\n")
    workbench = Workbench([load_scenario(tmp_path / "capped.yaml")], tmp_path)
    path = workbench.save(("tiny", "site.facility_power_cap_kw=null"), "uncapped")
    assert yaml.safe_load(path.read_text())["site"] == {"facility_power_cap_kw": None}
    assert load_scenario(path).site.facility_power_cap_kw is None


def test_overrides_of_the_command_line_are_saved_with_the_changes(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    workbench = Workbench(
        [load_scenario(tmp_path / "tiny.yaml", ["seed=7", "clusters.h200.nodes=9"])], tmp_path
    )
    path = workbench.save(("tiny", "clusters.mi325x.nodes=5"), "both")
    found = load_scenario(path)
    assert (found.seed, found.clusters["h200"].nodes, found.clusters["mi325x"].nodes) == (7, 9, 5)


def test_nothing_is_written_over_and_no_name_leads_elsewhere(
    workbench: Workbench, post: Post, scenario_file: Path
) -> None:
    before = scenario_file.read_text()
    assert post("save", name="tiny").status_code == 422
    assert scenario_file.read_text() == before
    for name in ("../up", "a/b", "", ".hidden", "-x", "a" * 65, "a b", "x.yaml", "a\0"):
        for what in ("save", "share", *(("size",) if name else ())):
            found = post(what, name=name)
            assert found.status_code == 422, (what, name)
            assert "is not a name" in found.text
    assert [entry.name for entry in scenario_file.parent.glob("*.yaml")] == ["tiny.yaml"]


def test_a_scenario_that_changed_meanwhile_is_not_extended(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    workbench = Workbench([load_scenario(file)], tmp_path)
    file.write_text(TINY.replace("nodes: 4", "nodes: 5"))
    with pytest.raises(Exception, match="has changed since planner ui read it"):
        workbench.save(("tiny", "clusters.mi325x.nodes=2"), "late")
    assert not (tmp_path / "late.yaml").exists()


LATE = (
    "name: late\nextends: tiny.yaml\nclusters: {mi325x: {online: 2026-02-15}, h200: {order: {placed: 2025-10-01}}}\n"
    "futures: {dear: {weight: 2.0, set: {site.pue_ratio: 1.6}}}\n"
)


@pytest.fixture
def two(tmp_path: Path) -> Workbench:
    """Two scenarios, of which one names a future."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "late.yaml").write_text(LATE)
    return Workbench(
        [load_scenario(tmp_path / name) for name in ("late.yaml", "tiny.yaml")],
        tmp_path / "outputs",
    )


def test_a_future_is_what_set_says_of_every_plan_in_its_own_way(two: Workbench) -> None:
    changes = (
        "future.traffic=1.5",
        "future.slip_months=1",
        "future.lead_time=2",
        "future.price=1.2",
    )
    held = two.scenario(("late", "clusters.mi325x.nodes=5", *changes))
    same = load_scenario(
        two.stated("late"),
        [
            "clusters.mi325x.nodes=5", "workloads.*.requests_per_s=×1.5", "clusters.mi325x.online=+1 month",
            "clusters.h200.order.slip_weeks={low: 4.35, base: 6.35, high: 16.35}",
            "clusters.h200.order.lead_weeks=×2", "clusters.*.accelerator_price_usd=×1.2",
        ],
    )  # fmt: skip
    assert held.model_dump() == same.model_dump()
    assert two.scenario(("tiny", "future.slip_months=0", "future.traffic=1")) == two.stated("tiny")
    assert plan_name(("late", "clusters.mi325x.nodes=5", *changes[:2])) == (
        "late: mi325x nodes 5, traffic ×1.5, deliveries 1 months late"
    )


def test_the_grid_has_the_figures_of_compare_with_the_same_futures(
    two: Workbench, tmp_path: Path
) -> None:
    plans = [("tiny",), ("late",)]
    futures = [("future.traffic=1.5",)]
    section, left = two.grid(plans, futures, lambda: None)
    assert left == 5, "one of two plans in three futures is drawn with each request"
    assert str(section_html(section)).count("…") == 5
    while left:
        section, left = two.grid(plans, futures, lambda: None)
    (tmp_path / "f.yaml").write_text(
        "futures: {dear: {weight: 2.0, set: {site.pue_ratio: 1.6}},"
        " busy: {set: {'workloads.*.requests_per_s': ×1.5}}}\n"
    )
    named = load_futures(tmp_path / "f.yaml")
    held = compare([two.stated("tiny"), two.stated("late")], futures=named)
    wanted = {
        (one.scenario, one.future.replace("busy", "traffic ×1.5")): future_row(one)[2:]
        for one in held.futures
    }
    assert {(plan[0], name): row[2:] for (plan, name), row in two._cells.items()} == wanted


def test_plans_stand_side_by_side_in_one_future_as_in_a_comparison(
    workbench: Workbench, post: Post
) -> None:
    contents = workbench.compare([("tiny", "clusters.h200.nodes=9", "future.traffic=2"), ("tiny",)])
    assert contents is not None
    beside = contents.tables["comparison"]
    busy = load_scenario(workbench.stated("tiny"), ["workloads.*.requests_per_s=×2"])
    held = compare(
        [busy, load_scenario(busy, ["name=nine", "clusters.h200.nodes=9"])], replications=1
    )
    names = ("tiny, traffic ×2", "tiny: h200 nodes 9, traffic ×2")
    for name, figures in zip(names, held.figures, strict=True):
        own = beside.where("scenario", name)
        for measure, number in zip(own.texts("measure"), own.numbers("value"), strict=True):
            wanted = figures[measure]
            assert number == (
                None if wanted is None else pytest.approx(wanted, rel=1e-4, abs=1e-5)
            ), measure
    shown = text_of(post(set=["clusters.h200.nodes=9"], plans=[["tiny"]]))
    assert "tiny (baseline)" in shown
    assert shown.index('id="beside"') < shown.index('id="answer"')
    assert 'id="beside"' not in text_of(post(set=["clusters.h200.nodes=9"]))


def test_with_the_grid_the_answer_has_intervals_of_nineteen_replications(
    workbench: Workbench, post: Post
) -> None:
    changes = ["clusters.h200.nodes=11"]
    assert 'class="range"' not in text_of(post(set=changes))
    answered = post(set=changes, part="grid")
    assert answered.json()["left"] == 0
    assert 'class="range"' in text_of(answered)
    assert "SLO MET</span> in 19/19 replications" in answered.json()["line"]


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_plan_whose_grid_is_known_has_intervals_in_whatever_order_it_was_set(
    workbench: Workbench, post: Post, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    """And so has a comparison of plans whose runs are forgotten."""
    if is_forgotten:
        monkeypatch.setattr(workbench_module, "_CACHED_PLANS", 1)
    changes = ["future.traffic=1.5", "future.growth=1", "clusters.h200.nodes=12"]
    for order in (changes, changes[::-1]):
        left = 1
        while left:
            answered = post(set=order, plans=[["tiny", "clusters.h200.nodes=13"]], part="grid")
            left = answered.json()["left"]
        assert "SLO MET</span> in 19/19 replications" in answered.json()["line"]
        assert "n = 1" not in text_of(answered)
        assert answered.json()["grid"].count("traffic ×1.5") == 1


def test_no_sentence_asks_for_an_option_of_a_command(workbench: Workbench, post: Post) -> None:
    plans = [["tiny", "clusters.h200.nodes=15"]]
    first = post(set=["clusters.h200.nodes=14"], plans=plans)
    for text in (first.json()["line"], text_of(first)):
        assert "further replications are being drawn" in text
        assert "-n " not in text
    rest = text_of(post(set=["clusters.h200.nodes=14"], part="rest"))
    assert "Purchases of " in rest
    assert "Accrued cost is " in rest
    assert ".csv" not in rest


def test_the_plan_as_it_was_opened_is_the_first_row_where_any_is_added(
    workbench: Workbench, post: Post
) -> None:
    more = ["clusters.h200.nodes=5"]
    rows = re.findall(r'<th scope="row">([^<]*)<', post(set=more, part="grid").json()["grid"])
    assert rows == ["tiny: h200 nodes 5"]
    shown = ["clusters.h200.nodes=6"]
    added = post(set=shown, plans=[["tiny", *more]], part="grid").json()["grid"]
    rows = re.findall(r'<th scope="row">([^<]*)<', added)
    assert rows == ["tiny", "tiny: h200 nodes 5", "tiny: h200 nodes 6"]


def test_what_is_shared_is_one_file_that_holds_the_grid_and_alone_is_handed_out(
    workbench: Workbench, post: Post, client: TestClient
) -> None:
    answered = post("share", set=["clusters.h200.nodes=5"], plans=[["tiny"]], name="shared")
    assert answered.status_code == 200, answered.text
    assert answered.json() == {
        "said": f"shared as {workbench.outputs / 'shared.html'}",
        "href": "folder/shared/share.html",
    }
    shared = (workbench.outputs / "shared.html").read_bytes()
    assert client.get(f"/{TOKEN}/folder/shared/share.html").content == shared
    for part in (
        b'id="futures"',
        b'id="beside"',
        b'id="answer"',
        b'id="reproduce"',
        b"h200 nodes 5",
    ):
        assert part in shared
    assert b"src=" not in shared.replace(b"script-src", b"").replace(b"style-src", b"").replace(
        b"img-src", b""
    )
    lead = b"3 months from 2026-01-01, seed 1. Shared from the live page."
    assert lead in shared
    for foreign in (b"ledger.csv", b"bridge_accounts.csv", b"manifest.json", b"beside it"):
        assert foreign not in shared
    again = post("share", name="shared").text
    assert again.endswith("shared.html exists already: give it another name")
    (workbench.outputs / "foreign.html").write_text("secret")
    for path in (
        "foreign/share.html",
        "shared/report.html",
        "shared/..%2f..%2ftiny.yaml",
        "shared/.",
        "x/y",
    ):
        assert client.get(f"/{TOKEN}/folder/{path}").status_code in (403, 404), path


def test_a_what_if_states_its_future_as_a_future(two: Workbench, tmp_path: Path) -> None:
    path = two.save(("tiny", "clusters.h200.nodes=5", "future.traffic=1.5"), "busier")
    assert yaml.safe_load(path.read_text()) == {
        "name": "busier",
        "extends": "tiny.yaml",
        "clusters": {"h200": {"nodes": 5}},
        "futures": {"turned": {"set": {"workloads.chat.requests_per_s": "×1.5"}}},
    }
    assert load_scenario(path).clusters["h200"].nodes == 5


def test_every_example_loads_and_is_saved_in_the_folder_that_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [load_scenario(path) for path in sorted(EXAMPLES.glob("*.yaml"))]
    assert len(examples) > 3
    assert all(one.description for one in examples)
    monkeypatch.chdir(tmp_path)
    path = Workbench(examples).save(("two-vendors", "clusters.h200.nodes=5"), "mine")
    assert load_scenario(tmp_path / path).clusters["h200"].nodes == 5


def test_a_sizing_says_what_it_has_and_ends_in_its_report(
    two: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[str]] = []

    class Ended:
        def __init__(self, words: list[str], folder: Path, current: Path) -> None:
            begun.append(words)
            assert current == Path.cwd()
            self.folder = folder
            self.lines = ["1 runs: 2 × H200"]
            self.is_running = True

    monkeypatch.setattr(workbench_module, "SizingProcess", Ended)
    assert two.sizing_state() == {"running": False, "lines": [], "parts": []}
    two.size(("tiny", "clusters.h200.nodes=5", "future.traffic=1.5"), "best")
    assert two.sizing_state() == {
        "running": True,
        "lines": ["1 runs: 2 × H200"],
        "parts": [],
        "href": "",
    }
    with pytest.raises(ScenarioError, match="is running"):
        two.size(("tiny",), "again")
    (words,) = begun
    laid = [text for word, text in itertools.pairwise(words) if word == "--set"]
    searched = load_scenario(two.stated("tiny"), laid)
    assert (searched.clusters["h200"].nodes, searched.workloads["chat"].requests_per_s) == (5, 7.5)
    sized = searched.sizing
    assert sized is not None
    assert {name: one.max_nodes for name, one in sized.clusters.items()} == {
        "h200": 20,
        "mi325x": 16,
    }


def test_the_answer_names_every_change_from_what_to_what(workbench: Workbench, post: Post) -> None:
    shown = post(set=["clusters.h200.nodes=5", "clusters.mi325x.accelerator_price_usd=20000"])
    assert "<code>clusters.h200.nodes</code> 4 → 5" in text_of(shown)
    assert "<code>clusters.mi325x.accelerator_price_usd</code> 18000 → 20000" in text_of(shown)
    assert "nothing is changed" in text_of(post(set=["clusters.h200.nodes=4"]))
    assert "per million tokens" in shown.json()["line"]


def test_controls_are_sent_to_a_page_that_has_others_and_what_they_hold_always(post: Post) -> None:
    shown = post(set=["clusters.h200.nodes=5"]).json()
    assert 'id="setting-clusters.h200.nodes"' in shown["controls"]
    again = post(set=["clusters.h200.nodes=6"], form=shown["form"]).json()
    assert "controls" not in again
    assert ["clusters.h200.nodes", "6", ""] in again["settings"]
    more = post(set=["clusters.b200={accelerator: B200, nodes: 8}"], form=shown["form"]).json()
    assert 'id="setting-clusters.b200.nodes"' in more["controls"]
    assert more["form"] != shown["form"]


def test_no_move_waits_for_why_requests_are_late(
    every: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That routes all work anew, twice: longer than the run itself. The page shows nothing of it."""
    monkeypatch.setattr(
        "planner.answers.run_summary.worst_reasons", lambda _: pytest.fail("routed anew")
    )
    plan = every.plan(("every",))
    assert "per million tokens" in every.line(plan)
    assert every.answer([("every",)])
    assert every.rest(plan)


def test_sections_read_the_tables_that_a_run_folder_has(
    workbench: Workbench, tmp_path: Path
) -> None:
    plan = workbench.plan(("tiny", "clusters.h200.nodes=8"))
    live = workbench.contents(plan)
    write_run(plan.result, tmp_path / "out")
    folder = read_contents(tmp_path / "out")
    for name in set(live.tables) - {"warnings"}:  # which a run's folder has in its summary
        shown = live.table(name)
        written = folder.table(name)
        assert shown is not None, name
        assert written is not None, name
        assert len(shown) == len(written) > 0, name
        below = {
            column: cells for column, cells in written.columns.items() if column != "scenario"
        }  # one plan alone
        assert {column: shown.texts(column) for column in shown.columns} == below, name
    assert len(live.tables) > 5
