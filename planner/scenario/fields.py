"""Names and number ranges that the parts of a scenario share."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from planner.validation import Strict

Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0, le=1e12)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Price = Annotated[float, Field(ge=0, le=1e9)]

_NAME = re.compile(r"[^\W_][\w.-]{0,63}\Z")


RESERVED = {"fleet": "the whole in every table", "site": "what belongs to no cluster in the ledger"}


def _check_name(name: str) -> str:
    """Accept names that are safe as a file name, a spreadsheet cell and a dotted path."""
    if not _NAME.match(name) or ".." in name:
        raise ValueError("a name is 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit")
    return name


def _no_dot(name: str) -> str:
    """Refuse a dot inside a workload or cluster name: it would split in ``--set`` paths."""
    if "." in name:
        raise ValueError("a workload or cluster name has no '.', since dots separate keys in --set")
    if name in RESERVED:
        raise ValueError(f"{name!r} is the name of {RESERVED[name]}; choose another")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
EntryName = Annotated[Name, AfterValidator(_no_dot)]


class Spread(Strict):
    """A triangular distribution: lowest, most likely, highest."""

    low: Annotated[float, Field(ge=0, le=1e6)]
    """Lowest, in the unit of the field."""
    base: Annotated[float, Field(ge=0, le=1e6)]
    """Most likely, in the unit of the field."""
    high: Annotated[float, Field(ge=0, le=1e6)]
    """Highest, in the unit of the field."""

    @model_validator(mode="after")
    def _ordered(self) -> Spread:
        if not self.low <= self.base <= self.high:
            raise ValueError(f"low, base, high must be in order, not {self.low:g}, {self.base:g}, {self.high:g}")
        return self
