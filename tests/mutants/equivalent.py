"""Mutants that survived and are no wrongs: the program does the same with them. By name, with the reason.

A name is room and function (or constant), so that it outlives a move; what is no longer there is said by the program.
"""

from __future__ import annotations

_NO_WRONGS = (
    ("run:cohorts_of", "True", "False", "every cohort has a price of each kind of part"),
    (
        "run:cohorts_of",
        "-change.accelerators // cluster.accelerators_per_node",
        "(-change.accelerators / cluster.accelerators_per_node)",
        "what is retired is whole nodes: both are the same number",
    ),
    ("run:events", "1e-6", "1.5e-06", "a tolerance"),
    ("run:_software", "0", "1 #3", "incidents are counted from one"),
    (
        "run:OrderPayments.charge_usd",
        "usd(self.amount_cents) * sign",
        "(usd(self.amount_cents) / sign)",
        "the sign is 1 or −1",
    ),
    ("finance:_SAME_MONTH", "1e-9", "1.5000000000000002e-09", "a tolerance"),
    ("finance:escalation", "1e-9", "1.5000000000000002e-09", "a tolerance"),
    (
        "finance:TINY",
        "1e-12",
        "1.5e-12",
        "the first step of a search, which doubles until it has passed the price",
    ),
    (
        "plan:_power",
        "np.min(plan.site.cap_kw)",
        "np.max(plan.site.cap_kw)",
        "told only where the cap is the same at all hours",
    ),
    (
        "plan:_mean_rates",
        "0.0",
        "1.0",
        "a layout that meets no objective serves 0, which is finite",
    ),
    (
        "engine:_NONE",
        "1e-9",
        "1.5000000000000002e-09",
        "stands for nothing where something is divided by",
    ),
    (
        "engine:PLENTY",
        "1e12",
        "1500000000000.0",
        "more requests than any site serves, either way",
    ),
    (
        "engine:_Programs._order",
        "3.0",
        "4.5 #2",
        "part of an order among plans that are equal otherwise",
    ),
    (
        "engine:_meet",
        "tableaus.shape[2] - rows",
        "(tableaus.shape[2] + rows)",
        "a row's own slack costs more than any column that can meet it",
    ),
    (
        "engine:_cheapest",
        "loss <= least + _TOLERANCE * (1.0 + np.abs(least))",
        "(loss < least + _TOLERANCE * (1.0 + np.abs(least)))",
        "a tolerance",
    ),
    (
        "engine:on_clusters",
        "1.0",
        "1.5",
        "a pool of speed 1 takes no more time, and none is faster",
    ),
    (
        "engine:Router._room_within_power",
        "allowed < it_kw(plan, window.nodes, window.nodes).sum(axis=0)",
        "(allowed <= it_kw(plan, window.nodes, window.nodes).sum(axis=0))",
        "where power allows what all nodes draw to the last bit, all the nodes are planned",
    ),
    ("engine:Router._settle", "0", "1 #3", "what is scaled is off by rounding"),
    (
        "engine:_shares",
        "size > 0.0",
        "(size >= 0.0)",
        "what has no nodes, or asks for nothing, is given nothing",
    ),
    ("plan:_serve", "1.0", "1.5 #6", "no prompt is read faster than at the peak"),
    (
        "engine:Router._settle",
        "requests * exactly",
        "(requests / exactly)",
        "what is asked and what is served differ by rounding",
    ),
    ("run:drawing", "True", "False", "every replication has figures and months, a pair"),
    (
        "plan:as_tokens_grow",
        "1",
        "2 #2",
        "a search by halves that begins a year earlier ends at the same month",
    ),
    ("engine:place_window", "1", "2 #3", "any negative number stands for all that there is"),
    ("engine:clamp_scan", "True", "False", "the three have one figure a block"),
    ("plan:_FAR_BEYOND", "6.0", "9.0", "loads at which refusals are worked out, still rising"),
    ("engine:_loads_together", "1", "2", "a cell more, in which bursts add as little"),
    ("engine:rented", "0", "1", "every way is told how many of its tiers are rented"),
    ("engine:_offer", "total < left", "(total <= left)", "an hour in which nothing is left over"),
    ("engine:_spread", "True", "False #3", "every cluster has something free or nothing, a pair"),
    ("engine:_overload", "True", "False", "every cluster has its share of what is offered, a pair"),
    ("engine:_NOWHERE", "1", "2", "the rate of a cluster that does not serve is never read"),
    (
        "engine:RepairShop.drop",
        "row.end_h > now_h",
        "(row.end_h >= now_h)",
        "an outage of no length",
    ),
    (
        "engine:_Programs._objectives",
        "objectives /= np.maximum(np.abs(objectives).max(axis=2, keepdims=True), _NONE)",
        "objectives *= np.maximum(np.abs(objectives).max(axis=2, keepdims=True), _NONE)",
        "one factor for the whole of an objective, whose best plan stays",
    ),
    ("finance:lease_schedule", "1", "2 #7", "what lies beyond the last period is cut off"),
    ("physics:MemoryFit.fits", "0", "1", "room for less than one token is none"),
)
"""Where, before, after, and why."""
EQUIVALENT = {f"{place}: {before} -> {after}": why for place, before, after, why in _NO_WRONGS}
