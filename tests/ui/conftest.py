"""A workbench with the small scenario on it, and its page behind a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from planner.scenario.loading import load_scenario
from planner.ui.server import Live, build_app
from planner.ui.workbench import Workbench
from tests.conftest import TINY

TOKEN = "a-token-of-tests"
BASE = "http://127.0.0.1:8123"
Post = Callable[..., Any]


@pytest.fixture(scope="session")
def _workbench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    folder = tmp_path_factory.mktemp("live")
    (folder / "tiny.yaml").write_text(TINY)
    workbench = Workbench([load_scenario(folder / "tiny.yaml")], folder / "outputs")
    workbench.plan(("tiny",))
    return workbench


@pytest.fixture
def workbench(_workbench: Workbench) -> Iterator[Workbench]:
    """The workbench, and nothing that a test wrote left beside the scenario."""
    yield _workbench
    for written in _workbench.outputs.parent.glob("what-if*.yaml"):
        written.unlink()


@pytest.fixture
def served(workbench: Workbench) -> tuple[TestClient, Live]:
    app, live = build_app(workbench, TOKEN, 8123)
    return TestClient(app, base_url=BASE), live


@pytest.fixture
def client(served: tuple[TestClient, Live]) -> TestClient:
    return served[0]


@pytest.fixture
def post(client: TestClient) -> Post:
    """Ask as the page does."""

    def ask(what: str = "show", **asked: Any) -> Any:
        if "set" in asked:
            asked["plan"] = ["tiny", *asked.pop("set")]
        return client.post(f"/{TOKEN}/{what}", json={"tab": "one", "move": 1, **asked})

    return ask


@pytest.fixture
def scenario_file(workbench: Workbench) -> Path:
    return workbench.outputs.parent / "tiny.yaml"
