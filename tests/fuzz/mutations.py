"""Ways to spoil a file: by bytes, by lines, by words, and by values inside its structure."""

from __future__ import annotations

import copy
import functools
import random
import re
from typing import Any

import yaml

NASTY_TEXTS = (
    "<script>alert(1)</script>", "../../x", "/etc/passwd", "=cmd|'/c calc'!A1", "+1+1", "@SUM(A1)", "\x00", "\x1b[2J",
    "\u202egnp.exe", "\ud800", "\ufeff", "a" * 5000, "", " ", "~", "null", "yes", "*x", "&x",
    "!!python/object:os.system",
    "%d%s%n", "${HOME}", "`id`", "$(id)", "|", ">", "{", "[", "'", '"', "#", "---", "...", "2026-02-30", "1:30:00",
    "0x1F",
    "1_000", "NaN", ".inf", "-.inf", "１２", "é\u0301", "\u2028", "CON", "con.yaml", ".", "..", "a/b", "a\\b",
)  # fmt: skip
NASTY_NUMBERS = (
    0, -1, 1, 2, -0.0, 0.5, 1.5, 1e-320, 1e-9, 1e9, 1e18, 1e308, -1e308, float("inf"), float("-inf"), float("nan"),
    10**30, 2**31, 2**63, 100, 999, 1000, 120, 1200, 10000, 1000000, 0.999999, 1.000001,
)  # fmt: skip
NASTY_LISTS: tuple[Any, ...] = ([], {}, [[]], [None], {"": 1}, {"a": {"b": {"c": 1}}}, [1] * 100)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e-?\d+)?")


def mutate(raw: bytes, chance: random.Random, *, is_yaml: bool) -> bytes:
    """Spoil a file one to four times over."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        ways = [_bytes, _lines, _words, _numbers, _cells]
        way = _structure if is_yaml and chance.random() < 0.6 else chance.choice(ways)
        raw = way(raw, chance)
    return raw[:2_000_000]


def scale_numbers(raw: bytes, chance: random.Random) -> bytes:
    """Make some numbers of a YAML document larger or smaller, and leave the rest well: what a user might try."""
    content = copy.deepcopy(_parsed(raw))
    numbers = [(h, k) for h, k in _places(content) if type(h[k]) in (int, float)]
    for holder, key in chance.sample(numbers, min(len(numbers), chance.randrange(1, 5))):
        scaled = holder[key] * chance.choice((0, 0.1, 0.5, 0.9, 1.1, 2, 3, 10, 100))
        holder[key] = round(scaled) if type(holder[key]) is int else scaled
    return str(yaml.dump(content, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)).encode()


def _bytes(raw: bytes, chance: random.Random) -> bytes:
    """Flip, drop, insert or repeat a few bytes, or cut the rest off."""
    if not raw:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(1, 20)))
    at = chance.randrange(len(raw))
    length = chance.choice((1, 1, 2, 4, 16, 200))
    match chance.randrange(6):
        case 0:
            return raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :]
        case 1:
            return raw[:at] + raw[at + length :]
        case 2:
            return raw[:at] + bytes(chance.randrange(256) for _ in range(length)) + raw[at:]
        case 3:
            return raw[:at] + raw[at : at + length] * chance.choice((2, 3, 50)) + raw[at + length :]
        case 4:
            return raw[:at]
        case _:
            return (
                raw[:at]
                + chance.choice((b"\t", b"\r", b"\n", b"\x00", b"\xff", b": ", b"- ", b"{", b"]"))
                + raw[at:]
            )


def _lines(raw: bytes, chance: random.Random) -> bytes:
    """Drop, repeat, swap or indent lines."""
    lines = raw.split(b"\n")
    at = chance.randrange(len(lines))
    other = chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = b" " * chance.randrange(1, 9) + lines[at]
        case _:
            lines[at] = lines[at].lstrip()
    return b"\n".join(lines)


def _words(raw: bytes, chance: random.Random) -> bytes:
    """Put a nasty text in the place of a word."""
    words = list(re.finditer(rb"[\w.-]+", raw))
    if not words:
        return raw
    word = chance.choice(words)
    text = chance.choice(NASTY_TEXTS).encode("utf-8", "surrogatepass")
    return raw[: word.start()] + text + raw[word.end() :]


def _numbers(raw: bytes, chance: random.Random) -> bytes:
    """Put a nasty number in the place of a number."""
    found = list(_NUMBER.finditer(raw))
    if not found:
        return raw
    number = chance.choice(found)
    return raw[: number.start()] + str(chance.choice(NASTY_NUMBERS)).encode() + raw[number.end() :]


def _cells(raw: bytes, chance: random.Random) -> bytes:
    """Add, drop or empty a cell of a comma-separated line."""
    lines = raw.split(b"\n")
    at = chance.randrange(len(lines))
    cells = lines[at].split(b",")
    which = chance.randrange(len(cells))
    match chance.randrange(4):
        case 0:
            del cells[which]
        case 1:
            cells[which] = b""
        case 2:
            cells.insert(which, chance.choice((b"", b"1", b'"', b"'=1")))
        case _:
            cells[which] = chance.choice(NASTY_TEXTS).encode("utf-8", "surrogatepass")
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


@functools.lru_cache(maxsize=16)
def _parsed(raw: bytes) -> Any:
    return yaml.load(raw.decode("utf-8"), Loader=_LOADER)


def _structure(raw: bytes, chance: random.Random) -> bytes:
    """Change one value, or one key, of a YAML document and write it anew."""
    try:
        content = copy.deepcopy(_parsed(raw))
        places = list(_places(content))
        if not places:
            return raw
        holder, key = chance.choice(places)
        _change(holder, key, places, chance)
        return str(yaml.dump(content, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)).encode(
            "utf-8", "surrogatepass"
        )
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):
        return _bytes(raw, chance)


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Return every (holder, key) of a document."""
    found: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting and len(found) < 5000:
        holder = waiting.pop()
        pairs = (
            holder.items()
            if isinstance(holder, dict)
            else enumerate(holder)
            if isinstance(holder, list)
            else ()
        )
        for key, value in pairs:
            found.append((holder, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    return found


def _change(holder: Any, key: Any, places: list[tuple[Any, Any]], chance: random.Random) -> None:
    value = holder[key]
    match chance.randrange(9):
        case 0:
            holder[key] = chance.choice(NASTY_TEXTS)
        case 1 | 2:
            holder[key] = chance.choice(NASTY_NUMBERS)
        case 3:
            holder[key] = chance.choice(NASTY_LISTS)
        case 4:
            del holder[key]
        case 5 if isinstance(holder, dict):
            holder[chance.choice(NASTY_TEXTS)] = holder.pop(key)
        case 6:
            other, place = chance.choice(places)
            holder[key] = (
                other.get(place) if isinstance(other, dict) else value
            )  # a value that belongs elsewhere
        case 7 if isinstance(value, int | float) and not isinstance(value, bool):
            holder[key] = value * chance.choice((-1, 0.5, 2, 10, 1000, 1e-3, 1e6))
        case _:
            holder[key] = {key: value} if chance.random() < 0.5 else [value]
