"""One replication from a scenario to a checked result: months, the change log, the ledger, pandas frames."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.engine.driver import Run, run_plan
from planner.engine.hourly import never_placed
from planner.engine.processes import Process
from planner.engine.rental import Rented, rent_for_shed
from planner.errors import ScenarioError
from planner.finance.ledger import ACCOUNT_CODES, NOT_COST_ACCOUNTS, Dimension, Ledger, View
from planner.finance.statements import Frequency, cover_ratio, monthly_statements
from planner.plan import quantities
from planner.plan.attainment import SloResult, judge
from planner.plan.build import build_plan
from planner.plan.contradictions import hardly_meant
from planner.plan.plan import Plan, facility_kw
from planner.run.accounting import overloaded, write_ledger
from planner.run.cohorts import Cohort, cohorts_of, opening_of
from planner.run.monthly import Monthly, check_run, facility_months, sum_months
from planner.scenario.scenario import Scenario
from planner.units import DOLLARS, counted, unit_of

if TYPE_CHECKING:
    import pandas as pd

Derived = TypeVar("Derived")
ABSURD_SHED_FRACTION = 0.9
"""Share of tokens shed beyond which a run is hardly meant; assumption: even a fleet kept at full load sheds less."""


def per_run(derive: Callable[[RunResult], Derived]) -> Callable[[RunResult], Derived]:
    """Cache a function's result for as long as its run exists.

    It must not hold the run itself, or neither would ever be let go.
    """
    kept: weakref.WeakKeyDictionary[RunResult, Derived] = weakref.WeakKeyDictionary()

    @functools.wraps(derive)
    def once(result: RunResult) -> Derived:
        if (derived := kept.get(result)) is None:
            derived = kept[result] = derive(result)
        return derived

    return once


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False, weakref_slot=True)
class RunResult:
    """One finished replication: immutable, checked, independent of its presentation; its tables are pandas frames."""

    scenario: Scenario
    plan: Plan
    seed: int
    replication: int
    run: Run
    monthly: Monthly
    cohorts: tuple[Cohort, ...]
    rented: Rented
    """What rented accelerators served of what would have been shed."""
    ledger: Ledger
    processes: tuple[Process, ...] = ()
    """The user's own, that ran with it."""

    @property
    @per_run
    def warnings(self) -> tuple[str, ...]:
        """Warnings of a run: nearly all work shed, implausible figures, machines that never served, overloaded crews.

        The share shed stands first, since every other figure of such a run is of the little that was served.
        """
        plan, capital, warnings = self.plan, self.plan.money.capital, []
        demand = self.tokens(self.monthly.demand_requests).sum()
        shed = self.tokens(self.shed_requests()).sum()
        if demand > 0 and shed / demand > ABSURD_SHED_FRACTION:
            warnings.append(
                f"{shed / demand:.1%} of tokens are shed: the fleet is far too small for this traffic"
            )
        warnings += hardly_meant(self.scenario, plan)
        for w in never_placed(
            plan, self.run.windows
        ):  # no room beside the others for what it takes
            sizes = [
                f"{deployment.min_nodes:g} of {plan.clusters[deployment.cluster].nodes} nodes of "
                f"{plan.clusters[deployment.cluster].name}"
                for deployment in (plan.placement.deployments if plan.placement else ())
                if w in deployment.workloads
            ]
            warnings.append(
                f"workload {plan.workloads[w].name} was never served: {plan.workloads[w].model} takes "
                f"{', '.join(sizes)} or more, which it does not find; add nodes"
            )
        for index, cluster in enumerate(plan.clusters):
            waiting = [
                c for c in self.cohorts if c.cluster == index and not np.isfinite(c.in_service_h)
            ]
            if waiting:
                nodes, paid = (
                    sum(c.machines for c in waiting),
                    sum(c.nodes * sum(c.prices_usd) for c in waiting),
                )
                warnings.append(
                    f"{counted(nodes, 'node')} of cluster {cluster.name}, delivered and paid ({paid:,.0f} USD), "
                    "did not enter service: for want of power, or too late"
                )
        warnings += overloaded(plan, self.monthly)
        if capital.loan is not None and (least := capital.loan.least_cover_ratio) is not None:
            opening = opening_of(plan, self.cohorts, self.run.log)
            monthly = monthly_statements(self.ledger, opening, capital.books)
            quarters = monthly.by(Frequency.QUARTER, plan.months, capital.fiscal_year_start_month)
            cover = cover_ratio(quarters)[:, -1]
            if broken := np.count_nonzero(cover < least):
                worst = int(np.nanargmin(cover))
                when = quarters.periods[worst]
                due = np.isfinite(cover).sum()
                warnings.append(
                    f"the loan's covenant is broken in {broken} of {due} fiscal quarters: cash for debt service is "
                    f"{cover[worst]:.2f} times debt service in {when}, {least:g} are agreed"
                )
        return tuple(warnings)

    def cost_cents(self, view: View = View.ACCRUAL) -> NDArray[np.int64]:
        """Cost in a view, without income and tax, shape (months, clusters + 1); the last column is the whole site's."""
        table = self.ledger.totals_cents(
            Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT, view=view
        )
        table[:, :, [ACCOUNT_CODES[account] for account in NOT_COST_ACCOUNTS]] = 0
        return np.asarray(table.sum(axis=2), dtype=np.int64)

    def shed_requests(self) -> Floats:
        """Return requests shed and not served on rented accelerators, shape (months, workloads)."""
        return quantities.shed_requests(self.monthly.shed_requests, self.rented.requests)

    def missed_requests(self) -> Floats:
        """Return requests late or shed, shape (months, workloads)."""
        return quantities.missed_requests(self.monthly.late_requests, self.shed_requests())

    def settled_requests(self) -> Floats:
        """Return requests served, served on rented accelerators or shed, shape (months, workloads)."""
        return quantities.settled_requests(
            self.monthly.served_requests.sum(axis=1), self.monthly.shed_requests
        )

    def slo_result(self) -> SloResult:
        """Return how this replication stands to the scenario's SLO target."""
        return judge(self.plan, self.missed_requests(), self.settled_requests())

    def tokens(self, requests: Floats, *, output_only: bool = False) -> Floats:
        """Turn requests by month and workload, shape (months, ..., workloads), into tokens of the same shape."""
        per_request = self.plan.tokens_per_request
        if output_only:
            per_request = np.stack([load.output_tokens for load in self.plan.workloads], axis=-1)
        return requests * (per_request[:, None, :] if requests.ndim == 3 else per_request)

    def __repr__(self) -> str:
        parts = (f"{self.scenario!r}", f"seed {self.seed}", f"replication {self.replication}")
        return f"<RunResult of {', '.join(parts)}>"

    def timeline_monthly(self, *, clusters: bool = False) -> pd.DataFrame:
        """One row per month of the fleet, or per month and cluster."""
        return self._frame("timeline_monthly", clusters=clusters)

    def timeline_workloads(self) -> pd.DataFrame:
        """One row per month and workload."""
        return self._frame("timeline_workloads")

    def timeline_daily(self, *, clusters: bool = False) -> pd.DataFrame:
        """One row per day of the fleet, or per day and cluster."""
        return self._frame("timeline_daily", clusters=clusters)

    def timeline_hourly(self, *, clusters: bool = False) -> pd.DataFrame:
        """One row per hour of the fleet, or per hour and cluster."""
        return self._frame("timeline_hourly", clusters=clusters)

    def ledger_table(self) -> pd.DataFrame:
        """One row per month, cluster, account and purchase cohort."""
        return self._frame("ledger")

    def statements(self, frequency: str = "month", *, clusters: bool = False) -> pd.DataFrame:
        """Income statement, cash flow and balance sheet in dollars by month, quarter or year, fleet or clusters."""
        return self._frame("statement", Frequency(frequency), clusters=clusters)

    def unit_economics(self, frequency: str = "month") -> pd.DataFrame:
        """Tokens, revenue, cost and margin in dollars by month, quarter or year, cluster and workload."""
        return self._frame("unit_economics", Frequency(frequency))

    def events(self) -> pd.DataFrame:
        """One row per event, with its cost in tokens."""
        return self._frame("events")

    def losses(self) -> pd.DataFrame:
        """Node-hours by month, cluster and cause of loss; the causes sum to the whole."""
        return self._frame("losses")

    def slo_misses(self) -> pd.DataFrame:
        """SLO misses by month, workload and cause; the causes sum to 1 − attainment."""
        return self._frame("slo_misses")

    def placement(self) -> pd.DataFrame:
        """Replicas of each model by month, cluster and workload."""
        return self._frame("placement")

    def routing_monthly(self) -> pd.DataFrame:
        """Tokens and utilisation by month, cluster and workload."""
        return self._frame("routing_monthly")

    def _frame(self, name: str, *given: Frequency, **split: bool) -> pd.DataFrame:
        """Return one of the run's tables as a pandas frame, scenario and months as in its file."""
        import pandas as pd  # noqa: PLC0415 - half a second that only a caller who wants a frame should wait for

        from planner.run import tables  # noqa: PLC0415 - as above

        columns = {"scenario": self.scenario.name, **getattr(tables, name)(self, *given, **split)}
        if "month" in columns:
            columns["month"] = [f"{month}-01" for month in columns["month"]]
        if given:  # a table in cents
            columns |= {
                name: cells / 100 for name, cells in columns.items() if unit_of(name) == DOLLARS
            }
        return with_units(pd.DataFrame(columns))


def with_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its columns' units, taken from their names, in ``attrs["units"]``."""
    frame.attrs["units"] = {
        str(name): unit for name in frame.columns if (unit := unit_of(str(name)))
    }
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
    return simulate_plan(
        scenario, plan, plan.seed if seed is None else seed, replication, processes
    )


def check_whole(**stated: object) -> None:
    """Raise an error for a count or a seed that is not a whole number of at least 0."""
    for name, number in stated.items():
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
    run, log = result.run, result.run.log
    if not (
        plan.expansion.rules or plan.processes
    ):  # whose orders go by their prices, which are then the same
        lists = (log.purchases, log.undelivered)
        both = (
            [one._replace(prices_usd=plan.clusters[one.cluster].first_prices_usd) for one in of]
            for of in lists
        )
        log = replace(log, purchases=next(both), undelivered=next(both))
    drawn_kw = (
        facility_kw(plan, one.it_kw.sum(axis=0), of.hours)
        for of, one in zip(run.inputs, run.windows, strict=True)
    )
    windows = tuple(map(lambda window, kw: replace(window, facility_kw=kw), run.windows, drawn_kw))
    run = replace(run, log=log, windows=windows)
    energy_kwh, peak_kw = facility_months(plan, run, result.monthly.it_kwh)
    monthly = replace(result.monthly, facility_kwh=energy_kwh, peak_facility_kw=peak_kw)
    return booked_anew(replace(result, scenario=scenario, plan=plan, run=run, monthly=monthly))


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
    check_run(plan, run, monthly)
    return run, monthly
