"""The first line of every docstring is one short sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.contracts.source import trees

MOST_WORDS = 25
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def first_lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line number and first line of the docstring of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text.splitlines()[0]


def test_first_lines_are_short_sentences() -> None:
    problems = []
    count = 0
    for path, tree in trees().items():
        for number, line in first_lines(tree):
            count += 1
            if len(line.split()) > MOST_WORDS or not line.endswith("."):
                problems.append(f"{path}:{number}: {line}")
    assert count > 1000
    assert not problems, "\n".join(problems)
