"""The reports of every command in a real browser: what must hold whatever they are of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.conftest import KINDS
from tests.browser.test_report_page import CONTRAST, faults, printed_pages

ORDER = ["answer", "time", "money", "losses", "sensitivities", "assumptions", "error", "reproduce"]


@pytest.fixture(params=["run", *(pytest.param(kind, marks=pytest.mark.prove) for kind in KINDS if kind != "run")])
def opened(request: pytest.FixtureRequest, browser: Browser, report_of: Callable[[str], Path]) -> Browser:
    browser.open(report_of(request.param))
    return browser


def test_it_answers_in_order_without_network_or_complaint(opened: Browser) -> None:
    assert opened.evaluate('[...document.querySelectorAll("main > section")].map(s => s.id)') == ORDER
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
    assert opened.evaluate('[...document.querySelectorAll("table")].filter(t => !t.caption).length') == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(opened: Browser, scheme: str) -> None:
    opened.colour_scheme(scheme)
    assert opened.evaluate(CONTRAST) == []


def test_a_phone_needs_no_sideways_scrolling(opened: Browser) -> None:
    opened.resize(390, 844, mobile=True)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


def test_it_prints_as_two_pages(opened: Browser) -> None:
    assert 1 <= printed_pages(opened) <= 2


@pytest.mark.prove
def test_axe_finds_no_fault(opened: Browser, axe: str) -> None:
    """In one colour scheme: contrast, which is all that differs, is looked at in both above."""
    opened.evaluate('document.querySelectorAll("details").forEach(d => { d.open = true; })')
    assert faults(opened, axe) == []
