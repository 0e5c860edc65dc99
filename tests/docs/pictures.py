"""Pictures in the pages: each is drawn by a command that its page shows.

A comment on the line above a picture says where it comes from, in the folder in which the page was carried out:

* ``<!-- picture: outputs/plan/charts/money.png -->``: a file that a command wrote;
* ``<!-- screenshot: outputs/plan/report.html#answer -->``: a section of a report in a browser, in light colours.

``python -m tests.docs.refresh`` puts both beside the page, with fewer colours and points than the original.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tests.browser.chromium import Browser, find_chromium

_PICTURE = re.compile(
    r"^<!-- (picture|screenshot): (\S+) -->\n!\[([^\]]+)\]\(([^)\s]+)\)$", re.MULTILINE
)
WIDTH_POINTS = 1000
LARGEST_BYTES = 150_000
_COLOURS = 64
_LOOKS_THE_SAME = 2.0
"""Mean difference of two pictures, of 255: letters drawn elsewhere differ by less, a bar that moved by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of a page and where it comes from."""

    is_screenshot: bool
    source: str
    """Path in the folder of the page's commands; for a screenshot with the section's name behind ``#``."""
    words: str
    """What the picture shows, for those who cannot see it."""
    path: Path
    """Where it lies."""


def pictures(page: Path) -> Iterator[Picture]:
    """Yield the pictures of a page."""
    for kind, source, words, target in _PICTURE.findall(page.read_text(encoding="utf-8")):
        yield Picture(
            is_screenshot=kind == "screenshot",
            source=source,
            words=words,
            path=page.parent / target,
        )


def drawn(picture: Picture, folder: Path) -> Image.Image:
    """Return a picture as it is now, from the folder in which its page was carried out, small enough for a page."""
    name, _, section = picture.source.partition("#")
    whole = (
        _screenshot(folder / name, section) if picture.is_screenshot else Image.open(folder / name)
    )
    whole = whole.convert("RGB")
    if whole.width > WIDTH_POINTS:
        height = round(whole.height * WIDTH_POINTS / whole.width)
        whole = whole.resize((WIDTH_POINTS, height), Image.Resampling.LANCZOS)
    return whole.quantize(
        _COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    )  # a thin line keeps its hue


def look_the_same(one: Image.Image, other: Image.Image) -> bool:
    """Return whether two pictures show the same, whoever drew the letters."""
    if one.size != other.size:
        return False
    first, second = (np.asarray(image.convert("RGB"), dtype=np.float64) for image in (one, other))
    return float(np.abs(first - second).mean()) < _LOOKS_THE_SAME


def refresh_pictures(page: Path, folder: Path) -> list[Path]:
    """Put the pictures of a page beside it where they look different now; return those written."""
    written = []
    for picture in pictures(page):
        if picture.is_screenshot and find_chromium() is None:
            continue
        fresh = drawn(picture, folder)
        if picture.path.exists():
            with Image.open(picture.path) as present:
                if look_the_same(present, fresh):
                    continue
        picture.path.parent.mkdir(exist_ok=True)
        fresh.save(picture.path, optimize=True)
        written.append(picture.path)
    return written


def _screenshot(report: Path, section: str) -> Image.Image:
    """Return a section of a report as a browser shows it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            browser.colour_scheme("light")
            browser.resize(WIDTH_POINTS, 900)
            browser.open(report)
            found = f"document.getElementById('{section}').getBoundingClientRect()"
            top, height = browser.evaluate(f"[{found}.top + scrollY, {found}.height]")
            shot = Path(profile) / "shot.png"
            browser.screenshot(shot)
            with Image.open(io.BytesIO(shot.read_bytes())) as whole:
                return whole.crop((0, int(top), whole.width, int(top + height)))
        finally:
            browser.close()
