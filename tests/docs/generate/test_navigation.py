from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from docs.generate.navigation import PARTS, TUTORIAL


def test_every_folder_of_the_docs_is_a_part() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert {
        path.parent.relative_to(docs).parts[0] for path in docs.rglob("*.md") if path.parent != docs
    } <= set(PARTS)


def test_every_page_of_the_tutorial_is_listed_and_leads_to_the_next() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert {path.stem for path in (docs / "tutorial").glob("*.md")} == set(TUTORIAL)
    for name, following in pairwise(TUTORIAL):
        assert f"]({following}.md)" in (docs / "tutorial" / f"{name}.md").read_text(
            encoding="utf-8"
        )
