"""The scenario: everything a user states about one future."""

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, Tag, model_validator

from planner.catalog.calibration import CalibrationFile, calibration_from, shipped_file
from planner.catalog.load import Catalog, catalog_with
from planner.errors import ScenarioError
from planner.files import ALLOW_CODE
from planner.scenario import fields
from planner.scenario.cluster import Cluster
from planner.scenario.fields import (
    BelowOne,
    Count,
    CrewCount,
    EntryName,
    Fraction,
    Name,
    NodeCount,
    NonNegative,
    Plausible,
    Positive,
    PositiveFraction,
    Price,
    SitePower,
    Weeks,
)
from planner.scenario.finance import Finance
from planner.scenario.site import Site
from planner.scenario.workload import Workload
from planner.validation import Strict
from planner.yaml_io import Document, KeyPath, document_of_mapping, flow_text


class FailureDomain(Strict):
    """A unit that fails as a whole and takes all its nodes down: a rack, a switch, a power feed, a cooling loop."""

    nodes: Annotated[Count, Plausible(1, 256)] | None = None
    """Nodes that fail with each unit; they have consecutive numbers within the cluster. Default: the catalogue's number
    for this kind of unit (prior rack_nodes and so on)."""
    failures_per_year: (
        Annotated[
            NonNegative, Plausible.prior("power_feed_failure_rate", "cooling_loop_failure_rate")
        ]
        | None
    ) = None
    """Failures of each unit a year. Default: the catalogue's rate for this kind of unit (prior rack_failure_rate and so
    on)."""
    repair_h: (
        Annotated[Positive, Plausible.prior("switch_repair", "cooling_loop_repair")] | None
    ) = None
    """Hours that a crew needs to repair the unit, once the crew is there. Default: the catalogue's time for this kind
    of unit (prior rack_repair and so on)."""


class Maintenance(Strict):
    """Planned maintenance of single nodes, in windows at regular intervals."""

    per_1000_node_days: (
        Annotated[NonNegative, Plausible.prior("planned_interruption_rate")] | None
    ) = None
    """Nodes that need planned work, per thousand nodes and day. Default: the catalogue's prior
    planned_interruption_rate."""
    length_h: Annotated[Positive, Plausible.prior("planned_interruption_length")] | None = None
    """Hours for which a node is drained for planned work. Default: the catalogue's prior
    planned_interruption_length."""
    every_weeks: Annotated[
        float, Field(gt=0, le=520), Plausible(0.14, 13, "from a day to a quarter of a year")
    ] = 1.0
    """Weeks from one maintenance window to the next. Default 1: assumption."""


class Firmware(Strict):
    """Firmware rollouts that drain every node once."""

    rollouts_per_year: Annotated[Positive, Plausible.prior("firmware_rollouts")] | None = None
    """Firmware rollouts a year, at even intervals. Default: the catalogue's prior firmware_rollouts."""
    length_h: Annotated[Positive, Plausible.prior("firmware_update_length")] | None = None
    """Hours for which a node is drained for a firmware update. Default: the catalogue's prior
    firmware_update_length."""


# The tags name the branch of a union of a number and a rate, so that errors speak of the right one.
Crews = Annotated[CrewCount, Plausible(1, 500), Tag("count")]
Spares = Annotated[int, Field(ge=0, le=1_000_000), Plausible(1, 10_000), Tag("count")]


class Reliability(Strict):
    """Failure rates, repair times, repair crews and spares."""

    failure_multiplier: Annotated[
        NonNegative,
        Plausible(
            0.1,
            10,
            "wider than prior node_failure_rate_nvidia, which has 0.6 to 2.2 times its base",
        ),
    ] = 1.0
    """Factor on the failure rate of every cause; 0 switches failures off. Default 1: the catalogue's rates, which give
    3.79 failures per 1,000 node-days on H100."""
    vendor_failure_multiplier: dict[
        str, Annotated[NonNegative, Plausible.prior("node_failure_multiplier_amd")]
    ] = Field(default_factory=dict)
    """Factor on the failure rates of a vendor's nodes, e.g. {amd: 1.3}. Default: the catalogue's factor for the
    vendor."""
    lemon_fraction: Annotated[BelowOne, Plausible(0.001, 0.1)] = 0.012
    """Share of nodes that fail chronically. Default 0.012: as in research clusters of 16,000 A100."""
    lemon_multiplier: Annotated[float, Field(ge=1, le=1000), Plausible(1, 50)] = 8.0
    """Failure rate of nodes that fail chronically, divided by that of other nodes. The mean rate of the fleet stays the
    same. Default 8: assumption."""
    early_life_multiplier: Annotated[float, Field(ge=1, le=100), Plausible(1, 10)] = 2.0
    """Failure rate of a node on its first day, divided by its rate in later life. Default 2: assumption."""
    early_life_months: Annotated[Positive, Plausible(0.1, 24)] = 2.0
    """Months in which the excess failures of new nodes fall to 1/e (37%). Default 2: assumption."""
    soft_repair_h: Annotated[Positive, Plausible.prior("mttr_soft")] = 2.2
    """Mean time to repair a fault that a reset clears without a technician. Default 2.2: measured on H100 nodes of the
    system Delta."""
    medium_repair_h: Annotated[Positive, Plausible.prior("mttr_medium")] = 12.0
    """Mean time that a technician works on a fault that needs no spare part. Default 12: base of the prior mttr_medium,
    4 to 24 h."""
    hard_repair_h: Annotated[Positive, Plausible.prior("mttr_hard")] = 60.0
    """Mean time to repair a fault that needs a spare part, once part and crew are there. Default 60: base of the prior
    mttr_hard, 24 to 120 h."""
    repair_cv_ratio: Annotated[float, Field(ge=0, le=10), Plausible(0, 3)] = 0.6
    """Standard deviation of repair times divided by their mean; the distribution is lognormal. Default 0.6: follows
    from published ranges, taken as P10 to P90."""
    repair_crews: Annotated[Crews | fields.Rate, fields.NumberOrRate] = fields.PerThousand(
        per_1000_accelerators=2.0
    )
    """Technicians who can work at the same time: a number, or a rate such as {per_1000_accelerators: 2}, whose result
    grows with the accelerators on site and is at least one. Default 2 per 1,000: one shift of a 2,000-accelerator site
    has four (assumption)."""
    spares: Annotated[Spares | fields.Rate, fields.NumberOrRate] = fields.PerThousand(
        per_1000_accelerators=6.25
    )
    """Spare parts in stock for each cluster: a number, or a rate for every 1,000 accelerators of the cluster; a rate
    above 0 gives at least one. Default 6.25 per 1,000: a published pool of 5% of the nodes, each with eight
    accelerators."""
    spare_fraction: Annotated[Fraction, Plausible.prior("spare_pool")] | None = None
    """Spare parts in stock, as a share of a cluster's nodes. If stated, it replaces the key spares; only older
    scenarios need it. Default: as spares says."""
    rma_weeks: Annotated[Positive, Plausible(0.2, 52)] = 4.0
    """Weeks until a spare part that was used is replaced in the stock. Default 4: assumption."""
    failure_domains: Annotated[dict[EntryName, FailureDomain], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Units whose failure takes down several nodes at once, by name. The catalogue has figures for rack, switch,
    power_feed and cooling_loop, so {rack: {}} is enough; for other names state all three figures. Default: none."""
    maintenance: Maintenance | None = None
    """Windows in which nodes are drained for planned work; {} uses the catalogue's figures. Default: none."""
    firmware: Firmware | None = None
    """Rollouts that drain every node in turn; {} uses the catalogue's figures. Default: none."""
    reserve_nodes: Annotated[Count, Plausible(1, 1000)] | None = None
    """Reserve of nodes in each cluster, 1 for N + 1. While this many nodes of a cluster are down, for any reason,
    planned work waits. Default: one, or reserve_fraction of the nodes if that is more."""
    reserve_fraction: Annotated[Fraction, Plausible.prior("spare_pool")] | None = None
    """Reserve as a share of a cluster's nodes on site, rounded up. If reserve_nodes is stated too, the larger of the
    two holds. Default: the catalogue's prior spare_pool if reserve_nodes is not stated either."""

    def left_open(self) -> dict[KeyPath, str]:
        """Return the catalogue prior used for each figure of failure domains or planned work not stated."""
        sections: list[tuple[KeyPath, BaseModel, dict[str, str]]] = []
        if self.maintenance is not None:
            sections.append((("maintenance",), self.maintenance, _MAINTENANCE_PRIORS))
        if self.firmware is not None:
            sections.append((("firmware",), self.firmware, _FIRMWARE_PRIORS))
        # Only planned work waits for the reserve, and one of its two figures is enough.
        if sections and self.reserve_nodes is None:
            sections.append(((), self, {"reserve_fraction": "spare_pool"}))
        for name, domain in self.failure_domains.items():
            domain_priors = {
                "nodes": f"{name}_nodes",
                "failures_per_year": f"{name}_failure_rate",
                "repair_h": f"{name}_repair",
            }
            sections.append((("failure_domains", name), domain, domain_priors))
        priors: dict[KeyPath, str] = {}
        for path, section, names in sections:
            open_keys = [key for key in names if getattr(section, key) is None]
            priors |= {(*path, key): names[key] for key in open_keys}
        return priors


_MAINTENANCE_PRIORS = {
    "per_1000_node_days": "planned_interruption_rate",
    "length_h": "planned_interruption_length",
}
_FIRMWARE_PRIORS = {"rollouts_per_year": "firmware_rollouts", "length_h": "firmware_update_length"}


class ClusterChoice(Strict):
    """A cluster whose number of nodes and dates are chosen; everything else is as stated for the cluster.

    To choose between buying, leasing and reserving an accelerator, name a cluster for each contract.
    """

    dates: Annotated[tuple[datetime.date, ...], Field(max_length=60)] = ()
    """Days on which nodes may come online, or on which orders may be placed if the cluster has an order. Several days
    may be used, each with its own number of nodes. Default: the days of sizing.windows, or else the day that the
    cluster states."""
    min_nodes: Annotated[
        int, Field(ge=0, le=100_000), Plausible(0, 25000, "the largest clusters announced")
    ] = 0
    """Lowest number of nodes, all dates together. Default 0: the cluster need not be bought."""
    max_nodes: Annotated[NodeCount, Plausible(1, 25000, "the largest clusters announced")] = 1000
    """Highest number of nodes, all dates together. Default 1,000: 8,000 accelerators, more than most sites have
    (assumption)."""
    max_nodes_per_date: (
        Annotated[NodeCount, Plausible(1, 25000, "same range as max_nodes")] | None
    ) = None
    """Highest number of nodes on one date, such as a vendor's allotment. Default: max_nodes."""
    step_nodes: Annotated[int, Field(ge=1, le=10_000), Plausible(1, 256)] | None = None
    """Step of orders on a signal: each order is a multiple of this number of nodes, such as the nodes of a rack.
    Default: the search chooses the step, one node or more."""

    @model_validator(mode="after")
    def _ordered(self) -> "ClusterChoice":
        # Else no plan would be feasible, and the search would end without saying why.
        if self.min_nodes > self.max_nodes:
            raise ValueError(
                f"min_nodes, {self.min_nodes}, is more than max_nodes, {self.max_nodes}"
            )
        if len(set(self.dates)) < len(self.dates):
            raise ValueError("dates names a day twice")
        return self


# Each day is an option of the search, whose size grows with all of them together.
OneOfDays = Annotated[tuple[datetime.date, ...], Field(min_length=1, max_length=60)]


MissCost = Annotated[NonNegative, Plausible(1e-6, 100)]


class Sizing(Strict):
    """What ``planner size`` may buy, order on a signal, rent and retire, and its limits; no other command reads it."""

    clusters: Annotated[dict[EntryName, ClusterChoice], Field(max_length=32, default_factory=dict)]
    """Clusters of the scenario whose number of nodes and dates are chosen. What the scenario states for them is one of
    the plans considered. Default: none."""
    windows: Literal["monthly", "quarterly"] | OneOfDays | None = None
    """Days on which clusters without their own dates may be bought or ordered: the first day of every month or quarter,
    if delivery falls within the horizon, or a list of days. Default: none."""
    orders: Literal["fixed", "reactive"] = "fixed"
    """Whether all purchases are fixed on the first day (fixed), or clusters with an order may also be ordered on a
    signal (reactive). Then, on each order date, nodes are ordered until the forecast peak is at most a certain
    percentage of the nodes installed and on order; the search chooses this percentage. Default fixed: no purchase is
    decided later."""
    retire: Annotated[dict[EntryName, OneOfDays], Field(max_length=32, default_factory=dict)]
    """Clusters that may leave service and be sold, each on one of the days listed or not at all. If the cluster is also
    in sizing.clusters, all nodes bought for it leave on the same day. Default: none."""
    max_rented_accelerators: (
        Annotated[int, Field(ge=8, le=1_000_000), Plausible(8, 100_000)] | None
    ) = None
    """Highest number of accelerators that overflow rent may use, on the terms of finance.burst_rental. The search
    chooses the limit, from zero up to this number. Default: overflow rent is as the scenario states it."""
    budget_usd: (
        Annotated[
            float,
            Field(gt=0, le=1e12),
            Plausible(10000, 1e11, "from one server to the largest programmes announced"),
        ]
        | None
    ) = None
    """Limit on the price of all nodes that are chosen, all dates together, at the prices that the scenario states.
    Leased and rented nodes do not count. Default: no limit."""
    it_power_cap_kw: SitePower | None = None
    """Limit on the nameplate IT power of all nodes on site at the same time. Default: no limit beyond the site's own
    power."""
    miss_cost_usd: MissCost | dict[EntryName, MissCost] | None = None
    """What a request that misses its SLO costs, in today's money, for all workloads or by workload. Net present cost is
    then minimised with this cost included, so owning, renting and missing are traded off against each other, and no
    confidence in the SLO target is required. Default none: the SLO target applies instead, because few know what a miss
    costs."""

    def miss_usd(self, workload: str) -> float:
        """Return what a request of a workload that misses its SLO costs; 0 where it has no price."""
        if isinstance(self.miss_cost_usd, dict):
            return self.miss_cost_usd.get(workload, 0.0)
        return self.miss_cost_usd or 0.0


Team = Annotated[int, Field(ge=0, le=100_000), Plausible(0, 2000), Tag("count")]
Engineers = Annotated[Team | fields.Rate, fields.NumberOrRate]


Incidents = Annotated[NonNegative, Plausible(0.05, 20)]
Share = Annotated[Fraction, Plausible(0, 1, "any share")]
Speedup = Annotated[NonNegative, Plausible(0.05, 5)]
OneTeam = Annotated[NonNegative, Plausible(0.1, 2000), Tag("count")]


class SoftwareStep(Strict):
    """A technique, kernel or policy that changes speed from a release on."""

    date: datetime.date
    """Day of the release. A stack runs it from its next upgrade on."""
    gain_fraction: Annotated[float, Field(gt=-1, le=100), Plausible(-0.6, 3)]
    """Throughput gained; negative for a loss. Throughput never exceeds the accelerator's roofline."""
    vendor: str | None = None
    """Vendor whose accelerators the change applies to. Default: all vendors."""
    engine: str | None = None
    """Engine that the change applies to. Default: all engines."""
    model: str | None = None
    """Model that the change applies to. Default: all models."""


class Software(Strict):
    """How software is upgraded and its incidents are fixed."""

    incident_multiplier: Incidents = 1.0
    """Factor on the rate of every software incident; 0 switches incidents off. Default 1: the catalogue's rates."""
    vendor_incident_multiplier: dict[str, Incidents] = Field(default_factory=dict)
    """Further factor on the incident rates of a vendor's stacks, e.g. {amd: 0.5}. Default: the catalogue's factor for
    the vendor."""
    software_speedup_multiplier: Speedup = 1.0
    """Factor on the speed that software has still to gain, and on the differences between releases; 0 freezes
    throughput. Default 1: the gains that the catalogue states."""
    vendor_software_speedup_multiplier: dict[str, Speedup] = Field(default_factory=dict)
    """Further factor by vendor, e.g. {amd: 2}, on the speed still to gain and on the differences between releases.
    Default: the catalogue's factor for the vendor."""
    steps: tuple[SoftwareStep, ...] = ()
    """Gains or losses of throughput on dates, in addition to those of the catalogue. Default: none."""
    upgrade_policy: Literal["latest", "staged", "pinned"] = "staged"
    """How often a stack is upgraded to the newest release: every 30 days (latest), 75 days (staged) or 200 days
    (pinned). Regressions come with upgrades, and so do speed-ups. Default staged: base of the prior
    upgrade_interval_production."""
    upgrade_days: Annotated[Positive, Plausible.prior("upgrade_interval_production")] | None = None
    """Mean days from one upgrade to the next; each interval is between 0.5 and 1.5 times the mean. Default: the 30, 75
    or 200 of upgrade_policy."""
    canary_fraction: Annotated[PositiveFraction, Plausible.prior("canary_share")] = 0.1
    """Share of a stack's capacity that runs a new release first (the canary); 1 upgrades everything at once. A fault
    that is noticed during bake_h does not reach the rest. Default 0.1: base of the prior canary_share."""
    bake_h: Annotated[NonNegative, Plausible.prior("canary_bake")] = 2.0
    """Hours for which only the canary (canary_fraction) runs a new release; 0 upgrades everything at once. Default 2:
    base of the prior canary_bake."""
    rollback_impossible_fraction: dict[str, Share] = Field(default_factory=dict)
    """Share of a release's incidents that a roll-back cannot end because no older release serves the model, by vendor,
    e.g. {amd: 0.1}. Such incidents last until they are fixed. Default: the catalogue's share for the vendor."""
    accuracy_regression_response: Literal["roll-back", "higher_precision"] = "roll-back"
    """What is done once wrong output is noticed, until the fault is fixed: serve with the previous release (roll-back),
    or in the next wider precision (higher_precision). Default roll-back: it is faster."""
    engineers: (
        Annotated[OneTeam | Annotated[dict[str, Engineers], Tag("rate")], fields.NumberOrRate]
        | None
    ) = None
    """Engineers who fix incidents and bring models up; all of them are paid. A number is one team for all stacks, in
    whole people. A mapping by vendor gives each vendor its own team: {amd: 3, nvidia: {per_1000_accelerators: 0.5}}. At
    most three work on one task; a larger team handles more tasks at once. Default: a team for each vendor, as
    engineers_per_800 says."""
    engineers_per_800: dict[str, Annotated[NonNegative, Plausible(0.02, 40)]] = Field(
        default_factory=dict
    )
    """Engineers per 800 accelerators on site, by vendor, e.g. {amd: 2}. The number is rounded up, so the first machine
    needs one. If engineers is stated, it is used instead. Default: the catalogue's number for the vendor."""
    engineer_usd_per_year: Annotated[Price, Plausible(30000, 1500000)] = 280_000.0
    """Yearly cost of one engineer, including benefits and overhead. Default 280,000: the figure of the articles behind
    the set articles-2024."""
    support_contract: Literal["none", "standard", "premium"] = "standard"
    """Vendor support. A fix takes the usual time with standard, 1.5 times as long with none, and 0.6 times as long with
    premium. Default standard: assumption."""
    support_usd_per_accelerator_year: Annotated[Price, Plausible(10, 10000)] | None = None
    """Cost of the support contract. Default: 0 for none, 300 for standard, 900 for premium (assumption)."""
    fix_engineer_h: Annotated[Positive, Plausible(0.5, 2000)] = 40.0
    """Hours that an engineer needs to fix an incident of median difficulty; an engineer works 40 a week. With
    difficulty, these hours grow in the same ratio as the time of the vendor's fix. The incident ends when either the
    engineers or the vendor have fixed it. Default 40: a working week (assumption)."""
    hang_loss_fraction: Annotated[Fraction, Plausible(0, 0.6)] = 0.05
    """Throughput lost to resets while a hang, or another incident that resets nodes, is not fixed. The figure is used
    where the catalogue states no loss for the incident. Default 0.05: assumption."""


class Rule(Strict):
    """A rule that buys, rents or retires nodes once a condition has held for some months.

    On a cluster with an on-demand or spot contract, the rule rents nodes: work overflows to rented capacity, after a
    lead time and up to a ceiling.
    """

    when: Literal[
        "utilisation_above",
        "shed_above",
        "slo_miss_above",
        "utilisation_below",
        "forecast_load_above",
    ]
    """What the rule watches. For each month, this is the cluster's utilisation, the share of tokens shed (without
    tokens that burst rental served), or the share of requests late or shed, as in the timeline. With
    forecast_load_above, it is the forecast peak of requests that cannot wait, in nodes of the cluster, divided by the
    nodes installed and on order."""
    threshold_fraction: Annotated[float, Field(ge=0, le=1.5), Plausible(0.0001, 1.5)]
    """Value at which the rule acts: at most 1, except for forecast_load_above. There it may exceed 1: if the forecast
    peak is seldom reached, an order may wait for the next review although the forecast exceeds what is installed."""
    target_fraction: Annotated[float, Field(gt=0, le=1.5), Plausible(0.1, 1.5)] | None = None
    """For forecast_load_above: forecast load that remains after an order. Default: threshold_fraction."""
    months: Annotated[int, Field(ge=1, le=60), Plausible(1, 24)] | None = None
    """Consecutive months for which the condition must hold. Default: 2, since one month may be chance; 1 for
    forecast_load_above, since its forecast already uses several months."""
    cluster: EntryName
    """Cluster whose nodes the rule buys or retires, or rents under an on-demand or spot contract."""
    watch: EntryName | None = None
    """Cluster whose utilisation is watched. Default: the cluster that is enlarged or reduced."""
    nodes: Annotated[
        int,
        Field(ge=1, le=100_000),
        Plausible(1, 25000, "the largest clusters announced, 200,000 accelerators"),
    ]
    """Nodes bought or rented each time; under utilisation_below, nodes retired or given back. Under forecast_load_above
    an order is as many times this number as the forecast needs."""
    max_nodes: Annotated[NodeCount, Plausible(1, 25000, "same range as nodes")] | None = None
    """Highest number of nodes of the cluster at once, including ordered ones. Default: no limit but those of budget and
    power."""
    max_nodes_per_order: Annotated[NodeCount, Plausible(1, 25000, "same range as nodes")] | None = (
        None
    )
    """For forecast_load_above: highest number of nodes in one order, such as a vendor's allotment. An order is cut, in
    multiples of nodes, to this number and to what max_nodes, budget and power allow. Default: no limit."""
    windows: (
        Literal["monthly", "quarterly"] | Annotated[tuple[datetime.date, ...], Field(min_length=1)]
    ) = "monthly"
    """When the rule may act: at every review, at the review of every third month, or at the first review on or after
    each of the days listed. Default monthly: at every review."""
    lead_weeks: Annotated[Weeks, Plausible(0.5, 104)] = 16.0
    """Weeks from the rule's decision until the nodes serve. Default 16: four months (assumption)."""
    slip_weeks: fields.Spread | None = None
    """Weeks by which a delivery may slip, drawn for each order. Default: none."""
    cooldown_months: Annotated[int, Field(ge=0, le=60), Plausible(1, 24)] | None = None
    """Months before the same rule may act again. Default: 3, so that earlier purchases arrive first; 0 for
    forecast_load_above, which counts nodes on order anyway."""
    forecast_months: Annotated[int, Field(ge=1, le=120), Plausible(1, 36)] | None = None
    """For forecast_load_above: number of months after the review that the forecast covers. Default: lead_weeks in whole
    months plus 3, because what is ordered only a quarter later also arrives a quarter later (assumption)."""
    growth_per_year: Annotated[fields.YearlyChange, Plausible(-0.5, 5)] = 0.0
    """For forecast_load_above: growth expected before any is observed, which weighs as much as six months of
    observations. Default 0: only observed growth counts."""

    @model_validator(mode="after")
    def _can_be_met(self) -> "Rule":
        # The fields below have an effect on a forecast alone; consistency.py names them elsewhere.
        if not self.forecasts:
            if self.threshold_fraction > 1:
                raise ValueError(
                    f"threshold_fraction, {self.threshold_fraction:g}, is a share of at most 1; only a forecast load "
                    "may be more"
                )
            return self
        target = self.threshold_fraction if self.target_fraction is None else self.target_fraction
        # Above the threshold an order would leave the rule's own condition true, month after month.
        if not 0 < target <= self.threshold_fraction:
            raise ValueError(
                f"target_fraction, {target:g}, must be above 0 and at most threshold_fraction, "
                f"{self.threshold_fraction:g}"
            )
        if self.months not in (None, 1):
            raise ValueError(
                f"months must be 1 under forecast_load_above, not {self.months}: the forecast itself weighs months"
            )
        # An order is made of whole steps: a cap below one would never let any through.
        if self.max_nodes_per_order is not None and self.max_nodes_per_order < self.nodes:
            raise ValueError(
                f"max_nodes_per_order, {self.max_nodes_per_order}, is less than one step, {self.nodes}"
            )
        return self

    @property
    def forecasts(self) -> bool:
        """Whether it orders up to a forecast; the others order a fixed number."""
        return self.when == "forecast_load_above"

    @property
    def enlarges(self) -> bool:
        """Whether it buys or rents nodes; a rule on low utilisation retires or returns them."""
        return self.when != "utilisation_below"


class Expansion(Strict):
    """The monthly review of expansion rules.

    It buys only nodes that the site can power: the full load of all nodes must stay within site.facility_power_cap_kw
    in the hottest hour, and their nameplate power within the last of site.power_blocks.
    """

    rules: Annotated[tuple[Rule, ...], Field(max_length=100)] = ()
    """Expansion rules, applied in the order of the list. Default: none."""
    budget_usd: (
        Annotated[
            Price, Plausible(10000, 1000000000.0, "from one server to the highest amount allowed")
        ]
        | None
    ) = None
    """Limit on the money spent on expansion. Default: no limit."""
    it_power_cap_kw: SitePower | None = None
    """Limit on the IT power of all nodes after expansion. Default: no limit beyond the site's own power."""
    price_change_per_year: Annotated[float, Field(gt=-1, le=1), Plausible(-0.7, 0.5)] = 0.0
    """Yearly change of unit prices, from the start to the day of each later order. Default 0: no trend is assumed."""

    def enlarging(self, cluster: str) -> list[Rule]:
        """Return the rules that enlarge a cluster."""
        return [rule for rule in self.rules if rule.cluster == cluster and rule.enlarges]


class CatalogChoice(Strict):
    """The catalogue's assumption set and overlay that the scenario uses."""

    assumptions: Literal["measured", "articles-2024"] = "measured"
    """Name of the assumption set. Default measured: datasheets and public measurements."""
    overlay: str | None = None
    """Your own catalogue file, whose values replace those of the assumption set. Its path is relative to the scenario
    file. Default: none."""


class SloTarget(Strict):
    """The SLO attainment that a plan must reach, over which period and scope, and with what confidence.

    Tables, rankings and advice first list plans that meet it, by cost, then the others, by how far they fall short.
    """

    attainment: Annotated[PositiveFraction, Plausible(0.5, 1)] = 0.99
    """Lowest share of requests that must be within their SLO, above 0 and at most 1. Default 0.99: as API providers
    state (assumption)."""
    per: Literal["month", "horizon"] = "month"
    """Period over which the target must be met: every month, or all months together, so that a good month makes up for
    a bad one. Default month: a user who is not served in March is not helped in May."""
    scope: Literal["workload", "fleet"] = "workload"
    """Whose requests are counted: those of each workload separately, or those of all workloads together (fleet).
    Default workload: a large workload must not hide a small one."""
    workloads: dict[EntryName, PositiveFraction] = Field(default_factory=dict)
    """Attainment by workload, above 0 and at most 1, for workloads whose target differs. Default: the same attainment
    for all."""
    confidence: Annotated[float, Field(gt=0, lt=1), Plausible(0.5, 0.999)] = 0.9
    """Lowest share of replications that must meet the target, above 0 and below 1, since no number of replications
    proves certainty. Default 0.9: nine in ten (assumption)."""

    include: Literal["site-outages"] | None = None
    """Misses that no purchase can prevent and that the verdict of ``planner size`` then counts as well: outages of the
    whole site, and prompts that take longer than the TTFT objective even on an idle replica. Default: ``planner size``
    reports them separately, and its verdict covers capacity only."""

    def attainment_of(self, workload: str) -> float:
        """Return the attainment that a workload is held to."""
        return self.workloads.get(workload, self.attainment)


class OwnProcess(Strict):
    """A SimPy process of your own that runs with the simulation."""

    file: str | None = None
    """Python file with the code of the process, which runs only with --allow-code. Default: the code is in an installed
    package."""
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$")]
    """Generator function in that file, or a package's entry point in the group planner.processes."""


class Future(Strict):
    """Circumstances that may differ from those a plan states, and that nobody decides."""

    set: Annotated[dict[str, Any], Field(min_length=1, max_length=64)]
    """Changes in this future, by dotted path as for ``--set``: ``"workloads.*.growth.per_year": ×2``. A plan that lacks
    the cluster or workload of a path is not changed by it."""
    weight: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Likelihood relative to the other futures, a weight in any unit. Default: none, and nothing is averaged over
    futures."""


class Scenario(Strict):
    """One future: traffic, machines, site and money over a horizon of months."""

    name: Name
    """Name of the scenario and of its output folder."""
    description: str = ""
    """Question that the scenario answers. Default empty: the name may say enough."""
    extends: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=16)] | None = None
    """Scenario file that this one changes, or a list of such files, of which later ones override earlier ones. Paths
    are relative to this file. Default: none."""
    start: Annotated[
        datetime.date, Field(ge=datetime.date(2000, 1, 1), le=datetime.date(2100, 12, 31))
    ]
    """First day of the simulation, from 2000-01-01 to 2100-12-31."""
    horizon_months: Annotated[
        int, Field(ge=1, le=120), Plausible(1, 120, "any length that is allowed")
    ] = 36
    """Months to simulate. Default 36: the default book life, three years."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of all random numbers. Default 1: any other number is as good."""
    catalog: CatalogChoice = CatalogChoice()
    """Catalogue figures that the scenario uses: an assumption set, and a file of your own over it. Default: the set
    measured."""
    calibration: str | None = None
    """File with a calibration of the throughput model, refitted to your own measurements with ``planner calibrate``.
    Its path is relative to the scenario file. Default: the calibration that comes with the planner."""
    workloads: Annotated[dict[EntryName, Workload], Field(min_length=1, max_length=64)]
    """Streams of requests, by name."""
    clusters: Annotated[dict[EntryName, Cluster], Field(min_length=1, max_length=64)]
    """Groups of nodes, or APIs in their place, by name."""
    slo_target: SloTarget = SloTarget()
    """Share of requests within their SLO that the plan must reach. Default: 0.99 for each workload in each month,
    reached in 0.9 of replications."""
    site: Site = Site()
    """Electricity, cooling, space. Default: a new colocation site that pays the average US price of electricity."""
    reliability: Reliability = Reliability()
    """Failures, repairs, spare parts. Default: figures published for large fleets, and assumptions where there are
    none."""
    software: Software = Software()
    """Software releases, incidents and the engineers who fix them. Default: the catalogue's rates, with the upgrade
    policy staged."""
    routing: Literal["cheapest-marginal", "preference", "proportional"] = "cheapest-marginal"
    """How requests are spread over clusters while there is room for all of them. If there is not, all three settings do
    the same: priority by priority, they raise the lowest share of requests served as far as possible. Default
    cheapest-marginal: a request goes where it adds least cost. That is first to machines that are paid anyway, those
    that use least energy for it before the others, then to machines paid by the hour."""
    router_pool: Literal["cluster", "node", "replica"] = "cluster"
    """Replicas among which one router chooses: all replicas of a model in a cluster, those on one node, or a single
    replica. If there are several routers, requests reach them at random. Default cluster: one router before each
    cluster."""
    expansion: Expansion = Expansion()
    """Rules that buy, rent or retire nodes, reviewed monthly. Default: no rules."""
    sizing: Sizing | None = None
    """What ``planner size`` may buy and retire; no other command reads this section. Default: nothing."""
    finance: Finance = Finance()
    """Depreciation, cost of capital, tax and prices. Default: straight-line depreciation over three years."""
    processes: Annotated[tuple[OwnProcess, ...], Field(max_length=32)] = ()
    """SimPy processes of your own that run with the simulation. Default: none."""
    futures: Annotated[dict[EntryName, Future], Field(max_length=32)] = Field(default_factory=dict)
    """Named changes that nobody chooses, such as doubled growth. ``planner compare`` and ``planner size`` run their
    plans in each of them. Default: none."""

    # Not fields: what the user wrote stays out of dumps, hashes and comparisons.
    _document: Document = PrivateAttr(default_factory=lambda: Document({}))
    _from_document: "Callable[[Document, Sequence[str]], Scenario] | None" = PrivateAttr(None)
    """What made it from a document, to make it again with more laid over it; None where it was not loaded."""

    @property
    def machines(self) -> dict[str, Cluster]:
        """The clusters that have machines; the others are APIs."""
        return {name: cluster for name, cluster in self.clusters.items() if not cluster.is_api}

    @model_validator(mode="after")
    def _one_percentile(self) -> "Scenario":
        """Hold workloads that state no percentile to the target's attainment, within what an objective may state."""
        for name, workload in self.workloads.items():
            if workload.slo.percentile is None:
                # A target of 1 has no percentile: the objective's own range bounds it.
                attainment = self.slo_target.attainment_of(name)
                share = min(max(attainment, 0.5), 0.9999)
                slo = workload.slo.model_copy(update={"percentile": share})
                self.workloads[name] = workload.model_copy(update={"slo": slo})
        return self

    def __repr__(self) -> str:
        return f"<Scenario {self.name}, {self.horizon_months} months from {self.start}>"

    @property
    def document(self) -> Document:
        """The user's merged content, with the location of each value."""
        return self._document

    def with_(self, changes: Mapping[str, Any] | None = None, **sections: Any) -> "Scenario":
        """Return the scenario with some values changed, as ``--set`` does.

        ``plan.with_({"clusters.h200.nodes": 80})`` names paths, ``plan.with_(horizon_months=12)`` keys of the first
        level. A mapping is laid over what is there, and None takes a key away.
        """
        # As a dict is read: NumPy's numbers are numbers, and 2026-01-31 is a date also as text.
        stated = document_of_mapping({**(changes or {}), **sections}).content
        overrides = [f"{path}={flow_text(value)}" for path, value in stated.items()]
        return self.laid_over(overrides)

    def laid_over(self, overrides: Sequence[str]) -> "Scenario":
        """Return the scenario with ``--set`` strings applied, after those it was loaded with."""
        document = self._document.without_overrides
        if self._from_document is None or document is None:
            raise ScenarioError(
                f"{self.name} was not loaded, so nothing can be laid over it; load it from a dict"
            )
        # All overrides are applied again, in order: a later one may replace an earlier one.
        all_overrides = (*self._document.overrides, *overrides)
        return self._from_document(document.copy(), all_overrides)

    def load_calibration(self) -> CalibrationFile:
        """Return the calibration of the throughput model that this scenario uses."""
        if self.calibration is None:
            return shipped_file()
        path, content = self._document.file_at(("calibration",), self.calibration)
        return calibration_from(content, str(path))

    def load_code(self) -> list[tuple[str, bytes]]:
        """Return the file of each of the user's processes and its content, which is read only where code is allowed."""
        code = []
        is_allowed = bool(os.environ.get(ALLOW_CODE))
        for number, process in enumerate(self.processes):
            if process.file is None:  # an installed package has it
                code.append(("", b""))
                continue
            place = ("processes", number, "file")
            # A study's workers find the file in the document: whoever began the study has allowed it.
            if not (is_allowed or self._document.is_read(place, process.file)):
                hint = f"review it, then allow it with --allow-code or {ALLOW_CODE}=1 in the environment"
                raise ScenarioError(self._document.problem(place, f"{process.file} is code", hint))
            path, content = self._document.file_at(place, process.file)
            code.append((str(path), content))
        return code

    def states(self, section: str) -> bool:
        """Return whether the user wrote any part of a section."""
        # A default has no location: only what a file, a preset or --set states.
        return any(path[:1] == (section,) for path in self._document.locations)

    def load_catalog(self) -> Catalog:
        """Return the catalogue that this scenario uses."""
        # Read once with the scenario and kept in its document, so that workers have the same bytes.
        overlay = None
        if self.catalog.overlay is not None:
            path, content = self._document.file_at(("catalog", "overlay"), self.catalog.overlay)
            overlay = (str(path), content)
        return catalog_with(self.catalog.assumptions, overlay)
