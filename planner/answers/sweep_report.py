"""The section of a sweep's report, and the picture of cost against service."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.answers.comparison_report import ACCRUED_COST, heading
from planner.answers.manifests import Manifest
from planner.answers.ranking import (
    ATTAINMENT,
    COST,
    RANKED_BY,
    SHED,
    RankedPlan,
    Ranking,
    frontier,
    rank,
    ranked_plan,
)
from planner.answers.sections import section
from planner.answers.sentences import sweep_advice, target_words
from planner.output.blocks import Command, Grid, Line, Mark, Panel, Picture, Section, Sentence
from planner.output.folder import Contents, command_line
from planner.output.scales import TOTAL, Points
from planner.output.svg import even_axis
from planner.output.tables import Table
from planner.output.words import NOTHING, input_words, measured, unit_price
from planner.records import record

SHOWN_MEASURES = (ATTAINMENT, COST, ACCRUED_COST, "cost_usd", "utilisation_fraction", SHED)
MAX_ROWS = 60
MAX_COLUMNS = 24
"""Values of an input that a table still shows side by side."""
SLO_COLOUR = 4
"""Colour of the line at the SLO target."""


@record
class SweptPoint:
    """A combination of a sweep, with the settings that make it."""

    plan: RankedPlan
    settings: Sequence[str]
    """As ``--set`` takes them."""


def swept_points(contents: Contents, manifest: Manifest) -> list[SweptPoint]:
    """Return the points of a sweep in the file's order."""
    sweep = contents.tables["sweep"]
    # The rows of the file are the product of the values, the last key moving fastest.
    combinations = itertools.product(*manifest.vary.values())
    figures = zip(*map(sweep.numbers, RANKED_BY), strict=True)
    points = []
    for values, row in zip(combinations, figures, strict=True):
        # As text, so that a reader gets back what was typed.
        settings = dict(zip(manifest.vary, values, strict=True))
        name = ", ".join(f"{input_words(path)} = {value}" for path, value in settings.items())
        measures = dict(zip(RANKED_BY, row, strict=True))
        plan = ranked_plan(name, measures)
        words = [f"{path}={value}" for path, value in settings.items()]
        points.append(SweptPoint(plan=plan, settings=words))
    return points


@record
class Dots:
    """Points of one meaning in a picture of cost against service."""

    points: Points
    """(cost, share)."""
    colour: int
    radius: float = 5.0


def cost_against_service(
    groups: Mapping[str, Dots],
    target: float | None,
    service: str,
    cost: str,
    line: Points = (),
) -> Picture:
    """Draw groups of points by cost and share, the target, and a line that joins some."""
    points = [point for dots in groups.values() for point in dots.points]
    costs = [x for x, _ in points]
    # A plan that was never tested stands at the bottom, where nobody looks for a good one.
    lowest = min(y or 0.0 for _, y in points)
    # Room on both sides, also where all points cost the same.
    spread = max(costs) - min(costs)
    margin = 0.06 * (spread or max(costs))
    left = min(costs) - margin
    right = max(costs) + margin
    missed = 1.0 - lowest + 1e-6  # not zero where every point attains all
    frontier_line = Line(points=line, colour=TOTAL, stroke=1.6)
    marks: list[Mark] = [frontier_line]
    marks += [
        Line(points=dots.points, colour=dots.colour, stroke=0.0, radius=dots.radius)
        for dots in groups.values()
    ]
    keys = {name: dots.colour for name, dots in groups.items()}
    if target is not None:
        target_line = [(left, target), (right, target)]
        marks.append(Line(points=target_line, colour=SLO_COLOUR, stroke=1.4))
        lowest = min(lowest, target)
        keys["target"] = SLO_COLOUR
    x = even_axis(left, right, cost, unit="usd")
    # A little room below the lowest point, but no negative share.
    bottom = max(0.0, lowest - 0.06 * missed)
    top = 1.0 + 0.03 * missed
    y = even_axis(bottom, top, service, unit="percent")
    panel = Panel(x=x, y=y, marks=marks, height=260.0)
    return Picture(title="Cost against service", panels=[panel], keys=keys, shape="dot")


def frontier_picture(contents: Contents, manifest: Manifest) -> Picture | None:
    """Draw cost against service for every combination of a sweep, the frontier, and the one to take large."""
    points = [point.plan for point in swept_points(contents, manifest)]
    # Points without a cost or an attainment have no place in the picture.
    plans = [plan for plan in points if plan.cost is not None and plan.lowest_fraction is not None]
    # One point is no frontier.
    if len(plans) < 2:
        return None

    def places(group: Sequence[RankedPlan]) -> Points:
        return [(plan.cost or 0.0, plan.lowest_fraction) for plan in group]

    best = rank(plans).best
    met = [plan for plan in plans if plan.meets_slo]
    missed = [plan for plan in plans if not plan.meets_slo]
    groups = {
        "meets its SLO target": Dots(points=places(met), colour=2),
        "misses it": Dots(points=places(missed), colour=1),
        "the cheapest that meets it": Dots(
            points=places([best] if best else []), colour=0, radius=9.0
        ),
    }
    # Where the target itself is varied, no one line is the target.
    is_varied = any(path.startswith("slo_t") for path in manifest.vary)
    target = None if is_varied else manifest.slo_target.attainment
    return cost_against_service(
        groups,
        target,
        "Lowest SLO attainment",
        "USD per million tokens, levelised",
        places(frontier(plans)),
    )


def sweep_section(contents: Contents, manifest: Manifest) -> Section:
    """Return the points of a sweep: the SLO target met, cheapest first; then missed, by how far.

    Where two inputs were varied, cost by both is a table too.
    """
    points = swept_points(contents, manifest)
    plans = [point.plan for point in points]
    ranking = rank(plans)
    # By identity: two points may look alike.
    settings = next(point.settings for point in points if point.plan is ranking.plans[0])
    file = manifest.scenario_file or f"{contents.name}.yaml"
    overrides = [*manifest.overrides, *settings]
    # The best point as a command, so that a reader can run it in full.
    options = {"--seed": manifest.seed}
    command = command_line("run", [file], options, overrides)
    note = (
        f"SLO target: {target_words(manifest.slo_target)}. Combinations that miss it come last, the smallest shortfall "
        "first, because a fleet that is too small is also cheap."
    )
    picture = frontier_picture(contents, manifest)
    if picture is not None:
        picture = replace(picture, title=f"{picture.title}, {contents.name}")
    return section(
        "answer",
        [
            Sentence(text=sweep_advice(ranking), tone="headline"),
            Command(text=shlex.join(command)),
            Sentence(text=note, tone="note"),
            picture,
            _cost_by_both(plans, manifest.vary),
            _points_grid(contents.tables["sweep"], plans, ranking, [*manifest.vary]),
        ],
    )


def _cost_by_both(plans: Sequence[RankedPlan], vary: Mapping[str, Sequence[str]]) -> Grid | None:
    """Return cost by two inputs, one down and one across; None where there are not two, or too many values."""
    # One value is no axis, and very many do not fit beside one another.
    lengths = [len(values) for values in vary.values()]
    if len(lengths) != 2:
        return None
    if min(lengths) < 2 or max(lengths) > MAX_COLUMNS:
        return None
    (row_path, row_values), (column_path, column_values) = vary.items()
    # Points come row by row: each row of the table takes as many as there are columns.
    cells = iter(f"{unit_price(plan.cost)}{'' if plan.meets_slo else ' MISSED'}" for plan in plans)
    corner = f"{input_words(row_path)} \\ {input_words(column_path)}"
    return Grid(
        caption="Cost per million tokens, levelised, by both inputs",
        header=(corner, *column_values),
        rows=[(value, *itertools.islice(cells, len(column_values))) for value in row_values],
        numeric=range(1, len(column_values) + 1),
    )


def _points_grid(
    sweep: Table, plans: Sequence[RankedPlan], ranking: Ranking, paths: Sequence[str]
) -> Grid:
    """Return the best points, each with its settings, its standing and its measures."""
    rows = []
    for plan in ranking.plans[:MAX_ROWS]:
        # Rows of the file are in the order of the points, a ranking is not.
        place = plans.index(plan)
        settings = [sweep.texts(path)[place] for path in paths]
        figures = []
        for name in SHOWN_MEASURES:
            numbers = sweep.numbers(name)
            figures.append(measured(numbers[place], name))
        rows.append((*settings, plan.standing or NOTHING, *figures))
    measure_headings = map(heading, SHOWN_MEASURES)
    header = (*map(input_words, paths), "SLO", *measure_headings)
    shown = f"{len(rows):,} of {len(plans):,} combinations"
    standing = len(paths)
    return Grid(
        caption=f"{shown}: base case meets the SLO target (cheapest first), then misses (smallest shortfall first)",
        header=header,
        rows=rows,
        numeric=[column for column in range(len(header)) if column != standing],
        unbroken=(standing,),
    )
