"""Parts and models for tests, with the figures of their datasheets and configurations."""

from __future__ import annotations

from planner.catalog.load import formats_of, load_catalog
from planner.physics.model_on_part import AcceleratorSpec, ModelShape
from planner.units import GIB

FORMATS = formats_of(load_catalog())
H200 = AcceleratorSpec(
    name="H200", vendor="nvidia", hbm_bytes=141 * GIB, hbm_bytes_per_s=4.8e12,
    dense_flops_per_s={"bf16": 989e12, "fp8": 1979e12}, formats=FORMATS, tdp_w=700,
    link_bytes_per_s=450e9, scaleup_accelerators=8, switched=True, accelerators_per_node=8,
)  # fmt: skip
B200 = AcceleratorSpec(
    name="B200", vendor="nvidia", hbm_bytes=180 * GIB, hbm_bytes_per_s=8e12,
    dense_flops_per_s={"bf16": 2250e12, "fp8": 4500e12, "fp4": 9000e12},
    formats=FORMATS, tdp_w=1000,
    link_bytes_per_s=900e9, scaleup_accelerators=8, switched=True, accelerators_per_node=8,
)  # fmt: skip
MI300X = AcceleratorSpec(
    name="MI300X", vendor="amd", hbm_bytes=192 * GIB, hbm_bytes_per_s=5.3e12,
    dense_flops_per_s={"bf16": 1307e12, "fp8": 2615e12}, formats=FORMATS, tdp_w=750,
    link_bytes_per_s=448e9, scaleup_accelerators=8, switched=False, accelerators_per_node=8,
)  # fmt: skip
LLAMA_70B = ModelShape(
    name="llama-3.1-70b",
    layers=80,
    hidden_size=8192,
    intermediate_size=28672,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocabulary=128256,
)
LLAMA_8B = ModelShape(
    name="llama-3.1-8b",
    layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocabulary=128256,
)
LLAMA_405B = ModelShape(
    name="llama-3.1-405b", layers=126, hidden_size=16384, intermediate_size=53248, heads=128, kv_heads=8, head_dim=128,
    vocabulary=128256,
)  # fmt: skip
MIXTRAL = ModelShape(
    name="mixtral-8x7b", layers=32, hidden_size=4096, intermediate_size=14336, heads=32, kv_heads=8, head_dim=128,
    vocabulary=32000, experts=8, experts_per_token=2,
)  # fmt: skip
GPT_OSS = ModelShape(
    name="gpt-oss-120b", layers=36, hidden_size=2880, intermediate_size=2880, heads=64, kv_heads=8, head_dim=64,
    vocabulary=201088, experts=128, experts_per_token=4, sliding_window_tokens=128, sliding_layers_fraction=0.5,
    native_precision="fp4",
)  # fmt: skip
DEEPSEEK = ModelShape(
    name="deepseek-v3", layers=61, hidden_size=7168, intermediate_size=18432, heads=128, kv_heads=128, head_dim=128,
    vocabulary=129280, experts=256, experts_per_token=8, expert_intermediate_size=2048, shared_experts=1,
    dense_layers=3, q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
    native_precision="fp8",
)  # fmt: skip
