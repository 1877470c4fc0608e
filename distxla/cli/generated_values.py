"""Values that a run generates from its seed: for arguments, and for constants that a module's text leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.constant import Constant

Array = np.ndarray[Any, Any]
_CONSTANTS = 1 << 32  # in the place of a device: constants get other values than arguments


def generate(shape: Shape, seed: int, leaf: int, device: int) -> Array:
    """Repeatable values: floats in [-1, 1), integers from 0 to 7 as far as the type goes, random predicates."""
    random = np.random.default_rng([seed, leaf, device])
    element, dims = shape.dtype, shape.dims
    if element.kind == "pred":
        return random.integers(0, 2, dims).astype(np.bool_)
    if element.is_integer:
        value_bits = element.bits - element.is_signed
        return random.integers(0, 1 << min(3, value_bits), dims).astype(element.dtype)
    if element.is_complex:
        return (random.uniform(-1, 1, dims) + 1j * random.uniform(-1, 1, dims)).astype(element.dtype)
    if element.name == "f8e8m0fnu":  # it has neither sign nor zero
        return np.asarray(2.0 ** random.integers(-2, 3, dims)).astype(element.dtype)
    return np.asarray(random.uniform(-1, 1, dims)).astype(element.dtype)


def with_generated_constants(module: Module, seed: int) -> tuple[Module, tuple[str, ...]]:
    """The module with a value for every constant that is left out, the same on all devices; their names, in order.

    The same object where the text has all values. Of a tuple only the arrays that are left out are generated; of an
    array of which some rows are left out, all rows.
    """
    numbers = count()
    names: list[str] = []

    def completed(instruction: Instruction) -> Instruction:
        op = instruction.op
        if not isinstance(op, Constant) or not op.literal.is_elided:
            return instruction
        names.append(instruction.name)
        return instruction.replace(op=replace(op, literal=_completed(op.literal, seed, numbers)))

    computations: list[Computation] = []
    for computation in module.computations:
        before = len(names)
        instructions = tuple(map(completed, computation))
        computations.append(computation if len(names) == before else replace(computation, instructions=instructions))
    return (module.replace(computations=tuple(computations)) if names else module), tuple(names)


def _completed(literal: Literal, seed: int, numbers: Iterator[int]) -> Literal:
    shapes = literal.shape.elements
    if shapes is not None:
        elements = literal.elements if literal.elements is not None else tuple(map(Literal, shapes))
        return replace(literal, elements=tuple(_completed(element, seed, numbers) for element in elements))
    if not literal.is_elided:
        return literal
    return Literal(literal.shape, generate(literal.shape, seed, next(numbers), _CONSTANTS))
