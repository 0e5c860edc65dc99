"""Plan which accelerators to buy, when, and what a token will cost over their depreciation.

A notebook needs three names::

    from planner import load_scenario, simulate
    result = simulate(load_scenario("scenarios/mixed-fleet.yaml"), seed=1)
    result.timeline_monthly()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.scenario.loading import load_scenario
    from planner.simulation.result import RunResult
    from planner.simulation.run import simulate
    from planner.studies.study import run_study

__version__ = "0.1.0"
__all__ = ["RunResult", "__version__", "load_scenario", "run_study", "simulate"]

_HOMES = {
    "load_scenario": "planner.scenario.loading",
    "simulate": "planner.simulation.run",
    "RunResult": "planner.simulation.result",
    "run_study": "planner.studies.study",
}


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that ``planner --help`` does not wait for numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - on first use, see above

    return getattr(importlib.import_module(_HOMES[name]), name)
