"""Every bad input ends with exit code 2 and one message: file, line, dotted path, nearest key; nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Planner, WriteScenario

BOMB = "l0: &l0 [lol, lol]\n" + "\n".join(
    f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 9)
)

# What is replaced in the tiny scenario, by what, and what the message says.
CHANGES = [
    pytest.param(
        "nodes: 4",
        "nodess: 4",
        ["tiny.yaml:12: clusters.h200.nodess: unknown key (did you mean nodes?)"],
        id="misspelt key",
    ),
    pytest.param(
        "clusters:",
        "clusers:",
        ["tiny.yaml:9: clusers: unknown key (did you mean clusters?)", "clusters: is required"],
        id="misspelt section",
    ),
    pytest.param(
        "horizon_months: 3",
        "horizon_months: 3\nslo_target: {attainment: 99, confidence: 0}",
        [
            "tiny.yaml:4: slo_target.attainment: must be less than or equal to 1, not 99",
            "slo_target.confidence: must be greater than 0, not 0",
        ],
        id="SLO target over one",
    ),
    pytest.param(
        "horizon_months: 3",
        "horizon_months: 3\nslo_target: {per: week}",
        ["tiny.yaml:4: slo_target.per: must be one of 'month' or 'horizon', not 'week'"],
        id="SLO target of a week",
    ),
    pytest.param(
        "accelerator: H200",
        "accelerator: H20O",
        [
            "tiny.yaml:11: clusters.h200.accelerator: unknown accelerator 'H20O' (did you mean H200?)"
        ],
        id="unknown accelerator",
    ),
    pytest.param(
        "llama-3.1-8b",
        "llama-8b",
        [
            "tiny.yaml:6: workloads.chat.model: unknown model 'llama-8b' (did you mean llama-3.1-8b?)"
        ],
        id="unknown model",
    ),
    pytest.param(
        "online: 2026-02-01",
        "online: 2025-12-31",
        ["tiny.yaml:16: clusters.mi325x.online: 2025-12-31 is before the start"],
        id="date before the start",
    ),
    pytest.param(
        "name: tiny",
        "name: ../tiny",
        ["tiny.yaml:1: name: a name is 1 to 64 letters"],
        id="path as name",
    ),
    pytest.param(
        "name: tiny",
        "name: '=cmd'",
        ["tiny.yaml:1: name: a name is", "'=cmd'"],
        id="formula as name",
    ),
    pytest.param(
        "name: tiny",
        "name: <script>",
        ["tiny.yaml:1: name: a name is", "'<script>'"],
        id="script as name",
    ),
    pytest.param(
        "name: tiny",
        'name: "a\\e[31m\\u202e"',
        ["tiny.yaml:1: name: a name is", "\\x1b[31m\\u202e"],
        id="controls as name",
    ),
    pytest.param(
        "name: tiny", "name: 12", ["tiny.yaml:1: name: must be text, not 12"], id="number as name"
    ),
    pytest.param(
        "  h200:",
        '  "h\\e]0;x\\a":',
        ["tiny.yaml:10: clusters.h\\x1b]0;x\\x07: a name is"],
        id="controls as key",
    ),
    pytest.param(
        "name: tiny",
        "name: tiny\nextends: nowhere.yaml",
        ["tiny.yaml:2: extends: no such file"],
        id="base missing",
    ),
    pytest.param(
        "name: tiny",
        "name: tiny\nextends: tiny.yaml",
        ["tiny.yaml:2: extends: extends itself: tiny.yaml -> tiny.yaml"],
        id="cyclic extends",
    ),
    pytest.param(
        "name: tiny",
        "name: tiny\ncatalog: {overlay: nowhere.yaml}",
        ["nowhere.yaml: no such file"],
        id="overlay missing",
    ),
]

WHOLE = [
    pytest.param(BOMB, ["values once aliases are expanded"], id="alias bomb"),
    pytest.param(
        bytes(range(256)) * 4,
        ["tiny.yaml:2: is not UTF-8 text (byte 128), so not YAML"],
        id="binary",
    ),
    pytest.param(
        "{}",
        ["tiny.yaml:1: name: is required", "start: is required", "workloads: is", "clusters: is"],
        id="nothing said",
    ),
]


def refused_everywhere(planner: Planner, folder: Path, *parts: str) -> None:
    before = sorted(folder.rglob("*"))
    for command in ("run", "validate"):
        planner(command, "tiny.yaml").refused(*parts)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("old", "new", "parts"), CHANGES)
def test_a_mistake(
    planner: Planner,
    write: WriteScenario,
    tmp_path: Path,
    tiny: str,
    old: str,
    new: str,
    parts: list[str],
) -> None:
    assert old in tiny
    write(tiny.replace(old, new, 1))
    refused_everywhere(planner, tmp_path, *parts)


@pytest.mark.parametrize(("content", "parts"), WHOLE)
def test_a_file_that_is_no_scenario(
    planner: Planner, write: WriteScenario, tmp_path: Path, content: str | bytes, parts: list[str]
) -> None:
    write(content)
    refused_everywhere(planner, tmp_path, *parts)


def test_a_model_that_does_not_fit(
    planner: Planner, write: WriteScenario, tmp_path: Path, tiny: str
) -> None:
    text = tiny.replace("llama-3.1-8b", "llama-3.1-405b\n    precisions: [bf16]").replace(
        "H200", "H100"
    )
    write(text[: text.index("  mi325x:")])
    refused_everywhere(
        planner, tmp_path, "tiny.yaml:5: workloads.chat: no cluster can serve it: h200: ", " GB"
    )


def test_an_unwritable_folder(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    write()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes").write_text("theirs")
    before = sorted(tmp_path.rglob("*"))
    planner("run", "tiny.yaml", "--out", "file").refused("file: exists and is not a folder")
    planner("run", "tiny.yaml", "--out", "file/below").refused(
        "file/below: cannot be written: ", "not a folder"
    )
    planner("run", "tiny.yaml", "--out", "theirs").refused("theirs: was not written by planner")
    planner("run", "tiny.yaml", "--out", ".").refused("was not written by planner")
    planner("run", "tiny.yaml", "--out", "x" * 300).refused("cannot be written: File name too long")
    assert sorted(tmp_path.rglob("*")) == before


def test_all_problems_of_all_files_come_in_one_message(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    write(
        tiny.replace("nodes: 4", "nodess: 4").replace("start: 2026-01-01", "start: soon"), "a.yaml"
    )
    write(tiny.replace("MI325X", "MI325Y"), "b.yaml")
    write("", "c.yaml")
    outcome = planner("validate", "a.yaml", "b.yaml", "c.yaml", "d.yaml")
    outcome.refused()
    lines = outcome.err.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("error: ") for line in lines)
    assert [line.split()[1][0] for line in lines] == ["a", "a", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "tiny.yaml", "--seed", "-1"],
        ["run", "tiny.yaml", "--sed", "1"],
        ["rnu", "tiny.yaml"],
        ["init"],
    ],
)
def test_bad_options(planner: Planner, write: WriteScenario, arguments: list[str]) -> None:
    write()
    planner(*arguments).refused()


@pytest.mark.parametrize("name", ["../x", "=cmd", "a b", "", "\x1b[31m", "x" * 65])
def test_init_refuses_a_nasty_name(planner: Planner, tmp_path: Path, name: str) -> None:
    planner("init", name).refused("will not do as a name")
    assert not list(tmp_path.iterdir())
    assert not (tmp_path.parent / "x.yaml").exists()


def test_the_real_command_says_the_same(write: WriteScenario, tmp_path: Path, tiny: str) -> None:
    write(
        tiny.replace("nodes: 4", 'nodes: "\\e[31m"').replace(
            "accelerator: MI325X", "accelerator: MI325Y"
        )
    )
    script = Path(sys.executable).with_name("planner")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "planner.cli.app"]
    done = subprocess.run(
        [*command, "run", "tiny.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: tiny.yaml:12: clusters.h200.nodes: must be a whole number, not '\\x1b[31m'",
        "error: tiny.yaml:14: clusters.mi325x.accelerator: unknown accelerator 'MI325Y' (did you mean MI325X?)",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes only on POSIX")
def test_a_file_name_that_is_not_text_is_shown_escaped(
    write: WriteScenario, tmp_path: Path, tiny: str
) -> None:
    strange = os.fsencode(tmp_path) + b"/\xff\x1b[31m.yaml"
    try:
        with open(strange, "wb") as stream:  # noqa: PTH123 - pathlib has no bytes
            stream.write(tiny.encode())
    except OSError:
        pytest.skip("this file system has text names only")
    command: list[str | bytes] = [sys.executable, "-m", "planner.cli.app", "validate", strange]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"\\x1b[31m.yaml: ok" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr
