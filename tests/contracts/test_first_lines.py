"""The first line of every docstring is one short sentence; what is printed is in the trade's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.source import trees

MOST_WORDS = 25
PRINTED = re.compile(
    r"\b(asked for|in the books|the books|luck|promised?|promises|told apart|those that|what is asked|kept|wrongs|"
    r"hangs on|mend(s|ed)?|in time(?! by| order))\b",
    re.IGNORECASE,
)
"""Words that no sentence of the program has."""
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


def test_what_is_printed_is_in_the_trades_words() -> None:
    said: list[tuple[Path, int, str]] = []
    for path, tree in trees().items():
        unprinted = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in unprinted
        ]
        said += [
            (path, node.lineno, node.value)
            for node in texts
            if isinstance(node.value, str) and " " in node.value
        ]
    assert len(said) > 1000
    assert [(path, line, text) for path, line, text in said if PRINTED.search(text)] == []
