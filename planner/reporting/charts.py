"""Charts of an output folder as PNG and SVG files for slides, in one style, from the folder's own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.errors import Problem, ScenarioError
from planner.reporting.folder import CHARTS as FOLDER
from planner.reporting.folder import change_files
from planner.reporting.picture import FORMATS, Draw, files_of
from planner.reporting.plan_charts import PLAN_CHARTS
from planner.reporting.report.contents import Contents, fitting, read_contents
from planner.reporting.study_charts import STUDY_CHARTS

CHARTS: dict[str, Draw] = {**PLAN_CHARTS, **STUDY_CHARTS}
"""File name to what draws it."""


def draw_charts(
    contents: Contents, formats: Sequence[str] = FORMATS, names: Sequence[str] = tuple(CHARTS)
) -> dict[str, bytes]:
    """Return the charts that the folder's files allow, by file name; the same files give the same bytes."""
    return {
        f"{FOLDER}/{name}.{suffix}": picture
        for name in names
        if (drawn := CHARTS[name](contents))
        for suffix, picture in files_of(drawn, formats).items()
    }


def checked_charts(
    contents: Contents, place: str, formats: Sequence[str] = FORMATS, names: Sequence[str] = tuple(CHARTS)
) -> dict[str, bytes]:
    """Return the charts of files that may have been changed, hashes and all; what does not fit is refused."""
    with fitting(place):
        return draw_charts(contents, formats, names)


def write_charts(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw an output folder's charts into its folder ``charts`` and enter them in its manifest."""
    drawn = checked_charts(read_contents(folder), str(folder), formats)
    if not drawn:
        raise ScenarioError(Problem(file=str(folder), message="holds no timeline, ledger or losses to draw"))
    change_files(folder, drawn)
    return [folder / name for name in drawn]
