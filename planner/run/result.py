"""What a run hands back: a replication whose tables can be had as pandas frames."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from planner.finance.statements import LINES, Frequency
from planner.run.measure_names import FLEET
from planner.run.replication import Replication
from planner.units import unit_of

if TYPE_CHECKING:
    import pandas as pd


class RunResult(Replication):
    """One finished replication, with its tables as pandas frames."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = (f"{self.scenario!r}", f"seed {self.seed}", f"replication {self.replication}")
        return f"<RunResult of {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Show a notebook the fleet month by month."""
        fleet = self.timeline_monthly().query(f"cluster == '{FLEET}'").drop(columns="cluster").set_index("month")
        return f"<p>{html.escape(repr(self))}</p>{fleet.to_html(float_format='{:,.4g}'.format)}"

    def timeline_monthly(self) -> pd.DataFrame:
        """One row per month and cluster, and a ``fleet`` row per month."""
        return self._frame("timeline_monthly")

    def timeline_workloads(self) -> pd.DataFrame:
        """One row per month and workload."""
        return self._frame("timeline_workloads")

    def timeline_daily(self) -> pd.DataFrame:
        """One row per day and cluster, and a ``fleet`` row per day."""
        return self._frame("timeline_daily")

    def timeline_hourly(self) -> pd.DataFrame:
        """One row per hour and cluster, and a ``fleet`` row per hour."""
        return self._frame("timeline_hourly")

    def ledger_table(self) -> pd.DataFrame:
        """One row per month, cluster, account and purchase cohort."""
        return self._frame("ledger")

    def statements(self, frequency: str = "month") -> pd.DataFrame:
        """Income statement, cash flow and balance sheet in dollars, one row per month, quarter or year and cluster."""
        import pandas as pd  # noqa: PLC0415 - as in _frame

        from planner.run import tables  # noqa: PLC0415 - as above

        table = pd.DataFrame(tables.statement(self, Frequency(frequency)))
        return with_units(table.assign(**{name: table[name] / 100 for name in LINES}))

    def events(self) -> pd.DataFrame:
        """One row per event, with what it cost in tokens."""
        return self._frame("events")

    def losses(self) -> pd.DataFrame:
        """Node-hours by month, cluster and cause; the causes sum to the whole."""
        return self._frame("losses")

    def late_reasons(self) -> pd.DataFrame:
        """Why requests were not in time, by month, workload and reason; the reasons sum to 1 − the share in time."""
        return self._frame("late_reasons")

    def placement(self) -> pd.DataFrame:
        """Replicas of each model by month, cluster and workload."""
        return self._frame("placement")

    def routing_monthly(self) -> pd.DataFrame:
        """Tokens and utilisation by month, cluster and workload."""
        return self._frame("routing_monthly")

    def _frame(self, name: str) -> pd.DataFrame:
        """Return one of the run's tables as a pandas frame."""
        import pandas as pd  # noqa: PLC0415 - half a second that only a caller who wants a frame should wait for

        from planner.run import tables  # noqa: PLC0415 - as above

        return with_units(pd.DataFrame(getattr(tables, name)(self)))


def with_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the units of its columns, as their names state them, in ``attrs["units"]``."""
    frame.attrs["units"] = {str(name): unit for name in frame.columns if (unit := unit_of(str(name)))}
    return frame
