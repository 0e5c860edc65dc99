"""What one replication yields: monthly arrays, the change log, the ledger, and where it all came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.engine.driver import Run
from planner.engine.processes import Process
from planner.engine.rented import Rented
from planner.engine.residence import never_placed
from planner.finance.accounts import ACCOUNT_CODES, NOT_COST_ACCOUNTS, View
from planner.finance.ledger import Dimension, Ledger
from planner.finance.statements import Frequency, cover_ratio, monthly_statements
from planner.plan import quantities
from planner.plan.contradictions import hardly_meant
from planner.plan.plan import Plan
from planner.plan.slo_target import Verdict, judge
from planner.run.caching import per_run
from planner.run.cohorts import Cohort, opening_of
from planner.run.monthly import Monthly
from planner.run.parts import overloaded
from planner.scenario.scenario import Scenario
from planner.units import counted

ABSURD_SHED_FRACTION = 0.9
"""Share of tokens shed beyond which a run is hardly meant; assumption: even a fleet kept at full load sheds less."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False, weakref_slot=True)
class Replication:
    """One finished replication; frozen, checked, and independent of how it will be shown."""

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
        """What is hardly meant: nearly all work shed, odd figures, machines that never served, overloaded crews.

        The share shed stands first, since every other figure of such a run is of the little that was served.
        """
        demand, shed = self.tokens(self.monthly.demand_requests).sum(), self.tokens(self.shed_requests()).sum()
        lost = []
        if demand > 0 and shed / demand > ABSURD_SHED_FRACTION:
            lost.append(f"{shed / demand:.1%} of tokens are shed: the fleet is far too small for this traffic")
        idle = []
        for index, cluster in enumerate(self.plan.clusters):
            waiting = [c for c in self.cohorts if c.cluster == index and not np.isfinite(c.in_service_h)]
            if waiting:
                nodes, paid = sum(c.machines for c in waiting), sum(c.nodes * sum(c.prices_usd) for c in waiting)
                idle.append(
                    f"{counted(nodes, 'node')} of cluster {cluster.name}, delivered and paid ({paid:,.0f} USD), "
                    "did not enter service: for want of power, or too late"
                )
        late = (*idle, *overloaded(self.plan, self.monthly), *self._broken_covenants())
        return (*lost, *hardly_meant(self.scenario, self.plan), *self._never_placed(), *late)

    def _never_placed(self) -> list[str]:
        """Name the workloads whose model never found room beside the others, with what it takes."""
        plan, told = self.plan, []
        for w in never_placed(plan, self.run.windows):
            workload = plan.workloads[w]
            sizes = [
                f"{deployment.least_nodes:g} of {plan.clusters[deployment.cluster].nodes} nodes of "
                f"{plan.clusters[deployment.cluster].name}"
                for deployment in (plan.placement.deployments if plan.placement else ())
                if w in deployment.workloads
            ]
            told.append(
                f"workload {workload.name} was never served: {workload.model} takes {', '.join(sizes)} or more, "
                "which it does not find; add nodes"
            )
        return told

    def _broken_covenants(self) -> list[str]:
        """Say in which fiscal quarters the loan's covenant does not hold."""
        capital = self.plan.money.capital
        if capital.loan is None or capital.loan.least_cover_ratio is None:
            return []
        monthly = monthly_statements(self.ledger, opening_of(self.plan, self.cohorts, self.run.log))
        quarters = monthly.by(Frequency.QUARTER, self.plan.months, capital.fiscal_year_start_month)
        cover, least = cover_ratio(quarters), capital.loan.least_cover_ratio
        broken = np.flatnonzero(cover < least)
        if not broken.size:
            return []
        worst = int(np.nanargmin(cover))
        return [
            f"the loan's covenant is broken in {broken.size} of {np.isfinite(cover).sum()} fiscal quarters: operating "
            f"cash flow is {cover[worst]:.2f} times debt service in {quarters.periods[worst]}, {least:g} are agreed"
        ]

    def cost_cents(self, view: View = View.ACCRUAL) -> NDArray[np.int64]:
        """Cost in a view, without income and tax, shape (months, clusters + 1); the last column is the whole site's."""
        table = self.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT, view=view)
        table[:, :, [ACCOUNT_CODES[account] for account in NOT_COST_ACCOUNTS]] = 0
        return np.asarray(table.sum(axis=2), dtype=np.int64)

    def shed_requests(self) -> Floats:
        """Return requests shed and not served on rented accelerators, shape (months, workloads)."""
        return quantities.shed_requests(self.monthly.shed_requests, self.rented.requests)

    def missed_requests(self) -> Floats:
        """Return requests late or shed, shape (months, workloads)."""
        return quantities.missed_requests(self.monthly.late_requests, self.shed_requests())

    def settled_requests(self) -> Floats:
        """Return requests served, rented for or shed, shape (months, workloads)."""
        return quantities.settled_requests(self.monthly.served_requests.sum(axis=1), self.monthly.shed_requests)

    def verdict(self) -> Verdict:
        """Return how this replication stands to the scenario's promise."""
        return judge(self.missed_requests(), self.settled_requests(), self.plan.promise)

    def tokens(self, requests: Floats, *, output_only: bool = False) -> Floats:
        """Turn requests by month and workload, shape (months, ..., workloads), into tokens of the same shape."""
        loads = self.plan.workloads
        per_request = (
            np.stack([load.output_tokens for load in loads], axis=-1) if output_only else self.plan.tokens_per_request
        )
        return requests * (per_request[:, None, :] if requests.ndim == 3 else per_request)
