"""The catalogue's own files, read without parsing YAML where what they say is kept beside them.

Whoever starts a command would wait for 200 kB of YAML to be parsed, always to the same end. ``shipped.json`` has what
each file says, and the file's hash: one that has changed since is parsed as any other, so what is kept may be old or
missing, but never wrong. ``make reference`` writes it, and a test says when it is old. The lines of values are not in
it: who has something to say about a value reads the file itself.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from planner.yaml_io import MAX_BYTES, Document, Location, document_from, read_bytes

FOLDER = Path(__file__).parent
KEPT = FOLDER / "shipped.json"
_DATE = "!date"  # no key of a file, which has no tags
"""JSON has no dates."""


def shipped_document(name: str) -> Document:
    """Return what a file of the catalogue says, mostly without the lines of its values."""
    path, kept = FOLDER / name, _kept().get(name)
    raw = read_bytes(path, MAX_BYTES)
    if kept is None or kept["sha256"] != hashlib.sha256(raw).hexdigest():
        return document_from(raw, str(path))
    return Document(kept["content"], {(): Location(str(path), None)})


@functools.cache
def _kept() -> dict[str, Any]:
    """Return what is kept of each file, by its name: shared by all who ask, and changed by none."""
    try:
        kept: dict[str, Any] = json.loads(KEPT.read_bytes(), object_hook=_with_date)
    except (OSError, ValueError):
        return {}
    return kept


def _with_date(mapping: dict[str, Any]) -> Any:
    return datetime.date.fromisoformat(mapping[_DATE]) if _DATE in mapping else mapping


def kept_text() -> str:
    """Return the text of the file in which all of it is kept, a line for each of the catalogue's files."""
    lines = []
    for path in sorted(FOLDER.glob("*.yaml")):
        raw = path.read_bytes()
        kept = {"sha256": hashlib.sha256(raw).hexdigest(), "content": document_from(raw, str(path)).content}
        lines.append(f"{json.dumps(path.name)}: {json.dumps(kept, ensure_ascii=False, default=_dated)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _dated(date: datetime.date) -> dict[str, str]:
    return {_DATE: date.isoformat()}
