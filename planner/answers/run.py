"""One run as an answer: its tables, its summary, what the terminal says of it, and its folder."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from planner.answers import judgement
from planner.answers.answer import Answer
from planner.answers.assumptions import assumptions, layouts, model_error
from planner.answers.run_report import LOSSES, reconciliation_rows, resale_words
from planner.answers.tables import TABLES, by_scenario
from planner.arrays import Floats
from planner.catalog.load import VERSION
from planner.engine.processes import name_of
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, json_text, read_json
from planner.finance.present_value import per_million_tokens
from planner.finance.statements import Frequency
from planner.output import folder as folders
from planner.output.folder import REPORT, SUMMARY, WORKBOOK, Contents, command_line
from planner.output.tables import (
    DEFAULT_FORMAT,
    SCHEMA_VERSION,
    CsvFormat,
    Table,
    csv_files,
    stacked,
    write_csv,
)
from planner.output.terminal import cell, text_table, wrapped
from planner.output.words import percent, short_dollars, unit_price
from planner.parallel import shared
from planner.plan.attainment import Verdict, met_months_over, run_out, shortfall_over
from planner.plan.quantities import attainment
from planner.run import tables
from planner.run import unit_economics as units
from planner.run.commitments import commitments
from planner.run.incidents import incident_rows, practice_rows
from planner.run.measure_names import DRAWS, FLEET, MEASURES
from planner.run.measures import SUMS, measures, reconciliation, slo_figures, sums_of
from planner.run.replications import Replications, ends_of
from planner.run.simulate import RunResult, per_run
from planner.run.slo_misses import REASONS, worst_reasons
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.units import MILLION, decimals_of, unit_of
from planner.version import __version__

VARY = "inputs were not varied; P(SLO met) under uncertainty: planner montecarlo"
RESERVE = "reserve_cost_per_million_tokens_usd"
SHOWN_ROWS = 5
"""Clusters and workloads that the first screen has."""


def scenario_sha256(scenario: Scenario) -> str:
    """Return the hash of what the scenario says, defaults included, wherever it was written."""
    return _sha256(scenario, exclude={"extends"})


def _sha256(model: BaseModel, exclude: set[str] | None = None) -> str:
    content = model.model_dump(mode="json", by_alias=True, exclude=exclude)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def scenario_file(scenario: Scenario) -> str:
    """Return the file that a scenario was read from, as it was named; nothing where it was given as a dict."""
    place = scenario.document.locate(())
    return place.file if place is not None and place.line is not None else ""


def command_again(
    verb: str, scenarios: Sequence[Scenario], options: Mapping[str, object]
) -> list[str]:
    """Return the command that writes the same bytes; none where there is none: no file, or overrides that differ."""
    files = [scenario_file(scenario) for scenario in scenarios]
    overrides = common_overrides(scenarios)
    options = {
        **options,
        "--allow-code": any(p.file for scenario in scenarios for p in scenario.processes),
    }
    return (
        command_line(verb, files, options, overrides)
        if all(files) and overrides is not None
        else []
    )


def common_overrides(scenarios: Sequence[Scenario]) -> tuple[str, ...] | None:
    """Return the overrides laid over all scenarios alike; None where they differ."""
    first, *others = {scenario.document.overrides for scenario in scenarios}
    return None if others else first


def planned_from(plan: Path) -> tuple[Path, list[str], int | None]:
    """Return the file, overrides and seed of a plan: a scenario or study itself, or what a run's folder was made of."""
    if not plan.is_dir():
        return plan, [], None
    manifest = read_json(plan / MANIFEST)
    if manifest.get("kind") != "run" or not manifest.get("scenario_file"):
        hint = "give a scenario, a study, or a folder that planner run wrote"
        raise ScenarioError(
            Problem(file=str(plan), message="is not the folder of a run", hint=hint)
        )
    file = Path(str(manifest["scenario_file"]))
    overrides = [str(override) for override in manifest.get("overrides", ())]
    if scenario_sha256(load_scenario(file, overrides)) != manifest.get("scenario_sha256"):
        message = f"{file} is no longer what the run was made of"
        raise ScenarioError(
            Problem(
                file=str(plan), message=message, hint="run it again, or give the scenario itself"
            )
        )
    return file, overrides, int(manifest["seed"])


def scenario_identity(scenario: Scenario, seed: int, replication: int) -> dict[str, Any]:
    """Return what identifies one replication of a scenario: the same means the same bytes."""
    files = sorted(scenario.document.files.items())
    hashes = {Path(path).name: hashlib.sha256(content).hexdigest() for path, content in files}
    catalog = _sha256(scenario.load_catalog())
    return {
        "kind": "run",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_file": scenario_file(scenario),
        "scenario_sha256": scenario_sha256(scenario),
        "overrides": list(scenario.document.overrides),
        "seed": seed,
        "replication": replication,
        "catalog": {
            "assumptions": scenario.catalog.assumptions,
            "version": VERSION,
            "sha256": catalog,
        },
        **({"files": hashes} if hashes else {}),
    }


PLAN_COLUMNS: dict[str, Callable[[RunResult], Mapping[str, Any]]] = {
    "clusters": lambda result: TABLES["clusters"].of_rows(tables.cluster_rows(result)).columns,
    "timeline_monthly": tables.timeline_monthly,
    "timeline_monthly_clusters": partial(tables.timeline_monthly, clusters=True),
    "timeline_workloads": tables.timeline_workloads,
    "unit_economics": tables.unit_economics,
    "losses": tables.losses,
    "software_practices": lambda result: (
        TABLES["software_practices"].of_rows(practice_rows(result)).columns
    ),
    "placement": tables.placement,
    "routing_monthly": tables.routing_monthly,
    "ledger": lambda result: {**tables.ledger(result), "amount_usd": result.ledger.amount_cents},
    "events": tables.events,
    "warnings": lambda result: {
        "severity": ["warning"] * len(result.warnings) + ["note"] * len(result.plan.notes),
        "text": [*result.warnings, *result.plan.notes],
    },
}
"""What makes each table that says how a run went, where its money and its machine time were spent: those that a
comparison or a study has for each of its scenarios."""


def run_tables(result: RunResult, *, hourly: bool = False) -> list[Table]:
    """Return every table of a run; its measures have no intervals yet."""
    columns: dict[str, Mapping[str, Any]] = {
        **{name: make(result) for name, make in PLAN_COLUMNS.items()},
        "slo_misses": tables.slo_misses(result),
        "commitments": commitments(result),
        **{
            f"unit_economics_{span}ly": tables.unit_economics(result, span)
            for span in (*Frequency,)[1:]
        },
    }
    for part, by in (("", False), ("_clusters", True)):
        columns["timeline_daily" + part] = tables.timeline_daily(result, clusters=by)
        columns |= {
            f"statement_{span}ly{part}": tables.statement(result, span, clusters=by)
            for span in Frequency
        }
        columns |= (
            {"timeline_hourly" + part: tables.timeline_hourly(result, clusters=by)}
            if hourly
            else {}
        )
    made = {name: Table(TABLES[name], cells) for name, cells in columns.items()}
    of_inputs = (layouts(result.scenario), assumptions(result.scenario), model_error())
    rows: dict[str, Iterable[Sequence[Any]]] = {"software_incidents": incident_rows(result)}
    rows |= {"focus": tables.focus_rows(result), "accounts": tables.account_rows()}
    rows["reconciliation"] = tables.reconciliation_rows(result)
    made |= {name: TABLES[name].of_rows(cells) for name, cells in rows.items()}
    made |= {table.name: table for table in (measure_table(result), *of_inputs)}
    return [made[name] for name in TABLES if name in made and name != "warnings"]


def named(table: Table, scenario: str) -> Table:
    """Return a run's table as its file has it, with the name of the scenario in a column."""
    described = by_scenario(table.description)
    is_same = described == table.description
    return (
        table
        if is_same
        else Table(described, {"scenario": [scenario] * len(table), **table.columns})
    )


def measure_table(result: RunResult, chance: Replications | None = None) -> Table:
    """Return measures.csv."""
    figures = measures(result)
    bands = [ends_of(chance.interval(name) if chance is not None else None) for name in figures]
    return TABLES["measures"].of_rows(
        (name, value, *ends, unit_of(name) or "", measure.view, measure.formula)
        for (name, value), ends, measure in zip(figures.items(), bands, MEASURES, strict=True)
    )


def plan_tables(results: Mapping[str, RunResult]) -> list[Table]:
    """Return timelines, losses, ledger and events of runs, by the names of their scenarios on top of one another."""
    made = []
    for name, make in PLAN_COLUMNS.items() if results else ():
        by_plan = {
            scenario: Table(TABLES[name], make(result)) for scenario, result in results.items()
        }
        made.append(stacked(by_scenario(TABLES[name]), by_plan))
    return made


def evidence_tables(scenarios: Mapping[str, Scenario]) -> list[Table]:
    """Return what scenarios assume, each value with source and grade, and the model's own error."""
    by_plan = {name: assumptions(scenario) for name, scenario in scenarios.items()}
    return [stacked(by_scenario(TABLES["assumptions"]), by_plan), model_error()]


def write_run(
    result: RunResult,
    folder: Path,
    drawn_again: Callable[[], Replications | None] | None = None,
    *,
    form: CsvFormat = DEFAULT_FORMAT,
    hourly: bool = False,
    parquet: bool = False,
    command: Sequence[str] = (),
    remedy: Mapping[str, Any] | None = None,
    until: str | float | None = None,
) -> Replications | None:
    """Write a run's folder, whole or not at all, and return the replications behind its intervals.

    ``drawn_again`` waits for these, once all else is worked out: others may draw them meanwhile. ``hourly`` and
    ``parquet`` add to the usual files. ``command`` is what writes the same bytes, where it is not a run; ``remedy``
    what was found to meet a target that is missed; ``until`` the share at which drawing ends, where one is stated.
    """
    # Loaded once the first screen is there: a fifth of a second.
    from planner.answers.live_workbook import run_pages, run_workbook  # noqa: PLC0415 - as above
    from planner.answers.plan_workbooks import months_pages  # noqa: PLC0415 - as above
    from planner.answers.report import build_report  # noqa: PLC0415 - as above

    made = run_tables(result, hourly=hourly)
    scenario = result.scenario.name
    pages = run_pages(result, {table.name: table.columns for table in made})
    tables = {table.name: named(table, scenario) for table in made}
    ready = {name: write_csv(table, form) for name, table in tables.items() if name != "measures"}
    slo_misses(result)  # kept for the summary: the plan is compiled and routed anew for them
    chance = drawn_again() if drawn_again else None
    tables["measures"] = named(measure_table(result, chance), scenario)
    identity = scenario_identity(result.scenario, result.seed, result.replication)
    if result.processes:
        identity["processes"] = [name_of(process) for process in result.processes]
    drawn = identity["replications"] = 1 if chance is None else chance.number
    options: dict[str, object] = {
        "--seed": result.seed,
        "--replications": None if drawn == DRAWS else drawn,
    }
    options |= {
        "--until": until if drawn > DRAWS else None,
        "--hourly": hourly,
        "--parquet": parquet,
    }
    options |= {"--advise": remedy is not None, **form.options}
    identity["command"] = list(command) or command_again("run", [result.scenario], options)
    beside = folders.openable([*(f"{name}.csv" for name in tables), WORKBOOK])
    contents = Contents(
        manifest=identity, tables=tables, summary=summary(result, chance, remedy), beside=beside
    )
    months = months_pages(result.plan.months.labels, {scenario: chance}) if chance else {}
    workbook, report = shared(
        [lambda: run_workbook(result, pages, months), lambda: build_report(contents)]
    )
    files = csv_files(contents.name.lower(), tables.values(), form, ready=ready)
    timelines = [name for name in tables if parquet and name.startswith("timeline_")]
    files |= {f"{name}.parquet": folders.parquet_bytes(tables[name]) for name in timelines}
    files |= {SUMMARY: json_text(contents.summary).encode(), WORKBOOK: workbook, REPORT: report}
    folders.write_folder(folder, files, identity)
    return chance


def summary(
    result: RunResult, chance: Replications | None = None, remedy: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the headline numbers of a run: fleet, clusters, workloads, the losses.

    ``chance`` is the plan drawn again; with it the headline has intervals.
    """
    told = {"slo_misses": [dict(one) for one in slo_misses(result)]} | (
        {"remedy": dict(remedy)} if remedy else {}
    )
    return key_figures(result, chance) | told


@per_run
def slo_misses(result: RunResult) -> list[dict[str, Any]]:
    """Return why most requests are late, as the summary has it."""
    return [
        {
            key: rounded(value) if isinstance(value, float) else value
            for key, value in reason.items()
        }
        for reason in worst_reasons(result)
    ]


def key_figures(result: RunResult, chance: Replications | None = None) -> dict[str, Any]:
    """Return the same without why requests are late, which takes longer than all the rest: work is routed anew."""
    sums = sums_of(result).over_run()
    labels = result.plan.months.labels
    names = [*(cluster.name for cluster in result.plan.clusters), FLEET]
    shown = {
        key: table[0] for key, table in sums.figures().items() if key != "served_output_tokens"
    }
    rows = {
        name: {key: _plain(key, figures[c]) for key, figures in shown.items()}
        for c, name in enumerate(names)
    }
    fleet = rows.pop(FLEET) | {
        key: _plain(key, figures[0]) for key, figures in sums.fleet_figures().items()
    }
    missed = result.missed_requests().sum(axis=0)
    settled = result.settled_requests().sum(axis=0)
    shared_out = {name: table.sum(axis=0) for name, table in tables.workload_sums(result).items()}
    by_workload = {
        **{name: shared_out[name] for name in ("demand_tokens", "shed_tokens")},
        "slo_attainment_fraction": attainment(missed, settled),
        "cost_per_million_tokens_usd": per_million_tokens(
            shared_out["cost_usd"], shared_out["served_tokens"]
        ),
    }
    by_month_attained = attainment(result.missed_requests(), result.settled_requests())
    headroom = tables.peak_headroom(result)
    tightest = int(np.nanargmin(headroom)) if np.isfinite(headroom).any() else None
    borne_by_none = units.unit_economics(result).cost_cents[:, :, -2:].sum(axis=(0, 1))
    tight: dict[str, Any] = {
        **{
            f"{line}_cost_usd": cents / 100
            for line, cents in zip(("reserve", "one_off"), borne_by_none, strict=True)
        },
        RESERVE: _plain(
            RESERVE,
            float(per_million_tokens(borne_by_none[0] / 100, shared_out["served_tokens"].sum())),
        ),
        "peak_headroom_fraction": None if tightest is None else rounded(headroom[tightest]),
        "peak_headroom_month": None if tightest is None else labels[tightest],
        "peak_facility_kw": rounded(result.monthly.peak_facility_kw.max(), 3),
    }
    nodes = (result.monthly.present_node_h / result.plan.months.period_hours[:, None]).max(axis=0)
    there: dict[str, dict[str, Any]] = {
        cluster.name: {"nodes": round(float(nodes[c])), "note": _cluster_note(result, cluster.name)}
        for c, cluster in enumerate(result.plan.clusters)
    }
    # Where the node-hours on site went, as shares that sum to one.
    fates = result.monthly.fates_node_h
    present = result.monthly.present_node_h.sum()
    capacity = {
        fate: rounded(node_h.sum() / present) if present > 0 else 0.0
        for fate, node_h in fates.items()
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": result.scenario.name,
        "start": result.plan.months.start.isoformat(),
        "horizon_months": result.scenario.horizon_months,
        "seed": result.seed,
        "replication": result.replication,
        "verdict": verdict_summary(result, chance),
        "clusters": {
            FLEET: fleet | tight,
            **{name: row | there[name] for name, row in rows.items()},
        },
        "workloads": {
            workload.name: {key: _plain(key, figures[w]) for key, figures in by_workload.items()}
            | {"lowest": _lowest(by_month_attained[:, w], labels)}
            for w, workload in enumerate(result.plan.workloads)
        },
        "measures": {
            name: None if value is None else rounded(value)
            for name, value in measures(result).items()
        },
        "replications": None if chance is None else replications_summary(chance),
        "slo_misses": [],
        "capacity_fraction": capacity,
        "reconciliation": [
            {"line": line, "kind": "sum" if line in SUMS else "item", "amount_usd": cents / 100}
            for line, cents in reconciliation(result).items()
        ],
        "warnings": list(result.warnings),
        "notes": list(result.plan.notes),
    }


def replications_summary(chance: Replications) -> dict[str, Any]:
    """Return how often a plan was drawn, and where its figures lie."""
    intervals = {name: chance.interval(name) for name in chance.figures[0]}
    return {
        "number": chance.number,
        "coverage_fraction": rounded(chance.coverage_fraction),
        "words": chance.words,
        "intervals": {
            name: [rounded(one.low), rounded(one.high)] for name, one in intervals.items() if one
        },
    }


def verdict_summary(result: RunResult, chance: Replications | None = None) -> dict[str, Any]:
    """Return a plan's verdict over the replications drawn, with the base case's lowest attainment."""
    base = result.slo_result()
    labels = result.plan.months.labels
    drawn = (slo_figures(result),) if chance is None else chance.figures
    names = (judgement.SHORTFALL, "slo_met_months", judgement.WORST)
    shortfalls, months, lowest = (np.array([row[name] for row in drawn], float) for name in names)
    moment = None
    if (worst := base.worst) is not None:
        workload = None if worst.workload is None else result.plan.workloads[worst.workload].name
        share = rounded(worst.slo_attainment_fraction)
        moment = {
            "month": labels[worst.month],
            "workload": workload,
            "slo_attainment_fraction": share,
        }
    met, tested = (int((shortfalls == 0.0).sum()), len(drawn)) if moment else (0, 0)
    verdict = Verdict.of(result.scenario, met, tested)
    through = int(met_months_over(months, verdict.confidence))
    missed = Counter(
        m for by in ((base.missed_months,) if chance is None else chance.missed_months) for m in by
    )
    return judgement.verdict_record(
        verdict,
        result.scenario,
        shortfall_fraction=rounded(shortfall_over(shortfalls, verdict.confidence)),
        first_missed_month=labels[through] if through < len(labels) else None,
        lowest_fraction=rounded(np.nanmin(lowest)) if moment else None,
        base_case=moment,
        run_out_fraction={
            month: rounded(share) for month, share in run_out(months, labels).items()
        },
        missed_months={labels[month]: number for month, number in sorted(missed.items())},
    )


def _plain(name: str, figure: float) -> float | None:
    """Return a figure as JSON holds it, with the decimals of its unit; None where there was nothing to divide by."""
    decimals = decimals_of(name)
    return (
        None
        if np.isnan(figure)
        else rounded(figure, decimals)
        if decimals
        else round(float(figure))
    )


def rounded(number: float, decimals: int = 6) -> float:
    """Return a number as JSON holds it."""
    return round(float(number), decimals) + 0.0  # a small loss is 0, not −0


def _lowest(attained: Floats, labels: Sequence[str]) -> dict[str, Any] | None:
    """Return the month in which a workload attains least; None where it had no request."""
    if np.isnan(attained).all():
        return None
    month = int(np.nanargmin(attained))
    return {"month": labels[month], "slo_attainment_fraction": rounded(attained[month])}


def _cluster_note(result: RunResult, name: str) -> str:
    """Say when a cluster comes and goes, where that is within the horizon."""
    cluster = result.scenario.clusters[name]
    start = result.plan.months.start
    comes = (
        [f"from {cluster.online:%Y-%m}"]
        if cluster.online is not None and cluster.online > start
        else []
    )
    return ", ".join(
        [*comes, *([f"until {cluster.retire:%Y-%m}"] if cluster.retire is not None else [])]
    )


def _amount(number: float) -> str:
    """Return a number with a decimal, and a small one with two digits."""
    return f"{number:,.1f}" if abs(number) >= 1.0 or number == 0.0 else f"{number:.2g}"


def first_screen(figures: Mapping[str, Any]) -> str:
    """Return what the base replication says: its SLO attainment, cost, fleet, clusters and workloads."""
    clusters = figures["clusters"]
    record = figures["verdict"]
    money = figures["measures"]
    fleet = clusters[FLEET]
    base = record["base_case"]
    months = f"{figures['horizon_months']} months from {figures['start'][:7]}"
    head = f"{figures['scenario']}   {months}   inputs fixed"
    slo = "SLO    no request to serve"
    if base is not None:
        target = (record["workloads"] or {}).get(base["workload"], record["attainment"])
        attained = base["slo_attainment_fraction"]
        where = ", ".join(
            filter(None, (judgement.share_words(attained), base["workload"], base["month"]))
        )
        slo = f"SLO    base case {'meets' if attained >= target else 'misses'} {target * 100:.6g}%: lowest {where}"
    said = [*wrapped(judgement.much_shed([judgement.served(figures["scenario"], fleet)])), slo]
    cost = [
        f"{unit_price(money[judgement.COST])}/Mtok levelised",
        f"NPC {short_dollars(-(money['npv_usd'] or 0.0))}",
    ]
    cost += [
        f"capex {short_dollars(money['capex_usd'])}",
        f"P&L cost {short_dollars(money['pl_cost_usd'])}",
    ]
    use = [f"{percent(fleet['utilisation_fraction'], 0)} utilised"]
    if fleet["peak_headroom_fraction"] is not None:
        use.append(
            f"peak-hour headroom {percent(fleet['peak_headroom_fraction'], 0)} ({fleet['peak_headroom_month']})"
        )
    peak = fleet["peak_facility_kw"]
    use.append(f"{peak / 1e3:,.1f} MW peak" if peak >= 1e3 else f"{peak:,.0f} kW peak")
    lines = [head, *said, "COST   " + "   ".join(cost), "FLEET  " + "   ".join(use), ""]
    reserve = judgement.reserve_cluster(figures)
    rows = []
    for name, row in clusters.items():
        if name != FLEET:
            used = (
                cell(row["availability_fraction"], ".1%"),
                cell(row["utilisation_fraction"], ".0%"),
            )
            sums = (_amount(row["served_tokens"] / 1e12), _amount(row["cost_usd"] / MILLION))
            note = ", ".join(part for part in (row["note"], reserve.get(name, "")) if part)
            rows.append((name[:20], str(row["nodes"]), *used, *sums, note))
    lines += [
        text_table(
            ("cluster", "nodes", "avail", "util", "Ttok", "cost M$", "note"), rows[:SHOWN_ROWS]
        )
    ]
    lines += (
        [f"and {len(rows) - SHOWN_ROWS} more clusters in the report"]
        if len(rows) > SHOWN_ROWS
        else []
    )
    loads = sorted(
        figures["workloads"].items(),
        key=lambda item: (item[1]["lowest"] or {}).get("slo_attainment_fraction", 2.0),
    )
    served_rows = [
        (
            name[:24],
            judgement.share_words(row["lowest"]["slo_attainment_fraction"])
            if row["lowest"]
            else "",
            row["lowest"]["month"] if row["lowest"] else "",
            cell(row["cost_per_million_tokens_usd"], ",.3f"),
        )
        for name, row in loads[:SHOWN_ROWS]
    ]
    served_rows += (
        [("reserve (no workload's)", "", "", cell(fleet[RESERVE], ",.3f"))]
        if fleet[RESERVE]
        else []
    )
    lines += ["", text_table(("workload", "SLO low", "month", "USD/Mtok"), served_rows)]
    lines += (
        [f"and {len(loads) - SHOWN_ROWS} more workloads in the report"]
        if len(loads) > SHOWN_ROWS
        else []
    )
    return "\n".join(lines)


def closing(figures: Mapping[str, Any]) -> str:
    """Return what the replications say below the first screen: verdict, intervals, what follows."""
    said = [judgement.verdict_line(figures["verdict"])]
    drawn = figures["replications"]
    if drawn is not None and {"npv_usd", judgement.COST} <= (ends := drawn["intervals"]).keys():
        prices = " to ".join(map(unit_price, ends[judgement.COST]))
        said.append(f"In {drawn['words']}: NPC {_between(*ends['npv_usd'])}, {prices}/Mtok.")
    return "\n".join(
        wrapped([*said, *(f"! {line}" for line in (judgement.sizing(figures), VARY) if line)])
    )


def so_far(chance: Replications) -> str:
    """Return where net present cost lies in the replications so far, and how many meet the SLO target."""
    met = sum(figures[judgement.SHORTFALL] == 0.0 for figures in chance.figures)
    npv = chance.interval("npv_usd")
    return (
        f"{f'NPC {_between(npv.low, npv.high)}, ' if npv else ''}SLO met in {met}/{chance.number}"
    )


def _between(low_npv_usd: float, high_npv_usd: float) -> str:
    """Return an interval of net present cost, which is the negative of net present value."""
    return " to ".join(short_dollars(-end, ",.2f") for end in (high_npv_usd, low_npv_usd))


def is_settled(result: RunResult, chance: Replications, share: float) -> bool:
    """Return whether replications are enough: MET or MISSED, and mean net present cost known to a share of it.

    That is where half its 95% t-interval is at most that share.
    """
    from planner.studies.decision import half_width  # noqa: PLC0415 - loads scipy, for more than 19 replications

    verdict = verdict_summary(result, chance)
    costs = np.array([row["npv_usd"] for row in chance.figures], float)
    is_open = verdict["replications"] > 0 and verdict["status"] == "INCONCLUSIVE"
    return not is_open and bool(half_width(costs) <= share * abs(costs.mean()))


def details(figures: Mapping[str, Any]) -> str:
    """Return what ``-v`` adds: reasons of misses, lost node-hours, and how the cost figures reconcile."""
    capacity = figures["capacity_fraction"]
    lines = [
        f"{reason['workload']}: {reason['missed_fraction']:.3%} missed for {REASONS[reason['cause']]}, most in "
        f"{reason['worst_month']}: {reason['worst_missed_fraction']:.2%}"
        for reason in figures["slo_misses"]
    ]
    lost = sorted(
        ((capacity[column.removesuffix("_node_h")], name) for column, name in LOSSES.items()),
        reverse=True,
    )
    shares = [f"{name} {share:.2%}" for share, name in lost if share > 0 and name != "at work"]
    lines += [f"node-hours lost to: {', '.join(shares)}", resale_words(figures["measures"])]
    return "\n".join(
        [*wrapped(lines), "", text_table(("cost", "USD"), reconciliation_rows(figures))]
    )


def run_answer(
    folder: Path,
    result: RunResult,
    chance: Replications | None,
    remedy: Mapping[str, Any] | None = None,
) -> Answer[RunResult]:
    """Return a run as an answer: its first screen, what replications say and, where they are wanted, the details."""

    def say(verbose: bool) -> str:
        figures = summary(result, chance, remedy)
        return "\n\n".join(
            [first_screen(figures), closing(figures), *([details(figures)] if verbose else [])]
        )

    return Answer(
        folder=folder,
        result=result,
        warnings=result.warnings,
        notes=result.plan.notes,
        summarise=lambda: summary(result, chance, remedy),
        say=say,
        is_met=lambda: verdict_summary(result, chance)["status"] == "MET",
        rows=lambda: measure_table(result, chance),
    )


def first_answer(folder: Path, result: RunResult) -> Answer[RunResult]:
    """Return the base replication as an answer, before others are drawn and anything is written."""
    return replace(
        run_answer(folder, result, None),
        say=lambda _: first_screen(key_figures(result)),
        is_written=False,
    )
