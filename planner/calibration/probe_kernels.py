"""The probe's kernels: the machine and its power readings, timed calls, and a stack of model layers.

``torch`` is imported inside functions only: importing this module costs nothing and never fails. NVIDIA and AMD parts
are both reached through torch's ``cuda`` namespace, their power through torch first, then the vendors' own tools.
"""

from __future__ import annotations

import importlib
import json
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from planner.errors import ScenarioError

Reading = tuple[float | None, float | None]
"""Board power in watts and the clock of the compute units in MHz; None where it cannot be read."""
_NOT_READ: Reading = (None, None)
_TOOL_TIMEOUT_S = 10.0
_SAMPLE_PERIOD_S = 0.1
_TRIAL_S = 0.05
_FP4_BLOCK = 16  # elements that share one scale in NVFP4 (OCP MX uses 32; the rate is the same product)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The device that a probe measures, with its number formats."""

    torch: Any
    device: str
    name: str
    memory_bytes: int
    driver_version: str = "none"
    fp8_format: str | None = None
    """``e4m3fn`` (NVIDIA from Ada, gfx950), ``e4m3fnuz`` (gfx942), or None where the part has no FP8."""
    has_fp4: bool = False
    read_power_and_clock: Callable[[], Reading] = lambda: _NOT_READ

    @property
    def is_accelerator(self) -> bool:
        """Whether this is a GPU rather than the host's own processor."""
        return self.device != "cpu"

    @property
    def precision(self) -> str:
        """The precision of activations and caches: bf16, or fp32 on a host, since many emulate bf16."""
        return "bf16" if self.is_accelerator else "fp32"


def load_torch() -> Any:
    """Import torch, or raise an error that says how to install it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        message = "the probe needs torch, which is not installed: pip install 'datacenter-planner[gpu]'"
        raise ScenarioError(message) from error


def open_machine(device: str) -> Machine:
    """Return the device (``auto``, ``cuda``, ``cuda:1``, ``cpu``) with its description."""
    torch = load_torch()
    if device == "cpu":  # the host's own processor, for a trial at toy size
        return Machine(torch=torch, device="cpu", name="cpu", memory_bytes=1_000_000_000)
    kind, _, number = ("cuda" if device == "auto" else device).partition(":")
    if not kind.startswith("cuda"):
        raise ScenarioError(f"unknown device {device!r}: one of auto, cuda, cuda:<index>, cpu (AMD parts are cuda too)")
    if not torch.cuda.is_available():
        message = "torch sees no GPU (neither CUDA nor ROCm) here; --device cpu --quick tries the probe at toy size"
        raise ScenarioError(message)
    count = int(torch.cuda.device_count())
    if number and (not number.isdigit() or int(number) >= count):
        raise ScenarioError(f"there is no device {device!r}: this machine has cuda:0 to cuda:{count - 1}")
    index = int(number or 0)
    torch.cuda.set_device(index)  # streams and graphs are made on the current device
    properties = torch.cuda.get_device_properties(index)
    architecture, capability = getattr(properties, "gcnArchName", ""), (properties.major, properties.minor)
    # What can be read of the driver and the runtime, such as "driver 580.159, CUDA 13.0".
    driver = (_tool_output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]) or "").splitlines()
    versions = {"driver": driver[0].strip() if driver else None, "CUDA": torch.version.cuda}
    versions["HIP"] = getattr(torch.version, "hip", None)
    nvidia_smi = ["nvidia-smi", "--query-gpu=power.draw,clocks.sm", "--format=csv,noheader,nounits", f"--id={index}"]
    readers: list[Callable[[], Reading]] = [
        lambda: _read_torch(torch, index),
        lambda: parse_nvidia_smi(_tool_output(nvidia_smi)),
        lambda: parse_smi_json(_tool_output(["amd-smi", "metric", "--gpu", str(index), "-p", "-c", "--json"])),
        lambda: parse_smi_json(_tool_output(["rocm-smi", "-d", str(index), "--showpower", "-c", "--json"])),
    ]
    return Machine(
        torch=torch,
        device=f"cuda:{index}",
        name=properties.name,
        driver_version=", ".join(f"{name} {version}" for name, version in versions.items() if version) or "unknown",
        memory_bytes=int(torch.cuda.mem_get_info(index)[0]),
        fp8_format=fp8_format(architecture, capability),
        has_fp4=has_fp4(architecture, capability),
        read_power_and_clock=next((reader for reader in readers if reader()[0] is not None), lambda: _NOT_READ),
    )


def fp8_format(architecture: str, capability: tuple[int, int]) -> str | None:
    """Return an accelerator's FP8 format: fnuz on gfx942, OCP on gfx950 and NVIDIA from 8.9 (HIP FP8 reference)."""
    if architecture.startswith("gfx94"):
        return "e4m3fnuz"
    if architecture.startswith("gfx"):
        return "e4m3fn" if architecture.startswith(("gfx95", "gfx12")) else None
    return "e4m3fn" if capability >= (8, 9) else None


def has_fp4(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether the accelerator multiplies FP4: gfx950 and NVIDIA from Blackwell (10.0)."""
    return architecture.startswith("gfx95") if architecture.startswith("gfx") else capability >= (10, 0)


def _tool_output(command: list[str]) -> str | None:
    """Return the output of a vendor's tool; None where it is absent or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout


def _read_torch(torch: Any, index: int) -> Reading:
    """Return power and clock from torch, which needs the vendor's Python binding; unread where that fails."""
    try:
        power, clock_mhz = float(torch.cuda.power_draw(index)), float(torch.cuda.clock_rate(index))
        # Documented in milliwatts, but AMD's binding passes watts through; no board draws 5 kW or as little as 5 W.
        return (power / 1000.0 if power > 5000.0 else power), clock_mhz
    except Exception:  # the bindings raise their own types, which are not importable where they are absent
        return _NOT_READ


def parse_nvidia_smi(text: str | None) -> Reading:
    """Return power and clock from nvidia-smi's ``power.draw,clocks.sm`` without units."""
    if not text:
        return _NOT_READ
    cells = [_as_float(cell) for cell in text.splitlines()[0].split(",")]
    return (cells[0], cells[1]) if len(cells) == 2 else _NOT_READ


def parse_smi_json(text: str | None) -> Reading:
    """Return power and compute clock from the JSON of amd-smi or rocm-smi, whose layouts change by release."""
    try:
        tree = json.loads(text or "")
    except json.JSONDecodeError:
        return _NOT_READ
    power_w = clock_mhz = None
    for key, leaf in _leaves(tree, ""):
        number = _as_float(str(leaf).strip("()").lower().replace("mhz", "").replace("w", ""))
        if number is None:
            continue
        if power_w is None and "power" in key and any(word in key for word in ("socket", "average", "current")):
            power_w = number
        if clock_mhz is None and ("gfx" in key or "sclk" in key) and ("clk" in key or "speed" in key):
            clock_mhz = number
    return power_w, clock_mhz


def _leaves(tree: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield each leaf of a JSON tree with its lower-case dotted path."""
    if isinstance(tree, dict):
        for key, branch in tree.items():
            yield from _leaves(branch, f"{path}.{str(key).lower()}")
    elif isinstance(tree, list):
        for branch in tree:
            yield from _leaves(branch, path)
    else:
        yield path, tree


def _as_float(text: str) -> float | None:
    """Return a number, or None."""
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one call of a kernel, with the board's power and clock."""

    call_s: float
    board_power_w: float | None
    sm_clock_mhz: float | None


def sampled(machine: Machine, run: Callable[[], float]) -> Timing:
    """Sample power and clock in a thread while something runs that returns the time of one call."""
    samples: list[tuple[float, Reading]] = []
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            reading = machine.read_power_and_clock()
            samples.append((time.perf_counter(), reading))
            stop.wait(_SAMPLE_PERIOD_S)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        call_s = run()
    finally:
        stop.set()
        thread.join()
    return Timing(call_s, *late_medians(samples))


def late_medians(samples: Sequence[tuple[float, Reading]]) -> Reading:
    """Return the medians over the second half of samples, each with its time: boards average over a second."""
    if not samples:
        return _NOT_READ
    middle_s = 0.5 * (samples[0][0] + samples[-1][0])
    late = zip(*(reading for time_s, reading in samples if time_s >= middle_s), strict=True)
    known = ([number for number in numbers if number is not None] for numbers in late)
    power_w, clock_mhz = (statistics.median(numbers) if numbers else None for numbers in known)
    return power_w, clock_mhz


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

    def repeat() -> float:
        groups, start_s = 0, time.perf_counter()
        while groups == 0 or time.perf_counter() - start_s < seconds:
            for _ in range(group):
                call()
            synchronise(machine)
            groups += 1
        return (time.perf_counter() - start_s) / (groups * group)

    return sampled(machine, repeat)


def synchronise(machine: Machine) -> None:
    """Wait until the device has done what it was given."""
    if machine.is_accelerator:
        machine.torch.cuda.synchronize(machine.device)


def time_idle(machine: Machine, seconds: float) -> Timing:
    """Return the power and clock of the idle device with its context open."""
    synchronise(machine)

    def rest() -> float:
        time.sleep(seconds)
        return seconds

    return sampled(machine, rest)


def memory_call(machine: Machine, phase: str, tensor_bytes: int) -> tuple[Callable[[], object], float]:
    """Return a device-to-device ``copy`` or a ``read``, a sum over a tensor, and the bytes it reads and writes."""
    torch = machine.torch
    source = torch.ones(tensor_bytes // 4, dtype=torch.float32, device=machine.device)
    if phase == "read":
        return source.sum, float(tensor_bytes)
    target = torch.empty_like(source)
    return (lambda: target.copy_(source)), 2.0 * tensor_bytes


def gemm_call(machine: Machine, precision: str, size: int) -> Callable[[], object]:
    """Return a product of two square random matrices, since zeros draw less power and run faster.

    FP4 is block-scaled, and raises whatever torch raises where the build lacks it.
    """
    if precision != "fp4":
        linear = Linear(machine, precision, size, size)
        numbers = linear.quantise(random_tensor(machine, (linear.padded(size), size)))
        return lambda: linear.product(numbers)
    torch, on = machine.torch, machine.device
    shape = (size, size // 2)
    packed = [torch.randint(0, 256, shape, dtype=torch.uint8, device=on) for _ in range(2)]
    left, right = (numbers.view(torch.float4_e2m1fn_x2) for numbers in packed)
    ones = [torch.ones(size * size // _FP4_BLOCK, dtype=torch.float32, device=on) for _ in range(2)]
    scales = [scale.to(torch.float8_e4m3fn) for scale in ones]
    return lambda: torch._scaled_mm(left, right.t(), scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16)


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
            scale = machine.torch.ones((), dtype=machine.torch.float32, device=machine.device)
            self._options = {"scale_a": scale, "scale_b": scale, "out_dtype": machine.torch.bfloat16}
        self._weight = weight

    def padded(self, rows: int) -> int:
        """Return the rows that a product needs: FP8 kernels need multiples of 16."""
        return -(-rows // 16) * 16 if self._is_fp8 else rows

    def quantise(self, activations: Any) -> Any:
        """Return activations in the precision of the product."""
        return activations.to(self._dtype) if self._is_fp8 else activations

    def product(self, activations: Any) -> Any:
        """Multiply quantised activations by the weights; the result is bf16."""
        if not self._is_fp8:
            return self._torch.mm(activations, self._weight.t())
        # The public name does not exist in every release we support.
        return self._torch._scaled_mm(activations, self._weight.t(), use_fast_accum=True, **self._options)

    def __call__(self, activations: Any) -> Any:
        """Quantise and multiply."""
        return self.product(self.quantise(activations))


@dataclass(frozen=True, slots=True)
class StackShape:
    """Dimensions of a Llama-shaped model."""

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


# Shapes from the models' published config.json.
LLAMA_8B = StackShape("llama-3.1-8b", 32, 4096, 14336, heads=32, kv_heads=8, head_width=128, vocabulary=128256)
LLAMA_70B = replace(LLAMA_8B, model="llama-3.1-70b", layers=80, hidden=8192, intermediate=28672, heads=64)
TOY = StackShape("toy", 4, 64, 128, heads=4, kv_heads=2, head_width=16, vocabulary=256)


class _Layer:
    """Weights of one layer, and its two halves around attention."""

    def __init__(self, machine: Machine, shape: StackShape, precision: str) -> None:
        width = shape.head_width
        self.qkv = Linear(machine, precision, shape.hidden, (shape.heads + 2 * shape.kv_heads) * width)
        self.output = Linear(machine, precision, shape.heads * width, shape.hidden)
        self.gate_up = Linear(machine, precision, shape.hidden, 2 * shape.intermediate)
        self.down = Linear(machine, precision, shape.intermediate, shape.hidden)
        self._functional = machine.torch.nn.functional
        self._hidden = shape.hidden

    def norm(self, states: Any) -> Any:
        """Normalise by the root mean square."""
        return self._functional.rms_norm(states, (self._hidden,))

    def finish(self, states: Any, attended: Any) -> Any:
        """Add attention's output and the feed-forward block."""
        states = states + self.output(attended)
        gate, up = self.gate_up(self.norm(states)).chunk(2, dim=-1)
        return states + self.down(self._functional.silu(gate) * up)


class LayerStack:
    """A number of layers of a Llama-shaped model with random weights, resident on the device.

    A step is what a serving engine does per layer, without its scheduler: norm, fused QKV product, attention over a
    bf16 KV cache, output product, norm, fused gate and up product, SiLU, down product; after the last layer a norm and
    the vocabulary product. Rotary embedding (which engines fuse) and sampling are left out.
    """

    def __init__(self, machine: Machine, shape: StackShape, precision: str, layers: int) -> None:
        """Make random weights for ``layers`` layers and the vocabulary product (never FP8, as in engines)."""
        self.machine, self.shape, self.precision = machine, shape, precision
        self.layers = [_Layer(machine, shape, precision) for _ in range(layers)]
        self._head = Linear(machine, machine.precision, shape.hidden, shape.vocabulary)
        synchronise(machine)

    def head_call(self, rows: int) -> Callable[[], object]:
        """Return the part of a step outside the layers: the last norm and the vocabulary product."""
        states = random_tensor(self.machine, (rows, self.shape.hidden))
        return lambda: self._head(self.layers[0].norm(states))

    def decode_call(self, batch: int, context_tokens: int) -> tuple[Callable[[], object], str]:
        """Return one decode step for a batch at a context, and its attention and launch method."""
        shape = self.shape
        rows = self.layers[0].qkv.padded(batch)
        states = random_tensor(self.machine, (rows, shape.hidden))
        cache_shape = (2, batch, shape.kv_heads, context_tokens, shape.head_width)
        caches = [random_tensor(self.machine, cache_shape) for _ in self.layers]
        # The faster way of attending: torch's kernel does not split a long context, products do.
        ways, qkv = self.attentions(batch), (shape.heads + 2 * shape.kv_heads) * shape.head_width
        trial = random_tensor(self.machine, (batch, qkv))
        fused_s, products_s = (
            time_calls(self.machine, partial(attend, trial, caches[0]), _TRIAL_S).call_s for attend in ways
        )
        attend, name = (ways[0], "fused attention") if fused_s <= products_s else (ways[1], "attention by products")

        def step() -> Any:
            current = states
            for layer, cache in zip(self.layers, caches, strict=True):
                qkv = layer.qkv(layer.norm(current))
                attended = attend(qkv[:batch], cache)
                if rows > batch:
                    attended = self.machine.torch.nn.functional.pad(attended, (0, 0, 0, rows - batch))
                current = layer.finish(current, attended)
            return self._head(self.layers[0].norm(current[:batch]))

        if not self.machine.is_accelerator:
            return step, f"{name}, eager"
        # In a graph where the device has graphs, so that launches do not count.
        torch = self.machine.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                step()
        except RuntimeError as error:
            return step, f"{name}, eager ({str(error).splitlines()[0]})"

        def replay() -> object:
            graph.replay()
            return step  # the graph holds addresses only: the closure keeps weights and caches alive

        return replay, f"{name}, graph"

    def prefill_call(self, sequences: int, sequence_tokens: int) -> tuple[Callable[[], object], str]:
        """Return one prefill step of whole sequences, and its launch method.

        The vocabulary product sees last tokens alone.
        """
        shape, functional = self.shape, self.machine.torch.nn.functional
        states = random_tensor(self.machine, (sequences * sequence_tokens, shape.hidden))
        group = shape.heads // shape.kv_heads
        split = [shape.heads, shape.kv_heads, shape.kv_heads]

        def step() -> Any:
            current = states
            for layer in self.layers:
                qkv = layer.qkv(layer.norm(current)).view(sequences, sequence_tokens, sum(split), shape.head_width)
                query, key, value = (part.transpose(1, 2) for part in qkv.split(split, dim=2))
                key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
                attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                current = layer.finish(current, attended.transpose(1, 2).reshape(-1, shape.heads * shape.head_width))
            last = current.view(sequences, sequence_tokens, shape.hidden)[:, -1]
            return self._head(layer.norm(last))

        return step, "eager"

    def attentions(self, batch: int) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
        """Return decode attention two ways, from QKV rows and a layer's cache: fused, and by batched products."""
        shape, torch = self.shape, self.machine.torch
        group = shape.heads // shape.kv_heads
        scale = shape.head_width**-0.5

        def query_of(qkv: Any) -> Any:
            # The query heads that share a KV head take the place of query positions: decode needs no mask.
            query = qkv[:, : shape.heads * shape.head_width]
            return query.reshape(batch, shape.kv_heads, group, shape.head_width)

        def fused(qkv: Any, cache: Any) -> Any:
            attended = torch.nn.functional.scaled_dot_product_attention(query_of(qkv), cache[0], cache[1])
            return attended.reshape(batch, -1)

        def products(qkv: Any, cache: Any) -> Any:
            scores = torch.matmul(query_of(qkv) * scale, cache[0].transpose(-1, -2))
            return torch.matmul(torch.softmax(scores, dim=-1), cache[1]).reshape(batch, -1)

        return fused, products
