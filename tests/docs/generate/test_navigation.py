from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from docs.generate.navigation import PARTS, TUTORIAL, navigation, on_config, tutorial_pages


def test_parts_come_in_reading_order_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    for name in (
        "index.md",
        "reference/cli.md",
        "tutorial/b.md",
        "tutorial/a.md",
        "how-to/deep/er.md",
        "tutorial/x.png",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# Title\n", encoding="utf-8")
    assert navigation(tmp_path) == [
        {"Start": "index.md"},
        {"Tutorial": ["tutorial/a.md", "tutorial/b.md"]},
        {"How-to guides": ["how-to/deep/er.md"]},
        {"Reference": ["reference/cli.md"]},
    ]


def test_hook_sets_the_navigation(tmp_path: Path) -> None:
    config = on_config({"docs_dir": str(tmp_path), "site_name": "x"})
    assert config == {"docs_dir": str(tmp_path), "site_name": "x", "nav": [{"Start": "index.md"}]}


def test_every_folder_of_the_docs_is_a_part() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert {
        path.parent.relative_to(docs).parts[0] for path in docs.rglob("*.md") if path.parent != docs
    } <= set(PARTS)


def test_tutorial_is_in_the_order_in_which_it_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    for name in ("a-page-of-its-own", "decide", "first-plan", "how-sure"):
        (folder / f"{name}.md").write_text("# Title\n", encoding="utf-8")
    expected = [
        f"tutorial/{name}.md" for name in ("first-plan", "how-sure", "decide", "a-page-of-its-own")
    ]
    assert tutorial_pages(tmp_path) == expected
    assert navigation(tmp_path)[1] == {"Tutorial": expected}


def test_every_page_of_the_tutorial_is_listed_and_leads_to_the_next() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert {path.stem for path in (docs / "tutorial").glob("*.md")} == set(TUTORIAL)
    for name, following in pairwise(TUTORIAL):
        assert f"]({following}.md)" in (docs / "tutorial" / f"{name}.md").read_text(
            encoding="utf-8"
        )
