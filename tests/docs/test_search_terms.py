"""A search of the docs for a term of the trade finds a page: the term is in a heading or in the glossary."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import blocks
from tests.docs.carrying_out import ROOT

TERMS = (
    "goodput",
    "headroom",
    "TCO",
    "tensor parallel",
    "disaggregated",
    "speculative decoding",
    "admission control",
    "load shedding",
    "autoscaling",
    "chunked prefill",
    "recourse",
    "NPV",
    "levelised cost",
    "prefix caching",
    "batch API",
    "run-out",
)
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def headings(text: str) -> list[str]:
    """Return the headings of a page; a comment in a code block is none."""
    lines = text.splitlines()
    for block in blocks(text):
        lines[block.first_line : block.first_line + len(block.lines)] = [""] * len(block.lines)
    return [line.lstrip("# ") for line in lines if re.match(r"#{1,6} \S", line)]


def searched() -> str:
    """Return all that a term may be found in: every page's headings, and the glossary as a whole."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    found = [heading for page in pages for heading in headings(page.read_text(encoding="utf-8"))]
    return " ".join("\n".join([*found, GLOSSARY.read_text(encoding="utf-8")]).split()).casefold()


def is_found(term: str, text: str) -> bool:
    """Say whether a text has a term as whole words."""
    return re.search(rf"(?<!\w){re.escape(term.casefold())}(?!\w)", text) is not None


@pytest.mark.parametrize("term", TERMS)
def test_a_search_for_a_term_of_the_trade_finds_a_page(term: str) -> None:
    assert is_found(term, searched())
