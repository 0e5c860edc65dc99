"""Selection and confirmation: which shortlisted policy is cheapest, and whether it meets the SLO target.

Three blocks of replications never mix. The search block made the shortlist. On the selection block the shortlisted
race: all meet the same replications, and those that another beats by their paired differences drop out. On a
confirmation block, which nothing has seen, the chosen policy runs alone; its probability is the share of those runs
that meet the target, counted. It passes on the lower limit of that share. A block that failed is never used again, and
every attempt has an error of its own, so that all together err with at most :data:`ERROR`. The first attempt is looked
at twice: after the fewest runs, and after all where too many of those miss. Each look has half of its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.records import record
from planner.sizing.archive import Archive
from planner.sizing.evaluate import (
    BLOCK,
    FIRST_CONFIRMATION,
    SELECTION,
    Judged,
    SizingOutcome,
    Trial,
    judged,
)
from planner.sizing.policy import Policy
from planner.studies.decision import half_width

ERROR = 0.05
"""Probability that any attempt confirms a policy that does not meet the target."""
SPENT = (1 / 8, 1 / 2, 1 / 4, 1 / 16, 1 / 32, 1 / 64)
"""Shares of that error, by attempt: the first is of a policy with room to spare, which needs little of it."""
_PASSING = 0.8
"""Probability of passing at which a policy is worth a confirmation block."""
_HOPELESS = 0.25
"""Probability of passing below which no further block is spent."""
LEAST_SAVED = 0.01
"""Of the cost of a confirmed policy: what another must be expected to save to be worth a block."""
_PREDICTED_RUNS = 32
"""Runs that a prediction is worth: it is off by four points or so, as so many runs are."""
_BATCH = 16
"""Confirmation runs between two looks at whether the block can still pass."""
_FIRST_MISSES = 1
"""Missed replications that the first confirmation may have: the fewest runs for a policy with room to spare."""
_FEWEST_RUNS = 100
"""Of a confirmation, where more are allowed."""
_STAGES = (1, 2, 4)
"""Times the first stage's replications after which a race looks at who is beaten."""
_BEATEN = 2.0
"""Standard errors of a paired difference beyond which it counts."""


Likelihood = Callable[[Judged], float]
"""Returns the probability that a policy meets the target."""


class Interval(NamedTuple):
    """A 95% interval."""

    low: float
    high: float


@record
class Confirmation:
    """One policy on one block that nothing has seen before."""

    judged: Judged
    passed: bool
    attempt: int
    """Counted from 1."""
    interval: Interval
    """Of the probability to meet the SLO target, from these runs alone."""
    lower_limit: float
    """On which it passes, at the error of its attempt."""


class Prospect(NamedTuple):
    """A policy that the next block may confirm."""

    judged: Judged
    """Over its runs of the selection."""
    runs: int
    """Of the block."""
    passing: float
    """Probability that it passes."""
    worth: float
    """What it is expected to save against a confirmed policy; where there is none, the probability."""


def share_limits(met: int, runs: int, error: float) -> Interval:
    """Return the Clopper-Pearson limits of a probability, each with an error."""
    from scipy.special import betaincinv  # noqa: PLC0415 - as elsewhere, loaded by who asks

    low = float(betaincinv(met, runs - met + 1, error)) if met else 0.0
    high = float(betaincinv(met + 1, runs - met, 1.0 - error)) if met < runs else 1.0
    return Interval(low, high)


def allowed_misses(runs: int, confidence: float, error: float) -> int:
    """Return how many of some runs may miss for the lower limit to reach a confidence; −1 where none may."""
    misses = -1
    while misses < runs and share_limits(runs - misses - 1, runs, error).low >= confidence:
        misses += 1
    return misses


def fewest_runs(confidence: float, error: float) -> int:
    """Return the fewest runs of which a few may miss for the lower limit to reach a confidence."""
    runs = 8
    while allowed_misses(runs, confidence, error) < _FIRST_MISSES:
        runs += 1
    return runs


def passing_probability(
    met: float, missed: float, runs: int, confidence: float, error: float
) -> float:
    """Return the probability to pass a block of some runs, by what earlier runs met and missed and a flat prior."""
    from scipy.stats import betabinom  # noqa: PLC0415 - as above

    allowed = allowed_misses(runs, confidence, error)
    return float(betabinom.cdf(allowed, runs, missed + 0.5, met + 0.5)) if allowed >= 0 else 0.0


class Arena:
    """Runs policies on the selection block, and confirms them on blocks of their own."""

    def __init__(
        self,
        trial: Trial,
        archive: Archive,
        most_runs: int,
        predicted: Callable[[Policy], float] | None = None,
    ) -> None:
        """Take the most runs of a confirmation, and what predicts how often a policy meets the target."""
        self.trial = trial
        self.predicted = predicted
        self.confidence = trial.held_confidence
        self.archive = archive
        self.most_runs = most_runs
        self.attempts = 0
        self.failed: list[Judged] = []
        """Policies that were not confirmed, over the selection."""
        self.blocks: list[Judged] = []
        """Policies over the blocks on which they were to be confirmed."""

    def selected(self, policy: Policy, replications: int) -> Judged:
        """Return a policy's figures over the first replications of the selection block."""
        runs = [(policy, self.replication(place)) for place in range(replications)]
        return judged(self.trial, policy, self.archive.outcomes(runs))

    @staticmethod
    def replication(place: int) -> int:
        """Return the number of a replication of the selection block, by its place in it."""
        return SELECTION * BLOCK + place

    def race(self, shortlist: Sequence[Policy], replications: int) -> list[Judged]:
        """Return the shortlisted over the selection block, cheapest first; those beaten early have fewer runs."""
        figures: dict[Policy, Judged] = {}
        racing = [*shortlist]
        if racing:
            duration = self.archive.duration_words(len(racing) * _STAGES[-1] * replications)
            self.archive.clock.say(f"comparing {len(racing)} plans on new replications{duration}")
        for stage in _STAGES:
            for policy in racing:
                figures[policy] = self.selected(policy, stage * replications)
            racing = [
                policy for policy in racing if not self._is_out(figures[policy], figures, racing)
            ]
        return sorted(figures.values(), key=lambda one: one.cost)

    def _is_out(self, one: Judged, figures: dict[Policy, Judged], racing: Sequence[Policy]) -> bool:
        """Return whether a policy misses the target clearly, or a clearly cheaper one is enough."""
        confidence = self.confidence
        limits = share_limits(one.verdict.met, one.verdict.replications, ERROR)
        if limits.high < confidence:
            return True
        for other in (figures[policy] for policy in racing):
            saved = one.costs - other.costs
            error = _BEATEN * float(saved.std()) / np.sqrt(saved.size)
            if other is one or saved.mean() <= error:
                continue
            # Of those that serve more than enough, the cheapest will do.
            if self.is_enough(other) or other.verdict.met >= one.verdict.met:
                return True
        return False

    def is_enough(self, one: Judged) -> bool:
        """Return whether a policy is likely to pass a confirmation, by its selection runs."""
        return self._passing(one, self.most_runs) >= _PASSING

    def _passing(self, one: Judged, runs: int) -> float:
        """Return the probability that a policy passes the next block, by its selection runs."""
        confidence = self.confidence
        if not confidence:
            return 1.0
        met, missed = self._seen(one)
        return passing_probability(met, missed, runs, confidence, self._error)

    @property
    def _error(self) -> float:
        """The error that the next attempt may spend."""
        return ERROR * SPENT[min(self.attempts, len(SPENT) - 1)]

    def likelihood(self, one: Judged) -> float:
        """Return the probability that a policy meets the target, by all that is known of it."""
        met, missed = self._seen(one)
        return met / (met + missed)

    def _seen(self, one: Judged) -> tuple[float, float]:
        """Return how many runs tell that a policy meets the target, and how many that it misses it.

        Its own of the selection, which it was picked by; and what is predicted of it, as so many runs as that is worth.
        """
        met = float(one.verdict.met)
        missed = one.verdict.replications - met
        if self.predicted is not None:
            share = self.predicted(one.policy)
            met += share * _PREDICTED_RUNS
            missed += (1.0 - share) * _PREDICTED_RUNS
        return met, missed

    def confirm_safe(self, policy: Policy) -> Confirmation:
        """Confirm a policy with room to spare: by the fewest runs, else by all."""
        ends = [self.most_runs]
        if self.confidence:
            fewest = fewest_runs(self.confidence, self._error / 2)
            ends = [fewest, self.most_runs] if fewest < self.most_runs else ends
        return self._confirm(policy, ends)

    def needed(self) -> float:
        """Return the probability to meet the target from which a policy is likely to pass the next block.

        1 where the block is too short to confirm any.
        """
        from scipy.special import betaincinv  # noqa: PLC0415 - as above

        spare = allowed_misses(self.most_runs, self.confidence, self._error)
        if spare < 0:
            return 1.0
        return 1.0 - float(betaincinv(spare + 1, self.most_runs - spare, 1.0 - _PASSING))

    def confirmations(
        self, candidates: list[Judged], confirmed: Judged | None = None
    ) -> Iterator[Confirmation]:
        """Yield confirmations of cheaper policies than one that is confirmed, as long as one is worth its block.

        After each the caller may add candidates.
        """
        while self.attempts < len(SPENT) and candidates:
            common = min(one.costs.size for one in candidates)
            # What costs less than one that failed serves less, as far as the selection can tell.
            least = max((_cost_over(one, common) for one in self.failed), default=-np.inf)
            most = np.inf if confirmed is None else _cost_over(confirmed, common)
            left = [one for one in candidates if least < _cost_over(one, common) < most]
            if not left:
                return
            left.sort(key=lambda one: _cost_over(one, common))
            prospect = self._next(left, most, common)
            one = prospect.judged
            if confirmed is None and prospect.passing < _HOPELESS and self.attempts > 1:
                return
            if confirmed is not None and prospect.worth < LEAST_SAVED * most:
                return
            confirmation = self._confirm(one.policy, [prospect.runs])
            if confirmation.passed:
                confirmed = one
            else:
                self.failed.append(one)
            yield confirmation

    def _next(self, left: Sequence[Judged], most: float, common: int) -> Prospect:
        """Return the prospect that is worth most beside a confirmed policy of cost ``most``.

        Before there is one, the cheapest that is likely to pass, else the likeliest.
        """
        ladder = [self.most_runs // 4, self.most_runs // 2, self.most_runs]
        # A mean over fewer has no error that one could state.
        ladder = [runs for runs in ladder if runs >= _FEWEST_RUNS] or [self.most_runs]
        if not self.confidence:
            ladder = [self.most_runs]
        prospects = []
        for one in left:
            by_runs = [(runs, self._passing(one, runs)) for runs in ladder]
            likely = [(runs, passing) for runs, passing in by_runs if passing >= _PASSING]
            runs, passing = [*likely, by_runs[-1]][0]
            saved = 1.0 if most == np.inf else most - _cost_over(one, common)
            prospect = Prospect(judged=one, runs=runs, passing=passing, worth=passing * saved)
            if likely and most == np.inf:
                return prospect
            prospects.append(prospect)
        return max(prospects, key=lambda prospect: prospect.worth)

    def _confirm(self, policy: Policy, ends: Sequence[int]) -> Confirmation:
        """Run a policy alone on a block of its own, as long as it can still pass.

        It may pass where it has so many runs as one of the ``ends``; these share the error.
        """
        trial = self.trial
        confidence = self.confidence
        error = self._error / len(ends)
        block = FIRST_CONFIRMATION + self.attempts
        self.attempts += 1
        number = " to ".join(str(end) for end in ends)
        self.archive.clock.say(
            f"confirming in {number} new replications{self.archive.duration_words(ends[-1])}: "
            f"{trial.choices.words(policy)}"
        )
        spare = [allowed_misses(end, confidence, error) if confidence else end for end in ends]
        outcomes: list[SizingOutcome] = []
        missed = 0
        passed = False
        for end, spare_here in zip(ends, spare, strict=True):
            # A block that cannot pass any more is not run to its end, unless it is too short to pass at all.
            while len(outcomes) < end and not 0 <= spare[-1] < missed:
                batch = range(len(outcomes), min(len(outcomes) + _BATCH, end))
                fresh = self.archive.outcomes([(policy, block * BLOCK + r) for r in batch])
                outcomes += fresh
                missed += sum(not outcome.meets(trial.attainment) for outcome in fresh)
            passed = not confidence or (missed <= spare_here and len(outcomes) == end)
            if passed:
                break
        met = len(outcomes) - missed
        lower_limit = share_limits(met, len(outcomes), error).low
        over_block = judged(trial, policy, outcomes)
        self.blocks.append(over_block)
        return Confirmation(
            judged=over_block,
            passed=passed,
            attempt=self.attempts,
            interval=share_limits(met, len(outcomes), 0.025),
            lower_limit=lower_limit,
        )


def _cost_over(one: Judged, replications: int) -> float:
    """Return a policy's mean cost over its first replications, which are the same for all."""
    return float(one.costs[:replications].mean())


def mean_interval(figures: Floats) -> Interval:
    """Return the 95% interval of a mean over replications."""
    mean = float(figures.mean())
    error = half_width(figures)
    # One run has no spread: its figure is all that can be said.
    if not np.isfinite(error):
        return Interval(mean, mean)
    return Interval(mean - error, mean + error)
