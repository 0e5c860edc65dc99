"""The program reads as the field's code does: one assignment a line, and names that name a thing.

PyPSA, WOMBAT, httpx and Calliope have 0.2 to 1.4 packed assignments in a thousand statements, and 0.4 to 2.5% of their
names are function words or participles. Nothing else is measured here: lines, files and functions are free.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.contracts.source import trees

MOST_PACKED_PER_1000 = 2.0
MOST_WORD_NAMES = 0.02
NOT_HELD = ("planner/sizing",)
"""Sizing, which is not held to it yet."""
_WORDS = """
    of by at on in to into out off up down over under above below between beside before after since until during
    within without with from for per via about around through across along against among towards upon one ones other
    others another each every either neither both such same some any all none many much more most few fewer less least
    several enough this that these those it its they them their he his who whom whose which what when where why how
    there here then now ever never yet still also too again once twice often seldom apart alike alone together away
    ahead aside already first last next only own even else otherwise instead is are was be been being has had have may
    might can could will would shall should must wanted asked told said seen held kept made given taken left found known
    drawn meant put stands stood gone done tried met begun shown written read bound came rose
"""
FUNCTION_WORDS = set(_WORDS.split())
"""Words that say how something is used, or what was done to it, and not what it is."""


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of the syntax trees that are held to this, with its file."""
    for path, tree in trees().items():
        if not path.as_posix().startswith(NOT_HELD):
            for node in ast.walk(tree):
                yield path.as_posix(), node


def is_packed(node: ast.AST) -> bool:
    """Return whether a statement assigns several values at once; a swap, which needs both at once, does not count."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets), *_], value=ast.Tuple(elts=values)):
            assigned = {ast.dump(target).replace("Store", "Load") for target in targets}
            return not assigned & {ast.dump(value) for value in values}
    return False


def bound_name(node: ast.AST) -> str | None:
    """Return the name that a node binds: a variable's, a field's or a parameter's."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name not in (
            "self",
            "cls",
            "_",
        ):
            return name
    return None


def test_a_line_assigns_one_value() -> None:
    statements = [(path, node) for path, node in nodes() if isinstance(node, ast.stmt)]
    packed = [f"{path}:{node.lineno}" for path, node in statements if is_packed(node)]
    message = "assignments of several values at once: one a line\n" + "\n".join(packed)
    assert 1000 * len(packed) <= MOST_PACKED_PER_1000 * len(statements), message


def test_a_name_says_what_it_names() -> None:
    names = 0
    words = []
    for path, node in nodes():
        name = bound_name(node)
        if name is not None:
            names += 1
            if name.strip("_") in FUNCTION_WORDS:
                words.append(f"{path}:{node.lineno}: {name}")  # type: ignore[attr-defined]
    message = f"{len(words)} of {names} names say nothing: name the thing\n" + "\n".join(words)
    assert len(words) <= MOST_WORD_NAMES * names, message


def test_what_is_not_held_to_it_is_there() -> None:
    paths = [path.as_posix() for path in trees()]
    assert not [name for name in NOT_HELD if not any(path.startswith(name) for path in paths)]
