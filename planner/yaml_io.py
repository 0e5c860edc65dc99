"""YAML text to plain Python, with the line of every value.

The parser is deliberately smaller than YAML: one document, string keys, the scalars of the YAML 1.2 core schema plus
dates (so ``no`` is a word and ``12:30`` is not 750), no custom tags, no duplicate keys, and limits on size, depth and
alias expansion, so that no file can exhaust the machine that reads it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
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

# The C parser when PyYAML was built with it: same events, some eight times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_BYTES = 4_000_000  # a scenario is a few kB; the limit leaves room for a 100-fold one
MAX_FILE_BYTES = 100_000_000  # a table of a million dates is 20 MB
MAX_DEPTH = 32
MAX_NODES = 200_000  # counted after aliases are expanded: this is what stops an alias bomb
LEAST = 1e-100
"""Smallest number apart from zero that is one: no quantity is as small, and what is divided by it would be infinite."""
_TEXT_PER_NODE = (
    100  # characters of text that weigh as much as one value, so that repeated long text counts too
)

_INT = re.compile(r"[-+]?[0-9][0-9_]*$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})$")
_BEGIN_NUMBER = frozenset("+-.0123456789")  # and dates
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
# What YAML 1.2 calls non-printable (5.1): refused here, because the parser would not name the line.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = {".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}

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
    before: Document | None = None
    """The files alone, without overrides and workload classes, so that further overrides start from there."""

    def copy(self) -> Document:
        """Return a copy that can be merged into without changing this one; the files read are shared."""
        return Document(
            self.content, dict(self.locations), self.files
        )  # laying over makes new mappings

    def file_at(self, path: KeyPath, name: str) -> tuple[Path, bytes]:
        """Return path and bytes of the file that the value at ``path`` names, relative to its own file."""
        file = self._beside(path, name)
        if str(file) not in self.files:
            if self.is_sealed:
                raise ScenarioError(
                    Problem(file=str(file), message="was not read when the study began")
                )
            self.files[str(file)] = read_bytes(file, MAX_FILE_BYTES)
        return file, self.files[str(file)]

    def is_read(self, path: KeyPath, name: str) -> bool:
        """Return whether the file that the value at ``path`` names was read already."""
        return str(self._beside(path, name)) in self.files

    def _beside(self, path: KeyPath, name: str) -> Path:
        """Return a file's path relative to the file that names it."""
        place = self.locate(path)
        return (Path(place.file).parent if place and place.line is not None else Path()) / name

    def locate(self, path: KeyPath) -> Location | None:
        """Return the location of the value at ``path``, or of its nearest parent."""
        for end in range(len(path), -1, -1):
            if (place := self.locations.get(path[:end])) is not None:
                return place
        return None

    def problem(self, path: KeyPath, message: str, hint: str | None = None) -> Problem:
        """Return a problem with the value at ``path``, at its location or that of its nearest parent."""
        place = self.locate(path)
        file, line = (place.file, place.line) if place else (None, None)
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


def at(content: Any, path: KeyPath) -> Any:
    """Return the value at a path in plain data; None where there is none."""
    for key in path:
        if isinstance(content, dict):
            content = content.get(key)
        elif isinstance(content, list | tuple) and isinstance(key, int) and key < len(content):
            content = content[key]
        else:
            return None
    return content


def replaced(content: Any, path: KeyPath, value: Any) -> Any:
    """Return content with one value replaced; everything off the path is shared, not copied."""
    if not path:
        return value
    key = path[0]
    if isinstance(content, tuple):
        index = int(key)
        return (*content[:index], replaced(content[index], path[1:], value), *content[index + 1 :])
    below = content if isinstance(content, dict) else {}
    return {**below, key: replaced(below.get(key), path[1:], value)}


def parse_scalar(text: str) -> Any:
    """Return an unquoted scalar as null, a boolean, a number, a date or its text."""
    if (lower := text.lower()) in _WORDS:
        return _WORDS[lower]
    if lower in _SPECIAL:
        return _SPECIAL[lower]
    if text[0] in _BEGIN_NUMBER and len(text) < 64:
        if _INT.match(text):
            return int(text.replace("_", ""))
        if _FLOAT.match(text):
            return _number(float(text.replace("_", "")))
        if date := _DATE.match(text):
            try:
                return datetime.date(*(int(group) for group in date.groups()))
            except ValueError:
                return text  # 2026-02-30 stays text, and the field that wanted a date says so
    return text


def flow_text(value: Any) -> str:
    """Return a value as one line of YAML that reads back the same."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    if not isinstance(value, str):
        return (
            "null"
            if value is None
            else str(value).lower()
            if isinstance(value, bool)
            else str(value)
        )
    plain = (
        re.fullmatch(r"[A-Za-z][\w .,-]*", value)
        and "," not in value
        and isinstance(parse_scalar(value), str)
    )
    return value if plain else '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _number(value: float) -> float:
    """Return a number, or zero where it is too small to divide by."""
    return 0.0 if abs(value) < LEAST else value


def read_bytes(path: Path, most: int) -> bytes:
    """Return a file's bytes; raise ScenarioError where it cannot be read or is too long."""
    name = str(path)
    try:
        if path.is_dir():
            raise ScenarioError(Problem(file=name, message="is a folder, not a file"))
        size = path.stat().st_size
        if size > most:
            raise ScenarioError(
                Problem(file=name, message=f"is {size:,} bytes; a file may have {most:,}")
            )
        with path.open("rb") as stream:  # a pipe has no size: never take in more than the limit
            raw = stream.read(most + 1)
    except FileNotFoundError:
        import difflib  # noqa: PLC0415 - only on the error path

        pattern = f"*{path.suffix or '.y*ml'}"
        folder = path.parent
        names = [entry.name for entry in folder.glob(pattern)] if folder.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1)
        hint = f"did you mean {folder / close[0]}?" if close else None
        raise ScenarioError(Problem(file=name, message="no such file", hint=hint)) from None
    except OSError as error:
        raise ScenarioError(
            Problem(file=name, message=f"cannot be read: {error.strerror}")
        ) from None
    except ValueError as error:  # a NUL in the name
        raise ScenarioError(Problem(file=repr(name), message=f"cannot be read: {error}")) from None
    if len(raw) > most:
        raise ScenarioError(
            Problem(file=name, message=f"is longer than the {most:,} bytes a file may have")
        )
    return raw


def read_document(path: Path) -> Document:
    """Return one YAML file as a document; raise ScenarioError with file and line for invalid YAML."""
    return document_from(read_bytes(path, MAX_BYTES), str(path))


def document_from(raw: bytes, name: str) -> Document:
    """Return the bytes of a YAML file as a document; ``name`` is used in messages."""
    if len(raw) > MAX_BYTES:
        raise ScenarioError(
            Problem(file=name, message=f"is {len(raw):,} bytes; a file may have {MAX_BYTES:,}")
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text (byte {error.start}), so not YAML"
        raise ScenarioError(Problem(file=name, line=line, message=message)) from None
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
    if (
        len(path) > MAX_DEPTH or len(document.locations) > MAX_NODES
    ):  # also ends a mapping that holds itself
        raise ScenarioError(
            Problem(file=name, path=dotted(path), message="is too deep or too large")
        )
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(part, (*path, key), document, name) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, (*path, place), document, name) for place, part in enumerate(value)]
    value = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if isinstance(value, str) and _DATE.match(value):
        return parse_scalar(value)
    if isinstance(value, float):
        return _number(value)
    if value is None or isinstance(value, str | int | datetime.date):
        return value
    message = f"is a {type(value).__name__}; a scenario holds text, numbers, dates, lists and mappings by text"
    raise ScenarioError(Problem(file=name, path=dotted(path), message=message))


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
        if bad := _FORBIDDEN.search(text):
            at = text.count("\n", 0, bad.start()) + 1
            message = f"not valid YAML: the character U+{ord(bad.group()):04X} is not text"
            raise ScenarioError(Problem(file=self.name, line=at, message=message))
        try:
            self.events = iter(
                _LOADER(text).get_event, None
            )  # as yaml.parse does, without its own loop around it
            content = None
            seen = False
            for event in self.events:
                if isinstance(event, yaml.DocumentStartEvent):
                    if seen:
                        raise self._fail("a second document (---) in one file", event)
                    seen = True
                    first = next(self.events)
                    self.locations[()] = self._place(first)
                    content = self._value(first, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            detail = error.problem or error.context or "cannot be parsed"
            raise ScenarioError(
                Problem(file=self.name, line=line, message=f"not valid YAML: {detail}")
            ) from None
        except yaml.YAMLError as error:
            detail = str(error).splitlines()[0]
            raise ScenarioError(
                Problem(file=self.name, message=f"not valid YAML: {detail}")
            ) from None
        self.locations.setdefault((), Location(self.name, 1))  # an empty file still has a name
        return Document(content, self.locations)

    def _place(self, event: Any) -> Location:
        """Return the location of an event."""
        return Location(self.name, event.start_mark.line + 1)

    def _fail(self, message: str, event: Any) -> ScenarioError:
        return ScenarioError(
            Problem(file=self.name, line=event.start_mark.line + 1, message=message)
        )

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
        before = self.nodes
        self._refuse_tag(event)
        if isinstance(event, ScalarEvent):
            self._count(event, 1 + len(event.value) // _TEXT_PER_NODE)
            value = parse_scalar(event.value) if event.implicit[0] else event.value
        else:
            self._count(event, 1)
            value = (
                self._sequence(path)
                if isinstance(event, SequenceStartEvent)
                else self._mapping(path)
            )
        if event.anchor:
            self.anchors[event.anchor] = (value, self.nodes - before)
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
            inside = (*path, event.value)
            if key == "<<" and event.implicit[0]:
                raise self._fail("merge keys (<<) are not understood; use extends", event)
            if key in items:
                first = self.locations[inside].line
                raise self._fail(f"duplicate key {dotted(inside)}, first on line {first}", event)
            self._refuse_tag(event)
            self._count(event, 1 + len(key) // _TEXT_PER_NODE)
            self.locations[inside] = self._place(event)
            items[key] = self._value(next(self.events), inside)
        return items
