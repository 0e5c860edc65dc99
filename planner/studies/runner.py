"""Running a design to its end: missing rows are run and stored, and the study may stop early."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from planner.arrays import Floats
from planner.errors import ScenarioError
from planner.studies.decision import (
    IntervalEstimate,
    Targeted,
    mean_estimate,
    percentile_estimate,
    standings,
)
from planner.studies.designs import MonteCarlo
from planner.studies.engines import PIECE, Crew, Workforce, replicators
from planner.studies.replicate import Replicator, objective_names
from planner.studies.sensitivity import followed
from planner.studies.store import Store

EVALUATIONS_PER_BATCH = 16
"""Runs in one batch: about half a second, so that sending and storing cost little."""
_FEWEST_PER_SCRAMBLING = 32
SIMULATION_WORK = 8.0
"""Work of a simulation over that of counting its money, on the reference plan: 125 ms and 15."""
_CHECK_EVERY = 16
"""Rows per randomisation between two looks at the interval; looks are at fixed places, whoever finishes first."""
_LOOK_AGAIN = 0.05
"""Share of the rows so far between two looks, where that is more: so the looks of a long study cost little."""
_WRITTEN = re.compile(r"(?:(mean|best|p(\d{1,2}(?:\.\d+)?))\s*=)?\s*([0-9.eE+-]+)\s*(%?)")


class Until(NamedTuple):
    """The stopping rule: a figure, and the width that its 95% interval must reach."""

    share: float
    """Half width of the interval: of the mean or a percentile as a share of it, of a probability as it is."""
    figure: str = "mean"
    """``mean`` or a percentile such as ``p90`` of the first scenario's headline; ``best``: P(best) of the likeliest."""

    @classmethod
    def read(cls, text: str) -> Until:
        """Read ``0.5%``, ``0.005``, ``p90=2%`` or ``best=1%``."""
        written = _WRITTEN.fullmatch(text.strip())
        try:
            share = float(written[3]) / (100.0 if written[4] else 1.0) if written else 0.0
        except ValueError:
            share = 0.0
        if written is None or not 0.0 < share < 1.0 or (written[2] and float(written[2]) == 0.0):
            raise ScenarioError(
                f"--until takes a share such as 0.5%, p90=2% or best=1%, not {text!r}"
            )
        return cls(share, written[1] or "mean")

    def words(self) -> str:
        """Return the figure's name for use in a sentence."""
        return {"mean": "the mean", "best": "P(best)"}.get(self.figure, self.figure.upper())

    def width(self, reached: IntervalEstimate) -> float:
        """Return the half width that is compared with the limit."""
        return reached.half_width if self.figure == "best" else reached.relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The number of rows of a study, and its stopping rule."""

    rows: int
    objective: str
    scramblings: int = 1
    until: Until | None = None
    """When the study may end early; None: run all rows."""
    targeted: tuple[Targeted, ...] = ()
    """Each scenario and what it is held to: whom P(best) counts among."""
    lower_is_better: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the outputs that the stopping rule reads."""
        if self.until is not None and self.until.figure == "best":
            return (self.objective, "slo_shortfall_fraction", "slo_met_months")
        return (self.objective,)

    def estimate(self, columns: Sequence[Floats]) -> IntervalEstimate:
        """Return the figure of the stopping rule and its interval, from the outputs that ``columns`` names."""
        if self.until is None or self.until.figure == "mean":
            return mean_estimate(columns[0][0], self.scramblings)
        if self.until.figure != "best":
            return percentile_estimate(
                columns[0][0], self.scramblings, float(self.until.figure.removeprefix("p"))
            )
        judged = standings(
            columns, self.targeted, self.scramblings, lower_is_better=self.lower_is_better
        )
        known = [one.best_fraction for one in judged if one.may_meet]
        return max(known, key=lambda reached: reached.value, default=IntervalEstimate(value=np.nan))


class Progress(NamedTuple):
    """Progress of a study."""

    done: int
    total: int
    interval: IntervalEstimate | None
    """The figure that may end the study, the headline's mean unless stated, over the rows finished without a gap."""


Watch = Callable[[Progress], None]


def batch_size(scenarios: int, period: int = 1) -> int:
    """Return the number of rows in a batch: a power of two of a design's periods, whose rows share simulations."""
    return period << max(0, (EVALUATIONS_PER_BATCH // (scenarios * period)).bit_length() - 1)


def money_share(money: Floats, objective: Floats) -> float:
    """Return the least share of variance that money explains of any scenario's objective, or of their differences.

    Adjusted R² of a linear fit on the rows; ``money`` has shape (rows, inputs), ``objective`` (rows, scenarios). What
    money does together with other inputs counts as theirs, so the share is rather too low.
    """
    sound = np.isfinite(objective).all(axis=1)
    wanted = (figures for *_, figures in followed(("",) * objective.shape[1], objective[sound]))
    output = np.array(
        [figures - figures.mean() for figures in wanted if figures.size and np.ptp(figures) > 0.0]
    )
    free = int(sound.sum()) - 1 - money.shape[1]
    if free <= 0 or not len(output):
        return 0.0
    basis = money[sound] - money[sound].mean(axis=0)
    left = output.T - basis @ np.linalg.lstsq(basis, output.T, rcond=None)[0]
    return float(
        np.min(1.0 - (left**2).sum(axis=0) / free * (sound.sum() - 1) / (output**2).sum(axis=1))
    )


def draws_for(share: float) -> int:
    """Return the number of money draws per simulation that tells most in a given time, by money's share f of variance.

    With σ² = 1 and c times the work in a simulation as in counting its money, n rows of k draws have the variance
    (f + (1 − f) k) / n and take n (c / k + 1): their product is least at k² = c f / (1 − f). The first is at most
    1.25² / n besides, so that no standard error of the mean is more than a quarter above that of n simulations.
    """
    share = min(max(share, 0.0), 0.99)
    best = np.sqrt(SIMULATION_WORK * share / (1.0 - share))
    return max(1, int(min(best, (1.25**2 - share) / (1.0 - share))))


def _money(store: Store, goal: Goal, pilot: int) -> tuple[tuple[int, ...], int]:
    """Return the inputs that are money alone and, by the rows of the pilot, their draws a simulation; note both."""
    inputs = store.setup.inputs.names
    money = Replicator(store.setup).redrawn()
    if not money:
        return (), 1
    store.flush()
    names = ("replication", *(f"in:{inputs[place]}" for place in money), f"out:{goal.objective}")
    table = pa.concat_tables(store.tables(0, pilot, names))
    figures = np.array([table.column(name) for name in names[1:]]).reshape(
        len(money) + 1, pilot, -1
    )
    share = money_share(figures[:-1, :, 0].T, figures[-1])
    draws = draws_for(share)
    does = (
        f"each simulation after the {pilot}th carries {draws} draws"
        if draws > 1
        else "every one is simulated"
    )
    store.notes.append(
        f"{len(money)} of {len(inputs)} inputs move no machine: {share:.0%} of the variance, so {does}"
    )
    return money, draws


class _Looks:
    """Interim looks at the stopping rule, at fixed numbers of consecutive finished rows."""

    def __init__(self, goal: Goal, batch: int) -> None:
        self.goal = goal
        self.batch = batch
        # Only P(best) looks at more than the first scenario.
        self.scenarios = slice(0, len(goal.targeted) if len(goal.columns) > 1 else 1)
        self.values = np.full(
            (-(-goal.rows // batch) * batch, len(goal.columns), self.scenarios.stop), np.nan
        )
        self.known = np.zeros(len(self.values) // batch, dtype=bool)
        """By batch."""
        self._end = self._looked = 0
        self.interval: IntervalEstimate | None = None

    def add(self, first: int, values: Floats) -> None:
        """Add the outputs of consecutive rows, shape (rows, columns, scenarios), in whole batches."""
        last = first + len(values)
        self.values[first:last] = values[:, :, self.scenarios]
        self.known[first // self.batch : -(-last // self.batch)] = True

    def end(self) -> int | None:
        """Look once enough rows are finished; return the number of rows at which the study may end, or None."""
        while (
            self._end < len(self.values) and self.known[self._end // self.batch]
        ):  # each batch is passed once
            self._end += self.batch
        until = self.goal.until
        step = self.goal.scramblings * _CHECK_EVERY
        while (
            looked := self._looked + step * max(1, int(_LOOK_AGAIN * self._looked / step))
        ) <= self._end:
            self._looked = looked
            self.interval = self.goal.estimate(list(self.values[:looked].transpose(1, 2, 0)))
            enough = looked >= _FEWEST_PER_SCRAMBLING * self.goal.scramblings
            if until is not None and enough and until.width(self.interval) <= until.share:
                return looked
        return None


def run_rows(store: Store, goal: Goal, force: Workforce, watch: Watch | None = None) -> int:
    """Run the missing rows of a design and consolidate the store; return the study's number of rows.

    The rows after a pilot wait for its end, since it says how they are drawn. With ``until``, the study ends at the
    first look where the interval is narrow enough: looks are at fixed numbers of rows, so the end does not depend on
    who ran what.
    """
    store.check_extends(goal.rows)
    looks = _Looks(goal, store.batch)
    batch = store.batch
    end = None
    names = [f"out:{name}" for name in goal.columns]
    places = [objective_names().index(name) for name in goal.columns]
    total = len(looks.values)
    design = store.setup.design
    months = -(-store.setup.detailed_rows // batch) * batch
    pilot = min(design.pilot, total) if isinstance(design, MonteCarlo) else total
    with contextlib.ExitStack() as stack:
        stack.callback(store.flush)
        crew: Crew[Replicator] | None = None
        for begin, stop in ((0, pilot), (pilot, total)):
            if end is not None or begin == stop:
                break
            money, draws = _money(store, goal, pilot) if begin else ((), 1)
            for table in store.tables(begin, stop, ("replication", *names)):
                stored = [
                    table.column(name).to_numpy().reshape(-1, len(store.setup.scenarios))
                    for name in names
                ]
                looks.add(table.column("replication")[0].as_py(), np.stack(stored, axis=1))
            # A simulation and all its draws are one piece of work.
            size = math.lcm(goal.scramblings * draws, batch) if draws > 1 else batch
            end = looks.end()
            edges = sorted({*range(begin, stop, size), min(max(begin, months), stop), stop})
            missing = [
                piece
                for piece in pairwise(edges)
                if not looks.known[slice(*np.array(piece) // batch)].all()
            ]
            if end is not None or not missing:
                continue
            if crew is None:  # as many as the whole study can use
                crew = stack.enter_context(
                    contextlib.closing(replicators(store.setup, len(looks.known), force))
                )
            pieces = [(*piece, money, draws) for piece in missing]
            for _, part in crew.unordered(Replicator.run, pieces, PIECE):
                store.write(part)
                looks.add(part.first, part.headlines[:, :, places].transpose(0, 2, 1))
                end = looks.end()
                if watch is not None:
                    done = int(looks.known.sum()) * batch
                    watch(
                        Progress(
                            done=min(done, goal.rows), total=goal.rows, interval=looks.interval
                        )
                    )
                if end is not None:
                    break
    rows = goal.rows if end is None else end
    store.consolidate(rows)
    return rows
