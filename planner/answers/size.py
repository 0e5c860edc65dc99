"""A sizing as an answer: its tables, a plan that runs as it is, summary, text, and the sections of its report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from planner.answers.answer import Answer
from planner.answers.live_workbook import run_pages, run_workbook
from planner.answers.plan_workbooks import months_pages, plain_pages
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables, run_tables, scenario_file, scenario_sha256
from planner.answers.tables import tables_of
from planner.files import check_target
from planner.output.folder import WORKBOOK, Contents, place_folder
from planner.output.tables import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, Table
from planner.output.terminal import text_table, wrapped
from planner.run.replications import draw_again
from planner.scenario.cluster import Cluster
from planner.scenario.loading import layer_of
from planner.sizing.choices import MIXED, Counts
from planner.sizing.evaluate import Judged, SizeWork
from planner.sizing.explain import Fewer
from planner.sizing.review import FIXED, NOW, REVIEWED
from planner.sizing.size import Sized
from planner.units import HOURS_PER_DAY, MILLION
from planner.version import __version__

SIZE_TABLES = tables_of("size")
"""Tables of a sizing by their names, in the order of the reference."""


def plan_rows(sized: Sized) -> Table:
    """Return plan.csv."""
    choices, counts = sized.choices, sized.plan.counts
    rows: list[list[Any]] = []
    fewer = {fewer.purchase: fewer for fewer in sized.explanation.fewer}
    for place, (purchase, nodes) in enumerate(zip(choices.purchases, counts, strict=False)):
        if nodes:
            paid = nodes * sum(choices.node_prices_usd(place, nodes))
            contract = _contract(choices.scenario.clusters[purchase.name])
            cells = [purchase.name, purchase.accelerator, purchase.date, contract, nodes, paid]
            rows.append([*cells, *_without_one(sized, fewer[place])])
    for retirement, day in zip(choices.retirements, counts[len(choices.purchases) :], strict=True):
        if day:
            cluster = choices.scenario.clusters[retirement.cluster]
            leaves = retirement.dates[day - 1]
            cells = [retirement.cluster, cluster.accelerator, leaves, _contract(cluster), -cluster.nodes, 0.0]
            rows.append([*cells, None, None, "", "", None])
    return SIZE_TABLES["plan"].of_rows(rows)


def _contract(cluster: Cluster) -> str:
    return "bought" if cluster.contract is None else cluster.contract.kind


def _without_one(sized: Sized, fewer: Fewer) -> list[Any]:
    months, loads = sized.choices.plan.months.labels, sized.choices.plan.workloads
    if fewer.month is None:
        return [fewer.saved, fewer.kept_fraction, "", "", None]
    name = "" if fewer.workload is None else loads[fewer.workload].name
    return [fewer.saved, fewer.kept_fraction, str(months[fewer.month]), name, fewer.in_time]


def _figures(sized: Sized, plan: Judged) -> list[float]:
    """Return the cells that every table of plans has."""
    service = plan.service(sized.promise.in_replications_fraction)
    kept = float(plan.kept(sized.promise.in_time_fraction).mean())
    return [plan.cost, plan.net_present_cost_usd, plan.capital_usd, service, kept]


def frontier_rows(sized: Sized) -> Table:
    """Return frontier.csv."""
    bought = len(sized.choices.purchases)
    return SIZE_TABLES["frontier"].of_rows(
        [*_figures(sized, plan), sum(plan.counts[:bought]), plan.counts == sized.plan.counts, plan_words(sized, plan)]
        for plan in sized.explanation.frontier
    )


def plan_words(sized: Sized, plan: Judged) -> str:
    """Return what a plan buys and retires, as one would say it."""
    return sized.choices.words(plan.counts)


def family_rows(sized: Sized) -> Table:
    """Return families.csv."""
    rows: list[list[Any]] = []
    for family in sized.families:
        bound = family.bound if np.isfinite(family.bound) else None
        if family.plan is None:
            rows.append([family.name, "", None, *[None] * 5, bound, ""])
            continue
        figures = _figures(sized, family.plan)
        for part in sized.choices.accelerators:
            change = family.price_changes.get(part)
            rows.append([family.name, part, change, *figures, bound, plan_words(sized, family.plan)])
    return SIZE_TABLES["families"].of_rows(rows)


def month_rows(sized: Sized) -> Table:
    """Return months.csv."""
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
            [
                str(label),
                load,
                float(least[month]),
                float(least[month]) - promise.in_time_fraction,
                float(broken[month]),
                float(plan.utilisation[month]),
                power_kw,
                choices.capital_usd(due),
                _binds(sized, month, power_kw),
            ]
        )
    return SIZE_TABLES["months"].of_rows(rows)


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
        "capacity for " + ("all together" if fewer.workload is None else choices.plan.workloads[fewer.workload].name)
        for fewer in sized.explanation.fewer
        if fewer.month == month
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


def promise_rows(sized: Sized) -> Table:
    """Return promises.csv."""
    rows: list[list[Any]] = []
    for share, plan in sized.explanation.nines:
        if plan is None:
            rows.append([share, None, None, None, None, ""])
        else:
            figures = [plan.cost, plan.net_present_cost_usd, plan.capital_usd, plan.cost - sized.plan.cost]
            rows.append([share, *figures, plan_words(sized, plan)])
    return SIZE_TABLES["promises"].of_rows(rows)


def precision_rows(sized: Sized) -> Table:
    """Return precisions.csv."""
    loads, count = sized.choices.plan.workloads, sized.plan.worst.size
    rows = [
        [narrower.cluster, narrower.precision, load.name, ratio if np.isfinite(ratio) else None, narrower.kept / count]
        for narrower in sized.explanation.narrow
        for load, ratio in zip(loads, narrower.rate_ratio, strict=True)
    ]
    return SIZE_TABLES["precisions"].of_rows(rows)


def review_rows(sized: Sized) -> Table:
    """Return review.csv."""
    rows: list[list[Any]] = []
    for alternative in sized.review.alternatives if sized.review else ():
        figures: list[Any] = [None] * 2
        if alternative.outcome is not None:
            figures = [alternative.outcome.cost, float(alternative.outcome.kept(sized.promise.in_time_fraction).mean())]
        saved = (
            [None] * 3
            if alternative.saved is None
            else [alternative.saved.value, alternative.saved.low, alternative.saved.high]
        )
        rows.append([alternative.name, *figures, *saved, alternative.words])
    return SIZE_TABLES["review"].of_rows(rows)


def level_rows(sized: Sized) -> Table:
    """Return levels.csv."""
    levels = enumerate(sized.review.levels if sized.review else (), start=1)
    return SIZE_TABLES["levels"].of_rows(
        [n, level.share, level.late, level.lowest, level.highest, sized.choices.words(level.counts), level_file(n)]
        for n, level in levels
    )


def level_file(number: int) -> str:
    """Return the name of the plan for what is seen at a review."""
    return f"plan-level-{number}.yaml"


_ROWS: tuple[Callable[[Sized], Table], ...] = (
    plan_rows,
    frontier_rows,
    family_rows,
    month_rows,
    promise_rows,
    precision_rows,
    review_rows,
    level_rows,
)


def size_tables(sized: Sized) -> list[Table]:
    """Return every table; those of a review have no rows where there is none."""
    return [rows(sized) for rows in _ROWS]


PLAN_FILE = "plan.yaml"
_SAID = {"plan": "purchases"}
"""What a table is called where it stands beside others, and beside the plan in words."""


def plan_document(sized: Sized, folder: Path, counts: Counts) -> str:
    """Return a plan as a scenario: what is chosen in place of what was open; it runs as it is."""
    choices, content = sized.choices, sized.choices.content(counts)
    stated, file = sized.scenario, scenario_file(sized.scenario)
    lists = {key: content[key] for key in ("site", "workloads") if content.get(key) != stated.document.content.get(key)}
    name = f"{stated.name}-sized"
    if not file:
        document = {**content, "name": name}
        return _yaml(document)
    laid = layer_of(stated.document.overrides)
    clusters: dict[str, Any] = {**laid.pop("clusters", {})} if isinstance(laid.get("clusters"), dict) else {}
    clusters |= dict.fromkeys(choices.choose.clusters)
    chosen = {purchase.name for purchase in choices.purchases} | {
        retirement.cluster for retirement in choices.retirements
    }
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
        "schema_version": SCHEMA_VERSION,
        "scenario": sized.scenario.name,
        "objective": trial.objective,
        "promise": {
            "in_time": promise.in_time_fraction,
            "each": "month" if promise.each_month else "horizon",
            "of": "workload" if promise.of_workload else "fleet",
            "in_replications": promise.in_replications_fraction,
        },
        "plan": plan_words(sized, sized.plan),
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
        "sentences": said_of(sized),
        **{_SAID.get(table.name, table.name): _records(table) for table in size_tables(sized)},
    }


def _records(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them, days as text."""
    return [
        {name: str(cell) if hasattr(cell, "isoformat") else cell for name, cell in row.items()}
        for row in table.records()
    ]


def money(sized: Sized, cost: float) -> str:
    """Return a cost as the objective counts it."""
    if sized.trial.objective == "levelised":
        return f"{cost:,.4f} USD per million tokens"
    return f"{cost / MILLION:,.2f} M USD"


def said_of(sized: Sized) -> list[str]:
    """Say what the answer is, how sure it is, why it is this one and what would change it."""
    confirmed, promise = sized.confirmation, sized.promise
    what = {"net-present-cost": "net present cost", "levelised": "levelised cost", "capital": "capital"}
    share = confirmed.kept / confirmed.replications
    enough = share >= promise.in_replications_fraction - 1e-9
    words = plan_words(sized, sized.plan) if any(sized.plan.counts) else "nothing, what is there is enough"
    said = [
        f"Buy {words}: {what[sized.trial.objective]} {money(sized, sized.plan.cost)}. No plan "
        f"that keeps the promise costs less than {money(sized, sized.bound)}: at most {sized.gap:.1%} could be saved.",
        f"On {confirmed.replications} fresh replications the promise ({promise.in_time_fraction:.2%} in time) is kept "
        f"in {share:.1%} of them ({confirmed.low:.1%} to {confirmed.high:.1%} with 95% confidence), "
        + (
            f"as the {promise.in_replications_fraction:.0%} asked for."
            if enough
            else f"fewer than the {promise.in_replications_fraction:.0%} asked for: this plan does not keep it."
        ),
    ]
    cost, asked = sized.plan.cost, promise.in_replications_fraction
    less = [plan for plan in sized.explanation.frontier if plan.cost < cost]
    if any(plan.kept(promise.in_time_fraction).mean() >= asked - 1e-9 for plan in less):
        said.append(
            "Cheaper plans that keep it in as many of the replications they were run in do so by too little to "
            "count on, or were not confirmed on fresh ones."
        )
    said += [*_fewer_sentences(sized), *_family_sentences(sized)]
    for promised, plan in sized.explanation.nines:
        if plan is not None and promised > promise.in_time_fraction:
            extra = plan.cost - sized.plan.cost
            said.append(f"To promise {promised:.1%} would cost {money(sized, extra)} more.")
    for narrower in sized.explanation.narrow:
        ratios = [ratio for ratio in narrower.rate_ratio if np.isfinite(ratio)]
        if ratios:
            said.append(
                f"{narrower.precision} lets a node of {narrower.cluster} serve {min(ratios):.2f} to {max(ratios):.2f} "
                f"times as much; without it {narrower.kept / sized.plan.worst.size:.0%} of replications keep the "
                "promise."
            )
    said += _review_sentences(sized)
    if sized.stopped:
        said.append(f"The search was not finished: {sized.stopped}.")
    return said


def _fewer_sentences(sized: Sized) -> list[str]:
    """Say what one node fewer of each purchase would break, and save."""
    said, refuted = [], {fewer.purchase for fewer in sized.explanation.fewer if fewer.refuted}
    names = {sized.choices.purchases[place].name for place in refuted}
    for row in _records(plan_rows(sized)):
        if row["breaks_month"]:
            load = f"{row['breaks_workload']} " if row["breaks_workload"] else ""
            few = ", but too few of those to which the answer is held" if row["cluster"] in names else ""
            said.append(
                f"With one node of {row['cluster']} fewer, {row['kept_fewer_fraction']:.1%} of replications keep it"
                f"{few}: {load}in {row['breaks_month']} falls to {row['breaks_in_time_fraction']:.2%} in time. It "
                f"would save {money(sized, row['node_saves'])}."
            )
    return said


def _family_sentences(sized: Sized) -> list[str]:
    """Say what the best plan of each other family costs, and at which price it would win."""
    said = []
    for family in sized.families:
        if family.plan is None:
            said.append(f"No plan of {family.name} that may be chosen keeps the promise.")
            continue
        if family.plan.counts == sized.plan.counts:  # the answer itself; of every part alone where nothing is bought
            continue
        changes = family.price_changes
        nearest = family.name.removeprefix("all-")
        if family.name == MIXED:  # the part whose price would have to change least
            nearest = min(changes, key=lambda part: abs(changes[part]), default="")
        change = changes.get(nearest)
        more = family.plan.cost - sized.plan.cost
        apart = f"{abs(more) / sized.plan.cost:.1%}" if sized.plan.cost > 0.0 else money(sized, abs(more))
        if more < 0.0:
            cheaper = f"{apart} less ({money(sized, family.plan.cost)})"
            said.append(f"A plan of {family.name} would cost {cheaper}, but was not confirmed on fresh replications.")
            continue
        dearer = f"costs {apart} more ({money(sized, family.plan.cost)})"
        wins = (
            "; no price of one part alone would let it win"
            if change is None
            else (f"; it wins where a {nearest} costs {abs(change):.0%} {'less' if change < 0 else 'more'}")
        )
        said.append(f"The best plan of {family.name} {dearer}{wins}.")
    return said


def _review_sentences(sized: Sized) -> list[str]:
    """Say what a review is worth, and what waiting is."""
    review = sized.review
    if review is None:
        return []
    said = []
    for alternative in review.alternatives:
        if alternative.name == REVIEWED:
            continue
        against = {NOW: "buying everything before it", FIXED: "fixing everything on the first day"}.get(
            alternative.name, f"never buying {', '.join(review.next_parts)}"
        )
        if alternative.saved is None:
            said.append(f"The review on {review.date} makes a plan possible: {against} does not keep the promise.")
            continue
        saves, low, high = (
            money(sized, usd) for usd in (alternative.saved.value, alternative.saved.low, alternative.saved.high)
        )
        sure = "" if alternative.saved.low > 0 else ", so that no gain is shown"
        said.append(
            f"Deciding on {review.date} by what was seen until then saves {saves} against {against} "
            f"({low} to {high} with 95% confidence{sure})."
        )
    return said


def size_text(sized: Sized) -> str:
    """Lay a sizing out for a terminal."""
    rows = plan_rows(sized).columns
    table = text_table(
        ("cluster", "part", "date", "nodes", "M USD"),
        [
            (name, part, str(date), str(nodes), f"{usd / MILLION:,.2f}")
            for name, part, date, nodes, usd in zip(
                rows["cluster"], rows["accelerator"], rows["date"], rows["nodes"], rows["capital_usd"], strict=True
            )
        ],
    )
    frontier = frontier_rows(sized).columns
    unit = "USD/Mtok" if sized.trial.objective == "levelised" else "M USD"
    scale = 1.0 if sized.trial.objective == "levelised" else MILLION
    shown = text_table(
        (unit, "in time", "kept", "nodes", ""),
        [
            (f"{cost / scale:,.4g}", f"{service:.2%}", f"{kept:.0%}", str(nodes), "<- the answer" if answer else "")
            for cost, service, kept, nodes, answer in zip(
                frontier["cost"],
                frontier["in_time_fraction"],
                frontier["kept_fraction"],
                frontier["nodes"],
                frontier["is_answer"],
                strict=True,
            )
        ],
    )
    return "\n".join([table, "", "cost against service:", shown, "", *wrapped(said_of(sized))])


def size_workbook(sized: Sized) -> bytes:
    """Return the workbook of the answer as stated, with the tables of the sizing after its own."""
    result = sized.as_stated()
    drawn = months_pages(result.plan.months.labels, {sized.scenario.name: draw_again(result)})
    shown = {table.name: table.columns for table in run_tables(result)}
    pages = plain_pages({f"Size {_SAID.get(table.name, table.name)}": table.columns for table in size_tables(sized)})
    return run_workbook(result, run_pages(result, shown), {**drawn, **pages})


def size_contents(sized: Sized, work: SizeWork, command: Sequence[str]) -> Contents:
    """Return what a sizing's folder holds."""
    tables = [table for table in size_tables(sized) if sized.review or table.name not in ("review", "levels")]
    tables += evidence_tables({sized.scenario.name: sized.scenario})
    return Contents(
        manifest={
            "kind": "size",
            "version": __version__,
            "scenario": sized.scenario.name,
            "scenario_sha256": scenario_sha256(sized.scenario),
            "seed": sized.trial.seed,
            "objective": sized.trial.objective,
            "identity": work.identity,
            "command": list(command),
        },
        tables={table.name: table for table in tables},
        summary=size_summary(sized),
    )


def plan_files(sized: Sized, folder: Path) -> dict[str, bytes]:
    """Return the plan, and that for each level of what is seen at a review, as scenarios that run as they are."""
    levels = enumerate(sized.review.levels if sized.review else (), start=1)
    counts = {PLAN_FILE: sized.plan.counts} | {level_file(number): level.counts for number, level in levels}
    return {name: plan_document(sized, folder, bought).encode() for name, bought in counts.items()}


def write_size(sized: Sized, work: SizeWork, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write a sizing's folder, whole or not at all, in the place of the work that led to it."""
    contents = size_contents(sized, work, command)
    more = plan_files(sized, work.folder) | {WORKBOOK: size_workbook(sized)}
    files = answer_files(contents, "size", form, more)
    check_target(work.folder, work=True)  # what somebody laid into it in the meantime is not swept away
    place_folder(work.folder, files, contents.manifest)


def size_answer(folder: Path, sized: Sized, warnings: Sequence[str]) -> Answer[Sized]:
    """Return a sizing as an answer."""
    return Answer(
        folder=folder,
        result=sized,
        warnings=warnings,
        summarise=lambda: size_summary(sized),
        say=lambda _: size_text(sized),
        rows=lambda: frontier_rows(sized),
    )
