"""The registry of figures: names, formulas and meanings, apart from their arithmetic.

The arithmetic of each is one function in :mod:`planner.fleet.quantities` or :mod:`planner.finance.unit_costs`; columns,
data dictionary and reference take their words from here, and need no array library.
"""

from __future__ import annotations

from dataclasses import dataclass

FLEET = "fleet"
"""All clusters and the site together, in every table."""
SITE = "site"
"""What belongs to no cluster, in the ledger: tax, credits, burst rental."""
DRAWS = 19
"""How often a run and a comparison draw a plan unless told otherwise: the fewest whose ends hold nine in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureDescription:
    """What a measure is, for the files and the docs."""

    name: str
    """With its unit as suffix."""
    view: str
    """The view of the ledger it reads; empty where it reads none."""
    formula: str
    """Over the sums of the ledger; docs/explanation/finance.md says how these are made."""
    meaning: str
    """What it says, and what it needs, for the reference (Markdown)."""
    needs: str = ""
    """The key of ``finance`` without which it has no meaning; empty where it always has one."""


def _measure(name: str, view: str, formula: str, meaning: str, *, needs: str = "") -> MeasureDescription:
    said = f"{meaning.removesuffix('.')}; needs `finance.{needs}`." if needs else meaning
    return MeasureDescription(name=name, view=view, formula=formula, meaning=said, needs=needs)


MEASURES = (
    _measure(
        "cost_usd",
        "accrual",
        "Σ cost",
        "Accrued cost, without income and tax on it: the sum of the ledger's rows but `revenue`, `tax_cash` and "
        "`tax_deferred`.",
    ),
    _measure(
        "cost_per_million_tokens_usd",
        "accrual",
        "10⁶ · Σ cost / Σ tokens",
        "What a million tokens cost, prompt and generated together.",
    ),
    _measure(
        "cost_per_million_output_tokens_usd",
        "accrual",
        "10⁶ · Σ cost / Σ output tokens",
        "The same money over generated tokens alone.",
    ),
    _measure(
        "levelised_cost_per_million_tokens_usd",
        "economic",
        "10⁶ · p at which Σ (p·tokens − cost − tax)·v = 0",
        "The one price of a million tokens, prompt or generated, at which the owner's NPV is zero, after tax on what "
        "is sold at it; without tax, Σ cost·v / Σ tokens·v.",
    ),
    _measure(
        "levelised_cost_per_million_output_tokens_usd",
        "economic",
        "10⁶ · p at which Σ (p·output tokens − cost − tax)·v = 0",
        "The same where generated tokens alone are paid for.",
    ),
    _measure(
        "real_levelised_cost_per_million_tokens_usd",
        "economic",
        "10⁶ · p at which Σ (p·(1 + π)^t·tokens − cost − tax)·v = 0",
        "The first day's price of a million tokens at which, rising with inflation from then on, the owner's NPV is "
        "zero.",
        needs="inflation_per_year",
    ),
    _measure(
        "real_cost_usd",
        "accrual",
        "Σ cost / (1 + π)^t",
        "Accrued cost in dollars of the first day.",
        needs="inflation_per_year",
    ),
    _measure(
        "tco_usd",
        "economic",
        "Σ cost",
        "Total cost of ownership: cash paid, the value of what is still owned at the end taken off.",
    ),
    _measure(
        "npv_usd", "economic", "Σ (income − cost − tax)·v", "Present value; negative for a plan that sells nothing."
    ),
    _measure("capex_usd", "cash", "Σ purchases", "What was spent on accelerators, servers, network and storage."),
    _measure("cash_usd", "cash", "Σ (cost + tax − income)", "Money that left the account, on balance."),
    _measure(
        "end_value_usd",
        "economic",
        "value of what is still owned on the last day",
        "At what used servers of their age fetch, before tax on the sale (account `tax_on_end_value`).",
    ),
    _measure(
        "levelised_cost_per_accelerator_h_usd",
        "economic",
        "p at which Σ (p·accelerator-hours in service − cost − tax)·v = 0",
        "What owning an accelerator for an hour costs; also the break-even against a reserved rent.",
    ),
    _measure(
        "break_even_rental_utilisation_fraction",
        "economic",
        "levelised owned hour / levelised rent of an hour",
        "Renting by the hour is cheaper below this use.",
        needs="rental",
    ),
    _measure(
        "break_even_api_price_ratio",
        "economic",
        "k at which Σ (k·API bill − cost − tax)·v = 0",
        "How many times its price an API would have to charge for owning to cost the same.",
        needs="api_price",
    ),
    _measure(
        "api_saving_npv_usd",
        "economic",
        "Σ (API bill − cost − tax)·v",
        "What owning saves against buying the same tokens from an API, after tax.",
        needs="api_price",
    ),
    _measure("revenue_usd", "accrual", "Σ tokens·price", "What the tokens served were sold for.", needs="token_price"),
    _measure(
        "gross_margin_fraction",
        "accrual",
        "(revenue − cost of serving) / revenue",
        "Share of the revenue left after the cost of serving: depreciation, energy, cooling, demand charge, space, "
        "maintenance, spares and parts, SLA credits, carbon, burst rental.",
        needs="token_price",
    ),
    _measure(
        "operating_margin_fraction",
        "accrual",
        "(revenue − cost of serving − operating expense) / revenue",
        "The same after people, support, licences, insurance and losses on what is retired, before the charge for "
        "capital, interest and tax.",
        needs="token_price",
    ),
    _measure(
        "margin_after_capital_charge_fraction",
        "accrual",
        "(revenue − Σ cost) / revenue",
        "The same after the imputed charge for capital tied up in book value, so after what owners and lenders ask.",
        needs="token_price",
    ),
    _measure(
        "break_even_utilisation_fraction",
        "accrual",
        "F / (Q·(p − v))",
        "Use at which revenue covers cost: F is the cost but energy, Q the tokens at full use, p and v the revenue and "
        "the energy of a token.",
        needs="token_price",
    ),
    _measure(
        "irr_per_year",
        "economic",
        "r at which NPV is zero, if there is exactly one",
        "Internal rate of return, on the same flows and times as NPV.",
        needs="token_price",
    ),
    _measure(
        "payback_months",
        "cash",
        "months until the running total of flows last turns to gain",
        "When the plan has paid for itself for good, a month's flow taken as even.",
        needs="token_price",
    ),
    _measure(
        "discounted_payback_months",
        "cash",
        "the same for flow·v",
        "The same at the discount rate.",
        needs="token_price",
    ),
    _measure("tax_usd", "accrual", "Σ tax", "Tax expense of the books, paid and deferred.", needs="tax"),
    _measure(
        "energy_kwh_per_million_tokens",
        "",
        "10⁶ · Σ kWh at the meter / Σ tokens",
        "Energy of a million tokens, cooling and distribution included.",
    ),
    _measure(
        "operational_kg_per_million_tokens",
        "",
        "10⁶ · Σ kWh·g/kWh / 1000 / Σ tokens",
        "CO2e of the electricity of a million tokens.",
    ),
    _measure(
        "embodied_kg_per_million_tokens",
        "",
        "10⁶ · Σ embodied kg of the months / Σ tokens",
        "CO2e of making the machines, spread evenly over their service life.",
    ),
)
"""Every measure of a run, in the order of the files."""

DEFINITIONS = {measure.name: measure.meaning for measure in MEASURES} | {
    "accelerators_in_service": "Accelerators in service, averaged over the period.",
    "availability_fraction": "Accelerator-hours in service over accelerator-hours on site.",
    "utilisation_fraction": "Accelerator-hours at work over accelerator-hours in service, with power or without.",
    "demand_tokens": "Prompt and generated tokens asked for.",
    "served_tokens": "Prompt and generated tokens served, on own or rented accelerators.",
    "served_output_tokens": "Generated tokens served.",
    "shed_tokens": "Tokens of requests refused, or still waiting at their deadline, that nobody was rented to serve.",
    "shed_fraction": "Tokens shed over tokens asked for.",
    "late_tokens": "Tokens of requests served past their objective, because of bursts inside the hour.",
    "slo_attainment_fraction": "Requests in time: neither late nor shed, over requests served or shed.",
    "worst_in_time_fraction": "Least share of requests in time that the promise is about: of a month, or over the "
    "horizon; of a workload, or of all together.",
    "promise_shortfall_fraction": "What `worst_in_time_fraction` falls short of the promised share; 0 where the "
    "promise is kept.",
    "promise_kept_months": "Calendar months before the first that breaks the promise: all of them where none does.",
    "rented_tokens": "Of `served_tokens`, those served on rented accelerators.",
    "backlog_tokens": "Tokens waiting at the end of the month: demanded − served − shed so far.",
    "energy_kwh": "Energy at the meter: IT, cooling and distribution.",
    "it_energy_kwh": "Energy of the IT load.",
    "peak_facility_kw": "Highest hour of the month at the meter.",
    "power_limit_kw": "Most that the site may draw at the meter in any hour of the month; empty without a limit.",
    "accelerators_needed": "Accelerators that all work asked for would keep busy on average: those at work · (tokens "
    "served on own machines + refused) / served, at the mix, routing and speed of what was served.",
    "peak_accelerators_needed": "The same in the highest hour of the month.",
    "accelerator_h": "Accelerator-hours at work for it, on own machines.",
    "cumulative_cost_per_million_tokens_usd": "`cost_usd` over millions of `served_tokens`, both from the start.",
    "cumulative_cost_per_million_output_tokens_usd": "`cost_usd` over `served_output_tokens`, both from the start.",
    "present_node_h": "Nodes delivered and not retired, times hours.",
    "working_node_h": "At work, at full speed.",
    "lost_to_failures_node_h": "Out of service for a hardware fault, from failure to repair.",
    "lost_to_software_node_h": "At work, but for nothing: what open software incidents cost.",
    "lost_to_outages_node_h": "Healthy while the site had no power.",
    "lost_to_power_cap_node_h": "Had work and lost it to the power cap.",
    "without_demand_node_h": "Healthy, powered, and nothing to do.",
    "spend_usd": "Cash paid in the month.",
}
"""What each figure is, once for every file that has it."""
SERVICE = (
    "availability_fraction", "utilisation_fraction", "shed_fraction", "slo_attainment_fraction",
    "worst_in_time_fraction", "promise_shortfall_fraction", "promise_kept_months", "energy_kwh",
)  # fmt: skip
"""How a plan served: what a cost per token must be read with."""
TIMELINE = (
    "accelerators_in_service", "availability_fraction", "utilisation_fraction", "demand_tokens", "served_tokens",
    "shed_tokens", "energy_kwh", "cost_usd", "cost_per_million_tokens_usd", "served_output_tokens",
    "cost_per_million_output_tokens_usd", "backlog_tokens", "slo_attainment_fraction", "peak_facility_kw",
    "cumulative_cost_per_million_tokens_usd", "cumulative_cost_per_million_output_tokens_usd",
    "levelised_cost_per_million_tokens_usd", "levelised_cost_per_million_output_tokens_usd", "rented_tokens",
    "accelerators_needed", "peak_accelerators_needed", "power_limit_kw",
)  # fmt: skip
"""The figures of the monthly timeline, in the order of its columns."""
FLEET_ONLY = frozenset(
    {
        "demand_tokens",
        "shed_tokens",
        "backlog_tokens",
        "slo_attainment_fraction",
        "peak_facility_kw",
        "rented_tokens",
        "accelerators_needed",
        "peak_accelerators_needed",
        "power_limit_kw",
    }
)
"""Figures of the timeline that belong to no cluster."""
AGAINST_BASELINE = (
    _measure(
        "saving_npv_usd",
        "economic",
        "Σ (flow − baseline's flow)·v",
        "What the plan saves against the baseline, in present value.",
    ),
    _measure(
        "saving_irr_per_year",
        "economic",
        "r at which that sum is zero, if there is exactly one",
        "Rate of return of choosing the plan over the baseline.",
    ),
    _measure(
        "saving_payback_months",
        "cash",
        "months until the running saving last turns to gain",
        "When choosing the plan has paid for itself for good.",
    ),
    _measure(
        "saving_discounted_payback_months", "cash", "the same for saving·v", "The same at the baseline's discount rate."
    ),
)
"""Measures of one scenario against the baseline, at the baseline's discount rate."""
