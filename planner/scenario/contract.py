"""Contracts: how a cluster's machines are had without buying them."""

from typing import Annotated, Literal

from pydantic import Field

from planner.scenario.fields import BelowOne, Fraction, NonNegative, Plausible, Positive
from planner.validation import Strict

Rent = Annotated[Positive, Plausible.prior("rent_spot_h200", "rent_ondemand_b200")]
YearlyChange = Annotated[
    float,
    Field(gt=-1, le=10),
    Plausible(-0.75, 0.9, "three-year rents rose by 21 to 81% from August 2025 to July 2026"),
]
TermMonths = Annotated[int, Field(ge=1, le=120), Plausible(1, 60, "one month to five years")]


class Reserved(Strict):
    """Machines at a provider's, taken for a term and paid whether used or not; it pays power, space and repairs."""

    kind: Literal["reserved"]
    """Reserved capacity, take or pay."""
    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour if signed on the first day. Default: the catalogue's for the part and a
    term of 12 or 36 months, where it has one (priors rent_1yr_h200, rent_3yr_h200 and so on)."""
    term_months: TermMonths = 36
    """Months it is fixed for; then it is renewed at the rent of that day. Default 36: the longest usual."""
    change_per_year: YearlyChange = 0.0
    """Yearly change of the rent that is asked: it counts when signing and renewing. Default 0: today's."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 1, "a share")] = 1.0
    """Share of the rent to the term's end that is due when the cluster is retired before. Default 1: take or pay."""


class OperatingLease(Strict):
    """Machines leased for a term and kept at the own site: rent in place of capital, all running costs one's own."""

    kind: Literal["operating-lease"]
    """Operating lease, in which the lessee pays all running costs."""
    usd_per_accelerator_h: Rent
    """Lease rate of one accelerator, host and network included, for an hour if signed on the first day."""
    term_months: TermMonths = 36
    """Months it is fixed for; then it is renewed at the rate of that day. Default 36: 36 to 60 are offered."""
    change_per_year: YearlyChange = 0.0
    """Yearly change of the rate that is asked: it counts when signing and renewing. Default 0: today's."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 1, "a share")] = 1.0
    """Share of the rate to the term's end that is due when the cluster is retired before. Default 1: no way out."""


class FinanceLease(Strict):
    """Machines leased like a loan on their price: on the books as an asset and a debt, all running costs one's own.

    The monthly payment follows from the cluster's prices, the rate and the buy-out.
    """

    kind: Literal["finance-lease"]
    """Finance lease, paid at the end of each of its months from the day the cluster comes online."""
    rate_per_year: Annotated[float, Field(ge=0, le=1), Plausible.prior("lease_rate")]
    """Nominal yearly rate implicit in the payments, a twelfth of it charged a month."""
    term_months: TermMonths = 36
    """Months of the lease. Default 36: 36 to 60 are offered."""
    at_end: Literal["buy", "return"] = "buy"
    """Whether the machines are bought out when the term ends and serve on, or go back and serve no longer. Default
    buy: a bargain price makes it sure."""
    buy_out_fraction: Annotated[BelowOne, Plausible(0, 0.5, "assumption")] = 0.1
    """Price of the buy-out as a share of what the machines cost; the payments cover the rest. Where they go back it is
    what the lessor counts on. Default 0.1: one dollar or 10% are offered."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 0.2, "assumption")] = 0.0
    """Share of what is still owed that leaving before the term's end (retire) costs besides paying it off; machines
    that would be bought out are sold then, others go back. Default 0: no public figure was found."""


class OnDemand(Strict):
    """Machines at a provider's, paid by the hour in which they work; it pays power, space and repairs."""

    kind: Literal["on-demand"]
    """Rented by the hour."""
    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour on the first day. Default: the catalogue's for the part (priors
    rent_ondemand_h200 and so on)."""
    change_per_year: YearlyChange = 0.0
    """Yearly change of the rent, month by month. Default 0: today's."""


class Spot(Strict):
    """Machines on demand that the provider may take back, for a lower rent."""

    kind: Literal["spot"]
    """Rented by the hour until someone pays more."""
    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour on the first day. Default: the catalogue's for the part (priors
    rent_spot_h200 and so on)."""
    change_per_year: YearlyChange = 0.0
    """Yearly change of the rent, month by month. Default 0: today's."""
    interruptions_per_year: Annotated[NonNegative, Plausible(0.5, 2000, "assumption: twice a year to five a day")]
    """Times a year that a node is taken back; no public figure was found, so it has to be stated."""
    interruption_h: Annotated[Positive, Plausible(0.05, 720, "assumption: minutes to a month")] = 4.0
    """Mean hours until another takes its place. Default 4: assumption."""


Contract = Annotated[Reserved | OperatingLease | FinanceLease | OnDemand | Spot, Field(discriminator="kind")]
ON_SITE = (OperatingLease, FinanceLease)
"""Contracts of machines that stand at the own site."""
