"""Finance: depreciation, cost of capital, people, tax, and market prices for comparison."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from planner.scenario.cluster import (
    BookLife,
    HourlyRental,
    Residual,
    TokenPrice,
    TokenPriceChange,
)
from planner.scenario.fields import (
    BelowOne,
    Count,
    Fraction,
    LifeMonths,
    NonNegative,
    Plausible,
    Positive,
    Price,
    YearlyChange,
)
from planner.validation import Strict


class BurstRental(HourlyRental):
    """Instances rented on demand for work that would otherwise be shed, on the same terms as any rental by the hour."""

    accelerator: str = "H200"
    """Accelerator whose rental terms in the catalogue are used. An instance serves as much as the plan's best
    accelerator. Default H200: more offers are known for it than for others."""
    most_accelerators: Annotated[Count, Plausible(1, 1000000, "any number")] = 1_000_000
    """Highest number of accelerators rented at once. Default 1,000,000: as many as are needed."""
    accelerators_per_instance: Annotated[
        Count, Plausible(1, 72, "from one accelerator to a rack of 72")
    ] = 8
    """Accelerators in the smallest unit for rent. Default 8: an HGX node, as rented by CoreWeave and AWS (2026-09)."""

    @model_validator(mode="after")
    def _one_is_to_be_had(self) -> "BurstRental":
        # Whole instances are rented: a ceiling below one means none, which is not what is written.
        if self.most_accelerators < self.accelerators_per_instance:
            size = self.accelerators_per_instance
            raise ValueError(
                f"most_accelerators, {self.most_accelerators}, is less than one instance of {size}"
            )
        return self


class Tax(Strict):
    """Income tax, with tax depreciation separate from book depreciation: five-year MACRS, half-year convention."""

    rate_fraction: Annotated[
        BelowOne, Plausible(0.05, 0.5, "prior tax_rate has 0.21 to 0.27; countries have 9 to 35%")
    ]
    """Combined income tax rate; 0.25 is the US federal rate of 21% together with the tax of a state."""
    bonus_fraction: Annotated[Fraction, Plausible(0, 1, "any share")] = 1.0
    """Share of a purchase that is deducted from taxable income at once. Default 1: US law for purchases after 19
    January 2025."""
    losses: Literal["offset", "carry-forward"] = "offset"
    """How a loss reduces tax: at once, against other income of the owner (offset), or later, against profits of this
    plan (carry-forward). Default offset: the plan belongs to a large firm (assumption)."""
    future_profit: Literal["uncertain", "probable"] = "uncertain"
    """Whether the plan will probably have profits against which losses carried forward can be used. Only then are these
    losses an asset in the balance sheet, beyond the part that offsets deferred tax owed. Default uncertain: a new plan
    has no history of profit."""


class Loan(Strict):
    """A loan on purchases: drawn on delivery, repaid monthly."""

    share_of_purchases_fraction: Annotated[Fraction, Plausible.prior("loan_to_value")]
    """Share of each purchase that is lent. Lenders offer 0.5 to 0.8 on new accelerators."""
    rate_per_year: Annotated[Fraction, Plausible.prior("loan_rate")]
    """Nominal yearly rate; one twelfth of it is charged each month."""
    term_months: Annotated[LifeMonths, Plausible(12, 84, "five years for each draw are usual")] = 60
    """Months from a draw to its last payment, including grace. Default 60: five years, as in filings."""
    grace_months: Annotated[int, Field(ge=0, le=239), Plausible(0, 24)] = 0
    """Months after a draw in which only interest is paid. Default 0: repayment begins at once."""
    amortisation: Literal["annuity", "straight", "bullet"] = "annuity"
    """How the loan is repaid: equal payments of interest and principal (annuity), equal repayments of principal
    (straight), or all principal at the end (bullet). Default annuity: the usual equipment loan (assumption)."""
    balloon_fraction: Annotated[BelowOne, Plausible(0, 0.5)] = 0.0
    """Share of the amount drawn that is due with the last payment. Default 0: no balloon."""
    fee_fraction: Annotated[BelowOne, Plausible(0, 0.05)] = 0.0
    """Share of the amount drawn that the lender deducts at once as a fee. The fee is an expense spread over the loan's
    life. Default 0: no public terms state a fee."""
    undrawn_fee_per_year: Annotated[BelowOne, Plausible.prior("loan_undrawn_fee")] = 0.0
    """Yearly fee, from the first day, on the amount that the plan has not yet drawn. Default 0: no such fee; IREN pays
    0.004."""
    least_cover_ratio: Annotated[Positive, Plausible(1, 2)] | None = None
    """Covenant: lowest allowed ratio of operating cash flow before interest to debt service in a fiscal quarter. A
    lower ratio causes a warning. Default: no covenant; IREN agreed 1.05 for take-or-pay revenue from an
    investment-grade buyer."""
    ltv_cap_fraction: Annotated[Positive, Plausible(0.3, 1.2)] | None = None
    """Covenant: highest allowed debt (the borrowing base), as a share of what the machines bought would fetch in an
    orderly sale. A higher debt causes a warning. Default: no covenant; lenders' limits in the second year are 0.4 to
    0.7."""
    auction_fraction: Annotated[Fraction, Plausible.prior("liquidation_auction")] = 0.65
    """Proceeds of an auction within 30 days, as a share of the proceeds of an orderly sale. Default 0.65: the factor
    that appraisers use."""

    @model_validator(mode="after")
    def _repaid_within_its_term(self) -> "Loan":
        # Repayment needs one month at least, or the annuity would divide by none.
        if self.grace_months >= self.term_months:
            raise ValueError(
                f"{self.grace_months} months of grace leave none of {self.term_months} to pay it back in"
            )
        return self


class Finance(Strict):
    """Depreciation, cost of capital, tax and prices of a plan."""

    currency: Literal["USD"] = "USD"
    """Currency of every price. Default USD: no other currency is supported; convert other prices at a rate of your
    own."""
    fiscal_year_start_month: Annotated[
        int, Field(ge=1, le=12), Plausible(1, 12, "a month of the year")
    ] = 1
    """Month in which the fiscal years of the statements begin. Default 1: the calendar year."""
    opening_cash_usd: Annotated[NonNegative, Plausible(1000, 1e11)] = 0.0
    """Cash on the first day, in the balance sheet. Default 0: the owner pays as bills come."""
    books: Literal["us-gaap", "ifrs"] = "us-gaap"
    """Accounting standard of the statements. Of all measures, only P&L cost depends on it. Default us-gaap: operating
    leases stay one even cost, and tax follows US law."""
    borrowing_rate_per_year: Annotated[Fraction, Plausible.prior("loan_rate")] | None = None
    """Nominal yearly rate that values leases of rented machines on the balance sheet. Default: the loan's rate, or
    discount_rate_per_year without a loan."""
    receivable_days: Annotated[float, Field(ge=0, le=365), Plausible(0, 120)] = 0.0
    """Days from sale to payment by customers. Default 0: customers pay at the time of sale (cards, credits)."""
    payable_days: Annotated[float, Field(ge=0, le=365), Plausible(0, 120)] = 0.0
    """Days after which running costs are paid; people and rent of machines are paid at once. Default 0: all are paid at
    once."""
    depreciation_months: BookLife = 36
    """Book life (depreciation period) in months; 48, 60 and 72 are common. Default 36: the default horizon, three
    years."""
    depreciation_method: Literal["straight-line", "declining-balance"] = "straight-line"
    """How the books write a purchase off. Default straight-line: published accounts use it."""
    declining_balance_ratio: Annotated[
        float, Field(gt=0, le=10), Plausible(1, 3, "tax codes have 1.25 to 2.5")
    ] = 2.0
    """Depreciation in the first month under declining balance, divided by that under straight line. Default 2: double
    declining balance."""
    residual_fraction: Residual = 0.2
    """Book value left at the end of book life, as a share of capital. It changes only the books: NPV, TCO and levelised
    cost use resale value. Default 0.2: the middle of published resale values."""
    residual_basis: Literal["stated", "vendor-prior"] = "stated"
    """Source of the residual value: residual_fraction (stated), or the cluster's resale curve at the end of book life
    (vendor-prior). Default stated: one figure for all clusters."""
    end_value: Literal["market", "none"] = "market"
    """How machines still owned on the last day are valued: at resale value, or at nothing, as if scrapped. Default
    market: what a buyer would pay, which does not depend on accounting choices."""
    resale_multiplier: Annotated[
        NonNegative, Plausible.prior("resale_multiplier_amd", "resale_multiplier")
    ] = 1.0
    """Factor on every resale curve, for retired machines and for the end value. Default 1: the catalogue's curves as
    they are (a study may draw the factor from the prior resale_multiplier)."""
    selling_cost_fraction: Annotated[BelowOne, Plausible(0, 0.3)] = 0.0
    """Cost of selling used hardware (broker, wiping, freight), as a share of its selling price. Default 0: no public
    figure was found. Resale curves do not deduct this cost, so state a broker's quote."""
    discount_rate_per_year: Annotated[YearlyChange, Plausible.prior("discount_rate")] = 0.1
    """Yearly rate at which cash flows are discounted: the cost of capital. Default 0.1: GPU clouds borrow at 7 to 15%,
    by their filings."""
    discount_rate_basis: Literal["nominal", "real"] = "nominal"
    """Whether discount_rate_per_year includes inflation (nominal) or not (real); a real rate r is used as (1 + r)·(1 +
    inflation) − 1. Default nominal: lenders quote nominal rates."""
    inflation_per_year: Annotated[
        YearlyChange, Plausible(-0.02, 0.15, "assumption: wider than in most years since 1950")
    ] = 0.0
    """General inflation. Wages, space, power and carbon rise at this rate unless another is stated for them, and
    nominal dollars are converted with it into real dollars of the first day. Prices of machines, rents and tokens
    change at rates of their own. Default 0: all amounts are in dollars of the first day."""
    cash_flow_timing: Literal["mid_month", "month_end"] = "mid_month"
    """Point in the month at which amounts that accrue over the month count in NPV, IRR, payback, levelised cost and
    break-evens. Purchases and sales count on the day they happen, the end value on the last day. Default mid_month:
    energy, pay and income flow all month long."""
    operations_fraction_per_year: Annotated[NonNegative, Plausible.prior("om_pct_of_capex")] = 0.05
    """Maintenance and operations a year, as a share of capital. Default 0.05: as in published TCO models."""
    insurance_fraction_per_year: Annotated[NonNegative, Plausible.prior("insurance_pct")] = 0.0
    """Insurance a year, as a share of capital. Default 0: operations include it; stated separately, 0.005 to 0.03 is
    usual."""
    property_tax_fraction_per_year: Annotated[NonNegative, Plausible.prior("property_tax_rate")] = (
        0.0
    )
    """Property tax a year on hardware, as a share of its book value. Default 0: many states exempt such hardware."""
    operations_staff_per_1000_accelerators: Annotated[NonNegative, Plausible(0.1, 100)] = 1.0
    """Number of people who run the site, per 1,000 accelerators. Default 1: about as many as on a published campus with
    300 people."""
    operations_staff_usd_per_year: Annotated[Price, Plausible(20000, 600000)] = 150_000.0
    """Yearly cost of one person who runs the site, including benefits and overhead. Default 150,000: assumption."""
    repair_crew_usd_per_year: Annotated[Price, Plausible(20000, 2000000)] = 0.0
    """Yearly cost of each crew in reliability.repair_crews. Default 0: operations_fraction_per_year includes it."""
    licence_usd_per_accelerator_year: Annotated[
        Price, Plausible(10, 10000, "vendors list about 4,500 for their software suites")
    ] = 0.0
    """Yearly cost of software licences per accelerator. Default 0: open-source serving engines need none."""
    people_escalator_per_year: Annotated[YearlyChange, Plausible(-0.05, 0.2)] | None = None
    """Yearly rise of salaries, support and licences. Default: inflation_per_year."""
    spare_part_price_fraction: Annotated[NonNegative, Plausible(0.05, 2)] = 0.0
    """Price of a spare part for the stock, as a share of an accelerator's price. Default 0:
    operations_fraction_per_year includes it."""
    rma_usd_per_repair: Annotated[Price, Plausible(10, 20000)] = 0.0
    """Freight and handling of the spare part for each hard failure. Default 0: operations_fraction_per_year includes
    it."""
    warranty_months: Annotated[int, Field(ge=0, le=240), Plausible(6, 96)] = 36
    """Months in which the vendor replaces failed parts free of charge. Default 36: the usual server warranty
    (assumption)."""
    replacement_price_fraction: Annotated[NonNegative, Plausible(0.05, 2)] = 0.0
    """Price of a replacement part after the warranty, as a share of an accelerator's price. Default 0:
    operations_fraction_per_year includes it."""
    sla_objective_fraction: Annotated[Fraction, Plausible(0.5, 1)] = 0.99
    """Share of a month's tokens that must be served within the SLO. Default 0.99: as in API contracts (assumption)."""
    sla_credit_usd_per_million_tokens: Annotated[
        Price, Plausible(0.0005, 1000, "assumption: about the range of token prices")
    ] = 0.0
    """Credit for tokens that are late or shed beyond the allowed share (1 − sla_objective_fraction), by workload.
    Default 0: no credit is promised."""
    carbon_usd_per_tonne: Annotated[
        Price, Plausible(1, 500, "assumption: up to more than in any carbon market")
    ] = 0.0
    """Price of a tonne of operational emissions. Default 0: most US states have no carbon price."""
    carbon_change_per_year: Annotated[YearlyChange, Plausible(-0.5, 0.5)] | None = None
    """Yearly change of the carbon price. Default: inflation_per_year."""
    service_life_months: Annotated[
        int,
        Field(ge=1, le=240),
        Plausible(24, 144, "prior book_life has 3 to 6 years; a year less, and twice as long"),
    ] = 60
    """Months over which embodied emissions are spread. Default 60: large operators have book lives of 5 to 6 years."""
    allocation: Literal["peak-responsibility", "by-use"] = "peak-responsibility"
    """Which workloads bear the cost of capacity in unit costs: those that run in the hours that size the fleet
    (peak-responsibility), or all, by use (by-use). Capacity that no workload uses is unallocated idle capacity. Default
    peak-responsibility: work that fills idle hours does not make the fleet larger."""
    api_price: TokenPrice | None = None
    """Price of the same tokens from an API, for the break-even: prices, or the word api for the catalogue's price of
    each model. Default: none, so there is no break-even."""
    token_price_change_per_year: TokenPriceChange = 0.0
    """Yearly change of the listed price of a model's tokens, sold or bought, unless a token price states its own
    change_per_year. Default 0: listed prices of open models mostly stay the same; a study draws the change from the
    prior token_price_change, which has -0.58 to 0.17."""
    burst_rental: BurstRental | None = None
    """Terms on which accelerators are rented for requests that would otherwise be shed. Default: such requests are
    shed."""
    tax: Tax | None = None
    """Income tax. Default: none, as in published cost figures."""
    loan: Loan | None = None
    """Loan on purchases. It changes the statements, and of all measures only P&L cost. Default: no loan."""

    @field_validator("end_value", mode="before")
    @classmethod
    def _no_book_value(cls, end_value: object) -> object:
        # A choice of earlier scenarios: the message says what to write in its place.
        if end_value == "book":
            raise ValueError(
                "end_value can no longer be book, because cash measures would then depend on accounting policy; write "
                "market (resale value by age, the default) or none"
            )
        return end_value

    @field_validator("currency", mode="before")
    @classmethod
    def _one_currency(cls, currency: object) -> object:
        # The field exists so that a scenario in another currency is refused, not misread.
        if currency != "USD":
            raise ValueError(
                "all prices are in US dollars (USD), because amounts in two currencies cannot be added; convert them"
            )
        return currency
