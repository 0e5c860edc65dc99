"""The notebooks of the docs, executed without Jupyter: their cells in order, their output kept in the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.carrying_out import ROOT, environment

_KERNEL = """
import ast, contextlib, io, json, sys
names, outputs = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    tree, printed, shown = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    drawn = getattr(shown, "_repr_svg_", lambda: None)()
    outputs.append([printed.getvalue(), None if shown is None else repr(shown), drawn])
print(json.dumps(outputs))
"""


def notebooks() -> list[Path]:
    """Return the notebooks of the docs."""
    return sorted((ROOT / "docs").rglob("*.ipynb"))


def executed(notebook: Path, folder: Path) -> dict[str, Any]:
    """Return a notebook with the output of each cell, run in a folder that looks like a checkout."""
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    sources = json.dumps(["".join(cell["source"]) for cell in cells])
    done = subprocess.run(
        [sys.executable, "-c", _KERNEL], input=sources, cwd=folder, env=environment(folder), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number, (cell, (printed, shown, drawn)) in enumerate(zip(cells, json.loads(done.stdout), strict=True), start=1):
        streams = [{"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}]
        results = [
            {
                "data": {"text/plain": (shown or "").splitlines(keepends=True)}
                | ({"image/svg+xml": drawn.splitlines(keepends=True)} if drawn else {}),
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        ]
        cell.update(execution_count=number, outputs=streams * bool(printed) + results * (shown is not None))
    return content


def written(content: dict[str, Any]) -> str:
    """Return a notebook as it stands in its file."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
