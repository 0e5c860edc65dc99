"""The attack itself works: what it loads is there, and a killed run goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.attack import parts


def test_a_command_that_is_killed_once_goes_on_to_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "COMMANDS", {"run": parts.COMMANDS["run"]})
    findings = parts.Findings()
    assert parts.kill_often(tmp_path, 1, random.Random(1), findings).startswith("1 of run (")
    assert findings.summary() == "0 tracebacks, 0 silent wrongs, 0 lost"
