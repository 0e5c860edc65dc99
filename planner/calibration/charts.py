"""Charts of the throughput formula: the Pareto picture, and predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.calibration.check import Check
from planner.errors import Problem, ScenarioError
from planner.output.picture import FORMATS, Line, Mark, Panel, Picture, even_axis, files_of, ratio_axis
from planner.output.scales import TOTAL

_QUANTITIES = {
    "tpot_ms": "time per output token, ms",
    "ttft_ms": "time to first token, ms",
    "output_tokens_per_s_per_gpu": "output tokens/s per accelerator",
}


def pareto_chart(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw throughput per accelerator against interactivity (tokens/s of one user), one line per replica."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for record in (one for one in records if one["problem"] is None):
        names = (record["model"], f"{record['accelerator']} × {record['tp']}", record["engine"], record["precision"])
        label = " ".join([*names, f"{record['input_tokens']:g}/{record['output_tokens']:g}"])
        point = (record["tokens_per_s_per_user"], record["output_tokens_per_s_per_gpu"])
        lines.setdefault(label, []).append(point)
    marks = [Line(points=sorted(points), colour=i, stroke=1.6, radius=3.5) for i, points in enumerate(lines.values())]
    points = [point for line in lines.values() for point in line]
    x = even_axis(0.0, 1.05 * max(x for x, _ in points), "interactivity, output tokens/s per user")
    y = ratio_axis([y for _, y in points], "output tokens/s per accelerator")
    keys = {label: colour for colour, label in enumerate(lines)}
    panel = Panel(x=x, y=y, marks=marks, height=420.0)
    _save(Picture(title="Throughput against interactivity", panels=[panel], keys=keys), path)


def validation_picture(check: Check) -> Picture:
    """Draw predicted against measured for every quantity, one panel each, on logarithmic axes."""
    accelerators = list(dict.fromkeys(check.frame["accelerator"]))
    labels = check.frame["accelerator"].to_numpy(dtype=object)[check.position]
    panels = []
    for quantity, title in _QUANTITIES.items():
        chosen = check.is_predicted & (check.quantity == quantity)
        measured, predicted = check.measured[chosen].tolist(), check.predicted[chosen].tolist()
        x, y = ratio_axis(measured, "measured"), ratio_axis(predicted, "predicted")
        ends = [(end, end) for end in (min(measured, default=1.0), max(measured, default=1.0))]
        marks: list[Mark] = [Line(points=ends, colour=TOTAL, stroke=1.0)]
        for colour, name in enumerate(accelerators):
            shown = chosen & (labels == name)
            points = list(zip(check.measured[shown].tolist(), check.predicted[shown].tolist(), strict=True))
            marks.append(Line(points=points, colour=colour, stroke=0.0, radius=2.6))
        panels.append(Panel(x=x, y=y, marks=marks, title=title, height=300.0))
    keys = {name: colour for colour, name in enumerate(accelerators)}
    title = "Predicted against measured, one dot for each public run"
    return Picture(title=title, panels=panels, keys=keys, shape="dot", columns=len(panels))


def _save(picture: Picture, path: Path) -> None:
    """Write a picture in the format that the file's name asks for."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        message = f"a chart is written as {', '.join(f'.{known}' for known in FORMATS)}"
        raise ScenarioError(Problem(file=str(path), message=message, hint="a browser prints an .svg as PDF"))
    try:
        path.write_bytes(files_of(picture, [suffix])[suffix])
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None
