"""CUB's scan, as XLA's GPU backend calls it for cumulative sums."""

from __future__ import annotations

from distxla.ir.element_type import PRED
from distxla.ir.window import Window, WindowDimension
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import ffi_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.reduce_window import ReduceWindow
from distxla.ops.support.expansion import Build

KINDS = ("KIND_INVALID", "SUM")  # as XLA numbers them


@target(
    "__cub$DeviceScan",
    "__cub$DeviceScanUnassignedScratchSize",
    "xla.gpu.ext.cub_scan",
    "xla.gpu.ext.cub_scan_unassigned_scratch_size",
)
class Scan(ExpandedTarget):
    """Cumulative sums, each with its own element.

    Options:  column_length rows of row_length places of vector_length elements, in the order of memory: sums run along
              the places of a row, is_reverse from the last one; kind: SUM.
    Shapes:   T[..] -> T[..], and a workspace.
    Source:   XLA, scan_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = ffi_fields(call)
        fields.only({"vector_length", "row_length", "column_length", "kind", "is_reverse"})
        fields.require(fields.choice("kind", KINDS) == "SUM", "kind", "only SUM")
        steps.operands_required(call, [1], "one array")
        stated, result = call.operands[0], steps.result_shapes(call)[0]
        if stated.minor_to_major() != result.minor_to_major() or stated.dtype is PRED:
            raise ConfigError(f"sums numbers in one layout, not {stated} to {result}")
        lengths = tuple(fields.integer(f"{name}_length") for name in ("column", "row", "vector"))
        if min(lengths) < 0 or lengths[0] * lengths[1] * lengths[2] != stated.size:
            raise ConfigError(f"column_length, row_length and vector_length are {list(lengths)} for {stated}")
        order = tuple(reversed(stated.minor_to_major()))
        x = build.reshape(steps.transposed(build, operands[0], order), lengths)
        if stated.size:
            x = self._sums(build, x, fields.flag("is_reverse"))
        x = build.reshape(x, [stated.dims[d] for d in order])
        back = [order.index(d) for d in range(stated.rank)]
        return steps.joined(call, build, [steps.transposed(build, x, back)])

    def _sums(self, build: Build, x: str, is_reverse: bool) -> str:
        shape = build.shape(x)
        whole, one = shape.dims[1], WindowDimension(1)
        before = (0, whole - 1) if is_reverse else (whole - 1, 0)
        window = Window((one, WindowDimension(whole, 1, *before), one))
        # -0 is the neutral element of addition, for 0 too
        zero = build.constant(0 if shape.dtype.is_integer else -0.0, shape.dtype)
        return build.add(ReduceWindow(window=window, to_apply=build.scalar("add", shape.dtype)), x, zero)
