"""Charts of a run as PNG and SVG files for slides, in one style, from the files of its folder."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import Problem, ScenarioError
from planner.finance.accounts import ACCOUNT_ORDER, ACCOUNTS, View
from planner.reporting.folder import write_folder
from planner.reporting.report.contents import Contents, Table, read_contents, read_whole
from planner.reporting.report.timechart import OFF_THE_CHART
from planner.units import MILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
FOLDER = "charts"
FLEET = "fleet"
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
LOSSES = {
    "lost_to_failures_node_h": "failures",
    "lost_to_software_node_h": "software",
    "lost_to_outages_node_h": "outages",
    "lost_to_power_cap_node_h": "power cap",
}

Draw = Callable[["Axes", Contents], bool]


def draw_charts(contents: Contents, formats: Sequence[str] = FORMATS) -> dict[str, bytes]:
    """Return the charts that the folder's files allow, by file name; the same files give the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - takes most of a second, and only this needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    drawn: dict[str, bytes] = {}
    with mpl.rc_context(STYLE):
        for name, draw in CHARTS.items():
            figure = Figure(figsize=SIZE_INCHES, layout="constrained")
            if not draw(figure.subplots(), contents):
                continue
            for suffix in formats:
                stream = io.BytesIO()
                metadata = {"png": {"Software": None}, "svg": {"Date": None}}[suffix]
                figure.savefig(stream, format=suffix, dpi=DOTS_PER_INCH, metadata=metadata)
                drawn[f"{FOLDER}/{name}.{suffix}"] = stream.getvalue()
    return drawn


def write_charts(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw an output folder's charts into its folder ``charts`` and enter them in its manifest."""
    contents = read_contents(folder)
    try:
        drawn = draw_charts(contents, formats)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its files do not fit together: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(file=str(folder), message=message, hint="run again")) from None
    if not drawn:
        raise ScenarioError(Problem(file=str(folder), message="holds no timeline, ledger or losses to draw"))
    whole = read_whole(folder)
    write_folder(folder, {**whole.files, **drawn}, whole.manifest)
    return [folder / name for name in drawn]


def _months(table: Table) -> NDArray[np.datetime64]:
    return np.array([f"{month}-01" for month in dict.fromkeys(table.texts("month"))], dtype="datetime64[D]")


def _timeline(axes: Axes, contents: Contents, column: str, scale: float = 1.0) -> bool:
    """Draw a column of the monthly timeline, one line for each cluster and a black one for the fleet."""
    table = contents.table("timeline_monthly")
    if table is None or column not in table or not len(table):
        return False
    lines: dict[str, list[float]] = defaultdict(list)
    for cluster, value in zip(table.texts("cluster"), table.numbers(column), strict=True):
        lines[cluster].append(float("nan") if value is None else value * scale)
    months = _months(table)
    for index, (cluster, values) in enumerate(lines.items()):
        if cluster == FLEET:
            axes.plot(months, values, color="black", linewidth=2.8, label=cluster)
        else:
            colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
            axes.plot(months, values, color=colour, linestyle=dash, label=cluster)
    axes.legend(loc="upper left", ncols=4)
    return True


def _title(axes: Axes, contents: Contents, title: str) -> None:
    axes.set_title(f"{title}, {contents.manifest.get('scenario', 'plan')}")


def utilisation(axes: Axes, contents: Contents) -> bool:
    """Draw utilisation by cluster."""
    if not _timeline(axes, contents, "utilisation_fraction", 100.0):
        return False
    _title(axes, contents, "Utilisation by cluster")
    axes.set(ylabel="accelerator-hours at work, %", ylim=(0, 115), yticks=range(0, 101, 20))
    return True


def cost_per_token(axes: Axes, contents: Contents) -> bool:
    """Draw the cost of a million tokens by cluster; on a logarithmic axis where clusters differ widely."""
    if not _timeline(axes, contents, "cost_per_million_tokens_usd"):
        return False
    values = [v for line in axes.get_lines() for v in map(float, line.get_ydata()) if v > 0]  # type: ignore[arg-type]
    _title(axes, contents, "Cost per million tokens")
    axes.set_ylabel("USD per million tokens")
    if values and max(values) > 8 * min(values):
        axes.set_yscale("log")
        whole = [v for line in axes.get_lines() if line.get_label() == FLEET for v in map(float, line.get_ydata())]  # type: ignore[arg-type]
        if top := max((v for v in whole if v > 0), default=0.0):
            axes.set_ylim(top=min(max(values) * 2, OFF_THE_CHART * top))
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    return True


def money(axes: Axes, contents: Contents) -> bool:
    """Draw accrued cost by account, clusters on one another."""
    ledger = contents.table("ledger")
    if ledger is None or not len(ledger):
        return False
    accrued = {account.value for account in ACCOUNT_ORDER if View.ACCRUAL in ACCOUNTS[account].views}
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for account, cluster, amount in zip(
        ledger.texts("account"), ledger.texts("cluster"), ledger.totals("amount_usd"), strict=True
    ):
        if account in accrued:
            sums[account][cluster] += amount / MILLION
    order = sorted(sums, key=lambda account: sum(sums[account].values()))
    names = [account.replace("_", " ") for account in order]
    left = [0.0] * len(order)
    for index, cluster in enumerate(dict.fromkeys(ledger.texts("cluster"))):
        widths = [sums[account][cluster] for account in order]
        axes.barh(names, widths, left=left, color=COLOURS[index % len(COLOURS)], label=cluster, edgecolor="white")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    _title(axes, contents, "Where the money goes")
    axes.set_xlabel("accrued cost, million USD")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="lower right")
    return True


def losses(axes: Axes, contents: Contents) -> bool:
    """Draw the share of node-hours on site lost by month and cause."""
    table = contents.table("losses")
    if table is None or not len(table):
        return False
    months = table.texts("month")
    order = list(dict.fromkeys(months))

    def by_month(column: str) -> list[float]:
        sums = dict.fromkeys(order, 0.0)
        for month, hours in zip(months, table.totals(column), strict=True):
            sums[month] += hours
        return list(sums.values())

    present = by_month("present_node_h")
    shares = [
        [100 * lost / whole if whole else 0.0 for lost, whole in zip(by_month(column), present, strict=True)]
        for column in LOSSES
        if column in table
    ]
    labels = [name for column, name in LOSSES.items() if column in table]
    axes.stackplot(_months(table), shares, labels=labels, colors=COLOURS[1:])
    _title(axes, contents, "Where capacity was lost")
    axes.set(ylabel="node-hours on site, %")
    axes.set_ylim(0, 1.2 * max((sum(parts) for parts in zip(*shares, strict=True)), default=0.0) or 1.0)
    axes.legend(loc="upper right", ncols=4)
    return True


CHARTS: dict[str, Draw] = {
    "utilisation": utilisation,
    "cost-per-token": cost_per_token,
    "money": money,
    "losses": losses,
}
"""File name to what draws it."""
