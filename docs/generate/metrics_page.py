"""The page of every metric: what it is called, how it follows from a run, what it says."""

from __future__ import annotations

from collections.abc import Iterable

from docs.generate.markdown import code, page, table, text
from planner.finance.bridge import CAUSE_MEANINGS
from planner.output.columns import ColumnKind, TableDescription
from planner.output.run_columns import TABLES
from planner.output.study_rows import STUDY_TABLES
from planner.run.measure_names import AGAINST_BASELINE, DEFINITIONS, MEASURES, SERVICE, MeasureDescription
from planner.studies.headlines import HEADLINES, MONTHLY, Output
from planner.units import unit_of

_INTRODUCTION = """\
Every figure that the planner computes, with its formula, from the place in the code that defines it. The names are
those of the output files; [Output files](outputs.md) says which file has which.

Σ is a sum over the months of the run, m the months since its start, r the discount rate a year and
v = (1 + r)^(−m/12). Cost is that of the view named: accrual is the books, cash is money that changes hands, economic is
cash plus the value of what is still owned on the last day. [How money is counted](../explanation/finance.md) derives
all of them. A metric that has no meaning for a run (a margin without a price, a cost per token without tokens) is
empty, never zero."""

_MEASURES = "In `measures.csv` and `summary.json` of a run; in `comparison.csv` and `sweep.csv` for each plan."
_SERVICE = (
    "How a plan served: what a cost per token must be read with. In `comparison.csv`, `sweep.csv` and `samples.csv`."
)
_BASELINE = "In `comparison.csv`, of each plan against the baseline, at the baseline's discount rate."
_CAUSES = """\
In `bridge.csv`. What an accelerator-hour on site costs over what it yields is the cost of a token; a cause's part is
what switching its factors from the baseline's to the plan's adds, averaged over all orders of switching
([Bridges](../explanation/finance.md#bridges))."""
_STUDY = """\
What a study keeps of each run, in `samples.csv`; a study's `headline` is one of them. Statistics of each over the
replications are in `percentiles.csv`; what drives it, and how that is measured, is in [How uncertainty is
treated](../explanation/uncertainty.md#what-drives-the-answer)."""
_STUDY_MONTHLY = "By month, in `monthly_bands.csv`."
_DECISION = """\
In `decision.csv`. Two plans are held against each other on the study's headline, in the same future: the same drawn
inputs and the same chance."""
_TABLES = {
    "timeline_monthly": "By month and cluster",
    "timeline_workloads": "By month and workload",
    "timeline_daily": "By day and cluster",
    "losses": "Where node-hours went",
}


def metrics_page() -> str:
    """Return the page of every metric with its formula."""
    service = [(code(name), text(unit_of(name) or ""), text(DEFINITIONS[name])) for name in SERVICE]
    causes = [(code(cause), text(meaning)) for cause, meaning in CAUSE_MEANINGS.items()]
    return page(
        "Metrics and their formulas",
        _INTRODUCTION,
        f"## Of a run\n\n{_MEASURES}\n\n{_measures(MEASURES)}",
        f"## How a plan served\n\n{_SERVICE}\n\n{table(('metric', 'unit', 'formula'), service)}",
        f"## Against a baseline\n\n{_BASELINE}\n\n{_measures(AGAINST_BASELINE)}",
        f"## Causes of a difference\n\n{_CAUSES}\n\n{table(('cause', 'what it holds'), causes)}",
        *(_columns(TABLES[name], title) for name, title in _TABLES.items()),
        f"## Of a study\n\n{_STUDY}\n\n{_outputs(HEADLINES)}\n\n{_STUDY_MONTHLY}\n\n{_outputs(MONTHLY)}",
        _columns(STUDY_TABLES["decision"], "Between two plans of a study", _DECISION),
    )


def _measures(described: Iterable[MeasureDescription]) -> str:
    """Lay out measures with formula, view and meaning."""
    rows = [
        (code(measure.name), text(unit_of(measure.name) or ""), text(measure.formula), measure.view, measure.meaning)
        for measure in described
    ]
    return table(("metric", "unit", "formula", "view", "what it says"), rows)


def _outputs(described: Iterable[Output]) -> str:
    """Lay out a study's figures with the way in which they are better."""
    rows = [
        (code(output.name), text(output.unit), output.description, "lower" if output.lower_is_better else "higher")
        for output in described
    ]
    return table(("metric", "unit", "what it says", "better"), rows)


def _columns(described: TableDescription, title: str, introduction: str = "") -> str:
    """Lay out the figures among a file's columns."""
    figures = (ColumnKind.DECIMAL, ColumnKind.INTEGER, ColumnKind.CENTS)
    rows = [
        (code(column.name), text(column.unit), column.description)
        for column in described.columns
        if column.kind in figures
    ]
    introduction = introduction or f"In `{described.name}.csv`. {described.description}"
    return f"## {title}\n\n{introduction}\n\n{table(('metric', 'unit', 'formula'), rows)}"
