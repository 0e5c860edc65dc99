"""What a command does, a function of the same name does, with the same bytes in its folder.

Each function takes what its command takes, writes the same folder and returns an answer (``planner.answers``). Nothing
is printed; ``progress`` is told in a few words what goes on. ``strict`` takes every warning as an error, before
anything is written. The command line makes its commands of these functions (``planner.cli.plans``): names, defaults
and the first line of what is said of each are stated here, and nowhere else. So this module is read before any command
runs, and what a function needs is loaded when it is called.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from planner.errors import CapacityError, Problem, ScenarioError, printable, refuse
from planner.files import check_target
from planner.run.measure_names import DRAWS

if TYPE_CHECKING:
    from planner.answers.answer import Answer
    from planner.answers.comparison import Sweep
    from planner.engine.processes import Process
    from planner.output.tables import CsvFormat
    from planner.reforecast import ActualsReview
    from planner.requests.zoom import Zoom
    from planner.run.measures import Figures
    from planner.run.replications import Replications
    from planner.run.simulate import RunResult
    from planner.scenario.loading import Source
    from planner.scenario.scenario import Scenario
    from planner.sizing.size import Sized
    from planner.studies.analysis import Finished
    from planner.studies.compare import Comparison
    from planner.studies.runner import Watch
    from planner.studies.work import Work

Method = Literal["montecarlo", "tornado", "sobol"]
Place = str | os.PathLike[str]
Say = Callable[[str], None]

SIZES: dict[str, int] = {"montecarlo": 1024, "tornado": 16, "sobol": 256}
"""Replications or points of a method, where nothing else is asked for."""
NARROW = 0.005
"""Half the 95% interval of a run's mean net present cost, over it, at which no more replications are drawn."""
_POINTS_PER_WORKER = 16
"""Points of a sweep for which another process pays."""


class Stopped(KeyboardInterrupt):
    """An interrupted sweep, study or sizing: its work is stored, and ``resume=True`` continues it."""


def silent(_: object) -> None:
    """Say nothing."""


def load(source: Source, overrides: Sequence[str] = ()) -> Scenario:
    """Read and check a scenario: a path, a dict, or a scenario to lay more over.

    ``overrides`` are ``dotted.path=value`` strings as ``--set`` takes them. Files that a dict names are relative to the
    current folder; overrides of a loaded scenario come after those it was loaded with.
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

    ``processes`` are generator functions of a ``planner.engine.processes.SimulationContext`` that run with it.
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
    until: str | float | None = None,
    advise: bool = False,
    hourly: bool = False,
    parquet: bool = False,
    processes: Sequence[Process] = (),
    strict: bool = False,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
    first: Callable[[Answer[RunResult]], None] = silent,
) -> Answer[RunResult]:
    """Simulate a scenario and write its timelines, ledger, measures, events, assumptions and workbook.

    ``first`` is given the base replication as soon as it is there. More than 19 replications are drawn 19 at a time,
    until the SLO verdict is given and the 95% interval of mean net present cost is within ``until`` of it, 0.5% unless
    given. ``processes`` are functions that run with it. ``advise`` looks for what meets an SLO target that is missed,
    by simulation.
    """
    from planner.plan.build import build_plan
    from planner.run.replications import Replications, drawing
    from planner.run.simulate import check_whole, simulate_plan

    check_whole(replications=replications, seed=seed or 0)
    share = NARROW if until is None else _mean_share(until)
    loaded = load(scenario, overrides)
    folder = _folder(out, loaded.name)
    check_target(folder)
    progress(f"simulating {loaded.name}, {loaded.horizon_months} months from {loaded.start}")
    plan = build_plan(loaded)
    draw = functools.partial(
        simulate_plan, loaded, plan, plan.seed if seed is None else seed, processes=processes
    )
    result = draw(0)
    refuse(result.warnings, strict=strict)
    from planner.answers.run import (
        first_answer,
        is_settled,
        run_answer,
        so_far,
        verdict_summary,
        write_run,
    )

    first(first_answer(folder, result))
    # Others draw the plan again from here on. A process of the user's own may count or print, so that is run here.
    with drawing(draw, range(1, replications), workers=1 if processes else None) as together:

        def is_enough(figures: Sequence[Figures]) -> bool:
            number = len(figures)
            if number > DRAWS and number % DRAWS:
                return False
            drawn = Replications(figures=tuple(figures))
            progress(f"{number} of {replications} replications: {so_far(drawn)}")
            return (
                number % DRAWS == 0 and number < replications and is_settled(result, drawn, share)
            )

        @functools.cache
        def drawn_again() -> Replications | None:
            chance = together(result, is_enough) if replications > 1 else None
            progress("writing")
            return chance

        remedy: Mapping[str, Any] | None = None
        if advise and verdict_summary(result, drawn := drawn_again())["status"] == "MISSED":
            from planner.studies.remedy import MOST_TIMES, find_remedy

            number = DRAWS if drawn is None else max(drawn.number, DRAWS)  # fewer could not tell
            cheapest = find_remedy(result, number, progress)
            remedy = (
                {"cluster": None, "most_times": MOST_TIMES}
                if cheapest is None
                else cheapest._asdict()
            )

        form = _form(decimal_comma, byte_order_mark)
        chance = write_run(
            result,
            folder,
            drawn_again,
            form=form,
            hourly=hourly,
            parquet=parquet,
            remedy=remedy,
            until=until,
        )
    return run_answer(folder, result, chance, remedy)


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
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
) -> Answer[Comparison]:
    """Run scenarios side by side: measures, savings, and why a token costs more or less.

    They meet the same traffic and chance. ``baseline`` is the name or the file of the scenario that the others are held
    against, the first unless given. Each is run in every one of the ``futures`` that a file names, or else the
    scenarios; one scenario is enough where there are any.
    """
    from planner.answers.comparison import comparison_answer, write_comparison
    from planner.answers.run import scenario_file
    from planner.studies.compare import check_comparable, compare, find_baseline
    from planner.studies.futures import load_futures, stated_futures

    if isinstance(scenarios, str | os.PathLike | Mapping):
        raise ScenarioError(
            Problem(message="a comparison needs a list of scenarios", hint="name another file")
        )
    loaded = [load(scenario, overrides) for scenario in scenarios]
    named = stated_futures(loaded) if futures is None else load_futures(Path(futures))
    if len(loaded) < (1 if named else 2):
        message = "a comparison needs two scenarios or more, or futures for one"
        raise ScenarioError(Problem(message=message, hint="name another file, or --futures FILE"))
    files = {scenario_file(scenario): scenario.name for scenario in loaded}
    position = find_baseline(loaded, files.get(baseline, baseline) if baseline else None)
    check_comparable(loaded, position)
    folder = _folder(out, "-vs-".join(scenario.name for scenario in loaded)[:120])
    check_target(folder)
    comparison = compare(
        loaded, position, seed, lambda name: progress(f"simulating {name}"), replications, named
    )
    refuse(comparison.warnings, strict=strict)
    write_comparison(
        comparison,
        folder,
        _form(decimal_comma, byte_order_mark),
        None if futures is None else Path(futures),
    )
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
    yes: bool = False,
    strict: bool = False,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
) -> Answer[Sweep]:
    """Run every combination of some values and write one tidy CSV.

    ``vary`` is what ``--vary`` takes, or a mapping such as ``{"clusters.h200.nodes": range(40, 81, 20)}``; ``yes``
    confirms more than 10,000 points.
    """
    from planner.answers.comparison import Sweep, sweep_answer, write_sweep
    from planner.answers.run import command_again, scenario_file
    from planner.studies import sweep as grid
    from planner.studies.engines import workforce

    texts = (
        [grid.axis_text(*item) for item in vary.items()]
        if isinstance(vary, Mapping)
        else _listed(vary)
    )
    axes = grid.parse_axes(texts)
    grid.check_size(axes, confirmed=yes)
    loaded = load(scenario, overrides)
    folder = _folder(out, f"{loaded.name}-sweep")
    grid.check_values(loaded, axes)
    if strict:
        grid.check_warnings(loaded, axes)
    seed_used = loaded.seed if seed is None else seed
    total = grid.count_points(axes)
    work = grid.SweepWork(folder, loaded, axes, loaded.document.overrides, seed_used)
    work.open(resume=resume, restart=restart)
    _tell(work.notes, progress)

    def count(number: int) -> None:
        if number % 10 == 0 or total <= 10:
            progress(f"point {number + 1} of {total}")

    with _kept(work):
        # Few points are done before a second process has started.
        enough = max(1, total // _POINTS_PER_WORKER) if workers is None else workers
        points = grid.sweep(
            loaded, axes, seed, count, work, min(workforce(workers, None).workers, enough)
        )
        form = _form(decimal_comma, byte_order_mark)
        options = {"--vary": list(texts), "--seed": seed_used, "--yes": yes, **form.options}
        manifest = {
            "scenario_file": scenario_file(loaded),
            "overrides": list(loaded.document.overrides),
            "seed": seed_used,
            "warnings": grid.warnings_of_points(points),
            "identity": work.identity,
            "command": command_again("sweep", [loaded], options),
        }
        check_target(folder, work=True)
        write_sweep(loaded, axes, points, folder, manifest, form)
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
    charts: bool = True,
    samples: bool | None = None,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
    watch: Watch | None = None,
) -> Answer[Finished]:
    """Run a study and write its folder, as ``planner montecarlo`` and ``planner sensitivity`` do.

    ``size`` is the number of replications (montecarlo, 1,024 unless given), chances (tornado, 16) or points
    (sobol, 256). Rows that differ in money alone share a simulation. ``until`` ends a montecarlo
    when the 95% interval of the headline's mean is narrower than that share of it; ``"p90=2%"`` and ``"best=1%"`` look
    at a percentile and at P(best) instead. ``samples`` says whether samples.csv is written; unless given, it is up to
    100,000 rows, and replications.parquet has them all.
    """
    from planner.answers import study as answers
    from planner.run.simulate import check_whole
    from planner.studies.analysis import Finished, open_store
    from planner.studies.designs import MonteCarlo
    from planner.studies.engines import workforce
    from planner.studies.prepare import prepare
    from planner.studies.runner import Goal, Until, run_rows

    force = workforce(workers, scheduler)
    overrides = _listed(overrides)
    stop = Until.read(until) if isinstance(until, str) else None if until is None else Until(until)
    check_whole(size=(1 if size is None else size) - 1, seed=seed or 0)
    prepared = prepare(Path(file), overrides, seed)
    count = SIZES[method] if size is None else size
    refuse(prepared.warnings, strict=strict)
    design = prepared.design(method)
    name = prepared.study.name
    is_drawn = isinstance(design, MonteCarlo)
    folder = _folder(out, name if is_drawn else f"{name}-{method}")
    store = open_store(prepared, folder, design, resume=resume, restart=restart)
    goal = Goal(
        rows=count if isinstance(design, MonteCarlo) else count * design.period,
        objective=prepared.objective.name,
        scramblings=prepared.study.scramblings if is_drawn else 1,
        until=stop if is_drawn else None,
        targeted=prepared.targeted,
        lower_is_better=prepared.objective.lower_is_better,
    )
    unit, inputs = (
        ("replications", f", {len(prepared.inputs)} uncertain inputs") if is_drawn else ("rows", "")
    )
    plural = "s" if len(prepared.scenarios) > 1 else ""
    progress(f"{name}: {goal.rows:,} {unit} of {len(prepared.scenarios)} scenario{plural}{inputs}")
    _tell([*prepared.study.notes, *store.notes], progress)
    noted = len(store.notes)
    try:
        try:
            rows = run_rows(store, goal, force, watch)
        except KeyboardInterrupt:
            store.close()
            kept = min(len(store.finished()) * store.batch, goal.rows)
            raise Stopped(f"stopped with {kept:,} of {goal.rows:,} replications stored") from None
        finished = Finished(prepared=prepared, store=store, rows=rows)
        if not isinstance(design, MonteCarlo):
            asked: dict[str, object] = {"--method": method, "--size": count}
            command = answers.study_command("sensitivity", prepared, asked, overrides)
            by_input, completed = answers.write_designed(
                prepared, design, store, goal.rows, command
            )
            return answers.study_answer(folder, finished, tuple(by_input), completed)
        form = _form(decimal_comma, byte_order_mark)
        asked = {"--replications": finished.rows, **form.options, "--no-charts": not charts}
        asked |= {"--samples": samples, "--no-samples": samples is False}
        command = answers.study_command("montecarlo", prepared, asked, overrides)
        answers.write_study(finished, form, charts=charts, samples=samples, command=command)
    finally:
        store.close()
    for line in (*store.notes[noted:], *answers.study_remarks(finished, goal)):
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

    ``draws`` is how many draws of money each simulation of the study carries, where it says that they are several.
    """
    from planner.answers.run import run_answer, write_run
    from planner.answers.study import study_command
    from planner.studies.prepare import prepare
    from planner.studies.replicate import Replicator

    overrides = _listed(overrides)
    prepared = prepare(Path(file), overrides, seed)
    which = prepared.place_of(scenario)
    name = prepared.names[which]
    folder = _folder(out, f"{prepared.study.name}-{name}-{replication}")
    check_target(folder)
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    if draws > 1:
        replicator = Replicator(replicator.setup.nested(replicator.redrawn(), draws))
    values, chance = replicator.setup.values(replication, replication + 1)
    result = replicator.simulate(which, values[0], int(chance[0]))
    asked = {"--replication": replication, "--scenario": name, "--draws": draws, "--hourly": hourly}
    write_run(
        result, folder, hourly=hourly, command=study_command("replay", prepared, asked, overrides)
    )
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
    replications: int = 64,
    confirmations: int = 200,
    rivals: bool = True,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    restart: bool = False,
    strict: bool = False,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
) -> Answer[Sized]:
    """Find the cheapest policy that meets the SLO target: what to buy, order on a signal, rent and retire.

    ``budget``, ``power``, ``accelerators`` and ``slo_target`` narrow what the scenario says of ``sizing`` and
    ``slo_target``; ``study`` names uncertain inputs. ``accelerators`` are a list, or text as ``--accelerators`` takes
    it. ``minutes`` ends the search early, with the best so far; without ``rivals`` the answer alone is worked out.
    """
    from planner.plan.contradictions import hardly_meant
    from planner.run.simulate import check_whole
    from planner.sizing.evaluate import OBJECTIVES, Clock, SizeWork
    from planner.sizing.size import Effort, size, trial_of
    from planner.studies.engines import workforce
    from planner.validation import choices

    check_whole(replications=replications - 1, confirmations=confirmations - 1, seed=seed or 0)
    if objective not in OBJECTIVES:
        raise ScenarioError(f"--objective must be one of {choices(OBJECTIVES)}, not {objective!r}")
    narrowed = {
        "sizing.budget_usd": budget,
        "sizing.it_power_cap_kw": power,
        "slo_target.attainment": slo_target,
    }
    asked = [f"{path}={number!r}" for path, number in narrowed.items() if number is not None]
    loaded = load(scenario, [*_listed(overrides), *asked])
    folder = _folder(out, f"{loaded.name}-size")
    accelerators = (
        [part for part in accelerators.split(",") if part]
        if isinstance(accelerators, str)
        else accelerators
    )
    if (
        objective != "net-present-cost"
        and loaded.sizing is not None
        and loaded.sizing.miss_cost_usd is not None
    ):
        message = "is part of net present cost, and the objective is another"
        raise ScenarioError(
            loaded.document.problem(("sizing", "miss_cost_usd"), message, "leave --objective out")
        )
    trial = trial_of(loaded, accelerators, None if study is None else Path(study), objective, seed)
    warnings = hardly_meant(
        loaded, trial.choices.plan
    )  # figures at the place where they are stated, each once
    refuse(warnings, strict=strict)
    force = workforce(workers, scheduler)
    effort = Effort(
        replications=replications,
        confirmations=confirmations,
        rivals=rivals,
        workers=force.workers,
        scheduler=scheduler,
    )
    clock = Clock(say=progress) if minutes is None else Clock(say=progress, minutes=minutes)
    work = SizeWork(folder, loaded, trial)
    work.open(resume=resume, restart=restart)
    _tell(work.notes, progress)
    form = _form(decimal_comma, byte_order_mark)
    options: dict[str, object] = {
        "--study": study,
        "--accelerators": ",".join(accelerators) or None,
    }
    options |= {
        "--objective": objective,
        "--replications": replications,
        "--confirmations": confirmations,
    }
    options |= {"--no-rivals": not rivals or None, "--seed": trial.seed, **form.options}

    def write_so_far(sized: Sized) -> None:
        from planner.answers import size as answers

        answers.write_so_far(sized, work)

    with _kept(work):
        sized = size(loaded, trial, effort, clock, work, write_so_far)
        from planner.answers.run import (
            command_again,
        )  # what writes is loaded after the search, which has the memory
        from planner.answers.size import size_answer, write_size

        write_size(sized, work, command_again("size", [loaded], options), form)
    return size_answer(folder, sized, tuple(warnings))


def actuals(
    plan: Place,
    months: Place,
    out: Place | None = None,
    *,
    scenario: str | None = None,
    replications: int = 256,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    workers: int | None = None,
    strict: bool = False,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
) -> Answer[ActualsReview]:
    """Hold months that happened against budget and intervals, and forecast the months to come from what was seen.

    ``plan`` is a scenario, a study or the folder of a run; ``months`` a folder with ``mapping.yaml`` and CSV files.
    """
    from planner.answers.actuals import actuals_answer, write_actuals
    from planner.answers.run import planned_from
    from planner.output.folder import command_line
    from planner.reforecast import hold
    from planner.run.simulate import check_whole
    from planner.scenario.actuals import read_actuals
    from planner.studies.engines import workforce
    from planner.studies.prepare import prepare

    check_whole(replications=replications - 1, seed=seed or 0)
    file, earlier, seeded = planned_from(Path(plan))
    laid = [*earlier, *_listed(overrides)]
    prepared = prepare(file, laid, seeded if seed is None else seed)
    which = prepared.place_of(scenario)
    name = prepared.names[which]
    refuse(prepared.warnings, strict=strict)
    seen = read_actuals(Path(months), prepared.scenarios[which].scenario)
    folder = _folder(out, f"{name}-actuals")
    check_target(folder)
    _tell(prepared.study.notes, progress)
    held = hold(prepared, which, seen, replications, workforce(workers, None), progress)
    form = _form(decimal_comma, byte_order_mark)
    options = {"--replications": replications, "--seed": prepared.seed, **form.options}
    options |= {"--scenario": None if scenario is None else name}
    write_actuals(
        held, folder, command_line("actuals", [str(file), os.fspath(months)], options, laid), form
    )
    return actuals_answer(folder, held)


def zoom(
    scenario: Source,
    at: str,
    out: Place | None = None,
    *,
    minutes: int = 60,
    requests: int = 100_000,
    trace: Place | None = None,
    workload: str | None = None,
    replication: int = 0,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    progress: Say = silent,
) -> Answer[Zoom]:
    """Simulate one hour request by request on the fleet as it stands then: who is late, why, and every percentile.

    ``at`` is a moment in UTC such as ``2027-03-04T15:00``; ``trace`` a log whose requests stand for one workload's.
    """
    from planner.answers.run import scenario_file
    from planner.answers.zoom import write_zoom
    from planner.onramp.traffic_log import read_request_log
    from planner.output.folder import command_line
    from planner.requests.zoom import ZoomRequest
    from planner.requests.zoom import zoom as simulate_hour

    loaded = load(scenario, overrides)
    folder = _folder(out, f"{loaded.name}-zoom")
    check_target(folder)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        message = f"must be a date and time such as 2027-03-04T15:00, not {at!r}"
        raise ScenarioError(Problem(path="--at", message=message)) from None
    asked = ZoomRequest(
        at=moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None),
        minutes=minutes,
        seed=seed,
        replication=replication,
        requests=requests,
        log=None if trace is None else read_request_log(Path(trace), in_order=True),
        log_workload=workload,
    )
    progress(f"simulating {loaded.name}, {minutes} minutes from {at}")
    progress("request by request")
    result = simulate_hour(loaded, asked)
    progress("writing")
    words = {"--at": at, "--minutes": minutes, "--requests": requests, "--seed": result.seed}
    words |= {
        "--replication": replication,
        "--trace": trace and Path(trace).name,
        "--workload": workload,
    }
    return write_zoom(
        result,
        folder,
        command_line("zoom", [scenario_file(loaded)], words, loaded.document.overrides),
    )


def report(folder: Place) -> Path:
    """Write report.html of any output folder anew from the files in it, as ``planner report`` does; return its path."""
    from planner.answers.report import rebuild_report

    return rebuild_report(Path(folder))


def memo(folder: Place) -> list[Path]:
    """Write memo.html and memo.md of an output folder, as ``planner memo`` does; return their paths."""
    from planner.answers.memo import write_memo

    return write_memo(folder)


def _folder(out: Place | None, name: str) -> Path:
    """Return the output folder: the one stated, or one of the plan's name under outputs."""
    return Path("outputs") / name if out is None else Path(out)


def _form(decimal_comma: bool, byte_order_mark: bool) -> CsvFormat:
    """Return how CSV files are written."""
    from planner.output.tables import CsvFormat

    return CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)


def _mean_share(until: str | float) -> float:
    """Return the share at which a run stops; refuse other figures than the mean, which only a study looks at."""
    from planner.studies.runner import Until

    stop = Until.read(str(until))
    if stop.figure != "mean":
        raise ScenarioError(
            f"--until of a run takes a share of mean net present cost such as 0.5%, not {until!r}"
        )
    return stop.share


def _listed(words: Sequence[str]) -> Sequence[str]:
    """Return a list of words; a single one that was not put into a list is one."""
    return [words] if isinstance(words, str) else words


def _tell(notes: Iterable[str], progress: Say) -> None:
    """Report the state of a folder: a lock taken over, damaged files."""
    for note in notes:
        progress(f"note: {printable(note)}")


@contextlib.contextmanager
def _kept(work: Work) -> Iterator[None]:
    """Keep what is done where work is stopped, but not where it is finished without an answer."""
    try:
        yield
    except CapacityError:
        work.clear()
        raise
    except KeyboardInterrupt:
        raise Stopped("stopped; finished work is stored") from None
    finally:
        work.close()
