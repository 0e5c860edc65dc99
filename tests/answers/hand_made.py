"""Folders whose tables are written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.output.folder import Contents
from planner.output.tables import read_csv


def contents_of(manifest: Mapping[str, Any], files: Mapping[str, str]) -> Contents:
    """Return what a folder holds whose tables are these texts, by name."""
    tables = {name: read_csv(name, text.encode()) for name, text in files.items()}
    return Contents(manifest=manifest, tables=tables)


def without_badges(page: str) -> str:
    """Return a page with its verdicts as plain words."""
    return re.sub(r'<span class="badge \w+">(.*?)</span>', r"\1", page)
