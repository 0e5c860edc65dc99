"""A grid of operating points from names: what ``planner throughput`` prints and draws."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.calibration.first_token import FORMULA, factors, labels_of
from planner.calibration.layout import CannotPredictError, find_engine, find_model, find_part, find_precision
from planner.catalog.load import Catalog
from planner.catalog.physics import formats_of
from planner.errors import CapacityError, Problem, ScenarioError, raise_all
from planner.physics.coefficients import DISAGGREGATED, SATURATED, SERVING, Calibration
from planner.physics.memory import memory_fit, smallest_fit
from planner.physics.operating import OperatingPoint, Traffic, at_concurrency, at_objective, at_saturation
from planner.physics.precision import canonical_precision
from planner.physics.replica import ReplicaSpec, price_replicas
from planner.physics.uncertainty import Doubt, interval
from planner.units import MILLISECOND

_FIGURES = (
    "concurrency", "running_sequences", "ttft_ms", "tpot_ms", "tokens_per_s_per_user", "output_tokens_per_s_per_gpu",
    "memory_limited",
)  # fmt: skip
Cell = tuple[ReplicaSpec, float, float]
"""A replica, its prompt tokens and its output tokens."""
DEFAULT_CONCURRENCY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The cases asked for: every combination of replicas, lengths and loads."""

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
    attention_data_parallel: int = 1
    """Groups that share a replica's sequences, each with attention of its own; mixtures of experts only."""
    max_sequences: int | None = None
    """Sequences that the engine admits to a group; None for the engine's own."""
    drafted_tokens: int = 0
    """Tokens proposed to each step by speculative decoding."""
    accepted_tokens: float = 1.0
    """Tokens that a step then yields in the mean."""
    separate_pools: bool = False
    """Whether replicas are decode workers whose prompts are prefilled elsewhere."""

    @property
    def kind(self) -> str:
        """Which kind of measurement the cases are."""
        return SATURATED if self.offline else DISAGGREGATED if self.separate_pools else SERVING


def evaluate_grid(grid: Grid, catalog: Catalog, calibration: Calibration) -> list[dict[str, Any]]:
    """Return one record per case, in the order asked for; one that cannot be has its reason under ``problem``.

    Raise ScenarioError for numbers and names that nothing has, and where no case at all can be.
    """
    _check(grid)
    longest = max(grid.input_tokens) + max(grid.output_tokens)
    replicas = itertools.product(grid.models, grid.accelerators, grid.engines, grid.precisions, grid.tensor_parallel)
    cells: list[Cell | dict[str, Any]] = []
    for names, prompt, output in itertools.product(replicas, grid.input_tokens, grid.output_tokens):
        try:
            cells.append((_spec(grid, names, catalog, prompt + output, longest), prompt, output))
        except (CannotPredictError, CapacityError) as error:
            cells.append(_impossible(names, prompt, output, str(error)))
    possible = [cell for cell in cells if not isinstance(cell, dict)]
    misspelt = _unknown_names(grid, catalog)
    if misspelt or not possible:
        reasons = dict.fromkeys([*misspelt, *(cell["problem"] for cell in cells if isinstance(cell, dict))])
        raise ScenarioError([Problem(message=reason) for reason in reasons])
    points = iter(_evaluated(grid, possible, calibration))
    return [record for cell in cells for record in ([cell] if isinstance(cell, dict) else next(points))]


def _evaluated(grid: Grid, cells: Sequence[Cell], calibration: Calibration) -> list[list[dict[str, Any]]]:
    """Return the records of each cell that can be, one for each load."""
    specs = [spec for spec, _, _ in cells]
    replicas = price_replicas(specs, calibration, [grid.kind] * len(specs))
    doubts = [calibration.doubt(spec.groups(grid.kind), spec.shape.experts > 0) for spec in specs]
    loads: Sequence[float | None] = [None]
    if not grid.offline and grid.ttft_objective_s == np.inf and grid.tpot_objective_s == np.inf:
        loads = grid.concurrency or DEFAULT_CONCURRENCY
    cases = [(place, prompt, output, load) for place, (_, prompt, output) in enumerate(cells) for load in loads]
    index = np.array([case[0] for case in cases], dtype=np.intp)
    traffic = Traffic(
        input_tokens=np.array([case[1] for case in cases]),
        output_tokens=np.array([case[2] for case in cases]),
        cached_fraction=1.0 if grid.separate_pools else grid.cached_fraction,  # a decode worker prefills nothing
        burst_fraction=0.0 if loads[0] is None else 1.0,  # a closed loop is a client's, as in a table of measurements
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
            labels_of(specs[place].groups(grid.kind), specs[place].engine, prompt) if follows[number] else ()
            for number, (place, prompt, _, _) in enumerate(cases)
        ]
        shown = calibration.first_token_log_effect.get(FORMULA, {})
        point = replace(point, ttft_s=point.ttft_s * factors(labels, shown))
    records = [
        _record(grid, cells[case[0]][0], case, point, number) | _interval(doubts[case[0]], point, number)
        for number, case in enumerate(cases)
    ]
    return [records[first : first + len(loads)] for first in range(0, len(records), len(loads))]


def _interval(doubt: Doubt | None, point: OperatingPoint, number: int) -> dict[str, Any]:
    """Return the 90% interval of a case's tokens/s per accelerator and how it stands to the measurements."""
    if doubt is None:
        return {"low": None, "high": None, "half_width_fraction": None, "standing": None}
    low, high = interval(float(point.output_tokens_per_s_per_accelerator[number]), doubt.sigma)
    return {
        "low": low,
        "high": high,
        "half_width_fraction": doubt.half_width_fraction,
        "standing": doubt.in_words(),
    }


def _check(grid: Grid) -> None:
    """Refuse numbers no case can have, all at once."""
    problems = []
    for name, numbers in (
        ("--input", grid.input_tokens),
        ("--output", grid.output_tokens),
        ("--concurrency", grid.concurrency),
        ("--slo-ttft-ms", [grid.ttft_objective_s]),
        ("--slo-tpot-ms", [grid.tpot_objective_s]),
    ):
        wrong = [number for number in numbers if not number > 0]
        problems += [Problem(path=name, message=f"must be above zero, not {number:g}") for number in wrong]
    if not 0.0 <= grid.cached_fraction <= 1.0:
        problems.append(Problem(path="--cached", message=f"must lie between 0 and 1, not {grid.cached_fraction:g}"))
    for name, number in (("--attention-dp", grid.attention_data_parallel), ("--max-sequences", grid.max_sequences)):
        if number is not None and number < 1:
            problems.append(Problem(path=name, message=f"must be at least 1, not {number}"))
    if grid.drafted_tokens < 0 or not 1.0 <= grid.accepted_tokens <= grid.drafted_tokens + 1.0:
        message = f"a step that checks {grid.drafted_tokens} drafts yields 1 to {grid.drafted_tokens + 1} tokens"
        problems.append(Problem(path="--accepted", message=f"{message}, not {grid.accepted_tokens:g}"))
    if grid.separate_pools and (grid.offline or grid.ttft_objective_s < np.inf or grid.cached_fraction > 0.0):
        message = "a decode worker has no prompts: leave out --offline, --slo-ttft-ms and --cached"
        problems.append(Problem(path="--separate-pools", message=message))
    raise_all(problems)


def _unknown_names(grid: Grid, catalog: Catalog) -> list[str]:
    """Say which names are misspelt: those are no cases."""
    looks = [(find_model, grid.models), (find_part, grid.accelerators)]
    problems = []
    for look, names in looks:
        for name in names:
            try:
                look(name, catalog)
            except CannotPredictError as error:
                problems.append(str(error))
    formats = formats_of(catalog)
    wrong = [name for name in grid.precisions if name.strip() and canonical_precision(formats, name) is None]
    return problems + [f"unknown precision {name!r}; choose from {', '.join(formats)}" for name in wrong]


def _spec(
    grid: Grid,
    names: tuple[str, str, str, str, int | None],
    catalog: Catalog,
    context_tokens: float,
    longest_tokens: float,
) -> ReplicaSpec:
    """Resolve one combination of names; an open degree is the fewest that hold the grid's longest context, if any."""
    model, accelerator, engine, precision_name, degree = names
    shape, part = find_model(model, catalog), find_part(accelerator, catalog)
    precision = find_precision(precision_name, part, shape)
    if degree is None:
        try:
            degree = smallest_fit(part, shape, precision, longest_tokens).accelerators
        except CapacityError:  # some other length of the grid does not fit: this one may
            degree = smallest_fit(part, shape, precision, context_tokens).accelerators
    if degree < 1 or not shape.divides_heads(degree):
        raise CannotPredictError(f"tp {degree} does not divide the {shape.heads} heads of {shape.name}")
    groups = grid.attention_data_parallel
    if groups > 1 and not shape.experts:
        raise CannotPredictError(f"attention in data parallel is for mixtures of experts; {shape.name} is dense")
    if degree % groups:
        raise CannotPredictError(f"{groups} groups of attention do not divide a replica of {degree}")
    # Each group holds sequences of its own: one must fit in its share of the cache.
    if memory_fit(part, shape, precision, degree, groups).kv_capacity_tokens < groups * context_tokens:
        fewest = smallest_fit(part, shape, precision, context_tokens).accelerators
        raise CannotPredictError(
            f"{shape.name} at {precision} and {context_tokens:,.0f} tokens do not fit {degree} × {part.name}; "
            f"{fewest} would hold them"
        )
    return ReplicaSpec(
        part=part,
        shape=shape,
        precision=precision,
        accelerators=degree,
        engine=find_engine(engine),
        attention_data_parallel=groups,
        expert_parallel=groups > 1,
        max_sequences=grid.max_sequences,
        drafted_tokens=grid.drafted_tokens,
        accepted_tokens=grid.accepted_tokens,
    )


def _impossible(
    names: tuple[str, str, str, str, int | None], prompt: float, output: float, problem: str
) -> dict[str, Any]:
    """Return the record of a case that cannot be: what was asked for, no figures, and why."""
    model, accelerator, engine, precision, degree = names
    asked = {"model": model, "accelerator": accelerator, "engine": engine, "precision": precision or None, "tp": degree}
    return {**asked, "input_tokens": prompt, "output_tokens": output, **dict.fromkeys(_FIGURES), "problem": problem}


def _record(
    grid: Grid, spec: ReplicaSpec, case: tuple[int, float, float, float | None], point: OperatingPoint, number: int
) -> dict[str, Any]:
    """Return one case as a flat record; what has no value (a queue without bottom) is None."""
    tpot_s, ttft_s = float(point.tpot_s[number]), float(point.ttft_s[number])
    served = point.running_sequences[number] > 0
    concurrency = float(point.concurrency[number])
    return {
        "model": spec.shape.name,
        "accelerator": spec.part.name,
        "engine": spec.engine,
        "precision": spec.precision,
        "tp": spec.accelerators,
        "attention_dp": spec.attention_data_parallel,
        "input_tokens": case[1],
        "output_tokens": case[2],
        "concurrency": concurrency if np.isfinite(concurrency) else None,
        "running_sequences": float(point.running_sequences[number]),
        "ttft_ms": ttft_s / MILLISECOND if np.isfinite(ttft_s) and not grid.separate_pools else None,
        "tpot_ms": tpot_s / MILLISECOND,
        "tokens_per_s_per_user": 1.0 / tpot_s if served else 0.0,
        "output_tokens_per_s_per_gpu": float(point.output_tokens_per_s_per_accelerator[number]),
        "memory_limited": bool(point.memory_limited[number]),
        "problem": None,
    }
