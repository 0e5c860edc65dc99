"""Pages of the workbooks of several plans: a comparison, a sweep, a study; all of it a record of what was simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.finance.statements import LINES, Frequency
from planner.output.tables import Cells
from planner.output.workbook import Page, SheetChart, style_of, words
from planner.run import tables
from planner.run.replications import Replications
from planner.run.simulate import RunResult
from planner.units import unit_of

BANDS_SHEET = "Percentiles by month"
BANDS = ("p10", "p50", "p90")
"""Percentiles that are drawn by month."""
STATISTICS = ("mean", *BANDS)
"""What is said of a figure over replications."""
_BAND_COLUMNS = ("scenario", "output", "month", *STATISTICS)
_BANDS_NOTE = (
    "A tenth of the replications lie below P10, half below P50 and nine tenths below P90. "
    "The cells are values, not formulas."
)


def statements_page(
    results: Mapping[str, RunResult], frequencies: Sequence[Frequency] = (Frequency.YEAR,)
) -> dict[str, Page]:
    """Return the statements of each plan as stated, the whole fleet, as a sheet; none without plans."""
    rows: dict[str, list[Any]] = {}
    for name, result in results.items():
        for frequency in frequencies:
            statement = tables.statement(result, frequency)
            # A period's name stands for its first day.
            named = [(column, cells) for column, cells in statement.items() if column != "date"]
            (_, periods), *lines = named
            # Column by column, since a page takes columns: plans and spans stand below one another.
            rows.setdefault("scenario", []).extend(name for _ in periods)
            rows.setdefault("period", []).extend(periods)
            for line, amounts in lines:
                # Lines are in cents; ratios beside them are as they stand.
                divisor = 100 if line in LINES else 1
                in_usd = (amounts / divisor).tolist()
                rows.setdefault(line, []).extend(in_usd)
    if not rows:
        return {}
    note = "Costs are positive in the income statement; in the cash flow, money that comes in is positive."
    return {"Statements": Page.of(rows, note=note)}


def comparison_page(
    names: Sequence[str], figures: Sequence[Mapping[str, float | None]], baseline: int
) -> Page:
    """Return every measure with the plans side by side, and what each is against the baseline."""
    rivals = [plan for plan in range(len(names)) if plan != baseline]
    # The baseline comes first, whatever its place on the command line.
    plan_names = tuple(names[plan] for plan in (baseline, *rivals))
    rows: list[Sequence[object]] = []
    for measure, base in figures[baseline].items():
        rival_figures = [figures[plan][measure] for plan in rivals]
        differences = [
            None if figure is None or base is None else figure - base for figure in rival_figures
        ]
        label = words(measure).removesuffix(", USD")
        unit = unit_of(measure) or ""
        rows.append((label, unit, base, *rival_figures, *differences))
    # The chart draws one row: that of levelised cost.
    row = list(figures[baseline]).index("levelised_cost_per_million_tokens_usd")
    chart = SheetChart(
        title="Levelised cost per million tokens, USD",
        columns=plan_names,
        kind="column",
        style="unit_usd",
        first=row,
        last=row + 1,
    )
    difference_names = [f"{names[plan]} less {names[baseline]}" for plan in rivals]
    headings = ("measure", "unit", *plan_names, *difference_names)
    plan_columns = frozenset(headings[2:])
    return Page(headings=headings, rows=rows, names=plan_columns, charts=(chart,))


def bridge_page(bridge: Mapping[str, Cells]) -> dict[str, Page]:
    """Return in which accounts each plan's cost differs from the baseline's, as a sheet; none without a bridge."""
    in_usd = {
        name: np.asarray(cells) / 100 if name.endswith("_usd") else cells
        for name, cells in bridge.items()
    }
    return {"Bridge, accounts": Page.of(in_usd)} if len(bridge["scenario"]) else {}


def bands_page(rows: Mapping[str, Cells], outputs: Sequence[str]) -> Page:
    """Return percentiles by month as a sheet, with a chart of each plan for each of some outputs."""
    columns = {name: rows[name] for name in _BAND_COLUMNS}
    pairs = zip(rows["scenario"], rows["output"], strict=True)
    keys = list(pairs)
    charts = []
    for key in dict.fromkeys(keys):
        scenario, output = key
        if output in outputs:
            # Rows of one scenario and output stand together.
            row = keys.index(key)
            charts.append(
                SheetChart(
                    title=f"{words(output)} by month: {scenario}",
                    columns=BANDS,
                    first=row,
                    last=row + keys.count(key),
                    across=2,
                    style=style_of(output),
                )
            )
    columns["output"] = [words(output) for output in rows["output"]]
    return Page.of(columns, note=_BANDS_NOTE, charts=tuple(charts))


def months_pages(months: Sequence[str], by_scenario: Mapping[str, Replications]) -> dict[str, Page]:
    """Return percentiles by month of what each plan cost, served and earned as a sheet; none without replications."""
    rows: list[tuple[Any, ...]] = []
    for scenario, replications in by_scenario.items():
        if replications.number < 2:
            continue
        for output, samples in replications.monthly.items():
            # The median-unbiased rule: of few replications the usual one is too narrow.
            percentiles = (10, 50, 90)
            bands = np.percentile(samples, percentiles, axis=0, method="median_unbiased")
            means = samples.mean(axis=0).tolist()
            figures = zip(months, means, *bands.tolist(), strict=True)
            rows += [(scenario, output, *row) for row in figures]
    if not rows:
        return {}
    by_column = zip(*rows, strict=True)
    columns = dict(zip(_BAND_COLUMNS, by_column, strict=True))
    return {BANDS_SHEET: bands_page(columns, ("cost_usd", "revenue_usd"))}


def statistics_page(percentiles: Mapping[str, Cells]) -> Page:
    """Return mean, P10, P50 and P90 of every figure of every plan of a study, as a sheet."""
    statistics: dict[tuple[str, str], dict[str, float]] = {}
    columns = (percentiles[name] for name in ("scenario", "output", "statistic", "value"))
    for scenario, output, statistic, value in zip(*columns, strict=True):
        statistics.setdefault((output, scenario), {})[statistic] = value
    rows = []
    for (output, scenario), by_name in statistics.items():
        label = words(output).removesuffix(", USD")
        values = [by_name.get(name) for name in STATISTICS]
        unit = unit_of(output) or ""
        rows.append((label, unit, scenario, *values))
    headings = ("figure", "unit", "scenario", *STATISTICS)
    return Page(headings=headings, rows=rows, note=_BANDS_NOTE)


def plain_pages(named: Mapping[str, Mapping[str, Cells]]) -> dict[str, Page]:
    """Return tables as sheets by their names, leaving out those without a row."""
    pages = {name: Page.of(columns) for name, columns in named.items()}
    return {name: page for name, page in pages.items() if page.rows}
