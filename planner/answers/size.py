"""A sizing as an answer: its tables, a plan that runs as it is, summary, text, and the sections of its report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from planner.answers.answer import Answer
from planner.answers.futures import futures_lines
from planner.answers.judgement import verdict_record
from planner.answers.live_workbook import run_pages, run_workbook
from planner.answers.plan_workbooks import months_pages, plain_pages
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables, run_tables, scenario_file, scenario_sha256
from planner.answers.tables import tables_of
from planner.files import check_target, replace_synced
from planner.output.folder import WORKBOOK, Contents, place_folder
from planner.output.tables import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, Table
from planner.output.terminal import text_table, wrapped
from planner.plan.attainment import LEAST_SHORTFALL, met_months_over, shortfall_over
from planner.plan.placement import services_of
from planner.plan.plan import Reuse
from planner.run.replications import draw_again
from planner.scenario.cluster import Cluster
from planner.scenario.loading import layer_of
from planner.sizing.choices import Counts
from planner.sizing.evaluate import SizeWork
from planner.sizing.size import Sized
from planner.studies.futures import AS_STATED
from planner.units import HOURS_PER_DAY, MILLION
from planner.version import __version__

SIZE_TABLES = tables_of("size")
"""Tables of a sizing by their names, in the order of the reference."""
POLICY = "policy.yaml"
"""The answer as a scenario."""
SHOWN = 6
"""Sentences on the first screen besides the answer and its verdict."""
_SAID = {"plan": "purchases"}
"""What a table is called where it stands beside others, and beside the plan in words."""


def plan_rows(sized: Sized) -> Table:
    """Return plan.csv."""
    choices = sized.choices
    counts = sized.plan.counts
    rows = list[Sequence[Any]]()
    clusters = choices.scenario.clusters
    marginal = {one.purchase: one for one in sized.explanation.marginal}

    def contract(cluster: Cluster) -> str:
        return "bought" if cluster.contract is None else cluster.contract.kind

    for place, (purchase, nodes) in enumerate(zip(choices.purchases, counts, strict=False)):
        if nodes:
            less: Sequence[Any] = (None, None, "")
            if (one := marginal.get(place)) is not None:
                less = (one.saved, one.probability, str(choices.plan.months.labels[one.month]))
            bought = (
                purchase.name,
                purchase.accelerator,
                purchase.date,
                contract(clusters[purchase.name]),
                nodes,
            )
            rows.append((*bought, nodes * sum(choices.node_prices_usd(place, nodes)), *less))
    for retirement, day in zip(choices.retirements, counts[choices.days], strict=True):
        if day:
            cluster = clusters[choices.names(retirement.cluster)[0]]
            leaves = retirement.dates[day - 1]
            gone = (
                retirement.cluster,
                cluster.accelerator,
                leaves,
                contract(cluster),
                -cluster.nodes,
            )
            rows.append((*gone, 0.0, None, None, ""))
    return SIZE_TABLES["plan"].of_rows(rows)


def policy_rows(sized: Sized) -> Table:
    """Return policies.csv."""
    rows: list[Sequence[Any]] = []
    attainment = sized.trial.attainment
    for way in sized.ways:
        run = way.outcome
        saved = way.saved
        if run is None:
            rows.append((way.name, *[None] * 10, ""))
            continue
        missed = float(
            (np.nan_to_num(run.shares, nan=1.0) <= attainment - LEAST_SHORTFALL)
            .any(axis=2)
            .sum(axis=1)
            .mean()
        )
        figures = (run.cost, run.net_present_cost_usd, run.capital_usd, run.verdict.share)
        less = (None, None, None) if saved is None else (saved.value, saved.low, saved.high)
        used = float(run.utilisation.mean())
        rows.append(
            (
                way.name,
                *figures,
                run.worst_tenth,
                missed,
                used,
                *less,
                sized.choices.words(run.counts),
            )
        )
    return SIZE_TABLES["policies"].of_rows(rows)


def future_rows(sized: Sized) -> Iterator[Sequence[Any]]:
    """Yield the rows of futures.csv: each way in each future, and as stated."""
    trial = sized.trial
    labels = sized.choices.plan.months.labels
    stated = [
        (way.name, AS_STATED, None, way.outcome) for way in sized.ways if way.outcome is not None
    ]
    for name, future, weight, outcome in (*stated, *sized.futures) if sized.futures else ():
        verdict = outcome.verdict
        short = (
            np.nan_to_num(outcome.shares, nan=1.0).min(axis=2) <= trial.attainment - LEAST_SHORTFALL
        )
        months = np.where(short.any(axis=1), short.argmax(axis=1), len(labels)).astype(np.float64)
        through = int(met_months_over(months, verdict.confidence))
        missed = labels[through] if through < len(labels) else ""
        money = (outcome.net_present_cost_usd, None, float(outcome.utilisation.mean()))
        yield (
            name,
            future,
            weight,
            verdict.status,
            verdict.share,
            *verdict.interval,
            missed,
            *money,
            None,
            None,
            None,
        )


def month_rows(sized: Sized) -> Iterator[Sequence[Any]]:
    """Yield the rows of months.csv: the lowest SLO attainment, and the binding constraint."""
    choices, trial, plan, choose = sized.choices, sized.trial, sized.plan, sized.choices.choose
    purchases = choices.purchases
    loads = choices.plan.workloads
    edges = choices.plan.month_edges_h
    enough = max(1, int(np.ceil(trial.confidence * plan.worst.size - 1e-9)))
    shares = np.nan_to_num(plan.shares, nan=1.0)
    # The share that enough replications reach, month by month: their ⌈p·n⌉-th best.
    reached = -np.sort(-shares, axis=0)[enough - 1]
    broken = (shares < trial.attainment).any(axis=2).mean(axis=0)
    binding = {one.month for one in sized.explanation.marginal}
    cap_kw = choose.it_power_cap_kw
    node_kw = min(cluster.nameplate_kw for cluster in choices.plan.clusters)
    for month, label in enumerate(choices.plan.months.labels):
        start_h = float(edges[month])
        end_h = float(edges[month + 1])
        moments = [at for at in choices.moments_h() if start_h <= at < end_h]
        power_kw = max(sum(choices.kw_at(plan.counts, at).values()) for at in [start_h, *moments])
        due = [
            count if (purchase.date - choices.scenario.start).days * HOURS_PER_DAY < end_h else 0
            for purchase, count in zip(purchases, plan.counts, strict=False)
        ]
        tight = cap_kw is not None and power_kw + node_kw > cap_kw
        load = (
            ""
            if choices.plan.slo_target.scope == "fleet"
            else loads[int(np.argmin(reached[month]))].name
        )
        least = float(reached[month].min())
        capital = choices.capital_usd((*due, *plan.counts[len(due) :]))
        figures = (
            least,
            least - trial.attainment,
            float(broken[month]),
            float(plan.utilisation[month]),
        )
        yield str(label), load, *figures, power_kw, capital, month in binding, tight


def size_tables(sized: Sized) -> list[Table]:
    """Return every table; those of what was not worked out, or does not apply, have no rows."""
    words = sized.choices.words
    explained = sized.explanation
    entries = {entry.accelerator: entry.price_change for entry in explained.entries}
    rows: dict[str, Iterable[Sequence[Any]]] = {
        "futures": future_rows(sized),
        "triggers": (
            (
                *attrgetter("cluster", "date", "load", "forecast_months", "installed")(one),
                trigger,
                *one.ordered,
            )
            for one, trigger in ((one, one.load * one.installed) for one in explained.triggers)
        ),
        "frontier": (
            (
                one.probability,
                one.cost,
                one.nodes,
                one.counts == sized.plan.counts,
                words(one.counts),
            )
            for one in explained.curve
        ),
        "single_accelerator_plans": (
            (one.name, one.cost, one.probability, entries.get(one.name), words(one.counts))
            if one.counts is not None
            else (one.name, None, None, entries.get(one.name), "")
            for one in sized.rivals
        ),
        "limits": explained.limits,
        "regret": explained.regrets,
        "months": month_rows(sized),
    }
    return [
        plan_rows(sized),
        policy_rows(sized),
        *(SIZE_TABLES[name].of_rows(cells) for name, cells in rows.items()),
    ]


def plan_document(sized: Sized, folder: Path, counts: Counts) -> str:
    """Return a plan as a scenario: what is chosen in place of what was open; it runs as it is."""
    choices, content, stated = sized.choices, sized.choices.content(counts), sized.scenario
    name = f"{stated.name}-sized"
    document: dict[str, Any] = {**content, "name": name}
    if file := scenario_file(stated):
        laid = layer_of(stated.document)
        clusters: dict[str, Any] = (
            {**laid.pop("clusters", {})} if isinstance(laid.get("clusters"), dict) else {}
        )
        clusters |= dict.fromkeys(choices.choose.clusters)
        chosen = {purchase.name for purchase in choices.purchases}
        chosen |= {retirement.cluster for retirement in choices.retirements}
        clusters |= {
            cluster: entry for cluster, entry in content["clusters"].items() if cluster in chosen
        }
        document = {"name": name, "extends": Path(os.path.relpath(file, folder)).as_posix(), **laid}
        keys = ("site", "workloads", "expansion", "finance")
        changed = [key for key in keys if content.get(key) != choices.base.content.get(key)]
        document |= {key: content[key] for key in changed} | {"sizing": None, "clusters": clusters}
    text: str = yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=110)
    return (
        "# Found by planner size: run it with planner run, or hold it against others with planner compare.\n"
        + text
    )


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _plain(part) for key, part in content.items()}
    return [_plain(part) for part in content] if isinstance(content, list | tuple) else content


def size_summary(sized: Sized) -> dict[str, Any]:
    """Return summary.json."""
    trial = sized.trial
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": sized.scenario.name,
        "objective": trial.objective,
        "verdict": _record(sized),
        "plan": sized.choices.words(sized.plan.counts),
        "family": sized.choices.family(sized.plan.counts),
        "objective_usd": sized.plan.cost,
        "objective_low_usd": sized.cost_range[0],
        "objective_high_usd": sized.cost_range[1],
        "net_present_cost_usd": sized.plan.net_present_cost_usd,
        "capital_usd": sized.plan.capital_usd,
        "utilisation_fraction": float(sized.plan.utilisation.mean()),
        "probability_fraction": sized.probability.value,
        "probability_half_width_fraction": sized.probability.half_width,
        "unfixable_fraction": sized.unfixable,
        "fresh_replications": sized.plan.worst.size,
        "seed": trial.seed,
        "runs": sized.runs,
        "stopped": sized.stopped,
        "sentences": list(said_of(sized)),
        **{table.name: _records(table) for table in size_tables(sized)},
    }


def _record(sized: Sized) -> dict[str, Any]:
    """Return the verdict on fresh replications, as summaries hold it."""
    worst = sized.plan.worst
    verdict = sized.plan.verdict
    short = round(max(0.0, shortfall_over(sized.trial.attainment - worst, verdict.confidence)), 6)
    return verdict_record(
        verdict, sized.scenario, shortfall_fraction=short, first_missed_month=None,
        lowest_fraction=round(float(worst.min()), 6), past_mending=sized.causes,
    )  # fmt: skip


def _records(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them, days as text."""
    return [
        {name: str(cell) if hasattr(cell, "isoformat") else cell for name, cell in row.items()}
        for row in table.records()
    ]


def _to_measure(sized: Sized) -> str:
    """Say which pairs of workload and purchase were never measured, the least certain first."""
    counts = sized.plan.counts
    bought = {
        purchase.name
        for purchase, nodes in zip(sized.choices.purchases, counts, strict=False)
        if nodes
    }
    services, _ = services_of(sized.choices.scenario, {}, Reuse(sized.choices.scenario))
    unsure = {
        f"{workload} on {cluster} (±{service.doubt.half_width_fraction:.0%})": service.doubt.half_width_fraction
        for (cluster, workload), service in services.items()
        if cluster in bought and service.doubt is not None and not service.doubt.is_validated
    }
    first = sorted(unsure, key=lambda pair: -unsure[pair])[:3]
    return f" Never measured: {', '.join(first)}." if first else ""


def said_of(sized: Sized) -> Iterator[str]:
    """Say what the answer is, how sure it is, why it is this one and what would change it."""
    plan = sized.plan
    explained = sized.explanation
    choices = sized.choices
    what = {
        "net-present-cost": "net present cost",
        "levelised": "levelised cost",
        "capital": "capital",
    }

    def money(cost: float) -> str:
        """Return a cost as the objective counts it."""
        is_unit = sized.trial.objective == "levelised"
        return f"{cost:,.4f} USD per million tokens" if is_unit else f"{cost / MILLION:,.2f} M USD"

    words = choices.words(plan.counts) if any(plan.counts) else "nothing, what is there is enough"
    low, high = map(money, sized.cost_range)
    trades = choices.choose.miss_cost_usd is not None
    lead = (
        "Buy"
        if plan.verdict.status != "MISSED" or trades
        else "Cheapest plan found, not confirmed:"
    )
    doubt = "of the mean over fresh replications" if trades else "for the error of P(SLO met)"
    cost = f"{what[sized.trial.objective]} {money(plan.cost)} ({low} to {high} {doubt})"
    yield f"{lead} {words}: {cost}."
    if trades:
        yield (
            f"Of that, {money(plan.cost - plan.net_present_cost_usd)} is for requests that miss their SLO, at "
            f"{choices.choose.miss_cost_usd:g} USD each: no probability is held."
        )
    probability = sized.probability
    verdict = plan.verdict
    yield (
        f"P(SLO met) {probability.value:.1%} (±{probability.half_width:.1%}) of {verdict.confidence:.0%} asked; "
        f"{verdict.met} of {verdict.replications} fresh replications meet it. In the worst tenth of them "
        f"attainment falls to {plan.worst_tenth:.2%}."
    )
    if sized.unfixable > 0.0:
        causes = ", ".join(
            f"{name.replace('_', ' ')} {count}" for name, count in sized.causes.items() if count
        )
        yield (
            f"{sized.unfixable:.1%} of replications miss the SLO target whatever is bought"
            f"{f' ({causes} of {plan.worst.size})' if causes else ''}: a second site or a looser target is their "
            "remedy, not nodes."
        )
    yield f"Utilisation {plan.utilisation.mean():.0%} in the mean."
    for way in sized.ways:
        if way.outcome is not None and way.saved is not None:
            saves, least, most = map(money, (way.saved.value, way.saved.low, way.saved.high))
            met = way.outcome.verdict.share
            rival_words = choices.words(way.outcome.counts)
            yield (
                f"Against a plan {way.name}, which meets the SLO target in {met:.0%} of them, it saves {saves} "
                f"({least} to {most}): {rival_words}."
            )
    yield from _said_of_orders(sized)
    for rival in sized.rivals:
        if rival.counts is None:
            yield f"No plan of {rival.name} alone that may be chosen meets the SLO target."
        elif rival.counts != plan.counts and (answer := explained.curve):
            paid = next((one.cost for one in answer if one.counts == plan.counts), plan.cost)
            apart = f"{abs(rival.cost / paid - 1.0):.0%} {'more' if rival.cost > paid else 'less'}"
            yield f"A plan of {rival.name} alone costs {apart} ({money(rival.cost)})."
    for entry in explained.entries:
        if entry.price_change is None:
            yield f"No price in prospect brings {entry.accelerator} into the mix."
        else:
            yield f"{entry.accelerator} enters the mix where it costs {-entry.price_change:.0%} less."
    for limit in explained.limits:
        yield f"A tenth more than {limit.value:,.0f} of {limit.limit} would save {money(limit.saved)}."
    if explained.regrets:
        middle = explained.regrets[len(explained.regrets) // 2]
        yield (
            f"In the middling future {middle.needed:,.0f} of {middle.nodes:,.0f} nodes would have done; in "
            f"{explained.idle:.0%} of futures a quarter or more of them is never needed."
        )
    if explained.predicted_saves:
        yield (
            f"If throughput were known to be as predicted, {money(explained.predicted_saves)} would be "
            f"saved.{_to_measure(sized)}"
        )
    if sized.stopped:
        yield f"The search was not finished: {sized.stopped}."


def _said_of_orders(sized: Sized) -> Iterator[str]:
    """Say on what signal each cluster is ordered, and by when at the latest."""
    choices = sized.choices
    triggers = sized.explanation.triggers
    for name in dict.fromkeys(trigger.cluster for trigger in triggers):
        reviews = [trigger for trigger in triggers if trigger.cluster == name]
        first = reviews[0]
        step = choices.choose.clusters[name].step_nodes
        yield (
            f"Order {name} in steps of {step} nodes when the {first.forecast_months}-month forecast of peak load "
            f"passes {first.load:.0%} of what is installed and on order, at {len(reviews)} reviews from {first.date}."
        )
    if (day := sized.explanation.last_safe) is not None:
        yield f"Last safe date for the first such order: {day}."


def size_text(sized: Sized, *, verbose: bool = False) -> str:
    """Lay a sizing out for a terminal: the answer, its verdict, what to buy, and with details all there is to say."""
    named = ("cluster", "accelerator", "date", "nodes")
    bought = [
        (*(str(row[name]) for name in named), f"{row['capital_usd'] / MILLION:,.2f}")
        for row in plan_rows(sized).records()
    ]
    unit, scale = ("USD/Mtok", 1.0) if sized.trial.objective == "levelised" else ("M USD", MILLION)
    plans = [
        (
            f"{one.probability:.1%}",
            f"{one.cost / scale:,.4g}",
            f"{one.nodes:,.0f}",
            "<- the answer" * (one.counts == sized.plan.counts),
        )
        for one in sized.explanation.curve
    ]
    said = list(said_of(sized))
    lines = [*wrapped(said[:3]), "", text_table((*named, "M USD"), bought), ""]
    if verbose:
        shown = text_table(("P(SLO met)", unit, "nodes", ""), plans)
        lines += ["cost against probability:", shown, ""]
    lines += wrapped(said[3:] if verbose else said[3:][:SHOWN])
    if sized.futures:
        lines += ["", *futures_lines(SIZE_TABLES["futures"].of_rows(future_rows(sized)))]
    return "\n".join(lines).rstrip()


def write_size(
    sized: Sized, work: SizeWork, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT
) -> None:
    """Write a sizing's folder, whole or not at all, in the place of the work that led to it.

    Beside the tables lies the policy as a scenario that runs as it is; the workbook is that of the answer as stated,
    with the tables of the sizing after its own.
    """
    scenario = sized.scenario
    tables = size_tables(sized)
    result = sized.as_stated()
    kept = [
        table
        for table in tables
        if (table.columns and len(table)) or table.name in ("plan", "policies", "months")
    ]
    manifest = {
        "kind": "size",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_sha256": scenario_sha256(scenario),
        "seed": sized.trial.seed,
        "objective": sized.trial.objective,
        "identity": work.identity,
        "command": list(command),
    }
    by_name = {table.name: table for table in (*kept, *evidence_tables({scenario.name: scenario}))}
    more = {POLICY: plan_document(sized, work.folder, sized.plan.counts).encode()}
    pages = months_pages(result.plan.months.labels, {scenario.name: draw_again(result)})
    pages |= plain_pages(
        {f"Size {_SAID.get(table.name, table.name)}": table.columns for table in tables}
    )
    shown = {table.name: table.columns for table in run_tables(result)}
    more[WORKBOOK] = run_workbook(result, run_pages(result, shown), pages)
    files = answer_files(
        Contents(manifest=manifest, tables=by_name, summary=size_summary(sized)), "size", form, more
    )
    check_target(
        work.folder, work=True
    )  # what somebody laid into it in the meantime is not swept away
    place_folder(work.folder, files, manifest)


def size_answer(folder: Path, sized: Sized, warnings: Sequence[str]) -> Answer[Sized]:
    """Return a sizing as an answer."""
    return Answer(
        folder=folder,
        result=sized,
        warnings=warnings,
        summarise=lambda: size_summary(sized),
        say=lambda verbose: size_text(sized, verbose=verbose),
        is_met=lambda: sized.plan.verdict.status != "MISSED",
        rows=lambda: policy_rows(sized),
    )


def write_so_far(sized: Sized, work: SizeWork) -> None:
    """Write the policy so far beside the unfinished work, where it can be read and run."""
    replace_synced(
        work.shards / POLICY, plan_document(sized, work.shards, sized.plan.counts).encode()
    )
