"""`BufferEmitter`: memory and calls, for the parts of ops/support/emit.py's `KernelEmitter`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from distxla.compiler.lower import conversion
from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.constant_tables import byte_array
from distxla.compiler.lower.emitter import ScalarEmitter
from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_value import ScalarValue, is_narrow_float, memory_type
from distxla.emit.native_function import I8, I32, I64, POINTER, VOID, declared, emit_copy
from distxla.errors import InternalError
from distxla.ir.element_type import PRED, ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Argument, Imported
from distxla.program.abi import ALIGNMENT
from distxla.targets.code import target_of

MatrixOperand = tuple[MemoryArray, int, int, int]


class BufferEmitter(ScalarEmitter):
    """Arrays, scratch memory and calls of native functions in one kernel's function."""

    def __init__(
        self, builder: ir.IRBuilder, module: Module | None, context_pointer: ir.Value | None, scratch: ir.Value | None
    ) -> None:
        super().__init__(builder, module, context_pointer)
        self._scratch = scratch
        self.scratch_bytes = 0
        self.entry: ir.Block = builder.block
        self._instruction: Instruction | None = None
        self.operand_shapes: tuple[Shape, ...] = ()

    @property
    def instruction(self) -> Instruction:
        """The instruction that this kernel computes."""
        if self._instruction is None:
            raise InternalError("this function belongs to no instruction")
        return self._instruction

    def for_instruction(self, instruction: Instruction, operand_shapes: Sequence[Shape]) -> None:
        """Set the instruction that this kernel computes."""
        self._instruction, self.operand_shapes = instruction, tuple(operand_shapes)

    def stack_slot(self, kind: ir.Type) -> ir.Value:
        """Room for one scalar in the function's frame."""
        slot = ir.AllocaInstr(self.entry, kind, None, name="slot")
        self.entry.instructions.insert(0, slot)
        return slot

    def scratch(self, shape: Shape, *, scattered: bool = False) -> MemoryArray:
        """Uninitialised memory for the rest of this kernel. scattered: see ops/support/emit.py."""
        if self._scratch is None:
            raise InternalError("this function has no scratch memory")
        offset = self.scratch_bytes
        self.scratch_bytes += (shape.byte_size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        # in the entry block, so that it dominates every use
        place = ir.instructions.GEPInstr(
            self.entry,
            self._scratch,
            [ir.Constant(I64, offset)],
            True,
            "scattered" if scattered else "scratch",
            source_etype=I8,
        )
        self.entry.instructions.insert(0, place)
        return MemoryArray(self, place, shape)

    def static_state(self, name: str, initial: Literal) -> MemoryArray:
        """Memory that lives from run to run: a variable in the image's writable part."""
        assert initial.array is not None
        data = initial.array.tobytes()
        variable = self.builder.module.globals.get(name)
        if variable is None:
            value = byte_array(data)
            variable = ir.GlobalVariable(self.builder.module, value.type, name)
            variable.linkage = "internal"
            variable.align = ALIGNMENT
            variable.initializer = value
        # llvmlite gives a variable a typed pointer, through which it would store bytes only
        pointer = ir.instructions.CastInstr(self.builder.block, "bitcast", variable, POINTER, name)
        self.builder._insert(pointer)
        return MemoryArray(self, pointer, initial.shape)

    @contextmanager
    def rounds(self, count: int) -> Iterator[IndexExpression]:
        """Run the with-body `count` times, one after the other; gives the number of the time."""
        with self.loops((count,)) as (number,):
            yield number

    def fill(self, buffer: MemoryArray, value: ScalarValue) -> None:
        """Every element gets `value`."""
        with self.loops(buffer.shape.dims, parallel=True) as index:
            buffer.store(index, value)

    def copy(self, target: MemoryArray, source: MemoryArray) -> None:
        """A memcpy of `target`'s bytes; nothing where both are the same memory."""
        size = target.shape.byte_size
        if not size:
            return
        to, origin = target.address(), source.address()
        different = self.builder.icmp_unsigned("!=", to, origin)
        with self.builder.if_then(different):
            if target.watch is not None:
                target.watch.copy(to, origin, size)
            else:
                emit_copy(self.builder, to, origin, I64(size))

    def reshaped(self, buffer: MemoryArray, shape: Shape, offset: IndexExpression | int = 0) -> MemoryArray:
        """The same memory from element `offset` on, seen with another shape."""
        start: Any = buffer.offset + offset
        if shape.dtype.byte_size != buffer.shape.dtype.byte_size and not (isinstance(start, int) and start == 0):
            return MemoryArray(self, MemoryArray(self, buffer.pointer, buffer.shape, start).address(), shape)
        return MemoryArray(self, buffer.pointer, shape, start)

    def call(self, symbol: str, result: ElementType | None, *arguments: Argument) -> ScalarValue | None:
        """Call an imported C function; see ops/support/emit.py."""
        passed = [self._argument(symbol, argument) for argument in arguments]
        returned = VOID if result is None else self._by_value(symbol, result)
        name = target_of(self.builder).import_name(symbol)
        function = declared(self.builder.module, name, returned, [value.type for value in passed])
        function.attributes.add("nounwind")
        value = self.builder.call(function, passed)
        if result is None:
            return None
        return conversion.unpack(self.builder, value, result)

    def local(self, value: ScalarValue) -> MemoryArray:
        """An array of rank 0 in the function's frame."""
        kind = value.element_type
        array = MemoryArray(self, self.stack_slot(memory_type(kind)), Shape(kind))
        array.store((), value)
        return array

    def _argument(self, symbol: str, argument: Any) -> ir.Value:
        """The value passed for an argument of `call`."""
        if argument is None:
            return ir.Constant(POINTER, None)
        if isinstance(argument, MemoryArray):
            return argument.address()
        if isinstance(argument, Imported):
            # declared as some function: only its address is asked for
            return declared(self.builder.module, argument.symbol, VOID, [])
        if isinstance(argument, (int, IndexExpression)):
            return self.i64(argument)
        if isinstance(argument, ScalarValue):
            kind = argument.element_type
            self._by_value(symbol, kind)
            if (not kind.is_integer and kind is not PRED) or kind.bits >= 32:
                return argument.llvm
            # C's callers extend types narrower than an int
            return (self.builder.sext if kind.is_signed else self.builder.zext)(argument.llvm, I32)
        return self._table([array.address() for array in argument])

    def _by_value(self, symbol: str, kind: ElementType) -> ir.Type:
        """The type in which a C function takes or returns such a scalar."""
        if kind.is_complex or is_narrow_float(kind):
            raise InternalError(f"{symbol}: C has no way to pass {kind} by value here")
        return memory_type(kind)

    def _table(self, pointers: Sequence[ir.Value]) -> ir.Value:
        """The address of a table of pointers in the frame."""
        table = ir.AllocaInstr(self.entry, POINTER, ir.Constant(I32, max(1, len(pointers))), name="table")
        self.entry.instructions.insert(0, table)
        for k, pointer in enumerate(pointers):
            self.builder.store(pointer, self.builder.gep(table, [ir.Constant(I64, k)], source_etype=POINTER))
        return table

    def call_native(
        self,
        symbol: str,
        result: Shape,
        results: Sequence[MemoryArray],
        operand_shapes: Sequence[Shape],
        operands: Sequence[MemoryArray],
    ) -> None:
        """Call the imported `void symbol(void* out, void** in)`; see ops/support/emit.py."""
        function = declared(self.builder.module, symbol, VOID, [POINTER, POINTER])
        function.attributes.add("nounwind")
        out, read = iter([r.address() for r in results]), iter([o.address() for o in operands])
        arguments = Shape.tuple(tuple(operand_shapes))
        self.builder.call(function, [self._pointer_tree(result, out), self._pointer_tree(arguments, read)])

    def _pointer_tree(self, shape: Shape, leaves: Iterator[ir.Value]) -> ir.Value:
        """The leaf's address; of a tuple that of a table of its elements' trees, on the stack."""
        if shape.elements is None:
            return next(leaves) if shape.is_array else ir.Constant(POINTER, None)
        return self._table([self._pointer_tree(element, leaves) for element in shape.elements])
