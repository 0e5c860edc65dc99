"""The cost bridge: the difference between two costs by cause, summing to the whole.

**Per token.** The cost of a token is written as what an accelerator-hour on site costs over what it yields:

    cost per token = (price + power + people + parts + missed) / (available · utilised · undragged · throughput)

Every factor is a figure of the run, so the product is the run's own cost per token exactly. Each cause switches its
factors from one run's to the other's. The order of switching changes what each seems to explain; the Shapley value
averages over all orders, so it needs none, splits joint effects evenly, and sums to the difference (Shapley 1953).
Plans of different parts, sizes and mixes can be compared, since no machine of one need have a counterpart in the other.

**In dollars.** Two plans' accrued costs are held against each other in the same way (:func:`dollar_bridge`):

    cost = tokens · (machines / tokens) · hours on site · Σ mix · (USD / h + kWh / h · USD / kWh) + missed work
           volume   efficiency            timing            mix    price   effic.   price         efficiency

with hours on site of a machine on average, and the sum over clusters by their share of all machines' hours. The books'
own choices (life, method, residual) are no price: what they move is found by writing the same run's books by the other
plan's rules, and stands apart as policy.

Parts are in whole cents, and sum to the difference exactly.

The causes of each bridge, the factors they switch and what they mean stand in ``causes.csv``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from planner.data_files import data_rows
from planner.errors import ConservationError
from planner.records import record
from planner.units import MILLION

_LINES = data_rows(__file__, "causes.csv")


def _causes(bridge: str, column: str) -> dict[str, str]:
    """Return what a column says of each cause of a bridge."""
    return {line["cause"]: line[column] for line in _LINES if line["bridge"] == bridge}


CAUSES = {cause: tuple(factors.split()) for cause, factors in _causes("token", "factors").items()}
"""The factors each cause switches: what yields, and the money of the accounts that name the cause."""
CAUSE_MEANINGS = _causes("token", "meaning")


@record
class Factors:
    """Cost and yield of an accelerator-hour on site in one run."""

    hardware_cost_usd: float
    power_usd: float
    people_usd: float
    availability_usd: float
    """Spares and parts."""
    utilisation_usd: float
    """Work missed: credits, burst rental."""
    available_fraction: float
    utilised_fraction: float
    undragged_fraction: float
    throughput_tokens: float
    """Tokens of an accelerator-hour at work and undragged."""
    throughput_output_tokens: float

    def usd_per_million_tokens(self, *, output_only: bool = False) -> float:
        """Return the cost per million tokens that these factors give."""
        money = (
            self.hardware_cost_usd
            + self.power_usd
            + self.people_usd
            + self.availability_usd
            + self.utilisation_usd
        )
        tokens = self.throughput_output_tokens if output_only else self.throughput_tokens
        at_work = self.available_fraction * self.utilised_fraction
        yielded = at_work * self.undragged_fraction * tokens
        return money / yielded * MILLION


def bridge(baseline: Factors, compared: Factors, *, output_only: bool = False) -> dict[str, float]:
    """Return how much each cause moves the cost per million tokens from the baseline to the other run."""

    def cost(switched: frozenset[str]) -> float:
        changes: dict[str, float] = {}
        for cause in switched:
            changes |= {name: getattr(compared, name) for name in CAUSES[cause]}
        return replace(baseline, **changes).usd_per_million_tokens(output_only=output_only)

    parts = shapley_bridge(list(CAUSES), cost)
    baseline_usd = baseline.usd_per_million_tokens(output_only=output_only)
    compared_usd = compared.usd_per_million_tokens(output_only=output_only)
    # The parts sum to the difference but for rounding of 2^causes sums.
    total = sum(parts.values())
    difference = compared_usd - baseline_usd
    if not math.isclose(total, difference, rel_tol=1e-9, abs_tol=1e-9):
        raise ConservationError(
            f"a bridge's parts sum to {total:.12g}, the difference is {difference:.12g}"
        )
    return parts


def shapley_bridge(
    causes: Sequence[str], measure: Callable[[frozenset[str]], float]
) -> dict[str, float]:
    """Return each cause's Shapley value; the values sum to measure(all) − measure(none).

    ``measure`` returns the figure with the named causes taken from the second scenario and the others from
    the first. Each set of causes is measured once: 2^causes evaluations.
    """
    count = len(causes)
    figures = {}
    for size in range(count + 1):
        for coalition in combinations(causes, size):
            switched = frozenset(coalition)
            figures[switched] = measure(switched)
    explained = dict.fromkeys(causes, 0.0)
    for cause in causes:
        for switched, figure in figures.items():
            if cause in switched:
                continue
            size = len(switched)
            # In how many of all orders exactly these causes are switched before this one.
            orders = math.factorial(size) * math.factorial(count - size - 1)
            effect = figures[switched | {cause}] - figure
            explained[cause] += orders / math.factorial(count) * effect
    return explained


VARIANCE_CAUSE_MEANINGS = _causes("account", "meaning")
VARIANCE_CAUSES = tuple(VARIANCE_CAUSE_MEANINGS)
PLAN_CAUSES = {
    cause: tuple(factors.split()) for cause, factors in _causes("plan", "factors").items()
}
"""The factors that each cause of a difference between two plans switches."""
PLAN_CAUSE_MEANINGS = _causes("plan", "meaning")


@record
class ClusterSpending:
    """Machines, hours, prices and energy of a cluster over a run."""

    machines: float
    """Accelerators on site at most."""
    hours: float
    """On site, of each of them on average."""
    usd_per_h: float
    """Of an accelerator-hour on site, without what is paid by the kWh."""
    kwh_per_h: float
    usd_per_kwh: float


@record
class Spending:
    """A plan's accrued cost as factors."""

    cents: int
    """What they multiply to."""
    tokens: float
    missed_usd_per_token: float
    """What belongs to no cluster: credits, burst rental."""
    clusters: Mapping[str, ClusterSpending]
    """By name; only those that had machines."""


def dollar_bridge(
    baseline: Spending, compared: Spending, policy_cents: int
) -> dict[str, int] | None:
    """Return the compared plan less the baseline by cause, in cents; None where one of the two served nothing.

    ``compared`` is kept by the baseline's books; ``policy_cents`` is what its own books add to it.
    """
    # Cost per token has no meaning without tokens, nor a mix without machines.
    has_tokens = min(baseline.tokens, compared.tokens) > 0
    if not (has_tokens and baseline.clusters and compared.clusters):
        return None
    names = list(dict.fromkeys((*baseline.clusters, *compared.clusters)))
    end_factors = (
        _factors(baseline, compared.clusters, names),
        _factors(compared, baseline.clusters, names),
    )

    def usd(switched: frozenset[str]) -> float:
        factors: dict[str, Any] = {}
        for cause, factor_names in PLAN_CAUSES.items():
            plan_factors = end_factors[cause in switched]
            factors |= {name: plan_factors[name] for name in factor_names}
        per_h = factors["usd_per_h"] + factors["kwh_per_h"] * factors["usd_per_kwh"]
        hourly = (factors["mix"] * per_h).sum()
        machines_usd = factors["machines_per_token"] * factors["hours"] * hourly
        per_token = machines_usd + factors["missed_usd_per_token"]
        return float(factors["tokens"] * per_token)

    for plan, switched in ((baseline, frozenset()), (compared, frozenset(PLAN_CAUSES))):
        answer = usd(switched)
        # A cent in absolute terms: the plan's cost is whole cents, the product of its factors is not.
        if not math.isclose(answer * 100, plan.cents, rel_tol=1e-9, abs_tol=1.0):
            raise ConservationError(
                f"the factors of a plan's cost give {answer:.2f} USD, not {plan.cents / 100}"
            )
    # What books add is known to the cent, and is no matter of order.
    causes = [cause for cause in PLAN_CAUSES if cause != "policy"]
    parts = shapley_bridge(causes, lambda switched: 100 * usd(switched))
    in_cents = to_the_cent(parts, compared.cents - baseline.cents)
    in_cents["policy"] = policy_cents
    return {cause: in_cents.get(cause, 0) for cause in PLAN_CAUSES}


def _factors(
    plan: Spending, elsewhere: Mapping[str, ClusterSpending], names: list[str]
) -> dict[str, Any]:
    """Return a plan's factors over both plans' clusters; a missing cluster takes the other plan's prices.

    So a cluster that only one plan has is a matter of mix, not of price.
    """
    rows = []
    machines_by_name = []
    for name in names:
        cluster = plan.clusters.get(name)
        rows.append(cluster or elsewhere[name])
        machines_by_name.append(cluster.machines if cluster else 0.0)
    machines = np.array(machines_by_name)
    machine_h = machines * np.array([row.hours for row in rows])
    return {
        "tokens": plan.tokens,
        "machines_per_token": machines.sum() / plan.tokens,
        "missed_usd_per_token": plan.missed_usd_per_token,
        "hours": machine_h.sum() / machines.sum(),
        "mix": machine_h / machine_h.sum(),
        "usd_per_h": np.array([row.usd_per_h for row in rows]),
        "kwh_per_h": np.array([row.kwh_per_h for row in rows]),
        "usd_per_kwh": np.array([row.usd_per_kwh for row in rows]),
    }


def account_bridge(
    baseline: Mapping[tuple[str, str], float], compared: Mapping[tuple[str, str], float]
) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield cluster, account, the baseline's and the other's net present cost and their difference, each in cents.

    Each column sums to the whole, rounded; what is the same in both differs by nothing.
    """
    # Rows are rounded to the difference, not each side alone: what is the same in both then differs by nothing.
    total = round(sum(baseline.values()))
    parts = {name: -part for name, part in baseline.items()}
    for name, part in compared.items():
        parts[name] = part + parts.get(name, 0.0)
    compared_total = round(sum(compared.values()))
    baseline_cents = to_the_cent(baseline, total)
    difference_cents = to_the_cent(parts, compared_total - total)
    for name in sorted(parts):
        amount_cents = baseline_cents.get(name, 0)
        change_cents = difference_cents.get(name, 0)
        yield *name, amount_cents, amount_cents + change_cents, change_cents


def to_the_cent(parts: Mapping[Any, float], total_cents: int) -> dict[Any, int]:
    """Round parts to whole cents that sum to their total; the largest part takes the remainder."""
    rounded = {name: round(part) for name, part in parts.items()}
    largest = max(parts, key=lambda name: abs(parts[name]))
    # A few cents are the smallest share of the largest part.
    rounded[largest] += total_cents - sum(rounded.values())
    return {name: part for name, part in rounded.items() if part}
