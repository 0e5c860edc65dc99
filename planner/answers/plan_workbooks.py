"""Pages of the workbooks of several plans: a comparison, a sweep, a study; all of it a record of what was simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.finance.statements import LINES, Frequency
from planner.output.workbook import Page, SheetChart, style_of, words
from planner.run import tables
from planner.run.replications import Replications
from planner.run.simulate import RunResult
from planner.units import unit_of

BANDS_SHEET = "Percentiles by month"
BANDS = ("p10", "p50", "p90")
STATISTICS = ("mean", *BANDS)
_BAND_COLUMNS = ("scenario", "output", "month", *STATISTICS)
_BANDS_NOTE = (
    "P10, P50 and P90: a tenth, half and nine tenths of the replications lie below. "
    "A record of the replications."
)


def statements_page(
    results: Mapping[str, RunResult], frequencies: Sequence[Frequency] = (Frequency.YEAR,)
) -> dict[str, Page]:
    """Return the statements of each plan as stated, the whole fleet, as a sheet; none without plans."""
    rows: dict[str, list[Any]] = {}
    for name, result in results.items():
        for frequency in frequencies:
            (_, periods), *lines = tables.statement(result, frequency).items()
            rows.setdefault("scenario", []).extend(name for _ in periods)
            rows.setdefault("period", []).extend(periods)
            for line, amounts in lines:
                rows.setdefault(line, []).extend((amounts / (100 if line in LINES else 1)).tolist())
    note = "Costs are positive in the income statement; in the cash flow, money that comes in is."
    return {"Statements": Page.of(rows, note=note)} if rows else {}


def comparison_page(
    names: Sequence[str], figures: Sequence[Mapping[str, float | None]], baseline: int
) -> Page:
    """Return every measure with the plans side by side, and what each is against the baseline."""
    others = [place for place in range(len(names)) if place != baseline]
    plans = tuple(names[place] for place in (baseline, *others))
    first = figures[baseline]
    rows: list[Sequence[object]] = []
    for measure, base in first.items():
        theirs = [figures[place][measure] for place in others]
        less = [None if value is None or base is None else value - base for value in theirs]
        rows.append(
            (words(measure).removesuffix(", USD"), unit_of(measure) or "", base, *theirs, *less)
        )
    place = list(first).index("levelised_cost_per_million_tokens_usd")
    title = "Levelised cost per million tokens, USD"
    chart = SheetChart(
        title=title, columns=plans, kind="column", style="unit_usd", first=place, last=place + 1
    )
    headings = (
        "measure",
        "unit",
        *plans,
        *(f"{names[place]} less {names[baseline]}" for place in others),
    )
    return Page(headings=headings, rows=rows, names=frozenset(headings[2:]), charts=(chart,))


def bridge_page(bridge: Mapping[str, Sequence[Any]], title: str = "Bridge, USD") -> dict[str, Page]:
    """Return why each plan's cost differs from the baseline's, in dollars, as a sheet; none without a bridge."""
    names = list(bridge["scenario"])
    charts = []
    for name in dict.fromkeys(names) if title == "Bridge, USD" else ():
        first = names.index(name)
        last = names.index(name) + names.count(name)
        said = f"Why cost differs from the baseline's, USD: {name}"
        shown = ("difference_usd",)
        charts.append(
            SheetChart(title=said, columns=shown, kind="column", first=first, last=last, across=1)
        )
    in_usd = {
        name: np.asarray(cells) / 100 if name.endswith("_usd") else cells
        for name, cells in bridge.items()
    }
    return {title: Page.of(in_usd, charts=tuple(charts))} if names else {}


def bands_page(rows: Mapping[str, Sequence[Any]], outputs: Sequence[str]) -> Page:
    """Return percentiles by month as a sheet, with a chart of each plan for each of some outputs."""
    shown = {name: rows[name] for name in _BAND_COLUMNS}
    keys = list(zip(rows["scenario"], rows["output"], strict=True))
    charts = []
    for key in dict.fromkeys(keys):
        scenario, output = key
        if output in outputs:
            first = keys.index(key)
            title = f"{words(output)} by month: {scenario}"
            last = first + keys.count(key)
            style = style_of(output)
            charts.append(
                SheetChart(
                    title=title, columns=BANDS, first=first, last=last, across=2, style=style
                )
            )
    shown["output"] = [words(output) for output in rows["output"]]
    return Page.of(shown, note=_BANDS_NOTE, charts=tuple(charts))


def months_pages(months: Sequence[str], chances: Mapping[str, Replications]) -> dict[str, Page]:
    """Return percentiles by month of what each plan cost, served and earned as a sheet; none without replications."""
    rows: list[tuple[Any, ...]] = []
    for scenario, chance in chances.items():
        for output, drawn in chance.monthly.items() if chance.number > 1 else ():
            bands = np.percentile(drawn, (10, 50, 90), axis=0, method="median_unbiased")
            figures = zip(months, drawn.mean(axis=0).tolist(), *bands.tolist(), strict=True)
            rows += [(scenario, output, *row) for row in figures]
    columns = dict(zip(_BAND_COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
    return {BANDS_SHEET: bands_page(columns, ("cost_usd", "revenue_usd"))} if rows else {}


def statistics_page(percentiles: Mapping[str, Sequence[Any]]) -> Page:
    """Return mean, P10, P50 and P90 of every figure of every plan of a study, as a sheet."""
    statistics: dict[tuple[str, str], dict[str, float]] = {}
    columns = (percentiles[name] for name in ("scenario", "output", "statistic", "value"))
    for scenario, output, statistic, value in zip(*columns, strict=True):
        statistics.setdefault((output, scenario), {})[statistic] = value
    rows = []
    for (output, scenario), known in statistics.items():
        figure = words(output).removesuffix(", USD"), unit_of(output) or "", scenario
        rows.append((*figure, *(known.get(name) for name in STATISTICS)))
    return Page(headings=("figure", "unit", "scenario", *STATISTICS), rows=rows, note=_BANDS_NOTE)


def plain_pages(named: Mapping[str, Mapping[str, Any]]) -> dict[str, Page]:
    """Return tables as sheets by their names, leaving out those without a row."""
    return {name: page for name, columns in named.items() if (page := Page.of(columns)).rows}
