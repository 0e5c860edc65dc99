"""What the README says of the formula's accuracy: the rows of the validation page for the parts that its plan buys.

Below each row stands the same of AIConfigurator, on the points that both have an answer to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PARTS = ("H200", "MI325X", "B200")
"""Accelerators of the README's plan."""
KINDS = ("dense", "mixture-of-experts")
_ACCURACY = re.compile(
    r"(<!-- accuracy, written by make reference -->\n).*?(<!-- until here -->)", re.DOTALL
)


def with_accuracy(
    readme: str, rows: Sequence[Sequence[str]], beside: Sequence[Sequence[str]]
) -> str:
    """Return the README with what is chosen over the best measured, from two tables of the validation page."""
    by_name = {row[0]: row for row in rows}
    of_tool = {row[0]: row for row in beside}
    lines = [f"| models | {' | '.join(PARTS)} |", "| --- |" + " --- |" * len(PARTS)]
    for kind in KINDS:
        cells = []
        for part in PARTS:
            _, points, ratio, interval, *_ = by_name[f"{part}, {kind}"]
            cells.append(f"{ratio} ({interval}, {points} points)")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
        cells = []
        for part in PARTS:
            _, points, _, _, ratio, interval, *_ = of_tool[f"{part}, {kind}"]
            cells.append(f"{ratio} ({interval}, {points} points)" if ratio else "no data")
        lines.append(f"| {kind}, AIConfigurator | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return _ACCURACY.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", readme)
