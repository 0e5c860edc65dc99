"""One finished replication with its books: what measures, tables and causes of SLO misses read."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from planner.arrays import Cents, Floats
from planner.engine.driver import Run
from planner.engine.monthly import Monthly
from planner.engine.processes import Process
from planner.engine.rental import Rented
from planner.finance.accounting.cohorts import AllCohorts
from planner.finance.accounts import ACCOUNT_CODES, NOT_COST_ACCOUNTS, View
from planner.finance.ledger import MONTH_CLUSTER_ACCOUNT, Ledger
from planner.plan import quantities
from planner.plan.attainment import SloResult, judge
from planner.plan.plan import Plan
from planner.scenario.scenario import Scenario

AnyRun = TypeVar("AnyRun", bound="BookedRun")
Derived = TypeVar("Derived")


def per_run(derive: Callable[[AnyRun], Derived]) -> Callable[[AnyRun], Derived]:
    """Cache a function's result for as long as its run exists.

    The result must not hold the run itself, or neither would ever be let go.
    """
    cache: weakref.WeakKeyDictionary[AnyRun, Derived] = weakref.WeakKeyDictionary()

    @functools.wraps(derive)
    def cached(result: AnyRun) -> Derived:
        derived = cache.get(result)
        if derived is None:
            derived = derive(result)
            cache[result] = derived
        return derived

    return cached


# A run is a key of caches by its identity, so it has neither equality nor a hash by its fields.
@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False, weakref_slot=True)
class BookedRun:
    """One finished replication: immutable, checked, independent of its presentation."""

    scenario: Scenario
    plan: Plan
    seed: int
    replication: int
    run: Run
    monthly: Monthly
    cohorts: AllCohorts
    rented: Rented
    """Work that rented accelerators served and that would otherwise have been shed."""
    ledger: Ledger
    processes: tuple[Process, ...] = ()
    """The user's own processes that ran with the simulation."""

    def cost_cents(self, view: View = View.ACCRUAL) -> Cents:
        """Cost in a view, without income and tax, shape (months, clusters + 1); the last column is the whole site's."""
        table = self.ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT, view=view)
        not_cost = [ACCOUNT_CODES[account] for account in NOT_COST_ACCOUNTS]
        table[:, :, not_cost] = 0
        cost: Cents = table.sum(axis=2)
        return cost

    def shed_requests(self) -> Floats:
        """Return requests shed and not served on rented accelerators, shape (months, workloads)."""
        return quantities.shed_requests(self.monthly.shed_requests, self.rented.requests)

    def missed_requests(self) -> Floats:
        """Return requests late or shed, shape (months, workloads)."""
        return quantities.missed_requests(self.monthly.late_requests, self.shed_requests())

    def settled_requests(self) -> Floats:
        """Return requests served, served on rented accelerators or shed, shape (months, workloads)."""
        served = self.monthly.served_requests.sum(axis=1)
        return quantities.settled_requests(served, self.monthly.shed_requests)

    def slo_result(self) -> SloResult:
        """Return how this replication compares with the scenario's SLO target."""
        missed = self.missed_requests()
        settled = self.settled_requests()
        return judge(self.plan, missed, settled)

    def tokens(self, requests: Floats, *, output_only: bool = False) -> Floats:
        """Turn requests by month and workload, shape (months, ..., workloads), into tokens of the same shape."""
        per_request = self.plan.tokens_per_request
        if output_only:
            per_request = np.stack([load.output_tokens for load in self.plan.workloads], axis=-1)
        # Between months and workloads there may be clusters, which all take the same tokens a request.
        if requests.ndim == 3:
            per_request = per_request[:, None, :]
        return requests * per_request
