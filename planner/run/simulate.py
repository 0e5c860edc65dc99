"""One replication from a scenario to a checked result: months, the change log, the ledger, pandas frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.engine.driver import Run, run_plan
from planner.engine.log import Purchase
from planner.engine.monthly import Monthly, check_run, facility_months, sum_months
from planner.engine.processes import Process
from planner.engine.rental import rent_for_shed
from planner.errors import ScenarioError
from planner.finance.accounting.booked_run import BookedRun
from planner.finance.accounting.cohorts import cohorts_of
from planner.finance.accounting.posting import write_ledger
from planner.finance.statements import Frequency
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.plan.site import facility_kw
from planner.run import tables
from planner.run.events import events
from planner.run.warnings import run_warnings
from planner.scenario.scenario import Scenario
from planner.units import DOLLARS, unit_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RunResult(BookedRun):
    """One finished replication: immutable, checked, independent of its presentation; its tables are pandas frames."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings: nearly all work shed, implausible figures, idle machines, overloaded crews."""
        return run_warnings(self)

    def __repr__(self) -> str:
        parts = (f"{self.scenario!r}", f"seed {self.seed}", f"replication {self.replication}")
        return f"<RunResult of {', '.join(parts)}>"

    def timeline_monthly(self, *, clusters: bool = False) -> pd.DataFrame:
        """One row per month of the fleet, or per month and cluster."""
        return self._frame(tables.timeline_monthly(self, clusters=clusters))

    def timeline_workloads(self) -> pd.DataFrame:
        """One row per month and workload."""
        return self._frame(tables.timeline_workloads(self))

    def timeline_hourly(self, *, clusters: bool = False) -> pd.DataFrame:
        """One row per hour of the fleet, or per hour and cluster."""
        return self._frame(tables.timeline_hourly(self, clusters=clusters))

    def ledger_table(self) -> pd.DataFrame:
        """One row per month, cluster, account and purchase cohort."""
        return self._frame(tables.ledger(self))

    def statements(self, frequency: str = "month", *, clusters: bool = False) -> pd.DataFrame:
        """Income statement, cash flow and balance sheet in dollars by month, quarter or year, fleet or clusters."""
        columns = tables.statement(self, Frequency(frequency), clusters=clusters)
        return self._frame(in_dollars(columns))

    def unit_economics(self, frequency: str = "month") -> pd.DataFrame:
        """Tokens, revenue, cost and margin in dollars by month, quarter or year, cluster and workload."""
        columns = tables.unit_economics(self, Frequency(frequency))
        return self._frame(in_dollars(columns))

    def workload_costs(self) -> pd.DataFrame:
        """Return what each workload costs in present value, in dollars, and the rates that recover it."""
        return self._frame(in_dollars(tables.workload_costs(self)))

    def events(self) -> pd.DataFrame:
        """One row per event, with its cost in tokens."""
        return self._frame(events(self))

    def losses(self) -> pd.DataFrame:
        """Node-hours by month, cluster and cause of loss; the causes sum to the whole."""
        return self._frame(tables.losses(self))

    def slo_misses(self) -> pd.DataFrame:
        """SLO misses by month, workload and cause; the causes sum to 1 − attainment."""
        return self._frame(tables.slo_misses(self))

    def placement(self) -> pd.DataFrame:
        """Replicas of each model by month, cluster and workload."""
        return self._frame(tables.placement(self))

    def routing_monthly(self) -> pd.DataFrame:
        """Tokens and utilisation by month, cluster and workload."""
        return self._frame(tables.routing_monthly(self))

    def _frame(self, columns: Mapping[str, Any]) -> pd.DataFrame:
        """Return one of the run's tables as a pandas frame, scenario and months as in its file."""
        import pandas as pd  # noqa: PLC0415 - half a second that only a caller who wants a frame should wait for

        framed = {"scenario": self.scenario.name, **columns}
        # A day, which pandas can read as a date.
        if "month" in framed:
            framed["month"] = [f"{month}-01" for month in framed["month"]]
        return with_units(pd.DataFrame(framed))


def in_dollars(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table in cents with its columns of money in dollars."""
    dollars = {}
    for name, cells in columns.items():
        dollars[name] = cells
        if unit_of(name) == DOLLARS:
            dollars[name] = cells / 100
    return dollars


def with_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its columns' units, taken from their names, in ``attrs["units"]``."""
    units = {}
    for name in frame.columns:
        unit = unit_of(str(name))
        if unit:
            units[str(name)] = unit
    frame.attrs["units"] = units
    return frame


def simulate(
    scenario: Scenario,
    seed: int | None = None,
    replication: int = 0,
    processes: Sequence[Process] = (),
) -> RunResult:
    """Run a scenario once and return its checked result; ``seed`` overrides the scenario's own."""
    check_whole(seed=0 if seed is None else seed, replication=replication)
    plan = build_plan(scenario)
    seed = plan.seed if seed is None else seed
    return simulate_plan(scenario, plan, seed, replication, processes)


def check_whole(**counts: object) -> None:
    """Raise an error for a count or a seed that is not a whole number of at least 0."""
    for name, number in counts.items():
        if not isinstance(number, int | np.integer) or number < 0:
            raise ScenarioError(f"{name} must be a whole number from 0 on, not {number!r}")


def simulate_plan(
    scenario: Scenario,
    plan: Plan,
    seed: int,
    replication: int = 0,
    processes: Sequence[Process] = (),
) -> RunResult:
    """Run a compiled scenario once, with the user's own processes."""
    run, monthly = run_engine(plan, seed, replication, processes=processes)
    cohorts = cohorts_of(plan, run.log)
    rented = rent_for_shed(plan, run.windows, run.on_offer)
    return RunResult(
        scenario=scenario,
        plan=plan,
        seed=seed,
        replication=replication,
        processes=tuple(processes),
        monthly=monthly,
        run=run,
        cohorts=cohorts,
        rented=rented,
        ledger=write_ledger(plan, run, monthly, cohorts, rented),
    )


def counted_anew(result: RunResult, scenario: Scenario, plan: Plan) -> RunResult:
    """Return a run with its money counted by another plan whose machines are the same, without simulating again."""
    run = result.run
    log = run.log
    # Rules and processes order by price, so with them both plans have the prices that the log has.
    if not (plan.expansion.rules or plan.processes):
        prices_usd = [cluster.first_prices_usd for cluster in plan.clusters]

        def repriced(purchases: Sequence[Purchase]) -> list[Purchase]:
            return [
                purchase._replace(prices_usd=prices_usd[purchase.cluster]) for purchase in purchases
            ]

        purchases = repriced(log.purchases)
        undelivered = repriced(log.undelivered)
        log = replace(log, purchases=purchases, undelivered=undelivered)
    windows = []
    for inputs, window in zip(run.inputs, run.windows, strict=True):
        # The machines draw the same; what the building adds may be another plan's.
        it_kw = window.it_kw.sum(axis=0)
        site_kw = facility_kw(plan, it_kw, inputs.hours)
        windows.append(replace(window, facility_kw=site_kw))
    run = replace(run, log=log, windows=tuple(windows))
    energy_kwh, peak_kw = facility_months(plan, run, result.monthly.it_kwh)
    monthly = replace(result.monthly, facility_kwh=energy_kwh, peak_facility_kw=peak_kw)
    recounted = replace(result, scenario=scenario, plan=plan, run=run, monthly=monthly)
    return booked_anew(recounted)


def booked_anew(result: RunResult) -> RunResult:
    """Return a run with its books written again, from its own plan and purchases."""
    cohorts = cohorts_of(result.plan, result.run.log)
    ledger = write_ledger(result.plan, result.run, result.monthly, cohorts, result.rented)
    return replace(result, cohorts=cohorts, ledger=ledger)


def run_engine(
    plan: Plan,
    seed: int,
    replication: int = 0,
    window_h: int | None = None,
    processes: Sequence[Process] = (),
) -> tuple[Run, Monthly]:
    """Run only the simulation: events, hours, months, and the conservation checks."""
    run = run_plan(plan, seed, replication, window_h, processes)
    monthly = sum_months(plan, run)
    # Before anything is priced: a run that lost a request or an hour would still give plausible money.
    check_run(plan, run, monthly)
    return run, monthly
