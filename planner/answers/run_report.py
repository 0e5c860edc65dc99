"""The sections of a single run's report, and the parts of them that plans side by side have too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from planner.answers.lender_report import carrying_blocks
from planner.answers.ranking import COST
from planner.answers.sections import section
from planner.answers.sentences import (
    fleet_size_advice,
    idle_cluster,
    much_shed,
    price_change_lines,
    share_words,
    value_line,
    verdict_line,
)
from planner.answers.summaries import ClusterFigures, FleetFigures, Measures, RunSummary
from planner.answers.timelines import Calendar, demand_chart, run_out_chart
from planner.finance.accounting.unit_economics import LINES
from planner.finance.accounts import ACCOUNT_ORDER, View
from planner.finance.measure_names import FLEET, SITE
from planner.finance.money_plan import TOKEN_KINDS
from planner.output.blocks import (
    Block,
    Fact,
    Facts,
    Grid,
    Section,
    Sentence,
    Series,
    TimeChart,
    sentences,
)
from planner.output.folder import Contents
from planner.output.scales import COLOURS
from planner.output.tables import Table
from planner.output.words import NOTHING, count, dollars, percent, unit_price
from planner.run.slo_misses import REASONS

IDLE = "idle_node_h"
NODE_HOUR_USES = {
    "working_node_h": "at work",
    "lost_to_failures_node_h": "failures",
    "lost_to_software_node_h": "software",
    "lost_to_processes_node_h": "processes",
    "lost_to_outages_node_h": "outages",
    "lost_to_power_cap_node_h": "power cap",
    IDLE: "idle",
}
"""What node-hours on site are used for or lost to, in words, by the columns of losses.csv."""
LOSSES = {column: words for column, words in NODE_HOUR_USES.items() if column.startswith("lost_")}
LOSS_EVENTS = ("failure", "maintenance", "software", "outage")
"""Events that take capacity."""
OUTPUT_COST = "levelised_cost_per_million_output_tokens_usd"
COST_WITHOUT_RESALE = "levelised_cost_without_resale_per_million_tokens_usd"
EARNINGS = ("revenue_usd", "running_cost_usd", "cost_usd", "margin_usd")
OF_SALES = ("revenue_usd", "margin_usd")
"""Those that a plan has only where it sells tokens."""
UNIT_ECONOMICS = (
    "workload",
    "tokens",
    "revenue",
    "running cost",
    "full cost",
    "margin",
    "USD/accelerator-hour",
)
"""Columns of unit economics."""
WORKLOAD_COSTS = (
    "workload",
    "marginal",
    "own capacity",
    "idle capacity",
    "absorbed",
    "USD/M tokens",
    "USD/M generated",
    "rate, USD/M input",
    "cached",
    "output",
)
"""Columns of what workloads cost in present value."""
_COST_PARTS = ("marginal_usd", "own_capacity_usd", "idle_capacity_usd", "absorbed_usd")
ROUTED = "Routing fills clusters in a fixed order, so an idle cluster need not be expensive, nor a busy one cheap."
NEXT_COMMANDS = (
    "To compare it with another plan under the same random numbers, run `planner compare`; to vary prices, growth and "
    "throughput, run `planner montecarlo`."
)


def answer_section(contents: Contents, summary: RunSummary) -> Section:
    """Return the headline of one run: what it costs, what to look at, and what it cannot say."""
    scope = "This report covers one replication of one plan, so it has no interval and no baseline."
    if summary.replications is not None:
        scope = (
            f"The small figures are the range of {summary.replications.words} ({summary.replications.number} in all). "
            "Traffic noise, failures, incidents and slips differ between replications; every input is as stated. This "
            "report covers one plan."
        )
    verdict, *remedy = verdict_lines(summary, on_page=contents.on_page)
    shed_fractions = {"This plan": summary.fleet.shed_fraction}
    shed = much_shed(shed_fractions)
    monthly = contents.table("timeline_monthly")
    return section(
        "answer",
        [
            *sentences([*shed, verdict], "headline"),
            Facts(facts=_key_facts(summary)),
            demand_chart(contents, summary.verdict),
            *sentences([*remedy, objective(summary), *findings(summary)]),
            run_out_chart(contents, monthly, {contents.name: summary.verdict}),
            _cluster_grid(summary),
            Sentence(text=f"{scope} {NEXT_COMMANDS}", tone="note"),
        ],
    )


def _key_facts(summary: RunSummary) -> list[Fact]:
    """Return the headline figures, each with where it lies in other replications."""
    fleet = summary.fleet
    intervals = {} if summary.replications is None else summary.replications.intervals

    def fact(term: str, name: str, figure: float | None, words: Callable[..., str]) -> Fact:
        # An interval whose ends read alike is said once.
        words_of_ends = map(words, intervals.get(name, ()))
        ends = dict.fromkeys(words_of_ends)
        # Where nothing was drawn the range is empty, and the page shows none.
        return Fact(term=term, value=words(figure), range=" to ".join(ends))

    return [
        fact("per million tokens, levelised", COST, summary.measures[COST], unit_price),
        fact(
            "per million generated, levelised",
            OUTPUT_COST,
            summary.measures[OUTPUT_COST],
            unit_price,
        ),
        fact(
            f"accrued, incl. capital charge, {summary.horizon_months} months",
            "cost_usd",
            fleet.cost_usd,
            dollars,
        ),
        fact("tokens served", "served_tokens", fleet.served_tokens, count),
        fact("utilised", "utilisation_fraction", fleet.utilisation_fraction, percent),
        fact(
            "SLO attainment",
            "slo_attainment_fraction",
            fleet.slo_attainment_fraction,
            partial(percent, decimals=2),
        ),
    ]


def _cluster_grid(summary: RunSummary) -> Grid:
    # The whole comes below its parts.
    clusters: dict[str, ClusterFigures | FleetFigures] = {**summary.clusters, FLEET: summary.fleet}
    rows = [
        (
            name,
            percent(figures.availability_fraction),
            percent(figures.utilisation_fraction),
            count(figures.served_tokens),
            dollars(figures.cost_usd),
            unit_price(figures.cost_per_million_output_tokens_usd),
            unit_price(figures.cost_per_million_tokens_usd),
        )
        for name, figures in clusters.items()
    ]
    return Grid(
        caption="The clusters side by side",
        header=(
            "cluster",
            "available",
            "utilised",
            "tokens",
            "accrued cost",
            "accrued USD/M generated",
            "accrued USD/M tokens",
        ),
        rows=rows,
        numeric=range(1, 7),
    )


def verdict_lines(summary: RunSummary, *, on_page: bool = False) -> list[str]:
    """Return the verdict and, where it is MISSED, what would meet the target."""
    lines = [verdict_line(summary.verdict, on_page=on_page)]
    advice = fleet_size_advice(summary)
    # What is idle in a plan that is MET is a finding, no part of the verdict.
    if summary.verdict.status == "MISSED" and advice:
        lines.append(advice)
    return lines


def objective(summary: RunSummary) -> str:
    """Say in a sentence what a run serves, and for how much."""
    fleet = summary.fleet
    money = summary.measures
    attained = fleet.slo_attainment_fraction
    share = "" if attained is None else f", at {share_words(attained)} SLO attainment overall"
    worth = value_line(money, summary.horizon_months).replace("   ", ", ")
    if not worth:
        # Net present cost is net present value with its sign turned.
        worth = f"net present cost {dollars(-(money['npv_usd'] or 0.0))}"
    return (
        f"This plan serves {count(fleet.served_tokens)} tokens in {summary.horizon_months} months for "
        f"{unit_price(money[COST])} per million tokens levelised{share}: {worth}, "
        f"P&L cost {dollars(money['pl_cost_usd'])}, "
        f"{dollars(fleet.cost_usd)} incl. capital charge."
    )


def findings(summary: RunSummary) -> list[str]:
    """Say what the figures suggest: the size of the fleet, what is dear, what is late, what was warned of."""
    lines = price_change_lines(summary.measures)
    advice = fleet_size_advice(summary)
    # Where the target is missed the advice stands beside the verdict already.
    if advice and advice not in verdict_lines(summary):
        lines.append(advice)
    idle, words = idle_cluster(summary)
    if idle:
        lines.append(f"{idle} is mostly idle: {words}.")
    # A cluster that costs nothing is not there in any month.
    paid = {name: figures for name, figures in summary.clusters.items() if figures.cost_usd}
    unused = [name for name, figures in paid.items() if not figures.served_tokens]
    if unused:
        names = ", ".join(unused)
        lines.append(f"{names} served nothing: no workload was routed to it.")
    # Warnings come after findings: they are of the inputs, not of the plan.
    lines += [f"Warning: {warning}" for warning in summary.warnings]
    return [*lines, *(f"Note: {note}" for note in summary.notes)]


def money_section(contents: Contents, summary: RunSummary | None = None) -> Section | None:
    """Return the accrued cost by account, cluster and month; with a run's summary, how its cost figures reconcile."""
    ledger = contents.table("ledger")
    if not ledger:
        return None
    totals = account_totals(contents)
    total = sum(totals.values())
    # Purchases are no accrued cost: they stand beside it, so that no one misses them.
    ledger_sums = ledger.rows("account", totals=["amount_usd"])
    capex = (amount for account, amount in ledger_sums if account.startswith("capex_"))
    purchases = sum(capex)
    lead = (
        f"Accrued cost is {dollars(total)}. Purchases of {dollars(purchases)} are part of it as depreciation over "
        "their life."
    )
    blocks: list[Block | None] = [
        Sentence(
            text=lead
            if contents.on_page
            else f"{lead} Every dollar is in exactly one row of ledger.csv."
        ),
        _account_grid(contents, ledger, total),
    ]
    if summary is not None:
        blocks.append(
            Grid(
                caption="From P&L cost to net present cost; lines that begin with = are sums",
                header=("cost", "USD"),
                rows=reconciliation_rows(summary),
                numeric=(1,),
            )
        )
    if costs := workload_rows(contents):
        blocks.append(
            Grid(
                caption="What each workload costs in present value; absorbed costs and tax less revenue add up to net "
                "present cost",
                header=WORKLOAD_COSTS,
                rows=costs,
                numeric=range(1, len(WORKLOAD_COSTS)),
            )
        )
    if units := unit_rows(contents):
        blocks.append(
            Grid(
                caption="Unit economics, accrued; unallocated idle capacity is on-site hours that were not at work",
                header=UNIT_ECONOMICS,
                rows=units,
                numeric=range(1, len(UNIT_ECONOMICS)),
            )
        )
    if summary is not None:
        blocks.append(Sentence(text=resale_words(summary.measures)))
        blocks += carrying_blocks(contents)
    return section("money", [*blocks, money_chart(contents)])


def _account_grid(contents: Contents, ledger: Table, total: float) -> Grid:
    """Return accrued cost by account and cluster, the largest account first; what is of no cluster comes last."""
    sums = account_sums(contents)
    names = dict.fromkeys(ledger.texts("cluster"))
    clusters = sorted(names, key=lambda name: name == SITE)
    by_account = {account.replace("_", " "): sums[account] for account in largest_first(sums)}
    by_account["accrued cost"] = {
        cluster: sum(account.get(cluster, 0.0) for account in sums.values()) for cluster in clusters
    }
    rows = []
    for name, by_cluster in by_account.items():
        cost = sum(by_cluster.values())
        cells = (
            dollars(by_cluster[cluster]) if cluster in by_cluster else NOTHING
            for cluster in clusters
        )
        share = percent(cost / total if total else None)
        rows.append((name, *cells, dollars(cost), share))
    header = ("account", *clusters, "total", "share")
    return Grid(
        caption="Accrued cost by account",
        header=header,
        rows=rows,
        numeric=range(1, len(header)),
        drawn=len(header) - 1,
    )


def resale_words(measures: Measures) -> str:
    """Say how much of net present cost is a resale forecast, and the levelised cost without it."""
    return (
        f"Resale of used hardware is worth {dollars(measures['resale_pv_usd'])} in present value. If it had no resale "
        f"value, a million tokens would cost {unit_price(measures[COST_WITHOUT_RESALE])} levelised instead of "
        f"{unit_price(measures[COST])}."
    )


def workload_rows(contents: Contents) -> list[tuple[str, ...]]:
    """Return what each workload costs in present value, and the rates that recover it; then what none bears."""
    table = contents.table("workload_costs")
    if not table:
        return []
    rows = []
    prices = (
        "absorbed_cost_per_million_tokens_usd",
        "absorbed_cost_per_million_output_tokens_usd",
        *(f"{kind}_rate_usd_per_million_tokens" for kind in TOKEN_KINDS),
    )
    for line, workload, *numbers in table.rows("line", "workload", numbers=(*_COST_PARTS, *prices)):
        parts = map(dollars, numbers[: len(_COST_PARTS)])
        # What no workload bears has no price.
        words = (unit_price(price) for price in numbers[len(_COST_PARTS) :])
        rows.append((workload or line, *parts, *words))
    return rows


def unit_rows(contents: Contents) -> list[tuple[str, ...]]:
    """Return the unit economics of each workload over the horizon; then what none bears."""
    table = contents.table("unit_economics")
    if not table:
        return []
    # Workloads first, then what none of them bears.
    distinct = dict.fromkeys(table.rows("line", "workload"))
    sells = any(table.totals("revenue_usd"))
    by_line = sorted(distinct, key=lambda row: LINES.index(row[0]))
    rows = []
    for line, workload in by_line:
        months = table.where("line", line).where("workload", workload)
        rows.append((workload or line, *_unit_cells(months, sells=sells)))
    return rows


def _unit_cells(months: Table, *, sells: bool) -> tuple[str, ...]:
    """Return tokens, earnings, and the price of an accelerator-hour."""

    def total(column: str) -> float:
        return sum(months.totals(column))

    hours = total("accelerator_h")
    tokens = sum(total(f"{kind}_tokens") for kind in TOKEN_KINDS)
    # Without a price nothing is earned, and a margin would be the cost with its sign turned.
    earnings = (
        dollars(total(column)) if sells or column not in OF_SALES else NOTHING
        for column in EARNINGS
    )
    return (
        count(tokens),
        *earnings,
        # A price of nothing is a dash, not a division by zero.
        unit_price(total("cost_usd") / hours if hours else None),
    )


def reconciliation_rows(summary: RunSummary) -> list[tuple[str, str]]:
    """Return the lines from P&L cost to net present cost, to the cent."""
    signs = {"sum": "= ", "item": "+ "}
    rows = [
        (f"{signs[step.kind]}{step.line}", f"{step.amount_usd:,.2f}")
        for step in summary.reconciliation
    ]
    # The first line is where the sum begins: nothing is added to anything yet.
    (begin, amount), *steps = rows
    return [(begin[2:], amount), *steps]


def account_sums(contents: Contents, column: str = "cluster") -> dict[str, dict[str, float]]:
    """Return accrued cost over the whole horizon by account and by cluster or month."""
    ledger = contents.table("ledger")
    sums = {} if ledger is None else ledger.sums("account", column, "amount_usd")
    # Purchases and sales of hardware are cash; accrual has their depreciation.
    accrued = {account.value for account in ACCOUNT_ORDER if View.ACCRUAL in account.views}
    return {account: parts for account, parts in sums.items() if account in accrued}


def account_totals(contents: Contents) -> dict[str, float]:
    """Return accrued cost over the whole horizon by account."""
    sums = account_sums(contents)
    return {account: sum(parts.values()) for account, parts in sums.items()}


def largest_first(sums: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return accounts, the largest first."""
    return sorted(sums, key=lambda account: -sum(sums[account].values()))


def chart_layers(accounts: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return accounts by the names of their layers: as many as there are colours, the rest together."""
    named = accounts[: len(COLOURS) - 1]
    layers: dict[str, Sequence[str]] = {account.replace("_", " "): [account] for account in named}
    # The last colour is for all that is left.
    rest = accounts[len(COLOURS) - 1 :]
    if rest:
        return layers | {"other": rest}
    return layers


def money_chart(contents: Contents) -> TimeChart | None:
    """Return the months as layers, the largest accounts by name and the rest together."""
    ledger = contents.table("ledger")
    if not ledger:
        return None
    calendar = Calendar(ledger.texts("month"))
    monthly = account_sums(contents, "month")
    # A stack cannot show what is earned below what is paid.
    ranked = largest_first(account_sums(contents))
    positive = [account for account in ranked if sum(monthly[account].values()) > 0]
    series = []
    layers = chart_layers(positive)
    for colour, (name, accounts) in enumerate(layers.items()):
        points = []
        for month in calendar.months:
            amount_usd = sum(monthly[account].get(month, 0.0) for account in accounts)
            # An account that is earned in one month alone would cut into the layer below it.
            height = max(0.0, amount_usd)
            points.append((calendar.middle(month), height))
        series.append(Series(name=name, colour=colour, points=points))
    return calendar.chart(
        f"{contents.anchor}money-months",
        "Accrued cost by month",
        "Stacked by account, largest at the bottom.",
        "usd",
        series,
        stacked=True,
    )


def losses_section(contents: Contents) -> Section | None:
    """Return where node-hours went, by cluster and by month, and failures and incidents by cause, costliest first."""
    by_cluster = node_hours(contents)
    if not by_cluster:
        return None
    blocks = [
        node_hours_grid(by_cluster, "cluster"),
        losses_chart(contents),
        _causes_grid(contents),
        _software_grid(contents),
    ]
    return section("losses", blocks)


def _causes_grid(contents: Contents) -> Grid | None:
    """Return the causes of lost capacity, costliest first."""
    events = contents.table("events")
    if events is None:
        return None
    # Number of events, their hours, and tokens of capacity.
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for event, cause, hours, tokens in events.rows(
        "event", "cause", totals=("duration_h", "lost_capacity_tokens")
    ):
        # Deliveries and reviews are events too, and cost no capacity.
        if event in LOSS_EVENTS:
            label = f"{event}, {cause}" if cause else event
            total = sums[label]
            total[0] += 1
            total[1] += hours
            total[2] += tokens
    # Of causes that cost the same the one that comes first in the alphabet.
    costliest = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    rows = [
        (cause, f"{number:,.0f}", f"{hours / number:,.1f}", count(tokens))
        for cause, (number, hours, tokens) in costliest
        if tokens > 0
    ]
    if not rows:
        return None
    return Grid(
        caption="Causes, costliest first",
        header=("cause", "events", "hours each", "tokens of capacity"),
        rows=rows,
        numeric=(1, 2, 3),
        drawn=3,
    )


def _software_grid(contents: Contents) -> Grid | None:
    """Return what software incidents cost by stack and kind."""
    table = contents.table("software_incidents")
    if not table:
        return None
    columns = {
        "stack": "stack",
        "kind": "kind",
        "incidents": "incidents",
        "open_h": "open h",
        "lost_node_h": "lost node h",
    }
    rows = [
        (*cells, percent(missed, 3))
        for *cells, missed in table.rows(*columns, numbers=["missed_fraction"])
    ]
    return Grid(
        caption="Software incidents",
        header=(*columns.values(), "missed"),
        rows=rows,
        numeric=range(2, 6),
    )


def losses_chart(contents: Contents) -> TimeChart | None:
    """Return node-hours lost by month and cause."""
    losses = contents.table("losses")
    if not losses:
        return None
    calendar = Calendar(losses.texts("month"))
    series = []
    for column, words in LOSSES.items():
        by_month = losses.summed("month", column).items()
        points = [(calendar.middle(month), hours) for month, hours in by_month]
        # Its place among all uses: a cause has one colour in every chart.
        colour = [*NODE_HOUR_USES].index(column)
        series.append(Series(name=words, points=points, colour=colour))
    return calendar.chart(
        f"{contents.anchor}losses-months",
        "Node-hours lost by month",
        "Node-hours lost to failures, software, outages and the power cap; idle nodes are not counted.",
        "node-hours",
        series,
        stacked=True,
    )


def slo_misses_section(summary: RunSummary) -> Section | None:
    """Return why requests missed their SLO, by workload."""
    # Worst first, as the run has ranked them.
    rows = [
        (
            miss.workload,
            REASONS[miss.cause],
            percent(miss.missed_fraction, 3),
            miss.worst_month,
            percent(miss.worst_missed_fraction, 2),
        )
        for miss in summary.slo_misses
    ]
    if not rows:
        return None
    grid = Grid(
        caption="Why requests missed their SLO, worst first",
        header=("workload", "cause", "of its requests", "worst month", "then"),
        rows=rows,
        numeric=(2, 4),
    )
    return section("losses", [grid])


def node_hours(contents: Contents) -> dict[str, dict[str, float]]:
    """Return node-hours on site by cluster and by what became of them; nothing where the folder does not say."""
    losses = contents.table("losses")
    if not losses:
        return {}
    sums = {words: losses.summed("cluster", column) for column, words in NODE_HOUR_USES.items()}
    clusters = dict.fromkeys(losses.texts("cluster"))
    return {
        cluster: {words: by_cluster[cluster] for words, by_cluster in sums.items()}
        for cluster in clusters
    }


def node_hours_grid(hours: Mapping[str, Mapping[str, float]], rows_are: str) -> Grid:
    """Return what became of node-hours, one row for each cluster or scenario."""
    # A use that took no hour of any row has no column.
    uses = [
        words
        for words in NODE_HOUR_USES.values()
        if any(by_use[words] for by_use in hours.values())
    ]
    rows = []
    for name, by_use in hours.items():
        total = sum(by_use.values()) or 1.0  # a cluster that never came has no hours
        shares = (percent(by_use[words] / total, 2) for words in uses)
        rows.append((name, *shares))
    return Grid(
        caption="Node-hours on site",
        header=(rows_are, *uses),
        rows=rows,
        numeric=range(1, 1 + len(uses)),
    )


def layout_grid(layouts: Table) -> Grid:
    """Return how each cluster serves each workload, and by how much that is better than the next best."""
    headings = {
        "workload": "workload",
        "cluster": "cluster",
        "engine": "engine",
        "precision": "precision",
        "prefill_decode": "prefill and decode",
        "accelerators": "accelerators",
        "chunk_tokens": "tokens a step",
        "evidence": "evidence",
        "evidence_rows": "rows",
    }
    rows = []
    rates = [
        "node_requests_per_s",
        "low_node_requests_per_s",
        "high_node_requests_per_s",
        "next_best_requests_per_s",
    ]
    for *cells, rate, low, high, next_rate in layouts.rows(*headings, numbers=rates):
        # Where only one layout fits, there is nothing to be better than.
        lead = f"{rate / next_rate - 1.0:+.0%}" if next_rate else NOTHING
        span = NOTHING if low is None else f"{low:.4g} to {high:.4g}"
        rows.append((*cells, f"{rate:.4g}", span, lead))
    return Grid(
        caption="How each workload is served on day one, and the lead over the next best layout",
        header=(*headings.values(), "requests/s a node", "90% interval", "next best"),
        rows=rows,
        numeric=(5, 6, 8, 9, 10, 11),
    )


def routing_section(contents: Contents) -> Section | None:
    """Return who served what, by workload and cluster: shares of tokens, and how busy the replicas held for it were."""
    routing = contents.table("routing_monthly")
    if not routing:
        return None
    utilisations: dict[tuple[str, str], list[float]] = defaultdict(list)
    for workload, cluster, utilisation in routing.rows(
        "workload", "cluster", numbers=["utilisation_fraction"]
    ):
        if utilisation is not None:
            utilisations[workload, cluster].append(utilisation)
    tokens = routing.sums("workload", "cluster", "served_tokens")
    # A cluster that served nothing still may have been held ready for a workload.
    in_use = {cluster for _, cluster in utilisations}
    for by_cluster in tokens.values():
        in_use |= {cluster for cluster, number in by_cluster.items() if number}
    all_clusters = dict.fromkeys(routing.texts("cluster"))
    clusters = [cluster for cluster in all_clusters if cluster in in_use]
    token_rows = []
    busy_rows = []
    for workload, by_cluster in tokens.items():
        # A workload of which nothing was served has shares of zero, not a division by zero.
        total = sum(by_cluster[cluster] for cluster in clusters) or 1.0
        token_rows.append(
            (workload, *(percent(by_cluster[cluster] / total) for cluster in clusters))
        )
        months = [utilisations.get((workload, cluster), []) for cluster in clusters]
        # Months in which a cluster was not held for a workload count nowhere.
        means = [sum(shares) / len(shares) if shares else None for shares in months]
        busy_rows.append((workload, *map(percent, means)))
    header = ("workload", *clusters)
    numeric = range(1, len(header))
    layouts = contents.table("layouts")
    return section(
        "losses",
        [
            Sentence(text=ROUTED, tone="note"),
            Grid(
                caption="Who served each workload's tokens",
                header=header,
                rows=token_rows,
                numeric=numeric,
            ),
            Grid(
                caption="How busy each workload kept the machines that may serve it (mean of months)",
                header=header,
                rows=busy_rows,
                numeric=numeric,
            ),
            layout_grid(layouts) if layouts else None,
        ],
    )
