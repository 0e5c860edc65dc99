"""The axes of a sweep: keys of a scenario and the values they take."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from planner.errors import Problem, ScenarioError
from planner.yaml_io import parse_scalar

ASK_ABOVE = 10_000
"""Points above which a sweep must be confirmed."""
SECONDS_PER_POINT = 0.1
"""About what a point of a three-year scenario takes, for the question's sake."""
MOST_VALUES = 10_000_000
"""Values of one axis beyond which it is not even listed."""
FORM = "path=start:stop:step or path=a,b,c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One key and the values it takes."""

    path: str
    values: tuple[str, ...]
    """As written, so that ``--set`` reads them."""


def axis_text(path: str, values: Iterable[object]) -> str:
    """Return Python's values of a key as ``--vary`` takes them."""
    if isinstance(values, str):
        return f"{path}={values}"
    return f"{path}=" + ",".join(_written(value) for value in values)


def _written(value: object) -> str:
    """Return a value as YAML on one line would have it."""
    if isinstance(value, str):  # quoted only where it would be read as something else than text
        return value if parse_scalar(value) == value and not set(value) & set(",:[]{}'\"#&*") else json.dumps(value)
    if isinstance(value, bool | list | tuple | dict | None):
        return json.dumps(value)
    return str(value)


def parse_axis(text: str) -> Axis:
    """Read one ``--vary``: a range with its end included, or a list."""
    path, equals, values = text.partition("=")
    path = path.strip()
    if not equals or not path or not values.strip():
        raise _refused(text, f"is not of the form {FORM}")
    if values.count(":") == 2 and not values.strip().startswith(("[", "{", '"', "'")):
        return Axis(path=path, values=_range(text, values.split(":")))
    listed = tuple(part.strip() for part in _split(values))
    if not all(listed):
        raise _refused(text, "has an empty value")
    if len(set(listed)) != len(listed):
        raise _refused(text, "names a value twice")
    return Axis(path=path, values=listed)


def _refused(text: str, message: str) -> ScenarioError:
    return ScenarioError(Problem(message=f"--vary {text!r} {message}", hint="for example clusters.h200.nodes=0:128:16"))


def _split(values: str) -> list[str]:
    """Split at commas that are outside brackets."""
    parts, depth = [""], 0
    for sign in values:
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _range(text: str, bounds: Sequence[str]) -> tuple[str, ...]:
    """Return start, start + step and so on up to the stop, in exact decimals."""
    try:
        start, stop, step = (Decimal(bound.strip()) for bound in bounds)
    except InvalidOperation:
        raise _refused(text, "has a range whose start, stop and step are not all numbers") from None
    if not all(number.is_finite() for number in (start, stop, step)):
        raise _refused(text, "has a range that is not finite")
    if step == 0 or (stop - start) * step < 0:
        raise _refused(text, "has a range whose step never reaches its stop")
    count = int((stop - start) / step) + 1
    if count > MOST_VALUES:
        raise _refused(text, f"has {count:,} values; a sweep of that many points would not end")
    return tuple(f"{start + step * k:f}" for k in range(count))


def parse_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """Read every ``--vary``."""
    axes = tuple(parse_axis(text) for text in texts)
    paths = [axis.path for axis in axes]
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ScenarioError(Problem(message=f"{twice} is varied twice", hint="list all its values in one --vary"))
    return axes


def count_points(axes: Sequence[Axis]) -> int:
    """Return how many combinations there are."""
    return math.prod(len(axis.values) for axis in axes)


def check_size(axes: Sequence[Axis], *, confirmed: bool) -> None:
    """Refuse a large sweep that nobody confirmed, with its size and about how long it would take."""
    points = count_points(axes)
    if points > ASK_ABOVE and not confirmed:
        hours = points * SECONDS_PER_POINT / 3600.0
        sizes = " × ".join(f"{len(axis.values):,}" for axis in axes)
        message = f"the sweep has {sizes} = {points:,} points: about {hours:,.0f} h of computing"
        raise ScenarioError(Problem(message=message, hint="take larger steps, or add --yes to go on"))


def number_of(value: str) -> float | int | None:
    """Return an axis value as a number, or None where it is not one."""
    read = parse_scalar(value)
    return read if isinstance(read, int | float) and not isinstance(read, bool) else None
