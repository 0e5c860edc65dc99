"""One worker's part of a study: runs rows of a design and returns the figures to store."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from planner.arrays import Floats
from planner.errors import PlannerError, Problem, ScenarioError, printable
from planner.finance.months import MonthGrid
from planner.plan.build import build_plan, repriced, same_machines
from planner.plan.plan import Plan, Reuse
from planner.run.measure_names import DEFINITIONS, FLEET, HIGHER_IS_BETTER, MEASURES
from planner.run.measures import measures, observed, revenue_usd, series_of, service
from planner.run.simulate import RunResult, counted_anew, simulate_plan
from planner.run.slo_misses import slo_ceilings
from planner.scenario.actuals import Seen
from planner.scenario.scenario import Scenario
from planner.studies.designs import Design, MonteCarlo
from planner.studies.distributions import TAIL
from planner.studies.inputs import Stated, UncertainInputs, changed
from planner.units import decimals_of, unit_of
from planner.version import code_sha256

NOT_RUN = "not run: "
"""How the message of a run begins that failed for want of memory, a file or a network: a study that is resumed tries
it again."""


class Output(NamedTuple):
    """One output figure of a run."""

    name: str
    unit: str
    description: str
    lower_is_better: bool
    decimals: int


def _output(name: str) -> Output:
    """Return a registered figure as an output of a study."""
    return Output(
        name,
        unit_of(name) or "",
        DEFINITIONS[name],
        name not in HIGHER_IS_BETTER,
        decimals_of(name),
    )


_FIRST = """
cost_per_million_tokens_usd cost_per_million_output_tokens_usd levelised_cost_per_million_tokens_usd cost_usd tco_usd
capex_usd cash_usd npv_usd served_tokens shed_fraction slo_attainment_fraction slo_attainment_lowest_fraction
slo_shortfall_fraction slo_met_months slo_ceiling_outages_fraction slo_ceiling_fraction utilisation_fraction
availability_fraction energy_kwh
"""
HEADLINES = tuple(
    _output(name)
    for name in dict.fromkeys([*_FIRST.split(), *(measure.name for measure in MEASURES)])
)
"""Figures over the whole horizon, in column order: how a plan serves, and every measure."""
CLUSTER_MONTHLY = tuple(_output(name) for name in ("cost_usd", "served_tokens", "revenue_usd"))
"""Figures by month of the fleet and of each cluster, in column order."""
MONTHLY = (
    *(
        _output(name)
        for name in ("utilisation_fraction", "cost_per_million_tokens_usd", "spend_usd")
    ),
    *CLUSTER_MONTHLY,
)
"""Figures by month, in column order."""


def objective_names() -> tuple[str, ...]:
    """Return the names of the headline figures."""
    return tuple(output.name for output in HEADLINES)


def needed_by(name: str) -> str:
    """Return the key that a measure requires; empty where it requires none."""
    return next((measure.needs for measure in MEASURES if measure.name == name), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything a worker needs to run a study, sent to it once."""

    seed: int
    scenarios: tuple[Stated, ...]
    inputs: UncertainInputs
    design: Design
    detailed_rows: int
    """Rows that are kept with their months; of a batch that begins below it, all are."""
    seen: tuple[Seen, ...] = ()
    """Series that are kept by month in place of the study's own, where months that happened are held against them."""
    money: tuple[int, ...] = ()
    """Places of the inputs that move no machine: rows that differ in nothing else share a simulation."""
    code: str = ""
    """Hash of the planner that prepared it; a worker with another one refuses. Empty: not asked."""

    @property
    def months(self) -> int:
        """Number of calendar months of the scenarios; one more than the horizon where it starts within a month."""
        first = self.scenarios[0].scenario
        return MonthGrid(start=first.start, horizon_months=first.horizon_months).period_count

    def nested(self, money: tuple[int, ...], draws: int) -> Setup:
        """Return a Monte Carlo study in which a simulation after the pilot carries several draws of money."""
        if draws == 1:
            return self
        assert isinstance(self.design, MonteCarlo)
        return replace(self, money=money, design=replace(self.design, draws=draws))

    def values(self, first: int, last: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return the inputs' values and the replication numbers of a range of rows."""
        points, chance = self.design.rows(first, last)
        inputs = self.inputs if self.design.period == 1 else replace(self.inputs, mixing=None)
        values = inputs.drawn(points)
        money = [*self.money]
        if isinstance(self.design, MonteCarlo) and money:
            values[:, money] = inputs.drawn(self.design.money_points(first, last))[:, money]
        return values, chance

    def is_detailed(self, first: int) -> bool:
        """Return whether the batch that begins with a row is stored with monthly figures."""
        return first < self.detailed_rows

    @property
    def monthly(self) -> tuple[tuple[str, str], ...]:
        """Figures stored by month, each with a cluster or the fleet; no revenue where nothing is sold."""
        sold = any(
            load.token_price is not None
            for base in self.scenarios
            for load in base.scenario.workloads.values()
        )
        clusters = dict.fromkeys(name for base in self.scenarios for name in base.scenario.clusters)
        every = [(output.name, FLEET) for output in MONTHLY]
        every += [(output.name, cluster) for cluster in clusters for output in CLUSTER_MONTHLY]
        return tuple((name, cluster) for name, cluster in every if sold or name != "revenue_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Finished rows of a design, in order."""

    first: int
    chance: NDArray[np.int64]
    """Shape (rows,)."""
    inputs: Floats
    """Values drawn, shape (rows, inputs)."""
    headlines: Floats
    """Shape (rows, scenarios, outputs); NaN where a run failed."""
    monthly: Floats
    """Shape (rows, scenarios, outputs, months); the outputs of a study, none beyond the rows that are kept in detail,
    or the series that its setup asks for."""
    errors: tuple[tuple[int, int, str], ...]
    """Row, scenario and message of each run that failed."""

    @property
    def last(self) -> int:
        """One past the last row's index."""
        return self.first + len(self.chance)


class Replicator:
    """Runs rows of a study in this process, caching what their plans share."""

    def __init__(self, setup: Setup) -> None:
        """Take a study's setup."""
        self.setup = setup
        self._reuse: list[Reuse | None] = [None] * len(setup.scenarios)

    def run(self, first: int, last: int, money: tuple[int, ...] = (), draws: int = 1) -> Rows:
        """Run a range of rows, nested where there are several ``draws``; a run that fails is recorded."""
        setup = self.setup.nested(money, draws)
        if setup.code and setup.code != code_sha256():
            raise ScenarioError(
                Problem(
                    message="a worker has another planner than this one", hint="install the same"
                )
            )
        values, chance = setup.values(first, last)
        shape = (last - first, len(setup.scenarios))
        figures = np.full((*shape, len(HEADLINES)), np.nan)
        kept = setup.monthly if setup.is_detailed(first) else ()
        monthly = np.full((*shape, len(setup.seen) or len(kept), setup.months), np.nan)
        errors = []
        shared: dict[bytes, list[int]] = {}
        for row, physical in enumerate(np.delete(values, setup.money, axis=1)):
            shared.setdefault(chance[row].tobytes() + physical.tobytes(), []).append(row)
        for which, rows in itertools.product(range(len(setup.scenarios)), shared.values()):
            simulated: RunResult | None = None
            ceilings: dict[str, float] = {}
            for row in rows:
                try:
                    result = self.simulate(which, values[row], int(chance[row]), simulated)
                    simulated = simulated or result
                    if setup.seen:
                        monthly[row, which] = observed(result, setup.seen)
                        continue
                    ceilings = ceilings or slo_ceilings(result)  # which no money moves
                    figures[row, which] = headlines(result, ceilings)
                    if kept:
                        monthly[row, which] = monthly_series(result, kept)
                except ValidationError as error:
                    said = error.errors(include_url=False)[0]
                    message = f"{'.'.join(map(str, said['loc']))}: {said['msg']}"
                    errors.append((first + row, which, printable(message)))
                except Exception as error:
                    begin = (
                        NOT_RUN if isinstance(error, MemoryError | OSError | ImportError) else ""
                    )
                    message = f"{begin}{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                    errors.append((first + row, which, printable(message)))
        failed = tuple(sorted(errors))
        return Rows(
            first=first,
            chance=chance,
            inputs=values,
            headlines=figures,
            monthly=monthly,
            errors=failed,
        )

    def simulate(
        self, which: int, values: Floats, chance: int, shared: RunResult | None = None
    ) -> RunResult:
        """Run one scenario with one set of inputs in one replication; ``shared`` has all of them but money."""
        scenario, plan = self._compiled(which, values, None if shared is None else shared.plan)
        if shared is None:
            return simulate_plan(scenario, plan, self.setup.seed, chance)
        return counted_anew(shared, scenario, plan)

    def _compiled(
        self, which: int, values: Floats, shared: Plan | None = None
    ) -> tuple[Scenario, Plan]:
        """Return one scenario with one set of inputs, and its plan; ``shared`` has all of it but money."""
        scenario, factors = changed(self.setup.scenarios[which], which, self.setup.inputs, values)
        if (reuse := self._reuse[which]) is None:
            reuse = self._reuse[which] = Reuse(self.setup.scenarios[which].scenario)
            build_plan(
                self.setup.scenarios[which].scenario, reuse
            )  # spaces the tables, always alike
        return scenario, build_plan(scenario, reuse, factors) if shared is None else repriced(
            shared, scenario, reuse
        )

    def redrawn(self) -> tuple[int, ...]:
        """Return the places of the inputs that are money alone: whatever they are, the machines do the same.

        Each is moved alone to both its ends, all others at their medians, and the compiled plans are compared; then
        those that passed are moved together. An input that is correlated with one that moves machines, or with such a
        one, is none of them.
        """
        inputs = replace(self.setup.inputs, mixing=None)
        scenarios = range(len(self.setup.scenarios))
        median = inputs.drawn(np.full((1, len(inputs)), 0.5))[0]

        def is_still(places: list[int]) -> bool:
            """Return whether no machine moves where inputs at some places are at one end or the other by turns."""
            points = np.full((2, len(inputs)), 0.5)
            turn = np.arange(2)[:, None] + np.arange(len(places))
            points[:, places] = np.where(turn % 2, TAIL, 1.0 - TAIL)
            reached = [
                which
                for which in scenarios
                if any(inputs.entries[place].targets[which] for place in places)
            ]
            try:
                pairs = itertools.product(reached, inputs.drawn(points))
                return all(
                    same_machines(plans[which], self._compiled(which, values)[1])
                    for which, values in pairs
                )
            except (PlannerError, ValidationError):
                return False

        plans = [self._compiled(which, median)[1] for which in scenarios]
        money = {
            place
            for place, one in enumerate(inputs.entries)
            if not one.throughput_of and is_still([place])
        }
        mixing = (
            np.eye(len(inputs)) if self.setup.inputs.mixing is None else self.setup.inputs.mixing
        )
        linked = np.abs(mixing @ mixing.T) > 1e-9
        while tied := {
            place for place in money if linked[place, list({*range(len(inputs))} - money)].any()
        }:
            money -= tied
        return tuple(sorted(money)) if is_still(sorted(money)) else ()


def headlines(result: RunResult, ceilings: Mapping[str, float] | None = None) -> Floats:
    """Return a run's headline figures in column order, shape (outputs,); NaN where undefined.

    ``ceilings`` are those of a run that differs in money alone, where they are known.
    """
    tokens = float(series_of(result).tokens.sum())
    figures = {
        **measures(result),
        **service(result),
        **(ceilings or slo_ceilings(result)),
        "served_tokens": tokens,
    }
    return np.array([figures[name] for name in objective_names()], dtype=np.float64)


def monthly_series(result: RunResult, kept: Sequence[tuple[str, str]]) -> Floats:
    """Return monthly figures of clusters and the fleet, shape (figures, months).

    NaN where there is nothing to divide, and where a run has no such cluster.
    """
    series = series_of(result)
    spent = np.full((result.plan.months.period_count, len(result.plan.clusters) + 1), np.nan)
    spent[:, -1] = -series.cash_flow_usd
    figures = series.sums.figures() | {"spend_usd": spent, "revenue_usd": revenue_usd(result)}
    places = {cluster.name: place for place, cluster in enumerate(result.plan.clusters)} | {
        FLEET: -1
    }
    nothing = np.full(result.plan.months.period_count, np.nan)
    return np.stack(
        [
            figures[name][:, places[cluster]] if cluster in places else nothing
            for name, cluster in kept
        ]
    )
