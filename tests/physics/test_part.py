from __future__ import annotations

from tests.physics.cases import B200, H200


def test_a_part_knows_the_precisions_it_has() -> None:
    assert B200.has_precision("fp4")
    assert not H200.has_precision("fp4")
