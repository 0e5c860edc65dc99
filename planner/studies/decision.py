"""Interval estimates, and the decision they support: which scenario, with what probability and regret.

Sobol points are not independent draws, so s/√n says nothing about their error. The estimate is
made once for each of R independent randomisations; those R figures are independent, and Student's t with R − 1 degrees
of freedom gives the interval about the estimate from all rows together (Owen 2013, chapter 17).

Scenarios are compared row by row: row i of both has the same inputs and the same chance, so their difference is what
the choice makes, not what luck makes. A figure of all scenarios has shape (scenarios, rows), NaN where a run failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.plan.attainment import Verdict, met_months_over, shortfall_over
from planner.studies.designs import Integers

CONFIDENCE = 0.95
PERCENTILES = (5, 10, 50, 90, 95)
FEWEST_BEYOND = 3.0
"""Fewest rows of one randomisation beyond a percentile for which an interval is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEstimate:
    """A figure and its confidence interval; NaN ends where there are too few rows."""

    value: float
    half_width: float = float("nan")
    completed: int = 0
    """Rows behind it: those that could be run and have the figure."""

    @property
    def low(self) -> float:
        """Lower end."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.value + self.half_width

    @property
    def relative(self) -> float:
        """Half width over the figure's size."""
        return self.half_width / abs(self.value) if self.value else float("nan")


def half_width(replicates: Floats) -> float:
    """Return half the t-interval of the mean of independent figures; NaN for fewer than two."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a second that only who asks should wait for

    known = replicates[np.isfinite(replicates)]
    if known.size < 2:
        return float("nan")
    quantile = float(stdtrit(known.size - 1, 0.5 + CONFIDENCE / 2.0))
    return quantile * float(known.std(ddof=1)) / float(np.sqrt(known.size))


def estimates(
    rows: Floats, scramblings: int, figures: Callable[[Floats], Sequence[float]], count: int = 1
) -> list[IntervalEstimate]:
    """Return ``count`` figures over all rows, each with the interval from its values by randomisation.

    Row i belongs to randomisation i modulo ``scramblings``; rows that failed are NaN and left out.
    """
    known = _known(rows)
    if known.size == 0:
        return [IntervalEstimate(value=float("nan"))] * count
    parts = [_known(rows[which::scramblings]) for which in range(scramblings)]
    by_scrambling = np.array([figures(part) if part.size else [np.nan] * count for part in parts])
    return [
        IntervalEstimate(
            value=value, half_width=half_width(by_scrambling[:, place]), completed=known.size
        )
        for place, value in enumerate(figures(known))
    ]


def _known(rows: Floats) -> Floats:
    """Return the rows that did not fail, without a copy where that is all of them."""
    finite = np.isfinite(rows)
    return rows if rows.flags.c_contiguous and finite.all() else rows[finite]


def mean_estimate(rows: Floats, scramblings: int) -> IntervalEstimate:
    """Return the mean and its interval."""
    return estimates(rows, scramblings, lambda part: [float(part.mean())])[0]


def share_estimate(rows: Floats, scramblings: int) -> IntervalEstimate:
    """Return the mean of zeros and ones, and its interval.

    Few randomisations may all count the same, and then say nothing of what they cannot resolve. So the interval is at
    least half a count of one of them, and at least 3/n, the rule of three for what n rows never showed (Hanley and
    Lippman-Hand 1983).
    """
    share = mean_estimate(rows, scramblings)
    count = int(np.isfinite(rows).sum())
    if count == 0 or np.isnan(share.half_width):
        return share
    widest = max(share.half_width, 0.5 * scramblings / count, 3.0 / count)
    return IntervalEstimate(value=share.value, half_width=widest, completed=count)


def percentile_estimate(rows: Floats, scramblings: int, percentile: float) -> IntervalEstimate:
    """Return a percentile and its interval; without an interval where too few rows lie beyond it."""
    (quantile,) = estimates(rows, scramblings, lambda part: percentiles(part, (percentile,)))
    return _where_enough(quantile, percentile, len(rows) / scramblings)


def _where_enough(quantile: IntervalEstimate, percentile: float, rows: float) -> IntervalEstimate:
    """Return a percentile, without its interval where ``rows`` rows have too few beyond it."""
    if min(percentile, 100.0 - percentile) / 100.0 * rows < FEWEST_BEYOND:
        return IntervalEstimate(value=quantile.value, completed=quantile.completed)
    return quantile


def percentiles(rows: Floats, wanted: Sequence[float]) -> list[float]:
    """Return percentiles whose error has median zero whatever the distribution (Hyndman and Fan 1996, type 8)."""
    reached: list[float] = np.percentile(rows, wanted, method="median_unbiased").tolist()
    return reached


def spread_estimates(
    rows: Floats, scramblings: int, *, upper: bool
) -> list[tuple[str, IntervalEstimate]]:
    """Return mean, standard deviation, percentiles and the mean of the worst twentieth (CVaR 95%) by name."""

    def figures(part: Floats) -> list[float]:
        ordered = np.sort(part)
        count = max(1, round(0.05 * len(part)))
        tail = float(ordered[-count:].mean() if upper else ordered[:count].mean())
        sd = float(part.std(ddof=1)) if part.size > 1 else float("nan")
        return [float(part.mean()), sd, *percentiles(ordered, PERCENTILES), tail]

    names = ["mean", "sd", *(f"p{percentile}" for percentile in PERCENTILES), "cvar95"]
    spread = estimates(rows, scramblings, figures, len(names))
    for place, percentile in enumerate(PERCENTILES, start=2):
        spread[place] = _where_enough(spread[place], percentile, len(rows) / scramblings)
    return list(zip(names, spread, strict=True))


def sound_rows(objective: Floats) -> Bools:
    """Return the rows in which no scenario failed, shape (rows,)."""
    return np.asarray(np.isfinite(objective).all(axis=0))


class PairwiseDecision(NamedTuple):
    """One scenario against another, or against the best of all others."""

    scenario: str
    against: str
    """Empty for all others together that meet their SLO target."""
    probability_better: IntervalEstimate
    mean_difference: IntervalEstimate
    """The scenario's headline less the other's."""
    mean_regret: IntervalEstimate
    """Mean of what the scenario gives away where the other is better, nothing where it is not."""
    p95_regret: IntervalEstimate


class Targeted(NamedTuple):
    """A scenario of a study, and what its SLO target holds it to."""

    scenario: str
    attainment: float
    confidence: float
    """Share of replications that is to meet it."""


class SloStanding(NamedTuple):
    """Result of one scenario of a study against its SLO target."""

    scenario: str
    verdict: Verdict
    """By how many of the replications that could be run meet its SLO target."""
    shortfall_fraction: float
    """How far it falls short over the replications; 0 where enough of them keep it, NaN where none could be run."""
    met_months: float
    """Calendar months that enough replications keep it through."""
    best_fraction: IntervalEstimate
    """Share of replications in which its objective is best of the scenarios that are not MISSED; NaN for others."""
    past_mending: dict[str, int]
    """Replications that miss its SLO target whatever is bought, by cause; none where they are not counted."""

    @property
    def may_meet(self) -> bool:
        """Whether it is not MISSED."""
        return self.verdict.status != "MISSED"


def once(figures: Floats, chance: Integers) -> Floats:
    """Return figures, shape (scenarios, rows), with NaN where an earlier row has the same simulation.

    Money moves no machine: a verdict counts each simulation once.
    """
    first = np.unique(chance, return_index=True)[1]
    return np.where(np.isin(np.arange(len(chance)), first), figures, np.nan)


def standings(
    columns: Sequence[Floats], asked: Sequence[Targeted], scramblings: int, *, lower_is_better: bool
) -> list[SloStanding]:
    """Return each scenario's result against its SLO target, and its probability of being best.

    ``columns`` are the headline, shortfalls and months kept.
    """
    objective, shortfalls, months = columns
    verdicts = [
        Verdict(int((short == 0.0).sum()), int(np.isfinite(short).sum()), of.confidence)
        for short, of in zip(shortfalls, asked, strict=True)
    ]
    keeping = [which for which, verdict in enumerate(verdicts) if verdict.status != "MISSED"]
    worse = _worse(objective, lower_is_better=lower_is_better)
    standings = []
    for which, of in enumerate(asked):
        best = IntervalEstimate(value=float("nan"))
        if which in keeping:
            best = share_estimate(_is_better(_excess(worse, which, keeping)), scramblings)
        short = shortfall_over(shortfalls[which], of.confidence)
        through = met_months_over(months[which], of.confidence)
        standings.append(SloStanding(of.scenario, verdicts[which], short, through, best, {}))
    return standings


def _worse(objective: Floats, *, lower_is_better: bool) -> Floats:
    """Return the objective signed so that less is better, NaN in rows in which any scenario failed."""
    return np.where(sound_rows(objective), objective if lower_is_better else -objective, np.nan)


def _excess(worse: Floats, one: int, among: Sequence[int]) -> Floats:
    """Return how much worse a scenario is than the best other of some; −∞ where it is alone, NaN if it failed."""
    others = [other for other in among if other != one]
    if not others:
        return np.where(np.isnan(worse[one]), np.nan, -np.inf)
    return np.asarray(worse[one] - worse[others].min(axis=0))


def _is_better(excess: Floats) -> Floats:
    """Return 1 where a scenario is better, 0.5 where both are equal, NaN where one failed."""
    return np.where(np.isnan(excess), np.nan, (excess < 0.0) + 0.5 * (excess == 0.0))


def decisions(
    objective: Floats,
    names: tuple[str, ...],
    scramblings: int,
    keeping: Sequence[int],
    *,
    lower_is_better: bool,
) -> list[PairwiseDecision]:
    """Return the comparisons of all scenarios by the objective, which is NaN where a run failed.

    Each is held against each other; of more than two that meet their SLO target, whose places are ``keeping``, each
    also against the best of all others of them.
    """
    worse = _worse(objective, lower_is_better=lower_is_better)
    pairs = []
    for one, name in enumerate(names):
        held = [
            (against, worse[one] - worse[other])
            for other, against in enumerate(names)
            if other != one
        ]
        if len(keeping) > 2 and one in keeping:
            held.append(("", _excess(worse, one, keeping)))
        for against, excess in held:  # by how much it is worse, row by row
            better = share_estimate(_is_better(excess), scramblings)
            difference = mean_estimate(excess if lower_is_better else -excess, scramblings)
            regret = np.where(np.isnan(excess), np.nan, np.maximum(excess, 0.0))
            regrets = (
                mean_estimate(regret, scramblings),
                percentile_estimate(regret, scramblings, 95),
            )
            pairs.append(PairwiseDecision(name, against, better, difference, *regrets))
    return pairs


def choice(objective: Floats, *, lower_is_better: bool) -> int:
    """Return the scenario with the best mean over rows without failures; ``objective`` has shape (rows, scenarios)."""
    means = objective[np.isfinite(objective).all(axis=1)].mean(axis=0)
    return int(np.argmin(means) if lower_is_better else np.argmax(means))


_DEGREE = 3
"""Of the polynomial by which the difference between scenarios follows what is known: curved, and turning once."""


def worth_of_knowing(
    known: Floats, objective: Floats, scramblings: int, *, lower_is_better: bool
) -> IntervalEstimate:
    """Return the value of knowing one figure before the choice, in the unit of the objective.

    The expected value of partial perfect information, E[max_d E(u_d | θ)] − max_d E(u_d), by regression on the study's
    own rows (Strong, Oakley and Brennan 2014): how far each scenario lies behind the chosen one follows θ, here
    ``known`` of shape (rows,), by a cubic; where it is expected ahead, it is chosen instead. The cubic of each
    randomisation's rows is fitted to the others', so that noise does not pass for knowledge: what is reported was
    gained on rows that the rule had not seen.
    """
    sound = np.isfinite(objective).all(axis=1) & np.isfinite(known)
    fold = (np.arange(len(objective)) % scramblings)[sound]
    worse = (objective if lower_is_better else -objective)[sound]
    if len(np.unique(fold)) < 2 or len(worse) < 4 * (_DEGREE + 1) or np.ptp(known[sound]) == 0.0:
        return IntervalEstimate(value=0.0, completed=len(worse))
    behind = worse - worse[:, [choice(worse, lower_is_better=True)]]
    score = (known[sound] - known[sound].mean()) / known[sound].std()
    basis = np.vander(score, _DEGREE + 1)
    gained = np.zeros(len(worse))
    for part in np.unique(fold):
        inside = fold == part
        rule, *_ = np.linalg.lstsq(basis[~inside], behind[~inside], rcond=None)
        picked = np.argmin(basis[inside] @ rule, axis=1)
        gained[inside] = -behind[inside, picked]
    parts = np.array([gained[fold == part].mean() for part in np.unique(fold)])
    return IntervalEstimate(
        value=max(0.0, float(gained.mean())), half_width=half_width(parts), completed=len(worse)
    )
