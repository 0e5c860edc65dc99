"""What many tables of a run read, worked out once: runs, plans and their cohorts are frozen, so it stays true."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Finished = TypeVar("Finished")
Derived = TypeVar("Derived")


def per_run(derive: Callable[[Finished], Derived]) -> Callable[[Finished], Derived]:
    """Keep what is derived of a run as long as the run is.

    It must not hold the run itself, or neither would ever be let go.
    """
    kept: weakref.WeakKeyDictionary[Finished, Derived] = weakref.WeakKeyDictionary()

    @functools.wraps(derive)
    def once(result: Finished) -> Derived:
        derived = kept.get(result)
        if derived is None:
            derived = kept[result] = derive(result)
        return derived

    return once


def last_kept(derive: Callable[Given, Derived]) -> Callable[Given, Derived]:
    """Keep what was derived last, for those who ask the same again; what is given is known by its identity."""
    kept: deque[tuple[tuple[object, ...], Derived]] = deque(maxlen=1)

    @functools.wraps(derive)
    def once(*given: Given.args, **named: Given.kwargs) -> Derived:
        asked = (*given, *named.values())
        for known, derived in tuple(kept):  # a copy: another thread may put its own there
            if len(known) == len(asked) and all(map(_is, known, asked)):
                return derived
        derived = derive(*given, **named)
        kept.append((asked, derived))
        return derived

    return once


def _is(one: object, other: object) -> bool:
    return one is other
