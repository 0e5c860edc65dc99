"""The fields of the scenario language, read from the same JSON schema that ``planner schema`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.scenario.scenario import Scenario
from planner.units import unit_of

Schema = Mapping[str, Any]
_TYPES = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioField:
    """One key that a user may write."""

    path: str
    """Dotted path, as ``--set`` takes it; ``<name>`` stands for a name of the user's choice."""
    kind: str
    """What may be written: a type, or the words to choose from."""
    unit: str | None
    allowed: str
    """The range of a number or the size of a mapping; empty where anything of the type goes."""
    plausible: str
    """The range outside which a value is warned of, and whose it is; empty where the field has none."""
    default: str | None
    """The default as it would be written; None where there is none or where the text describes it."""
    required: bool
    meaning: str
    """What it means, without the default."""
    reason: str
    """What the default is, or why it is what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The keys of one mapping in a scenario."""

    path: str
    """Dotted path of the mapping; empty at the top."""
    tag: str | None
    """``kind`` of this alternative, where the mapping is one of several."""
    description: str
    fields: tuple[ScenarioField, ...]


def scenario_sections(schema: Schema | None = None) -> list[Section]:
    """Return every mapping of a scenario with its keys, outer before inner; of ``schema`` where one is given."""
    root = Scenario.model_json_schema(by_alias=True) if schema is None else schema
    return list(_sections(root, root, "", ()))


def _sections(root: Schema, model: Schema, path: str, above: tuple[str, ...]) -> Iterator[Section]:
    """Yield one mapping, then the mappings inside it; ``above`` holds the models around it, to end a recursion."""
    required = model.get("required", ())
    properties: Mapping[str, Schema] = model.get("properties", {})
    prefix = f"{path}." if path else ""
    yield Section(
        path=path,
        tag=properties.get("kind", {}).get("const"),
        description=_first_paragraph(model.get("description", "")),
        fields=tuple(
            _field(root, prefix + key, field, key in required) for key, field in properties.items()
        ),
    )
    for key, field in properties.items():
        for suffix, inner in _inner_models(root, field):
            title = inner.get("title", "")
            if title not in above:
                yield from _sections(root, inner, prefix + key + suffix, (*above, title))


def _inner_models(root: Schema, field: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the mappings that a field may hold, with what their path adds to the field's."""
    if "$ref" in field:
        target = root["$defs"][field["$ref"].rpartition("/")[2]]
        yield from [("", target)] if "properties" in target else _inner_models(root, target)
    for union in ("anyOf", "oneOf", "allOf"):
        for part in field.get(union, ()):
            yield from _inner_models(root, part)
    if isinstance(field.get("additionalProperties"), Mapping):
        for suffix, model in _inner_models(root, field["additionalProperties"]):
            yield f".<name>{suffix}", model
    if isinstance(field.get("items"), Mapping):
        for suffix, model in _inner_models(root, field["items"]):
            yield f"[]{suffix}", model


def _field(root: Schema, path: str, field: Schema, required: bool) -> ScenarioField:
    meaning, _, tail = field.get("description", "").partition("Default")
    before_colon, _, reason = tail.partition(":")
    default = field.get("default")
    shown = None if default in (None, "") or isinstance(default, dict) else _written(default)
    if shown is None and before_colon.strip():  # what the default is stands in words alone
        reason = tail
    return ScenarioField(
        path=path,
        kind=_kind(root, field),
        unit=unit_of(path.rpartition(".")[2]),
        allowed=_allowed(field),
        plausible=_plausible(field),
        default=shown,
        required=required,
        meaning=meaning.strip(),
        reason=reason.strip().rstrip("."),
    )


def _kind(root: Schema, field: Schema) -> str:
    """Say what may be written, in words."""
    if "$ref" in field:
        return _kind(root, root["$defs"][field["$ref"].rpartition("/")[2]])
    for union in ("anyOf", "oneOf", "allOf"):
        if union in field:
            return " or ".join(
                dict.fromkeys(
                    _kind(root, part) for part in field[union] if part.get("type") != "null"
                )
            )
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    if field.get("type") == "array":
        items = field.get("items")
        return f"list of {_kind(root, items)}" if isinstance(items, Mapping) else "list"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"{_kind(root, inner)} by name" if isinstance(inner, Mapping) else "mapping"
    return (
        "date" if field.get("format") == "date" else _TYPES.get(field.get("type", ""), "anything")
    )


def _allowed(field: Schema) -> str:
    """Write the bounds of a field as an inequality; of each part where it is one of several."""
    for union in ("anyOf", "oneOf"):
        if union in field:
            return " or ".join(filter(None, (_allowed(part) for part in field[union])))
    low = [
        f"{_bound(field[key])} {sign} "
        for key, sign in (("minimum", "≤"), ("exclusiveMinimum", "<"))
        if key in field
    ]
    high = [
        f" {sign} {_bound(field[key])}"
        for key, sign in (("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in field
    ]
    if low or high:
        return "".join(low) + "x" + "".join(high)
    fewest, most = (
        next(
            (
                field[f"{end}{what}"]
                for what in ("Properties", "Items", "Length")
                if f"{end}{what}" in field
            ),
            None,
        )
        for end in ("min", "max")
    )
    if fewest is None and most is None:
        return ""
    return f"at least {fewest}" if most is None else f"{fewest or 0} to {most}"


def _plausible(field: Schema) -> str:
    """Write the plausible range of a field, of the part of a union that has one, or of numbers by name."""
    named = field.get("additionalProperties")
    for part in (field, *field.get("anyOf", ()), *([named] if isinstance(named, Mapping) else [])):
        if (usual := part.get("x-plausible")) is not None:
            return f"{_bound(usual['low'])} to {_bound(usual['high'])}: {usual['source']}"
    return ""


def _bound(number: float) -> str:
    """Write a bound; powers of ten that only guard against nonsense are shown as such."""
    rounded = f"{number:.0e}"
    if abs(number) >= 1e6 and float(rounded) == number:
        return rounded.replace("e+0", "e").replace("e+", "e")
    return f"{number:,}" if isinstance(number, int) else f"{number:,.12g}"


def _written(default: Any) -> str:
    """Write a default as YAML has it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:.12g}"
    return str(default)


def _first_paragraph(description: str) -> str:
    return " ".join(description.strip().partition("\n\n")[0].split())
