"""A finished Monte Carlo study, read back: percentiles, bands, decisions, drivers. Nothing is simulated here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.finance.months import MonthGrid
from planner.run.measure_names import FLEET
from planner.studies.decision import ByScenario, Comparison, Standing, choice, decisions, standings, worth_of_knowing
from planner.studies.distributions import is_numeric
from planner.studies.headlines import HEADLINES, Output, headline_names, needed_by
from planner.studies.importance import flip, importance
from planner.studies.intervals import PERCENTILES, Estimate, mean_estimate, percentiles, spread_estimates
from planner.studies.prepare import Prepared
from planner.studies.runner import Goal
from planner.studies.store import Store
from planner.units import DOLLARS, MILLION, unit_of

PER_MILLION_TOKENS = unit_of("cost_per_million_tokens_usd")
MOST_DROPPED = 0.01
"""Share of replications that could not be run above which a study warns: a tail of one in a hundred is then gone."""
_AT_ONCE_BYTES = 128_000_000
"""Most memory that one pass over monthly figures, or one figure of all scenarios, takes."""


class Statistic(NamedTuple):
    """One statistic of one output of one scenario: a row of percentiles.csv."""

    scenario: str
    output: str
    statistic: str
    estimate: Estimate


class Band(NamedTuple):
    """One month of a monthly output of one scenario: a row of monthly_bands.csv."""

    scenario: str
    output: str
    cluster: str
    """One of its clusters, or the fleet."""
    month: str
    mean: float
    percentiles: tuple[float, ...]
    """At 5, 10, 50, 90 and 95%."""
    completed: int = 0
    """Replications behind them."""


class Driver(NamedTuple):
    """One measure of how the headline follows one input: a row of sensitivity.csv."""

    scenario: str
    against: str
    """Where not empty, what is followed is the headline less that of this scenario."""
    method: str
    input: str
    measure: str
    value: float
    low: float = float("nan")
    high: float = float("nan")


class Failure(NamedTuple):
    """A run that failed."""

    replication: int
    scenario: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finished:
    """A study that has been run."""

    prepared: Prepared
    store: Store
    rows: int

    def __repr__(self) -> str:
        return f"<Finished study {self.prepared.study.name}, {self.rows:,} replications>"

    @property
    def detailed(self) -> int:
        """Replications that were kept with their months, the first ones."""
        return min(self.rows, self.store.joined.detailed)

    def output(self, name: str, rows: int | None = None) -> Floats:
        """Return one headline output of the first rows, all unless given, shape (rows, scenarios)."""
        return self.store.joined.column(f"out:{name}", self.rows if rows is None else rows)

    def by_scenario(self, name: str) -> ByScenario:
        """Return one headline output, each scenario's of shape (rows,)."""
        read = _Read(self.store, f"out:{name}", self.rows)
        return self.output(name).T if 8 * self.rows * len(read) <= _AT_ONCE_BYTES else read

    def input(self, name: str, rows: int | None = None) -> Floats:
        """Return the values drawn for one input in the first rows, all unless given, shape (rows,)."""
        return self.store.joined.column(f"in:{name}", self.rows if rows is None else rows, which=0)

    def failures(self) -> list[Failure]:
        """Return the runs that failed."""
        names = self.prepared.names
        return [Failure(row, names[which], message) for row, which, message in self.store.joined.errors(self.rows)]

    def dropped(self) -> list[str]:
        """Say of each scenario how many replications could not be run, why, and what those have in common."""
        by_scenario: dict[str, list[Failure]] = {}
        for failure in self.failures():
            by_scenario.setdefault(failure.scenario, []).append(failure)
        return [line for name, failures in by_scenario.items() for line in self._dropped(name, failures)]

    def _dropped(self, scenario: str, failures: list[Failure]) -> Iterator[str]:
        share = len(failures) / self.rows
        yield (
            f"{len(failures):,} of {self.rows:,} replications of {scenario} could not be run ({share:.1%}) and are "
            f"left out of its figures; the first is replication {failures[0].replication}: {failures[0].message}"
        )
        kinds = Counter(re.sub(r"[0-9][0-9.,e+-]*", "#", failure.message) for failure in failures)
        (_, often), *others = kinds.most_common()
        if others:
            yield f"{often:,} of them fail in that or a like way, the others in {len(others)} more"
        failed = np.zeros(self.rows, dtype=bool)
        failed[[failure.replication for failure in failures]] = True
        dropped = [
            separation(drawn.name, self.input(drawn.name), failed)
            for drawn in self.prepared.inputs.entries
            if is_numeric(drawn.distribution)
        ]
        if (best := max((one for one in dropped if one is not None), default=None)) is not None:
            yield best.sentence

    def dropped_share(self) -> float:
        """Return the share of runs, of the scenario with most, that could not be run."""
        counts = Counter(failure.scenario for failure in self.failures())
        return max(counts.values(), default=0) / self.rows

    def interval(self, goal: Goal) -> Estimate:
        """Return the figure that ``--until`` looks at."""
        return goal.estimate([self.by_scenario(name) for name in goal.columns])

    def is_void(self) -> bool:
        """Say whether no run of any scenario succeeded."""
        costs = self.by_scenario("cost_usd")
        return not any(np.isfinite(costs[which]).any() for which in range(len(costs)))

    def statistics(self, names: Collection[str] = headline_names()) -> Iterator[Statistic]:
        """Yield mean, spread, percentiles and tail mean of outputs, every one unless named, of every scenario."""
        scramblings = self.prepared.study.scramblings
        for output in HEADLINES:
            figures: ByScenario = self.by_scenario(output.name) if output.name in names else np.empty((0, 0))
            for which in range(len(figures)):
                for statistic, figure in _spread_of(output, figures[which], scramblings):
                    yield Statistic(self.prepared.names[which], output.name, statistic, figure)

    def bands(self) -> Iterator[Band]:
        """Yield the monthly fans of every scenario and its clusters, some months at a time to bound memory.

        They are those of the replications that are kept in detail.
        """
        labels = month_labels(self.prepared)
        at_once = max(1, _AT_ONCE_BYTES // (8 * max(self.detailed, 1)))
        for output, cluster in self.store.setup.monthly:
            for which, base in enumerate(self.prepared.scenarios):
                if cluster != FLEET and cluster not in base.scenario.clusters:
                    continue
                for first in range(0, len(labels), at_once):
                    months = range(first, min(first + at_once, len(labels)))
                    table = self.store.joined.monthly(output, cluster, which, months)[: self.detailed]
                    for place, month in enumerate(months):
                        yield Band(base.name, output, cluster, labels[month], *_spread(table[:, place]))

    def decisions(self) -> list[Comparison]:
        """Return how the scenarios compare on the headline."""
        headline = self.prepared.headline
        return decisions(
            self.by_scenario(headline.name),
            self.prepared.names,
            self.prepared.study.scramblings,
            self._keeping(),
            lower_is_better=headline.lower_is_better,
        )

    def _keeping(self) -> list[int]:
        """Return the places of the scenarios that keep their promise: the choice is among these."""
        return [which for which, standing in enumerate(self.standings()) if standing.keeps_promise]

    def standings(self, every: int = 1, groups: int | None = None) -> list[Standing]:
        """Return how each scenario stands to its promise, over every so many rows in independent groups."""
        headline = self.prepared.headline
        names = (headline.name, "promise_shortfall_fraction", "promise_kept_months")
        columns = [self.by_scenario(name) if every == 1 else self.output(name)[::every].T for name in names]
        table, shortfalls, months = columns
        groups = self.prepared.study.scramblings if groups is None else groups
        return standings(
            table, (shortfalls, months), self.prepared.promised, groups, lower_is_better=headline.lower_is_better
        )

    def drivers(self) -> Iterator[Driver]:
        """Yield what drives each scenario's headline, and the first's headline less each other's.

        Measured on the replications that are kept in detail: on ten million it would take hours to tell no more.
        """
        table = self.output(self.prepared.headline.name, self.detailed)
        sound = np.isfinite(table).all(axis=1)
        table = table[sound]
        if len(table) < 2:
            return
        names = self.prepared.names
        followed = [(name, "", table[:, which]) for which, name in enumerate(names)]
        followed += [(names[0], other, table[:, 0] - table[:, which]) for which, other in enumerate(names[1:], start=1)]
        drivers: list[list[Driver]] = [[] for _ in followed]
        for drawn in self.prepared.inputs.entries:  # one at a time in memory
            values = self.input(drawn.name, self.detailed)[sound]
            for of_output, (scenario, against, output) in zip(drivers, followed, strict=True):
                of_output.extend(
                    _given_data(scenario, against, drawn.name, values, output, len(self.prepared.inputs.entries))
                )
                if against and is_numeric(drawn.distribution) and (at := flip(values, output)) is not None:
                    of_output.append(Driver(scenario, against, "flip", drawn.name, "threshold", at))
        for of_output in drivers:
            yield from of_output
        yield from self.information()

    def information(self) -> Iterator[Driver]:
        """Yield what knowing the throughput of each pair would be worth to the choice, largest first.

        The choice is among the scenarios that keep their promise: one that fails its users is cheaper for that alone.
        In dollars where the headline is money, times the tokens that the chosen scenario serves where it is money per
        token. What is known of a pair is the product of its own factor with those of its model and its part.
        """
        headline, keeping = self.prepared.headline, self._keeping()
        errors = {drawn.throughput_of: drawn.name for drawn in self.prepared.inputs.entries if drawn.throughput_of}
        table = self.output(headline.name, self.detailed)[:, keeping]
        if len(keeping) < 2 or not errors or not np.isfinite(table).all(axis=1).any():
            return
        chosen = keeping[choice(table, lower_is_better=headline.lower_is_better)]
        millions = float(np.nanmean(self.output("served_tokens", self.detailed)[:, chosen])) / MILLION
        usd = {DOLLARS: 1.0, PER_MILLION_TOKENS: millions}.get(headline.unit)
        scramblings, worths = self.prepared.study.scramblings, []
        for part, engine, model in errors:
            if not part or not model:
                continue
            terms = [errors.get(key) for key in ((part, engine, model), ("", engine, model), (part, engine, ""))]
            known = np.sum([np.log(self.input(name, self.detailed)) for name in terms if name], axis=0)
            worth = worth_of_knowing(known, table, scramblings, lower_is_better=headline.lower_is_better)
            factor, measure = (1.0, "worth") if usd is None else (usd, "worth_usd")
            ends = (max(0.0, worth.low * factor), max(0.0, worth.high * factor))
            pair, scenario = f"throughput.{part}.{engine}.{model}", self.prepared.names[chosen]
            worths.append(Driver(scenario, "", "information", pair, measure, worth.value * factor, *ends))
        yield from sorted(worths, key=lambda driver: -driver.value)

    def convergence(self) -> Iterator[tuple[str, int, Estimate]]:
        """Yield the headline's mean of every scenario by its name after more and more rows."""
        figures, scramblings = self.by_scenario(self.prepared.headline.name), self.prepared.study.scramblings
        ends = np.unique(np.geomspace(min(4 * scramblings, self.rows), self.rows, 24).astype(int)).tolist()
        for which, name in enumerate(self.prepared.names):
            column = figures[which]
            yield from ((name, end, mean_estimate(column[:end], scramblings)) for end in ends)


@dataclass(frozen=True, slots=True)
class _Read:
    """A column of a study too long to hold for all scenarios at once: each is read when it is asked for."""

    store: Store
    name: str
    rows: int

    def __len__(self) -> int:
        return len(self.store.setup.scenarios)

    def __getitem__(self, which: int) -> Floats:
        return self.store.joined.column(self.name, self.rows, which)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Separation:
    """How well one input tells the replications that failed from the others."""

    strength: float
    """|P(input of a failed one > input of another) − ½|: Mann and Whitney's statistic, 0 for none and ½ for full."""
    sentence: str


def separation(name: str, values: Floats, failed: Bools) -> Separation | None:
    """Return what an input says about the replications that failed; None where it says little (below 0.3)."""
    values_failed, others = values[failed], np.sort(values[~failed])
    if not values_failed.size or not others.size:
        return None
    below = np.searchsorted(others, values_failed, "left") + np.searchsorted(others, values_failed, "right")
    above = float(below.mean()) / (2.0 * others.size)
    if abs(above - 0.5) < 0.3:
        return None
    if above > 0.5:
        edge, word = float(np.percentile(values_failed, 5, method="lower")), "at least"
        among = float((others >= edge).mean())
    else:
        edge, word = float(np.percentile(values_failed, 95, method="higher")), "at most"
        among = float((others <= edge).mean())
    sentence = f"in 95% of them or more, {name} is {word} {edge:.4g}; so it is in {among:.0%} of the others"
    return Separation(strength=abs(above - 0.5), sentence=sentence)


def _spread_of(output: Output, rows: Floats, scramblings: int) -> list[tuple[str, Estimate]]:
    """Return the statistics of one output; none where nothing is sold, or nothing is there to hold it against."""
    if needed_by(output.name) and not np.isfinite(rows).any():
        return []
    return spread_estimates(rows, scramblings, upper=output.lower_is_better)


def _spread(rows: Floats) -> tuple[float, tuple[float, ...], int]:
    """Return the mean and the percentiles of replications, and how many could be run."""
    known = rows[np.isfinite(rows)]
    if known.size == 0:
        return np.nan, (np.nan,) * len(PERCENTILES), 0
    return float(known.mean()), tuple(percentiles(known, PERCENTILES)), known.size


def _given_data(
    scenario: str, against: str, name: str, values: Floats, output: Floats, inputs: int
) -> Iterator[Driver]:
    """Yield the measures that need no new runs."""
    shares = importance(values, output, inputs)
    measures = (
        ("conditional-mean", "swing", shares.swing, shares.conditional_low, shares.conditional_high),
        ("rank-correlation", "spearman", shares.rank_correlation, np.nan, np.nan),
        ("variance-share", "first_order", shares.variance_share, np.nan, np.nan),
        ("variance-share", "noise_level", shares.variance_noise, np.nan, np.nan),
        ("pawn", "median_distance", shares.pawn, np.nan, np.nan),
        ("pawn", "noise_level", shares.pawn_noise, np.nan, np.nan),
    )
    for method, measure, value, low, high in measures:
        yield Driver(scenario, against, method, name, measure, value, low, high)


def month_labels(prepared: Prepared) -> tuple[str, ...]:
    """Return the months the scenarios share, as 2026-01."""
    scenario = prepared.scenarios[0].scenario
    return MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months).labels


def first_broken_month(prepared: Prepared, standing: Standing) -> str | None:
    """Return the month in which a promise first breaks in too many replications; None where it is kept."""
    labels = month_labels(prepared)
    broken = standing.shortfall_fraction > 0 and standing.kept_months < len(labels)
    return labels[int(standing.kept_months)] if broken else None
