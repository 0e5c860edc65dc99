"""The reports of every command in a real browser: what must hold whatever they are of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.conftest import KINDS
from tests.browser.test_report_page import CONTRAST, faults

ORDER = (
    *(
        "answer",
        "futures",
        "review",
        "latency",
        "queue",
        "time",
        "outside",
        "money",
        "losses",
        "sensitivities",
    ),
    *("assumptions", "error", "reproduce"),
)
FIRST_CHART = 'document.querySelector("main section figure.chart .plot, main section .picture svg")'


@pytest.fixture(
    params=[
        "run",
        *(pytest.param(kind, marks=pytest.mark.prove) for kind in KINDS if kind != "run"),
    ]
)
def opened(
    request: pytest.FixtureRequest, browser: Browser, report_of: Callable[[str], Path]
) -> Browser:
    browser.open(report_of(request.param))
    return browser


def test_it_answers_in_order_without_network_or_complaint(opened: Browser) -> None:
    shown = opened.evaluate('[...document.querySelectorAll("main > section")].map(s => s.id)')
    assert [shown[0], shown[-1]] == ["answer", "reproduce"]
    assert shown == [one for one in ORDER if one in shown]
    assert opened.errors() == []
    assert len(opened.requests()) == 1


def test_folded_charts_are_drawn_when_unfolded(opened: Browser) -> None:
    opened.evaluate('document.querySelectorAll("details.plan").forEach(d => { d.open = true; })')
    opened.evaluate("new Promise(done => setTimeout(done, 200))")
    widths = opened.evaluate(
        """[...document.querySelectorAll("figure.chart")].map(f =>
           Number(f.querySelector(".frame").getAttribute("viewBox").split(" ")[2]))"""
    )
    assert all(width > 600 for width in widths), widths


def test_identifiers_are_unique_and_tables_have_captions(opened: Browser) -> None:
    twice = """(() => { const ids = [...document.querySelectorAll("[id]")].map(n => n.id);
      return ids.filter((id, i) => ids.indexOf(id) !== i); })()"""
    assert opened.evaluate(twice) == []
    assert (
        opened.evaluate('[...document.querySelectorAll("table")].filter(t => !t.caption).length')
        == 0
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(opened: Browser, scheme: str) -> None:
    opened.colour_scheme(scheme)
    assert opened.evaluate(CONTRAST) == []


def test_a_phone_needs_no_sideways_scrolling(opened: Browser) -> None:
    opened.resize(390, 844, mobile=True)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 900)])
def test_the_first_screen_has_a_chart_and_contents_stay_in_sight(
    opened: Browser, width: int, height: int
) -> None:
    opened.resize(width, height)
    assert opened.evaluate(f"{FIRST_CHART}.getBoundingClientRect().top") < height - 250
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
    opened.evaluate("new Promise(done => setTimeout(done, 400))")
    top, bottom = opened.evaluate(
        '(b => [b.top, b.bottom])(document.querySelector("nav a:last-of-type").getBoundingClientRect())'
    )
    assert 0 <= top < bottom <= height
    opened.evaluate("window.scrollTo(0, 0)")


def test_at_full_width_no_table_of_the_answer_is_cut_and_a_phone_shows_the_cost(
    opened: Browser,
) -> None:
    opened.resize(1440, 900)
    wide = """[...document.querySelectorAll("#answer > .wide, #futures > .wide")].filter(n =>
      n.scrollWidth > n.clientWidth + 1).map(n => n.getAttribute("aria-label"))"""
    assert opened.evaluate(wide) == []
    opened.resize(390, 844, mobile=True)
    price = """[...document.querySelectorAll("#answer td, #answer dd, #answer p, #answer .ytick")].some(n => {
      const b = n.getBoundingClientRect();
      return /[$]|USD|million|late/.test(n.textContent) && b.left >= 0 && b.right <= 390; })"""
    assert opened.evaluate(price)


def test_a_verdict_is_a_badge_with_its_word_and_no_cluster_without_a_node_is_in_a_legend(
    opened: Browser,
) -> None:
    badges = '[...document.querySelectorAll("main .badge")].map(b => [b.className.split(" ")[1], b.textContent])'
    for css, word in opened.evaluate(badges):
        assert word.removeprefix("SLO ").lower() == css
    names = opened.evaluate('[...document.querySelectorAll(".toggle")].map(b => b.dataset.series)')
    assert "spare" not in names
    raw = """[...document.querySelectorAll("main p, main .bullets li")].map(n => { const c = n.cloneNode(true);
      c.querySelectorAll("code").forEach(x => x.remove()); return c.textContent; })
      .filter(t => /(clusters|workloads|site|finance)[.][a-z*]|[a-z]_(usd|fraction|per_s)\\b/.test(t))"""
    assert opened.evaluate(raw) == []


@pytest.mark.prove
def test_axe_finds_no_fault(opened: Browser, axe: str) -> None:
    """In one colour scheme: contrast, which is all that differs, is looked at in both above."""
    opened.evaluate('document.querySelectorAll("details").forEach(d => { d.open = true; })')
    assert faults(opened, axe) == []
