"""What AIConfigurator chooses at the points of the public frontiers: it writes ``aiconfigurator.csv``.

AIConfigurator is NVIDIA's open tool that configures LLM serving from measured kernels. It is no dependency of the
planner: ``pip install aiconfigurator==0.12.0`` beside it, then ``python -m docs.generate.ask_aiconfigurator``. It
takes hours on two cores.

The tool searches as its command ``aiconfigurator cli default --backend auto`` does: every engine, aggregated serving
and separate pools, its current database of each engine, its default mode of measured kernels (``SILICON``), no
drafts, no prefix in the cache, and its own bounds on batches, workers and memory. What is asked of it is what the
planner is asked: the mean lengths, the precision, the first token within five seconds, and four nodes of eight
accelerators. On racks of one large NVLink domain it may use 128, because the planner's pools there reach beyond four
trays. The configuration that it ranks first within a time per token is written down, with the tokens/s per
accelerator of the whole fleet by which it ranks. One sweep serves all times of a pair of lengths, as its command
sweeps a grid of them.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from importlib.metadata import version
from multiprocessing import get_context
from typing import NamedTuple

import pandas as pd
from aiconfigurator.sdk.common import (
    BackendName,
    FMHAQuantMode,
    GEMMQuantMode,
    KVCacheQuantMode,
    MoEQuantMode,
)
from aiconfigurator.sdk.picking import pick_default
from aiconfigurator.sdk.task_v2 import Task

from docs.generate.aiconfigurator import ANSWERS, Answer, write_answers
from docs.generate.validation_page import shipped_points
from planner.units import MILLISECOND

_TTFT_S = 5.0
"""As the planner is asked (``docs/generate/frontier.py``)."""
_WORKERS = 2
_SYSTEMS = {
    "H100": ("h100_sxm", 32),
    "H200": ("h200_sxm", 32),
    "B200": ("b200_sxm", 32),
    "GB200": ("gb200", 128),
    "GB300": ("gb300", 128),
}
"""Name of an accelerator in the tool, and how many it may use."""
_FP8 = {
    "gemm_quant_mode": GEMMQuantMode.fp8_static,
    "moe_quant_mode": MoEQuantMode.fp8,
    "kvcache_quant_mode": KVCacheQuantMode.fp8,
    "fmha_quant_mode": FMHAQuantMode.fp8,
}
"""As the tool reads the published checkpoint of Llama 3.1 70B in FP8."""
_FP8_BLOCK = {
    **_FP8,
    "gemm_quant_mode": GEMMQuantMode.fp8_block,
    "moe_quant_mode": MoEQuantMode.fp8_block,
}
"""As it reads those of Qwen3 in FP8."""
_FP4 = {
    **_FP8,
    "gemm_quant_mode": GEMMQuantMode.nvfp4,
    "moe_quant_mode": MoEQuantMode.nvfp4,
}
"""As it reads NVIDIA's checkpoints in FP4."""
_CHECKPOINTS: dict[tuple[str, str], tuple[str, dict[str, object]]] = {
    ("deepseek-r1", "fp8"): ("deepseek-ai/DeepSeek-R1", {}),
    ("deepseek-r1", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", {}),
    ("deepseek-v3", "fp8"): ("deepseek-ai/DeepSeek-V3", {}),
    ("deepseek-v3", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", {}),
    ("gpt-oss-120b", "fp4"): ("openai/gpt-oss-120b", {}),
    ("llama-3.1-70b", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", {}),
    ("llama-3.1-70b", "fp4"): ("meta-llama/Meta-Llama-3.1-70B", _FP4),
    ("llama-3.1-8b", "fp8"): ("meta-llama/Meta-Llama-3.1-8B", _FP8),
    ("minimax-m2.5", "fp8"): ("MiniMaxAI/MiniMax-M2.5", {}),
    ("qwen3-235b-a22b", "fp8"): ("Qwen/Qwen3-235B-A22B-FP8", {}),
    ("qwen3-32b", "fp8"): ("Qwen/Qwen3-32B-FP8-Static-PerTensor", {}),
    ("qwen3.5-397b-a17b", "fp8"): ("Qwen/Qwen3.5-397B-A17B", _FP8_BLOCK),
}
"""A checkpoint that the tool ships the shape of; the precision in words where it ships no checkpoint in it."""


class Cell(NamedTuple):
    """What one sweep is asked about."""

    model: str
    accelerator: str
    precision: str
    input_tokens: float
    output_tokens: float
    tpot_s: tuple[float, ...]


def cells() -> list[Cell]:
    """Return the points of the frontier, those of one pair of lengths together."""
    times: dict[tuple[str, str, str, float, float], list[float]] = {}
    for point in shipped_points():
        lengths = (point.input_tokens, point.output_tokens)
        key = (point.model, point.accelerator, point.precision, *lengths)
        times.setdefault(key, []).append(point.tpot_s)
    return [Cell(*key, tuple(sorted(tpot_s))) for key, tpot_s in sorted(times.items())]


def sweeps(cell: Cell) -> Iterator[dict[str, object]]:
    """Yield the fields of the tool's sweeps of a cell: each engine, without and with separate pools."""
    system, accelerators = _SYSTEMS[cell.accelerator]
    checkpoint, modes = _CHECKPOINTS[cell.model, cell.precision]
    shared = {
        "isl": round(cell.input_tokens),
        "osl": round(cell.output_tokens),
        "ttft": _TTFT_S / MILLISECOND,
        "total_gpus": accelerators,
        "database_mode": "SILICON",
        "pareto_sweep": False,
        "tpot": [tpot_s / MILLISECOND for tpot_s in cell.tpot_s],
    }
    for backend in BackendName:
        worker = {
            "model_path": checkpoint,
            "system_name": system,
            "backend_name": backend.value,
            **modes,
        }
        yield {"serving_mode": "agg", **worker, **shared}
        pools = {
            f"{role}_{name}": value
            for role in ("prefill", "decode")
            for name, value in worker.items()
        }
        yield {"serving_mode": "disagg", **pools, **shared}


def answers(cell: Cell) -> list[Answer]:
    """Return what the tool ranks first at each time per token of a cell."""
    # It warns of every table that it fills from another one.
    logging.disable(logging.WARNING)
    if cell.accelerator not in _SYSTEMS:
        return [_without(cell, tpot_s, "no AMD accelerators") for tpot_s in cell.tpot_s]
    best: dict[float, Answer] = {}
    refusals: dict[str, None] = {}
    for fields in sweeps(cell):
        try:
            task = Task(**fields)
            frame = task.run()
        except Exception as refusal:
            # Whatever it says is the reason why there is no answer.
            refusals.setdefault(f"{type(refusal).__name__}: {refusal}".splitlines()[0][:120])
            continue
        for tpot_s in cell.tpot_s:
            found = _first(task, frame, cell, tpot_s)
            rate = found.tokens_per_s_per_accelerator if found else math.nan
            if found and (tpot_s not in best or rate > best[tpot_s].tokens_per_s_per_accelerator):
                best[tpot_s] = found
    why = "; ".join(refusals) or "nothing within the time per token"
    return [best.get(tpot_s) or _without(cell, tpot_s, why) for tpot_s in cell.tpot_s]


def _first(task: Task, frame: pd.DataFrame, cell: Cell, tpot_s: float) -> Answer | None:
    """Return what is ranked first among the configurations of one sweep, None where none keeps the time."""
    picked = pick_default(
        frame,
        task.total_gpus,
        task.serving_mode,
        target_tpot=tpot_s / MILLISECOND,
        top_n=1,
        strict_sla=True,
    )
    if picked["best_config_df"].empty:
        return None
    first = picked["best_config_df"].iloc[0]
    if task.serving_mode == "agg":
        layout = f"{first['parallel']}, batch {first['bs']:.0f}"
    else:
        layout = (
            f"{first['(p)workers']:.0f} x {first['(p)parallel']} prefill, "
            f"{first['(d)workers']:.0f} x {first['(d)parallel']} decode of batch {first['(d)bs']:.0f}"
        )
    return Answer(
        *cell[:-1],
        tpot_s=tpot_s,
        tokens_per_s_per_accelerator=round(picked["best_throughput"], 1),
        engine=f"{task.primary_backend_name} {task.primary_backend_version}",
        layout=layout,
        note="",
    )


def _without(cell: Cell, tpot_s: float, why: str) -> Answer:
    """Return that the tool has no answer, and why."""
    return Answer(*cell[:-1], tpot_s, math.nan, "", "", why)


def main() -> int:
    """Ask for every point; write what is known after each cell, so that a long run can be looked at."""
    asked = cells()
    known: list[Answer] = []
    with ProcessPoolExecutor(_WORKERS, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(answers, cell) for cell in asked]
        for number, future in enumerate(as_completed(futures), start=1):
            known += future.result()
            write_answers(ANSWERS, known, f"{version('aiconfigurator')}, {date.today()}")
            print(f"{number} of {len(asked)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
