"""The scenario that ``planner init`` writes: small, commented, and ready to run."""

from __future__ import annotations

import datetime

from pydantic import TypeAdapter, ValidationError

from planner.documents import parse_scalar
from planner.errors import Problem, ScenarioError
from planner.finance.months import add_months
from planner.language.fields import Name

_TEXT = """\
# yaml-language-server: $schema=scenario.schema.json
# (by the line above your editor completes and checks this file; planner schema prints the schema anew)
name: {name}
start: {start}          # first day
horizon_months: 36         # three years of depreciation

{workloads}
{clusters}
site:
  tariff: us-ohio          # planner catalog lists tariffs
  pue_ratio: 1.25

finance:
  depreciation_months: 36
  residual_fraction: 0.2
  discount_rate_per_year: 0.1
"""
_WORKLOADS = """\
workloads:                 # what arrives; add as many as you serve
  chat:
    model: llama-3.1-70b   # planner catalog lists models
    precision: fp8
    requests_per_s: 80     # mean on day one
    growth: {kind: compound, per_year: 0.5}
    shape: {timezone: America/New_York, peak_to_mean: 1.6, weekend_fraction: 0.7}
    tokens:
      input: {mean: 1200, p95: 4000}
      output: {mean: 300, p95: 900}
    slo: {ttft_s: 2.0, tpot_s: 0.05}
    priority: interactive
"""
_CLUSTERS = """\
clusters:                  # what you buy; prices come from the catalogue unless you state them
  h200:
    accelerator: H200
    nodes: 16              # servers of eight
    engine: vllm
    discount_fraction: 0.10
    # unit_price_usd: 35000
    # price_source: quote of 2026-01-10
  mi325x:
    accelerator: MI325X
    nodes: 16
    engine: vllm
    discount_fraction: 0.18
    online: {online}     # first day of service

# promise: {{in_time: 0.99}} # share of requests in time, each month and workload; 0.99 unless you say otherwise
# choose:                  # planner size finds the cheapest of these that keep the promise
#   clusters:
#     h200: {{dates: [{start}, {later}], most_nodes: 100}}
#     mi325x: {{dates: [{online}, {later}], most_nodes: 100}}
#   power_kw: 1000
#   review: {later}     # decide on what comes from then on by the demand seen until then
"""


def starter_text(
    name: str,
    start: datetime.date = datetime.date(2026, 1, 1),
    workloads: str | None = None,
    clusters: str | None = None,
) -> str:
    """Return the starter scenario under a name, with sections of one's own in place of its workloads and clusters.

    Raise ScenarioError when the name will not do.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ScenarioError(Problem(message=f"{name!r} will not do as a name: {message}")) from None
    plain = isinstance(parse_scalar(name), str)
    return _TEXT.format(
        name=name if plain else f'"{name}"',  # a name such as 2026 or null needs its quotes
        start=start,
        workloads=workloads or _WORKLOADS,
        clusters=clusters or _CLUSTERS.format(start=start, online=add_months(start, 2), later=add_months(start, 12)),
    )
