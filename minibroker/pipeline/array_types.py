"""The types of numpy's arrays in which the pipeline has columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
UInt8s = NDArray[np.uint8]
UInt64s = NDArray[np.uint64]
Bools = NDArray[np.bool_]
