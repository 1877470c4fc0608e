"""Custom-calls by which XLA's TPU compiler takes 64-bit elements apart, which the chip has no registers for."""

from __future__ import annotations

from distxla.ir.element_type import C64, F32, F64, S64, U32, U64, ElementType
from distxla.ops.custom_calls.expanded import ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.expansion import Build

HALVES: dict[ElementType, ElementType] = {S64: U32, U64: U32, F64: F32, C64: F32}


@target("X64SplitLow", "X64SplitHigh")
class Split(ExpandedTarget):
    """One half of 64-bit elements: s64 and u64 -> u32, f64 -> f32, c64 -> f32.

    Integers: the low or high 32 bits.  f64: Low is the nearest f32, High the nearest f32 to the rest, 0 beside an
    infinity or a NaN.  c64: Low is the real part, High the imaginary one.
    Source: XLA's X64 rewriting; the halves' use in schedules that libtpu writes.
    """

    def expand(self, call: Call, build: Build, *operands: str) -> str:
        if len(operands) != 1 or not call.operands[0].is_array or call.operands[0].dtype not in HALVES:
            raise ConfigError(f"splits one array of 64-bit elements, not {', '.join(map(str, call.operands))}")
        (whole,), is_high = operands, call.name.endswith("High")
        shape = build.shape(whole)
        if shape.dtype is C64:
            return build.compute("imag" if is_high else "real", whole)
        if shape.dtype is F64:
            nearest = build.convert(whole, F32)
            if not is_high:
                return nearest
            rest = build.convert(build.compute("subtract", whole, build.convert(nearest, F64)), F32)
            finite = build.compute("is-finite", nearest)
            return build.select(finite, rest, build.constant(0, F32, shape.dims))
        if is_high:
            whole = build.compute("shift-right-logical", whole, build.constant(32, shape.dtype, shape.dims))
        return build.convert(whole, U32)


@target("X64Combine")
class Combine(ExpandedTarget):
    """64-bit elements from their halves, the low ones first: the results of X64SplitLow and X64SplitHigh."""

    def expand(self, call: Call, build: Build, *operands: str) -> str:
        element_type = call.shape.element_type
        half = HALVES.get(element_type) if element_type is not None else None
        if len(operands) != 2 or half is None or any(o.element_type is not half for o in call.operands):
            raise ConfigError(f"combines two halves, not {', '.join(map(str, call.operands))}, to {call.shape}")
        assert element_type is not None
        low, high = operands
        if element_type is C64:
            return build.compute("complex", low, high)
        low, high = (build.convert(part, element_type) for part in (low, high))
        if element_type is F64:
            return build.compute("add", high, low)
        shift = build.constant(32, element_type, build.shape(high).dims)
        return build.compute("or", low, build.compute("shift-left", high, shift))
