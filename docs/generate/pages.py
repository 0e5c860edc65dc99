"""All pages of the generated reference; those of names and of errors stand here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.generate.api_page import api_page
from docs.generate.catalog_page import SECTIONS, catalog_page
from docs.generate.fields import scenario_sections
from docs.generate.markdown import code, page, table, text
from docs.generate.metrics_page import metrics_page
from docs.generate.outputs_page import outputs_page
from docs.generate.scenario_page import scenario_page, study_page
from planner import errors
from planner.calibration.charts import validation_picture
from planner.calibration.validation import CHART, PAGE, shipped_check, validation_page
from planner.catalog.shipped import KEPT, kept_text
from planner.output.picture import files_of
from planner.output.run_columns import RUN_TABLES
from planner.units import unit_of, unit_suffixes
from planner.validation import field_docstring

_ERRORS = """\
Every command ends with one of these codes, and an error is one message on standard error, each line beginning `error:`.
Bad input never ends in a traceback, and nothing is written."""

_EXIT_CODES = (
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
    codes = table(("exit code", "meaning"), [(str(number), text(meaning)) for number, meaning in _EXIT_CODES])
    rows = [(code(kind.__name__), str(kind.exit_code), text(_summary(kind))) for kind in _tree()]
    exceptions = table(("exception", "exit code", "meaning"), rows)
    tree = (errors.__doc__ or "").partition("::")[2].strip("\n")
    drawn = "\n".join(line.removeprefix("    ") for line in tree.splitlines())
    return page(
        "Exit codes and errors",
        _ERRORS,
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


_NAMES = """\
One name for each quantity, the same in a scenario, in the catalogue, in the code and in the output files. A number with
a dimension ends in its unit; a count, a name or a switch has none."""


def nomenclature_page() -> str:
    """Return the page of unit suffixes and of every named quantity."""
    suffixes = [(code(suffix), text(unit)) for suffix, unit in sorted(unit_suffixes().items())]
    places: dict[str, list[str]] = defaultdict(list)
    meanings: dict[str, str] = {}
    for name, place, meaning in _quantities():
        if place not in places[name]:
            places[name].append(place)
        meanings.setdefault(name, meaning)
    rows = [
        (code(name), text(unit_of(name) or ""), meanings[name], ", ".join(places[name]))
        for name in sorted(places)
        if unit_of(name) is not None
    ]
    return page(
        "Names and units",
        _NAMES,
        "## Units in names\n\nThe longest ending that fits states the unit.\n\n"
        + table(("a name that ends in", "is in"), suffixes),
        f"## Quantities\n\n{table(('name', 'unit', 'meaning', 'where'), rows)}",
    )


def _quantities() -> Iterator[tuple[str, str, str]]:
    """Yield every named figure, with the place it appears and what it means there (Markdown)."""
    for section in scenario_sections():
        for field in section.fields:
            yield field.path.rpartition(".")[2], "[scenario](scenario.md)", text(field.meaning)
    for model in SECTIONS.values():
        for name in model.model_fields:
            yield name, "[catalogue](catalog.md)", text(field_docstring(model, name))
    for output in RUN_TABLES:
        for column in output.columns:
            yield column.name, f"[{output.name}.csv](outputs.md)", column.description


def reference_pages(cli_page: str) -> dict[str, str]:
    """Return the text of every generated page by file name; the commands' own room writes theirs."""
    return {
        "scenario.md": scenario_page(),
        "study.md": study_page(),
        "cli.md": cli_page,
        "catalog.md": catalog_page(),
        "outputs.md": outputs_page(),
        "metrics.md": metrics_page(),
        "errors.md": errors_page(),
        "api.md": api_page(),
        "nomenclature.md": nomenclature_page(),
        PAGE: validation_page(*shipped_check()),
    }


def write_reference(folder: Path, cli_page: str) -> list[Path]:
    """Write the pages and their chart into a folder, leaving other files alone; return those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / name: content.encode() for name, content in reference_pages(cli_page).items()}
    files[folder / CHART] = files_of(validation_picture(shipped_check()[0]), ["png"])["png"]
    return _written(files)


def write_kept() -> list[Path]:
    """Write what is kept of the catalogue's own files; return it where it changed."""
    return _written({KEPT: kept_text().encode()})


def _written(files: Mapping[Path, bytes]) -> list[Path]:
    """Write files that differ from what is there, and return those."""
    changed = []
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            changed.append(path)
    return changed
