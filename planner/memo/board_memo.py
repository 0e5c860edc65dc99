"""The memo for the board: two pages of any output folder that decides something, as Markdown and as HTML."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from planner.answers import comparison_report, run_report, size_report, study_report
from planner.answers.futures import futures_section
from planner.answers.json_records import read_record
from planner.answers.manifests import Manifest
from planner.answers.ranking import ATTAINMENT, COST, Ranking, frontier, rank
from planner.answers.sensitivity_report import tornadoes
from planner.answers.sentences import (
    break_even_lines,
    inconclusive_lines,
    otherwise_words,
    past_mending_lines,
    recommendation,
    sweep_advice,
    target_words,
    verdict_line,
)
from planner.answers.study_results import StudyResults, statistics_of
from planner.answers.summaries import ComparisonSummary, RunSummary, SizingSummary
from planner.answers.sweep_report import frontier_picture, swept_points
from planner.answers.timelines import demand_chart
from planner.answers.verdicts import Estimate, PlanVerdict
from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.finance.accounts import CAPEX_ACCOUNTS, Account, View
from planner.finance.measure_names import HIGHER_IS_BETTER
from planner.memo.exposures import Exposure, Exposures, exposures_of
from planner.memo.memo_pages import markdown, memo_html
from planner.output.blocks import Block, Figure, Grid, Section, sentences
from planner.output.folder import SUMMARY, Contents, fitting, read_contents
from planner.output.svg import picture_of
from planner.output.tables import Table
from planner.output.words import (
    NOTHING,
    dollars,
    input_words,
    measured,
    percent,
    spoken,
    unit_price,
)
from planner.records import record

MARKDOWN = "memo.md"
PAGE = "memo.html"
PRESENT_COST = "net_present_cost_usd"
BOARD_FIGURES = {
    COST: "per million tokens, levelised",
    run_report.OUTPUT_COST: "per million generated tokens, levelised",
    "cost_per_million_tokens_usd": "per million tokens, accrued incl. capital charge",
    "pl_cost_usd": "P&L cost",
    "cost_usd": "accrued cost incl. capital charge",
    "capex_usd": "purchases",
    "cash_usd": "cash paid",
    "npv_usd": "net present value",
    PRESENT_COST: "net present cost",
    "resale_pv_usd": "of which resale of used hardware",
    run_report.COST_WITHOUT_RESALE: "per million tokens, levelised, without resale",
    ATTAINMENT: "SLO attainment",
}
"""The figures of a plan that a board asks for."""
MAX_ROWS = 6
"""Rows of a table, and sentences of a list, that leave the memo on two pages."""
NOT_MEASURED = (
    "No input was varied here. To rank the uncertain inputs of a study: planner sensitivity."
)
NO_EXPOSURES = "Risks were not simulated. That needs a run, comparison or sizing, and its scenario unchanged since."
MAX_RISKS = 3
"""Stresses that a board is shown: those that hurt most."""
SMALLEST_SWING_USD = 1000.0
"""Of net present cost, below which an assumed value is not worth a board's question; assumption."""
NO_ASSUMED_VALUE_MATTERS = (
    "Changed one at a time, no assumed value moves net present cost by $1,000 or more."
)
RUN_LEADS = {"MET": "Yes: the SLO target is met.", "MISSED": "No: the SLO target is missed."}
"""How the memo of a run begins, by its verdict."""


@record
class Decision:
    """What a folder decides, as the memo says it."""

    question: str
    answer: Sequence[str]
    chart: Figure | None
    target: Sequence[str]
    """The SLO target, and how the plan to take stands to it."""
    cost: Section
    alternatives: Section
    sensitivities: Sequence[str]
    orders: Sequence[str] = ()
    """On what signal to order, and by when."""
    risks: Sequence[str] = ()
    """Warnings and notes; what a plan's own tables say comes beside."""
    plan: str = ""
    """The plan to take, where the folder has several."""
    reconciliation: Sequence[tuple[str, str]] = ()
    """The lines from P&L cost to net present cost, of a run."""


def _part(
    heading: str,
    lines: Sequence[str] = (),
    header: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
) -> Section:
    """Return one heading of the memo: sentences, then a table where there is one."""
    blocks: list[Block] = [*sentences(lines)]
    if rows:
        blocks.append(Grid(caption=heading, header=header, rows=rows))
    return Section(key="memo", title=heading, blocks=blocks)


def _run_decision(contents: Contents) -> Decision:
    """Return whether a plan meets its SLO target, and what it costs."""
    summary = RunSummary.read(contents)
    verdict = summary.verdict
    span = f"over {summary.horizon_months} months from {summary.start}"
    lead = RUN_LEADS.get(verdict.status, "Not known: the SLO verdict is INCONCLUSIVE.")
    # The verdict itself stands under the SLO target: the answer takes what mends it.
    _, *remedy = run_report.verdict_lines(summary)
    comparison_hint = "This memo covers one plan. To run several under the same random numbers: `planner compare`."
    return Decision(
        question=f"Does the plan {contents.name} meet its SLO target {span}, and what does it cost?",
        answer=[f"{lead} {run_report.objective(summary)}", *remedy],
        chart=demand_chart(contents, verdict),
        target=[verdict_line(verdict), _runs_out(verdict)],
        cost=_cost_table("Cost", _measures(contents.tables["measures"])),
        alternatives=_part("Alternatives at equal service", [comparison_hint]),
        sensitivities=[NOT_MEASURED],
        risks=[*summary.warnings, *summary.notes],
        reconciliation=run_report.reconciliation_rows(summary),
    )


def _sweep_decision(contents: Contents) -> Decision:
    """Return the values that a sweep finds best."""
    manifest = Manifest.read(contents)
    points = [point.plan for point in swept_points(contents, manifest)]
    varied = " and ".join(map(input_words, manifest.vary))
    ranking = rank(points)
    rows = [
        (
            point.name,
            point.standing,
            percent(point.lowest_fraction, 2),
            unit_price(point.cost),
        )
        # The frontier runs from cheap to good service: the better end is what a board chooses from.
        for point in frontier(points)[-MAX_ROWS:]
    ]
    header = ("no other beats", "base case", "SLO lowest", BOARD_FIGURES[COST])
    sweep = contents.tables["sweep"]
    best = points.index(ranking.plans[0])
    # A point of a sweep is one replication, which has no interval.
    figures = {
        name: Estimate(value=sweep.numbers(name)[best], low=None, high=None)
        for name in BOARD_FIGURES
        if name in sweep
    }
    target = (
        f"Target: {target_words(manifest.slo_target)}. One replication is not enough for a verdict."
    )
    return Decision(
        question=f"Which values of {varied} are best for {contents.name}?",
        answer=[sweep_advice(ranking)],
        chart=frontier_picture(contents, manifest),
        target=[target],
        cost=_cost_table("Cost", figures),
        alternatives=_part("Cost against service", (), header, rows),
        sensitivities=[],
        risks=manifest.warnings,
    )


def _size_decision(contents: Contents) -> Decision:
    """Return what to buy, and when."""
    summary = SizingSummary.read(contents)
    target = target_words(summary.verdict)
    said = summary.sentences
    purchases = "for its nodes" if summary.is_confirmed else "for the nodes of the nearest plan"
    cost = (
        f"Net present cost {dollars(summary.net_present_cost_usd)}, of which {dollars(summary.capital_usd)} "
        f"{purchases}. "
        f"Mean utilisation {percent(summary.utilisation_fraction, 0)}."
    )
    return Decision(
        question=f"What should be bought for {contents.name}, and when, to attain {target} at least cost?",
        answer=said.answer,
        chart=size_report.frontier_picture(contents, summary),
        target=[
            verdict_line(summary.verdict),
            _runs_out(summary.verdict),
            *said.certainty,
        ],
        cost=_part("Cost", [cost]),
        alternatives=_part("Alternatives at equal service", said.alternatives[:MAX_ROWS]),
        orders=said.orders,
        sensitivities=[*said.sensitivities[:MAX_ROWS], NOT_MEASURED],
    )


def _comparison_decision(contents: Contents) -> Decision:
    """Return which of several plans to take."""
    summary = ComparisonSummary.read(contents)
    plans = comparison_report.compared_plans(summary)
    ranking = rank(plans)
    plan = ranking.plans[0].name
    verdict = summary.verdicts[plan]
    own_rows = contents.tables["comparison"].where("scenario", plan)
    figures = _measures(own_rows)
    lines = [
        *inconclusive_lines(ranking),
        *break_even_lines(summary.scenarios, summary.baseline),
    ]
    return Decision(
        question=f"Which of these plans should be taken: {', '.join(summary.scenarios)}?",
        answer=[recommendation(plans, summary)],
        chart=comparison_report.costs_picture(contents),
        target=[f"{plan}: {verdict_line(verdict)}", _runs_out(verdict)],
        cost=_cost_table(f"Cost of {plan}", figures),
        alternatives=_alternatives(ranking, COST, lines),
        sensitivities=[NOT_MEASURED],
        risks=[*summary.warnings, *summary.notes],
        plan=plan,
    )


def _study_decision(contents: Contents) -> Decision:
    """Return which plan to take, not knowing its inputs for certain."""
    study = StudyResults.read(contents)
    plan = study.ranking.plans[0].name
    inputs = contents.tables["uncertain"]
    choice = f"what result does {plan} give"
    if len(study.statistics) > 1:
        choice = f"which of {', '.join(study.statistics)} should be taken"
    percentiles = contents.tables["percentiles"]
    figures = {}
    for name in BOARD_FIGURES:
        statistics = statistics_of(percentiles, name)[plan]
        # A figure without meaning for the plan, such as a margin without a price, has no statistics.
        if "mean" in statistics:
            figures[name] = Estimate(
                value=statistics["mean"].value,
                low=statistics["p5"].value,
                high=statistics["p95"].value,
            )
    revenue = statistics_of(percentiles, "revenue_usd")[plan].get("mean")
    figures = _with_present_cost(figures, revenue)
    warnings = list(study.manifest.warnings)
    plan_warnings = contents.of_plan(plan).table("warnings")
    if plan_warnings is not None:
        warnings += plan_warnings.texts("text")
    return Decision(
        question=f"With {len(inputs)} uncertain inputs, {choice}?",
        answer=[study_report.advice(contents, study)],
        chart=study_report.spread_picture(contents, study),
        target=[
            f"{plan}: {verdict_line(study.verdicts[plan])}",
            _runs_out(study.verdicts[plan]),
        ],
        cost=_cost_table(
            f"Cost of {plan}", figures, average="mean", spread="nine in ten replications"
        ),
        alternatives=_alternatives(
            study.ranking, study.objective, inconclusive_lines(study.ranking)
        ),
        sensitivities=_sensitivities(study, plan),
        risks=warnings,
        plan=plan,
    )


@record
class _CapacityFindings:
    """When the forecast after actual months runs out of capacity, as its summary.json has it."""

    met_fraction: float
    status: str


@record
class _ActualsFindings:
    """What a memo reads of the summary of actual months."""

    months: list[str]
    horizon_months: int
    sentences: list[str]
    notes: list[str]
    not_explained: list[str]
    capacity_runs_out: _CapacityFindings | None


def _actuals_decision(contents: Contents) -> Decision:
    """Return how actual months stand to their plan, and how long the plan lasts now."""
    findings = read_record(_ActualsFindings, contents.summary, SUMMARY)
    variance = contents.tables["variance"]
    # All columns after the account are amounts; those that moved no account say nothing.
    amounts = [column for column in variance.columns if column != "account"]
    columns = [column for column in amounts if any(variance.totals(column))]
    header = [spoken(column.removesuffix("_usd")) for column in columns]
    rows = [
        (account.replace("_", " "), *map(dollars, cells))
        for account, *cells in variance.rows("account", totals=columns)
        if any(cells)
    ]
    capacity = findings.capacity_runs_out
    target = []
    if capacity is not None:
        target = [
            f"SLO {capacity.status} in the months to come: {percent(capacity.met_fraction, 0)} of replications meet "
            "the target."
        ]
    inputs = contents.tables["forecast_inputs"].rows("input", totals=["moved_usd"])
    by_size = sorted(inputs, key=lambda row: -abs(row[1]))
    moved = [f"{input_words(name)} {dollars(usd)}" for name, usd in by_size[:MAX_ROWS] if usd]
    sensitivities = []
    if moved:
        sensitivities = [
            f"These inputs changed the expected cost of the months to come: {'; '.join(moved)}."
        ]
    risks = [*findings.notes]
    if findings.not_explained:
        accounts = ", ".join(name.replace("_", " ") for name in findings.not_explained)
        risks.append(f"No uncertain input explains {accounts}; the plan itself needs correcting.")
    count = len(findings.months)
    return Decision(
        question=f"After {count} of {findings.horizon_months} months, how does {contents.name} compare with its plan?",
        answer=findings.sentences[:MAX_ROWS],
        chart=None,
        target=target,
        cost=_part("Budget against actual, USD", (), ("account", *header), rows),
        alternatives=_part(""),
        sensitivities=sensitivities,
        risks=risks,
    )


DECISIONS: Mapping[str, Callable[[Contents], Decision]] = {
    "run": _run_decision,
    "comparison": _comparison_decision,
    "sweep": _sweep_decision,
    "study": _study_decision,
    "size": _size_decision,
    "actuals": _actuals_decision,
}
"""What a folder decides, by its kind."""


def memo_sections(contents: Contents, folder: Path | None = None) -> list[Section]:
    """Return the memo of a folder that decides something; raise ScenarioError for others.

    With the ``folder`` itself, risks and assumed values are simulated where its scenario is still there.
    """
    if contents.kind not in DECISIONS:
        message = f"a folder of {contents.kind} has no decision to write a memo about"
        hint = "give the folder of a run, comparison, sweep, study, sizing or actual months"
        raise ScenarioError(Problem(message=message, hint=hint))
    decision = DECISIONS[contents.kind](contents)
    plan = decision.plan
    # Tables of several plans are read as the chosen plan's alone.
    of_plan = contents
    if plan in contents.plans:
        of_plan = contents.of_plan(plan)
    chart = []
    if decision.chart is not None:
        chart = [picture_of(decision.chart)]
    costs = run_report.workload_rows(of_plan)[:MAX_ROWS]
    exposures = None
    if folder is not None:
        exposures = exposures_of(contents, folder, plan)
    manifest = Manifest.read(contents)
    version = manifest.version or manifest.identity.version
    parts = [
        _part("Question", [decision.question]),
        Section(key="memo", title="Answer", blocks=[*sentences(decision.answer), *chart]),
        _part("SLO target", decision.target),
        decision.cost,
        _part("Reconciliation of cost", (), ("line", "USD"), decision.reconciliation),
        _accounts(contents, plan),
        _part("Cost of each workload, present value", (), run_report.WORKLOAD_COSTS, costs),
        _cash(contents, of_plan, plan),
        decision.alternatives,
        _part("When to order", decision.orders),
        _futures(contents),
        _part("Sensitivities", decision.sensitivities),
        _risks(exposures),
        _part("Remarks", [*dict.fromkeys(decision.risks)][:MAX_ROWS]),
        _assumptions(contents, exposures),
        _part("Reproduce", [f"{shlex.join(manifest.command)} (version {version})"]),
    ]
    # A heading with nothing under it says nothing to a board.
    return [part for part in parts if part.blocks]


def _alternatives(ranking: Ranking, objective: str, lines: Sequence[str]) -> Section:
    """Return the plans side by side, in the order in which they are recommended."""
    # A ranking turns figures of which more is better; a reader gets them as they are.
    sign = -1.0 if objective in HIGHER_IS_BETTER else 1.0
    rows = [
        (
            plan.name,
            plan.standing,
            percent(plan.slo_attainment_fraction, 2),
            measured(None if plan.cost is None else sign * plan.cost, objective),
        )
        for plan in ranking.plans[:MAX_ROWS]
    ]
    cautions = []
    if ranking.missed_plans:
        cautions = ["A plan that is MISSED is no alternative, whatever it costs."]
    header = ("plan", "SLO", "attained", spoken(objective))
    return _part("Alternatives at equal service", [*lines, *cautions], header, rows)


def _runs_out(verdict: PlanVerdict) -> str:
    """Say in which month a plan runs out of capacity for its SLO target."""
    required = f"{verdict.confidence * 100:.6g}% of replications"
    if verdict.long_prompts:
        return otherwise_words(verdict)
    past_mending = sum((verdict.past_mending or {}).values())
    mendable = verdict.replications - past_mending
    # Where too few replications could be mended, it is not capacity that runs out.
    if past_mending and mendable < verdict.confidence * verdict.replications:
        return " ".join(past_mending_lines({"": verdict}))
    month = verdict.first_missed_month
    if month:
        return f"Capacity runs out in {month}: from then on fewer than {required} meet the target."
    return f"Capacity lasts to the end of the horizon in at least {required}."


def _measures(table: Table) -> dict[str, Estimate]:
    """Return the board's figures of one plan, each with its interval where there is one."""
    rows = table.rows("measure", numbers=("value", "low", "high"))
    estimates = {
        name: Estimate(value=value, low=low, high=high)
        for name, value, low, high in rows
        if value is not None
    }
    figures = {name: estimates[name] for name in BOARD_FIGURES if name in estimates}
    return _with_present_cost(figures, estimates.get("revenue_usd"))


def _with_present_cost(
    figures: dict[str, Estimate], revenue: Estimate | None
) -> dict[str, Estimate]:
    """Return the figures with net present cost in place of value where a plan sells nothing."""
    value = figures.get("npv_usd")
    if value is None or (revenue is not None and revenue.value):
        return figures
    negated = [None if end is None else -end for end in (value.value, value.high, value.low)]
    cost = Estimate(value=negated[0], low=negated[1], high=negated[2])
    kept = {name: estimate for name, estimate in figures.items() if name != "npv_usd"}
    both = {**kept, PRESENT_COST: cost}
    return {name: both[name] for name in BOARD_FIGURES if name in both}


def _cost_table(
    heading: str,
    figures: Mapping[str, Estimate],
    average: str = "base case",
    spread: str = "in other replications",
) -> Section:
    """Return the board's figures of the plan to take, each with where it lies."""
    rows = []
    for name, estimate in figures.items():
        stated_ends = (estimate.low, estimate.high)
        ends = [measured(end, name) for end in stated_ends if end is not None]
        # Ends that read alike are said once.
        interval = " to ".join(dict.fromkeys(ends)) or NOTHING
        value = measured(estimate.value, name)
        rows.append((BOARD_FIGURES[name], value, interval))
    return _part(heading, (), ("figure", average, spread), rows)


def _accounts(contents: Contents, plan: str) -> Section:
    """Return the accounts that most of the difference to the baseline's net present cost lies in, and the rest."""
    bridge = contents.table("bridge_accounts")
    if not bridge:
        return _part("")
    compared = bridge.texts("scenario")
    # The baseline has no bridge to itself: then that of the first other plan is shown.
    plan = plan if plan in compared else compared[0]
    baseline = ComparisonSummary.read(contents).baseline
    sums = bridge.where("scenario", plan).summed("account", "difference_usd")
    total = sum(sums.values())
    # One row less than a table has, for all others together.
    by_size = [*comparison_report.largest_parts(sums).items()]
    largest = dict(by_size[: MAX_ROWS - 1])
    steps = {
        **largest,
        "all others": total - sum(largest.values()),
        "net present cost": total,
    }
    rows = [(name.replace("_", " "), dollars(amount)) for name, amount in steps.items()]
    return _part(f"{plan} less {baseline}, by account", (), ("account", "USD"), rows)


def _cash(contents: Contents, of_plan: Contents, plan: str) -> Section:
    """Return what is paid by year; of a sizing for its nodes alone."""
    heading = f"Cash by year, {plan}" if plan else "Cash by year"
    if contents.kind == "size":
        sums: dict[str, float] = defaultdict(float)
        orders = contents.tables["plan"].rows("date", totals=["capital_usd"])
        for date, usd in orders:
            sums[date[:4]] += usd
        lead = "Cash for nodes only, by year of order. For all cash: planner run policy.yaml."
        by_year = sorted(sums.items())
        rows = [(year, dollars(usd)) for year, usd in by_year]
        return _part(heading, [lead], ("year", "nodes"), rows)
    ledger = of_plan.table("ledger")
    if ledger is None:
        return _part(heading)
    years = cash_by_year(ledger)
    columns = list(next(iter(years.values()), {}))
    # Summed before the row joins the years.
    years["all"] = {name: sum(row[name] for row in years.values()) for name in columns}
    cells = []
    for year, row in years.items():
        amounts = [dollars(row[name]) for name in columns]
        cells.append((year, *amounts))
    scope = ["One replication, with inputs as stated."] if contents.kind == "study" else []
    return _part(heading, scope, ("year", *columns), cells)


def _sensitivities(study: StudyResults, plan: str) -> list[str]:
    """Say how far a plan's objective moves with the inputs that move it most."""
    # The plan's own tornado, not that of its difference to another.
    plan_tornadoes = [
        tornado
        for tornado in tornadoes(study.drivers)
        if (tornado.scenario, tornado.against) == (plan, "")
    ]
    if not plan_tornadoes:
        return []
    tornado = plan_tornadoes[0]
    longest = tornado.longest(MAX_ROWS - 1)
    swings = [
        f"{input_words(bar.input)}: {bar.span_words(study.objective)}"
        for bar in longest
        if bar.input not in tornado.noise
    ]
    if not swings:
        return [
            "No single input stands out from the sampling noise; more replications (-n) may show one."
        ]
    return [f"{tornado.title}, {spoken(study.objective)}: {'; '.join(swings)}."]


def _futures(contents: Contents) -> Section:
    """Return the plans in each future, where a comparison or a sizing ran any."""
    futures = futures_section(contents.table("futures"))
    blocks = [] if futures is None else futures.blocks
    return Section(key="memo", title="Futures", blocks=blocks)


def _risks(exposures: Exposures | None) -> Section:
    """Return the stresses that hurt the plan most, with what each costs in simulation."""
    if exposures is None:
        return _part("Risks", [NO_EXPOSURES])
    worst = exposures.stresses[:MAX_RISKS]
    rows = [(one.name, _added(one), _met(one)) for one in worst]
    lead = (
        "Each change was simulated by itself, in other replications than the result above. The changes that lower "
        "SLO attainment the most come first, then those that raise cost the most."
    )
    header = ("risk", "net present cost", "SLO target met")
    return _part("Risks", [lead], header, rows)


def _added(exposure: Exposure) -> str:
    """Return what a change adds to net present cost, with its sign."""
    sign = "+" if round(exposure.added_usd) > 0 else ""
    return f"{sign}{dollars(exposure.added_usd)}"


def _met(exposure: Exposure) -> str:
    """Return in how many replications the SLO target is met, and in how many as stated."""
    met = f"in {exposure.met_replications} of {exposure.replications} replications"
    return f"{met} (as stated: {exposure.met_as_stated})"


def _assumptions(contents: Contents, exposures: Exposures | None) -> Section:
    """Return how the inputs are known, and the assumed values that move the plan's cost most."""
    heading = "Assumptions"
    table = contents.table("assumptions")
    if table is None:
        return _part(heading)
    # Several plans of a folder share most of their inputs.
    all_rows = table.rows("path", "value", "unit", "grade")
    rows = list(dict.fromkeys(all_rows))
    counts = Counter(grade for *_, grade in rows)
    # Grades of the catalogue are single letters.
    grades = ", ".join(
        f"{number} {grade}" for grade, number in sorted(counts.items()) if len(grade) == 1
    )
    lead = (
        f"{counts['user']} values are stated and {counts['default']} are defaults. Catalogue values by grade: {grades} "
        "(A a datasheet or a log, B a credible report, C derived, D assumed)."
    )
    if exposures is None:
        return _part(heading, [lead])
    moving = [one for one in exposures.assumed if abs(one.added_usd) >= SMALLEST_SWING_USD]
    if not moving:
        return _part(heading, [lead, NO_ASSUMED_VALUE_MATTERS])
    table_rows = [(one.name, one.change, _added(one)) for one in moving[:MAX_ROWS]]
    ranked = "Assumed values of the plan, changed one at a time; those that move its cost most come first:"
    header = ("assumed", "changed", "net present cost")
    return _part(heading, [lead, ranked], header, table_rows)


def cash_by_year(ledger: Table) -> dict[str, dict[str, float]]:
    """Return cash paid by year: for purchases, running, received by sales and resale, and in all; USD."""
    years: dict[str, dict[str, float]] = {}
    rows = ledger.rows("month", "account", totals=["amount_usd"])
    for month, name, amount in rows:
        # A year without cash has a row of zeros.
        no_cash = {"purchases": 0.0, "running": 0.0, "received": 0.0, "paid in all": 0.0}
        row = years.setdefault(month[:4], no_cash)
        account = Account(name)
        if View.CASH in account.views:
            row[_cash_kind(account, amount)] += amount
            row["paid in all"] += amount
    return years


def _cash_kind(account: Account, amount: float) -> str:
    """Return the column of a cash amount: what is received is negative, as in the ledger."""
    if account in CAPEX_ACCOUNTS:
        return "purchases"
    # What customers still owe lowers income, and what is owed to suppliers lowers cost, whatever their signs.
    if account is Account.RECEIVABLES:
        return "received"
    if amount < 0 and account is not Account.PAYABLES:
        return "received"
    return "running"


def write_memo(folder: Path) -> list[Path]:
    """Write memo.md and memo.html of any output folder from the files in it, as ``planner memo`` does."""
    contents = read_contents(folder)
    title = f"{contents.name}: memo"
    with fitting(str(folder)):
        sections = memo_sections(contents, folder)
        text = markdown(title, sections).encode()
        files = {MARKDOWN: text, PAGE: memo_html(title, sections)}
    change_files(folder, files)
    return [folder / name for name in files]
