"""Mutants that survived and are no wrongs: the program does the same with them. By name, with the reason.

A name is room and function (or constant), so that it outlives a move; what is no longer there is said by the program.
"""

from __future__ import annotations

_NO_WRONGS = (
    ("finance:_SAME_MONTH", "1e-9", "1.5000000000000002e-09", "a tolerance"),
    ("finance:escalation", "1e-9", "1.5000000000000002e-09", "a tolerance"),
    (
        "finance:TINY",
        "1e-12",
        "1.5e-12",
        "the first step of a search, which doubles until it has passed the price",
    ),
    (
        "engine:_cheapest",
        "cost <= lowest + _TOLERANCE * (1.0 + np.abs(lowest))",
        "(cost < lowest + _TOLERANCE * (1.0 + np.abs(lowest)))",
        "a tolerance",
    ),
    (
        "engine:on_clusters",
        "1.0",
        "1.5",
        "a pool of speed 1 takes no more time",
    ),
    (
        "engine:Router._room_within_power",
        "allowed_kw < it_kw(plan, window.nodes, window.nodes).sum(axis=0)",
        "(allowed_kw <= it_kw(plan, window.nodes, window.nodes).sum(axis=0))",
        "where power allows what all nodes draw to the last bit, all the nodes are planned",
    ),
    ("run:drawing", "True", "False", "every replication has figures and months, a pair"),
    (
        "plan:as_tokens_grow",
        "1",
        "2 #2",
        "a search by halves that begins a year earlier ends at the same month",
    ),
    ("engine:clamp_scan", "True", "False", "the three have one figure a block"),
    ("engine:rented", "0", "1", "every way is told how many of its tiers are rented"),
    ("engine:_overload", "True", "False", "every cluster has its share of what is offered, a pair"),
    ("finance:lease_schedule", "1", "2 #7", "what lies beyond the last period is cut off"),
    (
        "finance:component",
        "1",
        "2",
        "what has no books by kind of part is told by its sign alone",
    ),
    ("finance:check_books", "gap > tolerance_h", "(gap >= tolerance_h)", "a tolerance"),
    (
        "finance:levelised_cost",
        "abs(gained) <= RESOLUTION * turnover",
        "(abs(gained) < RESOLUTION * turnover)",
        "a tolerance",
    ),
    ("demand:_minutes", "1e-9", "1.5000000000000002e-09", "as good as zero, both"),
    (
        "demand:_pieces",
        "longest < inf",
        "(longest <= inf)",
        "the logarithm of infinity is infinity",
    ),
    ("run:placement_bounds", "1", "2", "numpy takes any negative length for the one left open"),
    (
        "physics:late_tokens_within",
        "CELLS - 1",
        "(CELLS + 1)",
        "steps take time, so the room left is always within the grid",
    ),
    ("physics:MemoryFit.fits", "0", "1", "room for less than one token is none"),
)
"""Where, before, after, and why."""
EQUIVALENT = {f"{place}: {before} -> {after}": why for place, before, after, why in _NO_WRONGS}
