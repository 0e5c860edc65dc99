"""A grid of operating points from names, as ``planner throughput`` prints it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.calibration.benchmarks import (
    CannotPredictError,
    find_engine,
    find_model,
    find_part,
    find_precision,
)
from planner.calibration.check import plain_table
from planner.calibration.predictions import FORMULA, factors, labels_of
from planner.catalog.load import Catalog, formats_of
from planner.errors import CapacityError, Problem, ScenarioError, raise_wrong
from planner.physics.coefficients import SATURATED, SERVING, Calibration
from planner.physics.model_on_part import canonical_precision, memory_fit, smallest_fit
from planner.physics.replica import (
    ReplicaSpec,
    Traffic,
    at_concurrency,
    at_objective,
    at_saturation,
    price_replicas,
)
from planner.units import MILLISECOND

_TIMES = ("ttft_ms", "tpot_ms")
_RATES = ("tokens_per_s_per_user", "output_tokens_per_s_per_gpu")
_FIGURES = ("concurrency", "running_sequences", *_TIMES, *_RATES, "memory_limited")
"""What a case that cannot be has none of."""
DEFAULT_CONCURRENCY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


_Names = tuple[str, str, str, str, int | None]
"""Model, accelerator, engine, precision, and degree of tensor parallelism where it is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoints:
    """The cases of a grid: every combination of replicas, lengths and loads."""

    models: Sequence[str]
    accelerators: Sequence[str]
    engines: Sequence[str]
    precisions: Sequence[str]
    """As people write them; the empty string picks the model's own or FP8."""
    tensor_parallel: Sequence[int | None]
    """Accelerators of one replica; None picks the fewest that fit."""
    input_tokens: Sequence[float]
    output_tokens: Sequence[float]
    cached_fraction: float = 0.0
    concurrency: Sequence[float] = ()
    """Closed loops; empty for an objective or saturation."""
    ttft_objective_s: float = np.inf
    tpot_objective_s: float = np.inf
    offline: bool = False


def evaluate_grid(
    grid: OperatingPoints, catalog: Catalog, calibration: Calibration
) -> list[dict[str, Any]]:
    """Return one record per case, in order; an infeasible one has its reason under ``problem``.

    Raise ScenarioError for numbers and names that nothing has, and where no case at all can be.
    """
    _check(grid)
    longest = max(grid.input_tokens) + max(grid.output_tokens)
    replicas = itertools.product(
        grid.models, grid.accelerators, grid.engines, grid.precisions, grid.tensor_parallel
    )
    cells: list[dict[str, Any] | None] = []
    possible: list[tuple[ReplicaSpec, float, float]] = []
    for names, prompt, output in itertools.product(replicas, grid.input_tokens, grid.output_tokens):
        try:
            possible.append((_spec(names, catalog, prompt + output, longest), prompt, output))
            cells.append(None)
        except (CannotPredictError, CapacityError) as error:
            model, accelerator, engine, precision, degree = names
            asked = {
                "model": model,
                "accelerator": accelerator,
                "engine": engine,
                "precision": precision or None,
            }
            lengths = {"tp": degree, "input_tokens": prompt, "output_tokens": output}
            cells.append({**asked, **lengths, **dict.fromkeys(_FIGURES), "problem": str(error)})
    misspelt = []  # names that nothing has are no cases
    for look, wanted in ((find_model, grid.models), (find_part, grid.accelerators)):
        for name in wanted:
            try:
                look(name, catalog)
            except CannotPredictError as error:
                misspelt.append(str(error))
    formats = formats_of(catalog)
    wrong = [
        name
        for name in grid.precisions
        if name.strip() and canonical_precision(formats, name) is None
    ]
    misspelt += [f"unknown precision {name!r}; choose from {', '.join(formats)}" for name in wrong]
    if misspelt or not possible:
        reasons = dict.fromkeys(
            [*misspelt, *(cell["problem"] for cell in cells if cell is not None)]
        )
        raise ScenarioError([Problem(message=reason) for reason in reasons])
    points = iter(_evaluated(grid, possible, calibration))
    return [record for cell in cells for record in (next(points) if cell is None else [cell])]


def _evaluated(
    grid: OperatingPoints,
    cells: Sequence[tuple[ReplicaSpec, float, float]],
    calibration: Calibration,
) -> list[list[dict[str, Any]]]:
    """Return the records of replicas and lengths, one for each load.

    What has no value (a queue without bottom) is None.
    """
    specs = [spec for spec, _, _ in cells]
    kind = SATURATED if grid.offline else SERVING
    replicas = price_replicas(specs, calibration, [kind] * len(specs))
    doubts = [spec.doubt(calibration, kind) for spec in specs]
    loads: Sequence[float | None] = [None]
    if not grid.offline and grid.ttft_objective_s == np.inf and grid.tpot_objective_s == np.inf:
        loads = grid.concurrency or DEFAULT_CONCURRENCY
    cases = [
        (place, prompt, output, load)
        for place, (_, prompt, output) in enumerate(cells)
        for load in loads
    ]
    index, prompts, outputs = (np.array([case[place] for case in cases]) for place in range(3))
    traffic = Traffic(
        input_tokens=prompts,
        output_tokens=outputs,
        cached_fraction=grid.cached_fraction,
        burst_fraction=0.0
        if loads[0] is None
        else 1.0,  # a closed loop is a client's, as in a table of measurements
    )
    if grid.offline:
        point = at_saturation(replicas, index, traffic)
    elif loads[0] is None:
        point = at_objective(replicas, index, traffic, grid.ttft_objective_s, grid.tpot_objective_s)
    else:
        clients = np.array([case[3] for case in cases], dtype=float)
        point = at_concurrency(replicas, index, traffic, clients)
        # More clients than fit wait for a place, and not for what a recipe has them wait for.
        follows = clients <= at_saturation(replicas, index, traffic).running_sequences
        labels = [
            labels_of(specs[place].groups(kind), specs[place].engine, prompt)
            if follows[number]
            else ()
            for number, (place, prompt, _, _) in enumerate(cases)
        ]
        shown = calibration.first_token_log_effect.get(FORMULA, {})
        point = replace(point, ttft_s=point.ttft_s * factors(labels, shown))
    records = []
    for number, (place, prompt, output, _) in enumerate(cases):
        spec = specs[place]
        doubt = doubts[place]
        tpot_s = float(point.tpot_s[number])
        ttft_s = float(point.ttft_s[number])
        rate = float(point.output_tokens_per_s_per_accelerator[number])
        running = float(point.running_sequences[number])
        concurrency = float(point.concurrency[number])
        low, high = (None, None) if doubt is None else doubt.interval(rate)
        records.append(
            {
                "model": spec.shape.name,
                "accelerator": spec.part.name,
                "engine": spec.engine,
                "precision": spec.precision,
                "tp": spec.accelerators,
                "input_tokens": prompt,
                "output_tokens": output,
                "concurrency": concurrency if np.isfinite(concurrency) else None,
                "running_sequences": running,
                "ttft_ms": ttft_s / MILLISECOND if np.isfinite(ttft_s) else None,
                "tpot_ms": tpot_s / MILLISECOND,
                "tokens_per_s_per_user": 1.0 / tpot_s if running > 0 else 0.0,
                "output_tokens_per_s_per_gpu": rate,
                "memory_limited": bool(point.memory_limited[number]),
                "problem": None,
                "low": low,
                "high": high,
                "half_width_fraction": None if doubt is None else doubt.half_width_fraction,
                "standing": None if doubt is None else doubt.in_words(),
            }
        )
    return [records[first : first + len(loads)] for first in range(0, len(records), len(loads))]


def _check(grid: OperatingPoints) -> None:
    """Raise an error for invalid numbers, all at once."""
    checks = []
    for name, numbers in (
        ("--input", grid.input_tokens),
        ("--output", grid.output_tokens),
        ("--concurrency", grid.concurrency),
        ("--slo-ttft-ms", [grid.ttft_objective_s]),
        ("--slo-tpot-ms", [grid.tpot_objective_s]),
    ):
        checks += [
            (not number > 0, name, f"must be above zero, not {number:g}") for number in numbers
        ]
    cached = grid.cached_fraction
    raise_wrong(
        *checks, (not 0.0 <= cached <= 1.0, "--cached", f"must lie between 0 and 1, not {cached:g}")
    )


def _spec(
    names: _Names, catalog: Catalog, context_tokens: float, longest_tokens: float
) -> ReplicaSpec:
    """Return the replica of one combination of names; an open degree is the smallest that fits the longest context."""
    model, accelerator, engine, precision_name, degree = names
    shape = find_model(model, catalog)
    part = find_part(accelerator, catalog)
    precision = find_precision(precision_name, part, shape)
    if degree is None:
        try:
            degree = smallest_fit(part, shape, precision, longest_tokens).accelerators
        except CapacityError:  # some other length of the grid does not fit: this one may
            degree = smallest_fit(part, shape, precision, context_tokens).accelerators
    if degree < 1 or not shape.divides_heads(degree):
        raise CannotPredictError(
            f"tp {degree} does not divide the {shape.heads} heads of {shape.name}"
        )
    if memory_fit(part, shape, precision, degree).kv_capacity_tokens < context_tokens:
        fewest = smallest_fit(part, shape, precision, context_tokens).accelerators
        raise CannotPredictError(
            f"{shape.name} at {precision} and {context_tokens:,.0f} tokens do not fit {degree} × {part.name}; "
            f"{fewest} would hold them"
        )
    return ReplicaSpec(
        part=part, shape=shape, precision=precision, accelerators=degree, engine=find_engine(engine)
    )


def throughput_table(records: Sequence[dict[str, Any]]) -> str:
    """Return operating points as a table, one line per case, and below it why some cases cannot be."""
    rows = []
    impossible = []
    for r in records:
        lengths = f"{r['input_tokens']:g}/{r['output_tokens']:g}"
        names = f"{r['model']} {r['accelerator']}" + ("" if r["tp"] is None else f" × {r['tp']}")
        names = f"{names} {r['engine']} {r['precision'] or ''}".rstrip()
        if r["problem"] is not None:
            impossible.append(f"{names}, {lengths}: {r['problem']}")
            continue
        cells = (
            names,
            lengths,
            "full" if r["concurrency"] is None else f"{r['concurrency']:.4g}",
            "-" if r["ttft_ms"] is None else f"{r['ttft_ms']:,.0f}",
            f"{r['tpot_ms']:,.1f}",
            f"{r['tokens_per_s_per_user']:,.1f}",
            f"{r['output_tokens_per_s_per_gpu']:,.0f}",
            "" if r["low"] is None else f"{r['low']:,.0f} to {r['high']:,.0f}",
            "yes" if r["memory_limited"] else "",
            r["standing"] or "",
        )
        rows.append(cells)
    header = ("replica", "in/out", "concurrency", "TTFT ms", "TPOT ms", "tok/s/user", "tok/s/GPU")
    table = plain_table((*header, "90% interval", "waits for memory", "measured?"), rows)
    return "\n".join([table, *(["", "cannot be:", *impossible] if impossible else [])])
