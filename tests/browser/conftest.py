"""A browser for the tests that need one, and a real report to open in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.reporting.run_folder import write_run
from planner.scenario.loading import load_scenario
from planner.simulation.run import simulate
from tests.browser.chromium import Browser, find_chromium

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
    root = Path(__file__).parents[2]
    folder = tmp_path_factory.mktemp("report") / "out"
    write_run(simulate(load_scenario(root / "scenarios" / "mixed-fleet.yaml")), folder)
    return folder / "report.html"


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
def page(_browser: Browser, report: Path) -> Browser:
    """Open the report afresh on a desktop, in light colours."""
    _browser.colour_scheme("light")
    _browser.resize(1200, 900)
    _browser.open(report)
    return _browser
