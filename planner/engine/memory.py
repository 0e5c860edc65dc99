"""Memory of replications: kept by the C library from one to the next, and not searched for cycles within one."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
from collections.abc import Iterator

import numpy as np

# malloc.h of glibc has the options of mallopt, sys/mman.h of Linux the advice.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST = 2**31 - 1
_MADV_HUGEPAGE = 14
_HUGE_PAGE_BYTES = 2**21
_HUGE_BYTES = 2**26
"""Memory that is requested in huge pages: a replication's, and room beside it. What is not used is never fetched."""


@functools.cache
def keep_memory() -> bool:
    """Configure the C library, once, to reuse freed memory for the next replication.

    A replication allocates and frees some tens of megabytes of hourly arrays; fetching them afresh costs page faults.
    All threads share what is kept: one that a server works in would give back its own. Only glibc can be configured;
    elsewhere nothing happens. Returns whether it was.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        set_option = library.mallopt
    except (AttributeError, OSError):  # musl has no mallopt
        return False
    options = {_M_MMAP_THRESHOLD: 2**30, _M_TRIM_THRESHOLD: _LARGEST, _M_ARENA_MAX: 1}
    if not all(set_option(*option) for option in options.items()):
        return False
    # What it will hand out next comes in pages of 2 MB: a replication, a fork's too, fetches its memory in tens of
    # steps and not in thousands, which takes a thirtieth off its time. The array is let go at once, and its place kept.
    with contextlib.suppress(MemoryError):  # a system that promises no more than it has
        block = np.empty(_HUGE_BYTES, dtype=np.uint8)
        address = block.ctypes.data
        begin = -(-address // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        size = address + _HUGE_BYTES - begin
        # A system without huge pages returns an error, which changes nothing.
        library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_HUGEPAGE)
    return True


def fetch_memory(size_bytes: int) -> None:
    """Allocate memory ahead of use where it is reused, so that page faults do not delay a run."""
    if keep_memory():
        np.empty(size_bytes, dtype=np.uint8).fill(0)


@contextlib.contextmanager
def unsearched_memory() -> Iterator[None]:
    """Keep Python from searching memory for dead cycles meanwhile.

    Whatever a replication notes lives until its end, so each search would be for nothing; there are dozens, and each
    takes longer the more there is. What comes after it is searched as before.
    """
    is_searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_searched:
            gc.enable()
