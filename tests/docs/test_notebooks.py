"""A notebook of the docs shows what its cells give now, and does its job in a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.carrying_out import copy_checkout
from tests.docs.notebooks import executed, notebooks, written


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_give(notebook: Path, tmp_path: Path) -> None:
    copy_checkout(tmp_path / "checkout")
    assert notebook.read_text(encoding="utf-8") == written(
        executed(notebook, tmp_path / "checkout")
    ), "python -m tests.docs.refresh puts what the cells give now into the notebook"
