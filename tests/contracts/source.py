"""The program's source, parsed once for all contracts that read it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def trees(folder: str = "planner") -> dict[Path, ast.Module]:
    """Return the syntax tree of every module, by its path from the root of the checkout."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
