"""``workbook.xlsx`` of several plans: a comparison, a sweep, a study; plain tables and charts, as simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.finance.statements import Frequency
from planner.output.workbook import Page, SheetChart, SheetTable, in_usd, sheet_of, style_of, words
from planner.run import tables
from planner.run.measure_names import FLEET
from planner.run.replications import Chance
from planner.run.result import RunResult
from planner.units import unit_of

PERCENTILES = (10, 50, 90)
BANDS = tuple(f"p{percentile}" for percentile in PERCENTILES)
STATISTICS = ("mean", *BANDS)
_BANDS_NOTE = "P10, P50 and P90: a tenth, half and nine tenths of the replications lie below."


def statements_page(results: Mapping[str, RunResult]) -> dict[str, Page]:
    """Return the statements of each plan as stated by fiscal year, the whole fleet, as a sheet; none without plans."""
    rows: dict[str, list[Any]] = {}
    for name, result in results.items():
        table = tables.statement(result, Frequency.YEAR)
        kept = [place for place, cluster in enumerate(table["cluster"]) if cluster == FLEET]
        columns = {"scenario": [name] * len(table["cluster"]), **table}
        for column, cells in columns.items():
            if column != "cluster":
                scale = 100 if column.endswith("_usd") else None
                rows.setdefault(column, []).extend(cells[k] / scale if scale else cells[k] for k in kept)
    note = "Costs are positive in the income statement; in the cash flow, money that comes in is."
    return {"Statements": Page(table=sheet_of(rows), note=note)} if rows else {}


def comparison_page(names: Sequence[str], figures: Sequence[Mapping[str, float | None]], baseline: int) -> Page:
    """Return every measure with the plans side by side, and what each is against the baseline."""
    others = [place for place in range(len(names)) if place != baseline]
    first = figures[baseline]
    headings = ("measure", "unit", names[baseline], *(names[place] for place in others))
    headings += tuple(f"{names[place]} less {names[baseline]}" for place in others)
    rows: list[Sequence[object]] = []
    for measure, base in first.items():
        theirs = [figures[place][measure] for place in others]
        apart = [None if value is None or base is None else value - base for value in theirs]
        rows.append((words(measure).removesuffix(", USD"), unit_of(measure) or "", base, *theirs, *apart))
    plans = headings[2 : 2 + len(names)]
    chart = SheetChart(
        title="Levelised cost per million tokens, USD", columns=plans, kind="column", style="unit_usd",
        first=(place := list(first).index("levelised_cost_per_million_tokens_usd")), last=place + 1,
    )  # fmt: skip
    return Page(table=SheetTable(headings=headings, rows=rows, names=frozenset(headings[2:])), charts=(chart,))


def bridge_page(bridge: Mapping[str, Sequence[Any]]) -> dict[str, Page]:
    """Return why each plan's cost differs from the baseline's, in dollars, as a sheet; none without a bridge."""
    names = list(bridge["scenario"])
    charts = tuple(
        SheetChart(
            title=f"Why cost differs from the baseline's, USD: {name}", columns=("difference_usd",), kind="column",
            first=names.index(name), last=names.index(name) + names.count(name), across=1,
        )
        for name in dict.fromkeys(names)
    )  # fmt: skip
    return {"Bridge, USD": Page(table=sheet_of(in_usd(bridge)), charts=charts)} if names else {}


def bands_page(rows: Mapping[str, Sequence[Any]], outputs: Sequence[str]) -> Page:
    """Return percentiles by month as a sheet, with a chart of each plan's fleet for each of some outputs."""
    shown = {name: rows[name] for name in ("scenario", "output", "cluster", "month", "mean", *BANDS)}
    table = sheet_of(shown | {"output": [words(output) for output in rows["output"]]})
    keys = list(zip(rows["scenario"], rows["output"], rows["cluster"], strict=True))
    charts = []
    for scenario, output, cluster in dict.fromkeys(keys):
        if output in outputs and cluster == FLEET:
            first, count = keys.index((scenario, output, cluster)), keys.count((scenario, output, cluster))
            title = f"{words(output)} by month: {scenario}"
            charts.append(
                SheetChart(
                    title=title, columns=BANDS, first=first, last=first + count, across=3, style=style_of(output)
                )
            )
    return Page(table=table, charts=tuple(charts), note=_BANDS_NOTE)


def band_rows(months: Sequence[str], chances: Mapping[str, Chance]) -> dict[str, list[Any]]:
    """Return percentiles by month of what each plan cost, served and earned, from its replications."""
    rows: dict[str, list[Any]] = {name: [] for name in ("scenario", "output", "cluster", "month", "mean", *BANDS)}
    for scenario, chance in chances.items():
        for output, drawn in chance.monthly.items() if chance.draws > 1 else ():
            cells = percentiles_of(drawn)
            rows["scenario"] += [scenario] * len(months)
            rows["output"] += [output] * len(months)
            rows["cluster"] += [FLEET] * len(months)
            rows["month"] += list(months)
            rows["mean"] += drawn.mean(axis=0).tolist()
            for name, cell in zip(BANDS, cells, strict=True):
                rows[name] += cell.tolist()
    return rows


def percentiles_of(drawn: Floats) -> Floats:
    """Return :data:`PERCENTILES` of replications, shape (replications, months), without bias of the median.

    The place of a share q of n in their order, from zero, is n·q + (1 + q)/3 − 1 (Hyndman and Fan, 1996, their
    eighth): numpy's ``median_unbiased`` to the last digit, which loads all that numpy has for masked arrays first,
    while nothing else goes on.
    """
    ordered, last = np.sort(drawn, axis=0), len(drawn) - 1
    shares = np.array(PERCENTILES)[:, None] / 100.0
    places = np.clip(len(drawn) * shares + (1 / 3 + shares * (1 - 1 / 3 - 1 / 3)) - 1, 0, last)
    before = np.floor(places).astype(np.intp)
    weight, low, high = places - before, ordered[before[:, 0]], ordered[np.minimum(before[:, 0] + 1, last)]
    return np.where(weight < 0.5, low + (high - low) * weight, high - (high - low) * (1 - weight))


def months_pages(months: Sequence[str], chances: Mapping[str, Chance]) -> dict[str, Page]:
    """Return those percentiles as a sheet; none where no plan was drawn more than once."""
    rows = band_rows(months, chances)
    return {"By month": bands_page(rows, ("cost_usd", "revenue_usd"))} if rows["month"] else {}


def statistics_page(percentiles: Mapping[str, Sequence[Any]]) -> Page:
    """Return mean, P10, P50 and P90 of every figure of every plan of a study, as a sheet."""
    statistics: dict[tuple[str, str], dict[str, float]] = {}
    for scenario, output, statistic, value in zip(
        *(percentiles[name] for name in ("scenario", "output", "statistic", "value")), strict=True
    ):
        statistics.setdefault((output, scenario), {})[statistic] = value
    rows = [
        (
            words(output).removesuffix(", USD"),
            unit_of(output) or "",
            scenario,
            *(statistic.get(name) for name in STATISTICS),
        )
        for (output, scenario), statistic in statistics.items()
    ]
    return Page(table=SheetTable(headings=("figure", "unit", "scenario", *STATISTICS), rows=rows), note=_BANDS_NOTE)


def plain_pages(named: Mapping[str, Mapping[str, Any]]) -> dict[str, Page]:
    """Return tables as sheets by their names, leaving out those without a row."""
    pages = {name: Page(table=sheet_of(columns)) for name, columns in named.items()}
    return {name: page for name, page in pages.items() if page.table.rows}
