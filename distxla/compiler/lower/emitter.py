"""`ScalarEmitter`: the LLVM side of ops/support/emit.py's `Emitter`. Scalar code at the builder's position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from distxla.compiler.lower import arithmetic, conversion
from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.constant_tables import constant_bytes
from distxla.compiler.lower.element_computations import apply_scalar
from distxla.compiler.lower.index import HIGHEST, LOWEST, IndexCode, IndexExpression
from distxla.compiler.lower.loops import Nest, SplitRequest
from distxla.compiler.lower.scalar_expression import ScalarExpr, float_constant
from distxla.compiler.lower.scalar_value import ScalarValue, is_narrow_float, memory_type, register_type
from distxla.emit.native_function import I1, I8, I32, I64, counted, field_of
from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.element_type import PRED, U32, ElementType
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.support.emit import ArrayRef
from distxla.program.abi import Context

IndexLike = IndexExpression | int
UNROLLED = 16  # iterations of a fold that are written out, so that loops around it vectorise
_SWAPPED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
_SYMBOLS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


class ScalarEmitter:
    """Arithmetic with XLA's semantics, index arithmetic, structured control flow, and inlined computations.

    builder: where code goes.  module: gives the computations that `apply` inlines; None where none is.
    context_pointer: the program's abi.Context, for `context_field`.
    """

    def __init__(
        self, builder: ir.IRBuilder, module: Module | None = None, context_pointer: ir.Value | None = None
    ) -> None:
        self.builder = builder
        self.module = module
        self.context_pointer = context_pointer
        self.indices = IndexCode(builder)
        self.reassociate = False
        self.nests: list[Nest] = []

    # --- constants and indices

    def expr(self, value: ir.Value) -> ScalarExpr:
        return ScalarExpr(self.builder, value)

    def constant(self, value: Any, element_type: ElementType) -> ScalarValue:
        kind = register_type(element_type)
        if element_type.is_complex:
            number = complex(value)
            return ScalarValue(element_type, float_constant(kind, number.real), float_constant(kind, number.imag))
        if element_type.is_float:
            if is_narrow_float(element_type):
                bits = (
                    int(np.asarray(value, dtype=element_type.dtype).view(element_type.file_dtype).item())
                    if (element_type.name != "f16")
                    else None
                )
                # through NumPy: a NaN keeps the sign that its code has, which `float` of an ml_dtypes value may drop
                rounded = float(np.asarray(value, dtype=element_type.dtype).astype(np.float32))
                packed = ir.Constant(memory_type(element_type), bits) if bits is not None else None
                return ScalarValue(element_type, float_constant(kind, rounded), packed=packed)
            return ScalarValue(element_type, float_constant(kind, value))
        if element_type is PRED:
            return ScalarValue(PRED, ir.Constant(I1, int(bool(value))))
        return ScalarValue(element_type, ir.Constant(kind, int(value) & ((1 << element_type.bits) - 1)))

    def index(self, value: int) -> IndexExpression:
        return self.indices.constant(value)

    def wrap_index(self, value: ir.Value, low: int = LOWEST, high: int = HIGHEST) -> IndexExpression:
        """An i64 of the caller's own code as an index; it is known to be in [low, high]."""
        return self.indices.of_value(value, low, high)

    def i64(self, index: IndexLike) -> ir.Value:
        """The index as an LLVM i64."""
        return self.indices.value(index)

    def index_of(self, value: ScalarValue) -> IndexExpression:
        kind = value.element_type
        if isinstance(value.llvm, ir.Constant) and isinstance(value.llvm.constant, int):
            return self.index(min(conversion.integer_of_bits(value.llvm.constant, kind), HIGHEST))
        wide = ScalarExpr(self.builder, value.llvm)
        if kind.is_signed:
            return self.wrap_index(wide.sext(64).value, -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
        if kind.name == "u64":
            return self.wrap_index(wide.call("umin", HIGHEST).value, 0)
        return self.wrap_index(wide.zext(64).value, 0, 2 ** (1 if kind is PRED else kind.bits) - 1)

    def value_of(self, index: IndexLike, element_type: ElementType) -> ScalarValue:
        number = index if isinstance(index, int) else index.constant
        if number is not None:
            return self.constant(number, element_type)
        assert isinstance(index, IndexExpression)
        return conversion.from_index(self, index, element_type)

    def index_compare(self, direction: str, a: IndexLike, b: IndexLike) -> ScalarValue:
        left, right = self._index(a), self._index(b)
        known = _decided(direction, left - right)
        if known is not None:
            return ScalarValue(PRED, ir.Constant(I1, int(known)))
        self._consider_split(direction, left - right)
        symbol = _SYMBOLS[direction]
        return ScalarValue(PRED, self.builder.icmp_signed(symbol, self.i64(left), self.i64(right)))

    def index_select(self, predicate: ScalarValue, a: IndexLike, b: IndexLike) -> IndexExpression:
        known = _known(predicate)
        if known is not None:
            return self._index(a if known else b)
        left, right = self._index(a), self._index(b)
        chosen = self.builder.select(predicate.llvm, self.i64(left), self.i64(right))
        return self.wrap_index(chosen, min(left.low, right.low), max(left.high, right.high))

    def index_clamp(self, low: IndexLike, value: IndexLike, high: IndexLike) -> IndexExpression:
        least, inner, most = self._index(low), self._index(value), self._index(high)
        if inner.low < least.high:
            inner = self._bound("smax", inner, least)
        if inner.high > most.low:
            inner = self._bound("smin", inner, most)
        return inner

    def _bound(self, name: str, value: IndexExpression, limit: IndexExpression) -> IndexExpression:
        chosen = self.expr(self.i64(value)).call(name, self.expr(self.i64(limit))).value
        pick = max if name == "smax" else min
        return self.wrap_index(chosen, pick(value.low, limit.low), pick(value.high, limit.high))

    def _index(self, index: IndexLike) -> IndexExpression:
        return index if isinstance(index, IndexExpression) else self.index(int(index))

    def _consider_split(self, direction: str, difference: IndexExpression) -> None:
        """Ask for a split of the loops where one loop index alone decides `difference <direction> 0`."""
        if len(difference.terms) != 1 or direction in ("EQ", "NE"):
            return
        atom, coefficient = difference.terms[0]
        if atom.nest is None or not atom.nest.splits or abs(coefficient) != 1:
            return
        if coefficient < 0:
            direction = _SWAPPED[direction]
        # index `direction` zero
        zero = -difference.offset * coefficient
        boundary = zero if direction in ("LT", "GE") else zero + 1
        first, end = atom.nest.ranges[atom.dimension]
        if first < boundary < end:
            raise SplitRequest(atom.nest, atom.dimension, boundary)

    # --- memory

    def element_pointer(self, pointer: ir.Value, index: IndexLike, element_type: ElementType) -> ir.Value:
        """Address of element `index` (linear) of the array at `pointer`."""
        if isinstance(index, IndexExpression):
            for nest in self.nests:
                nest.note_access(index)
        return self.builder.gep(pointer, [self.i64(index)], inbounds=True, source_etype=memory_type(element_type))

    def load(self, pointer: ir.Value, index: IndexLike, element_type: ElementType) -> ScalarValue:
        """Element `index` (linear, in elements) of the array at `pointer`."""
        address = self.element_pointer(pointer, index, element_type)
        kind = memory_type(element_type)
        if element_type.is_complex:
            zero = ir.Constant(I32, 0)
            imag = self.builder.gep(address, [zero, ir.Constant(I32, 1)], inbounds=True, source_etype=kind)
            part = register_type(element_type)
            return ScalarValue(element_type, self.builder.load(address, typ=part), self.builder.load(imag, typ=part))
        return conversion.unpack(self.builder, self.builder.load(address, typ=kind), element_type)

    def store(self, pointer: ir.Value, index: IndexLike, value: ScalarValue) -> None:
        """Store into element `index` (linear, in elements) of the array at `pointer`."""
        kind = value.element_type
        address = self.element_pointer(pointer, index, kind)
        if kind.is_complex:
            zero = ir.Constant(I32, 0)
            imag = self.builder.gep(address, [zero, ir.Constant(I32, 1)], inbounds=True, source_etype=memory_type(kind))
            self.builder.store(value.llvm, address)
            self.builder.store(value.imag, imag)
            return
        self.builder.store(conversion.pack(self.builder, value), address)

    def context_field(self, name: str) -> IndexExpression:
        """An integer field of the program's abi.Context: "replica", "partition", "device", "device_count", "arena"."""
        if self.context_pointer is None:
            raise InternalError(f"no context to read {name} from")
        kind, offset = field_of(Context, name)
        address = self.builder.gep(self.context_pointer, [I64(offset)], inbounds=True, source_etype=I8)
        loaded = self.builder.load(address, typ=kind)
        wide = loaded if kind == I64 else self.builder.zext(loaded, I64)
        return self.wrap_index(wide, 0, 2 ** min(63, kind.width) - 1)

    def replica_id(self) -> ScalarValue:
        """U32: the number of the replica that runs this code."""
        return self.value_of(self.context_field("replica"), U32)

    def partition_id(self) -> ScalarValue:
        """U32: the number of the partition that runs this code."""
        return self.value_of(self.context_field("partition"), U32)

    def literal(self, literal: Literal) -> MemoryArray:
        """A constant array; equal ones share their bytes."""
        return MemoryArray(self, constant_bytes(self.builder.module, literal), literal.shape)

    # --- arithmetic

    unary = arithmetic.unary
    binary = arithmetic.binary
    compare = arithmetic.compare

    def multiply_add(self, a: ScalarValue, b: ScalarValue, c: ScalarValue) -> ScalarValue:
        return ScalarValue(a.element_type, self.expr(a.llvm).fma(self.expr(b.llvm), self.expr(c.llvm)).value)

    def select(self, predicate: ScalarValue, on_true: ScalarValue, on_false: ScalarValue) -> ScalarValue:
        known = _known(predicate)
        if known is not None:
            return on_true if known else on_false
        choose = self.builder.select
        packed = None
        if on_true.packed is not None and on_false.packed is not None:
            packed = choose(predicate.llvm, on_true.packed, on_false.packed)
        imag = None if on_true.imag is None else choose(predicate.llvm, on_true.imag, on_false.imag)
        real = choose(predicate.llvm, on_true.llvm, on_false.llvm)
        return ScalarValue(on_true.element_type, real, imag, packed)

    def convert(self, a: ScalarValue, element_type: ElementType) -> ScalarValue:
        return conversion.convert(self.builder, a, element_type)

    def bitcast(self, a: ScalarValue, element_type: ElementType) -> ScalarValue:
        return conversion.bitcast(self.builder, a, element_type)

    def reduce_precision(self, a: ScalarValue, exponent_bits: int, mantissa_bits: int) -> ScalarValue:
        return conversion.reduce_precision(self.builder, a, exponent_bits, mantissa_bits)

    # --- structure

    def branch(
        self, predicate: ScalarValue, on_true: Callable[[], ScalarValue], on_false: Callable[[], ScalarValue]
    ) -> ScalarValue:
        known = _known(predicate)
        if known is not None:
            return on_true() if known else on_false()
        builder = self.builder
        blocks = [builder.append_basic_block(name) for name in ("then", "else", "join")]
        builder.cbranch(predicate.llvm, blocks[0], blocks[1])
        ends: list[tuple[ScalarValue, ir.Block]] = []
        for block, side in zip(blocks, (on_true, on_false)):
            builder.position_at_end(block)
            with self.region():
                value = side()
            ends.append((value, builder.block))
            builder.branch(blocks[2])
        builder.position_at_end(blocks[2])
        return self._join(ends)

    def _join(self, ends: list[tuple[ScalarValue, ir.Block]]) -> ScalarValue:
        sample = ends[0][0]

        def phi(values: list[ir.Value]) -> ir.Value:
            joined = self.builder.phi(values[0].type)
            for value, (_, block) in zip(values, ends):
                joined.add_incoming(value, block)
            return joined

        real = phi([v.llvm for v, _ in ends])
        imag = phi([v.imag for v, _ in ends]) if sample.imag is not None else None
        packed = phi([v.packed for v, _ in ends]) if all(v.packed is not None for v, _ in ends) else None
        return ScalarValue(sample.element_type, real, imag, packed)

    @contextmanager
    def region(self) -> Iterator[None]:
        """Code in here does not dominate the code after it: index values are not shared with it."""
        self.indices.enter()
        try:
            yield
        finally:
            self.indices.leave()

    @contextmanager
    def when(self, predicate: ScalarValue) -> Iterator[None]:
        """The with-body runs only where the predicate holds."""
        known = _known(predicate)
        if known:
            yield
            return
        builder = self.builder
        then, after = builder.append_basic_block("when"), builder.append_basic_block("after")
        builder.cbranch(predicate.llvm, then, after)
        builder.position_at_end(then)
        with self.region():
            yield
        builder.branch(after)
        builder.position_at_end(after)

    def nest(
        self,
        dimension_sizes: Sequence[int],
        *,
        ranges: Sequence[tuple[int, int]] | None = None,
        parallel: bool = False,
        splits: bool = False,
    ) -> Nest:
        """Loops at this place, not yet opened; see loops.Nest."""
        depth = len(self.nests)
        return Nest(self.indices, dimension_sizes, ranges=ranges, parallel=parallel, splits=splits, depth=depth)

    @contextmanager
    def loops(
        self,
        dimension_sizes: Sequence[int],
        *,
        ranges: Sequence[tuple[int, int]] | None = None,
        parallel: bool = False,
        independent: bool = False,
        splits: bool = False,
    ) -> Iterator[tuple[IndexExpression, ...]]:
        """Open a loop nest, last dimension fastest; the with-body is the innermost body. See loops.Nest.

        independent: means nothing here, where one thread runs all of them; see ops/support/emit.py.
        """
        nest = self.nest(dimension_sizes, ranges=ranges, parallel=parallel, splits=splits)
        indices = nest.open()
        self.nests.append(nest)
        yield tuple(indices)
        self.nests.pop()
        nest.close()

    @contextmanager
    def counted(self, end: ir.Value | int, name: str = "index") -> Iterator[IndexExpression]:
        """A loop over [0, end) with an end known at run time; it may be 0."""
        limit = ir.Constant(I64, end) if isinstance(end, int) else end
        names = "counted", "counted.out", name
        with counted(self.builder, I64(0), limit, names=names) as index, self.region():
            yield self.wrap_index(index, 0, HIGHEST)

    def fold(
        self,
        dimension_sizes: Sequence[int],
        initial: tuple[ScalarValue, ...],
        body: Callable[[Sequence[IndexLike], tuple[ScalarValue, ...]], tuple[ScalarValue, ...]],
    ) -> tuple[ScalarValue, ...]:
        total = prod(dimension_sizes)
        if total <= UNROLLED:
            values = initial
            for constants in product(*(range(e) for e in dimension_sizes)):
                values = body(list(constants), values)
            return values

        def at(linear: IndexExpression, carried: tuple[ScalarValue, ...]) -> tuple[ScalarValue, ...]:
            position, index = linear, list[IndexLike]()
            for dimension_size in reversed(dimension_sizes):
                index.append(position % dimension_size)
                position = position // dimension_size
            return body(index[::-1], carried)

        return self._folded(ir.Constant(I64, total), total, initial, at)

    def steps(
        self,
        count: IndexLike,
        most: int,
        initial: tuple[ScalarValue, ...],
        body: Callable[[IndexLike, tuple[ScalarValue, ...]], tuple[ScalarValue, ...]],
    ) -> tuple[ScalarValue, ...]:
        if most <= 0:
            return initial
        builder, limit = self.builder, self.i64(count)
        before = builder.block
        with builder.if_then(builder.icmp_signed(">", limit, ir.Constant(I64, 0))), self.region():
            results, done = self._folded(limit, most, initial, body), builder.block
        merged = []
        for value, last in zip(initial, results):
            registers = []
            for first, second in zip(value.registers(), last.registers()):
                phi = builder.phi(first.type)
                phi.add_incoming(first, before)
                phi.add_incoming(second, done)
                registers.append(phi)
            merged.append(ScalarValue(value.element_type, *registers))
        return tuple(merged)

    def _folded(
        self,
        count: ir.Value,
        most: int,
        initial: tuple[ScalarValue, ...],
        body: Callable[[IndexExpression, tuple[ScalarValue, ...]], tuple[ScalarValue, ...]],
    ) -> tuple[ScalarValue, ...]:
        """`count` steps, 1 to `most`."""
        builder = self.builder
        before, header = builder.block, builder.append_basic_block("fold")
        builder.branch(header)
        builder.position_at_end(header)
        linear = builder.phi(I64, "linear")
        linear.add_incoming(ir.Constant(I64, 0), before)
        carried: list[ScalarValue] = []
        phis: list[tuple[ir.instructions.PhiInstr, ...]] = []
        for value in initial:
            registers = tuple(builder.phi(r.type) for r in value.registers())
            for phi, register in zip(registers, value.registers()):
                phi.add_incoming(register, before)
            phis.append(registers)
            carried.append(ScalarValue(value.element_type, registers[0], registers[1] if len(registers) > 1 else None))
        with self.region():
            results = body(self.wrap_index(linear, 0, most - 1), tuple(carried))
        following = builder.add(linear, ir.Constant(I64, 1), flags=("nuw", "nsw"))
        linear.add_incoming(following, builder.block)
        for registers, value in zip(phis, results):
            for phi, register in zip(registers, value.registers()):
                phi.add_incoming(register, builder.block)
        out = builder.append_basic_block("folded")
        builder.cbranch(builder.icmp_signed("<", following, count), header, out)
        builder.position_at_end(out)
        return tuple(results)

    def apply(self, computation: str, *arguments: ScalarValue, result: str | None = None) -> tuple[ScalarValue, ...]:
        return apply_scalar(self, self.computation(computation), arguments, result)

    def computation(self, name: str) -> Computation:
        """A computation of the module."""
        if self.module is None:
            raise InternalError(f"no module to take {name} from")
        return self.module[name]

    def scalar_array(self, value: ScalarValue) -> ArrayRef:
        """A rank 0 operand that is this value."""
        return _Scalar(value)  # type: ignore[return-value]


class _Scalar:
    def __init__(self, value: ScalarValue) -> None:
        self.shape = Shape(value.element_type)
        self._value = value

    def load(self, index: Sequence[IndexLike]) -> ScalarValue:
        return self._value


def _known(predicate: ScalarValue) -> bool | None:
    value = predicate.llvm
    return bool(value.constant) if isinstance(value, ir.Constant) and isinstance(value.constant, int) else None


def _decided(direction: str, difference: IndexExpression) -> bool | None:
    """Whether `difference <direction> 0` always or never holds."""
    low, high = difference.low, difference.high
    always = {
        "EQ": low == high == 0,
        "NE": low > 0 or high < 0,
        "LT": high < 0,
        "LE": high <= 0,
        "GT": low > 0,
        "GE": low >= 0,
    }
    never = {"EQ": always["NE"], "NE": always["EQ"], "LT": low >= 0, "LE": low > 0, "GT": high <= 0, "GE": high < 0}
    if always[direction]:
        return True
    return False if never[direction] else None
