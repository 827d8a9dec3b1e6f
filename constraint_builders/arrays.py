"""Names of the arrays that everything is made of."""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Long = NDArray[np.longdouble]
Index = NDArray[np.intp]
Integers = NDArray[np.int64]
Int32 = NDArray[np.int32]
Flags = NDArray[np.bool_]
