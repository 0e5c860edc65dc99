"""The versions that a release is tested with are all written down."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements: list[str]) -> dict[str, str]:
    """Return the installed version of everything that some requirements lead to."""
    found: dict[str, str] = {}
    waiting = [Requirement(text) for text in requirements]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        for extra in {"", *wanted.extras}:
            if (key := (normal(wanted.name), extra)) in seen:
                continue
            seen.add(key)
            installed = metadata.distribution(wanted.name)
            found[key[0]] = installed.version
            further = map(Requirement, installed.requires or ())
            waiting += [
                part
                for part in further
                if part.marker is None or part.marker.evaluate({"extra": extra})
            ]
    return found


def test_every_dependency_of_the_closure_is_pinned_to_what_is_tested(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *extras["dev"],
        *extras["docs"],
        *extras["dask"],
        *extras["ui"],
    ]
    lines = (root / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = {
        normal(pin.name): str(pin.specifier)
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }
    assert {name: f"=={version}" for name, version in closure(wanted).items()} == here
