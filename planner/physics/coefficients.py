"""The calibrated coefficients: what each means, where the fit starts, and how engines, vendors and runs are pooled."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from planner.physics.uncertainty import ANY_LAYOUT, DENSE, MIXTURE, Doubt, Groups, Spread, doubt_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.arrays import Floats

SERVING, SATURATED, DISAGGREGATED = "serving", "saturated", "disaggregated"
"""Kinds of measurement: a replica under requests, one with a queue without bottom, or a decode worker whose prompts are
prefilled elsewhere. Engines are tuned for each apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One coefficient: its meaning and the log-normal prior that keeps it physical where data say little."""

    name: str
    meaning: str
    centre: float
    """Prior median."""
    pool_sigma: float
    """Prior spread of the common value, in natural logarithms."""
    engine_sigma: float
    """Prior spread of an engine's departure from the common value, in natural logarithms; 0: engines share it."""
    vendor_sigma: float
    """Prior spread of a vendor's departure from the common value, in natural logarithms; 0: vendors share it."""


def _coefficient(name: str, meaning: str, *prior: float) -> Coefficient:
    centre, pool, engine, vendor = prior
    return Coefficient(
        name=name, meaning=meaning, centre=centre, pool_sigma=pool, engine_sigma=engine, vendor_sigma=vendor
    )


COEFFICIENTS: tuple[Coefficient, ...] = (
    # Efficiencies: time over time at the part's peak rate. One H200 alone gives 1.2 to 1.3 for weights, 1.05 for a
    # 16-bit cache, 1.4 (bf16) to 1.8 (fp8) for prefill; engines do not beat it, so these priors are narrow.
    _coefficient("weight_stream", "time to stream the weights, over peak bandwidth", 1.1, 0.14, 0.0, 0.17),
    _coefficient("fp4_weight", "factor on weight_stream for four-bit weights", 1.2, 0.17, 0.0, 0.2),
    _coefficient("expert_stream", "time to stream the experts touched, over peak bandwidth", 1.3, 0.35, 0.17, 0.7),
    _coefficient("fp4_expert", "the same for four-bit experts", 1.3, 0.35, 0.17, 0.7),
    _coefficient("emulated_fp4", "factor on fp4_expert and visit_s where the part lacks FP4", 1.3, 0.35, 0.1, 0.0),
    _coefficient("expert_imbalance", "factor on the experts where each sits whole on one rank", 1.1, 0.2, 0.0, 0.0),
    _coefficient("compute", "time of matrix products, over peak arithmetic", 1.6, 0.17, 0.0, 0.28),
    _coefficient("fp4_compute", "factor on compute at FP4 rate", 1.0, 0.21, 0.0, 0.28),
    _coefficient("moe_compute", "factor on compute for mixtures of experts", 1.5, 0.35, 0.14, 0.56),
    _coefficient("kv_stream", "time to stream the cache, over peak bandwidth", 1.7, 0.17, 0.085, 0.34),
    _coefficient("latent_kv", "factor on kv_stream for latent attention", 1.0, 0.35, 0.0, 0.0),
    _coefficient("attention_compute", "time of prefill attention, over peak 16-bit arithmetic", 2.0, 0.21, 0.1, 0.42),
    # Communication and overheads. The fixed cost per layer is what public runs put at 45 to 70 µs.
    _coefficient("hop_s", "latency of one hop of an all-reduce", 3e-6, 0.7, 0.0, 0.7),
    _coefficient("link", "time to move all-reduce bytes, over peak link bandwidth", 1.5, 0.35, 0.0, 0.7),
    _coefficient("request_s", "cost of one running request per step", 20e-6, 0.7, 0.21, 0.84),
    _coefficient("step_s", "fixed cost of a step: scheduler, launch, sampling", 5e-4, 0.7, 0.35, 0.0),
    _coefficient("layer_s", "fixed cost of one dense layer per step", 50e-6, 0.21, 0.0, 0.28),
    _coefficient("visit_s", "fixed cost per step of one expert that tokens visit in a layer", 7.5e-6, 0.35, 0.14, 0.56),
    _coefficient("latent_layer_s", "further fixed cost of a layer of latent attention", 20e-6, 0.7, 0.35, 0.7),
    _coefficient("normed_layer_s", "further fixed cost of a layer with normed queries and keys", 5e-6, 0.7, 0.0, 0.0),
    # Speculative decoding: what drafting one token adds to the fixed cost of a step.
    _coefficient("draft", "share of a step's fixed cost that drafting one token adds", 0.05, 0.5, 0.0, 0.0),
    # Time to first token.
    _coefficient("ttft_fixed_s", "time to first token that depends on nothing", 0.01, 0.7, 0.0, 0.0),
    _coefficient("ttft_prefill", "own prefill times seen before the first token", 1.0, 0.35, 0.0, 0.0),
    _coefficient("ttft_burst", "share of a closed loop's requests prefilled ahead", 0.05, 0.7, 0.42, 0.0),
    _coefficient("ttft_burst_steps", "decode steps waited for when clients start together", 4.0, 0.7, 0.56, 0.0),
    _coefficient("ttft_arrival_steps", "decode steps waited for under independent arrivals", 1.5, 0.35, 0.0, 0.0),
)  # fmt: skip
NAMES: tuple[str, ...] = tuple(coefficient.name for coefficient in COEFFICIENTS)


def groups_of(
    model: str, part: str, engine: str, precision: str, kind: str = SERVING, layout: str = ANY_LAYOUT
) -> Groups:
    """Return the groups of a model (the name its measurements are pooled under) on a part.

    A decode worker serves: of its model and part it shows what serving shows.
    """
    shared = SERVING if kind == DISAGGREGATED else kind
    campaign = f"{model} / {part} / {engine} / {precision} / {kind}"
    return Groups(
        model=f"{model} / {engine} / {shared}",
        part=f"{part} / {engine} / {shared}",
        campaign=campaign,
        layout=f"{campaign} / {layout}",
    )


GROUP_SIGMA = (0.2, 0.1, 0.1, 0.1)
"""Prior spread of the effect of a model, a part, a campaign and a layout, in natural logarithms."""

KV_RESERVED_OUTPUT_FRACTION = {"tensorrt-llm": 1.0}
"""Share of the output for which an engine holds cache from the start. TensorRT-LLM's default scheduler never evicts,
so it reserves all of it (TensorRT-LLM documentation, GUARANTEED_NO_EVICT); others hold what is written, half
on average."""
DEFAULT_RESERVED_OUTPUT_FRACTION = 0.5
MAX_SEQUENCES = 2048
"""Largest running batch of one attention group: the default of TensorRT-LLM, above every public serving run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted coefficients: a common value each, log deviations by engine and by vendor, and effects by group."""

    common: Mapping[str, float]
    engine_log_deviation: Mapping[str, Mapping[str, float]]
    vendor_log_deviation: Mapping[str, Mapping[str, float]]
    group_log_effect: Mapping[str, float] = field(default_factory=dict)
    """Log of measured time per token over the formula's, by group; a group that is not here was not measured."""
    spread: Mapping[str, Spread] = field(default_factory=dict)
    """Spread of the model's error by architecture class and of separate pools; empty without cross-validation."""

    group_log_sigma: Mapping[str, float] = field(default_factory=dict)
    """Standard deviation of the effects that one's own rows updated, by group; a campaign's is of its whole effect."""

    first_token_log_effect: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Log of measured time to first token of benchmark clients over that of the ``formula``, or of their simulation by
    ``requests``, by group; a group that is not there was not measured."""

    measured_on: date | None = None
    """Middle of the dates of its measurements; None where none is known."""

    def coefficients(self, engines: Sequence[str], vendors: Sequence[str]) -> dict[str, Floats]:
        """Return each coefficient for pairs of engine and vendor, shape (pairs,).

        An engine or vendor without a deviation takes the common value: that is the fallback for what has no rows.
        """
        log_factor = np.zeros((len(NAMES), len(engines)))
        for place, (engine, vendor) in enumerate(zip(engines, vendors, strict=True)):
            by_engine = self.engine_log_deviation.get(engine, {})
            by_vendor = self.vendor_log_deviation.get(vendor, {})
            log_factor[:, place] = [by_engine.get(name, 0.0) + by_vendor.get(name, 0.0) for name in NAMES]
        common = np.array([self.common[name] for name in NAMES])
        return dict(zip(NAMES, common[:, None] * np.exp(log_factor), strict=True))

    def doubt(self, groups: Groups, is_mixture: bool) -> Doubt | None:
        """Return the doubt about a replica of these groups, or None where this calibration knows nothing of it."""
        spread = self.spread.get(MIXTURE if is_mixture else DENSE)
        if groups.campaign.endswith(DISAGGREGATED):
            spread = self.spread.get(DISAGGREGATED, spread)
        return None if spread is None else doubt_of(groups, spread, self.group_log_effect, self.group_log_sigma)

    def log_effects(self, groups: Sequence[Groups]) -> Floats:
        """Return the sum of each replica's group effects, shape (replicas,); a group without rows adds nothing."""
        return np.array([sum(self.group_log_effect.get(label, 0.0) for label in labels) for labels in groups])


def prior_calibration() -> Calibration:
    """Return the calibration before any measurement: the prior medians."""
    common = {coefficient.name: coefficient.centre for coefficient in COEFFICIENTS}
    return Calibration(common=common, engine_log_deviation={}, vendor_log_deviation={})


@functools.cache
def roofline_calibration() -> Calibration:
    """Return the coefficients of perfect software: every stream and product at the part's peak, and nothing besides.

    No release can pass it, however long engineers work.
    """
    nothing = 1e-12  # not zero, so that no quotient of times is undefined
    besides = {"draft", "ttft_burst", "ttft_burst_steps", "ttft_arrival_steps"}
    common = {name: nothing if name.endswith("_s") or name in besides else 1.0 for name in NAMES}
    return Calibration(common=common, engine_log_deviation={}, vendor_log_deviation={})
