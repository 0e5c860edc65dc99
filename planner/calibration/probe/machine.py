"""What machine this is, and what its board draws: torch first, then the vendors' own tools."""

from __future__ import annotations

import importlib
import json
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from planner.errors import ScenarioError

Reading = tuple[float | None, float | None]
_TOOL_TIMEOUT_S = 10.0
_SAMPLE_PERIOD_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The device a probe measures, with the dialects of precision that it speaks."""

    torch: Any
    device: str
    name: str
    torch_version: str
    driver_version: str
    memory_bytes: int
    fp8_dialect: str | None
    """``e4m3fn`` (NVIDIA from Ada, gfx950), ``e4m3fnuz`` (gfx942), or None where the part has no FP8."""
    has_fp4: bool
    read_power_and_clock: Callable[[], Reading]

    @property
    def is_accelerator(self) -> bool:
        """Whether this is a GPU rather than the host's own processor."""
        return self.device != "cpu"

    @property
    def precision(self) -> str:
        """The precision of activations and caches: bf16, or fp32 on a host, since many emulate bf16."""
        return "bf16" if self.is_accelerator else "fp32"


def load_torch() -> Any:
    """Import torch, or say how to get it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        message = "the probe needs torch, which is not installed: pip install 'datacenter-planner[gpu]'"
        raise ScenarioError(message) from error


def open_machine(device: str) -> Machine:
    """Find the device (``auto``, ``cuda``, ``cuda:1``, ``cpu``) and describe it."""
    torch = load_torch()
    if device == "auto":
        device = "cuda"
    if device == "cpu":
        return _host(torch)
    if not device.startswith("cuda"):
        raise ScenarioError(f"unknown device {device!r}: one of auto, cuda, cuda:<index>, cpu (AMD parts are cuda too)")
    if not torch.cuda.is_available():
        message = "torch sees no GPU (neither CUDA nor ROCm) here; --device cpu --quick tries the probe at toy size"
        raise ScenarioError(message)
    index = _device_index(torch, device)
    torch.cuda.set_device(index)  # streams and graphs are made on the current device
    properties = torch.cuda.get_device_properties(index)
    return Machine(
        torch=torch,
        device=f"cuda:{index}",
        name=properties.name,
        torch_version=str(torch.__version__),
        driver_version=_driver_version(torch),
        memory_bytes=int(torch.cuda.mem_get_info(index)[0]),
        fp8_dialect=fp8_dialect(getattr(properties, "gcnArchName", ""), (properties.major, properties.minor)),
        has_fp4=has_fp4(getattr(properties, "gcnArchName", ""), (properties.major, properties.minor)),
        read_power_and_clock=_choose_reader(torch, index),
    )


def fp8_dialect(architecture: str, capability: tuple[int, int]) -> str | None:
    """Return a part's FP8 dialect: fnuz on gfx942, OCP on gfx950 and NVIDIA from 8.9 (HIP FP8 reference)."""
    if architecture.startswith("gfx94"):
        return "e4m3fnuz"
    if architecture.startswith("gfx"):
        return "e4m3fn" if architecture.startswith(("gfx95", "gfx12")) else None
    return "e4m3fn" if capability >= (8, 9) else None


def has_fp4(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether the part multiplies FP4: gfx950 and NVIDIA from Blackwell (10.0)."""
    return architecture.startswith("gfx95") if architecture.startswith("gfx") else capability >= (10, 0)


def _host(torch: Any) -> Machine:
    """Describe the host's own processor, for a trial at toy size."""
    return Machine(
        torch=torch,
        device="cpu",
        name="cpu",
        torch_version=str(torch.__version__),
        driver_version="none",
        memory_bytes=1_000_000_000,
        fp8_dialect=None,
        has_fp4=False,
        read_power_and_clock=lambda: (None, None),
    )


def _device_index(torch: Any, device: str) -> int:
    """Read the index out of ``cuda`` or ``cuda:<index>``."""
    _, _, text = device.partition(":")
    count = int(torch.cuda.device_count())
    if text and (not text.isdigit() or int(text) >= count):
        raise ScenarioError(f"there is no device {device!r}: this machine has cuda:0 to cuda:{count - 1}")
    return int(text) if text else 0


def _driver_version(torch: Any) -> str:
    """Return what can be read of the driver and the runtime, such as ``driver 580.159, CUDA 13.0``."""
    parts = []
    text = _tool_output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    if text:
        parts.append(f"driver {text.splitlines()[0].strip()}")
    if torch.version.cuda:
        parts.append(f"CUDA {torch.version.cuda}")
    if getattr(torch.version, "hip", None):
        parts.append(f"HIP {torch.version.hip}")
    return ", ".join(parts) or "unknown"


def _tool_output(command: list[str]) -> str | None:
    """Run a vendor's tool; None where it is absent or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout


def _choose_reader(torch: Any, index: int) -> Callable[[], Reading]:
    """Take the first way of reading power that gives a number here."""
    readers: list[Callable[[], Reading]] = [
        lambda: _read_torch(torch, index),
        lambda: parse_nvidia_smi(_tool_output([*_NVIDIA_SMI, f"--id={index}"])),
        lambda: parse_smi_json(_tool_output(["amd-smi", "metric", "--gpu", str(index), "-p", "-c", "--json"])),
        lambda: parse_smi_json(_tool_output(["rocm-smi", "-d", str(index), "--showpower", "-c", "--json"])),
    ]
    for reader in readers:
        if reader()[0] is not None:
            return reader
    return lambda: (None, None)


_NVIDIA_SMI = ["nvidia-smi", "--query-gpu=power.draw,clocks.sm", "--format=csv,noheader,nounits"]


def _read_torch(torch: Any, index: int) -> Reading:
    """Read through torch, which needs the vendor's Python binding and raises whatever that raises."""
    try:
        power, clock_mhz = float(torch.cuda.power_draw(index)), float(torch.cuda.clock_rate(index))
        # Documented in milliwatts, but AMD's binding passes watts through; no board draws 5 kW or as little as 5 W.
        return (power / 1000.0 if power > 5000.0 else power), clock_mhz
    except Exception:  # the bindings raise their own types, which are not importable where they are absent
        return None, None


def parse_nvidia_smi(text: str | None) -> Reading:
    """Parse ``power.draw,clocks.sm`` without units."""
    if not text:
        return None, None
    cells = [_as_float(cell) for cell in text.splitlines()[0].split(",")]
    return (cells[0], cells[1]) if len(cells) == 2 else (None, None)


def parse_smi_json(text: str | None) -> Reading:
    """Find power and compute clock in the JSON of amd-smi or rocm-smi, whose layouts change by release."""
    try:
        tree = json.loads(text or "")
    except json.JSONDecodeError:
        return None, None
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
    """Walk a JSON tree, giving each leaf with its lower-case dotted path."""
    if isinstance(tree, dict):
        for key, branch in tree.items():
            yield from _leaves(branch, f"{path}.{str(key).lower()}")
    elif isinstance(tree, list):
        for branch in tree:
            yield from _leaves(branch, path)
    else:
        yield path, tree


def _as_float(text: str) -> float | None:
    """Read a number, or None."""
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(slots=True)
class Samples:
    """Power and clock readings of one run, with the time of each."""

    times_s: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def median(self, which: int) -> float | None:
        """Return the median of power (0) or clock (1) over the second half: boards average over a second."""
        if not self.times_s:
            return None
        middle_s = 0.5 * (self.times_s[0] + self.times_s[-1])
        late = [
            reading[which] for time_s, reading in zip(self.times_s, self.readings, strict=True) if time_s >= middle_s
        ]
        numbers = [number for number in late if number is not None]
        return statistics.median(numbers) if numbers else None


@contextmanager
def sampling(machine: Machine) -> Iterator[Samples]:
    """Sample power and clock in a thread while the body runs."""
    samples = Samples()
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            reading = machine.read_power_and_clock()
            samples.times_s.append(time.perf_counter())
            samples.readings.append(reading)
            stop.wait(_SAMPLE_PERIOD_S)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
