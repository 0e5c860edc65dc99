"""Random numbers: one root seed, one independent stream per name.

A stream is ``SeedSequence(seed, spawn_key=(replication, *hash(name)))``. Streams are told apart by name alone, so a
draw in one never shifts another, scenarios compared under one seed share the draws of everything they have in common,
and replication 17 can be rerun alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

Streams = Callable[[str], np.random.Generator]


def streams(seed: int, replication: int = 0) -> Streams:
    """Return the function from a stream's name to its generator, fresh at every call."""

    def stream(name: str) -> np.random.Generator:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        words = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little"))
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(replication, *words))))

    return stream
