"""Sections of a memo as Markdown and as a page that prints on two sheets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from planner.output.blocks import Grid, Picture, Section, Sentence
from planner.output.html import environment
from planner.output.svg import svg_of


def memo_html(title: str, sections: Sequence[Section]) -> bytes:
    """Return a memo as a page of its own, with its chart in the colours of print."""
    drawings = {}
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Picture):
                # An SVG file begins with an XML declaration, which has no place within a page.
                _, _, drawing = svg_of(block).partition("?>")
                drawings[block.title] = Markup(drawing)
    template = environment(Path(__file__).parent).get_template("memo.html")
    return f"{template.render(title=title, sections=sections, drawings=drawings)}\n".encode()


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return sections of sentences and grids as Markdown; pictures are left out."""
    lines = [f"# {title}"]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for block in section.blocks:
            match block:
                case Sentence():
                    lines += ["", _markdown_text(block.text)]
                case Grid():
                    rule = ["---"] * len(block.header)
                    rows = [block.header, rule, *block.rows]
                    lines += ["", *map(_markdown_row, rows)]
    return "\n".join(lines) + "\n"


def _markdown_row(row: Sequence[object]) -> str:
    """Return a row of a table, whose cells keep to one line and hold no bar."""
    cells = [_markdown_text(str(cell)).replace("|", "\\|") for cell in row]
    return f"| {' | '.join(cells)} |".replace("\n", " ")


def _markdown_text(text: str) -> str:
    """Return text that no reader of Markdown takes for markup."""
    # An ampersand that begins no entity is read as itself, and stays readable in the source.
    entities_escaped = re.sub(r"&(?=[#\w]+;)", "&amp;", text)
    return entities_escaped.replace("<", "&lt;").replace(">", "&gt;")
