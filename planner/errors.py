"""The exceptions the planner raises on purpose.

::

    PlannerError
    ├── ScenarioError       the user can fix it: a bad file, key, number or option (exit code 2)
    ├── CapacityError       the plan cannot be met by the hardware it names (exit code 1)
    └── ConservationError   tokens, dollars or machines do not add up: our bug (exit code 1)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.records import record

_LINE = re.compile(r"\b(line|row) (\d{1,9})\b")
"""Where a reader's message says that it failed."""


def printable(text: str) -> str:
    """Return text with control characters, direction marks and lone surrogates escaped for a terminal."""
    # Nearly all texts are: the slow way is for file names and keys of an attacker.
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text
    )


class PlannerError(Exception):
    """Base class of all exceptions that the planner raises on purpose."""

    exit_code = 1


@record
class Problem:
    """One error in a user's input, and its location."""

    message: str
    file: str | None = None
    line: int | None = None
    path: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        """Return ``file:line: dotted.path: message (hint)`` on one printable line, without unknown parts."""
        # As compilers write it, so that editors and terminals make a link of it.
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        parts = [part for part in (place, self.path, self.message) if part]
        text = ": ".join(parts)
        return printable(f"{text} ({self.hint})" if self.hint else text)


def line_of(error: Exception) -> int | None:
    """Return the line at which a file could not be read, by the error of its reader; None where that does not say.

    Of text that is not UTF-8 it is right where the file was decoded as a whole.
    """
    if isinstance(error, UnicodeDecodeError):
        return error.object.count(b"\n", 0, error.start) + 1
    stated = getattr(error, "lineno", None)
    if isinstance(stated, int):
        return stated
    found = _LINE.search(str(error))
    if found is None:
        return None
    # pandas counts rows from zero.
    return int(found[2]) + (found[1] == "row")


class ScenarioError(PlannerError):
    """The user's input cannot be used; carries every problem, not only the first."""

    exit_code = 2

    def __init__(
        self,
        problems: Problem | str | list[Problem],
        *,
        file: str | None = None,
        line: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Take many problems, one, or the message of one with its place and hint."""
        if isinstance(problems, str):
            problems = Problem(message=problems, file=file, line=line, path=path, hint=hint)
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def raise_all(problems: list[Problem]) -> None:
    """Raise all problems as one ScenarioError, if there are any."""
    if problems:
        raise ScenarioError(problems)


def raise_wrong(*checks: tuple[bool, str, str]) -> None:
    """Raise one ScenarioError with path and message of every failed check."""
    raise_all(
        [Problem(path=path, message=message) for is_wrong, path, message in checks if is_wrong]
    )


def refuse(warnings: Iterable[str], *, strict: bool) -> None:
    """Raise warnings as one ScenarioError where the user treats warnings as errors."""
    raise_all([Problem(message=warning) for warning in warnings] if strict else [])


class CapacityError(PlannerError):
    """The plan cannot be met by the hardware it names."""


class ConservationError(PlannerError):
    """Tokens, dollars, kilowatt-hours or machines do not add up: a bug in the planner, never the user's."""
