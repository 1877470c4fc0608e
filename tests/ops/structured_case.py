"""Instructions that call computations, as text: a module around one of them, and the three ways to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type_of
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.lower.harness import Kernel

Array = np.ndarray[Any, Any]

# Computations that a case may name; T is the case's element type.
COMPUTATIONS = {
    "add": "a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = T[] add(a, b)",
    "max": "a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = T[] maximum(a, b)",
    "second": "a = T[] parameter(0)\n ROOT b = T[] parameter(1)",
    "ge": "a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = pred[] compare(a, b), direction=GE",
    "lt": "a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = pred[] compare(a, b), direction=LT",
    "gt": "a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = pred[] compare(a, b), direction=GT",
    # the order of another key, written the other way round
    "by_negation": "a = T[] parameter(0)\n b = T[] parameter(1)\n x = T[] negate(a)\n y = T[] negate(b)\n"
    " ROOT r = pred[] compare(y, x), direction=GT",
    # an order that is nobody's key
    "chosen": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    " l = pred[] compare(a, b), direction=LT\n t = pred[] constant(true)\n f = pred[] constant(false)\n"
    " ROOT r = pred[] select(l, t, f)",
    "total": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    " ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER",
    # the second array descends where the first one's elements are equal
    "two_keys": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    " l = pred[] compare(a, b), direction=LT\n e = pred[] compare(a, b), direction=EQ\n"
    " g = pred[] compare(c, d), direction=GT\n n = pred[] and(g, e)\n ROOT r = pred[] or(l, n)",
    "refined": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    " l = pred[] compare(c, d), direction=GT\n e = pred[] compare(c, d), direction=NE\n"
    " g = pred[] compare(a, b), direction=LT\n ROOT r = pred[] select(e, l, g)",
    "lt_pairs": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    " ROOT r = pred[] compare(a, b), direction=LT",
    "beside_lt": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = f32[] parameter(2)\n d = f32[] parameter(3)\n"
    " ROOT r = pred[] compare(a, b), direction=LT",
    "beside_gt": "a = T[] parameter(0)\n b = T[] parameter(1)\n c = f32[] parameter(2)\n d = f32[] parameter(3)\n"
    " ROOT r = pred[] compare(a, b), direction=GT",
    "argmax": "a = T[] parameter(0)\n i = s32[] parameter(1)\n b = T[] parameter(2)\n j = s32[] parameter(3)\n"
    " g = pred[] compare(a, b), direction=GE\n v = T[] select(g, a, b)\n k = s32[] select(g, i, j)\n"
    " ROOT r = (T[], s32[]) tuple(v, k)",
    "add_both": "a = T[] parameter(0)\n i = s32[] parameter(1)\n b = T[] parameter(2)\n j = s32[] parameter(3)\n"
    " v = T[] add(a, b)\n k = s32[] add(i, j)\n ROOT r = (T[], s32[]) tuple(v, k)",
}

# How far sums and products of the element type may be apart, relative to 1 + |value|.
TOLERANCES = {"f64": 1e-12, "c128": 1e-12, "f32": 1e-5, "c64": 1e-5, "f16": 4e-3, "bf16": 3e-2}


@dataclass(frozen=True)
class StructuredCase:
    """`expression`: the instruction, `@` standing for its operands, which are parameters of the shapes `operands`.

    arguments: values for some operands by number; the others are small integers or normal floats.
    """

    expression: str
    operands: tuple[str, ...] = ()
    element: str = "f32"
    arguments: Mapping[int, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.expression.replace('@', ','.join(self.operands))}".replace(" ", "_")[:150]

    @property
    def text(self) -> str:
        names = [f"p{i}" for i in range(len(self.operands))]
        called = [name for name in COMPUTATIONS if _names(self.expression, name)]
        lines = ["HloModule case"]
        lines += [f"{name} {{\n {COMPUTATIONS[name].replace('T[', self.element + '[')}\n}}" for name in called]
        lines += [
            "ENTRY main {",
            *(f"  {n} = {s} parameter({i})" for i, (n, s) in enumerate(zip(names, self.operands))),
        ]
        lines += [f"  ROOT r = {self.expression.replace('@', ', '.join(names))}", "}"]
        return "\n".join(lines) + "\n"

    def module(self) -> Module:
        module = parse_module(self.text)
        verify_module(module)
        return module

    def values(self) -> list[Array]:
        shapes = [p.shape for p in self.module().entry_computation.parameters]
        return [self._value(number, shape) for number, shape in enumerate(shapes)]

    def _value(self, number: int, shape: Shape) -> Array:
        generator = np.random.default_rng([number, shape.size])
        dtype = shape.dtype.dtype
        if number in self.arguments:
            return np.array(self.arguments[number]).astype(dtype).reshape(shape.dims)
        if shape.dtype.is_integer:
            return generator.integers(-3 if shape.dtype.is_signed else 0, 4, shape.dims).astype(dtype)
        values = generator.standard_normal(shape.dims)
        if shape.dtype.is_complex:
            return np.asarray(values + 1j * generator.standard_normal(shape.dims)).astype(dtype)
        return np.asarray(values).astype(dtype)

    def evaluated(self) -> list[Array]:
        return [np.asarray(a) for a in run_reference(self.module(), [self.values()], Counts(1, 1))[0]]

    def compiled(self) -> list[Array]:
        result = Kernel(self.module())(*self.values())
        return list(result) if isinstance(result, tuple) else [result]


def _names(expression: str, computation: str) -> bool:
    attributes = expression.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return any(a.endswith(f"={computation}") for a in attributes)


def assert_close(got: Array, want: Array, factor: float = 1.0) -> None:
    """Equal integers; floats within the table times `factor`."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    tolerance = _tolerance(got) * factor
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)


def _tolerance(array: Array) -> float:
    return TOLERANCES.get(element_type_of(array.dtype).name, 0.0)


def assert_compiled_agrees(case: StructuredCase, factor: float = 1.0) -> None:
    for got, want in zip(case.compiled(), case.evaluated(), strict=True):
        assert_close(got, want, factor)
