"""Rules by which the fleet grows or shrinks while it runs."""

from typing import Annotated, Literal

from pydantic import Field

from planner.language.fields import EntryName, Plausible, Positive, Price
from planner.validation import Strict


class Rule(Strict):
    """When something has held for some months, buy, rent or retire nodes.

    Nodes of a cluster on demand or spot are rented: a rule on one lets work overflow to rented capacity, after a lead
    time and up to a ceiling.
    """

    when: Literal["utilisation_above", "shed_above", "slo_miss_above", "utilisation_below"]
    """What is watched of each month, as the timeline shows it: the cluster's utilisation, the share of tokens shed
    (what burst rental served is not), or the share of requests late or shed."""
    threshold_fraction: Annotated[float, Field(ge=0, le=1), Plausible(0.0001, 1, "assumption")]
    """Where the rule bites."""
    months: Annotated[int, Field(ge=1, le=60), Plausible(1, 24, "assumption")] = 2
    """Months in a row that it must hold. Default 2: one month may be chance."""
    cluster: EntryName
    """Cluster that is enlarged or reduced: bought, or rented on demand or spot."""
    watch: EntryName | None = None
    """Cluster whose utilisation is watched. Default: the same, for what is enlarged is what is full."""
    nodes: Annotated[
        int, Field(ge=1, le=100_000), Plausible(1, 25000, "the largest clusters announced, 200,000 accelerators")
    ]
    """Nodes bought or rented (or, under utilisation_below, retired or given back) each time."""
    most_nodes: Annotated[int, Field(ge=1, le=100_000), Plausible(1, 25000, "as nodes")] | None = None
    """Ceiling: most nodes of the cluster at once, ordered ones included. Default: none, for budget and power have
    theirs."""
    lead_weeks: Annotated[float, Field(ge=0, le=520), Plausible(0.5, 104, "assumption")] = 16.0
    """Weeks from the decision to service. Default 16: four months (assumption)."""
    cooldown_months: Annotated[int, Field(ge=0, le=60), Plausible(1, 24, "assumption")] = 3
    """Months before the same rule may act again. Default 3: what was bought should arrive first."""

    @property
    def enlarges(self) -> bool:
        """Whether it buys or rents; one that watches for little use retires or gives back."""
        return self.when != "utilisation_below"


class Expansion(Strict):
    """A monthly review.

    It buys only what the site can power: all nodes at full load within site.power_cap_kw in the hottest hour, and their
    nameplate within the last of site.power_blocks.
    """

    rules: Annotated[tuple[Rule, ...], Field(max_length=100)] = ()
    """Rules, tried in order. Default: none."""
    budget_usd: Annotated[Price, Plausible(10000, 1000000000.0, "a server to what the field allows")] | None = None
    """Most that may be spent on expansion. Default: no limit."""
    power_envelope_kw: (
        Annotated[Positive, Plausible(10, 2000000.0, "one node to the largest campuses announced, 2 GW")] | None
    ) = None
    """Most provisioned IT power after expansion. Default: no limit beyond the site's own power."""
    price_change_per_year: Annotated[float, Field(gt=-1, le=1), Plausible(-0.7, 0.5, "assumption")] = 0.0
    """Change of unit prices per year for later purchases. Default 0: no trend is assumed."""

    def enlarging(self, cluster: str) -> list[Rule]:
        """Return the rules that enlarge a cluster."""
        return [rule for rule in self.rules if rule.cluster == cluster and rule.enlarges]
