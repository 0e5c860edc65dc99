"""The order of the docs site: a MkDocs hook, so that a new page appears without being listed."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

PARTS = {
    "tutorial": "Tutorial",
    "gallery": "Gallery",
    "how-to": "How-to guides",
    "explanation": "Explanation",
    "reference": "Reference",
    "contributing": "Contributing",
}
"""The parts, in reading order."""

SEARCH_BOOST = {"reference/glossary.md": 8.0, "reference": 0.3, "contributing": 0.3}
"""How much a page, or a part's pages, count in a search of the site, where that is not 1."""

TUTORIAL = ("first-plan", "compare-the-alternatives", "how-sure", "decide")
"""The pages of the tutorial in the order in which they are followed; each goes on in the folder of the one before."""


def tutorial_pages(docs: Path) -> list[str]:
    """Return the tutorial's pages in order; one that is not listed comes last."""
    pages = {
        path.stem: path.relative_to(docs).as_posix()
        for path in sorted((docs / "tutorial").glob("*.md"))
    }
    order = [
        *(name for name in TUTORIAL if name in pages),
        *(name for name in pages if name not in TUTORIAL),
    ]
    return [pages[name] for name in order]


def navigation(docs: Path) -> list[dict[str, Any]]:
    """Return the navigation: the first page, then every part with its pages by name, its index first."""
    parts: list[dict[str, Any]] = [{"Start": "index.md"}]
    for folder, title in PARTS.items():
        found = sorted((docs / folder).rglob("*.md"), key=lambda path: (path.stem != "index", path))
        pages = [path.relative_to(docs).as_posix() for path in found]
        if folder == "tutorial":
            pages = tutorial_pages(docs)
        if pages:
            parts.append({title: pages})
    return parts


def on_config(config: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Set the navigation before MkDocs reads it."""
    config["nav"] = navigation(Path(config["docs_dir"]))
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let a search find what explains a term before what lists it: the generated reference counts less."""
    part = Path(page.file.src_uri)
    boost = SEARCH_BOOST.get(part.as_posix(), SEARCH_BOOST.get(part.parts[0], 1.0))
    page.meta.setdefault("search", {"boost": boost})
    return markdown
