from __future__ import annotations

import importlib
import itertools
import json
import time
from types import SimpleNamespace

import pytest

from planner.calibration import probe_kernels
from planner.calibration.probe_kernels import (
    Machine,
    fp8_format,
    has_fp4,
    late_medians,
    open_machine,
    parse_nvidia_smi,
    parse_smi_json,
    sampled,
)
from planner.errors import ScenarioError


def _torch(count: int, architecture: str = "", capability: tuple[int, int] = (9, 0)) -> SimpleNamespace:
    properties = SimpleNamespace(name="a part", gcnArchName=architecture, major=capability[0], minor=capability[1])

    def unreadable(_: int) -> int:
        raise RuntimeError("no binding")

    cuda = SimpleNamespace(
        is_available=lambda: count > 0,
        set_device=lambda _: None,
        device_count=lambda: count,
        get_device_properties=lambda _: properties,
        mem_get_info=lambda _: (150_000_000_000, 151_000_000_000),
        power_draw=unreadable,
        clock_rate=unreadable,
    )
    version = SimpleNamespace(cuda=None if architecture else "13.0", hip="7.0" if architecture else None)
    return SimpleNamespace(cuda=cuda, version=version, __version__="2.11.0")


def _use(monkeypatch: pytest.MonkeyPatch, torch: SimpleNamespace, tools: dict[str, str]) -> None:
    monkeypatch.setattr(probe_kernels, "load_torch", lambda: torch)
    monkeypatch.setattr(probe_kernels, "_tool_output", lambda command: tools.get(command[0]))


@pytest.mark.parametrize(
    ("architecture", "capability", "encoding", "fp4"),
    [
        ("", (9, 0), "e4m3fn", False),  # H200
        ("", (10, 0), "e4m3fn", True),  # B200
        ("", (8, 0), None, False),  # A100
        ("gfx942:sramecc+:xnack-", (9, 4), "e4m3fnuz", False),  # MI300X, MI325X
        ("gfx950:sramecc+:xnack-", (9, 5), "e4m3fn", True),  # MI350X, MI355X
        ("gfx90a:sramecc+:xnack-", (9, 0), None, False),  # MI250X
    ],
)
def test_each_part_has_its_own_fp8_format(
    architecture: str, capability: tuple[int, int], encoding: str | None, fp4: bool
) -> None:
    assert fp8_format(architecture, capability) == encoding
    assert has_fp4(architecture, capability) is fp4


def test_an_nvidia_part_is_read_through_its_tool_where_torch_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, _torch(2), {"nvidia-smi": "631.32, 1980\n"})
    machine = open_machine("cuda:1")
    assert (machine.device, machine.precision, machine.fp8_format) == ("cuda:1", "bf16", "e4m3fn")
    assert machine.read_power_and_clock() == (631.32, 1980.0)
    assert "CUDA 13.0" in machine.driver_version


def test_an_amd_part_is_read_through_amd_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = [{"gpu": 0, "power": {"socket_power": {"value": 712, "unit": "W"}}, "clock": {"gfx_0": {"clk": "2100 MHz"}}}]
    _use(monkeypatch, _torch(1, "gfx942"), {"amd-smi": json.dumps(tree)})
    machine = open_machine("auto")
    assert machine.fp8_format == "e4m3fnuz"
    assert machine.read_power_and_clock() == (712.0, 2100.0)
    assert machine.driver_version == "HIP 7.0"


@pytest.mark.parametrize(("given", "power_w"), [(631_320, 631.32), (712, 712.0)])
def test_torch_gives_milliwatts_on_nvidia_and_watts_on_amd(
    monkeypatch: pytest.MonkeyPatch, given: int, power_w: float
) -> None:
    torch = _torch(1)
    torch.cuda.power_draw, torch.cuda.clock_rate = (lambda _: given), (lambda _: 1980)
    _use(monkeypatch, torch, {})
    assert open_machine("cuda").read_power_and_clock() == (power_w, 1980.0)


def test_power_that_cannot_be_read_is_none_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, _torch(1), {})
    assert open_machine("cuda").read_power_and_clock() == (None, None)


@pytest.mark.parametrize(
    ("device", "count", "message"),
    [("auto", 0, "sees no GPU"), ("cuda:3", 2, "cuda:0 to cuda:1"), ("tpu", 1, "unknown device 'tpu'")],
)
def test_a_device_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, device: str, count: int, message: str
) -> None:
    _use(monkeypatch, _torch(count), {})
    with pytest.raises(ScenarioError, match=message):
        open_machine(device)


def test_without_torch_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ScenarioError, match=r"pip install 'datacenter-planner\[gpu\]'"):
        open_machine("auto")


@pytest.mark.parametrize("text", [None, "", "[N/A]", "631.32"])
def test_nvidia_smi_without_numbers_reads_as_none(text: str | None) -> None:
    assert parse_nvidia_smi(text)[0] is None


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        (None, (None, None)),
        ("{", (None, None)),
        (
            '{"card0": {"Average Graphics Package Power (W)": "305.0", "sclk clock speed:": "(2100Mhz)"}}',
            (305.0, 2100.0),
        ),
        ('{"card0": {"Current Socket Graphics Package Power (W)": "140.0"}}', (140.0, None)),
        ('[{"power": {"socket_power": "N/A"}}]', (None, None)),
    ],
)
def test_rocm_smi_in_its_several_layouts(text: str | None, reading: tuple[float | None, float | None]) -> None:
    assert parse_smi_json(text) == reading


def test_the_median_is_of_the_second_half() -> None:
    readings = [(9.0, 1.0), (9.0, 1.0), (5.0, 2.0), (6.0, None), (7.0, 4.0)]
    assert late_medians([(float(second), reading) for second, reading in enumerate(readings)]) == (6.0, 3.0)
    assert late_medians([]) == (None, None)


def test_sampling_reads_until_the_body_ends() -> None:
    readings = itertools.count()
    machine = Machine(
        torch=None, device="cpu", name="cpu", memory_bytes=1, read_power_and_clock=lambda: (float(next(readings)), None)
    )

    def run() -> float:
        time.sleep(0.25)
        return 3.0

    timing = sampled(machine, run)
    count = next(readings)
    assert count >= 2
    time.sleep(0.15)
    assert next(readings) == count + 1
    assert timing.board_power_w is not None
    assert 0.5 <= timing.board_power_w < count
    assert (timing.call_s, timing.sm_clock_mhz) == (3.0, None)
