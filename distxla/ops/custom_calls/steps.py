"""Steps that the expansions of library calls share: contractions, activations, narrowing, results with a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt

import ml_dtypes

from distxla.ir.element_type import F32, S8, S32, U8, ElementType
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.target import Call
from distxla.ops.dot import Dot
from distxla.ops.reduce import Reduce
from distxla.ops.support.conversion import integer_range
from distxla.ops.support.dot_dimensions import DotDimensions
from distxla.ops.support.expansion import Build


def compute_type(element_type: ElementType) -> ElementType:
    """The type in which the libraries compute before they round to that type: f32 for the narrower floats."""
    return F32 if element_type.is_float and element_type.bits < 32 else element_type


def dot(build: Build, dims: DotDimensions, lhs: str, rhs: str, element_type: ElementType) -> str:
    """A product whose batch dimensions, of both or of one operand alone, come first.

    An operand without batch dimensions is multiplied with all the matrices of the other one.
    """
    shapes = build.shape(lhs), build.shape(rhs)
    for side, shape, numbers in (
        ("left", shapes[0], dims.lhs_batch + dims.lhs_contracting),
        ("right", shapes[1], dims.rhs_batch + dims.rhs_contracting),
    ):
        if len(set(numbers)) < len(numbers) or not all(0 <= d < shape.rank for d in numbers):
            raise ConfigError(f"the {side} operand {shape} has no dimensions {list(numbers)}")
    if dims.lhs_batch and not dims.rhs_batch:
        # those of the left operand come first in any case, if they are first in it
        order = (*dims.lhs_batch, *(d for d in range(shapes[0].rank) if d not in dims.lhs_batch))
        lhs = transposed(build, lhs, order)
        inner = DotDimensions((), tuple(order.index(d) for d in dims.lhs_contracting), (), dims.rhs_contracting)
        return dot(build, inner, lhs, rhs, element_type)
    if dims.rhs_batch and not dims.lhs_batch:
        inner = DotDimensions((), dims.lhs_contracting, (), dims.rhs_contracting)
        product = dot(build, inner, lhs, rhs, element_type)
        rows = len(dims.lhs_free(shapes[0].rank))
        free = [d for d in range(shapes[1].rank) if d not in dims.rhs_contracting]
        columns = [rows + free.index(d) for d in (*dims.rhs_batch, *dims.rhs_free(shapes[1].rank))]
        batch = len(dims.rhs_batch)
        return transposed(build, product, (*columns[:batch], *range(rows), *columns[batch:]))
    op = Dot(
        lhs_batch_dims=dims.lhs_batch,
        lhs_contracting_dims=dims.lhs_contracting,
        rhs_batch_dims=dims.rhs_batch,
        rhs_contracting_dims=dims.rhs_contracting,
    )
    dims.check(op, *shapes)
    return build.add(op, lhs, rhs, shape=Shape(element_type, dims.result_dims(*shapes)))


def transposed(build: Build, operand: str, order: Sequence[int]) -> str:
    """The operand itself where the order is its own."""
    return operand if list(order) == list(range(len(order))) else build.transpose(operand, order)


def like(build: Build, value: float | complex, operand: str) -> str:
    """As many equal numbers as the operand has elements, of its type."""
    shape = build.shape(operand)
    return build.constant(value, shape.dtype, shape.dims)


def scaled(build: Build, operand: str, factor: float | complex) -> str:
    """The operand itself where the factor is 1."""
    return operand if factor == 1 else build.compute("multiply", operand, like(build, factor, operand))


def scaled_by(build: Build, operand: str, factor: str, opcode: str = "multiply") -> str:
    """factor: an array of one element, of any type."""
    shape = build.shape(operand)
    scalar = build.reshape(build.convert(factor, shape.dtype), ())
    return build.compute(opcode, operand, build.broadcast(scalar, shape.dims))


def largest(build: Build, operand: str, dimensions: Sequence[int], least: float) -> str:
    """The maximum along the dimensions, at least `least`."""
    element_type = build.shape(operand).dtype
    reduce = Reduce(dimensions=tuple(dimensions), to_apply=build.scalar("maximum", element_type))
    return build.add(reduce, operand, build.constant(least, element_type))


def largest_magnitude(build: Build, operand: str) -> str:
    """A scalar: the largest absolute value of all elements."""
    magnitudes = build.compute("abs", operand)
    return largest(build, magnitudes, range(build.shape(operand).rank), 0)


def narrowed(build: Build, operand: str, element_type: ElementType) -> str:
    """A conversion as the libraries do it: to 8 bits and less it saturates, and floats that become integers round to
    even."""
    source = build.shape(operand).dtype
    if source is element_type:
        return operand
    if source.is_float and element_type.is_float and element_type.bits == 8:
        limit = largest_finite(element_type)
        operand = _clamped(build, operand, -limit, limit)
    elif source.is_float and element_type in (S8, U8, S32):
        operand = build.compute("round-nearest-even", operand)
        if element_type is not S32:
            operand = _clamped(build, operand, *integer_range(element_type))
    elif source.is_integer and element_type.is_integer and element_type.bits < source.bits:
        operand = _clamped(build, operand, *integer_range(element_type))
    return build.convert(operand, element_type)


def largest_finite(element_type: ElementType) -> float:
    return float(ml_dtypes.finfo(element_type.dtype).max)  # type: ignore[no-untyped-call]


def _clamped(build: Build, operand: str, low: float, high: float) -> str:
    return build.compute("clamp", like(build, low, operand), operand, like(build, high, operand))


# --- activations ------------------------------------------------------------------------------------------------


def relu(build: Build, x: str) -> str:
    return build.compute("maximum", x, like(build, 0, x))


def sigmoid(build: Build, x: str) -> str:
    return build.compute("logistic", x)


def silu(build: Build, x: str) -> str:
    return build.compute("multiply", x, sigmoid(build, x))


def gelu_of_tanh(build: Build, x: str) -> str:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): the approximation that cuBLASLt has."""
    cube = build.compute("multiply", build.compute("multiply", x, x), x)
    inner = build.compute("add", x, scaled(build, cube, 0.044715))
    bend = build.compute("tanh", scaled(build, inner, sqrt(2 / pi)))
    return build.compute("multiply", scaled(build, x, 0.5), build.compute("add", bend, like(build, 1, x)))


def gelu(build: Build, x: str) -> str:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    bend = build.compute("erf", scaled(build, x, 1 / sqrt(2)))
    return build.compute("multiply", scaled(build, x, 0.5), build.compute("add", bend, like(build, 1, x)))


def elu(build: Build, x: str) -> str:
    """x where it is positive, exp(x) - 1 elsewhere."""
    positive = build.compare("GT", x, like(build, 0, x))
    return build.select(positive, x, build.compute("exponential-minus-one", x))


def leaky_relu(build: Build, x: str, slope: float) -> str:
    """x where it is positive, slope x elsewhere."""
    return build.select(build.compare("GT", x, like(build, 0, x)), x, scaled(build, x, slope))


def limited_relu(build: Build, x: str, limit: float) -> str:
    return _clamped(build, x, 0, limit)


# --- results ----------------------------------------------------------------------------------------------------


def result_shapes(call: Call) -> tuple[Shape, ...]:
    return call.shape.elements if call.shape.elements is not None else (call.shape,)


def is_workspace(shape: Shape) -> bool:
    """Scratch memory of a library: bytes."""
    return shape.is_array and shape.rank == 1 and shape.dtype in (S8, U8)


def joined(call: Call, build: Build, values: Sequence[str], workspace: int = -1) -> str:
    """The call's result from its values, in order; where one more is stated, it is a workspace and reads as zeros.

    workspace: its place.
    """
    shapes = result_shapes(call)
    values = list(values)
    if len(shapes) == len(values) + 1 and is_workspace(shapes[workspace]):
        zeros = build.constant(0, shapes[workspace].dtype, shapes[workspace].dims)
        values.insert(workspace % len(shapes), zeros)
    if len(shapes) != len(values):
        raise ConfigError(f"the call gives {len(values)} values (and a workspace), the text says {call.shape}")
    return build.join(*values) if call.shape.is_tuple else values[0]


def operands_required(call: Call, counts: Sequence[int], what: str) -> None:
    """Require one of the numbers of operands. what: names them."""
    if len(call.operands) not in counts or not all(shape.is_array for shape in call.operands):
        found = ", ".join(map(str, call.operands))
        raise ConfigError(f"takes {what}, the operands are ({found})")
