"""Values that the threads of a warp, 32 neighbours in a block, exchange without memory."""

from __future__ import annotations

from llvmlite import ir

from distxla.compiler.lower.grid.grid_loops import GridLoops
from distxla.compiler.lower.scalar_expression import F32T, F64T
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I32, I64
from distxla.targets.grid_module import grid_of

WARP = 32  # threads


def from_lane_behind(emit: GridLoops, value: ScalarValue, distance: int) -> ScalarValue:
    """What `value` is in the thread so far behind this one in its warp; this thread's own beyond the last one.

    All threads of the warp have to come here.
    """
    return ScalarValue(value.element_type, *(_moved(emit.builder, part, distance) for part in value.registers()))


def _moved(builder: ir.IRBuilder, register: ir.Value, distance: int) -> ir.Value:
    grid, kind = grid_of(builder), register.type
    if kind in (F32T, F64T):
        word = ir.IntType(32 if kind == F32T else 64)
        return builder.bitcast(_moved(builder, builder.bitcast(register, word), distance), kind)
    if kind.width > I32.width:
        low, high = builder.trunc(register, I32), builder.trunc(builder.lshr(register, I64(32)), I32)
        low, high = (builder.zext(grid.emit_shuffle_down(builder, part, distance), I64) for part in (low, high))
        return builder.or_(builder.shl(high, I64(32)), low)
    if kind.width < I32.width:
        return builder.trunc(grid.emit_shuffle_down(builder, builder.zext(register, I32), distance), kind)
    return grid.emit_shuffle_down(builder, register, distance)
