"""Bars as table cells: they read as numbers first, need no script, and print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.reporting.report.html import Html, breakable, element, join
from planner.reporting.report.timechart import colour_class


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


def bar(parts: Sequence[Part]) -> Html:
    """Return a bar of one or more parts; the numbers stand beside it, so it is decoration to a screen reader."""
    drawn = [
        element(
            "span",
            class_=f"part {colour_class(part.colour)}",
            style=f"width:{max(0.0, min(part.share, 1.0)) * 100:.3f}%",
            title=f"{part.name}: {part.shown}",
            data_series=part.name,
        )
        for part in parts
        if part.share > 0
    ]
    return element("span", *drawn, class_="bar", aria_hidden="true")


def group(parts: Sequence[Part]) -> Html:
    """Return bars below one another, one for each part: what is compared, not what adds up."""
    return element("span", *(bar([part]) for part in parts), class_="group", aria_hidden="true")


def spread(ends: tuple[float, float, float, float, float], highest: float, colour: int) -> Html:
    """Return P5 to P95 as a thin bar, P10 to P90 as a thick one, and the median as a line, on a scale from zero."""
    low, lower, middle, upper, high = (max(0.0, min(end / highest, 1.0)) * 100 for end in ends)
    pieces = [
        element("span", class_=f"{css} {colour_class(colour)}", style=f"left:{left:.3f}%;width:{right - left:.3f}%")
        for css, left, right in (("span", low, high), ("swing", lower, upper))
    ]
    line = element("span", class_="middle", style=f"left:{middle:.3f}%")
    return element("span", *pieces, line, class_="tornado", aria_hidden="true")


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """Return a legend of coloured squares."""
    entries = [element("li", _square(colour), name) for name, colour in names]
    return element("ul", *entries, class_="key")


def bar_table(
    header: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[Part] | Html]], caption: str
) -> Html:
    """Return a table of (name, numbers, bar or its parts): the bar has the last column."""
    head = join(
        element("th", cell, scope="col", class_="number" if 0 < i < len(header) - 1 else None)
        for i, cell in enumerate(header)
    )
    body = join(
        element(
            "tr",
            element("th", name, scope="row"),
            *(element("td", number, class_="number") for number in numbers),
            element("td", drawn if isinstance(drawn, Html) else bar(drawn), class_="barcell"),
        )
        for name, numbers, drawn in rows
    )
    whole = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", body))
    return element("div", whole, class_="wide", tabindex="0", role="group", aria_label=caption)


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


def tornado(swings: Sequence[Swing], middle: float, caption: str, ends: tuple[str, str]) -> Html:
    """Return a tornado about a middle; ``ends`` say what the two answers of a bar are."""
    places = [end for swing in swings for end in (swing.low, swing.high)] or [middle]
    left, right = min(*places, middle), max(*places, middle)
    span = (right - left) or 1.0

    def place(value: float) -> float:
        return (value - left) / span * 100

    drawn = []
    for swing in swings:
        pieces = [
            element("span", class_=f"swing {css}", style=f"left:{place(min(end, middle)):.3f}%;"
                    f"width:{abs(end - middle) / span * 100:.3f}%")
            for end, css in ((swing.low, "c0"), (swing.high, "c1"))
        ]  # fmt: skip
        line = element("span", class_="middle", style=f"left:{place(middle):.3f}%")
        drawn.append(
            element(
                "tr",
                element("th", breakable(swing.name), scope="row"),
                element("td", swing.shown[0], class_="number"),
                element("td", element("span", *pieces, line, class_="tornado", aria_hidden="true"), class_="barcell"),
                element("td", swing.shown[1], class_="number"),
            )
        )
    head = join(
        element("th", *cells, scope="col", class_=css)
        for cells, css in (
            (("input",), None),
            ((_square(0), ends[0]), "number"),
            (("swing",), None),
            ((_square(1), ends[1]), "number"),
        )
    )
    whole = element(
        "table", element("caption", caption), element("thead", element("tr", head)), element("tbody", *drawn)
    )
    return element("div", whole, class_="wide", tabindex="0", role="group", aria_label=caption)


def _square(colour: int) -> Html:
    return element("span", class_=f"square {colour_class(colour)}", aria_hidden="true")
