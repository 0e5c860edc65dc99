"""YAML text to plain Python, with the line of every value.

The parser is deliberately smaller than YAML: one document, string keys, the scalars of the YAML 1.2 core schema plus
dates (so ``no`` is a word and ``12:30`` is not 750), no custom tags, no duplicate keys, and limits on size, depth and
alias expansion, so that no file can exhaust the machine that reads it.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from planner.errors import Problem, ScenarioError
from planner.files import check_place

# The C parser when PyYAML was built with it: same events, some eight times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_BYTES = 4_000_000
"""Most bytes of a YAML file: a scenario is a few kB, so a hundredfold one still fits."""
MAX_FILE_BYTES = 100_000_000
"""Most bytes of a table that a scenario names: one of a million dates is 20 MB."""
MAX_DEPTH = 32
"""Most keys of a path; also what ends a mapping that holds itself."""
MAX_NODES = 200_000
"""Most values of a document, counted after aliases are expanded: this is what stops an alias bomb."""
SMALLEST_NUMBER = 1e-100
"""Smallest number apart from zero: no quantity is as small, and a division by less would be infinite."""
_TEXT_PER_NODE = 100
"""Characters of text that weigh as much as one value, so that repeated long text counts too."""

_INT = re.compile(r"[-+]?[0-9][0-9_]*$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})$")
_BEGIN_NUMBER = frozenset("+-.0123456789")
"""First characters of numbers and dates: most words are known to be text by one look."""
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
    ".inf": float("inf"),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
# What YAML 1.2 calls non-printable (5.1): refused here, because the parser would not name the line.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Location:
    """File and line of a value."""

    file: str
    line: int | None


@dataclass(slots=True)
class Document:
    """A parsed document and the location of each of its values."""

    content: Any
    locations: dict[KeyPath, Location] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """Bytes of the further files that the content names, by path: each is read once, and travels with the document."""
    is_sealed: bool = False
    """No further file is read: a study's workers have what the study had when it began, and nothing of their own."""
    overrides: tuple[str, ...] = ()
    """What was laid over the files, as ``--set`` takes it."""
    without_overrides: Document | None = None
    """The files alone, without overrides and workload presets, so that further overrides start from there."""

    def copy(self) -> Document:
        """Return a copy that can be merged into without changing this one; the files read are shared."""
        # The content needs no copy: a merge makes new mappings and leaves the old ones as they are.
        return Document(self.content, dict(self.locations), self.files)

    def file_at(self, path: KeyPath, name: str) -> tuple[Path, bytes]:
        """Return path and bytes of the file that the value at ``path`` names, relative to its own file."""
        file = self._beside(path, name)
        key = str(file)
        if key not in self.files:
            if self.is_sealed:
                raise ScenarioError("was not read when the study began", file=key)
            self.files[key] = read_bytes(file, MAX_FILE_BYTES)
        return file, self.files[key]

    def is_read(self, path: KeyPath, name: str) -> bool:
        """Return whether the file that the value at ``path`` names was read already."""
        file = self._beside(path, name)
        return str(file) in self.files

    def _beside(self, path: KeyPath, name: str) -> Path:
        """Return a file's path relative to the file that names it."""
        place = self.locate(path)
        # Only what a file states has a line: a dict or --set is relative to the current folder.
        if place is None or place.line is None:
            return Path(name)
        return Path(place.file).parent / name

    def locate(self, path: KeyPath) -> Location | None:
        """Return the location of the value at ``path``, or of its nearest parent."""
        place = self.locations.get(path)
        # Ends at the document itself, which has no parent.
        while place is None and path:
            path = path[:-1]
            place = self.locations.get(path)
        return place

    def problem(self, path: KeyPath, message: str, hint: str | None = None) -> Problem:
        """Return a problem with the value at ``path``, at its location or that of its nearest parent."""
        place = self.locate(path)
        file = place.file if place else None
        line = place.line if place else None
        return Problem(file=file, line=line, path=dotted(path), message=message, hint=hint)


def dotted(path: KeyPath) -> str:
    """Return a key path as a user types it: ``clusters.h200.nodes``, ``orders[0].date``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part or "''"
            text += f".{word}" if text else word
    return text


def value_at(content: Any, path: Sequence[str | int], absent: object = None) -> Any:
    """Return the value at a path in plain data, or ``absent`` where there is none."""
    for key in path:
        if isinstance(content, dict):
            content = content.get(key, absent)
            continue
        is_list = isinstance(content, list | tuple)
        if not is_list or not isinstance(key, int) or key >= len(content):
            return absent
        content = content[key]
    return content


def with_value(content: Any, path: KeyPath, value: Any) -> Any:
    """Return content with one value replaced; everything off the path is shared, not copied."""
    if not path:
        return value
    key = path[0]
    if isinstance(content, tuple):
        index = int(key)
        changed = with_value(content[index], path[1:], value)
        return (*content[:index], changed, *content[index + 1 :])
    # What is no mapping gives way to one that holds the value.
    mapping = content if isinstance(content, dict) else {}
    changed = with_value(mapping.get(key), path[1:], value)
    return {**mapping, key: changed}


def parse_scalar(text: str) -> Any:
    """Return an unquoted scalar as null, a boolean, a number, a date or its text."""
    lower = text.lower()
    if lower in _WORDS:
        return _WORDS[lower]
    # Longer digits stay text: int() answers thousands of them with an error of its own.
    begins_number = text[0] in _BEGIN_NUMBER
    if not begins_number or len(text) >= 64:
        return text
    if _INT.match(text):
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return _number(float(text.replace("_", "")))
    if date := _DATE.match(text):
        year, month, day = map(int, date.groups())
        try:
            return datetime.date(year, month, day)
        except ValueError:
            return text  # 2026-02-30 stays text, and the field that wanted a date says so
    return text


def flow_text(value: Any) -> str:
    """Return a value as one line of YAML that reads back the same."""
    if isinstance(value, dict):
        pairs = [f"{flow_key(key)}: {flow_text(part)}" for key, part in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        items = ", ".join(map(flow_text, value))
        return f"[{items}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    return _quoted_unless_plain(value, r"[A-Za-z][\w .-]*")


def flow_key(key: Any) -> str:
    """Return a key as it stands in a mapping of one line, in quotes where YAML would read it as something else."""
    if not isinstance(key, str):
        return str(key)
    return _quoted_unless_plain(key, r"[A-Za-z][\w .*-]*")


def _quoted_unless_plain(text: str, plain: str) -> str:
    """Return text as it stands on a line of YAML, without quotes if it matches an expression and reads back as text."""
    # A word such as true or null would read back as something other than text.
    if re.fullmatch(plain, text) and isinstance(parse_scalar(text), str):
        return text
    # JSON's quotes and escapes are YAML's, and keep a text of several lines on one.
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> float:
    """Return a number, or zero where it is too small to divide by."""
    return 0.0 if abs(value) < SMALLEST_NUMBER else value


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Return a file's bytes; raise ScenarioError where it cannot be read or is too long."""
    name = str(path)
    try:
        check_place(path, own=True)
        if path.is_dir():
            raise ScenarioError("is a folder, not a file", file=name)
        size = path.stat().st_size
        if size > max_bytes:
            message = f"is {size:,} bytes; a file may have {max_bytes:,}"
            raise ScenarioError(message, file=name)
        with path.open("rb") as stream:
            # A pipe states no size: one byte more than the limit shows that it has too many.
            raw = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise ScenarioError("no such file", file=name, hint=_similar_file(path)) from None
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror}", file=name) from None
    except ValueError as error:  # a NUL in the name
        raise ScenarioError(f"cannot be read: {error}", file=repr(name)) from None
    if len(raw) > max_bytes:
        message = f"is longer than the {max_bytes:,} bytes a file may have"
        raise ScenarioError(message, file=name)
    return raw


def _similar_file(path: Path) -> str | None:
    """Return a hint at the file of the same folder and kind whose name is nearest, if one is near."""
    import difflib  # noqa: PLC0415 - only on the error path

    folder = path.parent
    if not folder.is_dir():
        return None
    suffix = path.suffix or ".y*ml"
    names = [file.name for file in folder.glob(f"*{suffix}")]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {folder / close[0]}?" if close else None


def read_document(path: Path) -> Document:
    """Return one YAML file as a document; raise ScenarioError with file and line for invalid YAML."""
    return document_from(read_bytes(path, MAX_BYTES), str(path))


def document_from(raw: bytes, name: str) -> Document:
    """Return the bytes of a YAML file as a document; ``name`` is used in messages."""
    if len(raw) > MAX_BYTES:
        message = f"is {len(raw):,} bytes; a file may have {MAX_BYTES:,}"
        raise ScenarioError(message, file=name)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text (byte {error.start}), so not YAML"
        raise ScenarioError(message, file=name, line=line) from None
    return parse_document(text, name)


def document_of_mapping(content: Mapping[str, Any], name: str = "dict") -> Document:
    """Return a mapping as a document, as if read from the current folder; ``name`` is used in messages.

    Text such as 2026-01-31 is a date, as it is in YAML; NumPy's numbers are numbers.
    """
    document = Document(None)
    document.content = _plain(content, (), document, name)
    return document


def _plain(value: Any, path: KeyPath, document: Document, name: str) -> Any:
    """Return a copy of a value in YAML's types, and record its location."""
    document.locations[path] = Location(name, None)
    # A dict may hold itself, which no file can: the depth ends that too.
    is_too_deep = len(path) > MAX_DEPTH
    if is_too_deep or len(document.locations) > MAX_NODES:
        raise ScenarioError("is too deep or too large", file=name, path=dotted(path))
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        mapping = {}
        for key, part in value.items():
            mapping[key] = _plain(part, (*path, key), document, name)
        return mapping
    if isinstance(value, list | tuple):
        items = []
        for place, part in enumerate(value):
            items.append(_plain(part, (*path, place), document, name))
        return items
    has_shape = getattr(value, "shape", ())
    if hasattr(value, "item") and not has_shape:
        value = value.item()  # a number of NumPy's, which no check of types would take
    if isinstance(value, str) and _DATE.match(value):
        return parse_scalar(value)
    if isinstance(value, float):
        return _number(value)
    if value is None or isinstance(value, str | int | datetime.date):
        return value
    message = f"is a {type(value).__name__}; a scenario holds text, numbers, dates, lists and mappings by text"
    raise ScenarioError(message, file=name, path=dotted(path))


def parse_document(text: str, name: str) -> Document:
    """Return YAML text as a document; ``name`` is used in messages."""
    return _Builder(name).build(text)


class _Builder:
    """Builds plain values from parser events, with limits on depth and size."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.locations: dict[KeyPath, Location] = {}
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0
        self.events: Iterator[Any] = iter(())

    def build(self, text: str) -> Document:
        """Return the document in YAML text; raise ScenarioError with its line for what is not valid."""
        if forbidden := _FORBIDDEN.search(text):
            line = text.count("\n", 0, forbidden.start()) + 1
            code_point = ord(forbidden.group())
            message = f"not valid YAML: the character U+{code_point:04X} is not text"
            raise ScenarioError(message, file=self.name, line=line)
        try:
            content = self._content(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            detail = error.problem or error.context or "cannot be parsed"
            raise ScenarioError(
                f"not valid YAML: {detail}",
                file=self.name,
                line=mark.line + 1 if mark else None,
            ) from None
        except yaml.YAMLError as error:
            detail = str(error).splitlines()[0]
            raise ScenarioError(f"not valid YAML: {detail}", file=self.name) from None
        self.locations.setdefault((), Location(self.name, 1))  # an empty file still has a name
        return Document(content, self.locations)

    def _content(self, text: str) -> Any:
        """Return the value of the one document in YAML text."""
        # As yaml.parse does, without its own loop around every event.
        self.events = iter(_LOADER(text).get_event, None)
        content = None
        documents = 0
        for event in self.events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            documents += 1
            if documents > 1:
                raise self._fail("a second document (---) in one file", event)
            root = next(self.events)
            self.locations[()] = self._place(root)
            content = self._value(root, ())
        return content

    def _place(self, event: Any) -> Location:
        """Return the location of an event."""
        return Location(self.name, event.start_mark.line + 1)

    def _fail(self, message: str, event: Any) -> ScenarioError:
        place = self._place(event)
        return ScenarioError(message, file=place.file, line=place.line)

    def _count(self, event: Any, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self._fail(f"more than {MAX_NODES:,} values once aliases are expanded", event)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            raise self._fail(f"the tag {event.tag} is not understood; write plain YAML", event)

    def _value(self, event: Any, path: KeyPath) -> Any:
        """Return the value of an event, whose location the caller has recorded."""
        if len(path) > MAX_DEPTH:
            raise self._fail(f"nested more than {MAX_DEPTH} deep", event)
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise self._fail(
                    f"*{event.anchor} refers to itself or to an anchor that does not exist", event
                )
            value, nodes = self.anchors[event.anchor]
            self._count(event, nodes)
            return value
        nodes_so_far = self.nodes
        self._refuse_tag(event)
        if isinstance(event, ScalarEvent):
            self._count(event, 1 + len(event.value) // _TEXT_PER_NODE)
            value = event.value
            # What is in quotes is text, whatever it looks like.
            if event.implicit[0]:
                value = parse_scalar(value)
        else:
            self._count(event, 1)
            is_sequence = isinstance(event, SequenceStartEvent)
            value = self._sequence(path) if is_sequence else self._mapping(path)
        if event.anchor:
            # Known only from here on, so that no value can hold itself.
            self.anchors[event.anchor] = (value, self.nodes - nodes_so_far)
        return value

    def _sequence(self, path: KeyPath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            inside = (*path, len(items))
            self.locations[inside] = self._place(event)
            items.append(self._value(event, inside))
        return items

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise self._fail("a key must be a plain word", event)
            key = event.value
            inside = (*path, key)
            if key == "<<" and event.implicit[0]:
                raise self._fail("merge keys (<<) are not understood; use extends", event)
            if key in items:
                line = self.locations[inside].line
                raise self._fail(f"duplicate key {dotted(inside)}, first on line {line}", event)
            self._refuse_tag(event)
            self._count(event, 1 + len(key) // _TEXT_PER_NODE)
            self.locations[inside] = self._place(event)
            items[key] = self._value(next(self.events), inside)
        return items
