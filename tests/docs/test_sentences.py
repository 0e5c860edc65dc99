"""Prose of README, tutorial, gallery, how-to and explanation: short sentences.

Code blocks, tables, headings, quotations and HTML comments are not prose. A list item is a paragraph of its own.
A sentence ends at a full stop, a question or an exclamation mark; a semicolon joins two clauses into one sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate.navigation import PARTS
from tests.docs.carrying_out import ROOT

MOST_WORDS = 25
"""The ninetieth percentile of a page's sentence lengths may be so long."""

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^\s*```")
_NO_PROSE = re.compile(r"^\s*(?:#{1,6} |\||>|<!--|!\[)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'*_(\[`]*[A-Z0-9`])")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|approx|incl|cf|No)\.$")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs and list items of a page, each on one line, without what is no prose."""
    found: list[str] = []
    is_code = False
    is_open = False
    for line in _COMMENT.sub("", text).splitlines():
        if _FENCE.match(line):
            is_code = not is_code
            is_open = False
        elif is_code or not line.strip() or _NO_PROSE.match(line):
            is_open = False
        elif is_open and not _ITEM.match(line):
            found[-1] += " " + line.strip()
        else:
            found.append(_ITEM.sub("", line).strip())
            is_open = True
    return found


def plain(paragraph: str) -> str:
    """Return a paragraph as it is read: of links their words, a code span as one word."""
    paragraph = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return re.sub(r"`[^`]*`", "`code`", paragraph)


def sentences(text: str) -> list[str]:
    """Return the sentences of a page's prose."""
    found: list[str] = []
    for paragraph in paragraphs(text):
        pieces: list[str] = []
        for piece in _END.split(plain(paragraph)):
            if pieces and _ABBREVIATION.search(pieces[-1]):
                pieces[-1] += " " + piece
            else:
                pieces.append(piece)
        found.extend(pieces)
    return found


def words(sentence: str) -> int:
    """Return how many words a sentence has; a dash or an arrow is none."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def percentile_90(lengths: list[int]) -> int:
    """Return the length that nine in ten sentences do not exceed."""
    return sorted(lengths)[-(-9 * len(lengths) // 10) - 1] if lengths else 0


def _pages() -> list[Path]:
    folders = (ROOT / "docs" / name for name in PARTS if name != "reference")
    own = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "index.md"]
    return [*own, *(page for folder in folders for page in sorted(folder.glob("*.md")))]


def _tested() -> list[object]:
    """Return the pages as parameters."""
    return [pytest.param(page, id=page.name) for page in _pages()]


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", _tested())
def test_nine_in_ten_sentences_are_short(page: Path) -> None:
    found = sentences(_text(page))
    longest = sorted(found, key=words, reverse=True)[: 2 + len(found) // 10]
    assert percentile_90([words(sentence) for sentence in found]) <= MOST_WORDS, longest


def test_prose_is_what_is_neither_code_nor_table_nor_heading() -> None:
    page = (
        "# A heading. With two.\n\nOne sentence, on\ntwo lines. Another; with [a link. Or two](x.md) and `a. B`.\n\n"
        "| a. B | luck |\n|---|---|\n\n```console\n$ luck. Again\n```\n\n* An item\n  goes on. Ends.\n* Next\n\n"
        "> Quoted. Luck.\n\n<!-- not run: luck -->\n"
    )
    expected = [
        "One sentence, on two lines.",
        "Another; with a link.",
        "Or two and `code`.",
        "An item goes on.",
        "Ends.",
    ]
    assert sentences(page) == [*expected, "Next"]
