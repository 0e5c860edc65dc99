"""Charts of the throughput formula: the Pareto picture, and predicted against measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from planner.benchmarks.check import Check

CHART_SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, distinct for colour-blind readers (jfly.uni-koeln.de/color).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")


def pareto_chart(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw throughput per accelerator against interactivity (tokens/s of one user), one line per replica."""
    figure = _figure((7.0, 4.6))
    axes = figure.subplots()
    lines: dict[str, list[dict[str, Any]]] = {}
    for record in (one for one in records if one["problem"] is None):
        names = (record["model"], f"{record['accelerator']} × {record['tp']}", record["engine"], record["precision"])
        lengths = f"{record['input_tokens']:g}/{record['output_tokens']:g}"
        lines.setdefault(" ".join([*names, lengths]), []).append(record)
    for number, (label, points) in enumerate(lines.items()):
        points.sort(key=lambda record: record["tokens_per_s_per_user"])
        axes.plot(
            [record["tokens_per_s_per_user"] for record in points],
            [record["output_tokens_per_s_per_gpu"] for record in points],
            marker="o",
            markersize=3,
            linewidth=1.2,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=("-", "--", ":")[number // len(_COLOURS) % 3],
            label=label,
        )
    axes.set_xlabel("interactivity, output tokens/s per user")
    axes.set_ylabel("output tokens/s per accelerator")
    axes.set_yscale("log")
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.legend(fontsize=7, frameon=False)
    _save(figure, path)


def validation_chart(check: Check, path: Path) -> None:
    """Draw predicted against measured for every quantity, one panel each, on logarithmic axes."""
    panels = (
        ("tpot_ms", "time per output token, ms"),
        ("ttft_ms", "time to first token, ms"),
        ("output_tokens_per_s_per_gpu", "output tokens/s per accelerator"),
    )
    figure = _figure((12.0, 4.2))
    all_axes = figure.subplots(1, len(panels))
    accelerators = list(dict.fromkeys(check.frame["accelerator"]))
    labels = check.frame["accelerator"].to_numpy(dtype=object)[check.position]
    for axes, (quantity, title) in zip(all_axes, panels, strict=True):
        chosen = check.is_predicted & (check.quantity == quantity)
        for number, name in enumerate(accelerators):
            own = chosen & (labels == name)
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot(check.measured[own], check.predicted[own], ".", markersize=4, color=colour, label=name)
        if chosen.any():
            ends = [check.measured[chosen].min(), check.measured[chosen].max()]
            axes.plot(ends, ends, color="#444444", linewidth=0.8)
        axes.set(xscale="log", yscale="log", title=title, xlabel="measured", ylabel="predicted")
    all_axes[0].legend(fontsize=7, frameon=False)
    _save(figure, path)


def _figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure that needs no display."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (matplotlib takes most of a second to import)

    return Figure(figsize=size, layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    """Write the figure without a date in it, so that the same chart gives the same file."""
    if path.suffix.lower() not in CHART_SUFFIXES:
        message = f"a chart is written as {', '.join(CHART_SUFFIXES)}"
        raise ScenarioError(Problem(file=str(path), message=message))
    import matplotlib as mpl  # noqa: PLC0415

    metadata = {".svg": {"Date": None}, ".png": {"Software": None}, ".pdf": {"CreationDate": None}}
    try:
        with mpl.rc_context({"svg.hashsalt": "planner"}):
            figure.savefig(path, dpi=130, metadata=metadata[path.suffix.lower()])
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None
