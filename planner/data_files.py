"""Tables of data that lie beside the modules that read them."""

from __future__ import annotations

import csv
from pathlib import Path


def data_rows(module_file: str, name: str) -> list[dict[str, str]]:
    """Return the rows of the CSV file of a name in the folder of a module, by column."""
    with Path(module_file).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
