"""Verbs that run many plans or a plan many times: sweeps, studies, sizings, and months that happened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.answers import ActualsAnswer, Method, SizeAnswer, StudyAnswer, SweepAnswer
from planner.errors import CapacityError, ScenarioError, printable, refuse
from planner.verbs.plans import Place, Say, folder_of, silent

if TYPE_CHECKING:
    from planner.scenario.loading import Source
    from planner.studies.analysis import Finished
    from planner.studies.prepare import Prepared
    from planner.studies.runner import Goal, Watch, Workforce
    from planner.studies.store import Store
    from planner.studies.work import Work

SIZES: dict[str, int] = {"tornado": 16, "morris": 20, "sobol": 256}
"""Replications, trajectories or points of a method, where nothing else is asked for."""
_POINTS_PER_WORKER = 16
"""Points of a sweep for which another process pays."""


class Stopped(KeyboardInterrupt):
    """An interrupted sweep or study: what is done is kept, and ``resume=True`` continues it."""


def _listed(words: Sequence[str]) -> Sequence[str]:
    """Return a list of words; a single one that was not put into a list is one."""
    return [words] if isinstance(words, str) else words


def _tell(notes: Iterable[str], progress: Say) -> None:
    """Say what was found in a folder: a lock taken over, damaged files."""
    for note in notes:
        progress(f"note: {printable(note)}")


def sweep(
    scenario: Source,
    vary: Sequence[str] | Mapping[str, Iterable[object]],
    out: Place | None = None,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    strict: bool = False,
    resume: bool = False,
    restart: bool = False,
    yes: bool = False,
    workers: int | None = None,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
) -> SweepAnswer:
    """Run every combination of some values and write its folder, as ``planner sweep`` does.

    ``vary`` is what ``--vary`` takes, or a mapping such as ``{"clusters.h200.nodes": range(40, 81, 20)}``; ``yes``
    confirms more than 10,000 points.
    """
    from planner.files import check_target
    from planner.output.csv_table import CsvFormat
    from planner.output.run_folder import command_again, scenario_file
    from planner.output.sweep_table import write_sweep
    from planner.scenario.loading import load_scenario
    from planner.studies.axes import axis_text, check_size, count_points, parse_axes
    from planner.studies.runner import workforce
    from planner.studies.sweep import SweepWork, check_values, check_warnings, sweep, warnings_of_points

    texts = [axis_text(*item) for item in vary.items()] if isinstance(vary, Mapping) else _listed(vary)
    axes = parse_axes(texts)
    check_size(axes, confirmed=yes)
    loaded = load_scenario(scenario, overrides)
    folder = folder_of(out, f"{loaded.name}-sweep")
    check_values(loaded, axes)
    if strict:
        check_warnings(loaded, axes)
    seed_used, total = loaded.seed if seed is None else seed, count_points(axes)
    work = SweepWork(folder, loaded, axes, loaded.document.overrides, seed_used)
    work.open(resume=resume, restart=restart)
    _tell(work.notes, progress)

    def count(number: int) -> None:
        if number % 10 == 0 or total <= 10:
            progress(f"point {number + 1} of {total}")

    with _kept(work):
        # Few points are done before a second process has started.
        enough = max(1, total // _POINTS_PER_WORKER) if workers is None else workers
        points = sweep(loaded, axes, seed, count, work, min(workforce(workers, None).workers, enough))
        form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
        options = [*(word for text in texts for word in ("--vary", text)), "--seed", str(seed_used)]
        options += [*(["--yes"] if yes else []), *form.options]
        manifest = {
            "scenario_file": scenario_file(loaded),
            "overrides": list(loaded.document.overrides),
            "seed": seed_used,
            "warnings": warnings_of_points(points),
            "identity": work.identity,
            "command": command_again("sweep", [loaded], options),
        }
        check_target(folder, work=True)
        write_sweep(loaded, axes, points, folder, manifest, form)
    return SweepAnswer(folder=folder, axes=axes, points=points)


def study(
    file: Place,
    size: int | None = None,
    out: Place | None = None,
    *,
    method: Method = "montecarlo",
    until: str | float | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    strict: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    restart: bool = False,
    charts: bool = True,
    samples: bool | None = None,
    decimal_comma: bool = False,
    byte_order_mark: bool = False,
    progress: Say = silent,
    watch: Watch | None = None,
) -> StudyAnswer:
    """Run a study and write its folder, as ``planner montecarlo`` and ``planner sensitivity`` do.

    ``size`` is the number of replications (montecarlo, 1,024 unless given), chances (tornado, 16), trajectories
    (morris, 20) or points (sobol, 256); ``importance`` reads a finished montecarlo and runs nothing. ``until`` ends a
    montecarlo when the 95% interval of the headline's mean is narrower than that share of it; ``"p90=2%"`` and
    ``"best=1%"`` look at a percentile and at P(best) instead. ``samples`` says whether samples.csv is written; unless
    given, it is up to 100,000 rows, and replications.parquet has them all.
    """
    from planner.output.csv_table import CsvFormat
    from planner.output.study_folder import study_command, write_designed, write_study
    from planner.output.study_summary import study_remarks
    from planner.run.simulate import check_whole
    from planner.studies.analysis import Finished
    from planner.studies.designs import MonteCarlo
    from planner.studies.prepare import prepare
    from planner.studies.runner import Until, workforce
    from planner.studies.study import goal_of, open_store, store_of

    force, overrides = workforce(workers, scheduler), _listed(overrides)
    stop = Until.read(until) if isinstance(until, str) else None if until is None else Until(until)
    check_whole(size=(1 if size is None else size) - 1, seed=seed or 0)
    prepared = prepare(Path(file), overrides, seed)
    count = SIZES.get(method, prepared.usual_replications) if size is None else size
    refuse(prepared.warnings, strict=strict)
    design, name = prepared.design(method), prepared.study.name
    folder = folder_of(out, name if isinstance(design, MonteCarlo) else f"{name}-{method}")
    if method == "importance":
        store = store_of(prepared, folder, design)
        return _importance(folder, Finished(prepared=prepared, store=store, rows=store.finished_rows()))
    store = open_store(prepared, folder, design, resume=resume, restart=restart)
    goal = goal_of(prepared, design, count, stop)
    progress(_begun(prepared, goal, drawn=isinstance(design, MonteCarlo)))
    hint = prepared.uneven(count) if isinstance(design, MonteCarlo) and stop is None else None
    hints = [*([hint] if hint else []), *store.short_of_disk(goal.rows)]
    _tell([*prepared.study.notes, *store.notes, *hints], progress)
    try:
        finished = Finished(prepared=prepared, store=store, rows=_run_rows(store, goal, force, watch))
        if not isinstance(design, MonteCarlo):
            command = study_command("sensitivity", prepared, ["--method", method, "--size", str(count)], overrides)
            drivers, completed = write_designed(prepared, design, store, goal.rows, command)
            return StudyAnswer(
                folder=folder, method=method, finished=finished, drivers=tuple(drivers), completed=completed
            )
        form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
        asked = ["--replications", str(finished.rows), *form.options, *([] if charts else ["--no-charts"])]
        asked += [] if samples is None else ["--samples" if samples else "--no-samples"]
        command = study_command("montecarlo", prepared, asked, overrides)
        write_study(finished, form, charts=charts, samples=samples, command=command)
    finally:
        store.close()
    for line in study_remarks(finished, goal):
        progress(line)
    return StudyAnswer(folder=folder, method=method, finished=finished)


def size(
    scenario: Source,
    out: Place | None = None,
    *,
    study: Place | None = None,
    budget: float | None = None,
    power: float | None = None,
    parts: Sequence[str] = (),
    promise: float | None = None,
    objective: str = "net-present-cost",
    replications: int = 48,
    confirmations: int = 200,
    gap: float = 0.0,
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
) -> SizeAnswer:
    """Find the cheapest purchases that keep the promise and write their folder, as ``planner size`` does.

    ``budget``, ``power``, ``parts`` and ``promise`` narrow what the scenario says of ``choose`` and ``promise``;
    ``study`` names uncertain inputs. ``gap`` and ``minutes`` end the search early, with the best so far.
    """
    from planner.output.csv_table import CsvFormat
    from planner.output.run_folder import command_again
    from planner.output.size_folder import write_size
    from planner.plan.contradictions import hardly_meant
    from planner.run.simulate import check_whole
    from planner.scenario.loading import load_scenario
    from planner.sizing.candidate import Clock
    from planner.sizing.confirm import Effort
    from planner.sizing.evaluate import OBJECTIVES, SizeWork
    from planner.sizing.size import size, trial_of
    from planner.studies.runner import workforce
    from planner.validation import choices

    check_whole(replications=replications - 1, confirmations=confirmations - 1, seed=seed or 0)
    if objective not in OBJECTIVES:
        raise ScenarioError(f"--objective must be one of {choices(OBJECTIVES)}, not {objective!r}")
    narrowed = {"choose.budget_usd": budget, "choose.power_kw": power, "promise.in_time": promise}
    asked = [f"{path}={number!r}" for path, number in narrowed.items() if number is not None]
    loaded = load_scenario(scenario, [*_listed(overrides), *asked])
    folder = folder_of(out, f"{loaded.name}-size")
    trial = trial_of(loaded, _listed(parts), None if study is None else Path(study), objective, seed)
    warnings = hardly_meant(loaded, trial.choices.plan)  # figures at the place where they are stated, each once
    refuse(warnings, strict=strict)
    force = workforce(workers, scheduler)
    effort = Effort(
        replications=replications, confirmations=confirmations, gap=gap, workers=force.workers, scheduler=scheduler
    )
    clock = Clock(say=progress) if minutes is None else Clock(say=progress, minutes=minutes)
    work = SizeWork(folder, loaded, trial)
    work.open(resume=resume, restart=restart)
    _tell(work.notes, progress)
    form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
    options = ["--study", os.fspath(study)] if study is not None else []
    options += ["--parts", ",".join(parts)] if parts else []
    options += ["--objective", objective, "--replications", str(replications), "--confirmations", str(confirmations)]
    options += [*(["--gap", str(gap)] if gap else []), "--seed", str(trial.seed), *form.options]
    with _kept(work):
        sized = size(loaded, trial, effort, clock, work)
        write_size(sized, work, command_again("size", [loaded], options), form)
    return SizeAnswer(folder=folder, sized=sized, warned=tuple(warnings))


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
) -> ActualsAnswer:
    """Hold months that happened against a plan, forecast the rest anew and write it all, as ``planner actuals`` does.

    ``plan`` is a scenario, a study or the folder of a run; ``months`` a folder with ``mapping.yaml`` and CSV files.
    """
    from planner.actuals.actuals import hold
    from planner.files import check_target
    from planner.output.actuals_folder import write_actuals
    from planner.output.csv_table import CsvFormat
    from planner.output.folder import command_line
    from planner.output.run_folder import planned_from
    from planner.run.simulate import check_whole
    from planner.scenario.actuals import read_actuals
    from planner.studies.prepare import prepare
    from planner.studies.runner import workforce

    check_whole(replications=replications - 1, seed=seed or 0)
    file, earlier, seeded = planned_from(Path(plan))
    laid = [*earlier, *_listed(overrides)]
    prepared = prepare(file, laid, seeded if seed is None else seed)
    which = prepared.place_of(scenario)
    name = prepared.names[which]
    refuse(prepared.warnings, strict=strict)
    seen = read_actuals(Path(months), prepared.scenarios[which].scenario)
    folder = folder_of(out, f"{name}-actuals")
    check_target(folder)
    _tell(prepared.study.notes, progress)
    held = hold(prepared, which, seen, replications, workforce(workers, None), progress)
    form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
    options = ["--replications", str(replications), "--seed", str(prepared.seed), *form.options]
    options += ["--scenario", name] if scenario is not None else []
    write_actuals(held, folder, command_line("actuals", [str(file), os.fspath(months)], options, laid), form)
    return ActualsAnswer(folder=folder, held=held)


@contextlib.contextmanager
def _kept(work: Work) -> Iterator[None]:
    """Keep what is done where work is stopped, but not where it is finished without an answer."""
    try:
        yield
    except CapacityError:
        work.clear()
        raise
    except KeyboardInterrupt:
        raise Stopped("stopped; what is done is kept") from None
    finally:
        work.close()


def _begun(prepared: Prepared, goal: Goal, *, drawn: bool) -> str:
    """Return what is said when a study begins: how many rows of how many scenarios."""
    unit, inputs = ("replications", f", {len(prepared.inputs)} uncertain inputs") if drawn else ("rows", "")
    plural = "s" if len(prepared.scenarios) > 1 else ""
    return f"{prepared.study.name}: {goal.rows:,} {unit} of {len(prepared.scenarios)} scenario{plural}{inputs}"


def _run_rows(store: Store, goal: Goal, force: Workforce, watch: Watch | None) -> int:
    """Run what is missing of a study; an interrupt leaves it resumable and says how much there is."""
    from planner.studies.runner import run_rows

    try:
        return run_rows(store, goal, force, watch)
    except KeyboardInterrupt:
        store.close()
        rows = min(len(store.finished()) * store.batch, goal.rows)
        raise Stopped(f"stopped with {rows:,} of {goal.rows:,} replications kept") from None


def _importance(folder: Path, finished: Finished) -> StudyAnswer:
    """Read what drives the headline off a finished Monte Carlo study."""
    from planner.output.study_rows import completed_rows

    completed = completed_rows(finished.output(finished.prepared.headline.name, finished.detailed).T)
    drivers = tuple(finished.drivers())
    return StudyAnswer(folder=folder, method="importance", finished=finished, drivers=drivers, completed=completed)
