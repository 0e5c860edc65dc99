from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[2] / "scenarios" / "mixed-fleet.yaml"
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
    done = subprocess.run([sys.executable, "-c", PROBE, argument], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "planner" in loaded
    assert not set(HEAVY) & set(loaded)


def test_a_run_does_not_wait_for_pandas_or_templates(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "run", "tiny.yaml"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert not {"pandas", "jinja2"} & set(json.loads(done.stdout.splitlines()[-1]))
    assert (tmp_path / "outputs" / "tiny" / "ledger.csv").exists()


def test_a_run_does_not_wait_for_masked_arrays(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    asked = f"{PROBE}\nprint('numpy' in sys.modules, 'numpy.ma' in sys.modules)"
    command = [sys.executable, "-c", asked, "run", "tiny.yaml", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith("True False\n")


def test_what_writes_is_loaded_while_others_draw(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    watch = """
import sys
import planner.run.replications as chance
begin = chance.drawing
def drawing(*given, **named):
    print(sorted(name for name in sys.modules if name.startswith(("planner.output", "xlsxwriter"))))
    return begin(*given, **named)
chance.drawing = drawing
"""
    command = [sys.executable, "-c", watch + PROBE, "run", "tiny.yaml", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("[]\n")
    assert "xlsxwriter" in json.loads(done.stdout.splitlines()[-1])


def test_forks_that_draw_load_nothing_of_their_own() -> None:
    draw = """
import json, sys
from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from planner.run.replications import figures_of, months_of
from planner.run.simulate import simulate_plan
scenario = load_scenario(sys.argv[1])
plan = build_plan(scenario)
before = set(sys.modules)
drawn = simulate_plan(scenario, plan, 1)
figures_of(drawn), months_of(drawn)
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    command = [sys.executable, "-c", draw, str(REFERENCE)]
    assert json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == []


def test_no_command_looks_for_cycles_while_it_starts() -> None:
    watch = """
import gc, sys
looked = []
gc.callbacks.append(lambda phase, _: looked.append(phase) if phase == "start" else None)
import planner.cli
before = len(looked)
import planner.cli.app
print(len(looked) - before)
"""
    assert subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, check=True).stdout == "0\n"


def test_no_command_looks_for_cycles_in_what_ends_with_it() -> None:
    cycle = """
class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("looked for")
Cycle()
"""

    def said(program: str) -> str:
        command = [sys.executable, "-c", program, "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "looked for" in said(cycle)
    assert "looked for" not in said(PROBE + cycle)
