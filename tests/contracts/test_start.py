"""The command line answers ``--help`` before the heavy libraries are loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ["jinja2", "numpy", "scipy", "pandas", "pydantic", "simpy", "yaml", "zoneinfo"]
PROBE = """
import json, sys
sys.argv = ["planner", *sys.argv[1:]]
from planner.cli.app import main
try:
    main()
except SystemExit:
    pass
print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_the_command_line_starts_without_the_heavy_libraries(argument: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, argument], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "planner" in loaded
    assert not set(HEAVY) & set(loaded)
