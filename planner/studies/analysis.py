"""Analysis of a finished Monte Carlo study: percentiles, bands, decisions and drivers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.finance.months import MonthGrid
from planner.plan.attainment import CEILINGS, past_mending
from planner.run.measure_names import FLEET
from planner.studies import decision
from planner.studies.decision import PERCENTILES, IntervalEstimate, PairwiseDecision, SloStanding
from planner.studies.designs import Design, Integers, MonteCarlo
from planner.studies.distributions import is_numeric
from planner.studies.prepare import Prepared
from planner.studies.replicate import HEADLINES, needed_by, objective_names
from planner.studies.runner import batch_size
from planner.studies.sensitivity import Driver, flip, followed, importance
from planner.studies.store import Store, identity
from planner.units import DOLLARS, MILLION, unit_of

PER_MILLION_TOKENS = unit_of("cost_per_million_tokens_usd")
MOST_DROPPED = 0.01
"""Share of replications that could not be run above which a study warns: a tail of one in a hundred is then gone."""


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
        return min(self.rows, self.store.joined.detailed)

    def output(self, name: str, rows: int | None = None) -> Floats:
        """Return one headline output of the first rows (all by default), shape (rows, scenarios)."""
        return self.store.joined.column(f"out:{name}", self.rows if rows is None else rows)

    def by_scenario(self, name: str) -> Floats:
        """Return one headline output, shape (scenarios, rows)."""
        return self.output(name).T

    def input(self, name: str, rows: int | None = None) -> Floats:
        """Return the drawn values of one input in the first rows (all by default), shape (rows,)."""
        return self.store.joined.column(f"in:{name}", self.rows if rows is None else rows)[:, 0]

    @property
    def chance(self) -> Integers:
        """Number of the simulation behind each row, shape (rows,): nested rows share theirs."""
        return self.store.joined.column("chance", self.rows)[:, 0].astype(np.int64)

    def simulated(self, rows: int | None = None) -> Ints:
        """Return the places of the rows with a simulation of their own, among the first (all by default)."""
        return np.unique(self.chance[:rows], return_index=True)[1]

    @property
    def driven(self) -> Ints:
        """Places of the rows that sensitivities are measured on: simulated, in detail, and no scenario failed."""
        first = self.simulated(self.detailed)
        return first[
            np.isfinite(self.output(self.prepared.objective.name, self.detailed)[first]).all(axis=1)
        ]

    def failures(self) -> list[Failure]:
        """Return the runs that failed."""
        names = self.prepared.names
        return [
            Failure(row, names[which], message)
            for row, which, message in self.store.joined.errors(self.rows)
        ]

    def dropped(self) -> list[str]:
        """Return a message per scenario on its failed replications: how many, why, and their common inputs."""
        by_scenario: dict[str, list[Failure]] = {}
        for failure in self.failures():
            by_scenario.setdefault(failure.scenario, []).append(failure)
        numeric = [
            drawn.name for drawn in self.prepared.inputs.entries if is_numeric(drawn.distribution)
        ]
        lines = []
        for scenario, failures in by_scenario.items():
            lines.append(
                f"{len(failures):,} of {self.rows:,} replications of {scenario} could not be run "
                f"({len(failures) / self.rows:.1%}) and are left out of its figures; the first is replication "
                f"{failures[0].replication}: {failures[0].message}"
            )
            kinds = Counter(
                re.sub(r"[0-9][0-9.,e+-]*", "#", failure.message) for failure in failures
            )
            (_, often), *others = kinds.most_common()
            if others:
                lines.append(
                    f"{often:,} of them fail in that or a like way, the others in {len(others)} more"
                )
            failed = np.zeros(self.rows, dtype=bool)
            failed[[failure.replication for failure in failures]] = True
            if told := [
                apart for name in numeric if (apart := separation(name, self.input(name), failed))
            ]:
                lines.append(max(told)[1])
        return lines

    def statistics(self, names: Collection[str] = objective_names()) -> Iterator[Statistic]:
        """Yield mean, spread, percentiles and tail mean of the named outputs (default all) of every scenario."""
        scramblings = self.prepared.study.scramblings
        for output in (output for output in HEADLINES if output.name in names):
            for scenario, figures in zip(
                self.prepared.names, self.by_scenario(output.name), strict=True
            ):
                if needed_by(output.name) and not np.isfinite(figures).any():
                    continue  # nothing is sold, or nothing is there to hold it against
                for statistic, figure in decision.spread_estimates(
                    figures, scramblings, upper=output.lower_is_better
                ):
                    yield Statistic(scenario, output.name, statistic, figure)

    def bands(self, *, clusters: bool = False) -> Iterator[tuple[Any, ...]]:
        """Yield percentiles by month of every scenario's fleet, or of its clusters, from detailed replications."""
        labels = month_labels(self.prepared)
        for output, cluster in (
            one for one in self.store.setup.monthly if (one[1] != FLEET) == clusters
        ):
            named = [cluster] if clusters else []
            for which, base in enumerate(self.prepared.scenarios):
                if cluster == FLEET or cluster in base.scenario.clusters:
                    table = self.store.joined.monthly(output, cluster, which)[: self.detailed]
                    for label, rows in zip(labels, table.T, strict=True):
                        known = rows[np.isfinite(rows)]
                        spread = (
                            decision.percentiles(known, PERCENTILES)
                            if known.size
                            else [np.nan] * len(PERCENTILES)
                        )
                        mean = float(known.mean()) if known.size else np.nan
                        yield (base.name, output, *named, label, mean, *spread, known.size)

    def decisions(self) -> list[PairwiseDecision]:
        """Return the pairwise comparisons of the scenarios on the objective."""
        objective = self.prepared.objective
        figures = self.by_scenario(objective.name)
        scramblings = self.prepared.study.scramblings
        return decision.decisions(
            figures,
            self.prepared.names,
            scramblings,
            self._keeping(),
            lower_is_better=objective.lower_is_better,
        )

    def _keeping(self) -> list[int]:
        """Return the places of the scenarios that meet their SLO target: the choice is among these."""
        return [which for which, standing in enumerate(self.standings()) if standing.may_meet]

    def standings(self, every: int = 1, groups: int | None = None) -> list[SloStanding]:
        """Return each scenario's result against its SLO target, from every ``every``-th row."""
        objective = self.prepared.objective
        names = (objective.name, "slo_shortfall_fraction", "slo_met_months")
        columns = [self.output(name)[::every].T for name in names]
        chance = self.chance[::every]
        columns[1:] = (decision.once(figures, chance) for figures in columns[1:])
        groups = self.prepared.study.scramblings if groups is None else groups
        judged = decision.standings(
            columns, self.prepared.targeted, groups, lower_is_better=objective.lower_is_better
        )
        ceilings = np.stack(
            [decision.once(self.output(name)[::every].T, chance) for name in CEILINGS], axis=1
        )
        past = map(past_mending, ceilings, [one.attainment for one in self.prepared.targeted])
        return [
            standing._replace(past_mending=by) for standing, by in zip(judged, past, strict=True)
        ]

    def drivers(self) -> Iterator[Driver]:
        """Yield the sensitivities of each scenario's objective, and of the first's less each other's.

        Measured on the simulated replications that are kept in detail: on millions it would take hours to tell no more,
        and nested rows are no independent draws of what they share.
        """
        sound = self.driven
        table = self.output(self.prepared.objective.name, self.detailed)[sound]
        if len(table) < 2:
            return
        inputs = self.prepared.inputs.entries
        values = {drawn.name: self.input(drawn.name, self.detailed)[sound] for drawn in inputs}
        for scenario, against, output in followed(self.prepared.names, table):
            for drawn in inputs:
                for (method, measure), figures in importance(
                    values[drawn.name], output, len(inputs)
                ).items():
                    yield Driver(scenario, against, method, drawn.name, measure, *figures)
                if (
                    against
                    and is_numeric(drawn.distribution)
                    and (at := flip(values[drawn.name], output)) is not None
                ):
                    yield Driver(scenario, against, "flip", drawn.name, "threshold", at)
        yield from self.information()

    def information(self) -> Iterator[Driver]:
        """Yield the value of knowing each pair's throughput before the choice, largest first.

        The choice is among the scenarios that meet their SLO target: one that fails its users is cheaper for that
        alone. In dollars where the headline is money, times the tokens that the chosen scenario serves where it is
        money per token. What is known of a pair is the product of its own factor with those of its model and its part.
        """
        objective = self.prepared.objective
        keeping = self._keeping()
        errors = {
            drawn.throughput_of: drawn.name
            for drawn in self.prepared.inputs.entries
            if drawn.throughput_of
        }
        first = self.simulated(self.detailed)
        table = self.output(objective.name, self.detailed)[first][:, keeping]
        if len(keeping) < 2 or not errors or not np.isfinite(table).all(axis=1).any():
            return
        chosen = keeping[decision.choice(table, lower_is_better=objective.lower_is_better)]
        millions = (
            float(np.nanmean(self.output("served_tokens", self.detailed)[:, chosen])) / MILLION
        )
        usd = {DOLLARS: 1.0, PER_MILLION_TOKENS: millions}.get(objective.unit)
        scramblings = self.prepared.study.scramblings
        worths = []
        for part, engine, model in errors:
            if not part or not model:
                continue
            terms = [
                errors.get(key)
                for key in ((part, engine, model), ("", engine, model), (part, engine, ""))
            ]
            known = np.sum(
                [np.log(self.input(name, self.detailed)[first]) for name in terms if name], axis=0
            )
            worth = decision.worth_of_knowing(
                known, table, scramblings, lower_is_better=objective.lower_is_better
            )
            factor, measure = (1.0, "worth") if usd is None else (usd, "worth_usd")
            ends = (max(0.0, worth.low * factor), max(0.0, worth.high * factor))
            pair = f"throughput.{part}.{engine}.{model}"
            scenario = self.prepared.names[chosen]
            worths.append(
                Driver(scenario, "", "information", pair, measure, worth.value * factor, *ends)
            )
        yield from sorted(worths, key=lambda driver: -driver.value)

    def convergence(self) -> Iterator[tuple[str, int, IntervalEstimate]]:
        """Yield the mean of each scenario's objective over a growing number of rows."""
        scramblings = self.prepared.study.scramblings
        ends = np.unique(
            np.geomspace(min(4 * scramblings, self.rows), self.rows, 24).astype(int)
        ).tolist()
        for name, column in zip(
            self.prepared.names, self.by_scenario(self.prepared.objective.name), strict=True
        ):
            yield from (
                (name, end, decision.mean_estimate(column[:end], scramblings)) for end in ends
            )


def separation(name: str, values: Floats, failed: Bools) -> tuple[float, str] | None:
    """Return how well an input separates failed replications from the others, and a sentence; None below 0.3.

    The strength is |P(input of a failed one > input of another) − ½|: Mann and Whitney's statistic, 0 for none and ½
    for full.
    """
    values_failed = values[failed]
    others = np.sort(values[~failed])
    if not values_failed.size or not others.size:
        return None
    below = np.searchsorted(others, values_failed, "left") + np.searchsorted(
        others, values_failed, "right"
    )
    above = float(below.mean()) / (2.0 * others.size)
    if abs(above - 0.5) < 0.3:
        return None
    if above > 0.5:
        edge = float(np.percentile(values_failed, 5, method="lower"))
        word = "at least"
        among = float((others >= edge).mean())
    else:
        edge = float(np.percentile(values_failed, 95, method="higher"))
        word = "at most"
        among = float((others <= edge).mean())
    sentence = f"in 95% of them or more, {name} is {word} {edge:.4g}; so it is in {among:.0%} of the others"
    return abs(above - 0.5), sentence


def month_labels(prepared: Prepared) -> tuple[str, ...]:
    """Return the labels of the scenarios' common months, such as 2026-01."""
    scenario = prepared.scenarios[0].scenario
    return MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months).labels


def first_missed_month(prepared: Prepared, standing: SloStanding) -> str | None:
    """Return the first month in which too many replications miss the SLO target; None where it is met."""
    labels = month_labels(prepared)
    broken = standing.shortfall_fraction > 0 and standing.met_months < len(labels)
    return labels[int(standing.met_months)] if broken else None


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
    store = Store(folder, setup, identity(prepared.study, setup, batch))
    store.open(resume=resume, restart=restart)
    return store


def study_manifest(prepared: Prepared, store: Store, rows: int) -> dict[str, Any]:
    """Return the manifest of a finished study, with the number of detailed replications where not all are."""
    detailed = store.joined.detailed
    said = (
        {"detailed": detailed}
        if isinstance(store.setup.design, MonteCarlo) and detailed < rows
        else {}
    )
    return {
        "kind": "study",
        "name": prepared.study.name,
        "objective": prepared.objective.name,
        "replications": rows,
        **said,
        "identity": store.identity,
    }
