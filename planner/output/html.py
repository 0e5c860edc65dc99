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
from planner.output.blocks import Block, Folded, Grid, Marker, Picture, Section, Sentence, TimeChart
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
_NOTEBOOK_ROWS = 12
_VERDICT = re.compile(r"(?:SLO )?\b(MET|MISSED|INCONCLUSIVE)\b")
_THEMED = {colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)}
_THEMED |= {INK: "var(--ink)", PAPER: "var(--paper)", SOFT: "var(--soft)", RULE: "var(--rule)"}
"""Colours of a picture by what the page calls them, so that they follow its light or dark."""


def escaped(content: object) -> Markup:
    """Return text as HTML; markup stays what it is."""
    return content if isinstance(content, Markup) else _escaped(str(content))


@functools.lru_cache(
    maxsize=8192
)  # months, names and small numbers stand in one table after another
def _escaped(content: str) -> Markup:
    return Markup(escape(printable(content)))


def badged(content: object) -> Markup:
    """Return text as HTML with its verdicts on badges, which say by word and by colour how a plan stands."""
    return Markup(_VERDICT.sub(_badge, str(escaped(content))))


def _badge(match: re.Match[str]) -> str:
    return f'<span class="badge {match[1].lower()}">{match[0]}</span>'


@functools.cache
def environment(folder: Path = _FOLDER) -> Environment:
    """Return what fills in templates of a folder."""
    made = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        finalize=escaped,
        autoescape=True,
    )
    made.trim_blocks = made.lstrip_blocks = True
    made.filters |= {
        "badged": badged,
        "colour_class": colour_class,
        "column_classes": _column_classes,
        "body_rows": _body_rows,
        "drawing": _drawing,
        "inline_svg": _inline_svg,
        "kind": lambda block: type(block).__name__.lower(),
    }
    return made


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
    digests = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def page(title: str, lead: str, sections: Sequence[Section], memo: Sequence[Section] = ()) -> bytes:
    """Return the whole file; ``memo`` is what it prints as, where there is one."""
    style = asset("report.css") + (asset("memo.css") if memo else "")
    script = asset("report.js")
    marked = {"policy": Markup(policy(script)), "style": Markup(style), "script": Markup(script)}
    filled = environment().get_template("page.html")
    return f"{filled.render(title=title, lead=lead, sections=sections, memo=memo, m=macros(), **marked)}\n".encode()


def memo_page(title: str, sections: Sequence[Section]) -> bytes:
    """Return a memo as a page that prints to two pages."""
    filled = environment().get_template("memo.html")
    return f"{filled.render(title=title, memo=sections, m=macros(), style=Markup(asset('memo.css')))}\n".encode()


def answer_html(title: str, blocks: Sequence[Block], svg: str, folder: str) -> str:
    """Return an answer as part of a notebook: blocks with the first rows of grids, then a chart."""
    shown = [
        block._replace(rows=block.rows[:_NOTEBOOK_ROWS]) if isinstance(block, Grid) else block
        for block in blocks
    ]
    marked = {"svg": Markup(svg), "style": Markup(asset("notebook.css")), "m": macros()}
    return (
        environment()
        .get_template("notebook.html")
        .render(title=title, blocks=shown, folder=folder, **marked)
    )


def section_html(section: Section) -> Markup:
    """Return a section under its question."""
    return Markup(macros().section(section))


def blocks_html(blocks: Sequence[Block]) -> Markup:
    """Return blocks without a heading."""
    return Markup(macros().blocks(blocks))


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return sections of sentences and grids as Markdown."""
    lines = [f"# {title}"]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for block in section.blocks:
            match block:
                case Sentence():
                    lines += ["", _markdown_text(block.text)]
                case Grid():
                    lines.append("")
                    for row in (block.header, ["---"] * len(block.header), *block.rows):
                        cells = (_markdown_text(str(cell)).replace("|", "\\|") for cell in row)
                        lines.append(f"| {' | '.join(cells)} |".replace("\n", " "))
    return "\n".join(lines) + "\n"


def _markdown_text(text: str) -> str:
    """Return text that no reader of Markdown takes for markup; an ampersand that begins no entity stays as it is."""
    return re.sub(r"&(?=[#\w]+;)", "&amp;", text).replace("<", "&lt;").replace(">", "&gt;")


def _column_classes(grid: Grid) -> list[str]:
    """Return the style of each column: numbers to the right, names that keep to a line."""
    styles = dict.fromkeys(grid.unbroken, "unbroken") | dict.fromkeys(grid.numeric, "number")
    return [styles.get(place, "") for place in range(len(grid.header))]


def _body_rows(grid: Grid) -> Markup:
    """Return the rows of a grid without a macro's care: reports have tens of thousands of them."""
    marked = [f' class="{name}"' if name else "" for name in _column_classes(grid)]
    lines = []
    for row in grid.rows:
        first, *cells = map(badged, row)
        others = (f"<td{css}>{shown}</td>" for css, shown in zip(marked[1:], cells, strict=True))
        lines.append(f'<tr><th{marked[0]} scope="row">{first}</th>{"".join(others)}</tr>\n')
    return Markup("".join(lines))


def _inline_svg(picture: Picture, *, is_print: bool = False) -> Markup:
    """Return a picture as part of a page, on which no two have the same identifiers; for print in its own colours."""
    place = zlib.crc32(f"{picture.title}{is_print}".encode())
    drawn = svg_of(picture).partition("?>")[2].strip().replace("panel-", f"panel-{place:x}-")
    return Markup(
        drawn
        if is_print
        else re.sub(r'(?<=")#\w{6}(?=")', lambda match: _THEMED.get(match[0], match[0]), drawn)
    )


def _drawing(chart: TimeChart) -> dict[str, Any]:
    """Return what the template of a chart fills in: marks lie in days since start across and thousandths down."""
    scale = scale_of(chart)
    lanes = tuple(dict.fromkeys(marker.kind for marker in chart.markers))
    across = WIDTH - RIGHT - LEFT
    down = HEIGHT - BOTTOM - TOP
    places = [
        (TOP + down * (1 - (scale.share(tick) or 0.0)), axis_label(tick, chart.unit))
        for tick in scale.ticks()
    ]
    groups = []
    for series, paths in paths_of(chart, scale):
        drawn = "".join(f'<path d="{path}" class="{css}"></path>' for css, path in paths)
        x = " ".join(shortened(x) for x, _ in series.points)
        values = " ".join("-" if v is None else f"{v:.5g}" for _, v in series.points)
        groups.append(
            f'<g class="{colour_class(series.colour)}" data-series="{escaped(series.name)}" '
            f'data-x="{x}" data-v="{values}">{drawn}</g>\n'
        )
    months = month_labels(chart.start, chart.days)
    frame = {
        "width": WIDTH,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "across": across,
        "down": down,
    }
    return {
        "days": shortened(chart.days),
        "low": repr(scale.low),
        "high": repr(scale.high),
        "lanes": lanes,
        "height": HEIGHT + LANE_HEIGHT * len(lanes),
        "ticks": [(shortened(y), shortened(y + 4), label) for y, label in places],
        "months": [(shortened(LEFT + across * day / chart.days), label) for day, label in months],
        "marks": Markup("".join(groups)),
        "events": _events(tuple(chart.markers), lanes),
        "numbers": _numbers(chart),
        **frame | {"below": HEIGHT - BOTTOM, "full": FULL, "lane_height": LANE_HEIGHT},
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
    for points in zip(*(series.points for series in chart.series), strict=False):
        month = (chart.start + timedelta(days=points[0][0])).strftime("%Y-%m")
        rows.append(
            (
                month,
                *("" if value is None else axis_label(value, chart.unit) for _, value in points),
            )
        )
    header = ("month", *(series.name for series in chart.series))
    numbers = Grid(
        caption=f"{chart.title}, the numbers",
        header=header,
        rows=rows,
        numeric=range(1, len(header)),
    )
    return Folded(title="The numbers", blocks=[numbers])
