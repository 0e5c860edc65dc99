"""The calibrated coefficients, the pooling of engines, vendors and runs, and the uncertainty of a prediction.

The log error of a predicted time per token or throughput is normal with the variance

    σ² = σ_setting² + [layout unmeasured]·σ_layout² or [pair unmeasured]·σ_pair²
       + [model unmeasured]·σ_model² + [part unmeasured]·σ_part²

σ_setting is what remains when the pair itself (model, part, engine and precision) was measured in the same layout at
other lengths; the others are what fits without a layout's, a pair's, a model's or a part's rows under an engine miss by
beyond that. A pair without rows has no layout with any: σ_pair holds that too. Everything known
of a model under an engine is shared by all its pairs, so the errors of two predictions are correlated as their shared
terms are. Software that a vendor's engine still lacks for a model it was never measured with makes it slower and never
faster: σ_lag² is added on the slow side alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.records import record

DENSE = "dense"
MIXTURE = "mixture-of-experts"
ANY_LAYOUT = "any"
"""Stands for a replica whose layout is not settled: it has no effect of its own, and a measured layout's doubt."""
NORMAL_90 = 1.6448536269514722
"""A normal variable lies within this many standard deviations of its mean nine times in ten."""


REFERENCE_VENDOR = "nvidia"
"""The vendor with most rows carries no deviation of its own."""
POOLS = ("precision", "attention", "generation", "engine")
"""By what the mixtures of experts of any other vendor are pooled, beyond their model and part."""


class Groups(NamedTuple):
    """The groups of measurements that a replica belongs to, each with an effect of its own on time per token.

    Of the pools only the mixtures of vendors other than the reference have groups of their own: all other rows share
    one. Separate ones for the reference vendor's dense models and mixtures predicted unseen models worse.
    """

    model: str
    """Model, engine and kind."""
    part: str
    """Accelerator, engine and kind."""
    campaign: str
    """Model, accelerator, engine, precision and kind: what one series of runs shares."""
    layout: str
    """The campaign's runs in one layout: degrees are tuned, and updated, at different times."""
    precision: str
    """Pool of the number format."""
    attention: str
    """Pool of latent attention, or of stored keys and values."""
    generation: str
    """Pool of the number format on parts with, or without, four-bit arithmetic."""
    engine: str
    """Pool of the engine."""
    saturation: str
    """Saturated mixtures of experts, whoever's; all other rows."""
    vendor_model: str
    """Model, engine, vendor and kind."""


@record
class ClassSpread:
    """Standard deviations of ln(measured/predicted) of one architecture class, by which factor was not measured."""

    setting: float
    layout: float
    pair: float
    model: float
    part: float
    first_token: float
    """Of time to first token, whatever was measured."""


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Uncertainty of one prediction: the standard deviations of its independent error terms."""

    pair: float
    """Of this pair alone."""
    model: float
    """Shared by all pairs of this model and engine; 0 where that was measured."""
    part: float
    """Shared by all pairs of this part and engine; 0 where that was measured."""
    first_token: float
    is_validated: bool
    """Whether the pair itself was measured."""
    lag: float = 0.0
    """Of the software that this pair's engine may still lack for the model: slower, never faster."""

    @property
    def sigma(self) -> float:
        """Standard deviation of the log error of time per token and throughput, towards the fast side."""
        return float(np.sqrt(self.pair**2 + self.model**2 + self.part**2))

    @property
    def half_width_fraction(self) -> float:
        """Half the 90% interval over the prediction: sinh(1.645·σ) where both sides are alike."""
        low, high = self.interval(1.0)
        return 0.5 * (high - low)

    def interval(self, tokens_per_s: float) -> tuple[float, float]:
        """Return the ends of a throughput's 90% interval: predicted·exp(−1.645·σ_slow), predicted·exp(1.645·σ)."""
        slow_sigma = np.hypot(self.sigma, self.lag)
        sigmas = np.array([-slow_sigma, self.sigma])
        slow, fast = np.exp(NORMAL_90 * sigmas).tolist()
        return tokens_per_s * slow, tokens_per_s * fast

    def in_words(self) -> str:
        """Return the prediction's 90% interval in words, and whether the pair itself was measured."""
        start = "validated on this pair" if self.is_validated else "extrapolating"
        low, high = self.interval(1.0)
        # With a lag the sides differ, so both are told.
        if self.lag:
            return f"{start}, −{1.0 - low:.0%} to +{high - 1.0:.0%}"
        return f"{start}, ±{self.half_width_fraction:.0%}"


Grade = Literal["measured", "interpolated", "extrapolated"]
"""How near public measurements stand to a replica: in its own layout, in others of the same pair, or of none of it."""


@record
class Evidence:
    """What measurements say of a replica's throughput: the posterior of ln(true throughput / the formula's)."""

    grade: Grade
    rows: int
    """Rows measured nearest: of the layout, of the pair in other layouts, or of the engine on that accelerator."""
    log_gain: float
    """Posterior mean of ln(true throughput / the formula's at common coefficients); priced replicas include it."""
    uncertainty: Uncertainty

    @property
    def log_error(self) -> float:
        """Standard deviation of the posterior, towards the slow side: what new software may lack is in it."""
        return float(np.hypot(self.uncertainty.sigma, self.uncertainty.lag))

    def interval(self, tokens_per_s: float) -> tuple[float, float]:
        """Return the ends of the 90% interval of a throughput that is priced with the gain in it."""
        return self.uncertainty.interval(tokens_per_s)


def lag_sigma(new_model_speed: float) -> float:
    """Return the slow-side standard deviation at whose 90% end a new model runs at this share of full speed."""
    return float(-np.log(new_model_speed)) / NORMAL_90


SERVING = "serving"
SATURATED = "saturated"
DISAGGREGATED = "disaggregated"
"""Kinds of measurement: a replica under requests, one with a queue without bottom, or a decode worker whose prompts are
prefilled elsewhere. Engines are tuned for each apart."""
UNSTATED = f"workers unstated, {DISAGGREGATED}"
"""Decode workers of a table that does not state how many there are: what is assumed of them is in their effects."""


@dataclass(frozen=True, slots=True)
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


COEFFICIENTS: tuple[Coefficient, ...] = (
    # Efficiencies: time over time at the part's peak rate. One H200 alone gives 1.2 to 1.3 for weights, 1.05 for a
    # 16-bit cache, 1.4 (bf16) to 1.8 (fp8) for prefill; engines do not beat it, so these priors are narrow.
    Coefficient("weight_stream", "time to stream the weights, over peak bandwidth", 1.1, 0.14, 0.0, 0.17),
    Coefficient("fp4_weight", "factor on weight_stream for four-bit weights", 1.2, 0.17, 0.0, 0.2),
    Coefficient("expert_stream", "time to stream the experts touched, over peak bandwidth", 1.3, 0.35, 0.17, 0.7),
    Coefficient("fp4_expert", "the same for four-bit experts", 1.3, 0.35, 0.17, 0.7),
    Coefficient("emulated_fp4", "factor on fp4_expert and visit_s where the part lacks FP4", 1.3, 0.35, 0.1, 0.0),
    Coefficient("expert_imbalance", "factor on the experts where each sits whole on one rank", 1.1, 0.2, 0.0, 0.0),
    Coefficient("compute", "time of matrix products, over peak arithmetic", 1.6, 0.17, 0.0, 0.28),
    Coefficient("fp4_compute", "factor on compute at FP4 rate", 1.0, 0.21, 0.0, 0.28),
    Coefficient("moe_compute", "factor on compute for mixtures of experts", 1.5, 0.35, 0.14, 0.56),
    Coefficient("kv_stream", "time to stream the cache, over peak bandwidth", 1.7, 0.17, 0.085, 0.34),
    Coefficient("latent_kv", "factor on kv_stream for latent attention", 1.0, 0.35, 0.0, 0.0),
    Coefficient("attention_compute", "time of prefill attention, over peak 16-bit arithmetic", 2.0, 0.21, 0.1, 0.42),
    # Communication and overheads. The fixed cost per layer is what public runs put at 45 to 70 µs.
    Coefficient("hop_s", "latency of one hop of an all-reduce", 3e-6, 0.7, 0.0, 0.7),
    Coefficient("link", "time to move all-reduce bytes, over peak link bandwidth", 1.5, 0.35, 0.0, 0.7),
    Coefficient("request_s", "cost of one running request per step", 20e-6, 0.7, 0.21, 0.84),
    Coefficient("step_s", "fixed cost of a step: scheduler, launch, sampling", 5e-4, 0.7, 0.35, 0.0),
    Coefficient("layer_s", "fixed cost of one dense layer per step", 50e-6, 0.21, 0.0, 0.28),
    Coefficient("visit_s", "fixed cost per step of one expert that tokens visit in a layer", 7.5e-6, 0.35, 0.14, 0.56),
    Coefficient("latent_layer_s", "further fixed cost of a layer of latent attention", 20e-6, 0.7, 0.35, 0.7),
    Coefficient("normed_layer_s", "further fixed cost of a layer with normed queries and keys", 5e-6, 0.7, 0.0, 0.0),
    # No row is of sparse attention: its layers' indexing and selection take what two public traces of one sequence of
    # DeepSeek-V3.2 on eight B200 have beyond DeepSeek-V3's step (vllm#33680: 15.3 ms, sglang#15025: 19.2 ms).
    Coefficient("sparse_layer_s", "further fixed cost of a layer of sparse attention", 100e-6, 0.35, 0.0, 0.0),
    # Speculative decoding: drafting one token and checking it. No row decodes speculatively; these two are what GLM-5
    # gains by it on B200 and MI355X, at 4 to 256 requests (InferenceX, 2026-05-20).
    Coefficient("draft", "share of a step's fixed cost that drafting one token adds", 0.03, 0.5, 0.0, 0.0),
    Coefficient("verify", "work of checking a drafted token, over that of a certain one", 1.4, 0.35, 0.0, 0.0),
    # Time to first token.
    Coefficient("ttft_fixed_s", "time to first token that depends on nothing", 0.01, 0.7, 0.0, 0.0),
    Coefficient("ttft_prefill", "own prefill times seen before the first token", 1.0, 0.35, 0.0, 0.0),
    Coefficient("ttft_burst", "share of a closed loop's requests prefilled ahead", 0.05, 0.7, 0.42, 0.0),
    Coefficient("ttft_burst_steps", "decode steps waited for when clients start together", 4.0, 0.7, 0.56, 0.0),
    Coefficient("ttft_arrival_steps", "decode steps waited for under independent arrivals", 1.5, 0.35, 0.0, 0.0),
)  # fmt: skip
NAMES: tuple[str, ...] = tuple(coefficient.name for coefficient in COEFFICIENTS)


def groups_of(
    model: str,
    part: str,
    engine: str,
    precision: str,
    kind: str = SERVING,
    layout: str = ANY_LAYOUT,
    vendor: str = REFERENCE_VENDOR,
    traits: Sequence[str] = (),
) -> Groups:
    """Return the measurement groups of a model (the name its measurements are pooled under) on an accelerator.

    ``traits`` are a mixture's in the order of the pools; none for a dense model. A decode worker serves: of its model
    and part it shows what serving shows.
    """
    # Its campaign is its own, since engines are tuned for each kind apart.
    shared = SERVING if kind.endswith(DISAGGREGATED) else kind
    campaign = f"{model} / {part} / {engine} / {precision} / {kind}"
    pools = [f"all others, by {pool}" for pool in POOLS]
    if traits and vendor != REFERENCE_VENDOR:
        pools = [f"mixtures on {vendor}, {trait}" for trait in traits]
    saturation = "all others, by saturation"
    if traits and kind == SATURATED:
        saturation = "saturated mixtures"
    return Groups(
        model=f"{model} / {engine} / {shared}",
        part=f"{part} / {engine} / {shared}",
        campaign=campaign,
        layout=f"{campaign} / {layout}",
        **dict(zip(POOLS, pools, strict=True)),
        saturation=saturation,
        vendor_model=f"{model} / {engine} on {vendor} / {shared}",
    )


GROUP_SIGMA = (0.2, 0.1, 0.1, 0.1, 0.2, 0.15, 0.15, 0.15, 0.2, 0.05)
"""Prior spread of the effect of each group, in natural logarithms."""

KV_RESERVED_OUTPUT_FRACTION = {"tensorrt-llm": 1.0}
"""Share of the output for which an engine holds cache from the start. TensorRT-LLM's default scheduler never evicts,
so it reserves all of it (TensorRT-LLM documentation, GUARANTEED_NO_EVICT); others hold what is written, half
on average."""
DEFAULT_RESERVED_OUTPUT_FRACTION = 0.5
MAX_SEQUENCES = 2048
"""Largest running batch of one attention group: the default of TensorRT-LLM, above every public serving run's."""


@record
class Calibration:
    """Fitted coefficients: a common value each, log deviations by engine and by vendor, and effects by group."""

    common: Mapping[str, float]
    engine_log_deviation: Mapping[str, Mapping[str, float]]
    vendor_log_deviation: Mapping[str, Mapping[str, float]]
    group_log_effect: Mapping[str, float] = field(default_factory=dict)
    """Log of measured time per token over the formula's, by group; a group that is not here was not measured."""
    spread: Mapping[str, ClassSpread] = field(default_factory=dict)
    """Spread of the model's error by architecture class and of separate pools; empty without cross-validation."""

    drafted_share: Mapping[str, float] = field(default_factory=dict)
    """Share of the runs of a campaign with separate pools that draft tokens and do not say so."""

    group_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows measured, by group."""

    group_log_sigma: Mapping[str, float] = field(default_factory=dict)
    """Standard deviation of the effects that one's own rows updated, by group; a campaign's or layout's is of the whole
    effect of its pair."""

    first_token_log_effect: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Log of measured time to first token of benchmark clients over that of the ``formula``, or of their simulation by
    ``requests``, by group; a group that is not there was not measured."""

    measured_on: date | None = None
    """Middle of the dates of its measurements; None where none is known."""

    def coefficients(self, engines: Sequence[str], vendors: Sequence[str]) -> dict[str, Floats]:
        """Return each coefficient for pairs of engine and vendor, shape (pairs,).

        An engine or vendor without a deviation takes the common value: that is the fallback for what has no rows.
        """
        # Deviations add in logarithms: engine and vendor multiply.
        log_factor = np.zeros((len(NAMES), len(engines)))
        for place, (engine, vendor) in enumerate(zip(engines, vendors, strict=True)):
            by_engine = self.engine_log_deviation.get(engine, {})
            by_vendor = self.vendor_log_deviation.get(vendor, {})
            for row, name in enumerate(NAMES):
                deviation = by_engine.get(name, 0.0) + by_vendor.get(name, 0.0)
                log_factor[row, place] = deviation
        common = np.array([self.common[name] for name in NAMES])
        factors = common[:, None] * np.exp(log_factor)
        return dict(zip(NAMES, factors, strict=True))

    def uncertainty(
        self,
        groups: Groups,
        is_mixture: bool,
        vendor: str = REFERENCE_VENDOR,
        new_model_speed: float = 1.0,
        is_unlike: bool = False,
    ) -> Uncertainty | None:
        """Return the uncertainty of predictions for these groups, or None where the calibration states no spread.

        A pair among the groups that a buyer's own rows updated stands by itself: its spread is that of its whole
        effect in that layout, σ² = σ_setting² + σ_posterior². ``new_model_speed`` is the share of full speed with which
        a new model begins on the stack: the slow end of a pair whose model was not measured there, or that is unlike
        all rows.
        """
        measured = self.group_log_effect
        updated = self.group_log_sigma
        spread = self.class_spread(vendor, is_mixture)
        if groups.campaign.endswith(DISAGGREGATED):
            spread = self.spread.get(DISAGGREGATED, spread)
        if spread is None:
            return None

        def beyond(group: str, unmeasured: float, measured_sigma: float = 0.0) -> float:
            sigma = measured_sigma if group in measured else unmeasured
            return updated.get(group, sigma)

        is_own = groups.campaign in updated
        # A replica whose layout is not settled counts as measured in it.
        is_laid_out = groups.layout in measured or groups.layout.endswith(ANY_LAYOUT)
        in_layout = 0.0 if is_laid_out else spread.layout
        pair = beyond(groups.campaign, spread.pair, in_layout)
        # A pair of one's own rows stands by itself: model and part have nothing to add, and a layout only where nobody
        # measured it.
        if is_own:
            whole = float(np.hypot(updated[groups.campaign], in_layout))
            pair = updated.get(groups.layout, whole)
        model = part = 0.0
        if not is_own:
            model = spread.model if is_unlike else beyond(groups.model, spread.model)
            part = beyond(groups.part, spread.part)
        is_lagging = is_mixture and self.is_new(groups, is_unlike)
        is_measured = groups.campaign in measured
        is_validated = is_measured and (is_own or not is_unlike)
        return Uncertainty(
            pair=float(np.hypot(spread.setting, pair)),
            model=model,
            part=part,
            first_token=spread.first_token,
            is_validated=is_validated,
            lag=lag_sigma(new_model_speed) if is_lagging else 0.0,
        )

    def grade(self, groups: Groups, is_unlike: bool) -> tuple[Grade, int]:
        """Return how near measurements stand to a replica of these groups, and how many do.

        ``is_unlike`` says that all rows of its pair are of another kind, without drafts say: then none is its own.
        """
        rows = self.group_rows
        of_engine = rows.get(groups.part, 0)
        if is_unlike and groups.campaign not in self.group_log_sigma:
            return "extrapolated", of_engine
        in_layout = rows.get(groups.layout, 0)
        if in_layout:
            return "measured", in_layout
        of_pair = rows.get(groups.campaign, 0)
        if of_pair:
            return "interpolated", of_pair
        return "extrapolated", of_engine

    def is_new(self, groups: Groups, is_unlike: bool) -> bool:
        """Say whether a model was never measured under its vendor's engine, or only in a form that is unlike it.

        A calibration without measurements knows of none that is new.
        """
        if not self.group_log_effect or groups.campaign in self.group_log_sigma:
            return False
        measured_groups = {groups.campaign, groups.vendor_model} & self.group_log_effect.keys()
        return is_unlike or not measured_groups

    def class_spread(self, vendor: str, is_mixture: bool) -> ClassSpread | None:
        """Return the spread of a vendor's class of models, or of the class where the vendor has none of its own."""
        label = MIXTURE if is_mixture else DENSE
        class_spread = self.spread.get(label)
        return self.spread.get(f"{vendor} {label}", class_spread)

    def log_effects(self, groups: Sequence[Groups]) -> Floats:
        """Return the sum of each replica's group effects, shape (replicas,); a group without rows adds nothing."""
        effects = np.zeros(len(groups))
        for place, labels in enumerate(groups):
            effects[place] = sum(self.group_log_effect.get(label, 0.0) for label in labels)
        return effects


def prior_calibration() -> Calibration:
    """Return the calibration before any measurement: the prior medians."""
    common = {coefficient.name: coefficient.centre for coefficient in COEFFICIENTS}
    return Calibration(common=common, engine_log_deviation={}, vendor_log_deviation={})


@functools.cache
def roofline_calibration() -> Calibration:
    """Return the coefficients of perfect software: memory and arithmetic at peak rates, without overheads.

    No release can pass it, however long engineers work.
    """
    nothing = 1e-12  # not zero, so that no quotient of times is undefined
    besides = {"draft", "ttft_burst", "ttft_burst_steps", "ttft_arrival_steps"}
    common = {}
    for name in NAMES:
        is_overhead = name.endswith("_s") or name in besides
        common[name] = nothing if is_overhead else 1.0
    return Calibration(common=common, engine_log_deviation={}, vendor_log_deviation={})
