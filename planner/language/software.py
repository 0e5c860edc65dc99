"""Software: releases, regressions, wrong numerics, bring-up of new models, and the engineers who deal with them."""

import datetime
from typing import Annotated, Literal

from pydantic import Field, Tag

from planner.language.fields import NonNegative, NumberOrRate, Plausible, Positive, Price, Rate
from planner.validation import Strict

Engineers = Annotated[
    Annotated[int, Field(ge=0, le=100_000), Plausible(0, 2000, "assumption"), Tag("count")] | Rate, NumberOrRate
]


class SoftwareStep(Strict):
    """One technique, kernel or policy that changes speed from a release on."""

    date: datetime.date
    """Day of the release; a staged policy takes it eight weeks later, a pinned one never."""
    gain_fraction: Annotated[float, Field(gt=-1, le=100), Plausible(-0.6, 3, "assumption")]
    """Throughput gained; negative is a loss. Never past the part's roofline."""
    vendor: str | None = None
    """Whose accelerators it concerns. Default: all."""
    engine: str | None = None
    """Under which engine. Default: all."""
    model: str | None = None
    """On which model. Default: all."""


class Software(Strict):
    """How software is upgraded and mended."""

    incident_multiplier: Annotated[NonNegative, Plausible(0.05, 20, "assumption")] = 1.0
    """Factor on the rate of every incident; 0 switches them off. Default 1: the catalogue's rates."""
    vendor_incident_multiplier: dict[str, Annotated[NonNegative, Plausible(0.05, 20, "assumption")]] = Field(
        default_factory=dict
    )
    """Further factor on incidents by vendor, e.g. {amd: 0.5}. Default: what the catalogue's vendors say."""
    release_gain_multiplier: Annotated[NonNegative, Plausible(0.05, 5, "assumption")] = 1.0
    """Factor on what software has still to gain and on how releases differ; 0 freezes throughput. Default 1: the
    catalogue's ceilings."""
    vendor_maturing_multiplier: dict[str, Annotated[NonNegative, Plausible(0.05, 5, "assumption")]] = Field(
        default_factory=dict
    )
    """Further factor on the same by vendor, e.g. {amd: 2}. Default: what the catalogue's vendors say."""
    steps: tuple[SoftwareStep, ...] = ()
    """Gains or losses that come on a day, beside the catalogue's course. Default: none."""
    upgrade_policy: Literal["latest", "staged", "pinned"] = "staged"
    """When releases are taken: latest at once; staged after eight weeks, meeting half the regressions; pinned never,
    meeting a quarter of them, since models still change. Default staged: what careful operators do (assumption)."""
    wrong_numerics_response: Literal["roll-back", "widen"] = "roll-back"
    """Serve the release before, or in the next wider precision, until fixed. Default roll-back: it is faster."""
    engineers: (
        Annotated[
            Annotated[NonNegative, Plausible(0.1, 2000, "assumption"), Tag("count")]
            | Annotated[dict[str, Engineers], Tag("rate")],
            NumberOrRate,
        ]
        | None
    ) = None
    """Engineers who mend incidents and bring models up, all paid for. A number is one team for every stack, in whole
    people; by vendor each has its own: {amd: 3, nvidia: {per_1000_accelerators: 0.5}}. The team works on one thing at a
    time, together. Default: by vendor, as engineers_per_800 says."""
    engineers_per_800: dict[str, Annotated[NonNegative, Plausible(0.02, 40, "assumption")]] = Field(
        default_factory=dict
    )
    """Engineers per 800 accelerators on site, to the nearest whole, by vendor, e.g. {amd: 2}; engineers goes before it.
    Default: what the catalogue's vendors say."""
    engineer_usd_per_year: Annotated[Price, Plausible(30000, 1500000, "assumption")] = 280_000.0
    """Fully loaded cost of one engineer. Default 280,000: the source articles' figure."""
    support_contract: Literal["none", "standard", "premium"] = "standard"
    """Vendor support; a fix takes none 1.5, standard 1, premium 0.6 of the usual time. Default standard: assumption."""
    support_usd_per_accelerator_year: Annotated[Price, Plausible(10, 10000, "assumption")] | None = None
    """What the contract costs. Default: none 0, standard 300, premium 900 (assumption)."""
    fix_engineer_h: Annotated[Positive, Plausible(0.5, 2000, "assumption")] = 40.0
    """Engineer's hours that an incident of middling difficulty takes, at 40 a week; a harder one takes as many times
    more as the vendor's fix does. Whoever is done first, they or the vendor, ends it. Default 40: a working week
    (assumption)."""
    hang_loss_fraction: Annotated[float, Field(ge=0, le=1), Plausible(0, 0.6, "assumption")] = 0.05
    """Throughput lost to resets while a hang, or another incident that resets nodes, is unfixed, where the catalogue
    states no loss of its own. Default 0.05: assumption."""
