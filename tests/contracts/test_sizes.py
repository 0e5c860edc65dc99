"""The house stays one that can be read: short files, short functions, and no room that is only a corridor."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2] / "planner"
PATHS = sorted(ROOT.rglob("*.py"))
PUBLIC = {"planner/__init__.py", "planner/verbs/__init__.py"}
"""What hands names on because a user asks for them there."""


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in PATHS}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_half_of_all_functions_have_eight_lines_at_most() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PATHS]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert statistics.median(node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno) <= 8


def _passes_on(path: Path) -> bool:
    """Say whether a module imports from others of ours and has nothing of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ours = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("planner")
    ]
    made = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign)]
    return bool(ours) and all("__all__" in ast.unparse(node) for node in made)


def test_no_module_only_hands_on_what_others_have() -> None:
    corridors = {path.relative_to(ROOT.parent).as_posix() for path in PATHS if _passes_on(path)}
    assert corridors <= PUBLIC
