"""The scenario: everything a user states about one future."""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from planner.catalog.calibration import CalibrationFile, calibration_from, shipped_file
from planner.catalog.load import Catalog, catalog_with
from planner.documents import Document, parse_scalar
from planner.errors import ScenarioError
from planner.language.choose import Choose
from planner.language.cluster import Cluster
from planner.language.expansion import Expansion
from planner.language.fields import EntryName, Name, Plausible
from planner.language.finance import Finance
from planner.language.reliability import Reliability
from planner.language.site import Site
from planner.language.software import Software
from planner.language.workload import Workload
from planner.validation import Strict


class CatalogChoice(Strict):
    """Which figures the scenario takes on trust."""

    assumptions: Literal["measured", "articles-2024"] = "measured"
    """Named assumption set. Default measured: datasheets and public measurements."""
    overlay: str | None = None
    """A catalogue file of your own, laid over the set; relative to the scenario file. Default: none."""


class Promise(Strict):
    """What is promised to those who send requests.

    Tables, rankings and advice put what keeps it first, by cost; then what does not, by how far it falls short.
    """

    in_time: Annotated[float, Field(gt=0, le=1), Plausible(0.5, 1, "assumption")] = 0.99
    """Least share of requests in time, above 0 and at most 1. Default 0.99: two nines, as API providers state
    (assumption)."""
    each: Literal["month", "horizon"] = "month"
    """Over what it is kept: in every month, or over all months together, where a good month makes up for a bad one.
    Default month: who cannot be served in March is not helped in May."""
    of: Literal["workload", "fleet"] = "workload"
    """Whose requests are counted: each workload's, or all together. Default workload: a large one must not hide a
    small one."""
    in_replications: Annotated[float, Field(gt=0, le=1), Plausible(0.5, 1, "assumption")] = 0.9
    """Least share of replications in which it is kept, above 0 and at most 1. Default 0.9: nine in ten
    (assumption)."""


class Scenario(Strict):
    """One future: traffic, machines, site and money over a horizon of months."""

    name: Name
    """Name of the scenario; also of its output folder."""
    description: str = ""
    """What question it answers. Default empty: the name may say enough."""
    extends: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=16)] | None = None
    """Another scenario file that this one changes, or a list of them, later ones over earlier; relative to this
    file. Default: none."""
    start: Annotated[datetime.date, Field(ge=datetime.date(2000, 1, 1), le=datetime.date(2100, 12, 31))]
    """First day, from 2000-01-01 to 2100-12-31."""
    horizon_months: Annotated[int, Field(ge=1, le=120), Plausible(1, 120, "what the field allows")] = 36
    """Months to simulate. Default 36: three years of depreciation."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Root of all random numbers. Default 1: any number is as good."""
    catalog: CatalogChoice = CatalogChoice()
    """Assumption set and overlay. Default: measured."""
    calibration: str | None = None
    """A calibration of the throughput model, updated by your own measurements with ``planner calibrate``; relative to
    the scenario file. Default: the one that comes with the planner."""
    workloads: Annotated[dict[EntryName, Workload], Field(min_length=1, max_length=64)]
    """Traffic by name."""
    clusters: Annotated[dict[EntryName, Cluster], Field(min_length=1, max_length=64)]
    """Machines by name."""
    promise: Promise = Promise()
    """Share of requests in time that the plan is to keep. Default: 0.99 in each month and of each workload, in 0.9 of
    replications."""
    site: Site = Site()
    """Electricity, cooling, space. Default: a new colocation site at the average US price."""
    reliability: Reliability = Reliability()
    """Failures and repairs. Default: the best published fleet."""
    software: Software = Software()
    """Releases, incidents, engineers. Default: the catalogue's rates under a staged upgrade policy."""
    routing: Literal["workload-aware", "cheapest-marginal", "preference", "proportional"] = "workload-aware"
    """How work is spread over clusters while there is room for all of it; beyond that, the most tokens are served,
    priority by priority, whatever the policy. Default workload-aware: large models and long contexts to the memory-rich
    pool first, the rest where it takes least energy."""
    router_pool: Literal["cluster", "node", "replica"] = "cluster"
    """What one router chooses between: all replicas of a cluster that serve a model, those of one node, or one alone,
    among which requests then fall by lot. Default cluster: one router before each cluster."""
    expansion: Expansion = Expansion()
    """Monthly review that buys or retires nodes. Default: no rules."""
    choose: Choose | None = None
    """What ``planner size`` may buy and retire. Default: nothing; no other command reads it."""
    finance: Finance = Finance()
    """Depreciation, capital, people. Default: three years straight-line."""

    _document: Document = PrivateAttr(default_factory=lambda: Document({}))
    _read: "Callable[[Document, Sequence[str]], Scenario] | None" = PrivateAttr(default=None)
    """By what it was read, to be read again with more laid over it; None where it was not read."""

    def __repr__(self) -> str:
        return f"<Scenario {self.name}, {self.horizon_months} months from {self.start}>"

    @property
    def document(self) -> Document:
        """What the user wrote, merged, with the place of each value."""
        return self._document

    def with_(self, changes: Mapping[str, Any] | None = None, **sections: Any) -> "Scenario":
        """Return the scenario with some values changed, as ``--set`` changes them.

        ``plan.with_({"clusters.h200.nodes": 80})`` names paths, ``plan.with_(horizon_months=12)`` keys of the first
        level. A mapping is laid over what is there, and None takes a key away.
        """
        stated = {**(changes or {}), **sections}
        return self.laid_over([f"{path}={_flow(value)}" for path, value in stated.items()])

    def laid_over(self, overrides: Sequence[str]) -> "Scenario":
        """Return the scenario with ``--set`` strings laid over it, after those it was loaded with."""
        if self._read is None or self._document.before is None:
            raise ScenarioError(f"{self.name} was not loaded, so nothing can be laid over it; load it from a dict")
        return self._read(self._document.before.copy(), (*self._document.overrides, *overrides))

    def load_calibration(self) -> CalibrationFile:
        """Read the calibration of the throughput model that this scenario chose."""
        if self.calibration is None:
            return shipped_file()
        path, content = self._document.file_at(("calibration",), self.calibration)
        return calibration_from(content, str(path))

    def states(self, section: str) -> bool:
        """Say whether the user wrote a section, in part at least, or left all of it at its defaults."""
        return any(path[:1] == (section,) for path in self._document.locations)

    def load_catalog(self) -> Catalog:
        """Read the catalogue this scenario chose."""
        overlay = None
        if self.catalog.overlay is not None:
            path, content = self._document.file_at(("catalog", "overlay"), self.catalog.overlay)
            overlay = (str(path), content)
        return catalog_with(self.catalog.assumptions, overlay)


def _flow(value: Any) -> str:
    """Write a value on one line of YAML, as ``--set`` takes it."""
    value = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(map(_flow, value)) + "]"
    is_date = isinstance(value, datetime.date) or (
        isinstance(value, str) and isinstance(parse_scalar(value), datetime.date)
    )
    return str(value) if is_date else json.dumps(value)
