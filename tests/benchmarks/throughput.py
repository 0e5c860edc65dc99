"""Speed of the throughput formula: operating points a second on one core, a million cases at once."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.replica import (
    OperatingPoint,
    ReplicaSpec,
    Traffic,
    at_concurrency,
    at_objective,
    at_saturation,
    price_replicas,
)
from tests.shipped import shipped_calibration

CASES = 1_000_000


def operating_points_per_s(cases: int = CASES) -> dict[str, float]:
    """Return operating points a second, by kind, over a mix of parts, dense models and mixtures."""
    catalog = load_catalog()
    specs = [
        ReplicaSpec(
            part=part_of(accelerator, catalog),
            shape=shape_of(model, catalog),
            precision="fp8",
            accelerators=8,
            engine="vllm",
        )
        for accelerator in ("H200", "B200", "MI325X")
        for model in ("llama-3.1-70b", "deepseek-v3", "qwen3-32b")
    ]
    replicas = price_replicas(specs, shipped_calibration())
    generator = np.random.default_rng(1)
    index = generator.integers(0, len(specs), cases)
    traffic = Traffic(
        input_tokens=generator.uniform(100, 8000, cases),
        output_tokens=generator.uniform(50, 2000, cases),
        cached_fraction=generator.uniform(0, 0.9, cases),
    )
    concurrency = generator.uniform(1, 512, cases)
    runs: dict[str, Callable[[], OperatingPoint]] = {
        "at a concurrency": lambda: at_concurrency(replicas, index, traffic, concurrency),
        "at an objective": lambda: at_objective(replicas, index, traffic, 2.0, 0.05),
        "at saturation": lambda: at_saturation(replicas, index, traffic),
    }
    rates = {}
    for name, run in runs.items():
        start = time.thread_time()
        run()
        rates[name] = cases / (time.thread_time() - start)
    return rates


def main() -> None:
    """Print the rates."""
    for name, rate in operating_points_per_s().items():
        print(f"operating points {name}: {rate / 1e6:.2f} million a second")


if __name__ == "__main__":
    main()
