"""Clusters: what is bought, at what price, and when it serves."""

from __future__ import annotations

import datetime
from typing import Annotated

from pydantic import Field

from planner.scenario.fields import BelowOne, Precision, Price
from planner.validation import Strict


class Cluster(Strict):
    """Nodes of one accelerator, bought together, run by one engine."""

    accelerator: str
    """Accelerator, by its catalogue name."""
    nodes: Annotated[int, Field(ge=0, le=100_000)]
    """Servers bought."""
    engine: str = "vllm"
    """Serving engine. Default vllm: first class on both vendors."""
    precision: Precision | None = None
    """Arithmetic this cluster serves in. Default: each workload's own."""
    tensor_parallel: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Accelerators per replica. Default: the smallest number that fits the model and meets its objective."""
    online: datetime.date | None = None
    """First day of service. Default: the start of the scenario."""
    unit_price_usd: Price | None = None
    """Price of one accelerator before discount. Default: the catalogue's, which must have one."""
    price_source: str = "stated in the scenario"
    """Where unit_price_usd comes from. Default: this file."""
    discount_fraction: BelowOne = 0.0
    """Discount on the accelerators. Default 0: list price until a quote says otherwise."""
