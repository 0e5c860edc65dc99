"""Replications of a run: the same plan under other random numbers, and the ranges of its figures.

Inputs stay as stated; what differs between replications is traffic noise, failures, incidents and slips. The interval
is that of order statistics: of n replications and one more, the further one is as likely to take any place in the
order, so it lies between the r-th lowest and the r-th highest with probability (n + 1 − 2r) / (n + 1), whatever the
distribution. Of 19 replications, the lowest and the highest hold nine in ten.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.arrays import Floats
from planner.parallel import Begun
from planner.run.measure_names import DRAWS
from planner.run.measures import Figures, measures, revenue_usd, series_of, service
from planner.run.simulate import RunResult, simulate_plan

_BEYOND_FRACTION = 0.05  # left out on either side, where there are replications enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Prediction interval of a figure in a further replication."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replications:
    """The figures of several replications of one plan."""

    figures: tuple[Figures, ...]
    """How the plan served and its measures, draw by draw; the first is the run itself."""
    monthly: Mapping[str, Floats] = field(default_factory=dict)
    """Cost, tokens and, where they are sold, revenue by month, shape (replications, months) each."""
    missed_months: Sequence[Sequence[int]] = ()
    """Months that miss the SLO target, draw by draw."""

    @property
    def number(self) -> int:
        """Number of replications, including the run itself."""
        return len(self.figures)

    @property
    def coverage_fraction(self) -> float:
        """Probability that a further replication lies within an interval."""
        return (self.number + 1 - 2 * _place(self.number)) / (self.number + 1)

    @property
    def words(self) -> str:
        """The coverage of an interval in words, for a sentence."""
        return (
            "nine of ten replications"
            if self.number == DRAWS
            else f"{self.coverage_fraction:.0%} of replications"
        )

    def interval(self, name: str) -> Interval | None:
        """Return a figure's interval; None where a replication lacks the figure, or there is only one."""
        return interval_of([figures[name] for figures in self.figures])

    def difference(self, name: str, base: Replications) -> Interval | None:
        """Return the interval of a figure less another plan's, paired by replication."""
        return interval_of(
            [
                a - b if a is not None and b is not None else None
                for a, b in self._beside(name, base)
            ]
        )

    def saving(self, name: str, base: Replications) -> Interval | None:
        """Return the interval of 1 − figure / the other plan's figure, paired by replication."""
        return interval_of(
            [1.0 - a / b if a is not None and b else None for a, b in self._beside(name, base)]
        )

    def _beside(self, name: str, base: Replications) -> list[tuple[float | None, float | None]]:
        """Return a figure of this plan and of another, by replication."""
        return [
            (ours[name], other[name])
            for ours, other in zip(self.figures, base.figures, strict=True)
        ]


def _place(replications: int) -> int:
    """Return r: the r-th lowest and the r-th highest value bound the interval."""
    return max(1, int((replications + 1) * _BEYOND_FRACTION + 1e-9))


def interval_of(values: Sequence[float | None]) -> Interval | None:
    """Return the prediction interval from order statistics; None for fewer than two values, or where one is missing."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2 or len(known) < len(values):
        return None
    place = _place(len(known))
    return Interval(low=known[place - 1], high=known[-place])


def ends_of(interval: Interval | None) -> tuple[float | None, float | None]:
    """Return both ends of an interval, or None for both."""
    return (None, None) if interval is None else (interval.low, interval.high)


def figures_of(result: RunResult) -> Figures:
    """Return the service figures and the measures of a run."""
    return {**service(result), **measures(result)}


def months_of(result: RunResult) -> dict[str, Floats]:
    """Return a run's monthly cost, tokens and, where it sells, revenue, shape (months,) each."""
    series = series_of(result)
    months = {"cost_usd": series.accrued_usd, "served_tokens": series.tokens}
    if result.plan.money.market.token_price is not None:
        months["revenue_usd"] = revenue_usd(result)[:, -1]
    return months


IsEnough = Callable[[Sequence[Figures]], bool]
"""Says after each replication, in order, whether those so far are enough."""


@contextlib.contextmanager
def drawing(
    draw: Callable[[int], RunResult], further: Iterable[int], workers: int | None = None
) -> Iterator[Callable[[RunResult, IsEnough], Replications]]:
    """Start further replications of a plan in forks; the yielded function waits for their results.

    It takes the run itself, which is the first draw, and when to stop. Forks of this process share the work,
    ``workers`` with it, where there are cores for them: what is done here before that function is called, is done while
    they draw. Results are looked at in the order of the replications, so who is first to finish changes nothing.
    """

    def drawn(result: RunResult) -> tuple[Figures, dict[str, Floats], Sequence[int]]:
        return figures_of(result), months_of(result), result.slo_result().missed_months

    def again(replication: int) -> tuple[Figures, dict[str, Floats], Sequence[int]]:
        return drawn(draw(replication))

    with Begun(
        [functools.partial(again, replication) for replication in further], workers, ahead=DRAWS
    ) as others:

        def together(result: RunResult, is_enough: IsEnough) -> Replications:
            made = [drawn(result)]
            for one in others.results():
                made.append(one)
                if is_enough([figures for figures, *_ in made]):
                    break
            figures, months, missed = zip(*made, strict=True)
            monthly = {name: np.stack([by[name] for by in months]) for name in months[0]}
            return Replications(figures=figures, monthly=monthly, missed_months=missed)

        yield together


def draw_again(
    result: RunResult,
    replications: int = DRAWS,
    is_enough: IsEnough = lambda _: False,
    workers: int | None = None,
) -> Replications:
    """Run further replications of a result's plan, up to ``replications`` or until there are enough.

    A process of the user's own may count or print, so that is run here, one after another.
    """
    draw = functools.partial(
        simulate_plan, result.scenario, result.plan, result.seed, processes=result.processes
    )
    further = range(result.replication + 1, result.replication + replications)
    with drawing(draw, further, 1 if result.processes else workers) as together:
        return together(result, is_enough)
