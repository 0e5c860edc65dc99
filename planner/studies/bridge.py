"""Why two plans' tokens cost differently: the difference by cause, summing to the whole.

The cost of a token is written as what an accelerator-hour on site costs over what it yields:

    cost per token = (price + power + people + parts + missed) / (available · utilised · undragged · throughput)

Every factor is a figure of the run, so the product is the run's own cost per token exactly. Each cause switches its
factors from one run's to the other's, and the Shapley value averages over all orders of switching. Plans of different
parts, sizes and mixes can be compared, since no machine of one need have a counterpart in the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.errors import ConservationError
from planner.finance.accounts import ACCOUNT_CODES, Account, View
from planner.finance.bridge import shapley_bridge
from planner.finance.ledger import Dimension
from planner.finance.money import usd
from planner.simulation.measures import series_of
from planner.simulation.result import RunResult
from planner.studies.causes import CAUSES
from planner.units import MILLION

_GROUPS = {
    "price_usd": (
        Account.DEPRECIATION,
        Account.DISPOSAL_LOSS,
        Account.COST_OF_CAPITAL,
        Account.MAINTENANCE,
        Account.INSURANCE,
        Account.LICENCES,
    ),
    "power_usd": (Account.ENERGY, Account.COOLING, Account.DEMAND_CHARGE, Account.COLOCATION, Account.CARBON),
    "people_usd": (Account.OPERATIONS_STAFF, Account.SOFTWARE_ENGINEERS, Account.SUPPORT_CONTRACTS),
    "parts_usd": (Account.SPARES, Account.RMA),
    "missed_usd": (Account.SLA_CREDITS, Account.BURST_RENTAL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What an accelerator-hour on site costs and yields in one run."""

    price_usd: float
    power_usd: float
    people_usd: float
    parts_usd: float
    missed_usd: float
    available_fraction: float
    utilised_fraction: float
    undragged_fraction: float
    throughput_tokens: float
    """Tokens of an accelerator-hour at work and undragged."""
    throughput_output_tokens: float

    def usd_per_million_tokens(self, *, output_only: bool = False) -> float:
        """Return the cost per million tokens that these factors give."""
        spent = self.price_usd + self.power_usd + self.people_usd + self.parts_usd + self.missed_usd
        tokens = self.throughput_output_tokens if output_only else self.throughput_tokens
        yielded = self.available_fraction * self.utilised_fraction * self.undragged_fraction * tokens
        return spent / yielded * MILLION


def factors_of(result: RunResult) -> Factors | None:
    """Return a run's factors; None where it served nothing, and a token therefore has no cost."""
    monthly, series = result.monthly, series_of(result)
    each = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters])
    on_site = float((monthly.present_node_h * each).sum())
    in_service = float((monthly.in_service_node_h * each).sum())
    busy = float((monthly.busy_node_h * each).sum())
    working = busy - float((monthly.drag_node_h * each).sum())
    tokens, output = float(series.tokens.sum()), float(series.output_tokens.sum())
    if min(working, tokens, output) <= 0:
        return None
    table = result.ledger.totals_cents(Dimension.ACCOUNT, view=View.ACCRUAL)
    spent = {
        name: float(usd(table[[ACCOUNT_CODES[account] for account in accounts]].sum())) / on_site
        for name, accounts in _GROUPS.items()
    }
    return Factors(
        **spent,
        available_fraction=in_service / on_site,
        utilised_fraction=busy / in_service,
        undragged_fraction=working / busy,
        throughput_tokens=tokens / working,
        throughput_output_tokens=output / working,
    )


def bridge(baseline: Factors, other: Factors, *, output_only: bool = False) -> dict[str, float]:
    """Return by how much each cause moves the cost per million tokens from the baseline to the other run."""

    def cost(switched: frozenset[str]) -> float:
        changes = {name: getattr(other, name) for cause in switched for name in CAUSES[cause]}
        return replace(baseline, **changes).usd_per_million_tokens(output_only=output_only)

    parts = shapley_bridge(list(CAUSES), cost)
    whole = other.usd_per_million_tokens(output_only=output_only) - baseline.usd_per_million_tokens(
        output_only=output_only
    )
    if not math.isclose(sum(parts.values()), whole, rel_tol=1e-9, abs_tol=1e-9):
        raise ConservationError(f"a bridge's parts sum to {sum(parts.values()):.12g}, the difference is {whole:.12g}")
    return parts
