"""The command ``planner init``: a scenario drafted from what one has, and written."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec

from planner.errors import Problem, ScenarioError, raise_all
from planner.files import Place, json_text
from planner.records import record

if TYPE_CHECKING:
    from planner.onramp.first_scenario import Row
    from planner.onramp.traffic_fit import Fitted

Stated = ParamSpec("Stated")
"""Files and statements, as :func:`draft` takes them."""
TimeUnit = Literal["auto", "s", "ms", "us", "ns", "excel"]


@record
class Draft:
    """A scenario made from files and statements, as it would be written."""

    name: str
    text: str
    """The commented YAML, checked."""
    workloads: Sequence[Fitted]
    """What was fitted; none of the starter."""
    machines: Sequence[Row]
    """Rows of inventories and quotes."""

    @property
    def has_quotes(self) -> bool:
        """Whether the question is what to buy of quotes."""
        return "\nsizing:" in self.text


def draft(
    name: str,
    sources: Sequence[str] = (),
    *,
    fleet: Place | None = None,
    quotes: Place | None = None,
    model: Sequence[str] = (),
    preset: Sequence[str] = (),
    timezone: str = "UTC",
    columns: str | None = None,
    rate: str | None = None,
    time_unit: TimeUnit = "auto",
    requests_per_s: Sequence[str] = (),
    growth: Sequence[str] = (),
    start: datetime.date | None = None,
    overrides: Sequence[str] = (),
) -> Draft:
    """Return the scenario that ``planner init`` would write, without writing anything.

    ``sources`` are files of traffic, servers, inventories and quotes: what a file is follows from its content.
    """
    # Imported here: the command line reads this signature before it knows which command is asked for.
    from planner.catalog.load import load_catalog
    from planner.demand.shape import zone
    from planner.onramp import first_scenario
    from planner.onramp.traffic_fit import TrafficOptions

    stated = TrafficOptions(
        models=first_scenario.by_workload("--model", model),
        presets=first_scenario.by_workload("--preset", preset),
        timezone=timezone,
        columns=columns,
        rate_column=rate,
        time_unit=time_unit,
        requests_per_s=first_scenario.numbers_by_workload("--requests-per-s", requests_per_s, 0.0),
        growth_per_year=first_scenario.numbers_by_workload("--growth", growth, -1.0),
    )
    # Options that only logs have would be ignored in silence.
    if not sources:
        message = "is of no use without --from FILE"
        texts = {"--columns": columns, "--rate": rate}
        options = [option for option, text in texts.items() if text]
        raise_all([Problem(path=option, message=message) for option in options])
    try:
        zone(stated.timezone)  # an unknown zone is refused before any file is read
    except ScenarioError as error:
        raise ScenarioError(str(error), path="--timezone") from None
    overlay = _overlay(overrides)
    catalog = load_catalog(overlay=overlay)
    problems: list[Problem] = []
    lists: list[tuple[Path, Mapping[str, str]]] = []
    if fleet is not None:
        lists.append((Path(fleet), first_scenario.FLEET_COLUMNS))
    if quotes is not None:
        lists.append((Path(quotes), first_scenario.QUOTE_COLUMNS))
    traffic = []
    for source in sources:
        columns_of_list = None
        try:
            columns_of_list = first_scenario.columns_of_list(Path(source))
        except ScenarioError as error:
            problems += error.problems
            continue
        if columns_of_list is None:
            traffic.append(source)
        else:
            lists.append((Path(source), columns_of_list))
    machines: list[Row] = []
    for path, columns_of_list in lists:
        try:
            machines += first_scenario.read_machines(path, columns_of_list)
        except ScenarioError as error:
            problems += error.problems
    workloads: list[Fitted] = []
    try:
        workloads, start = first_scenario.fit_workloads(traffic, stated, catalog, start)
    except ScenarioError as error:
        problems += error.problems
    if start is None:
        # The first day is that of traffic which could not be read: what depends on it is not checked.
        problems += [problem for row in machines for problem in row.problems]
        raise ScenarioError(problems)
    if not traffic and stated == TrafficOptions():
        workloads = []  # the starter has one of its own
    # Options may name what could not be read.
    stated_values = () if problems else overrides
    text = ""
    try:
        text = first_scenario.scenario_text(
            name, start, workloads, machines, stated_values, catalog
        )
    except ScenarioError as error:
        problems += error.problems
    raise_all(problems)
    return Draft(name=name, text=text, workloads=workloads, machines=machines)


def _writing(make: Callable[Stated, Draft]) -> Callable[Stated, Draft]:
    """Return a function that writes what another drafts of the same files and statements."""

    def init(*sources: Stated.args, **stated: Stated.kwargs) -> Draft:
        """Write NAME.yaml, and the schema for editors beside it, into the current folder, as ``planner init`` does."""
        # Before any fit, which may take long on a large log.
        _check_schema()
        scenario = make(*sources, **stated)
        write_draft(scenario)
        return scenario

    # Its parameters are those of the draft, stated once.
    return functools.update_wrapper(init, make, assigned=("__module__", "__annotations__"))


init = _writing(draft)


def _overlay(overrides: Sequence[str]) -> Path | None:
    """Return the user's catalogue file, which is needed before there is a scenario to lay overrides over."""
    paths = [word.partition("=") for word in overrides]
    named = [Path(text) for path, _, text in paths if path.strip() == "catalog.overlay"]
    return named[-1] if named else None


def write_draft(scenario: Draft) -> Path:
    """Write a new scenario and the schema for editors; raise an error where that is not possible."""
    from planner.scenario.schema import SCHEMA_FILE, scenario_schema

    _check_schema()
    path = Path(f"{scenario.name}.yaml")
    try:
        # Opened as new in one step: a scenario that somebody has edited is never overwritten.
        with path.open("x", encoding="utf-8") as stream:
            stream.write(scenario.text)
        # The schema is planner's own, and follows its version.
        Path(SCHEMA_FILE).write_text(json_text(scenario_schema()), encoding="utf-8")
    except FileExistsError:
        message = "exists and will not be overwritten"
        hint = "give another name"
        raise ScenarioError(Problem(file=str(path), message=message, hint=hint)) from None
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise ScenarioError(Problem(file=str(path), message=message)) from None
    return path


def _check_schema() -> None:
    """Raise an error where a file of the schema's name is somebody else's."""
    from planner.scenario.schema import SCHEMA_FILE, WRITTEN_BY

    path = Path(SCHEMA_FILE)
    if not path.exists():
        return
    # By its mark: every schema that planner writes says so.
    text = path.read_text(encoding="utf-8", errors="replace")
    if f'"$comment": "{WRITTEN_BY}"' not in text:
        message = "is not a schema that planner wrote, and will not be overwritten"
        hint = "move it away, or work in another folder"
        problem = Problem(file=str(path), message=message, hint=hint)
        raise ScenarioError(problem)
