"""Instructions whose floats have several element types, which XLA calls mixed precision.

XLA's verifier compares element types of most opcodes without looking at the precision of floats: a select of bf16[8]
and f32[8], a copy of f32[8] to bf16[8], an all-reduce of bf16[8] by a computation of f32[] are correct. Such an
instruction is computed in one type: operands are converted to it, and its result to the type that the text states.
`Op.computed_in` says which type that is: by default the narrowest that holds all of them exactly, for opcodes that call
a computation of scalars the computation's own. Source: XLA, ShapeVerifier::CheckShape, FloatNormalization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from distxla.ir.element_type import BF16, F4E2M1FN, F8E8M0FNU, F16, F32, F64, FLOATS, ElementType
from distxla.ir.shape import ProgramShape, Shape
from distxla.lazy_dataclass import dataclass

_EIGHT_BITS = tuple(t for t in FLOATS if t.bits == 8 and t is not F8E8M0FNU)
_WITH_NEGATIVE_ZERO = tuple(t for t in _EIGHT_BITS if not t.name.endswith("uz"))
# the wider types that hold every value of a type
_HOLDS: dict[ElementType, tuple[ElementType, ...]] = {
    F4E2M1FN: (*_WITH_NEGATIVE_ZERO, F16, BF16, F32, F64),
    F8E8M0FNU: (BF16, F32, F64),
    **dict.fromkeys(_EIGHT_BITS, (F16, BF16, F32, F64)),
    F16: (F32, F64),
    BF16: (F32, F64),
    F32: (F64,),
    F64: (),
}


@dataclass(frozen=True)
class Computed:
    """The shapes with which an instruction is computed: the text's, with other floats."""

    operands: tuple[Shape, ...]
    shape: Shape


def float_types(shapes: Iterable[Shape]) -> set[ElementType]:
    """The float types of the leaves."""
    return {leaf.dtype for shape in shapes for leaf in shape.leaves() if leaf.dtype.is_float}


def narrowest(types: Iterable[ElementType]) -> ElementType:
    """The narrowest float type that holds every value of all of `types`."""
    wanted = set(types)
    by_width = sorted(FLOATS, key=lambda t: t.bits)
    return next(t for t in by_width if all(t is u or t in _HOLDS[u] for u in wanted))


def with_float(shape: Shape, element_type: ElementType) -> Shape:
    """The shape with its floats replaced; integers and others stay."""
    if shape.elements is not None:
        return Shape.tuple(tuple(with_float(element, element_type) for element in shape.elements))
    return shape.with_dtype(element_type) if shape.dtype.is_float else shape


def in_one_type(shape: Shape, operands: Sequence[Shape]) -> Computed:
    """All floats in the narrowest type that holds them."""
    element_type = narrowest(float_types((shape, *operands)))
    return Computed(tuple(with_float(o, element_type) for o in operands), with_float(shape, element_type))


def by_reducer(
    reducer: ProgramShape, shape: Shape, operands: Sequence[Shape], accumulators: Callable[[int], int | None]
) -> Computed | None:
    """Everything in the types of a reducer's results.

    accumulators: by the number of an operand, which of the results it is reduced to; None for other operands.  None
    where the reducer has other results than the instruction.  A reducer that takes its values in other types than its
    accumulators fits no operands, since elements may be combined in any grouping.
    """
    types = [leaf.dtype for leaf in reducer.result.leaves()]
    leaves = shape.elements or (shape,)
    numbers = [accumulators(k) for k in range(len(operands))]
    if len(leaves) != len(types) or any(n is not None and n >= len(types) for n in numbers):
        return None
    taken = (o if n is None else with_float(o, types[n]) for o, n in zip(operands, numbers, strict=True))
    results = tuple(map(with_float, leaves, types))
    return Computed(tuple(taken), Shape.tuple(results) if shape.is_tuple else results[0])


def in_type_of(scalar: Shape, shape: Shape, operands: Sequence[Shape]) -> Computed | None:
    """All floats in the type of a computation's result."""
    if not scalar.is_array or not scalar.dtype.is_float:
        return None
    return Computed(tuple(with_float(o, scalar.dtype) for o in operands), with_float(shape, scalar.dtype))
