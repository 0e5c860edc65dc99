"""The hourly model is held to the zoom: a few short cells here, all of them in ``make prove``."""

from __future__ import annotations

import pytest

from tests.requests.agreement import (
    SHARED_BEGIN,
    SHARED_END,
    Cell,
    SharedCell,
    cells,
    compare,
    compare_shared,
    hourly_missed,
    is_held,
    shared_cells,
    written,
)

SAMPLE = (
    Cell(work="chat", part="MI325X", load=0.9, minutes=1),
    Cell(work="chat", part="H200", load=0.6, dispersion=12.0, minutes=2),
    Cell(work="code-completion", part="H200", load=1.0, overload="queue", minutes=1),
    Cell(work="long-context", part="B200", load=0.3, minutes=2),
    Cell(work="chat", part="H200", load=1.2, minutes=2),
    Cell(work="chat", part="MI325X", load=0.9, layout="chosen chunk", minutes=1),
    Cell(work="code-completion", part="B200", load=0.9, layout="disaggregated", minutes=1),
    Cell(
        work="long-context",
        part="H200",
        load=0.7,
        layout="disaggregated",
        overload="queue",
        minutes=2,
    ),
)


@pytest.mark.parametrize("cell", SAMPLE, ids=str)
def test_the_hour_agrees_with_the_zoom(cell: Cell) -> None:
    assert compare(cell).agrees


@pytest.mark.parametrize(
    "cell",
    [
        SharedCell(work="chat", part="MI325X", load=0.9),
        SharedCell(work="code-completion", part="H200", load=0.65, minutes=1),
    ],
    ids=str,
)
def test_the_hour_agrees_with_the_zoom_about_shared_machines(cell: SharedCell) -> None:
    assert compare_shared(cell).agrees


@pytest.mark.parametrize(
    ("cell", "held"),
    [
        (Cell(work="chat", part="H200", load=0.95, dispersion=12.0, overload="queue", grown=10.0, minutes=20), 0.168),
        (Cell(work="long-context", part="MI325X", load=0.9, dispersion=6.0, overload="queue", grown=10.0, minutes=30),
         0.055),
        pytest.param(
            Cell(work="code-completion", part="H200", load=0.9, dispersion=60.0, grown=10.0, minutes=20), 0.053,
            marks=pytest.mark.prove,
        ),
    ],
    ids=str,
)  # fmt: skip
def test_bursts_of_grown_traffic_are_those_of_its_own_rate(cell: Cell, held: float) -> None:
    """Within half a point of the zoom; with bursts as large beside the mean as on day one it was at what was held."""
    both = compare(cell)
    assert both.hourly == pytest.approx(both.zoomed, abs=0.006)
    assert both.hourly < 0.25 * held
    assert both.hourly == pytest.approx(hourly_missed(cell), abs=0.003)


def test_the_page_shows_every_cell_as_the_hour_has_it_now() -> None:
    """All agree that must; whoever changes fleet or throughput runs `make prove` for what the zoom then says."""
    shown_rows = [
        [part.strip() for part in line.split("|")[1:-1]] for line in written().splitlines()
    ]
    rows = [row for row in shown_rows if len(row) == 12 and row[5] in ("reject", "queue")]
    every = list(cells())
    assert len(rows) == len(every) >= 60
    assert {row[9] for row, cell in zip(rows, every, strict=True) if is_held(cell)} == {"yes"}
    for row, cell in zip(rows, every, strict=True):
        assert (row[0], row[1], row[2], row[5]) == (
            cell.work,
            cell.part,
            cell.layout,
            cell.overload,
        )
        shown = float(row[8].rstrip("%")) / 100
        assert hourly_missed(cell) == pytest.approx(shown, abs=max(0.003, 0.1 * shown)), cell


def test_the_page_shows_every_cell_of_shared_machines() -> None:
    """Three parts, two mixes, three loads, and all of them agree."""
    shown_rows = [
        [part.strip() for part in line.split("|")[1:-1]]
        for line in written(SHARED_BEGIN, SHARED_END).splitlines()
    ]
    rows = [row for row in shown_rows if len(row) == 9 and row[8] in ("yes", "no")]
    assert [row[:3] for row in rows] == [
        [cell.work, cell.part, f"{cell.load:.0%}"] for cell in shared_cells()
    ]
    assert {row[8] for row in rows} == {"yes"}
