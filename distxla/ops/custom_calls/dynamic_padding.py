"""The targets "PadToStatic" and "SliceToDynamic": where XLA's own padding of dynamic dimensions begins and ends."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.run_time_sizes import cut, widened

PAD_TO_STATIC: Final = "PadToStatic"
SLICE_TO_DYNAMIC: Final = "SliceToDynamic"


@target(PAD_TO_STATIC)
class PadToStatic(CustomCallTarget):
    """An array padded to its bounds, zeros behind its elements, and its dimension sizes: T[<=n, ..] -> (T[n, ..],
    s32[], ..).

    Source: XLA, dynamic_padder.cc.
    """

    takes_dynamic: ClassVar[bool] = True

    def obstacle(self, call: Call) -> str | None:
        parts = call.shape.elements or ()
        fits = len(call.operands) == 1 and call.operands[0].is_array and bool(parts)
        if fits and parts[0].compatible(call.operands[0]) and _are_sizes(parts[1:], parts[0].rank):
            return None
        return f'custom-call of "{call.name}" to {call.shape} is not (T[..], s32[], ..) of one T[<=..]'

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        (array,), bounds = operands, call.operands[0].dims
        return widened(np.array(array), bounds), *(np.array(n, np.int32) for n in array.shape)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """Of an array that is static after all."""
        padded, *sizes = results
        emit.copy(padded, operands[0])
        for size, dimension_size in zip(sizes, padded.shape.dims, strict=True):
            size.store((), emit.constant(dimension_size, S32))


@target(SLICE_TO_DYNAMIC)
class SliceToDynamic(CustomCallTarget):
    """The first elements of a padded array, as many as the sizes say: (T[n, ..], s32[], ..) -> T[<=n, ..].

    Source: XLA, dynamic_padder.cc.
    """

    takes_dynamic: ClassVar[bool] = True

    def obstacle(self, call: Call) -> str | None:
        array, *sizes = call.operands or (call.shape,)
        if array.is_array and array.compatible(call.shape) and _are_sizes(sizes, array.rank):
            return None
        return f'custom-call of "{call.name}" to {call.shape} is not T[<=..] of (T[..], s32[], ..)'

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        array, *sizes = operands
        return cut(array, [min(max(int(n), 0), bound) for n, bound in zip(sizes, array.shape, strict=True)])

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """Only on padded arrays: the pass that makes them takes the sizes over."""
        emit.copy(results[0], operands[0])


def _are_sizes(shapes: Any, rank: int) -> bool:
    return len(shapes) == rank and all(shape.compatible(Shape(S32)) for shape in shapes)
