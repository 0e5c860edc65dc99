from __future__ import annotations

from pathlib import Path

from planner.reference.site import PARTS, navigation, on_config


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
    docs = Path(__file__).parents[2] / "docs"
    assert {path.parent.relative_to(docs).parts[0] for path in docs.rglob("*.md") if path.parent != docs} <= set(PARTS)
