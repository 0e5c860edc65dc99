"""The first line of every docstring says, without its body, what is returned or done, in the trade's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.source import trees

MOST_WORDS = 25
INSTEAD = {
    "asked": "requested, wanted or demanded",
    "calm": "without bursts",
    "chance": "replication or random numbers",
    "doubt": "uncertainty",
    "drag": "slowdown",
    "found": "what is returned",
    "hang on": "depend on",
    "hangs on": "depends on",
    "home": "the place, in words",
    "homes": "the places, in words",
    "in time": "within the SLO; SLO attainment",
    "kept": "cached, stored or met",
    "luck": "replication",
    "mend": "repair, fix or enlarge",
    "mended": "repaired, fixed or enlarged",
    "mends": "remedies",
    "promise": "SLO target",
    "promised": "SLO target",
    "promises": "SLO targets",
    "seat": "replica placement",
    "so many": "the number, by its name",
    "so much": "the amount, by its name",
    "spared": "allowed misses",
    "the books": "P&L, balance sheet or ledger",
    "those that": "the noun",
    "those who": "the noun",
    "told": "reported",
    "what is asked": "demand",
    "wrongs": "errors",
}
"""Words that are not of the trade, each with what to write instead."""
PRINTED = re.compile(
    r"\b(asked for|in the books|the books|luck|promised?|promises|told apart|those that|what is asked|kept|wrongs|"
    r"hangs on|mend(s|ed)?|in time(?! by| order))\b",
    re.IGNORECASE,
)
"""Words that no sentence of the program has."""
_WORDS = re.compile(rf"\b({'|'.join(sorted(INSTEAD, key=len, reverse=True))})\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def first_lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line number and first line of the docstring of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text.splitlines()[0]


def problems(line: str) -> list[str]:
    """Return what makes a first line hard to decode."""
    words = len(line.split())
    said = [f"{words} words, more than {MOST_WORDS}"] if words > MOST_WORDS else []
    said += [] if line.endswith(".") else ["no full stop at its end"]
    return said + [f"{word!r}: write {INSTEAD[word.lower()]}" for word in _WORDS.findall(line)]


def test_first_lines_are_short_sentences_in_the_trades_words() -> None:
    lines = [(path, *line) for path, tree in trees().items() for line in first_lines(tree)]
    wrong = [
        f"{path}:{number}: {line} ({said})"
        for path, number, line in lines
        for said in problems(line)
    ]
    assert len(lines) > 1000
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Return the share of requests in time.", "'in time'"),
        ("Return what was Promised at a load.", "'Promised'"),
        ("Return the hour at which the n-th node is in service", "full stop"),
        (f"Return {'one more ' * MOST_WORDS}node.", "more than 25"),
    ],
)
def test_a_riddle_is_refused(line: str, said: str) -> None:
    assert said in " ".join(problems(line))


def test_a_plain_line_passes() -> None:
    assert problems("Return the hour at which the n-th node is in service, for each n.") == []


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
