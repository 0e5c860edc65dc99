"""What the verbs hand back: the folder, what the command prints, a table for pandas, and the objects behind them."""

from __future__ import annotations

import html
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

    from planner.actuals.actuals import Held
    from planner.output.picture import Picture
    from planner.run.replications import Chance
    from planner.run.result import RunResult
    from planner.sizing.size import Sized
    from planner.studies.analysis import Driver, Finished
    from planner.studies.axes import Axis
    from planner.studies.compare import Comparison
    from planner.studies.sweep import Point

Method = Literal["montecarlo", "tornado", "morris", "sobol", "importance"]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(ABC):
    """What a verb hands back."""

    folder: Path
    """Where its files are."""

    @property
    @abstractmethod
    def warnings(self) -> Sequence[str]:
        """What is hardly meant about the plans; ``strict`` refuses it."""

    @property
    def notes(self) -> Sequence[str]:
        """What follows from the plans and may well be meant."""
        return ()

    @abstractmethod
    def summary(self) -> Any:
        """Return what ``--json`` prints, as plain data."""

    @abstractmethod
    def text(self, encoding: str = "utf-8") -> str:
        """Return what the terminal shows."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """Return the figures as a pandas frame."""

    @property
    def charts(self) -> tuple[str, ...]:
        """Names of the charts that the folder's files allow, as ``planner charts`` draws them."""
        return tuple(self._pictures())

    def plot(self, chart: str | None = None) -> Plot:
        """Draw one of the charts; the first of them where none is named."""
        from planner.errors import Problem, ScenarioError
        from planner.output.picture import svg_of
        from planner.validation import nearest

        pictures = self._pictures()
        name = chart if chart is not None else next(iter(pictures), "")
        if name not in pictures:
            hint = nearest(name, pictures) or f"there are {', '.join(pictures) or 'none'}"
            raise ScenarioError(Problem(file=os.fspath(self.folder), message=f"has no chart {name!r}", hint=hint))
        return Plot(name=name, svg=svg_of(pictures[name]))

    def _pictures(self) -> dict[str, Picture]:
        from planner.output.charts import CHARTS
        from planner.output.report.contents import read_contents

        contents = read_contents(self.folder)
        drawn = {name: draw(contents) for name, draw in CHARTS.items()}
        return {name: picture for name, picture in drawn.items() if picture is not None}

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {os.fspath(self.folder)}>"

    def _repr_html_(self) -> str:
        """Show a notebook what a terminal shows."""
        return f"<pre>{html.escape(self.text())}</pre><p>results in {html.escape(os.fspath(self.folder))}</p>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunAnswer(Answer):
    """One scenario, run."""

    result: RunResult
    """The run itself: its timelines, ledger and events as pandas frames."""
    chance: Chance | None
    """The same plan drawn again, for intervals; None with one draw."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is hardly meant about the plan and its run."""
        return self.result.warnings

    @property
    def notes(self) -> Sequence[str]:
        """What follows from the plan and may well be meant."""
        return self.result.plan.notes

    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        from planner.output.summary import summary

        return summary(self.result, self.chance)

    def text(self, encoding: str = "utf-8") -> str:
        """Return the clusters' figures, what there is to say of them, and the months as lines."""
        from planner.output.summary import month_lines, summary_table

        return f"{summary_table(self.summary())}\n\n{month_lines(self.result, encoding)}"

    def table(self) -> pd.DataFrame:
        """Return measures.csv."""
        from planner.output.run_folder import measure_rows

        return _frame(measure_rows(self.result, self.chance))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ComparisonAnswer(Answer):
    """Scenarios held against one of them."""

    comparison: Comparison
    """The runs, their measures and why a token costs more or less."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is hardly meant about each plan."""
        return self.comparison.warnings

    @property
    def notes(self) -> Sequence[str]:
        """What follows from each plan and may well be meant."""
        return self.comparison.notes

    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        from planner.output.comparison import comparison_summary

        return comparison_summary(self.comparison)

    def text(self, encoding: str = "utf-8") -> str:  # noqa: ARG002 - nothing in it depends on the terminal
        """Return the plans side by side, the advice, and the causes of differences in cost."""
        from planner.output.comparison import comparison_table

        return comparison_table(self.comparison)

    def table(self) -> pd.DataFrame:
        """Return comparison.csv."""
        from planner.output.comparison import comparison_rows

        return _frame(comparison_rows(self.comparison))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepAnswer(Answer):
    """Every combination of some values."""

    axes: tuple[Axis, ...]
    """The keys that were varied, with their values."""
    points: tuple[Point, ...]
    """Each combination and what came of it, the last axis moving fastest."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is hardly meant about some combinations, each once, with how many it concerns."""
        from planner.studies.sweep import warnings_of_points

        return warnings_of_points(self.points)

    def summary(self) -> list[dict[str, Any]]:
        """Return one mapping for each combination."""
        from planner.output.sweep_table import sweep_rows

        return _records(sweep_rows(self.axes, self.points))

    def text(self, encoding: str = "utf-8") -> str:  # noqa: ARG002 - as above
        """Return the first combinations, and which to take."""
        from planner.output.sweep_table import sweep_text

        return sweep_text(self.axes, self.points)

    def table(self) -> pd.DataFrame:
        """Return sweep.csv."""
        from planner.output.sweep_table import sweep_rows

        return _frame(sweep_rows(self.axes, self.points))

    def frontier(self) -> pd.DataFrame:
        """Return the rows that no other beats in both levelised cost and the worst share in time, cheapest first."""
        from planner.output.judgement import frontier, served

        plans = [served(str(place), point.figures or {}) for place, point in enumerate(self.points)]
        return self.table().iloc[[int(plan.name) for plan in frontier(plans)]]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StudyAnswer(Answer):
    """A study, finished: its distribution (montecarlo) or what drives it (the other methods)."""

    method: Method
    """How it was run: montecarlo, tornado, morris, sobol or importance."""
    finished: Finished
    """The replications, and what can be computed from them."""
    drivers: tuple[Driver, ...] = ()
    """What drives the headline, where the study was designed to find out."""
    completed: int = 0
    """Replications behind the drivers."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is hardly meant: in the scenarios as stated, and at the ends of what is drawn."""
        return self.finished.prepared.warnings

    def summary(self) -> Any:
        """Return the headline's statistics, decisions and drivers; of a designed study its drivers."""
        if self.method != "montecarlo":
            return _records(self._driver_columns())
        from planner.output.study_summary import study_summary

        return study_summary(self.finished)

    def text(self, encoding: str = "utf-8") -> str:  # noqa: ARG002 - as above
        """Return the headline's percentiles, or the drivers, largest first."""
        from planner.output.study_summary import driver_table, study_table

        if self.method != "montecarlo":
            return driver_table(self.finished.prepared, self.drivers)
        return study_table(self.summary())

    def table(self) -> pd.DataFrame:
        """Return percentiles.csv; of a designed study sensitivity.csv."""
        from planner.output.study_rows import statistics_columns

        montecarlo = self.method == "montecarlo"
        return _frame(statistics_columns(self.finished.statistics()) if montecarlo else self._driver_columns())

    def _driver_columns(self) -> dict[str, list[Any]]:
        from planner.output.study_rows import driver_columns

        return driver_columns(self.drivers, self.completed)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SizeAnswer(Answer):
    """The cheapest plan that keeps the promise."""

    sized: Sized
    """The plan, its bound, its rivals and what stands behind it."""
    warned: tuple[str, ...] = ()
    """What is hardly meant about the scenario with everything in it that may be bought."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is hardly meant about what may be bought."""
        return self.warned

    @property
    def plan(self) -> Path:
        """The plan as a scenario of its own, which runs as it is."""
        from planner.output.size_folder import PLAN_FILE

        return self.folder / PLAN_FILE

    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        from planner.output.size_folder import size_summary

        return size_summary(self.sized)

    def text(self, encoding: str = "utf-8") -> str:  # noqa: ARG002 - as above
        """Return the plan, the frontier of cost against service, and what there is to say of them."""
        from planner.output.size_folder import size_text

        return size_text(self.sized)

    def table(self) -> pd.DataFrame:
        """Return frontier.csv."""
        from planner.output.size_rows import frontier_rows

        return _frame(frontier_rows(self.sized))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ActualsAnswer(Answer):
    """Months that happened, held against their plan."""

    held: Held
    """Budget and actual, figures and intervals, the forecast before and after."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is hardly meant about the plan."""
        return self.held.prepared.warnings

    @property
    def notes(self) -> Sequence[str]:
        """What of the files was not held against the plan."""
        return self.held.actuals.notes

    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        from planner.output.actuals_folder import actuals_summary

        return actuals_summary(self.held)

    def text(self, encoding: str = "utf-8") -> str:  # noqa: ARG002 - as above
        """Return budget against actual by account and cause, the figures, and the forecast."""
        from planner.output.actuals_folder import actuals_text

        return actuals_text(self.held)

    def table(self) -> pd.DataFrame:
        """Return forecast_monthly.csv."""
        from planner.output.actuals_folder import forecast_rows

        return _frame(forecast_rows(self.held))


def _frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    from planner.run.result import with_units

    return with_units(pd.DataFrame(columns))


def _records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return columns as rows, with None for what is not known."""
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return [{name: None if cell != cell else cell for name, cell in row.items()} for row in rows]  # noqa: PLR0124 - NaN
