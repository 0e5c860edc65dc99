"""The cohorts sheet: what was bought together, what it cost, and what it fetches, by formula from price and discount.

The formulas are those of :mod:`planner.run.cohorts`, in whole cents with the same rounding: INT(x + 0.500001). With
K, L, M, N the prices of a node's accelerators, host, network and storage, S their sum, n nodes and f before them,

    K        = round(price·(1 − discount)·(1 − volume discount)·u) / u · factor · accelerators of a node, u of an order
    cost     = round(S·(f + n)) − round(S·f)
    proceeds = round((K + L)·n·share that used servers of its age fetch)
"""

from __future__ import annotations

import datetime

import numpy as np

from planner.arrays import Floats
from planner.finance.accounts import CAPEX_ACCOUNTS
from planner.finance.cents import cents, split_cents
from planner.finance.depreciation import Cohorts
from planner.output.workbook import FIRST_ROW, Sheets, address, down, write_headings
from planner.output.workbook_content import CohortFigures, Content, Order
from planner.output.workbook_inputs import DISCOUNT, PRICE, RESIDUAL, volume_discount
from planner.plan.quantities import shares
from planner.run.cohorts import Cohort, is_opening, is_owned, owned_value_cents, parts_usd
from planner.run.result import RunResult

SHEET = "Cohorts"
HEADINGS = {
    "cohort": ("Cohort", "text"),
    "cluster": ("Cluster", "text"),
    "nodes": ("Nodes", "count"),
    "paid": ("Month paid", "month"),
    "in_service": ("In service", "date"),
    "retired": ("Month retired", "month"),
    "order": ("Accelerators in its order", "count"),
    "volume": ("Volume discount", "percent"),
    "factor": ("List price against the first day's", "plain"),
    "accelerators_usd": ("Accelerators of a node, USD", "usd"),
    "host_usd": ("Host, USD", "usd"),
    "network_usd": ("Network of a node, USD", "usd"),
    "storage_usd": ("Storage of a node, USD", "usd"),
    "before": ("Nodes of its delivery before it", "count"),
    "cost": ("Cost, cents", "count"),
    "capex_accelerators": ("Accelerators, cents", "count"),
    "capex_hosts": ("Hosts, cents", "count"),
    "capex_network": ("Network, cents", "count"),
    "capex_storage": ("Storage, cents", "count"),
    "residual_share": ("Residual, share of cost or of what servers cost", "percent"),
    "residual": ("Residual, cents", "count"),
    "resale_share": ("Fetched at retirement, share of servers", "percent"),
    "proceeds": ("Fetched at retirement, cents", "count"),
    "end_share": ("Worth on the last day, share of servers", "percent"),
    "end_value": ("Worth on the last day, cents", "count"),
    "owned": ("Owned on the last day", "count"),
    "paid_months": ("Months from the start to payment", "plain"),
    "retired_months": ("Months from the start to retirement", "plain"),
    "paid_change": ("Cost against the run, discounted, USD", "usd"),
    "proceeds_change": ("Fetched against the run, discounted, USD", "usd"),
    "end_change": ("Worth against the run, discounted, USD", "usd"),
}
"""The columns in order: their names here, their headings and formats."""
COLUMN = {name: place for place, name in enumerate(HEADINGS)}


def cohort_figures(result: RunResult, assets: Cohorts) -> CohortFigures:
    """Return what was simulated of every cohort."""
    plan, cohorts = result.plan, result.cohorts
    edges, count = plan.months.edge_coordinates, len(cohorts)
    cost = cents(assets.cost_usd)
    none = np.zeros(count)
    owned = is_owned(plan, cohorts)[:, -1] if count else np.zeros(0, dtype=bool)

    def fractions(months: Floats) -> Floats:
        curves = [plan.money.capital.resale[cohort.cluster] for cohort in cohorts]
        ages = months - assets.acquired_months
        return np.array([float(curve.fraction(age)) for curve, age in zip(curves, ages, strict=True)])

    def period(month: float) -> int | None:
        return int(np.searchsorted(edges, month, side="right")) - 1 if edges[0] <= month < edges[-1] else None

    stays = np.isinf(assets.retired_months)
    counts = owned & (plan.money.capital.end_value != "none")
    return CohortFigures(
        orders=tuple(_order(result, cohort) for cohort in cohorts),
        paid=tuple(period(month) for month in assets.acquired_months),
        retired=tuple(period(month) for month in assets.retired_months),
        cost_cents=cost,
        parts_cents=split_cents(cost, shares(parts_usd(cohorts))) if count else np.zeros((0, 4), dtype=np.int64),
        residual_cents=cents(assets.residual_usd),
        at_life_fraction=fractions(assets.acquired_months + assets.life_months),
        resale_fraction=np.where(stays, 0.0, fractions(np.where(stays, 0.0, assets.retired_months))),
        proceeds_cents=cents(assets.proceeds_usd),
        end_fraction=np.where(counts, fractions(np.full(count, edges[-1])), 0.0),
        end_cents=owned_value_cents(plan, cohorts)[:, -1] if count else none.astype(np.int64),
        is_owned=owned,
    )


def _order(result: RunResult, cohort: Cohort) -> Order | None:
    """Return what a cohort's price was made of; None where that does not give what was paid."""
    cluster = result.plan.clusters[cohort.cluster]
    book, per_node = cluster.price_book, cluster.accelerators_per_node
    if book is None or book.quotes or cluster.owned is not None:
        return None
    first = cohort.prices_usd == cluster.prices_usd
    if cents(sum(cohort.prices_usd) * cohort.nodes) == 0:
        return None
    delivery = [other for other in result.cohorts if _delivery(other) == _delivery(cohort)]
    units = (max(cluster.nodes, 1) if first else sum(other.nodes for other in delivery)) * per_node
    unit_usd = book.list_price.order_cents(units) / 100 / units * per_node
    if unit_usd <= 0:
        return None
    factor = cohort.prices_usd[0] / unit_usd
    return Order(units=units, volume_discount=volume_discount(book.list_price.tiers, units), factor=factor)


def _delivery(cohort: Cohort) -> tuple[int, float, float]:
    """Return what the cohorts of one delivery share."""
    return cohort.cluster, cohort.bought_h, cohort.prices_usd[0]


def unfollowed_prices(result: RunResult, figures: CohortFigures) -> dict[int, str]:
    """Return by cluster why the sheets cannot follow the price of its accelerators; clusters left out can."""
    unfollowed = {index: _unfollowed(result, figures, index) for index in range(len(result.plan.clusters))}
    return {index: f"does not follow: {why}" for index, why in unfollowed.items() if why}


def _unfollowed(result: RunResult, figures: CohortFigures, index: int) -> str:
    """Return why the sheets cannot follow the price of a cluster's accelerators; empty where they can."""
    plan, capital, cluster = result.plan, result.plan.money.capital, result.plan.clusters[index]
    orders = [figures.orders[row] for row, cohort in enumerate(result.cohorts) if cohort.cluster == index]
    reasons = {
        "no machines were bought": not orders,
        "what the lessor is paid is as simulated": cluster.lease is not None,
        "deposits and milestones of its order are as simulated": bool(cluster.order and cluster.order.payments),
        "its parts have books of their own": capital.has_components(index),
        "machines owned already keep what they cost": cluster.owned is not None,
        "a quote holds for some orders": bool(cluster.price_book and cluster.price_book.quotes),
        "declining balance is as simulated": capital.declining_factor > 0,
        "the loan on purchases is as simulated": capital.loan is not None,
        "what a budget buys is as simulated": bool(np.isfinite(plan.expansion.budget_usd)),
        "an order has a price or books of its own": None in orders or not _repeats(result, figures, index),
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _repeats(result: RunResult, figures: CohortFigures, cluster: int) -> bool:
    """Return whether the formulas give what was simulated of every cohort of a cluster but its residual."""
    cents = {"cost": figures.cost_cents, "proceeds": figures.proceeds_cents, "end_value": figures.end_cents}
    rows = [row for row, cohort in enumerate(result.cohorts) if cohort.cluster == cluster]
    return all(repeated(result, figures, row)[name] == cents[name][row] for row in rows for name in cents)


def cohort_range(content: Content, name: str, rows: slice = slice(None)) -> str:
    """Return the address of a column, of all cohorts or of some."""
    first, last, _ = rows.indices(content.assets.count)
    return down(SHEET, COLUMN[name], FIRST_ROW + first, last - first)


def in_month(content: Content, name: str, month: str, when: str = "paid") -> str:
    """Return the sum of a column over the cohorts paid or retired in a month, as a formula."""
    return f"SUMIFS({cohort_range(content, name)},{cohort_range(content, when)},{month})"


def write_cohorts(sheets: Sheets, content: Content) -> None:
    """Write one row for each cohort."""
    sheet = sheets[SHEET]
    write_headings(sheet, sheets, [heading for heading, _ in HEADINGS.values()])
    for row in range(content.assets.count):
        figures, formulas = _figures(content, row), _formulas(content, row)
        for name, column in repeated(content.result, content.cohorts, row).items():
            if column != figures[name]:  # books of another kind: as simulated
                formulas.pop(name, None)
        for name, (_, style) in HEADINGS.items():
            place, figure = (FIRST_ROW + row, COLUMN[name]), figures[name]
            if name in formulas:
                sheet.write_formula(*place, f"={formulas[name]}", sheets.formats[style], figure)
            elif isinstance(figure, str):
                sheet.write_string(*place, figure)
            elif isinstance(figure, datetime.date):
                sheet.write_datetime(*place, figure, sheets.formats[style])
            elif figure is not None:
                sheet.write_number(*place, figure, sheets.formats[style])
    sheet.set_column(0, len(HEADINGS) - 1, 18)


def repeated(result: RunResult, figures: CohortFigures, row: int) -> dict[str, int]:
    """Return what the formulas of a cohort's amounts give with the inputs as simulated, in cents."""
    cohort = result.cohorts[row]
    node, servers, nodes = sum(cohort.prices_usd), sum(cohort.prices_usd[:2]), cohort.nodes
    cost = int(cents(node * (cohort.first_node + nodes)) - cents(node * cohort.first_node))
    _, share = result.plan.money.capital.books_of(cohort.cluster, cohort.component)
    at_life = min(servers * nodes * float(figures.at_life_fraction[row]), cost / 100)
    return {
        "cost": cost,
        "residual": int(cents(at_life if share is None else cost * share / 100)),
        "proceeds": int(cents(servers * nodes * figures.resale_fraction[row])),
        "end_value": int(cents(servers * nodes * figures.end_fraction[row])),
    }


def _figures(content: Content, row: int) -> dict[str, object]:
    """Return a cohort's cells as simulated."""
    result, figures, assets = content.result, content.cohorts, content.assets
    cohort, order, plan = result.cohorts[row], figures.orders[row], result.plan
    months = [edge.replace(day=1) for edge in plan.months.edges[:-1]]
    paid, retired, start = figures.paid[row], figures.retired[row], plan.months.edge_coordinates[0]
    begins = cohort.in_service_h
    _, share = plan.money.capital.books_of(cohort.cluster, cohort.component)
    served = plan.start + datetime.timedelta(hours=begins) if np.isfinite(begins) else "never"
    return {
        "cohort": cohort.name,
        "cluster": plan.clusters[cohort.cluster].name,
        "nodes": cohort.nodes,
        "paid": "before" if paid is None else months[paid],
        "in_service": "before" if is_opening((cohort,))[0] else served,
        "retired": "" if retired is None else months[retired],
        "order": order.units if order else None,
        "volume": order.volume_discount if order else None,
        "factor": order.factor if order else None,
        "accelerators_usd": cohort.prices_usd[0],
        "host_usd": cohort.prices_usd[1],
        "network_usd": cohort.prices_usd[2],
        "storage_usd": cohort.prices_usd[3],
        "before": cohort.first_node,
        "cost": int(figures.cost_cents[row]),
        **{str(account): int(figures.parts_cents[row, k]) for k, account in enumerate(CAPEX_ACCOUNTS)},
        "residual_share": float(figures.at_life_fraction[row]) if share is None else share,
        "residual": int(figures.residual_cents[row]),
        "resale_share": float(figures.resale_fraction[row]),
        "proceeds": int(figures.proceeds_cents[row]),
        "end_share": float(figures.end_fraction[row]),
        "end_value": int(figures.end_cents[row]),
        "owned": int(figures.is_owned[row]),
        "paid_months": float(assets.acquired_months[row] - start),
        "retired_months": None if retired is None else float(assets.retired_months[row] - start),
        "paid_change": 0.0,
        "proceeds_change": 0.0,
        "end_change": 0.0,
    }


def _formulas(content: Content, row: int) -> dict[str, str]:
    """Return a cohort's formulas by column."""
    inputs, cohort, figures = content.inputs, content.result.cohorts[row], content.cohorts
    at = {name: address(FIRST_ROW + row, column, fixed="C") for name, column in COLUMN.items()}
    cluster, per_node = cohort.cluster, content.result.plan.clusters[cohort.cluster].accelerators_per_node
    accelerators, cost, nodes = at["accelerators_usd"], at["cost"], at["nodes"]
    servers = f"({accelerators}+{at['host_usd']})"
    node = f"({accelerators}+{at['host_usd']}+{at['network_usd']}+{at['storage_usd']})"

    def until(parts: str) -> str:
        return f"INT({cost}*{parts}/{node}+0.500001)"

    with_network = f"({accelerators}+{at['host_usd']}+{at['network_usd']})"
    end = float(content.grid.edge_coordinates[-1] - content.grid.edge_coordinates[0])
    rate = f"(1+{content.rate_cell})"
    formulas = {
        "cost": f"INT({node}*({at['before']}+{nodes})*100+0.500001)-INT({node}*{at['before']}*100+0.500001)",
        "capex_accelerators": f"IF({cost}=0,0,{until(accelerators)})",
        "capex_hosts": f"IF({cost}=0,0,{until(servers)}-{until(accelerators)})",
        "capex_network": f"IF({cost}=0,0,{until(with_network)}-{until(servers)})",
        "capex_storage": f"IF({cost}=0,0,{cost}-{until(with_network)})",
        "proceeds": f"INT({servers}*{nodes}*{at['resale_share']}*100+0.500001)",
        "end_value": f"INT({servers}*{nodes}*{at['end_share']}*100+0.500001)",
        "paid_change": f"({cost}-{int(figures.cost_cents[row])})/100*{rate}^(-{at['paid_months']}/12)",
        "proceeds_change": (
            f"({at['proceeds']}-{int(figures.proceeds_cents[row])})/100*{rate}^(-{at['retired_months']}/12)"
        ),
        "end_change": f"({at['end_value']}-{int(figures.end_cents[row])})/100*{rate}^(-{end!r}/12)",
    }
    if inputs.is_live(PRICE, cluster):
        price, discount = inputs.cell(PRICE, cluster), inputs.cell(DISCOUNT, cluster)
        net = f"{price}*(1-{discount})*(1-{at['volume']})*{at['order']}"
        formulas["accelerators_usd"] = f"INT({net}*100+0.500001)/100/{at['order']}*{at['factor']}*{per_node}"
    if is_restated(content, row):
        return formulas
    if content.result.plan.money.capital.books_of(cluster, cohort.component)[1] is None:
        formulas["residual"] = f"INT(MIN({servers}*{nodes}*{at['residual_share']}*100,{cost})+0.500001)"
    else:
        formulas["residual"] = f"INT({cost}*{at['residual_share']}+0.500001)"
        if inputs.is_live(RESIDUAL, cluster):
            formulas["residual_share"] = inputs.cell(RESIDUAL, cluster)
    return formulas


def is_restated(content: Content, row: int) -> bool:
    """Return whether a cohort has a book value or a life of its own, since it was owned before the start."""
    owned = content.result.plan.clusters[content.result.cohorts[row].cluster].owned
    stated = owned is not None and not owned.book_value_usd is owned.remaining_months is None
    return stated and content.result.cohorts[row].bought_h < 0
