"""Which file holds each batch of a study: four bytes a batch, of which a long study has millions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class Homes:
    """The files of batches by their number, in order of their rows."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._files: list[Path] = []
        self._of = np.full(0, -1, dtype=np.int32)
        """By batch: the place of its file; −1 where it is nowhere."""

    def put(self, numbers: Numbers, path: Path) -> None:
        """Say that a file holds some batches."""
        if not len(numbers):
            return
        if (most := int(numbers.max()) + 1) > len(self._of):
            longer = np.full(max(most, 2 * len(self._of)), -1, dtype=np.int32)  # doubled, so that each is moved once
            longer[: len(self._of)] = self._of
            self._of = longer
        self._of[numbers] = len(self._files)
        self._files.append(path)

    def remove(self, number: int) -> None:
        """Say that a batch is nowhere."""
        self._of[number] = -1

    def clear(self) -> None:
        """Say that no file holds any batch."""
        self._files, self._of = [], np.full(0, -1, dtype=np.int32)

    def numbers(self) -> Numbers:
        """Return the batches that are held, in order."""
        return np.flatnonzero(self._of >= 0)

    def runs(self, first: int = 0, last: int | None = None) -> Iterator[tuple[Path, Numbers]]:
        """Yield the batches of a range in order, as many at a time as follow each other in one file."""
        numbers = self.numbers()
        numbers = numbers[np.searchsorted(numbers, first) : None if last is None else np.searchsorted(numbers, last)]
        ends = np.flatnonzero(np.diff(self._of[numbers])) + 1
        for run in np.split(numbers, ends):
            if len(run):
                yield self._files[self._of[run[0]]], run
