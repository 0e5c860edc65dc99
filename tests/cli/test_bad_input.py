"""Every bad input ends with exit code 2 and one message: file, line, dotted path, nearest key; nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Planner = Callable[..., Any]
Write = Callable[..., Path]

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
        "nodes: 4",
        "nodes: many",
        ["tiny.yaml:12: clusters.h200.nodes: must be a whole number, not 'many'"],
        id="wrong type",
    ),
    pytest.param(
        "nodes: 4",
        "nodes: '4'",
        ["tiny.yaml:12: clusters.h200.nodes: must be a whole number, not '4'"],
        id="number in quotes",
    ),
    pytest.param(
        "nodes: 4",
        "nodes: true",
        ["tiny.yaml:12: clusters.h200.nodes: must be a whole number, not true"],
        id="truth for a number",
    ),
    pytest.param(
        "nodes: 4",
        "nodes: [4]",
        ["tiny.yaml:12: clusters.h200.nodes: must be a whole number, not a list"],
        id="list for a number",
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
        "nodes: 4",
        "nodes:",
        ["tiny.yaml:12: clusters.h200.nodes: must be a whole number, not nothing"],
        id="no value",
    ),
    pytest.param(
        "nodes: 4",
        "nodes: -4",
        ["tiny.yaml:12: clusters.h200.nodes: must be greater than or equal to 0, not -4"],
        id="negative count",
    ),
    pytest.param(
        "nodes: 4",
        "nodes: 1" + "0" * 50,
        ["tiny.yaml:12: clusters.h200.nodes: must be less than or equal to 100000"],
        id="huge count",
    ),
    pytest.param(
        "nodes: 4",
        "nodes: 1" + "0" * 9000,
        ["tiny.yaml:12: clusters.h200.nodes: must be a whole number, not '1000"],
        id="monstrous count",
    ),
    pytest.param(
        "requests_per_s: 5",
        "requests_per_s: .nan",
        ["tiny.yaml:7: workloads.chat.requests_per_s: must be a finite number"],
        id="NaN",
    ),
    pytest.param(
        "requests_per_s: 5",
        "requests_per_s: .inf",
        ["tiny.yaml:7: workloads.chat.requests_per_s: must be a finite number"],
        id="infinity",
    ),
    pytest.param(
        "requests_per_s: 5",
        "requests_per_s: 1e999",
        ["tiny.yaml:7: workloads.chat.requests_per_s: must be a finite number"],
        id="overflow",
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
        "online: 2026-02-01",
        "online: 2026-02-30",
        ["tiny.yaml:16: clusters.mi325x.online: must be a date, YYYY-MM-DD"],
        id="no such day",
    ),
    pytest.param(
        "horizon_months: 3",
        "horizon_months: 3\nname: again",
        ["tiny.yaml:4: duplicate key name, first on line 1"],
        id="duplicate key",
    ),
    pytest.param(
        "horizon_months: 3",
        "horizon_months: 3\n? [a]\n: b",
        ["tiny.yaml:4: a key must be a plain word"],
        id="list as key",
    ),
    pytest.param(
        "horizon_months: 3",
        "horizon_months: 3\n1: b\ntrue: c\nnull: d",
        ["tiny.yaml:4: 1: unknown key", "tiny.yaml:5: true: unknown", "tiny.yaml:6: null: unknown"],
        id="numbers and truths as keys",
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
        "name: tiny", "name: &x [*x]", ["tiny.yaml:1: *x refers to itself"], id="anchor in itself"
    ),
    pytest.param(
        "name: tiny", "name: !!python/name:os.system x", ["tiny.yaml:1: the tag"], id="python tag"
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
    pytest.param("", ["tiny.yaml:1: is empty"], id="empty"),
    pytest.param("- a\n- b\n", ["tiny.yaml:1: holds a list; expected a mapping"], id="list"),
    pytest.param("hello", ["tiny.yaml:1: holds 'hello'"], id="words"),
    pytest.param(BOMB, ["values once aliases are expanded"], id="alias bomb"),
    pytest.param("[" * 100_000, ["tiny.yaml:1: nested more than 32 deep"], id="deep nesting"),
    pytest.param(
        bytes(range(256)) * 4,
        ["tiny.yaml:2: is not UTF-8 text (byte 128), so not YAML"],
        id="binary",
    ),
    pytest.param(
        b"name: tiny\nstart: \0\n",
        ["tiny.yaml:2: not valid YAML: the character U+0000 is not text"],
        id="NUL",
    ),
    pytest.param("name: 'tiny\n", ["tiny.yaml:", "not valid YAML"], id="open quote"),
    pytest.param("name: tiny\n\tstart: x\n", ["tiny.yaml:2: not valid YAML"], id="tab"),
    pytest.param("a: 1\n---\nb: 2\n", ["tiny.yaml:2: a second document"], id="two documents"),
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
    planner: Planner, write: Write, tmp_path: Path, tiny: str, old: str, new: str, parts: list[str]
) -> None:
    assert old in tiny
    write(tiny.replace(old, new, 1))
    refused_everywhere(planner, tmp_path, *parts)


@pytest.mark.parametrize(("content", "parts"), WHOLE)
def test_a_file_that_is_no_scenario(
    planner: Planner, write: Write, tmp_path: Path, content: str | bytes, parts: list[str]
) -> None:
    write(content)
    refused_everywhere(planner, tmp_path, *parts)


def test_a_model_that_does_not_fit(
    planner: Planner, write: Write, tmp_path: Path, tiny: str
) -> None:
    text = tiny.replace("llama-3.1-8b", "llama-3.1-405b\n    precisions: [bf16]").replace(
        "H200", "H100"
    )
    write(text[: text.index("  mi325x:")])
    refused_everywhere(
        planner, tmp_path, "tiny.yaml:5: workloads.chat: no cluster can serve it: h200: ", " GB"
    )


def test_a_file_of_100_mb(planner: Planner, tmp_path: Path) -> None:
    with (tmp_path / "tiny.yaml").open("wb") as stream:
        stream.truncate(100_000_000)
    refused_everywhere(
        planner, tmp_path, "tiny.yaml: is 100,000,000 bytes; a file may have 4,000,000"
    )


def test_a_missing_file_and_a_folder(planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "tidy.yaml").touch()
    refused_everywhere(planner, tmp_path, "tiny.yaml: no such file (did you mean tidy.yaml?)")
    (tmp_path / "tiny.yaml").mkdir()
    refused_everywhere(planner, tmp_path, "tiny.yaml: is a folder, not a file")


def test_an_unwritable_folder(planner: Planner, write: Write, tmp_path: Path) -> None:
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
    planner: Planner, write: Write, tiny: str
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
    ("override", "part"),
    [
        (
            "garbage",
            "--set #1: 'garbage' is not of the form dotted.path=value (for example clusters.h200.nodes=80)",
        ),
        ("=", "is not of the form"),
        ("clusters.h200.nodes=[", "--set #1:2: not valid YAML"),
        (
            "clusters.h200.nodes=-1",
            "--set #1: clusters.h200.nodes: must be greater than or equal to 0, not -1",
        ),
        ("clusters.h200.\x1b[2J=1", "--set #1: clusters.h200.\\x1b[2J: unknown key"),
        ("clusters.h200.nodes=\x1b[2J", "--set #1:1: not valid YAML: the character U+001B"),
        ("extends=x.yaml", "--set #1: extends: cannot be set"),
    ],
)
def test_set_garbage(
    planner: Planner, write: Write, tmp_path: Path, override: str, part: str
) -> None:
    write()
    before = sorted(tmp_path.rglob("*"))
    planner("run", "tiny.yaml", "--set", override).refused(part)
    assert sorted(tmp_path.rglob("*")) == before


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
def test_bad_options(planner: Planner, write: Write, arguments: list[str]) -> None:
    write()
    planner(*arguments).refused()


@pytest.mark.parametrize("name", ["../x", "=cmd", "a b", "", "\x1b[31m", "x" * 65])
def test_init_refuses_a_nasty_name(planner: Planner, tmp_path: Path, name: str) -> None:
    planner("init", name).refused("will not do as a name")
    assert not list(tmp_path.iterdir())
    assert not (tmp_path.parent / "x.yaml").exists()


def test_the_real_command_says_the_same(write: Write, tmp_path: Path, tiny: str) -> None:
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
    write: Write, tmp_path: Path, tiny: str
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
