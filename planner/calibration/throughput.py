"""A grid of operating points from names, as ``planner throughput`` prints it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from planner.physics.coefficients import SATURATED, SERVING, Calibration, Uncertainty
from planner.physics.model_on_part import canonical_precision, memory_fit, smallest_fit
from planner.physics.replica import (
    OperatingPoint,
    ReplicaSpec,
    Traffic,
    at_concurrency,
    at_objective,
    at_saturation,
    price_replicas,
)
from planner.records import record
from planner.units import MILLISECOND

_TIMES = ("ttft_ms", "tpot_ms")
_RATES = ("tokens_per_s_per_user", "output_tokens_per_s_per_gpu")
_FIGURES = ("concurrency", "running_sequences", *_TIMES, *_RATES, "memory_limited")
"""What a case that cannot be has none of."""
DEFAULT_CONCURRENCY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


_Names = tuple[str, str, str, str, int | None]
"""Model, accelerator, engine, precision, and degree of tensor parallelism where it is stated."""


@record
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
    # One degree for all lengths of a replica where that is possible, so that a table compares them.
    longest = max(grid.input_tokens) + max(grid.output_tokens)
    replicas = itertools.product(
        grid.models, grid.accelerators, grid.engines, grid.precisions, grid.tensor_parallel
    )
    cells: list[dict[str, Any] | None] = []
    possible: list[tuple[ReplicaSpec, float, float]] = []
    cases = itertools.product(replicas, grid.input_tokens, grid.output_tokens)
    for names, prompt, output in cases:
        try:
            spec = _spec(names, catalog, prompt + output, longest)
            possible.append((spec, prompt, output))
            # None keeps the place of a case that is evaluated below, all at once.
            cells.append(None)
        except (CannotPredictError, CapacityError) as error:
            model, accelerator, engine, precision, degree = names
            names_and_lengths: dict[str, Any] = {
                "model": model,
                "accelerator": accelerator,
                "engine": engine,
                "precision": precision or None,
                "tp": degree,
                "input_tokens": prompt,
                "output_tokens": output,
            }
            no_figures = dict.fromkeys(_FIGURES)
            cells.append({**names_and_lengths, **no_figures, "problem": str(error)})
    # Names that nothing has are no cases.
    unknown = _unknown_names(grid, catalog)
    if unknown or not possible:
        problems = [cell["problem"] for cell in cells if cell is not None]
        # Each reason once, in the order of the cases.
        reasons = dict.fromkeys([*unknown, *problems])
        raise ScenarioError([Problem(message=reason) for reason in reasons])
    points = iter(_evaluated(grid, possible, calibration))
    records: list[dict[str, Any]] = []
    for cell in cells:
        records += next(points) if cell is None else [cell]
    return records


def _unknown_names(grid: OperatingPoints, catalog: Catalog) -> list[str]:
    """Return a sentence for every name of a grid that the catalogue does not have."""
    sentences = []
    searches = ((find_model, grid.models), (find_part, grid.accelerators))
    for find, names in searches:
        for name in names:
            try:
                find(name, catalog)
            except CannotPredictError as error:
                sentences.append(str(error))
    formats = formats_of(catalog)
    choices = ", ".join(formats)
    stated = [name for name in grid.precisions if name.strip()]
    unknown = [name for name in stated if canonical_precision(formats, name) is None]
    messages = [f"unknown precision {name!r}; choose from {choices}" for name in unknown]
    return sentences + messages


def _evaluated(
    grid: OperatingPoints,
    cells: Sequence[tuple[ReplicaSpec, float, float]],
    calibration: Calibration,
) -> list[list[dict[str, Any]]]:
    """Return the records of replicas and lengths, one for each load."""
    specs = [spec for spec, _, _ in cells]
    kind = SATURATED if grid.offline else SERVING
    replicas = price_replicas(specs, calibration, [kind] * len(specs))
    loads: Sequence[float | None] = [None]
    if not grid.offline and grid.ttft_objective_s == np.inf and grid.tpot_objective_s == np.inf:
        loads = grid.concurrency or DEFAULT_CONCURRENCY
    repeats = len(loads)
    # Case by case, each with all its loads: rows of one case stand together.
    index = np.repeat(np.arange(len(cells)), repeats)
    prompts = np.repeat([prompt for _, prompt, _ in cells], repeats)
    outputs = np.repeat([output for _, _, output in cells], repeats)
    traffic = Traffic(
        input_tokens=prompts,
        output_tokens=outputs,
        cached_fraction=grid.cached_fraction,
        # A closed loop is a client's, as in a table of measurements.
        burst_fraction=0.0 if loads[0] is None else 1.0,
    )
    if grid.offline:
        point = at_saturation(replicas, index, traffic)
    elif loads[0] is None:
        point = at_objective(replicas, index, traffic, grid.ttft_objective_s, grid.tpot_objective_s)
    else:
        all_loads = np.array(loads, dtype=float)
        clients = np.tile(all_loads, len(cells))
        point = at_concurrency(replicas, index, traffic, clients)
        # More clients than fit wait for a place, and not for what a recipe has them wait for.
        room = at_saturation(replicas, index, traffic).running_sequences
        follows = clients <= room
        labels: list[tuple[str, ...]] = []
        for place, prompt, is_recipe in zip(index, prompts.tolist(), follows, strict=True):
            spec = specs[place]
            recipe_labels = labels_of(spec.groups(kind), spec.engine, prompt) if is_recipe else ()
            labels.append(recipe_labels)
        effects = calibration.first_token_log_effect.get(FORMULA, {})
        ttft_s = point.ttft_s * factors(labels, effects)
        point = replace(point, ttft_s=ttft_s)
    by_cell = []
    for position, (spec, prompt, output) in enumerate(cells):
        uncertainty = spec.uncertainty(calibration, kind)
        lengths = {"input_tokens": prompt, "output_tokens": output}
        first_row = position * repeats
        rows = range(first_row, (position + 1) * repeats)
        records = [_record(spec, lengths, point, row, uncertainty) for row in rows]
        by_cell.append(records)
    return by_cell


def _record(
    spec: ReplicaSpec,
    lengths: Mapping[str, float],
    point: OperatingPoint,
    row: int,
    uncertainty: Uncertainty | None,
) -> dict[str, Any]:
    """Return the record of one case; what has no value (a queue without bottom) is None."""
    tpot_s = float(point.tpot_s[row])
    ttft_s = float(point.ttft_s[row])
    rate = float(point.output_tokens_per_s_per_accelerator[row])
    running = float(point.running_sequences[row])
    concurrency = float(point.concurrency[row])
    ttft_ms = None
    if np.isfinite(ttft_s):
        ttft_ms = ttft_s / MILLISECOND
    user_rate = 1.0 / tpot_s if running > 0 else 0.0
    case: dict[str, Any] = {
        "model": spec.shape.name,
        "accelerator": spec.part.name,
        "engine": spec.engine,
        "precision": spec.precision,
        "tp": spec.accelerators,
        **lengths,
        "concurrency": concurrency if np.isfinite(concurrency) else None,
        "running_sequences": running,
        "ttft_ms": ttft_ms,
        "tpot_ms": tpot_s / MILLISECOND,
        "tokens_per_s_per_user": user_rate,
        "output_tokens_per_s_per_gpu": rate,
        "memory_limited": bool(point.memory_limited[row]),
        "problem": None,
    }
    interval = dict[str, Any].fromkeys(("low", "high", "half_width_fraction", "standing"))
    if uncertainty is not None:
        # Of the rate: times lie on the other side.
        interval["low"], interval["high"] = uncertainty.interval(rate)
        interval["half_width_fraction"] = uncertainty.half_width_fraction
        interval["standing"] = uncertainty.in_words()
    return case | interval


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
        # "not above" rather than "at most": NaN is refused too.
        checks += [
            (not number > 0, name, f"must be above zero, not {number:g}") for number in numbers
        ]
    cached = grid.cached_fraction
    is_no_share = not 0.0 <= cached <= 1.0
    raise_wrong(*checks, (is_no_share, "--cached", f"must lie between 0 and 1, not {cached:g}"))


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
    room_tokens = memory_fit(part, shape, precision, degree).kv_capacity_tokens
    if room_tokens < context_tokens:
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
        # A case that cannot be may have no precision or degree.
        parallel = ""
        if r["tp"] is not None:
            parallel = f" × {r['tp']}"
        names = f"{r['model']} {r['accelerator']}" + parallel
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
    header = (
        "replica",
        "in/out",
        "concurrency",
        "TTFT ms",
        "TPOT ms",
        "tok/s/user",
        "tok/s/GPU",
        "90% interval",
        "waits for memory",
        "measured?",
    )
    table = plain_table(header, rows)
    reasons = ["", "cannot be:", *impossible] if impossible else []
    return "\n".join([table, *reasons])
