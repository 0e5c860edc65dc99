"""HTML that cannot be broken into: whatever is not :class:`Html` already is text, and text is escaped.

Tables have bars as cells: they read as numbers first, need no script, and print.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from markupsafe import Markup, escape

from planner.errors import printable
from planner.output.scales import colour_class

Html = Markup
BREAK = Html("\n")
"""The end of a line of the file; in a text it would be shown, not obeyed."""
DUMP = "dump"
"""Class of folded parts that print leaves folded: every row of a file that lies beside the report."""
VOID = frozenset({"meta", "br", "hr", "img", "input", "link", "wbr"})


_FOLDER = Path(__file__).parent / "templates"


def text(content: object) -> Html:
    """Escape text for HTML; control characters and marks that turn the reading direction are shown, not obeyed."""
    return content if isinstance(content, Html) else _escaped(str(content))


@functools.lru_cache(maxsize=8192)  # months, names and small numbers stand in one table after another
def _escaped(content: str) -> Html:
    return Html(escape(printable(content)))


@functools.cache
def template(name: str) -> string.Template:
    """Return a page of ours with ``$names`` to fill in."""
    return string.Template((_FOLDER / name).read_text(encoding="utf-8").removesuffix("\n"))


def filled(name: str, **parts: object) -> Html:
    """Return a page of ours with its names filled in."""
    return Html(template(name).substitute({key: text(part) for key, part in parts.items()}))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """Return one element; ``class_`` stands for class, ``data_key`` for data-key, None and False leave one out."""
    parts = [f"<{tag}"]
    for name, content in attributes.items():
        if content is None or content is False:
            continue
        plain = name.rstrip("_").replace("_", "-")
        parts.append(f" {plain}" if content is True else f' {plain}="{text(content)}"')
    parts.append(">")
    if tag not in VOID:
        parts += [text(child) for child in children]
        parts.append(f"</{tag}>")
    return Html("".join(parts))


def join(parts: Iterable[object], between: Literal["", "\n"] = "") -> Html:
    """Join pieces of markup or text."""
    return Html(between.join(text(part) for part in parts))


def table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str,
    *,
    numeric: Iterable[int] = (),
    unbroken: Iterable[int] = (),
) -> Html:
    """Return a table whose first column names the rows; ``numeric`` are aligned right, ``unbroken`` keep to a line."""
    css = dict.fromkeys(unbroken, "unbroken") | dict.fromkeys(numeric, "number")
    classes = [css.get(place) for place in range(len(header))]
    cells = [element("th", cell, scope="col", class_=css) for cell, css in zip(header, classes, strict=True)]
    return _framed(caption, cells, _body(rows, classes))


def _framed(caption: str, header: Iterable[Html], body: Html) -> Html:
    """Return a table in a frame that scrolls where it is too wide."""
    parts = [
        element("caption", caption),
        element("thead", element("tr", *header)),
        BREAK,
        element("tbody", body),
        BREAK,
    ]
    return element("div", element("table", *parts), class_="wide", tabindex="0", role="group", aria_label=caption)


def _body(rows: Iterable[Sequence[object]], classes: Sequence[str | None]) -> Html:
    """Return the rows of a table, without an element's care for each cell: reports have tens of thousands of them."""
    marked = [f' class="{name}"' if name else "" for name in classes]
    first, others = f'<tr><th{marked[0]} scope="row">', [f"<td{mark}>" for mark in marked[1:]]
    lines = []
    for head, *cells in rows:
        shown = "".join(f"{begin}{text(cell)}</td>" for begin, cell in zip(others, cells, strict=False))
        lines.append(f"{first}{text(head)}</th>{shown}</tr>\n")
    return Html("".join(lines))


def breakable(name: str) -> Html:
    """Return a dotted path that a narrow column may break behind its dots and underscores."""
    return Html(re.sub("[._]", r"\g<0><wbr>", str(text(name))))  # no mark that is escaped has either in it


def details(summary: str, *children: object, class_: str | None = None, is_open: bool = False) -> Html:
    """Return a part that is folded until asked for; print shows it unfolded."""
    return element("details", element("summary", summary), *children, class_=class_, open=is_open)


def paragraph(*children: object, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *children, class_=class_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a bar."""

    name: str
    """What it is."""
    share: float
    """Of the longest bar, 0 to 1."""
    colour: int
    """Index into the palette."""
    shown: str
    """Its size in words."""


def bar(parts: Sequence[Part], lead: float = 0.0) -> Html:
    """Return a bar of one or more parts that begins at a share of the longest: a step of a waterfall.

    The numbers stand beside it, so it is decoration to a screen reader.
    """
    begin = [element("span", class_="lead", style=f"width:{_percent(lead)}")] if lead > 0 else []
    drawn = [
        element(
            "span",
            class_=f"part {colour_class(part.colour)}",
            style=f"width:{_percent(part.share)}",
            title=f"{part.name}: {part.shown}",
            data_series=part.name,
        )
        for part in parts
        if part.share > 0
    ]
    return element("span", *begin, *drawn, class_="bar", aria_hidden="true")


def _percent(share: float) -> str:
    """Return a share of a width as a style has it."""
    return f"{max(0.0, min(share, 1.0)) * 100:.3f}%"


def group(parts: Sequence[Part]) -> Html:
    """Return bars below one another, one for each part: what is compared, not what adds up."""
    bars = (part for one in parts for part in (bar([one]), BREAK))
    return element("span", *bars, class_="group", aria_hidden="true")


def spread(ends: tuple[float, float, float, float, float], highest: float, colour: int) -> Html:
    """Return P5 to P95 as a thin bar, P10 to P90 as a thick one, and the median as a line, on a scale from zero."""
    low, lower, middle, upper, high = (max(0.0, min(end / highest, 1.0)) for end in ends)
    css = colour_class(colour)
    pieces = [(f"span {css}", low, high - low), (f"swing {css}", lower, upper - lower)]
    return _spread(pieces, middle)


def _spread(pieces: Iterable[tuple[str, float, float]], middle: float) -> Html:
    """Return bars, each with its style class, its beginning and its length, and a line in their middle."""
    drawn = [
        element("span", class_=css, style=f"left:{_percent(left)};width:{_percent(width)}")
        for css, left, width in pieces
    ]
    line = element("span", class_="middle", style=f"left:{_percent(middle)}")
    return element("span", *drawn, line, class_="tornado", aria_hidden="true")


def _square(colour: int) -> Html:
    return element("span", class_=f"square {colour_class(colour)}", aria_hidden="true")


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """Return a legend of coloured squares."""
    return element("ul", *(element("li", _square(colour), name) for name, colour in names), class_="key")


def bar_table(
    header: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[Part] | Html]], caption: str
) -> Html:
    """Return a table of (name, numbers, bar or its parts): the bar has the last column."""
    first, *numeric, last = header
    cells = [element("th", first, scope="col")]
    cells += [element("th", cell, scope="col", class_="number") for cell in numeric]
    lines = []
    for name, numbers, drawn in rows:
        parts = [element("th", name, scope="row"), *(element("td", number, class_="number") for number in numbers)]
        parts.append(element("td", drawn if isinstance(drawn, Html) else bar(drawn), class_="barcell"))
        lines += [element("tr", *parts), BREAK]
    return _framed(caption, [*cells, element("th", last, scope="col")], join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One bar of a tornado."""

    name: str
    """The input."""
    low: float
    """The answer at one end."""
    high: float
    """The answer at the other."""
    shown: tuple[str, str]
    """Both in words."""
    span: str = ""
    """From where to where the input goes, with its unit."""
    is_noise: bool = False
    """Whether chance alone moves the answer as far."""


def tornado(swings: Sequence[Swing], middle: float, caption: str, ends: tuple[str, str]) -> Html:
    """Return a tornado about a middle; ``ends`` say what the two answers of a bar are."""
    places = [end for swing in swings for end in (swing.low, swing.high)] or [middle]
    left, right = min(*places, middle), max(*places, middle)
    span = (right - left) or 1.0

    lines: list[object] = []
    for swing in swings:
        pieces = [
            (f"swing {'noise' if swing.is_noise else css}", (min(end, middle) - left) / span, abs(end - middle) / span)
            for end, css in ((swing.low, "c0"), (swing.high, "c1"))
        ]
        cells = [
            element("th", breakable(swing.name), scope="row"),
            element("td", swing.span, class_="unbroken"),
            element("td", swing.shown[0], class_="number"),
            element("td", _spread(pieces, (middle - left) / span), class_="barcell"),
            element("td", swing.shown[1], class_="number"),
        ]
        lines += [element("tr", *cells), BREAK]
    header = [
        element("th", "input", scope="col"),
        element("th", "from, to", scope="col"),
        element("th", _square(0), ends[0], scope="col", class_="number"),
        element("th", "swing", scope="col"),
        element("th", _square(1), ends[1], scope="col", class_="number"),
    ]
    return _framed(caption, header, join(lines))
