"""What a terminal gets: 80 columns, colour only there, JSON on request, completion."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from planner.cli.app import GROUPS, app, command_name
from planner.cli.terminal import paint, print_stage
from tests.conftest import Planner, WriteScenario

WITHOUT_JSON = {
    "ui": "prints an address alone",
    "mcp": "speaks JSON alone",
    "schema": "prints JSON anyway",
}


def run_on_a_terminal(arguments: list[str], folder: Path, **environment: str) -> str:
    """Run a command with a pseudo-terminal for its output and return what it wrote there."""
    above, below = pty.openpty()
    kept = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "planner.cli.app", *arguments],
        stdout=below, stderr=below, cwd=folder, env={**kept, "TERM": "xterm", "COLUMNS": "80", **environment},
    )  # fmt: skip
    os.close(below)
    written = b""
    while True:
        try:
            chunk = os.read(above, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        written += chunk
    process.wait()
    os.close(above)
    return written.decode("utf-8", "replace")


def test_long_names_and_a_long_horizon_fit_eighty_columns(
    planner: Planner, write: WriteScenario, tiny: str
) -> None:
    text = tiny.replace("horizon_months: 3", "horizon_months: 84").replace(
        "  mi325x:", f"  {'x' * 60}:"
    )
    write(text)
    outcome = planner("run", "tiny.yaml", "-v", "-n", "2")
    assert outcome.code == 0, outcome.err
    assert max(len(line) for line in outcome.out.splitlines()) <= 80


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colour_unless_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run_on_a_terminal(["run", "nowhere.yaml"], tmp_path)
    assert "\x1b[31merror:\x1b[0m nowhere.yaml: no such file" in shown
    with contextlib.redirect_stderr(Terminal()):
        for refusal, term, painted in (
            ("", "xterm", True),
            ("1", "xterm", False),
            ("", "dumb", False),
        ):
            monkeypatch.setenv("NO_COLOR", refusal)
            monkeypatch.setenv("TERM", term)
            assert (paint("error:", "red") == "\x1b[31merror:\x1b[0m") == painted
            assert painted or paint("error:", "red") == "error:"


def test_a_terminal_without_utf8_gets_plain_letters(write: WriteScenario, tmp_path: Path) -> None:
    write()
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli.app", "run", "tiny.yaml", "-n", "2"],
        capture_output=True, cwd=tmp_path, env=environment, check=True,
    )  # fmt: skip
    assert done.stdout.isascii()
    assert b"\\u" not in done.stdout


def test_every_command_has_json_or_a_reason() -> None:
    group = typer.main.get_command(app)
    commands = {**group.commands, "catalog show": group.commands["catalog"].commands["show"]}  # type: ignore[attr-defined]
    for name, command in commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) is (name not in WITHOUT_JSON), name


def test_the_help_names_every_command_once_in_a_whole_sentence(planner: Planner) -> None:
    grouped = [
        (command_name(command), said)
        for members in GROUPS.values()
        for command, said in members.items()
    ]
    group = typer.main.get_command(app)
    known = [name for name, command in group.commands.items() if not command.hidden]  # type: ignore[attr-defined]
    assert sorted(name for name, _ in grouped) == sorted(known)
    told = planner("--help").out
    for name, sentence in grouped:
        assert f"{name} " in told
        assert sentence in told  # on one line of 80 columns, and not cut off
        assert sentence.endswith(".")


def test_quiet_says_nothing(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    write()
    for arguments in (
        ["validate", "tiny.yaml"],
        ["run", "tiny.yaml", "-n", "2"],
        ["report", "outputs/tiny"],
    ):
        outcome = planner(*arguments, "--quiet")
        assert (outcome.code, outcome.out, outcome.err) == (0, "", ""), arguments


def test_validate_as_json_tells_good_from_bad(planner: Planner, write: WriteScenario) -> None:
    write()
    write("name: x\nclustres: {}\n", "bad.yaml")
    good = planner("validate", "tiny.yaml", "--json")
    assert good.code == 0
    (entry,) = json.loads(good.out)["files"]
    # Notes say what its throughput rests on.
    assert all("on h200" in note for note in entry.pop("notes"))
    assert entry == {"file": "tiny.yaml", "ok": True, "kind": "scenario", "warnings": []}
    both = planner("validate", "tiny.yaml", "bad.yaml", "--json")
    assert both.code == 2
    files = json.loads(both.out)["files"]
    assert [entry["ok"] for entry in files] == [True, False]
    assert any("clustres" in problem for problem in files[1]["problems"])


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("r", ["replay", "report", "run"]), ("cat", ["catalog"]), ("val", ["validate"])],
)
def test_the_shell_completes_commands(tmp_path: Path, typed: str, wanted: list[str]) -> None:
    environment = {
        **os.environ,
        "_PLANNER_COMPLETE": "complete_bash",
        "COMP_WORDS": f"planner {typed}",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("planner"))], capture_output=True, text=True, cwd=tmp_path, env=environment,
        check=False,
    )  # fmt: skip
    assert sorted(done.stdout.split()) == wanted


def test_a_terminal_sees_the_stage_in_one_line_that_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    for text in ("simulating tiny, 3 months", "2 of 19 replications, NPC $1.00M", ""):
        print_stage(text)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines == ["", "simulating tiny, 3 months", "2 of 19 replications, NPC $1.", ""]
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    for text in ("simulating tiny, 3 months", "2 of 19 replications", ""):
        print_stage(text)
    assert pipe.getvalue() == "simulating tiny, 3 months\n"
