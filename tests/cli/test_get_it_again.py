"""The command that a report prints is carried out where it says, and writes the same bytes."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Planner, WriteScenario, files_of

TRICKY = """description=it's "5 $HOME" & <more>; `ls`"""
OVERLAY = "accelerators: {H200: {idle_w: {value: 90, source: our meter, grade: A}}}\n"
STUDY = """\
name: doubts
scenarios: {own: {extends: ../the plans/tiny one.yaml}, rival: {extends: ../the plans/tiny one.yaml, set: {seed: 5}}}
uncertain: {clusters.h200.accelerator_price_usd: {kind: uniform, low: 20000, high: 40000}}
"""


@pytest.fixture
def place(tmp_path: Path, tiny: str) -> Path:
    """Lay scenarios, an overlay and a study out in folders whose names a shell would split."""
    plans = tmp_path / "the plans"
    studies = tmp_path / "studies"
    plans.mkdir()
    studies.mkdir()
    (plans / "own parts.yaml").write_text(OVERLAY)
    (plans / "tiny one.yaml").write_text(tiny + "catalog: {overlay: own parts.yaml}\n")
    (plans / "o'clock.yaml").write_text(
        "extends: tiny one.yaml\nname: clock\nclusters: {mi325x: {nodes: 5}}\n"
    )
    (studies / "doubts.yaml").write_text(STUDY)
    (tmp_path / "here.yaml").write_text(OVERLAY.replace("90", "80"))
    return tmp_path


def printed(folder: Path) -> str:
    """Return the command of "Reproduce", as a reader copies it off the page."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    section = page[page.index('<section id="reproduce"') :]
    assert "Run this command in the same folder as before" in section
    found = re.search(r"<pre[^>]*><code>(.*?)</code></pre>", section, re.DOTALL)
    assert found
    command = html.unescape(found[1])
    assert shlex.split(command) == json.loads((folder / "manifest.json").read_text())["command"]
    return command


PLAN = "the plans/tiny one.yaml"
OTHER = "the plans/o'clock.yaml"
DOUBTS = "studies/doubts.yaml"
CASES = {
    "run": ("run", PLAN, "-n", "2", "--seed", "7", "--set", TRICKY),
    "run with an overlay from here": ("run", PLAN, "-n", "1", "--set", "catalog.overlay=here.yaml"),
    "compare": ("compare", PLAN, OTHER, "--baseline", "clock", "-n", "2", "--set", TRICKY),
    "sweep": ("sweep", PLAN, "--vary", "clusters.h200.nodes=2:4:2", "--vary", "routing=proportional,preference",
              "--set", TRICKY, "--seed", "9"),
    "montecarlo": ("montecarlo", DOUBTS, "-n", "8", "--set", "clusters.h200.nodes=3"),
    "sensitivity": ("sensitivity", DOUBTS, "--size", "4", "--seed", "3", "--set", TRICKY),
    "replay": ("replay", DOUBTS, "--replication", "3", "--scenario", "rival", "--hourly"),
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.prove)
        if case in ("montecarlo", "sensitivity")
        else case
        for case in CASES
        if case != "run"
    ],
)  # that one has a shell to itself, below
def test_the_printed_command_writes_the_same_bytes(
    planner: Planner, place: Path, case: str
) -> None:
    told = planner(*CASES[case], "--out", "first", "--quiet")
    assert told.code == 0, told.err
    verb, *words = shlex.split(printed(place / "first"))[1:]
    again = planner(verb, *words)
    assert again.code == 0, again.err
    (second,) = (place / "outputs").iterdir()
    assert files_of(second) == files_of(place / "first")


def test_a_shell_reads_the_printed_command_as_it_was_meant(planner: Planner, place: Path) -> None:
    assert planner(*CASES["run"], "--out", "first", "--quiet").code == 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", printed(place / "first")], cwd=place, check=True, env=os.environ | {"PATH": path},
                   capture_output=True)  # fmt: skip
    assert files_of(place / "outputs" / "tiny") == files_of(place / "first")


def test_a_file_whose_name_begins_like_an_option_is_found_again(
    planner: Planner, write: WriteScenario
) -> None:
    write(name="-tiny.yaml")
    assert planner("run", "./-tiny.yaml", "-n", "1", "--out", "first", "--quiet").code == 0
    assert planner(*shlex.split(printed(Path("first")))[1:]).code == 0


def test_a_sweep_names_the_run_that_shows_its_choice_in_full(planner: Planner, place: Path) -> None:
    assert planner(*CASES["sweep"], "--out", "first", "--quiet").code == 0
    page = (place / "first" / "report.html").read_text(encoding="utf-8")
    commands = {
        html.unescape(found) for found in re.findall(r"<code>(planner run .*?)</code>", page)
    }
    (command,) = commands
    assert planner(*shlex.split(command)[1:], "-n", "1").code == 0
    assert (place / "outputs" / "tiny" / "ledger.csv").is_file()
