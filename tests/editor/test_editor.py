"""What an editor makes of the schemas: a real language server completes, explains and checks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.scenario.schema import SCHEMA_FILE, scenario_schema, study_schema
from planner.studies.replicate import objective_names
from tests.conftest import ROOT, Planner
from tests.editor.language_server import SERVER, LanguageServer

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(
    NODE is None or not SERVER.exists(),
    reason="needs node and `npm ci --prefix tests/editor`, as make test does",
)
MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
STUDY_LINE = "# yaml-language-server: $schema=study.schema.json\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    """Start one server in a folder that holds both schemas."""
    folder = tmp_path_factory.mktemp("editor")
    (folder / SCHEMA_FILE).write_text(json.dumps(scenario_schema()))
    (folder / "study.schema.json").write_text(json.dumps(study_schema(objective_names())))
    assert NODE is not None
    running = LanguageServer(NODE, folder)
    yield running
    running.close()


def written(server: LanguageServer, text: str) -> Path:
    path = (
        server.folder / f"{len(list(server.folder.iterdir()))}.yaml"
    )  # a name that the server has not seen
    path.write_text(text)
    return path


def offered(server: LanguageServer, text: str) -> list[str]:
    """Return what is offered where ``|`` stands."""
    before = text[: text.index("|")]
    path = written(server, text.replace("|", ""))
    server.open(path)
    return server.complete(path, before.count("\n"), len(before) - before.rfind("\n") - 1)


def test_the_starter_is_clean_in_an_editor(planner: Planner, server: LanguageServer) -> None:
    """As ``planner init`` leaves it: with its own modeline, and the schema beside it."""
    assert planner("init", "mine").code == 0
    assert Path("mine.yaml").read_text().startswith(MODELINE)
    path = Path("mine.yaml").absolute()
    assert server.open(path) == []
    line = next(i for i, text in enumerate(path.read_text().splitlines()) if "pue_ratio" in text)
    assert "Facility power over IT power" in server.hover(path, line, 4)
    path.write_text(
        path.read_text().replace("nodes: 16", "nodes: many", 1).replace("pue_ratio", "pue_ration")
    )
    wrong = path.with_name("wrong.yaml")
    path.rename(wrong)
    said = " | ".join(found["message"] for found in server.open(wrong))
    assert "integer" in said
    assert "pue_ration" in said


def test_every_shipped_scenario_and_study_is_clean_in_an_editor(server: LanguageServer) -> None:
    shipped = sorted((ROOT / "scenarios").rglob("*.yaml"))
    texts = [path.read_text() for path in shipped]
    opened = [
        written(server, (STUDY_LINE if "\nscenarios:" in text else MODELINE) + text)
        for text in texts
    ]
    for path, said in zip(shipped, server.open_all(opened), strict=True):
        assert said == [], path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("name: x\nclusters:\n  a:\n    accelerator: |\n", {"H200", "MI325X", "B200"}),
        ("name: x\nclusters:\n  a:\n    engine: |\n", {"vllm", "sglang"}),
        ("name: x\nworkloads:\n  a:\n    model: |\n", {"llama-3.1-70b"}),
        ("name: x\nsite:\n  tariff: |\n", {"us-ohio", "us-texas"}),
        ("name: x\nrouting: |\n", {"proportional", "preference"}),
        ("name: x\nsite:\n  |\n", {"tariff", "pue_ratio", "facility_power_cap_kw"}),
        ("extends: base.yaml\nclusters:\n  a:\n    accelerator: |\n", {"H200", "MI325X"}),
        ("extends: base.yaml\nclusters:\n  a:\n    |\n", {"nodes", "discount_fraction"}),
    ],
)
def test_keys_and_values_are_completed(server: LanguageServer, text: str, wanted: set[str]) -> None:
    assert wanted <= set(offered(server, MODELINE + text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("name: s\nscenarios:\n  a:\n    |\n", {"extends", "set"}),
        (
            "name: s\nscenarios:\n  a:\n    extends: b.yaml\n    set:\n      site:\n        tariff: |\n",
            {"us-ohio"},
        ),
        ("name: s\nobjective: |\n", {"npv_usd", "cost_usd"}),
        ("name: s\nuncertain:\n  site.pue_ratio:\n    prior: |\n", {"resale_36m_nvidia"}),
    ],
)
def test_a_study_is_completed(server: LanguageServer, text: str, wanted: set[str]) -> None:
    assert wanted <= set(offered(server, STUDY_LINE + text))
