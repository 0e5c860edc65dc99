"""The rows of the shipped measurement of an H200, and the shapes of the models whose steps it timed."""

from __future__ import annotations

import csv
import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import planner.catalog

CATALOG = Path(planner.catalog.__path__[0])
NUMBERS = {"int | None": int, "float | None": float}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One measurement; None for columns that do not apply or could not be read."""

    phase: str
    date: str
    device: str
    torch_version: str
    driver_version: str
    model: str | None
    precision: str | None
    layers: int | None
    layers_measured: int | None
    batch: int | None
    context_tokens: int | None
    sequences: int | None
    sequence_tokens: int | None
    step_ms: float | None
    layer_ms: float | None
    bandwidth_gb_per_s: float | None
    rate_tflops: float | None
    board_power_w: float | None
    sm_clock_mhz: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class StackShape:
    """Dimensions of a Llama-shaped model, from its published config.json."""

    model: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int

    @property
    def layer_weights(self) -> int:
        """Weights of one layer's matrices."""
        attention = self.hidden * self.head_width * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def head_weights(self) -> int:
        """Weights of the vocabulary product."""
        return self.hidden * self.vocabulary

    def kv_bytes(self, tokens: int) -> int:
        """Bytes of bf16 keys and values of one layer for a number of tokens."""
        return 2 * 2 * tokens * self.kv_heads * self.head_width


LLAMA_8B = StackShape(
    "llama-3.1-8b", 32, 4096, 14336, heads=32, kv_heads=8, head_width=128, vocabulary=128256
)
LLAMA_70B = replace(
    LLAMA_8B, model="llama-3.1-70b", layers=80, hidden=8192, intermediate=28672, heads=64
)
SHAPES = {shape.model: shape for shape in (LLAMA_8B, LLAMA_70B)}


def read_rows() -> list[ProbeRow]:
    """Return the shipped rows; what is empty is None."""
    with (CATALOG / "probe-h200.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    rows = []
    for line in lines:
        cells: dict[str, Any] = {}
        for field in dataclasses.fields(ProbeRow):
            kind = NUMBERS.get(str(field.type), str)
            cells[field.name] = kind(line[field.name]) if line[field.name] else None
        rows.append(ProbeRow(**cells))
    return rows
