"""From catalogue entries to what the throughput formula takes."""

from __future__ import annotations

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


def shape_of(name: str, catalog: Catalog) -> ModelShape:
    """Turn a catalogue model into what the throughput formula needs."""
    entry = catalog.model(name)

    def optional(field: str) -> int:
        fact = getattr(entry, field)
        return 0 if fact is None else int(fact.value)

    return ModelShape(
        name=name,
        layers=entry.layers.value,
        hidden=entry.hidden_size.value,
        intermediate=entry.intermediate_size.value,
        heads=entry.heads.value,
        kv_heads=entry.kv_heads.value,
        head_dim=entry.head_dim.value,
        vocab=entry.vocabulary.value,
        experts=optional("experts"),
        experts_per_token=optional("experts_per_token"),
        moe_intermediate=optional("expert_intermediate_size"),
        shared_experts=optional("shared_experts"),
        dense_layers=optional("dense_layers"),
        q_lora_rank=optional("q_lora_rank"),
        kv_lora_rank=optional("kv_lora_rank"),
        qk_rope_head_dim=optional("qk_rope_head_dim"),
        qk_nope_head_dim=optional("qk_nope_head_dim"),
        v_head_dim=optional("v_head_dim"),
        sliding_window=optional("sliding_window_tokens"),
        sliding_layers_fraction=entry.sliding_layers_fraction.value if entry.sliding_layers_fraction else 0.0,
        tied_embeddings=bool(entry.tied_embeddings and entry.tied_embeddings.value),
        max_context=entry.max_context_tokens.value,
        architecture_class="moe"
        if entry.architecture_class.value == "mixture-of-experts"
        else entry.architecture_class.value,
        native_precision=entry.native_precision.value
        if entry.native_precision
        else catalog.precision_with("activations"),
        shared_precision=entry.shared_precision.value if entry.shared_precision else "",
        family=entry.family.value if entry.family else "",
        qk_norm=bool(entry.qk_norm and entry.qk_norm.value),
        attention_parameters=entry.attention_parameters_per_layer.value
        if entry.attention_parameters_per_layer
        else 0.0,
        attended_tokens=optional("attended_tokens"),
        cache_fraction=entry.cache_fraction.value if entry.cache_fraction else 1.0,
    )
