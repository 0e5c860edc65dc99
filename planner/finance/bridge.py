"""The cost bridge: the difference between two costs by cause, summing to the whole.

The cost of a token is written as what an accelerator-hour on site costs over what it yields:

    cost per token = (price + power + people + parts + missed) / (available · utilised · undragged · throughput)

Every factor is a figure of the run, so the product is the run's own cost per token exactly. Each cause switches its
factors from one run's to the other's. The order of switching changes what each seems to explain; the Shapley value
averages over all orders, so it needs none, splits joint effects evenly, and sums to the difference (Shapley 1953).
Plans of different parts, sizes and mixes can be compared, since no machine of one need have a counterpart in the other.

The causes, the factors they switch and what they mean stand in ``causes.csv``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

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

    @property
    def usd_per_million_tokens(self) -> float:
        """Return the cost per million tokens that these factors give."""
        money = (
            self.hardware_cost_usd
            + self.power_usd
            + self.people_usd
            + self.availability_usd
            + self.utilisation_usd
        )
        at_work = self.available_fraction * self.utilised_fraction
        yielded = at_work * self.undragged_fraction * self.throughput_tokens
        return money / yielded * MILLION


def bridge(baseline: Factors, compared: Factors) -> dict[str, float]:
    """Return how much each cause moves the cost per million tokens from the baseline to the other run."""

    def cost(switched: frozenset[str]) -> float:
        changes: dict[str, float] = {}
        for cause in switched:
            changes |= {name: getattr(compared, name) for name in CAUSES[cause]}
        return replace(baseline, **changes).usd_per_million_tokens

    parts = shapley_bridge(list(CAUSES), cost)
    # The parts sum to the difference but for rounding of 2^causes sums.
    total = sum(parts.values())
    difference = compared.usd_per_million_tokens - baseline.usd_per_million_tokens
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
