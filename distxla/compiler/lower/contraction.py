"""Matrix products: a library's for large floats, emitted loops for small, thin and integer ones."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

from llvmlite import ir

from distxla.compiler.lower import gemm_micro_kernel
from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import BufferEmitter, MatrixOperand
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_expression import F32T, F64T, ScalarExpr
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I32, POINTER, VOID, declared
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import RunProducts
from distxla.targets.code import target_of
from distxla.targets.processor import Processor

LONGEST_RUN = 1024  # products along one run: longer sums are cut into runs of equal length where there are such
FEW_PRODUCTS = 1 << 25  # of them at most it pays to copy one operand rather than to let the library copy both
MANY_PRODUCTS = 1 << 22  # of them at least tiles save more than it takes to compile them
THIN = 4  # rows of a product at most that adds up rows of a long matrix
ROWS_TOGETHER = 4  # inner products that are summed together
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112  # of BLAS
LARGEST = 2**31 - 1  # size or stride that it takes
SMALL = 16 * 16 * 16  # multiplications below which the library's start-up costs more than it saves


@dataclass(frozen=True)
class Gemm:
    """BLAS's ?gemm for an element type. by_pointer: alpha and beta are passed by address (complex types)."""

    routine: str
    scalar: ir.Type
    by_pointer: bool


GEMMS: dict[str, Gemm] = {
    "f32": Gemm("blas.sgemm", F32T, False),
    "f64": Gemm("blas.dgemm", F64T, False),
    "c64": Gemm("blas.cgemm", F32T, True),
    "c128": Gemm("blas.zgemm", F64T, True),
}


def emit_gemm(
    emit: BufferEmitter, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; operands are (array, batch, row and column strides)."""
    batch, m, n, k = shape
    kind = c[0].shape.dtype
    large = m * n * k >= SMALL and min(m, n) > 1
    if _is_thin(shape, b, c):
        _emit_thin(emit, shape, a, b, c)
        return
    if large and not kind.is_complex and _tile_products(emit, shape, a, b, c):
        return
    if kind.name in GEMMS and large and (result := _library_sees(shape, a, b, c)) is not None:
        plan = _library_plan(emit, shape, a, b, result)
        with emit.loops([batch]) if batch > 1 else nullcontext((0,)) as (i,):
            _call(emit, plan, i)
        return
    _emit_loops(emit, shape, a, b, c)


# --- tiles -----------------------------------------------------------------------------------------------------------


def _tiles_are_faster(
    processor: Processor, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand
) -> bool:
    """Whether tiles in registers beat the library for a type that it knows.

    They do where they read both operands as they are; copying the right one pays where the library, which copies both,
    has little to do.
    """
    batch, m, n, k = shape
    kind = a[0].shape.dtype
    if a[3] != 1 or batch * m * n * k < MANY_PRODUCTS:
        return False
    if b[3] == 1 and gemm_micro_kernel.reads_in_place(processor, n, k, b[2], kind.byte_size):
        return True
    tile = gemm_micro_kernel.choose_tile(processor, m, n, kind.byte_size)
    return m >= 128 and m * n * k <= FEW_PRODUCTS and n >= 0.9 * tile.columns * tile.blocks


def _tile_products(
    emit: BufferEmitter, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> bool:
    """Multiply with gemm_micro_kernel.py where that is fast and the result is stored by rows or columns; else False."""
    batch, m, n, k = shape
    if c[3] != 1:
        if c[2] != 1:
            return False
        # c^T = b^T a^T
        left, right = ((x[0], x[1], x[3], x[2]) for x in (b, a))
        return _tile_products(emit, (batch, n, m, k), left, right, (c[0], c[1], c[3], c[2]))
    if c[0].shape.dtype.name in GEMMS and not _tiles_are_faster(target_of(emit.builder).processor, shape, a, b):
        return False
    if a[3] != 1:
        copy = _packed(emit, a, batch, m, k)
        a = (copy.array, copy.batch_stride, k, 1)
    left_flat: Any = _flat(emit, a)
    right_flat, result = _flat(emit, b), cast(Any, _flat(emit, c))
    run = k if k <= LONGEST_RUN else next((r for r in range(LONGEST_RUN, LONGEST_RUN // 2, -1) if k % r == 0), k)
    with emit.loops([batch]) if batch > 1 else nullcontext((0,)) as (i,):

        def source(row: Any, place: Any) -> tuple[Any, None]:
            return row * a[2] + i * a[1] + place * run, None

        def weight(place: Any, step: Any, column: Any) -> Any:
            return right_flat.load((i * b[1] + (place * run + step) * b[2] + column * b[3],))

        def target(row: Any) -> Any:
            return row * c[2] + i * c[1]

        in_place: Any = (right_flat, i * b[1], b[2]) if b[3] == 1 else None
        kind = b[0].shape.dtype
        products = RunProducts(m, n, k // run, run, left_flat, kind, source, weight, in_place, result, target)
        gemm_micro_kernel.emit_run_products(emit, products)
    return True


# --- library ---------------------------------------------------------------------------------------------------------


class _Matrix:
    """One operand as the library sees it: array, batch stride, transposed or not, leading dimension."""

    def __init__(self, array: MemoryArray, batch_stride: int, transposed: bool, leading: int) -> None:
        self.array = array
        self.batch_stride = batch_stride
        self.transposed = transposed
        self.leading = leading


def _seen(operand: MatrixOperand, rows: int, columns: int) -> _Matrix | None:
    """A rows x columns operand, if one of its strides is 1 and the other long enough."""
    array, batch_stride, row, column = operand
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return _Matrix(array, batch_stride, False, max(row if rows > 1 else columns, columns, 1))
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return _Matrix(array, batch_stride, True, max(column if columns > 1 else rows, rows, 1))
    return None


def _library_sees(
    shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> _Matrix | None:
    """The result as the library stores it; None where it can't, or where a number is beyond its 32-bit integers."""
    _, m, n, k = shape
    numbers = (m, n, k, *(stride for operand in (a, b, c) for stride in operand[2:]))
    return _seen(c, m, n) if max(numbers) <= LARGEST else None


def _packed(emit: BufferEmitter, operand: MatrixOperand, batch: int, rows: int, columns: int) -> _Matrix:
    """A contiguous copy."""
    array, batch_stride, row, column = operand
    flat = emit.reshaped(array, Shape(array.shape.dtype, (array.shape.size,)))
    copy = emit.scratch(Shape(array.shape.dtype, (batch, rows, columns)))
    with emit.loops([batch, rows, columns]) as (i, r, c):
        copy.store((i, r, c), flat.load((i * batch_stride + r * row + c * column,)))
    return _Matrix(copy, rows * columns, False, columns)


_Plan = tuple[tuple[int, int, int], _Matrix, _Matrix, _Matrix]


def _library_plan(
    emit: BufferEmitter, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, result: _Matrix
) -> _Plan:
    batch, m, n, k = shape
    left = _seen(a, m, k) or _packed(emit, a, batch, m, k)
    right = _seen(b, k, n) or _packed(emit, b, batch, k, n)
    if result.transposed:
        # c^T = b^T a^T
        swapped = [_Matrix(x.array, x.batch_stride, not x.transposed, x.leading) for x in (right, left)]
        return (n, m, k), swapped[0], swapped[1], _Matrix(result.array, result.batch_stride, False, result.leading)
    return (m, n, k), left, right, result


def _call(emit: BufferEmitter, plan: _Plan, i: IndexExpression | int) -> None:
    (m, n, k), a, b, c = plan
    builder = emit.builder
    kind = c.array.shape.dtype
    gemm = GEMMS[kind.name]
    # void gemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
    factor_type = POINTER if gemm.by_pointer else gemm.scalar
    types = [I32] * 6 + [factor_type, POINTER, I32, POINTER, I32, factor_type, POINTER, I32]
    function = declared(builder.module, target_of(builder).import_name(gemm.routine), VOID, types)

    def number(value: int) -> ir.Constant:
        return ir.Constant(I32, value)

    def address(matrix: _Matrix) -> ir.Value:
        start = i * matrix.batch_stride + matrix.array.offset
        return emit.element_pointer(matrix.array.pointer, start, kind)

    def mode(matrix: _Matrix) -> ir.Constant:
        return number(TRANSPOSE if matrix.transposed else NO_TRANSPOSE)

    def factor(value: float) -> ir.Value:
        if not gemm.by_pointer:
            return ir.Constant(gemm.scalar, value)
        slot = emit.stack_slot(ir.ArrayType(gemm.scalar, 2))
        builder.store(ir.Constant(ir.ArrayType(gemm.scalar, 2), [value, 0.0]), slot)
        return slot

    builder.call(
        function,
        [
            number(ROW_MAJOR), mode(a), mode(b), number(m), number(n), number(k), factor(1.0),
            address(a), number(a.leading), address(b), number(b.leading), factor(0.0), address(c), number(c.leading),
        ],
    )  # fmt: skip


# --- loops -----------------------------------------------------------------------------------------------------------


def _flat(emit: BufferEmitter, operand: MatrixOperand) -> MemoryArray:
    array = operand[0]
    return emit.reshaped(array, Shape(array.shape.dtype, (array.shape.size,)))


def _emit_loops(
    emit: BufferEmitter, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """Along k where both operands run along it, along n otherwise."""
    batch, m, n, k = shape
    if n == 1 or (a[3] == 1 and b[2] == 1 and b[3] != 1):
        _inner_products(emit, shape, a, b, c)
        return
    left, right, result = _flat(emit, a), _flat(emit, b), _flat(emit, c)
    kind = result.shape.dtype
    zero = emit.constant(0, kind)
    with emit.loops([batch, m]) as (i, row):
        target = i * c[1] + row * c[2]
        with emit.loops([n]) as (column,):
            result.store((target + column * c[3],), zero)
        with emit.loops([k]) as (step,):
            x = left.load((i * a[1] + row * a[2] + step * a[3],))
            with emit.loops([n]) as (column,):
                y = right.load((i * b[1] + step * b[2] + column * b[3],))
                place = (target + column * c[3],)
                result.store(place, _multiply_add(emit, x, y, result.load(place)))


def _is_thin(shape: tuple[int, int, int, int], b: MatrixOperand, c: MatrixOperand) -> bool:
    """Whether few rows meet a long matrix stored by rows, so that all the time goes into reading it."""
    _, m, n, k = shape
    return m <= THIN and n >= 256 and k >= 16 and b[3] == 1 and c[3] == 1 and not c[0].shape.dtype.is_complex


def _emit_thin(
    emit: BufferEmitter, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    """Add several rows of the right matrix at once to all rows of the result: it is read once, in several streams."""
    batch, m, n, k = shape
    left, right, result = _flat(emit, a), _flat(emit, b), _flat(emit, c)
    together = target_of(emit.builder).processor.streams
    zero = emit.constant(0, result.shape.dtype)
    with emit.loops([batch]) as (i,):
        with emit.loops([m, n]) as (row, column):
            result.store((i * c[1] + row * c[2] + column,), zero)
        whole = k // together
        for first, groups, count in ((0, whole, together), (whole * together, k - whole * together, 1)):
            if groups == 0:
                continue
            with emit.loops([groups]) as (group,):
                steps = [first + group * count + s for s in range(count)]
                factors = [[left.load((i * a[1] + row * a[2] + step * a[3],)) for step in steps] for row in range(m)]
                with emit.loops([n]) as (column,):
                    elements = [right.load((i * b[1] + step * b[2] + column,)) for step in steps]
                    for r, own in enumerate(factors):
                        place = (i * c[1] + r * c[2] + column,)
                        total = result.load(place)
                        for x, y in zip(own, elements):
                            total = _multiply_add(emit, x, y, total)
                        result.store(place, total)


def _inner_products(
    emit: BufferEmitter, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand
) -> None:
    batch, m, n, k = shape
    left, right, result = _flat(emit, a), _flat(emit, b), _flat(emit, c)
    kind = result.shape.dtype
    together = 1 if kind.is_complex or m < ROWS_TOGETHER else ROWS_TOGETHER
    with emit.loops([batch, -(-m // together), n]) as (i, group, column):
        # rows behind the last one repeat it
        rows = [emit.index_clamp(0, group * together + r, m - 1) for r in range(together)]

        def step(index: tuple[IndexExpression, ...], totals: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
            y = right.load((i * b[1] + index[0] * b[2] + column * b[3],))
            before, emit.reassociate = emit.reassociate, True
            found = []
            for row, total in zip(rows, totals):
                x = left.load((i * a[1] + row * a[2] + index[0] * a[3],))
                found.append(emit.binary("add", total, emit.binary("multiply", x, y)))
            emit.reassociate = before
            return tuple(found)

        totals = emit.fold([k], (emit.constant(0, kind),) * together, step)  # type: ignore[arg-type]
        for row, total in zip(rows, totals):
            result.store((i * c[1] + row * c[2] + column * c[3],), total)


def _multiply_add(emit: BufferEmitter, x: ScalarValue, y: ScalarValue, z: ScalarValue) -> ScalarValue:
    if x.element_type.is_float and not x.element_type.bits < 32:
        fused = ScalarExpr(emit.builder, x.llvm).fma(ScalarExpr(emit.builder, y.llvm), ScalarExpr(emit.builder, z.llvm))
        return ScalarValue(x.element_type, fused.value)
    return emit.binary("add", emit.binary("multiply", x, y), z)
