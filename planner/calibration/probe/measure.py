"""The programme of a probe: which kernels and steps are measured, and the rows that come of it."""

from __future__ import annotations

import datetime
import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.calibration.probe import kernels, stack
from planner.calibration.probe.machine import Machine, load_torch, open_machine
from planner.calibration.probe.rows import ProbeRow
from planner.errors import ScenarioError

_MEMORY_SHARE = 0.92  # of the free device memory; the rest is for activations and the allocator
_RESIDENT_TOKENS = 128 * 1024  # of context that must fit beside the weights; larger points are skipped with a reason
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What to measure, and how long each point runs."""

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
        if self.device == "cpu":
            return 0.05
        return 0.8 if self.quick else 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Programme:
    """Sizes and points, for a real part or at toy size."""

    tensor_bytes: int
    gemm_sizes: tuple[int, ...]
    stacks: tuple[tuple[stack.StackShape, str], ...]
    decode_points: tuple[tuple[int, int], ...]
    prefill_points: tuple[tuple[int, int], ...]


def measure_machine(options: ProbeOptions, progress: Progress = lambda _: None) -> list[ProbeRow]:
    """Measure the machine this runs on and return the rows, in the order they were measured."""
    if not (math.isfinite(options.point_s) and options.point_s > 0.0):
        raise ScenarioError(f"seconds: {options.point_s} is not a positive number")
    machine = open_machine(options.device)
    bench = _Bench(machine, options, progress)
    with load_torch().inference_mode():
        return list(bench.rows())


def _programme(machine: Machine, quick: bool) -> _Programme:
    """Choose the points: those of the shipped measurement, fewer where quick, a toy on a host processor."""
    if not machine.is_accelerator:
        return _Programme(
            tensor_bytes=1 << 20,
            gemm_sizes=(64,),
            stacks=((stack.TOY, machine.precision),),
            decode_points=((1, 32), (4, 32)),
            prefill_points=((1, 16), (2, 16)),
        )
    fp8 = None if machine.fp8_dialect is None else f"fp8_{machine.fp8_dialect}"
    large = (stack.LLAMA_70B, fp8 or "bf16")
    small = (stack.LLAMA_8B, "bf16")
    decode: tuple[tuple[int, int], ...] = ((1, 1024), (32, 1024), (128, 1024))
    prefill: tuple[tuple[int, int], ...] = ((1, 2048),)
    if not quick:
        decode += (
            (8, 1024),
            (16, 1024),
            (64, 1024),
            (256, 1024),
            (16, 4096),
            (32, 4096),
            (96, 1536),
            (4, 16384),
        )
        prefill += ((1, 512), (1, 8192), (4, 2048))
    return _Programme(
        tensor_bytes=4 << 30,
        gemm_sizes=(8192,) if quick else (4096, 8192),
        stacks=(small,) if quick else (large, small),
        decode_points=decode,
        prefill_points=prefill,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredStep:
    """A timed step of the resident layers, with what it had to do."""

    timing: kernels.Timing
    head_s: float
    work: float
    """Floating-point operations of the matrix products, attention left out."""
    read_bytes: float | None = None


class _Bench:
    """Runs a programme on a machine, one row at a time."""

    def __init__(self, machine: Machine, options: ProbeOptions, progress: Progress) -> None:
        self._machine = machine
        self._point_s = options.point_s
        self._progress = progress
        self._programme = _programme(machine, options.quick)
        self._date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()

    def rows(self) -> Iterator[ProbeRow]:
        """Measure everything in the programme."""
        yield self._row("idle", timing=kernels.time_idle(self._machine, self._point_s), step=False)
        yield from self._bandwidths()
        yield from self._products()
        for shape, precision in self._programme.stacks:
            yield from self._steps(shape, precision)

    def _bandwidths(self) -> Iterator[ProbeRow]:
        """Measure copies and reads."""
        for phase, make in (("copy", kernels.copy_call), ("read", kernels.read_call)):
            call, moved_bytes = make(self._machine, self._programme.tensor_bytes)
            timing = kernels.time_calls(self._machine, call, self._point_s)
            yield self._row(phase, timing=timing, bandwidth_gb_per_s=moved_bytes / timing.call_s / 1e9)

    def _products(self) -> Iterator[ProbeRow]:
        """Measure square matrix products by precision; what the part lacks is a row that says so."""
        machine = self._machine
        fp8_name = f"fp8_{machine.fp8_dialect}" if machine.fp8_dialect else None
        lacking = f"skipped: {machine.name} has no such matrix product"
        for precision, name in (
            (machine.precision, machine.precision),
            ("fp8", fp8_name),
            ("fp4", "fp4" if machine.has_fp4 else None),
        ):
            if name is None:
                yield self._row("gemm", precision=precision, note=lacking)
                continue
            for size in self._programme.gemm_sizes:
                try:
                    call = kernels.gemm_call(machine, name, size, size)
                    timing = kernels.time_calls(machine, call, self._point_s)
                except (RuntimeError, AttributeError, ValueError, NotImplementedError) as error:
                    yield self._row("gemm", precision=name, batch=size, note=_skipped(error))
                    continue
                rate_tflops = 2.0 * size**3 / timing.call_s / 1e12
                yield self._row("gemm", timing=timing, precision=name, batch=size, rate_tflops=rate_tflops)

    def _steps(self, shape: stack.StackShape, precision: str) -> Iterator[ProbeRow]:
        """Measure decode and prefill steps of one stack, of as many layers as fit with a useful cache."""
        programme = self._programme
        layers = self._layers_that_fit(shape, precision, _RESIDENT_TOKENS if self._machine.is_accelerator else 256)
        if layers < 1:
            yield self._row("decode", model=shape.model, precision=precision, note="skipped: not one layer fits")
            return
        self._progress(f"{shape.model} {precision}: {layers} of {shape.layers} layers")
        try:
            layered = stack.Stack(self._machine, shape, precision, layers)
        except RuntimeError as error:
            self._release()
            yield self._row("decode", model=shape.model, precision=precision, note=_skipped(error))
            return
        for batch, context_tokens in programme.decode_points:
            yield self._decode(layered, batch, context_tokens)
            self._release()
        for sequences, sequence_tokens in programme.prefill_points:
            yield self._prefill(layered, sequences, sequence_tokens)
            self._release()
        del layered
        self._release()

    def _layers_that_fit(self, shape: stack.StackShape, precision: str, tokens: int) -> int:
        """Return how many layers fit with the KV cache of so many tokens of context."""
        budget_bytes = _MEMORY_SHARE * self._machine.memory_bytes - 2 * shape.head_weights
        layer_bytes = _weight_bytes(precision) * shape.layer_weights + shape.kv_bytes(tokens)
        return int(min(shape.layers, budget_bytes // layer_bytes))

    def _decode(self, layered: stack.Stack, batch: int, context_tokens: int) -> ProbeRow:
        """Measure one decode point."""
        shape = layered.shape
        point = {"batch": batch, "context_tokens": context_tokens}
        if self._layers_that_fit(shape, layered.precision, batch * context_tokens) < len(layered.layers):
            return self._step_row("decode", layered, point, note="skipped: the KV cache does not fit in memory")
        try:
            call, note = layered.decode_call(batch, context_tokens)
            timing = kernels.time_calls(self._machine, call, self._point_s)
            head = kernels.time_calls(self._machine, layered.head_call(batch), 0.05)
        except RuntimeError as error:
            return self._step_row("decode", layered, point, note=_skipped(error))
        layer_bytes = _weight_bytes(layered.precision) * shape.layer_weights
        layer_bytes += shape.kv_bytes(batch * context_tokens)
        measured = _MeasuredStep(
            timing=timing,
            head_s=head.call_s,
            work=2.0 * batch * (len(layered.layers) * shape.layer_weights + shape.head_weights),
            read_bytes=len(layered.layers) * layer_bytes + 2 * shape.head_weights,
        )
        return self._step_row("decode", layered, point, measured, note=note)

    def _prefill(self, layered: stack.Stack, sequences: int, sequence_tokens: int) -> ProbeRow:
        """Measure one prefill point."""
        point = {"sequences": sequences, "sequence_tokens": sequence_tokens}
        try:
            timing = kernels.time_calls(self._machine, layered.prefill_call(sequences, sequence_tokens), self._point_s)
            head = kernels.time_calls(self._machine, layered.head_call(sequences), 0.05)
        except RuntimeError as error:
            return self._step_row("prefill", layered, point, note=_skipped(error))
        tokens = sequences * sequence_tokens
        work = 2.0 * tokens * len(layered.layers) * layered.shape.layer_weights
        measured = _MeasuredStep(timing=timing, head_s=head.call_s, work=work)
        return self._step_row("prefill", layered, point, measured, note="eager")

    def _step_row(
        self,
        phase: str,
        layered: stack.Stack,
        point: dict[str, int],
        measured: _MeasuredStep | None = None,
        note: str | None = None,
    ) -> ProbeRow:
        """Scale a step to all layers of the model: layers alike, and the part outside them once."""
        shape, resident = layered.shape, len(layered.layers)
        cells: dict[str, float] = {}
        if measured is not None:
            call_s, head_s = measured.timing.call_s, measured.head_s
            layer_s = max(0.0, call_s - head_s) / resident
            step_s = call_s if resident == shape.layers else head_s + shape.layers * layer_s
            cells = {
                "step_ms": 1e3 * step_s,
                "layer_ms": 1e3 * layer_s,
                "rate_tflops": measured.work / call_s / 1e12,
            }
            if measured.read_bytes is not None:
                cells["bandwidth_gb_per_s"] = measured.read_bytes / call_s / 1e9
        return self._row(
            phase,
            timing=None if measured is None else measured.timing,
            step=False,
            model=shape.model,
            precision=layered.precision,
            layers=shape.layers,
            layers_measured=resident,
            note=note,
            **point,
            **cells,
        )

    def _row(
        self, phase: str, timing: kernels.Timing | None = None, step: bool = True, **cells: str | float | None
    ) -> ProbeRow:
        """Make a row with the machine's own columns, and tell how far the programme is."""
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
            torch_version=machine.torch_version,
            driver_version=machine.driver_version,
            **cells,  # type: ignore[arg-type]
        )

    def _release(self) -> None:
        """Give freed tensors back to the device, so that the next point has room."""
        gc.collect()
        if self._machine.is_accelerator:
            self._machine.torch.cuda.empty_cache()


def _weight_bytes(precision: str) -> int:
    """Bytes of one weight of a layer."""
    return {"fp8": 1, "bf16": 2, "fp32": 4}[precision.partition("_")[0]]


def _skipped(error: Exception) -> str:
    """Return the first line of an error as the reason why a row is empty."""
    lines = str(error).splitlines() or [type(error).__name__]
    return f"skipped: {lines[0]}"
