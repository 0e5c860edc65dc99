"""The calibrated coefficients: what each means, where the fit starts, and how engines and vendors are pooled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.physics.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One coefficient: its meaning and the log-normal prior that keeps it physical where data say little."""

    name: str
    meaning: str
    centre: float
    """Prior median."""
    pool_sigma: float
    """Prior spread of the common value, in natural logarithms."""
    deviation_sigma: float
    """Prior spread of an engine's or a vendor's departure from the common value, in natural logarithms."""


def _coefficient(name: str, meaning: str, *prior: float) -> Coefficient:
    return Coefficient(name=name, meaning=meaning, centre=prior[0], pool_sigma=prior[1], deviation_sigma=prior[2])


COEFFICIENTS: tuple[Coefficient, ...] = (
    # Efficiencies: time over time at the part's peak rate. One H200 alone gives 1.2 to 1.3 for weights, 1.05 for a
    # 16-bit cache, 1.4 (bf16) to 1.8 (fp8) for prefill; engines do not beat it, so these priors are narrow.
    _coefficient("weight_stream", "time to stream the weights, over peak bandwidth", 1.1, 0.14, 0.084),
    _coefficient("fp4_weight", "factor on weight_stream for four-bit weights", 1.2, 0.17, 0.098),
    _coefficient("expert_stream", "time to stream the experts touched, over peak bandwidth", 1.3, 0.35, 0.35),
    _coefficient("fp4_expert", "the same for four-bit experts", 1.3, 0.35, 0.35),
    _coefficient("emulated_fp4", "factor on fp4_expert where the part lacks FP4", 1.3, 0.35, 0.21),
    _coefficient("compute", "time of matrix products, over peak arithmetic", 1.6, 0.17, 0.14),
    _coefficient("fp4_compute", "factor on compute at FP4 rate", 1.0, 0.21, 0.14),
    _coefficient("moe_compute", "factor on compute for mixtures of experts", 1.5, 0.35, 0.28),
    _coefficient("kv_stream", "time to stream the cache, over peak bandwidth", 1.7, 0.17, 0.17),
    _coefficient("latent_kv", "factor on kv_stream for latent attention", 1.0, 0.35, 0.21),
    _coefficient("attention_compute", "time of prefill attention, over peak 16-bit arithmetic", 2.0, 0.21, 0.21),
    # Communication and overheads. The fixed cost per layer is what public runs put at 45 to 70 µs.
    _coefficient("hop_s", "latency of one hop of an all-reduce", 3e-6, 0.7, 0.35),
    _coefficient("link", "time to move all-reduce bytes, over peak link bandwidth", 1.5, 0.35, 0.35),
    _coefficient("request_s", "cost of one running request per step", 20e-6, 0.7, 0.42),
    _coefficient("layer_s", "fixed cost of one dense layer per step", 60e-6, 0.21, 0.14),
    _coefficient("moe_layer_s", "fixed cost of one mixture-of-experts layer per step", 60e-6, 0.35, 0.28),
    # Time to first token.
    _coefficient("ttft_fixed_s", "time to first token that depends on nothing", 0.01, 0.7, 0.35),
    _coefficient("ttft_prefill", "own prefill times seen before the first token", 1.0, 0.35, 0.35),
    _coefficient("ttft_burst", "share of the concurrent requests prefilled ahead", 0.05, 0.7, 0.42),
    _coefficient("ttft_steps", "decode steps waited for before and during prefill", 4.0, 0.7, 0.56),
)
NAMES: tuple[str, ...] = tuple(coefficient.name for coefficient in COEFFICIENTS)

KV_RESERVED_OUTPUT_FRACTION = {"tensorrt-llm": 1.0}
"""Share of the output for which an engine holds cache from the start. TensorRT-LLM's default scheduler never evicts,
so it reserves all of it (TensorRT-LLM documentation, GUARANTEED_NO_EVICT); others hold what is written, half
on average."""
DEFAULT_RESERVED_OUTPUT_FRACTION = 0.5
MAX_SEQUENCES = 2048
"""Largest running batch: the default of TensorRT-LLM, and above every batch in the public serving runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted coefficients: a common value each, and log deviations by engine and by vendor."""

    common: Mapping[str, float]
    engine_log_deviation: Mapping[str, Mapping[str, float]]
    vendor_log_deviation: Mapping[str, Mapping[str, float]]

    def coefficients(self, engines: Sequence[str], vendors: Sequence[str]) -> dict[str, Floats]:
        """Return each coefficient for pairs of engine and vendor, shape (pairs,).

        An engine or vendor without a deviation takes the common value: that is the fallback for what has no rows.
        """
        result = {}
        for name in NAMES:
            log_factor = np.array(
                [
                    self.engine_log_deviation.get(engine, {}).get(name, 0.0)
                    + self.vendor_log_deviation.get(vendor, {}).get(name, 0.0)
                    for engine, vendor in zip(engines, vendors, strict=True)
                ]
            )
            result[name] = self.common[name] * np.exp(log_factor)
        return result


def prior_calibration() -> Calibration:
    """Return the calibration before any measurement: the prior medians."""
    common = {coefficient.name: coefficient.centre for coefficient in COEFFICIENTS}
    return Calibration(common=common, engine_log_deviation={}, vendor_log_deviation={})
