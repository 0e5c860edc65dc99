"""A foreign file that is spoiled is read, or refused with its name; no fault of the program, and nothing written."""

from __future__ import annotations

import datetime
import functools
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from planner.calibration.benchmarks import read_benchmarks
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from planner.onramp.first_scenario import fit_workloads, read_fleet, read_quotes, scenario_text
from planner.onramp.traffic_fit import TrafficOptions
from tests.calibration import test_bench_results as results
from tests.fuzz.mutations import mutate
from tests.fuzz.targets import QUERY, SCRAPE
from tests.onramp import test_foreign_files as foreign
from tests.onramp.companies import company

RUN = {"accelerator": "H200", "tp": "4", "model": results.MODEL, "engine": "vllm"}


@functools.cache
def _specimens() -> dict[str, bytes]:
    """Return a small file of each kind, named after its reader."""
    pages = json.loads(json.dumps(foreign._openai_pages()[:1]))
    days = foreign._litellm_days()
    days["results"] = days["results"][:20]
    texts = {
        "traffic hourly.csv": "\n".join(company(0).table().splitlines()[:72]),
        "traffic usage.json": json.dumps(pages, indent=1),
        "traffic activity.json": json.dumps(days, indent=1),
        "traffic spend.json": json.dumps(foreign._litellm_logs()[:40], indent=1),
        "traffic scrape.txt": SCRAPE,
        "traffic prometheus.json": QUERY,
        "fleet owned.csv": "host,accelerator,bought\na,H200,2025-03-01\nb,H200,2025-03-01\n",
        "quotes quotes.csv": "accelerator,price_usd,lead_weeks\nB200,39500,20\nH200,31000,12\n",
        "bench vllm.json": json.dumps(results._vllm(), indent=1),
        "bench sglang.jsonl": json.dumps(results._sglang()) + "\n" + json.dumps(results._sglang()),
        "bench genai.json": json.dumps(results.GENAI_PERF, indent=1),
        "bench aiperf.json": json.dumps(results.AIPERF, indent=1),
    }
    return {name: text.encode() for name, text in texts.items()}


def _read(reader: str, path: Path) -> None:
    """Read a file as its command does, up to the text that would be written."""
    catalog = load_catalog()
    if reader == "traffic":
        workloads, start = fit_workloads([str(path)], TrafficOptions(), catalog)
        scenario_text("spoiled", start, workloads)
    elif reader == "fleet":
        scenario_text("spoiled", datetime.date(2026, 1, 1), (), read_fleet(path))
    elif reader == "quotes":
        scenario_text("spoiled", datetime.date(2026, 1, 1), (), read_quotes(path))
    else:
        read_benchmarks(path, RUN)


def _spoil(seeds: range, folder: Path) -> Counter[str]:
    """Return how spoiled files ended, each named after its seed and kind where it is a fault."""
    endings: Counter[str] = Counter()
    specimens = _specimens()
    for seed in seeds:
        chance = random.Random(seed)
        name = chance.choice(sorted(specimens))
        reader, _, file = name.partition(" ")
        path = folder / file
        path.write_bytes(mutate(specimens[name], chance, is_yaml=False))
        try:
            _read(reader, path)
            endings["read"] += 1
        except ScenarioError as error:
            endings["refused"] += 1
            # Figures that are no scenario's are named by their place in it.
            if any(file in str(problem) for problem in error.problems):
                endings["with its file"] += 1
            if any(problem.line for problem in error.problems):
                endings["with a line"] += 1
        except Exception as error:
            endings[f"fault: {name}, seed {seed}: {type(error).__name__}: {error}"[:300]] += 1
        path.unlink()
    return endings


def _check(endings: Counter[str], number: int, folder: Path) -> None:
    faults = [ending for ending in endings if ending.startswith("fault")]
    assert not faults, "\n".join(faults)
    assert endings["read"] + endings["refused"] == number
    assert endings["refused"] > number * 0.2
    assert endings["with its file"] == endings["refused"]
    # What is of the whole file, such as times without a clock, or deep in well-formed JSON has a place and no line.
    assert endings["with a line"] > endings["refused"] * 0.85
    assert not list(folder.iterdir())


def test_spoiled_foreign_files_are_read_or_refused(tmp_path: Path) -> None:
    _check(_spoil(range(80), tmp_path), 80, tmp_path)


@pytest.mark.prove
def test_two_thousand_spoiled_foreign_files(tmp_path: Path) -> None:
    endings = _spoil(range(2000), tmp_path)
    print(endings)
    _check(endings, 2000, tmp_path)
