"""Running a design to its end: missing rows are run and stored, and the study may stop early."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from planner.arrays import Floats
from planner.errors import ScenarioError
from planner.plan.attainment import Verdict
from planner.records import record
from planner.studies.decision import (
    IntervalEstimate,
    Targeted,
    mean_estimate,
    of_simulations,
    percentile_estimate,
    share_estimate,
    standings,
)
from planner.studies.designs import Integers, MonteCarlo
from planner.studies.engines import PIECE, Crew, Workforce, replicators
from planner.studies.replicate import Replicator, objective_names
from planner.studies.sensitivity import outputs_to_explain
from planner.studies.store import Store

EVALUATIONS_PER_BATCH = 16
"""Runs in one batch: about half a second, so that sending and storing cost little."""
_FEWEST_PER_SCRAMBLING = 32
"""Rows per randomisation before a study may end: the spread of fewer is not to be trusted."""
SIMULATION_WORK = 8.0
"""Work of a simulation over that of counting its money, on the reference plan: 125 ms and 15."""
_LARGEST_ERROR_RATIO = 1.25
"""A standard error with nested draws over that of as many simulations, at most."""
_LOOK_EVERY = 16
"""Rows per randomisation between two looks at the interval; looks are at fixed places, whoever
finishes first."""
_LOOK_SHARE = 0.05
"""Share of the rows so far between two looks, where that is more: so the looks of a long study cost
little."""
PRECISION = "mean=0.5%, p10=2%, p90=2%, slo=4%"
"""When a study ends that states neither replications nor a rule: most questions are answered by then."""
_UNTIL = re.compile(r"(?:(mean|best|slo|p(\d{1,2}(?:\.\d+)?))\s*=)?\s*([0-9.eE+-]+)\s*(%?)")
"""Figure, percentile, number and percent sign of a stopping rule."""


class Until(NamedTuple):
    """A stopping rule: a figure, and the width that its 95% interval must reach."""

    share: float
    """Half width of the interval: of the mean or a percentile as a share of it, of a probability as it is."""
    figure: str = "mean"
    """``mean`` or a percentile such as ``p90`` of the first scenario's headline; ``best``: P(best) of the likeliest;
    ``slo``: P(SLO met) of the scenario whose verdict is furthest from given."""

    @classmethod
    def read(cls, text: str) -> tuple[Until, ...]:
        """Read ``0.5%``, ``0.005``, ``p90=2%``, or several with commas between, all of which must hold."""
        return tuple(cls._read_one(rule.strip()) for rule in text.split(","))

    @classmethod
    def _read_one(cls, text: str) -> Until:
        if rule := _UNTIL.fullmatch(text):
            figure, percentile, number, percent = rule.groups()
            # The pattern lets through numbers such as 1e, which float() refuses.
            with contextlib.suppress(ValueError):
                share = float(number) / (100.0 if percent else 1.0)
                is_share = 0.0 < share < 1.0
                is_percentile = percentile is None or float(percentile) > 0.0
                if is_share and is_percentile:
                    return cls(share, figure or "mean")
        raise ScenarioError(
            f"--until takes a share such as 0.5%, p90=2%, best=1% or slo=4%, not {text!r}"
        )

    @property
    def words(self) -> str:
        """The figure's name for use in a sentence."""
        by_figure = {"mean": "the mean", "best": "P(best)", "slo": "P(SLO met)"}
        return by_figure.get(self.figure, self.figure.upper())

    def width(self, estimate: IntervalEstimate) -> float:
        """Return the half width that is compared with the limit."""
        if self.figure in ("best", "slo"):
            return estimate.half_width
        return estimate.relative


class Reached(NamedTuple):
    """A stopping rule and the half width that its figure's interval has."""

    until: Until
    half_width: float

    @property
    def excess(self) -> float:
        """Half width over that which ends the study; infinity where the interval is not known yet."""
        is_known = math.isfinite(self.half_width)
        return self.half_width / self.until.share if is_known else math.inf

    @property
    def words(self) -> str:
        """How wide the interval is, and how wide it may be."""
        now = f"±{self.half_width:.2%}" if math.isfinite(self.half_width) else "not known"
        return f"{self.until.words} {now}, to be ±{self.until.share:.2%}"


@record
class Goal:
    """The number of rows of a study, and its stopping rules."""

    rows: int
    objective: str
    scramblings: int = 1
    until: tuple[Until, ...] = ()
    """When the study may end early, all of them together; none: run all rows."""
    targeted: tuple[Targeted, ...] = ()
    """Each scenario and its SLO target: P(best) counts among those that meet it."""
    lower_is_better: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the outputs that the stopping rules read."""
        # What is best is chosen among those that meet their target, so it needs that too.
        if any(until.figure in ("best", "slo") for until in self.until):
            return (self.objective, "slo_shortfall_fraction", "slo_met_months")
        return (self.objective,)

    def reached(self, columns: Sequence[Floats], replications: Integers) -> list[Reached]:
        """Return how far each stopping rule is, from the outputs that ``columns`` names."""
        return [
            Reached(until, until.width(self.estimate(until, columns, replications)))
            for until in self.until
        ]

    def estimate(
        self, until: Until, columns: Sequence[Floats], replications: Integers
    ) -> IntervalEstimate:
        """Return the figure of a stopping rule and its interval."""
        figure = until.figure
        # The first scenario of the first column: its headline.
        headline = columns[0][0]
        if figure == "mean":
            return mean_estimate(headline, self.scramblings)
        if figure not in ("best", "slo"):
            percentile = float(figure.removeprefix("p"))
            return percentile_estimate(headline, self.scramblings, percentile)
        if figure == "slo":
            shortfalls = of_simulations(columns[1], replications)
            open_verdicts = self._open_verdicts(shortfalls)
            given = IntervalEstimate(value=np.nan, half_width=0.0)
            return max(open_verdicts, key=lambda estimate: estimate.half_width, default=given)
        scenarios = standings(
            columns, self.targeted, self.scramblings, lower_is_better=self.lower_is_better
        )
        # A scenario that misses its target has no share; where all do, nothing is estimated.
        shares = [standing.best_fraction for standing in scenarios if standing.may_meet]
        nothing = IntervalEstimate(value=np.nan)
        return max(shares, key=lambda estimate: estimate.value, default=nothing)

    def _open_verdicts(self, shortfalls: Floats) -> Iterator[IntervalEstimate]:
        """Yield P(SLO met) of each scenario whose verdict is not given yet."""
        for shortfall, target in zip(shortfalls, self.targeted, strict=True):
            is_met = np.where(np.isnan(shortfall), np.nan, shortfall == 0.0)
            met = int(np.nansum(is_met))
            completed = int(np.isfinite(is_met).sum())
            if Verdict(met, completed, target.confidence).status == "INCONCLUSIVE":
                yield share_estimate(is_met, self.scramblings)


class Progress(NamedTuple):
    """Progress of a study."""

    done: int
    total: int
    """Rows asked for, or about as many as the stopping rules will take."""
    interval: IntervalEstimate | None
    """The headline's mean, over the rows finished without a gap."""
    furthest: Reached | None = None
    """The stopping rule that is furthest from reached."""


Watch = Callable[[Progress], None]


def batch_size(scenarios: int, period: int = 1) -> int:
    """Return the number of rows in a batch: a power of two of a design's periods, whose rows share simulations."""
    # A power of two: so batches of any size end where those of a smaller one do.
    periods = EVALUATIONS_PER_BATCH // (scenarios * period)
    doublings = max(0, periods.bit_length() - 1)
    return period << doublings


def money_share(money: Floats, objective: Floats) -> float:
    """Return the least share of variance that money explains of any scenario's objective, or of their differences.

    Adjusted R² of a linear fit on the rows, 1 − (SS_res / (n − 1 − p)) / (SS_tot / (n − 1)) (Ezekiel
    1930); ``money`` has shape (rows, inputs), ``objective`` (rows, scenarios). What money does
    together with other inputs counts as theirs, so the share is rather too low.
    """
    sound = np.isfinite(objective).all(axis=1)
    rows = int(sound.sum())
    names = ("",) * objective.shape[1]
    explained = outputs_to_explain(names, objective[sound])
    outputs = [figures for *_, figures in explained]
    # Scenarios that differ in nothing have no variance to explain.
    varying = [figures for figures in outputs if figures.size and np.ptp(figures) > 0.0]
    degrees = rows - 1 - money.shape[1]
    # With as many inputs as rows any output is explained.
    if degrees <= 0 or not varying:
        return 0.0
    centred = [figures - figures.mean() for figures in varying]
    output = np.array(centred)
    sound_money = money[sound]
    basis = sound_money - sound_money.mean(axis=0)
    fit, *_ = np.linalg.lstsq(basis, output.T, rcond=None)
    residual = output.T - basis @ fit
    squares = (residual**2).sum(axis=0)
    total_squares = (output**2).sum(axis=1)
    unexplained = squares / degrees * (rows - 1) / total_squares
    return float(np.min(1.0 - unexplained))


def draws_for(share: float) -> int:
    """Return the number of money draws per simulation that tells most in a given time, by money's share f of variance.

    With σ² = 1 and c times the work in a simulation as in counting its money, n rows of k draws have the variance
    (f + (1 − f) k) / n and take n (c / k + 1): their product is least at k² = c f / (1 − f). The first is at most
    1.25² / n besides, so that no standard error of the mean is more than a quarter above that of n simulations.
    """
    # At a share of 1 the best number of draws would have no end.
    share = min(max(share, 0.0), 0.99)
    unshared = 1.0 - share
    cheapest = np.sqrt(SIMULATION_WORK * share / unshared)
    largest = (_LARGEST_ERROR_RATIO**2 - share) / unshared
    draws = int(min(cheapest, largest))
    return max(1, draws)


def _money_draws(store: Store, goal: Goal, pilot: int) -> tuple[tuple[int, ...], int]:
    """Return the inputs that are money alone and, by the rows of the pilot, their draws a simulation; note both."""
    inputs = store.setup.inputs.names
    money = Replicator(store.setup).redrawn()
    if not money:
        return (), 1
    store.flush()
    columns = [f"in:{inputs[place]}" for place in money]
    names = (*columns, f"out:{goal.objective}")
    table = pa.concat_tables(store.tables(0, pilot, names))
    stored_columns = [table.column(name) for name in names]
    stored = np.array(stored_columns)
    # By column, row and scenario; the objective is the last column.
    figures = stored.reshape(len(names), pilot, -1)
    # All scenarios of a row have the same inputs: those of one are enough.
    values = figures[:-1, :, 0]
    share = money_share(values.T, figures[-1])
    draws = draws_for(share)
    consequence = "every draw is simulated"
    if draws > 1:
        consequence = f"each simulation after the {pilot}th carries {draws} draws"
    counts = f"{len(money)} of {len(inputs)} inputs change only prices"
    store.notes.append(f"{counts} and explain {share:.0%} of the variance, so {consequence}")
    return money, draws


class _Looks:
    """Interim looks at the stopping rule, at fixed numbers of consecutive finished rows."""

    def __init__(self, goal: Goal, batch: int, least_rows: int = 0) -> None:
        """Set what is asked for; a study that has ``least_rows`` already ends with no fewer."""
        self.goal = goal
        self.batch = batch
        self._fewest = max(_FEWEST_PER_SCRAMBLING * goal.scramblings, least_rows)
        self.scenarios = 1
        # Only P(best) looks at more than the first scenario.
        if len(goal.columns) > 1:
            self.scenarios = len(goal.targeted)
        batches = -(-goal.rows // batch)
        self.rows = batches * batch
        """Rows in whole batches: what is run, though some at the end may not be asked for."""
        shape = (self.rows, len(goal.columns), self.scenarios)
        self.values = np.full(shape, np.nan)
        self.replications = np.zeros(self.rows, dtype=np.int64)
        """Of each row."""
        self.finished = np.zeros(batches, dtype=bool)
        """By batch."""
        self.interval: IntervalEstimate | None = None
        self.furthest: Reached | None = None
        self._end = 0
        """Rows finished without a gap."""
        self._looked = 0
        """Rows of the latest look."""

    def add(self, start: int, values: Floats, replications: Integers) -> None:
        """Add the outputs of consecutive rows, shape (rows, columns, scenarios), in whole batches."""
        stop = start + len(values)
        self.replications[start:stop] = replications
        # A batch beyond the rows asked for is run whole, and looked at as well.
        self.values[start:stop] = values[:, :, : self.scenarios]
        first_batch = start // self.batch
        # Rounded up: the last batch of a finished study may have been cut short.
        end_batch = -(-stop // self.batch)
        self.finished[first_batch:end_batch] = True

    def has(self, start: int, stop: int) -> bool:
        """Return whether a range of whole batches is finished."""
        first_batch = start // self.batch
        end_batch = stop // self.batch
        batches = self.finished[first_batch:end_batch]
        return bool(batches.all())

    def end(self) -> int | None:
        """Look once enough rows are finished; return the number of rows at which the study may end, or None."""
        # Each batch is passed once, so that a study of a million rows is not searched at each.
        while self._end < self.rows and self.finished[self._end // self.batch]:
            self._end += self.batch
        scramblings = self.goal.scramblings
        step = scramblings * _LOOK_EVERY
        while True:
            share_of_rows = _LOOK_SHARE * self._looked
            steps = max(1, int(share_of_rows / step))
            rows = self._looked + step * steps
            if rows > self._end:
                return None
            self._looked = rows
            # A look needs rows last, since estimates go along them.
            columns = list(self.values[:rows].transpose(1, 2, 0))
            self.interval = mean_estimate(columns[0][0], scramblings)
            if not self.goal.until:
                continue
            reached = self.goal.reached(columns, self.replications[:rows])
            self.furthest = max(reached, key=lambda one: one.excess)
            if rows >= self._fewest and self.furthest.excess <= 1.0:
                return rows

    def expected_rows(self) -> int:
        """Return about how many rows the study takes: a half width falls at least with the root of the rows."""
        if self.furthest is None or not math.isfinite(self.furthest.excess):
            return self.goal.rows
        rows = math.ceil(self._looked * self.furthest.excess**2)
        return min(self.goal.rows, max(rows, self._fewest))


def run_rows(store: Store, goal: Goal, force: Workforce, watch: Watch | None = None) -> int:
    """Run the missing rows of a design and consolidate the store; return the study's number of rows.

    The rows after a pilot wait for its end, since it says how they are drawn. With ``until``, the
    study ends at the first look where every interval is narrow enough: looks are at fixed numbers of
    rows, so the end does not depend on who ran what.
    """
    # Rows that were finished are never thrown away without a word.
    store.check_extends(goal.rows)
    looks = _Looks(goal, store.batch, store.rows)
    design = store.setup.design
    # Only Monte Carlo has a pilot; other designs are run in one go.
    pilot = looks.rows
    if isinstance(design, MonteCarlo):
        pilot = min(design.pilot, pilot)
    with contextlib.ExitStack() as stack:
        # Also where the study is interrupted: what is finished is on the disk.
        stack.callback(store.flush)

        @functools.cache
        def crew() -> Crew[Replicator]:
            """Return as many workers as the whole study can use, not its pilot; none before they are needed."""
            workers = replicators(store.setup, len(looks.finished), force)
            return stack.enter_context(contextlib.closing(workers))

        def run(start: int, stop: int, money: tuple[int, ...] = (), draws: int = 1) -> int | None:
            """Run what is missing of a range; return the number of rows at which the study may end, or None."""
            _add_stored(looks, store, start, stop)
            end = looks.end()
            missing = _missing(looks, store, start, stop, draws)
            pieces = [(*piece, money, draws) for piece in missing]
            if end is not None or not pieces:
                return end
            names = objective_names()
            columns = [names.index(name) for name in goal.columns]
            for _, rows in crew().unordered(Replicator.run, pieces, PIECE):
                store.write(rows)
                figures = rows.headlines[:, :, columns]
                looks.add(rows.start, figures.transpose(0, 2, 1), rows.replications)
                end = looks.end()
                if watch is not None:
                    batches = int(looks.finished.sum())
                    # The last batch may have more rows than were asked for.
                    finished_rows = min(batches * store.batch, goal.rows)
                    total = max(finished_rows, looks.expected_rows())
                    watch(Progress(finished_rows, total, looks.interval, looks.furthest))
                if end is not None:
                    break
            return end

        end = run(0, pilot)
        # A study that may end within its pilot needs no further draws.
        if end is None and pilot < looks.rows:
            money, draws = _money_draws(store, goal, pilot)
            end = run(pilot, looks.rows, money, draws)
    rows = goal.rows if end is None else end
    store.consolidate(rows)
    return rows


def _add_stored(looks: _Looks, store: Store, start: int, stop: int) -> None:
    """Show the looks what is stored of a range of rows."""
    names = tuple(f"out:{name}" for name in looks.goal.columns)
    scenarios = len(store.setup.scenarios)
    # The number of a row's simulation has the column's older name.
    for table in store.tables(start, stop, ("replication", "chance", *names)):
        columns = [table.column(name).to_numpy() for name in names]
        figures = [column.reshape(-1, scenarios) for column in columns]
        first_row = table.column("replication")[0].as_py()
        replications = table.column("chance").to_numpy()[::scenarios]
        looks.add(first_row, np.stack(figures, axis=1), replications)


def _missing(
    looks: _Looks, store: Store, start: int, stop: int, draws: int
) -> list[tuple[int, int]]:
    """Return the pieces of work in a range of rows that are not finished."""
    batch = store.batch
    size = batch
    # A simulation and all its draws are one piece of work.
    if draws > 1:
        size = math.lcm(looks.goal.scramblings * draws, batch)
    # A piece lies on one side of the border behind which rows have no months.
    detailed_batches = -(-store.setup.detailed_rows // batch)
    border = min(max(start, detailed_batches * batch), stop)
    edges = {*range(start, stop, size), border, stop}
    pieces = pairwise(sorted(edges))
    return [piece for piece in pieces if not looks.has(*piece)]
