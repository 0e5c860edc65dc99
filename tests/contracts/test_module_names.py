"""A name says what it names: a module which one it is, a variable what it holds."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.contracts.source import trees


def test_words_that_every_room_could_use_name_one_module() -> None:
    names = Counter(path.stem for path in trees())
    assert {
        word: names[word] for word in ("money", "measures", "checks", "site") if names[word] > 1
    } == {}


SAYS_NOTHING = {"found", "each", "whole", "own", "all_"}
KEYS = {("catalog", "own")}
"""Keys of files that users have, by room."""


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def test_no_name_says_nothing() -> None:
    bound = {
        (path.parts[1], name.strip("_") if name != "all_" else name)
        for path, tree in trees().items()
        for name in _bound(tree)
    }
    assert {(room, name) for room, name in bound if name in SAYS_NOTHING} == KEYS
