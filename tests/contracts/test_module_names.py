"""A name says what it names: a module which one it is, a variable what it holds."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.contracts.source import trees


def test_words_that_every_room_could_use_name_one_module() -> None:
    names = Counter(path.stem for path in trees())
    assert {word: names[word] for word in ("money", "measures", "checks", "site") if names[word] > 1} == {}


SAYS_NOTHING = {"found", "each", "whole", "own", "all_"}
KEYS = {("planner/scenario/scenario.py", "each"), ("planner/catalog/calibration.py", "own")}
"""Keys of files that users have."""


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def test_no_name_says_nothing() -> None:
    bound = {
        (path.as_posix(), name.strip("_") if name != "all_" else name)
        for path, tree in trees().items()
        for name in _bound(tree)
    }
    assert {(path, name) for path, name in bound if name in SAYS_NOTHING} == KEYS
