"""What is fed with spoiled files: every reader of something a user may write."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.answers.charts import figures_of
from planner.answers.comparison import write_comparison
from planner.answers.report import build_report, rebuild_report
from planner.answers.run import write_run
from planner.answers.study import write_designed, write_study
from planner.calibration.benchmarks import read_benchmarks
from planner.calibration.check import check_benchmarks
from planner.catalog.load import load_catalog
from planner.onramp.first_scenario import fit_workloads, scenario_text
from planner.onramp.traffic_fit import TrafficOptions
from planner.output.folder import NOT_READ, Contents, contents_of, fitting, read_contents
from planner.output.svg import svg_of
from planner.plan.build import build_plan
from planner.run.simulate import simulate_plan
from planner.scenario.loading import load_scenario
from planner.studies.analysis import Finished
from planner.studies.compare import compare
from planner.studies.designs import OneAtATime
from planner.studies.engines import Workforce
from planner.studies.prepare import prepare
from planner.studies.runner import Goal, batch_size, run_rows
from planner.studies.store import Store, identity
from tests.conftest import ROOT, TINY
from tests.fuzz.mutations import NASTY_NUMBERS, NASTY_TEXTS, mutate, scale_numbers
from tests.onramp.vllm_metrics import Truth, exposition
from tests.shipped import shipped_calibration
from tests.studies.conftest import SMALL

OVERLAY = """\
sources:
  lab: {title: "Our laboratory", date: 2026-06-01}
accelerators:
  H200: {accelerator_price_usd: {value: 31000, source: lab, grade: A, date: 2026-07-01}}
tariffs:
  home: {source: lab, grade: B, date: 2026-01-01, energy_usd_per_kwh: 0.1, grid_carbon_g_per_kwh: 300}
"""
REQUESTS = "timestamp,input_tokens,output_tokens\n" + "".join(
    f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:{(i * 7) % 60:02d}:00,{100 + i % 50},{20 + i % 9}\n"
    for i in range(120)
)
SERIES = "hour,req_per_s\n" + "".join(f"{i},{5 + (i % 24) / 3:.3f}\n" for i in range(24 * 14))
_LABELS = '"model_name": "m", "__name__": "vllm:request'
SCRAPE = exposition(Truth(weeks=1))
_ROWS = [
    f'{{"metric": {{{_LABELS}{rest}}}, "values": [[1e9, "5"], [1000003600, "17.5"], [1000007200, "3"]]}}'
    for rest in (
        '_success_total"',
        '_prompt_tokens_bucket", "le": "100"',
        '_prompt_tokens_bucket", "le": "+Inf"',
    )
]
QUERY = (
    f'{{"status": "success", "data": {{"resultType": "matrix", "result": [{", ".join(_ROWS)}]}}}}'
)
COMPILE_EVERY = 4
SIMULATE_EVERY = 40
"""Of the scenarios that survive, one in so many is compiled, and simulated and written: a hundred times as dear. Which
ones is the input's own luck, so that an input does the same whatever went before it."""
FOLDERS = ("run", "comparison", "study", "tornado")
SMALL_ENOUGH = 30_000
"""Node-months; a larger fleet is honest work, and would take the whole time."""


@dataclass(slots=True)
class Corpus:
    """Good files to start from, and a folder to work in."""

    folder: Path
    scenarios: list[bytes]
    results: tuple[tuple[dict[str, Any], dict[str, bytes]], ...]
    """Folders of every kind: of a run, a comparison, a Monte Carlo study, a tornado."""

    @classmethod
    def make(cls, folder: Path) -> Corpus:
        """Collect the shipped scenarios, and run a small one for the files it writes."""
        (folder / "tiny.yaml").write_text(TINY)
        loaded = load_scenario(folder / "tiny.yaml")
        write_run(simulate_plan(loaded, build_plan(loaded), 1), folder / FOLDERS[0])
        write_comparison(
            compare([loaded, load_scenario(folder / "tiny.yaml", ["name=dear"])]),
            folder / FOLDERS[1],
        )
        (folder / "study.yaml").write_text(SMALL)
        prepared = prepare(folder / "study.yaml")
        for design, place, rows in (
            (prepared.montecarlo(), FOLDERS[2], 8),
            (
                OneAtATime(inputs=len(prepared.inputs)),
                FOLDERS[3],
                2 * OneAtATime(inputs=len(prepared.inputs)).period,
            ),
        ):
            setup = prepared.setup(design)
            store = Store(
                folder / place,
                setup,
                identity(prepared.study, setup, batch_size(len(setup.scenarios))),
            )
            store.open(resume=False, restart=False)
            run_rows(store, Goal(rows=rows, objective=prepared.objective.name), Workforce())
            if isinstance(design, OneAtATime):
                write_designed(prepared, design, store, rows)
            else:
                write_study(Finished(prepared=prepared, store=store, rows=rows))
        shipped = [path.read_bytes() for path in sorted((ROOT / "scenarios").glob("*.yaml"))]
        whole = [raw for raw in shipped if b"extends:" not in raw]
        return cls(
            folder=folder,
            scenarios=[TINY.encode(), *whole],
            results=tuple(map(_read, (folder / name for name in FOLDERS))),
        )


def scenario(corpus: Corpus, chance: random.Random) -> None:
    """Read a spoiled scenario, compile it, and sometimes run it."""
    path = corpus.folder / "s.yaml"
    good = chance.choice(corpus.scenarios)
    spoiled = (
        scale_numbers(good, chance) if chance.random() < 0.1 else mutate(good, chance, is_yaml=True)
    )
    path.write_bytes(spoiled)
    turn = chance.randrange(SIMULATE_EVERY)
    loaded = load_scenario(path)
    if turn % COMPILE_EVERY:
        return
    node_months = sum(cluster.nodes for cluster in loaded.clusters.values()) * loaded.horizon_months
    plan = build_plan(loaded)
    if turn == 0 and node_months < SMALL_ENOUGH:
        write_run(simulate_plan(loaded, plan, chance.randrange(1000)), corpus.folder / "out")


def what_if(corpus: Corpus, chance: random.Random) -> None:
    """Read a good scenario with a spoiled ``--set``."""
    keys = [
        "clusters",
        "h200",
        "nodes",
        "name",
        "horizon_months",
        "workloads",
        "chat",
        "site",
        "seed",
        "tokens",
        "",
    ]
    words = chance.choices([*keys, *NASTY_TEXTS], k=chance.randrange(1, 5))
    value = chance.choice([*map(str, NASTY_NUMBERS), *NASTY_TEXTS, "[1, 2]", "{a: 1}"])
    build_plan(
        load_scenario(
            corpus.folder / "tiny.yaml", [".".join(words) + chance.choice(("=", "", "==")) + value]
        )
    )


def overlay(corpus: Corpus, chance: random.Random) -> None:
    """Read a spoiled catalogue overlay."""
    path = corpus.folder / "overlay.yaml"
    path.write_bytes(mutate(OVERLAY.encode(), chance, is_yaml=True))
    load_catalog("measured", path)


def benchmarks(corpus: Corpus, chance: random.Random) -> None:
    """Read a spoiled benchmark table and predict its rows."""
    path = corpus.folder / "b.csv"
    lines = (
        (ROOT / "planner" / "catalog" / "measurements.csv").read_bytes().splitlines(keepends=True)
    )
    path.write_bytes(
        mutate(b"".join([lines[0], *chance.sample(lines[1:], 3)]), chance, is_yaml=False)
    )
    check_benchmarks(read_benchmarks(path), load_catalog(), shipped_calibration())


def traffic(corpus: Corpus, chance: random.Random) -> None:
    """Read a spoiled request log, hourly series or export of metrics, and write its scenario."""
    path = corpus.folder / "t.csv"
    path.write_bytes(
        mutate(chance.choice((REQUESTS, SERIES, SCRAPE, QUERY)).encode(), chance, is_yaml=False)
    )
    workloads, start = fit_workloads([str(path)], TrafficOptions(), load_catalog())
    scenario_text("spoiled", start, workloads)


def report(corpus: Corpus, chance: random.Random) -> None:
    """Rebuild the report of a folder one of whose files was spoiled, hash and all."""
    with fitting("spoiled"):
        page = build_report(_spoiled(corpus, chance))
    assert page.count(b"<script") == 1
    assert b"<img" not in page


def charts(corpus: Corpus, chance: random.Random) -> None:
    """Draw the charts of a folder one of whose files was spoiled."""
    with fitting("spoiled"):
        for picture in figures_of(_spoiled(corpus, chance)).values():
            svg_of(picture)


def _spoiled(corpus: Corpus, chance: random.Random) -> Contents:
    """Return a folder with one file, and sometimes its manifest, changed."""
    known, whole = chance.choice(corpus.results)
    name = chance.choice(sorted(whole))
    files = {**whole, name: mutate(whole[name], chance, is_yaml=False)}
    manifest = dict(known)
    if chance.random() < 0.2:
        key = chance.choice(list(manifest))
        manifest[key] = chance.choice((*NASTY_TEXTS, *NASTY_NUMBERS, None, [], {}))
    return contents_of(manifest, files)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest of a folder, and its tables and JSON files as they lie there."""
    read_contents(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    names = [
        name
        for name in manifest.pop("files")
        if name.endswith((".csv", ".json")) and name not in NOT_READ
    ]
    return manifest, {name: (folder / name).read_bytes() for name in names}


def command_line(corpus: Corpus, chance: random.Random) -> None:
    """Call the whole command on a spoiled scenario; the exit code is 0 or 2, and no traceback is printed."""
    from planner.cli.app import main  # noqa: PLC0415

    path = corpus.folder / "c.yaml"
    path.write_bytes(mutate(TINY.encode(), chance, is_yaml=True))
    arguments = chance.choice((["validate", str(path)], ["validate", str(path), "--json"]))
    out = io.StringIO()
    err = io.StringIO()
    before = sys.argv
    sys.argv = ["planner", *arguments]
    code: object = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as leaving:
        code = leaving.code
    finally:
        sys.argv = before
    assert code in (0, 2, None), (code, err.getvalue())
    assert "Traceback" not in err.getvalue()
    assert all(line.isprintable() for line in err.getvalue().splitlines())
    if "--json" in arguments and code != 1:
        json.loads(out.getvalue())


def folder(corpus: Corpus, chance: random.Random) -> None:
    """Rebuild the report of a real folder with a spoiled manifest or file."""
    place = corpus.folder / "copy"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(corpus.folder / chance.choice(FOLDERS), place)
    path = chance.choice(sorted(place.iterdir()))
    path.write_bytes(mutate(path.read_bytes(), chance, is_yaml=False))
    rebuild_report(place)


Target = Callable[[Corpus, random.Random], None]
TARGETS: dict[Target, int] = {
    scenario: 66,
    what_if: 16,
    overlay: 3,
    benchmarks: 3,
    traffic: 6,
    report: 3,
    charts: 1,
    command_line: 1,
    folder: 1,
}
"""Each target with its weight."""
