"""Verbs that run a plan or a few of them, and those that write what a folder says."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.answers import ComparisonAnswer, RunAnswer
from planner.errors import Problem, ScenarioError, refuse
from planner.run.measure_names import DRAWS

if TYPE_CHECKING:
    from planner.engine.processes import Process
    from planner.run.result import RunResult
    from planner.scenario.loading import Source

Place = str | os.PathLike[str]
Say = Callable[[str], None]


def silent(_: str) -> None:
    """Say nothing."""


def folder_of(out: Place | None, name: str) -> Path:
    """Return the output folder: the one asked for, or one of the plan's name under outputs."""
    return Path("outputs") / name if out is None else Path(out)


def simulate(
    scenario: Source, seed: int | None = None, replication: int = 0, processes: Sequence[Process] = ()
) -> RunResult:
    """Run a scenario once and return its checked result, without writing anything.

    ``processes`` are generator functions of a ``planner.engine.processes.World`` that run with it.
    """
    from planner.run.simulate import simulate
    from planner.scenario.loading import load_scenario

    return simulate(load_scenario(scenario), seed, replication, processes)


def run(
    scenario: Source,
    out: Place | None = None,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    strict: bool = False,
    draws: int = DRAWS,
    hourly: bool = False,
    parquet: bool = False,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    processes: Sequence[Process | str] = (),
    progress: Say = silent,
) -> RunAnswer:
    """Simulate a scenario and write its folder, as ``planner run`` does.

    ``processes`` run with it: functions, or ``module:function`` as ``--process`` takes them.
    """
    from planner.engine.processes import load_process
    from planner.files import check_target
    from planner.plan.build import build_plan
    from planner.run.replications import drawing
    from planner.run.simulate import check_whole, simulate_plan
    from planner.scenario.loading import load_scenario

    check_whole(draws=draws, seed=seed or 0)
    functions = [load_process(process) if isinstance(process, str) else process for process in processes]
    loaded = load_scenario(scenario, overrides)
    folder = folder_of(out, loaded.name)
    check_target(folder)
    progress("compiling")
    plan = build_plan(loaded)
    draw = functools.partial(simulate_plan, loaded, plan, plan.seed if seed is None else seed, processes=functions)
    progress("simulating")
    # Others draw the plan again from here on. A process of the user's own may count or print, so that is run here.
    with drawing(draw, range(1, draws), workers=1 if functions else None) as together:
        result = draw(0)
        refuse(result.warnings, strict=strict)
        from planner.output.csv_table import CsvFormat
        from planner.output.run_folder import Wanted, begin_run

        form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
        finish = begin_run(result, Wanted(form=form, hourly=hourly, parquet=parquet))
        progress("drawing again")
        chance = together(result) if draws > 1 else None
    progress("writing")
    finish(folder, chance)
    return RunAnswer(folder=folder, result=result, chance=chance)


def compare(
    scenarios: Sequence[Source],
    out: Place | None = None,
    *,
    baseline: str | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    strict: bool = False,
    draws: int = DRAWS,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
) -> ComparisonAnswer:
    """Run scenarios under the same traffic and chance and write their folder, as ``planner compare`` does.

    ``baseline`` is the name or the file of the scenario that the others are held against, the first unless given.
    """
    from planner.files import check_target
    from planner.output.comparison import write_comparison
    from planner.output.csv_table import CsvFormat
    from planner.output.run_folder import scenario_file
    from planner.scenario.loading import load_scenario
    from planner.studies.compare import check_comparable, compare, find_baseline

    if isinstance(scenarios, str | os.PathLike | Mapping) or len(scenarios) < 2:
        raise ScenarioError(Problem(message="a comparison needs two scenarios or more", hint="name another file"))
    loaded = [load_scenario(scenario, overrides) for scenario in scenarios]
    files = {scenario_file(scenario): scenario.name for scenario in loaded}
    position = find_baseline(loaded, files.get(baseline, baseline) if baseline else None)
    check_comparable(loaded, position)
    folder = folder_of(out, "-vs-".join(scenario.name for scenario in loaded)[:120])
    check_target(folder)
    comparison = compare(loaded, position, seed, lambda name: progress(f"simulating {name}"), draws)
    refuse(comparison.warnings, strict=strict)
    write_comparison(comparison, folder, CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark))
    return ComparisonAnswer(folder=folder, comparison=comparison)


def report(folder: Place) -> Path:
    """Write report.html of any output folder anew from the files in it, as ``planner report`` does; return its path."""
    from planner.output.report.build import rebuild_report

    return rebuild_report(Path(folder))


def memo(folder: Place) -> list[Path]:
    """Write memo.html and memo.md of an output folder, as ``planner memo`` does; return their paths."""
    from planner.output.report.memo import write_memo

    return write_memo(folder)
