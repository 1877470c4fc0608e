"""Scalars of the generated code, and the form of each element type in memory and in registers.

In memory every element has `byte_size` bytes. In registers pred is i1, s2..u64 are integers of their own width, f16,
bf16, f8* and f4 are f32 that hold a representable number, complex numbers are a pair.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.compiler.lower.scalar_expression import F16T, F32T, F64T
from distxla.emit.native_function import I1
from distxla.ir.element_type import ElementType


class ScalarValue:
    """llvm: the register (the real part of a complex number).  imag: the imaginary part.

    packed: for narrow floats the memory form, where it is known, so that storing does not encode a second time.
    """

    __slots__ = ("element_type", "imag", "llvm", "packed")

    def __init__(
        self, element_type: ElementType, llvm: ir.Value, imag: ir.Value | None = None, packed: ir.Value | None = None
    ) -> None:
        self.element_type = element_type
        self.llvm = llvm
        self.imag = imag
        self.packed = packed

    def registers(self) -> list[ir.Value]:
        return [self.llvm] if self.imag is None else [self.llvm, self.imag]


def register_type(element_type: ElementType) -> ir.Type:
    """The LLVM type of a register; of each half of a complex number."""
    if element_type.kind == "pred":
        return I1
    if element_type.is_integer:
        return ir.IntType(element_type.bits)
    return F64T if element_type.name in ("f64", "c128") else F32T


def memory_type(element_type: ElementType) -> ir.Type:
    """The LLVM type of an element in memory; complex numbers are arrays of two."""
    if element_type.is_complex:
        return ir.ArrayType(register_type(element_type), 2)
    if element_type.is_float:
        wide: dict[str, ir.Type] = {"f16": F16T, "f32": F32T, "f64": F64T}
        return wide.get(element_type.name, ir.IntType(8 * element_type.byte_size))
    return ir.IntType(8 * element_type.byte_size)


def is_narrow_float(element_type: ElementType) -> bool:
    """Held as f32 in registers and rounded after every operation."""
    return element_type.is_float and element_type.bits < 32
