"""The one style of all charts that are files: colours, dashes, letters, sizes, and bytes that do not change."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from planner.reporting.report.contents import Contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
# The light palette of the report (report.css): told apart by colour-blind readers, and each with a dash of its own.
COLOURS = ("#0067a5", "#c44e00", "#00795a", "#c2579c", "#8a6500", "#5b5bd6", "#a8323e", "#4a5f6a")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.3)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (1, 2)), "--", "-.")
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 11,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.hashsalt": "datacenter-planner",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}
SIZE_INCHES = (10.0, 5.0)
DOTS_PER_INCH = 160
Draw = Callable[["Figure", Contents], bool]
"""Draws a folder's files on an empty figure; False where the files it needs are not there."""


def render(draw: Draw, contents: Contents, formats: tuple[str, ...]) -> dict[str, bytes]:
    """Return one chart in each format, none where its files are not there; the same files give the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - takes most of a second, and only this needs it
    from matplotlib.figure import Figure  # noqa: PLC0415 - without pyplot: no window, no state

    drawn: dict[str, bytes] = {}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        if not draw(figure, contents):
            return {}
        for suffix in formats:
            stream = io.BytesIO()
            metadata = {"png": {"Software": None}, "svg": {"Date": None}}[suffix]
            figure.savefig(stream, format=suffix, dpi=DOTS_PER_INCH, metadata=metadata)
            drawn[suffix] = stream.getvalue()
    return drawn


def line_style(place: int) -> dict[str, Any]:
    """Return colour and dash of a series."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place % len(DASHES)]}


def across(axes: Axes) -> None:
    """Draw the grid for bars that lie down."""
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


def words(name: str) -> str:
    """Return a figure's name as an axis says it."""
    return name.replace("_", " ").replace("usd", "USD")
