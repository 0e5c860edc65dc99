"""Plan which accelerators to buy, when, and what a token will cost over their depreciation.

What a command does, a function of the same name does, with the same folder on the disk::

    import planner

    answer = planner.run("scenarios/mixed-fleet.yaml", out="outputs/mixed-fleet")
    answer.result.timeline_monthly()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from planner.version import __version__

# Some rooms have the name of a function. A room loaded before its function leaves the name to it, also when more of
# the room is loaded.
for _room in (
    "planner.run",
    "planner.actuals",
    "planner.memo",
):
    importlib.import_module(_room)

from planner.api import (  # noqa: E402 - after the room of the same name
    actuals,
    compare,
    explain,
    init,
    load,
    memo,
    replay,
    report,
    run,
    simulate,
    size,
    study,
    sweep,
    zoom,
)

if TYPE_CHECKING:
    from planner.run.simulate import RunResult

__all__ = [
    "RunResult",
    "__version__",
    "actuals",
    "compare",
    "explain",
    "init",
    "load",
    "memo",
    "replay",
    "report",
    "run",
    "simulate",
    "size",
    "study",
    "sweep",
    "zoom",
]


def __getattr__(name: str) -> Any:
    """Return a public name, importing on first use what needs numpy, so that ``planner --help`` is fast."""
    if name != "RunResult":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("planner.run.simulate").RunResult


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted(__all__)
