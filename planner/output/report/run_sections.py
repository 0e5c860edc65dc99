"""The sections of a single run's report, each from the files of its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from planner.finance.accounts import ACCOUNT_ORDER, View
from planner.output.report.contents import Contents, Table
from planner.output.report.html import Html, Part, bar, bar_table, group, join, legend, paragraph, table
from planner.output.report.page import Section
from planner.output.report.timechart import Series, draw
from planner.output.report.timelines import Calendar, colours
from planner.output.report.words import NOTHING, count, dollars, percent
from planner.output.scales import COLOURS
from planner.output.summary import mend_words
from planner.run.measure_names import FLEET, SITE
from planner.run.slo_misses import REASONS

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


def money_section(contents: Contents) -> Section | None:
    """Return the accrued cost by account, cluster and month."""
    ledger = contents.table("ledger")
    if not ledger:
        return None
    totals = account_sums(contents)
    monthly: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for month, _, account, amount in _accrued(ledger):
        monthly[account][month] += amount
    rows = ledger.rows("account", totals=["amount_usd"])
    bought = sum(amount for account, amount in rows if account.startswith("capex_"))
    clusters = sorted(dict.fromkeys(_places(ledger)), key=lambda name: name == SITE)  # clusters keep their colours
    order = sorted(totals, key=lambda account: -sum(totals[account].values()))
    total = sum(sum(row.values()) for row in totals.values())
    body = join(
        [
            paragraph(
                f"{dollars(total)} of accrued cost: purchases of {dollars(bought)} are spread over their life as "
                "depreciation. Every dollar is one row of ledger.csv."
            ),
            _account_table(totals, order, clusters, total),
            _money_chart(f"{contents.anchor}money-months", monthly, order, Calendar(ledger.texts("month"))),
        ]
    )
    return Section(key="money", body=body)


def _accrued(ledger: Table) -> Iterator[tuple[str, str, str, float]]:
    """Yield month, cluster, account and amount of the rows that accrued cost counts."""
    accrued = {account.value for account in ACCOUNT_ORDER if View.ACCRUAL in account.views}
    columns = (ledger.texts("month"), _places(ledger), ledger.texts("account"), ledger.totals("amount_usd"))
    return (row for row in zip(*columns, strict=True) if row[2] in accrued)


def _places(ledger: Table) -> list[str]:
    """Return the cluster of each row; folders written before the site had a name of its own call it the fleet."""
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


def _account_table(
    totals: dict[str, dict[str, float]], order: Sequence[str], clusters: Sequence[str], total_usd: float
) -> Html:
    palette = colours(clusters)
    # The bars are steps of a waterfall: each begins where the one before it ends, what is received steps back.
    most = sum(cost for row in totals.values() if (cost := sum(row.values())) > 0.0) or 1.0
    rows: list[tuple[str, list[str], Html]] = []
    reached = 0.0
    for account in order:
        row = totals[account]
        total = sum(row.values())
        parts = [
            Part(name=c, share=abs(row.get(c, 0.0)) / most, colour=palette[c], shown=dollars(row.get(c, 0.0)))
            for c in clusters
        ]
        drawn = bar(parts, max(0.0, min(reached, reached + total)) / most)
        reached += total
        numbers = [*(dollars(row[c]) if c in row else NOTHING for c in clusters), dollars(total)]
        numbers.append(percent(total / total_usd if total_usd else None))
        rows.append((words_of(account), numbers, drawn))
    sums = [sum(row.get(c, 0.0) for row in totals.values()) for c in clusters]
    steps = [
        Part(name=c, share=cost / most, colour=palette[c], shown=dollars(cost))
        for c, cost in zip(clusters, sums, strict=True)
    ]
    rows.append(
        ("accrued cost", [*map(dollars, sums), dollars(total_usd), percent(1.0 if total_usd else None)], bar(steps))
    )
    header = ("account", *clusters, "total", "share", "step by step, by cluster")
    return join([legend([(c, palette[c]) for c in clusters]), bar_table(header, rows, "Accrued cost by account")])


def words_of(account: str) -> str:
    """Return an account as a reader says it."""
    return account.replace("_", " ")


def _money_chart(key: str, monthly: dict[str, dict[str, float]], order: Sequence[str], calendar: Calendar) -> Html:
    """Return the months as layers, the largest accounts by name and the rest together."""
    positive = [account for account in order if sum(monthly[account].values()) > 0]
    named, rest = positive[: len(COLOURS) - 1], positive[len(COLOURS) - 1 :]
    layers = {words_of(account): monthly[account] for account in named}
    if rest:
        layers[OTHER] = {m: sum(monthly[a].get(m, 0.0) for a in rest) for m in calendar.months}
    series = [
        Series(name=name, points=[(calendar.middle(m), max(0.0, row.get(m, 0.0))) for m in calendar.months], colour=i)
        for i, (name, row) in enumerate(layers.items())
    ]
    said = "Accounts on one another, largest at the bottom."
    return draw(calendar.chart((key, "Accrued cost by month", said, "usd"), series, stacked=True))


def losses_section(contents: Contents) -> Section | None:
    """Return where node-hours went, by cluster, by month and by cause."""
    losses = contents.table("losses")
    if not losses:
        return None
    columns = {name: column for column, name in LOSSES.items() if column in losses}
    by_cluster, months = node_hours(contents) or {}, losses.texts("month")
    by_month = {name: losses.summed("month", column) for name, column in columns.items()}
    calendar = Calendar(months)
    lost = [name for name in columns if name not in ("at work", IDLE)]
    series = [
        Series(name=name, points=[(calendar.middle(m), by_month[name][m]) for m in calendar.months],
               colour=_loss_colour(list(columns), name))
        for name in lost
    ]  # fmt: skip
    said = "What failures, software, outages and the power cap took; without what merely had no demand."
    texts = (f"{contents.anchor}losses-months", "Node-hours lost by month", said, "node-hours")
    chart = draw(calendar.chart(texts, series, stacked=True))
    return Section(
        key="losses",
        body=join([loss_table(by_cluster, list(columns), "cluster"), chart, _causes(contents)]),
    )


def late_section(contents: Contents) -> Section | None:
    """Return why requests were not in time, by workload, and what would mend the worst of it."""
    lost = contents.table("late_reasons")
    if not lost:
        return None
    worst = contents.json("summary.json").get("late_reasons", [])
    rows = [
        (reason["workload"], REASONS[reason["reason"]], percent(reason["lost_fraction"], 3), reason["worst_month"],
         percent(reason["worst_lost_fraction"], 2), mend_words(reason).removeprefix("; "))
        for reason in worst
    ]  # fmt: skip
    header = ("workload", "reason", "of its requests", "worst month", "then", "what would mend it")
    names = list(REASONS.values())
    sums = lost.sums("workload", "reason", "lost_requests")
    missed = {
        workload: {name: row[reason] for reason, name in REASONS.items()}
        for workload, row in sums.items()
        if sum(row.values()) > 0
    }
    parts = [
        loss_table(missed, names, "workload", "of requests not in time") if missed else "",
        table(header, rows, "Why requests were not in time, worst first", numeric=(2, 4)) if rows else "",
    ]
    return Section(key="losses", body=join(parts))


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


def loss_table(
    shares: dict[str, dict[str, float]], names: Sequence[str], of: str, what: str = "of node-hours on site"
) -> Html:
    """Return what became of node-hours, or another whole, one row for each cluster, scenario or workload."""
    rows = []
    for cluster, row in shares.items():
        total = sum(row.values()) or 1.0
        parts = [Part(name=n, share=row[n] / total, colour=_loss_colour(names, n), shown=percent(row[n] / total, 2))
                 for n in names]  # fmt: skip
        rows.append((cluster, [percent(row[n] / total, 2) for n in names], parts))
    caption = what.removeprefix("of ").capitalize()
    return join([legend([(n, _loss_colour(names, n)) for n in names]), bar_table((of, *names, what), rows, caption)])


def routing_section(contents: Contents) -> Section | None:
    """Return who served what, by workload and cluster: shares of tokens, and how busy the replicas held for it were."""
    routing = contents.table("routing_monthly")
    if not routing:
        return None
    busy: dict[tuple[str, str], list[float]] = defaultdict(list)
    tokens: dict[tuple[str, str], float] = defaultdict(float)
    pairs = list(routing.rows("workload", "cluster"))
    rows = routing.rows(numbers=["utilisation_fraction"], totals=["served_tokens"])
    for pair, (share, served) in zip(pairs, rows, strict=True):
        tokens[pair] += served
        busy[pair] += [share] if share is not None else []
    names, clusters = (list(dict.fromkeys(pair[i] for pair in pairs)) for i in (0, 1))
    hues = colours(clusters)
    served_by: list[tuple[str, list[str], Html]] = []
    used: list[tuple[str, list[str], Html]] = []
    for name in names:
        total = sum(tokens[name, c] for c in clusters) or 1.0
        cut = {c: tokens[name, c] / total for c in clusters}
        mean = {c: sum(busy[name, c]) / len(busy[name, c]) if busy[name, c] else None for c in clusters}
        parts = [Part(name=c, share=cut[c], colour=hues[c], shown=percent(cut[c])) for c in clusters]
        served_by.append((name, [percent(cut[c]) for c in clusters], bar(parts)))
        loads = [Part(name=c, share=mean[c] or 0.0, colour=hues[c], shown=percent(mean[c])) for c in clusters]
        used.append((name, [percent(mean[c]) for c in clusters], group(loads)))
    said = (
        "Where requests went follows from the order in which clusters are filled, and from what each can serve: a "
        "cluster that stands idle is not a dear part, and one that is busy not a cheap one."
    )
    body = [
        paragraph(said, class_="note"),
        legend([(c, hues[c]) for c in clusters]),
        bar_table(("workload", *clusters, "of its tokens"), served_by, "Who served each workload"),
        bar_table(("workload", *clusters, "side by side"), used,
                  "How busy the machines that may serve it were with it, mean of the months"),
    ]  # fmt: skip
    return Section(key="losses", body=join(body))


def _causes(contents: Contents) -> Html:
    """Return failures and incidents by cause: how many, how long, what they cost."""
    events = contents.table("events")
    if events is None:
        return Html("")
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for event, cause, hours, lost in events.rows("event", "cause", totals=("duration_h", "lost_capacity_tokens")):
        if event in ("failure", "maintenance", "software", "outage"):
            sums_of = sums[event, cause]
            sums_of[0], sums_of[1], sums_of[2] = sums_of[0] + 1, sums_of[1] + hours, sums_of[2] + lost
    ordered = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    most = max((cost[2] for _, cost in ordered), default=0.0) or 1.0
    cells = [
        (
            f"{event}, {cause}" if cause else event,
            (f"{number:,.0f}", f"{hours / number:,.1f}", count(lost)),
            [Part(name=cause, share=max(0.0, lost) / most, colour=1, shown=count(lost))],
        )
        for (event, cause), (number, hours, lost) in ordered
        if lost > 0
    ]
    if not cells:
        return Html("")
    return bar_table(
        ("cause", "events", "hours each", "tokens of capacity", "compared"), cells, "Causes, costliest first"
    )
