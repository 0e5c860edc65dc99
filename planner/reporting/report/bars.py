"""Bars as table cells: they read as numbers first, need no script, and print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.reporting.report.html import Html, element, join
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


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """Return a legend of coloured squares."""
    entries = [
        element("li", element("span", class_=f"square {colour_class(colour)}", aria_hidden="true"), name)
        for name, colour in names
    ]
    return element("ul", *entries, class_="key")


def bar_table(header: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[Part]]], caption: str) -> Html:
    """Return a table of (name, numbers, bar): the bar has the last column."""
    head = join(
        element("th", cell, scope="col", class_="number" if 0 < i < len(header) - 1 else None)
        for i, cell in enumerate(header)
    )
    body = join(
        element(
            "tr",
            element("th", name, scope="row"),
            *(element("td", number, class_="number") for number in numbers),
            element("td", bar(parts), class_="barcell"),
        )
        for name, numbers, parts in rows
    )
    whole = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", body))
    return element("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)


def tornado(rows: Sequence[tuple[str, float, float, str, str]], middle: float, caption: str) -> Html:
    """Return a tornado: (input, answer at its low, answer at its high, and both in words), longest first."""
    ends = [end for _, low, high, _, _ in rows for end in (low, high)] or [middle]
    left, right = min(*ends, middle), max(*ends, middle)
    span = (right - left) or 1.0

    def place(value: float) -> float:
        return (value - left) / span * 100

    drawn = []
    for name, low, high, low_text, high_text in rows:
        pieces = [
            element("span", class_=f"swing {css}", style=f"left:{place(min(end, middle)):.3f}%;"
                    f"width:{abs(end - middle) / span * 100:.3f}%")
            for end, css in ((low, "c0"), (high, "c1"))
        ]  # fmt: skip
        line = element("span", class_="middle", style=f"left:{place(middle):.3f}%")
        drawn.append(
            element(
                "tr",
                element("th", name, scope="row"),
                element("td", low_text, class_="number"),
                element("td", element("span", *pieces, line, class_="tornado", aria_hidden="true"), class_="barcell"),
                element("td", high_text, class_="number"),
            )
        )
    head = join(
        element("th", cell, scope="col", class_=css)
        for cell, css in (("input", None), ("at its low", "number"), ("swing", None), ("at its high", "number"))
    )
    whole = element(
        "table", element("caption", caption), element("thead", element("tr", head)), element("tbody", *drawn)
    )
    return element("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)
