"""Columns of a benchmark table."""

NAME_COLUMNS = ("model", "accelerator", "engine", "precision")
MEASURED_COLUMNS = ("ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu")
LENGTH_COLUMNS = ("input_tokens", "output_tokens")
LOAD_COLUMNS = ("concurrency", "slo_ttft_ms", "slo_tpot_ms")
COLUMNS = (
    *NAME_COLUMNS,
    "tp",
    "ep",
    *LENGTH_COLUMNS,
    "scenario",
    *LOAD_COLUMNS,
    *MEASURED_COLUMNS,
)
HIT_COLUMN = "prefix_hit_fraction"
"""Optional: share of each prompt found in the prefix cache."""
DRAFT_COLUMN = "speculative"
"""Optional: whether tokens are drafted, by which method and how many; ``mtp``, ``eagle3 k=2``, ``3``, ``none``."""
OPTIONAL_COLUMNS = (
    HIT_COLUMN,
    "attention_dp",
    "max_num_seqs",
    "prefill_tp",
    "prefill_workers",
    "decode_workers",
)
"""Optional numbers: that share, groups of attention in data parallel, sequences an engine admits to a group, and of
separate pools the accelerators of a prefill worker and the number of workers; tp, ep are then a decode worker's."""
