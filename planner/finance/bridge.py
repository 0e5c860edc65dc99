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
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from planner.data_files import data_rows
from planner.errors import ConservationError
from planner.units import MILLION

_LINES = data_rows(__file__, "causes.csv")


def _causes(bridge: str, column: str) -> dict[str, str]:
    """Return what a column says of each cause of a bridge."""
    return {line["cause"]: line[column] for line in _LINES if line["bridge"] == bridge}


CAUSES = {cause: tuple(factors.split()) for cause, factors in _causes("token", "factors").items()}
"""The factors each cause switches: what yields, and the money of the accounts that name the cause."""
CAUSE_MEANINGS = _causes("token", "meaning")


@dataclass(frozen=True, slots=True, kw_only=True)
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
        spent = (
            self.hardware_cost_usd
            + self.power_usd
            + self.people_usd
            + self.availability_usd
            + self.utilisation_usd
        )
        tokens = self.throughput_output_tokens if output_only else self.throughput_tokens
        yielded = (
            self.available_fraction * self.utilised_fraction * self.undragged_fraction * tokens
        )
        return spent / yielded * MILLION


def bridge(baseline: Factors, other: Factors, *, output_only: bool = False) -> dict[str, float]:
    """Return how much each cause moves the cost per million tokens from the baseline to the other run."""

    def cost(switched: frozenset[str]) -> float:
        changes = {name: getattr(other, name) for cause in switched for name in CAUSES[cause]}
        return replace(baseline, **changes).usd_per_million_tokens(output_only=output_only)

    parts = shapley_bridge(list(CAUSES), cost)
    ends = [plan.usd_per_million_tokens(output_only=output_only) for plan in (baseline, other)]
    total = sum(parts.values())
    apart = ends[1] - ends[0]
    if not math.isclose(total, apart, rel_tol=1e-9, abs_tol=1e-9):
        raise ConservationError(
            f"a bridge's parts sum to {total:.12g}, the difference is {apart:.12g}"
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
    sets = [frozenset(chosen) for size in range(count + 1) for chosen in combinations(causes, size)]
    figures = {chosen: measure(chosen) for chosen in sets}
    explained = dict.fromkeys(causes, 0.0)
    for cause in causes:
        for others, figure in figures.items():
            if cause not in others:
                orders = math.factorial(len(others)) * math.factorial(count - len(others) - 1)
                explained[cause] += (
                    orders / math.factorial(count) * (figures[others | {cause}] - figure)
                )
    return explained


VARIANCE_CAUSE_MEANINGS = _causes("account", "meaning")
VARIANCE_CAUSES = tuple(VARIANCE_CAUSE_MEANINGS)
PLAN_CAUSES = {
    cause: tuple(factors.split()) for cause, factors in _causes("plan", "factors").items()
}
"""The factors that each cause of a difference between two plans switches."""
PLAN_CAUSE_MEANINGS = _causes("plan", "meaning")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A plan's accrued cost as factors."""

    cents: int
    """What they multiply to."""
    tokens: float
    missed_usd_per_token: float
    """What belongs to no cluster: credits, burst rental."""
    clusters: Mapping[str, ClusterSpending]
    """By name; only those that had machines."""


def dollar_bridge(baseline: Spending, other: Spending, policy_cents: int) -> dict[str, int] | None:
    """Return other less baseline by cause, in cents; None where one of the two served nothing.

    ``other`` is kept by the baseline's books; ``policy_cents`` is what its own books add to it.
    """
    if min(baseline.tokens, other.tokens) <= 0 or not baseline.clusters or not other.clusters:
        return None
    names = list(dict.fromkeys((*baseline.clusters, *other.clusters)))
    ends = _factors(baseline, other.clusters, names), _factors(other, baseline.clusters, names)

    def usd(switched: frozenset[str]) -> float:
        f = {
            name: ends[cause in switched][name] for cause, of in PLAN_CAUSES.items() for name in of
        }
        hourly = (f["mix"] * (f["usd_per_h"] + f["kwh_per_h"] * f["usd_per_kwh"])).sum()
        return float(
            f["tokens"]
            * (f["machines_per_token"] * f["hours"] * hourly + f["missed_usd_per_token"])
        )

    for plan, switched in ((baseline, frozenset()), (other, frozenset(PLAN_CAUSES))):
        if not math.isclose((answer := usd(switched)) * 100, plan.cents, rel_tol=1e-9, abs_tol=1.0):
            raise ConservationError(
                f"the factors of a plan's cost give {answer:.2f} USD, not {plan.cents / 100}"
            )
    parts = shapley_bridge(
        [cause for cause in PLAN_CAUSES if cause != "policy"], lambda switched: 100 * usd(switched)
    )
    in_cents = to_the_cent(parts, other.cents - baseline.cents) | {"policy": policy_cents}
    return {cause: in_cents.get(cause, 0) for cause in PLAN_CAUSES}


def _factors(
    plan: Spending, elsewhere: Mapping[str, ClusterSpending], names: list[str]
) -> dict[str, Any]:
    """Return a plan's factors over both plans' clusters; a missing cluster takes the other plan's prices.

    So a cluster that only one plan has is a matter of mix, not of price.
    """
    rows = [plan.clusters.get(name) or elsewhere[name] for name in names]
    machines = np.array(
        [plan.clusters[name].machines if name in plan.clusters else 0.0 for name in names]
    )
    machine_h = machines * np.array([row.hours for row in rows])
    return {
        "tokens": plan.tokens,
        "machines_per_token": machines.sum() / plan.tokens,
        "missed_usd_per_token": plan.missed_usd_per_token,
        "hours": machine_h.sum() / machines.sum(),
        "mix": machine_h / machine_h.sum(),
        **{
            name: np.array([getattr(row, name) for row in rows])
            for name in ("usd_per_h", "kwh_per_h", "usd_per_kwh")
        },
    }


def account_bridge(
    baseline: Mapping[tuple[str, str], float], other: Mapping[tuple[str, str], float]
) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield cluster, account, the baseline's and the other's net present cost and their difference, each in cents.

    Each column sums to the whole, rounded; what is the same in both differs by nothing.
    """
    total = round(sum(baseline.values()))
    parts = {name: -part for name, part in baseline.items()}
    parts |= {name: part + parts.get(name, 0.0) for name, part in other.items()}
    before = to_the_cent(baseline, total)
    apart = to_the_cent(parts, round(sum(other.values())) - total)
    for name in sorted(parts):
        stood = before.get(name, 0)
        moved = apart.get(name, 0)
        yield *name, stood, stood + moved, moved


def to_the_cent(parts: Mapping[Any, float], total_cents: int) -> dict[Any, int]:
    """Round parts to whole cents that sum to their total; the largest part takes the remainder."""
    rounded = {name: round(part) for name, part in parts.items()}
    largest = max(parts, key=lambda name: abs(parts[name]))
    rounded[largest] += total_cents - sum(rounded.values())
    return {name: part for name, part in rounded.items() if part}
