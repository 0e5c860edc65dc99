"""What a command hands to a program: the folder, what is printed, a table for pandas, and the objects behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from planner.errors import Problem, ScenarioError
from planner.output.blocks import Facts, Grid, Picture, Section, Sentence
from planner.output.folder import Contents, read_contents
from planner.output.svg import svg_of
from planner.output.tables import Table
from planner.records import record
from planner.run.simulate import with_units
from planner.validation import nearest

if TYPE_CHECKING:
    import pandas as pd

Found = TypeVar("Found")


@record
class Plot:
    """A chart that a notebook shows and a program can keep."""

    name: str
    """As ``planner charts`` calls it."""
    svg: str = field(repr=False)
    """The picture."""

    def _repr_svg_(self) -> str:
        """Show it in a notebook."""
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")
        return Path(path)


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Generic[Found]):
    """The answer of a command."""

    folder: Path
    """Where its files are."""
    result: Found
    """The object behind it: a run, a comparison, the points of a sweep, a finished study, a sizing, months held against
    their plan."""
    warnings: Sequence[str]
    """What is hardly meant about the plans; ``strict`` refuses it."""
    notes: Sequence[str] = ()
    """What follows from the plans and may well be meant."""
    summarise: Callable[[], Any]
    """Makes what ``--json`` prints."""
    say: Callable[[bool], str]
    """Makes what a terminal shows: the first screen, or with all details."""
    rows: Callable[[], Table]
    """Makes the table that a program asks for first."""
    is_met: Callable[[], bool] = lambda: True
    """Says whether some plan of it is known to meet its SLO target."""
    sections: Callable[[Contents], Sequence[Section]] | None = None
    """Makes the first sections of its report, where its kind is one that only its own room knows."""
    is_written: bool = True
    """Whether its folder is there; False of a first screen."""

    def summary(self) -> Any:
        """Return what ``--json`` prints, as plain data."""
        return self.summarise()

    def text(self, *, verbose: bool = False) -> str:
        """Return what the terminal shows, with ``verbose`` all of it."""
        return self.say(verbose)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the folder's tables, which ``table`` takes."""
        return tuple(read_contents(self.folder).tables)

    def table(self, name: str | None = None) -> pd.DataFrame:
        """Return a table of the folder as a pandas frame that knows its units; the figures where none is named."""
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

    @property
    def charts(self) -> tuple[str, ...]:
        """Names of the charts that the folder's files allow, as ``planner charts`` draws them."""
        return tuple(self._pictures())

    def plot(self, chart: str | None = None) -> Plot:
        """Draw one of the charts; the first of them where none is named."""
        pictures = self._pictures()
        name = chart
        if name is None:
            name = next(iter(pictures), "")
        if name not in pictures:
            hint = nearest(name, pictures) or f"there are {', '.join(pictures) or 'none'}"
            raise ScenarioError(
                Problem(file=os.fspath(self.folder), message=f"has no chart {name!r}", hint=hint)
            )
        return Plot(name=name, svg=svg_of(pictures[name]))

    def _pictures(self) -> dict[str, Picture]:
        from planner.answers.charts import figures_of  # noqa: PLC0415 - of all kinds, for those who ask for a picture

        return figures_of(read_contents(self.folder))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Answer of {type(self.result).__name__} in {os.fspath(self.folder)}>"

    def _repr_html_(self) -> str:
        """Show a notebook the verdict, the key figures and the first chart of the report."""
        # What draws is loaded only where a notebook shows it.
        from planner.answers.report import head_of  # noqa: PLC0415
        from planner.output.html import answer_html  # noqa: PLC0415

        contents = read_contents(self.folder)
        section, picture = head_of(contents, self.sections)
        # Not every kind of folder has a picture in its first section.
        picture = picture or next(iter(self._pictures().values()), None)
        return answer_html(
            contents.name,
            [block for block in section.blocks if isinstance(block, Sentence | Facts | Grid)],
            "" if picture is None else svg_of(picture),
            os.fspath(self.folder),
        )
