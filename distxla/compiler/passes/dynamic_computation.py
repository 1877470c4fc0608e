"""Rules for dynamic dimensions: ops that combine elements, and those that work on a batch of any size.

Padding is masked wherever it could reach a result.
"""

from __future__ import annotations

import dataclasses

from distxla.compiler.passes.dynamic_site import DimensionSize, DimensionSizes, DynamicSite, Sizes, dynamic_rule
from distxla.ir.computation import Computation
from distxla.ir.element_type import PRED, S32, S64
from distxla.ir.instruction import Instruction
from distxla.ir.names import Names
from distxla.ir.shape import Shape
from distxla.ir.window import WindowDimension
from distxla.ops.all_reduce import AllReduce
from distxla.ops.cholesky import Cholesky
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.convolution import Convolution
from distxla.ops.dot import Dot
from distxla.ops.fft import Fft
from distxla.ops.parameter import Parameter
from distxla.ops.reduce import Reduce
from distxla.ops.reduce_window import ReduceWindow
from distxla.ops.scatter import Scatter
from distxla.ops.select import Select
from distxla.ops.select_and_scatter import SelectAndScatter
from distxla.ops.sort import Sort, TopK
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.registry import op_class
from distxla.ops.triangular_solve import TriangularSolve


@dynamic_rule(Reduce)
def _reduce(op: Reduce, site: DynamicSite) -> tuple[str, Sizes]:
    site.agree()
    half = len(site.operands) // 2
    for k in range(half):
        site.mask(k, site.operands[half + k], op.dimensions)
    kept = tuple(e for d, e in enumerate(site.dimension_sizes()) if d not in op.dimensions)
    return site.keep(), (kept,) * half


@dynamic_rule(ReduceWindow)
def _reduce_window(op: ReduceWindow, site: DynamicSite) -> tuple[str, Sizes]:
    """Elements beyond the dimension sizes are the initial value, as the window's own padding is."""
    site.agree()
    half = len(site.operands) // 2
    trivial = WindowDimension(1)
    looked_at = [d for d, w in enumerate(op.window.dimensions) if w != trivial]
    for k in range(half):
        site.mask(k, site.operands[half + k], looked_at)
    bounds = (site.result.elements or (site.result,))[0].dims
    dimension_sizes = zip(site.dimension_sizes(), op.window.dimensions, bounds, strict=True)
    return site.keep(), (tuple(_windows(site, *found) for found in dimension_sizes),) * half


def _windows(site: DynamicSite, size: DimensionSize, window: WindowDimension, bound: int) -> DimensionSize:
    """How many windows fit over a run-time size; bound: over the static one."""
    if isinstance(size, int):
        return bound
    dilated = site.plus(site.times(site.minus(size, 1), window.base_dilation), 1) if window.base_dilation > 1 else size
    padded = site.plus(site.most(dilated, 0), window.padding_low + window.padding_high)
    # A count below 1 comes from a negative dividend, which would be rounded towards zero.
    room = site.plus(site.minus(padded, window.dilated_size), window.stride)
    count = site.over(site.most(room, 0), window.stride)
    if window.dilated_size > 0:
        return count
    some = site.compare("GT", site.number(padded), site.constant(0, S32))
    return site.select(some, site.number(count), site.constant(0, S32))


@dynamic_rule(Dot)
def _dot(op: Dot, site: DynamicSite) -> tuple[str, Sizes]:
    site.agree()
    dims = op.dimensions
    lhs, rhs = site.dimension_sizes(0), site.dimension_sizes(1)
    # Zero on both sides: zero times the padding's content may be NaN.
    site.mask(0, dimensions=dims.lhs_contracting)
    site.mask(1, dimensions=dims.rhs_contracting)
    free = (*(lhs[d] for d in dims.lhs_free(len(lhs))), *(rhs[d] for d in dims.rhs_free(len(rhs))))
    return site.keep(), ((*(lhs[d] for d in dims.lhs_batch), *free),)


@dynamic_rule(Convolution)
def _convolution(op: Convolution, site: DynamicSite) -> tuple[str, Sizes]:
    site.agree()
    labels = op.dim_labels
    if any(site.is_dynamic(1, d) for d in labels.kernel_spatial):
        raise site.refuse("the kernel's spatial dimensions are")
    features = (labels.kernel_input_feature, labels.kernel_output_feature)
    grouped = {(0, labels.input_feature), *((1, d) for d in features)} if op.feature_group_count > 1 else set()
    if op.batch_group_count > 1:
        grouped |= {(0, labels.input_batch), (1, labels.kernel_output_feature)}
    if any(site.is_dynamic(k, d) for k, d in grouped):
        raise site.refuse("the grouped dimensions are")
    site.mask(0, dimensions=(labels.input_feature, *labels.input_spatial))
    site.mask(1, dimensions=(labels.kernel_input_feature,))
    result = site.result.dims
    dimension_sizes: list[DimensionSize] = list(result)
    if op.batch_group_count == 1:
        dimension_sizes[labels.output_batch] = site.dimension_sizes(0)[labels.input_batch]
    dimension_sizes[labels.output_feature] = site.dimension_sizes(1)[labels.kernel_output_feature]
    for number, window in enumerate(op.window.dimensions):
        d = labels.output_spatial[number]
        dimension_sizes[d] = _windows(site, site.dimension_sizes(0)[labels.input_spatial[number]], window, result[d])
    return site.keep(), (tuple(dimension_sizes),)


@dynamic_rule(Sort)
def _sort(op: Sort, site: DynamicSite) -> tuple[str, Sizes]:
    """Padding comes last: whether an element is padding is sorted along, and compared first."""
    site.agree()
    dimension_sizes = site.dimension_sizes()
    count, dims = len(site.operands), site.shape(site.operands[0]).dims
    within = site.inside(dims, dimension_sizes, op.dimensions)
    if within is None:
        return site.keep(), (dimension_sizes,) * count
    comparator = _padding_last(site, op.to_apply, count)
    found = site.add(dataclasses.replace(op, to_apply=comparator), *site.operands, within)
    if count == 1:
        return site.element(found, 0), (dimension_sizes,)
    return site.join(*(site.element(found, k) for k in range(count))), (dimension_sizes,) * count


def _padding_last(site: DynamicSite, comparator: str, count: int) -> str:
    """The comparator with two more parameters: whether each of the two elements is one of the array's."""
    old = site.program.module[comparator]
    names = Names(old.by_name)
    ours, theirs = names.fresh("within.lhs"), names.fresh("within.rhs")
    scalar = Shape(PRED)
    added = (
        Instruction(ours, scalar, Parameter(number=2 * count)),
        Instruction(theirs, scalar, Parameter(number=2 * count + 1)),
    )
    compare = op_class("compare")
    equal = Instruction(names.fresh("same"), scalar, compare(direction="EQ"), (ours, theirs))  # type: ignore[call-arg]
    only_ours = Instruction(names.fresh("only"), scalar, compare(direction="GT"), (ours, theirs))  # type: ignore[call-arg]
    root = Instruction(names.fresh("before"), scalar, Select(), (equal.name, old.root, only_ours.name))
    name = site.program.names.fresh(f"{comparator}.within")
    site.program.done.append(Computation(name, (*added, *old.instructions, equal, only_ours, root), root.name))
    return name


@dynamic_rule(Scatter)
def _scatter(op: Scatter, site: DynamicSite) -> tuple[str, Sizes]:
    """Updates beyond the dimension sizes go to an index that is nowhere."""
    site.agree()
    count = len(site.operands) // 2
    indices = site.shape(site.operands[count])
    if any(site.is_dynamic(k, d) for k in range(count + 1, len(site.operands)) for d in op.update_window_dims):
        raise site.refuse("the updates' windows are")
    places = [d for d in range(indices.rank) if d != op.index_vector_dim]
    if op.index_vector_dim < indices.rank and site.is_dynamic(count, op.index_vector_dim):
        raise site.refuse("the index vectors are")
    if any(site.is_dynamic(count, d) for d in places):
        if not op.scatter_dims_to_operand_dims:
            raise site.refuse("no index says where the updates go")
        wide = site.convert(site.operands[count], S64)
        site.operands[count] = site.masked(wide, site.dimension_sizes(count), site.constant(-1, S64), places)
    sizes = tuple(site.dimension_sizes(k) for k in range(count))
    changed = dataclasses.replace(op, indices_are_sorted=False) if op.indices_are_sorted else op
    return site.keep(op=changed), sizes


@dynamic_rule(SelectAndScatter)
def _select_and_scatter(op: SelectAndScatter, site: DynamicSite) -> tuple[str, Sizes]:
    """Windows over the padding write values that change nothing."""
    _, source, _ = site.operands
    windowed = [d for d, w in enumerate(op.window.dimensions) if w != WindowDimension(1)]
    dynamic = [d for d in windowed if site.is_dynamic(0, d) or site.is_dynamic(1, d)]
    if dynamic:
        neutral = _neutral(site, op.scatter)
        if neutral is None or any(op.window.dimensions[d].padding_high > 0 for d in dynamic):
            raise site.refuse("the windows reach into the padding")
        dimension_sizes: DimensionSizes = tuple(
            _windows(site, size, w, bound)
            for size, w, bound in zip(
                site.dimension_sizes(0), op.window.dimensions, site.shape(source).dims, strict=True
            )
        )
        site.operands[1] = site.masked(source, dimension_sizes, neutral, dynamic)
    return site.keep(), (site.dimension_sizes(0),)


def _neutral(site: DynamicSite, computation: str) -> str | None:
    """A scalar that the computation combines with any other one to that one; None where none is known."""
    root = site.program.module[computation].root_instruction
    parameters = {p.name for p in site.program.module[computation].parameters}
    if set(root.operands) != parameters:
        return None
    value = root.op.neutral_value(root.shape.dtype)
    return None if value is None else site.constant(value, root.shape.dtype)


@dynamic_rule(AllReduce)
def _all_reduce(op: AllReduce, site: DynamicSite) -> tuple[str, Sizes]:
    """Members agree on the smallest of their dimension sizes, in a round of its own."""
    result = site.keep()
    smallest = dataclasses.replace(op, to_apply=site.scalar("minimum", S32))
    return result, _exchanged(site, smallest)


@dynamic_rule(CollectivePermute, CollectiveBroadcast)
def _sent(op: CollectivePermute | CollectiveBroadcast, site: DynamicSite) -> tuple[str, Sizes]:
    """The sizes travel with the arrays."""
    if isinstance(op, CollectivePermute) and op.slice_sizes:
        raise site.refuse("with slice_sizes, they are")
    return site.keep(), _exchanged(site, op)


def _exchanged(site: DynamicSite, op: CollectiveOp) -> Sizes:
    """The operands' sizes after a collective on them."""
    sizes = [site.dimension_sizes(k) for k in range(len(site.operands))]
    own = [e for dimension_sizes in sizes for e in dimension_sizes if isinstance(e, str)]
    scalars = [Shape(S32)] * len(own)
    shape = scalars[0] if len(own) == 1 else Shape.tuple(scalars)
    made = site.add(op, *own, shape=shape)
    found = iter([made] if len(own) == 1 else [site.element(made, k) for k in range(len(own))])
    return tuple(tuple(next(found) if isinstance(e, str) else e for e in dimension_sizes) for dimension_sizes in sizes)


@dynamic_rule(Fft)
def _fft(op: Fft, site: DynamicSite) -> tuple[str, Sizes]:
    return _batch(site, len(op.fft_length))


@dynamic_rule(Cholesky)
def _cholesky(op: Cholesky, site: DynamicSite) -> tuple[str, Sizes]:
    return _batch(site, 2)


@dynamic_rule(TopK)
def _top_k(op: TopK, site: DynamicSite) -> tuple[str, Sizes]:
    return _batch(site, 1)


@dynamic_rule(TriangularSolve)
def _triangular_solve(op: TriangularSolve, site: DynamicSite) -> tuple[str, Sizes]:
    """The right-hand sides are a batch, too."""
    site.agree()
    rank = site.result.rank
    solved, free = (rank - 2, rank - 1) if op.left_side else (rank - 1, rank - 2)
    if site.is_dynamic(1, solved) or any(site.is_dynamic(0, d) for d in (rank - 2, rank - 1)):
        raise site.refuse("the matrices are")
    dimension_sizes: list[DimensionSize] = [*site.dimension_sizes(0)[: rank - 2], 0, 0]
    dimension_sizes[solved], dimension_sizes[free] = site.result.dims[solved], site.dimension_sizes(1)[free]
    return site.keep(), (tuple(dimension_sizes),)


def _batch(site: DynamicSite, last: int) -> tuple[str, Sizes]:
    """last: how many dimensions the op works on; the others are the batch."""
    batch = len(site.dimension_sizes()) - last
    if any(site.is_dynamic(0, d) for d in range(batch, batch + last)):
        raise site.refuse(f"the last {last} are" if last > 1 else "the last one is")
    dimension_sizes = site.dimension_sizes()[:batch]
    return site.keep(), tuple((*dimension_sizes, *leaf.dims[batch:]) for leaf in site.result.leaves())
