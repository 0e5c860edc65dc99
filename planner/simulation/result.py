"""What a run yields: monthly arrays, the change log, the ledger, and where it all came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import View
from planner.finance.ledger import Dimension, Ledger
from planner.fleet.plan import Plan
from planner.simulation.log import Change

if TYPE_CHECKING:
    import pandas as pd

    from planner.scenario.scenario import Scenario

Floats = NDArray[np.float64]
FLEET = "fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Monthly:
    """Monthly sums; shape (months, clusters) unless stated."""

    accelerator_hours_in_service: Floats
    accelerator_hours_delivered: Floats
    busy_accelerator_hours: Floats
    served_tokens: Floats
    served_output_tokens: Floats
    energy_kwh: Floats
    """IT energy."""
    demand_tokens: Floats
    """Per workload, shape (months, workloads)."""
    shed_tokens: Floats
    """Per workload, shape (months, workloads)."""
    served_by_workload_tokens: Floats
    """Per workload, shape (months, workloads)."""
    backlog_tokens: Floats
    """Waiting at the end of each month, per workload, shape (months, workloads)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One finished replication; frozen, checked, and independent of how it will be shown."""

    scenario: Scenario
    plan: Plan
    seed: int
    replication: int
    monthly: Monthly
    ledger: Ledger
    changes: tuple[Change, ...]

    def cost_usd(self) -> Floats:
        """Accrued cost, shape (months, clusters); each entry is a sum of ledger rows."""
        totals = self.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, view=View.ACCRUAL)
        return np.asarray(totals[:, :-1] / 100.0, dtype=np.float64)

    def timeline_monthly(self) -> pd.DataFrame:
        """One row per month and cluster, and a ``fleet`` row per month."""
        return _frame("timeline_monthly", self)

    def ledger_table(self) -> pd.DataFrame:
        """One row per month, cluster and account."""
        return _frame("ledger", self)

    def events(self) -> pd.DataFrame:
        """One row per change of the fleet."""
        return _frame("events", self)


def _frame(name: str, result: RunResult) -> pd.DataFrame:
    """Return one of the run's tables as a pandas frame."""
    import pandas as pd  # noqa: PLC0415 - half a second that only a caller who wants a frame should wait for

    from planner.simulation import tables  # noqa: PLC0415 - tables read this module

    columns: dict[str, Any] = getattr(tables, name)(result)
    return pd.DataFrame(columns)
