"""Names and number ranges shared by the parts of a scenario."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema

from planner.catalog.load import Catalog, load_catalog
from planner.validation import Strict

Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0, le=1e12)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Price = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
NodeCount = Annotated[int, Field(ge=1, le=100_000)]
CrewCount = Annotated[int, Field(ge=1, le=10_000)]
YearlyChange = Annotated[float, Field(gt=-1, le=10)]
Weeks = Annotated[float, Field(ge=0, le=520)]
"""Up to ten years."""
LifeMonths = Annotated[int, Field(ge=1, le=240)]
"""Up to twenty years, longer than any machine is kept."""

PRIOR_STRETCH = 3.0
"""How far beyond a prior's low and high (P10 and P90) a figure is still taken as meant."""


@dataclass(frozen=True, slots=True)
class Plausible:
    """The plausible range of a field, with its source; a number outside it is probably a mistake.

    What a field *allows* is wider, since a plan may be meant to be odd. Zero is always plausible where the field
    allows it: it switches something off, and no slip of unit leads to it.
    """

    low: float
    high: float
    source: str = "assumption"
    """Where the range comes from."""
    priors: tuple[str, ...] = ()
    """Priors of the catalogue that the range comes from, in place of ``low`` and ``high``."""

    @classmethod
    def prior(cls, *names: str) -> "Plausible":
        """Return a range from the lowest P10 over 3 to the highest P90 times 3 of some priors."""
        listed = " and ".join(f"prior {name}" for name in names)
        return cls(0.0, 0.0, f"from a third of the P10 to three times the P90 of {listed}", names)

    def range(self, catalog: Catalog) -> tuple[float, float]:
        """Return the lowest and the highest plausible number."""
        # Priors are read late: a user's overlay may change them.
        if not self.priors:
            return self.low, self.high
        priors = [catalog.prior(name) for name in self.priors]
        low = min(prior.low for prior in priors) / PRIOR_STRETCH
        high = max(prior.high for prior in priors) * PRIOR_STRETCH
        # Three digits, since a third of a round figure is not round.
        return float(f"{low:.3g}"), high

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Write the range into the JSON schema, for editors and the reference page."""
        low, high = self.range(load_catalog())
        plausible = {"low": low, "high": high, "source": self.source}
        return {**handler(core), "x-plausible": plausible}


SitePower = Annotated[
    Positive, Plausible(10, 2000000.0, "from one node to the largest campuses announced, 2 GW")
]

# Letters of any script, but no sign that a shell, a spreadsheet or a file system obeys.
_NAME = re.compile(r"[^\W_][\w.-]{0,63}\Z")


RESERVED = {"fleet": "the whole in every table", "site": "what belongs to no cluster in the ledger"}


def _check_name(name: str) -> str:
    """Return a name that is safe as a file name, a spreadsheet cell and a dotted path, or raise an error."""
    if not _NAME.match(name) or ".." in name:
        raise ValueError(
            "a name is 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit"
        )
    return name


def _no_dot(name: str) -> str:
    """Return a workload or cluster name without a dot, which would split in ``--set`` paths, or raise an error."""
    if "." in name:
        raise ValueError("a workload or cluster name has no '.', since dots separate keys in --set")
    if name in RESERVED:
        raise ValueError(f"{name!r} is the name of {RESERVED[name]}; choose another")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
EntryName = Annotated[Name, AfterValidator(_no_dot)]


class PerThousand(Strict):
    """A whole number of people or spare parts that grows with the accelerators on site."""

    per_1000_accelerators: Annotated[NonNegative, Plausible(0.02, 50)]
    """Engineers, crews or spares for every thousand accelerators."""
    rounding: Literal["nearest", "up", "down"] = "nearest"
    """How a number that is not whole is rounded. Default nearest: a half or more is rounded up."""


def _shape(stated: object) -> str:
    """Return whether a number or a rate was written, so that errors refer to the right one."""
    # By form, not by trial: a wrong number is then no wrong rate as well.
    if isinstance(stated, dict | BaseModel):
        return "rate"
    return "count"


Rate = Annotated[PerThousand, Tag("rate")]
NumberOrRate = Discriminator(_shape)
"""Marks a union of a number, tagged ``count``, and a :data:`Rate`."""


class Spread(Strict):
    """A triangular distribution: lowest, most likely, highest."""

    low: Annotated[float, Field(ge=0, le=1e6), Plausible(0, 104)]
    """Lowest value, in the unit of its field (slip_weeks: weeks)."""
    base: Annotated[float, Field(ge=0, le=1e6), Plausible(0, 104)]
    """Most likely value, in the unit of its field (slip_weeks: weeks)."""
    high: Annotated[float, Field(ge=0, le=1e6), Plausible(0, 104)]
    """Highest value, in the unit of its field (slip_weeks: weeks)."""

    @model_validator(mode="after")
    def _ordered(self) -> "Spread":
        if not self.low <= self.base <= self.high:
            raise ValueError(
                f"low, base, high must be in order, not {self.low:g}, {self.base:g}, {self.high:g}"
            )
        return self
