"""The one ranking of plans: first the SLO verdict, then cost.

Plans that are MET are ranked by cost; those that are INCONCLUSIVE follow, then those that are MISSED, by how far. Only
a plan that is MET is recommended. Reports, memo and terminal take their order from here, so that no two can disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.answers.verdicts import PlanVerdict
from planner.finance.measure_names import HIGHER_IS_BETTER
from planner.output.words import percent
from planner.records import record

COST = "levelised_cost_per_million_tokens_usd"
"""What ranks plans that are MET: cash at its time. Accrued cost moves with the books, which save nothing."""
ATTAINMENT = "slo_attainment_fraction"
SHED = "shed_fraction"
LOWEST_ATTAINMENT = "slo_attainment_lowest_fraction"
SHORTFALL = "slo_shortfall_fraction"
RANKED_BY = (COST, ATTAINMENT, SHED, LOWEST_ATTAINMENT, SHORTFALL)
"""The measures that a ranking reads."""

CLEARLY_WORSE_FRACTION = 0.01
"""How much further a plan must fall short before it serves clearly worse than another; assumption."""
ROUNDING_ERROR = 1e-12
"""Attainment below which a plan attains nothing: the rest of a sum that should be zero."""


@record
class RankedPlan:
    """A plan as a ranking sees it."""

    name: str
    slo_attainment_fraction: float | None
    """Share of requests served within their objective; None where there was no demand, or nobody measured it."""
    shed_fraction: float | None
    """Share of tokens refused or given up."""
    cost: float | None
    """What ranks plans that are MET, lower is better; None where no token was served."""
    lowest_fraction: float | None
    """Lowest SLO attainment."""
    shortfall_fraction: float | None
    """How far it falls short of its SLO target, over its replications; 0 where it meets it."""
    verdict: PlanVerdict | None = None
    """Over its replications; None of a point of a sweep, which is one replication and no verdict."""

    @property
    def meets_slo(self) -> bool:
        """Whether it is MET; a point of a sweep where its one replication meets the target."""
        if self.slo_attainment_fraction is None:
            return False
        if self.verdict is None:
            return self.shortfall_fraction == 0.0
        return self.verdict.status == "MET"

    @property
    def is_inconclusive(self) -> bool:
        """Whether its replications are too few for a verdict."""
        return self.verdict is not None and self.verdict.status == "INCONCLUSIVE"

    @property
    def service(self) -> str:
        """How it serves, in words that follow its name."""
        attainment = self.slo_attainment_fraction
        if attainment is None:
            return "had no requests to serve"
        # The rest of a sum that should be zero is nothing, not "<0.01%".
        share = percent(attainment if attainment > ROUNDING_ERROR else 0.0, 2)
        words = f"serves {share} of requests within the SLO over the horizon"
        if round(self.shed_fraction or 0.0, 4):
            words += f", sheds {percent(self.shed_fraction, 2)} of tokens"
        if self.meets_slo or self.is_inconclusive:
            return words
        is_monthly = self.verdict is not None and self.verdict.per == "month"
        where = " in its worst month" if is_monthly else ""
        return f"{words} and misses its SLO target by {self._shortfall}{where}"

    @property
    def standing(self) -> str:
        """Its verdict, for the cell of a table."""
        if self.slo_attainment_fraction is None:
            return ""
        if self.verdict is not None:
            met = f"{self.verdict.met_replications}/{self.verdict.replications}"
            return f"{self.verdict.status} {met}"
        return "met" if self.meets_slo else f"missed by {self._shortfall}"

    @property
    def _shortfall(self) -> str:
        """How far it misses its SLO target, as 0.94 points."""
        return percent(self.shortfall_fraction, 2).replace("%", " points")


def ranked_plan(
    name: str,
    measures: Mapping[str, float | None],
    verdict: PlanVerdict | None = None,
    objective: str = COST,
) -> RankedPlan:
    """Return a plan from its measures, of which the objective ranks plans that are MET."""
    shortfall = measures.get(SHORTFALL) if verdict is None else verdict.shortfall_fraction
    cost = measures.get(objective)
    # Rankings look for the lowest, so what is better high is turned.
    if cost is not None and objective in HIGHER_IS_BETTER:
        cost = -cost
    return RankedPlan(
        name=name,
        slo_attainment_fraction=measures.get(ATTAINMENT),
        shed_fraction=measures.get(SHED),
        cost=cost,
        lowest_fraction=measures.get(LOWEST_ATTAINMENT),
        # Rounded as files hold it: a ranking read back from a folder must not differ.
        shortfall_fraction=None if shortfall is None else round(shortfall, 6),
        verdict=verdict,
    )


def ranked_plans(
    measures: Mapping[str, Mapping[str, float | None]],
    verdicts: Mapping[str, PlanVerdict],
    objective: str = COST,
) -> list[RankedPlan]:
    """Return the plans of a comparison or a study, each with its verdict over its replications."""
    return [
        ranked_plan(name, figures, verdicts.get(name), objective)
        for name, figures in measures.items()
    ]


class Ranking(NamedTuple):
    """Plans in the order in which they are recommended."""

    met_plans: tuple[RankedPlan, ...]
    """Those that are MET, cheapest first; of two that cost the same the one named first."""
    inconclusive_plans: tuple[RankedPlan, ...]
    """Those whose replications are too few for a verdict, cheapest first."""
    missed_plans: tuple[RankedPlan, ...]
    """Those that are MISSED, the least short first; of two equally short the cheaper."""

    @property
    def best(self) -> RankedPlan | None:
        """The plan to take: the cheapest that is MET."""
        if self.met_plans:
            return self.met_plans[0]
        return None

    @property
    def plans(self) -> tuple[RankedPlan, ...]:
        """All of them."""
        return self.met_plans + self.inconclusive_plans + self.missed_plans


def rank(plans: Sequence[RankedPlan]) -> Ranking:
    """Rank plans: the verdict first, then cost; MISSED plans by how far."""
    priced = [plan for plan in plans if plan.cost is not None]
    # Sorting is stable: of plans that cost the same the one named first stays first.
    met = [plan for plan in priced if plan.meets_slo]
    met.sort(key=_cost)
    inconclusive = [plan for plan in priced if plan.is_inconclusive]
    inconclusive.sort(key=_cost)
    # A plan without a cost served nothing, whatever its verdict: it comes last.
    missed = [plan for plan in plans if plan not in met and plan not in inconclusive]
    missed.sort(
        key=lambda plan: (
            plan.slo_attainment_fraction is None,
            plan.shortfall_fraction or 0.0,
            _cost(plan),
        )
    )
    return Ranking(tuple(met), tuple(inconclusive), tuple(missed))


def _cost(plan: RankedPlan) -> float:
    if plan.cost is None:
        return math.inf
    return plan.cost


def frontier(plans: Sequence[RankedPlan]) -> list[RankedPlan]:
    """Return the plans that no other beats in both cost and lowest SLO attainment, cheapest first.

    The cheapest plan that meets its SLO target is always among them where all have the same target.
    """
    served = [plan for plan in plans if plan.cost is not None and plan.lowest_fraction is not None]

    def attainment(plan: RankedPlan) -> float:
        return round(plan.lowest_fraction or 0.0, 6)  # as files hold it

    unbeaten: list[RankedPlan] = []
    highest = -math.inf
    # Cheapest first, so a plan is beaten exactly if one before it attains as much.
    for plan in sorted(served, key=lambda plan: (plan.cost, -attainment(plan))):
        if attainment(plan) > highest:
            unbeaten.append(plan)
            highest = attainment(plan)
    return unbeaten


def is_comparable(plan: RankedPlan, baseline: RankedPlan) -> bool:
    """Say whether a plan's cost may be compared with the baseline's: not where it serves clearly worse."""
    attainments = (plan.slo_attainment_fraction, baseline.slo_attainment_fraction)
    if plan.name == baseline.name or None in attainments:
        return False
    # A plan that is MET compares with any; one that is not, never with a baseline that is.
    if plan.meets_slo or baseline.meets_slo:
        return plan.meets_slo
    allowed_shortfall = (baseline.shortfall_fraction or 0.0) + CLEARLY_WORSE_FRACTION
    return (plan.shortfall_fraction or 0.0) <= allowed_shortfall
