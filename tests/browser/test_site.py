"""The site of the docs, opened from a folder in a real browser: what a search finds, and how the pages look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser.chromium import Browser

SEARCH = """
(async () => {
  const box = document.querySelector(".md-search__input");
  const said = () => document.querySelector(".md-search-result__meta").textContent;
  const type = async (term, answer) => {
    box.value = term;
    box.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
    for (let tries = 0; tries < 400 && !answer.test(said()); tries++) {
      await new Promise(done => setTimeout(done, 25));
    }
  };
  document.querySelector("#__search").checked || document.querySelector("#__search").click();
  box.focus();
  await type("", /Type/);
  await type(%s, /match|No/);
  return [...document.querySelectorAll(".md-search-result__item")].slice(0, 3).flatMap(
    item => [...item.querySelectorAll("a")].map(link => new URL(link.href).pathname + new URL(link.href).hash));
})()"""
"""Type a term into the site's own search; where its first three results lead."""

GLOSSARY = {
    "MTBF": "mtbf-and-mttr", "mean time between failures": "mtbf-and-mttr", "failure rate": "mtbf-and-mttr",
    "chargeback": "absorbed-cost", "cost allocation": "absorbed-cost", "showback": "absorbed-cost",
    "utilization": "utilised", "TCO": "tco", "total cost of ownership": "tco",
    "depreciation": "depreciation", "amortization": "depreciation", "useful life": "depreciation",
    "SLA": "slo", "p99": "slo", "error budget": "slo", "rack": "rack", "blast radius": "rack",
    "colo": "colocation", "colocation": "colocation", "throughput": "throughput", "latency": "ttft",
    "downtime": "availability", "uptime": "availability", "WACC": "discount-rate", "ROI": "irr-and-payback",
    "payback": "irr-and-payback", "gross margin": "margin", "quantization": "precision",
    "load balancing": "routing-and-load-balancing", "NVLink": "interconnect", "InfiniBand": "interconnect",
    "spot instance": "contract", "reserved instance": "contract", "procurement": "lead-time",
    "right-sizing": "sizing", "forecast": "forecast", "seasonality": "seasonality", "RMA": "spare",
    "N+1": "reserve-nodes", "PPA": "tariff", "CO2": "carbon", "RFP": "quote", "VRAM": "kv-cache",
    "tokenomics": "levelised-cost", "cold start": "ttft", "LoRA": "fine-tune", "goodput": "goodput",
}  # fmt: skip
"""Words of the trade, and the entry of the glossary that has them."""


@pytest.fixture
def start(browser: Browser, site: Path) -> Browser:
    browser.resize(1300, 900)
    browser.open(site / "index.html")
    return browser


def test_a_term_of_the_trade_is_among_the_first_three_found(start: Browser) -> None:
    missed = {}
    for term, entry in GLOSSARY.items():
        found = start.evaluate(SEARCH % json.dumps(term))
        if not any(place.endswith(f"/reference/glossary.html#{entry}") for place in found):
            missed[term] = found
    assert not missed


def test_it_asks_nothing_of_the_network(start: Browser) -> None:
    start.evaluate(SEARCH % json.dumps("depreciation"))
    assert not [address for address in start.requests() if address.startswith("http")]
    assert not start.errors()


def test_it_has_a_sidebar_with_every_part(start: Browser) -> None:
    titles = start.evaluate(
        '[...document.querySelectorAll(".md-sidebar--primary .md-nav__item--section > label, '
        '.md-sidebar--primary .md-nav__item--section > .md-nav__link")].map(n => n.textContent.trim())'
    )
    assert {"Tutorial", "Gallery", "How-to guides", "Explanation", "Reference"} <= set(titles)


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_it_is_as_dark_as_the_readers_system(
    browser: Browser, site: Path, scheme: str, is_dark: bool
) -> None:
    browser.colour_scheme(scheme)
    browser.open(site / "index.html")
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
    assert (sum(map(int, colour[:3])) < 3 * 128) == is_dark
