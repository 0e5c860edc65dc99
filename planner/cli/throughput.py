"""``planner throughput``: latency and tokens per second of replicas, from the calibrated formula."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson


def throughput(
    *,
    model: Annotated[str, typer.Option("--model", help="Model, or several by comma.")],
    accelerator: Annotated[str, typer.Option("--accelerator", help="Accelerator, or several by comma.")],
    engine: Annotated[str, typer.Option("--engine", help="Serving engine, or several by comma.")] = "vllm",
    precision: Annotated[
        str,
        typer.Option("--precision", help="One of the catalogue's, or several [default: as published, else fp8]."),
    ] = "",
    tp: Annotated[
        str, typer.Option("--tp", help="Accelerators per replica, or several [default: fewest that fit].")
    ] = "",
    input_tokens: Annotated[str, typer.Option("--input", help="Prompt tokens, or several by comma.")] = "1024",
    output_tokens: Annotated[str, typer.Option("--output", help="Output tokens, or several by comma.")] = "1024",
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests in the replica, or several [default: 1 to 256].")
    ] = "",
    slo_ttft_ms: Annotated[
        float | None, typer.Option("--slo-ttft-ms", help="Find the largest load within this time to first token.")
    ] = None,
    slo_tpot_ms: Annotated[
        float | None, typer.Option("--slo-tpot-ms", help="Find the largest load within this time per output token.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Saturation: a queue without bottom.")] = False,
    cached: Annotated[float, typer.Option("--cached", help="Share of the prompt in the prefix cache.")] = 0.0,
    attention_dp: Annotated[
        int, typer.Option("--attention-dp", help="Groups of attention in data parallel; mixtures of experts only.")
    ] = 1,
    max_sequences: Annotated[
        int | None, typer.Option("--max-sequences", help="Sequences the engine admits to a group [default: its own].")
    ] = None,
    drafted: Annotated[int, typer.Option("--drafted", help="Speculative decoding: tokens proposed per step.")] = 0,
    accepted: Annotated[
        float, typer.Option("--accepted", help="Tokens that such a step yields, the certain one included.")
    ] = 1.0,
    separate_pools: Annotated[
        bool, typer.Option("--separate-pools", help="Decode workers, whose prompts are prefilled elsewhere.")
    ] = False,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", metavar="FILE.yaml", help="Coefficients [default: those shipped].")
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option("--overlay", metavar="FILE", help="Your own catalogue file, laid over the shipped one."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", help="Draw throughput against interactivity (.png or .svg)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print time to first token, time per output token and tokens/s of one case or a grid."""
    from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration
    from planner.catalog.load import load_catalog
    from planner.tools.benchmarks.grid import Grid, evaluate_grid
    from planner.units import MILLISECOND

    grid = Grid(
        models=_names(model),
        accelerators=_names(accelerator),
        engines=_names(engine) or ["vllm"],
        precisions=_names(precision) or [""],
        tensor_parallel=[int(number) for number in _numbers("--tp", tp, integral=True)] or [None],
        input_tokens=_numbers("--input", input_tokens),
        output_tokens=_numbers("--output", output_tokens),
        cached_fraction=cached,
        concurrency=_numbers("--concurrency", concurrency),
        ttft_objective_s=float("inf") if slo_ttft_ms is None else slo_ttft_ms * MILLISECOND,
        tpot_objective_s=float("inf") if slo_tpot_ms is None else slo_tpot_ms * MILLISECOND,
        offline=offline,
        attention_data_parallel=attention_dp,
        max_sequences=max_sequences,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        separate_pools=separate_pools,
    )
    coefficients = read_calibration(calibration or SHIPPED_CALIBRATION).calibration()
    records = evaluate_grid(grid, load_catalog(overlay=overlay), coefficients)
    if chart is not None:
        from planner.tools.benchmarks.charts import pareto_chart

        pareto_chart(records, chart)
        typer.echo(f"chart written to {chart}", err=True)
    if as_json:
        import json

        typer.echo(json.dumps({"cases": records}, indent=2, allow_nan=False))
        return
    from planner.tools.benchmarks.report import throughput_table

    typer.echo(throughput_table(records))


def _names(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(option: str, text: str, *, integral: bool = False) -> list[float]:
    """Read numbers separated by commas; say which option holds what is none."""
    from planner.errors import Problem, ScenarioError

    numbers = []
    for word in _names(text):
        try:
            number = float(int(word)) if integral else float(word)
        except ValueError:
            kind = "whole numbers" if integral else "numbers"
            raise ScenarioError(Problem(path=option, message=f"takes {kind} by comma, not {word!r}")) from None
        if not math.isfinite(number):
            raise ScenarioError(Problem(path=option, message=f"must be finite, not {word!r}"))
        numbers.append(number)
    return numbers
