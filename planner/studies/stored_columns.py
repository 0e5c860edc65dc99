"""The columns in which replications are stored: one row per replication and scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.run.measure_names import FLEET
from planner.studies.headlines import HEADLINES
from planner.studies.replicate import Rows, Setup

if TYPE_CHECKING:
    import pyarrow as pa


WRITING: dict[str, Any] = {"use_dictionary": ["scenario", "error"]}
"""How columns are written: drawn numbers hardly ever repeat, and to look for it takes six times as long as to write."""


def month_column(name: str, cluster: str) -> str:
    """Return the column that holds a figure of the fleet or of a cluster by month."""
    return f"month:{name}" if cluster == FLEET else f"month:{name}@{cluster}"


def schema_of(setup: Setup, *, detailed: bool) -> pa.Schema:
    """Return the columns of the store, of rows that are kept with their months or of those beyond."""
    import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that only a study needs

    fields = [pa.field("replication", pa.int64()), pa.field("scenario", pa.string()), pa.field("chance", pa.int64())]
    fields += [pa.field(f"in:{name}", pa.float64()) for name in setup.inputs.names]
    fields += [pa.field(f"out:{output.name}", pa.float64()) for output in HEADLINES]
    for name, cluster in setup.monthly if detailed else ():
        # Clusters are many: half the digits of a float hold a percentile to the dollar.
        number = pa.float64() if cluster == FLEET else pa.float32()
        fields.append(pa.field(month_column(name, cluster), pa.list_(number, setup.months)))
    return pa.schema([*fields, pa.field("error", pa.string())])


def stored_bytes(setup: Setup, rows: int) -> int:
    """Return about what the first replications take on a disk: drawn numbers do not shrink, inputs stand once in all.

    Inputs are repeated for each scenario, which the compression of the file takes back.
    """
    numbers = len(HEADLINES) + 2
    by_month = sum(8 if cluster == FLEET else 4 for _, cluster in setup.monthly) * setup.months
    detailed = min(rows, setup.detailed_rows)
    return rows * 8 * (numbers * len(setup.scenarios) + len(setup.inputs)) + detailed * by_month * len(setup.scenarios)


def table_of(setup: Setup, batches: Sequence[Rows]) -> pa.Table:
    """Return batches as one table, one row per replication and scenario; all of them have months, or none."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    detailed = setup.is_detailed(batches[0].first)
    scenarios, schema = len(setup.scenarios), schema_of(setup, detailed=detailed)
    numbers = np.concatenate([np.arange(rows.first, rows.last) for rows in batches])
    inputs = np.concatenate([rows.inputs for rows in batches])
    headlines = np.concatenate([rows.headlines for rows in batches])
    monthly = np.concatenate([rows.monthly for rows in batches]) if detailed else np.empty(0)
    failed = {(row, scenario): message for rows in batches for row, scenario, message in rows.errors}
    messages: list[str | None] = [None] * (len(numbers) * scenarios)
    if failed:
        messages = [failed.get((row, which)) for row in numbers.tolist() for which in range(scenarios)]
    columns: list[Any] = [
        np.repeat(numbers, scenarios),
        [base.name for base in setup.scenarios] * len(numbers),
        np.repeat(np.concatenate([rows.chance for rows in batches]), scenarios),
        *(np.repeat(inputs[:, place], scenarios) for place in range(len(setup.inputs))),
        *(headlines[:, :, place].ravel() for place in range(len(HEADLINES))),
        *(
            pa.FixedSizeListArray.from_arrays(
                pa.array(monthly[:, :, place].ravel(), type=schema.field(month_column(*which)).type.value_type),
                setup.months,
            )
            for place, which in enumerate(setup.monthly if detailed else ())
        ),
        messages,
    ]
    return pa.table([pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema)
