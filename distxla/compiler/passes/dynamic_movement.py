"""Rules for dynamic dimensions: ops that move elements, and those that set and read sizes."""

from __future__ import annotations

from math import prod
from typing import Any

from distxla.compiler.passes.dynamic_site import (
    DimensionSize,
    DimensionSizes,
    DynamicSite,
    Sizes,
    dynamic_rule,
    is_static,
)
from distxla.compiler.passes.dynamic_site import bounds as bounds_of
from distxla.ir.element_type import S32
from distxla.ir.window import PaddingDimension
from distxla.ops.broadcast import Broadcast
from distxla.ops.concatenate import Concatenate
from distxla.ops.convert import BitcastConvert
from distxla.ops.copy import Copy, CopyStart
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.ops.custom_calls.dynamic_padding import PAD_TO_STATIC, SLICE_TO_DYNAMIC
from distxla.ops.dynamic_dimension import GetDimensionSize, SetDimensionSize
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.dynamic_update_slice import DynamicUpdateSlice
from distxla.ops.gather import Gather
from distxla.ops.pad import Pad
from distxla.ops.reshape import DynamicReshape, Reshape
from distxla.ops.reverse import Reverse
from distxla.ops.slice import Slice
from distxla.ops.support.run_time_sizes import reshaped_dimension_sizes
from distxla.ops.transpose import Transpose


@dynamic_rule(GetDimensionSize)
def _get_dimension_size(op: GetDimensionSize, site: DynamicSite) -> tuple[str, Sizes]:
    return site.number(site.dimension_sizes()[op.dimensions[0]]), ((),)


@dynamic_rule(SetDimensionSize)
def _set_dimension_size(op: SetDimensionSize, site: DynamicSite) -> tuple[str, Sizes]:
    (dimension,) = op.dimensions
    array, size = site.operands
    if site.is_dynamic(0, dimension):  # a larger size than before shows zeros
        array = site.masked(array, site.dimension_sizes(), dimensions=op.dimensions)
    dimension_sizes = list(site.dimension_sizes())
    dimension_sizes[dimension] = site.clamped(size, site.shape(array).dims[dimension])
    return array, (tuple(dimension_sizes),)


@dynamic_rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, site: DynamicSite) -> tuple[str, Sizes]:
    """Elements of another size join or split along the last dimension, which must be static then."""
    dimension_sizes, dims = list(site.dimension_sizes()), site.result.dims
    have = site.shape(site.operands[0]).dims
    if len(dims) < len(have):
        if isinstance(dimension_sizes.pop(), str):
            raise site.refuse("the last dimension is")
    elif len(dims) > len(have):
        dimension_sizes.append(dims[-1])
    return site.keep(), (tuple(dimension_sizes),)


@dynamic_rule(CustomCall)
def _custom_call(op: CustomCall, site: DynamicSite) -> tuple[str, Sizes]:
    """XLA's own changes between padded and dynamic arrays; other routines know nothing of padding."""
    if op.custom_call_target == SLICE_TO_DYNAMIC:
        array, *sizes = site.operands
        bounds = site.shape(array).dims
        return array, (tuple(site.clamped(size, bound) for size, bound in zip(sizes, bounds, strict=True)),)
    if op.custom_call_target == PAD_TO_STATIC:
        padded = site.masked(site.operands[0], site.dimension_sizes())
        return site.join(padded, *map(site.number, site.dimension_sizes())), bounds_of(site.result)
    raise site.refuse()


@dynamic_rule(Copy)
def _copy(op: Copy, site: DynamicSite) -> tuple[str, Sizes]:
    return site.keep(), site.sizes[0]


@dynamic_rule(CopyStart)
def _copy_start(op: CopyStart, site: DynamicSite) -> tuple[str, Sizes]:
    return site.keep(), (site.dimension_sizes(), site.dimension_sizes(), ())


@dynamic_rule(Broadcast)
def _broadcast(op: Broadcast, site: DynamicSite) -> tuple[str, Sizes]:
    dimension_sizes: list[DimensionSize] = list(site.result.dims)
    for dimension_size, d in zip(site.dimension_sizes(), op.dimensions, strict=True):
        dimension_sizes[d] = dimension_size
    return site.keep(), (tuple(dimension_sizes),)


@dynamic_rule(Transpose)
def _transpose(op: Transpose, site: DynamicSite) -> tuple[str, Sizes]:
    return site.keep(), (tuple(site.dimension_sizes()[d] for d in op.dimensions),)


@dynamic_rule(Reverse)
def _reverse(op: Reverse, site: DynamicSite) -> tuple[str, Sizes]:
    """The reversed elements are at the end of the padded array and are moved to its beginning."""
    dims, dimension_sizes = site.result.dims, site.dimension_sizes()
    result = site.add(op, *site.operands)
    moved = [d for d in op.dimensions if site.is_dynamic(0, d)]
    if moved:
        starts = [site.number(site.minus(n, dimension_sizes[d]) if d in moved else 0) for d, n in enumerate(dims)]
        result = _from_start(site, result, starts, moved)
    return result, (dimension_sizes,)


def _from_start(site: DynamicSite, array: str, starts: list[str], dimensions: list[int]) -> str:
    """The array from a run-time start on; zeros follow its end."""
    shape = site.shape(array)
    padding = tuple(PaddingDimension(0, n if d in dimensions else 0) for d, n in enumerate(shape.dims))
    longer = site.add(Pad(padding=padding), array, site.zero(shape.dtype))
    return site.add(DynamicSlice(dynamic_slice_sizes=shape.dims), longer, *starts)


@dynamic_rule(Concatenate)
def _concatenate(op: Concatenate, site: DynamicSite) -> tuple[str, Sizes]:
    """Each operand overwrites the padding of the one before."""
    site.agree()
    d, dims = op.dimension, site.result.dims
    dimension_sizes = list(site.dimension_sizes())
    if not any(site.is_dynamic(k, d) for k in range(len(site.operands) - 1)):
        result = site.keep()
        for k in range(1, len(site.operands)):
            dimension_sizes[d] = site.plus(dimension_sizes[d], site.dimension_sizes(k)[d])
        return result, (tuple(dimension_sizes),)
    first = site.shape(site.operands[0])
    padding = tuple(PaddingDimension(0, n - m) for n, m in zip(dims, first.dims, strict=True))
    result = site.add(Pad(padding=padding), site.operands[0], site.zero(first.dtype))
    end = dimension_sizes[d]
    for k in range(1, len(site.operands)):
        starts = [site.number(end if i == d else 0) for i in range(len(dims))]
        result = site.add(DynamicUpdateSlice(), result, site.operands[k], *starts)
        end = site.plus(end, site.dimension_sizes(k)[d])
    dimension_sizes[d] = end
    return result, (tuple(dimension_sizes),)


@dynamic_rule(Pad)
def _pad(op: Pad, site: DynamicSite) -> tuple[str, Sizes]:
    """The padding begins where the elements end."""
    value = site.operands[1]
    site.mask(0, value)
    dimension_sizes: list[DimensionSize] = []
    for dimension_size, bound, p in zip(site.dimension_sizes(), site.result.dims, op.padding, strict=True):
        if isinstance(dimension_size, int):
            dimension_sizes.append(bound)
            continue
        holes = site.times(site.most(site.minus(dimension_size, 1), 0), p.interior) if p.interior else 0
        dimension_sizes.append(site.most(site.plus(site.plus(dimension_size, holes), p.low + p.high), 0))
    return site.keep(), (tuple(dimension_sizes),)


@dynamic_rule(Slice)
def _slice(op: Slice, site: DynamicSite) -> tuple[str, Sizes]:
    bounds, dimension_sizes = site.shape(site.operands[0]).dims, site.dimension_sizes()
    cut = [d for d, s in enumerate(op.slice) if (s.start, s.limit, s.stride) != (0, bounds[d], 1)]
    site.mask(0, dimensions=cut)
    dims = site.result.dims
    return site.keep(), (
        tuple(dims[d] if d in cut else dimension_size for d, dimension_size in enumerate(dimension_sizes)),
    )


@dynamic_rule(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, site: DynamicSite) -> tuple[str, Sizes]:
    bounds, dims = site.shape(site.operands[0]).dims, site.result.dims
    cut = [d for d, n in enumerate(dims) if n != bounds[d]]
    site.mask(0, dimensions=cut)
    return site.keep(), (
        tuple(dims[d] if d in cut else dimension_size for d, dimension_size in enumerate(site.dimension_sizes())),
    )


@dynamic_rule(DynamicUpdateSlice)
def _dynamic_update_slice(op: DynamicUpdateSlice, site: DynamicSite) -> tuple[str, Sizes]:
    """The box is merged with the elements that it replaces: the update counts within its run-time sizes."""
    array, update, *starts = site.operands
    shape = site.shape(update)
    within = site.inside(shape.dims, site.dimension_sizes(1))
    if within is not None:
        before = site.add(DynamicSlice(dynamic_slice_sizes=shape.dims), array, *starts)
        site.operands[1] = site.select(within, update, before)
    return site.keep(), (site.dimension_sizes(),)


@dynamic_rule(Reshape)
def _reshape(op: Reshape, site: DynamicSite) -> tuple[str, Sizes]:
    """Group by group of dimensions that are merged or split.

    Rows that are padded somewhere else than at the end of the outermost dimension of a group have to be moved together.
    """
    source, dims = site.shape(site.operands[0]), site.result.dims
    have, dimension_sizes = list(site.dimension_sizes()), list[DimensionSize](dims)
    moves = False
    for group in reshaped_dimension_sizes(source, site.instruction.shape, op.inferred_dimension):
        dynamic = [d for d in group.source if isinstance(have[d], str)]
        if not dynamic:
            continue
        if group.follower is None:
            site.mask(0, dimensions=dynamic)
            for d in dynamic:
                have[d] = source.dims[d]
            continue
        others = prod(dims[d] for d in group.target if d != group.follower)
        dimension_sizes[group.follower] = site.over(site.product(have[d] for d in group.source), max(others, 1))
        outer_source = [d for d in group.source if source.dims[d] != 1][:1] or list(group.source[:1])
        outer_target = [d for d in group.target if dims[d] != 1][:1] or list(group.target[:1])
        moves |= dynamic != outer_source or group.follower not in outer_target
    if not moves:
        return site.keep(), (tuple(dimension_sizes),)
    return _regrouped(op, site, tuple(have), tuple(dimension_sizes)), (tuple(dimension_sizes),)


def _regrouped(op: Reshape, site: DynamicSite, have: DimensionSizes, dimension_sizes: DimensionSizes) -> str:
    """Reshape with every group's elements counted by themselves.

    Those of a split dimension that fill no row are left out, which shifts the ones behind them.
    """
    source = site.shape(site.operands[0])
    dims = site.result.dims
    position: list[str] = [""] * source.rank
    for group in reshaped_dimension_sizes(source, site.instruction.shape, op.inferred_dimension):
        if not group.source:
            continue
        linear = _linear(site, dims, dimension_sizes, group.target)
        for d, index in zip(
            group.source, _unravelled(site, dims, linear, [have[d] for d in group.source]), strict=True
        ):
            position[d] = index
    return _gathered(site, site.operands[0], position)


def _reordered(site: DynamicSite, array: str, have: DimensionSizes, dimension_sizes: DimensionSizes) -> str:
    """The array's elements within `have`, in row-major order, as the elements within `dimension_sizes` of the
    result."""
    dims = site.result.dims
    linear = _linear(site, dims, dimension_sizes, range(len(dims)))
    return _gathered(site, array, _unravelled(site, dims, linear, have))


def _linear(site: DynamicSite, dims: tuple[int, ...], dimension_sizes: DimensionSizes, dimensions: Any) -> str:
    """s32[dims]: each element's number among those within the dimension sizes, counted along some dimensions."""
    linear = site.constant(0, S32, dims)
    for d in dimensions:
        factor = site.broadcast(site.number(dimension_sizes[d]), dims)
        linear = site.compute("add", site.compute("multiply", linear, factor), site.iota(S32, dims, d))
    return linear


def _unravelled(site: DynamicSite, dims: tuple[int, ...], linear: str, dimension_sizes: Any) -> list[str]:
    """s32[dims]: the index along each of some dimensions of the elements with these numbers."""
    found: list[str] = []
    for dimension_size in reversed(list(dimension_sizes)):
        size = site.broadcast(site.number(site.most(dimension_size, 1)), dims)
        found.insert(0, site.compute("remainder", linear, size))
        linear = site.compute("divide", linear, size)
    return found


def _gathered(site: DynamicSite, array: str, position: list[str]) -> str:
    """The elements of the array at positions, one s32 index array for each of its dimensions."""
    shape, dims = site.shape(array), site.result.dims
    if not position:
        return site.broadcast(array, dims)
    columns = [site.reshape(index, (*dims, 1)) for index in position]
    rank = len(dims)
    indices = site.add(Concatenate(dimensions=(rank,)), *columns)
    every = tuple(range(shape.rank))
    op = Gather(
        offset_dims=(),
        collapsed_slice_dims=every,
        start_index_map=every,
        index_vector_dim=rank,
        slice_sizes=(1,) * shape.rank,
    )
    return site.add(op, array, indices)


@dynamic_rule(DynamicReshape)
def _dynamic_reshape(op: DynamicReshape, site: DynamicSite) -> tuple[str, Sizes]:
    array, *wanted = site.operands
    bounds = site.result.dims
    dimension_sizes: list[DimensionSize] = []
    for size, bound in zip(wanted, bounds, strict=True):
        kind = site.shape(size).dtype
        wide = size if kind is S32 else site.compute("clamp", site.constant(0, kind), size, _bound(site, bound, size))
        dimension_sizes.append(site.clamped(site.convert(wide, S32), bound))
    have = site.dimension_sizes()
    result = _reordered(site, array, have, tuple(dimension_sizes))
    # Beyond the operand's elements are zeros.
    linear = _linear(site, bounds, tuple(dimension_sizes), range(len(bounds)))
    count = site.broadcast(site.number(site.product(have)), bounds)
    zeros = site.constant(0, site.result.dtype, bounds)
    return site.select(site.compare("LT", linear, count), result, zeros), (tuple(dimension_sizes),)


def _bound(site: DynamicSite, bound: int, size: str) -> str:
    kind = site.shape(size).dtype
    largest = 2 ** (kind.bits - kind.is_signed) - 1
    return site.constant(min(bound, largest), kind)


@dynamic_rule(Gather)
def _gather(op: Gather, site: DynamicSite) -> tuple[str, Sizes]:
    site.agree()
    array = site.shape(site.operands[0])
    site.mask(0, dimensions=[d for d in range(array.rank) if not op.keeps(array, d)])
    batch = iter([e for d, e in enumerate(site.dimension_sizes(1)) if d != op.index_vector_dim])
    if not is_static((site.dimension_sizes(1)[op.index_vector_dim : op.index_vector_dim + 1],)):
        raise site.refuse("the index vectors are")
    skipped = (*op.collapsed_slice_dims, *op.operand_batching_dims)
    windows = [d for d in range(array.rank) if d not in skipped]
    window = iter([site.dimension_sizes()[d] if op.keeps(array, d) else op.slice_sizes[d] for d in windows])
    dimension_sizes = tuple(next(window if d in op.offset_dims else batch) for d in range(site.result.rank))
    return site.keep(), (dimension_sizes,)
