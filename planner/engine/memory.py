"""Keeping memory between replications."""

from __future__ import annotations

import ctypes
import functools
import sys

import numpy as np

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_ARENA_MAX = -3, -1, -8  # malloc.h of glibc
_LARGEST = 2**31 - 1
_MADV_HUGEPAGE = 14  # sys/mman.h of Linux
_HUGE_PAGE_BYTES = 2**21
_HUGE_BYTES = 2**26
"""Memory that is asked for in huge pages: a replication's, and room beside it. What is not used is never fetched."""


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
        library = ctypes.CDLL(None)
        options = library.mallopt
    except (AttributeError, OSError):  # musl has no mallopt
        return False
    asked = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, _LARGEST), (_M_ARENA_MAX, 1))
    if not all(options(*option) for option in asked):
        return False
    _ask_for_huge_pages(library)
    return True


def _ask_for_huge_pages(library: ctypes.CDLL) -> None:
    """Have what the C library will hand out next come from the system in pages of 2 MB, where it has them.

    So a replication fetches its memory in tens of steps and not in thousands, a fork's too, and the processor knows
    the addresses of all of it: that takes a thirtieth off its time. The array is let go at once, and its place kept.
    """
    try:
        place = np.empty(_HUGE_BYTES, dtype=np.uint8)
    except MemoryError:  # a system that promises no more than it has
        return
    begin = -(-place.ctypes.data // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    size = place.ctypes.data + _HUGE_BYTES - begin
    library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_HUGEPAGE)  # one that has none says so


def fetch_memory(size_bytes: int) -> None:
    """Fetch memory from the system before it is wanted, where it is kept: page by page it would delay who waits."""
    if keep_memory():
        np.empty(size_bytes, dtype=np.uint8).fill(0)
