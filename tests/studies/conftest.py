"""A study small enough to run in a blink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = """\
name: small
scenarios:
  both: {extends: tiny.yaml}
  nvidia: {extends: tiny.yaml, set: {clusters: {mi325x: null, h200: {nodes: 6}}}}
uncertain:
  workloads.*.requests_per_s: {kind: lognormal, median: 1.0, sigma: 0.3, times_stated: true}
  clusters.h200.unit_price_usd: {prior: gpu_module_price_h200}
  site.electricity_usd_per_kwh: {kind: triangular, low: 0.04, mode: 0.07, high: 0.15}
scramblings: 4
"""


@pytest.fixture
def study_file(tmp_path: Path, tiny: str) -> Callable[..., Path]:
    """Write a study beside the tiny scenario."""

    def write(text: str = SMALL, name: str = "study.yaml") -> Path:
        (tmp_path / "tiny.yaml").write_text(tiny)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
