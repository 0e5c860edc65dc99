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
from dataclasses import field

import numpy as np

from planner.arrays import Floats
from planner.finance.accounting.measures import Figures, measures, revenue_usd, series_of, service
from planner.finance.measure_names import DRAWS
from planner.parallel import Begun
from planner.records import record
from planner.run.simulate import RunResult, simulate_plan

_TAIL_FRACTION = 0.05
"""Left out on either side, where there are replications enough."""


@record
class Interval:
    """Prediction interval of a figure in a further replication."""

    low: float
    high: float


@record
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
        ranks = self.number + 1
        return (ranks - 2 * _place(self.number)) / ranks

    @property
    def words(self) -> str:
        """The coverage of an interval in words, for a sentence."""
        if self.number == DRAWS:
            return "nine of ten replications"
        return f"{self.coverage_fraction:.0%} of replications"

    def interval(self, name: str) -> Interval | None:
        """Return a figure's interval; None where a replication lacks the figure, or there is only one."""
        return interval_of([figures[name] for figures in self.figures])

    def difference(self, name: str, base: Replications) -> Interval | None:
        """Return the interval of a figure less another plan's, paired by replication."""
        differences: list[float | None] = []
        for figure, base_figure in self._pairs(name, base):
            if figure is None or base_figure is None:
                differences.append(None)
            else:
                differences.append(figure - base_figure)
        return interval_of(differences)

    def saving(self, name: str, base: Replications) -> Interval | None:
        """Return the interval of 1 − figure / the other plan's figure, paired by replication."""
        savings: list[float | None] = []
        for figure, base_figure in self._pairs(name, base):
            # Of a figure that is zero nothing can be saved.
            if figure is None or not base_figure:
                savings.append(None)
            else:
                savings.append(1.0 - figure / base_figure)
        return interval_of(savings)

    def _pairs(self, name: str, base: Replications) -> list[tuple[float | None, float | None]]:
        """Return a figure of this plan and of another, by replication."""
        # Both plans meet the same failures and demand in a replication, so what they share cancels.
        replications = zip(self.figures, base.figures, strict=True)
        return [(figures[name], base_figures[name]) for figures, base_figures in replications]


def _place(replications: int) -> int:
    """Return r: the r-th lowest and the r-th highest value bound the interval."""
    # A hair above, so that 19 + 1 replications at a twentieth are one and not just below.
    return max(1, int((replications + 1) * _TAIL_FRACTION + 1e-9))


def interval_of(values: Sequence[float | None]) -> Interval | None:
    """Return the prediction interval from order statistics; None for fewer than two values, or where one is missing."""
    figures = sorted(value for value in values if value is not None)
    # A figure that one replication lacks has no order among the others.
    if len(figures) < 2 or len(figures) < len(values):
        return None
    place = _place(len(figures))
    low = figures[place - 1]
    return Interval(low=low, high=figures[-place])


def ends_of(interval: Interval | None) -> tuple[float | None, float | None]:
    """Return both ends of an interval, or None for both."""
    if interval is None:
        return None, None
    return interval.low, interval.high


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


ReplicationFigures = tuple[Figures, dict[str, Floats], Sequence[int]]
"""A replication's figures, its monthly series and the months that miss the SLO target."""
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

    def figures_and_months(result: RunResult) -> ReplicationFigures:
        return figures_of(result), months_of(result), result.slo_result().missed_months

    def replicate(replication: int) -> ReplicationFigures:
        return figures_and_months(draw(replication))

    tasks = [functools.partial(replicate, replication) for replication in further]
    with Begun(tasks, workers, ahead=DRAWS) as replicas:

        def collect(result: RunResult, is_enough: IsEnough) -> Replications:
            collected = [figures_and_months(result)]
            for replication in replicas.results():
                collected.append(replication)
                if is_enough([figures for figures, *_ in collected]):
                    break
            figures, months, missed_months = zip(*collected, strict=True)
            monthly = {}
            for name in months[0]:
                by_replication = [series[name] for series in months]
                monthly[name] = np.stack(by_replication)
            return Replications(figures=figures, monthly=monthly, missed_months=missed_months)

        yield collect


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
    # In this process alone where the user's own code runs.
    with drawing(draw, further, 1 if result.processes else workers) as collect:
        return collect(result, is_enough)
