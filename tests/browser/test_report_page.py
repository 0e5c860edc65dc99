"""The real report in a real browser."""

from __future__ import annotations

import base64
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from planner.memo.memo_pages import memo_html
from planner.output.blocks import Grid, Section
from tests.browser.chromium import Browser

CONTRAST = """
(() => {
  const channel = c => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; };
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const behind = node => {
    for (let n = node; n; n = n.parentElement) {
      const c = parse(getComputedStyle(n).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(c => c.nodeType === 3 && c.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest("script, style")) continue;
    const style = getComputedStyle(node);
    const colour = parse(node.closest("svg") ? style.fill : style.color);
    const found = ratio(colour, behind(node.closest("svg") ? node.closest("div, figure") : node));
    if (found < 4.5) poor.push([node.tagName, node.textContent.slice(0, 30), found]);
  }
  return poor;
})()
"""


def faults(page: Browser, axe: str) -> list[dict[str, Any]]:
    """Return what axe-core finds wrong."""
    page.evaluate(axe + "; undefined")
    found: list[dict[str, Any]] = page.evaluate(
        "axe.run().then(r => r.violations.map(v => "
        "({id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map(n => n.html)})))"
    )
    return found


def box(page: Browser, selector: str) -> dict[str, float]:
    found: dict[str, float] = page.evaluate(
        f"""(() => {{ const n = document.querySelector({json.dumps(selector)}); n.scrollIntoView({{block: "center",
        behavior: "instant"}}); const b = n.getBoundingClientRect();
        return {{x: b.x, y: b.y, width: b.width, height: b.height}}; }})()"""
    )
    return found


def test_every_chart_is_drawn(page: Browser) -> None:
    charts = page.evaluate(
        """[...document.querySelectorAll("figure.chart")].map(f => ({
          id: f.id, marks: [...f.querySelectorAll(".marks path")].filter(p => p.getBBox().width > 0).length,
          series: f.querySelectorAll(".marks g").length,
          ticks: f.querySelectorAll(".ytick").length, box: f.querySelector(".frame").getBoundingClientRect().width}))"""
    )
    assert {"utilisation", "cost", "money-months", "losses-months"} <= {
        chart["id"] for chart in charts
    }
    for chart in charts:
        assert chart["marks"] >= chart["series"] > 0, chart
        assert chart["ticks"] >= 2, chart
        assert chart["box"] > 700, chart
    assert page.evaluate('document.querySelectorAll("#utilisation .lanes rect").length') > 10


def test_a_cluster_is_hidden_in_every_chart_and_the_axis_follows(page: Browser) -> None:
    state = """[...document.querySelectorAll('.marks g[data-series="b200"]')].map(g =>
               getComputedStyle(g).display)"""
    assert set(page.evaluate(state)) == {"inline"}
    before = page.evaluate('document.querySelector("#cost .marks").getAttribute("viewBox")')
    page.evaluate("""document.querySelector('#cost .toggle[data-series="b200"]').click()""")
    assert set(page.evaluate(state)) == {"none"}
    pressed = page.evaluate(
        """[...document.querySelectorAll('.toggle[data-series="b200"]')].map(b => b.getAttribute("aria-pressed"))"""
    )
    assert set(pressed) == {"false"}
    assert page.evaluate('document.querySelector("#cost .marks").getAttribute("viewBox")') != before
    page.evaluate("""document.querySelector('#utilisation .toggle[data-series="b200"]').click()""")
    assert page.evaluate('document.querySelector("#cost .marks").getAttribute("viewBox")') == before


def test_hiding_the_bottom_layer_lets_the_others_down(page: Browser) -> None:
    layer = (
        """document.querySelector('#money-months g[data-series="colocation"] .layer').getBBox()"""
    )
    before = page.evaluate(f"{layer}.y + {layer}.height")
    page.evaluate(
        """document.querySelector('#money-months .toggle[data-series="depreciation"]').click()"""
    )
    after = page.evaluate(f"{layer}.y + {layer}.height")
    assert after > before  # y grows downwards
    assert after == pytest.approx(1000, abs=60)


def test_pointing_shows_the_values_of_the_month(page: Browser, report: Path) -> None:
    place = box(page, "#utilisation .plot")
    page.mouse("mouseMoved", place["x"] + place["width"] * 0.5, place["y"] + place["height"] * 0.4)
    tip: str = page.evaluate('document.querySelector("#utilisation .tip").innerText')
    assert page.evaluate('document.querySelector("#utilisation .tip").hidden') is False
    month = tip.splitlines()[0]
    assert month in {"2027-05", "2027-06", "2027-07"}
    rows = (report.parent / "timeline_monthly_clusters.csv").read_text().splitlines()
    (wanted,) = [row.split(",")[5] for row in rows if f",{month}-01,mi325x," in row]
    shown = tip.split("mi325x")[1].split("%", maxsplit=1)[0]
    assert float(shown) == pytest.approx(100 * float(wanted), rel=1e-3)
    page.mouse("mouseMoved", 2, 2)
    assert page.evaluate('document.querySelector("#utilisation .tip").hidden') is True


def _window(page: Browser, chart: str = "utilisation") -> list[float]:
    text: str = page.evaluate(f'document.querySelector("#{chart} .marks").getAttribute("viewBox")')
    return [float(part) for part in text.split()]


def _shows(page: Browser, chart: str, width: float) -> bool:
    """Say whether a chart comes to show so many days: on a busy machine a page draws a while after its event."""
    for _ in range(100):
        if _window(page, chart)[2] == pytest.approx(width, rel=0.01):
            return True
        time.sleep(0.05)
    return False


def test_dragging_zooms_all_charts_and_a_double_click_undoes_it(page: Browser) -> None:
    whole = _window(page)
    place = box(page, "#utilisation .plot")
    y = place["y"] + place["height"] * 0.4
    start = place["x"] + place["width"] * 0.4
    end = place["x"] + place["width"] * 0.6
    page.mouse("mousePressed", start, y, button="left", buttons=1)
    page.mouse("mouseMoved", end, y, button="left", buttons=1)
    page.mouse("mouseReleased", end, y, button="left")
    assert _window(page)[2] == pytest.approx(whole[2] * 0.2 * 1.09, rel=0.05)
    assert _window(page, "cost")[:1] == _window(page)[:1]
    page.evaluate('document.querySelector("#cost .zoom[data-zoom=all]").click()')
    assert _window(page) == whole


def test_the_keyboard_alone_reads_and_zooms(page: Browser) -> None:
    page.evaluate('document.querySelector("#cost .plot").focus()')
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert page.evaluate('document.querySelector("#cost .tip b").textContent') == "2026-02"
    page.key("End")
    assert page.evaluate('document.querySelector("#cost .tip b").textContent') == "2028-12"
    assert page.evaluate('document.querySelector("#cost .tip").getAttribute("role")') == "status"
    whole = _window(page, "cost")
    page.key("+")
    assert _shows(page, "cost", whole[2] / 2)
    page.key("0")
    assert _shows(page, "cost", whole[2])
    assert _window(page, "cost") == whole


def test_a_phone_needs_no_sideways_scrolling(page: Browser) -> None:
    page.resize(390, 844, mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (
        page.evaluate('document.querySelector("#cost .frame").getBoundingClientRect().width') > 330
    )
    sizes = page.evaluate(
        '[...document.querySelectorAll("#cost .xtick")].map(t => t.getBoundingClientRect()).map(b => [b.left, b.right])'
    )
    assert len(sizes) >= 3
    assert all(left[1] < right[0] for left, right in itertools.pairwise(sizes)), (
        "labels lie on one another"
    )


def test_without_its_script_the_report_still_shows_its_charts(page: Browser, report: Path) -> None:
    page.page("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(report)
        document = page.page("DOM.getDocument")["root"]["nodeId"]
        found = page.page("DOM.querySelectorAll", nodeId=document, selector=".marks path")[
            "nodeIds"
        ]
        ticks = page.page("DOM.querySelectorAll", nodeId=document, selector=".xtick")["nodeIds"]
        assert len(found) > 15
        assert len(ticks) > 15
    finally:
        page.page("Emulation.setScriptExecutionDisabled", value=False)


def printed_pages(page: Browser) -> int:
    """Return how many pages of paper the open page takes."""
    pdf = base64.b64decode(
        page.page("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
    )
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_the_report_prints_whole(page: Browser) -> None:
    assert printed_pages(page) > 5
    assert page.errors() == []


def test_a_heading_sorts_its_table_both_ways(page: Browser) -> None:
    """By size, not by letters: $1.0 million is more than $384,000."""
    rows = '[...document.querySelector("#money tbody").rows]'
    column = page.evaluate(
        f"[1, 2, 3, 4, 5].find(at => {rows}.every(r => /[0-9]/.test(r.cells[at].textContent)))"
    )
    cells = f"{rows}.map(r => [r.cells[0].textContent, r.cells[{column}].textContent])"
    button = f'document.querySelectorAll("#money thead .sort")[{column}]'
    before = page.evaluate(cells)
    page.evaluate(f"{button}.click()")
    rising = page.evaluate(cells)
    assert rising != before
    assert sorted(map(tuple, rising)) == sorted(map(tuple, before))
    sizes = [
        float(re.sub(r"[^\d.]", "", cell)) * (1e6 if "million" in cell else 1.0)
        for _, cell in rising
    ]
    assert sizes == sorted(sizes)
    assert page.evaluate(f'{button}.closest("th").getAttribute("aria-sort")') == "ascending"
    page.evaluate(f"{button}.click()")
    assert page.evaluate(cells) == rising[::-1]


def test_the_files_beside_it_are_linked_and_there(page: Browser, report: Path) -> None:
    links = page.evaluate(
        '[...document.querySelectorAll("#reproduce .files a")].map(a => a.getAttribute("href"))'
    )
    assert links[0] == "workbook.xlsx"
    assert "ledger.csv" in links
    assert all((report.parent / name).is_file() for name in links)


def test_landmarks_headings_and_labels(page: Browser) -> None:
    assert page.evaluate("document.documentElement.lang") == "en"
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert (
            page.evaluate(
                f'document.querySelectorAll("body > {landmark}, header > {landmark}").length'
            )
            == 1
        )
    levels = page.evaluate(
        '[...document.querySelectorAll("h1,h2,h3,h4")].map(h => Number(h.tagName[1]))'
    )
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    nameless = """[...document.querySelectorAll("button, [tabindex='0'], svg[role=img], nav")].filter(n =>
      !(n.textContent.trim() || n.getAttribute("aria-label") || n.getAttribute("aria-labelledby"))).length"""
    assert page.evaluate(nameless) == 0
    dangling = """[...document.querySelectorAll("[aria-labelledby],[aria-describedby]")].filter(n =>
      ["aria-labelledby", "aria-describedby"].some(a =>
        n.getAttribute(a) && !document.getElementById(n.getAttribute(a)))).length"""
    assert page.evaluate(dangling) == 0


def test_the_tables_of_a_memo_scroll_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    header = ("workload", *(f"{number}. present value" for number in range(9)))
    row = ("chat", *("$123.4 million" for _ in range(9)))
    grid = Grid(caption="Cost of each workload", header=header, rows=[row])
    path = tmp_path / "memo.html"
    path.write_bytes(memo_html("memo", [Section(key="memo", title="Cost", blocks=[grid])]))
    browser.resize(390, 844, mobile=True)
    browser.open(path)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    wide = 'document.querySelector(".wide")'
    assert browser.evaluate(f"{wide}.scrollWidth > {wide}.clientWidth")
    browser.key("Tab")
    assert browser.evaluate(f"document.activeElement === {wide}"), "scrolled by keys too"
