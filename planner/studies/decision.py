"""Which scenario to choose, how likely that is right, and what it costs to be wrong.

Scenarios are compared row by row: row i of both has the same inputs and the same chance, so their difference is what
the choice makes, not what luck makes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.arrays import Bools, Floats
from planner.plan.slo_target import kept_months_over, shortfall_over
from planner.studies.intervals import Estimate, half_width, mean_estimate, percentile_estimate, share_estimate


class ByScenario(Protocol):
    """A figure of each scenario, of shape (rows,): an array of shape (scenarios, rows), or what is read when asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: int, /) -> Floats: ...


def sound_rows(headline: ByScenario) -> Bools:
    """Return the rows in which every scenario could be run, shape (rows,)."""
    return functools.reduce(np.logical_and, (np.isfinite(headline[which]) for which in range(len(headline))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One scenario against another, or against the best of all others."""

    scenario: str
    against: str
    """Empty for all others together that keep their promise."""
    probability_better: Estimate
    mean_difference: Estimate
    """The scenario's headline less the other's."""
    mean_regret: Estimate
    """Mean of what the scenario gives away where the other is better, nothing where it is not."""
    p95_regret: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one scenario of a study stands to its promise."""

    scenario: str
    kept_fraction: Estimate
    """Share of replications in which the promise is kept."""
    shortfall_fraction: float
    """How far it falls short over the replications; 0 where enough of them keep it, NaN where none could be run."""
    kept_months: float
    """Calendar months that enough replications keep it through."""
    best_fraction: Estimate
    """Share of replications in which the headline is best of the scenarios that keep their promise; NaN for others."""

    @property
    def keeps_promise(self) -> bool:
        """Whether enough replications keep it."""
        return self.shortfall_fraction == 0.0


def standings(
    headline: ByScenario,
    promised: tuple[ByScenario, ByScenario],
    asked: Sequence[tuple[str, float]],
    scramblings: int,
    *,
    lower_is_better: bool,
) -> list[Standing]:
    """Judge all scenarios by their promises, and then by the headline.

    ``promised`` are shortfalls and months kept; ``asked`` has each scenario's name and the share of replications that
    is to keep its promise.
    """
    shortfalls, months = promised
    short = [shortfall_over(shortfalls[which], share) for which, (_, share) in enumerate(asked)]
    keeping = [which for which, shortfall in enumerate(short) if shortfall == 0.0]
    worse = _Worse(headline, lower_is_better=lower_is_better)
    standings = []
    for which, (name, share) in enumerate(asked):
        nowhere = Estimate(value=float("nan"), half_width=float("nan"))
        best = share_estimate(_is_better(_excess(worse, which, keeping)), scramblings) if which in keeping else nowhere
        standings.append(
            Standing(
                scenario=name,
                kept_fraction=share_estimate(_is_kept(shortfalls[which]), scramblings),
                shortfall_fraction=short[which],
                kept_months=kept_months_over(months[which], share),
                best_fraction=best,
            )
        )
    return standings


class _Worse:
    """The headline so that less is better, NaN in rows in which any scenario failed; one scenario at a time."""

    def __init__(self, headline: ByScenario, *, lower_is_better: bool) -> None:
        self._headline, self._lower_is_better = headline, lower_is_better
        self._sound = sound_rows(headline)

    def __getitem__(self, which: int) -> Floats:
        worse = self._headline[which] if self._lower_is_better else -self._headline[which]
        return worse if self._sound.all() else np.where(self._sound, worse, np.nan)


def _excess(worse: _Worse, one: int, among: Sequence[int]) -> Floats:
    """Return by how much a scenario is worse than the best other among some; −∞ where it is alone, NaN if it failed."""
    others = [other for other in among if other != one]
    if not others:
        return np.where(np.isnan(worse[one]), np.nan, -np.inf)
    return worse[one] - functools.reduce(np.minimum, (worse[other] for other in others))


def _is_kept(shortfalls: Floats) -> Floats:
    """Return 1 where a promise is kept, 0 where it is not, NaN where the run failed."""
    return np.where(np.isfinite(shortfalls), shortfalls == 0.0, np.nan)


def _is_better(excess: Floats) -> Floats:
    """Return 1 where a scenario is better, a half where both are the same, NaN where one failed."""
    return np.where(np.isnan(excess), np.nan, (excess < 0.0) + 0.5 * (excess == 0.0))


def decisions(
    headline: ByScenario, names: tuple[str, ...], scramblings: int, keeping: Sequence[int], *, lower_is_better: bool
) -> list[Comparison]:
    """Compare all scenarios by the headline, NaN where a run failed.

    Each is held against each other; of more than two that keep their promise, whose places are ``keeping``, each also
    against the best of all others of them.
    """
    worse = _Worse(headline, lower_is_better=lower_is_better)
    pairs = []
    for one, name in enumerate(names):
        for other, against in enumerate(names):
            if other != one:
                pairs.append(_compare(name, against, worse[one] - worse[other], scramblings, lower_is_better))
        if len(keeping) > 2 and one in keeping:
            pairs.append(_compare(name, "", _excess(worse, one, keeping), scramblings, lower_is_better))
    return pairs


def _compare(name: str, against: str, excess: Floats, scramblings: int, lower_is_better: bool) -> Comparison:
    """Compare by how much one scenario is worse than the other, row by row."""
    regret = np.where(np.isnan(excess), np.nan, np.maximum(excess, 0.0))
    return Comparison(
        scenario=name,
        against=against,
        probability_better=share_estimate(_is_better(excess), scramblings),
        mean_difference=mean_estimate(excess if lower_is_better else -excess, scramblings),
        mean_regret=mean_estimate(regret, scramblings),
        p95_regret=percentile_estimate(regret, scramblings, 95),
    )


def choice(headline: Floats, *, lower_is_better: bool) -> int:
    """Return the scenario that is best in the mean over the rows that could be run in all; shape (rows, scenarios)."""
    means = headline[np.isfinite(headline).all(axis=1)].mean(axis=0)
    return int(np.argmin(means) if lower_is_better else np.argmax(means))


_DEGREE = 3
"""Of the polynomial by which the difference between scenarios follows what is known: curved, and turning once."""


def worth_of_knowing(known: Floats, headline: Floats, scramblings: int, *, lower_is_better: bool) -> Estimate:
    """Return what knowing one figure before the choice is worth, in the unit of the headline.

    The expected value of partial perfect information, E[max_d E(u_d | θ)] − max_d E(u_d), by regression on the study's
    own rows (Strong, Oakley and Brennan 2014): how far each scenario lies behind the chosen one follows θ, here
    ``known`` of shape (rows,), by a cubic; where it is expected ahead, it is chosen instead. The cubic of each
    randomisation's rows is fitted to the others', so that noise does not pass for knowledge: what is reported was
    gained on rows that the rule had not seen.
    """
    sound = np.isfinite(headline).all(axis=1) & np.isfinite(known)
    fold = (np.arange(len(headline)) % scramblings)[sound]
    worse = (headline if lower_is_better else -headline)[sound]
    if len(np.unique(fold)) < 2 or len(worse) < 4 * (_DEGREE + 1) or np.ptp(known[sound]) == 0.0:
        return Estimate(value=0.0, half_width=float("nan"), completed=len(worse))
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
    return Estimate(value=max(0.0, float(gained.mean())), half_width=half_width(parts), completed=len(worse))
