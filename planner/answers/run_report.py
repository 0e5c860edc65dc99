"""The sections of a single run's report, and the parts of them that plans side by side have too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from planner.answers.judgement import (
    COST,
    much_shed,
    reserve_cluster,
    served,
    share_words,
    sizing,
    verdict_line,
)
from planner.answers.sections import section
from planner.answers.timelines import Calendar, demand_chart, run_out_chart
from planner.finance.ledger import ACCOUNT_ORDER, View
from planner.output import blocks as show
from planner.output.blocks import Block, Grid, Section, Sentence, Series, TimeChart
from planner.output.folder import Contents
from planner.output.scales import COLOURS
from planner.output.tables import Table
from planner.output.words import NOTHING, count, dollars, percent, unit_price
from planner.plan.parts import TOKEN_KINDS
from planner.run.measure_names import FLEET, SITE
from planner.run.slo_misses import REASONS
from planner.run.unit_economics import LINES
from planner.units import MILLION

LOSSES = {
    "working_node_h": "at work",
    "lost_to_failures_node_h": "failures",
    "lost_to_software_node_h": "software",
    "lost_to_processes_node_h": "processes",
    "lost_to_outages_node_h": "outages",
    "lost_to_power_cap_node_h": "power cap",
    "idle_node_h": "no demand",
}
IDLE = "no demand"
_EARNED = ("revenue_usd", "running_cost_usd", "cost_usd", "margin_usd")
BARE = "levelised_cost_without_resale_per_million_tokens_usd"
UNITS = (
    *("workload", "tokens", "revenue", "running cost", "full cost", "margin"),
    *("USD/M input", "USD/M cached", "USD/M output", "USD/accelerator-hour"),
)
"""Columns of unit economics."""
ROUTED = "Clusters are filled in an order: one that stands idle is not a dear part, and a busy one not a cheap one."
FURTHER = (
    "`planner compare` puts it beside another plan under the same random numbers; `planner montecarlo` varies prices, "
    "growth and throughput."
)


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of one run: what it costs, what to look at, and what it cannot say."""
    summary = contents.summary
    if "clusters" not in summary:
        return None
    clusters = summary["clusters"]
    chance = summary["replications"]
    fleet = clusters[FLEET]
    intervals = chance["intervals"] if chance else {}
    facts = []
    for term, name, form in (
        ("per million tokens", "cost_per_million_tokens_usd", unit_price),
        ("per million generated", "cost_per_million_output_tokens_usd", unit_price),
        (f"incl. capital charge, {summary['horizon_months']} months", "cost_usd", dollars),
        ("tokens served", "served_tokens", count),
        ("utilised", "utilisation_fraction", percent),
        ("SLO attainment", "slo_attainment_fraction", lambda share: percent(share, 2)),
    ):
        ends = dict.fromkeys(form(end) for end in intervals.get(name, ()))
        facts.append(show.Fact(term=term, value=form(fleet[name]), range=" to ".join(ends)))
    rows = []
    for name in [*(name for name in clusters if name != FLEET), FLEET]:
        row = clusters[name]
        cost = clusters[name]["cost_per_million_tokens_usd"]
        used = (percent(row["availability_fraction"]), percent(row["utilisation_fraction"]))
        paid = (
            dollars(row["cost_usd"]),
            unit_price(row["cost_per_million_output_tokens_usd"]),
            unit_price(cost),
        )
        rows.append((name, *used, count(row["served_tokens"]), *paid))
    header = (
        "cluster",
        "available",
        "utilised",
        "tokens",
        "cost",
        "USD/M generated",
        "USD/M tokens",
    )
    said = "This is one plan and one replication of it, so it has no interval and no baseline."
    if chance:
        said = (
            f"The small figures are where {chance['words']} lie ({chance['number']} replications of traffic noise, "
            "failures, incidents and slips, every input as stated). The plan has no baseline here."
        )
    told = verdict(summary)
    blocks: list[Block] = [
        *show.sentences([*much_shed([served("This plan", fleet)]), *told[:1]], "headline"),
        show.Facts(facts=facts),
        *([chart] if (chart := demand_chart(contents)) else []),
        *show.sentences([*told[1:], objective(summary), *findings(summary)]),
        *run_out_chart(contents),
        Grid(
            caption="The clusters side by side",
            header=header,
            rows=rows,
            numeric=range(1, len(header)),
        ),
        Sentence(text=f"{said} {FURTHER}", tone="note"),
    ]
    return section("answer", blocks)


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Return the verdict and, where it is MISSED, what would meet the target."""
    record = summary["verdict"]
    return [
        line
        for line in (verdict_line(record), sizing(summary) if record["status"] == "MISSED" else "")
        if line
    ]


def objective(summary: Mapping[str, Any]) -> str:
    """Say in a sentence what a run serves, and for how much."""
    fleet = summary["clusters"][FLEET]
    money = summary["measures"]
    attained = fleet["slo_attainment_fraction"]
    share = f", at {share_words(attained)} SLO attainment overall" if attained is not None else ""
    return (
        f"This plan serves {count(fleet['served_tokens'])} tokens in {summary['horizon_months']} months for "
        f"{unit_price(money[COST])} per million tokens levelised: net present cost "
        f"{dollars(-(money['npv_usd'] or 0.0))}, P&L cost {dollars(money['pl_cost_usd'])}, "
        f"{dollars(fleet['cost_usd'])} incl. capital charge{share}."
    )


def findings(summary: Mapping[str, Any]) -> list[str]:
    """Say what the figures suggest: the size of the fleet, what is dear, what is late, what was warned of."""
    told = verdict(summary)
    reserves = (f"{name} is {said}." for name, said in reserve_cluster(summary).items())
    lines = [said for said in (sizing(summary), *reserves) if said and said not in told]
    paid = {
        name: row for name, row in summary["clusters"].items() if name != FLEET and row["cost_usd"]
    }
    if unused := [name for name, row in paid.items() if not row["served_tokens"]]:
        lines.append(
            f"{', '.join(unused)} served nothing: no workload that it can take was routed to it."
        )
    lines += [f"Warning: {warning}" for warning in summary.get("warnings", ())]
    return [*lines, *(f"Note: {note}" for note in summary.get("notes", ()))]


def money_section(contents: Contents) -> Section | None:
    """Return the accrued cost by account, cluster and month."""
    if not (ledger := contents.table("ledger")):
        return None
    totals = account_sums(contents)
    by_account = account_totals(contents)
    clusters = sorted(dict.fromkeys(ledger.texts("cluster")), key=lambda name: name == SITE)
    total = sum(by_account.values())
    rows = []
    sums = {c: sum(row.get(c, 0.0) for row in totals.values()) for c in clusters}
    for name, row in [
        *((account, totals[account]) for account in largest_first(totals)),
        ("accrued cost", sums),
    ]:
        cost = sum(row.values())
        cells = (*(dollars(row[c]) if c in row else NOTHING for c in clusters), dollars(cost))
        rows.append((name.replace("_", " "), *cells, percent(cost / total if total else None)))
    bought = ledger.rows("account", totals=["amount_usd"])
    said = (
        f"{dollars(total)} of accrued cost: purchases of "
        f"{dollars(sum(amount for account, amount in bought if account.startswith('capex_')))} are spread over their "
        "life as depreciation. Every dollar is one row of ledger.csv."
    )
    header = ("account", *clusters, "total", "share")
    numeric = range(1, len(clusters) + 3)
    grid = Grid(
        caption="Accrued cost by account",
        header=header,
        rows=rows,
        numeric=numeric,
        drawn=len(clusters) + 2,
    )
    blocks: list[Block] = [Sentence(text=said), grid]
    if steps := reconciliation_rows(contents.summary):
        caption = "From P&L cost to net present cost; lines that begin with = are sums"
        blocks.append(Grid(caption=caption, header=("cost", "USD"), rows=steps, numeric=(1,)))
    if units := unit_rows(contents):
        caption = "Unit economics; reserve is capacity that no workload bears, hours of it those not at work"
        blocks.append(Grid(caption=caption, header=UNITS, rows=units, numeric=range(1, len(UNITS))))
    blocks += (
        [Sentence(text=resale_words(figures))]
        if (figures := contents.summary.get("measures"))
        else []
    )
    return section("money", [*blocks, *([chart] if (chart := money_chart(contents)) else [])])


def resale_words(figures: Mapping[str, Any]) -> str:
    """Say how much of net present cost is a resale forecast, and the levelised cost without it."""
    return (
        f"Resale of used hardware is {dollars(figures['resale_pv_usd'])} of net present value; if it fetched nothing, "
        f"a million tokens would cost {unit_price(figures[BARE])} levelised instead of {unit_price(figures[COST])}."
    )


def unit_rows(contents: Contents) -> list[tuple[str, ...]]:
    """Return the unit economics of each workload over the horizon, under :data:`UNITS`; then what none bears."""
    if not (table := contents.table("unit_economics")):
        return []
    shares = [
        *((f"{kind}_cost_usd", f"{kind}_tokens", MILLION) for kind in TOKEN_KINDS),
        ("cost_usd", "accelerator_h", 1),
    ]
    rows = []
    for line, load in sorted(
        dict.fromkeys(table.rows("line", "workload")), key=lambda row: LINES.index(row[0])
    ):
        part = table.where("line", line).where("workload", load)
        total = {
            name: sum(part.totals(name))
            for name in (*_EARNED, *(name for pair in shares for name in pair[:2]))
        }
        prices = [
            total[paid] / total[of] * number if total[of] else None for paid, of, number in shares
        ]
        tokens = sum(total[of] for _, of, _ in shares[:-1])
        rows.append(
            (
                load or line,
                count(tokens),
                *(dollars(total[n]) for n in _EARNED),
                *map(unit_price, prices),
            )
        )
    return rows


def reconciliation_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines from P&L cost to net present cost, to the cent; none of a folder that is not a run's."""
    signs = {"sum": "= ", "item": "+ "}
    return [
        (f"{signs[step['kind']] if place else ''}{step['line']}", f"{step['amount_usd']:,.2f}")
        for place, step in enumerate(summary.get("reconciliation", ()))
    ]


def account_sums(contents: Contents, by: str = "cluster") -> dict[str, dict[str, float]]:
    """Return accrued cost over the whole horizon by account and by cluster or month."""
    ledger = contents.table("ledger")
    sums = ledger.sums("account", by, "amount_usd") if ledger is not None else {}
    counted = {account.value for account in ACCOUNT_ORDER if View.ACCRUAL in account.views}
    return {account: row for account, row in sums.items() if account in counted}


def account_totals(contents: Contents) -> dict[str, float]:
    """Return accrued cost over the whole horizon by account."""
    return {
        account: sum(by_cluster.values()) for account, by_cluster in account_sums(contents).items()
    }


def largest_first(totals: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return accounts, the largest first."""
    return sorted(totals, key=lambda account: -sum(totals[account].values()))


def layers_of(accounts: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return accounts by the names of their layers: as many as there are colours, the rest together."""
    named = accounts[: len(COLOURS) - 1]
    rest = accounts[len(COLOURS) - 1 :]
    return {account.replace("_", " "): [account] for account in named} | (
        {"other": rest} if rest else {}
    )


def money_chart(contents: Contents) -> TimeChart | None:
    """Return the months as layers, the largest accounts by name and the rest together."""
    if not (ledger := contents.table("ledger")):
        return None
    calendar = Calendar(ledger.texts("month"))
    monthly = account_sums(contents, "month")
    positive = [
        account
        for account in largest_first(account_sums(contents))
        if sum(monthly[account].values()) > 0
    ]
    series = []
    for colour, (name, accounts) in enumerate(layers_of(positive).items()):
        sums = {
            month: sum(monthly[account].get(month, 0.0) for account in accounts)
            for month in calendar.months
        }
        points = [(calendar.middle(month), max(0.0, usd)) for month, usd in sums.items()]
        series.append(Series(name=name, colour=colour, points=points))
    key = f"{contents.anchor}money-months"
    said = "Accounts on one another, largest at the bottom."
    return calendar.chart(key, "Accrued cost by month", said, "usd", series, stacked=True)


def losses_section(contents: Contents) -> Section | None:
    """Return where node-hours went, by cluster and by month, and failures and incidents by cause, costliest first."""
    if not (by_cluster := node_hours(contents)):
        return None
    chart = losses_chart(contents)
    blocks: list[Block] = [
        loss_grid(by_cluster, list(LOSSES.values()), "cluster"),
        *([chart] if chart else []),
    ]
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    events = contents.table("events")
    columns = ("duration_h", "lost_capacity_tokens")
    for event, cause, *figures in (
        events.rows("event", "cause", totals=columns) if events is not None else ()
    ):
        if event in ("failure", "maintenance", "software", "outage"):
            sums[event, cause] = [
                sum(pair) for pair in zip(sums[event, cause], (1, *figures), strict=True)
            ]
    rows = []
    for (event, cause), (number, hours, lost) in sorted(
        sums.items(), key=lambda item: (-item[1][2], item[0])
    ):
        if lost > 0:
            cells = (f"{number:,.0f}", f"{hours / number:,.1f}", count(lost))
            rows.append((f"{event}, {cause}" if cause else event, *cells))
    header = ("cause", "events", "hours each", "tokens of capacity")
    causes = Grid(
        caption="Causes, costliest first", header=header, rows=rows, numeric=(1, 2, 3), drawn=3
    )
    blocks += [causes] if rows else []
    return section("losses", [*blocks, *software_grids(contents)])


def software_grids(contents: Contents) -> Iterator[Block]:
    """Yield what software incidents cost by stack and kind, and what each practice of upgrades is worth by vendor."""
    for table in map(contents.table, ("software_incidents", "software_practices")):
        if table:
            names = [
                column for column in table.columns if column not in ("scenario", "missed_requests")
            ]
            cells = [
                [*map(partial(percent, decimals=3), table.numbers(n))]
                if n.endswith("_fraction")
                else table.texts(n)
                for n in names
            ]
            header = [name.removesuffix("_fraction").replace("_", " ") for name in names]
            caption = table.name.replace("_", " ").capitalize()
            yield Grid(caption, header, [*zip(*cells, strict=True)], numeric=range(2, len(names)))


def losses_chart(contents: Contents) -> TimeChart | None:
    """Return node-hours lost by month and cause."""
    if not (losses := contents.table("losses")):
        return None
    calendar = Calendar(losses.texts("month"))
    series = []
    for colour, (column, name) in enumerate(LOSSES.items()):
        if column.startswith("lost_"):
            points = [
                (calendar.middle(month), hours)
                for month, hours in losses.summed("month", column).items()
            ]
            series.append(Series(name=name, points=points, colour=colour))
    said = "What failures, software, outages and the power cap took; without what merely had no demand."
    key = f"{contents.anchor}losses-months"
    return calendar.chart(key, "Node-hours lost by month", said, "node-hours", series, stacked=True)


def late_section(contents: Contents) -> Section | None:
    """Return why requests missed their SLO, by workload."""
    rows = []
    for reason in contents.summary.get("slo_misses", ()):
        share = percent(reason["missed_fraction"], 3)
        then = percent(reason["worst_missed_fraction"], 2)
        rows.append(
            (reason["workload"], REASONS[reason["cause"]], share, reason["worst_month"], then)
        )
    header = ("workload", "cause", "of its requests", "worst month", "then")
    grid = Grid(
        caption="Why requests missed their SLO, worst first",
        header=header,
        rows=rows,
        numeric=(2, 4),
    )
    return section("losses", [grid]) if rows else None


def node_hours(contents: Contents) -> dict[str, dict[str, float]]:
    """Return node-hours on site by cluster and by what became of them; nothing where the folder does not say."""
    if not (losses := contents.table("losses")):
        return {}
    hours = {name: losses.summed("cluster", column) for column, name in LOSSES.items()}
    return {cluster: {name: row[cluster] for name, row in hours.items()} for cluster in hours[IDLE]}


def loss_grid(shares: Mapping[str, Mapping[str, float]], names: Sequence[str], of: str) -> Grid:
    """Return what became of node-hours, one row for each cluster or scenario."""
    names = [name for name in names if any(row[name] for row in shares.values())]
    rows = [
        (cluster, *(percent(row[name] / (sum(row.values()) or 1.0), 2) for name in names))
        for cluster, row in shares.items()
    ]
    caption = "Node-hours on site"
    header = (of, *names)
    return Grid(caption=caption, header=header, rows=rows, numeric=range(1, len(header)))


def layout_grid(layouts: Table) -> Grid:
    """Return how each cluster serves each workload, and by how much that is better than the next best."""
    names = (
        "workload",
        "cluster",
        "engine",
        "precision",
        "prefill_decode",
        "accelerators",
        "chunk_tokens",
    )
    rows = []
    for *named, rate, other in layouts.rows(
        *names, numbers=["node_requests_per_s", "next_best_requests_per_s"]
    ):
        rows.append((*named, f"{rate:.4g}", f"{rate / other - 1.0:+.0%}" if other else NOTHING))
    header = (
        "workload",
        "cluster",
        "engine",
        "precision",
        "prefill and decode",
        "accelerators",
        "tokens a step",
    )
    caption = "How each workload is served on day one, and by how much better than the next best"
    return Grid(
        caption=caption,
        header=(*header, "requests/s a node", "next best"),
        rows=rows,
        numeric=(5, 6, 7, 8),
    )


def routing_section(contents: Contents) -> Section | None:
    """Return who served what, by workload and cluster: shares of tokens, and how busy the replicas held for it were."""
    if contents.plans or not (routing := contents.table("routing_monthly")):
        return None
    busy: dict[tuple[str, str], list[float]] = defaultdict(list)
    for workload, cluster, share in routing.rows(
        "workload", "cluster", numbers=["utilisation_fraction"]
    ):
        busy[workload, cluster] += [share] if share is not None else []
    tokens = routing.sums("workload", "cluster", "served_tokens")
    there = {c for (_, c), shares in busy.items() if shares} | {
        c for row in tokens.values() for c in row if row[c]
    }
    clusters = [cluster for cluster in dict.fromkeys(routing.texts("cluster")) if cluster in there]
    served_by = []
    used = []
    numeric = range(1, 1 + len(clusters))
    for name, row in tokens.items():
        total = sum(row[c] for c in clusters) or 1.0
        mean = {
            c: sum(busy[name, c]) / len(busy[name, c]) if busy[name, c] else None for c in clusters
        }
        served_by.append((name, *(percent(row[c] / total) for c in clusters)))
        used.append((name, *map(percent, mean.values())))
    caption = "How busy the machines that may serve it were with it, by month"
    header = ("workload", *clusters)
    blocks: list[Block] = [
        Sentence(text=ROUTED, tone="note"),
        Grid(
            caption="Who served each workload's tokens",
            header=header,
            rows=served_by,
            numeric=numeric,
        ),
        Grid(caption=caption, header=header, rows=used, numeric=numeric),
        *([layout_grid(layouts)] if (layouts := contents.table("layouts")) else []),
    ]
    return section("losses", blocks)
