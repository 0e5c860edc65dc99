"""The shape of a served transformer: what it weighs, computes and remembers per token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ArchitectureClass = Literal["dense", "moe", "custom-attention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Architecture numbers of one model, as its published configuration names them.

    Fields that do not apply are zero: a dense model has no ``experts``, a model without latent attention has no
    ``kv_lora_rank``, one without sliding windows no ``sliding_window``.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    """Width of the dense feed-forward; for a mixture without ``moe_intermediate`` also that of one expert."""
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    """Leading layers of a mixture-of-experts model with a dense feed-forward."""
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    """Rank of the latent key-value vector (multi-head latent attention); 0 means keys and values are stored."""
    qk_rope_head_dim: int = 0
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    sliding_layers_fraction: float = 0.0
    """Share of the layers that attend within ``sliding_window`` only."""
    tied_embeddings: bool = False
    max_context: int = 131072
    architecture_class: ArchitectureClass = "dense"
    native_precision: str = "bf16"
    """Precision the weights were published in; weights published at fp4 also run on parts without fp4 arithmetic."""
    shared_precision: str = ""
    """Precision of what is not a routed expert in the four-bit form; empty: 16 bits if published so, else 8."""
    family: str = ""
    """Model whose measurements also speak for this one (same shape); empty: its own name."""
    qk_norm: bool = False
    """Whether queries and keys are normalised in every layer: two more small kernels."""
    attention_parameters: float = 0.0
    """Projection weights of one attention layer where heads and widths do not give them; 0: they do."""
    attended_tokens: int = 0
    """Cached tokens that sparse attention reads for one query, however long the context; 0: all."""
    cache_fraction: float = 1.0
    """Cache entries kept per token, below 1 where attention compresses several tokens into one entry."""

    def __post_init__(self) -> None:
        """Refuse a shape no formula could use."""
        at_least_one = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "max_context")
        wrong = [name for name in at_least_one if getattr(self, name) < 1]
        if wrong:
            raise ValueError(f"{self.name}: must be at least one: {', '.join(wrong)}")
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"{self.name}: experts_per_token must lie between 1 and {self.experts}")
        if not self.experts and self.intermediate < 1:
            raise ValueError(f"{self.name}: a dense model needs an intermediate width")
        if not 0.0 < self.cache_fraction <= 1.0:
            raise ValueError(f"{self.name}: cache_fraction must lie above 0 and at most at 1")
        if not 0.0 <= self.sliding_layers_fraction <= 1.0:
            raise ValueError(f"{self.name}: sliding_layers_fraction must lie in [0, 1]")

    @property
    def moe_layers(self) -> int:
        """Layers whose feed-forward is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def measured_as(self) -> str:
        """Name under which measurements of this shape are pooled."""
        return self.family or self.name

    @property
    def is_latent(self) -> bool:
        """Whether attention stores one latent vector instead of keys and values."""
        return self.kv_lora_rank > 0

    @property
    def expert_parameters(self) -> float:
        """Parameters of one routed expert: gate, up and down projections."""
        width = self.moe_intermediate or self.intermediate
        return 3.0 * self.hidden * width if self.experts else 0.0

    @property
    def attention_parameters_per_layer(self) -> float:
        """Projection parameters of one attention layer.

        Grouped queries: ``h·d·(2·H + 2·H_kv)``. Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1):
        down and up projections of queries, the joint key-value down projection, its up projection, the output.
        """
        if self.attention_parameters:
            return self.attention_parameters
        if not self.is_latent:
            query_and_output = 2.0 * self.hidden * self.heads * self.head_dim
            if self.q_lora_rank:  # low-rank queries and output over stored keys
                query_and_output = 2.0 * self.q_lora_rank * (self.hidden + self.heads * self.head_dim)
            return query_and_output + 2.0 * self.hidden * self.kv_heads * self.head_dim
        query_dim = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        query = self.q_lora_rank * (self.hidden + query_dim) if self.q_lora_rank else self.hidden * query_dim
        down = self.hidden * (self.kv_lora_rank + self.qk_rope_head_dim)
        up = self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)
        return float(query + down + up + self.heads * self.v_head_dim * self.hidden)

    @property
    def shared_parameters(self) -> float:
        """Transformer parameters every token passes through: attention, dense feed-forward, shared experts, head.

        The input embedding is left out: a step reads one row of it per token.
        """
        dense_layers = self.dense_layers if self.experts else self.layers
        feed_forward = dense_layers * 3.0 * self.hidden * self.intermediate
        feed_forward += self.moe_layers * (self.shared_experts * self.expert_parameters + self.hidden * self.experts)
        head = float(self.vocab * self.hidden)
        return self.layers * self.attention_parameters_per_layer + feed_forward + head

    @property
    def routed_parameters(self) -> float:
        """Parameters of all routed experts."""
        return self.moe_layers * self.experts * self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """Parameters one token is multiplied with."""
        return self.shared_parameters + self.moe_layers * self.experts_per_token * self.expert_parameters

    @property
    def kv_values_per_token_per_layer(self) -> float:
        """Numbers one token leaves in the cache of one layer."""
        if self.is_latent:
            return float(self.kv_lora_rank + self.qk_rope_head_dim)
        if self.kv_heads == 1 and self.q_lora_rank:  # one shared vector serves as key and as value
            return float(self.head_dim)
        return 2.0 * self.kv_heads * self.head_dim

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """Return the bytes one token adds to the cache, before any window slides past it."""
        return self.layers * self.kv_values_per_token_per_layer * self.cache_fraction * bytes_per_value

    def divides_heads(self, tensor_parallel: int) -> bool:
        """Say whether the query heads split evenly over this many accelerators."""
        return self.heads % tensor_parallel == 0
