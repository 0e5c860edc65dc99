"""Keeping memory between replications."""

from __future__ import annotations

import ctypes
import functools
import sys

import numpy as np

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_ARENA_MAX = -3, -1, -8  # malloc.h of glibc
_LARGEST = 2**31 - 1


@functools.cache
def keep_memory() -> bool:
    """Ask the C library, once, to keep freed memory for the next replication instead of giving it back to the system.

    A replication allocates and frees some tens of megabytes of hourly arrays; fetching them afresh costs it a quarter
    of its time in page faults. All threads share what is kept: one that a server works in would give back its own.
    Only glibc can be asked; elsewhere nothing happens. Returns whether it was.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        options = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has no mallopt
        return False
    asked = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, _LARGEST), (_M_ARENA_MAX, 1))
    return all(options(*option) for option in asked)


def fetch_memory(size_bytes: int) -> None:
    """Fetch memory from the system before it is wanted, where it is kept: page by page it would delay who waits."""
    if keep_memory():
        np.empty(size_bytes, dtype=np.uint8).fill(0)
