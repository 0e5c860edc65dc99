"""Work shared with forks: each test is a process of its own, since one that has threads is not forked."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from planner import parallel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="work is shared with forks on Linux alone"
)


def alone(script: str) -> str:
    """Return what a script prints."""
    begin = "import functools, os, time\nfrom planner.parallel import Begun, may_fork, shared\nassert may_fork()\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(script)],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_all_pieces_are_done_in_their_order_by_several_processes(tmp_path: Path) -> None:
    told = alone(
        f"""
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        def piece(number):
            (folder / str(os.getpid())).touch()
            while len(list(folder.iterdir())) < 3:  # nobody is done before all have begun
                time.sleep(0.01)
            return number * 10, os.getpid()
        done = shared([functools.partial(piece, n) for n in range(12)], workers=3)
        print([n for n, _ in done] == [n * 10 for n in range(12)], len({{pid for _, pid in done}}))
        """
    )
    assert told == "True 3\n"


def test_what_is_done_before_the_end_is_awaited_is_done_while_others_work(tmp_path: Path) -> None:
    told = alone(
        f"""
        from pathlib import Path
        folder, here = Path({str(tmp_path)!r}), []
        def piece(number):
            here.append("piece")
            (folder / str(number)).touch()
            return os.getpid()
        with Begun([functools.partial(piece, n) for n in range(3)], 2) as begun:
            while len(list(folder.iterdir())) < 3:
                time.sleep(0.01)
            here.append("meanwhile")
            done = list(begun.results())
        print(here, os.getpid() in done, len(done))
        """
    )
    assert told == "['meanwhile'] False 3\n", "forks had done all pieces by then"


def test_a_helper_that_dies_leaves_its_pieces_to_its_parent() -> None:
    told = alone(
        """
        parent = os.getpid()
        def piece(number):
            time.sleep(0.02)
            if os.getpid() != parent:
                os._exit(9)
            return number
        print(shared([functools.partial(piece, n) for n in range(6)], workers=3))
        """
    )
    assert told == "[0, 1, 2, 3, 4, 5]\n"


def test_an_error_is_told_once_and_no_process_is_left() -> None:
    told = alone(
        """
        def piece(number):
            if number == 3:
                raise ValueError("the third")
            return number
        try:
            shared([functools.partial(piece, n) for n in range(6)], workers=2)
        except ValueError as error:
            print(error)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("none left")
        """
    )
    assert told == "the third\nnone left\n"


def test_no_helper_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """What they say is more than a pipe holds: a helper that nobody reads has to notice, or it waits for good.

    What is printed is known when the last process that could print has ended.
    """
    told = alone(
        f"""
        import signal
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        def piece(number):
            (folder / str(number)).touch()
            return bytes(1_000_000)
        with Begun([functools.partial(piece, n) for n in range(4)], 3):
            while len(list(folder.iterdir())) < 4:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert told == ""


def test_an_error_before_the_end_is_awaited_begins_no_further_piece(tmp_path: Path) -> None:
    told = alone(
        f"""
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        def piece(number):
            (folder / str(number)).touch()
            time.sleep(0.2)
        files = len(os.listdir("/proc/self/fd"))
        try:
            with Begun([functools.partial(piece, n) for n in range(100)], workers=3):
                raise ValueError("refused")
        except ValueError as error:
            print(error, len(os.listdir("/proc/self/fd")) - files, len(list(folder.iterdir())) < 20)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("none left")
        """
    )
    assert told == "refused 0 True\nnone left\n"


def test_a_user_who_may_have_no_further_process_waits_longer() -> None:
    told = alone(
        """
        def refused():
            raise BlockingIOError("no more processes")
        os.fork = refused
        done = shared([functools.partial(int, n) for n in range(4)], workers=3)
        print(done)
        """
    )
    assert told == "[0, 1, 2, 3]\n"


def test_a_process_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", lambda *_, **__: pytest.fail("forked"))
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    assert parallel.shared([lambda: 1, lambda: 2], workers=2) == [1, 2]
    wait.set()
    thread.join()


def test_a_run_is_drawn_to_the_same_figures_whoever_draws() -> None:
    told = alone(
        """
        from planner.scenario.loading import load_scenario
        from planner.run.replications import draw_again
        from planner.run.simulate import simulate
        from tests.conftest import TINY
        import yaml
        assert may_fork(), "a library that the engine needs has started a thread"
        result = simulate(load_scenario(yaml.safe_load(TINY)))
        alone, together = (draw_again(result, 5, workers=workers) for workers in (1, 3))
        print(alone.figures == together.figures)
        print([bool((a == b).all()) for a, b in zip(alone.monthly.values(), together.monthly.values(), strict=True)])
        """
    )
    assert told == "True\n[True, True]\n"
