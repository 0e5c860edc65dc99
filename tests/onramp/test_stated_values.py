"""Values written into a scenario's text: what is read back, and which comments stay."""

from __future__ import annotations

from typing import Any

import pytest

from planner.onramp.stated_values import written
from planner.yaml_io import parse_document

TEXT = """\
# a head
name: x
workloads:
  chat:  # fitted
    requests_per_s: 2.7  # 90% between 2.6 and 2.8
    lengths:
      input:
        quantiles: {0.5: 100, 0.9: 400}  # counted
      output: {mean: 60, p95: 200}
clusters:
  b200:
    order: {placed: 2026-02-01, lead_weeks: 20}

site:
  tariff: us-ohio          # listed
  # below the last
"""


@pytest.mark.parametrize(
    ("layer", "lines"),
    [
        ({"site": {"tariff": "eu"}}, ["  tariff: eu  # as given", "  # below the last"]),
        ({"site": {"pue_ratio": 1.2}}, ["  pue_ratio: 1.2  # as given", "  # below the last"]),
        (
            {"clusters": {"b200": {"order": {"lead_weeks": 26, "deliveries": 2}}}},
            ["    order: {placed: 2026-02-01, lead_weeks: 26, deliveries: 2}"],
        ),
        (
            {"workloads": {"chat": {"lengths": {"input": {"quantiles": None, "mean": 90}}}}},
            ["      input: {mean: 90}  # as given"],
        ),
        (
            {"workloads": {"chat": {"lengths": {"output": {"p95": None}}}}},
            ["      output: {mean: 60}"],
        ),
        ({"workloads": {"chat": {"lengths": 5}}}, ["    lengths: 5  # as given"]),
        ({"slo_target": {"confidence": 0.8}}, ["slo_target: {confidence: 0.8}  # as given"]),
        (
            {"futures": {"busy": {"set": {"*.x": 2, "workloads.*.y": "×2"}}}},
            ['futures: {busy: {set: {"*.x": 2, workloads.*.y: "×2"}}}  # as given'],
        ),
        ({"finance": None}, ["  requests_per_s: 2.7  # 90% between 2.6 and 2.8"]),
    ],
)  # fmt: skip
def test_a_value_stands_in_its_place_and_the_rest_stays(
    layer: dict[str, Any], lines: list[str]
) -> None:
    text = written(TEXT, layer)
    for line in lines:
        assert line in text
    assert laid_over(parse_document(TEXT, "x").content, layer) == parse_document(text, "x").content
    untouched = set(TEXT.splitlines()) & {"# a head", "  # below the last", "  chat:  # fitted"}
    assert untouched <= set(text.splitlines())


def laid_over(base: Any, layer: Any) -> Any:
    """Return plain data with a layer over it, nulls taken out: what the text has to say."""
    if not isinstance(layer, dict):
        return layer
    mapping = dict(base) if isinstance(base, dict) else {}
    for key, value in layer.items():
        if value is None:
            mapping.pop(key, None)
        else:
            mapping[key] = laid_over(mapping.get(key), value)
    return mapping
