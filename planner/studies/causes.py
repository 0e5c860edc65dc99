"""The causes of a bridge: what each switches, and what it means."""

from __future__ import annotations

CAUSES = {
    "price": ("price_usd",),
    "throughput": ("throughput_tokens", "throughput_output_tokens"),
    "power": ("power_usd",),
    "software": ("undragged_fraction",),
    "failures": ("available_fraction", "parts_usd"),
    "utilisation": ("utilised_fraction", "missed_usd"),
    "people": ("people_usd",),
}
"""The factors each cause switches."""
CAUSE_MEANINGS = {
    "price": "Depreciation, cost of capital, maintenance, insurance and licences of an accelerator-hour on site.",
    "throughput": "Tokens an accelerator yields in an hour at full speed and full load, in the plan's mix of work.",
    "power": "Energy, cooling, demand charge, space and carbon of an accelerator-hour on site.",
    "software": "Share of working hours not lost to open software incidents.",
    "failures": "Share of hours on site in which an accelerator is in service, and the cost of spares and parts.",
    "utilisation": "Share of hours in service that are worked, and the cost of work missed (credits, burst rental).",
    "people": "Engineers, operations staff and support contracts of an accelerator-hour on site.",
}
