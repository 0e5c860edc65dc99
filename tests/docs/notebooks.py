"""The notebooks of the docs, executed without Jupyter: their cells in order, their output kept in the file."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from tests.docs.carrying_out import ROOT, here


def notebooks() -> list[Path]:
    """Return the notebooks of the docs."""
    return sorted((ROOT / "docs").rglob("*.ipynb"))


def executed(notebook: Path, folder: Path) -> dict[str, Any]:
    """Return a notebook with the output of each cell, run in a folder that looks like a checkout."""
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells, start=1):
        printed, value = _carried_out("".join(cell["source"]), names, folder)
        shown = None if value is None else repr(value)
        streams = [
            {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
        ]
        results = [
            {
                "data": {"text/plain": (shown or "").splitlines(keepends=True)},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        ]
        cell.update(
            execution_count=number, outputs=streams * bool(printed) + results * (shown is not None)
        )
    return content


def _carried_out(source: str, names: dict[str, Any], folder: Path) -> tuple[str, object]:
    """Return what a cell prints, and the value of the expression that it ends with."""
    tree = ast.parse(source)
    values = list[object]()
    end = tree.body[-1] if tree.body else None
    last = end.value if isinstance(end, ast.Expr) else None

    def work() -> None:
        exec(compile(ast.Module(tree.body[: -1 if last else None], []), "cell", "exec"), names)
        if last is not None:
            values.append(eval(compile(ast.Expression(last), "cell", "eval"), names))

    code, out, err = here(work, folder, apart=True)
    assert code == 0, err.decode()
    return out.decode(), values[0] if values else None


def written(content: dict[str, Any]) -> str:
    """Return a notebook as it stands in its file."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
