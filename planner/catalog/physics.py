"""From catalogue entries to what the throughput formula takes."""

from __future__ import annotations

import dataclasses
from typing import Any

from planner.catalog.entries import Sourced
from planner.catalog.load import Catalog
from planner.physics.model_shape import ModelShape
from planner.physics.part import Part
from planner.physics.precision import Formats, NumberFormat
from planner.units import GIB, GIGA, TB, TERA


def formats_of(catalog: Catalog) -> Formats:
    """Turn the catalogue's precisions into what the throughput formula needs."""
    formats = {}
    for name, entry in catalog.precisions.items():
        facts = {key: fact for key, fact, _ in entry.facts() if key != "known_dialects"}
        stated: dict[str, Any] = {key: fact.value for key, fact in facts.items() if isinstance(fact, Sourced)}
        stated["falls_back_for_all"] = stated.pop("falls_back_for", "published") == "all"
        stated.setdefault("published_weight_bytes", entry.weight_bytes.value)
        formats[name] = NumberFormat(name=name, **stated)
    return formats


def part_of(name: str, catalog: Catalog) -> Part:
    """Turn a catalogue accelerator into what the throughput formula needs."""
    entry = catalog.accelerator(name)
    return Part(
        name=name,
        vendor=entry.vendor.value,
        hbm_bytes=entry.hbm_gb.value * GIB,
        hbm_bytes_per_s=entry.hbm_tb_per_s.value * TB,
        dense_flops_per_s={precision: rate.value * TERA for precision, rate in entry.dense_tflops.items()},
        formats=formats_of(catalog),
        dialects={precision: dialect.value for precision, dialect in entry.dialects.items()},
        tdp_w=entry.tdp_w.value,
        link_bytes_per_s=entry.scaleup_gb_per_s.value * GIGA,
        scaleup_accelerators=entry.scaleup_accelerators.value,
        switched=entry.scaleup_switched.value,
        accelerators_per_node=entry.accelerators_per_node.value,
        network_bytes_per_s=(entry.scaleout_gb_per_s or entry.scaleup_gb_per_s).value * GIGA,
    )


_NAMES = {
    "hidden_size": "hidden",
    "intermediate_size": "intermediate",
    "expert_intermediate_size": "moe_intermediate",
    "vocabulary": "vocab",
    "sliding_window_tokens": "sliding_window",
    "max_context_tokens": "max_context",
    "attention_parameters_per_layer": "attention_parameters",
}
"""Facts of a model that the formula knows by a shorter name."""


def shape_of(name: str, catalog: Catalog) -> ModelShape:
    """Turn a catalogue model into what the throughput formula needs, which has defaults for what is not stated."""
    taken = {field.name for field in dataclasses.fields(ModelShape)}
    facts = {
        _NAMES.get(key, key): fact.value for key, fact, _ in catalog.model(name).facts() if isinstance(fact, Sourced)
    }
    stated: dict[str, Any] = {key: value for key, value in facts.items() if key in taken}
    stated.setdefault("native_precision", catalog.precision_with("activations"))
    if stated["architecture_class"] == "mixture-of-experts":
        stated["architecture_class"] = "moe"
    return ModelShape(name=name, **stated)
