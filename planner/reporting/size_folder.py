"""A sizing as tables, a plan that runs as it is, and their folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import planner
from planner.language.loading import layer_of
from planner.reporting.csv_table import DEFAULT_FORMAT, CsvFormat, write_csv
from planner.reporting.datapackage import WrittenTable, data_package
from planner.reporting.folder import json_text, write_folder
from planner.reporting.plan_tables import evidence_tables
from planner.reporting.report.build import with_report
from planner.reporting.run_folder import scenario_file, scenario_sha256
from planner.reporting.size_columns import FAMILIES, FRONTIER, MONTHS, PLAN, PRECISIONS, PROMISES
from planner.reporting.text_table import text_table, wrapped
from planner.studies.sizing.explain import Fewer
from planner.studies.sizing.search import Judged
from planner.studies.sizing.size import Sized
from planner.units import HOURS_PER_DAY, MILLION

PLAN_FILE = "plan.yaml"


def plan_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of plan.csv."""
    choices, counts = sized.choices, sized.plan.counts
    rows: dict[str, list[Any]] = {column.name: [] for column in PLAN.columns}
    fewer = {each.purchase: each for each in sized.explanation.fewer}
    for place, (purchase, nodes) in enumerate(zip(choices.purchases, counts, strict=False)):
        if nodes:
            paid = nodes * sum(choices.node_prices_usd(place, nodes))
            cells = [
                purchase.name,
                purchase.accelerator,
                purchase.date,
                nodes,
                paid,
                *_without_one(sized, fewer[place]),
            ]
            for column, cell in zip(rows.values(), cells, strict=True):
                column.append(cell)
    for retirement, day in zip(choices.retirements, counts[len(choices.purchases) :], strict=True):
        if day:
            cluster = choices.scenario.clusters[retirement.cluster]
            cells = [retirement.cluster, cluster.accelerator, retirement.dates[day - 1], -cluster.nodes, 0.0]
            for column, cell in zip(rows.values(), [*cells, None, None, "", "", None], strict=True):
                column.append(cell)
    return rows


def _without_one(sized: Sized, fewer: Fewer) -> list[Any]:
    months, loads = sized.choices.plan.months.labels, sized.choices.plan.workloads
    share = fewer.kept / sized.plan.worst.size
    if fewer.month is None:
        return [fewer.saved, share, "", "", None]
    name = "" if fewer.workload is None else loads[fewer.workload].name
    return [fewer.saved, share, str(months[fewer.month]), name, fewer.in_time]


def _figures(sized: Sized, plan: Judged) -> list[float]:
    """Return the cells that every table of plans has."""
    service = plan.service(sized.promise.in_replications_fraction)
    kept = float(plan.kept(sized.promise.in_time_fraction).mean())
    return [plan.cost, plan.net_present_cost_usd, plan.capital_usd, service, kept]


def frontier_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of frontier.csv."""
    bought = len(sized.choices.purchases)
    return _columns(
        FRONTIER.columns,
        [
            [*_figures(sized, plan), sum(plan.counts[:bought]), plan.counts == sized.plan.counts, _words(sized, plan)]
            for plan in sized.explanation.frontier
        ],
    )


def _words(sized: Sized, plan: Judged) -> str:
    return sized.choices.words(plan.counts)


def _columns(described: Sequence[Any], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {column.name: [row[place] for row in rows] for place, column in enumerate(described)}


def family_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of families.csv."""
    rows: list[list[Any]] = []
    for family in sized.families:
        bound = family.bound if np.isfinite(family.bound) else None
        if family.plan is None:
            rows.append([family.name, "", None, *[None] * 5, bound, ""])
            continue
        figures = _figures(sized, family.plan)
        for part in sized.choices.accelerators:
            change = family.price_changes.get(part)
            rows.append([family.name, part, change, *figures, bound, _words(sized, family.plan)])
    return _columns(FAMILIES.columns, rows)


def month_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of months.csv."""
    choices, promise, plan = sized.choices, sized.promise, sized.plan
    enough = max(1, int(np.ceil(promise.in_replications_fraction * plan.worst.size - 1e-9)))
    # The share that enough replications reach, month by month: their ⌈p·n⌉-th best.
    reached = -np.sort(-np.nan_to_num(plan.shares, nan=1.0), axis=0)[enough - 1]
    worst = np.argmin(reached, axis=1)
    least = reached.min(axis=1)
    broken = (np.nan_to_num(plan.shares, nan=1.0) < promise.in_time_fraction).any(axis=2).mean(axis=0)
    edges, rows = choices.plan.month_edges_h, []
    for month, label in enumerate(choices.plan.months.labels):
        end_h = float(edges[month + 1])
        moments = [at for at in choices.moments_h() if edges[month] <= at < end_h]
        power_kw = max(sum(choices.kw_at(plan.counts, at).values()) for at in [float(edges[month]), *moments])
        due = _due_by(sized, end_h)
        load = choices.plan.workloads[int(worst[month])].name if promise.of_workload else ""
        rows.append(
            [str(label), load, float(least[month]), float(least[month]) - promise.in_time_fraction,
             float(broken[month]),
             float(plan.utilisation[month]), power_kw, choices.capital_usd(due), _binds(sized, month, power_kw)]
        )  # fmt: skip
    return _columns(MONTHS.columns, rows)


def _due_by(sized: Sized, end_h: float) -> tuple[int, ...]:
    """Return the purchases of the answer made before a moment."""
    choices = sized.choices
    start, bought = choices.scenario.start, len(choices.purchases)
    nodes = [
        count if (purchase.date - start).days * HOURS_PER_DAY < end_h else 0
        for purchase, count in zip(choices.purchases, sized.plan.counts, strict=False)
    ]
    return (*nodes, *sized.plan.counts[bought:])


def _binds(sized: Sized, month: int, power_kw: float) -> str:
    """Say what binds in a month."""
    choices, choose, plan = sized.choices, sized.choices.choose, sized.plan
    said = dict.fromkeys(
        "capacity for " + ("all together" if each.workload is None else choices.plan.workloads[each.workload].name)
        for each in sized.explanation.fewer
        if each.month == month
    )
    places = range(len(choices.purchases))
    if choose.power_kw is not None and power_kw + min(c.nameplate_kw for c in choices.plan.clusters) > choose.power_kw:
        said["power"] = None
    node_usd = min((sum(choices.node_prices_usd(place, 1)) for place in places), default=0.0)
    if choose.budget_usd is not None and choices.capital_usd(plan.counts) + node_usd > choose.budget_usd:
        said["budget"] = None
    if choices.purchases:
        totals = np.bincount(choices.group_of, weights=plan.counts[: len(choices.purchases)])
        if (totals >= choices.nodes_allowed()[1]).all():
            said["nodes"] = None
    return "; ".join(said) or "nothing"


def promise_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of promises.csv."""
    rows: list[list[Any]] = []
    for share, plan in sized.explanation.nines:
        if plan is None:
            rows.append([share, None, None, None, None, ""])
        else:
            figures = [plan.cost, plan.net_present_cost_usd, plan.capital_usd, plan.cost - sized.plan.cost]
            rows.append([share, *figures, _words(sized, plan)])
    return _columns(PROMISES.columns, rows)


def precision_rows(sized: Sized) -> dict[str, list[Any]]:
    """Return the columns of precisions.csv."""
    loads, count = sized.choices.plan.workloads, sized.plan.worst.size
    rows = [
        [each.cluster, each.precision, load.name, ratio if np.isfinite(ratio) else None, each.kept / count]
        for each in sized.explanation.narrow
        for load, ratio in zip(loads, each.rate_ratio, strict=True)
    ]
    return _columns(PRECISIONS.columns, rows)


def plan_document(sized: Sized, folder: Path) -> str:
    """Return plan.yaml: the scenario with what is chosen in place of what was open; it runs as it is."""
    choices, content = sized.choices, sized.choices.content(sized.plan.counts)
    stated, file = sized.scenario, scenario_file(sized.scenario)
    lists = {key: content[key] for key in ("site", "workloads") if content.get(key) != stated.document.content.get(key)}
    name = f"{stated.name}-sized"
    if not file:
        whole = {**content, "name": name}
        return _yaml(whole)
    laid = layer_of(stated.document.overrides)
    clusters: dict[str, Any] = {**laid.pop("clusters", {})} if isinstance(laid.get("clusters"), dict) else {}
    clusters |= dict.fromkeys(choices.choose.clusters)
    chosen = {each.name for each in choices.purchases} | {each.cluster for each in choices.retirements}
    clusters |= {cluster: entry for cluster, entry in content["clusters"].items() if cluster in chosen}
    extends = Path(os.path.relpath(file, folder)).as_posix()
    return _yaml({"name": name, "extends": extends, **laid, **_plain(lists), "choose": None, "clusters": clusters})


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _plain(part) for key, part in content.items()}
    return [_plain(part) for part in content] if isinstance(content, list | tuple) else content


def _yaml(content: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(_plain(content), sort_keys=False, allow_unicode=True, width=110)
    return "# Found by planner size: run it with planner run, or hold it against others with planner compare.\n" + text


def size_summary(sized: Sized) -> dict[str, Any]:
    """Return summary.json."""
    confirmed, promise, trial = sized.confirmation, sized.promise, sized.trial
    return {
        "scenario": sized.scenario.name,
        "objective": trial.objective,
        "promise": {
            "in_time": promise.in_time_fraction,
            "each": "month" if promise.each_month else "horizon",
            "of": "workload" if promise.of_workload else "fleet",
            "in_replications": promise.in_replications_fraction,
        },
        "plan": _words(sized, sized.plan),
        "family": sized.family,
        "cost": sized.plan.cost,
        "net_present_cost_usd": sized.plan.net_present_cost_usd,
        "capital_usd": sized.plan.capital_usd,
        "bound": sized.bound,
        "gap_fraction": sized.gap,
        "kept_fraction": confirmed.kept / confirmed.replications,
        "kept_low_fraction": confirmed.low,
        "kept_high_fraction": confirmed.high,
        "fresh_replications": confirmed.replications,
        "search_replications": sized.plan.worst.size,
        "seed": trial.seed,
        "runs": sized.runs,
        "stopped": sized.stopped,
        "sentences": sentences(sized),
        **{name: _records(rows) for name, rows in (("purchases", plan_rows(sized)), ("families", family_rows(sized)),
                                                  ("promises", promise_rows(sized)))},
    }  # fmt: skip


def _records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [
        dict(zip(columns, (str(cell) if hasattr(cell, "isoformat") else cell for cell in row), strict=True))
        for row in rows
    ]


def money(sized: Sized, cost: float) -> str:
    """Return a cost as the objective counts it."""
    if sized.trial.objective == "levelised":
        return f"{cost:,.4f} USD per million tokens"
    return f"{cost / MILLION:,.2f} M USD"


def sentences(sized: Sized) -> list[str]:
    """Say what the answer is, how sure it is, why it is this one and what would change it."""
    confirmed, promise = sized.confirmation, sized.promise
    what = {"net-present-cost": "net present cost", "levelised": "levelised cost", "capital": "capital"}
    share = confirmed.kept / confirmed.replications
    enough = share >= promise.in_replications_fraction - 1e-9
    said = [
        f"Buy {_words(sized, sized.plan)}: {what[sized.trial.objective]} {money(sized, sized.plan.cost)}. No plan that "
        f"keeps the promise costs less than {money(sized, sized.bound)}, so at most {sized.gap:.1%} could be saved.",
        f"On {confirmed.replications} fresh replications the promise ({promise.in_time_fraction:.2%} in time) is kept "
        f"in {share:.1%} of them ({confirmed.low:.1%} to {confirmed.high:.1%} with 95% confidence), "
        + (f"as the {promise.in_replications_fraction:.0%} asked for." if enough else
           f"fewer than the {promise.in_replications_fraction:.0%} asked for: this plan does not keep it."),
    ]  # fmt: skip
    for purchase, row in zip(plan_rows(sized)["cluster"], _records(plan_rows(sized)), strict=True):
        if row["breaks_month"]:
            load = f"{row['breaks_workload']} " if row["breaks_workload"] else ""
            said.append(
                f"With one node of {purchase} fewer, {row['kept_fewer_fraction']:.0%} of replications keep it: {load}"
                f"in {row['breaks_month']} falls to {row['breaks_in_time_fraction']:.2%} in time. It would save "
                f"{money(sized, row['node_saves'])}."
            )
    for family in sized.families:
        if family.name == sized.family:
            continue
        if family.plan is None:
            said.append(f"No plan of {family.name} that may be chosen keeps the promise.")
            continue
        own = family.name.removeprefix("all-")
        change = family.price_changes.get(own)
        more = family.plan.cost / sized.plan.cost - 1.0
        dearer = f"costs {abs(more):.1%} {'more' if more >= 0 else 'less'} ({money(sized, family.plan.cost)})"
        wins = "; no price of its part alone would let it win" if change is None else (
            f"; it wins where a {own} costs {abs(change):.0%} {'less' if change < 0 else 'more'}")  # fmt: skip
        said.append(f"The best plan of {family.name} {dearer}{wins}.")
    for promised, plan in sized.explanation.nines:
        if plan is not None and promised > promise.in_time_fraction:
            extra = plan.cost - sized.plan.cost
            said.append(f"To promise {promised:.1%} would cost {money(sized, extra)} more.")
    for each in sized.explanation.narrow:
        ratios = [ratio for ratio in each.rate_ratio if np.isfinite(ratio)]
        if ratios:
            said.append(
                f"{each.precision} lets a node of {each.cluster} serve {min(ratios):.2f} to {max(ratios):.2f} times "
                f"as much; without it {each.kept / sized.plan.worst.size:.0%} of replications keep the promise."
            )
    if sized.stopped:
        said.append(f"The search was not finished: {sized.stopped}.")
    return said


def size_text(sized: Sized) -> str:
    """Lay a sizing out for a terminal."""
    rows = plan_rows(sized)
    table = text_table(
        ("cluster", "part", "date", "nodes", "M USD"),
        [
            (name, part, str(date), str(nodes), f"{usd / MILLION:,.2f}")
            for name, part, date, nodes, usd in zip(
                rows["cluster"], rows["accelerator"], rows["date"], rows["nodes"], rows["capital_usd"], strict=True
            )
        ],
    )
    frontier = frontier_rows(sized)
    unit = "USD/Mtok" if sized.trial.objective == "levelised" else "M USD"
    scale = 1.0 if sized.trial.objective == "levelised" else MILLION
    shown = text_table(
        (unit, "in time", "kept", "nodes", ""),
        [
            (f"{cost / scale:,.4g}", f"{service:.2%}", f"{kept:.0%}", str(nodes), "<- the answer" if answer else "")
            for cost, service, kept, nodes, answer in zip(
                frontier["cost"], frontier["in_time_fraction"], frontier["kept_fraction"], frontier["nodes"],
                frontier["is_answer"], strict=True,
            )
        ],
    )  # fmt: skip
    return "\n".join([table, "", "cost against service:", shown, "", *wrapped(sentences(sized))])


def write_size(sized: Sized, folder: Path, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write a sizing's folder, whole or not at all."""
    document = plan_document(sized, folder)
    tables = [
        (PLAN, plan_rows(sized)), (FRONTIER, frontier_rows(sized)), (FAMILIES, family_rows(sized)),
        (MONTHS, month_rows(sized)), (PROMISES, promise_rows(sized)), (PRECISIONS, precision_rows(sized)),
        *evidence_tables({sized.scenario.name: sized.scenario}),
    ]  # fmt: skip
    written = [WrittenTable(description=table, content=write_csv(table, rows, form)) for table, rows in tables]
    files: dict[str, str | bytes] = {f"{table.description.name}.csv": table.content for table in written}
    files[PLAN_FILE] = document
    files["summary.json"] = json_text(size_summary(sized))
    files["datapackage.json"] = data_package("size", written, form)
    manifest = {
        "kind": "size",
        "version": planner.__version__,
        "scenario": sized.scenario.name,
        "scenario_sha256": scenario_sha256(sized.scenario),
        "seed": sized.trial.seed,
        "objective": sized.trial.objective,
        "command": list(command),
    }
    write_folder(folder, with_report(files, manifest), manifest)
