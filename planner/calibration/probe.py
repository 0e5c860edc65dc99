"""Measures this machine: bandwidth, matrix rates, decode and prefill steps, board power.

The probe needs torch (the extra ``[gpu]``) and nothing else beyond the standard library, so that a buyer can
run it on a vendor's demonstration machine with ``python -m planner.calibration.probe --out measured.csv``. NVIDIA
and AMD parts are both reached through torch's ``cuda`` namespace; ``--device cpu`` runs the same code at toy size.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import datetime
import gc
import io
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.calibration import probe_kernels as kernels
from planner.errors import PlannerError, ScenarioError
from planner.files import write_file

_MEMORY_SHARE = 0.92  # of the free device memory; the rest is for activations and the allocator
_RESIDENT_TOKENS = 128 * 1024  # of context that must fit beside the weights; larger points are skipped with a reason
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One measurement on one machine; None for columns that do not apply or could not be read."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """Which points to measure, and how long each runs."""

    device: str = "auto"
    """``auto``, ``cuda``, ``cuda:<index>`` or ``cpu``."""
    quick: bool = False
    """Fewer points and shorter runs; power then has few samples."""
    seconds: float | None = None
    """Seconds a point runs; by default 2.5, or 0.8 where quick. Boards average power over about a second."""

    @property
    def point_s(self) -> float:
        """Seconds a point runs."""
        if self.seconds is not None:
            return self.seconds
        return 0.05 if self.device == "cpu" else 0.8 if self.quick else 2.5


def measure_machine(options: ProbeOptions, progress: Progress = lambda _: None) -> list[ProbeRow]:
    """Measure the machine this runs on and return the rows, in the order they were measured."""
    if not (math.isfinite(options.point_s) and options.point_s > 0.0):
        raise ScenarioError(f"seconds: {options.point_s} is not a positive number")
    bench = _Bench(kernels.open_machine(options.device), options, progress)
    with kernels.load_torch().inference_mode():
        return list(bench.rows())


def write_rows(rows: list[ProbeRow], path: Path) -> None:
    """Write rows as CSV, atomically, with numbers to six digits."""
    names = [field.name for field in dataclasses.fields(ProbeRow)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = (getattr(row, name) for name in names)
        writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, stream.getvalue().encode())


class _Bench:
    """Runs the programme of a probe on a machine, one row at a time.

    The points are those of the shipped measurement, fewer where quick, and a toy on a host processor.
    """

    def __init__(self, machine: kernels.Machine, options: ProbeOptions, progress: Progress) -> None:
        self._machine, self._point_s, self._progress = machine, options.point_s, progress
        self._date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        self._fp8 = None if machine.fp8_format is None else f"fp8_{machine.fp8_format}"
        if not machine.is_accelerator:
            self._tensor_bytes, self._gemm_sizes = 1 << 20, [64]
            self._stacks = [(kernels.TOY, machine.precision)]
            self._decode_points, self._prefill_points = [(1, 32), (4, 32)], [(1, 16), (2, 16)]
            return
        self._tensor_bytes, self._gemm_sizes = 4 << 30, [8192] if options.quick else [4096, 8192]
        self._stacks = [(kernels.LLAMA_8B, "bf16")]
        self._decode_points, self._prefill_points = [(1, 1024), (32, 1024), (128, 1024)], [(1, 2048)]
        if not options.quick:
            self._stacks.insert(0, (kernels.LLAMA_70B, self._fp8 or "bf16"))
            self._decode_points += [(8, 1024), (16, 1024), (64, 1024), (256, 1024)]
            self._decode_points += [(16, 4096), (32, 4096), (96, 1536), (4, 16384)]
            self._prefill_points += [(1, 512), (1, 8192), (4, 2048)]

    def rows(self) -> Iterator[ProbeRow]:
        """Return the measurements of the whole programme."""
        yield self._row("idle", timing=kernels.time_idle(self._machine, self._point_s), step=False)
        for phase in ("copy", "read"):
            call, moved_bytes = kernels.memory_call(self._machine, phase, self._tensor_bytes)
            timing = kernels.time_calls(self._machine, call, self._point_s)
            yield self._row(phase, timing=timing, bandwidth_gb_per_s=moved_bytes / timing.call_s / 1e9)
        machine = self._machine
        for precision, name in (
            (machine.precision, machine.precision),
            ("fp8", self._fp8),
            ("fp4", "fp4" if machine.has_fp4 else None),
        ):
            if name is None:  # what the part lacks is a row that says so
                lacking = f"skipped: {machine.name} has no such matrix product"
                yield self._row("gemm", precision=precision, note=lacking)
                continue
            for size in self._gemm_sizes:
                try:
                    timing = kernels.time_calls(machine, kernels.gemm_call(machine, name, size), self._point_s)
                except (RuntimeError, AttributeError, ValueError, NotImplementedError) as error:
                    yield self._row("gemm", precision=name, batch=size, note=_skipped(error))
                    continue
                rate_tflops = 2.0 * size**3 / timing.call_s / 1e12
                yield self._row("gemm", timing=timing, precision=name, batch=size, rate_tflops=rate_tflops)
        for shape, precision in self._stacks:
            yield from self._steps(shape, precision)

    def _steps(self, shape: kernels.StackShape, precision: str) -> Iterator[ProbeRow]:
        """Return the decode and prefill steps of one stack, with as many layers as fit beside a useful KV cache."""
        layers = self._layers_that_fit(shape, precision, _RESIDENT_TOKENS if self._machine.is_accelerator else 256)
        if layers < 1:
            yield self._row("decode", model=shape.model, precision=precision, note="skipped: not one layer fits")
            return
        self._progress(f"{shape.model} {precision}: {layers} of {shape.layers} layers")
        try:
            layered = kernels.LayerStack(self._machine, shape, precision, layers)
        except RuntimeError as error:
            self._release()
            yield self._row("decode", model=shape.model, precision=precision, note=_skipped(error))
            return
        for phase, points in (("decode", self._decode_points), ("prefill", self._prefill_points)):
            for sequences, tokens in points:
                yield self._step(phase, layered, sequences, tokens)
                self._release()
        del layered
        self._release()

    def _layers_that_fit(self, shape: kernels.StackShape, precision: str, tokens: int) -> int:
        """Return how many layers fit beside the KV cache of some tokens of context."""
        budget_bytes = _MEMORY_SHARE * self._machine.memory_bytes - 2 * shape.head_weights
        layer_bytes = _weight_bytes(precision) * shape.layer_weights + shape.kv_bytes(tokens)
        return int(min(shape.layers, budget_bytes // layer_bytes))

    def _step(self, phase: str, layered: kernels.LayerStack, sequences: int, tokens: int) -> ProbeRow:
        """Measure one decode or prefill point, scaled from the resident layers to all layers of the model.

        Layers are alike, and the part outside them counts once. The rate is that of the matrix products, attention left
        out.
        """
        shape, resident, precision = layered.shape, len(layered.layers), layered.precision
        decodes = phase == "decode"
        names = ("batch", "context_tokens") if decodes else ("sequences", "sequence_tokens")

        def row(note: str, timing: kernels.Timing | None = None, **cells: float) -> ProbeRow:
            at: dict[str, str | int] = {"model": shape.model, "precision": precision, "layers": shape.layers}
            at |= {"layers_measured": resident, "note": note, **dict(zip(names, (sequences, tokens), strict=True))}
            return self._row(phase, timing=timing, step=False, **at, **cells)

        if decodes and self._layers_that_fit(shape, precision, sequences * tokens) < resident:
            return row("skipped: the KV cache does not fit in memory")
        try:
            call, note = layered.decode_call(sequences, tokens) if decodes else layered.prefill_call(sequences, tokens)
            timing = kernels.time_calls(self._machine, call, self._point_s)
            head_s = kernels.time_calls(self._machine, layered.head_call(sequences), 0.05).call_s
        except RuntimeError as error:
            return row(_skipped(error))
        layer_s = max(0.0, timing.call_s - head_s) / resident
        step_s = timing.call_s if resident == shape.layers else head_s + shape.layers * layer_s
        work, read = 2.0 * sequences * tokens * resident * shape.layer_weights, {}
        if decodes:
            work = 2.0 * sequences * (resident * shape.layer_weights + shape.head_weights)
            layer_bytes = _weight_bytes(precision) * shape.layer_weights + shape.kv_bytes(sequences * tokens)
            read_bytes = resident * layer_bytes + 2 * shape.head_weights
            read = {"bandwidth_gb_per_s": read_bytes / timing.call_s / 1e9}
        cells = {"step_ms": 1e3 * step_s, "layer_ms": 1e3 * layer_s, "rate_tflops": work / timing.call_s / 1e12}
        return row(note, timing, **cells, **read)

    def _row(
        self, phase: str, timing: kernels.Timing | None = None, step: bool = True, **cells: str | float | None
    ) -> ProbeRow:
        """Return a row with the machine's own columns, and report progress."""
        machine = self._machine
        if timing is not None:
            cells |= {"board_power_w": timing.board_power_w, "sm_clock_mhz": timing.sm_clock_mhz}
            if step:
                cells["step_ms"] = 1e3 * timing.call_s
        self._progress(" ".join([phase, *(f"{name}={cell}" for name, cell in cells.items() if cell is not None)]))
        return ProbeRow(
            phase=phase,
            date=self._date,
            device=machine.name,
            torch_version=str(machine.torch.__version__),
            driver_version=machine.driver_version,
            **cells,  # type: ignore[arg-type]
        )

    def _release(self) -> None:
        """Return freed tensors to the device, so that the next point has room."""
        gc.collect()
        if self._machine.is_accelerator:
            self._machine.torch.cuda.empty_cache()


def _weight_bytes(precision: str) -> int:
    """Bytes of one weight of a layer."""
    return {"fp8": 1, "bf16": 2, "fp32": 4}[precision.partition("_")[0]]


def _skipped(error: Exception) -> str:
    """Return the first line of an error as the reason why a row is empty."""
    return f"skipped: {(str(error).splitlines() or [type(error).__name__])[0]}"


def main(arguments: list[str] | None = None) -> int:
    """Measure this machine, write the CSV, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m planner.calibration.probe", description="Measures the machine it runs on."
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--device", default="auto", help="auto, cuda, cuda:<index> or cpu")
    parser.add_argument("--quick", action="store_true", help="fewer points, shorter runs")
    parser.add_argument("--seconds", type=float, default=None, help="seconds a point runs")
    parsed = parser.parse_args(arguments)
    options = ProbeOptions(device=parsed.device, quick=parsed.quick, seconds=parsed.seconds)
    try:
        rows = measure_machine(options, progress=lambda text: print(text, file=sys.stderr, flush=True))
        write_rows(rows, parsed.out)
    except PlannerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{len(rows)} rows written to {parsed.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
