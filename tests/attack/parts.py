"""The parts of the attack; each does something to real commands and looks at what is left."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planner.files import OWNER, WORK
from tests.attack.killing import killed_at, operations_of
from tests.conftest import TINY

STUDY = """\
name: small
scenarios:
  both: {extends: tiny.yaml}
uncertain:
  site.electricity_usd_per_kwh: {kind: triangular, low: 0.04, mode: 0.07, high: 0.15}
scramblings: 4
"""
LOADED = (
    "planner.cli.app",
    "planner.actuals.actuals_answer",
    "planner.answers.run",
    "planner.answers.size",
    "planner.answers.study",
    "planner.output.folder",
    "planner.output.workbook",
    "planner.studies.runner",
    "planner.studies.sweep",
    "planner.studies.analysis",
    "planner.sizing.size",
    "planner.actuals.reforecast",
    "pyarrow.parquet",
    "scipy.special",
)
GROWTH = "date,multiplier\n2026-01-01,1\n2026-03-01,1.5\n"
GROWING = TINY.replace(
    "requests_per_s: 5\n", "requests_per_s: 5\n    growth: {kind: csv, file: growth.csv}\n"
)
SIZED = (
    GROWING
    + """\
sizing:
  clusters: {h200: {dates: [2026-01-01, 2026-02-01], max_nodes: 3}}
"""
)
SEEN = {
    "mapping.yaml": "files:\n  books.csv: {kind: finance}\n",
    "books.csv": "account,month,usd\nenergy,2026-01,900\nenergy,2026-02,2000\n",
}
ONE = ("--workers", "1")
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "run": (["run", "tiny.yaml", "--replications", "1"], []),
    "sweep": (["sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=3,4"], ["--resume"]),
    "montecarlo": (["montecarlo", "study.yaml", "-n", "12", *ONE], ["--resume"]),
    "size": (
        ["size", "sized.yaml", "-n", "2", "--confirmations", "4", "--workers", "1"],
        ["--resume"],
    ),
    "actuals": (["actuals", "study.yaml", "seen", "-n", "32", "--workers", "1"], []),
}
"""Commands that are killed: the words of the call, and what is added to go on."""


@dataclass(slots=True)
class Findings:
    """What no attack may find."""

    tracebacks: list[str] = field(default_factory=list)
    silent_wrongs: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """Return everything that was found."""
        return [*self.tracebacks, *self.silent_wrongs, *self.lost]

    def summary(self) -> str:
        """Return the line that is printed at the end."""
        return f"{len(self.tracebacks)} tracebacks, {len(self.silent_wrongs)} silent wrongs, {len(self.lost)} lost"


def corpus(place: Path) -> None:
    """Write the files that commands are called on, and load what they load, once for all forks."""
    for name in LOADED:
        importlib.import_module(name)
    (place / "tiny.yaml").write_text(GROWING)
    (place / "growth.csv").write_text(GROWTH)
    (place / "study.yaml").write_text(STUDY)
    (place / "sized.yaml").write_text(SIZED)
    (place / "seen").mkdir(exist_ok=True)
    for name, content in SEEN.items():
        (place / "seen" / name).write_text(content)


def answers(folder: Path) -> dict[str, str]:
    """Return the hashes of a finished folder's files, which are its answer; but a data dictionary holds its name."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    return {
        name: digest for name, digest in manifest["files"].items() if name != "datapackage.json"
    }


def faults_of(folder: Path) -> list[str]:
    """Return what is wrong with a folder that looks finished; one without a manifest does not look so."""
    if not (folder / "manifest.json").exists():
        return []
    listed = json.loads((folder / "manifest.json").read_bytes())["files"]
    return [
        name
        for name, digest in listed.items()
        if not (folder / name).is_file()
        or hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]


def call(place: Path, words: Sequence[str]) -> None:
    """Call the command line in this process, as a forked one does."""
    from planner.cli.app import main  # noqa: PLC0415 - loaded once, before the forks

    os.chdir(place)
    sys.argv = ["planner", *words, "-q"]
    with (place / "said.txt").open("w") as stream:
        os.dup2(stream.fileno(), 2)
    main()


def tried(
    place: Path, words: Sequence[str], after: int = sys.maxsize, *, exchange: bool = True
) -> bool:
    """Call a command in a process of its own, killed at an operation; say whether it was."""
    return killed_at(lambda: call(place, words), after, exchange=exchange)


def kill_often(place: Path, count: int, generator: random.Random, findings: Findings) -> str:
    """Kill commands at random file operations, over earlier results and over none, and let them go on."""
    corpus(place)
    told = []
    for number, (name, (words, again)) in enumerate(COMMANDS.items()):
        share = count // len(COMMANDS) + (number < count % len(COMMANDS))
        for folder in ("earlier", "wanted"):
            shutil.rmtree(place / folder, ignore_errors=True)
        assert not tried(place, [*words, "--out", "earlier", "--seed", "1"])
        wanted = [*words, "--out", "wanted", "--seed", "2"]
        operations = operations_of(functools.partial(call, place, wanted))
        for _ in range(share):
            after = generator.randrange(operations)
            exchange = generator.random() < 0.7
            where = f"{name} killed at operation {after} of {operations}, exchange {exchange}"
            shutil.rmtree(place / "o", ignore_errors=True)
            with_earlier = generator.random() < 0.7
            if with_earlier:
                shutil.copytree(place / "earlier", place / "o")
            out = [*words, "--out", "o", "--seed", "2"]
            tried(place, out, after, exchange=exchange)
            _look(place, where, findings, in_sight=with_earlier and exchange)
            begun = (place / "o" / WORK / OWNER).exists()
            _go_on(place, [*out, *(again if begun else [])], where, findings)
        told.append(f"{share} of {name} ({operations} operations)")
    return ", ".join(told)


def _look(place: Path, where: str, findings: Findings, *, in_sight: bool) -> None:
    said = (place / "said.txt").read_text()
    if "Traceback" in said:
        findings.tracebacks.append(f"{where}: {said[-400:]}")
    if faults := faults_of(place / "o"):
        findings.silent_wrongs.append(
            f"{where}: looks finished, but {faults[:3]} are not what is listed"
        )
    if in_sight and not (place / "o" / "manifest.json").exists():
        findings.lost.append(f"{where}: earlier results are out of sight")


def _go_on(place: Path, words: Sequence[str], where: str, findings: Findings) -> None:
    """Let a command go on that was killed; it must reach the undisturbed answer and leave nothing beside it."""
    try:
        assert not tried(place, words)
    except AssertionError as error:
        findings.lost.append(
            f"{where}: cannot go on: {error}: {(place / 'said.txt').read_text()[-400:]}"
        )
        return
    _look(place, f"{where}, gone on", findings, in_sight=True)
    if answers(place / "o") != answers(place / "wanted"):
        findings.silent_wrongs.append(f"{where}: gone on to another answer")
    if strays := [path.name for path in place.iterdir() if path.name.startswith(".")]:
        findings.lost.append(f"{where}: left {strays}")


def flip_bits(place: Path, count: int, generator: random.Random, findings: Findings) -> str:
    """Turn single bits round in the files of stopped and of finished studies, and let them go on."""
    corpus(place)
    words = COMMANDS["montecarlo"][0]
    assert not tried(place, [*words, "--out", "wanted", "--seed", "2"])
    out = [*words, "--out", "o", "--seed", "2"]
    after = next(after for after in (12, 16, 20, 24, 28) if _leaves_shards(place, out, after))
    shutil.copytree(place / "o", place / "stopped")
    endings = {"mended": 0, "refused": 0}
    for _ in range(count):
        is_stopped = generator.random() < 0.5
        shutil.rmtree(place / "o")
        shutil.copytree(place / ("stopped" if is_stopped else "wanted"), place / "o")
        within = sorted(
            path for path in (place / "o").rglob("*") if path.is_file() and path.stat().st_size
        )
        path = generator.choice(within)
        content = bytearray(path.read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        endings[_resumed(place, out, f"a bit of {path.relative_to(place)}, {after}", findings)] += 1
    return f"{count}, of which {endings['mended']} mended and {endings['refused']} refused with a message"


def _leaves_shards(place: Path, words: Sequence[str], after: int) -> bool:
    shutil.rmtree(place / "o", ignore_errors=True)
    return tried(place, words, after) and len(list((place / "o").glob("shards/*.parquet"))) >= 1


def _resumed(place: Path, words: Sequence[str], where: str, findings: Findings) -> str:
    try:
        assert not tried(place, [*words, "--resume"])
    except AssertionError:
        said = (place / "said.txt").read_text()
        if "Traceback" in said or "error:" not in said:
            findings.tracebacks.append(f"{where}: {said[-600:]}")
        return "refused"
    if answers(place / "o") != answers(place / "wanted") or faults_of(place / "o"):
        findings.silent_wrongs.append(f"{where}: gone on to another answer")
    return "mended"
