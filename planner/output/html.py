"""Blocks as HTML: one self-contained page whose policy lets it load nothing.

Whatever is not markup already is text, and text is escaped; control characters and marks that turn the reading
direction are shown, not obeyed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import zlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from planner.errors import printable
from planner.output.blocks import Block, Folded, Grid, Marker, Picture, Section, TimeChart
from planner.output.scales import COLOURS, INK, colour_class, shortened
from planner.output.svg import FULL, PAPER, RULE, SOFT, month_labels, paths_of, scale_of, svg_of
from planner.output.words import axis_label

_FOLDER = Path(__file__).parent / "templates"
WIDTH = 860
HEIGHT = 260
LEFT = 62
RIGHT = 10
TOP = 10
BOTTOM = 26
LANE_HEIGHT = 16
_VERDICT = re.compile(r"(?:SLO )?\b(MET|MISSED|INCONCLUSIVE)\b")
_THEMED = {colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)}
_THEMED |= {INK: "var(--ink)", PAPER: "var(--paper)", SOFT: "var(--soft)", RULE: "var(--rule)"}
"""Colours of a picture by what the page calls them, so that they follow its light or dark."""


def escaped(content: object) -> Markup:
    """Return text as HTML; markup stays what it is."""
    if isinstance(content, Markup):
        return content
    return _escaped(str(content))


# Months, names and small numbers stand in one table after another.
@functools.lru_cache(maxsize=8192)
def _escaped(content: str) -> Markup:
    return Markup(escape(printable(content)))


def badged(content: object) -> Markup:
    """Return text as HTML with its verdicts on badges, which say by word and by colour how a plan stands."""
    text = str(escaped(content))
    # After escaping, so that a badge is the only markup in it.
    return Markup(_VERDICT.sub(_badge, text))


def _badge(match: re.Match[str]) -> str:
    return f'<span class="badge {match[1].lower()}">{match[0]}</span>'


@functools.cache
def environment(folder: Path = _FOLDER) -> Environment:
    """Return what fills in templates of a folder."""
    templates = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        finalize=escaped,
        autoescape=True,
    )
    templates.trim_blocks = templates.lstrip_blocks = True
    templates.filters |= {
        "badged": badged,
        "colour_class": colour_class,
        "column_classes": _column_classes,
        "body_rows": _body_rows,
        "drawing": _drawing,
        "inline_svg": _inline_svg,
        "kind": lambda block: type(block).__name__.lower(),
    }
    return templates


@functools.cache
def macros(template: str = "blocks.html", folder: Path = _FOLDER) -> Any:
    """Return the macros of a template, which escape text that is not markup."""
    return environment(folder).get_template(template).module


@functools.cache
def asset(name: str, folder: Path = _FOLDER) -> str:
    """Return a style or script of a page."""
    return (folder / name).read_text(encoding="utf-8")


def policy(*scripts: str) -> str:
    """Return the content policy: our own scripts by their hashes, inline styles, and no address whatever."""
    # A script without its hash in the policy does not run: nobody can add one.
    hashes = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    allowed = " ".join(hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def page(title: str, lead: str, sections: Sequence[Section]) -> bytes:
    """Return the whole file."""
    script = asset("report.js")
    marked = {
        "policy": Markup(policy(script)),
        "style": Markup(asset("report.css")),
        "script": Markup(script),
    }
    template = environment().get_template("page.html")
    text = template.render(title=title, lead=lead, sections=sections, m=macros(), **marked)
    return f"{text}\n".encode()


def section_html(section: Section) -> Markup:
    """Return a section under its question."""
    return Markup(macros().section(section))


def blocks_html(blocks: Sequence[Block]) -> Markup:
    """Return blocks without a heading."""
    return Markup(macros().blocks(blocks))


def _column_classes(grid: Grid) -> list[str]:
    """Return the style of each column: numbers to the right, names that keep to a line."""
    styles = dict.fromkeys(grid.unbroken, "unbroken")
    # A number keeps to its line anyway, so its style is the one that counts.
    styles |= dict.fromkeys(grid.numeric, "number")
    places = range(len(grid.header))
    return [styles.get(place, "") for place in places]


def _body_rows(grid: Grid) -> Markup:
    """Return the rows of a grid without a macro's care: reports have tens of thousands of them."""
    classes = _column_classes(grid)
    marked = [f' class="{name}"' if name else "" for name in classes]
    lines = []
    for row in grid.rows:
        row_name, *cells = map(badged, row)
        styled = zip(marked[1:], cells, strict=True)
        tail = [f"<td{css}>{text}</td>" for css, text in styled]
        lines.append(f'<tr><th{marked[0]} scope="row">{row_name}</th>{"".join(tail)}</tr>\n')
    return Markup("".join(lines))


def _inline_svg(picture: Picture) -> Markup:
    """Return a picture as part of a page, on which no two have the same identifiers."""
    # Identifiers are of the whole page, and two pictures may have the same panels.
    place = zlib.crc32(picture.title.encode())
    _, _, svg = svg_of(picture).partition("?>")
    svg = svg.strip().replace("panel-", f"panel-{place:x}-")

    def themed(match: re.Match[str]) -> str:
        """Return the page's name of a colour, or the colour itself."""
        return _THEMED.get(match[0], match[0])

    # Colours of the palette become the page's, which follow its light or dark.
    return Markup(re.sub(r'(?<=")#\w{6}(?=")', themed, svg))


def _drawing(chart: TimeChart) -> dict[str, Any]:
    """Return what the template of a chart fills in: marks lie in days since start across and thousandths down."""
    scale = scale_of(chart)
    kinds = [marker.kind for marker in chart.markers]
    lanes = tuple(dict.fromkeys(kinds))
    plot_width = WIDTH - RIGHT - LEFT
    plot_height = HEIGHT - BOTTOM - TOP
    ticks = []
    for tick in scale.ticks():
        share = scale.share(tick) or 0.0
        y = TOP + plot_height * (1 - share)
        label = axis_label(tick, chart.unit)
        # Four pixels lower, a label's middle is at its line.
        baseline_y = shortened(y + 4)
        ticks.append((shortened(y), baseline_y, label))
    groups = []
    for series, paths in paths_of(chart, scale):
        paths_svg = "".join(f'<path d="{path}" class="{css}"></path>' for css, path in paths)
        x = " ".join(shortened(x) for x, _ in series.points)
        numbers = ("-" if v is None else f"{v:.5g}" for _, v in series.points)
        values = " ".join(numbers)
        groups.append(
            f'<g class="{colour_class(series.colour)}" data-series="{escaped(series.name)}" '
            f'data-x="{x}" data-v="{values}">{paths_svg}</g>\n'
        )
    months = []
    for day, label in month_labels(chart.start, chart.days):
        x = shortened(LEFT + plot_width * day / chart.days)
        months.append((x, label))
    return {
        "width": WIDTH,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "across": plot_width,
        "down": plot_height,
        "below": HEIGHT - BOTTOM,
        "full": FULL,
        "lane_height": LANE_HEIGHT,
        "days": shortened(chart.days),
        "low": repr(scale.low),
        "high": repr(scale.high),
        "lanes": lanes,
        "height": HEIGHT + LANE_HEIGHT * len(lanes),
        "ticks": ticks,
        "months": months,
        "marks": Markup("".join(groups)),
        "events": _events(tuple(chart.markers), lanes),
        "numbers": _numbers(chart),
    }


@functools.lru_cache(maxsize=16)  # all charts of a report have the same
def _events(markers: Sequence[Marker], lanes: Sequence[str]) -> Markup:
    """Return the marks on the lanes."""
    return Markup(
        "".join(
            f'<rect x="{shortened(marker.start)}" y="{lanes.index(marker.kind) * 10 + 1}" '
            f'width="{shortened(max(marker.end - marker.start, 0.05))}" height="8" '
            f'class="event e-{escaped(marker.kind)}" data-label="{escaped(marker.label)}"></rect>\n'
            for marker in markers
        )
    )


def _numbers(chart: TimeChart) -> Folded:
    """Return the numbers behind a chart, folded."""
    rows = []
    names = [series.name for series in chart.series]
    by_series = [dict(series.points) for series in chart.series]
    # A cluster that is delivered late, or a plan of a shorter horizon, has points in some of the months.
    days = sorted({day for points in by_series for day in points})
    for day in days:
        month = chart.start + timedelta(days=day)
        values = [points.get(day) for points in by_series]
        cells = ["" if value is None else axis_label(value, chart.unit) for value in values]
        rows.append((month.strftime("%Y-%m"), *cells))
    header = ("month", *names)
    numbers = Grid(
        caption=f"{chart.title}, the numbers",
        header=header,
        rows=rows,
        numeric=range(1, len(header)),
    )
    return Folded(title="The numbers", blocks=[numbers])
