"""HTML that cannot be broken into: whatever is not :class:`Html` already is text, and text is escaped.

Tables have bars as cells: they read as numbers first, need no script, and print.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from planner.errors import printable
from planner.records import dataclass
from planner.reporting.scales import colour_class, shortened

Html = Markup
DUMP = "dump"
"""Class of folded parts that print leaves folded: every row of a file that lies beside the report."""
VOID = frozenset({"meta", "br", "hr", "img", "link", "wbr"})


_FOLDER = Path(__file__).parent / "templates"


def text(content: object) -> Html:
    """Escape text for HTML; control characters and marks that turn the reading direction are shown, not obeyed."""
    return content if isinstance(content, Html) else _escaped(str(content))


@functools.lru_cache(maxsize=8192)  # months, names and small numbers stand in one table after another
def _escaped(content: str) -> Html:
    return Html(escape(printable(content)))


@functools.cache
def environment() -> Environment:
    """Return the templates; what they are given is text, and escaped, unless it is :class:`Html` already."""
    templates = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda content: content if isinstance(content, Html) else printable(str(content)),
    )  # fmt: skip
    templates.filters |= {"colour": colour_class, "percent": lambda share: f"{max(0.0, min(share, 1.0)) * 100:.3f}%"}
    templates.filters["shortened"] = shortened
    return templates


@functools.cache
def _macros(template: str) -> object:
    return environment().get_template(template).module


def macro(template: str, name: str, *arguments: object) -> Html:
    """Return what a macro of a template makes of its arguments."""
    return Html(getattr(_macros(template), name)(*arguments).strip())


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
    return macro("tables.html", "table", header, _body(rows, classes), caption, classes)


def _body(rows: Iterable[Sequence[object]], classes: Sequence[str | None]) -> Html:
    """Return the rows of a table, without a template's care for each cell: reports have tens of thousands of them."""
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


TABLES = "tables.html"


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
    return macro(TABLES, "bar", parts, lead)


def group(parts: Sequence[Part]) -> Html:
    """Return bars below one another, one for each part: what is compared, not what adds up."""
    return macro(TABLES, "group", parts)


def spread(ends: tuple[float, float, float, float, float], highest: float, colour: int) -> Html:
    """Return P5 to P95 as a thin bar, P10 to P90 as a thick one, and the median as a line, on a scale from zero."""
    low, lower, middle, upper, high = (max(0.0, min(end / highest, 1.0)) for end in ends)
    css = colour_class(colour)
    pieces = [(f"span {css}", low, high - low), (f"swing {css}", lower, upper - lower)]
    return macro(TABLES, "spread", pieces, middle)


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """Return a legend of coloured squares."""
    return macro(TABLES, "legend", names)


def bar_table(
    header: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[Part] | Html]], caption: str
) -> Html:
    """Return a table of (name, numbers, bar or its parts): the bar has the last column."""
    drawn = [(name, numbers, cell if isinstance(cell, Html) else bar(cell)) for name, numbers, cell in rows]
    return macro(TABLES, "bar_table", header, drawn, caption)


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

    rows = []
    for swing in swings:
        pieces = [
            (f"swing {'noise' if swing.is_noise else css}", (min(end, middle) - left) / span, abs(end - middle) / span)
            for end, css in ((swing.low, "c0"), (swing.high, "c1"))
        ]
        drawn = macro(TABLES, "spread", pieces, (middle - left) / span)
        rows.append((breakable(swing.name), swing.span, swing.shown, drawn))
    return macro(TABLES, "tornado", rows, caption, ends)
