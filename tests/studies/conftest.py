"""A study small enough to run in a blink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from planner import api
from planner.studies.analysis import Finished
from tests.conftest import TINY
from tests.studies.processes import files, finish_here

ON_VLLM = TINY.replace("    nodes:", "    engine: vllm\n    nodes:")
"""The tiny scenario with its engine stated, since a throughput error is drawn by engine."""

SMALL = """\
name: small
scenarios:
  both: {extends: tiny.yaml}
  nvidia: {extends: tiny.yaml, set: {clusters: {mi325x: null, h200: {nodes: 6}}}}
uncertain:
  workloads.*.requests_per_s: {kind: lognormal, median: 1.0, sigma: 0.3, times_stated: true}
  clusters.h200.accelerator_price_usd: {prior: gpu_module_price_h200}
  site.electricity_usd_per_kwh: {kind: triangular, low: 0.04, mode: 0.07, high: 0.15}
scramblings: 4
"""


@pytest.fixture
def study_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a study beside the tiny scenario."""

    def write(text: str = SMALL, name: str = "study.yaml") -> Path:
        (tmp_path / "tiny.yaml").write_text(ON_VLLM)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def study(study_file: Callable[..., Path]) -> Path:
    """The small study's file."""
    return study_file()


def run_study(study: Path, size: int, folder: Path, overrides: Sequence[str] = ()) -> Finished:
    """Return a study run from Python in this process, or continued, with what it wrote."""
    return api.study(study, size, folder, overrides=overrides, workers=1, resume=True).result


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted study in one process writes: this one."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "tiny.yaml").write_text(ON_VLLM)
    (folder / "study.yaml").write_text(SMALL)
    finish_here(folder / "study.yaml", folder / "out", "--workers", "1")
    return files(folder / "out")
