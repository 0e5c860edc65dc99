"""The throughput of replicas: ``planner throughput``, ``check-benchmarks`` and ``calibrate``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from planner import api
from planner.cli.options import AsJson, Overlay, Overrides, Quiet, with_overlay
from planner.errors import Problem, ScenarioError
from planner.files import json_text

Coefficients = Annotated[
    Path | None, Option(metavar="FILE.yaml", help="Calibration [default: the shipped one].")
]

_TABLE = "Measured runs: a CSV, or the JSON of vllm bench serve, SGLang, GenAI-Perf or AIPerf."
RunOptions = Annotated[
    list[str] | None,
    Option(
        metavar="COLUMN=VALUE,...",
        help="Facts that a JSON result leaves out, e.g. accelerator=H200,tp=8,precision=fp8.",
    ),
]


def throughput(
    scenario: Annotated[
        Path | None, Argument(help="Scenario: print its layouts and their lead over the next best.")
    ] = None,
    *,
    overrides: Overrides = None,
    model: Annotated[str, Option(help="Model, or several separated by commas.")] = "",
    accelerator: Annotated[str, Option(help="Accelerator, or several separated by commas.")] = "",
    engine: Annotated[str, Option(help="Serving engine, or several separated by commas.")] = "vllm",
    precision: Annotated[
        str,
        Option(help="Precision, or several separated by commas [default: as published, else fp8]."),
    ] = "",
    tp: Annotated[
        str,
        Option(
            help="Accelerators per replica, or several numbers separated by commas [default: fewest that fit]."
        ),
    ] = "",
    input_tokens: Annotated[
        str, Option("--input", help="Prompt tokens, or several numbers separated by commas.")
    ] = "1024",
    output_tokens: Annotated[
        str, Option("--output", help="Output tokens, or several numbers separated by commas.")
    ] = "1024",
    concurrency: Annotated[
        str, Option(help="Requests at once in the replica, or several [default: 1 to 256].")
    ] = "",
    slo_ttft_ms: Annotated[
        float | None, Option(help="Find the largest load that keeps this time to first token.")
    ] = None,
    slo_tpot_ms: Annotated[
        float | None, Option(help="The same, for time per output token.")
    ] = None,
    offline: Annotated[
        bool, Option("--offline", help="Saturated: the queue is never empty.")
    ] = False,
    cached: Annotated[float, Option(help="Share of the prompt in the prefix cache.")] = 0.0,
    calibration: Coefficients = None,
    overlay: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """Print time to first token, time per output token and tokens/s for one case or a grid, or a scenario's layouts."""
    from planner.calibration.throughput import OperatingPoints, evaluate_grid, throughput_table
    from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration
    from planner.catalog.load import load_catalog
    from planner.units import MILLISECOND

    if scenario is not None:
        text = _layouts(scenario, with_overlay(overrides, overlay), as_json=as_json)
        typer.echo(text)
        return
    if not (model and accelerator):
        message = "takes a scenario file, or both --model and --accelerator"
        hint = "for example scenarios/mixed-fleet.yaml"
        raise ScenarioError(Problem(path="throughput", message=message, hint=hint))
    degrees = _numbers("--tp", tp, integral=True)
    # An empty name or None stands for the usual choice, so that a grid has at least one case.
    grid = OperatingPoints(
        models=_names(model),
        accelerators=_names(accelerator),
        engines=_names(engine) or ["vllm"],
        precisions=_names(precision) or [""],
        tensor_parallel=[int(degree) for degree in degrees] or [None],
        input_tokens=_numbers("--input", input_tokens),
        output_tokens=_numbers("--output", output_tokens),
        cached_fraction=cached,
        concurrency=_numbers("--concurrency", concurrency),
        # Without an objective any time will do.
        ttft_objective_s=float("inf") if slo_ttft_ms is None else slo_ttft_ms * MILLISECOND,
        tpot_objective_s=float("inf") if slo_tpot_ms is None else slo_tpot_ms * MILLISECOND,
        offline=offline,
    )
    coefficients = read_calibration(calibration or SHIPPED_CALIBRATION).calibration()
    records = evaluate_grid(grid, load_catalog(overlay=overlay), coefficients)
    if as_json:
        typer.echo(json.dumps({"cases": records}, indent=2, allow_nan=False))
        return
    typer.echo(throughput_table(records))


def _layouts(scenario: Path, overrides: list[str], *, as_json: bool) -> str:
    """Return how each cluster of a scenario serves each workload, and what the next best would serve."""
    from planner.answers.assumptions import layouts
    from planner.answers.run_report import layout_grid
    from planner.output.terminal import text_table
    from planner.scenario.loading import load_scenario

    table = layouts(load_scenario(scenario, overrides), {})
    if as_json:
        return json.dumps({"layouts": table.records()}, indent=2, allow_nan=False)
    grid = layout_grid(table)
    header = [str(cell) for cell in grid.header]
    # Cells of a report may be numbers with a format; a terminal gets their text.
    rows = [list(map(str, row)) for row in grid.rows]
    return f"{grid.caption}.\n\n{text_table(header, rows)}"


def _names(text: str) -> list[str]:
    words = map(str.strip, text.split(","))
    return [word for word in words if word]


def _numbers(option: str, text: str, *, integral: bool = False) -> list[float]:
    """Read numbers separated by commas; say which option holds what is none."""
    numbers = []
    for word in _names(text):
        try:
            # "1.5" is no degree of parallelism, and int refuses it.
            numbers.append(float(int(word)) if integral else float(word))
        except ValueError:
            kind = "whole numbers" if integral else "numbers"
            raise ScenarioError(
                Problem(path=option, message=f"takes {kind} separated by commas, not {word!r}")
            ) from None
        # float reads "nan" and "inf" too.
        if not math.isfinite(numbers[-1]):
            raise ScenarioError(Problem(path=option, message=f"must be finite, not {word!r}"))
    return numbers


def check_benchmarks(
    table: Annotated[Path, Argument(metavar="FILE", help=_TABLE)],
    run: RunOptions = None,
    calibration: Coefficients = None,
    worst: Annotated[int, Option(min=0, help="How many of the worst rows to print.")] = 15,
    overlay: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """Predict each measured run; print the errors overall and by kind of model, and the worst rows."""
    checked = api.check_benchmarks(table, run or (), calibration, overlay)
    if as_json:
        # All rows, not the worst alone: a program picks its own.
        content = {"rows": checked.rows(), "summary": checked.summary()}
        typer.echo(json.dumps(content, allow_nan=False))
    else:
        typer.echo(checked.report(worst))


def calibrate(
    table: Annotated[
        Path, Argument(metavar="FILE", help="Measurements, as check-benchmarks reads them.")
    ],
    out: Annotated[Path, Option(metavar="FILE.yaml", help="Where to write the calibration.")],
    run: RunOptions = None,
    calibration: Coefficients = None,
    overlay: Overlay = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Refit the throughput model with your own measurements. To use it, name the file as the scenario's calibration."""
    from planner.calibration.bench_results import parse_run
    from planner.calibration.calibrate import update_calibration
    from planner.calibration.check import update_table
    from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration, write_calibration
    from planner.catalog.load import load_catalog

    # Standard output stays free for the result.
    if not quiet:
        typer.echo(f"fitting {table}", err=True)
    base = read_calibration(calibration or SHIPPED_CALIBRATION)
    file = update_calibration(table, base, load_catalog(overlay=overlay), parse_run(run or ()))
    write_calibration(file, out)
    if as_json:
        content = file.model_dump(mode="json", exclude_none=True)
        typer.echo(json_text(content), nl=False)
    elif file.own is not None and not quiet:
        table_text = update_table(file.own, base.calibration(), file.calibration())
        typer.echo(f"{table_text}\n\nwritten to {out}")
