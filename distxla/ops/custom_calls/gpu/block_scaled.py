"""Arrays of few bits whose blocks along the last dimension carry a scale each: products, and to and from them."""

from __future__ import annotations

from math import ceil, floor, log2

from distxla.ir.element_type import F4E2M1FN, F32, ElementType
from distxla.ir.window import SliceDimension
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import gpu_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.slice import Slice
from distxla.ops.support.dot_dimensions import DotDimensions
from distxla.ops.support.expansion import Build

ROWS, COLUMNS = 128, 4  # of the tiles in which cuDNN has scales in memory
BLOCK, F4_BLOCK = 32, 16  # elements that share a scale, in cuDNN


@target("__op$block_scaled_dot")
class BlockScaledDot(ExpandedTarget):
    """A product of operands whose blocks along the contracting dimension, the last one, carry a scale each.

    Operands:  lhs, rhs, the scales of lhs, of rhs (without them rhs is unscaled), a scalar that scales the result.
    Shapes:    T[b, m, k], U[b, n, k] -> R[b, m, n], or without b. Scales may have rows too many, and columns too many
               where block_size is configured.
    Types:     elements and scales are converted to the result's type and multiplied in it.
    Source:    XLA, block_scaling_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = gpu_fields(call, "block_scaled_dot_backend_config")
        fields.only({"block_size"})
        block = fields.integer("block_size")
        fields.require(block > 0 or "block_size" not in fields, "block_size", "sizes from 1 on")
        steps.operands_required(call, [3, 4, 5], "lhs, rhs, their scales, and a global scale")
        if call.shape.is_tuple or not call.shape.is_array:
            raise ConfigError(f"the result is {call.shape}, not an array")
        wide = call.shape.dtype
        sides = [build.convert(operand, wide) for operand in operands[:2]]
        for number, scale in enumerate(operands[2:4]):
            sides[number] = _dequantized(build, operands[number], scale, wide, block)
        x = steps.dot(build, _dimensions(build, sides[0]), sides[0], sides[1], wide)
        if len(operands) == 5:
            x = steps.scaled_by(build, x, operands[4])
        return steps.joined(call, build, [x])


@target("__cudnn$blockScaledDot")
class CudnnBlockScaledDot(ExpandedTarget):
    """cuDNN's product of block-scaled operands, with scales in tiles as its kernels read them.

    Operands:  lhs, rhs, the scales of lhs and of rhs, a scalar that scales the result.
    Scales:    one for 32 elements of 8 bits, for 16 of f4e2m1fn; rows in multiples of 128, columns of 4; in every tile
               of 128 rows and 4 columns row 32 a + b is at place (b, a).
    Types:     computed in f32 and rounded once.
    Source:    XLA, block_scaling_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        gpu_fields(call, "block_scaled_dot_backend_config").only(())
        steps.operands_required(call, [4, 5], "lhs, rhs, their scales, and a global scale")
        sides = []
        for operand, scale in zip(operands[:2], operands[2:4]):
            block = F4_BLOCK if build.shape(operand).dtype is F4E2M1FN else BLOCK
            sides.append(_dequantized(build, operand, _untiled(build, scale), F32, block))
        x = steps.dot(build, _dimensions(build, sides[0]), sides[0], sides[1], F32)
        if len(operands) == 5:
            x = steps.scaled_by(build, x, operands[4])
        return steps.joined(call, build, [steps.narrowed(build, x, steps.result_shapes(call)[0].dtype)])


@target("__op$quantize")
class Quantize(ExpandedTarget):
    """Elements of few bits and a scale for every block of the last dimension: the largest magnitude over a power of 2.

    Shapes:  T[.., k] -> (Q[.., k], S[.., k / block]).
    Source:  XLA, block_scaling_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        gpu_fields(call, "block_scaled_dot_backend_config").only(())
        steps.operands_required(call, [1], "one array")
        shape, results = build.shape(operands[0]), steps.result_shapes(call)
        if len(results) != 2 or not all(r.is_array and r.rank == shape.rank > 0 for r in results):
            raise ConfigError(f"gives elements and scales of the dimensions of {shape}, not {call.shape}")
        elements, scales = results
        if not elements.dtype.is_float or elements.dtype.bits > 16:
            raise ConfigError(f"makes floats of few bits, not {elements}")
        blocks = (*scales.dims, _block_size(shape.dims, scales.dims))
        largest = steps.largest(build, build.compute("abs", build.reshape(operands[0], blocks)), [shape.rank], 0)
        power = 2.0 ** floor(log2(steps.largest_finite(elements.dtype)))
        scale = build.convert(build.compute("divide", largest, steps.like(build, power, largest)), scales.dtype)
        spread = build.broadcast(build.convert(scale, shape.dtype), blocks, range(shape.rank))
        divided = build.compute("divide", operands[0], build.reshape(spread, shape.dims))
        return build.join(build.convert(divided, elements.dtype), scale)


@target("__op$dequantize")
class Dequantize(ExpandedTarget):
    """Elements times the scales of their blocks of the last dimension: Q[.., k], S[.., k / block] -> T[.., k].

    Source:  XLA, block_scaling_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        gpu_fields(call, "block_scaled_dot_backend_config").only(())
        steps.operands_required(call, [2], "elements and scales")
        if not call.shape.is_array:
            raise ConfigError(f"the result is {call.shape}, not an array")
        return _dequantized(build, operands[0], operands[1], call.shape.dtype, 0)


def _dimensions(build: Build, lhs: str) -> DotDimensions:
    batch, last = ((0,), (2,)) if build.shape(lhs).rank == 3 else ((), (1,))
    return DotDimensions(batch, last, batch, last)


def _block_size(dims: tuple[int, ...], scales: tuple[int, ...]) -> int:
    fits = len(dims) == len(scales) and dims[:-1] == scales[:-1] and scales[-1] > 0 and dims[-1] % scales[-1] == 0
    if not fits:
        raise ConfigError(f"scales of dimension sizes {list(scales)} do not fit blocks of {list(dims)}")
    return dims[-1] // scales[-1]


def _dequantized(build: Build, operand: str, scale: str, element_type: ElementType, block: int) -> str:
    """The operand times its scales. block: the elements of one, where scales may be too many; 0 where they are not."""
    shape, scales = build.shape(operand), build.shape(scale)
    if not shape.rank or scales.rank != shape.rank:
        raise ConfigError(f"scales {scales} do not fit {shape}")
    used = list(scales.dims)
    if shape.rank > 1:
        used[-2] = shape.dims[-2]
    if block:
        used[-1] = ceil(shape.dims[-1] / block)
    if any(n > size for n, size in zip(used, scales.dims)):
        raise ConfigError(f"scales {scales} are too few for {shape}" + f" in blocks of {block}" * (block > 0))
    if tuple(used) != scales.dims:
        scale = build.add(Slice(slice=tuple(SliceDimension(0, n) for n in used)), scale)
    blocks = (*used, _block_size(shape.dims, tuple(used)))
    spread = build.broadcast(build.convert(scale, element_type), blocks, range(shape.rank))
    return build.compute("multiply", build.convert(operand, element_type), build.reshape(spread, shape.dims))


def _untiled(build: Build, scale: str) -> str:
    """Scales in the order of their rows."""
    shape = build.shape(scale)
    if shape.rank not in (2, 3) or shape.dims[-2] % ROWS or shape.dims[-1] % COLUMNS:
        raise ConfigError(f"scales {shape} are not in tiles of {ROWS} rows and {COLUMNS} columns")
    *batch, rows, columns = shape.dims
    first = len(batch)
    tiles = build.reshape(scale, (*batch, rows // ROWS, columns // COLUMNS, 32, ROWS // 32, COLUMNS))
    order = (*range(first), first, first + 3, first + 2, first + 1, first + 4)
    return build.reshape(build.transpose(tiles, order), shape.dims)
