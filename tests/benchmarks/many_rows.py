"""A study of millions of made-up replications through a real Dask cluster: collected, killed on the way, resumed.

``python -m tests.benchmarks.many_rows ROWS [FOLDER]`` starts a scheduler and two workers, collects the frozen November
study of so many replications as ``planner montecarlo`` does, kills the collector with SIGKILL when two fifths are
stored, resumes it to the end, and prints what that took and whether the statistics are right. Only the simulations are
made up, each replication from its number alone: every figure is lognormal about a known median, so what a study says of
them is known in closed form.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.stats import norm

from planner.answers.study import study_summary, study_table
from planner.api import study
from planner.studies import engines
from planner.studies.engines import Piece
from planner.studies.replicate import Replicator, Rows, Setup, objective_names
from planner.studies.runner import Progress, batch_size
from tests.benchmarks.study_memory import STUDY

ROOT = Path(__file__).parents[2]
SIGMA = 0.25
"""Of the logarithm of every figure; half its variance follows the first input."""
APART = 0.05
"""By how much of the first scenario's median each scenario's is above the one before."""
KEPT = (0.95, 0.95, 0.95, 0.85)
"""Share of replications in which each scenario meets its SLO target, of which nine in ten are asked."""
FAILS_EVERY = 10_000
"""Batches between two of which one run of the second scenario fails."""
BATCH_S = 0.08
"""What a worker says a batch takes, 5 ms a run: so a task, five seconds of work, is 250 replications."""
KILLED_AT = 0.4
LEAST_FREE_BYTES = 15_000_000_000
_HEADLINES = objective_names()
_SHORTFALL, _MONTHS = (
    _HEADLINES.index(name) for name in ("slo_shortfall_fraction", "slo_met_months")
)


_stream = np.random.Philox(key=[7, 0])
_begin = _stream.state
_draw = np.random.Generator(_stream)


def made_up(setup: Setup, batches: Sequence[tuple[int, int]]) -> list[Rows]:
    """Return replications that their numbers decide, of the shape that a worker sends; batches are of one size."""
    rows, scenarios, months, series = batches[0][1] - batches[0][0], *_shape_of(setup)
    inputs = len(setup.inputs)
    headlines = scenarios * len(_HEADLINES)
    normals = np.empty((len(batches), rows * (inputs + headlines)))
    uniforms = np.empty((len(batches), rows, scenarios))
    for place, (first, _) in enumerate(batches):
        _begin["state"]["key"][1] = (
            first  # a stream of its own for each batch, without the cost of making one
        )
        _stream.state = _begin
        _draw.standard_normal(out=normals[place])
        _draw.random(out=uniforms[place])
    scores = normals[:, : rows * inputs].reshape(-1, rows, inputs)
    figures = (
        normals[:, rows * inputs :].reshape(-1, rows, scenarios, len(_HEADLINES))
        + scores[:, :, :1, None]
    )
    figures = np.exp(SIGMA * math.sqrt(0.5) * figures) * (
        1.0 + APART * np.arange(scenarios)[:, None]
    )
    short = uniforms >= np.array(KEPT)[np.arange(scenarios) % len(KEPT)]
    figures[..., _SHORTFALL] = np.where(short, 0.1, 0.0)
    figures[..., _MONTHS] = np.where(short, 6.0, months)
    values = np.exp(scores)
    growth = 1.0 + np.arange(months) / 100.0
    made = []
    for place, (first, last) in enumerate(batches):
        errors: tuple[tuple[int, int, str], ...] = ()
        if first % (rows * FAILS_EVERY) == 0 and scenarios > 1:
            figures[place, 0, 1] = np.nan
            errors = ((first, 1, "PlannerError: made up"),)
        kept = series if setup.is_detailed(first) else 0
        made.append(
            Rows(
                first=first,
                chance=np.arange(first, last),
                inputs=values[place],
                headlines=figures[place],
                monthly=figures[place, :, :, :kept, None] * growth,
                errors=errors,
            )
        )
    return made


_shapes: dict[int, tuple[int, int, int]] = {}


def _shape_of(setup: Setup) -> tuple[int, int, int]:
    """Return scenarios, months and monthly series, which a setup works out each time it is asked."""
    if id(setup) not in _shapes:
        _shapes[id(setup)] = (len(setup.scenarios), setup.months, len(setup.monthly))
    return _shapes[id(setup)]


_setups: dict[str, Setup] = {}


def made_up_work(
    payload: bytes, digest: str, _: object, pieces: list[Piece]
) -> tuple[list[Rows], float]:
    """Stand in for a Dask worker's work."""
    import pickle  # noqa: PLC0415 - a worker's own

    if digest not in _setups:
        _, _setups[digest] = pickle.loads(payload)
    return made_up(_setups[digest], [(first, last) for first, last, *_ in pieces]), BATCH_S


def collect(
    file: Path, folder: Path, rows: int, scheduler: str | None, *, resume: bool, kill_at: int | None
) -> None:
    """Collect a study as the command does, on a cluster or in this process, and say how far it is, for a program.

    With ``kill_at`` this process ends like one that is killed from outside, when so many rows are done.
    """
    told = [0]

    def watch(progress: Progress) -> None:
        if progress.done - told[0] >= rows / 100 or progress.done == rows:
            told[0] = progress.done
            print("at", progress.done, time.process_time(), flush=True)
            if kill_at is not None and progress.done >= kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def run(worker: Replicator, first: int, last: int, *_: object) -> Rows:
        return made_up(worker.setup, [(first, last)])[0]

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with (
        mock.patch.object(engines, "_work", made_up_work),
        mock.patch.object(Replicator, "run", run),
    ):
        answer = study(
            file,
            rows,
            folder,
            workers=1,
            scheduler=scheduler,
            resume=resume,
            watch=watch,
            progress=say,
        )
    say(study_table(study_summary(answer.result)))


@contextlib.contextmanager
def cluster(place: Path) -> Iterator[str]:
    """Start a scheduler and two workers, each a process; yield their address."""
    started: list[subprocess.Popen[bytes]] = []

    def dask(*arguments: str) -> None:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        nowhere = subprocess.DEVNULL
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=nowhere, stderr=nowhere)
        )

    address = place / "scheduler.json"
    try:
        dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(address))
        while not (address.exists() and address.read_text()):
            time.sleep(0.1)
        found = json.loads(address.read_text())["address"]
        for _ in range(2):
            dask(
                "worker",
                found,
                "--nthreads",
                "1",
                "--no-nanny",
                "--local-directory",
                str(place / "spill"),
            )
        yield found
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@dataclass(kw_only=True)
class Told:
    """What a collector said of itself."""

    first: tuple[int, float] | None = None
    """Rows and processor seconds when it first spoke."""
    last: tuple[int, float] = (0, 0.0)
    peak_mb: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0


def collector(
    file: Path, folder: Path, rows: int, address: str, kill_at: int | None = None
) -> Told:
    """Run a collector to its end, or until it is killed; it resumes what is there. ``-`` is no cluster but itself."""
    given = [str(file), str(folder), str(rows), address, "" if kill_at is None else str(kill_at)]
    command = [sys.executable, "-m", "tests.benchmarks.many_rows", "--collect", *given]
    begin_s = time.monotonic()
    told = Told()
    process = subprocess.Popen(
        command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            _, done, cpu_s = line.split()
            told.last = (int(done), float(cpu_s))
            told.first = told.first or told.last
            if shutil.disk_usage(folder.parent).free < LEAST_FREE_BYTES:
                process.kill()
                raise OSError("the disk is nearly full")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == (0 if kill_at is None else -signal.SIGKILL), process.returncode
    told.peak_mb = usage.ru_maxrss / 1024.0
    told.cpu_s = usage.ru_utime + usage.ru_stime
    told.wall_s = time.monotonic() - begin_s
    return told


class Disk:
    """The most that a folder takes, looked at every few seconds."""

    def __init__(self, folder: Path) -> None:
        """Begin to look."""
        self.most_bytes, self._folder, self._done = 0, folder, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(2.0):
            self.most_bytes = max(self.most_bytes, _size(self._folder))

    def close(self) -> None:
        """Look no more."""
        self._done.set()
        self._thread.join()


def _size(folder: Path) -> int:
    total = 0
    for within, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(within) / name).stat().st_size
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A figure of a finished study beside what it is known to be."""

    name: str
    stated: float
    known: float
    error: float
    """Standard error of so many replications."""

    @property
    def is_right(self) -> bool:
        """Whether it is within four and a half standard errors: one in 150,000 would not be."""
        return abs(self.stated - self.known) <= 4.5 * self.error


def checks(folder: Path, rows: int, detailed: int, scenarios: tuple[str, ...]) -> list[Check]:
    """Hold a folder's tables against the distribution that its replications were made from."""
    listed = []
    for row in _table(folder / "percentiles.csv"):
        if row["output"] != "cost_per_million_tokens_usd":
            continue
        place = scenarios.index(row["scenario"])
        count = int(row["replications"])
        assert count == rows - (
            -(-rows // (FAILS_EVERY * batch_size(len(scenarios)))) if place == 1 else 0
        )
        name = f"{row['statistic']} of {row['scenario']}"
        listed.append(
            Check(name=name, stated=float(row["value"]), **_known(row["statistic"], place, count))
        )
    for row in _table(folder / "slo_target.csv"):
        share = KEPT[scenarios.index(row["scenario"])]
        error = math.sqrt(share * (1 - share) / rows)
        name = f"P(met) of {row['scenario']}"
        listed.append(
            Check(name=name, stated=float(row["slo_met_fraction"]), known=share, error=error)
        )
    for row in _table(folder / "decision.csv"):
        if row["against"]:
            one, other = (
                math.log(1 + APART * scenarios.index(row[key])) for key in ("scenario", "against")
            )
            share = float(norm.cdf((other - one) / SIGMA))
            error = math.sqrt(share * (1 - share) / rows)
            name = f"P({row['scenario']} better than {row['against']})"
            listed.append(
                Check(name=name, stated=float(row["probability_better"]), known=share, error=error)
            )
    for row in _table(folder / "monthly_bands.csv"):
        if (row["scenario"], row["output"]) == (scenarios[0], "utilisation_fraction"):
            assert int(row["replications"]) == detailed
            growth = (
                1.0 + (12 * (int(row["month"][:4]) - 2026) + int(row["month"][5:7]) - 1) / 100.0
            )
            known = {key: growth * figure for key, figure in _known("p90", 0, detailed).items()}
            listed.append(
                Check(name=f"p90 by month in {row['month']}", stated=float(row["p90"]), **known)
            )
    return listed


def _known(statistic: str, place: int, rows: int) -> dict[str, float]:
    """Return a statistic of the lognormal of one scenario, and the standard error of its estimate."""
    median = 1.0 + APART * place
    mean = median * math.exp(SIGMA**2 / 2)
    sd = mean * math.sqrt(math.exp(SIGMA**2) - 1)
    if statistic == "mean":
        return {"known": mean, "error": sd / math.sqrt(rows)}
    if statistic == "sd":
        excess = (
            math.exp(4 * SIGMA**2) + 2 * math.exp(3 * SIGMA**2) + 3 * math.exp(2 * SIGMA**2) - 6
        )
        return {"known": sd, "error": sd * math.sqrt((excess + 2) / (4 * rows))}
    if statistic == "cvar95":
        tail = mean * float(norm.cdf(SIGMA - norm.ppf(0.95))) / 0.05
        return {
            "known": tail,
            "error": 6 * sd / math.sqrt(rows),
        }  # generous: a mean of a twentieth of the rows
    share = float(statistic[1:]) / 100
    score = float(norm.ppf(share))
    value = median * math.exp(SIGMA * score)
    density = float(norm.pdf(score)) / (SIGMA * value)
    return {"known": value, "error": math.sqrt(share * (1 - share) / rows) / density}


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def main(rows: int, place: Path) -> None:
    """Collect, kill, resume, check; print what it took."""
    folder = place / "out"
    disk = Disk(place)
    with cluster(place) as address:
        killed = collector(STUDY, folder, rows, address, int(KILLED_AT * rows))
        resumed = collector(STUDY, folder, rows, address)
    disk.close()
    first = resumed.first or resumed.last
    per_row = (resumed.last[1] - first[1]) / max(resumed.last[0] - first[0], 1)
    listed = checks(
        folder, rows, min(rows, 65_536), ("mixed", "all-h200", "all-mi325x", "all-b200")
    )
    wrong = [check for check in listed if not check.is_right]
    for name, figure in (
        ("replications", rows),
        ("stored when it was killed", killed.last[0]),
        ("wall, s", killed.wall_s + resumed.wall_s),
        ("of which after the resume, s", resumed.wall_s),
        ("processor time of the collector, s", killed.cpu_s + resumed.cpu_s),
        ("processor time a replication collected, ms", 1000 * per_row),
        ("peak memory of the collector that was killed, MB", killed.peak_mb),
        ("peak memory of the collector that ended, MB", resumed.peak_mb),
        ("most disk, GB", disk.most_bytes / 1e9),
        ("disk when finished, GB", _size(folder) / 1e9),
        ("statistics checked", len(listed)),
        ("of which wrong", len(wrong)),
    ):
        print(f"{name:<50} {figure:14,.3f}", flush=True)
    worst = max(listed, key=lambda check: abs(check.stated - check.known) / check.error)
    print(
        f"farthest off: {worst.name}, {worst.stated:.6g} for {worst.known:.6g} ± {worst.error:.2g}"
    )
    for check in wrong:
        print(f"wrong: {check.name}, {check.stated:.6g} for {check.known:.6g} ± {check.error:.2g}")


if __name__ == "__main__":
    if sys.argv[1] == "--collect":
        given, out, count, at, end = sys.argv[2:]
        place = Path(out)
        address = None if at == "-" else at
        collect(
            Path(given),
            place,
            int(count),
            address,
            resume=place.exists(),
            kill_at=int(end) if end else None,
        )
    else:
        with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
            main(int(sys.argv[1]), Path(name))
