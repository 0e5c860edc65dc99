"""One worker's part of a study: runs rows of a design and returns the figures to store."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from planner.arrays import Floats
from planner.errors import PlannerError, Problem, ScenarioError, printable
from planner.finance.accounting.measures import measures, observed, revenue_usd, series_of, service
from planner.finance.measure_names import DEFINITIONS, FLEET, HIGHER_IS_BETTER, MEASURES, SeriesKey
from planner.finance.months import MonthGrid
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.plan.repricing import repriced, same_machines
from planner.plan.reuse import Reuse
from planner.records import record
from planner.run.simulate import RunResult, counted_anew, simulate_plan
from planner.run.slo_misses import slo_ceilings
from planner.scenario.scenario import Scenario
from planner.studies.designs import Design, MonteCarlo
from planner.studies.distributions import TAIL
from planner.studies.inputs import Stated, UncertainInputs, changed
from planner.units import decimals_of, unit_of
from planner.version import code_sha256

NOT_RUN = "not run: "
"""How the message of a run begins that failed for want of memory, a file or a network: a study that
is resumed tries it again."""


class Output(NamedTuple):
    """One output figure of a run."""

    name: str
    unit: str
    description: str
    lower_is_better: bool
    decimals: int


def _outputs(*names: str) -> tuple[Output, ...]:
    """Return registered figures as outputs of a study."""
    return tuple(
        Output(
            name=name,
            unit=unit_of(name) or "",
            description=DEFINITIONS[name],
            lower_is_better=name not in HIGHER_IS_BETTER,
            decimals=decimals_of(name),
        )
        for name in names
    )


_SERVICE = """
cost_per_million_tokens_usd cost_per_million_output_tokens_usd levelised_cost_per_million_tokens_usd
cost_usd tco_usd capex_usd cash_usd npv_usd served_tokens shed_fraction slo_attainment_fraction
slo_attainment_lowest_fraction slo_shortfall_fraction slo_met_months slo_ceiling_outages_fraction
slo_ceiling_fraction utilisation_fraction availability_fraction energy_kwh
"""
"""Figures that stand before the other measures."""
_HEADLINE_NAMES = [*_SERVICE.split(), *(measure.name for measure in MEASURES)]
# A name that is in both lists keeps its earlier place.
HEADLINES = _outputs(*dict.fromkeys(_HEADLINE_NAMES))
"""Figures over the whole horizon, in column order: how a plan serves, and every measure."""
MONTHLY = _outputs(
    "utilisation_fraction",
    "cost_per_million_tokens_usd",
    "spend_usd",
    "cost_usd",
    "served_tokens",
    "revenue_usd",
)
"""Figures of the fleet by month, in column order."""


def objective_names() -> tuple[str, ...]:
    """Return the names of the headline figures."""
    return tuple(output.name for output in HEADLINES)


def needed_by(name: str) -> str:
    """Return the key that a measure requires; empty where it requires none."""
    needs = {measure.name: measure.needs for measure in MEASURES}
    return needs.get(name, "")


@record
class Setup:
    """Everything a worker needs to run a study, sent to it once."""

    seed: int
    scenarios: tuple[Stated, ...]
    inputs: UncertainInputs
    design: Design
    detailed_rows: int
    """Rows that are kept with their months; of a batch that begins below it, all are."""
    seen: tuple[SeriesKey, ...] = ()
    """Actual series, whose planned counterparts are kept by month in place of the study's own."""
    money: tuple[int, ...] = ()
    """Places of the inputs that move no machine: rows that differ in nothing else share a simulation."""
    code: str = ""
    """Hash of the planner that prepared it; a worker with another one refuses. Empty: not asked."""

    @property
    def months(self) -> int:
        """Number of calendar months; one more than the horizon where it starts within a month."""
        scenario = self.scenarios[0].scenario
        grid = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
        return grid.period_count

    def nested(self, money: tuple[int, ...], draws: int) -> Setup:
        """Return a Monte Carlo study in which a simulation after the pilot carries several draws of money."""
        if draws == 1:
            return self
        # Other designs know from the start which rows share a simulation.
        assert isinstance(self.design, MonteCarlo)
        design = replace(self.design, draws=draws)
        return replace(self, money=money, design=design)

    def values(self, start: int, stop: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return the inputs' values and the replication numbers of a range of rows."""
        points, replications = self.design.rows(start, stop)
        inputs = self.inputs
        # One-at-a-time designs move inputs alone, as if they were independent.
        if self.design.period > 1:
            inputs = replace(inputs, mixing=None)
        values = inputs.drawn(points)
        if self.money and isinstance(self.design, MonteCarlo):
            columns = list(self.money)
            money = inputs.drawn(self.design.money_points(start, stop))
            values[:, columns] = money[:, columns]
        return values, replications

    def is_detailed(self, start: int) -> bool:
        """Return whether the batch that begins with a row is stored with monthly figures."""
        return start < self.detailed_rows

    @property
    def monthly(self) -> tuple[tuple[str, str], ...]:
        """Figures of the fleet stored by month; no revenue where nothing is sold."""
        figures = [(output.name, FLEET) for output in MONTHLY]
        is_sold = False
        for base in self.scenarios:
            workloads = base.scenario.workloads.values()
            prices = [workload.token_price for workload in workloads]
            is_sold |= any(price is not None for price in prices)
        # A column of empty cells would look as if revenue had been lost.
        if not is_sold:
            figures = [figure for figure in figures if figure[0] != "revenue_usd"]
        return tuple(figures)


@record
class Rows:
    """Finished rows of a design, in order."""

    start: int
    """Number of the earliest row."""
    replications: NDArray[np.int64]
    """Number from which each row's simulation draws its random streams, shape (rows,)."""
    inputs: Floats
    """Values drawn, shape (rows, inputs)."""
    headlines: Floats
    """Shape (rows, scenarios, outputs); NaN where a run failed."""
    monthly: Floats
    """Shape (rows, scenarios, outputs, months); the outputs of a study, none beyond the rows that are
    kept in detail, or the series that its setup asks for."""
    errors: tuple[tuple[int, int, str], ...]
    """Row, scenario and message of each run that failed."""

    @property
    def stop(self) -> int:
        """Number of the row after the latest."""
        return self.start + len(self.replications)


class Replicator:
    """Runs rows of a study in this process, caching what their plans share."""

    def __init__(self, setup: Setup) -> None:
        """Take a study's setup."""
        self.setup = setup
        self._reuse: list[Reuse | None] = [None] * len(setup.scenarios)

    def run(self, start: int, stop: int, money: tuple[int, ...] = (), draws: int = 1) -> Rows:
        """Run a range of rows, nested where there are several ``draws``; a run that fails is recorded."""
        # The pilot decides on draws, so they come with the piece, not with the setup.
        setup = self.setup.nested(money, draws)
        if setup.code and setup.code != code_sha256():
            message = "a worker has another version of the planner"
            problem = Problem(message=message, hint="install the same")
            raise ScenarioError(problem)
        values, replications = setup.values(start, stop)
        shape = (stop - start, len(setup.scenarios))
        # NaN until a run fills its place: what stays so is a run that failed.
        figures = np.full((*shape, len(HEADLINES)), np.nan)
        monthly_names = setup.monthly if setup.is_detailed(start) else ()
        series = len(setup.seen) or len(monthly_names)
        monthly = np.full((*shape, series, setup.months), np.nan)
        errors = []
        # Rows with the same replication and the same inputs but money share a simulation.
        sharing: dict[bytes, list[int]] = {}
        physical_values = np.delete(values, setup.money, axis=1)
        for row, physical in enumerate(physical_values):
            # Bytes, as a key, are the same for the same numbers and nothing else.
            key = replications[row].tobytes() + physical.tobytes()
            rows_of_key = sharing.setdefault(key, [])
            rows_of_key.append(row)
        scenarios = range(len(setup.scenarios))
        for scenario, rows in itertools.product(scenarios, sharing.values()):
            simulated: RunResult | None = None
            # Ceilings take longer than all other figures, and rows that share a simulation share them.
            ceilings: dict[str, float] = {}
            for row in rows:
                try:
                    replication = int(replications[row])
                    result = self.simulate(scenario, values[row], replication, simulated)
                    simulated = simulated or result
                    if setup.seen:
                        monthly[row, scenario] = observed(result, setup.seen)
                        continue
                    ceilings = ceilings or slo_ceilings(result)  # which no money moves
                    figures[row, scenario] = headlines(result, ceilings)
                    if monthly_names:
                        monthly[row, scenario] = monthly_series(result, monthly_names)
                except Exception as error:  # one failed run must not end the study
                    message = _failure_message(error)
                    errors.append((start + row, scenario, message))
        return Rows(
            start=start,
            replications=replications,
            inputs=values,
            headlines=figures,
            monthly=monthly,
            errors=tuple(sorted(errors)),
        )

    def simulate(
        self, scenario: int, values: Floats, replication: int, shared: RunResult | None = None
    ) -> RunResult:
        """Run one scenario with one set of inputs in one replication; ``shared`` has all of them but money."""
        shared_plan = None if shared is None else shared.plan
        changed_scenario, plan = self._compiled(scenario, values, shared_plan)
        if shared is None:
            return simulate_plan(changed_scenario, plan, self.setup.seed, replication)
        return counted_anew(shared, changed_scenario, plan)

    def _compiled(
        self, scenario: int, values: Floats, shared: Plan | None = None
    ) -> tuple[Scenario, Plan]:
        """Return one scenario with one set of inputs, and its plan; ``shared`` has all of it but money."""
        base = self.setup.scenarios[scenario]
        uncertain = self.setup.inputs
        changed_scenario, factors = changed(base, scenario, uncertain, values)
        reuse = self._reuse[scenario]
        if reuse is None:
            # The stated plan spaces the tables that all others share, so a row's figures do not
            # depend on which row its worker ran before it.
            build_plan(base.scenario)
            reuse = Reuse(base.scenario, is_kept=False)
            self._reuse[scenario] = reuse
        if shared is not None:
            return changed_scenario, repriced(shared, changed_scenario, reuse)
        return changed_scenario, build_plan(changed_scenario, reuse, factors)

    def redrawn(self) -> tuple[int, ...]:
        """Return the places of the inputs that are money alone: whatever they are, the machines do the same.

        Each is moved alone to both its ends, all others at their medians, and the compiled plans are
        compared; then those that passed are moved together. An input that is correlated with one
        that moves machines, or with such a one, is none of them.
        """
        inputs = replace(self.setup.inputs, mixing=None)
        scenarios = range(len(self.setup.scenarios))
        medians = np.full((1, len(inputs)), 0.5)
        median = inputs.drawn(medians)[0]
        plans = []
        for scenario in scenarios:
            _, plan = self._compiled(scenario, median)
            plans.append(plan)

        def is_still(places: list[int]) -> bool:
            """Return whether no machine moves where these inputs are at one end or the other by turns."""
            points = np.full((2, len(inputs)), 0.5)
            ends = np.arange(2)[:, None]
            turn = ends + np.arange(len(places))
            # By turns: inputs that cancel at the same end do not at opposite ones.
            points[:, places] = np.where(turn % 2, TAIL, 1.0 - TAIL)
            draws = inputs.drawn(points)
            targets = [inputs.entries[place].targets for place in places]
            # A scenario without any of their fields has the plan that it had.
            reached = [place for place in scenarios if any(paths[place] for paths in targets)]
            try:
                for scenario, values in itertools.product(reached, draws):
                    _, plan = self._compiled(scenario, values)
                    if not same_machines(plans[scenario], plan):
                        return False
            except (PlannerError, ValidationError):
                # An end that gives no plan says nothing of the machines: it is simulated.
                return False
            return True

        entries = enumerate(inputs.entries)
        # An error of throughput always moves machines.
        candidates = [place for place, entry in entries if not entry.throughput_of]
        money = {place for place in candidates if is_still([place])}
        mixing = self.setup.inputs.mixing
        if mixing is not None:
            correlations = mixing @ mixing.T
            # Rounding leaves a little between inputs that are not correlated.
            linked = np.abs(correlations) > 1e-9
            # Each turn takes at least one input away, so this ends.
            while True:
                all_places = range(len(inputs))
                physical = [place for place in all_places if place not in money]
                tied = {place for place in money if linked[place, physical].any()}
                if not tied:
                    break
                money -= tied
        places = sorted(money)
        # Together they may do what none does alone, such as cross a budget.
        if is_still(places):
            return tuple(places)
        return ()


def _failure_message(error: Exception) -> str:
    """Return one line on why a run failed; marked where it may succeed another time."""
    if isinstance(error, ValidationError):
        # One is enough for a line; the first is of the field that stands first.
        problem = error.errors(include_url=False)[0]
        return printable(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
    may_succeed = isinstance(error, MemoryError | OSError | ImportError)
    mark = NOT_RUN if may_succeed else ""
    # Some errors have no text at all.
    lines = str(error).splitlines() or [""]
    return printable(f"{mark}{type(error).__name__}: {lines[0]}")


def headlines(result: RunResult, ceilings: Mapping[str, float] | None = None) -> Floats:
    """Return a run's headline figures in column order, shape (outputs,); NaN where undefined.

    ``ceilings`` are those of a run that differs in money alone, where they are known.
    """
    ceilings = ceilings or slo_ceilings(result)
    figures = {**measures(result), **service(result), **ceilings}
    tokens = series_of(result).tokens
    figures["served_tokens"] = float(tokens.sum())
    in_order = [figures[name] for name in objective_names()]
    return np.array(in_order, dtype=np.float64)


def monthly_series(result: RunResult, names: Sequence[tuple[str, str]]) -> Floats:
    """Return monthly figures of clusters and the fleet, shape (figures, months).

    NaN where there is nothing to divide, and where a run has no such cluster.
    """
    series = series_of(result)
    clusters = [cluster.name for cluster in result.plan.clusters]
    # The fleet stands behind its clusters.
    shape = (result.plan.months.period_count, len(clusters) + 1)
    unknown = np.full(shape, np.nan)
    spent = unknown.copy()
    spent[:, -1] = -series.cash_flow_usd
    figures = series.sums.figures()
    figures = figures | {"spend_usd": spent, "revenue_usd": revenue_usd(result)}
    columns = {name: place for place, name in enumerate(clusters)}
    columns[FLEET] = -1
    chosen = []
    for name, cluster in names:
        table = figures[name] if cluster in columns else unknown
        chosen.append(table[:, columns.get(cluster, 0)])
    return np.stack(chosen)
