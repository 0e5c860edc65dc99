"""A sizing as an answer: its tables, a plan that runs as it is, its folder, and what a terminal gets of it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from planner.answers.answer import Answer
from planner.answers.futures import futures_lines
from planner.answers.identity import scenario_file, scenario_sha256
from planner.answers.json_records import Json, fields_json
from planner.answers.live_workbook import run_pages, run_workbook
from planner.answers.plan_workbooks import months_pages, plain_pages
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables, run_tables
from planner.answers.size_sentences import sizing_sentences
from planner.answers.summaries import SizingSummary
from planner.answers.tables import tables_of
from planner.answers.verdicts import PlanVerdict, first_missed_month
from planner.arrays import Floats
from planner.files import check_target, replace_synced
from planner.output.folder import WORKBOOK, Contents, place_folder
from planner.output.tables import SCHEMA_VERSION, Table
from planner.output.terminal import text_table, wrapped
from planner.plan.attainment import LEAST_SHORTFALL, shortfall_over
from planner.run.replications import draw_again
from planner.scenario.cluster import Cluster
from planner.scenario.loading import layer_of
from planner.sizing.archive import SizeWork
from planner.sizing.evaluate import Judged
from planner.sizing.policy import Policy
from planner.sizing.size import Sized
from planner.studies.futures import AS_STATED
from planner.units import HOURS_PER_DAY, MILLION
from planner.version import __version__

SIZE_TABLES = tables_of("size")
"""Tables of a sizing by their names, in the order of the reference."""
POLICY = "policy.yaml"
"""The answer as a scenario."""
MAX_SENTENCES = 6
"""Sentences on the first screen besides the answer and its verdict."""
REQUIRED_TABLES = ("plan", "policies", "months")
"""Tables that a folder has even without a row."""
Row = Sequence[object]


def plan_rows(sized: Sized) -> Table:
    """Return plan.csv: what to buy, then what to retire."""
    choices = sized.choices
    policy = sized.plan.policy
    clusters = choices.scenario.clusters
    marginal = {node.purchase: node for node in sized.explanation.marginal}
    rows: list[Row] = []
    purchases = zip(choices.purchases, policy.purchases, strict=True)
    for place, (purchase, nodes) in enumerate(purchases):
        if not nodes:
            continue
        one_less: Row = (None, None, "")
        if place in marginal:
            node = marginal[place]
            month = choices.plan.months.labels[node.month]
            one_less = (node.saved, node.probability, str(month))
        # What is bought on several dates has a row for each, so that capital can be followed over
        # time.
        price_usd = nodes * sum(choices.node_prices_usd(place, nodes))
        rows.append(
            (
                purchase.name,
                purchase.accelerator,
                purchase.date,
                _contract(clusters[purchase.name]),
                nodes,
                price_usd,
                *one_less,
            )
        )
    for retirement, day in zip(choices.retirements, policy.retirements, strict=True):
        if not day:  # it stays
            continue
        cluster = clusters[choices.names(retirement.cluster)[0]]
        # Retired nodes are negative, and cost nothing to let go.
        rows.append(
            (
                retirement.cluster,
                cluster.accelerator,
                retirement.dates[day - 1],
                _contract(cluster),
                -cluster.nodes,
                0.0,
                None,
                None,
                "",
            )
        )
    return SIZE_TABLES["plan"].of_rows(rows)


def _contract(cluster: Cluster) -> str:
    if cluster.contract is None:
        return "bought"
    return cluster.contract.kind


def policy_rows(sized: Sized) -> Table:
    """Return policies.csv."""
    rows: list[Row] = []
    for way in sized.ways:
        plan = way.judged
        # A month without requests misses nothing.
        shares = np.nan_to_num(plan.shares, nan=1.0)
        is_missed = shares <= sized.trial.attainment - LEAST_SHORTFALL
        missed_in_month = is_missed.any(axis=2)
        missed_months = float(missed_in_month.sum(axis=1).mean())
        rows.append(
            (
                way.name,
                way.cost,
                way.probability,
                None if way.is_answer else way.saved,
                plan.net_present_cost_usd,
                plan.capital_usd,
                plan.verdict.share,
                plan.worst.size,
                plan.worst_tenth,
                missed_months,
                float(plan.utilisation.mean()),
                sized.choices.words(plan.policy),
            )
        )
    return SIZE_TABLES["policies"].of_rows(rows)


def frontier_rows(sized: Sized) -> Iterator[Row]:
    """Yield the rows of frontier.csv: every policy simulated on the selection block."""
    for point in sized.curve:
        plan = point.judged
        yield (
            plan.cost,
            plan.cost_worst_tenth,
            plan.verdict.share,
            *point.interval,
            plan.missed_requests,
            plan.worst_tenth,
            plan.worst.size,
            " ".join(f"{level:g}" for level in point.answers),
            point.is_knee,
            point.is_cliff,
            plan.policy == sized.plan.policy,
            sized.choices.words(plan.policy),
        )


def sensitivity_rows(sized: Sized) -> Iterator[Row]:
    """Yield the rows of sensitivity.csv: each uncertain input, what moves most first."""
    for one in sized.explanation.sensitivity:
        yield (one.name, *one.values, *one.sized, *one.answer, *one.probabilities, one.known_saves)


def future_rows(sized: Sized) -> Table:
    """Return futures.csv: each policy in each future, and as stated; no row where no future is named."""
    labels = sized.choices.plan.months.labels
    stated = [(way.name, AS_STATED, None, way.judged) for way in sized.ways]
    rows: list[Row] = []
    policies = (*stated, *sized.futures) if sized.futures else ()
    for name, future, weight, outcome in policies:
        verdict = outcome.verdict
        missed = first_missed_month(_met_months(sized, outcome), verdict.confidence, labels)
        rows.append(
            (
                name,
                future,
                weight,
                verdict.status,
                verdict.share,
                *verdict.interval,
                missed or "",
                outcome.net_present_cost_usd,
                None,
                float(outcome.utilisation.mean()),
                None,
                None,
                None,
                None,
            )
        )
    return SIZE_TABLES["futures"].of_rows(rows)


def _met_months(sized: Sized, outcome: Judged) -> Floats:
    """Return the months before the first that a replication misses, shape (replications,)."""
    attained = np.nan_to_num(outcome.shares, nan=1.0)
    lowest = attained.min(axis=2)
    is_missed = lowest <= sized.trial.attainment - LEAST_SHORTFALL
    # argmax is the first month that is missed, and 0 also where none is: such a plan has met all its months.
    met_months = np.where(is_missed.any(axis=1), is_missed.argmax(axis=1), is_missed.shape[1])
    return np.asarray(met_months, dtype=np.float64)


def month_rows(sized: Sized) -> Iterator[Row]:
    """Yield the rows of months.csv: the lowest SLO attainment, and the binding constraint."""
    choices = sized.choices
    plan = sized.plan
    required = sized.trial.attainment
    edges = choices.plan.month_edges_h
    # 0.9 · 20 is 18, whatever its last digit.
    share_of_worst = sized.trial.confidence * plan.worst.size
    replications_needed = np.ceil(share_of_worst - 1e-9)
    enough = max(1, int(replications_needed))
    shares = np.nan_to_num(plan.shares, nan=1.0)
    # The share that enough replications reach, month by month: their ⌈p·n⌉-th best.
    # Sorted downwards by the sign, as numpy sorts upwards alone.
    reached = -np.sort(-shares, axis=0)[enough - 1]
    is_missed = (shares < required).any(axis=2)
    missed = is_missed.mean(axis=0)
    binding = {node.month for node in sized.explanation.marginal}
    cap_kw = choices.choose.it_power_cap_kw
    node_kw = min(cluster.nameplate_kw for cluster in choices.plan.clusters)
    for month, label in enumerate(choices.plan.months.labels):
        start_h = float(edges[month])
        end_h = float(edges[month + 1])
        # Power changes only where something comes or goes.
        changes_h = [hour for hour in choices.moments_h() if start_h <= hour < end_h]
        # The highest within the month: a cap has to hold at every hour.
        power_kw = max(
            sum(choices.kw_at(plan.policy, hour).values()) for hour in [start_h, *changes_h]
        )
        workload = ""
        if choices.plan.slo_target.scope != "fleet":
            lowest_workload = int(np.argmin(reached[month]))
            workload = choices.plan.workloads[lowest_workload].name
        lowest = float(reached[month].min())
        yield (
            str(label),
            workload,
            lowest,
            lowest - required,
            float(missed[month]),
            float(plan.utilisation[month]),
            power_kw,
            _capital_until(sized, end_h),
            month in binding,
            # Power binds where not even the smallest node more would fit.
            cap_kw is not None and power_kw + node_kw > cap_kw,
        )


def _capital_until(sized: Sized, end_h: float) -> float:
    """Return the capital of what is bought before an hour."""
    choices = sized.choices
    policy = sized.plan.policy
    bought = []
    for purchase, nodes in zip(choices.purchases, policy.purchases, strict=True):
        days = (purchase.date - choices.scenario.start).days
        purchase_h = days * HOURS_PER_DAY
        bought.append(nodes if purchase_h < end_h else 0)
    return choices.capital_usd(replace(policy, purchases=tuple(bought)))


def size_tables(sized: Sized) -> list[Table]:
    """Return every table; those of what was not worked out, or does not apply, have no rows."""
    words = sized.choices.words
    explanation = sized.explanation
    price_changes = {entry.accelerator: entry.price_change for entry in explanation.entries}
    triggers = (
        (
            trigger.cluster,
            trigger.date,
            trigger.load,
            trigger.forecast_months,
            trigger.installed,
            trigger.load * trigger.installed,
            *trigger.ordered,
        )
        for trigger in explanation.triggers
    )
    rivals = []
    for rival in sized.rivals:
        # A rival that cannot meet the target has a price change, but no plan.
        change = price_changes.get(rival.name)
        cells: Row = (None, None, change, "")
        if rival.policy is not None:
            plan_words = words(rival.policy)
            cells = (rival.cost, rival.probability, change, plan_words)
        rivals.append((rival.name, *cells))
    rows: dict[str, Iterable[Row]] = {
        "triggers": triggers,
        "frontier": frontier_rows(sized),
        "single_accelerator_plans": rivals,
        "limits": explanation.limits,
        "sensitivity": sensitivity_rows(sized),
        "regret": explanation.regrets,
        "months": month_rows(sized),
    }
    further = (SIZE_TABLES[name].of_rows(cells) for name, cells in rows.items())
    return [
        plan_rows(sized),
        policy_rows(sized),
        future_rows(sized),
        *further,
    ]


def plan_document(sized: Sized, folder: Path, policy: Policy) -> str:
    """Return a plan as a scenario: what is chosen in place of what was open; it runs as it is."""
    choices = sized.choices
    content = choices.content(policy)
    stated = sized.scenario
    document: Json = {**content, "name": f"{stated.name}-sized"}
    file = scenario_file(stated)
    if file:
        # Only what differs from the file is written: the policy extends it.
        layer = layer_of(stated.document)
        stated_clusters = layer.pop("clusters", {})
        # A layer of the command line may have taken the whole section away.
        clusters: Json = dict(stated_clusters) if isinstance(stated_clusters, dict) else {}
        # None takes a cluster away: what was open to choice is replaced by what was chosen.
        clusters |= dict.fromkeys(choices.choose.clusters)
        chosen = {purchase.name for purchase in choices.purchases}
        chosen |= {retirement.cluster for retirement in choices.retirements}
        clusters |= {
            name: cluster for name, cluster in content["clusters"].items() if name in chosen
        }
        sections = ("site", "workloads", "expansion", "finance")
        # Sections that a sizing may change; all others are as the file states them.
        changed = [key for key in sections if content.get(key) != choices.base.content.get(key)]
        extended = Path(os.path.relpath(file, folder)).as_posix()
        document = {
            "name": document["name"],
            "extends": extended,
            **layer,
            **{key: content[key] for key in changed},
            "sizing": None,
            "clusters": clusters,
        }
    # In the order of the document, and on long lines: a person reads it.
    plain = _yaml_value(document)
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
    return (
        "# Found by planner size: run it with planner run, or compare it with others: planner compare.\n"
        + text
    )


def _yaml_value(content: object) -> object:
    """Return content as plain dicts and lists, which is what a YAML writer takes."""
    if isinstance(content, Mapping):
        return {key: _yaml_value(part) for key, part in content.items()}
    if isinstance(content, list | tuple):
        return [_yaml_value(part) for part in content]
    return content


def size_summary(sized: Sized) -> SizingSummary:
    """Return what summary.json holds: the answer, its sentences and its tables."""
    plan = sized.plan
    verdict = sizing_verdict(sized)
    rows = {table.name: _json_rows(table) for table in size_tables(sized)}
    return SizingSummary(
        schema_version=SCHEMA_VERSION,
        scenario=sized.scenario.name,
        objective=sized.trial.objective,
        verdict=verdict,
        plan=rows["plan"],
        family=sized.choices.family(plan.policy),
        objective_usd=plan.cost,
        objective_low_usd=sized.cost_interval.low,
        objective_high_usd=sized.cost_interval.high,
        net_present_cost_usd=plan.net_present_cost_usd,
        capital_usd=plan.capital_usd,
        utilisation_fraction=float(plan.utilisation.mean()),
        probability_fraction=plan.verdict.share,
        probability_low_fraction=sized.confirmation.interval.low,
        probability_high_fraction=sized.confirmation.interval.high,
        is_confirmed=sized.confirmation.passed,
        perfect_information_saves=sized.explanation.perfect_information_saves,
        unfixable_fraction=sized.unfixable,
        fresh_replications=plan.worst.size,
        seed=sized.trial.seed,
        runs=sized.runs,
        stopped=sized.stopped,
        sentences=sizing_sentences(sized, verdict),
        policies=rows["policies"],
        futures=rows["futures"],
        triggers=rows["triggers"],
        frontier=rows["frontier"],
        single_accelerator_plans=rows["single_accelerator_plans"],
        limits=rows["limits"],
        sensitivity=rows["sensitivity"],
        regret=rows["regret"],
        months=rows["months"],
    )


def sizing_verdict(sized: Sized) -> PlanVerdict:
    """Return the verdict on fresh replications."""
    lowest = sized.plan.worst
    counts = sized.plan.verdict
    # Attainment above the target is no negative shortfall.
    missing = sized.trial.attainment - lowest
    shortfall = max(0.0, shortfall_over(missing, counts.confidence))
    labels = sized.choices.plan.months.labels
    missed_month = first_missed_month(_met_months(sized, sized.plan), counts.confidence, labels)
    verdict = PlanVerdict.of(
        counts,
        sized.scenario,
        shortfall_fraction=round(shortfall, 6),
        first_missed_month=missed_month,
    )
    lowest_fraction = round(float(lowest.min()), 6)
    return replace(verdict, lowest_fraction=lowest_fraction, past_mending=sized.causes)


def _json_rows(table: Table) -> list[Json]:
    """Return the rows of a table as JSON has them, days as text."""
    return [
        {name: str(cell) if isinstance(cell, datetime.date) else cell for name, cell in row.items()}
        for row in table.records()
    ]


def size_text(sized: Sized, *, verbose: bool = False) -> str:
    """Lay a sizing out for a terminal: the answer, its verdict, what to buy, and with details all there is to say."""
    said = sizing_sentences(sized, sizing_verdict(sized))
    lead = [*said.answer, *said.certainty]
    further = [*said.orders, *said.alternatives, *said.sensitivities]
    columns = ("cluster", "accelerator", "date", "nodes")
    bought = [
        (*cells, f"{capital_usd / MILLION:,.2f}")
        for *cells, capital_usd in plan_rows(sized).rows(*columns, totals=["capital_usd"])
    ]
    table = text_table((*columns, "M USD"), bought)
    lines = [*wrapped(lead), "", table, ""]
    if verbose:
        lines += ["cost against service:", _frontier_table(sized), ""]
    lines += wrapped(further if verbose else further[:MAX_SENTENCES])
    if sized.futures:
        lines += ["", *futures_lines(future_rows(sized))]
    return "\n".join(lines).rstrip()


def _frontier_table(sized: Sized) -> str:
    """Return cost against service for a terminal, with what each policy is."""
    is_unit_cost = sized.trial.objective == "levelised"
    scale = 1.0 if is_unit_cost else MILLION
    rows = []
    for point in sized.curve:
        plan = point.judged
        marks = [f"cheapest at {level:.0%}" for level in point.answers]
        marks += ["knee"] * point.is_knee + ["cliff"] * point.is_cliff
        marks += ["<- the answer"] * (plan.policy == sized.plan.policy)
        rows.append(
            (
                f"{plan.cost / scale:,.4g}",
                f"{plan.verdict.share:.1%}",
                f"{plan.worst.size}",
                f"{plan.missed_requests / MILLION:,.3g}",
                f"{plan.worst_tenth:.1%}",
                ", ".join(marks),
            )
        )
    cost = "USD/Mtok" if is_unit_cost else "M USD"
    return text_table((cost, "P(SLO met)", "of", "M missed", "worst tenth", ""), rows)


def write_size(sized: Sized, work: SizeWork, command: Sequence[str]) -> None:
    """Write a sizing's folder, whole or not at all, in the place of the work that led to it.

    Beside the tables lies the policy as a scenario that runs as it is; the workbook is that of the answer as stated,
    with the tables of the sizing after its own.
    """
    scenario = sized.scenario
    tables = size_tables(sized)
    result = sized.as_stated()
    manifest: Json = {
        "kind": "size",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_sha256": scenario_sha256(scenario),
        "seed": sized.trial.seed,
        "objective": sized.trial.objective,
        "identity": work.identity,
        "command": list(command),
    }
    # Tables without a row are left out, but for those that readers of the folder rely on.
    by_name = {table.name: table for table in tables if len(table) or table.name in REQUIRED_TABLES}
    by_name |= {table.name: table for table in evidence_tables({scenario.name: scenario})}
    replications = {scenario.name: draw_again(result)}
    pages = months_pages(result.plan.months.labels, replications)
    # "plan" is the plan in words elsewhere in the workbook.
    sheets = {"purchases" if table.name == "plan" else table.name: table for table in tables}
    size_sheets = {f"Size {name}": table.columns for name, table in sheets.items()}
    pages |= plain_pages(size_sheets)
    columns = {table.name: table.columns for table in run_tables(result)}
    policy = plan_document(sized, work.folder, sized.plan.policy)
    pages_of_run = run_pages(result, columns)
    further_files = {
        POLICY: policy.encode(),
        WORKBOOK: run_workbook(result, pages_of_run, pages),
    }
    summary = fields_json(size_summary(sized))
    contents = Contents(manifest=manifest, tables=by_name, summary=summary)
    files = answer_files(contents, "size", further_files)
    # What somebody laid into the folder in the meantime is not swept away.
    check_target(work.folder, work=True)
    place_folder(work.folder, files, manifest)


def size_answer(folder: Path, sized: Sized, warnings: Sequence[str]) -> Answer[Sized]:
    """Return a sizing as an answer."""
    return Answer(
        folder=folder,
        result=sized,
        warnings=warnings,
        summarise=lambda: fields_json(size_summary(sized)),
        say=lambda verbose: size_text(sized, verbose=verbose),
        is_met=lambda: sized.plan.verdict.status != "MISSED",
        rows=lambda: policy_rows(sized),
    )


def write_so_far(sized: Sized, work: SizeWork) -> None:
    """Write the policy so far beside the unfinished work, where it can be read and run."""
    # As a whole or not at all: a reader may open it at any moment.
    policy = plan_document(sized, work.shards, sized.plan.policy)
    replace_synced(work.shards / POLICY, policy.encode())
