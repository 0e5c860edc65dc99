"""The product's own figures against its priors: none may lie outside the range that the sources give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from planner.catalog.load import load_catalog
from planner.scenario.fields import Plausible
from planner.scenario.scenario import Scenario
from tests.contracts.test_language import models

CATALOG = load_catalog()
PARTS = [part for part in CATALOG.accelerators if f"capex_allin_{part.lower()}" in CATALOG.priors]


def figures(part: str) -> dict[str, float]:
    """Return the catalogue's figures of a part by the name of the prior that bounds each."""
    entry = CATALOG.accelerator(part)
    name = part.lower()
    assert entry.accelerator_price_usd is not None
    around = (
        entry.host_usd_per_accelerator,
        entry.network_usd_per_accelerator,
        entry.storage_usd_per_accelerator,
    )
    host, *others = (fact.value if fact else 0.0 for fact in around)
    return {
        f"gpu_module_price_{name}": entry.accelerator_price_usd.value,
        "host_price_per_node": host * entry.accelerators_per_node.value,
        f"capex_allin_{name}": entry.accelerator_price_usd.value + host + sum(others),
        f"server_max_power_{name}": entry.node_max_kw.value,
    }


@pytest.mark.parametrize("part", PARTS)
def test_a_parts_figures_lie_within_their_priors(part: str) -> None:
    for prior, figure in figures(part).items():
        known = CATALOG.prior(prior)
        assert known.low <= figure <= known.high, (prior, figure)


def defaults(model: type[BaseModel]) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield a model's numeric defaults whose plausible range is a prior's, with the priors."""

    def priors_in(annotation: Any) -> Iterator[str]:
        for part in get_args(annotation):
            if isinstance(part, Plausible):
                yield from part.priors
            yield from priors_in(part)

    for name, field in model.model_fields.items():
        known = [
            prior for mark in field.metadata if isinstance(mark, Plausible) for prior in mark.priors
        ]
        known += priors_in(field.annotation)
        if (
            known and isinstance(field.default, int | float) and field.default
        ):  # zero switches something off
            yield f"{model.__name__}.{name}", float(field.default), tuple(known)


DEFAULTS = [found for model in models(Scenario) for found in defaults(model)]


@pytest.mark.parametrize(
    ("path", "default", "priors"), DEFAULTS, ids=[found[0] for found in DEFAULTS]
)
def test_a_default_lies_within_the_priors_it_is_held_to(
    path: str, default: float, priors: tuple[str, ...]
) -> None:
    known = [CATALOG.prior(prior) for prior in priors]
    assert min(prior.low for prior in known) <= default <= max(prior.high for prior in known), path


@pytest.mark.parametrize("part", ["h100", "h200", "b200", "b300"])
def test_rents_fall_with_commitment(part: str) -> None:
    """The longer one is bound the less an hour costs; what may be taken back costs less than what may not."""
    rents = {span: CATALOG.prior(f"rent_{span}_{part}").base for span in ("3yr", "1yr", "ondemand")}
    assert rents["3yr"] < rents["1yr"] < rents["ondemand"]
    if f"rent_spot_{part}" in CATALOG.priors:
        assert CATALOG.prior(f"rent_spot_{part}").base < rents["ondemand"]
