"""The hourly model is held to the zoom: a few short cells here, all of them among the proofs."""

from __future__ import annotations

import pytest

from tests.simulation.zoom.agreement import PARTS, WORK, Cell, capacity_ratio, cells, compare

SAMPLE = (
    Cell(work="chat", part="MI325X", load=0.9, minutes=1),
    Cell(work="chat", part="H200", load=0.6, dispersion=12.0, minutes=2),
    Cell(work="code-completion", part="H200", load=1.0, overload="queue", minutes=1),
    Cell(work="long-context", part="B200", load=0.3, minutes=2),
)


@pytest.mark.parametrize("cell", SAMPLE, ids=str)
def test_the_hour_agrees_with_the_zoom(cell: Cell) -> None:
    assert compare(cell).agrees


@pytest.mark.prove
def test_the_hour_agrees_with_the_zoom_wherever_it_does_not_overflow() -> None:
    rows = [compare(cell) for cell in cells() if cell.load <= 1.0]
    assert [row for row in rows if not row.agrees] == []
    every = rows + [compare(cell) for cell in cells() if cell.load > 1.0 and cell.overload == "queue"]
    for work in WORK:
        for part in PARTS:
            assert 0.75 < capacity_ratio(every, work, part) < 1.35
