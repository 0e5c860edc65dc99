"""What ``planner size`` may choose: how many nodes of which cluster, bought when; and what is retired, when."""

import datetime
from typing import Annotated

from pydantic import Field, model_validator

from planner.scenario.fields import EntryName, Plausible, Positive
from planner.validation import Strict


class ClusterChoice(Strict):
    """A cluster whose nodes and dates are open; all else (part, engine, prices, order, contract) is the cluster's.

    To choose between buying, leasing and reserving a part, name a cluster for each way.
    """

    dates: Annotated[tuple[datetime.date, ...], Field(max_length=60)] = ()
    """Days on which nodes may come online, or, of a cluster with an order, on which orders may be placed: any number of
    them may be used, each with nodes of its own. Default: the day that the cluster states."""
    least_nodes: Annotated[int, Field(ge=0, le=100_000), Plausible(0, 25000, "the largest clusters announced")] = 0
    """Fewest nodes over all dates. Default 0: it need not be bought."""
    most_nodes: Annotated[int, Field(ge=1, le=100_000), Plausible(1, 25000, "the largest clusters announced")] = 1000
    """Most nodes over all dates. Default 1,000: 8,000 accelerators, more than most sites have (assumption)."""

    @model_validator(mode="after")
    def _ordered(self) -> "ClusterChoice":
        if self.least_nodes > self.most_nodes:
            raise ValueError(f"least_nodes, {self.least_nodes}, is more than most_nodes, {self.most_nodes}")
        if len(set(self.dates)) < len(self.dates):
            raise ValueError("dates names a day twice")
        return self


class Choose(Strict):
    """What ``planner size`` may choose, and within what; no other command reads it."""

    clusters: Annotated[dict[EntryName, ClusterChoice], Field(max_length=32, default_factory=dict)]
    """Clusters of the scenario whose nodes and dates are open. What the scenario states of them is one plan among
    others. Default: none."""
    retire: Annotated[
        dict[EntryName, Annotated[tuple[datetime.date, ...], Field(min_length=1, max_length=60)]],
        Field(max_length=32, default_factory=dict),
    ]
    """Clusters that may leave service, each on one of some days or not at all. Default: none."""
    review: datetime.date | None = None
    """Day on which later purchases may be decided anew, by the demand and deliveries seen until then: dates from it on
    are open until then. ``planner size`` then says what such a review is worth, and what waiting for a part that can
    be bought only after it is. Default: none; all is fixed on the first day."""
    budget_usd: (
        Annotated[float, Field(gt=0, le=1e12), Plausible(10000, 1e11, "a server to the largest programmes announced")]
        | None
    ) = None
    """Most that may be paid for the nodes chosen, over all dates, at the prices stated; what is leased or rented takes
    none of it. Default: no limit."""
    power_kw: (
        Annotated[Positive, Plausible(10, 2000000.0, "one node to the largest campuses announced, 2 GW")] | None
    ) = None
    """Most nameplate IT power of all nodes on site at once. Default: no limit beyond the site's own power."""
