"""Small benchmark tables for tests."""

from __future__ import annotations

from pathlib import Path

from planner.calibration.columns import COLUMNS

ROW = {
    "model": "llama-3.1-70b", "accelerator": "H200", "engine": "vllm", "precision": "fp8", "tp": "1", "ep": "1",
    "input_tokens": "1024", "output_tokens": "1024", "scenario": "Concurrency", "concurrency": "16",
    "slo_ttft_ms": "", "slo_tpot_ms": "", "ttft_ms": "315.761", "tpot_ms": "24.7244",
    "output_tokens_per_s_per_gpu": "",
}  # fmt: skip


def write_table(path: Path, *changes: dict[str, str]) -> Path:
    """Write a table of the row above, once per set of changes."""
    columns = [
        *COLUMNS,
        *dict.fromkeys(name for change in changes for name in change if name not in COLUMNS),
    ]
    lines = [",".join(columns)]
    lines += [
        ",".join({**ROW, **change}.get(column, "") for column in columns) for change in changes
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
