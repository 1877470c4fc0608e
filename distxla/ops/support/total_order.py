"""The total order of floats: -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN."""

from __future__ import annotations

import numpy as np

from distxla.ir.element_type import F8E3M4, F8E4M3, F8E5M2, ElementType
from distxla.ops.support.conversion import Array, widened

# 8-bit floats with several NaNs, which the total order tells apart; the others are ordered as the f32 they are
OWN_ORDER = (F8E5M2, F8E4M3, F8E3M4)


def total_order_key(floats: Array, element_type: ElementType) -> Array:
    """Integers in the total order: the bits, those of negative floats reflected below -1. A type's only NaN is ordered
    as the f32 that it is: first where its code has the sign bit (the fnuz types)."""
    if element_type.bits < 16 and element_type not in OWN_ORDER:
        floats = widened(floats)
    bits = floats.view(f"i{floats.dtype.itemsize}")
    return np.where(bits < 0, np.array(np.iinfo(bits.dtype).max, bits.dtype) ^ bits, bits)
