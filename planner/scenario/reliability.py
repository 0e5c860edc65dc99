"""Hardware that fails, and the people and parts that bring it back."""

from typing import Annotated

from pydantic import BaseModel, Field, Tag

from planner.scenario.fields import (
    EntryName,
    Fraction,
    NonNegative,
    NumberOrRate,
    PerThousand,
    Plausible,
    Positive,
    Rate,
)
from planner.validation import Strict
from planner.yaml_io import KeyPath


class FailureDomain(Strict):
    """What fails as one and takes all nodes behind it: a rack, a switch, a power feed, a cooling loop."""

    nodes: Annotated[int, Field(ge=1, le=1_000_000), Plausible(1, 256, "assumption")] | None = None
    """Nodes behind each, neighbours by number within their cluster. Default: the catalogue's (rack_nodes and so on)."""
    failures_per_year: (
        Annotated[NonNegative, Plausible.prior("power_feed_failure_rate", "cooling_loop_failure_rate")] | None
    ) = None
    """Failures of each a year. Default: the catalogue's (rack_failure_rate and so on)."""
    repair_h: Annotated[Positive, Plausible.prior("switch_repair", "cooling_loop_repair")] | None = None
    """Hours a crew takes to mend it, once it is there. Default: the catalogue's (rack_repair and so on)."""


class Maintenance(Strict):
    """Planned work on single nodes, done in windows that open at even intervals."""

    per_1000_node_days: Annotated[NonNegative, Plausible.prior("planned_interruption_rate")] | None = None
    """Nodes that come up for work, per thousand and day. Default: the catalogue's planned_interruption_rate."""
    length_h: Annotated[Positive, Plausible.prior("planned_interruption_length")] | None = None
    """Hours for which such a node is drained. Default: the catalogue's planned_interruption_length."""
    every_weeks: Annotated[float, Field(gt=0, le=520), Plausible(0.14, 13, "a day to a quarter")] = 1.0
    """Weeks from one window to the next. Default 1: assumption."""


class Firmware(Strict):
    """Rollouts of firmware that drain every node once."""

    rollouts_per_year: Annotated[Positive, Plausible.prior("firmware_rollouts")] | None = None
    """Rollouts a year, at even intervals. Default: the catalogue's firmware_rollouts."""
    length_h: Annotated[Positive, Plausible.prior("firmware_update_length")] | None = None
    """Hours for which a node is drained. Default: the catalogue's firmware_update_length."""


class Reliability(Strict):
    """How often nodes fail, how long repairs take, how many crews and spares there are."""

    failure_multiplier: Annotated[
        NonNegative, Plausible(0.1, 10, "prior node_failure_rate_nvidia, 0.6 to 2.2 times its base, and more")
    ] = 1.0
    """Factor on every cause's rate; 0 switches failures off. Default 1: 3.79 failures per 1,000 node-days, H100."""
    vendor_failure_multiplier: dict[str, Annotated[NonNegative, Plausible.prior("node_failure_multiplier_amd")]] = (
        Field(default_factory=dict)
    )
    """Factor on the rates of a vendor's nodes, e.g. {amd: 1.3}. Default: what the catalogue's vendors say."""
    lemon_fraction: Annotated[float, Field(ge=0, lt=1), Plausible(0.001, 0.1, "assumption")] = 0.012
    """Share of nodes that fail chronically. Default 0.012: research clusters of 16,000 A100."""
    lemon_multiplier: Annotated[float, Field(ge=1, le=1000), Plausible(1, 50, "assumption")] = 8.0
    """Their failure rate against a plain node's. Default 8: assumption; the fleet's mean rate is kept."""
    early_life_multiplier: Annotated[float, Field(ge=1, le=100), Plausible(1, 10, "assumption")] = 2.0
    """Failure rate on the first day against later life. Default 2: assumption."""
    early_life_months: Annotated[Positive, Plausible(0.1, 24, "assumption")] = 2.0
    """Months in which that excess falls to 1/e. Default 2: assumption."""
    soft_repair_h: Annotated[Positive, Plausible.prior("mttr_soft")] = 2.2
    """Mean time of a fault that a reset heals, without a technician. Default 2.2: Delta, H100."""
    medium_repair_h: Annotated[Positive, Plausible.prior("mttr_medium")] = 12.0
    """Mean hands-on time of a fault healed on site without a part. Default 12: 4 to 24 h."""
    hard_repair_h: Annotated[Positive, Plausible.prior("mttr_hard")] = 60.0
    """Mean time of a fault that needs a part, once part and crew are there. Default 60: 24 to 120 h."""
    repair_cv_ratio: Annotated[float, Field(ge=0, le=10), Plausible(0, 3, "assumption")] = 0.6
    """Standard deviation over mean of repair times (lognormal). Default 0.6: the published ranges as P10 to P90."""
    repair_crews: Annotated[
        Annotated[int, Field(ge=1, le=10_000), Plausible(1, 500, "assumption"), Tag("count")] | Rate, NumberOrRate
    ] = PerThousand(per_1000_accelerators=2.0)
    """Technicians who can work at once: a number, or {per_1000_accelerators: 2}, at least one, which grows with the
    accelerators on site. Default 2 per 1,000: one shift of a 2,000-accelerator site has four (assumption)."""
    spares: Annotated[
        Annotated[int, Field(ge=0, le=1_000_000), Plausible(1, 10_000, "assumption"), Tag("count")] | Rate, NumberOrRate
    ] = PerThousand(per_1000_accelerators=6.25)
    """Spare parts in stock for each cluster: a number, or a rate for its own accelerators, at least one unless 0.
    Default 6.25 per 1,000: a published pool of 5% of nodes of eight."""
    spare_fraction: Annotated[Fraction, Plausible.prior("spare_pool")] | None = None
    """The same as a share of a cluster's nodes, as older scenarios state it, in place of spares. Default: spares."""
    rma_weeks: Annotated[Positive, Plausible(0.2, 52, "assumption")] = 4.0
    """Weeks until a used spare is replaced. Default 4: assumption."""
    failure_domains: Annotated[dict[EntryName, FailureDomain], Field(max_length=32)] = Field(default_factory=dict)
    """What takes several nodes at once when it fails, by name. The catalogue knows rack, switch, power_feed and
    cooling_loop, so that {rack: {}} is enough; others state all three figures. Default: none."""
    maintenance: Maintenance | None = None
    """Windows in which nodes are drained for planned work; {} takes the catalogue's figures. Default: none."""
    firmware: Firmware | None = None
    """Rollouts that drain every node in turn; {} takes the catalogue's figures. Default: none."""
    reserve_nodes: Annotated[int, Field(ge=1, le=1_000_000), Plausible(1, 1000, "assumption")] | None = None
    """The reserve for which the plan is made, 1 for N + 1: while so many nodes of a cluster are down, for whatever
    reason, planned work waits. Default: one, or reserve_fraction of the nodes if that is more."""
    reserve_fraction: Annotated[Fraction, Plausible.prior("spare_pool")] | None = None
    """The same as a share of a cluster's nodes on site, rounded up; the larger of the two holds. Default: the
    catalogue's spare_pool where neither is stated."""

    def left_open(self) -> dict[KeyPath, str]:
        """Return the prior of the catalogue that stands for each figure of a domain or of planned work left open."""
        sections: list[tuple[KeyPath, BaseModel | None, dict[str, str]]] = [
            (("maintenance",), self.maintenance, _MAINTENANCE),
            (("firmware",), self.firmware, _FIRMWARE),
        ]
        if (self.maintenance or self.firmware) and self.reserve_nodes is None:
            sections.append(((), self, {"reserve_fraction": "spare_pool"}))
        for name, domain in self.failure_domains.items():
            priors = {
                "nodes": f"{name}_nodes",
                "failures_per_year": f"{name}_failure_rate",
                "repair_h": f"{name}_repair",
            }
            sections.append((("failure_domains", name), domain, priors))
        return {
            (*path, key): prior
            for path, stated, priors in sections
            for key, prior in priors.items()
            if stated is not None and getattr(stated, key) is None
        }


_MAINTENANCE = {"per_1000_node_days": "planned_interruption_rate", "length_h": "planned_interruption_length"}
_FIRMWARE = {"rollouts_per_year": "firmware_rollouts", "length_h": "firmware_update_length"}
