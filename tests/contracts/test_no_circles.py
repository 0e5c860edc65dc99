"""No module imports one that imports it, on whatever way round: not for types either, nor inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
KNOWN = {
    ("planner.language.scenario", "planner.language.loading"),  # Scenario.with_ loads the changed scenario
    ("planner.fleet.plan", "planner.fleet.placement"),  # a plan holds its placement, which holds a plan of pools
    ("planner.fleet.placement", "planner.fleet.window"),  # types: a window's result is read by what it is made by
    ("planner.fleet.overdue", "planner.fleet.window"),
    ("planner.fleet.replicas", "planner.fleet.window"),
}
"""Circles that are there; none is to be added."""


def _imports(path: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in whole)


def test_imports_have_no_circles_but_those_known() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "planner").rglob("*.py")
    }
    edges = {(name, other) for name, path in paths.items() for other in _imports(path, set(paths)) if other != name}
    assert edges >= KNOWN, "one of the known is gone: take it off the list"
    graph: dict[str, set[str]] = {name: set() for name in paths}
    for name, other in edges - KNOWN:
        graph[name].add(other)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
