"""The live page in a real browser: every control, back, two tabs, a run that fails, a phone, the dark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import uvicorn
import yaml

from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.ui.server import build_app, listen
from planner.ui.workbench import Workbench
from tests.browser.chromium import Browser
from tests.browser.test_report_page import CONTRAST, faults
from tests.conftest import TINY

MOVES = 'Number(document.getElementById("status").dataset.move || 0)'
NODES = "clusters.h200.nodes"


class Page:
    """The live page as somebody uses it."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address, self.run = browser, address, browser.evaluate

    def open(self, query: str = "") -> None:
        self.browser.visit(self.address + query)
        self.settled(1)

    def settled(self, moves: int) -> None:
        """Wait until so many moves are shown whole."""
        self.wait(f"{MOVES} >= {moves}")

    def wait(self, condition: str) -> None:
        self.run(
            f"new Promise(done => {{ const look = () => {condition} ? done() : setTimeout(look, 20); look(); }})"
        )

    def text(self, element: str) -> str:
        return str(self.run(f"document.getElementById({element!r}).textContent"))

    def value(self, path: str) -> str:
        return str(self.run(f'document.getElementById("setting-{path}").value'))

    def turn(self, path: str, value: str, kind: str = "change", selector: str = "") -> None:
        """Give a control another value, as a user's change of it does, and wait for what comes of it."""
        moves = self.run(MOVES)
        found = json.dumps(selector or f'[id="setting-{path}"]')
        self.run(
            f"(() => {{ const one = document.querySelector({found}); one.value = {json.dumps(value)};"
            f" one.dispatchEvent(new Event({kind!r}, {{ bubbles: true }})); }})()"
        )
        self.settled(moves + 1)

    def press(self, button: str) -> None:
        moves = self.run(MOVES)
        self.run(f"document.getElementById({button!r}).click()")
        self.settled(moves + 1)

    def go(self, script: str) -> None:
        """Go through the history, and wait for the plan that is there."""
        moves = self.run(MOVES)
        self.run(script)
        self.settled(moves + 1)

    @property
    def state(self) -> list[tuple[str, str]]:
        """What the address says."""
        held = parse_qsl(urlsplit(str(self.run("location.href"))).query)
        return [one for one in held if one != ("of", "tiny")]

    @property
    def shown(self) -> Any:
        """All that the results show of the plan, once drawn, but for the ticks of charts, which come in sight."""
        self.wait(
            f'Number(document.getElementById("status").dataset.drawn || 0) >= {self.run(MOVES)}'
        )
        return self.run(
            """[...document.querySelectorAll("#first section, #others section")].map(part => {
            const copy = part.cloneNode(true); copy.querySelectorAll(".axes").forEach(axes => axes.remove());
            return [part.id, copy.textContent]; })"""
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


def _served(files: list[Path], outputs: Path) -> Iterator[str]:
    listening = listen(0)
    token = "token"
    port = listening.getsockname()[1]
    workbench = Workbench([load_scenario(one) for one in files], outputs)
    workbench.run_first_plan()
    app, _ = build_app(workbench, token, port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}/{token}/"
    server.should_exit = True
    thread.join(20)
    listening.close()


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "other.yaml").write_text(
        "name: other\ndescription: What if?\nextends: tiny.yaml\nclusters: {h200: {nodes: 5}}\n"
    )
    yield from _served([folder / "tiny.yaml", folder / "other.yaml"], folder / "outputs")


@pytest.fixture
def live(browser: Browser, address: str) -> Page:
    page = Page(browser, address)
    page.open()
    return page


def test_it_shows_the_report_s_own_sections_and_asks_nobody_else(live: Page, address: str) -> None:
    assert [name for name, _ in live.shown][:5] == ["answer", "measures", "time", "money", "losses"]
    assert live.browser.errors() == []
    asked = live.browser.requests()
    assert [each for each in asked if not each.startswith((address, "data:"))] == []
    assert "per million tokens" in live.text("line")


def test_a_number_a_slider_a_choice_a_date_and_new_machines_each_make_another_plan(
    live: Page,
) -> None:
    live.turn(NODES, "6")
    live.turn("", "7", "input", f'input[type=range][data-path="{NODES}"]')
    assert live.value(NODES) == "7", "the box goes with its slider"
    live.turn("site.tariff", "us-texas")
    live.turn("clusters.mi325x.online", "2026-03-01")
    live.turn("site.facility_power_cap_kw", "300")
    live.turn("site.facility_power_cap_kw", "")
    live.turn("", "clusters.b200={accelerator: B200, nodes: 8}", "change", "#add")
    assert live.value("clusters.b200.nodes") == "8"
    live.turn("clusters.b200.nodes", "2")
    assert [text for _, text in live.state] == [
        f"{NODES}=7",
        "site.tariff=us-texas",
        "clusters.mi325x.online=2026-03-01",
        "site.facility_power_cap_kw=null",
        "clusters.b200={accelerator: B200, nodes: 8}",
        "clusters.b200.nodes=2",
    ]
    assert "clusters.h200.nodes 4 → 7" in live.text("first")
    assert live.browser.errors() == []


def test_undo_back_forward_and_reload_lead_to_the_plans_that_were_shown(live: Page) -> None:
    assert live.run('document.getElementById("undo").disabled')
    plans = [live.shown]
    for nodes in ("6", "8"):
        live.turn(NODES, nodes)
        plans.append(live.shown)
    assert plans[0] != plans[1] != plans[2]
    live.go('document.getElementById("undo").click()')
    assert (live.shown, live.value(NODES)) == (plans[1], "6")
    live.go("history.forward()")
    assert (live.shown, live.value(NODES)) == (plans[2], "8")
    live.go("history.back()")
    live.go("history.back()")
    assert (live.shown, live.value(NODES), live.state) == (plans[0], "4", [])
    assert live.run('document.getElementById("undo").disabled')
    live.go("history.forward()")
    live.browser.visit(live.run("location.href"))
    live.settled(1)
    assert (live.shown, live.value(NODES)) == (plans[1], "6")


def test_a_slider_that_is_dragged_shows_its_last_place_and_is_one_step_of_undo(live: Page) -> None:
    before = live.shown
    moves = live.run(MOVES)
    live.run(
        f"""(() => {{ const slider = document.querySelector('input[type=range][data-path="{NODES}"]');
        const say = (kind) => slider.dispatchEvent(new Event(kind, {{ bubbles: true }}));
        for (const place of [5, 6, 7, 8, 9]) {{ slider.value = place; say("input"); }}
        say("change"); }})()"""
    )
    live.settled(moves + 5)
    assert live.state == [("set", f"{NODES}=9")]
    assert "clusters.h200.nodes 4 → 9" in live.text("first")
    live.go('document.getElementById("undo").click()')
    assert (live.shown, live.state) == (before, [])


CAP = "site.facility_power_cap_kw"
OTHER_NODES = "clusters.mi325x.nodes"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run take longer than somebody takes to the next field."""

    def simulate_slowly(scenario: Any) -> Any:
        time.sleep(0.4)
        return simulate(scenario)

    monkeypatch.setattr("planner.ui.workbench.simulate", simulate_slowly)


def type_into(live: Page, path: str, text: str) -> None:
    """Type into a field in place of what is there, without leaving it."""
    field = f'document.getElementById("setting-{path}")'
    live.run(f"{field}.closest('details').open = true; {field}.focus(); {field}.select()")
    live.browser.type(text)


@pytest.mark.parametrize("pause_s", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("paths", [(OTHER_NODES, NODES, CAP), (CAP, OTHER_NODES, NODES)])
def test_fields_that_are_changed_one_soon_after_another_all_count(
    live: Page, slow: None, paths: tuple[str, ...], pause_s: float
) -> None:
    # No plan that the server knows already.
    first = 20 + round(100 * pause_s) + 5 * (paths[0] == CAP)
    wanted = {path: str(first + place) for place, path in enumerate(paths)}
    wanted[CAP] += "00"
    for path, text in wanted.items():
        type_into(live, path, text)
        live.browser.key("Tab")
        time.sleep(pause_s)
    live.wait(f'location.search.includes("{paths[-1]}")')
    drawn(live)
    assert live.state == [("set", f"{path}={text}") for path, text in wanted.items()]
    assert {path: live.value(path) for path in paths} == wanted
    assert live.run('document.getElementById("failed").hidden') is True


@pytest.mark.parametrize("first", [NODES, CAP])
def test_an_answer_that_comes_meanwhile_leaves_what_is_being_typed(
    live: Page, slow: None, first: str
) -> None:
    """A power cap has a slider once it has a number, so that the controls are put up anew."""
    moves = live.run(MOVES)
    type_into(live, first, "700")
    live.browser.key("Tab")
    type_into(live, OTHER_NODES, "7")
    live.settled(moves + 1)
    assert live.value(OTHER_NODES) == "7"
    assert live.run("document.activeElement.id") == f"setting-{OTHER_NODES}"
    live.browser.key("Tab")
    live.settled(moves + 2)
    assert live.state == [("set", f"{first}=700"), ("set", f"{OTHER_NODES}=7")]


def test_changes_that_are_refused_together_are_all_told(live: Page, slow: None) -> None:
    moves = live.run(MOVES)
    for path, text in ((OTHER_NODES, "31"), (NODES, "-3")):
        type_into(live, path, text)
        live.browser.key("Tab")
    live.settled(moves + 2)
    refusal, more = live.text("failed").splitlines()
    assert refusal == "h200, nodes: must be greater than or equal to 0, not -3"
    assert more == "All 2 changes made since the plan shown here are undone."
    assert (live.value(OTHER_NODES), live.value(NODES), live.state) == ("3", "4", [])


def test_undo_takes_back_what_has_no_answer_yet_and_no_more(live: Page, slow: None) -> None:
    live.turn(NODES, "21")
    moves = live.run(MOVES)
    type_into(live, OTHER_NODES, "21")
    live.browser.key("Tab")
    live.run('document.getElementById("undo").click()')
    live.settled(moves + 2)
    assert (live.state, live.value(OTHER_NODES)) == ([("set", f"{NODES}=21")], "3")


def test_what_is_saved_has_the_change_that_is_not_answered_yet(
    live: Page, slow: None, folder: Path
) -> None:
    live.run('document.getElementById("name").value = "soon"')
    type_into(live, NODES, "23")
    live.browser.key("Tab")
    live.run('document.getElementById("save").click()')
    live.wait('document.getElementById("written").textContent.startsWith("saved as soon.yaml")')
    assert yaml.safe_load((folder / "soon.yaml").read_text())["clusters"] == {"h200": {"nodes": 23}}


def test_the_way_past_the_controls_leaves_undo_as_it_is(live: Page) -> None:
    live.turn(NODES, "6")
    live.run('document.querySelector("a.skip").focus()')
    live.browser.key("Enter")
    live.wait('document.activeElement.id === "results"')
    time.sleep(0.3)
    assert live.run('document.getElementById("undo").disabled') is False
    live.go('document.getElementById("undo").click()')
    assert live.state == []


def test_a_number_with_a_unit_is_refused_and_stays_to_be_mended(live: Page) -> None:
    type_into(live, CAP, "1.2 MW")
    live.browser.key("Tab")
    refusal = 'power cap, kW at the meter: takes only a number, not "1.2 MW"'
    live.wait('!document.getElementById("failed").hidden')
    assert live.text("failed") == refusal
    # Another change is made, and what was refused still stands there with what is wrong with it.
    live.turn(NODES, "6")
    assert (live.text("failed"), live.value(CAP)) == (refusal, "1.2 MW")
    invalid = f"document.getElementById('setting-{CAP}').getAttribute('aria-invalid')"
    assert live.run(invalid) == "true"
    assert live.state == [("set", f"{NODES}=6")]
    live.turn(CAP, "1200")
    assert live.run('document.getElementById("failed").hidden') is True
    assert live.run(invalid) is None
    assert live.state == [("set", f"{NODES}=6"), ("set", f"{CAP}=1200")]
    # A cap under the power of one node is read as it is written, and is told.
    live.turn(CAP, "1.2")
    assert "a single node draws" in live.text("failed")
    type_into(live, NODES, "")
    live.browser.key("Tab")
    live.wait('document.getElementById("failed").textContent.includes("needs a number")')
    assert "h200, nodes: needs a number" in live.text("failed")
    live.go('document.getElementById("undo").click()')
    assert live.value(NODES) == "6"
    assert live.run('document.querySelectorAll("[aria-invalid]").length') == 0


def test_two_tabs_turn_each_their_own_plan(live: Page, address: str) -> None:
    live.turn(NODES, "6")
    before = live.shown
    with live.browser.another_tab():
        other = Page(live.browser, address)
        other.open()
        assert other.value(NODES) == "4"
        other.turn(NODES, "9")
        assert other.state == [("set", f"{NODES}=9")]
    assert (live.shown, live.value(NODES), live.state) == (before, "6", [("set", f"{NODES}=6")])
    live.turn(NODES, "7")
    assert live.state == [("set", f"{NODES}=7")]


def test_a_run_that_fails_says_why_and_leaves_the_last_good_plan(live: Page) -> None:
    live.turn(NODES, "6")
    before = live.shown
    state = live.state
    live.turn("clusters.h200.precision", "fp4")
    assert live.text("failed").startswith("h200, precision: H200 has no fp4 arithmetic")
    assert live.run('document.getElementById("failed").hidden') is False
    assert (live.shown, live.state) == (before, state)
    assert live.value("clusters.h200.precision") == ""
    live.turn(NODES, "-3")
    assert live.text("failed") == "h200, nodes: must be greater than or equal to 0, not -3"
    assert live.value(NODES) == "6"
    live.turn(NODES, "7")
    assert live.run('document.getElementById("failed").hidden') is True
    live.go('document.getElementById("undo").click()')
    assert (live.shown, live.state) == (before, state)


def test_an_address_that_cannot_be_run_shows_the_scenario_and_says_why(live: Page) -> None:
    live.browser.visit(f"{live.address}?set={NODES}%3D-3")
    live.settled(2)
    assert live.state == []
    assert live.value(NODES) == "4"
    assert "h200, nodes: must be" in live.text("failed")


def drawn(live: Page) -> str:
    """Wait until the grid is whole, and return it as rows of cells."""
    live.wait(f'Number(document.getElementById("status").dataset.drawn || 0) >= {live.run(MOVES)}')
    cells = '[...document.querySelectorAll("#grid tr")].map(r => [...r.cells].map(c => c.textContent.trim()).join(" | "))'  # noqa: E501
    return "\n".join(live.run(cells))


def test_plans_stand_in_a_grid_of_futures_and_beside_one_another_until_they_are_removed(
    live: Page,
) -> None:
    live.press("keep")
    live.turn(NODES, "9")
    live.turn("future.traffic", "2")
    head, stated, this = drawn(live).splitlines()
    assert head == "plan | as stated | traffic ×2"
    assert this.startswith("tiny: h200 nodes 9 | MET, P 100%, $")
    assert stated.startswith("tiny | MET, P 100%, $")
    assert live.run('document.querySelectorAll("#grid .badge.met").length') == 4
    assert "tiny, traffic ×2 (baseline)" in live.text("beside")
    assert "19/19 replications" in live.text("line")
    live.press("future")
    assert live.value("future.traffic") == "1"
    assert drawn(live).splitlines()[0] == head, "a future that was added stays a column"
    assert live.state == [
        ("set", f"{NODES}=9"), ("plan", '["tiny"]'), ("future", '["future.traffic=2"]'),
    ]  # fmt: skip
    twice = """(() => { const ids = [...document.querySelectorAll("[id]")].map(n => n.id);
      return ids.filter((id, i) => ids.indexOf(id) !== i); })()"""
    assert live.run(twice) == []
    for _ in range(2):
        moves = live.run(MOVES)
        live.run('document.querySelector("#kept button").click()')
        live.settled(moves + 1)
    assert len(drawn(live).splitlines()) == 2
    assert "beside" not in [name for name, _ in live.shown]
    assert live.browser.errors() == []


def test_the_plan_as_it_was_opened_is_the_first_row_and_the_baseline(live: Page) -> None:
    live.turn(NODES, "6")
    live.press("keep")
    live.turn(NODES, "9")
    assert [row.partition(" | ")[0] for row in drawn(live).splitlines()] == [
        "plan",
        "tiny",
        "tiny: h200 nodes 6",
        "tiny: h200 nodes 9",
    ]
    assert "tiny (baseline)" in live.text("beside")


def test_once_the_grid_is_drawn_the_answer_is_that_of_all_replications(
    live: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two rows are more plans than the server keeps the runs of.
    monkeypatch.setattr("planner.ui.workbench._CACHED_PLANS", 1)
    live.turn(NODES, "10")
    live.press("keep")
    # Its grid is known already when it is shown again.
    for nodes in ("11", "10"):
        live.turn(NODES, nodes)
        drawn(live)
        assert "19/19 replications" in live.text("line")
        for place in ("line", "results"):
            assert "n = 1" not in live.text(place)
            assert "-n 19" not in live.text(place)


def test_another_scenario_of_the_list_keeps_the_plans_of_the_grid(live: Page) -> None:
    live.press("keep")
    live.browser.events.clear()
    live.run('document.querySelector("#gallery a[data-of=other]").click()')
    live.browser.wait_for(lambda event: event.get("method") == "Page.loadEventFired")
    live.settled(1)
    assert live.text("gallery").split() == ["tinyother", "What", "if?"]
    assert [row.partition(" | ")[0] for row in drawn(live).splitlines()] == [
        "plan",
        "other",
        "tiny",
    ]
    assert live.value(NODES) == "5"


def test_what_is_shared_opens_without_the_page_and_asks_nobody(live: Page, folder: Path) -> None:
    live.turn(NODES, "6")
    live.run('document.getElementById("name").value = "for-you"')
    live.run('document.getElementById("share").click()')
    live.wait('document.querySelector("#written a")')
    shared = folder / "outputs" / "for-you.html"
    live.browser.open(shared)
    assert (
        live.run('document.querySelector("#futures tbody th").textContent') == "tiny: h200 nodes 6"
    )
    assert live.run('document.querySelectorAll("figure.chart .marks path").length') > 3
    words = live.run("document.body.innerText")
    assert "3 months from 2026-01-01, seed 1. Shared from the live page." in words
    for foreign in ("ledger.csv", "bridge_accounts.csv", "manifest.json", "files beside it", "-n "):
        assert foreign not in words
    assert live.browser.errors() == []
    assert live.browser.requests() == [shared.absolute().as_uri()]


def test_a_second_person_s_browser_has_nothing_without_the_token(live: Page, address: str) -> None:
    root = address.removesuffix("token/")
    with live.browser.another_tab():
        for path in ("", "show", "folder/for-you/share.html", "wrong/", "tokens/"):
            live.browser.visit(root + path)
            assert "the address lacks its token" in live.run("document.body.innerText"), path
        asked = f"fetch({(root + 'wrong/show')!r}, {{ method: 'POST', body: '{{}}' }}).then(a => a.status, () => 0)"
        assert live.run(asked) in (0, 403)


def test_what_is_saved_is_there(live: Page, folder: Path) -> None:
    live.turn(NODES, "6")
    live.run('document.getElementById("name").value = "six"')
    live.run('document.getElementById("save").click()')
    live.wait('document.getElementById("written").textContent.startsWith("saved as six.yaml in ")')
    assert yaml.safe_load((folder / "six.yaml").read_text()) == {
        "name": "six",
        "extends": "tiny.yaml",
        "clusters": {"h200": {"nodes": 6}},
    }
    live.run('document.getElementById("save").click()')
    live.wait('!document.getElementById("failed").hidden')
    assert live.text("failed").endswith("six.yaml exists already: give it another name")


def test_folded_parts_and_hidden_names_stay_as_they_are_when_the_page_is_redrawn(
    live: Page,
) -> None:
    live.run('document.querySelector("#first details").open = true')
    live.run('document.querySelector("#utilisation .toggle[data-series=h200]").click()')
    live.turn(NODES, "6")
    assert live.run('document.querySelector("#first details").open') is True
    toggle = 'document.querySelector("#utilisation .toggle[data-series=h200]")'
    assert live.run(f'{toggle}.getAttribute("aria-pressed")') == "false"
    assert live.run(
        'document.querySelector("#utilisation .marks g[data-series=h200]").hasAttribute("hidden")'
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(live: Page, scheme: str) -> None:
    live.browser.colour_scheme(scheme)
    live.run('document.querySelectorAll("details").forEach(part => { part.open = true; })')
    assert live.run(CONTRAST) == []


def test_a_phone_needs_no_sideways_scrolling_and_keeps_the_answer_in_sight(live: Page) -> None:
    live.browser.resize(390, 844, mobile=True)
    live.open(f"?set={NODES}%3D6&plan=%5B%22tiny%22%5D")
    assert live.run("document.documentElement.scrollWidth") <= 390
    assert live.run('[...document.querySelectorAll("#controls details")].every(part => !part.open)')
    live.run(
        'document.querySelectorAll("#controls details").forEach(part => { part.open = true; })'
    )
    live.run("window.scrollTo(0, 900)")
    assert live.run("document.documentElement.scrollWidth") <= 390
    assert 0 <= live.run('document.getElementById("line").getBoundingClientRect().top') < 60


def test_plans_side_by_side_fit_a_small_desktop(live: Page) -> None:
    live.browser.resize(1280, 900)
    live.turn(NODES, "1")
    live.press("keep")
    live.turn("workloads.chat.requests_per_s", "500")
    drawn(live)
    table = 'document.querySelector("#beside table")'
    # The widest words and figures that a plan has.
    live.run(
        f"for (const row of {table}.tBodies[0].rows) {{"
        " row.cells[1].querySelector('.badge').textContent = 'INCONCLUSIVE';"
        " row.cells[3].textContent = '124.4% more'; row.cells[6].textContent = '−$123.3 million'; }"
    )
    assert live.run(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
    assert live.run("document.documentElement.scrollWidth") <= 1280


@pytest.mark.prove
def test_axe_finds_no_fault(live: Page, axe: str) -> None:
    live.press("keep")
    live.turn(NODES, "6")
    drawn(live)
    live.run('document.querySelectorAll("details").forEach(part => { part.open = true; })')
    assert faults(live.browser, axe) == []


@pytest.mark.prove
def test_every_control_of_the_page_makes_another_plan(live: Page) -> None:
    other = {
        "accelerator": "H100",
        "engine": "sglang",
        "precision": "bf16",
        "tariff": "us-texas",
        "per": "horizon",
        "model": "qwen3-32b",
    }
    paths = live.run(
        '[...document.querySelectorAll("[id^=setting-][data-path]")].map(one => [one.dataset.path, one.type])'
    )
    for path, kind in paths:
        live.open()
        field = path.rpartition(".")[2]
        value = live.value(path) or live.run(
            f'document.getElementById("setting-{path}").placeholder'
        )
        if kind == "date":
            text = "2026-02-20"
        elif kind.startswith("select"):
            text = other.get(field, "fleet")
        elif field in ("attainment", "confidence"):
            text = "0.95"
        else:
            text = (
                str(float("500" if value == "none" else value) + 1).removesuffix(".0")
                if field != "discount_fraction"
                else "0.2"
            )
        live.turn(path, text)
        assert [turn.partition("=")[0] for _, turn in live.state] == [path], live.text("failed")
        assert path in live.text("first"), live.text("failed")
