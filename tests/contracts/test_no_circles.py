"""No module imports one that imports it, on whatever way round: not for types either, nor inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter

from tests.contracts.source import trees

HANDED_OUT = {"planner.run.simulate": {"planner.run.tables"}}
"""A run hands out its own tables as frames, and loads what makes them when they are asked for."""


def _imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in whole)


def test_imports_have_no_circles() -> None:
    modules = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): tree
        for path, tree in trees().items()
    }
    graph = {name: {*_imports(tree, set(modules))} - {name} for name, tree in modules.items()}
    for name, others in HANDED_OUT.items():
        graph[name] -= others
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
