"""The page of exit codes and errors."""

from __future__ import annotations

from collections.abc import Iterator

from planner import errors
from planner.tools.reference.markdown import code, page, table, text

_INTRODUCTION = """\
Every command ends with one of these codes, and an error is one message on standard error, each line beginning `error:`.
Bad input never ends in a traceback, and nothing is written."""

_CODES = (
    (0, "Done."),
    (1, "The plan or the model failed, or the reader of the output went away."),
    (2, "Bad input: a file, a key, a number or an option that cannot be used. Each problem names its place."),
    (130, "Stopped from the keyboard."),
)

_MESSAGE = """\
A problem with a file names the file and line, the dotted path, what is wrong and what is allowed, or the nearest key
that exists:

```text
error: FILE:LINE: PATH: what is wrong (did you mean ...?)
```

All problems of a file are listed at once, fifty at most. A value given with `--set` is named by its place on the
command line (`--set #2`) instead of a file and line."""


def errors_page() -> str:
    """Return the page of exit codes, exceptions and the form of a message."""
    codes = table(("exit code", "meaning"), [(str(number), text(meaning)) for number, meaning in _CODES])
    rows = [(code(kind.__name__), str(kind.exit_code), text(_summary(kind))) for kind in _tree()]
    exceptions = table(("exception", "exit code", "meaning"), rows)
    tree = (errors.__doc__ or "").partition("::")[2].strip("\n")
    drawn = "\n".join(line.removeprefix("    ") for line in tree.splitlines())
    return page(
        "Exit codes and errors",
        _INTRODUCTION,
        codes,
        f"## What a message says\n\n{_MESSAGE}",
        f"## Exceptions\n\nIn a notebook, `planner.errors` holds what the planner raises on purpose:\n\n"
        f"```text\n{drawn}\n```\n\n{exceptions}",
    )


def _tree(kind: type[errors.PlannerError] = errors.PlannerError) -> Iterator[type[errors.PlannerError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


def _summary(kind: type[errors.PlannerError]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]
