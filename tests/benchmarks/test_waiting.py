from __future__ import annotations

from tests.benchmarks.memory import peak_of
from tests.benchmarks.waiting import REFERENCE, move_ms


def test_commands_and_moves_are_timed() -> None:
    peak = peak_of("validate", str(REFERENCE))
    assert 0.01 < peak.cpu_s < 60.0
    assert peak.cpu_s < peak.wall_s < 600.0
    assert 10.0 < peak.largest_mb <= peak.all_mb < 1000.0
    assert 1.0 < move_ms("clusters.h200.nodes", [49]) < 60_000.0
