"""Nothing in the program is there for tests alone: each name that it defines, it also reads.

A name counts as read where it is used anywhere, so one that two modules share may hide one that is not; what is listed
is certainly unused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.contracts.source import ROOT, trees

FOR_OTHERS = {
    "ledger_table": "a user's, of a result",
    "last_month": "a user's process asks it",
    "nodes_up": "a user's process asks it",
    "curtail": "a user's process calls it",
    "add_demand": "a user's process calls it",
    "reprice": "a user's process calls it",
    "format_commands": "typer calls it",
    "generate_state": "numpy calls it",
    "readable": "io calls it",
    "model_config": "pydantic reads it",
    "CARRY_FORWARD": "a scenario names it",
    "US_GAAP": "a scenario names it",
}
"""Names that nothing here reads, and who does."""
IS_CALLED_BY_ITS_DECORATOR = {"model_validator", "field_validator", "callback", "command"}


def _called_by(decorator: ast.expr) -> str:
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")


def _is_plain(holder: ast.ClassDef | None) -> bool:
    """Say whether a field is a module's or a dataclass's: those of other models are read by their names."""
    return holder is None or any(
        _called_by(decorator) == "dataclass" for decorator in holder.decorator_list
    )


def _defined(body: list[ast.stmt], holder: ast.ClassDef | None = None) -> Iterator[str]:
    """Yield what a module or class defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not IS_CALLED_BY_ITS_DECORATOR & set(map(_called_by, node.decorator_list)):
                yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from _defined(node.body, node)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and _is_plain(holder)
        ):
            yield node.target.id


def _read(tree: ast.Module) -> Iterator[str]:
    """Yield every name that is used, also one that stands in a string: columns and fields are asked for by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
            yield node.attr
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.isidentifier()
        ):
            yield node.value


def _in_data() -> Iterator[str]:
    """Yield the words of templates, which read fields by name, and of tables, whose cells name members of enums."""
    for path in (ROOT / "planner").rglob("*.html"):
        yield from re.findall(r"\w+", path.read_text(encoding="utf-8"))
    for path in (ROOT / "planner" / "finance").glob("*.csv"):
        yield from re.findall(r"\w+", path.read_text(encoding="utf-8").upper())


def _written_to_json() -> Iterator[str]:
    """Yield the fields of summaries and of the records they hold: `fields_json` writes all of them."""
    classes = {
        node.name: node
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    waiting = [name for name in classes if name.endswith("Summary")]
    while waiting:
        # Taken out, so that records that name each other end.
        record = classes.pop(waiting.pop(), None)
        if record is None:
            continue
        fields = [node for node in record.body if isinstance(node, ast.AnnAssign)]
        yield from _defined([*fields], record)
        for held in [*record.bases, *(field.annotation for field in fields)]:
            waiting += [node.id for node in ast.walk(held) if isinstance(node, ast.Name)]


def test_what_is_defined_is_read() -> None:
    sources = [*trees().values(), *trees("docs/generate").values()]
    read = {name for tree in sources for name in _read(tree)}
    read |= {*_in_data(), *_written_to_json()}
    defined = {
        name
        for tree in trees().values()
        for name in _defined(tree.body)
        if not name.startswith("__")
    }
    unused = {name for name in defined if name not in read}
    assert unused <= set(FOR_OTHERS), sorted(unused - set(FOR_OTHERS))
    assert set(FOR_OTHERS) <= unused, f"no longer unused: {sorted(set(FOR_OTHERS) - unused)}"
