"""HLO `fft`: discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.element_type import C64, C128, F32, F64, ElementType
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Fft(Op):
    """Fourier transform of the last one, two or three dimensions.

    Shapes:  FFT, IFFT: complex -> complex. RFFT: real [.., n] -> complex [.., n/2+1]. IRFFT: complex [.., n/2+1]
             -> real [.., n]. fft_length: n of each transformed dimension.
    Errors:  C1 more lengths than dimensions; C2 the element type; C3 not one to three lengths; C4 extents that differ
             from the lengths; kind: no such fft_type.
    Source:  StableHLO spec, "fft"; Operation Semantics, "Fft".
    """

    opcode: ClassVar[str] = "fft"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    fft_type: str = attribute("word")
    fft_length: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        operand, lengths = operands[0], self.fft_length
        result_type = _result_type(self, operand)
        self.require(1 <= len(lengths) <= 3, "C3", f"has {len(lengths)} lengths", at="fft_length")
        self.require(len(lengths) <= operand.rank, "C1", f"{len(lengths)} lengths for {operand}", at="fft_length")
        half = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
        want = half if self.fft_type == "IRFFT" else lengths
        have = operand.dims[operand.rank - len(lengths) :]
        self.require(have == want, "C4", f"transforms {list(want)}, {operand} ends in {list(have)}", at="fft_length")
        last = half if self.fft_type == "RFFT" else lengths
        return Shape(result_type, (*operand.dims[: operand.rank - len(lengths)], *last))


def _result_type(op: Fft, operand: Shape) -> ElementType:
    complex_to_complex = {C64: C64, C128: C128}
    types = {
        "FFT": complex_to_complex,
        "IFFT": complex_to_complex,
        "RFFT": {F32: C64, F64: C128},
        "IRFFT": {C64: F32, C128: F64},
    }
    op.require(op.fft_type in types, "kind", f"{op.fft_type} is none of {', '.join(types)}", at="fft_type")
    allowed = types[op.fft_type]
    op.require(operand.is_array and operand.dtype in allowed, "C2", f"{op.fft_type} of {operand}", at="operands")
    return allowed[operand.dtype]
