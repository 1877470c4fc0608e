"""HLO `fft`: discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import C64, C128, F32, F64, S64, ElementType
from distxla.ir.literal import Literal
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.emit import Buffer, Imported, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register

# numpy.fft.<function>.<type>.<loop or data>: imports that a target's loader resolves
IMPORT_PREFIX = "numpy.fft."
_BLOCK = 256  # columns of a transform's matrix that are made at a time


@register
class Fft(ExecutableOp):
    """Fourier transform of the last one, two or three dimensions.

    The inverse ones divide by the number of elements. RFFT transforms the last dimension first, IRFFT transforms it
    last and takes no notice of the imaginary parts that real results rule out.

    FFT and IFFT of other lengths than the operand's dimension sizes transform its first elements, zeros behind them
    where it has fewer than `fft_length`, and put as many of the results into the operand's shape, zeros behind them.

    Shapes:  FFT, IFFT: complex -> complex. RFFT: real [.., n] -> complex [.., n/2+1]. IRFFT: complex [.., n/2+1]
             -> real [.., n]. fft_length: n of each transformed dimension.
    Errors:  C1 more lengths than dimensions; C2 the element type; C3 not one to three lengths; C4 dimension sizes of a
             real transform that differ from the lengths; C5 a negative length; kind: no such fft_type.
    Source:  StableHLO spec, "fft"; Operation Semantics, "Fft"; for other lengths XLA's HloEvaluator.
    """

    opcode: ClassVar[str] = "fft"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(1)
    fft_type: str = attribute("word")
    fft_length: tuple[int, ...] = attribute("int_list")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, lengths = operands[0], self.fft_length
        result_type = _result_type(self, operand)
        self.require(1 <= len(lengths) <= 3, "C3", f"has {len(lengths)} lengths", at="fft_length")
        self.require(len(lengths) <= operand.rank, "C1", f"{len(lengths)} lengths for {operand}", at="fft_length")
        self.require(min(lengths) >= 0, "C5", f"has a negative length: {list(lengths)}", at="fft_length")
        if self.fft_type in ("FFT", "IFFT"):
            return operand.without_layout()
        half = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
        want = half if self.fft_type == "IRFFT" else lengths
        have = operand.dims[operand.rank - len(lengths) :]
        self.require(have == want, "C4", f"transforms {list(want)}, {operand} ends in {list(have)}", at="fft_length")
        last = half if self.fft_type == "RFFT" else lengths
        return Shape(result_type, (*operand.dims[: operand.rank - len(lengths)], *last))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """By the sum that defines it, split by the length's prime factors; in double precision."""
        (operand,) = operands
        if not run.shape.size or 0 in self.fft_length:
            return np.zeros(run.shape.dims, run.shape.dtype.dtype)
        sign = -1 if self.fft_type in ("FFT", "RFFT") else 1
        axes = range(operand.ndim - len(self.fft_length), operand.ndim)
        value = operand.astype(np.complex128)
        if self.fft_type in ("FFT", "IFFT"):
            value = _fitted(value, self._lengths(operand.shape))
        with np.errstate(all="ignore"):
            for axis in list(axes)[:-1]:
                value = np.moveaxis(_sums(np.moveaxis(value, axis, -1), sign), -1, axis)
            if self.fft_type == "IRFFT":
                value = _with_other_half(value, self.fft_length[-1])
            value = _sums(value, sign)
            if sign > 0:
                value = value / prod(self.fft_length)
            if self.fft_type == "IRFFT":
                value = value.real
            if self.fft_type in ("FFT", "IFFT"):
                return _fitted(value, operand.shape).astype(run.shape.dtype.dtype)
            return value[..., : run.shape.dims[-1]].astype(run.shape.dtype.dtype)

    def _lengths(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Dimension sizes with those that are transformed as fft_length has them."""
        return (*dims[: len(dims) - len(self.fft_length)], *self.fft_length)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """A call of a library's transform for each axis."""
        (operand,), (result,) = operands, results
        if not result.shape.size:
            return
        rank, lengths = operand.shape.rank, self.fft_length
        if self.fft_type in ("FFT", "IFFT") and (fitted := self._lengths(operand.shape.dims)) != operand.shape.dims:
            if not prod(lengths):
                emit.fill(result, emit.constant(0, result.shape.dtype))
                return
            work = emit.scratch(operand.shape.without_layout().with_dims(fitted))
            _emit_fitted(emit, work, operand)
            for axis in range(rank - len(lengths), rank):
                _emit_axis(emit, self.fft_type.lower(), axis, work, work, fitted[axis])
            _emit_fitted(emit, result, work)
            return
        others = range(rank - len(lengths), rank - 1)
        source = operand
        if self.fft_type == "IRFFT" and others:
            source = emit.scratch(operand.shape.without_layout())
            emit.copy(source, operand)
            for axis in others:
                _emit_axis(emit, "ifft", axis, source, source, source.shape.dims[axis])
        last = lengths[-1]
        if self.fft_type == "RFFT":
            _emit_axis(emit, "rfft_n_odd" if last % 2 else "rfft_n_even", rank - 1, source, result, last)
        elif self.fft_type == "IRFFT":
            _emit_axis(emit, "irfft", rank - 1, source, result, last)
            return
        else:
            _emit_axis(emit, self.fft_type.lower(), rank - 1, source, result, last)
        for axis in others:
            _emit_axis(emit, "ifft" if self.fft_type == "IFFT" else "fft", axis, result, result, lengths[axis - rank])


def _emit_fitted(emit: KernelEmitter, target: Buffer, source: Buffer) -> None:
    """The source's first elements along each dimension, zeros where it has none."""
    common = tuple(map(min, target.shape.dims, source.shape.dims))
    if common != target.shape.dims:
        emit.fill(target, emit.constant(0, target.shape.dtype))
    with emit.loops(common) as index:
        target.store(index, source.load(index))


def _emit_axis(emit: KernelEmitter, function: str, axis: int, source: Buffer, target: Buffer, length: int) -> None:
    """Transform one axis of every line; source and target differ in that size only and may be one buffer.

    A line's elements are `inner` elements apart; one call transforms the `inner` lines that are interleaved.
    """
    dims = source.shape.dims
    kind = source.shape.dtype
    inner = prod(dims[axis + 1 :])
    blocks, lines = prod(dims[:axis]), inner
    if inner == 1:
        blocks, lines = 1, blocks
    symbol = f"{IMPORT_PREFIX}{function}.{kind}."
    real = kind.real_part
    factor = emit.literal(Literal.of(1 / length if function in ("ifft", "irfft") else 1, Shape(real)))
    item = [source.shape.dtype.byte_size, target.shape.dtype.byte_size]
    dimension_size = [dims[axis], target.shape.dims[axis]]
    step = [size * (dimension_size[k] if inner == 1 else 1) for k, size in enumerate(item)]
    dimension_sizes = emit.literal(_words([lines, *dimension_size]))
    steps = emit.literal(_words([step[0], 0, step[1], item[0] * inner, item[1] * inner]))
    flat = [emit.reshaped(array, Shape(array.shape.dtype, (array.shape.size,))) for array in (source, target)]
    with emit.loops((blocks,)) as (block,):
        start, end = (
            emit.reshaped(
                array, Shape(array.shape.dtype, (dimension_size[k] * inner,)), block * (dimension_size[k] * inner)
            )
            for k, array in enumerate(flat)
        )
        emit.call(f"{symbol}loop", None, [start, factor, end], dimension_sizes, steps, Imported(f"{symbol}data"))


def _words(values: Sequence[int]) -> Literal:
    return Literal.of(values, Shape(S64, (len(values),)))


def _sums(x: Any, sign: int) -> Any:
    """sum over j of x[.., j] exp(sign 2 pi i j k / n) for every k."""
    n = x.shape[-1]
    factor = next((p for p in range(2, int(n**0.5) + 1) if n % p == 0), n)
    numbers = np.arange(n)
    if factor == n:
        blocks = [
            x @ np.exp(sign * 2j * np.pi / n * (np.outer(numbers, numbers[k : k + _BLOCK]) % n))
            for k in range(0, n, _BLOCK)
        ]
        return np.concatenate(blocks, axis=-1)
    total = np.zeros_like(x)
    for first in range(factor):
        part = _sums(x[..., first::factor], sign)
        total += np.tile(part, factor) * np.exp(sign * 2j * np.pi / n * (first * numbers % n))
    return total


def _fitted(x: Any, dims: Sequence[int]) -> Any:
    """The first elements of x along each dimension, zeros where it has none."""
    common = tuple(slice(min(have, want)) for have, want in zip(x.shape, dims, strict=True))
    if x[common].shape == tuple(dims):
        return x[common]
    fitted = np.zeros(dims, x.dtype)
    fitted[common] = x[common]
    return fitted


def _with_other_half(x: Any, length: int) -> Any:
    """The coefficients of a real signal of `length` from its first length/2 + 1, whose conjugates the others are."""
    x = x.copy()
    x[..., 0] = x[..., 0].real
    if length % 2 == 0:
        x[..., -1] = x[..., -1].real
    others = x[..., 1 : (length + 1) // 2]
    return np.concatenate([x, others[..., ::-1].conj()], axis=-1)


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
