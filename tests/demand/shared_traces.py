"""Public traces that are not part of the project: looked for beside it, tests skip where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def trace(name: str) -> Path:
    """Return the path of a public trace, or skip the test."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    path = Path(os.environ.get("PLANNER_SHARED", beside)) / "traces" / name
    if not path.exists():
        pytest.skip(f"public trace {name} is not here")
    return path
