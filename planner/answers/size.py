"""A sizing as an answer: its tables, a plan that runs as it is, summary, text, and the sections of its report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from planner.answers.answer import Answer
from planner.answers.judgement import past_mending_lines, verdict_line, verdict_record
from planner.answers.live_workbook import run_pages, run_workbook
from planner.answers.plan_workbooks import months_pages, plain_pages
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables, run_tables, scenario_file, scenario_sha256
from planner.answers.tables import tables_of
from planner.files import check_target
from planner.output.folder import WORKBOOK, Contents, place_folder
from planner.output.tables import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, Table
from planner.output.terminal import text_table, wrapped
from planner.plan.placement import services_of
from planner.plan.reuse import Reuse
from planner.plan.slo_target import past_mending
from planner.run.replications import draw_again
from planner.scenario.cluster import Cluster
from planner.scenario.loading import layer_of
from planner.sizing.choices import MIXED, Counts
from planner.sizing.evaluate import Judged, SizeWork
from planner.sizing.review import FIXED, NOW, REVIEWED
from planner.sizing.size import Sized
from planner.units import HOURS_PER_DAY, MILLION
from planner.version import __version__

SIZE_TABLES = tables_of("size")
"""Tables of a sizing by their names, in the order of the reference."""
SHOWN = 6
"""Sentences on the first screen besides the answer and its verdict."""
_SAID = {"plan": "purchases"}
"""What a table is called where it stands beside others, and beside the plan in words."""


def plan_rows(sized: Sized) -> Table:
    """Return plan.csv."""
    choices, counts, rows = sized.choices, sized.plan.counts, list[Sequence[Any]]()
    clusters, loads = choices.scenario.clusters, choices.plan.workloads
    fewer = {fewer.purchase: fewer for fewer in sized.explanation.fewer}

    def contract(cluster: Cluster) -> str:
        return "bought" if cluster.contract is None else cluster.contract.kind

    for place, (purchase, nodes) in enumerate(zip(choices.purchases, counts, strict=False)):
        if nodes:
            less = fewer[place]
            breaks: Sequence[Any] = ("", "", None)
            if less.month is not None:
                load = "" if less.workload is None else loads[less.workload].name
                breaks = (str(choices.plan.months.labels[less.month]), load, less.attainment)
            bought = (purchase.name, purchase.accelerator, purchase.date, contract(clusters[purchase.name]), nodes)
            paid = nodes * sum(choices.node_prices_usd(place, nodes))
            rows.append((*bought, paid, less.saved, less.slo_met_fraction, *breaks))
    for retirement, day in zip(choices.retirements, counts[len(choices.purchases) :], strict=True):
        if day:
            cluster, leaves = clusters[retirement.cluster], retirement.dates[day - 1]
            gone = (retirement.cluster, cluster.accelerator, leaves, contract(cluster), -cluster.nodes)
            rows.append((*gone, 0.0, None, None, "", "", None))
    return SIZE_TABLES["plan"].of_rows(rows)


def _figures(sized: Sized, plan: Judged) -> list[float]:
    """Return the cells that every table of plans has."""
    service, kept = plan.service(sized.slo_target.confidence), float(plan.kept(sized.slo_target.attainment).mean())
    return [plan.cost, plan.net_present_cost_usd, plan.capital_usd, service, kept]


def frontier_rows(sized: Sized) -> Table:
    """Return frontier.csv."""
    bought, words = len(sized.choices.purchases), sized.choices.words
    return SIZE_TABLES["frontier"].of_rows(
        [*_figures(sized, plan), sum(plan.counts[:bought]), plan.counts == sized.plan.counts, words(plan.counts)]
        for plan in sized.explanation.frontier
    )


def month_rows(sized: Sized) -> Iterator[Sequence[Any]]:
    """Yield the rows of months.csv: the lowest SLO attainment, and the binding constraint."""
    choices, slo_target, plan, choose = sized.choices, sized.slo_target, sized.plan, sized.choices.choose
    purchases, loads, edges = choices.purchases, choices.plan.workloads, choices.plan.month_edges_h
    enough = max(1, int(np.ceil(slo_target.confidence * plan.worst.size - 1e-9)))
    shares = np.nan_to_num(plan.shares, nan=1.0)
    # The share that enough replications reach, month by month: their ⌈p·n⌉-th best.
    reached = -np.sort(-shares, axis=0)[enough - 1]
    broken = (shares < slo_target.attainment).any(axis=2).mean(axis=0)
    node_usd = min((sum(choices.node_prices_usd(place, 1)) for place in range(len(purchases))), default=0.0)
    totals = np.bincount(choices.group_of, weights=plan.counts[: len(purchases)]) if purchases else np.zeros(0)
    dear = choose.budget_usd is not None and choices.capital_usd(plan.counts) + node_usd > choose.budget_usd
    full = bool(purchases) and bool((totals >= choices.nodes_allowed()[1]).all())
    for month, label in enumerate(choices.plan.months.labels):
        start_h, end_h = float(edges[month]), float(edges[month + 1])
        moments = [at for at in choices.moments_h() if start_h <= at < end_h]
        power_kw = max(sum(choices.kw_at(plan.counts, at).values()) for at in [start_h, *moments])
        due = [
            count if (purchase.date - choices.scenario.start).days * HOURS_PER_DAY < end_h else 0
            for purchase, count in zip(purchases, plan.counts, strict=False)
        ]
        binds = [
            "capacity for " + ("all together" if fewer.workload is None else loads[fewer.workload].name)
            for fewer in sized.explanation.fewer
            if fewer.month == month
        ]
        cap_kw, node_kw = choose.it_power_cap_kw, min(cluster.nameplate_kw for cluster in choices.plan.clusters)
        tight = cap_kw is not None and power_kw + node_kw > cap_kw
        binds += [said for said, is_so in (("power", tight), ("budget", dear), ("nodes", full)) if is_so]
        load = loads[int(np.argmin(reached[month]))].name if slo_target.is_per_workload else ""
        least, capital = float(reached[month].min()), choices.capital_usd((*due, *plan.counts[len(purchases) :]))
        figures = (least, least - slo_target.attainment, float(broken[month]), float(plan.utilisation[month]))
        yield str(label), load, *figures, power_kw, capital, "; ".join(dict.fromkeys(binds)) or "nothing"


def size_tables(sized: Sized) -> list[Table]:
    """Return every table; those of a review have no rows where there is none."""
    words, explained, loads = sized.choices.words, sized.explanation, sized.choices.plan.workloads
    drawn = sized.plan.worst.size
    families: list[Sequence[Any]] = []
    for family in sized.families:
        bound, plan = family.bound if np.isfinite(family.bound) else None, family.plan
        if plan is None:
            families.append((family.name, "", None, *[None] * 5, bound, ""))
            continue
        for part in sized.choices.accelerators:
            change, figures = family.price_changes.get(part), _figures(sized, plan)
            families.append((family.name, part, change, *figures, bound, words(plan.counts)))
    nines: list[Sequence[Any]] = []
    for share, plan in explained.nines:
        cells: Sequence[Any] = (None, None, None, None, "")
        if plan is not None:
            more = plan.cost - sized.plan.cost
            cells = (plan.cost, plan.net_present_cost_usd, plan.capital_usd, more, words(plan.counts))
        nines.append((share, *cells))
    ways: list[Sequence[Any]] = []
    for way in sized.review.alternatives if sized.review else ():
        run, saved = way.outcome, way.saved
        spent = (None, None) if run is None else (run.cost, float(run.kept(sized.slo_target.attainment).mean()))
        less = (None, None, None) if saved is None else (saved.value, saved.low, saved.high)
        ways.append((way.name, *spent, *less, way.words))
    rows: dict[str, Iterable[Sequence[Any]]] = {
        "single_accelerator_plans": families,
        "months": month_rows(sized),
        "slo_target_curve": nines,
        "precisions": (
            (one.cluster, one.precision, load.name, ratio if np.isfinite(ratio) else None, one.kept / drawn)
            for one in explained.narrow
            for load, ratio in zip(loads, one.rate_ratio, strict=True)
        ),
        "review": ways,
        "branches": (
            (n, level.share, level.late, level.lowest, level.highest, words(level.counts), level_file(n))
            for n, level in enumerate(sized.review.levels if sized.review else (), start=1)
        ),
    }
    return [plan_rows(sized), frontier_rows(sized), *(SIZE_TABLES[name].of_rows(cells) for name, cells in rows.items())]


def level_file(number: int) -> str:
    """Return the name of the plan for what is seen at a review."""
    return f"plan-branch-{number}.yaml"


def plan_document(sized: Sized, folder: Path, counts: Counts) -> str:
    """Return a plan as a scenario: what is chosen in place of what was open; it runs as it is."""
    choices, content, stated = sized.choices, sized.choices.content(counts), sized.scenario
    name = f"{stated.name}-sized"
    document: dict[str, Any] = {**content, "name": name}
    if file := scenario_file(stated):
        laid = layer_of(stated.document)
        clusters: dict[str, Any] = {**laid.pop("clusters", {})} if isinstance(laid.get("clusters"), dict) else {}
        clusters |= dict.fromkeys(choices.choose.clusters)
        chosen = {purchase.name for purchase in choices.purchases}
        chosen |= {retirement.cluster for retirement in choices.retirements}
        clusters |= {cluster: entry for cluster, entry in content["clusters"].items() if cluster in chosen}
        document = {"name": name, "extends": Path(os.path.relpath(file, folder)).as_posix(), **laid}
        changed = [key for key in ("site", "workloads") if content.get(key) != stated.document.content.get(key)]
        document |= {key: content[key] for key in changed} | {"sizing": None, "clusters": clusters}
    text: str = yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=110)
    return "# Found by planner size: run it with planner run, or hold it against others with planner compare.\n" + text


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
        "family": sized.family,
        "objective_usd": sized.plan.cost,
        "net_present_cost_usd": sized.plan.net_present_cost_usd,
        "capital_usd": sized.plan.capital_usd,
        "bound": sized.bound,
        "gap_fraction": sized.gap,
        "fresh_replications": sized.confirmation.replications,
        "search_replications": sized.plan.worst.size,
        "seed": trial.seed,
        "runs": sized.runs,
        "stopped": sized.stopped,
        "sentences": list(said_of(sized)),
        **{_SAID.get(table.name, table.name): _records(table) for table in size_tables(sized)},
    }


def _record(sized: Sized) -> dict[str, Any]:
    """Return the verdict on fresh replications, as summaries hold it."""
    outcome, target = sized.confirmation.outcome, sized.slo_target
    short = round(max(0.0, target.attainment - outcome.service(target.confidence)), 6)
    lowest = round(float(np.nanmin(outcome.worst)), 6)
    return verdict_record(
        sized.verdict, sized.scenario, shortfall_fraction=short, first_missed_month=None, lowest_fraction=lowest,
        past_mending=past_mending(outcome.ceilings.T, target.attainment),
    )  # fmt: skip


def _records(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them, days as text."""
    return [
        {name: str(cell) if hasattr(cell, "isoformat") else cell for name, cell in row.items()}
        for row in table.records()
    ]


def _to_measure(sized: Sized) -> str:
    """Say which pairs of workload and purchase were never measured, the least certain first."""
    bought = {
        purchase.name for purchase, nodes in zip(sized.choices.purchases, sized.plan.counts, strict=False) if nodes
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
    slo_target, plan, review = sized.slo_target, sized.plan, sized.review
    what = {"net-present-cost": "net present cost", "levelised": "levelised cost", "capital": "capital"}

    def money(cost: float) -> str:
        """Return a cost as the objective counts it."""
        is_unit = sized.trial.objective == "levelised"
        return f"{cost:,.4f} USD per million tokens" if is_unit else f"{cost / MILLION:,.2f} M USD"

    words = sized.choices.words(plan.counts) if any(plan.counts) else "nothing, what is there is enough"
    lead = "Buy" if sized.verdict.status == "MET" else "Cheapest plan found, not confirmed:"
    yield (
        f"{lead} {words}: {what[sized.trial.objective]} {money(plan.cost)}. Lower bound {money(sized.bound)}: at most "
        f"{sized.gap:.1%} could be saved."
    )
    record = _record(sized)
    fresh = [verdict_line(record, "--confirmations"), *past_mending_lines({"": record})]
    yield f"On fresh replications: {' '.join(fresh)}"
    less = [cheaper for cheaper in sized.explanation.frontier if cheaper.cost < plan.cost]
    if any(cheaper.kept(slo_target.attainment).mean() >= slo_target.confidence - 1e-9 for cheaper in less):
        yield (
            "Cheaper plans met it as often in the search, by too little to count on, or were not confirmed on fresh "
            "replications."
        )
    names = {sized.choices.purchases[fewer.purchase].name for fewer in sized.explanation.fewer if fewer.refuted}
    for row in _records(plan_rows(sized)):
        if row["breaks_month"]:
            load = f"{row['breaks_workload']} " if row["breaks_workload"] else ""
            few = ", but too few of those to which the answer is held" if row["cluster"] in names else ""
            yield (
                f"One node of {row['cluster']} fewer: {row['slo_met_fewer_fraction']:.1%} of replications meet it"
                f"{few}; {load}in {row['breaks_month']} falls to {row['breaks_slo_attainment_fraction']:.2%}. "
                f"It would save {money(row['marginal_node_cost_usd'])}."
            )
    for family in sized.families:
        if family.plan is None:
            yield f"No plan of {family.name} that may be chosen meets the SLO target."
        elif family.plan.counts != plan.counts:  # not the answer itself; of every part alone where nothing is bought
            changes, cost = family.price_changes, family.plan.cost
            nearest = family.name.removeprefix("all-")
            if family.name == MIXED:  # the part whose price would have to change least
                nearest = min(changes, key=lambda part: abs(changes[part]), default="")
            more, change = cost - plan.cost, changes.get(nearest)
            apart = f"{abs(more) / plan.cost:.1%}" if plan.cost > 0.0 else money(abs(more))
            wins = "no price of one part alone would let it win"
            if change is not None:
                wins = f"it wins where a {nearest} costs {abs(change):.0%} {'less' if change < 0 else 'more'}"
            yield (
                f"A plan of {family.name} would cost {apart} less ({money(cost)}), but was not confirmed on fresh "
                "replications."
                if more < 0.0
                else f"The best plan of {family.name} costs {apart} more ({money(cost)}); {wins}."
            )
    for targeted, dearer in sized.explanation.nines:
        if dearer is not None and targeted > slo_target.attainment:
            yield f"A target of {targeted:.1%} would cost {money(dearer.cost - plan.cost)} more."
    for narrower in sized.explanation.narrow:
        if ratios := [ratio for ratio in narrower.rate_ratio if np.isfinite(ratio)]:
            yield (
                f"{narrower.precision} lets a node of {narrower.cluster} serve {min(ratios):.2f} to {max(ratios):.2f} "
                f"times as much; without it {narrower.kept / plan.worst.size:.0%} of replications meet the target."
            )
    if (predicted := sized.explanation.predicted) is not None and predicted.saved > 0.0:
        yield (
            f"With throughput as predicted {predicted.nodes_fraction:.0%} of these nodes would do: the error of the "
            f"throughput model costs {money(predicted.saved)}.{_to_measure(sized)}"
        )
    if review is not None:
        for way in (way for way in review.alternatives if way.name != REVIEWED):
            said = {NOW: "buying everything before it", FIXED: "fixing everything on the first day"}
            against = said.get(way.name, f"never buying {', '.join(review.next_parts)}")
            if way.saved is None:
                yield f"The review on {review.date} makes a plan possible: {against} does not meet the SLO target."
            else:
                saves, low, high = map(money, (way.saved.value, way.saved.low, way.saved.high))
                sure = "" if way.saved.low > 0 else ", so that no gain is shown"
                yield (
                    f"Deciding on {review.date} by what was seen until then saves {saves} against {against} ({low} to "
                    f"{high} with 95% confidence{sure})."
                )
    if sized.stopped:
        yield f"The search was not finished: {sized.stopped}."


def size_text(sized: Sized, *, verbose: bool = False) -> str:
    """Lay a sizing out for a terminal: the answer, its verdict, what to buy, and with details all there is to say."""
    named = ("cluster", "accelerator", "date", "nodes")
    bought = [
        (*(str(row[name]) for name in named), f"{row['capital_usd'] / MILLION:,.2f}")
        for row in plan_rows(sized).records()
    ]
    unit, scale = ("USD/Mtok", 1.0) if sized.trial.objective == "levelised" else ("M USD", MILLION)
    plans = []
    for row in frontier_rows(sized).records():
        shares = (f"{row['slo_attainment_fraction']:.2%}", f"{row['slo_met_fraction']:.0%}")
        answer = "<- the answer" if row["is_answer"] else ""
        plans.append((f"{row['objective_usd'] / scale:,.4g}", *shares, str(row["nodes"]), answer))
    said = list(said_of(sized))
    lines = [*wrapped(said[:2]), "", text_table((*named, "M USD"), bought), ""]
    if verbose:
        shown = text_table((unit, "attained", "P(met)", "nodes", ""), plans)
        return "\n".join([*lines, "cost against service:", shown, "", *wrapped(said[2:])])
    return "\n".join([*lines, *wrapped(said[2:][:SHOWN])]).rstrip()


def write_size(sized: Sized, work: SizeWork, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write a sizing's folder, whole or not at all, in the place of the work that led to it.

    Beside the tables lie the plan, and that for each level of what is seen at a review, as scenarios that run as they
    are; the workbook is that of the answer as stated, with the tables of the sizing after its own.
    """
    scenario, tables, result = sized.scenario, size_tables(sized), sized.as_stated()
    kept = [table for table in tables if sized.review or table.name not in ("review", "branches")]
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
    levels = enumerate(sized.review.levels if sized.review else (), start=1)
    counts = {"plan.yaml": sized.plan.counts} | {level_file(number): level.counts for number, level in levels}
    more = {name: plan_document(sized, work.folder, bought).encode() for name, bought in counts.items()}
    pages = months_pages(result.plan.months.labels, {scenario.name: draw_again(result)})
    pages |= plain_pages({f"Size {_SAID.get(table.name, table.name)}": table.columns for table in tables})
    shown = {table.name: table.columns for table in run_tables(result)}
    more[WORKBOOK] = run_workbook(result, run_pages(result, shown), pages)
    files = answer_files(Contents(manifest=manifest, tables=by_name, summary=size_summary(sized)), "size", form, more)
    check_target(work.folder, work=True)  # what somebody laid into it in the meantime is not swept away
    place_folder(work.folder, files, manifest)


def size_answer(folder: Path, sized: Sized, warnings: Sequence[str]) -> Answer[Sized]:
    """Return a sizing as an answer."""
    return Answer(
        folder=folder,
        result=sized,
        warnings=warnings,
        summarise=lambda: size_summary(sized),
        say=lambda _, verbose: size_text(sized, verbose=verbose),
        is_met=lambda: sized.verdict.status == "MET",
        rows=lambda: frontier_rows(sized),
    )
