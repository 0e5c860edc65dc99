"""Charts of a study: fan, histogram, tornado, convergence; from the tables that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.reporting.chart_style import COLOURS, Draw, across, line_style, render, words
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.drivers import TORNADOES, Panel, panels, rows_of
from planner.reporting.report.study_sections import BANDS, headline_of
from planner.reporting.report.words import axis_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 12
_PANELS = 4
"""Tornadoes in one picture: the first scenario's, and its difference from the next ones."""
_WIDTH = 10.0


def study_pictures(contents: Contents) -> dict[str, bytes]:
    """Return the PNG charts that a study writes beside its tables, as far as it has those tables."""
    return {
        f"{name}.png": picture
        for name, draw in STUDY_CHARTS.items()
        for picture in render(draw, contents, ("png",)).values()
    }


def _floats(table: Table, column: str) -> list[float]:
    return [float("nan") if number is None else number for number in table.numbers(column)]


def fan(figure: Figure, contents: Contents) -> bool:
    """Draw monthly medians with bands from P10 to P90 and, paler, P5 to P95."""
    bands = contents.table("monthly_bands")
    if bands is None or not len(bands):
        return False
    outputs = list(dict.fromkeys(bands.texts("output")))
    figure.set_size_inches(_WIDTH, 1.0 + 2.8 * len(outputs))
    panels_ = figure.subplots(len(outputs), 1, squeeze=False, sharex=True)[:, 0]
    for output, axes in zip(outputs, panels_, strict=True):
        own = bands.where("output", output)
        for place, scenario in enumerate(dict.fromkeys(own.texts("scenario"))):
            table = own.where("scenario", scenario)
            months = np.array([f"{month}-01" for month in table.texts("month")], dtype="datetime64[D]")
            low, lower, middle, upper, high = (_floats(table, name) for name in ("p5", "p10", "p50", "p90", "p95"))
            colour = COLOURS[place % len(COLOURS)]
            axes.fill_between(months, low, high, color=colour, alpha=0.10, linewidth=0)
            axes.fill_between(months, lower, upper, color=colour, alpha=0.20, linewidth=0)
            axes.plot(months, middle, label=scenario, **line_style(place))
        title, unit = BANDS.get(output, (words(output), ""))
        axes.set_ylabel(title, fontsize=9)
        axes.yaxis.set_major_formatter(lambda value, _, unit=unit: axis_label(value, unit))
        axes.set_ylim(bottom=0)
    panels_[0].set_title(f"By month: median, P10 to P90, P5 to P95, {contents.name}")
    handles, labels = panels_[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return True


def histogram(figure: Figure, contents: Contents) -> bool:
    """Draw the headline's distribution for each scenario on one scale, with P10, P50 and P90."""
    found = contents.table("distribution")
    if found is None or not len(found):
        return False
    scenarios = list(dict.fromkeys(found.texts("scenario")))
    output = headline_of(contents)
    marks = _percentiles(contents, output)
    figure.set_size_inches(_WIDTH, 1.4 + 1.7 * len(scenarios))
    strips = figure.subplots(len(scenarios), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for place, (scenario, axes) in enumerate(zip(scenarios, strips, strict=True)):
        own = found.where("scenario", scenario)
        low, high = np.array(own.totals("bin_low")), np.array(own.totals("bin_high"))
        axes.bar(low, own.totals("replications"), width=high - low, align="edge", color=COLOURS[place % len(COLOURS)])
        for percentile in ("p10", "p50", "p90"):
            if (at := marks.get((scenario, percentile))) is not None:
                axes.axvline(at, color="black", linewidth=1)
                note = f" {percentile.upper()} {at:.4g}"
                axes.annotate(note, (at, 0.87), xycoords=("data", "axes fraction"), fontsize=8)
        axes.set_ylabel(scenario, fontsize=9)
        axes.set_yticks([])
        axes.set_ylim(0, 1.35 * max(found.totals("replications")) or 1.0)  # room for the marks' names
        across(axes)
    strips[0].set_title(f"How the futures are spread, {contents.name}")
    strips[-1].set_xlabel(words(output))
    return True


def _percentiles(contents: Contents, output: str) -> dict[tuple[str, str], float | None]:
    table = contents.table("percentiles")
    if table is None:
        return {}
    own = table.where("output", output)
    return dict(zip(zip(own.texts("scenario"), own.texts("statistic"), strict=True), own.numbers("value"), strict=True))


def tornado(figure: Figure, contents: Contents) -> bool:
    """Draw what the first scenario's headline, and its difference from the others', hang on."""
    found = list(panels(rows_of(contents)))
    if not found:
        return False
    shown = [panel for panel in found if panel.scenario == found[0].scenario and panel.method == found[0].method]
    shown = shown[:_PANELS]
    output = headline_of(contents)
    heights = [min(len(panel.bars), _BARS) for panel in shown]
    figure.set_size_inches(_WIDTH, sum(0.9 + 0.26 * height for height in heights) + 1.0)
    drawn = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, axes in zip(shown, drawn, strict=True):
        _bars(axes, panel)
        axes.set_title(f"{panel.title}: {words(output)}", fontsize=11)
    handles, labels = drawn[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, title=TORNADOES[shown[0].method].said)
    return True


def _bars(axes: Axes, panel: Panel) -> None:
    """Draw each bar's two halves about the middle, in the colours of its ends."""
    longest = panel.longest(_BARS)[::-1]
    names = [name for name, _, _ in longest]
    sides = ([low for _, low, _ in longest], [high for _, _, high in longest])
    for side, label, colour in zip(sides, TORNADOES[panel.method].ends, COLOURS, strict=False):
        widths = [end - panel.middle for end in side]
        axes.barh(names, widths, left=panel.middle, color=colour, label=label)
    axes.axvline(panel.middle, color="black", linewidth=1.2)
    if panel.against:
        axes.axvline(0.0, color="#888888", linewidth=1, linestyle="--")
    axes.tick_params(axis="y", labelsize=8)
    across(axes)


def convergence(figure: Figure, contents: Contents) -> bool:
    """Draw the headline's mean against the number of replications, with its interval."""
    found = contents.table("convergence")
    if found is None or not len(found):
        return False
    axes = figure.subplots()
    for place, scenario in enumerate(dict.fromkeys(found.texts("scenario"))):
        own = found.where("scenario", scenario)
        ends, colour = own.totals("replications"), COLOURS[place % len(COLOURS)]
        axes.plot(ends, _floats(own, "mean"), label=scenario, **line_style(place))
        axes.fill_between(ends, _floats(own, "low"), _floats(own, "high"), color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    steps = [10**power * part for power in range(8) for part in (1, 2, 5)]
    lowest, highest = min(found.totals("replications")), max(found.totals("replications"))
    axes.set_xticks([step for step in steps if lowest <= step <= highest] or [lowest])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("replications")
    axes.set_ylabel(f"mean {words(headline_of(contents))}")
    axes.set_title(f"How sure the mean is, with its 95% interval, {contents.name}")
    axes.legend(ncols=4)
    return True


STUDY_CHARTS: dict[str, Draw] = {
    "fan": fan,
    "histogram": histogram,
    "tornado": tornado,
    "convergence": convergence,
}
"""File name to what draws it."""
