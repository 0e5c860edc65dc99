"""All pages of the generated reference."""

from __future__ import annotations

from pathlib import Path

from planner.reporting.picture import files_of
from planner.tools.benchmarks.charts import validation_picture
from planner.tools.benchmarks.validation import CHART, PAGE, shipped_check, validation_page
from planner.tools.reference.api_page import api_page
from planner.tools.reference.catalog_page import catalog_page
from planner.tools.reference.errors_page import errors_page
from planner.tools.reference.metrics_page import metrics_page
from planner.tools.reference.nomenclature_page import nomenclature_page
from planner.tools.reference.outputs_page import outputs_page
from planner.tools.reference.scenario_page import scenario_page, study_page


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
    changed = []
    files = {name: content.encode() for name, content in reference_pages(cli_page).items()}
    files[CHART] = files_of(validation_picture(shipped_check()[0]), ["png"])["png"]
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            changed.append(path)
    return changed
