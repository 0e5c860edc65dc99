"""The values that packages exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[Kind]) -> type[Kind]:
    """Make a class a dataclass without later changes, whose fields are given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)
