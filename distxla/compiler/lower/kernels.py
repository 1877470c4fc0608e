"""One LLVM function for one instruction of a schedule: a fusion, a bare element op or reduction, or a kernel op.

The contract: `void name(ptr context, ptr operand leaves …, ptr result leaves …, ptr scratch)`. All arrays are
row-major and
64-byte aligned; results overlap nothing else, but where the op declares an in-place operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from distxla.compiler.abi import ALIGNMENT
from distxla.compiler.lower import contraction, conversion, gemm_micro_kernel
from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.element_computations import element_array, element_arrays
from distxla.compiler.lower.emitter import ScalarEmitter
from distxla.compiler.lower.fusion import emit_elements
from distxla.compiler.lower.index import I64, IndexExpression
from distxla.compiler.lower.reduction import Reduction, emit_reductions
from distxla.compiler.lower.row_fusions import RowView, emit_rows
from distxla.compiler.lower.scalar_expression import I1, I8, I32, intrinsic
from distxla.compiler.lower.scalar_value import ScalarValue, is_narrow_float, memory_type
from distxla.errors import CompileError, DistxlaError, InternalError
from distxla.ir.computation import Computation
from distxla.ir.element_type import PRED, ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.emit import Argument, ArrayRef, Imported, RunProducts
from distxla.ops.op import Lowering

POINTER = ir.PointerType()
MatrixOperand = tuple[MemoryArray, int, int, int]


@dataclass(frozen=True)
class KernelFunction:
    """scratch_bytes: what the caller must provide behind the last argument; 64-byte aligned, uninitialised."""

    function: ir.Function
    scratch_bytes: int


class BufferEmitter(ScalarEmitter):
    """The LLVM side of ops/emit.py's `KernelEmitter`."""

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
        """The instruction whose kernel this is."""
        if self._instruction is None:
            raise InternalError("this function belongs to no instruction")
        return self._instruction

    def for_instruction(self, instruction: Instruction, operand_shapes: Sequence[Shape]) -> None:
        """Say whose kernel this is."""
        self._instruction, self.operand_shapes = instruction, tuple(operand_shapes)

    def stack_slot(self, kind: ir.Type) -> ir.Value:
        """Room for one scalar in the function's frame."""
        slot = ir.AllocaInstr(self.entry, kind, None, name="slot")
        self.entry.instructions.insert(0, slot)
        return slot

    def scratch(self, shape: Shape) -> MemoryArray:
        """Uninitialised memory for the rest of this kernel."""
        if self._scratch is None:
            raise InternalError("this function has no scratch memory")
        offset = self.scratch_bytes
        self.scratch_bytes += (shape.byte_size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        # in the entry block, so that it dominates every use
        place = ir.instructions.GEPInstr(
            self.entry, self._scratch, [ir.Constant(I64, offset)], True, "scratch", source_etype=I8
        )
        self.entry.instructions.insert(0, place)
        return MemoryArray(self, place, shape)

    def persistent(self, name: str, initial: Literal) -> MemoryArray:
        """Memory that lives from run to run: a variable in the image's writable part."""
        assert initial.array is not None
        data = initial.array.tobytes()
        variable = self.builder.module.globals.get(name)
        if variable is None:
            kind = ir.ArrayType(I8, len(data))
            variable = ir.GlobalVariable(self.builder.module, kind, name)
            variable.linkage = "internal"
            variable.align = ALIGNMENT
            variable.initializer = ir.Constant(kind, bytearray(data))
        # llvmlite gives a variable a typed pointer, through which it would store bytes only
        pointer = ir.instructions.CastInstr(self.builder.block, "bitcast", variable, POINTER, name)
        self.builder._insert(pointer)
        return MemoryArray(self, pointer, initial.shape)

    def fill(self, buffer: MemoryArray, value: ScalarValue) -> None:
        """Every element gets `value`."""
        with self.loops(buffer.shape.dims) as index:
            buffer.store(index, value)

    def copy(self, target: MemoryArray, source: MemoryArray) -> None:
        """A memcpy of `target`'s bytes; nothing where both are the same memory."""
        size = target.shape.byte_size
        if not size:
            return
        to, origin = target.address(), source.address()
        function = intrinsic(self.builder.module, "llvm.memcpy.p0.p0.i64", ir.VoidType(), [POINTER, POINTER, I64, I1])
        different = self.builder.icmp_unsigned("!=", to, origin)
        with self.builder.if_then(different):
            self.builder.call(function, [to, origin, ir.Constant(I64, size), ir.Constant(I1, 0)])

    def reshaped(self, buffer: MemoryArray, shape: Shape, offset: IndexExpression | int = 0) -> MemoryArray:
        """The same memory from element `offset` on, seen with another shape."""
        start: Any = buffer.offset + offset
        if shape.dtype.byte_size != buffer.shape.dtype.byte_size and not (isinstance(start, int) and start == 0):
            return MemoryArray(self, MemoryArray(self, buffer.pointer, buffer.shape, start).address(), shape)
        return MemoryArray(self, buffer.pointer, shape, start)

    def call(self, symbol: str, result: ElementType | None, *arguments: Argument) -> ScalarValue | None:
        """Call an imported C function; see ops/emit.py."""
        passed = [self._argument(symbol, argument) for argument in arguments]
        returned = ir.VoidType() if result is None else self._by_value(symbol, result)
        function = intrinsic(self.builder.module, symbol, returned, [value.type for value in passed])
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
        """What is passed for an argument of `call`."""
        if argument is None:
            return ir.Constant(POINTER, None)
        if isinstance(argument, MemoryArray):
            return argument.address()
        if isinstance(argument, Imported):
            # declared as some function: only its address is asked for
            return intrinsic(self.builder.module, argument.symbol, ir.VoidType(), [])
        if isinstance(argument, (int, IndexExpression)):
            return self.i64(argument)
        if isinstance(argument, ScalarValue):
            kind = argument.element_type
            self._by_value(symbol, kind)
            if (not kind.is_integer and kind is not PRED) or kind.bits >= 32:
                return argument.llvm
            # C's callers extend what is narrower than an int
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
        """Call the imported `void symbol(void* out, void** in)`; see ops/emit.py."""
        function = intrinsic(self.builder.module, symbol, ir.VoidType(), [POINTER, POINTER])
        function.attributes.add("nounwind")
        out, read = iter([r.address() for r in results]), iter([o.address() for o in operands])
        arguments = Shape.tuple(tuple(operand_shapes))
        self.builder.call(function, [self._pointer_tree(result, out), self._pointer_tree(arguments, read)])

    def _pointer_tree(self, shape: Shape, leaves: Iterator[ir.Value]) -> ir.Value:
        """The leaf's address; of a tuple that of a table of its elements' trees, on the stack."""
        if shape.elements is None:
            return next(leaves) if shape.is_array else ir.Constant(POINTER, None)
        return self._table([self._pointer_tree(element, leaves) for element in shape.elements])

    def gemm(self, shape: tuple[int, int, int, int], a: MatrixOperand, b: MatrixOperand, c: MatrixOperand) -> None:
        """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; see ops/emit.py."""
        contraction.emit_gemm(self, shape, a, b, c)

    def run_products(self, products: RunProducts) -> None:
        """Sums of products of runs with a matrix; see ops/emit.py."""
        gemm_micro_kernel.emit_run_products(self, products)


def kernel_type(operands: Sequence[Shape], results: Sequence[Shape]) -> ir.FunctionType:
    """The LLVM type of a kernel with these operand and result leaves."""
    return ir.FunctionType(ir.VoidType(), [POINTER] * (len(operands) + len(results) + 2))


def emit_kernel_function(
    llvm_module: ir.Module, module: Module, computation: Computation, instruction: Instruction, name: str
) -> KernelFunction:
    """Add the function that computes `instruction` of `computation` to `llvm_module`.

    Tokens have no pointer: only leaves with data count as leaves here.  Raises CompileError naming the instruction
    where
    its op can't be emitted; errors of the user's module pass through.
    """
    operands = [computation[o].shape for o in instruction.operands]
    operand_leaves = [leaf for shape in operands for leaf in shape.leaves() if leaf.is_array]
    result_leaves = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
    function = ir.Function(llvm_module, kernel_type(operand_leaves, result_leaves), name)
    function.attributes.add("nounwind")
    count = len(operand_leaves)
    shared: set[int] = set()
    if (in_place := instruction.op.in_place_operand) is not None:
        # A result may be the memory of its operand, and of no other.
        first = sum(leaf.is_array for shape in operands[:in_place] for leaf in shape.leaves())
        shared = {*range(first, first + len(result_leaves)), *range(count, count + len(result_leaves))}
    for position, (argument, leaf) in enumerate(zip(function.args[1:-1], [*operand_leaves, *result_leaves])):
        argument.attributes.align = ALIGNMENT
        argument.attributes.dereferenceable = max(1, leaf.byte_size)
        if position not in shared:
            argument.add_attribute("noalias")
    function.args[-1].attributes.align = ALIGNMENT
    function.args[-1].add_attribute("noalias")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emit = BufferEmitter(builder, module, function.args[0], function.args[-1])
    emit.for_instruction(instruction, operands)
    arrays = [MemoryArray(emit, p, s) for p, s in zip(function.args[1 : 1 + count], operand_leaves)]
    results = [MemoryArray(emit, p, s) for p, s in zip(function.args[1 + count : -1], result_leaves)]
    # code behind the entry block's end, so that scratch addresses and slots may be put into it at any time
    start = builder.append_basic_block("start")
    emit.entry = builder.block
    builder.branch(start)
    builder.position_at_end(start)
    try:
        _emit_instruction(emit, module, instruction, operands, arrays, results)
    except DistxlaError as error:
        if error.location is None and not isinstance(error, InternalError):
            error.location = module.locate(instruction)
            error.args = (error.message, error.location)
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise CompileError(
            f"{instruction.name}: lowering {instruction.opcode} failed: {type(error).__name__}: {error}",
            module.locate(instruction),
        ) from error
    builder.ret_void()
    return KernelFunction(function, emit.scratch_bytes)


def _emit_instruction(
    emit: BufferEmitter,
    module: Module,
    instruction: Instruction,
    operands: Sequence[Shape],
    arrays: Sequence[MemoryArray],
    results: Sequence[MemoryArray],
) -> None:
    op = instruction.op
    if op.lowering is Lowering.KERNEL:
        op.emit_kernel(emit, tuple(results), *arrays)  # type: ignore[arg-type]
    elif op.lowering is Lowering.ELEMENT:
        sources: list[ArrayRef] = list(arrays)  # type: ignore[arg-type]
        emit_elements(emit, [element_array(emit, instruction, sources)], results)
    elif op.lowering is Lowering.REDUCTION:
        _emit_reduction_roots(emit, [(instruction, list(arrays))], results)
    elif op.lowering is Lowering.CALL:
        (called,) = op.called_computations
        _emit_fusion(emit, module, module[called], arrays, results)
    else:
        raise InternalError(f"{instruction.name}: {instruction.opcode} is no kernel ({op.lowering.value})")


def _emit_fusion(
    emit: BufferEmitter, module: Module, fused: Computation, arrays: Sequence[Any], results: Sequence[MemoryArray]
) -> None:
    if not any(i.op.lowering is Lowering.CALL for i in fused):
        _emit_loops(emit, fused, arrays, results)
        return

    def stage(fused: Computation, arrays: Sequence[Any], results: Sequence[Any], row: RowView) -> None:
        _emit_loops(emit, fused, arrays, results, row)

    emit_rows(emit, module, fused, arrays, results, stage)


def _emit_loops(
    emit: BufferEmitter,
    fused: Computation,
    arrays: Sequence[Any],
    results: Sequence[Any],
    row: RowView | None = None,
) -> None:
    """The loops of a fused computation of ELEMENT instructions with such roots or REDUCTIONs; row: for one row."""
    elements = element_arrays(emit, fused, arrays)
    root = fused.root_instruction
    roots = [fused[o] for o in root.operands] if root.shape.is_tuple and root.op.lowering is Lowering.ALIAS else [root]
    if all(r.op.lowering is Lowering.REDUCTION for r in roots):
        _emit_reduction_roots(emit, [(r, [elements[o] for o in r.operands]) for r in roots], results, row)
        return
    sources = [elements[r.name] for r in roots]
    if row is not None:
        sources, results = [row.of(s) for s in sources], [row.of(r) for r in results]
    extents = {r.shape.dims for r in results}
    if len(extents) == 1:
        emit_elements(emit, sources, results)
        return
    for source, result in zip(sources, results):
        emit_elements(emit, [source], [result])


def _emit_reduction_roots(
    emit: BufferEmitter,
    roots: Sequence[tuple[Instruction, Sequence[Any]]],
    results: Sequence[Any],
    row: RowView | None = None,
) -> None:
    reductions: list[Reduction] = []
    dimensions: Any = ()
    position = 0
    for instruction, operands in roots:
        half = len(operands) // 2
        sources, own = tuple(operands[:half]), tuple(results[position : position + half])
        position += half
        op: Any = instruction.op
        dimensions = op.dimensions
        if row is not None:
            dimensions = [d - len(row.prefix) for d in dimensions]
            sources, own = tuple(row.of(s) for s in sources), tuple(row.of(r) for r in own)
        reductions.append(Reduction(op.to_apply, sources, tuple(operands[half:]), own))
    emit_reductions(emit, dimensions, reductions)
