"""A forecast after months that happened: inputs updated by what was seen, the rest of the horizon run again.

The replications of the plan's study are weighed by what was seen; where the weights rest on few of them, new ones are
drawn near what was seen and run (:mod:`planner.studies.posterior`). Of each series two figures are compared: its mean
over the months seen and its trend (later months less earlier), in logarithms where it is positive throughout. The
stated error holds twice: once for a series as a whole, which months do not average out, and once for each month.

A run knows no more of its past than the fleet and the queue it carries, which a replication that fits the months seen
has too; the noise of demand forgets within days. So the remaining months of those replications are the forecast from
the state as it is; the months seen are replaced by what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Bools, Floats
from planner.errors import PlannerError, Problem, ScenarioError
from planner.finance.accounts import DATED_ACCOUNTS, Account, View
from planner.scenario.actuals import FLEET, Actuals, Seen
from planner.studies import posterior
from planner.studies.designs import Design, Listed
from planner.studies.engines import run_batches
from planner.studies.prepare import Prepared
from planner.studies.replicate import Setup
from planner.studies.runner import Workforce

FEWEST_EFFECTIVE = 0.5
"""Share of replications that the weights must rest on, or new ones are drawn."""
_MOST_ROUNDS = 5
COST = Seen("cluster", FLEET, "cost_usd")
TOKENS = Seen("cluster", FLEET, "served_tokens")
FORECAST = (COST, TOKENS, Seen("cluster", FLEET, "demand_tokens"), Seen("cluster", FLEET, "utilisation_fraction"))
"""What is forecast by month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replications:
    """Runs of one scenario of a study."""

    scores: Floats
    """Normal scores of the inputs, shape (rows, inputs)."""
    inputs: Floats
    """Their values, shape (rows, inputs)."""
    monthly: Floats
    """Shape (rows, series, months)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study's scenario, the series that are read of its runs, and who runs them."""

    prepared: Prepared
    which: int
    seen: tuple[Seen, ...]
    force: Workforce

    def run(self, design: Design, rows: int) -> Replications:
        """Run the rows of a design; those that fail are left out."""
        from scipy.special import ndtri  # noqa: PLC0415 - takes most of a second, which only a forecast should wait for

        setup = self._setup(design)
        fewest = 2 * max(len(setup.inputs), 4)
        if rows < fewest:
            message = f"{rows} replications are too few for {len(setup.inputs)} uncertain inputs"
            raise ScenarioError(Problem(message=message, hint=f"ask for {fewest} or more with --replications"))
        batches = [(first, min(first + 16, rows)) for first in range(0, rows, 16)]
        parts = sorted(
            run_batches(setup, batches, self.force.workers, self.force.scheduler), key=lambda part: part.first
        )
        monthly = np.concatenate([part.monthly[:, 0] for part in parts])
        ran = ~np.isnan(monthly).all(axis=(1, 2))
        if ran.sum() < fewest:
            said = next((message for part in parts for _, _, message in part.errors), "")
            raise PlannerError(f"only {ran.sum()} of {rows} replications could be run{said and ': '}{said}")
        points, _ = design.rows(0, rows)
        return Replications(
            scores=np.asarray(ndtri(np.clip(points, 1e-12, 1 - 1e-12)), dtype=np.float64)[ran],
            inputs=np.concatenate([part.inputs for part in parts])[ran],
            monthly=monthly[ran],
        )

    def _setup(self, design: Design) -> Setup:
        """Return what workers are sent: one scenario alone."""
        setup = self.prepared.setup(design)
        alone = tuple(
            replace(uncertain, targets=uncertain.targets[self.which : self.which + 1])
            for uncertain in setup.inputs.entries
        )
        return replace(
            setup,
            scenarios=(setup.scenarios[self.which],),
            inputs=replace(setup.inputs, entries=alone),
            seen=self.seen,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The plan's forecast before and after the months seen."""

    old: Replications
    new: Replications
    weights: Floats
    """Of the new replications, shape (rows,); they sum to one."""
    rounds: int
    """How often new replications were drawn; 0: the study's own carry the weights."""
    used: tuple[Seen, ...]
    """Series that moved the forecast."""
    unused: dict[Seen, str]
    """Series that did not, and why."""

    @property
    def effective(self) -> float:
        """Effective number of replications behind the new forecast."""
        return posterior.effective(self.weights)


def reforecast(
    plan: Plan, old: Replications, actuals: Actuals, progress: Callable[[str], None] = lambda _: None
) -> Forecast:
    """Return the forecast before and after the months seen; ``old`` are the study's own replications."""
    used, unused = _informing(plan.seen, old, actuals)
    if not used or not old.scores.shape[1]:
        equal = np.full(len(old.scores), 1.0 / len(old.scores))
        return Forecast(old=old, new=old, weights=equal, rounds=0, used=(), unused=unused)
    summary = _Summary(plan.seen, used, old, actuals)
    seen_all, drawn = old, old
    around = drawn_from = posterior.prior(old.scores.shape[1])
    for turn in range(_MOST_ROUNDS + 1):
        local = posterior.local_weights(seen_all.scores, around) if turn else np.ones(len(seen_all.scores))
        model = posterior.fit_linear(seen_all.scores, summary.figures(seen_all.monthly), local)
        weights = posterior.importance_weights(drawn.scores, model, summary.target, drawn_from)
        if posterior.effective(weights) >= FEWEST_EFFECTIVE * len(weights) or turn == _MOST_ROUNDS:
            break
        around = model.posterior(summary.target)
        drawn_from = posterior.widened(around)
        progress(f"drawing near what was seen, round {turn + 1}")
        drawn = plan.run(_design(plan, drawn_from, len(old.scores), turn + 1), len(old.scores))
        seen_all = Replications(
            **{
                name: np.concatenate([getattr(seen_all, name), getattr(drawn, name)])
                for name in ("scores", "inputs", "monthly")
            }
        )
    return Forecast(old=old, new=drawn, weights=weights, rounds=turn, used=used, unused=unused)


def _design(plan: Plan, drawn_from: posterior.Normal, rows: int, turn: int) -> Listed:
    """Return new points near what was seen, each with a chance that no replication before had."""
    from scipy.special import ndtr  # noqa: PLC0415 - as above

    sequence = np.random.SeedSequence(plan.prepared.seed, spawn_key=(2**31 + 2, turn))
    scores = drawn_from.drawn(np.random.Generator(np.random.PCG64(sequence)), rows)
    return Listed(listed=np.asarray(ndtr(scores), dtype=np.float64), first_chance=rows * turn)


def _informing(seen: Sequence[Seen], old: Replications, actuals: Actuals) -> tuple[tuple[Seen, ...], dict[Seen, str]]:
    """Return the series that say something about the inputs, and why others do not."""
    unused: dict[Seen, str] = {}
    from_metrics = any(file.kind == "vllm" for file in actuals.mapping.files.values())
    count = len(actuals.months)
    for series, happened in actuals.series.items():
        runs = old.monthly[:, seen.index(series), :count]
        both = np.isfinite(happened) & np.isfinite(runs).all(axis=0)
        if series.name in actuals.mapping.leave_out:
            unused[series] = "left out in the mapping"
        elif from_metrics and series.name == "slo_attainment_fraction":
            unused[series] = "vLLM does not count what was refused"
        elif series.kind == "account" and (
            Account(series.name) in DATED_ACCOUNTS or View.ACCRUAL not in Account(series.name).views
        ):
            unused[series] = "bought on a date, or no accrued cost"
        elif not both.any():
            unused[series] = "no month has it in plan and actuals"
        else:
            total, error = happened[both].sum(), actuals.error_fraction(series)
            sums = runs[:, both].sum(axis=1)
            room = 3.0 * error * abs(total)
            if np.ptp(sums) <= 1e-9 * abs(sums).max() + 1e-12:
                unused[series] = "the same in every replication"
            elif series.kind == "account" and not sums.min() - room <= total <= sums.max() + room:
                # A price that the study holds for certain is wrong: no input may be bent to make up for it.
                unused[series] = "outside every replication: no uncertain input explains it"
    return tuple(series for series in actuals.series if series not in unused), unused


class _Summary:
    """The figures by which replications are held against what was seen: a mean and a trend of each series."""

    def __init__(self, seen: Sequence[Seen], used: Sequence[Seen], old: Replications, actuals: Actuals) -> None:
        self.places = [seen.index(series) for series in used]
        self.months = len(actuals.months)
        happened = np.stack([actuals.series[series] for series in used])
        runs = old.monthly[:, self.places, : self.months]
        self.known = np.isfinite(happened) & np.isfinite(runs).all(axis=0)
        """Months that count, shape (series, months)."""
        self.weights = _mean_and_trend(self.known)
        self.keep = (self.weights != 0).any(axis=2)
        both = np.where(self.known, np.concatenate([happened[None], runs]), np.inf)
        least = both.min(axis=(0, 2))
        self.floor = np.where(least > 0, 1e-3 * least, np.nan)
        """Below which a later run's logarithm is not followed, shape (series,); NaN for a series not in logarithms."""
        error = np.array([actuals.error_fraction(series) for series in used])
        size = np.abs(np.where(self.known, happened, 0.0)).sum(axis=1) / self.known.sum(axis=1)
        sd = np.where(least > 0, error, error * size)
        variance = sd[:, None] ** 2 * (self.weights**2).sum(axis=2)
        variance[:, 0] += sd**2
        self.target = posterior.Target(
            figures=self._figures(happened[None])[0], error_variance=np.maximum(variance[self.keep], 1e-12)
        )

    def figures(self, monthly: Floats) -> Floats:
        """Return the figures of replications, shape (rows, figures)."""
        return self._figures(monthly[:, self.places, : self.months])

    def _figures(self, values: Floats) -> Floats:
        """Return mean and trend of series of shape (rows, series, months), those that say nothing left out."""
        safe, floor = np.where(self.known, values, 1.0), self.floor[:, None]
        safe = np.where(np.isnan(floor), safe, np.log(np.fmax(safe, np.nan_to_num(floor, nan=1.0))))
        figures: Floats = np.einsum("rsm,skm->rsk", safe, self.weights)[:, self.keep]
        return figures


def _mean_and_trend(known: Bools) -> Floats:
    """Return what each month counts in a series' mean and trend, shape (series, 2, months)."""
    weights = np.zeros((len(known), 2, known.shape[1]))
    for place, row in enumerate(known):
        months = np.flatnonzero(row)
        weights[place, 0, months] = 1.0 / len(months)
        if half := len(months) // 2:
            weights[place, 1, months[:half]], weights[place, 1, months[-half:]] = -1.0 / half, 1.0 / half
    return weights
