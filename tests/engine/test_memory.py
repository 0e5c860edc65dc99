"""Memory that is kept for the next replication, whichever thread it runs in."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from planner.engine.memory import keep_memory, unsearched_memory

PAGES_TOUCHED_BY_A_THREAD = """
import resource, threading
import numpy as np
from planner.engine.memory import fetch_memory

def touch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    series = [np.ones(26_280) for _ in range(150)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

def in_a_thread():
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()

fetch_memory({fetched})
in_a_thread()
in_a_thread()
"""


def has_huge_pages() -> bool:
    """Say whether the system gives memory in huge pages to those who ask for it."""
    told = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return told.exists() and "[never]" not in told.read_text()


@pytest.mark.skipif(not keep_memory(), reason="only glibc keeps memory")
@pytest.mark.parametrize(
    ("fetched", "is_there"), [(64 << 20, (True, True)), (0, (has_huge_pages(), True))]
)
def test_a_thread_finds_what_was_fetched_before_or_another_has_freed(
    fetched: int, is_there: tuple[bool, bool]
) -> None:
    code = PAGES_TOUCHED_BY_A_THREAD.format(fetched=fetched)
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    pages = [int(line) for line in told.split()]
    assert tuple(count < 1000 for count in pages) == is_there, pages


WITHOUT_ROOM = """
import resource
from pathlib import Path
from planner.engine.memory import keep_memory, unsearched_memory

told = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
used_bytes = 1024 * int(told["VmData"].split()[0])
resource.setrlimit(resource.RLIMIT_DATA, (used_bytes + 2**25, used_bytes + 2**25))
print(keep_memory())
"""


@pytest.mark.skipif(not keep_memory(), reason="only glibc keeps memory")
def test_memory_is_kept_where_there_is_none_to_ask_for_ahead() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("is_searched", [True, False])
def test_memory_is_searched_for_cycles_after_a_replication_as_before(is_searched: bool) -> None:
    """Also after one that fails: a caller who switched the search off finds it off."""
    was_searched = gc.isenabled()
    try:
        (gc.enable if is_searched else gc.disable)()
        with contextlib.suppress(ZeroDivisionError), unsearched_memory():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is is_searched
    finally:
        (gc.enable if was_searched else gc.disable)()
