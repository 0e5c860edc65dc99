"""The attack itself works: what it loads is there, and a killed run goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.attack import parts


@pytest.mark.parametrize(
    ("command", "kills"), [("run", 5), pytest.param("montecarlo", 5, marks=pytest.mark.prove)]
)
def test_a_command_that_is_killed_goes_on_to_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, kills: int
) -> None:
    monkeypatch.setattr(parts, "COMMANDS", {command: parts.COMMANDS[command]})
    findings = parts.Findings()
    summary = parts.kill_often(tmp_path, kills, random.Random(1), findings)
    assert summary.startswith(f"{kills} of {command} (")
    assert findings.all() == []
