"""The one judgement behind every piece of advice: first whether a plan serves, then what it costs.

A plan *serves well* when it keeps its promised share of requests in time and sheds no more than the rest. Plans that
serve well are told apart by cost; a plan that does not is never recommended for its cost, nor said to save anything.
Reports and terminal tables take their sentences from here, so that no two of them can disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.reporting.report.words import percent, unit_price

COST = "levelised_cost_per_million_tokens_usd"
"""What tells plans that serve well apart: cash at its time. Accrued cost moves with the books, which save nothing."""
IN_TIME = "slo_attainment_fraction"
SHED = "shed_fraction"

GOOD_SERVICE_FRACTION = 0.99
"""Share of requests in time from which a plan serves well, where nothing else is promised; assumption."""
WORSE_FRACTION = 0.01
"""Share of requests more that must miss before a plan serves clearly worse than another; assumption."""
MUCH_SHED_FRACTION = 0.1
"""Share of tokens shed above which a plan's figures are no longer those of its traffic, so this is said first;
assumption."""
IDLE_FRACTION = 0.5
"""Share of node-hours without demand above which a plan that serves well may be larger than its traffic; assumption."""


def _shown(share: float) -> float:
    """Return a share in percent as it is shown, to two decimals: a verdict must not contradict the table beside it."""
    return float(f"{share:.2%}".removesuffix("%"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A plan as advice sees it."""

    name: str
    in_time_fraction: float | None
    """Share of requests served within their objective; None where there was no demand, or nobody measured it."""
    shed_fraction: float | None
    """Share of tokens refused or given up."""
    cost: float | None
    """What decides between plans that serve well, lower is better; None where no token was served."""
    promise_fraction: float = GOOD_SERVICE_FRACTION
    """Share of requests that is promised to be in time."""

    @property
    def serves_well(self) -> bool:
        """Whether it keeps its promise."""
        if self.in_time_fraction is None:
            return False
        kept = _shown(self.in_time_fraction) >= _shown(self.promise_fraction)
        return kept and _shown(self.shed_fraction or 0.0) <= _shown(1.0 - self.promise_fraction)

    @property
    def service(self) -> str:
        """How it serves, in words that follow its name."""
        if self.in_time_fraction is None:
            return "had no requests to serve"
        kept = self.in_time_fraction if self.in_time_fraction > 1e-12 else 0.0  # a rounding error is nothing
        said = f"keeps {percent(kept, 2)} of requests in time"
        return (
            f"{said} and sheds {percent(self.shed_fraction, 2)} of tokens" if _shown(self.shed_fraction or 0) else said
        )


def served(name: str, figures: Mapping[str, float | None]) -> Served:
    """Return a plan from its measures."""
    return Served(
        name=name, in_time_fraction=figures.get(IN_TIME), shed_fraction=figures.get(SHED), cost=figures.get(COST)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Plans in the order in which they are recommended."""

    serving: tuple[Served, ...]
    """Those that serve well, cheapest first; of two that cost the same the one named first."""
    failing: tuple[Served, ...]
    """Those that do not, best service first."""

    @property
    def best(self) -> Served | None:
        """The plan to take: the cheapest that serves well."""
        return self.serving[0] if self.serving else None

    @property
    def ranked(self) -> tuple[Served, ...]:
        """All of them."""
        return self.serving + self.failing


def much_shed(plans: Sequence[Served]) -> list[str]:
    """Say, before anything else, which plans shed so much that their figures are those of the rest."""
    return [
        f"{plan.name} sheds {percent(plan.shed_fraction)} of the tokens asked of it: every other figure is of the rest."
        for plan in plans
        if plan.shed_fraction is not None and plan.shed_fraction > MUCH_SHED_FRACTION
    ]


def choose(plans: Sequence[Served]) -> Choice:
    """Judge plans: service first, then cost."""
    serving = [plan for plan in plans if plan.serves_well and plan.cost is not None]
    failing = [plan for plan in plans if not plan.serves_well or plan.cost is None]
    return Choice(
        serving=tuple(sorted(serving, key=lambda plan: plan.cost or 0.0)),
        failing=tuple(
            sorted(
                failing, key=lambda plan: (-_shown(plan.in_time_fraction or 0.0), plan.shed_fraction or 0.0, plan.name)
            )
        ),
    )


def frontier(plans: Sequence[Served]) -> list[Served]:
    """Return the plans that no other beats in both cost and requests in time, as shown, cheapest first."""
    known = [(plan.cost, -_shown(plan.in_time_fraction), place) for place, plan in enumerate(plans)
             if plan.cost is not None and plan.in_time_fraction is not None]  # fmt: skip
    best: list[Served] = []
    most = -math.inf
    for _, missing, place in sorted(known):
        # Cheapest first, so a plan is beaten exactly if one before it keeps as much in time.
        if -missing > most:
            best.append(plans[place])
            most = -missing
    return best


def against(own: float | None, reference: float | None) -> str:
    """Return a cost against another as 31.5% less, 8.7% more or the same; nothing where one is not known."""
    if own is None or not reference:
        return ""
    return change_words(own / reference - 1.0)


def change_words(change: float) -> str:
    """Return a relative change of cost as 31.5% less, 8.7% more or the same."""
    if round(change, 3) == 0:
        return "the same"
    return f"{percent(abs(change))} {'less' if change < 0 else 'more'}"


def comparable(plan: Served, baseline: Served) -> bool:
    """Say whether a plan's cost may be held against the baseline's: not where it serves clearly worse."""
    if plan.name == baseline.name or plan.in_time_fraction is None or baseline.in_time_fraction is None:
        return False
    return plan.serves_well or _shown(plan.in_time_fraction) >= _shown(baseline.in_time_fraction - WORSE_FRACTION)


def none_serves(choice: Choice, what: str = "plans") -> str:
    """Say that nothing can be recommended, and what comes nearest."""
    known = [plan for plan in choice.failing if plan.in_time_fraction is not None]
    if not known:
        return f"None of these {what} had a request to serve."
    nearest = known[0]
    return (
        f"None of these {what} serves well: {nearest.name} comes nearest, and {nearest.service}, short of the "
        f"{percent(nearest.promise_fraction, 0)} that would be good service. Add capacity before looking at cost."
    )


def recommendation(plans: Sequence[Served], baseline: str, saving: tuple[float, float, str] | None = None) -> str:
    """Say which of several plans to take, and how its cost stands against the baseline.

    ``saving`` has the ends of what it saves under other draws of chance, and how many draws lie between them.
    """
    base = next(plan for plan in plans if plan.name == baseline)
    choice = choose([base, *(plan for plan in plans if plan is not base)])
    best = choice.best
    if best is None:
        return none_serves(choice)
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    if len(choice.serving) == 1:
        lead = f"{best.name} is the only one of these plans that serves well, at {price}."
        return lead if best is base else f"{lead} The baseline {baseline} {base.service}."
    lead = f"{best.name} costs least of the plans that serve well: {price}"
    if best is base:
        rival = choice.serving[1]
        return f"{lead}. It is the baseline; the next, {rival.name}, costs {against(rival.cost, best.cost)}."
    if not base.serves_well:
        return f"{lead}. The baseline {baseline} {base.service}, so a saving against it would say nothing."
    return f"{lead}, {against(best.cost, base.cost)} than the baseline {baseline}{_under_chance(saving)}."


def _under_chance(saving: tuple[float, float, str] | None) -> str:
    """Say where a saving lies under other draws of chance."""
    if saving is None:
        return ""
    low, high, words = saving
    if low <= 0 <= high:
        return f"; in {words} it is {change_words(-low)} to {change_words(-high)}, so the two cannot be told apart"
    return f" ({change_words(-low)} to {change_words(-high)} in {words})"


def sweep_advice(choice: Choice) -> str:
    """Say which combination of a sweep to take."""
    if choice.best is None:
        return none_serves(choice, "combinations")
    best, points = choice.best, len(choice.ranked)
    said = f"Of {points:,} combinations {len(choice.serving):,} serve well"
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    if len(choice.serving) == 1:
        return f"Of {points:,} combinations one serves well: {best.name}, at {price}."
    return f"{said}; of these a token costs least with {best.name}: {price}."


def warnings_of(choice: Choice) -> list[str]:
    """Say of each plan that does not serve well why its cost is no argument for it."""
    return [
        f"{plan.name} is no alternative as it stands: it {plan.service}. What it costs is the cost of doing less."
        for plan in choice.failing
        if plan.in_time_fraction is not None and not plan.serves_well
    ]


def sizing(summary: Mapping[str, Any], fleet: Mapping[str, Any]) -> str:
    """Say the one thing that a run's figures advise about the size of its fleet; nothing where they advise nothing.

    ``fleet`` are the figures of the whole fleet in ``summary``. The first that holds decides: a plan that fails its
    promise, one that luck may make fail it, one that fails it in a month, one with machines to spare.
    """
    plan = served(str(summary.get("scenario", "")), fleet)
    if plan.in_time_fraction is None:
        return ""
    idle = (summary.get("capacity_fraction") or {}).get("without_demand", 0.0)
    promise = percent(plan.promise_fraction, 0)
    if not plan.serves_well:
        spare = (
            f" {percent(idle)} of node-hours had no demand all the same, so look first at when it falls short and on "
            "which clusters."
            if idle > IDLE_FRACTION
            else ""
        )
        said = f"This plan is too small: it {plan.service}, where {promise} would be good service."
        return f"{said} Add nodes, or bring deliveries forward.{spare}"
    lucky = ((summary.get("chance") or {}).get("intervals") or {}).get(IN_TIME)
    if lucky and _shown(lucky[0]) < _shown(plan.promise_fraction):
        return (
            f"Luck decides whether this plan is large enough: under other draws of chance it keeps as few as "
            f"{percent(lucky[0], 2)} of requests in time. Leave more room, or let a review buy it."
        )
    worst = summary.get("worst_month")
    if worst and _shown(worst["missed_fraction"]) > _shown(1.0 - plan.promise_fraction):
        missed = percent(worst["missed_fraction"], 2)
        return (
            f"Over the whole horizon this plan serves well, but in {worst['month']} {missed} of requests were shed or "
            "late. Leave more room by then, or let a review buy it."
        )
    if idle > IDLE_FRACTION:
        return (
            f"{percent(idle)} of node-hours had no demand, and every month was served well: the fleet is larger than "
            "the traffic. Try fewer nodes, or later deliveries."
        )
    return ""
