"""``planner ui``: what it says when it cannot, and that Ctrl-C ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from planner.ui.server import listen
from tests.conftest import Planner, WriteScenario


def test_without_its_libraries_it_names_what_to_install(
    planner: Planner, write: WriteScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "planner.ui.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    planner("ui", str(write())).refused("pip install 'datacenter-planner[ui]'")


def test_a_port_in_use_and_a_bad_scenario_are_one_message(
    planner: Planner, write: WriteScenario
) -> None:
    listening = listen(0)
    port = listening.getsockname()[1]
    outcome = planner("ui", str(write()), "--port", str(port), "--no-browser")
    outcome.refused(
        f"port {port} cannot be used: Address already in use (leave --port out to use any free port)"
    )
    assert len(outcome.err.splitlines()) == 1
    listening.close()
    planner("ui", "none.yaml").refused("none.yaml: no such file")
    planner("ui", str(write()), "--set", "clusters.h200.nodes=-1").refused("clusters.h200.nodes")
    assert planner("ui", str(write()), "--port", "70000").code == 2


def test_it_prints_its_address_answers_there_and_ends_with_ctrl_c(
    write: WriteScenario, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", "from planner.cli.app import main; main()", "ui", str(write())]
    process = subprocess.Popen(
        [*command, "--no-browser", "--set", "clusters.h200.nodes=5"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert len(address.split("/")[3]) >= 32, "a token that nobody guesses"
        asked = urllib.request.Request(
            f"{address}show", json.dumps({"set": []}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert ["clusters.h200.nodes", "5", ""] in json.load(answer)["settings"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "stopped"
    assert "Traceback" not in err
    assert not (tmp_path / "outputs").exists(), "nothing is written unless asked for"
