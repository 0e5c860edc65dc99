"""The sections of a single run's report, each from the files of its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from planner.finance.accounts import ACCOUNT_ORDER, ACCOUNTS, View
from planner.reporting.report.bars import Part, bar_table, legend
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.html import Html, element, join, paragraph
from planner.reporting.report.page import Section, code
from planner.reporting.report.timechart import COLOURS, FLEET, Series, TimeChart, draw
from planner.reporting.report.timelines import Calendar, colours
from planner.reporting.report.words import NOTHING, count, dollars, percent, unit_price

LOSSES = {
    "working_node_h": "at work",
    "lost_to_failures_node_h": "failures",
    "lost_to_software_node_h": "software",
    "lost_to_outages_node_h": "outages",
    "lost_to_power_cap_node_h": "power cap",
    "without_demand_node_h": "no demand",
}
IDLE = "no demand"
LOSS_COLOURS = {IDLE: COLOURS - 1}
"""Idleness is no fault of the machines: it has the grey at the end of the palette."""
OTHER = "other"


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of one run: what it costs, what to look at, and what it cannot say."""
    summary = contents.json("summary.json")
    if "clusters" not in summary:
        return None
    found = element("ul", *(element("li", line) for line in findings(summary)))
    body = join(
        [
            paragraph(_headline(summary), class_="headline"),
            _cards(summary),
            found,
            _cluster_table(summary),
            _baseline(summary),
        ]
    )
    return Section(key="answer", title="What should we do?", body=body)


def _cards(summary: dict[str, Any]) -> Html:
    """Return the headline figures, each with the range that chance gives it where the plan was drawn again."""
    fleet = summary["clusters"][FLEET]
    intervals = (summary.get("chance") or {}).get("intervals", {})
    months = f"over {summary['horizon_months']} months"
    cards = (
        ("per million tokens", fleet["cost_per_million_tokens_usd"], unit_price, "cost_per_million_tokens_usd"),
        ("per million generated", fleet["cost_per_million_output_tokens_usd"], unit_price,
         "cost_per_million_output_tokens_usd"),
        (months, fleet["cost_usd"], dollars, "cost_usd"),
        ("tokens served", fleet["served_tokens"], count, ""),
        ("utilised", fleet["utilisation_fraction"], percent, "utilisation_fraction"),
        ("requests within objective", fleet.get("slo_attainment_fraction"), _two_digits, "slo_attainment_fraction"),
    )  # fmt: skip
    shown = []
    for term, value, form, name in cards:
        parts = [element("dt", term), element("dd", form(value))]
        if name in intervals:
            low, high = (form(end) for end in intervals[name])
            parts.append(element("dd", low if low == high else f"{low} to {high}", class_="range"))
        shown.append(element("div", *parts, class_="card"))
    return element("dl", *shown, class_="cards")


def _two_digits(share: float | None) -> str:
    return percent(share, 2)


def _headline(summary: dict[str, Any]) -> str:
    fleet = summary["clusters"][FLEET]
    attained = fleet.get("slo_attainment_fraction")
    served = f", and serves {percent(attained, 2)} of requests within their objective" if attained is not None else ""
    return (
        f"This plan serves {count(fleet['served_tokens'])} tokens in {summary['horizon_months']} months for "
        f"{dollars(fleet['cost_usd'])}: {unit_price(fleet['cost_per_million_tokens_usd'])} per million tokens{served}."
    )


def findings(summary: dict[str, Any]) -> list[str]:
    """Say what the figures suggest: what stands idle, what is dear, what is late, what was warned of."""
    fleet = summary["clusters"][FLEET]
    clusters = {name: row for name, row in summary["clusters"].items() if name != FLEET}
    lost = summary.get("capacity_fraction", {})
    found = []
    if (idle := lost.get("without_demand", 0.0)) > 0.5:
        found.append(
            f"{percent(idle)} of node-hours had no demand: the fleet is larger than the traffic. Try fewer nodes, or "
            "later deliveries, before anything else."
        )
    priced = {n: r for n, r in clusters.items() if r["cost_per_million_tokens_usd"] and fleet["cost_usd"] > 0}
    if len(priced) > 1:
        dear = max(priced, key=lambda name: priced[name]["cost_per_million_tokens_usd"])
        cheap = min(priced, key=lambda name: priced[name]["cost_per_million_tokens_usd"])
        times = priced[dear]["cost_per_million_tokens_usd"] / priced[cheap]["cost_per_million_tokens_usd"]
        if times > 1.2:
            found.append(
                f"A token costs {times:.1f} times as much on {dear} as on {cheap}: {dear} takes "
                f"{percent(priced[dear]['cost_usd'] / fleet['cost_usd'], 0)} of the money and serves "
                f"{percent(priced[dear]['served_tokens'] / fleet['served_tokens'], 0)} of the tokens, at "
                f"{percent(priced[dear]['utilisation_fraction'], 0)} utilisation. They may not serve the same work."
            )
    unused = [name for name, row in clusters.items() if not row["served_tokens"]]
    if unused:
        found.append(f"{', '.join(unused)} served nothing: no workload that it can take was routed to it.")
    if (shed := fleet.get("shed_fraction") or 0.0) > 0.001:
        found.append(f"{percent(shed, 2)} of tokens were refused or ran out of time: this plan is too small.")
    if (worst := summary.get("worst_month")) and worst["missed_fraction"] > 0.001:
        missed = percent(worst["missed_fraction"], 2)
        found.append(f"The worst month is {worst['month']}: {missed} of requests refused or late.")
    lucky = (summary.get("chance") or {}).get("intervals", {}).get("slo_attainment_fraction")
    attained = fleet.get("slo_attainment_fraction")
    if lucky and attained is not None and lucky[0] < attained - 0.01:
        found.append(
            f"Luck decides whether this plan is large enough: other draws of it meet the objective for "
            f"{percent(lucky[0])} of requests only. Leave more room, or let a review buy it."
        )
    return [*found, *(f"Warning: {warning}" for warning in summary.get("warnings", ()))]


def _cluster_table(summary: dict[str, Any]) -> Html:
    palette = colours(summary["clusters"])
    most = max((row["cost_per_million_tokens_usd"] or 0.0) for row in summary["clusters"].values()) or 1.0
    names = [*(name for name in summary["clusters"] if name != FLEET), FLEET]
    rows = []
    for name in names:
        row = summary["clusters"][name]
        each = row["cost_per_million_tokens_usd"]
        parts = [Part(name=name, share=(each or 0.0) / most, colour=palette[name], shown=unit_price(each))]
        numbers = (
            percent(row["availability_fraction"]), percent(row["utilisation_fraction"]), count(row["served_tokens"]),
            dollars(row["cost_usd"]), unit_price(row["cost_per_million_output_tokens_usd"]), unit_price(each),
        )  # fmt: skip
        rows.append((name, numbers, parts))
    header = (
        "cluster",
        "available",
        "utilised",
        "tokens",
        "cost",
        "USD/M generated",
        "USD/M tokens",
        "per million tokens",
    )
    return bar_table(header, rows, "The clusters side by side")


def _baseline(summary: dict[str, Any]) -> Html:
    chance = summary.get("chance")
    if chance is None:
        said = "This is one plan and one draw of its luck, so it has no interval and no baseline. "
    else:
        said = (
            f"The small figures are where {chance['words']} lie ({chance['draws']} draws of traffic noise, failures, "
            "incidents and slips, every input as stated). The plan has no baseline here. "
        )
    return paragraph(
        said, code("planner compare"), " puts it beside another plan on the same traffic and the same luck; ",
        code("planner montecarlo"), " adds what is not known about prices, growth and throughput.", class_="note",
    )  # fmt: skip


def money_section(contents: Contents) -> Section | None:
    """Return the accrued cost by account, cluster and month."""
    ledger = contents.table("ledger")
    if ledger is None or not len(ledger):
        return None
    totals = account_sums(contents)
    monthly: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for month, _, account, amount in _accrued(ledger):
        monthly[account][month] += amount
    rows = zip(ledger.texts("account"), ledger.totals("amount_usd"), strict=True)
    bought = sum(amount for account, amount in rows if account.startswith("capex_"))
    clusters = list(dict.fromkeys(ledger.texts("cluster")))
    order = sorted(totals, key=lambda account: -sum(totals[account].values()))
    whole = sum(sum(row.values()) for row in totals.values())
    body = join(
        [
            paragraph(
                f"{dollars(whole)} of accrued cost: purchases of {dollars(bought)} are spread over their life as "
                "depreciation. Every dollar is one row of ledger.csv."
            ),
            _account_table(totals, order, clusters, whole),
            _money_chart(f"{contents.anchor}money-months", monthly, order, Calendar(ledger.texts("month"))),
        ]
    )
    return Section(key="money", title="Where the money goes", body=body)


def _accrued(ledger: Table) -> Iterator[tuple[str, str, str, float]]:
    """Yield month, cluster, account and amount of the rows that accrued cost counts."""
    accrued = {account.value for account in ACCOUNT_ORDER if View.ACCRUAL in ACCOUNTS[account].views}
    columns = (ledger.texts("month"), ledger.texts("cluster"), ledger.texts("account"), ledger.totals("amount_usd"))
    return (row for row in zip(*columns, strict=True) if row[2] in accrued)


def account_sums(contents: Contents) -> dict[str, dict[str, float]]:
    """Return accrued cost over the whole horizon by account and cluster."""
    ledger = contents.table("ledger")
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for _, cluster, account, amount in _accrued(ledger) if ledger is not None else ():
        sums[account][cluster] += amount
    return sums


def account_totals(contents: Contents) -> dict[str, float]:
    """Return accrued cost over the whole horizon by account."""
    return {account: sum(own.values()) for account, own in account_sums(contents).items()}


def _account_table(
    totals: dict[str, dict[str, float]], order: Sequence[str], clusters: Sequence[str], whole: float
) -> Html:
    palette = colours(clusters)
    most = max((sum(abs(v) for v in row.values()) for row in totals.values()), default=0.0) or 1.0
    rows = []
    for account in order:
        row = totals[account]
        total = sum(row.values())
        parts = [
            Part(name=c, share=row.get(c, 0.0) / most, colour=palette[c], shown=dollars(row.get(c, 0.0)))
            for c in clusters
        ]
        numbers = [*(dollars(row[c]) if c in row else NOTHING for c in clusters), dollars(total)]
        numbers.append(percent(total / whole if whole else None))
        rows.append((words_of(account), numbers, parts))
    header = ("account", *clusters, "total", "share", "by cluster")
    return join([legend([(c, palette[c]) for c in clusters]), bar_table(header, rows, "Accrued cost by account")])


def words_of(account: str) -> str:
    """Return an account as a reader says it."""
    return account.replace("_", " ")


def _money_chart(key: str, monthly: dict[str, dict[str, float]], order: Sequence[str], calendar: Calendar) -> Html:
    """Return the months as layers, the largest accounts by name and the rest together."""
    positive = [account for account in order if sum(monthly[account].values()) > 0]
    named, rest = positive[: COLOURS - 1], positive[COLOURS - 1 :]
    layers = {words_of(account): monthly[account] for account in named}
    if rest:
        layers[OTHER] = {m: sum(monthly[a].get(m, 0.0) for a in rest) for m in calendar.months}
    series = [
        Series(name=name, points=[(calendar.middle(m), max(0.0, row.get(m, 0.0))) for m in calendar.months], colour=i)
        for i, (name, row) in enumerate(layers.items())
    ]
    return draw(
        TimeChart(
            key=key, title="Accrued cost by month",
            summary="Accounts on one another, largest at the bottom.",
            unit="usd", start=calendar.start, days=calendar.days, series=series, stacked=True,
        )
    )  # fmt: skip


def losses_section(contents: Contents) -> Section | None:
    """Return where node-hours went, by cluster, by month and by cause."""
    losses = contents.table("losses")
    if losses is None or not len(losses):
        return None
    columns = {name: column for column, name in LOSSES.items() if column in losses}
    by_cluster, months = node_hours(contents) or {}, losses.texts("month")
    by_month: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, column in columns.items():
        for month, hours in zip(months, losses.totals(column), strict=True):
            by_month[name][month] += hours
    calendar = Calendar(months)
    lost = [name for name in columns if name not in ("at work", IDLE)]
    series = [
        Series(name=name, points=[(calendar.middle(m), by_month[name][m]) for m in calendar.months],
               colour=_loss_colour(list(columns), name))
        for name in lost
    ]  # fmt: skip
    chart = draw(
        TimeChart(
            key=f"{contents.anchor}losses-months", title="Node-hours lost by month", unit="node-hours", stacked=True,
            series=series,
            summary="What failures, software, outages and the power cap took; without what merely had no demand.",
            start=calendar.start, days=calendar.days,
        )
    )  # fmt: skip
    return Section(
        key="losses",
        title="Where capacity was lost, and to what",
        body=join([loss_table(by_cluster, list(columns), "cluster"), chart, _causes(contents)]),
    )


def node_hours(contents: Contents) -> dict[str, dict[str, float]] | None:
    """Return node-hours on site by cluster and by what became of them; None where the folder does not say."""
    losses = contents.table("losses")
    if losses is None or not len(losses):
        return None
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for column, name in LOSSES.items():
        if column in losses:
            for cluster, hours in zip(losses.texts("cluster"), losses.totals(column), strict=True):
                sums[cluster][name] += hours
    return sums


def _loss_colour(names: Sequence[str], name: str) -> int:
    return LOSS_COLOURS.get(name, list(names).index(name))


def loss_table(shares: dict[str, dict[str, float]], names: Sequence[str], of: str) -> Html:
    """Return what became of node-hours, one row for each cluster or scenario."""
    rows = []
    for cluster, row in shares.items():
        whole = sum(row.values()) or 1.0
        parts = [Part(name=n, share=row[n] / whole, colour=_loss_colour(names, n), shown=percent(row[n] / whole, 2))
                 for n in names]  # fmt: skip
        rows.append((cluster, [percent(row[n] / whole, 2) for n in names], parts))
    header = (of, *names, "of node-hours on site")
    return join([legend([(n, _loss_colour(names, n)) for n in names]), bar_table(header, rows, "Node-hours on site")])


def _causes(contents: Contents) -> Html:
    """Return failures and incidents by cause: how many, how long, what they cost."""
    events = contents.table("events")
    if events is None:
        return Html("")
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    rows = zip(events.texts("event"), events.texts("cause"), events.totals("duration_h"),
               events.totals("lost_capacity_tokens"), strict=True)  # fmt: skip
    for event, cause, hours, lost in rows:
        if event in ("failure", "software", "outage"):
            found = sums[event, cause]
            found[0], found[1], found[2] = found[0] + 1, found[1] + hours, found[2] + lost
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
