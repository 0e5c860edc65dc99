"""A study as an answer: its tables, its summary, what the terminal says of it, and its folder."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers import judgement
from planner.answers.answer import Answer
from planner.answers.charts import study_pictures
from planner.answers.plan_workbooks import (
    BANDS_SHEET,
    bands_page,
    plain_pages,
    statements_page,
    statistics_page,
)
from planner.answers.report import build_report
from planner.answers.run import evidence_tables, plan_tables
from planner.answers.tables import tables_of
from planner.arrays import Floats
from planner.errors import PlannerError, printable
from planner.output import tables
from planner.output.folder import REPORT, WORKBOOK, Contents, command_line, openable
from planner.output.tables import (
    DEFAULT_FORMAT,
    SCHEMA_VERSION,
    CsvFormat,
    Table,
    number_column,
    text_column,
)
from planner.output.terminal import cell, text_table, wrapped
from planner.output.workbook import write_tables
from planner.plan.attainment import run_out
from planner.run.simulate import RunResult, simulate
from planner.scenario.study import Prior, Study
from planner.studies import decision
from planner.studies.analysis import (
    MOST_DROPPED,
    Finished,
    Statistic,
    first_missed_month,
    month_labels,
    study_manifest,
)
from planner.studies.decision import IntervalEstimate, mean_estimate, sound_rows
from planner.studies.designs import OneAtATime, Saltelli
from planner.studies.distributions import is_numeric, quantile, value_of
from planner.studies.inputs import far_ends
from planner.studies.prepare import Prepared
from planner.studies.replicate import HEADLINES, MONTHLY, objective_names
from planner.studies.runner import Goal
from planner.studies.sensitivity import Driver, measures
from planner.studies.store import Store
from planner.units import unit_of

USUAL_SAMPLES = 100_000
"""Rows that samples.csv has at most unless it is asked for: a spreadsheet takes a million, and writing them takes
longer than all statistics."""
STUDY_TABLES = tables_of(
    "study",
    {
        "samples": [
            number_column(out.name, out.description, out.decimals, out.unit) for out in HEADLINES
        ]
    },
    monthly=", ".join(output.name for output in MONTHLY),
)
"""Every CSV file of a study by its name, in the order of the reference."""
_SAMPLE_ROWS = 8_000
"""Rows of samples.csv written at once: some tens of megabytes of memory."""
_DRIVERS = 5
_PAGES = ("SLO target", "Decision", "Sensitivity", "Uncertain")
"""Sheets of the workbook that are tables as they stand."""


def statistics_rows(statistics: Iterable[Statistic]) -> Table:
    """Return percentiles.csv."""
    return STUDY_TABLES["percentiles"].of_rows(
        (*row[:3], *_ends(row.estimate), row.estimate.completed) for row in statistics
    )


def _ends(estimate: IntervalEstimate, *, is_share: bool = False) -> tuple[float, float, float]:
    """Return a figure and its interval, which ends at none and all for a share."""
    if is_share:
        return estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0)
    return estimate.value, estimate.low, estimate.high


def driver_rows(drivers: Iterable[Driver], completed: int) -> Table:
    """Return sensitivity.csv; ``completed`` replications, with every scenario run, stand behind it."""
    return STUDY_TABLES["sensitivity"].of_rows((*driver, completed) for driver in drivers)


def completed_rows(objective: Floats) -> int:
    """Return the rows in which every scenario could be run."""
    return int(sound_rows(objective).sum())


def _decided(
    prepared: Prepared,
    standings: Iterable[decision.SloStanding],
    comparisons: Iterable[decision.PairwiseDecision],
) -> list[Table]:
    """Return slo_target.csv and decision.csv."""
    yes = {True: "yes", False: "no"}
    targets = []
    for base, standing in zip(prepared.scenarios, standings, strict=True):
        stated = base.scenario.slo_target
        verdict = standing.verdict
        is_stated = yes[base.scenario.states("slo_target")]
        asked = (stated.attainment, stated.per, stated.scope, stated.confidence, is_stated)
        kept = (verdict.status, verdict.share, *verdict.interval, standing.shortfall_fraction)
        best = (
            first_missed_month(prepared, standing) or "",
            *_ends(standing.best_fraction, is_share=True),
        )
        targets.append(
            (
                standing.scenario,
                *asked,
                *kept,
                *best,
                *standing.past_mending.values(),
                verdict.replications,
            )
        )
    pairs = []
    for pair in comparisons:
        figures = (*_ends(pair.probability_better, is_share=True), *_ends(pair.mean_difference))
        regrets = (pair.mean_regret.value, pair.p95_regret.value)
        pairs.append(
            (pair.scenario, pair.against, *figures, *regrets, pair.mean_difference.completed)
        )
    return [STUDY_TABLES["slo_target"].of_rows(targets), STUDY_TABLES["decision"].of_rows(pairs)]


def _uncertain_rows(prepared: Prepared) -> Table:
    """Return uncertain.csv: the source is the catalogue's for a prior, file and line for what the study states."""
    study = prepared.study
    rows = []
    far = far_ends(study, {base.name: base for base in prepared.scenarios}, prepared.inputs)
    for drawn in prepared.inputs.entries:
        name = drawn.name
        distribution = drawn.distribution
        shown = [
            value_of(distribution, draw)
            for draw in quantile(distribution, np.array([0.1, 0.5, 0.9])).tolist()
        ]
        cells = [f"{cell:.6g}" if is_numeric(distribution) else str(cell) for cell in shown]
        unit = "factor" if drawn.times_stated or drawn.throughput_of is not None else _unit(name)
        if drawn.throughput_of is not None:
            source = ("the throughput model's own error, from its calibration", "", "C")
        elif isinstance(written := study.uncertain[name], Prior):
            catalog = prepared.scenarios[0].scenario.load_catalog()
            prior = catalog.prior(written.prior)
            source = (*catalog.provenance(prior), prior.grade)
        else:
            place = study.document.locate(("uncertain", name))
            line = f":{place.line}" if place is not None and place.line is not None else ""
            source = (f"{Path(study_file(study)).name}{line}", "", "user")
        rows.append((name, distribution.kind, *cells, unit, *source, far.get(name, "")))
    return STUDY_TABLES["uncertain"].of_rows(rows)


def _unit(path: str) -> str:
    """Return the unit that the key of a scenario ends in."""
    return unit_of(path.rpartition(".")[2]) or ""


def study_file(study: Study) -> str:
    """Return the file that a study was read from, as it was named."""
    place = study.document.locate(())
    return place.file if place is not None else f"{study.name}.yaml"


def study_summary(finished: Finished) -> dict[str, Any]:
    """Return a study's headline statistics, decisions, drivers and failures as plain data."""
    objective = finished.prepared.objective.name
    names = finished.prepared.names
    statistics: dict[str, dict[str, Any]] = {name: {} for name in names}
    service: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for scenario, output, statistic, estimate in finished.statistics(
        (objective, judgement.ATTAINED, judgement.SHED)
    ):
        if output == objective:
            statistics[scenario][statistic] = _figure(estimate)
        if output in (judgement.ATTAINED, judgement.SHED) and statistic == "mean":
            service[scenario][output] = _known(estimate.value)
    by_method: dict[str, list[Driver]] = defaultdict(list)
    for driver in finished.drivers():
        if driver.method in ("flip", "information") or (
            driver.scenario == names[0] and not driver.against
        ):
            by_method[driver.method].append(driver)
    explained = (("variance", "first_order"), ("noise", "noise_level"))
    shares = {(d.measure, d.input): d.value for d in by_method["variance-share"]}
    bars = by_method["conditional-mean"]
    bars.sort(key=lambda bar: (shares["first_order", bar.input], bar.value), reverse=True)
    return {
        "schema_version": SCHEMA_VERSION,
        "study": finished.prepared.study.name,
        "replications": finished.rows,
        "simulated": finished.simulated().size,
        "completed": completed_rows(finished.by_scenario(objective)),
        "objective": objective,
        "scenarios": statistics,
        "service": service,
        "verdicts": {
            standing.scenario: judgement.verdict_record(
                standing.verdict,
                base.scenario,
                shortfall_fraction=_known(standing.shortfall_fraction),
                first_missed_month=first_missed_month(finished.prepared, standing),
                past_mending=standing.past_mending,
                run_out_fraction=run_out(met_months, month_labels(finished.prepared)),
            )
            | {"best_fraction": _figure(standing.best_fraction)}
            for base, standing, met_months in zip(
                finished.prepared.scenarios,
                finished.standings(),
                finished.output("slo_met_months").T,
                strict=True,
            )
        },
        "decisions": [
            {"scenario": pair.scenario, "against": pair.against}
            | {
                name: _figure(getattr(pair, name))
                for name in ("probability_better", "mean_difference", "mean_regret")
            }
            for pair in finished.decisions()
        ],
        "drivers": [  # the inputs that explain most of the first scenario's variance, with the ends of their bars
            {"input": bar.input}
            | {f"{of}_share": shares[measure, bar.input] for of, measure in explained}
            | {"low": bar.low, "high": bar.high}
            for bar in bars[:_DRIVERS]
        ],
        "flips": [
            {"input": d.input, "against": d.against, "threshold": d.value}
            for d in by_method["flip"]
        ],
        "information": [
            {"input": d.input, "measure": d.measure, "value": d.value}
            for d in by_method["information"]
        ],
        "warnings": list(finished.prepared.warnings),
        "failures": [
            dict(zip(("replication", "scenario", "error"), one, strict=True))
            for one in finished.failures()
        ],
        "dropped": finished.dropped(),
    }


def _figure(estimate: IntervalEstimate) -> dict[str, float | None]:
    return {name: _known(getattr(estimate, name)) for name in ("value", "low", "high")}


def _known(number: float) -> float | None:
    return float(number) + 0.0 if math.isfinite(number) else None  # −0 is 0


def study_table(summary: Mapping[str, Any], *, verbose: bool = False) -> str:
    """Lay out a study for a terminal: verdicts, the line that answers, the plans, and what follows from them."""
    objective = summary["objective"]
    verdicts = summary["verdicts"]
    rows = []
    spreads = []
    figures_of = {
        name: {**service, objective: summary["scenarios"][name]["mean"]["value"]}
        for name, service in summary["service"].items()
    }
    choice = judgement.choose(judgement.plans_of(figures_of, verdicts, objective))
    for plan in choice.ranked:
        figures = summary["scenarios"][plan.name]
        record = verdicts[plan.name]
        cells = [_number(figures[which]["value"]) for which in ("mean", "p5", "p50", "p95")]
        rows.append(
            (plan.name, plan.standing, *cells, cell(record["best_fraction"]["value"], ".0%"))
        )
        shares = (cell(record["met_low_fraction"], ".1%"), cell(record["met_high_fraction"], ".1%"))
        tail = (_number(figures[which]["value"]) for which in ("p10", "p90"))
        mean = figures["mean"]["value"]
        low = figures["mean"]["low"]
        half = None if mean is None or low is None else mean - low
        spreads.append(
            (plan.name, *shares, cell(plan.slo_attainment_fraction, ".2%"), _number(half), *tail)
        )
    over = f"{summary['replications']:,} replications, inputs drawn"
    if summary["simulated"] < summary["replications"]:
        over += f", {summary['simulated']:,} of them simulated and the others with their machines and other prices"
    if summary["completed"] < summary["replications"]:
        over += f"; {summary['completed']:,} could be run in every scenario"
    best = (
        f"Cheapest plan that is MET: {choice.best.name}."
        if choice.best
        else judgement.none_keeps(choice)
    )
    lead = [
        best,
        *judgement.inconclusive_lines(choice.ranked),
        *judgement.past_mending_lines(verdicts),
    ]
    lines = [
        f"{summary['study']}   {over}",
        *wrapped(
            [
                *judgement.much_shed(choice.ranked),
                *judgement.target_lines(verdicts),
                *filter(None, lead),
            ]
        ),
        "",
        f"{objective}:",
        text_table(("scenario", "SLO", "mean", "P5", "P50", "P95", "P(best)"), rows),
    ]
    said = [
        *(judgement.warnings_of(choice) if choice.best else ()),
        *driver_lines(summary),
        *summary["dropped"],
    ]
    if verbose:
        lines += [
            "",
            text_table(
                ("scenario", "P(met) low", "high", "attained", "mean ±95%", "P10", "P90"), spreads
            ),
        ]
        first = next(iter(summary["scenarios"]))
        said += [
            f"{first} and {row['against']} change places where {row['input']} passes {row['threshold']:.4g}."
            for row in summary["flips"][:_DRIVERS]
        ]
        said += information_lines(
            [(row["input"], row["measure"], row["value"]) for row in summary["information"]]
        )
    return "\n".join([*lines, "", *wrapped(said)]).rstrip()


def driver_lines(summary: Mapping[str, Any]) -> list[str]:
    """Say which inputs explain the first scenario's variance, beyond what sampling noise shows."""
    if not summary["drivers"]:
        return []
    clear = [row for row in summary["drivers"] if row["variance_share"] > row["noise_share"]]
    first = next(iter(summary["scenarios"]))
    noise = max(row["noise_share"] for row in summary["drivers"])
    if not clear:
        return [
            f"No single input stands out: at this n one would have to explain {noise:.0%} of the variance."
        ]
    shares = ", ".join(f"{row['input']} {row['variance_share']:.0%}" for row in clear)
    return [f"Variance of {first}: {shares}; sampling noise {noise:.0%}."]


def driver_table(prepared: Prepared, drivers: Sequence[Driver]) -> str:
    """Lay out what drives the first scenario, and its difference to the others, largest first."""
    order = ("swing", "total", "threshold")
    first = prepared.names[0]
    lines: list[str] = []
    for against in dict.fromkeys(driver.against for driver in drivers):
        shown = [
            d
            for d in drivers
            if d.against == against and d.scenario == first and d.measure in order
        ]
        shown.sort(key=lambda driver: (order.index(driver.measure), -abs(driver.value)))
        rows = [
            (d.input, d.method, d.measure, *(_number(_known(n)) for n in (d.value, d.low, d.high)))
            for d in shown
        ]
        title = f"{first} less {against}" if against else first
        header = ("input", "method", "measure", "value", "low", "high")
        lines += [f"{title}: {prepared.objective.name}", "", text_table(header, rows), ""]
    return "\n".join(lines).rstrip()


def information_lines(rows: Sequence[tuple[str, str, float]]) -> list[str]:
    """Say which measurement is worth what before the choice; ``rows`` are pair, measure and worth, largest first."""
    told = [
        f"{name.removeprefix('throughput.')} {_number(worth)}{' USD' if measure == 'worth_usd' else ''}"
        for name, measure, worth in rows[:_DRIVERS]
        if worth > 0.0
    ]
    if rows and not told:
        return ["knowing any one pair's throughput beforehand would not change the choice"]
    return (
        ["worth of measuring a pair's throughput before the choice: " + ", ".join(told)]
        if told
        else []
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"


def study_remarks(finished: Finished, goal: Goal) -> Iterator[str]:
    """Yield how narrow an interval became, what is not of all replications, and which of them could not be run.

    A study without any is refused.
    """
    if goal.until is not None:
        reached = goal.until.width(
            goal.estimate([finished.by_scenario(name) for name in goal.columns])
        )
        width = "is not known" if math.isnan(reached) else f"is ±{reached:.2%}"  # too few rows
        more = "" if reached <= goal.until.share else "; extend with --resume and more"
        yield f"the interval of {goal.until.words()} {width} after {finished.rows:,} replications{more}"
    if finished.detailed < finished.rows:
        yield f"fans by month and what drives the headline are of the first {finished.detailed:,} replications"
    failures = finished.failures()
    if (
        max(Counter(failure.scenario for failure in failures).values(), default=0) / finished.rows
        > MOST_DROPPED
    ):
        yield from (f"warning: {printable(line)}" for line in finished.dropped())
    if not np.isfinite(finished.output("cost_usd")).any():
        raise PlannerError(f"every run failed, the first with: {failures[0].message}")


def study_command(
    verb: str, prepared: Prepared, asked: Mapping[str, object], overrides: Sequence[str]
) -> list[str]:
    """Return the command that makes the same study again, whatever it was resumed from and whoever ran it."""
    return command_line(
        verb, [study_file(prepared.study)], {**asked, "--seed": prepared.seed}, overrides
    )


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
    objective = finished.by_scenario(prepared.objective.name)
    known = objective[np.isfinite(objective)]
    low, high = (
        np.percentile(known, [0.2, 99.8], overwrite_input=True) if known.size else (0.0, 1.0)
    )
    del known
    # One scale for all scenarios, so that they can be held against each other.
    edges = np.linspace(low, high if high > low else low + 1.0, 61)
    bins: list[tuple[Any, ...]] = []
    for name, figures in zip(names, objective, strict=True):
        runs = figures[np.isfinite(figures)]
        cells = zip(
            edges[:-1].tolist(),
            edges[1:].tolist(),
            np.histogram(runs, edges)[0].tolist(),
            strict=True,
        )
        bins += [(name, *cell, runs.size) for cell in cells]
    more = {
        "monthly_bands": finished.bands(),
        "monthly_bands_clusters": finished.bands(clusters=True),
        "distribution": bins,
        "convergence": (
            (name, end, *_ends(mean), mean.completed) for name, end, mean in finished.convergence()
        ),
    }
    made = [
        statistics_rows(finished.statistics()),
        *_decided(prepared, finished.standings(), finished.decisions()),
        driver_rows(finished.drivers(), finished.driven.size),
        *(STUDY_TABLES[name].of_rows(rows) for name, rows in more.items()),
    ]
    lists_all = finished.rows * len(names) <= USUAL_SAMPLES if samples is None else samples
    _write(finished, made, command, form, charts=charts, samples=lists_all)


def write_designed(
    prepared: Prepared,
    design: OneAtATime | Saltelli,
    store: Store,
    rows: int,
    command: Sequence[str] = (),
) -> tuple[list[Driver], int]:
    """Measure a finished design, write its folder; return what drives the headline, and the rows that could be run."""
    objective = store.joined.column(f"out:{prepared.objective.name}", rows)
    drivers = list(measures(prepared, design, objective))
    completed = completed_rows(objective.T)
    first = objective[:: design.period]  # the first row of each period: as the design's report says
    groups = prepared.study.scramblings if isinstance(design, Saltelli) else len(first)
    finished = Finished(prepared=prepared, store=store, rows=rows)
    standings = finished.standings(design.period, groups)
    keeping = [which for which, standing in enumerate(standings) if standing.may_meet]
    compared = decision.decisions(
        first.T, prepared.names, groups, keeping, lower_is_better=prepared.objective.lower_is_better
    )
    means = [
        Statistic(name, output, "mean", mean_estimate(table[:, which], groups))
        for output in dict.fromkeys((prepared.objective.name, judgement.ATTAINED, judgement.SHED))
        for table in [finished.output(output)[:: design.period]]
        for which, name in enumerate(prepared.names)
    ]
    made = [
        statistics_rows(means),
        *_decided(prepared, standings, compared),
        driver_rows(drivers, completed),
    ]
    _write(finished, made, command)
    return drivers, completed


def _write(
    finished: Finished,
    made: Sequence[Table],
    command: Sequence[str],
    form: CsvFormat = DEFAULT_FORMAT,
    *,
    charts: bool = True,
    samples: bool = False,
) -> None:
    """Write tables, the plans as stated, charts and report into the study's folder, then the manifest that ends it."""
    prepared = finished.prepared
    store = finished.store
    results = dict[str, RunResult]()
    try:
        streamed = [_write_samples(finished, form)] if samples else []
        for base in prepared.scenarios:
            with contextlib.suppress(
                PlannerError
            ):  # one that cannot be run as it is stated is left out
                results[base.name] = simulate(base.scenario, seed=prepared.seed)
        by_name = {table.name: table for table in (*made, _uncertain_rows(prepared))}
        shown = {name: by_name[name] for name in STUDY_TABLES if name in by_name}
        scenarios = {base.name: base.scenario for base in prepared.scenarios}
        shown |= {
            table.name: table for table in (*plan_tables(results), *evidence_tables(scenarios))
        }
        files = tables.csv_files(prepared.study.name.lower(), shown.values(), form, streamed)
        cells: dict[str, dict[str, Any]] = {name: table.columns for name, table in shown.items()}
        pages = {"Percentiles": statistics_page(cells["percentiles"])}
        if "monthly_bands" in cells:
            pages[BANDS_SHEET] = bands_page(
                cells["monthly_bands"], ("cost_usd", "served_tokens", "revenue_usd")
            )
            pages |= plain_pages({"Percentiles by cluster": cells["monthly_bands_clusters"]})
        pages |= plain_pages({page: cells[page.lower().replace(" ", "_")] for page in _PAGES})
        pages |= statements_page(results) | plain_pages({"Assumptions": cells["assumptions"]})
        files[WORKBOOK] = write_tables(
            prepared.study.name, prepared.scenarios[0].scenario.start, pages
        )
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


def _write_samples(finished: Finished, form: CsvFormat) -> dict[str, object]:
    """Write samples.csv part by part, so that memory does not grow with the study, and return its dictionary entry."""
    inputs = finished.prepared.inputs.entries
    samples = STUDY_TABLES["samples"]
    drawn = []
    for one in inputs:
        said = "Input drawn: a factor on what is stated." if one.times_stated else "Input drawn."
        is_number = is_numeric(one.distribution)
        drawn.append(
            number_column(one.name, said, 9, _unit(one.name))
            if is_number
            else text_column(one.name, said)
        )
    description = replace(samples, columns=(*samples.columns[:2], *drawn, *samples.columns[2:]))
    staged = finished.store.staged
    name = f"{description.name}.csv"
    digest = hashlib.sha256()
    size = 0
    with (staged.path / name).open("wb") as stream:
        for part in finished.store.joined.parts(_SAMPLE_ROWS):
            columns = {column: part.column(column).to_pylist() for column in ("scenario", "error")}
            columns["replication"] = part.column("replication").to_numpy()
            columns |= {
                output: part.column(f"out:{output}").to_numpy() for output in objective_names()
            }
            for one in inputs:
                columns[one.name] = cells = part.column(f"in:{one.name}").to_numpy()
                if not is_numeric(one.distribution):
                    columns[one.name] = [
                        str(value_of(one.distribution, place)) for place in cells.tolist()
                    ]
            content = tables.write_csv(Table(description, columns), form, header=not size)
            stream.write(content)
            digest.update(content)
            size += len(content)
    staged.add(name, digest.hexdigest())
    return tables.dictionary_entry(description, size, digest.hexdigest(), form)


def study_answer(
    folder: Path,
    finished: Finished,
    drivers: Sequence[Driver] | None = None,
    completed: int = 0,
) -> Answer[Finished]:
    """Return a study as an answer: the headline's percentiles, or what drives it, of a study designed to find out."""

    def rows() -> Table:
        return (
            statistics_rows(finished.statistics())
            if drivers is None
            else driver_rows(drivers, completed)
        )

    return Answer(
        folder=folder,
        result=finished,
        warnings=finished.prepared.warnings,
        summarise=lambda: study_summary(finished) if drivers is None else rows().records(),
        say=lambda verbose: (
            study_table(study_summary(finished), verbose=verbose)
            if drivers is None
            else driver_table(finished.prepared, drivers)
        ),
        is_met=lambda: any(standing.verdict.status == "MET" for standing in finished.standings()),
        rows=rows,
    )
