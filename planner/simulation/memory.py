"""Keeping memory between replications."""

from __future__ import annotations

import ctypes
import functools
import sys

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1  # malloc.h of glibc
_LARGEST = 2**31 - 1


@functools.cache
def keep_memory() -> bool:
    """Ask the C library, once, to keep freed memory for the next replication instead of giving it back to the system.

    A replication allocates and frees some tens of megabytes of hourly arrays; fetching them afresh costs it a quarter
    of its time in page faults. Only glibc can be asked; elsewhere nothing happens. Returns whether it was.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        options = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has no mallopt
        return False
    return bool(options(_M_MMAP_THRESHOLD, 2**30)) and bool(options(_M_TRIM_THRESHOLD, _LARGEST))
