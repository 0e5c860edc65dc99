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
from planner.yaml_io import MAX_BYTES, flow_text, parse_scalar, read_bytes, with_value

_CONFIG_ROWS = data_rows(__file__, "config_keys.csv")
_CONFIG_KEYS = {row["key"]: row["config"].split() for row in _CONFIG_ROWS}
"""Keys of a model's entry, and what published configurations call them, the usual name first."""
_NORMALISED = ("qwen3", "gemma3", "olmo2")
"""Kinds of models whose queries and keys are normalised without their configuration saying so."""


def model_entry(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a model's name, where it has one, and its entry from a config.json as Hugging Face publishes them."""
    config = _read_config(path)
    entry = _stated_figures(config)
    # Their code normalises whatever the configuration says.
    model_type = str(config.get("model_type"))
    if model_type.startswith(_NORMALISED):
        entry["qk_norm"] = True
    unusual = _attention_layers(config, entry)
    if precision := _native_precision(config):
        entry["native_precision"] = precision
    is_latent = "kv_lora_rank" in entry
    grouped = "multi-query" if entry.get("kv_heads") == 1 else "grouped-query"
    kind = "mixture-of-experts" if "experts" in entry else "dense"
    # Kernels for such attention are younger, which the stack's maturity follows.
    is_custom = is_latent or "index_heads" in entry or unusual
    entry["architecture_class"] = "custom-attention" if is_custom else kind
    entry["attention"] = "latent" if is_latent else grouped
    entry["source"] = f"Published configuration, {path.name}"
    entry["grade"] = "C" if unusual else "A"
    if unusual:
        entry["source"] += f"; its layers of {', '.join(unusual)} count as full attention"
    # Published as owner/name; without one, the folder mostly has the model's name.
    published_path = str(config.get("_name_or_path") or "")
    published_name = published_path.rpartition("/")[2]
    name = published_name or path.resolve().parent.name
    return name.lower(), entry


def _read_config(path: Path) -> dict[str, Any]:
    """Return a model's published configuration; of one that also sees, that of its language model first."""
    try:
        config = json.loads(read_bytes(path, MAX_BYTES))
        language_config = config.get("text_config", {})
        return {**config, **language_config}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        message = f"is not a configuration of a model: {type(error).__name__}"
        hint = "give the model's config.json"
        raise ScenarioError(message, file=str(path), hint=hint) from None


def _stated_figures(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an entry that a configuration states, by any of their usual names."""
    entry: dict[str, Any] = {}
    for key, config_keys in _CONFIG_KEYS.items():
        # A key that is null or zero states nothing.
        figures = [config[name] for name in config_keys if config.get(name)]
        if figures:
            entry[key] = figures[0]
    heads = entry.get("heads")
    width = entry.get("hidden_size")
    if isinstance(heads, int) and isinstance(width, int):
        entry.setdefault("head_dim", width // heads)
    if "experts" in entry:
        entry.setdefault("expert_intermediate_size", entry.get("intermediate_size"))
        return entry
    # Dense, whatever it states of experts: a family's configurations share their keys.
    entry.pop("dense_layers", None)
    return {key: figure for key, figure in entry.items() if "expert" not in key}


def _attention_layers(config: Mapping[str, Any], entry: dict[str, Any]) -> list[str]:
    """Set the share of layers with a sliding window, and return the kinds of layers that the formula does not know."""
    # Without a list of layers, a stated window is that of every layer.
    layer_types = config.get("layer_types") or ["sliding_attention"]
    layers = [str(kind) for kind in layer_types]
    unusual = sorted(set(layers) - {"full_attention", "sliding_attention"})
    if unusual or config.get("use_sliding_window") is False:
        entry.pop("sliding_window_tokens", None)
    if "sliding_window_tokens" in entry:
        sliding_layers = layers.count("sliding_attention")
        entry["sliding_layers_fraction"] = sliding_layers / len(layers)
    return unusual


def _native_precision(config: Mapping[str, Any]) -> str | None:
    """Return the precision that a configuration's quantisation names, by a word or by a number of bits."""
    quantisation = config.get("quantization_config") or {}
    # As text: every tool nests its words in another way.
    text = json.dumps(quantisation).lower()
    kind = "fp" if "float" in text else "int"
    words = re.findall(r"\w+", text)
    bit_numbers = re.findall(r'bits": (\d+)', text)
    words += [f"{kind}{bits}" for bits in bit_numbers]
    formats = formats_of(load_catalog())
    precisions = (canonical_precision(formats, word) for word in words)
    return next(filter(None, precisions), None)


def accelerator_like(part: str) -> dict[str, Any]:
    """Return the entry of an accelerator that is taken to be as another, each value marked as assumed."""
    # Whoever reads the assumptions must see that nothing of it was measured.
    provenance = {"source": f"Assumed: as for {part}", "grade": "D"}
    entry: dict[str, Any] = {}
    accelerator = load_catalog().accelerator(part)
    for key, fact, _ in accelerator.facts():
        path = tuple(key.split("."))
        value = {"value": fact.value, **provenance}  # type: ignore[union-attr]
        entry = with_value(entry, path, value)
    return entry


def add_entry(
    overlay: Path, section: str, name: str, entry: Mapping[str, Any], stated: Sequence[str]
) -> None:
    """Write an entry into an overlay, new or extended, with what is stated over it as KEY=VALUE; check all first.

    Fields that the entry needs and does not have are all named with what they mean.
    """
    filled = dict(entry)
    for word in stated:
        key, equals, value = word.partition("=")
        if not equals:
            message = f"{word!r} is not KEY=VALUE"
            raise ScenarioError(message, path="--set", hint="such as tdp_w=1000")
        key_path = tuple(key.strip().split("."))
        filled = with_value(filled, key_path, parse_scalar(value.strip()))
    kind = kinds.Model if section == "models" else kinds.Accelerator
    # An entry's values take its source, so it is no field of the class and asked for first.
    meanings = {"source": "Where the figures are from, in words."}
    for key, field in kind.model_fields.items():
        if field.is_required():
            meanings[key] = field_docstring(kind, key)
    problems = []
    for key, meaning in meanings.items():
        if filled.get(key) is None:
            unit = unit_of(key)
            hint = f"--set {key}=VALUE"
            if unit:
                hint += f", in {unit}"
            path = f"{section}.{name}.{key}"
            message = f"is needed: {meaning}"
            problems.append(Problem(path=path, message=message, hint=hint))
    raise_all(problems)
    # The source first, as the shipped files have it.
    source = filled.pop("source")
    grade = filled.pop("grade", "D")
    ordered = {"source": source, "grade": grade, **filled}
    lines = [f"  {flow_text(name)}:"]
    lines += [f"    {key}: {flow_text(value)}" for key, value in ordered.items()]
    content = _with_lines(overlay, section, lines).encode()
    # Read as a catalogue before it is written, so that no invalid overlay is left behind.
    catalog_with("measured", (str(overlay), content))
    write_file(overlay, content)


def _with_lines(overlay: Path, section: str, lines: list[str]) -> str:
    """Return an overlay's text, empty where there is none yet, with the lines of an entry put into a section."""
    text = ""
    if overlay.exists():
        text = read_bytes(overlay, MAX_BYTES).decode("utf-8", "replace")
    heading = re.search(rf"^{section}:[ \t]*(#.*)?$", text, re.MULTILINE)
    if heading:
        # Right under the heading, as text: comments and order of the user's file stay.
        through_heading = text[: heading.end()]
        remainder = text[heading.end() :]
        return "\n".join([through_heading, *lines]) + remainder
    return f"{text.rstrip()}\n{section}:\n".lstrip() + "\n".join(lines) + "\n"
