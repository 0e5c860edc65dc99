"""No module imports one that imports it, on whatever way round: not for types either, nor inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _imports(path: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in whole)


def test_imports_have_no_circles() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "planner").rglob("*.py")
    }
    graph = {name: {*_imports(path, set(paths))} - {name} for name, path in paths.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
