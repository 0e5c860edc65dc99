"""Hardware that fails, and the people and parts that bring it back."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from planner.language.fields import Fraction, NonNegative, NumberOrRate, PerThousand, Plausible, Positive, Rate
from planner.validation import Strict


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
