"""Timed kernels: copies and reads of memory, and matrix products by precision."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.calibration.probe.machine import Machine, sampling

_FP4_BLOCK = 16  # elements that share one scale in NVFP4 (OCP MX uses 32; the rate is the same product)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time of one call of a kernel, with what the board drew meanwhile."""

    call_s: float
    board_power_w: float | None
    sm_clock_mhz: float | None


def time_calls(machine: Machine, call: Callable[[], object], seconds: float) -> Timing:
    """Time a call by repeating it for about ``seconds``, sampling power and clock all the while."""
    call()
    synchronise(machine)
    start_s = time.perf_counter()
    call()
    synchronise(machine)
    estimate_s = max(time.perf_counter() - start_s, 1e-6)
    # Groups of about a tenth of a second keep the queue of launches short, and the host out of the timing.
    group = max(1, min(1000, int(0.1 / estimate_s)))
    groups = 0
    with sampling(machine) as samples:
        start_s = time.perf_counter()
        while groups == 0 or time.perf_counter() - start_s < seconds:
            for _ in range(group):
                call()
            synchronise(machine)
            groups += 1
        elapsed_s = time.perf_counter() - start_s
    return Timing(call_s=elapsed_s / (groups * group), board_power_w=samples.median(0), sm_clock_mhz=samples.median(1))


def synchronise(machine: Machine) -> None:
    """Wait until the device has done what it was given."""
    if machine.is_accelerator:
        machine.torch.cuda.synchronize(machine.device)


def time_idle(machine: Machine, seconds: float) -> Timing:
    """Let the device rest with its context open, and read what it draws."""
    synchronise(machine)
    with sampling(machine) as samples:
        time.sleep(seconds)
    return Timing(call_s=seconds, board_power_w=samples.median(0), sm_clock_mhz=samples.median(1))


def copy_call(machine: Machine, tensor_bytes: int) -> tuple[Callable[[], object], float]:
    """Return a device-to-device copy, and the bytes it reads and writes."""
    torch = machine.torch
    source = torch.ones(tensor_bytes // 4, dtype=torch.float32, device=machine.device)
    target = torch.empty_like(source)
    return (lambda: target.copy_(source)), 2.0 * tensor_bytes


def read_call(machine: Machine, tensor_bytes: int) -> tuple[Callable[[], object], float]:
    """Return a sum over a tensor, and the bytes it reads."""
    torch = machine.torch
    source = torch.ones(tensor_bytes // 4, dtype=torch.float32, device=machine.device)
    return source.sum, float(tensor_bytes)


def gemm_call(machine: Machine, precision: str, rows: int, size: int) -> Callable[[], object]:
    """Return a (rows, size) by (size, size) product of random numbers: zeros draw less and run faster."""
    if precision == "fp4":
        return _fp4_gemm_call(machine, rows, size)
    linear = Linear(machine, precision, size, size)
    left = linear.quantise(random_tensor(machine, (linear.padded(rows), size)))
    return lambda: linear.product(left)


def random_tensor(machine: Machine, shape: tuple[int, ...], scale: float = 1.0) -> Any:
    """Return normal random numbers in the machine's working precision."""
    torch = machine.torch
    dtype = torch.bfloat16 if machine.precision == "bf16" else torch.float32
    return torch.randn(shape, dtype=dtype, device=machine.device) * scale


class Linear:
    """A matrix product with weights in FP8 (scaled per tensor) or the machine's working precision."""

    def __init__(self, machine: Machine, precision: str, inputs: int, outputs: int) -> None:
        """Make random weights of shape (outputs, inputs), as checkpoints store them."""
        self._torch = machine.torch
        self._is_fp8 = precision.startswith("fp8")
        weight = random_tensor(machine, (outputs, inputs), scale=inputs**-0.5)
        if self._is_fp8:
            self._dtype = getattr(machine.torch, "float8_" + precision.removeprefix("fp8_"))
            weight = weight.to(self._dtype)
            self._scale = machine.torch.ones((), dtype=machine.torch.float32, device=machine.device)
        self._weight = weight
        self.weight_bytes = weight.numel() * weight.element_size()

    def padded(self, rows: int) -> int:
        """Return the rows a product takes: FP8 kernels want multiples of 16."""
        return -(-rows // 16) * 16 if self._is_fp8 else rows

    def quantise(self, activations: Any) -> Any:
        """Bring activations into the precision of the product."""
        return activations.to(self._dtype) if self._is_fp8 else activations

    def product(self, activations: Any) -> Any:
        """Multiply quantised activations by the weights; the result is bf16."""
        if not self._is_fp8:
            return self._torch.mm(activations, self._weight.t())
        return self._torch._scaled_mm(  # the public name does not exist in every release we support
            activations,
            self._weight.t(),
            scale_a=self._scale,
            scale_b=self._scale,
            out_dtype=self._torch.bfloat16,
            use_fast_accum=True,
        )

    def __call__(self, activations: Any) -> Any:
        """Quantise and multiply."""
        return self.product(self.quantise(activations))


def _fp4_gemm_call(machine: Machine, rows: int, size: int) -> Callable[[], object]:
    """Return a block-scaled FP4 product; raises whatever torch raises where the build lacks it."""
    torch = machine.torch
    shapes = [(rows, size // 2), (size, size // 2)]
    left, right = (
        torch.randint(0, 256, shape, dtype=torch.uint8, device=machine.device).view(torch.float4_e2m1fn_x2)
        for shape in shapes
    )
    scales = [
        torch.ones(shape[0] * size // _FP4_BLOCK, dtype=torch.float32, device=machine.device).to(torch.float8_e4m3fn)
        for shape in shapes
    ]
    return lambda: torch._scaled_mm(left, right.t(), scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16)
