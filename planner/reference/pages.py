"""All pages of the generated reference."""

from __future__ import annotations

from pathlib import Path

from planner.reference.catalog_page import catalog_page
from planner.reference.cli_page import cli_page
from planner.reference.errors_page import errors_page
from planner.reference.metrics_page import metrics_page
from planner.reference.nomenclature_page import nomenclature_page
from planner.reference.outputs_page import outputs_page
from planner.reference.scenario_page import scenario_page
from planner.reference.study_page import study_page


def reference_pages() -> dict[str, str]:
    """Return the text of every generated page by file name."""
    return {
        "scenario.md": scenario_page(),
        "study.md": study_page(),
        "cli.md": cli_page(),
        "catalog.md": catalog_page(),
        "outputs.md": outputs_page(),
        "metrics.md": metrics_page(),
        "errors.md": errors_page(),
        "nomenclature.md": nomenclature_page(),
    }


def write_reference(folder: Path) -> list[Path]:
    """Write the pages into a folder, leaving other files alone; return those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, content in reference_pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            changed.append(path)
    return changed
