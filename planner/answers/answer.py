"""What a command hands to a program: the folder, what is printed, a table for pandas, and the objects behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from planner.errors import Problem, ScenarioError
from planner.output.folder import read_contents
from planner.output.tables import Table
from planner.run.simulate import with_units
from planner.validation import nearest

if TYPE_CHECKING:
    import pandas as pd

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Generic[Found]):
    """The answer of a command."""

    folder: Path
    """Folder with its files."""
    result: Found
    """The object from which it is made: a run, a comparison, the points of a sweep, a finished study, a sizing, or
    actual months compared with their plan."""
    warnings: Sequence[str]
    """Values of the plans that are probably mistakes; ``strict`` refuses them."""
    notes: Sequence[str] = ()
    """Consequences of the plans that may be intended."""
    summarise: Callable[[], Any]
    """Function that returns what ``--json`` prints."""
    say: Callable[[bool], str]
    """Function that returns what a terminal shows: the first screen, or all details."""
    rows: Callable[[], Table]
    """Function that returns the table of figures, which ``table()`` returns by default."""
    is_met: Callable[[], bool] = lambda: True
    """Function that says whether at least one of its plans is known to meet its SLO target."""
    is_written: bool = True
    """Whether its folder is written; False for a first screen."""

    def summary(self) -> Any:
        """Return what ``--json`` prints, as plain data."""
        return self.summarise()

    def text(self, *, verbose: bool = False) -> str:
        """Return what the terminal shows; with ``verbose``, all details."""
        return self.say(verbose)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the folder's tables, for use with ``table``."""
        return tuple(read_contents(self.folder).tables)

    def table(self, name: str | None = None) -> pd.DataFrame:
        """Return a table of the folder as a pandas frame with its units; without a name, the table of figures."""
        import pandas as pd  # noqa: PLC0415 - half a second, for those who ask for a frame

        if name is None:
            columns = self.rows().columns
            return with_units(pd.DataFrame(columns))
        tables = read_contents(self.folder).tables
        if name not in tables:
            hint = nearest(name, tables) or f"there are {', '.join(tables)}"
            problem = Problem(
                file=os.fspath(self.folder), message=f"has no table {name!r}", hint=hint
            )
            raise ScenarioError(problem)
        frame = pd.DataFrame(tables[name].columns)
        for column in frame:  # cells of a file are text; an empty one is unknown
            cells = frame[column].replace("", None)
            numbers = pd.to_numeric(cells, errors="coerce")
            # A column is of numbers where all of its cells are; an empty one stays as it is.
            is_numeric = numbers.count() == cells.count() > 0
            frame[column] = numbers if is_numeric else cells
        return with_units(frame)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Answer of {type(self.result).__name__} in {os.fspath(self.folder)}>"
