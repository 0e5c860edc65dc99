"""The page of the Python interface, read off the source: nothing is imported for it."""

from __future__ import annotations

import ast
from pathlib import Path

import planner
from docs.generate.markdown import code, page, table, text

_PACKAGE = Path(__file__).parents[2]
_INTRODUCTION = """\
What a command does, a function of the same name does, with the same bytes in its folder. Each name is loaded when it is
first used, and `dir(planner)` lists them. [A notebook](../how-to/sweep-two-inputs.ipynb) shows them at work; what they
raise is in [Exit codes and errors](errors.md).

A `Source` is a path, a dict or a loaded scenario, a `Place` a path; `progress` is called with a line of text for each
step. The other parameters are the options of the [command](cli.md)."""
_VERBS = ("load", "simulate", "run", "compare", "sweep", "study", "report")
_OLDER = ("load_scenario", "run_study")
_RESULTS = (
    ("answers.py", ("Answer", "RunAnswer", "ComparisonAnswer", "SweepAnswer", "StudyAnswer")),
    ("results/result.py", ("RunResult",)),
    ("results/replication.py", ("Replication",)),
)


def api_page() -> str:
    """Return the page: each verb with its parameters, then what the verbs hand back."""
    verbs = [f"### `planner.{name}`\n\n{_function(name)}" for name in _VERBS]
    results = [_class(_PACKAGE / file, name) for file, names in _RESULTS for name in names]
    older = [f"### `planner.{name}`\n\n{_function(name)}" for name in _OLDER]
    return page(
        "Python interface",
        _INTRODUCTION,
        "## Verbs\n\n" + "\n\n".join(verbs),
        "## What they hand back\n\n" + "\n\n".join(results),
        "## Older names\n\n" + "\n\n".join(older),
    )


def _function(name: str) -> str:
    """Return the signature and documentation of a public function."""
    module, _, attribute = planner._HOMES[name].partition(":")
    file = _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    function = next(n for n in _parsed(file).body if isinstance(n, ast.FunctionDef) and n.name == attribute)
    shown = ",\n    ".join(_parameters(function.args))
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"```text\n{name}(\n    {shown},\n){returned}\n```\n\n{_documentation(function)}"


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return each parameter as it is written, the star that begins the named ones included."""

    def written(argument: ast.arg, default: ast.expr | None) -> str:
        kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
        return f"{argument.arg}{kind}" + (f" = {ast.unparse(default)}" if default is not None else "")

    missing: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    plain = [written(*pair) for pair in zip(arguments.args, [*missing, *arguments.defaults], strict=True)]
    named = [written(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [*plain, *(["*", *named] if named else [])]


def _class(file: Path, name: str) -> str:
    """Return a class's documentation and a table of its public fields and methods."""
    definition = next(n for n in _parsed(file).body if isinstance(n, ast.ClassDef) and n.name == name)
    rows = []
    for node, after in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            rows += [(code(node.target.id), text(str(said)))] if said else []
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            is_property = any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list)
            rows.append((code(node.name if is_property else f"{node.name}()"), _documentation(node)))
    bases = [ast.unparse(base) for base in definition.bases if ast.unparse(base) != "ABC"]
    heading = f"### `{name}`\n\n{_documentation(definition)}"
    heading += f" {'An' if bases[0][0] in 'AEIOU' else 'A'} `{bases[0]}`." if bases else ""
    return f"{heading}\n\n{table(('name', 'what it is'), rows)}"


def _documentation(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a docstring as Markdown: its double backquotes are code, the rest plain words."""
    parts = (ast.get_docstring(node) or "").split("``")
    return "".join(code(part) if place % 2 else text(part) for place, part in enumerate(parts))


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
