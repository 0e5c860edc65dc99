"""Reads a probe's CSV back: the program only writes them, tests hold the shipped one against physics."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

from planner.calibration.probe import ProbeRow

NUMBERS = {"int | None": int, "float | None": float}


def read_rows(path: Path) -> list[ProbeRow]:
    """Return the rows; what is empty is None."""
    with path.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    rows = []
    for line in lines:
        cells: dict[str, Any] = {}
        for field in dataclasses.fields(ProbeRow):
            kind = NUMBERS.get(str(field.type), str)
            cells[field.name] = kind(line[field.name]) if line[field.name] else None
        rows.append(ProbeRow(**cells))
    return rows
