"""A browser for the tests that need one, and a real report to open in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.answers.run import write_run
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.browser.chromium import Browser, find_chromium
from tests.conftest import ROOT, TINY

MISSING = "NO BROWSER: the report was not opened; install Chromium (Debian: apt-get install chromium) to check it"


def _install() -> None:
    """Install Debian's package, where that is allowed and possible."""
    if os.geteuid() != 0 or not Path("/usr/bin/apt-get").exists():
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    try:
        subprocess.run(command, capture_output=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        return


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the reference scenario and return its report."""
    folder = tmp_path_factory.mktemp("report") / "out"
    write_run(simulate(load_scenario(ROOT / "scenarios" / "mixed-fleet.yaml")), folder)
    return folder / "report.html"


STUDY = (
    "name: two-plans\nscenarios:\n  one: {extends: tiny.yaml}\n"
    "  two: {extends: tiny.yaml, set: {site: {pue_ratio: 1.6}}}\n"
    "uncertain:\n  workloads.*.requests_per_s: {kind: lognormal, median: 1.0, sigma: 0.2, times_stated: true}\n"
    "  finance.discount_rate_per_year: {prior: discount_rate}\n"
)
SIZING = "sizing: {clusters: {h200: {max_nodes: 8}, mi325x: {max_nodes: 8}}}\n"
KINDS = {
    "run": ("run", "tiny.yaml"),
    "compare": ("compare", "tiny.yaml", "dear.yaml", "--futures", "futures.yaml"),
    "sweep": ("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=2,4"),
    "montecarlo": ("montecarlo", "s.yaml", "-n", "32", "--workers", "1"),
    "sensitivity": ("sensitivity", "s.yaml", "-n", "4", "--workers", "1"),
    "zoom": (
        "zoom",
        "tiny.yaml",
        "--at",
        "2026-02-03T15:00",
        "--minutes",
        "5",
        "--requests",
        "500",
    ),
    "size": (
        "size",
        "tiny.yaml",
        "--replications",
        "4",
        "--confirmations",
        "4",
        "--no-rivals",
        "--workers",
        "1",
    ),
    "actuals": ("actuals", "tiny.yaml", "months"),
}
"""Every command that writes a report, on small scenarios."""


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that runs a kind of command, once, and returns its report."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "tiny.yaml").write_text(f"{TINY}  spare: {{accelerator: B200, nodes: 0}}\n{SIZING}")
    (folder / "dear.yaml").write_text(
        TINY.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9")
    )
    (folder / "s.yaml").write_text(STUDY)
    (folder / "futures.yaml").write_text(
        "futures: {busy: {set: {'workloads.*.requests_per_s': ×40}}}\n"
    )
    (folder / "months").mkdir()
    (folder / "months" / "mapping.yaml").write_text("files: {fleet.csv: {kind: figures}}\n")
    (folder / "months" / "fleet.csv").write_text(
        "month,served_tokens\n2026-01,8.1e9\n2026-02,7.6e9\n"
    )

    def run(kind: str) -> Path:
        if not (folder / kind).exists():
            program = [sys.executable, "-c", "from planner.cli.app import main; main()"]
            subprocess.run(
                [*program, *KINDS[kind], "--out", kind, "--quiet"], cwd=folder, check=True
            )
        return folder / kind / "report.html"

    return run


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the source of axe-core, fetched into a folder of the test's own."""
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "axe-core@4"]
    try:
        subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip(
            "axe-core cannot be fetched with npm here; the other checks cover labels, contrast and landmarks"
        )
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if find_chromium() is None:
        _install()
    if find_chromium() is None:
        pytest.skip(MISSING)
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(_browser: Browser) -> Browser:
    """A desktop, in light colours."""
    _browser.colour_scheme("light")
    _browser.resize(1200, 900)
    return _browser


@pytest.fixture
def page(_browser: Browser, report: Path) -> Browser:
    """Open the report afresh on a desktop, in light colours."""
    _browser.colour_scheme("light")
    _browser.resize(1200, 900)
    _browser.open(report)
    return _browser
