"""Every measure of a run, or of compared runs, with its definition."""

from __future__ import annotations

from collections.abc import Mapping

from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.html import details, join, paragraph, table
from planner.reporting.report.page import Section
from planner.reporting.report.words import NOTHING, measured
from planner.results.measure_names import AGAINST_BASELINE, DEFINITIONS, MEASURES

FORMULAS = DEFINITIONS | {measure.name: measure.formula for measure in (*MEASURES, *AGAINST_BASELINE)}
VIEWS = {measure.name: measure.view for measure in (*MEASURES, *AGAINST_BASELINE)}
KEY = (
    "v is the discount factor of the month. Accrual is the books, cash is money that changes hands, economic is cash "
    "and the value of what is still owned at the end."
)


def measures_section(contents: Contents) -> Section | None:
    """Return the measures, one row each, folded: what each plan comes to, and how that is defined."""
    by_plan = _by_plan(contents)
    names = list(dict.fromkeys(name for figures in by_plan.values() for name in figures))
    known = [name for name in names if any(figures.get(name) is not None for figures in by_plan.values())]
    if not known:
        return None
    rows = [
        (
            _words(name),
            *(measured(figures.get(name), name) for figures in by_plan.values()),
            FORMULAS.get(name, ""),
            VIEWS.get(name, ""),
        )
        for name in known
    ]
    header = ("measure", *by_plan, "definition", "view")
    body = [table(header, rows, "The measures", numeric=range(1, 1 + len(by_plan))), paragraph(KEY, class_="note")]
    missing = [_words(name) for name in names if name not in known]
    if missing:
        body.append(paragraph(f"Without meaning here: {', '.join(missing)}.", class_="note"))
    shown = details(f"All {len(known)} measures and how each is defined", *body, class_="roomy")
    return Section(key="answer", body=join([shown]))


def _by_plan(contents: Contents) -> Mapping[str, Mapping[str, float | None]]:
    """Return measures by plan, from measures.csv of a run or comparison.csv of several."""
    if (single := contents.table("measures")) is not None:
        return {"this plan": _pairs(single)}
    compared = contents.table("comparison")
    if compared is None:
        return {}
    return {plan: _pairs(compared.where("scenario", plan)) for plan in dict.fromkeys(compared.texts("scenario"))}


def _pairs(table: Table) -> dict[str, float | None]:
    return dict(zip(table.texts("measure"), table.numbers("value"), strict=True))


def _words(name: str) -> str:
    """Return a measure's name as words, its unit in the trade's spelling."""
    shown = name.removesuffix("_usd").removesuffix("_fraction").removesuffix("_ratio").replace("_", " ")
    for short in ("npv", "tco", "irr", "api", "capex"):
        shown = " ".join(word.upper() if word == short and short != "capex" else word for word in shown.split(" "))
    return shown or NOTHING
