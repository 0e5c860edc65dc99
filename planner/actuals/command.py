"""The command ``planner actuals``: what it takes, and the folder it writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import refuse
from planner.files import Place, check_target, output_folder
from planner.progress import PrintLine, silent, tell_notes

if TYPE_CHECKING:
    from planner.actuals.review import ActualsReview
    from planner.answers.answer import Answer
    from planner.output.blocks import Section
    from planner.output.folder import Contents


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
    progress: PrintLine = silent,
) -> Answer[ActualsReview]:
    """Compare actual months with budget and intervals, and forecast the months to come from them.

    ``plan`` is a scenario, a study or the folder of a run; ``months`` a folder with ``mapping.yaml`` and CSV files.
    """
    # Imported here: the command line reads this signature before it knows which command is asked for.
    from planner.actuals.actuals_answer import actuals_answer, write_actuals
    from planner.actuals.months import read_actuals
    from planner.actuals.review import review_actuals
    from planner.answers.identity import planned_from
    from planner.output.folder import command_line
    from planner.run.simulate import check_whole
    from planner.studies.engines import workforce
    from planner.studies.prepare import prepare

    check_whole(replications=replications - 1, seed=seed or 0)
    file, plan_overrides, plan_seed = planned_from(Path(plan))
    stated = [overrides] if isinstance(overrides, str) else overrides
    all_overrides = [*plan_overrides, *stated]
    prepared = prepare(file, all_overrides, plan_seed if seed is None else seed)
    scenario_index = prepared.place_of(scenario)
    name = prepared.names[scenario_index]
    refuse(prepared.warnings, strict=strict)
    observed_months = read_actuals(Path(months), prepared.scenarios[scenario_index].scenario)
    folder = output_folder(out, f"{name}-actuals")
    check_target(folder)
    tell_notes(prepared.study.notes, progress)
    force = workforce(workers, None)
    review = review_actuals(
        prepared, scenario_index, observed_months, replications, force, progress
    )
    options: dict[str, object] = {
        "--replications": replications,
        "--seed": prepared.seed,
        "--scenario": None if scenario is None else name,
    }
    files = [str(file), os.fspath(months)]
    write_actuals(review, folder, command_line("actuals", files, options, all_overrides))
    return actuals_answer(folder, review)


def actuals_sections(contents: Contents) -> list[Section]:
    """Return the sections of the report on actual months, made from its folder."""
    from planner.actuals import actuals_report

    return actuals_report.actuals_sections(contents)
