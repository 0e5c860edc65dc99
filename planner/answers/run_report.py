"""The sections of a single run's report, and the parts of them that plans side by side have too."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.answers.judgement import dearest_cluster, much_shed, promise_verdict, served, sizing
from planner.answers.sections import section
from planner.answers.timelines import Calendar, colours, demand_chart
from planner.finance.ledger import ACCOUNT_ORDER, View
from planner.output.blocks import (
    Bar,
    Block,
    Bullets,
    Fact,
    Facts,
    Grid,
    Part,
    Section,
    Sentence,
    Series,
    TimeChart,
    bar_grid,
    sentences,
)
from planner.output.folder import Contents
from planner.output.scales import COLOURS
from planner.output.tables import Table
from planner.output.words import NOTHING, count, dollars, percent, unit_price
from planner.run.measure_names import FLEET, SITE
from planner.run.slo_misses import REASONS, SPREAD

LOSSES = {
    "working_node_h": "at work",
    "lost_to_failures_node_h": "failures",
    "lost_to_software_node_h": "software",
    "lost_to_outages_node_h": "outages",
    "lost_to_power_cap_node_h": "power cap",
    "without_demand_node_h": "no demand",
}
IDLE = "no demand"
LOSS_COLOURS = {IDLE: len(COLOURS) - 1}
"""Idleness is no fault of the machines: it has the grey at the end of the palette."""
OTHER = "other"
ROUTED = (
    "Where requests went follows from the order in which clusters are filled, and from what each can serve: a cluster "
    "that stands idle is not a dear part, and one that is busy not a cheap one."
)


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of one run: what it costs, what to look at, and what it cannot say."""
    summary = contents.summary
    if "clusters" not in summary:
        return None
    lead = [*much_shed([served("This plan", summary["clusters"][FLEET])]), *verdict(summary), headline(summary)]
    chart = demand_chart(contents)
    return section(
        "answer",
        [
            *sentences(lead, "headline"),
            _facts(summary),
            *([chart] if chart else []),
            Bullets(lines=findings(summary)),
            _cluster_grid(summary),
            _baseline(summary),
        ],
    )


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Say whether the promise is kept, when it first breaks, and what it lacks; nothing of an older folder."""
    promise = summary.get("promise")
    if promise is None:
        return []
    return [line for line in (promise_verdict(promise), "" if promise["kept"] else sizing(summary)) if line]


def headline(summary: Mapping[str, Any]) -> str:
    """Say in a sentence what a run serves, and for how much."""
    fleet = summary["clusters"][FLEET]
    attained = fleet.get("slo_attainment_fraction")
    in_time = f", and serves {percent(attained, 2)} of requests in time" if attained is not None else ""
    return (
        f"This plan serves {count(fleet['served_tokens'])} tokens in {summary['horizon_months']} months for "
        f"{dollars(fleet['cost_usd'])}: {unit_price(fleet['cost_per_million_tokens_usd'])} per million tokens{in_time}."
    )


def _facts(summary: Mapping[str, Any]) -> Facts:
    """Return the headline figures, each with the range that chance gives it where the plan was drawn again."""
    fleet = summary["clusters"][FLEET]
    intervals = (summary.get("chance") or {}).get("intervals", {})
    shown = (
        ("per million tokens", "cost_per_million_tokens_usd", unit_price),
        ("per million generated", "cost_per_million_output_tokens_usd", unit_price),
        (f"over {summary['horizon_months']} months", "cost_usd", dollars),
        ("tokens served", "served_tokens", count),
        ("utilised", "utilisation_fraction", percent),
        ("requests in time", "slo_attainment_fraction", lambda share: percent(share, 2)),
    )
    facts = []
    for term, name, form in shown:
        ends = dict.fromkeys(form(end) for end in intervals.get(name, ()))
        facts.append(Fact(term=term, value=form(fleet.get(name)), range=" to ".join(ends)))
    return Facts(facts=facts)


def findings(summary: Mapping[str, Any]) -> list[str]:
    """Say what the figures suggest: the size of the fleet, what is dear, what is late, what was warned of."""
    clusters = {name: row for name, row in summary["clusters"].items() if name != FLEET}
    told = verdict(summary)
    lines = [said for said in (sizing(summary), dearest_cluster(summary)) if said and said not in told]
    unused = [name for name, row in clusters.items() if not row["served_tokens"]]
    if unused:
        lines.append(f"{', '.join(unused)} served nothing: no workload that it can take was routed to it.")
    worst = summary.get("worst_month")
    if worst and worst["missed_fraction"] > 0.001 and worst["month"] not in " ".join(told):
        missed = percent(worst["missed_fraction"], 2)
        lines.append(f"The worst month is {worst['month']}: {missed} of requests shed or late.")
    lines += [f"Warning: {warning}" for warning in summary.get("warnings", ())]
    return [*lines, *(f"Note: {note}" for note in summary.get("notes", ()))]


def _cluster_grid(summary: Mapping[str, Any]) -> Grid:
    palette = colours(summary["clusters"])
    most = max((row["cost_per_million_tokens_usd"] or 0.0) for row in summary["clusters"].values()) or 1.0
    rows = []
    for name in [*(name for name in summary["clusters"] if name != FLEET), FLEET]:
        row = summary["clusters"][name]
        cost = row["cost_per_million_tokens_usd"]
        numbers = [
            percent(row["availability_fraction"]),
            percent(row["utilisation_fraction"]),
            count(row["served_tokens"]),
            dollars(row["cost_usd"]),
            unit_price(row["cost_per_million_output_tokens_usd"]),
            unit_price(cost),
        ]
        part = Part(name=name, share=(cost or 0.0) / most, colour=palette[name], shown=unit_price(cost))
        rows.append((name, numbers, [part]))
    words = ("cluster", "available", "utilised", "tokens", "cost", "USD/M generated", "USD/M tokens")
    return bar_grid((*words, "per million tokens"), rows, "The clusters side by side")


def _baseline(summary: Mapping[str, Any]) -> Sentence:
    chance = summary.get("chance")
    if chance is None:
        said = "This is one plan and one replication of it, so it has no interval and no baseline."
    else:
        said = (
            f"The small figures are where {chance['words']} lie ({chance['draws']} replications of traffic noise, "
            "failures, incidents and slips, every input as stated). The plan has no baseline here."
        )
    more = (
        "`planner compare` puts it beside another plan on the same traffic and the same luck; `planner montecarlo` "
        "adds what is not known about prices, growth and throughput."
    )
    return Sentence(text=f"{said} {more}", tone="note")


def money_section(contents: Contents) -> Section | None:
    """Return the accrued cost by account, cluster and month."""
    ledger = contents.table("ledger")
    if not ledger:
        return None
    totals = account_sums(contents)
    rows = ledger.rows("account", totals=["amount_usd"])
    bought = sum(amount for account, amount in rows if account.startswith("capex_"))
    clusters = sorted(dict.fromkeys(_places(ledger)), key=lambda name: name == SITE)  # clusters keep their colours
    total = sum(sum(row.values()) for row in totals.values())
    said = (
        f"{dollars(total)} of accrued cost: purchases of {dollars(bought)} are spread over their life as depreciation. "
        "Every dollar is one row of ledger.csv."
    )
    chart = money_chart(contents)
    drawn: list[Block] = [chart] if chart else []
    return section("money", [Sentence(text=said), _account_grid(totals, clusters, total), *drawn])


def _accrued(ledger: Table) -> Iterator[tuple[str, str, str, float]]:
    """Yield month, cluster, account and amount of the rows that accrued cost counts."""
    accrued = {account.value for account in ACCOUNT_ORDER if View.ACCRUAL in account.views}
    columns = (ledger.texts("month"), _places(ledger), ledger.texts("account"), ledger.totals("amount_usd"))
    return (row for row in zip(*columns, strict=True) if row[2] in accrued)


def _places(ledger: Table) -> list[str]:
    """Return the cluster of each row; what belongs to the fleet as a whole is the site's."""
    return [SITE if name == FLEET else name for name in ledger.texts("cluster")]


def account_sums(contents: Contents) -> dict[str, dict[str, float]]:
    """Return accrued cost over the whole horizon by account and cluster."""
    ledger = contents.table("ledger")
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for _, cluster, account, amount in _accrued(ledger) if ledger is not None else ():
        sums[account][cluster] += amount
    return sums


def account_totals(contents: Contents) -> dict[str, float]:
    """Return accrued cost over the whole horizon by account."""
    return {account: sum(by_cluster.values()) for account, by_cluster in account_sums(contents).items()}


def largest_first(totals: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return accounts, the largest first."""
    return sorted(totals, key=lambda account: -sum(totals[account].values()))


def _account_grid(totals: Mapping[str, Mapping[str, float]], clusters: Sequence[str], total_usd: float) -> Grid:
    """Return accounts by cluster, their bars steps of a waterfall: each begins where the one before it ends."""
    palette = colours(clusters)
    most = sum(cost for row in totals.values() if (cost := sum(row.values())) > 0.0) or 1.0
    reached = 0.0

    def parts(amounts: Mapping[str, float]) -> list[Part]:
        return [
            Part(name=c, share=abs(amounts.get(c, 0.0)) / most, colour=palette[c], shown=dollars(amounts.get(c, 0.0)))
            for c in clusters
        ]

    rows = []
    for account in largest_first(totals):
        row = totals[account]
        total = sum(row.values())
        drawn = Bar(
            parts=parts(row), lead=max(0.0, min(reached, reached + total)) / most
        )  # what is received steps back
        reached += total
        numbers = [*(dollars(row[c]) if c in row else NOTHING for c in clusters), dollars(total)]
        rows.append((words_of(account), [*numbers, percent(total / total_usd if total_usd else None)], drawn))
    sums = {c: sum(row.get(c, 0.0) for row in totals.values()) for c in clusters}
    numbers = [*map(dollars, sums.values()), dollars(total_usd), percent(1.0 if total_usd else None)]
    rows.append(("accrued cost", numbers, Bar(parts=parts(sums))))
    header = ("account", *clusters, "total", "share", "step by step, by cluster")
    return bar_grid(header, rows, "Accrued cost by account", {c: palette[c] for c in clusters})


def words_of(account: str) -> str:
    """Return an account as a reader says it."""
    return account.replace("_", " ")


def money_chart(contents: Contents) -> TimeChart | None:
    """Return the months as layers, the largest accounts by name and the rest together."""
    ledger = contents.table("ledger")
    if not ledger:
        return None
    calendar = Calendar(ledger.texts("month"))
    monthly: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for month, _, account, amount in _accrued(ledger):
        monthly[account][month] += amount
    positive = [account for account in largest_first(account_sums(contents)) if sum(monthly[account].values()) > 0]
    named, rest = positive[: len(COLOURS) - 1], positive[len(COLOURS) - 1 :]
    layers = {words_of(account): monthly[account] for account in named}
    if rest:
        layers[OTHER] = {m: sum(monthly[a].get(m, 0.0) for a in rest) for m in calendar.months}
    series = [
        Series(name=name, points=[(calendar.middle(m), max(0.0, row.get(m, 0.0))) for m in calendar.months], colour=i)
        for i, (name, row) in enumerate(layers.items())
    ]
    said = "Accounts on one another, largest at the bottom."
    key = f"{contents.anchor}money-months"
    return calendar.chart(key, "Accrued cost by month", said, "usd", series, stacked=True)


def losses_section(contents: Contents) -> Section | None:
    """Return where node-hours went, by cluster, by month and by cause."""
    by_cluster = node_hours(contents)
    if not by_cluster:
        return None
    names, chart = list(next(iter(by_cluster.values()))), losses_chart(contents)
    return section("losses", [loss_grid(by_cluster, names, "cluster"), *([chart] if chart else []), *_causes(contents)])


def losses_chart(contents: Contents) -> TimeChart | None:
    """Return node-hours lost by month and cause."""
    losses = contents.table("losses")
    if not losses:
        return None
    names = [name for column, name in LOSSES.items() if column in losses]
    calendar = Calendar(losses.texts("month"))
    series = []
    for column, name in LOSSES.items():
        if column.startswith("lost_") and column in losses:
            hours = losses.summed("month", column)
            points = [(calendar.middle(month), hours[month]) for month in calendar.months]
            series.append(Series(name=name, points=points, colour=_loss_colour(names, name)))
    said = "What failures, software, outages and the power cap took; without what merely had no demand."
    key = f"{contents.anchor}losses-months"
    return calendar.chart(key, "Node-hours lost by month", said, "node-hours", series, stacked=True)


def late_section(contents: Contents) -> Section | None:
    """Return why requests were not in time, by workload, and what would mend the worst of it."""
    lost = contents.table("late_reasons")
    if not lost:
        return None
    rows = [
        (
            reason["workload"],
            REASONS[reason["reason"]],
            percent(reason["lost_fraction"], 3),
            reason["worst_month"],
            percent(reason["worst_lost_fraction"], 2),
            mend_words(reason).removeprefix("; "),
        )
        for reason in contents.summary.get("late_reasons", [])
    ]
    header = ("workload", "reason", "of its requests", "worst month", "then", "what would mend it")
    sums = lost.sums("workload", "reason", "lost_requests")
    missed = {
        workload: {name: row[reason] for reason, name in REASONS.items()}
        for workload, row in sums.items()
        if sum(row.values()) > 0
    }
    blocks: list[Block] = []
    if missed:
        blocks.append(loss_grid(missed, list(REASONS.values()), "workload", "of requests not in time"))
    if rows:
        caption = "Why requests were not in time, worst first"
        blocks.append(Grid(caption=caption, header=header, rows=rows, numeric=(2, 4)))
    return section("losses", blocks)


def node_hours(contents: Contents) -> dict[str, dict[str, float]] | None:
    """Return node-hours on site by cluster and by what became of them; None where the folder does not say."""
    losses = contents.table("losses")
    if not losses:
        return None
    hours = {name: losses.summed("cluster", column) for column, name in LOSSES.items() if column in losses}
    clusters = dict.fromkeys(losses.texts("cluster"))
    return {cluster: {name: by_cluster[cluster] for name, by_cluster in hours.items()} for cluster in clusters}


def _loss_colour(names: Sequence[str], name: str) -> int:
    return LOSS_COLOURS.get(name, list(names).index(name))


def loss_grid(
    shares: Mapping[str, Mapping[str, float]], names: Sequence[str], of: str, what: str = "of node-hours on site"
) -> Grid:
    """Return what became of node-hours, or another whole, one row for each cluster, scenario or workload."""
    palette = {name: _loss_colour(names, name) for name in names}
    rows = []
    for cluster, row in shares.items():
        total = sum(row.values()) or 1.0
        shown = {name: percent(row[name] / total, 2) for name in names}
        parts = [Part(name=n, share=row[n] / total, colour=palette[n], shown=shown[n]) for n in names]
        rows.append((cluster, list(shown.values()), parts))
    return bar_grid((of, *names, what), rows, what.removeprefix("of ").capitalize(), palette)


def routing_section(contents: Contents) -> Section | None:
    """Return who served what, by workload and cluster: shares of tokens, and how busy the replicas held for it were."""
    routing = contents.table("routing_monthly")
    if not routing:
        return None
    busy: dict[tuple[str, str], list[float]] = defaultdict(list)
    tokens: dict[tuple[str, str], float] = defaultdict(float)
    figures = routing.rows("workload", "cluster", numbers=["utilisation_fraction"], totals=["served_tokens"])
    for workload, cluster, share, served_tokens in figures:
        tokens[workload, cluster] += served_tokens
        busy[workload, cluster] += [share] if share is not None else []
    names, clusters = (list(dict.fromkeys(pair[i] for pair in tokens)) for i in (0, 1))
    hues = colours(clusters)
    served_by, used = [], []
    for name in names:
        total = sum(tokens[name, c] for c in clusters) or 1.0
        cut = {c: tokens[name, c] / total for c in clusters}
        mean = {c: sum(busy[name, c]) / len(busy[name, c]) if busy[name, c] else None for c in clusters}
        parts = [Part(name=c, share=cut[c], colour=hues[c], shown=percent(cut[c])) for c in clusters]
        served_by.append((name, [percent(cut[c]) for c in clusters], Bar(parts=parts)))
        loads = [Part(name=c, share=mean[c] or 0.0, colour=hues[c], shown=percent(mean[c])) for c in clusters]
        used.append((name, [percent(mean[c]) for c in clusters], Bar(parts=loads, is_group=True)))
    caption = "How busy the machines that may serve it were with it, mean of the months"
    legend = {c: hues[c] for c in clusters}
    return section(
        "losses",
        [
            Sentence(text=ROUTED, tone="note"),
            bar_grid(("workload", *clusters, "of its tokens"), served_by, "Who served each workload", legend),
            bar_grid(("workload", *clusters, "side by side"), used, caption),
        ],
    )


def _causes(contents: Contents) -> list[Grid]:
    """Return failures and incidents by cause: how many, how long, what they cost."""
    events = contents.table("events")
    if events is None:
        return []
    sums: dict[tuple[str, str], tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))
    for event, cause, hours, lost in events.rows("event", "cause", totals=("duration_h", "lost_capacity_tokens")):
        if event in ("failure", "maintenance", "software", "outage"):
            number, together, cost = sums[event, cause]
            sums[event, cause] = (number + 1, together + hours, cost + lost)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    most = max((cost for _, (_, _, cost) in ordered), default=0.0) or 1.0
    rows = [
        (
            f"{event}, {cause}" if cause else event,
            (f"{number:,.0f}", f"{hours / number:,.1f}", count(lost)),
            [Part(name=cause, share=max(0.0, lost) / most, colour=1, shown=count(lost))],
        )
        for (event, cause), (number, hours, lost) in ordered
        if lost > 0
    ]
    header = ("cause", "events", "hours each", "tokens of capacity", "compared")
    return [bar_grid(header, rows, "Causes, costliest first")] if rows else []


def mend_words(reason: Mapping[str, Any]) -> str:
    """Say what would mend a loss, and how much of it."""
    amount = reason["mend_amount"]
    if amount is None:
        return f"; {SPREAD}" if reason["mend"] == SPREAD else ""
    number = f"{amount:.3g}" if reason["reason"] == "too_long" else f"{math.ceil(amount):,}"  # seconds, or whole nodes
    mend = reason["mend"].replace("nodes", "node", 1) if number == "1" else reason["mend"]
    return f"; {number} {mend}"
