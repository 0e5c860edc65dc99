"""What AIConfigurator chooses beside what the planner chooses, on the points of the public frontiers.

``docs/generate/ask_aiconfigurator.py`` asks the tool and writes its answers into ``aiconfigurator.csv``. The planner's
side is worked out anew whenever the pages are made.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docs.generate.frontier import Point
from planner.physics.coefficients import DENSE, MIXTURE

ANSWERS = Path(__file__).with_name("aiconfigurator.csv")
_RATE = "tokens_per_s_per_accelerator"
_TOOL = "# aiconfigurator "

Key = tuple[str, str, str, float, float, float]
"""Model, accelerator, precision, mean lengths and time per token of a point."""


class Answer(NamedTuple):
    """What the tool ranks first at one point of the frontier."""

    model: str
    accelerator: str
    precision: str
    input_tokens: float
    output_tokens: float
    tpot_s: float
    tokens_per_s_per_accelerator: float
    """Output tokens/s; NaN where it has no answer."""
    engine: str
    """Its backend, with the version of the kernels measured."""
    layout: str
    note: str
    """Why it has no answer."""

    @property
    def key(self) -> Key:
        """Return the point that is answered."""
        return self[:6]

    @property
    def is_known(self) -> bool:
        """Say whether the tool has an answer."""
        return not math.isnan(self.tokens_per_s_per_accelerator)


def key_of(point: Point) -> Key:
    """Return what names a point of the frontier."""
    return (*cell_of(point), point.tpot_s)


def cell_of(point: Point) -> tuple[str, str, str, float, float]:
    """Return what the points of one pair of lengths have in common."""
    pair = (point.model, point.accelerator, point.precision)
    return (*pair, point.input_tokens, point.output_tokens)


def write_answers(path: Path, answers: Iterable[Answer], tool: str) -> None:
    """Write answers in the order of their points, below a line with the tool's version and the date."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{_TOOL}{tool}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Answer._fields)
        for answer in sorted(answers, key=lambda one: one.key):
            rate = f"{answer.tokens_per_s_per_accelerator:g}" if answer.is_known else ""
            writer.writerow({**answer._asdict(), _RATE: rate}.values())


def read_answers(path: Path) -> tuple[str, list[Answer]]:
    """Return the tool's version and date, and its answers."""
    with path.open(encoding="utf-8", newline="") as file:
        tool = file.readline().removeprefix(_TOOL).strip()
        rows = list(csv.DictReader(file))
    answers = [
        Answer(
            model=row["model"],
            accelerator=row["accelerator"],
            precision=row["precision"],
            input_tokens=float(row["input_tokens"]),
            output_tokens=float(row["output_tokens"]),
            tpot_s=float(row["tpot_s"]),
            tokens_per_s_per_accelerator=float(row[_RATE] or math.nan),
            engine=row["engine"],
            layout=row["layout"],
            note=row["note"],
        )
        for row in rows
    ]
    return tool, answers


class Beside(NamedTuple):
    """One point of the frontier with both tools' choices over the best that was measured."""

    point: Point
    planner: float
    aiconfigurator: float
    """NaN where it has no answer."""


def beside(points: Sequence[Point], answers: Sequence[Answer]) -> list[Beside]:
    """Return every point with both ratios."""
    rates = {answer.key: answer.tokens_per_s_per_accelerator for answer in answers}
    return [
        Beside(point, point.ratio, rates.get(key_of(point), math.nan) / point.measured)
        for point in points
    ]


def class_of(point: Point) -> str:
    """Return accelerator and class of models, as the tables of the page name them."""
    return f"{point.accelerator}, {MIXTURE if point.is_mixture else DENSE}"


def beside_rows(pairs: Sequence[Beside]) -> list[tuple[str, ...]]:
    """Return both tools' ratios by accelerator and class of models, with how many points one has no answer to."""
    by_class: dict[tuple[bool, str], list[Beside]] = {}
    for pair in pairs:
        by_class.setdefault((pair.point.is_mixture, pair.point.accelerator), []).append(pair)
    return [_row(class_of(own[0].point), own) for _, own in sorted(by_class.items())]


def closer_to_measured(rows: Sequence[Sequence[str]]) -> str:
    """Return, in words, the rows in which the planner is closer at no more than half of the points."""
    names = [row[0] for row in rows if row[6] and int(row[6].rstrip("%")) <= 50]
    return "; ".join(names) or "none"


def _row(name: str, pairs: Sequence[Beside]) -> tuple[str, ...]:
    """Return one line of the table: medians and ranges of the points that both answer."""
    both = [pair for pair in pairs if not math.isnan(pair.aiconfigurator)]
    without = str(len(pairs) - len(both))
    if not both:
        return (name, "0", "", "", "", "", "", without)
    cells = []
    for ratios in ([pair.planner for pair in both], [pair.aiconfigurator for pair in both]):
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9)).tolist()
        cells += [f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
    closer = [abs(math.log(pair.planner)) < abs(math.log(pair.aiconfigurator)) for pair in both]
    return (name, str(len(both)), *cells, f"{np.mean(closer):.0%}", without)
