"""What no input may cause: a hang, a gigabyte, a file in the wrong place, an exception that is not ours."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from planner.errors import ConservationError, PlannerError

TIME_LIMIT_S = 10
"""Of processor time, so that a busy machine is not taken for a hang; and six times as much by the clock."""
MEMORY_LIMIT_BYTES = 1 << 30
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir": (0, 2), "os.rename": (1, 3), "os.remove": (0, 1), "os.rmdir": (0, 1), "os.symlink": (1, 2),
            "os.link": (1, 3), "os.truncate": (0, 0)}  # fmt: skip
"""What changes a folder: the place of the path, and of the open folder that it is relative to, in the arguments."""


class FaultError(AssertionError):
    """An input did what no input may."""


class Watch:
    """Notes every file that is written outside the folder allowed; an audit hook cannot be taken off, only disarmed."""

    def __init__(self) -> None:
        self.allowed: Path | None = None
        self.strays: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.allowed is None:
            return
        if event == "open":
            path, mode, flags = arguments
            is_writing = (isinstance(mode, str) and any(letter in mode for letter in "wax+")) or (
                isinstance(flags, int) and bool(flags & _WRITING)
            )
            if not is_writing:
                return
        elif event in _CHANGES:
            place, relative_to = _CHANGES[event]
            path = arguments[place]
            opened = arguments[relative_to]
            if isinstance(opened, int) and relative_to and opened >= 0:
                return  # inside a folder that was opened, and noted, before
        else:
            return
        if isinstance(path, str | bytes | os.PathLike):
            self._note(Path(os.fsdecode(path)))

    def _note(self, path: Path) -> None:
        assert self.allowed is not None
        whole = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would open folders, and be audited itself
        if not whole.is_relative_to(self.allowed) and not str(whole).startswith("/dev/"):
            self.strays.append(str(whole))


def _too_slow(*_: object) -> None:
    raise FaultError(f"took more than {TIME_LIMIT_S} s")


@contextlib.contextmanager
def guarded(watch: Watch, folder: Path) -> Iterator[None]:
    """Stop what takes too long, and refuse what writes outside a folder or takes a gigabyte."""
    before = {kind: signal.signal(kind, _too_slow) for kind in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT_S)
    signal.alarm(6 * TIME_LIMIT_S)
    watch.allowed = folder.resolve()
    watch.strays = []
    try:
        yield
    finally:
        watch.allowed = None
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if watch.strays:
        raise FaultError(f"wrote outside its folder: {watch.strays[:3]}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MEMORY_LIMIT_BYTES:
        raise FaultError(f"took {peak / 2**20:,.0f} MiB")


def verdict(action: Callable[[], object]) -> str:
    """Say how an input ended: ``accepted`` or ``refused``; anything but an error of ours on purpose is a fault."""
    try:
        action()
    except ConservationError:
        raise
    except PlannerError as error:
        lines = str(error).splitlines()
        if not lines or not all(line.isprintable() for line in lines):
            raise FaultError(f"a message that no terminal should see: {error!r}") from None
        return "refused"
    return "accepted"


def scratch() -> Path:
    """Return a new folder of our own."""
    return Path(tempfile.mkdtemp(prefix="planner-fuzz-"))
