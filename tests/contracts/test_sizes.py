"""The house stays one that can be read: short files, short functions, and no room that is only a corridor."""

from __future__ import annotations

import ast
import statistics

from tests.contracts.source import ROOT, trees

PUBLIC = {"planner/__init__.py", "planner/verbs/__init__.py"}
"""What hands names on because a user asks for them there."""


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path.as_posix(): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in trees()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_half_of_all_functions_have_eight_lines_at_most() -> None:
    functions = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert statistics.median(node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno) <= 8


def _passes_on(tree: ast.Module) -> bool:
    """Say whether a module imports from others of ours and has nothing of its own."""
    ours = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("planner")
    ]
    made = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign)]
    return bool(ours) and all("__all__" in ast.unparse(node) for node in made)


def test_no_module_only_hands_on_what_others_have() -> None:
    corridors = {path.as_posix() for path, tree in trees().items() if _passes_on(tree)}
    assert corridors <= PUBLIC
