"""Every heading of a terminal table is explained: those that the code prints, and those that the docs show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.docs.carrying_out import ROOT, pages

REFERENCE = ROOT / "docs" / "reference"
GLOSSARY = (REFERENCE / "glossary.md").read_text(encoding="utf-8")
HEADINGS = (REFERENCE / "headings.md").read_text(encoding="utf-8")
EXPLAINED = set(re.findall(r"^\| `([^`]+)` \| [^|]+ \| [^|]+ \|$", HEADINGS, re.MULTILINE))
LAYOUTS = {"text_table", "plain_table"}
"""The functions that lay a table out for a terminal."""
PRINTING = ("answers", "cli", "onramp", "calibration", "requests", "actuals")
RULE = re.compile(r"^-+(?:  -+)+$")
OF_THE_PLAN = re.compile(r"\d{4}-\d{2} to \d{4}-\d{2}|.+\..+")
"""Headings that are the plan's own: its months, and the keys that a sweep varies."""


def _words(node: ast.AST) -> Iterator[str]:
    """Yield the headings inside an expression; what is put into one by the plan stands as …."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    elif isinstance(node, ast.Tuple | ast.List):
        for part in node.elts:
            yield from _words(part)
    elif isinstance(node, ast.Starred):
        yield from _words(node.value)
    elif isinstance(node, ast.GeneratorExp | ast.ListComp):
        yield from _words(node.elt)


def printed_headings() -> dict[str, str]:
    """Return the headings in the code of every table that is laid out for a terminal, with their file."""
    found: dict[str, str] = {}
    for path in (
        path for part in PRINTING for path in sorted((ROOT / "planner" / part).glob("*.py"))
    ):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named: dict[str, list[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                named.setdefault(node.targets[0].id, []).extend(_words(node.value))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in LAYOUTS
            ):
                names = [part.id for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)]
                for words in (_words(node.args[0]), *(named.get(name, []) for name in names)):
                    found.update(
                        {
                            word: path.name
                            for word in words
                            if re.search(r"\w", word) and word != " to "
                        }
                    )
    return found


def shown_headings(page: Path) -> Iterator[str]:
    """Yield the headings of the tables that a page shows: the cells above a rule of dashes."""
    for block in blocks(page.read_text(encoding="utf-8")):
        for above, line in zip(block.lines, block.lines[1:], strict=False):
            if block.language == "console" and RULE.match(line):
                yield from (
                    above[rule.start() : rule.end()].strip() for rule in re.finditer("-+", line)
                )


def test_every_heading_in_the_code_is_explained() -> None:
    headings = printed_headings()
    assert {"attained", "levelised", "P(best)", "tok/s/GPU", "within 90%", "figure"} <= set(
        headings
    )
    assert not {name: file for name, file in headings.items() if name not in EXPLAINED}


def test_every_heading_shown_in_the_docs_is_explained() -> None:
    shown = {heading: page.name for page in pages() for heading in shown_headings(page) if heading}
    assert {"SLO", "P(best)", "utilised"} <= set(shown)
    # A page may cut a wide table off, and its last heading with it.
    unexplained = {
        name: page
        for name, page in shown.items()
        if not any(word.startswith(name) for word in EXPLAINED)
    }
    assert not {name: page for name, page in unexplained.items() if not OF_THE_PLAN.fullmatch(name)}


def test_nothing_is_explained_that_is_not_printed() -> None:
    # Headings that are a name's of another room, such as the causes of a difference, are seen where the docs show them.
    assert (
        not EXPLAINED
        - set(printed_headings())
        - {heading for page in pages() for heading in shown_headings(page)}
    )


@pytest.mark.parametrize("word", ["replication", "verdict", "shed", "SLO target"])
def test_the_words_of_the_house_are_explained(word: str) -> None:
    assert re.search(rf"^### {word}$", GLOSSARY, re.MULTILINE | re.IGNORECASE)
