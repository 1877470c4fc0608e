"""HLO `fft`: discrete Fourier transforms."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Fft(Op):
    """Fourier transform of the last dimensions."""

    opcode = "fft"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    fft_type: str = attribute("word")
    fft_length: tuple[int, ...] = attribute("int_list")
