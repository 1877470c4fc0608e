"""`LapackTarget`: common to the routines of LAPACK that JAX calls by name on CPU, `lapack_<letter><routine>_ffi`.

The letter says the element type. Operands and results are batches: matrices in the last two dimensions, vectors in the
last one, `info` a number of type s32 for each. A module states column-major layouts for the matrices; arrays here are
row-major, so a routine works on transposed copies in scratch memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from distxla.ir.element_type import F32, F64, PRED, S32, ElementType, element_type
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.target import Call, CustomCallTarget
from distxla.ops.support.emit import Buffer, Index, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.lapack import LARGEST, LETTERS, call_lapack, part

BLOCK = 32  # columns that LAPACK's blocked algorithms take at a time, given the memory for it
_TYPES = {letter: element_type(name) for name, letter in LETTERS.items()}


def lapack_names(*routines: str) -> tuple[str, ...]:
    """The targets' names for all four element types."""
    return tuple(f"lapack_{letter}{routine}_ffi" for routine in routines for letter in _TYPES)


class Unfit(ValueError):
    """The operands or the configuration do not fit the routine; the message says why."""


def fit(condition: object, message: str) -> None:
    """Raise Unfit unless the condition holds."""
    if not condition:
        raise Unfit(message)


class LapackTarget(CustomCallTarget):
    """A routine that works on one matrix of a batch at a time.

    operand_ranks: of each operand, without the batch.
    """

    operand_ranks: ClassVar[tuple[int, ...]] = (2,)

    @abstractmethod
    def results(self, call: Call) -> tuple[Shape, ...]:
        """The result's leaves that follow from the operands; raises Unfit or ConfigError for invalid ones."""

    @abstractmethod
    def evaluate_one(self, call: Call, *operands: Any) -> Sequence[Any]:
        """The results for one element of the batch, by NumPy; operands are in double precision."""

    @abstractmethod
    def emit_one(self, call: Call, work: Work, results: Sequence[Buffer], *operands: Buffer) -> None:
        """Code for one element of the batch."""

    def obstacle(self, call: Call) -> str | None:
        try:
            self._check_operands(call)
            wanted = self.results(call)
        except Unfit as error:
            return f'custom-call of "{call.name}": {error}'
        stated = (call.shape,) if call.shape.elements is None else call.shape.elements
        if len(stated) != len(wanted) or not all(map(Shape.compatible, stated, wanted)):
            return f'custom-call of "{call.name}" gives ({", ".join(map(str, wanted))}), the text says {call.shape}'
        return None

    def _check_operands(self, call: Call) -> None:
        ranks = self.operand_ranks
        fit(len(call.operands) == len(ranks), f"takes {len(ranks)} operands, not {len(call.operands)}")
        for shape, rank in zip(call.operands, ranks):
            fit(shape.is_array and shape.rank >= rank, f"{shape} has no {rank} dimensions")
            fit(shape.dims[: shape.rank - rank] == self.batch(call), "the operands differ in their batch dimensions")
            fit(shape.size <= LARGEST // 8, f"{shape} is too large for LAPACK's 32-bit integers")
        fit(call.operands[0].dtype is self.kind(call), f"{call.operands[0]} is no array of {self.kind(call)}")

    def kind(self, call: Call) -> ElementType:
        """The element type of the routine's letter."""
        return _TYPES[call.name.removeprefix("lapack_")[0]]

    def routine(self, call: Call) -> str:
        """The routine's name with its letter."""
        return call.name.removeprefix("lapack_").removesuffix("_ffi")

    def batch(self, call: Call) -> tuple[int, ...]:
        """The dimension sizes of the batch."""
        first = call.operands[0]
        return first.dims[: first.rank - self.operand_ranks[0]]

    def matrix(self, call: Call, number: int = 0) -> tuple[int, int]:
        """Rows and columns of an operand; Unfit for an element type other than the routine's."""
        shape = call.operands[number]
        fit(shape.dtype is self.kind(call), f"{shape} is no array of {self.kind(call)}")
        rows, columns = shape.dims[-2:]
        return rows, columns

    def square(self, call: Call) -> int:
        """The size of the first operand, which must be square."""
        rows, columns = self.matrix(call)
        fit(rows == columns, f"{call.operands[0]} is not square")
        return rows

    def tridiagonal_system(self, call: Call) -> tuple[int, int]:
        """Rows and columns of the right sides, which come behind the three diagonals."""
        n, columns = self.matrix(call, 3)
        for diagonal in call.operands[:3]:
            fit(
                diagonal.dtype is self.kind(call) and diagonal.dims[-1] == n,
                f"{diagonal} does not fit {call.operands[3]}",
            )
        return n, columns

    def letter(self, call: Call, key: str, letters: str, default: str | None = None) -> str:
        """A letter of the configuration that is one of `letters`."""
        found = call.config.letter(key, default)
        fit(found in letters, f"{key} is {found!r}, none of {', '.join(letters)}")
        return found

    def result(self, call: Call, *dims: int, kind: ElementType | None = None) -> Shape:
        """A result with these dimension sizes behind the batch's, of the routine's type unless `kind` says another."""
        return Shape(kind or self.kind(call), (*self.batch(call), *dims))

    def info(self, call: Call) -> Shape:
        """The routine's info for each element of the batch: 0 for success."""
        return self.result(call, kind=S32)

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        results = [np.zeros(shape.dims, shape.dtype.dtype) for shape in self.results(call)]
        wide = [
            o.astype(np.complex128 if np.iscomplexobj(o) else np.float64) if o.dtype.kind != "i" else o
            for o in operands
        ]
        with np.errstate(all="ignore"):
            for index in np.ndindex(*self.batch(call)):
                values = self.evaluate_one(call, *(operand[index].copy() for operand in wide))
                for result, value in zip(results, values, strict=True):
                    result[index] = value
        return results[0] if call.shape.elements is None else tuple(results)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        with emit.loops(self.batch(call)) as batch:
            work = Work(emit, self.kind(call))
            parts = [[part(emit, array, batch) for array in arrays] for arrays in (results, operands)]
            self.emit_one(call, work, parts[0], *parts[1])


class Work:
    """The parts from which the code for one element of a batch is made."""

    def __init__(self, emit: KernelEmitter, kind: ElementType) -> None:
        self.emit = emit
        self.kind = kind

    def room(self, size: int, kind: ElementType | None = None) -> Buffer:
        """Scratch memory of `size` elements, at least one."""
        return self.emit.scratch(Shape(kind or self.kind, (max(1, size),)))

    def columns(self, rows: int, columns: int) -> Buffer:
        """Scratch memory for a column-major matrix; element (j, i) of the buffer is row i, column j."""
        return self.emit.scratch(Shape(self.kind, (columns, rows)))

    def loaded(self, matrix: Buffer) -> Buffer:
        """A column-major copy."""
        copy = self.columns(*matrix.shape.dims)
        self.load_into(copy, matrix)
        return copy

    def load_into(self, columns: Buffer, matrix: Buffer) -> None:
        """Copy a matrix to a column-major one."""
        with self.emit.loops(matrix.shape.dims) as (i, j):
            columns.store((j, i), matrix.load((i, j)))

    def store(self, result: Buffer, columns: Buffer) -> None:
        """Copy a column-major matrix to a result."""
        with self.emit.loops(result.shape.dims) as (i, j):
            result.store((i, j), columns.load((j, i)))

    def zero(self, *results: Buffer) -> None:
        for result in results:
            self.emit.fill(result, self.emit.constant(0, result.shape.dtype))

    def identity(self, result: Buffer) -> None:
        """Ones on the diagonal, zeros elsewhere."""
        emit, kind = self.emit, result.shape.dtype
        with emit.loops(result.shape.dims) as (i, j):
            value = emit.select(emit.index_compare("EQ", i, j), emit.constant(1, kind), emit.constant(0, kind))
            result.store((i, j), value)

    def call(self, routine: str, *arguments: Buffer | int | str | None) -> None:
        """Call the routine; see ops/support/lapack.py."""
        call_lapack(self.emit, routine, *arguments)

    @contextmanager
    def where_finite(
        self, matrix: Buffer, results: Sequence[Buffer], info: Buffer, triangle: str | None = None
    ) -> Iterator[None]:
        """The with-body runs where the matrix (its named triangle) has no infinity and no NaN.

        Otherwise the results are filled with NaN and `info` is NOT_FINITE: iterations would not end well.
        """
        emit = self.emit

        def step(index: Index, before: tuple[Value, ...]) -> tuple[Value, ...]:
            i, j = index
            value = matrix.load((i, j))
            parts = [emit.unary(part, value) for part in ("real", "imag")] if self.kind.is_complex else [value]
            fine = before[0]
            for number in parts:
                fine = emit.binary("and", fine, emit.unary("is-finite", number))
            if triangle is None:
                return (fine,)
            return (emit.select(emit.index_compare("GE" if triangle == "L" else "LE", i, j), fine, before[0]),)

        (finite,) = emit.fold(matrix.shape.dims, (emit.constant(True, PRED),), step)
        with emit.when(finite):
            yield
        with emit.when(emit.unary("not", finite)):
            emit.fill(info, emit.constant(NOT_FINITE, S32))
            for result in results:
                kind = result.shape.dtype
                emit.fill(result, emit.constant(complex("nan+nanj") if kind.is_complex else float("nan"), kind))


NOT_FINITE = -4  # info for a matrix that holds an infinity or a NaN, as the routines for singular values have it


def real_type(kind: ElementType) -> ElementType:
    """f32 or f64: the type of norms and of Hermitian matrices' eigenvalues."""
    return F32 if kind.real_part is F32 else F64
