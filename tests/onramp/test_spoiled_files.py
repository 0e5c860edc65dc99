"""A foreign file that is spoiled is read, or refused with its name; no fault of the program, and nothing written."""

from __future__ import annotations

import functools
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.calibration import test_bench_results as results
from tests.conftest import Planner
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


def _command(reader: str, file: str) -> tuple[str, ...]:
    """Return the command that the docs name for a file of a kind."""
    if reader == "bench":
        return (
            "check-benchmarks",
            file,
            "--run",
            ",".join(f"{key}={text}" for key, text in RUN.items()),
        )
    source = {"traffic": "--from", "fleet": "--fleet", "quotes": "--quotes"}[reader]
    return ("init", "spoiled", source, file)


def _spoil(seeds: range, planner: Planner, folder: Path) -> Counter[str]:
    """Return how the commands on spoiled files ended, each named after its seed and kind where it is a fault."""
    endings: Counter[str] = Counter()
    specimens = _specimens()
    for seed in seeds:
        chance = random.Random(seed)
        name = chance.choice(sorted(specimens))
        reader, _, file = name.partition(" ")
        path = folder / file
        path.write_bytes(mutate(specimens[name], chance, is_yaml=False))
        told = planner(*_command(reader, file))
        path.unlink()
        written = sorted(one.name for one in folder.iterdir())
        for one in written:
            (folder / one).unlink()
        if told.code == 0:
            endings["read"] += 1
        elif told.code != 2 or written or "Traceback" in told.err:
            fault = f"fault: {name}, seed {seed}: exit {told.code}, wrote {written}: {told.err}"
            endings[fault[:400]] += 1
        else:
            endings["refused"] += 1
            endings["with its file"] += file in told.err
            endings["with a line"] += re.search(rf"{re.escape(file)}:\d", told.err) is not None
    return endings


def _check(endings: Counter[str], number: int) -> None:
    faults = [ending for ending in endings if ending.startswith("fault")]
    assert not faults, "\n".join(faults)
    assert endings["read"] + endings["refused"] == number
    assert endings["refused"] > number * 0.2
    assert endings["with its file"] == endings["refused"]
    # What is of the whole file, such as times without a clock, or deep in well-formed JSON has a place and no line.
    assert endings["with a line"] > endings["refused"] * 0.85


def test_spoiled_foreign_files_are_read_or_refused(planner: Planner, tmp_path: Path) -> None:
    _check(_spoil(range(30), planner, tmp_path), 30)


@pytest.mark.prove
def test_two_thousand_spoiled_foreign_files(planner: Planner, tmp_path: Path) -> None:
    endings = _spoil(range(2000), planner, tmp_path)
    print(endings)
    _check(endings, 2000)
