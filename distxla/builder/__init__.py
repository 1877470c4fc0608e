"""HLO programs written in Python: `XlaBuilder` and the values it gives.

    b = XlaBuilder("scaled")
    x = b.parameter(0, "f32[4]", "x")
    module = b.build(x * 2 + 1)

The builder checks every instruction when it is added; the module that `build` gives verifies, prints as HLO text and
runs like one that was parsed.
"""

from __future__ import annotations

from distxla.builder.windows import DotDimensionNumbers
from distxla.builder.xla_builder import XlaBuilder
from distxla.builder.xla_op import XlaOp

__all__ = ["DotDimensionNumbers", "XlaBuilder", "XlaOp"]
