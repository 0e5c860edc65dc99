"""Colours that can be told apart: against the paper, and from one another by the colour-blind."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import planner.output
from planner.output.scales import COLOURS as CHART_COLOURS
from planner.output.scales import DASHES

CSS = (Path(planner.output.__file__).parent / "templates" / "report.css").read_text()
LIGHT, DARK = CSS.split("@media (prefers-color-scheme: dark)")
# Severity 1.0 of Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE TVCG 15(6), table of matrices in linear RGB.
DEFICIENCIES = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}
Floats = NDArray[np.float64]


def colour(css: str, name: str) -> str:
    found = re.search(rf"--{name}: (#[0-9a-f]{{6}})", css)
    assert found, name
    return found[1]


def linear(code: str) -> Floats:
    raw = np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.asarray(np.where(raw <= 0.04045, raw / 12.92, ((raw + 0.055) / 1.055) ** 2.4))


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2.1."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ linear(code)) for code in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Floats) -> Floats:
    """Return CIE L*a*b* of linear RGB."""
    matrix = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = matrix @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("css", [LIGHT, DARK], ids=["light", "dark"])
def test_marks_stand_out_from_the_paper_and_text_can_be_read(css: str) -> None:
    paper = colour(css, "paper")
    for index in range(8):
        assert contrast(colour(css, f"c{index}"), paper) >= 3.0  # WCAG 1.4.11
    for name in ("ink", "soft", "accent"):
        assert contrast(colour(css, name), paper) >= 4.5  # WCAG 1.4.3
        assert contrast(colour(css, name), colour(css, "tint")) >= 4.5


@pytest.mark.parametrize("css", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_the_first_four_colours_differ_for_every_eye(css: str, deficiency: str) -> None:
    seen = [
        lab(np.array(DEFICIENCIES[deficiency]) @ linear(colour(css, f"c{i}"))) for i in range(4)
    ]
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(one - other) > 11  # a just noticeable difference is about 2.3


def test_the_files_for_slides_have_the_colours_of_the_report() -> None:
    assert [colour(LIGHT, f"c{i}") for i in range(8)] == list(CHART_COLOURS)


def test_every_colour_has_a_dash_of_its_own() -> None:
    dashes = re.findall(r"--dash: ([\d. ]+);", CSS)
    assert len(dashes) == len(set(dashes)) == 7  # the first is solid
    assert dashes == list(DASHES[1:])
