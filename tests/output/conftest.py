"""A small run's folder, as the report reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.answers.run import write_run
from planner.output.folder import Contents, read_contents
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY


@pytest.fixture(scope="session")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a small scenario once; tests read the folder and leave it as it is."""
    place = tmp_path_factory.mktemp("run")
    (place / "tiny.yaml").write_text(TINY)
    write_run(simulate(load_scenario(place / "tiny.yaml"), seed=3), place / "out")
    return place / "out"


@pytest.fixture
def contents(kept_folder: Path) -> Contents:
    return read_contents(kept_folder)
