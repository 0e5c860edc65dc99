"""Charts of a plan, or of plans side by side: utilisation, cost per token, money, losses, causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner.reporting.chart_style import COLOURS, Draw, across, line_style
from planner.reporting.report import run_sections
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.timechart import FLEET, OFF_THE_CHART
from planner.units import MILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOST = {column: name for column, name in run_sections.LOSSES.items() if column.startswith("lost_")}


def _months(table: Table) -> NDArray[np.datetime64]:
    return np.array([f"{month}-01" for month in dict.fromkeys(table.texts("month"))], dtype="datetime64[D]")


def _title(axes: Axes, contents: Contents, title: str) -> None:
    axes.set_title(f"{title}, {contents.name}")


def _lines(contents: Contents, column: str, scale: float) -> tuple[Table, dict[str, list[float]]] | None:
    """Return a column of the monthly timeline: by cluster for one plan, the whole fleet's by scenario for several."""
    table = contents.table("timeline_monthly")
    if table is None or column not in table or not len(table):
        return None
    lines: dict[str, list[float]] = defaultdict(list)
    by = "scenario" if contents.plans else "cluster"
    for name, cluster, value in zip(table.texts(by), table.texts("cluster"), table.numbers(column), strict=True):
        if by == "cluster" or cluster == FLEET:
            lines[name].append(float("nan") if value is None else value * scale)
    return table, lines


def _timeline(axes: Axes, contents: Contents, column: str, scale: float = 1.0) -> bool:
    """Draw a column of the monthly timeline; one plan has a black line for its fleet."""
    found = _lines(contents, column, scale)
    if found is None:
        return False
    table, lines = found
    months = _months(table)
    for index, (name, values) in enumerate(lines.items()):
        if name == FLEET:
            axes.plot(months, values, color="black", linewidth=2.8, label=name)
        else:
            axes.plot(months, values, label=name, **line_style(index))
    axes.legend(loc="upper left", ncols=4)
    return True


def _of_whom(contents: Contents) -> str:
    """Say what the lines are."""
    if not contents.plans:
        return "by cluster"
    return "by scenario, as stated" if contents.kind == "study" else "by scenario"


def utilisation(figure: Figure, contents: Contents) -> bool:
    """Draw utilisation by cluster, or by scenario."""
    axes = figure.subplots()
    if not _timeline(axes, contents, "utilisation_fraction", 100.0):
        return False
    _title(axes, contents, f"Utilisation {_of_whom(contents)}")
    axes.set(ylabel="accelerator-hours at work, %", ylim=(0, 115), yticks=range(0, 101, 20))
    return True


def cost_per_token(figure: Figure, contents: Contents) -> bool:
    """Draw the cost of a million tokens; on a logarithmic axis where the lines differ widely."""
    axes = figure.subplots()
    if not _timeline(axes, contents, "cost_per_million_tokens_usd"):
        return False
    values = [v for line in axes.get_lines() for v in map(float, line.get_ydata()) if v > 0]  # type: ignore[arg-type]
    _title(axes, contents, f"Cost per million tokens {_of_whom(contents)}")
    axes.set_ylabel("USD per million tokens")
    if values and max(values) > 8 * min(values):
        axes.set_yscale("log")
        whole = [v for line in axes.get_lines() if line.get_label() == FLEET for v in map(float, line.get_ydata())]  # type: ignore[arg-type]
        if top := max((v for v in whole if v > 0), default=0.0):
            axes.set_ylim(top=min(max(values) * 2, OFF_THE_CHART * top))
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(0, 1.15 * max(values, default=1.0))
    return True


def _bars(axes: Axes, names: Sequence[str], layers: Mapping[str, Sequence[float]], first: int = 0) -> None:
    """Draw bars that lie down, layers behind one another, in colours from the palette's ``first`` on."""
    left = [0.0] * len(names)
    for index, (label, widths) in enumerate(layers.items(), start=first):
        axes.barh(list(names), widths, left=left, color=COLOURS[index % len(COLOURS)], label=label, edgecolor="white")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    across(axes)


def money(figure: Figure, contents: Contents) -> bool:
    """Draw accrued cost: of one plan by account and cluster, of several by scenario and account."""
    if contents.plans:
        return _money_of_plans(figure, contents)
    sums = run_sections.account_sums(contents)
    if not sums:
        return False
    axes = figure.subplots()
    order = sorted(sums, key=lambda account: sum(sums[account].values()))
    clusters = list(dict.fromkeys(cluster for account in sums for cluster in sums[account]))
    layers = {c: [sums[account].get(c, 0.0) / MILLION for account in order] for c in clusters}
    _bars(axes, [run_sections.words_of(account) for account in order], layers)
    _title(axes, contents, "Where the money goes")
    axes.set_xlabel("accrued cost, million USD")
    axes.legend(loc="lower right")
    return True


def _money_of_plans(figure: Figure, contents: Contents) -> bool:
    """Draw one bar for each scenario, the largest accounts by name and the rest together."""
    totals = {plan: run_sections.account_totals(contents.of_plan(plan)) for plan in contents.plans}
    accounts = sorted(
        {account for own in totals.values() for account in own},
        key=lambda account: -max(own.get(account, 0.0) for own in totals.values()),
    )
    if not accounts:
        return False
    named, rest = accounts[: len(COLOURS) - 1], accounts[len(COLOURS) - 1 :]
    plans = list(totals)[::-1]
    layers = {run_sections.words_of(a): [totals[plan].get(a, 0.0) / MILLION for plan in plans] for a in named}
    if rest:
        layers["other"] = [sum(totals[plan].get(a, 0.0) for a in rest) / MILLION for plan in plans]
    axes = figure.subplots()
    _bars(axes, plans, layers)
    _title(axes, contents, "Where the money goes")
    axes.set_xlabel("accrued cost, million USD")
    figure.legend(loc="outside lower center", ncols=4)
    return True


def losses(figure: Figure, contents: Contents) -> bool:
    """Draw the share of node-hours lost by cause: of one plan by month, of several side by side."""
    if contents.plans:
        return _losses_of_plans(figure, contents)
    table = contents.table("losses")
    if table is None or not len(table):
        return False
    axes = figure.subplots()
    months = table.texts("month")
    order = list(dict.fromkeys(months))

    def by_month(column: str) -> list[float]:
        sums = dict.fromkeys(order, 0.0)
        for month, hours in zip(months, table.totals(column), strict=True):
            sums[month] += hours
        return list(sums.values())

    present = by_month("present_node_h")
    known = {column: name for column, name in LOST.items() if column in table}
    shares = [
        [100 * lost / whole if whole else 0.0 for lost, whole in zip(by_month(column), present, strict=True)]
        for column in known
    ]
    axes.stackplot(_months(table), shares, labels=list(known.values()), colors=COLOURS[1:])
    _title(axes, contents, "Where capacity was lost")
    axes.set(ylabel="node-hours on site, %")
    axes.set_ylim(0, 1.2 * max((sum(parts) for parts in zip(*shares, strict=True)), default=0.0) or 1.0)
    axes.legend(loc="upper right", ncols=4)
    return True


def _losses_of_plans(figure: Figure, contents: Contents) -> bool:
    shares: dict[str, dict[str, float]] = {}
    for plan in contents.plans[::-1]:
        found = run_sections.node_hours(contents.of_plan(plan)) or {}
        whole = sum(sum(row.values()) for row in found.values()) or 1.0
        shares[plan] = {name: 100 * sum(row.get(name, 0.0) for row in found.values()) / whole for name in LOST.values()}
    axes = figure.subplots()
    _bars(axes, list(shares), {name: [own[name] for own in shares.values()] for name in LOST.values()}, first=1)
    _title(axes, contents, "Where capacity was lost")
    axes.set_xlabel("node-hours on site, %")
    figure.legend(loc="outside lower center", ncols=4)
    return True


def bridge(figure: Figure, contents: Contents) -> bool:
    """Draw why a token costs more or less than in the baseline, by cause, one panel for each scenario."""
    table = contents.table("bridge")
    if table is None or not len(table):
        return False
    scenarios = list(dict.fromkeys(table.texts("scenario")))
    figure.set_size_inches(10.0, 1.6 + 2.4 * len(scenarios))
    panels = figure.subplots(len(scenarios), 1, squeeze=False, sharex=True)[:, 0]
    for scenario, axes in zip(scenarios, panels, strict=True):
        own = table.where("scenario", scenario)
        parts = own.totals("difference_per_million_tokens_usd")
        causes = [cause.replace("_", " ") for cause in own.texts("cause")]
        axes.barh(causes[::-1], parts[::-1], color=[COLOURS[1] if part > 0 else COLOURS[2] for part in parts[::-1]])
        axes.axvline(0.0, color="black", linewidth=1)
        total = sum(parts)
        axes.set_title(f"{scenario}: {abs(total):.3g} USD {'dearer' if total > 0 else 'cheaper'} than the baseline")
        across(axes)
    panels[-1].set_xlabel("USD per million tokens, against the baseline")
    return True


PLAN_CHARTS: dict[str, Draw] = {
    "utilisation": utilisation,
    "cost-per-token": cost_per_token,
    "money": money,
    "losses": losses,
    "bridge": bridge,
}
"""File name to what draws it."""
