"""Analysis of a finished Monte Carlo study: percentiles, bands, decisions and drivers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.finance.months import MonthGrid
from planner.plan.attainment import CEILINGS, past_mending
from planner.studies import decision
from planner.studies.decision import PERCENTILES, IntervalEstimate, PairwiseDecision, SloStanding
from planner.studies.designs import Design, Integers, MonteCarlo
from planner.studies.distributions import is_numeric
from planner.studies.prepare import Prepared
from planner.studies.replicate import HEADLINES, needed_by, objective_names
from planner.studies.runner import batch_size
from planner.studies.sensitivity import Driver, flip, importance, outputs_to_explain
from planner.studies.store import Store, identity

MOST_DROPPED = 0.01
"""Share of replications that could not be run above which a study warns: a tail of one in a hundred is then gone."""


ABOVE_ZERO = "above_zero"
"""The statistic of NPV that is the share of replications in which it is positive."""


class Statistic(NamedTuple):
    """One statistic of one output of one scenario: a row of percentiles.csv."""

    scenario: str
    output: str
    statistic: str
    estimate: IntervalEstimate


class Failure(NamedTuple):
    """A run that failed."""

    replication: int
    scenario: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finished:
    """A finished study: its definition, its store and its number of rows."""

    prepared: Prepared
    store: Store
    rows: int

    def __repr__(self) -> str:
        return f"<Finished study {self.prepared.study.name}, {self.rows:,} replications>"

    @property
    def detailed(self) -> int:
        """Number of replications stored with monthly figures, which are the first ones."""
        return min(self.rows, self.store.detailed)

    def output(self, name: str, rows: int | None = None) -> Floats:
        """Return one headline output of the first rows (all by default), shape (rows, scenarios)."""
        row_count = self.rows if rows is None else rows
        return self.store.column(f"out:{name}", row_count)

    def by_scenario(self, name: str) -> Floats:
        """Return one headline output, shape (scenarios, rows)."""
        return self.output(name).T

    def input(self, name: str, rows: int | None = None) -> Floats:
        """Return the drawn values of one input in the first rows (all by default), shape (rows,)."""
        row_count = self.rows if rows is None else rows
        # An input is the same for all scenarios of a row: the first one's column says it.
        values = self.store.column(f"in:{name}", row_count)
        return values[:, 0]

    @property
    def replications(self) -> Integers:
        """Number of the simulation behind each row, shape (rows,): nested rows share theirs."""
        # The column keeps its older name, so that stored studies can still be read.
        numbers = self.store.column("chance", self.rows)
        return numbers[:, 0].astype(np.int64)

    def simulated(self, rows: int | None = None) -> Ints:
        """Return the places of the rows with a simulation of their own, among the first (all by default)."""
        # Of rows with one number, ``np.unique`` gives the place of the earliest.
        _, places = np.unique(self.replications[:rows], return_index=True)
        return places

    @property
    def driven(self) -> Ints:
        """Places of the rows that sensitivities are measured on: simulated, in detail, and no scenario failed."""
        # Rows that share a simulation are no independent draws of what machines do.
        simulated = self.simulated(self.detailed)
        objective = self.output(self.prepared.objective.name, self.detailed)
        is_sound = np.isfinite(objective[simulated]).all(axis=1)
        return simulated[is_sound]

    def failures(self) -> list[Failure]:
        """Return the runs that failed."""
        stored = self.store.failures(self.rows)
        return [Failure(*failure) for failure in stored]

    def dropped(self) -> list[str]:
        """Return a message per scenario on its failed replications: how many, and why the first."""
        by_scenario: dict[str, list[Failure]] = {}
        for failure in self.failures():
            by_scenario.setdefault(failure.scenario, []).append(failure)
        return [
            f"{len(failures):,} of {self.rows:,} replications of {scenario} could not be run "
            f"({len(failures) / self.rows:.1%}) and are left out of its figures; the first is replication "
            f"{failures[0].replication}: {failures[0].message}"
            for scenario, failures in by_scenario.items()
        ]

    def statistics(self, names: Collection[str] = objective_names()) -> Iterator[Statistic]:
        """Yield mean, spread, percentiles and tail mean of the named outputs (default all) of every scenario."""
        scramblings = self.prepared.study.scramblings
        for output in HEADLINES:
            if output.name not in names:
                continue
            by_scenario = self.by_scenario(output.name)
            for scenario, figures in zip(self.prepared.names, by_scenario, strict=True):
                is_optional = bool(needed_by(output.name))
                if is_optional and not np.isfinite(figures).any():
                    continue  # nothing is sold, or there is no baseline to compare with
                spread = decision.spread_estimates(
                    figures, scramblings, upper=output.lower_is_better
                )
                for statistic, estimate in spread:
                    yield Statistic(scenario, output.name, statistic, estimate)
        if "npv_usd" in names:
            yield from self._gains()

    def _gains(self) -> Iterator[Statistic]:
        """Yield the share of replications with a positive NPV, of each scenario that sells tokens."""
        plans = zip(
            self.prepared.names,
            self.by_scenario("npv_usd"),
            self.by_scenario("revenue_usd"),
            strict=True,
        )
        for scenario, npv_usd, revenue_usd in plans:
            # What sells nothing is worth less than nothing in all of them.
            if np.isfinite(revenue_usd).any():
                gains = np.where(np.isnan(npv_usd), np.nan, npv_usd > 0.0)
                share = decision.share_estimate(gains, self.prepared.study.scramblings)
                yield Statistic(scenario, "npv_usd", ABOVE_ZERO, share)

    def bands(self) -> Iterator[tuple[Any, ...]]:
        """Yield percentiles by month of every scenario's fleet, from detailed replications."""
        labels = month_labels(self.prepared)
        for output, cluster in self.store.setup.monthly:
            for place, base in enumerate(self.prepared.scenarios):
                months = self.store.monthly(output, cluster, place)
                detailed = months[: self.detailed]
                for label, figures in zip(labels, detailed.T, strict=True):
                    finite = figures[np.isfinite(figures)]
                    mean = np.nan
                    spread = [np.nan] * len(PERCENTILES)
                    # A month in which every replication failed keeps its row, with empty cells.
                    if finite.size:
                        mean = float(finite.mean())
                        spread = decision.percentiles(finite, PERCENTILES)
                    yield (base.name, output, label, mean, *spread, finite.size)

    def decisions(self) -> list[PairwiseDecision]:
        """Return the pairwise comparisons of the scenarios on the objective."""
        objective = self.prepared.objective
        return decision.decisions(
            self.by_scenario(objective.name),
            self.prepared.names,
            self.prepared.study.scramblings,
            self._eligible(),
            lower_is_better=objective.lower_is_better,
        )

    def _eligible(self) -> list[int]:
        """Return the places of the scenarios that meet their SLO target: the choice is among these."""
        standings = enumerate(self.standings())
        return [place for place, standing in standings if standing.may_meet]

    def standings(self, step: int = 1, groups: int | None = None) -> list[SloStanding]:
        """Return each scenario's result against its SLO target, from every ``step``-th row."""
        objective = self.prepared.objective
        replications = self.replications[::step]

        def service(name: str) -> Floats:
            """Return a figure that no money moves, once for each simulation, shape (scenarios, rows)."""
            figures = self.output(name)[::step]
            return decision.of_simulations(figures.T, replications)

        if groups is None:
            groups = self.prepared.study.scramblings
        costs = self.output(objective.name)[::step]
        standings = decision.standings(
            [costs.T, service("slo_shortfall_fraction"), service("slo_met_months")],
            self.prepared.targeted,
            groups,
            lower_is_better=objective.lower_is_better,
        )
        # Ceilings tell replications that more nodes would save from those that nothing would.
        by_ceiling = [service(name) for name in CEILINGS]
        ceilings = np.stack(by_ceiling, axis=1)
        attainments = [target.attainment for target in self.prepared.targeted]
        causes = map(past_mending, ceilings, attainments)
        return [
            standing._replace(past_mending=by_cause)
            for standing, by_cause in zip(standings, causes, strict=True)
        ]

    def drivers(self) -> Iterator[Driver]:
        """Yield the sensitivities of each scenario's objective, and of the first's less each other's.

        Measured on the simulated replications that are kept in detail: on millions it would take hours to tell no more,
        and nested rows are no independent draws of what they share.
        """
        sound = self.driven
        costs = self.output(self.prepared.objective.name, self.detailed)
        objective = costs[sound]
        # One row has no variance to share out.
        if len(objective) < 2:
            return
        inputs = self.prepared.inputs.entries
        values = {}
        for entry in inputs:
            detailed = self.input(entry.name, self.detailed)
            values[entry.name] = detailed[sound]
        outputs = outputs_to_explain(self.prepared.names, objective)
        for scenario, rival, output in outputs:
            for entry in inputs:
                draws = values[entry.name]
                by_measure = importance(draws, output, len(inputs))
                for (method, measure), figures in by_measure.items():
                    yield Driver(scenario, rival, method, entry.name, measure, *figures)
                # Only a choice between two can flip, and only along a number.
                if rival and is_numeric(entry.distribution):
                    threshold = flip(draws, output)
                    if threshold is not None:
                        yield Driver(scenario, rival, "flip", entry.name, "threshold", threshold)


def month_labels(prepared: Prepared) -> tuple[str, ...]:
    """Return the labels of the scenarios' common months, such as 2026-01."""
    scenario = prepared.scenarios[0].scenario
    grid = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    return grid.labels


def first_missed_month(prepared: Prepared, standing: SloStanding) -> str | None:
    """Return the first month in which too many replications miss the SLO target; None where it is met."""
    labels = month_labels(prepared)
    is_short = standing.shortfall_fraction > 0
    # Short over the run as a whole, with every month met, has no month to name.
    if is_short and standing.met_months < len(labels):
        return labels[int(standing.met_months)]
    return None


def open_store(
    prepared: Prepared,
    folder: Path,
    design: Design | None = None,
    *,
    resume: bool = False,
    restart: bool = False,
) -> Store:
    """Return the store of a study, Monte Carlo unless another design is given, ready to be run."""
    setup = prepared.setup(design or prepared.montecarlo())
    batch = batch_size(len(setup.scenarios), setup.design.period)
    study_identity = identity(prepared.study, setup, batch)
    store = Store(folder, setup, study_identity)
    store.open(resume=resume, restart=restart)
    return store


def study_manifest(prepared: Prepared, store: Store, rows: int) -> dict[str, Any]:
    """Return the manifest of a finished study, with the number of detailed replications where not all are."""
    manifest = {
        "kind": "study",
        "name": prepared.study.name,
        "objective": prepared.objective.name,
        "replications": rows,
    }
    is_montecarlo = isinstance(store.setup.design, MonteCarlo)
    if is_montecarlo and store.detailed < rows:
        manifest["detailed"] = store.detailed
    return {**manifest, "identity": store.identity}
