"""The little Markdown that the reference pages need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `make reference` from the code. Change the code, not this page. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table; cells may hold Markdown, and a bar inside one is escaped."""
    lines = [_row(header), "|" + " --- |" * len(header), *(_row(row) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def text(words: str) -> str:
    """Return plain words with what Markdown or HTML would take as markup made harmless."""
    for character, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("*", "\\*"), ("_", "\\_")):
        words = words.replace(character, safe)
    return words


def code(words: object) -> str:
    """Return words as a code span."""
    return f"`{words}`"


def page(title: str, introduction: str, *parts: str) -> str:
    """Return a whole page: the note that it is generated, its title, its introduction, its parts."""
    blocks = [f"# {title}", GENERATED, introduction, *parts]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"
