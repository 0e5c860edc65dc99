"""Entries of one's own: a model from its published configuration, an accelerator from its datasheet."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.catalog import entries as kinds
from planner.catalog.load import catalog_with, formats_of, load_catalog
from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError, raise_all
from planner.files import write_file
from planner.physics.model_on_part import canonical_precision
from planner.units import unit_of
from planner.validation import field_docstring
from planner.yaml_io import MAX_BYTES, flow_text, parse_scalar, read_bytes, replaced

_CONFIG_KEYS = {row["key"]: row["config"].split() for row in data_rows(__file__, "config_keys.csv")}
"""Keys of a model's entry, and what published configurations call them, the usual name first."""
_NORMALISED = ("qwen3", "gemma3", "olmo2")
"""Kinds of models whose queries and keys are normalised without their configuration saying so."""


def model_entry(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a model's name, where it has one, and its entry from a config.json as Hugging Face publishes them."""
    try:
        config = json.loads(read_bytes(path, MAX_BYTES))
        config = {**config, **config.get("text_config", {})}  # of a model that sees, what speaks
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        message = f"is no configuration of a model: {type(error).__name__}"
        raise ScenarioError(
            Problem(file=str(path), message=message, hint="give the model's config.json")
        ) from None
    known = {
        key: [config[name] for name in names if config.get(name)]
        for key, names in _CONFIG_KEYS.items()
    }
    entry = {key: stated[0] for key, stated in known.items() if stated}
    if isinstance(heads := entry.get("heads"), int) and isinstance(
        width := entry.get("hidden_size"), int
    ):
        entry.setdefault("head_dim", width // heads)
    if "experts" in entry:
        entry.setdefault("expert_intermediate_size", entry.get("intermediate_size"))
    else:  # dense, whatever it states of experts
        entry = {
            key: value
            for key, value in entry.items()
            if "expert" not in key and key != "dense_layers"
        }
    if str(config.get("model_type")).startswith(_NORMALISED):
        entry["qk_norm"] = True
    types = [str(kind) for kind in config.get("layer_types") or ["sliding_attention"]]
    others = sorted({*types} - {"full_attention", "sliding_attention"})
    if others or config.get("use_sliding_window") is False:
        entry.pop("sliding_window_tokens", None)
    if "sliding_window_tokens" in entry:
        entry["sliding_layers_fraction"] = types.count("sliding_attention") / len(types)
    quantised = json.dumps(config.get("quantization_config") or {}).lower()
    formats = formats_of(load_catalog())
    bits = re.findall(r'bits": (\d+)', quantised)
    words = re.findall(r"\w+", quantised) + [
        f"{'fp' if 'float' in quantised else 'int'}{number}" for number in bits
    ]
    if precisions := [name for word in words if (name := canonical_precision(formats, word))]:
        entry["native_precision"] = precisions[0]
    is_latent = "kv_lora_rank" in entry
    is_sparse = "index_heads" in entry
    few = "multi-query" if entry.get("kv_heads") == 1 else "grouped-query"
    kind = "mixture-of-experts" if "experts" in entry else "dense"
    entry["architecture_class"] = "custom-attention" if is_latent or is_sparse or others else kind
    entry["attention"] = "latent" if is_latent else few
    entry |= {"source": f"Published configuration, {path.name}", "grade": "C" if others else "A"}
    if others:
        entry["source"] += f"; its layers of {', '.join(others)} count as full attention"
    name = str(config.get("_name_or_path") or "").rpartition("/")[2].lower()
    return name or path.resolve().parent.name.lower(), entry


def accelerator_like(part: str) -> dict[str, Any]:
    """Return the entry of an accelerator that is taken to be as another, each value marked as assumed."""
    provenance = {"source": f"Assumed: as for {part}", "grade": "D"}
    entry: dict[str, Any] = {}
    for key, fact, _ in load_catalog().accelerator(part).facts():
        entry = replaced(entry, tuple(key.split(".")), {"value": fact.value, **provenance})  # type: ignore[union-attr]
    return entry


def add_entry(
    overlay: Path, section: str, name: str, entry: Mapping[str, Any], stated: Sequence[str]
) -> None:
    """Write an entry into an overlay, new or extended, with what is stated over it as KEY=VALUE; check all first.

    Fields that the entry needs and does not have are all named with what they mean.
    """
    filled = dict(entry)
    kind = kinds.Model if section == "models" else kinds.Accelerator
    for word in stated:
        key, equals, value = word.partition("=")
        if not equals:
            raise ScenarioError(
                Problem(
                    path="--set", message=f"{word!r} is not KEY=VALUE", hint="such as tdp_w=1000"
                )
            )
        filled = replaced(filled, tuple(key.strip().split(".")), parse_scalar(value.strip()))
    needed = {
        key: field_docstring(kind, key)
        for key, field in kind.model_fields.items()
        if field.is_required()
    }
    needed = {"source": "Where the figures are from, in words.", **needed}
    problems = []
    for key, text in needed.items():
        if filled.get(key) is None:
            hint = f"--set {key}=VALUE" + (f", in {unit}" if (unit := unit_of(key)) else "")
            problems.append(
                Problem(path=f"{section}.{name}.{key}", message=f"is needed: {text}", hint=hint)
            )
    raise_all(problems)
    ordered = {"source": filled.pop("source"), "grade": filled.pop("grade", "D"), **filled}
    before = read_bytes(overlay, MAX_BYTES).decode("utf-8", "replace") if overlay.exists() else ""
    lines = [
        f"  {flow_text(name)}:",
        *(f"    {key}: {flow_text(value)}" for key, value in ordered.items()),
    ]
    head = re.search(rf"^{section}:[ \t]*(#.*)?$", before, re.MULTILINE)
    text = f"{before.rstrip()}\n{section}:\n".lstrip() + "\n".join(lines) + "\n"
    if head:
        text = "\n".join([before[: head.end()], *lines]) + before[head.end() :]
    catalog_with("measured", (str(overlay), text.encode()))
    write_file(overlay, text.encode())
