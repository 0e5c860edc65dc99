"""Types of the arrays that physics passes around."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Complexes = NDArray[np.complex128]
Bools = NDArray[np.bool_]
FloatLike = Any  # a number, a sequence of numbers or an array, as np.asarray takes it
