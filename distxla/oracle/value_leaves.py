"""Values of the reference: NumPy arrays, None for tokens, tuples of values; their leaves, depth first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.errors import ArgumentError, InternalError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.nested_values import nested
from distxla.ir.shape import Shape
from distxla.oracle.waits import Pending

Array = np.ndarray[Any, Any]


def checked(value: Any, shape: Shape, instruction: Instruction, dynamic: bool = False) -> Any:
    """`value` with NumPy scalars as arrays; InternalError if it is not of `shape`.

    dynamic: the program has dynamic dimensions. Run-time sizes then propagate with the data, not from the declared
    shapes, and may stay below the declared ones. A pending value is a placeholder for a value of any shape.
    """
    if isinstance(value, Pending):
        return value
    if shape.elements is not None:
        if not isinstance(value, tuple) or len(value) != len(shape.elements):
            raise InternalError(f"{instruction.name} gave {type(value).__name__} instead of a tuple {shape}")
        return tuple(checked(v, s, instruction, dynamic) for v, s in zip(value, shape.elements, strict=True))
    if not shape.is_array:
        return value
    array = np.asarray(value)
    fits = shape.holds(array.shape)
    if dynamic and array.ndim == shape.rank:
        fits = all(n <= bound for n, bound in zip(array.shape, shape.dims, strict=True))
    if array.dtype != shape.dtype.dtype or not fits:
        raise InternalError(f"{instruction.name} gave {array.dtype}{list(array.shape)} instead of {shape}")
    return array


def actual_shape(value: Any, shape: Shape) -> Shape:
    """The shape that a value has at run time."""
    if isinstance(value, Pending):
        return shape
    if shape.elements is not None:
        return Shape.tuple(tuple(actual_shape(v, s) for v, s in zip(value, shape.elements, strict=True)))
    return Shape(shape.element_type, value.shape) if shape.is_array else shape


def parameter_values(module: Module, leaves: Sequence[Any], device: int) -> tuple[Any, ...]:
    """The values of the entry's parameters from their leaves."""
    shapes = [p.shape for p in module.entry_computation.parameters]
    wanted = [leaf for shape in shapes for leaf in shape.leaves()]
    if len(leaves) != len(wanted):
        raise ArgumentError(f"the program takes {len(wanted)} arguments, device {device} got {len(leaves)}")
    arrays: list[Any] = []
    for k, (value, shape) in enumerate(zip(leaves, wanted, strict=True)):
        if not shape.is_array:
            arrays.append(None)
            continue
        array = np.asarray(value)
        if array.dtype != shape.dtype.dtype or not shape.holds(array.shape):
            got = f"{array.dtype}{list(array.shape)}"
            raise ArgumentError(f"argument {k} on device {device} is {got}, the program takes {shape}")
        arrays.append(array)
    stream = iter(arrays)
    return tuple(nested(shape, stream) for shape in shapes)


def leaves_of(value: Any, shape: Shape) -> list[Array | None]:
    if shape.elements is None:
        return [value]
    return [leaf for v, s in zip(value, shape.elements, strict=True) for leaf in leaves_of(v, s)]
