"""Tables of the validation page that test the planner itself: lower ends, own rows, and labelled runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from docs.generate.lower_ends import LowerEnd, kept_shares
from docs.generate.own_rows import Pair, errors_of
from planner.calibration.benchmarks import DISAGGREGATED_SCENARIO
from planner.physics.coefficients import DENSE, MIXTURE

LOWER_END_HEADER = (
    "runs of",
    "runs",
    "capacity at most measured",
    "low end, if proportional to speed",
    "low end as stated",
)
OWN_ROWS_HEADER = (
    "vendor and models",
    "campaigns",
    "rows",
    "without own rows, mean",
    "median",
    "with five, mean",
    "median",
    "within 90%",
)
LABELLED_HEADER = ("runs of", "settings", "mean", "median", "bias", "within 90%")


def lower_end_rows(ends: Sequence[LowerEnd]) -> list[tuple[str, ...]]:
    """Return which share of runs served no less than capacity and its lower ends, in all and by vendor and class."""
    by_class: dict[str, list[LowerEnd]] = {"all": list(ends)}
    for one in sorted(ends):
        label = f"{one.vendor} {MIXTURE if one.is_mixture else DENSE}"
        by_class.setdefault(label, []).append(one)
    rows = []
    for label, own in by_class.items():
        shares = (f"{share:.0%}" for share in kept_shares(own))
        rows.append((label, str(len(own)), *shares))
    return rows


def own_rows_rows(pairs: Sequence[Pair], draws: int) -> list[tuple[str, ...]]:
    """Return errors without and with five own rows, by vendor and class of models."""
    by_class: dict[str, list[Pair]] = {}
    for pair in pairs:
        kind = MIXTURE if pair.is_mixture else DENSE
        for label in (pair.vendor, f"{pair.vendor} {kind}"):
            by_class.setdefault(label, []).append(pair)
    rows = []
    for label, own in sorted(by_class.items()):
        errors = errors_of(own)
        shares = (
            errors.mean_before,
            errors.median_before,
            errors.mean_after,
            errors.median_after,
        )
        rows.append(
            (
                label,
                str(len(own) // draws),
                str(errors.rows),
                *(f"{share:.1%}" for share in shares),
                f"{errors.covered:.0%}",
            )
        )
    return rows


def labelled_rows(checked: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return errors of time per token of labelled runs that the fit never saw, by accelerator, engine and pools."""
    rows: list[tuple[str, ...]] = []
    times = checked[(checked["quantity"] == "tpot_ms") & checked["predicted"].notna()]
    is_apart = times["scenario"] == DISAGGREGATED_SCENARIO
    for place, of_place in (("one pool", times[~is_apart]), ("separate pools", times[is_apart])):
        by_stack = of_place["accelerator"] + " " + of_place["engine"]
        stacks = [(str(name), own) for name, own in of_place.groupby(by_stack, sort=True)]
        cells = [(f"**{place}**", of_place), *((f"{name}, {place}", own) for name, own in stacks)]
        for label, own in cells:
            error = own["error_fraction"].to_numpy()
            inside = own["measured"].between(own["low"], own["high"])
            rows.append(
                (
                    label,
                    str(len(own)),
                    f"{np.abs(error).mean():.1%}",
                    f"{np.median(np.abs(error)):.1%}",
                    f"{np.median(error):+.1%}",
                    f"{inside.mean():.0%}",
                )
            )
    return rows
