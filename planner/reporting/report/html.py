"""HTML that cannot be broken into: whatever is not :class:`Html` already is text, and text is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from planner.errors import printable

DUMP = "dump"
"""Class of folded parts that print leaves folded: every row of a file that lies beside the report."""
VOID = frozenset({"meta", "br", "hr", "link", "wbr"})


class Html(str):
    """Markup made by this module; the only string that is not escaped."""

    __slots__ = ()


def text(content: object) -> Html:
    """Escape text for HTML; control characters and marks that turn the reading direction are shown, not obeyed."""
    if isinstance(content, Html):
        return content
    return Html(html.escape(printable(str(content)), quote=True))


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
    right, whole_line = set(numeric), set(unbroken)

    def css(column: int) -> str | None:
        return "number" if column in right else "unbroken" if column in whole_line else None

    head = join(element("th", cell, scope="col", class_=css(i)) for i, cell in enumerate(header))
    body = join(
        element(
            "tr",
            *(
                element("td" if i else "th", cell, class_=css(i), scope=None if i else "row")
                for i, cell in enumerate(row)
            ),
        )
        for row in rows
    )
    whole = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", body))
    return element("div", whole, class_="wide", tabindex="0", role="group", aria_label=caption)


def breakable(name: str) -> Html:
    """Return a dotted path that a narrow column may break behind its dots and underscores."""
    parts = re.findall(r"[^._]*[._]?", name)
    return join(join([part, Html("<wbr>")]) if part[-1:] in (".", "_") else part for part in parts if part)


def details(summary: str, *children: object, class_: str | None = None, is_open: bool = False) -> Html:
    """Return a part that is folded until asked for; print shows it unfolded."""
    return element("details", element("summary", summary), *children, class_=class_, open=is_open)


def paragraph(*children: object, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *children, class_=class_)
