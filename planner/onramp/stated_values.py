"""Values written into the text of a scenario, whose comments and layout stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from planner.yaml_io import flow_key, flow_text

_REMARK = "  # as given"
Keys = tuple[str, ...]


def written(text: str, layer: Mapping[str, Any]) -> str:
    """Return YAML text with the values of a layer in it, each marked as given; a null takes its key out."""
    for path, value in _leaves(layer, ()):
        text = _with_value(text, path, value)
    return text


def _leaves(layer: Mapping[str, Any], parents: Keys) -> Iterator[tuple[Keys, Any]]:
    for key, value in layer.items():
        path = (*parents, key)
        if isinstance(value, dict) and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _with_value(text: str, path: Keys, value: Any) -> str:
    """Return the text with one value replaced, or added to the nearest section that is there."""
    # Read anew for every value, because places move with each that is written.
    section = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, key in enumerate(path):
        found = [pair for pair in section.value if pair[0].value == key]
        if not found:
            # A section that is not there is written with all that it is to hold.
            return text if value is None else _added(text, section, path[depth:], value)
        (key_node, node), *_ = found
        is_last = depth == len(path) - 1
        if is_last and value is None:
            return _without(text, section, key_node, node)
        is_mapping = isinstance(node, yaml.MappingNode)
        if is_last or not is_mapping:
            # What is no mapping gives way to one that holds the value.
            content = _nested(path[depth + 1 :], value)
            return _replaced(text, section, key_node, node, content)
        section = node
    return text


def _nested(path: Keys, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _added(text: str, section: Any, path: Keys, value: Any) -> str:
    """Return the text with a further key at the end of a section."""
    line = f"{flow_key(path[0])}: {flow_text(_nested(path[1:], value))}"
    if section.flow_style:
        brace = section.end_mark.index - 1
        comma = ", " if section.value else ""
        return f"{text[:brace]}{comma}{line}{text[brace:]}"
    _, last_node = section.value[-1]
    position = _line_end(text, _end(last_node))
    column = section.start_mark.column
    # Sections of the scenario itself stand apart from one another.
    gap = "\n\n" if column == 0 else "\n"
    return f"{text[:position]}{gap}{' ' * column}{line}{_REMARK}{text[position:]}"


def _replaced(text: str, section: Any, key_node: Any, node: Any, value: Any) -> str:
    begin = text.index(":", key_node.end_mark.index) + 1
    end = _end(node)
    remark = ""
    if not section.flow_style:
        # The remark of the value before goes with it.
        end = _line_end(text, end)
        remark = _REMARK
    return f"{text[:begin]} {flow_text(value)}{remark}{text[end:]}"


def _without(text: str, section: Any, key_node: Any, node: Any) -> str:
    begin = key_node.start_mark.index
    end = _end(node)
    if not section.flow_style:
        # The whole line, with its indentation and its remark.
        begin = text.rindex("\n", 0, begin)
        return text[:begin] + text[_line_end(text, end) :]
    pairs = [f"{flow_text(key.value)}: {text[one.start_mark.index : _end(one)]}"
             for key, one in section.value if key is not key_node]  # fmt: skip
    inner = ", ".join(pairs)
    return f"{text[: section.start_mark.index]}{{{inner}}}{text[section.end_mark.index :]}"


def _end(node: Any) -> int:
    """Return where a value ends: of a block, with the last of its values, before what is remarked below."""
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    while is_block and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
        is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    end: int = node.end_mark.index
    return end


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end
