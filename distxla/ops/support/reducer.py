"""Checks shared by the ops that call a computation of scalars: reducers, comparators and selectors."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.element_type import ElementType
from distxla.ir.op import Op
from distxla.ir.shape import Called, Shape


def check_scalar_computation(
    op: Op,
    rule: str,
    name: str,
    called: Called,
    parameters: Sequence[ElementType],
    results: Sequence[ElementType],
    *,
    at: str = "to_apply",
) -> None:
    """Require that computation `name` maps scalars of types `parameters` to scalars (several: a tuple) of `results`."""
    shape = called(name)
    want = f"({', '.join(f'{t}[]' for t in parameters)}) -> " + _results_text(results)
    have = f"({', '.join(map(str, shape.parameters))}) -> {shape.result}"
    found = list(shape.parameters), list(shape.result.elements or (shape.result,))
    fits = (
        len(found[0]) == len(parameters)
        and len(found[1]) == len(results)
        and (shape.result.is_tuple or len(results) == 1)
        and all(_accepts(s, t) for s, t in zip(found[0], parameters))
        and all(_accepts(s, t) for s, t in zip(found[1], results))
    )
    op.require(fits, rule, f"{name} must be {want}, it is {have}", at=at)


def _accepts(shape: Shape, element_type: ElementType) -> bool:
    return shape.is_array and shape.rank == 0 and shape.element_type is element_type


def _results_text(results: Sequence[ElementType]) -> str:
    text = ", ".join(f"{t}[]" for t in results)
    return text if len(results) == 1 else f"({text})"


def check_reducer(
    op: Op,
    rule: str,
    name: str,
    called: Called,
    element_types: Sequence[ElementType],
    *,
    at: str = "to_apply",
) -> None:
    """Require a reducer: N accumulators and N values of `element_types` to N accumulators."""
    check_scalar_computation(op, rule, name, called, (*element_types, *element_types), element_types, at=at)


def split_inputs(op: Op, operands: Sequence[Shape], rule: str) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """The N arrays and the N initial values of a variadic reduction."""
    op.require(
        operands and len(operands) % 2 == 0,
        rule,
        f"needs as many initial values as arrays, has {len(operands)} operands",
        at="operands",
    )
    half = len(operands) // 2
    return operands[:half], operands[half:]


def check_inputs(op: Op, arrays: Sequence[Shape], initial: Sequence[Shape], *, same_dims: str, same_types: str) -> None:
    """Require arrays of equal dimension sizes, and scalar initial values of the arrays' element types."""
    for array in arrays:
        op.require(array.is_array, same_dims, f"reduces arrays, not {array}", at="operands")
        op.require(
            array.dims == arrays[0].dims,
            same_dims,
            f"{array} and {arrays[0]} differ in their dimension sizes",
            at="operands",
        )
    for array, value in zip(arrays, initial):
        op.require(
            value.is_array and value.rank == 0 and value.element_type is array.element_type,
            same_types,
            f"the initial value of {array} is {value}, not {array.dtype}[]",
            at="operands",
        )
