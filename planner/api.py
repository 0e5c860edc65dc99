"""Each command has a function of the same name, which writes the same bytes into its folder.

Each function takes what its command takes, writes the same folder and returns an answer (``planner.answers``). Nothing
is printed; ``progress`` is called with a line about each step. ``strict`` takes every warning as an error, before
anything is written. Each command of ``planner.cli`` calls one of these functions, with the same names and defaults.
So this module is read before any command runs, and what a function needs is loaded when it is called.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from planner.actuals.command import actuals as actuals
from planner.actuals.command import actuals_sections
from planner.calibration.command import check_benchmarks as check_benchmarks
from planner.errors import CapacityError, Problem, ScenarioError, refuse
from planner.files import Place, check_target, output_folder
from planner.finance.measure_names import DRAWS
from planner.memo.command import memo as memo
from planner.onramp.command import draft as draft
from planner.onramp.command import init as init
from planner.progress import PrintLine, silent, tell_notes
from planner.requests.command import zoom as zoom
from planner.requests.command import zoom_sections

if TYPE_CHECKING:
    from planner.answers.answer import Answer
    from planner.answers.explain import Explanation
    from planner.answers.sweep import Sweep
    from planner.engine.processes import Process
    from planner.finance.accounting.measures import Figures
    from planner.run.replications import Replications
    from planner.run.simulate import RunResult
    from planner.scenario.loading import Source
    from planner.scenario.scenario import Scenario
    from planner.sizing.size import Sized
    from planner.studies.analysis import Finished
    from planner.studies.compare import Comparison
    from planner.studies.runner import Watch
    from planner.studies.work import Work

Method = Literal["montecarlo", "tornado"]

SIZES: dict[str, int] = {"montecarlo": 4096, "tornado": 16}
"""Replications of a method, where nothing else is asked for: of a Monte Carlo, at most."""
SETTLED_COST_FRACTION = 0.005
"""A run draws no more replications once half the 95% interval of mean net present cost is this share of it."""
_POINTS_PER_WORKER = 16
"""Points of a sweep for which another process pays."""


class Stopped(KeyboardInterrupt):
    """An interrupted sweep, study or sizing: its work is stored, and ``resume=True`` continues it."""


def load(source: Source, overrides: Sequence[str] = ()) -> Scenario:
    """Read and check a scenario: a path, a dict, or a loaded scenario to which overrides are added.

    ``overrides`` are ``dotted.path=value`` strings as for ``--set``. Files named in a dict are relative to the current
    folder. Overrides of a loaded scenario apply after those with which it was loaded.
    """
    from planner.scenario.loading import load_scenario

    return load_scenario(source, overrides)


def simulate(
    scenario: Source,
    seed: int | None = None,
    replication: int = 0,
    processes: Sequence[Process] = (),
) -> RunResult:
    """Run a scenario once and return its checked result, without writing anything.

    ``processes`` are generator functions that run with the simulation; each takes a
    ``planner.engine.processes.SimulationContext``.
    """
    from planner.run.simulate import simulate

    return simulate(load(scenario), seed, replication, processes)


def run(
    scenario: Source,
    out: Place | None = None,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    replications: int = DRAWS,
    advise: bool = False,
    hourly: bool = False,
    processes: Sequence[Process] = (),
    strict: bool = False,
    progress: PrintLine = silent,
    first: Callable[[Answer[RunResult]], None] = silent,
) -> Answer[RunResult]:
    """Simulate a scenario and write its timelines, ledger, measures, events, assumptions and workbook.

    ``first`` is called with the base replication as soon as it is finished. A number of ``replications``
    above 19 is an upper limit: they are drawn 19 at a time, until the SLO verdict is clear and mean net
    present cost is known to 0.5%. ``processes`` are functions that run with the simulation. If the SLO
    target is missed, ``advise`` searches by simulation for more nodes that meet it.
    """
    from planner.plan.build import build_plan
    from planner.run.replications import Replications, drawing
    from planner.run.simulate import check_whole, simulate_plan

    check_whole(replications=replications, seed=seed or 0)
    loaded = load(scenario, overrides)
    folder = output_folder(out, loaded.name)
    # Before the work: a folder of somebody else's is refused at once.
    check_target(folder)
    progress(f"simulating {loaded.name}, {loaded.horizon_months} months from {loaded.start}")
    plan = build_plan(loaded)
    root_seed = plan.seed if seed is None else seed
    draw = functools.partial(simulate_plan, loaded, plan, root_seed, processes=processes)
    base = draw(0)
    refuse(base.warnings, strict=strict)

    # What writes is loaded once the first replication is there: before it, it would only be waited for.
    from planner.answers.run import first_answer, run_answer, write_run
    from planner.answers.run_screen import progress_line
    from planner.answers.run_summary import is_settled, plan_verdict
    from planner.studies.remedy import find_remedy

    first(first_answer(folder, base))
    # Forks draw the other replications from here on, while this process works out the tables of
    # the first. A process of the user's own may count or print, so it runs in this process alone.
    workers = 1 if processes else None
    with drawing(draw, range(1, replications), workers=workers) as finish:

        def is_enough(figures: Sequence[Figures]) -> bool:
            number = len(figures)
            is_full_batch = number % DRAWS == 0
            # Up to the 19th every replication is reported, after it every 19th.
            if number > DRAWS and not is_full_batch:
                return False
            current = Replications(figures=tuple(figures))
            progress(f"{number} of {replications} replications: {progress_line(current)}")
            # The verdict is looked at after full batches alone. The last needs no look: drawing
            # ends there anyway, and a look loads scipy.
            if not is_full_batch or number == replications:
                return False
            return is_settled(base, current, SETTLED_COST_FRACTION)

        # Cached, because advice needs the replications before the files do.
        @functools.cache
        def draw_all() -> Replications | None:
            results = finish(base, is_enough) if replications > 1 else None
            progress("writing")
            return results

        remedy = None
        if advise and plan_verdict(base, draw_all()).status == "MISSED":
            results = draw_all()
            # Fewer than 19 replications could not tell whether the target is met.
            number = DRAWS if results is None else max(DRAWS, results.number)
            remedy = find_remedy(base, number, progress)
        results = write_run(base, folder, draw_all, hourly=hourly, remedy=remedy)
    return run_answer(folder, base, results, remedy)


def compare(
    scenarios: Sequence[Source],
    out: Place | None = None,
    *,
    baseline: str | None = None,
    futures: Place | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    replications: int = DRAWS,
    strict: bool = False,
    progress: PrintLine = silent,
) -> Answer[Comparison]:
    """Run scenarios side by side: measures, savings, and why a token costs more or less.

    All scenarios are run with the same traffic and the same random numbers. ``baseline`` is the name or the file of the
    scenario with which the others are compared; by default it is the first. Each scenario is also run in every future:
    those of the file ``futures``, or else those that the scenarios name. If there are futures, one scenario is enough.
    """
    from planner.answers.comparison import comparison_answer, write_comparison
    from planner.answers.identity import scenario_file
    from planner.studies.compare import check_comparable, compare, find_baseline
    from planner.studies.futures import load_futures, stated_futures

    # One file in place of a list would be read letter by letter.
    if isinstance(scenarios, str | os.PathLike | Mapping):
        raise ScenarioError(
            Problem(message="a comparison needs a list of scenarios", hint="name another file")
        )
    loaded = [load(scenario, overrides) for scenario in scenarios]
    futures_file = None if futures is None else Path(futures)
    future_changes = stated_futures(loaded) if futures_file is None else load_futures(futures_file)
    # One plan in several futures is a comparison too.
    fewest = 1 if future_changes else 2
    if len(loaded) < fewest:
        message = "a comparison needs two scenarios or more, or futures for one"
        raise ScenarioError(Problem(message=message, hint="name another file, or --futures FILE"))
    if baseline:
        names_by_file = {scenario_file(scenario): scenario.name for scenario in loaded}
        baseline = names_by_file.get(baseline, baseline)
    position = find_baseline(loaded, baseline or None)
    check_comparable(loaded, position)
    names = "-vs-".join(scenario.name for scenario in loaded)
    # Well below the 255 bytes at which file systems end a name.
    folder = output_folder(out, names[:120])
    check_target(folder)

    def print_name(name: str) -> None:
        progress(f"simulating {name}")

    comparison = compare(loaded, position, seed, print_name, replications, future_changes)
    refuse(comparison.warnings, strict=strict)
    write_comparison(comparison, folder, futures_file)
    return comparison_answer(folder, comparison)


def sweep(
    scenario: Source,
    vary: Sequence[str] | Mapping[str, Iterable[object]],
    out: Place | None = None,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    workers: int | None = None,
    resume: bool = False,
    restart: bool = False,
    strict: bool = False,
    progress: PrintLine = silent,
) -> Answer[Sweep]:
    """Run every combination of some values and write one tidy CSV.

    ``vary`` is text as for ``--vary``, or a mapping such as ``{"clusters.h200.nodes": range(40, 81, 20)}``.
    """
    from planner.answers.identity import command_again, scenario_file
    from planner.answers.sweep import Sweep, sweep_answer, write_sweep
    from planner.studies import sweep as grid
    from planner.studies.engines import workforce

    if isinstance(vary, Mapping):
        texts: Sequence[str] = [grid.axis_text(path, values) for path, values in vary.items()]
    else:
        texts = _as_list(vary)
    axes = grid.parse_axes(texts)
    loaded = load(scenario, overrides)
    folder = output_folder(out, f"{loaded.name}-sweep")
    grid.check_values(loaded, axes)
    if strict:
        grid.check_warnings(loaded, axes)
    seed_used = loaded.seed if seed is None else seed
    total = grid.count_points(axes)
    work = grid.SweepWork(folder, loaded, axes, loaded.document.overrides, seed_used)
    work.open(resume=resume, restart=restart)
    tell_notes(work.notes, progress)

    def print_point(number: int) -> None:
        # Every tenth of many: a line a point would hide what is said beside.
        if number % 10 == 0 or total <= 10:
            progress(f"point {number + 1} of {total}")

    with _stored(work):
        processes = workforce(workers, None).workers
        if workers is None:
            # Few points are done before a second process has started.
            processes = min(processes, max(1, total // _POINTS_PER_WORKER))
        points = grid.sweep(loaded, axes, seed, print_point, work, processes)
        options = {"--vary": list(texts), "--seed": seed_used}
        manifest = {
            "scenario_file": scenario_file(loaded),
            "overrides": list(loaded.document.overrides),
            "seed": seed_used,
            "warnings": grid.warnings_of_points(points),
            "identity": work.identity,
            "command": command_again("sweep", [loaded], options),
        }
        # Again, since hours may have passed: the folder now holds the work itself.
        check_target(folder, work=True)
        write_sweep(loaded, axes, points, folder, manifest)
    return sweep_answer(folder, Sweep(axes=axes, points=points))


def study(
    file: Place,
    size: int | None = None,
    out: Place | None = None,
    *,
    method: Method = "montecarlo",
    until: str | float | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    restart: bool = False,
    strict: bool = False,
    samples: bool | None = None,
    progress: PrintLine = silent,
    watch: Watch | None = None,
) -> Answer[Finished]:
    """Run a study and write its folder, as ``planner montecarlo`` and ``planner sensitivity`` do.

    ``size`` is the number of replications (montecarlo), or of those for each input (tornado, 16 by default). Rows that
    differ only in money share a simulation. ``until`` ends a montecarlo when half the width of the 95% interval of the
    objective's mean is at most this share of the mean. The rules ``"p90=2%"``, ``"best=1%"`` and ``"slo=4%"`` watch a
    percentile, P(best), or P(SLO met) of plans without a verdict instead; separate several rules by commas. Without
    ``size`` and ``until``, the rules are ``PRECISION`` of ``planner.studies.runner``, and the study ends after 4,096
    replications in any case. ``samples`` says whether samples.csv is written; by default it is written for up to
    100,000 rows. replications.parquet always has all rows.
    """
    from planner.answers import study as answers
    from planner.answers.study_screen import study_remarks
    from planner.run.simulate import check_whole
    from planner.studies.analysis import Finished, open_store
    from planner.studies.designs import MonteCarlo
    from planner.studies.engines import workforce
    from planner.studies.prepare import prepare
    from planner.studies.runner import PRECISION, Goal, Until, run_rows
    from planner.units import counted

    force = workforce(workers, scheduler)
    overrides = _as_list(overrides)
    # Who asks for a number of replications gets it.
    if until is None and size is None:
        until = PRECISION
    rules = () if until is None else Until.read(str(until))
    count = SIZES[method] if size is None else size
    # Less one, since the check takes zero and a study needs a replication.
    check_whole(size=count - 1, seed=seed or 0)
    prepared = prepare(Path(file), overrides, seed)
    refuse(prepared.warnings, strict=strict)
    design = prepared.tornado() if method == "tornado" else prepared.montecarlo()
    name = prepared.study.name
    is_drawn = isinstance(design, MonteCarlo)
    folder = output_folder(out, name if is_drawn else f"{name}-{method}")
    store = open_store(prepared, folder, design, resume=resume, restart=restart)
    goal = Goal(
        rows=count if isinstance(design, MonteCarlo) else count * design.period,
        objective=prepared.objective.name,
        scramblings=prepared.study.scramblings if is_drawn else 1,
        until=rules if is_drawn else (),
        targeted=prepared.targeted,
        lower_is_better=prepared.objective.lower_is_better,
    )
    scenarios = counted(len(prepared.scenarios), "scenario")
    if is_drawn:
        inputs = f"{len(prepared.inputs)} uncertain inputs"
        most = "at most " if goal.until else ""
        progress(f"{name}: {most}{goal.rows:,} replications of {scenarios}, {inputs}")
    else:
        progress(f"{name}: {goal.rows:,} rows of {scenarios}")
    tell_notes(store.notes, progress)
    notes_printed = len(store.notes)
    try:
        try:
            rows = run_rows(store, goal, force, watch)
        except KeyboardInterrupt:
            # The last batch may be shorter than the others.
            stored = min(len(store.finished()) * store.batch, goal.rows)
            raise Stopped(f"stopped with {stored:,} of {goal.rows:,} replications stored") from None
        finished = Finished(prepared=prepared, store=store, rows=rows)
        if not isinstance(design, MonteCarlo):
            options: dict[str, object] = {"--size": count}
            command = answers.study_command("sensitivity", prepared, options, overrides)
            by_input, completed = answers.write_designed(
                prepared, design, store, goal.rows, command
            )
            return answers.design_answer(folder, finished, tuple(by_input), completed)
        options = {"--replications": finished.rows}
        options |= {"--samples": samples, "--no-samples": samples is False}
        command = answers.study_command("montecarlo", prepared, options, overrides)
        answers.write_study(finished, samples=samples, command=command)
    finally:
        store.close()
    for line in (*store.notes[notes_printed:], *study_remarks(finished, goal)):
        progress(line)
    return answers.study_answer(folder, finished)


def replay(
    file: Place,
    replication: int,
    out: Place | None = None,
    *,
    scenario: str | None = None,
    draws: int = 1,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    hourly: bool = False,
) -> Answer[RunResult]:
    """Run one replication of a Monte Carlo study again and write its full timeline, ledger, events and assumptions.

    ``draws`` is the number of draws of money for each simulation of the study, if the study reports several.
    """
    from planner.answers.run import run_answer, write_run
    from planner.answers.study import study_command
    from planner.studies.prepare import prepare
    from planner.studies.replicate import Replicator

    overrides = _as_list(overrides)
    prepared = prepare(Path(file), overrides, seed, plans_stated=False)
    position = prepared.place_of(scenario)
    name = prepared.names[position]
    folder = output_folder(out, f"{prepared.study.name}-{name}-{replication}")
    check_target(folder)
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    if draws > 1:
        # As in the study: several draws of money then share one simulation.
        nested = replicator.setup.nested(replicator.redrawn(), draws)
        replicator = Replicator(nested)
    values, streams = replicator.setup.values(replication, replication + 1)
    result = replicator.simulate(position, values[0], int(streams[0]))
    options = {"--replication": replication, "--scenario": name}
    options |= {"--draws": draws, "--hourly": hourly}
    command = study_command("replay", prepared, options, overrides)
    write_run(result, folder, hourly=hourly, command=command)
    return run_answer(folder, result, None)


def size(
    scenario: Source,
    out: Place | None = None,
    *,
    study: Place | None = None,
    budget: float | None = None,
    power: float | None = None,
    accelerators: str | Sequence[str] = (),
    slo_target: float | None = None,
    objective: str = "net-present-cost",
    replications: int = 48,
    confirmations: int | None = None,
    rivals: bool = True,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    restart: bool = False,
    strict: bool = False,
    progress: PrintLine = silent,
) -> Answer[Sized]:
    """Find the cheapest policy that meets the SLO target: what to buy, order on a signal, rent and retire.

    ``budget``, ``power``, ``accelerators`` and ``slo_target`` narrow what the scenario says of ``sizing`` and
    ``slo_target``; ``study`` names uncertain inputs. ``accelerators`` are a list, or text as ``--accelerators`` takes
    it. ``minutes`` ends the search early, with the best so far; without ``rivals`` the answer alone is worked out.
    """
    from planner.plan.contradictions import all_warnings
    from planner.run.simulate import check_whole
    from planner.sizing.archive import SizeWork
    from planner.sizing.evaluate import OBJECTIVES, Clock
    from planner.sizing.size import Effort, size, trial_of
    from planner.studies.engines import workforce
    from planner.validation import choices

    check_whole(
        replications=replications - 1, confirmations=(confirmations or 1) - 1, seed=seed or 0
    )
    if objective not in OBJECTIVES:
        raise ScenarioError(f"--objective must be one of {choices(OBJECTIVES)}, not {objective!r}")
    limits = {
        "sizing.budget_usd": budget,
        "sizing.it_power_cap_kw": power,
        "slo_target.attainment": slo_target,
    }
    # After the user's own, so that an option goes before a --set of the same key.
    stated = [f"{path}={number!r}" for path, number in limits.items() if number is not None]
    loaded = load(scenario, [*_as_list(overrides), *stated])
    folder = output_folder(out, f"{loaded.name}-size")
    if isinstance(accelerators, str):
        accelerators = [name for name in accelerators.split(",") if name]
    has_miss_cost = loaded.sizing is not None and loaded.sizing.miss_cost_usd is not None
    if has_miss_cost and objective != "net-present-cost":
        message = "is part of net present cost, and the objective is another"
        path = ("sizing", "miss_cost_usd")
        raise ScenarioError(loaded.document.problem(path, message, "leave --objective out"))
    study_file = None if study is None else Path(study)
    trial = trial_of(loaded, accelerators, study_file, objective, seed)
    # Of the plan as stated: the variants that a search makes would repeat each of them.
    warnings = all_warnings(loaded, trial.choices.plan)
    refuse(warnings, strict=strict)
    force = workforce(workers, scheduler)
    effort = Effort(
        replications=replications,
        confirmations=confirmations,
        rivals=rivals,
        workers=force.workers,
        scheduler=scheduler,
    )
    clock = Clock(say=progress)
    if minutes is not None:
        clock = Clock(say=progress, minutes=minutes)
    work = SizeWork(folder, loaded, trial)
    work.open(resume=resume, restart=restart)
    tell_notes(work.notes, progress)
    options: dict[str, object] = {
        "--study": study,
        "--accelerators": ",".join(accelerators) or None,
        "--objective": objective,
        "--replications": replications,
        "--confirmations": confirmations,
        "--no-rivals": not rivals or None,
        "--seed": trial.seed,
    }

    # A search may take hours: what it has is on disk all along.
    def write_so_far(sized: Sized) -> None:
        from planner.answers import size as answers

        answers.write_so_far(sized, work)

    with _stored(work):
        sized = size(loaded, trial, effort, clock, work, write_so_far)

        # What writes is loaded after the search, which has the memory.
        from planner.answers.identity import command_again
        from planner.answers.size import size_answer, write_size

        write_size(sized, work, command_again("size", [loaded], options))
    return size_answer(folder, sized, tuple(warnings))


def explain(
    figure: str,
    place: Place | None = None,
    *,
    overrides: Sequence[str] = (),
    inputs: int = 20,
) -> Explanation:
    """Explain a figure by its name: meaning, formula, parts and inputs; with its values in a run's folder.

    ``place`` may be a scenario too, which is run once and not written. At most so many ``inputs`` are listed, those
    that somebody stated or measured first.
    """
    from planner.answers import explain as answers

    # A name that is not there is refused before anything is run.
    explanation = answers.explain(figure, inputs)
    if place is None:
        return explanation
    if Path(place).is_dir():
        contents = answers.contents_of_folder(Path(place))
    else:
        contents = answers.contents_of_run(simulate(load(place, overrides)))
    return answers.explain(figure, inputs, contents, str(place))


REPORTS = {
    "actuals": actuals_sections,
    "zoom": zoom_sections,
}
"""Who makes the report of a folder that no room of the core wrote, by the folder's kind."""


def report(folder: Place) -> Path:
    """Write report.html of an output folder again from its files, as ``planner report`` does; return its path."""
    from planner.answers.report import rebuild_report

    return rebuild_report(Path(folder), REPORTS)


def _as_list(words: Sequence[str]) -> Sequence[str]:
    """Return a list of words; a single one that was not put into a list is one."""
    return [words] if isinstance(words, str) else words


@contextlib.contextmanager
def _stored(work: Work) -> Iterator[None]:
    """Keep what is done where work is stopped, but not where it is finished without an answer."""
    try:
        yield
    except CapacityError:
        # Nothing to resume: the same input would fail again.
        work.clear()
        raise
    except KeyboardInterrupt as stop:
        raise Stopped(str(stop) or "stopped; finished work is stored") from None
    finally:
        work.close()
