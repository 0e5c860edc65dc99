"""Charts of a study as PNG files: fan, histogram, tornado, convergence."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from planner.studies.analysis import Driver, Finished
from planner.studies.headlines import MONTHLY, Output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000")
"""Okabe and Ito's palette, told apart by readers with any colour vision."""
_BARS = 12


def study_charts(finished: Finished, drivers: Sequence[Driver]) -> dict[str, bytes]:
    """Return the charts of a Monte Carlo study by file name."""
    return {
        "fan.png": _fan(finished),
        "histogram.png": _histogram(finished),
        "tornado.png": tornado_chart(finished.prepared.headline, conditional_bars(finished, drivers)),
        "convergence.png": _convergence(finished),
    }


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - without pyplot: no window, no state

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _png(figure: Figure) -> bytes:
    """Return the figure's file, without a date, so that the same figure gives the same bytes."""
    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "planner"}):
        figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
    return stream.getvalue()


def _label(output: Output) -> str:
    return output.name.replace("_", " ").replace("usd", "USD")


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _fan(finished: Finished) -> bytes:
    """Draw monthly medians with bands from P10 to P90 and, paler, P5 to P95."""
    figure, axes = _figure(len(MONTHLY), 1, (9, 3 * len(MONTHLY)))
    bands = list(finished.bands())
    names = finished.prepared.names
    for output, axis in zip(MONTHLY, axes[:, 0], strict=True):
        for place, name in enumerate(names):
            own = [band for band in bands if band.output == output.name and band.scenario == name]
            table = np.array([band.percentiles for band in own])
            months = np.arange(len(own))
            axis.fill_between(months, table[:, 0], table[:, 4], color=_colour(place), alpha=0.10, linewidth=0)
            axis.fill_between(months, table[:, 1], table[:, 3], color=_colour(place), alpha=0.20, linewidth=0)
            axis.plot(months, table[:, 2], color=_colour(place), label=name)
        ticks = np.arange(0, len(own), max(1, len(own) // 6))
        axis.set_xticks(ticks, [own[tick].month for tick in ticks])
        axis.set_ylabel(_label(output))
        axis.set_ylim(bottom=0)
    axes[0, 0].legend(title="median, P10–P90, P5–P95", ncols=min(len(names), 4))
    return _png(figure)


def _histogram(finished: Finished) -> bytes:
    """Draw the headline's distribution for each scenario on one scale, with P10, P50 and P90."""
    headline, names = finished.prepared.headline, finished.prepared.names
    table = finished.output(headline.name)
    known = table[np.isfinite(table)]
    figure, axes = _figure(len(names), 1, (9, 1.2 + 1.8 * len(names)))
    low, high = np.percentile(known, [0.2, 99.8]) if known.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, 61)
    for place, (name, axis) in enumerate(zip(names, axes[:, 0], strict=True)):
        rows = table[np.isfinite(table[:, place]), place]
        axis.hist(rows, bins=edges, color=_colour(place), alpha=0.6)
        for percentile in (10, 50, 90) if rows.size else ():
            at = float(np.percentile(rows, percentile, method="median_unbiased"))
            axis.axvline(at, color="black", linewidth=1)
            axis.annotate(f" P{percentile} {at:.4g}", (at, 0.86), xycoords=("data", "axes fraction"), fontsize=8)
        axis.set_ylabel(name)
        axis.set_yticks([])
        axis.sharex(axes[0, 0])
    axes[-1, 0].set_xlabel(_label(headline))
    return _png(figure)


Bars = tuple[str, str, list[tuple[str, float, float]]]
"""A panel's title, its centre in words, and for each input the ends of its bar."""


def conditional_bars(finished: Finished, drivers: Iterable[Driver]) -> list[Bars]:
    """Return the tornado of conditional means: the first scenario's headline, then its difference from each other's."""
    found: dict[tuple[str, str], list[tuple[str, float, float]]] = {}
    first = finished.prepared.names[0]
    for driver in drivers:
        if driver.method == "conditional-mean" and driver.scenario == first:
            found.setdefault((driver.scenario, driver.against), []).append((driver.input, driver.low, driver.high))
    return [
        (f"{scenario} less {against}" if against else scenario, "mean in each tenth of the input", bars)
        for (scenario, against), bars in found.items()
    ]


def designed_bars(drivers: Iterable[Driver]) -> list[Bars]:
    """Return the tornado of one-at-a-time moves from P10 to P90."""
    ends: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for driver in drivers:
        if driver.method == "tornado":
            own = ends.setdefault((driver.scenario, driver.against), {}).setdefault(driver.input, {})
            own[driver.measure] = driver.value
    return [
        (
            f"{scenario} less {against}" if against else scenario,
            "one input at a time, P10 to P90",
            [(name, min(at["at_p10"], at["at_p90"]), max(at["at_p10"], at["at_p90"])) for name, at in inputs.items()],
        )
        for (scenario, against), inputs in ends.items()
    ]


def tornado_chart(headline: Output, panels: Sequence[Bars]) -> bytes:
    """Draw bars, longest on top, one panel for each title."""
    figure, axes = _figure(max(len(panels), 1), 1, (9, max(2.0, 3.6 * len(panels))))
    for (title, how, bars), axis in zip(panels, axes[:, 0], strict=False):
        _bars(axis, bars)
        axis.set_title(f"{title}: {_label(headline)}, {how}", fontsize=9)
        if " less " in title:
            axis.axvline(0.0, color="black", linewidth=1)
    return _png(figure)


def _bars(axis: Axes, bars: list[tuple[str, float, float]]) -> None:
    longest = sorted(bars, key=lambda bar: bar[2] - bar[1], reverse=True)[:_BARS]
    places = np.arange(len(longest))[::-1]
    axis.barh(places, [bar[2] - bar[1] for bar in longest], left=[bar[1] for bar in longest], color=_COLOURS[0])
    axis.set_yticks(places, [bar[0] for bar in longest], fontsize=8)


def _convergence(finished: Finished) -> bytes:
    """Draw the headline's mean against the number of replications, with its interval."""
    headline = finished.prepared.headline
    figure, axes = _figure(1, 1, (9, 4))
    axis = axes[0, 0]
    steps = finished.convergence()
    ends = [end for end, _ in steps]
    for place, name in enumerate(finished.prepared.names):
        own = [estimates[place] for _, estimates in steps]
        axis.plot(ends, [found.value for found in own], color=_colour(place), label=name)
        axis.fill_between(
            ends, [f.low for f in own], [f.high for f in own], color=_colour(place), alpha=0.2, linewidth=0
        )
    axis.set_xscale("log")
    axis.set_xlabel("replications")
    axis.set_ylabel(f"mean {_label(headline)}")
    axis.legend(title="mean and 95% interval")
    return _png(figure)
