"""Why two plans' tokens cost differently: the difference by cause, summing to the whole.

The cost of a token is written as what an accelerator-hour on site costs over what it yields:

    cost per token = (price + power + people + parts + missed) / (available · utilised · undragged · throughput)

Every factor is a figure of the run, so the product is the run's own cost per token exactly. Each cause switches its
factors from one run's to the other's. The order of switching changes what each seems to explain; the Shapley value
averages over all orders, so it needs none, splits joint effects evenly, and sums to the difference (Shapley 1953).
Plans of different parts, sizes and mixes can be compared, since no machine of one need have a counterpart in the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from planner.errors import ConservationError, Problem, ScenarioError
from planner.units import MILLION

MAXIMUM_CAUSES = 10
"""2^causes evaluations are made: 1,024 at most."""
CAUSES = {
    "price": ("price_usd",),
    "throughput": ("throughput_tokens", "throughput_output_tokens"),
    "power": ("power_usd",),
    "software": ("undragged_fraction",),
    "failures": ("available_fraction", "failures_usd"),
    "utilisation": ("utilised_fraction", "utilisation_usd"),
    "people": ("people_usd",),
}
"""The factors each cause switches: what yields, and the money of the accounts that name the cause."""
CAUSE_MEANINGS = {
    "price": "Depreciation, capital, rent, upkeep, insurance, property tax, licences of an accelerator-hour on site.",
    "throughput": "Tokens an accelerator yields in an hour at full speed and full load, in the plan's mix of work.",
    "power": "Energy, cooling, demand charge, space and carbon of an accelerator-hour on site.",
    "software": "Share of working hours not lost to open software incidents.",
    "failures": "Share of hours on site in which an accelerator is in service, and the cost of spares and parts.",
    "utilisation": "Share of hours in service that are worked, and the cost of work missed (credits, burst rental).",
    "people": "Engineers, operations staff and support contracts of an accelerator-hour on site.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What an accelerator-hour on site costs and yields in one run."""

    price_usd: float
    power_usd: float
    people_usd: float
    failures_usd: float
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
        spent = self.price_usd + self.power_usd + self.people_usd + self.failures_usd + self.utilisation_usd
        tokens = self.throughput_output_tokens if output_only else self.throughput_tokens
        yielded = self.available_fraction * self.utilised_fraction * self.undragged_fraction * tokens
        return spent / yielded * MILLION


def bridge(baseline: Factors, other: Factors, *, output_only: bool = False) -> dict[str, float]:
    """Return by how much each cause moves the cost per million tokens from the baseline to the other run."""

    def cost(switched: frozenset[str]) -> float:
        changes = {name: getattr(other, name) for cause in switched for name in CAUSES[cause]}
        return replace(baseline, **changes).usd_per_million_tokens(output_only=output_only)

    parts = shapley_bridge(list(CAUSES), cost)
    ends = [plan.usd_per_million_tokens(output_only=output_only) for plan in (baseline, other)]
    if not math.isclose(sum(parts.values()), ends[1] - ends[0], rel_tol=1e-9, abs_tol=1e-9):
        raise ConservationError(
            f"a bridge's parts sum to {sum(parts.values()):.12g}, the difference is {ends[1] - ends[0]:.12g}"
        )
    return parts


def shapley_bridge(causes: Sequence[str], measure: Callable[[frozenset[str]], float]) -> dict[str, float]:
    """Return what each cause adds to the measure; the values sum to measure(all) − measure(none).

    ``measure`` returns the figure with the named causes taken from the second scenario and the others from
    the first. Each set of causes is measured once.
    """
    if len(set(causes)) != len(causes) or not 1 <= len(causes) <= MAXIMUM_CAUSES:
        message = f"a bridge needs 1 to {MAXIMUM_CAUSES} causes, each named once, not {len(causes)}"
        raise ScenarioError(Problem(path="bridge", message=message))
    count = len(causes)
    figures = {
        frozenset(chosen): measure(frozenset(chosen))
        for size in range(count + 1)
        for chosen in combinations(causes, size)
    }
    explained = {}
    for cause in causes:
        explained[cause] = sum(
            math.factorial(len(others)) * math.factorial(count - len(others) - 1) / math.factorial(count)
            * (figures[others | {cause}] - figure)
            for others, figure in figures.items()
            if cause not in others
        )  # fmt: skip
    return explained
