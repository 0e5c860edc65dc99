"""Commands and functions of ``planner.api``: one has the options of the other, and hands them over."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.cli import actuals, explain, output_folders, plans, studies, zoom
from planner.cli import init as init_command
from planner.cli import memo as memo_command
from tests.conftest import Planner

COMMANDS: dict[Callable[..., None], Callable[..., Any]] = {
    plans.run: api.run,
    plans.compare: api.compare,
    plans.sweep: api.sweep,
    plans.size: api.size,
    studies.montecarlo: api.study,
    studies.sensitivity: api.study,
    studies.replay: api.replay,
    actuals.actuals: api.actuals,
    zoom.zoom: api.zoom,
    output_folders.report: api.report,
    memo_command.memo: api.memo,
    explain.explain: api.explain,
    init_command.init: api.init,
}
OPTIONS_ALONE = {
    "as_json": "says how the answer is printed",
    "quiet": "says how the answer is printed",
    "verbose": "says how the answer is printed",
    "fail_on_miss": "is an exit status, and a program asks answer.is_met()",
    "overlay": "is the override catalog.overlay",
    "_allow_code": "guards a command line; a program imports what it runs",
}
PARAMETERS_ALONE = {
    "progress": "is the terminal's",
    "watch": "is the terminal's bar",
    "first": "prints the first screen",
    "processes": "are Python functions; a scenario's key processes names files",
}
OTHER_NAME = {(studies.montecarlo, "replications"): "size"}
"""A method's size is a number of replications in a Monte Carlo study."""
MONTECARLO_ALONE = {"until", "samples"}
"""What a tornado does not read."""


def options_of(command: Callable[..., None]) -> dict[str, inspect.Parameter]:
    """Return a command's options by the names of the function's parameters."""
    options = inspect.signature(command).parameters
    return {
        OTHER_NAME.get((command, name), name): option
        for name, option in options.items()
        if name not in OPTIONS_ALONE
    }


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_has_the_parameters_and_defaults_of_its_function(
    command: Callable[..., None],
) -> None:
    options = options_of(command)
    parameters = dict(inspect.signature(COMMANDS[command]).parameters)
    missing = set(PARAMETERS_ALONE)
    if command in (studies.montecarlo, studies.sensitivity):
        missing |= {"method"}
    if command is studies.sensitivity:
        missing |= MONTECARLO_ALONE
    assert set(options) == set(parameters) - missing
    for name, option in options.items():
        # Typer has no empty list: an option without values is None.
        default = None if parameters[name].default == () else parameters[name].default
        assert option.default == default, name


OTHER_THAN_DEFAULT: dict[str, tuple[list[str], Any]] = {
    "name": (["n"], "n"),
    "sources": (["--from", "f"], ["f"]),
    "fleet": (["--fleet", "f"], Path("f")),
    "quotes": (["--quotes", "q"], Path("q")),
    "model": (["--model", "m"], ["m"]),
    "preset": (["--preset", "p"], ["p"]),
    "time_unit": (["--time-unit", "ms"], "ms"),
    "requests_per_s": (["--requests-per-s", "a=1"], ["a=1"]),
    "growth": (["--growth", "a=1"], ["a=1"]),
    "start": (["--start", "2026-02-03"], datetime.date(2026, 2, 3)),
    "scenario": (["s.yaml"], Path("s.yaml")),
    "file": (["f.yaml"], Path("f.yaml")),
    "plan": (["p.yaml"], Path("p.yaml")),
    "months": (["m"], Path("m")),
    "scenarios": (["a.yaml", "b.yaml"], [Path("a.yaml"), Path("b.yaml")]),
    "folder": (["d"], Path("d")),
    "figure": (["cost_usd"], "cost_usd"),
    "place": (["p"], Path("p")),
    "inputs": (["--inputs", "33"], 33),
    "overrides": (["--set", "a=1", "--overlay", "o.yaml"], ["a=1", "catalog.overlay=o.yaml"]),
    "out": (["--out", "o"], Path("o")),
    "vary": (["--vary", "a=1,2"], ["a=1,2"]),
    "futures": (["--futures", "f"], Path("f")),
    "study": (["--study", "t"], Path("t")),
    "trace": (["--trace", "t"], Path("t")),
    "rivals": (["--no-rivals"], False),
    "samples": (["--no-samples"], False),
    "replications": (["-n", "33"], 33),
    "size": (["-n", "33"], 33),
    "draws": (["--draws", "3"], 3),
    "minutes": (["--minutes", "33"], 33),
    "requests": (["--requests", "333"], 333),
    "seed": (["--seed", "33"], 33),
    "workers": (["--workers", "33"], 33),
    "confirmations": (["--confirmations", "33"], 33),
    "replication": (["--replication", "33"], 33),
    "budget": (["--budget", "33"], 33.0),
    "power": (["--power", "33"], 33.0),
    "slo_target": (["--slo-target", "0.5"], 0.5),
}
"""Words of a command line, by parameter, and what the function then gets; other options are flags or texts."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_hands_every_option_to_its_function(
    command: Callable[..., None], planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = COMMANDS[command]
    words: list[str] = []
    expected: dict[str, Any] = {}
    for name, option in options_of(command).items():
        flag = f"--{name.replace('_', '-')}"
        usual = ([flag], True) if option.default is False else ([flag, "text"], "text")
        arguments, expected[name] = OTHER_THAN_DEFAULT.get(name, usual)
        if name == "scenario" and option.default is None:  # a name, not a file
            arguments, expected[name] = usual
        words += arguments

    class Called(KeyboardInterrupt):
        """Ends the command where its function would begin."""

    received: dict[str, Any] = {}

    def record(*positional: Any, **named: Any) -> None:
        received.update(inspect.signature(function).bind(*positional, **named).arguments)
        raise Called

    monkeypatch.setattr(api, function.__name__, record)
    outcome = planner(command.__name__.replace("_", "-"), *words)
    assert received, outcome.err
    assert {name: received[name] for name in expected} == expected
