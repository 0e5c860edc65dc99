"""The rows a probe writes: one measurement each, in a CSV that says where and when it was made."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from dataclasses import dataclass
from pathlib import Path

from planner.errors import Problem, ScenarioError, raise_all
from planner.files import write_file

PHASES = ("idle", "copy", "read", "gemm", "decode", "prefill")
_TEXT_FIELDS = frozenset({"phase", "date", "device", "torch_version", "driver_version", "model", "precision", "note"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One measurement on one machine; what does not apply to its phase, or could not be read, is None."""

    phase: str
    """``idle``, ``copy``, ``read``, ``gemm``, ``decode`` or ``prefill``."""
    date: str
    """Day of the measurement, ISO 8601."""
    device: str
    """What the driver calls the accelerator."""
    torch_version: str
    """Version of torch, with its build suffix."""
    driver_version: str
    """Driver, CUDA or HIP version, as far as it can be read."""
    model: str | None = None
    """Model whose shape the stack takes."""
    precision: str | None = None
    """Of weights and products: bf16, fp8_e4m3fn, fp8_e4m3fnuz, fp4 (host: fp32). KV and attention: bf16."""
    layers: int | None = None
    """Layers of the model; ``step_ms`` is for all of them."""
    layers_measured: int | None = None
    """Layers resident and timed; where fewer than ``layers``, ``step_ms`` is scaled up from them."""
    batch: int | None = None
    """Decode: sequences in the batch. Gemm: rows of the left matrix."""
    context_tokens: int | None = None
    """Decode: tokens of context in the KV cache of each sequence."""
    sequences: int | None = None
    """Prefill: sequences in one step."""
    sequence_tokens: int | None = None
    """Prefill: tokens of each sequence."""
    step_ms: float | None = None
    """Time of one step, product or copy."""
    layer_ms: float | None = None
    """Time of one layer of the step."""
    bandwidth_gb_per_s: float | None = None
    """Copy and read: bytes read plus bytes written, over time. Decode: weights and KV read, over time."""
    rate_tflops: float | None = None
    """Multiply-adds counted twice, over time."""
    board_power_w: float | None = None
    """Board power under this load, median of the samples in the second half of the run."""
    sm_clock_mhz: float | None = None
    """Clock of the compute units, median as above."""
    note: str | None = None
    """Why a row was skipped, or what is particular about it."""


COLUMNS = tuple(field.name for field in dataclasses.fields(ProbeRow))
_INTEGER_FIELDS = frozenset({"layers", "layers_measured", "batch", "context_tokens", "sequences", "sequence_tokens"})


def write_rows(rows: list[ProbeRow], path: Path) -> None:
    """Write rows as CSV, whole or not at all."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(getattr(row, name)) for name in COLUMNS] for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, stream.getvalue().encode())


def read_rows(path: Path) -> list[ProbeRow]:
    """Read a probe's CSV back; every bad cell is reported, with its line and column."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
            if missing:
                message = f"missing columns: {', '.join(missing)}"
                raise ScenarioError(Problem(message=message, file=str(path), line=1))
            lines = list(reader)
    except OSError as error:
        raise ScenarioError(Problem(message=f"cannot be read: {error.strerror}", file=str(path))) from error
    problems: list[Problem] = []
    rows = [_parse(line, number, path, problems) for number, line in enumerate(lines, start=2)]
    raise_all(problems)
    return [row for row in rows if row is not None]


def _cell(cell: str | float | None) -> str:
    """Write a number with the six digits that a measurement can bear, and nothing as nothing."""
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _parse(line: dict[str, str], number: int, path: Path, problems: list[Problem]) -> ProbeRow | None:
    """Turn one CSV line into a row, or note what is wrong with it."""
    before = len(problems)
    cells: dict[str, str | float | None] = {}
    for name in COLUMNS:
        text = (line[name] or "").strip()
        if name in _TEXT_FIELDS:
            cells[name] = text or None
        else:
            cells[name] = _number(text, name, Problem(message="", file=str(path), line=number, path=name), problems)
    if cells["phase"] not in PHASES:
        message = f"{cells['phase']!r} is not a phase"
        hint = f"one of {', '.join(PHASES)}"
        problems.append(Problem(message=message, file=str(path), line=number, path="phase", hint=hint))
    return ProbeRow(**cells) if len(problems) == before else None  # type: ignore[arg-type]


def _number(text: str, name: str, place: Problem, problems: list[Problem]) -> float | None:
    """Read a non-negative number; blank is None."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0.0 or (name in _INTEGER_FIELDS and number != int(number)):
        kind = "whole number" if name in _INTEGER_FIELDS else "number"
        problems.append(dataclasses.replace(place, message=f"{text!r} is not a {kind} of at least 0"))
        return None
    return int(number) if name in _INTEGER_FIELDS else number
