"""The interface of a code generator for ops. Protocols only: ops never import LLVM.

Semantics are XLA's for the value's element type: wrapping integers, x/0 = -1 and INT_MIN/-1 = INT_MIN for signed
division, shifts beyond the width give 0 (or the sign), NaN-propagating maximum and minimum, narrow floats computed in
f32 and rounded to nearest even after every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from distxla.ir.computation import Computation
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass


class IndexValue(Protocol):
    """A signed 64-bit integer of the generated code: a dimension's index or an offset. Python ints mix in."""

    def __add__(self, other: IndexLike) -> IndexValue: ...
    def __radd__(self, other: IndexLike) -> IndexValue: ...
    def __sub__(self, other: IndexLike) -> IndexValue: ...
    def __rsub__(self, other: IndexLike) -> IndexValue: ...
    def __mul__(self, other: IndexLike) -> IndexValue: ...
    def __rmul__(self, other: IndexLike) -> IndexValue: ...
    def __floordiv__(self, other: IndexLike) -> IndexValue:
        """Quotient of non-negative numbers by a positive one."""

    def __mod__(self, other: IndexLike) -> IndexValue:
        """Remainder of non-negative numbers by a positive one."""


IndexLike = IndexValue | int
Index = Sequence[IndexLike]


class Value(Protocol):
    """A scalar of the generated code with its XLA element type (complex ones are one Value)."""

    @property
    def element_type(self) -> ElementType: ...


class ArrayRef(Protocol):
    """An operand of an element op: in memory, or computed on the spot by a fused producer."""

    @property
    def shape(self) -> Shape: ...

    def load(self, index: Index) -> Value:
        """The element at `index`, which must be in bounds."""


class Emitter(Protocol):
    """Scalar code. All binary methods take two values of one element type and return that type."""

    # constants, indices
    def constant(self, value: Any, element_type: ElementType) -> Value: ...
    def literal(self, literal: Literal) -> ArrayRef:
        """A constant array in the program's read-only data."""

    def index(self, value: int) -> IndexValue: ...
    def index_of(self, value: Value) -> IndexValue:
        """An integer value as an index: sign- or zero-extended by its type (u64 saturates at the largest i64)."""

    def value_of(self, index: IndexLike, element_type: ElementType) -> Value:
        """An index converted to an element type, as `iota` does."""

    def index_compare(self, direction: str, a: IndexLike, b: IndexLike) -> Value:
        """PRED; direction EQ NE LT LE GT GE, signed."""

    def index_select(self, predicate: Value, a: IndexLike, b: IndexLike) -> IndexValue: ...
    def index_clamp(self, low: IndexLike, value: IndexLike, high: IndexLike) -> IndexValue: ...

    def context_field(self, name: str) -> IndexValue:
        """A number that the device has at run time: "replica", "partition", "device" or "device_count"."""

    # arithmetic: unary and binary by HLO opcode ("add", "maximum", "shift-left", "exponential", "not", "sign" …)
    def unary(self, opcode: str, a: Value) -> Value:
        """Every element-wise unary HLO opcode; the result type is HLO's (is-finite: PRED, real/imag/abs: real part)."""

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """Every element-wise binary HLO opcode, atan2, power, remainder and complex included."""

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c of f32 or f64, rounded once."""

    def compare(self, direction: str, comparison: str, a: Value, b: Value) -> Value:
        """PRED; direction EQ NE LT LE GT GE; comparison FLOAT TOTALORDER SIGNED UNSIGNED."""

    def select(self, predicate: Value, on_true: Value, on_false: Value) -> Value:
        """Both sides are computed."""

    def convert(self, a: Value, element_type: ElementType) -> Value:
        """XLA ConvertElementType: saturating float to integer, NaN to 0, rounding to nearest even."""

    def bitcast(self, a: Value, element_type: ElementType) -> Value:
        """Same bits, same width."""

    def reduce_precision(self, a: Value, exponent_bits: int, mantissa_bits: int) -> Value: ...

    # the device
    def replica_id(self) -> Value:
        """U32: the number of the replica that runs this code."""

    def partition_id(self) -> Value:
        """U32: the number of the partition that runs this code."""

    # structure
    def branch(self, predicate: Value, on_true: Callable[[], Value], on_false: Callable[[], Value]) -> Value:
        """Only the chosen side is executed: use it where the other side would load out of bounds."""

    def fold(
        self,
        dimension_sizes: Sequence[int],
        initial: tuple[Value, ...],
        body: Callable[[Index, tuple[Value, ...]], tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        """Loop nest over `dimension_sizes`, last fastest, carrying values; the initial ones come back from an empty
        nest."""

    def steps(
        self,
        count: IndexLike,
        most: int,
        initial: tuple[Value, ...],
        body: Callable[[IndexLike, tuple[Value, ...]], tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        """A fold over a number of steps that is known at run time only, `most` at most; `count` <= 0: none."""

    def apply(self, computation: str, *arguments: Value, result: str | None = None) -> tuple[Value, ...]:
        """Inline a scalar computation of the module; one value a leaf of its result.

        result: the instruction of it whose value is wanted instead of the root's.
        """

    def computation(self, name: str) -> Computation:
        """A computation of the module, to be looked at."""


class Buffer(ArrayRef, Protocol):
    """An array in memory, row-major."""

    def store(self, index: Index, value: Value) -> None: ...


@dataclass(frozen=True)
class Imported:
    """As an argument of `KernelEmitter.call`: the address of an imported function or of imported data."""

    symbol: str


Argument = Buffer | Value | IndexLike | Imported | Sequence[Buffer] | None


@dataclass(frozen=True)
class RunProducts:
    """Sums of products of runs of an array with a matrix of weights, which `KernelEmitter.run_products` computes:

    result[target(row) + column] = sum over place < places and step < run
        of lhs[source(row, place) + step] * weight(place, step, column)

    lhs, result: arrays of one real element type, positions are linear.  weights: the type of the matrix.  On a grid
    these are any three types, of which the sum has the result's.  source: gives the position of a run, and a predicate;
    where it doesn't hold, the run is zeros (None: it always holds).  weight: an element of the matrix.
    weights_in_place: (buffer, position, stride) where that matrix is in memory already, with element
    (place, step, column) at position + (place * run + step) * stride + column.
    """

    rows: int
    columns: int
    places: int
    run: int
    lhs: Buffer
    weights: ElementType
    source: Callable[[IndexLike, IndexLike], tuple[IndexLike, Value | None]]
    weight: Callable[[IndexLike, IndexLike, IndexLike], Value]
    weights_in_place: tuple[Buffer, IndexLike, int] | None
    result: Buffer
    target: Callable[[IndexLike], IndexLike]


@dataclass(frozen=True)
class Factors:
    """How `KernelEmitter.gemm` takes the factors of its products.

    element_type: the type that both are converted to.  terms: None where sums have that type, too, or on a grid a wider
    float. Otherwise sums are
    integers, and so many products of the factors can be summed in `element_type` without rounding.
    """

    element_type: ElementType
    terms: int | None = None


@dataclass(frozen=True)
class Tuning:
    """Sizes that code is made to fit, where the processor matters. Results do not depend on them.

    lanes: independent steps, in any order, that fill the processor's vectors.  cached_bytes: that a kernel may go
    through again and again without leaving the fastest cache.  on_grid: threads run the iterations of independent
    loops at the same time, so those are to be outermost, and many.
    """

    lanes: int
    cached_bytes: int
    on_grid: bool = False


class KernelEmitter(Emitter, Protocol):
    """Code that fills whole buffers."""

    @property
    def tuning(self) -> Tuning:
        """The numbers by which kernels choose between ways to compute the same."""

    @property
    def instruction(self) -> Instruction:
        """The instruction that this kernel computes, with its annotations."""

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        """Its operands' shapes, tuples unflattened."""

    def call_native(
        self,
        symbol: str,
        result: Shape,
        results: Sequence[Buffer],
        operand_shapes: Sequence[Shape],
        operands: Sequence[Buffer],
    ) -> None:
        """Call the imported `void symbol(void* out, void** in)`.

        out: the result's buffer, for a tuple a table of its elements'; in: a table of the operands'. Tokens are null
        pointers. results, operands: one buffer a leaf that is no token.
        """

    def literal(self, literal: Literal) -> Buffer:
        """A constant array in the program's read-only data."""

    def call(self, symbol: str, result: ElementType | None, *arguments: Argument) -> Value | None:
        """Call the function `symbol`: of C, or a library's routine (targets/code.py, `import_name`); its result.

        A Buffer becomes its address, a sequence of them the address of a table of theirs in the frame, None a null
        pointer, a Value itself (integers, f32, f64), an index an i64. `constant(3, S32)` is a C int, `local` gives
        the address of an argument passed by reference.
        """

    def local(self, value: Value) -> Buffer:
        """An array of rank 0 in the function's frame that holds `value`; one place for all rounds of a loop."""

    def loops(
        self, dimension_sizes: Sequence[int], *, parallel: bool = False, independent: bool = False
    ) -> AbstractContextManager[tuple[IndexValue, ...]]:
        """Open a loop nest, last dimension fastest; the with-body is the innermost body.

        independent: no body uses what another one writes, so a grid's threads run them at the same time.  parallel: so,
        and a nest that transposes may walk in tiles.
        """

    def rounds(self, count: int) -> AbstractContextManager[IndexValue]:
        """Run the with-body `count` > 0 times, one after the other; gives the number of the time.

        On a grid the body holds independent loops only, outside of all loops, and each of them is finished before
        the next one begins.
        """

    def when(self, predicate: Value) -> AbstractContextManager[None]:
        """The with-body runs only where the predicate holds."""

    def fill(self, buffer: Buffer, value: Value) -> None: ...
    def copy(self, target: Buffer, source: Buffer) -> None:
        """Equal byte sizes; a memcpy. Nothing happens where they are the same memory."""

    def reshaped(self, buffer: Buffer, shape: Shape, offset: IndexLike = 0) -> Buffer:
        """The same memory from element `offset` on, seen with another shape (and element type of the same storage).

        It must be within the buffer.
        """

    def static_state(self, name: str, initial: Literal) -> Buffer:
        """Memory of the program on this device that keeps its contents from run to run, one for each name.

        initial: its content when the program is loaded; the same wherever the name is used.
        """

    def scratch(self, shape: Shape, *, scattered: bool = False) -> Buffer:
        """Uninitialised memory for the rest of this kernel; the arena's planner reserves it.

        scattered: the bodies of independent loops store into different elements, or the same value into one, although
        the indices of their stores aren't those of the loops.
        """

    def factors(
        self, shape: tuple[int, int, int], types: tuple[ElementType, ElementType], sums: ElementType
    ) -> Factors:
        """How `gemm` wants the factors of a product that is summed in type `sums`.

        shape: (m, n, k) of one product; types: the factors' own.
        """

    def gemm(
        self,
        shape: tuple[int, int, int, int],
        a: tuple[Buffer, int, int, int],
        b: tuple[Buffer, int, int, int],
        c: tuple[Buffer, int, int, int],
        terms: int | None = None,
    ) -> None:
        """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n] with shape (batch, m, n, k), i running over the batch.

        Each array is (buffer, batch stride, row stride, column stride) in elements; element types are
        equal, but for c's where `terms` are given (see `Factors`). The generator picks a library or emits loops.
        """

    def run_products(self, products: RunProducts) -> None:
        """Compute them in tiles of rows and columns, as `RunProducts` describes."""
