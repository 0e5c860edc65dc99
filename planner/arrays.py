"""The array types that packages exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Complexes = NDArray[np.complex128]
Ints = NDArray[np.intp]
"""Places in another array."""
Names = NDArray[np.str_]
Cents = NDArray[np.int64]
"""Money in whole cents, which no float ever touches."""
FloatLike = Any
"""A number, a sequence of numbers or an array, as np.asarray takes it."""
