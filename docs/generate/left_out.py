"""Choices among measured layouts by calibrations that know nothing of a part of the rows.

The rows of an accelerator's engine, of a campaign or of a model are left out, the formula is fitted to the others, and
what is believed of each measured layout then (``planner.plan.shrinkage``) decides among them at each time per token.
What is predicted of the chosen over what was measured of it says whether decisions are flattered; what was measured of
the chosen over the best says what they lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from docs.generate.frontier import closed_loops, lengths_about, rates_between
from docs.generate.throughput_fit import Fit, Measurements, fit, measurements
from planner.arrays import Bools, Floats
from planner.calibration.predictions import prepare, priced_rows
from planner.catalog.load import Catalog
from planner.physics.coefficients import Calibration, prior_calibration
from planner.physics.replica import ReplicaSpec, Traffic, at_objective, at_speed, price_replicas
from planner.plan.shrinkage import TPOT_S, belief_of
from planner.scenario.cluster import Cluster
from planner.scenario.workload import Workload

LEFT_OUT = ("engine on an accelerator", "campaign", "model")


class Measured(NamedTuple):
    """A layout of a model on an accelerator, at one pair of lengths and one time per token that its loads bracket."""

    spec: ReplicaSpec
    input_tokens: float
    output_tokens: float
    tpot_s: float
    tokens_per_s: float
    """Output tokens/s per accelerator as measured."""

    @property
    def cell(self) -> tuple[object, ...]:
        """Return what the layouts have in common among which a choice is made."""
        spec = self.spec
        pair = (spec.shape.name, spec.part.name, spec.precision)
        return (*pair, self.input_tokens, self.output_tokens, self.tpot_s)

    def group(self, kind: str) -> str:
        """Return which rows are left out together with its own."""
        spec = self.spec
        model = spec.shape.measured_as
        names = {
            "engine on an accelerator": f"{spec.part.name} {spec.engine}",
            "campaign": f"{model} {spec.part.name} {spec.engine} {spec.precision}",
            "model": model,
        }
        return names[kind]


class Chosen(NamedTuple):
    """What is chosen in one cell."""

    accelerator: str
    is_mixture: bool
    choices: int
    predicted_ratio: float
    """Predicted of the chosen over measured of it."""
    measured_ratio: float
    """Measured of the chosen over measured of the best."""


def measured_layouts(
    frame: pd.DataFrame, catalog: Catalog, calibration: Calibration
) -> list[Measured]:
    """Return the layouts of closed loops that were measured at more than one load, at the times that these bracket."""
    rows = closed_loops(frame, catalog, calibration)
    rows = rows[rows["scenario"] == "Concurrency"].reset_index(drop=True)
    specs = priced_rows(prepare(rows, catalog), calibration).specs
    keys = [(spec.shape.name, spec.part.name, spec.layout, spec.expert_parallel) for spec in specs]
    lengths = zip(rows["input_tokens"], rows["output_tokens"], strict=True)
    rows["place"] = np.arange(len(rows))
    rows["setting"] = [f"{key} {pair}" for key, pair in zip(keys, lengths, strict=True)]
    found = []
    for _, loads in rows.groupby("setting", sort=False):
        # Several runs at one load are one.
        by_load = loads.groupby("concurrency")[["tpot_ms", "tokens_per_s"]].median()
        if len(by_load) < 2:
            continue
        first = loads.iloc[0]
        for tpot_s, rate in zip(TPOT_S, rates_between(by_load).tolist(), strict=True):
            if np.isfinite(rate):
                spec = specs[int(first["place"])]
                pair = (float(first["input_tokens"]), float(first["output_tokens"]))
                found.append(Measured(spec, *pair, tpot_s, rate))
    return found


class Rows(NamedTuple):
    """The rows of a fit, and what it found."""

    data: Measurements
    specs: list[ReplicaSpec]
    fitted: Fit
    shipped: Calibration
    calibrations: dict[tuple[str, str], Calibration]
    """What is left of them without a group, by its kind and name: each takes a fit, and is asked for again."""

    def without_group(self, kind: str, group: str) -> Calibration:
        """Return the calibration of the rows that are not of a group."""
        if (kind, group) not in self.calibrations:
            names = [Measured(spec, 0, 0, 0, 0).group(kind) for spec in self.specs]
            self.calibrations[kind, group] = self.without(np.array(names) == group)
        return self.calibrations[kind, group]

    def without(self, is_out: Bools) -> Calibration:
        """Return the calibration of the other rows, with the spreads that are shipped."""
        calibration = fit(self.data, ~is_out, self.fitted.unknowns).calibration
        left = np.flatnonzero(~is_out).tolist()
        rows = Counter(label for row in left for label in self.data.groups[row])
        effects = calibration.group_log_effect
        return replace(
            calibration,
            # What has no row is not measured.
            group_log_effect={label: effects[label] for label in rows},
            group_rows=dict(rows),
            spread=self.shipped.spread,
        )


def fitted_rows(frame: pd.DataFrame, catalog: Catalog, shipped: Calibration) -> Rows:
    """Return the rows that a fit is made of: all but those of separate pools."""
    rows = prepare(frame[frame["scenario"] != "Disaggregated"], catalog)
    prior = prior_calibration()
    data = measurements(frame[frame["scenario"] != "Disaggregated"], rows, prior)
    return Rows(data, priced_rows(rows, prior).specs, fit(data), shipped, {})


def choices(
    kind: str, groups: set[str] | None, layouts: list[Measured], rows: Rows, catalog: Catalog
) -> Iterator[Chosen]:
    """Yield what is chosen in each cell with a layout of a group, that group's rows left out, group by group."""
    for group in sorted({one.group(kind) for one in layouts}):
        if groups is not None and group not in groups:
            continue
        calibration = rows.without_group(kind, group)
        cells = {one.cell for one in layouts if one.group(kind) == group}
        touched = [one for one in layouts if one.cell in cells]
        yield from chosen_among(touched, calibration, catalog)


def chosen_among(
    layouts: list[Measured], calibration: Calibration, catalog: Catalog
) -> Iterator[Chosen]:
    """Yield what a calibration chooses in each cell of measured layouts."""
    predicted = believed_rates(layouts, calibration, catalog)
    by_cell: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(layouts):
        by_cell.setdefault(one.cell, []).append(place)
    for places in by_cell.values():
        best = max(places, key=lambda place: predicted[place])
        chosen = layouts[best]
        most = max(layouts[place].tokens_per_s for place in places)
        yield Chosen(
            accelerator=chosen.spec.part.name,
            is_mixture=chosen.spec.shape.experts > 0,
            choices=len(places),
            predicted_ratio=float(predicted[best]) / chosen.tokens_per_s,
            measured_ratio=chosen.tokens_per_s / most,
        )


def believed_rates(layouts: list[Measured], calibration: Calibration, catalog: Catalog) -> Floats:
    """Return what a calibration predicts of layouts at their times per token, as far as it is known."""
    beliefs: dict[tuple[object, ...], Mapping[tuple[str, int, int], float]] = {}
    log_gains = []
    for one in layouts:
        # Beliefs know no time per token.
        key = one.cell[:-1]
        if key not in beliefs:
            beliefs[key] = _beliefs(one, calibration, catalog)
        spec = one.spec
        layout = (spec.engine, spec.accelerators, spec.attention_data_parallel)
        log_gains.append(beliefs[key].get(layout, 0.0))
    replicas = price_replicas([one.spec for one in layouts], calibration)
    replicas = at_speed(replicas, np.exp(log_gains))
    traffic = Traffic(
        input_tokens=np.array([one.input_tokens for one in layouts]),
        output_tokens=np.array([one.output_tokens for one in layouts]),
    )
    tpot_s = np.array([one.tpot_s for one in layouts])
    point = at_objective(replicas, np.arange(len(layouts)), traffic, np.inf, tpot_s)
    return np.nan_to_num(point.output_tokens_per_s_per_accelerator)


def _beliefs(
    one: Measured, calibration: Calibration, catalog: Catalog
) -> Mapping[tuple[str, int, int], float]:
    workload = Workload.model_validate(
        {
            "model": one.spec.shape.name,
            "lengths": lengths_about(one.input_tokens, one.output_tokens),
            "requests_per_s": 1.0,
            "slo": {"ttft_s": 5.0, "tpot_s": one.tpot_s},
        }
    )
    cluster = Cluster(accelerator=one.spec.part.name, nodes=1, precision=one.spec.precision)
    return belief_of(cluster, workload, catalog, calibration).colocated
