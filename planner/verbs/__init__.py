"""The verbs: what a command does, a function of the same name does, with the same bytes in its folder.

Each verb takes what its command takes, writes the same folder and returns an answer (``planner.answers``). Nothing is
printed; ``progress`` is told in a few words what goes on. ``strict`` takes every warning as an error, before anything
is written. What a verb needs is loaded when it is called.
"""

from planner.verbs.many_runs import Stopped, actuals, size, study, sweep
from planner.verbs.plans import compare, memo, report, run, simulate

__all__ = ["Stopped", "actuals", "compare", "memo", "report", "run", "simulate", "size", "study", "sweep"]
