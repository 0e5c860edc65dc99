"""Plan which accelerators to buy, when, and what a token will cost over their depreciation.

What a command does, a function of the same name does, with the same folder on the disk::

    import planner

    answer = planner.run("scenarios/mixed-fleet.yaml", out="outputs/mixed-fleet")
    answer.result.timeline_monthly()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.version import __version__

if TYPE_CHECKING:
    from planner.run.result import RunResult
    from planner.scenario.loading import load_scenario
    from planner.scenario.loading import load_scenario as load
    from planner.studies.study import run_study
    from planner.verbs import actuals, compare, memo, report, run, simulate, size, study, sweep

_HOMES = {
    "load": "planner.scenario.loading:load_scenario",
    "run": "planner.verbs.plans:run",
    "simulate": "planner.verbs.plans:simulate",
    "compare": "planner.verbs.plans:compare",
    "sweep": "planner.verbs.many_runs:sweep",
    "study": "planner.verbs.many_runs:study",
    "size": "planner.verbs.many_runs:size",
    "actuals": "planner.verbs.many_runs:actuals",
    "report": "planner.verbs.plans:report",
    "memo": "planner.verbs.plans:memo",
    "RunResult": "planner.run.result:RunResult",
    "load_scenario": "planner.scenario.loading:load_scenario",  # the older name of load
    "run_study": "planner.studies.study:run_study",  # stores replications alone; study writes the tables too
}
__all__ = [
    "RunResult",
    "__version__",
    "actuals",
    "compare",
    "load",
    "load_scenario",
    "memo",
    "report",
    "run",
    "run_study",
    "simulate",
    "size",
    "study",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that ``planner --help`` does not wait for numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - on first use, see above

    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    """List what is public, loaded or not."""
    return sorted(__all__)
