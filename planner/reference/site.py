"""The order of the docs site: a MkDocs hook, so that a new page appears without being listed anywhere."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

PARTS = {"tutorial": "Tutorial", "how-to": "How-to guides", "explanation": "Explanation", "reference": "Reference"}
"""The four parts, in reading order."""


def navigation(docs: Path) -> list[dict[str, Any]]:
    """Return the navigation: the first page, then every part with its pages by name."""
    parts: list[dict[str, Any]] = [{"Start": "index.md"}]
    for folder, title in PARTS.items():
        pages = sorted(path.relative_to(docs).as_posix() for path in (docs / folder).rglob("*.md"))
        if pages:
            parts.append({title: pages})
    return parts


def on_config(config: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Set the navigation before MkDocs reads it."""
    config["nav"] = navigation(Path(config["docs_dir"]))
    return config
