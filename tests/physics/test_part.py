from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from tests.physics.cases import B200, H200


def test_a_part_knows_the_precisions_it_has() -> None:
    assert B200.has_precision("fp4")
    assert not H200.has_precision("fp4")


@pytest.mark.parametrize("field", ["hbm_bytes", "hbm_bytes_per_s", "tdp_w", "link_bytes_per_s", "scaleup_accelerators"])
@pytest.mark.parametrize("number", [0, -1, float("nan")])
def test_numbers_that_are_not_above_zero_are_refused(field: str, number: float) -> None:
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(H200, **cast("Any", {field: number}))


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="precisions are bf16, fp8, fp4, int8, int4 with bf16 always present"):
        dataclasses.replace(H200, dense_flops_per_s={"bf16": 1e15, "fp6": 2e15})


def test_a_part_without_bf16_is_refused() -> None:
    with pytest.raises(ValueError, match="bf16 always present"):
        dataclasses.replace(H200, dense_flops_per_s={"fp8": 1e15})
