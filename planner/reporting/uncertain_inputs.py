"""What a study draws: each uncertain input with its percentiles, its source and its grade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from planner.language.study import Prior, Study
from planner.reporting.study_columns import UNCERTAIN
from planner.studies.distributions import is_numeric, quantile, value_of
from planner.studies.inputs import Input
from planner.studies.prepare import Prepared
from planner.studies.resolve import far_ends
from planner.units import unit_of

_PROBABILITIES = np.array([0.1, 0.5, 0.9])
_MODEL_ERROR = ("the throughput model's own error, from its calibration", "", "C")


def uncertain_columns(prepared: Prepared) -> dict[str, list[Any]]:
    """Return the columns of uncertain.csv."""
    far = far_ends(prepared.study, {base.name: base for base in prepared.scenarios}, prepared.inputs)
    rows = [(*_row(prepared, drawn), far.get(drawn.name, "")) for drawn in prepared.inputs.entries]
    return UNCERTAIN.filled(rows)


def _row(prepared: Prepared, uncertain: Input) -> tuple[str, ...]:
    drawn = quantile(uncertain.distribution, _PROBABILITIES).tolist()
    shown = [value_of(uncertain.distribution, draw) for draw in drawn]
    cells = [f"{cell:.6g}" if is_numeric(uncertain.distribution) else str(cell) for cell in shown]
    is_factor = uncertain.times_stated or uncertain.throughput_of is not None
    unit = "factor" if is_factor else unit_of(uncertain.name.rpartition(".")[2]) or ""
    source = _MODEL_ERROR if uncertain.throughput_of is not None else _source(prepared, uncertain.name)
    return (uncertain.name, uncertain.distribution.kind, *cells, unit, *source)


def _source(prepared: Prepared, name: str) -> tuple[str, str, str]:
    """Return source, date and grade: the catalogue's for a prior, file and line for what the study states itself."""
    written = prepared.study.uncertain[name]
    if isinstance(written, Prior):
        catalog = prepared.scenarios[0].scenario.load_catalog()
        prior = catalog.prior(written.prior)
        return (*catalog.provenance(prior), prior.grade)
    place = prepared.study.document.locate(("uncertain", name))
    line = f":{place.line}" if place is not None and place.line is not None else ""
    return f"{Path(study_file(prepared.study)).name}{line}", "", "user"


def study_file(study: Study) -> str:
    """Return the file that a study was read from, as it was named."""
    place = study.document.locate(())
    return place.file if place is not None else f"{study.name}.yaml"
