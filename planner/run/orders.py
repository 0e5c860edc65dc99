"""Deposits and milestones of orders: what is paid on other days than that of the delivery, and what stands open.

A delivery is in the books at cost on its day. What was paid ahead of it until then is a claim on the vendor, what is
paid after it a debt: one balance, paid − settled, above or below zero. It is worth its amount on the first and the last
day.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Cents, Floats, Ints
from planner.engine.log import ChangeLog
from planner.finance.cents import cents, split_cents, usd
from planner.plan.plan import Plan
from planner.units import MONTHS_PER_YEAR


class OrderPayments(NamedTuple):
    """Payments on other days than the delivery's; every array has shape (payments,)."""

    cluster: Ints
    amount_cents: Cents
    paid_months: Floats
    """Month coordinate of the payment."""
    settled_months: Floats
    """Month coordinate of the delivery, or of the day on which a cancelled one is given up."""
    is_lost: Bools
    """Whether it is given up."""

    def by_period(self, plan: Plan, months: Floats, chosen: Bools | None = None) -> Cents:
        """Sum amounts by period and cluster, shape (periods, clusters), those outside the horizon left out."""
        edges = plan.months.edge_coordinates
        period = np.searchsorted(edges, months, side="right") - 1
        inside = (months >= edges[0]) & (months < edges[-1]) & (True if chosen is None else chosen)
        table = np.zeros((edges.size - 1, len(plan.clusters)), dtype=np.int64)
        np.add.at(table, (period[inside], self.cluster[inside]), self.amount_cents[inside])
        return table

    def balance_cents(self, plan: Plan) -> Cents:
        """Return what is paid and not settled as each period begins, and at the end, shape (periods + 1, clusters)."""
        edges = plan.months.edge_coordinates[:, None]
        is_open = (self.paid_months < edges).astype(np.int64) - (self.settled_months < edges)
        table = np.zeros((edges.size, len(plan.clusters)), dtype=np.int64)
        np.add.at(table.T, self.cluster, (self.amount_cents * is_open).T)
        return table

    def charge_usd(self, plan: Plan) -> Floats:
        """Return the charge for capital tied up in the balance, shape (periods, clusters).

        ±amount·((1 + r)^(h/12) − 1), h the share of a month for which it is open, as of hardware's book value.
        """
        edges, growth = plan.months.edge_coordinates, np.log1p(plan.money.capital.discount_rate_per_year)
        opens, closes = np.sort([self.paid_months, self.settled_months], axis=0)
        sign = np.where(self.paid_months < self.settled_months, 1.0, -1.0)
        held = np.minimum(edges[1:, None], closes) - np.maximum(edges[:-1, None], opens)
        charge = usd(self.amount_cents) * sign * np.expm1(growth * np.maximum(held, 0.0) / MONTHS_PER_YEAR)
        table = np.zeros((edges.size - 1, len(plan.clusters)))
        np.add.at(table.T, self.cluster, charge.T)
        return table

    def mean_months(self, plan: Plan, months: Floats) -> Floats:
        """Return the mean month coordinate of each period's amounts, shape (periods, clusters); zero without any."""
        edges = plan.months.edge_coordinates
        if not months.size:
            return np.zeros((edges.size - 1, len(plan.clusters)))
        period = np.clip(np.searchsorted(edges, months, side="right") - 1, 0, edges.size - 2)
        inside = (months >= edges[0]) & (months < edges[-1])
        total, weighted = (np.zeros((edges.size - 1, len(plan.clusters))) for _ in range(2))
        place, amount = (period[inside], self.cluster[inside]), self.amount_cents[inside]
        np.add.at(total, place, amount)
        np.add.at(weighted, place, amount * months[inside])
        mean: Floats = np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)
        return mean


_NONE = OrderPayments(
    cluster=np.zeros(0, dtype=np.intp),
    amount_cents=np.zeros(0, dtype=np.int64),
    paid_months=np.zeros(0),
    settled_months=np.zeros(0),
    is_lost=np.zeros(0, dtype=np.bool_),
)


def order_payments(plan: Plan, log: ChangeLog) -> OrderPayments:
    """Return what is paid on orders on other days than their deliveries', those that came and those that did not.

    A delivery that would come after its cluster is gone is cancelled on that day, and what was paid on it is lost.
    """
    rows: list[tuple[int, int, float, float, bool]] = []
    for purchase in (*log.purchases, *log.undelivered):
        order, retire_h = plan.clusters[purchase.cluster].order, plan.clusters[purchase.cluster].retire_h
        if order is None or not order.payments or not np.isfinite(purchase.placed_h):
            continue
        stated = [payment.fraction for payment in order.payments]
        shares = np.array([*stated, max(1.0 - sum(stated), 0.0)])
        parts = split_cents(np.asarray(cents(purchase.nodes * sum(purchase.prices_usd))), shares / shares.sum())
        is_lost = purchase in log.undelivered and purchase.time_h >= retire_h
        settled_h = retire_h if is_lost else purchase.time_h
        for payment, amount in zip(order.payments, parts[:-1].tolist(), strict=True):
            paid_h = (purchase.placed_h if payment.from_order else purchase.time_h) + payment.after_h
            if amount and paid_h != settled_h and not (is_lost and paid_h >= retire_h):
                rows.append((purchase.cluster, amount, paid_h, settled_h, is_lost))
    if not rows:
        return _NONE
    return OrderPayments(
        cluster=np.array([row[0] for row in rows], dtype=np.intp),
        amount_cents=np.array([row[1] for row in rows], dtype=np.int64),
        paid_months=plan.months.coordinate_of_hour(np.array([row[2] for row in rows], dtype=np.float64)),
        settled_months=plan.months.coordinate_of_hour(np.array([row[3] for row in rows], dtype=np.float64)),
        is_lost=np.array([row[4] for row in rows], dtype=np.bool_),
    )
