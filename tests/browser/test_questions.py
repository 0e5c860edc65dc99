"""The page without a scenario in a real browser: the lead's job, bad files, the keyboard alone, a phone, axe."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from planner import api
from planner.ui.server import build_app, listen
from planner.ui.workbench import EXAMPLES, Workbench
from tests.browser.chromium import Browser, PageLeftError
from tests.browser.test_report_page import CONTRAST, faults
from tests.cli.test_leads_job import WORKLOADS, year_of_counts
from tests.conftest import Planner
from tests.ui.test_intake import FILES

PATIENCE_S = 120.0
"""A machine that does other work too may take a minute for a plan."""
FAILED = '(one => !!one && !one.hidden)(document.getElementById("failed"))'
"""Whether the page of a plan says that something failed."""


class Questions:
    """The page as somebody uses it."""

    def __init__(self, browser: Browser, address: str, folder: Path) -> None:
        self.browser, self.address, self.folder = browser, address, folder
        self.run = browser.evaluate

    def open(self) -> None:
        self.browser.visit(self.address)
        self.run("sessionStorage.clear()")
        self.browser.visit(self.address)
        self.said("No file has been read yet")

    def wait(self, condition: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.is_now(condition):
            assert time.monotonic() < until, (condition, self.run("document.body.innerText")[:3000])
            time.sleep(0.05)

    def is_now(self, condition: str) -> bool:
        """Return whether a condition holds: none does while the page goes to another address."""
        try:
            return bool(self.run(f"!!({condition})"))
        except PageLeftError:
            return False

    def text(self, element: str) -> str:
        return str(self.run(f"document.getElementById({element!r}).textContent"))

    def said(self, words: str) -> None:
        self.wait(f'document.getElementById("said").textContent.includes({json.dumps(words)})')

    def answer(self, element: str, value: str) -> None:
        """Answer a question, as a user's change of its control does."""
        self.run(
            f"(() => {{ const one = document.getElementById({element!r}); one.value = {json.dumps(value)};"
            " one.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )

    def press(self, button: str) -> None:
        self.run(f"document.getElementById({button!r}).click()")

    def drop(self, **files: str) -> None:
        """Drop files on the page, by their names without .csv."""
        made = [f"new File([{json.dumps(text)}], '{name}.csv')" for name, text in files.items()]
        self.run(
            "(() => { const held = new DataTransfer();"
            f" for (const file of [{', '.join(made)}]) held.items.add(file);"
            " document.getElementById('drop').dispatchEvent("
            "new DragEvent('drop', { dataTransfer: held, bubbles: true, cancelable: true })); })()"
        )

    def see_the_plan(self) -> None:
        self.browser.events.clear()
        self.press("open")
        self.shown(1)

    def wait_for_plan(self, condition: str) -> None:
        """Wait for what the page of a plan will show, unless it says that it cannot."""
        self.wait(f"{FAILED} || ({condition})")
        assert not self.run(FAILED), self.text("failed")

    def shown(self, moves: int) -> None:
        """Wait until so many moves of the plan are shown whole."""
        self.wait_for_plan(
            '(document.getElementById("status") || {dataset: {}}).dataset.move >= ' + str(moves)
        )

    def drawn(self) -> list[str]:
        """Return the rows of the grid, once all of it is drawn."""
        self.wait_for_plan(
            "(status => status.dataset.drawn && status.dataset.drawn >= status.dataset.move)"
            '(document.getElementById("status"))'
        )
        rows: list[str] = self.run(
            '[...document.querySelectorAll("#grid tr")].map(row =>'
            ' [...row.cells].map(cell => cell.textContent.trim()).join(" | "))'
        )
        return rows

    def problem(self, element: str) -> str:
        self.wait(f'(one => one && !one.hidden)(document.getElementById("{element}"))')
        return self.text(element)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("company")
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    listening = listen(0)
    port = listening.getsockname()[1]
    examples = [api.load(file) for file in sorted(EXAMPLES.glob("*.yaml"))]
    app, _ = build_app(Workbench(examples, asks_first=True), "token", port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}/token/"
    server.should_exit = True
    thread.join(20)
    listening.close()


@pytest.fixture
def page(browser: Browser, address: str, folder: Path) -> Questions:
    page = Questions(browser, address, folder)
    page.open()
    return page


@pytest.mark.prove
def test_the_leads_job_without_yaml(page: Questions, planner: Planner) -> None:
    """Twelve months of three workloads, ten owned H200, a hall of 1.2 MW, two quotes of 20 weeks."""
    for name in WORKLOADS:
        (page.folder / f"{name}.csv").write_text(year_of_counts(name))
    page.browser.choose("#choose", *(page.folder / f"{name}.csv" for name in WORKLOADS))
    page.said("3 workloads read: chat, code, docs")
    page.drop(owned=FILES["have.csv"], quotes=FILES["offers.csv"])
    page.said("owned.csv: 10 nodes owned; quotes.csv: 2 quotes")
    page.answer("a-workloads.code.model", "qwen3-32b")
    page.answer("a-workloads.code.preset", "code-completion")
    page.answer("a-site.facility_power_cap_kw", "1200")
    page.answer("name", "lead")
    page.wait('document.getElementById("command").textContent.includes("planner init lead")')
    page.see_the_plan()
    # Two what-ifs: growth doubles, as a column, and four nodes of the B200 quote, as a row.
    head, stated = page.drawn()
    assert head == "plan | as stated | growth ×2 | deliveries 6 months late"
    page.press("keep")
    page.shown(2)
    page.answer("setting-clusters.b200-quote.nodes", "4")
    page.shown(3)
    _, same, more = page.drawn()
    assert more.startswith("lead: b200-quote nodes 4 | ")
    assert same == stated
    assert more != stated
    # The API's lines are those of this plan, with its changes.
    assert 'api.run("lead.yaml", overrides=["clusters.b200-quote.nodes=4"])' in page.text(
        "commands"
    )
    page.run("history.go(-2)")
    page.shown(4)
    page.press("memo")
    page.wait_for_plan('document.querySelector("#written a")')
    page.press("share")
    page.wait_for_plan('document.getElementById("written").textContent.includes("lead.html")')
    page.press("save")
    page.wait_for_plan(
        'document.getElementById("written").textContent.includes("saved as lead.yaml")'
    )
    assert page.browser.errors() == []
    asked = page.browser.requests()
    assert [each for each in asked if not each.startswith((page.address, "data:"))] == []
    # What was saved runs on a command line, with the same figures.
    lines = page.text("commands").splitlines()
    assert lines[0] == "planner run lead.yaml"
    told = planner("run", "lead.yaml", "--out", "again", "-q")
    assert told.code == 0, told.err
    summaries = [
        json.loads(Path(path, "summary.json").read_text()) for path in ("outputs/lead", "again")
    ]
    assert summaries[0] == summaries[1]
    assert Path("outputs", "lead", "memo.html").exists()
    assert list(api.load("lead.yaml").futures) == [
        "growth-x-2",
        "deliveries-6-months-late",
    ]


@pytest.mark.prove
def test_a_plan_from_files_is_sized(page: Questions, axe: str) -> None:
    page.drop(chat=FILES["chat.csv"], quotes=FILES["offers.csv"])
    page.said("2 quotes")
    page.answer("name", "nothing-there")
    page.see_the_plan()
    page.drawn()
    page.press("size")
    page.wait('document.getElementById("size").dataset.done')
    # Nothing is delivered in the first months, and nothing is there.
    assert "Nothing that may be bought is in service as 2026-02 begins" in page.text("failed")
    assert faults(page.browser, axe) == []
    page.browser.visit(f"{page.address}?start")
    page.said("2 quotes")
    for column, text in (("accelerator", "H200"), ("nodes", "2"), ("bought", "2025-03-01")):
        page.answer(f"owned-0-{column}", text)
    page.said("2 nodes owned")
    page.answer("name", "sized")
    page.wait('document.getElementById("command").textContent.includes("init sized")')
    page.see_the_plan()
    page.drawn()
    page.press("size")
    page.wait('document.getElementById("answer-sized").textContent')
    assert "Buy nothing more: it meets the SLO target" in page.text("answer-sized")
    assert faults(page.browser, axe) == []
    page.browser.visit(page.run('document.querySelector("#answer-sized > a").href'))
    assert page.browser.errors() == []
    assert (Path("outputs") / "sized-size" / "policy.yaml").exists()


def test_what_was_answered_outlives_a_reload_and_the_way_back(page: Questions) -> None:
    page.drop(chat=FILES["chat.csv"])
    page.said("1 workload read: chat")
    page.answer("a-workloads.chat.slo.ttft_s", "1.5")
    page.answer("owned-0-nodes", "3")
    page.problem("p-owned")
    page.browser.visit(page.address)
    assert "row 1: accelerator: is required" in page.problem("p-owned")
    assert page.run('document.getElementById("owned-0-nodes").value') == "3"
    page.answer("owned-0-nodes", "")
    page.said("1 workload read: chat")
    assert page.run('document.getElementById("a-workloads.chat.slo.ttft_s").value') == "1.5"
    source = 'document.getElementById("a-workloads.chat.slo.ttft_s").nextElementSibling.textContent'
    assert page.run(source) == "as given"
    page.run('[...document.querySelectorAll("#files button")][0].click()')
    page.said("No file has been read yet")
    assert page.text("files") == ""


def test_a_bad_file_and_a_bad_answer_are_told_in_their_places_and_nothing_is_lost(
    page: Questions,
) -> None:
    page.drop(chat=FILES["chat.csv"].replace("3600,", "many,", 1), offers=FILES["offers.csv"])
    assert page.problem("f-chat.csv").startswith("chat.csv:2: requests: many")
    page.drop(chat=FILES["chat.csv"], offers=FILES["offers.csv"].replace("B200", "B20O"))
    assert "offers.csv:2: clusters.b20o-quote.accelerator" in page.problem("f-offers.csv")
    page.drop(offers=FILES["offers.csv"])
    page.said("offers.csv: 2 quotes")
    page.answer("a-slo_target.attainment", "99")
    assert "slo_target.attainment: must be less than or equal to 1" in page.problem("p-objectives")
    assert page.text("said") == "1 answer needs a correction first; nothing is lost."
    page.press("open")
    page.wait('document.activeElement.id === "a-slo_target.attainment"')
    control = 'document.getElementById("a-slo_target.attainment")'
    assert page.run(f"{control}.getAttribute('aria-invalid')") == "true"
    described = page.run(f"{control}.getAttribute('aria-describedby')")
    assert described == "p-objectives"
    assert page.text("f-offers.csv") == ""
    page.answer("a-slo_target.attainment", "0.99")
    page.said("offers.csv: 2 quotes")
    assert page.run('document.querySelectorAll("[aria-invalid]").length') == 0


def test_an_answer_that_is_taken_back_leaves_what_stands_there_without_it(
    page: Questions,
) -> None:
    cap = 'document.getElementById("a-site.facility_power_cap_kw").placeholder'
    pue = 'document.getElementById("a-site.pue_ratio").placeholder'
    page.wait(f"{pue}.endsWith(', assumed')")
    assumed = page.run(pue)
    assert page.run(cap) == "none"
    for path, text in (("site.facility_power_cap_kw", "1200"), ("site.pue_ratio", "1.5")):
        page.answer(f"a-{path}", text)
        page.wait(f'document.getElementById("command").textContent.includes("{path}={text}")')
        page.answer(f"a-{path}", "")
        page.wait(f'!document.getElementById("command").textContent.includes("{path}")')
    assert (page.run(cap), page.run(pue)) == ("none", assumed)


def test_a_number_with_a_unit_is_refused(page: Questions, browser: Browser) -> None:
    tab_to(page, "a-site.facility_power_cap_kw")
    browser.type("1.2 MW")
    browser.key("Tab")
    assert "cannot be '1.2 MW' (it takes only a number" in page.problem("p-power")
    page.press("open")
    page.wait('document.activeElement.id === "a-site.facility_power_cap_kw"')
    page.answer("a-site.facility_power_cap_kw", "1.2")
    page.said("No file has been read yet")
    # What is too little for one node is told when the plan is to be seen.
    page.press("open")
    assert "a single node draws" in page.problem("p-power")


def test_typed_machines_are_added_to_those_of_a_file_which_says_so(page: Questions) -> None:
    hidden = 'document.getElementById("read-quoted").hidden'
    page.answer("quoted-0-accelerator", "B200")
    page.answer("quoted-0-price_usd", "39500")
    page.said("quotes-typed.csv: 1 quote")
    assert page.run(hidden) is True
    page.drop(offers=FILES["offers.csv"])
    page.said("offers.csv: 2 quotes")
    said = "Read: 2 quotes, from offers.csv. The rows below are added to them."
    assert page.text("read-quoted") == said
    assert page.run(hidden) is False
    assert page.run('document.getElementById("read-owned").hidden') is True


def tab_to(page: Questions, element: str) -> None:
    """Press Tab until an element has the focus, which is then seen."""
    for _ in range(120):
        page.browser.key("Tab")
        if page.run("document.activeElement.id") == element:
            width = page.run("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
            assert width >= 2, "the focus is not seen"
            return
    pytest.fail(f"Tab does not lead to {element}")


def test_the_keyboard_alone_is_enough(page: Questions, browser: Browser) -> None:
    (page.folder / "chat.csv").write_text(FILES["chat.csv"])
    browser.page("Page.setInterceptFileChooserDialog", enabled=True)
    tab_to(page, "choose")
    browser.events.clear()
    browser.page("Runtime.evaluate", expression="1", userGesture=True)
    browser.key("Enter")
    browser.wait_for(lambda event: event.get("method") == "Page.fileChooserOpened")
    (opened,) = [
        event for event in browser.events if event.get("method") == "Page.fileChooserOpened"
    ]
    node = opened["params"]["backendNodeId"]
    browser.page("DOM.setFileInputFiles", backendNodeId=node, files=[str(page.folder / "chat.csv")])
    browser.page("Page.setInterceptFileChooserDialog", enabled=False)
    page.said("1 workload read: chat")
    tab_to(page, "a-workloads.chat.slo.ttft_s")
    browser.type("1.5")
    tab_to(page, "owned-0-accelerator")
    for letter in "H2":
        browser.key(letter)
    tab_to(page, "owned-0-nodes")
    browser.type("8")
    tab_to(page, "owned-0-bought")
    # Month, day and year, as the browser's own fields have them.
    for digit in "03012025":
        browser.key(digit)
    tab_to(page, "name")
    browser.type("by-keys")
    tab_to(page, "open")
    page.said("owned-typed.csv: 8 nodes owned")
    assert page.run('document.getElementById("owned-0-bought").value') == "2025-03-01"
    browser.key("Enter")
    page.shown(1)
    # The hints come first, and go for good.
    tab_to(page, "next")
    for _ in range(3):
        browser.key("Enter")
    assert page.run('document.getElementById("tour").hidden') is True
    tab_to(page, "setting-future.traffic")
    browser.page("Input.dispatchKeyEvent", type="keyDown", key="a", commands=["selectAll"])
    browser.type("2")
    browser.key("Enter")
    page.shown(2)
    assert "future.traffic=2" in page.run("decodeURIComponent(location.search)")
    browser.visit(page.run("location.href"))
    page.shown(1)
    assert page.run('document.getElementById("tour").hidden') is True


def test_hints_point_at_what_they_tell_of(page: Questions) -> None:
    page.run('document.cookie = "planner-hints=; path=/; max-age=0"')
    page.answer("owned-0-accelerator", "H200")
    page.answer("owned-0-nodes", "2")
    page.answer("owned-0-bought", "2025-03-01")
    page.said("2 nodes owned")
    page.see_the_plan()
    for number, target in enumerate(("controls", "grid", "bar"), start=1):
        assert page.text("hint").startswith(f"{number} of 3: ")
        pointed = page.run('[...document.querySelectorAll(".pointed")].map(one => one.id)')
        assert pointed == [target]
        page.press("next")
    assert page.run('document.getElementById("tour").hidden') is True
    page.press("elsewhere")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page: Questions, scheme: str) -> None:
    page.browser.colour_scheme(scheme)
    page.drop(chat=FILES["chat.csv"])
    page.said("1 workload read: chat")
    page.answer("a-slo_target.attainment", "99")
    page.problem("p-objectives")
    assert page.run(CONTRAST) == []


def test_a_phone_needs_no_sideways_scrolling(page: Questions) -> None:
    page.browser.resize(390, 844, mobile=True)
    page.drop(chat=FILES["chat.csv"], offers=FILES["offers.csv"])
    page.said("offers.csv: 2 quotes")
    page.run('document.querySelectorAll("details").forEach(part => { part.open = true; })')
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run('document.getElementById("go").getBoundingClientRect().height') < 400
    page.run('document.querySelectorAll("#go details").forEach(part => { part.open = false; })')
    page.run("window.scrollTo(0, 1500)")
    # The way to the plan stays in sight.
    assert page.run('document.getElementById("open").getBoundingClientRect().bottom') <= 844


@pytest.mark.prove
def test_axe_finds_no_fault(page: Questions, axe: str) -> None:
    page.drop(chat=FILES["chat.csv"], offers=FILES["offers.csv"])
    page.said("offers.csv: 2 quotes")
    page.run('document.querySelectorAll("details").forEach(part => { part.open = true; })')
    assert faults(page.browser, axe) == []
    page.answer("a-slo_target.attainment", "99")
    page.problem("p-objectives")
    assert faults(page.browser, axe) == []
    page.browser.resize(390, 844, mobile=True)
    assert faults(page.browser, axe) == []
    page.answer("a-slo_target.attainment", "0.9")
    page.said("offers.csv: 2 quotes")
    page.see_the_plan()
    page.run('document.getElementById("elsewhere").open = true')
    assert faults(page.browser, axe) == []
