"""The columns in which replications are stored: one row per replication and scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from planner.studies.headlines import HEADLINES, MONTHLY
from planner.studies.replicate import Rows, Setup

if TYPE_CHECKING:
    import pyarrow as pa


def schema_of(setup: Setup) -> pa.Schema:
    """Return the columns of the store."""
    import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that only a study needs

    fields = [pa.field("replication", pa.int64()), pa.field("scenario", pa.string()), pa.field("chance", pa.int64())]
    fields += [pa.field(f"in:{name}", pa.float64()) for name in setup.inputs.names]
    fields += [pa.field(f"out:{output.name}", pa.float64()) for output in HEADLINES]
    fields += [pa.field(f"month:{output.name}", pa.list_(pa.float64(), setup.months)) for output in MONTHLY]
    return pa.schema([*fields, pa.field("error", pa.string())])


def table_of(setup: Setup, rows: Rows) -> pa.Table:
    """Return a batch as a table: one row per replication and scenario."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    count, scenarios = len(rows.chance), len(setup.scenarios)
    messages: list[str | None] = [None] * (count * scenarios)
    for row, scenario, message in rows.errors:
        messages[(row - rows.first) * scenarios + scenario] = message
    columns: list[Any] = [
        np.repeat(np.arange(rows.first, rows.last), scenarios),
        [base.name for base in setup.scenarios] * count,
        np.repeat(rows.chance, scenarios),
        *(np.repeat(rows.inputs[:, place], scenarios) for place in range(len(setup.inputs))),
        *(rows.headlines[:, :, place].ravel() for place in range(len(HEADLINES))),
        *(
            pa.FixedSizeListArray.from_arrays(pa.array(rows.monthly[:, :, place].ravel()), setup.months)
            for place in range(len(MONTHLY))
        ),
        messages,
    ]
    schema = schema_of(setup)
    return pa.table([pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema)
