"""Tables as CSV text: plain decimals, empty cells for what does not apply, one newline convention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.units import unit_of

_DECIMALS_BY_UNIT = {"USD": 2, "USD/million tokens": 6, "tokens": 0, "kWh": 3, "kW": 3, "h": 4, "fraction": 6}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[-+]?[0-9][0-9.]*([eE][-+]?[0-9]+)?")


def csv_text(columns: Mapping[str, Any]) -> str:
    """Write columns of equal length as CSV; the decimals of a number follow from the unit in its column's name."""
    cells = [_cells(name, values) for name, values in columns.items()]
    lines = [",".join(columns), *(",".join(row) for row in zip(*cells, strict=True))]
    return "\n".join(lines) + "\n"


def _cells(name: str, values: Any) -> list[str]:
    array = np.asarray(values)
    if array.dtype.kind == "f":
        decimals = _DECIMALS_BY_UNIT.get(unit_of(name) or "", 6)
        return ["" if np.isnan(x) else f"{x if round(x, decimals) else 0.0:.{decimals}f}" for x in array.tolist()]
    if array.dtype.kind in "iub":
        return [str(x) for x in array.tolist()]
    return [quote(str(x)) for x in values]


def quote(text: str) -> str:
    """Write one text cell: neutralise what a spreadsheet would run as a formula, quote what CSV would split."""
    if text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text):
        text = "'" + text
    if any(mark in text for mark in ',"\n\r'):
        text = '"' + text.replace('"', '""') + '"'
    return text
