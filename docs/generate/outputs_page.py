"""The page of what a run writes: files, columns, accounts."""

from __future__ import annotations

from docs.generate.markdown import code, page, table, text
from planner.finance.accounts import Account, View
from planner.output.actuals_folder import ACTUALS_TABLES
from planner.output.columns import reference_page
from planner.output.comparison import COMPARISON_TABLES
from planner.output.run_columns import RUN_TABLES, TABLES
from planner.output.size_rows import SIZE_TABLES
from planner.output.study_rows import STUDY_TABLES
from planner.output.sweep_table import sweep_description
from planner.output.zoom_folder import ZOOM_TABLES

_INTRODUCTION = """\
`planner run` writes a folder, `outputs/<name>/` unless `--out` says otherwise. It is written whole or not at all, and a
folder that the planner did not write is never overwritten. The same scenario, seed and version give the same bytes.

CSV files are UTF-8 with a header line, commas and decimal points; `--decimal-comma` and `--bom` suit other
spreadsheets. All money is in US dollars. `datapackage.json` describes every column (Frictionless Data Package)."""

_JSON = """\
## `summary.json`

The headline figures of the fleet and of each cluster over the whole horizon, under the names of `timeline_monthly.csv`.
`planner run --json` prints the same.

## `workbook.xlsx`

The run as finance works with it: summary, assumptions, statements by year, quarter and month, cohorts, depreciation,
timeline, accounts, ledger, events. Change a yellow cell of the assumptions (prices, discounts, lives, residuals, rents,
salaries, electricity, token prices, discount rate) and every sheet follows. Where the plan was drawn again: P10, P50
and P90 by month.

## `manifest.json`

What identifies a run: version, scenario and its SHA-256 (defaults included), `--set` overrides, seed, replication,
catalogue version, and the SHA-256 of every file. Two runs with the same manifest hold the same bytes."""

_COMPARE = """\
## Of `planner compare`

A folder of its own, `outputs/<names>/`, with the tables below, a `summary.json`, a `workbook.xlsx` of them and a
`manifest.json`. Beside them lie
`timeline_monthly.csv`, `timeline_workloads.csv`, `losses.csv`, `ledger.csv`, `events.csv` and `assumptions.csv` as of a
run, those of all scenarios on top of one another with `scenario` as first column, and `model_error.csv`."""

_SWEEP = """\
## Of `planner sweep`

A folder of its own, `outputs/<name>-sweep/`, with one table and `workbook.xlsx`. Its first columns are the keys
varied. Beside it lie `assumptions.csv` and `model_error.csv`, as of a comparison."""

_SIZE = """\
## Of `planner size`

A folder of its own, `outputs/<name>-size/`, with the tables below, `plan.yaml` (the scenario with what was chosen; it
runs as it is), `summary.json`, `report.html` and a `manifest.json`. Beside them lie `assumptions.csv` and
`model_error.csv`, as of a comparison."""

_STUDY = """\
## Of `planner montecarlo` and `planner sensitivity`

A folder of its own, `outputs/<name>/` or `outputs/<name>-<method>/`, with the tables below (for a method of
`planner sensitivity` only `percentiles.csv` and `decision.csv` of the rows in which no input is moved,
`sensitivity.csv` and `uncertain.csv`), charts, `datapackage.json`, `replications.parquet` with all of it in full
precision and the monthly figures of every replication, and a `manifest.json`. Of a study longer than its
`detailed_replications` it has those, and `replications_further.parquet` the others, with the same columns but those by
month; `monthly_bands.csv` and `sensitivity.csv` are then of the detailed ones, which `completed` counts, and `detailed`
in the manifest says how many they are. Every scenario is also run
once as stated: beside the study's tables lie those of a comparison, with `scenario` as first column, from
`timeline_monthly.csv` to `model_error.csv`."""

_ZOOM = """\
## Of `planner zoom`

A folder of its own, `outputs/<name>-zoom/`, with the tables below, `summary.json`, `report.html` and a
`manifest.json`."""

_ACTUALS = """\
## Of `planner actuals`

A folder of its own, `outputs/<name>-actuals/`, with the tables below, `summary.json`, `report.html` and a
`manifest.json`."""

_ACCOUNTS = """\
## Accounts

The accounts of `ledger.csv` and the views that count them: cash is money that changes hands, accrual the books
(`cost_usd` in the timeline), economic is cash plus the value of what is still owned at the end.
[Metrics and their formulas](metrics.md) defines every measure.

"""


def outputs_page() -> str:
    """Return the page of output files, their columns and the chart of accounts."""
    rows = [
        (code(account.value), text(account.description), *("yes" if view in account.views else "" for view in View))
        for account in Account
    ]
    views = [str(view.name).lower() for view in View]
    return page(
        "Output files",
        _INTRODUCTION,
        reference_page(RUN_TABLES),
        _JSON,
        _COMPARE,
        reference_page((*COMPARISON_TABLES.values(), TABLES["warnings"])),
        _SWEEP,
        reference_page([sweep_description(())]),
        _SIZE,
        reference_page(SIZE_TABLES.values()),
        _STUDY,
        reference_page(STUDY_TABLES.values()),
        _ZOOM,
        reference_page(ZOOM_TABLES.values()),
        _ACTUALS,
        reference_page(ACTUALS_TABLES.values()),
        _ACCOUNTS + table(("account", "what it holds", *views), rows),
    )
