"""Mutants that survived and are no wrongs: the program does the same with them. By name, with the reason."""

from __future__ import annotations

_NO_WRONGS = (
    ("planner/results/cohorts.py:_by_component", "True", "False", "every cohort has a price of each kind of part"),
    (
        "planner/results/cohorts.py:cohorts_of",
        "-change.accelerators // cluster.accelerators_per_node",
        "(-change.accelerators / cluster.accelerators_per_node)",
        "what is retired is whole nodes: both are the same number",
    ),
    ("planner/results/event_table.py:events", "1e-6", "1.5e-06", "a tolerance"),
    ("planner/results/event_table.py:_software", "0", "1 #3", "incidents are counted from one"),
    (
        "planner/results/late.py:worst_reasons",
        "share[r, w] >= _LEAST_NAMED",
        "(share[r, w] > _LEAST_NAMED)",
        "at a share of exactly one request in a hundred thousand",
    ),
    (
        "planner/results/orders.py:OrderPayments.charge_usd",
        "usd(self.amount_cents) * sign",
        "(usd(self.amount_cents) / sign)",
        "the sign is 1 or −1",
    ),
    (
        "planner/finance/carbon.py:operational_kg",
        "0.0",
        "1.0",
        "the least of them and 0, or 1, is negative where one of them is",
    ),
    ("planner/finance/lease.py:module", "1e-9", "1.5000000000000002e-09", "a tolerance"),
    (
        "planner/finance/present_value.py:_all_rates",
        "value[:-1] * value[1:] < 0",
        "(value[:-1] * value[1:] <= 0)",
        "a zero on the grid is found once more, and dropped as the same rate",
    ),
    (
        "planner/finance/present_value.py:_touching",
        "12",
        "13",
        "one refinement more of an interval that rounding has closed before",
    ),
    (
        "planner/finance/present_value.py:_touching",
        "41",
        "42",
        "one point more of a grid that is refined until rounding closes it",
    ),
    ("planner/finance/present_value.py:_touching", "1", "2", "the closest point is inside the grid, but for rounding"),
    (
        "planner/finance/present_value.py:_touching",
        "values.min()",
        "values.max()",
        "the last interval is so small that its values differ by rounding alone",
    ),
    ("planner/finance/tariffs.py:escalation", "1e-9", "1.5000000000000002e-09", "a tolerance"),
    (
        "planner/finance/unit_costs.py:module",
        "1e-12",
        "1.5e-12",
        "the first step of a search, which doubles until it has passed the price",
    ),
    (
        "planner/compile/contradictions.py:_power",
        "np.min(plan.site.cap_kw)",
        "np.max(plan.site.cap_kw)",
        "told only where the cap is the same at all hours",
    ),
    (
        "planner/compile/in_time.py:Candidates.best",
        "self.mean_rates[index] * speed * _RANKING_SLACK <= chosen[2]",
        "(self.mean_rates[index] * speed * _RANKING_SLACK < chosen[2])",
        "where layouts are alike to the last bit, and one more is tried",
    ),
    (
        "planner/compile/in_time.py:stated_over_formula",
        "0.0",
        "1.0",
        "a layout that meets no objective serves 0, which is finite",
    ),
    ("planner/compile/prices_and_rates.py:_power", "True", "False", "every cluster has an accelerator"),
    (
        "planner/compile/reuse.py:Reuse.once",
        "len(_kept) > _MOST_KEPT",
        "(len(_kept) >= _MOST_KEPT)",
        "one more or one less of four thousand that are kept",
    ),
    (
        "planner/fleet/allocation.py:module",
        "1e-9",
        "1.5000000000000002e-09",
        "stands for nothing where something is divided by",
    ),
    ("planner/fleet/allocation.py:module", "1e12", "1500000000000.0", "more requests than any site serves, either way"),
    (
        "planner/fleet/allocation.py:module",
        "4.0",
        "6.0",
        "how much more the first to be spared counts than the next: a choice, as long as it is more",
    ),
    (
        "planner/fleet/allocation.py:_Programs._order",
        "3.0",
        "4.5 #2",
        "part of an order among plans that are equal otherwise",
    ),
    (
        "planner/fleet/linear.py:_meet",
        "tableaus.shape[2] - rows",
        "(tableaus.shape[2] + rows)",
        "a row's own slack costs more than any column that can meet it",
    ),
    (
        "planner/fleet/linear.py:_cheapest",
        "loss <= least + _TOLERANCE * (1.0 + np.abs(least))",
        "(loss < least + _TOLERANCE * (1.0 + np.abs(least)))",
        "a tolerance",
    ),
    ("planner/fleet/replicas.py:on_clusters", "1.0", "1.5", "a pool of speed 1 takes no more time, and none is faster"),
    (
        "planner/fleet/router.py:Router._room_within_power",
        "allowed < it_kw(plan, window.nodes, window.nodes).sum(axis=0)",
        "(allowed <= it_kw(plan, window.nodes, window.nodes).sum(axis=0))",
        "where power allows what all nodes draw to the last bit, all the nodes are planned",
    ),
    ("planner/fleet/router.py:Router._settle", "0", "1 #3", "what is scaled is off by rounding"),
    (
        "planner/fleet/allocation.py:_shares",
        "size > 0.0",
        "(size >= 0.0)",
        "what has no nodes, or asks for nothing, is given nothing",
    ),
    ("planner/compile/capacity.py:_serve", "1.0", "1.5 #6", "no prompt is read faster than at the peak"),
    (
        "planner/fleet/router.py:Router._settle",
        "requests * exactly",
        "(requests / exactly)",
        "what is asked and what is served differ by rounding",
    ),
    ("planner/results/replication.py:Replication.tokens", "-1", "1", "series of one axis, stacked"),
    ("planner/fleet/scan.py:clamp_scan", "True", "False", "the three have one figure a block"),
)
"""Where, before, after, and why."""
EQUIVALENT = {f"{place}: {before} -> {after}": why for place, before, after, why in _NO_WRONGS}
