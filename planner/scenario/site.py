"""The site: electricity, cooling, space, and the people who keep machines alive."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.scenario.fields import NonNegative, Positive, Price
from planner.validation import Strict


class Site(Strict):
    """Where the machines stand."""

    tariff: str = "us-average"
    """Electricity tariff, by its catalogue name. Default us-average: the middle of the listed states."""
    electricity_usd_per_kwh: Annotated[float, Field(ge=0, le=10)] | None = None
    """Price of energy, in place of the tariff's. Default: the tariff's."""
    pue_ratio: Annotated[float, Field(ge=1, le=3)] = 1.3
    """Facility power over IT power. Default 1.3: new large colocation sites (Uptime)."""
    colocation_usd_per_kw_month: Price = 180.0
    """Rent per provisioned kW of IT load and month. Default 180: CBRE primary markets, 2025."""
    repair_crews: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Technicians who can work at once. Default 4: one shift of a 2,000-accelerator site (assumption)."""


class Reliability(Strict):
    """How often nodes fail and how long repairs take."""

    node_failures_per_1000_node_days: NonNegative = 3.8
    """Failures that take a node out of service. Default 3.8: 419 interruptions of 2,048 H100 nodes in 54 days."""
    amd_failure_multiplier: NonNegative = 1.3
    """AMD nodes' failures against NVIDIA's. Default 1.3: assumption, no public AMD fleet rate exists."""
    mean_repair_h: Positive = 26.0
    """Mean hands-on repair time. Default 26: 40% hard at 60 h, the rest soft or medium."""
