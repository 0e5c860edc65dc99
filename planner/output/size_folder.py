"""A sizing as tables, a plan that runs as it is, and their folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from planner.files import check_target, json_text
from planner.output.csv_table import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, csv_files
from planner.output.folder import place_folder
from planner.output.plan_tables import evidence_tables
from planner.output.plan_workbooks import months_pages, plain_pages
from planner.output.report.build import with_report
from planner.output.run_folder import run_tables, scenario_file, scenario_sha256
from planner.output.run_workbook import workbook_content, write_workbook
from planner.output.size_rows import SIZE_TABLES, frontier_rows, level_file, plan_rows, plan_words, size_columns
from planner.output.text_table import text_table, wrapped
from planner.run.replications import draw_again
from planner.scenario.loading import layer_of
from planner.sizing.choices import MIXED, Counts
from planner.sizing.evaluate import SizeWork
from planner.sizing.review import FIXED, NOW, REVIEWED
from planner.sizing.size import Sized
from planner.units import MILLION
from planner.version import __version__

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
        "sentences": sentences(sized),
        **{_SAID.get(name, name): _records(columns) for name, columns in size_columns(sized).items()},
    }


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
    words = plan_words(sized, sized.plan) if any(sized.plan.counts) else "nothing, what is there is enough"
    said = [
        f"Buy {words}: {what[sized.trial.objective]} {money(sized, sized.plan.cost)}. No plan "
        f"that keeps the promise costs less than {money(sized, sized.bound)}: at most {sized.gap:.1%} could be saved.",
        f"On {confirmed.replications} fresh replications the promise ({promise.in_time_fraction:.2%} in time) is kept "
        f"in {share:.1%} of them ({confirmed.low:.1%} to {confirmed.high:.1%} with 95% confidence), "
        + (f"as the {promise.in_replications_fraction:.0%} asked for." if enough else
           f"fewer than the {promise.in_replications_fraction:.0%} asked for: this plan does not keep it."),
    ]  # fmt: skip
    cost, asked = sized.plan.cost, promise.in_replications_fraction
    less = [plan for plan in sized.explanation.frontier if plan.cost < cost]
    if any(plan.kept(promise.in_time_fraction).mean() >= asked - 1e-9 for plan in less):
        said.append("Cheaper plans that keep it in as many of the replications they were run in do so by too little to "
                    "count on, or were not confirmed on fresh ones.")  # fmt: skip
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
        wins = "; no price of one part alone would let it win" if change is None else (
            f"; it wins where a {nearest} costs {abs(change):.0%} {'less' if change < 0 else 'more'}")  # fmt: skip
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


def _workbook(sized: Sized) -> bytes:
    """Return the workbook of the answer as stated, with the tables of the sizing after its own."""
    result = sized.as_stated()
    drawn = months_pages(result.plan.months.labels, {sized.scenario.name: draw_again(result)})
    shown = {table.name: columns for table, columns in run_tables(result)}
    pages = plain_pages({f"Size {_SAID.get(name, name)}": columns for name, columns in size_columns(sized).items()})
    return write_workbook(workbook_content(result, shown), {**drawn, **pages})


def write_size(sized: Sized, work: SizeWork, command: Sequence[str], form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write a sizing's folder, whole or not at all, in the place of the work that led to it."""
    folder = work.folder
    tables = [
        (SIZE_TABLES[name], columns)
        for name, columns in size_columns(sized).items()
        if sized.review or name not in ("review", "levels")
    ]
    files = csv_files("size", [*tables, *evidence_tables({sized.scenario.name: sized.scenario})], form)
    files[PLAN_FILE] = plan_document(sized, folder, sized.plan.counts).encode()
    for number, level in enumerate(sized.review.levels if sized.review else (), start=1):
        files[level_file(number)] = plan_document(sized, folder, level.counts).encode()
    files["summary.json"] = json_text(size_summary(sized)).encode()
    files["workbook.xlsx"] = _workbook(sized)
    manifest = {
        "kind": "size",
        "version": __version__,
        "scenario": sized.scenario.name,
        "scenario_sha256": scenario_sha256(sized.scenario),
        "seed": sized.trial.seed,
        "objective": sized.trial.objective,
        "identity": work.identity,
        "command": list(command),
    }
    check_target(folder, work=True)  # what somebody laid into it in the meantime is not swept away
    place_folder(folder, with_report(files, manifest), manifest)
