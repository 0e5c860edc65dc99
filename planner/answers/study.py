"""A study as an answer: its tables, its summary, what the terminal says of it, and its folder."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers import judgement
from planner.answers.answer import Answer
from planner.answers.charts import study_pictures
from planner.answers.plan_workbooks import BANDS_SHEET, bands_page, plain_pages, statements_page, statistics_page
from planner.answers.report import build_report
from planner.answers.run import evidence_tables, plan_tables
from planner.answers.tables import tables_of
from planner.arrays import Floats
from planner.errors import PlannerError, printable
from planner.output.folder import REPORT, WORKBOOK, Contents, command_line, openable
from planner.output.tables import (
    DEFAULT_FORMAT,
    SCHEMA_VERSION,
    CsvFormat,
    Table,
    TableDescription,
    WrittenTable,
    csv_files,
    number_column,
    text_column,
    write_csv,
)
from planner.output.terminal import text_table, wrapped
from planner.output.workbook import write_tables
from planner.run.simulate import RunResult, simulate
from planner.scenario.scenario import Scenario
from planner.scenario.study import Prior, Study
from planner.studies.analysis import MOST_DROPPED, Finished, Statistic, first_broken_month, study_manifest
from planner.studies.decision import (
    IntervalEstimate,
    PairwiseDecision,
    SloStanding,
    decisions,
    mean_estimate,
    sound_rows,
)
from planner.studies.designs import Morris, OneAtATime, Saltelli
from planner.studies.distributions import is_numeric, quantile, value_of
from planner.studies.inputs import UncertainInput, UncertainInputs, far_ends
from planner.studies.prepare import Prepared
from planner.studies.replicate import HEADLINES, MONTHLY, headline_names
from planner.studies.runner import Goal
from planner.studies.sensitivity import Driver, measures
from planner.studies.store import Store
from planner.units import unit_of

USUAL_SAMPLES = 100_000
"""Rows that samples.csv has at most unless it is asked for: a spreadsheet takes a million, and writing them takes
longer than all statistics."""
STUDY_TABLES = tables_of(
    "study",
    {"samples": [number_column(out.name, out.description, out.decimals, out.unit) for out in HEADLINES]},
    monthly=", ".join(output.name for output in MONTHLY),
)
"""Every CSV file of a study by its name, in the order of the reference."""
_SAMPLE_ROWS = 8_000
"""Rows of samples.csv written at once: some tens of megabytes of memory."""
_BINS = 60
_DRIVERS = 5
_DECIDED = ("probability_better", "mean_difference", "mean_regret")
_PROBABILITIES = np.array([0.1, 0.5, 0.9])
_MODEL_ERROR = ("the throughput model's own error, from its calibration", "", "C")


def samples_table(inputs: UncertainInputs) -> TableDescription:
    """Return the description of samples.csv with a study's own input columns."""
    drawn = [
        number_column(
            one.name,
            "Input drawn: a factor on what is stated." if one.times_stated else "Input drawn.",
            9,
            unit_of(one.name.rpartition(".")[2]) or "",
        )
        if is_numeric(one.distribution)
        else text_column(one.name, "Input drawn.")
        for one in inputs.entries
    ]
    samples = STUDY_TABLES["samples"]
    return replace(samples, columns=(*samples.columns[:2], *drawn, *samples.columns[2:]))


def statistics_rows(statistics: Iterable[Statistic]) -> Table:
    """Return percentiles.csv."""
    return STUDY_TABLES["percentiles"].of_rows(
        (row.scenario, row.output, row.statistic, *_ends(row.estimate), row.estimate.completed) for row in statistics
    )


def _ends(estimate: IntervalEstimate) -> tuple[float, float, float]:
    """Return a figure and its interval."""
    return estimate.value, estimate.low, estimate.high


def _share(estimate: IntervalEstimate) -> tuple[float, float, float]:
    """Return a share and its interval, which ends at none and all."""
    return estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0)


def decision_rows(comparisons: Iterable[PairwiseDecision]) -> Table:
    """Return decision.csv."""
    return STUDY_TABLES["decision"].of_rows(
        (
            row.scenario,
            row.against,
            *_share(row.probability_better),
            *_ends(row.mean_difference),
            row.mean_regret.value,
            row.p95_regret.value,
            row.mean_difference.completed,
        )
        for row in comparisons
    )


def promise_rows(prepared: Prepared, standings: Iterable[SloStanding]) -> Table:
    """Return promise.csv."""

    def row(scenario: Scenario, standing: SloStanding) -> tuple[Any, ...]:
        promise, yes = scenario.promise, {True: "yes", False: "no"}
        stated = (promise.in_time, promise.each, promise.of, promise.in_replications, yes[scenario.states("promise")])
        kept = (yes[standing.keeps_promise], *_share(standing.kept_fraction), standing.shortfall_fraction)
        first = first_broken_month(prepared, standing) or ""
        completed = standing.kept_fraction.completed
        return (standing.scenario, *stated, *kept, first, *_share(standing.best_fraction), completed)

    scenarios = [base.scenario for base in prepared.scenarios]
    return STUDY_TABLES["promise"].of_rows(map(row, scenarios, standings))


def driver_rows(drivers: Iterable[Driver], completed: int) -> Table:
    """Return sensitivity.csv; ``completed`` replications, with every scenario run, stand behind it."""
    return STUDY_TABLES["sensitivity"].of_rows((*driver, completed) for driver in drivers)


def completed_rows(headline: Floats) -> int:
    """Return the rows in which every scenario could be run."""
    return int(sound_rows(headline).sum())


def distribution_rows(headline: Floats, names: Sequence[str]) -> Table:
    """Return distribution.csv: one scale for all scenarios, so that they can be held against each other."""
    known = np.empty(len(names) * len(headline[0]))
    count = 0
    for which in range(len(names)):  # one scenario at a time in memory besides all of them together
        runs = _runs(headline[which])
        known[count : count + runs.size] = runs
        count += runs.size
    low, high = np.percentile(known[:count], [0.2, 99.8], overwrite_input=True) if count else (0.0, 1.0)
    del known
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    rows: list[tuple[Any, ...]] = []
    for which, name in enumerate(names):
        runs = _runs(headline[which])
        cells = zip(edges[:-1].tolist(), edges[1:].tolist(), np.histogram(runs, edges)[0].tolist(), strict=True)
        rows += [(name, *cell, runs.size) for cell in cells]
    return STUDY_TABLES["distribution"].of_rows(rows)


def _runs(rows: Floats) -> Floats:
    """Return the rows that could be run."""
    return rows[np.isfinite(rows)]


def uncertain_rows(prepared: Prepared) -> Table:
    """Return uncertain.csv."""
    far = far_ends(prepared.study, {base.name: base for base in prepared.scenarios}, prepared.inputs)

    def row(uncertain: UncertainInput) -> tuple[str, ...]:
        drawn = quantile(uncertain.distribution, _PROBABILITIES).tolist()
        shown = [value_of(uncertain.distribution, draw) for draw in drawn]
        cells = [f"{cell:.6g}" if is_numeric(uncertain.distribution) else str(cell) for cell in shown]
        is_factor = uncertain.times_stated or uncertain.throughput_of is not None
        unit = "factor" if is_factor else unit_of(uncertain.name.rpartition(".")[2]) or ""
        source = _MODEL_ERROR if uncertain.throughput_of is not None else _source(prepared, uncertain.name)
        return (uncertain.name, uncertain.distribution.kind, *cells, unit, *source, far.get(uncertain.name, ""))

    return STUDY_TABLES["uncertain"].of_rows(map(row, prepared.inputs.entries))


def _source(prepared: Prepared, name: str) -> tuple[str, str, str]:
    """Return source, date and grade: the catalogue's for a prior, file and line for what the study states itself."""
    written = prepared.study.uncertain[name]
    if isinstance(written, Prior):
        catalog = prepared.scenarios[0].scenario.load_catalog()
        prior = catalog.prior(written.prior)
        return (*catalog.provenance(prior), prior.grade)
    place = prepared.study.document.locate(("uncertain", name))
    line = f":{place.line}" if place is not None and place.line is not None else ""
    return f"{Path(study_file(prepared.study)).name}{line}", "", "user"


def study_file(study: Study) -> str:
    """Return the file that a study was read from, as it was named."""
    place = study.document.locate(())
    return place.file if place is not None else f"{study.name}.yaml"


def study_summary(finished: Finished) -> dict[str, Any]:
    """Return a study's headline statistics, decisions, drivers and failures as plain data."""
    headline, names = finished.prepared.headline.name, finished.prepared.names
    statistics: dict[str, dict[str, Any]] = {name: {} for name in names}
    service: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for row in finished.statistics((headline, judgement.IN_TIME, judgement.SHED)):
        if row.output == headline:
            statistics[row.scenario][row.statistic] = _figure(row.estimate)
        if row.output in (judgement.IN_TIME, judgement.SHED) and row.statistic == "mean":
            service[row.scenario][row.output] = _known(row.estimate.value)
    drivers = list(finished.drivers())
    return {
        "schema_version": SCHEMA_VERSION,
        "study": finished.prepared.study.name,
        "replications": finished.rows,
        "completed": completed_rows(finished.by_scenario(headline)),
        "headline": headline,
        "scenarios": statistics,
        "service": service,
        "promise": {
            standing.scenario: {
                **base.scenario.promise.model_dump(),
                "stated": base.scenario.states("promise"),
                "kept": standing.keeps_promise,
                "kept_fraction": _figure(standing.kept_fraction),
                "shortfall_fraction": _known(standing.shortfall_fraction),
                "first_broken_month": first_broken_month(finished.prepared, standing),
                "best_fraction": _figure(standing.best_fraction),
            }
            for base, standing in zip(finished.prepared.scenarios, finished.standings(), strict=True)
        },
        "decisions": [
            {"scenario": decision.scenario, "against": decision.against}
            | {name: _figure(getattr(decision, name)) for name in _DECIDED}
            for decision in finished.decisions()
        ],
        "drivers": _top(drivers, names[0]),
        "flips": [
            {"input": one.input, "against": one.against, "threshold": one.value}
            for one in drivers
            if one.method == "flip"
        ],
        "information": [
            {"input": one.input, "measure": one.measure, "value": one.value}
            for one in drivers
            if one.method == "information"
        ],
        "warnings": list(finished.prepared.warnings),
        "failures": [
            {"replication": row, "scenario": scenario, "error": message}
            for row, scenario, message in finished.failures()
        ],
        "dropped": finished.dropped(),
    }


def _figure(estimate: IntervalEstimate) -> dict[str, float | None]:
    return {name: _known(getattr(estimate, name)) for name in ("value", "low", "high")}


def _known(number: float) -> float | None:
    return float(number) + 0.0 if math.isfinite(number) else None  # −0 is 0


def _top(drivers: Sequence[Driver], scenario: str) -> list[dict[str, Any]]:
    """Return the inputs that explain most of the first scenario's variance, with the ends of their bars."""
    ranked = [driver for driver in drivers if driver.scenario == scenario and not driver.against]
    told = {(d.measure, d.input): d.value for d in ranked if d.method == "variance-share"}
    bars = [driver for driver in ranked if driver.method == "conditional-mean"]
    return [
        {
            "input": bar.input,
            "variance_share": told["first_order", bar.input],
            "noise_share": told["noise_level", bar.input],
            "low": bar.low,
            "high": bar.high,
        }
        for bar in sorted(bars, key=lambda bar: (told["first_order", bar.input], bar.value), reverse=True)[:_DRIVERS]
    ]


def study_table(summary: Mapping[str, Any]) -> str:
    """Lay out a study for a terminal: what keeps its promise, by the headline, then what does not, by how far."""
    headline, rows, spreads = summary["headline"], [], []
    figures_of = {
        name: {**service, headline: summary["scenarios"][name]["mean"]["value"]}
        for name, service in summary["service"].items()
    }
    choice = judgement.choose(judgement.plans_of(figures_of, summary["promise"], headline))
    for plan in choice.ranked:
        figures, promise = summary["scenarios"][plan.name], summary["promise"][plan.name]
        kept, mean = promise["kept_fraction"], _number(figures["mean"]["value"])
        in_time = "" if plan.in_time_fraction is None else f"{plan.in_time_fraction:.2%}"
        shares = (_percent(kept["value"]), _percent(_half(kept)), in_time)
        rows.append((plan.name, plan.standing, *shares, mean, _percent(promise["best_fraction"]["value"])))
        cells = (_number(figures[which]["value"]) for which in ("p5", "p10", "p50", "p90", "p95"))
        spreads.append((plan.name, mean, _number(_half(figures["mean"])), *cells))
    over = f"{summary['replications']:,} replications"
    if summary["completed"] < summary["replications"]:
        over += f", of which {summary['completed']:,} could be run in every scenario"
    lines = [
        *wrapped([*judgement.much_shed(choice.ranked), *judgement.promise_lines(summary["promise"])]),
        f"{headline} over {over}",
        "",
        text_table(("scenario", "promise", "P(kept)", "±95%", "in time", "mean", "P(best)"), rows),
        "",
        text_table(("scenario", "mean", "±95%", "P5", "P10", "P50", "P90", "P95"), spreads),
        "",
        *_sentences(summary, choice),
    ]
    return "\n".join(lines).rstrip()


def _half(figure: Mapping[str, float | None]) -> float | None:
    """Return half the interval about a figure."""
    value, low = figure["value"], figure["low"]
    return None if value is None or low is None else value - low


def _sentences(summary: Mapping[str, Any], choice: judgement.Choice) -> list[str]:
    """Say in words what the table does not show."""
    lines, first = [], next(iter(summary["scenarios"]))
    if summary["drivers"]:
        clear = [row for row in summary["drivers"] if row["variance_share"] > row["noise_share"]]
        noise = max(row["noise_share"] for row in summary["drivers"])
        parts = [f"{row['input']} {row['variance_share']:.0%}" for row in clear] or ["no input"]
        about = f", above the {noise:.0%} that chance shows" if clear else f" stands out from the {noise:.0%} of chance"
        lines.append(f"share of the variance of {first}: " + ", ".join(parts) + about)
    lines += [
        f"{first} and {row['against']} change places where {row['input']} passes {row['threshold']:.4g}"
        for row in summary["flips"][:_DRIVERS]
    ]
    lines += information_lines([(row["input"], row["measure"], row["value"]) for row in summary["information"]])
    kept = {name: promise["kept_fraction"] for name, promise in summary["promise"].items()}
    open_still = judgement.undecided(
        summary["promise"], {name: (share["low"], share["high"]) for name, share in kept.items()}
    )
    lines += judgement.warnings_of(choice, open_still) if choice.best else [judgement.none_keeps(choice)]
    return wrapped([*lines, *judgement.undecided_lines(open_still), *summary["dropped"]])


def driver_table(prepared: Prepared, drivers: Sequence[Driver]) -> str:
    """Lay out what drives the first scenario, and its difference to the others, largest first."""
    order, first = ("swing", "mu_star", "total", "threshold"), prepared.names[0]
    lines: list[str] = []
    for against in dict.fromkeys(driver.against for driver in drivers):
        shown = [d for d in drivers if d.against == against and d.scenario == first and d.measure in order]
        shown.sort(key=lambda driver: (order.index(driver.measure), -abs(driver.value)))
        rows = [(d.input, d.method, d.measure, *(_number(_known(n)) for n in (d.value, d.low, d.high))) for d in shown]
        title = f"{first} less {against}" if against else first
        header = ("input", "method", "measure", "value", "low", "high")
        lines += [f"{title}: {prepared.headline.name}", "", text_table(header, rows), ""]
    told = information_lines([(d.input, d.measure, d.value) for d in drivers if d.method == "information"])
    if not told and len(prepared.names) > 1 and any(drawn.throughput_of for drawn in prepared.inputs.entries):
        told = ["what a measurement would be worth: planner montecarlo, then planner sensitivity --method importance"]
    return "\n".join([*lines, *wrapped(told)]).rstrip()


def information_lines(rows: Sequence[tuple[str, str, float]]) -> list[str]:
    """Say which measurement is worth what before the choice; ``rows`` are pair, measure and worth, largest first."""
    if not rows:
        return []
    told = [
        f"{name.removeprefix('throughput.')} {_number(worth)}{' USD' if measure == 'worth_usd' else ''}"
        for name, measure, worth in rows[:_DRIVERS]
        if worth > 0.0
    ]
    if not told:
        return ["knowing any one pair's throughput beforehand would not change the choice"]
    return ["worth of measuring a pair's throughput before the choice: " + ", ".join(told)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def study_remarks(finished: Finished, goal: Goal) -> Iterator[str]:
    """Yield how narrow an interval became, what is not of all replications, and which of them could not be run.

    A study without any is refused.
    """
    if goal.until is not None:
        reached = goal.until.width(finished.interval(goal))
        width = "is not known" if math.isnan(reached) else f"is ±{reached:.2%}"  # too few rows
        more = "" if reached <= goal.until.share else "; extend with --resume and more"
        yield f"the interval of {goal.until.words()} {width} after {finished.rows:,} replications{more}"
    if finished.detailed < finished.rows:
        yield f"fans by month and what drives the headline are of the first {finished.detailed:,} replications"
    if finished.dropped_share() > MOST_DROPPED:
        yield from (f"warning: {printable(line)}" for line in finished.dropped())
    if finished.is_void():
        raise PlannerError(f"every run failed, the first with: {finished.failures()[0].message}")


def study_command(verb: str, prepared: Prepared, asked: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the command that makes the same study again, whatever it was resumed from and whoever ran it."""
    return command_line(verb, [study_file(prepared.study)], [*asked, "--seed", str(prepared.seed)], overrides)


def write_study(
    finished: Finished,
    form: CsvFormat = DEFAULT_FORMAT,
    *,
    charts: bool = True,
    samples: bool | None = None,
    command: Sequence[str] = (),
) -> None:
    """Write a finished study's tables, data dictionary, charts and manifest beside its stored replications.

    ``samples`` says whether samples.csv is among them; unless it does, that is while it is no longer than usual.
    """
    prepared, names = finished.prepared, finished.prepared.names
    headline = finished.by_scenario(prepared.headline.name)
    measured = finished.output(prepared.headline.name, finished.detailed).T
    tables = [
        statistics_rows(finished.statistics()),
        STUDY_TABLES["monthly_bands"].of_rows(
            (*of_month, *percentiles, completed) for *of_month, percentiles, completed in finished.bands()
        ),
        promise_rows(prepared, finished.standings()),
        decision_rows(finished.decisions()),
        driver_rows(finished.drivers(), completed_rows(measured)),
        distribution_rows(headline, names),
        STUDY_TABLES["convergence"].of_rows(
            (name, end, *_ends(mean), mean.completed) for name, end, mean in finished.convergence()
        ),
    ]
    lists_all = finished.rows * len(names) <= USUAL_SAMPLES if samples is None else samples
    _write(finished, tables, command, form, charts=charts, samples=lists_all)


def write_designed(
    prepared: Prepared, design: OneAtATime | Morris | Saltelli, store: Store, rows: int, command: Sequence[str] = ()
) -> tuple[list[Driver], int]:
    """Measure a finished design, write its folder; return what drives the headline, and the rows that could be run."""
    headline = store.joined.column(f"out:{prepared.headline.name}", rows)
    drivers, completed = list(measures(prepared, design, headline)), completed_rows(headline.T)
    first = headline[:: design.period]  # the first row of each period: as the design's report says
    groups = prepared.study.scramblings if isinstance(design, Saltelli) else len(first)
    finished = Finished(prepared=prepared, store=store, rows=rows)
    standings = finished.standings(design.period, groups)
    keeping = [which for which, standing in enumerate(standings) if standing.keeps_promise]
    compared = decisions(first.T, prepared.names, groups, keeping, lower_is_better=prepared.headline.lower_is_better)
    means = [
        Statistic(name, output, "mean", mean_estimate(table[:, which], groups))
        for output in dict.fromkeys((prepared.headline.name, judgement.IN_TIME, judgement.SHED))
        for table in [finished.output(output)[:: design.period]]
        for which, name in enumerate(prepared.names)
    ]
    tables = [
        statistics_rows(means),
        promise_rows(prepared, standings),
        decision_rows(compared),
        driver_rows(drivers, completed),
    ]
    _write(finished, tables, command)
    return drivers, completed


def _write(
    finished: Finished,
    tables: Sequence[Table],
    command: Sequence[str],
    form: CsvFormat = DEFAULT_FORMAT,
    *,
    charts: bool = True,
    samples: bool = False,
) -> None:
    """Write tables, the plans as stated, charts and report into the study's folder, then the manifest that ends it."""
    prepared, store, results = finished.prepared, finished.store, dict[str, RunResult]()
    try:
        streamed = [_write_samples(finished, form)] if samples else []
        for base in prepared.scenarios:
            with contextlib.suppress(PlannerError):  # one that cannot be run as it is stated is left out
                results[base.name] = simulate(base.scenario, seed=prepared.seed)
        scenarios = {base.name: base.scenario for base in prepared.scenarios}
        stated = [*plan_tables(results), *evidence_tables(scenarios)]
        shown = {table.name: table for table in (*tables, uncertain_rows(prepared), *stated)}
        files = csv_files(prepared.study.name.lower(), shown.values(), form, streamed)
        files[WORKBOOK] = _workbook(prepared, results, {name: table.columns for name, table in shown.items()})
        manifest = study_manifest(prepared, store, finished.rows)
        manifest |= {"command": list(command)} if command else {}
        manifest |= {"dropped": dropped} if (dropped := finished.dropped()) else {}
        contents = Contents(manifest=manifest, tables=shown, beside=openable(files))
        pictures = study_pictures(contents) if charts else {}
        for name, content in {**files, **pictures, REPORT: build_report(contents)}.items():
            store.staged.write(name, content)
        store.commit(manifest)
    except OSError as error:
        raise store.unwritable(error) from None
    finally:
        store.discard()


def _workbook(prepared: Prepared, results: Mapping[str, RunResult], shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the workbook: percentiles of every figure and by month, what decides, statements as stated."""
    pages = {"Percentiles": statistics_page(shown["percentiles"])}
    if "monthly_bands" in shown:
        pages[BANDS_SHEET] = bands_page(shown["monthly_bands"], ("cost_usd", "served_tokens", "revenue_usd"))
    named = {"Promise": "promise", "Decision": "decision", "Sensitivity": "sensitivity", "Uncertain": "uncertain"}
    pages |= plain_pages({name: shown[table] for name, table in named.items()})
    pages |= statements_page(results) | plain_pages({"Assumptions": shown["assumptions"]})
    return write_tables(prepared.study.name, prepared.scenarios[0].scenario.start, pages)


def _write_samples(finished: Finished, form: CsvFormat) -> WrittenTable:
    """Write samples.csv part by part, so that memory does not grow with the study."""
    description, inputs = samples_table(finished.prepared.inputs), finished.prepared.inputs.entries
    staged, name = finished.store.staged, f"{description.name}.csv"
    digest, size = hashlib.sha256(), 0
    with (staged.path / name).open("wb") as stream:
        for part in finished.store.joined.parts(_SAMPLE_ROWS):
            columns = {column: part.column(column).to_pylist() for column in ("scenario", "error")}
            columns["replication"] = part.column("replication").to_numpy()
            columns |= {output: part.column(f"out:{output}").to_numpy() for output in headline_names()}
            for one in inputs:
                drawn = part.column(f"in:{one.name}").to_numpy()
                columns[one.name] = drawn
                if not is_numeric(one.distribution):
                    columns[one.name] = [str(value_of(one.distribution, place)) for place in drawn.tolist()]
            content = write_csv(Table(description, columns), form, header=not size)
            stream.write(content)
            digest.update(content)
            size += len(content)
    staged.add(name, digest.hexdigest())
    return WrittenTable(description=description, size_bytes=size, sha256=digest.hexdigest())


def study_answer(
    folder: Path,
    finished: Finished,
    drivers: Sequence[Driver] | None = None,
    completed: int = 0,
    *,
    is_written: bool = True,
) -> Answer[Finished]:
    """Return a study as an answer: the headline's percentiles, or what drives it, of a study designed to find out."""

    def rows() -> Table:
        return statistics_rows(finished.statistics()) if drivers is None else driver_rows(drivers, completed)

    def say(_: str) -> str:
        if drivers is None:
            return study_table(study_summary(finished))
        return driver_table(finished.prepared, drivers)

    return Answer(
        folder=folder,
        result=finished,
        warnings=finished.prepared.warnings,
        summarise=lambda: study_summary(finished) if drivers is None else rows().records(),
        say=say,
        rows=rows,
        is_written=is_written,
    )
