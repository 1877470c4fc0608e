"""Calls of BLAS and LAPACK from kernels: the names of the routines and the forms of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from distxla.ir.element_type import F32, S32, U8, ElementType
from distxla.ir.literal import Literal
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Argument, Buffer, Index, IndexLike, KernelEmitter, Value

# the letter that a routine's name begins with
LETTERS = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
LARGEST = 2**31 - 1  # of the library's integers
ROW_MAJOR = 101
SIDES = {"L": 141, "R": 142}
TRIANGLES = {"U": 121, "L": 122}
TRANSPOSITIONS = {"N": 111, "T": 112, "C": 113}
DIAGONALS = {"N": 131, "U": 132}


def working_type(element_type: ElementType) -> ElementType:
    """The type in which a library computes for `element_type`: f32 for narrower floats, itself otherwise."""
    return F32 if element_type.is_float and element_type.bits < 32 else element_type


def call_lapack(emit: KernelEmitter, routine: str, *arguments: Buffer | int | str | None) -> None:
    """Call the Fortran routine of that name ("spotrf") of LAPACK.

    It takes everything by address: integers of 32 bits and letters become constants, buffers are passed as they are
    (column-major to the routine), None as a null pointer. The letters' lengths follow, as GNU Fortran has it.
    """
    passed: list[Argument] = []
    lengths: list[int] = []
    for argument in arguments:
        if isinstance(argument, str):
            passed.append(emit.literal(Literal.of(ord(argument), Shape(U8))))
            lengths.append(1)
        elif isinstance(argument, int):
            passed.append(emit.literal(Literal.of(argument, Shape(S32))))
        else:
            passed.append(argument)
    emit.call(f"lapack.{routine}", None, *passed, *lengths)


def call_trsm(
    emit: KernelEmitter, side: str, triangle: str, transposition: str, diagonal: str, a: Buffer, b: Buffer
) -> None:
    """b := op(a)^-1 b (side L) or b op(a)^-1 (side R); a and b are single row-major matrices of equal type.

    The letters are BLAS's: triangle U or L, the only one that is read; transposition N, T, C; diagonal U for ones.
    """
    kind = b.shape.dtype
    codes = (
        ROW_MAJOR, SIDES[side], TRIANGLES[triangle], TRANSPOSITIONS[transposition], DIAGONALS[diagonal],
        *b.shape.dims,
    )  # fmt: skip
    one: Value | Buffer = emit.constant(1, kind)
    if kind.is_complex:
        one = emit.literal(Literal.of(1, Shape(kind)))
    leading = [emit.constant(max(1, matrix.shape.dims[1]), S32) for matrix in (a, b)]
    numbers = [emit.constant(code, S32) for code in codes]
    emit.call(f"blas.{LETTERS[kind.name]}trsm", None, *numbers, one, a, leading[0], b, leading[1])


def part(emit: KernelEmitter, array: Buffer, index: Index) -> Buffer:
    """The row-major array at `index` of the leading dimensions, in place."""
    dims = array.shape.dims
    offset: IndexLike = 0
    stride = prod(dims[len(index) :])
    for size, position in zip(reversed(dims[: len(index)]), reversed(index), strict=True):
        offset = position * stride + offset
        stride *= size
    return emit.reshaped(array, Shape(array.shape.dtype, dims[len(index) :]), offset)


def transposed(dims: Sequence[int]) -> tuple[int, ...]:
    """The dimension sizes with the last two exchanged."""
    return (*dims[:-2], dims[-1], dims[-2])
