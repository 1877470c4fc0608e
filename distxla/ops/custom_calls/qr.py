"""`Qr` and `ProductOfElementaryHouseholderReflectors`, which XLA expands on every backend."""

from __future__ import annotations

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.lapack_calls import lapack_call
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.lapack import working_type


@target("Qr")
class Qr(ExpandedTarget):
    """QR with LAPACK's signs: R on and above the diagonal, the reflectors' vectors below it, their factors.

    Narrow floats are factorised in f32 and rounded once, XLA rounds each step. Where squares of elements leave the
    range XLA gives NaN, or no rotation, LAPACK the right numbers.

    Shapes: T[.., m, n] -> (T[.., m, n], T[.., min(m, n)]), T a float or complex type.
    Source: XLA's QrExpander.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        kind = matrices(call, 1)
        (a,) = widened(build, *operands)
        shape = build.shape(a)
        a = build.compute("add", a, build.constant(0, shape.dtype, shape.dims))  # LAPACK takes -0 for negative, XLA not
        *batch, m, n = shape.dims
        found = lapack_call(build, "geqrf", "", Shape.tuple((shape, shape.with_dims((*batch, min(m, n))))), a)
        return build.join(*(build.convert(build.element(found, k), kind) for k in range(2)))


@target("ProductOfElementaryHouseholderReflectors")
class HouseholderProduct(ExpandedTarget):
    """The first n columns of the product of k reflectors, given as Qr leaves them.

    Shapes: T[.., m, n], T[.., k] with m >= n >= k -> T[.., m, n], T a float or complex type.
    Source: XLA's QrExpander.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        kind = matrices(call, 2)
        a, factors = widened(build, *operands)
        return build.convert(lapack_call(build, "orgqr", "", build.shape(a), a, factors), kind)


def matrices(call: Call, count: int) -> ElementType:
    """The type of the matrices, the first of `count` operands; ConfigError for other operands than numbers of it."""
    shapes = call.operands
    if len(shapes) != count or not all(shape.is_array for shape in shapes):
        raise ConfigError(f"takes {count} arrays, the operands are ({', '.join(map(str, shapes))})")
    kind = shapes[0].dtype
    if shapes[0].rank < 2 or not (kind.is_float or kind.is_complex):
        raise ConfigError(f"takes matrices of a float or complex type, the operand is {shapes[0]}")
    if any(shape.dtype is not kind for shape in shapes):
        raise ConfigError(f"takes arrays of one type, the operands are ({', '.join(map(str, shapes))})")
    return kind


def widened(build: CallBuild, *operands: str) -> list[str]:
    """The operands in the type that LAPACK computes in."""
    return [build.convert(operand, working_type(build.shape(operand).dtype)) for operand in operands]
