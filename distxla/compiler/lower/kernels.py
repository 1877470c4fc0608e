"""One LLVM function for one instruction of a schedule: a fusion, a bare element op or reduction, or a kernel op.

The contract: `void name(ptr context, ptr operand leaves …, ptr result leaves …, ptr scratch)`. All arrays are row-major
and 64-byte aligned; results overlap nothing else, but where the op declares an in-place operand.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from llvmlite import ir

from distxla.compiler.lower import contraction, exact_products, gemm_micro_kernel
from distxla.compiler.lower.arrays import MemoryArray
from distxla.compiler.lower.buffer_emitter import BufferEmitter, MatrixOperand
from distxla.compiler.lower.element_computations import element_array, element_arrays
from distxla.compiler.lower.float_codes import StoredCodes, kind_of
from distxla.compiler.lower.fusion import emit_elements
from distxla.compiler.lower.reduction import Reduction, emit_reductions
from distxla.compiler.lower.row_fusions import RowView, emit_rows
from distxla.compiler.plan.buffers import Kernel
from distxla.compiler.plan.same_places import positions_in_one_place
from distxla.emit.native_function import I1, I32, POINTER, VOID, declared
from distxla.errors import CompileError, DistxlaError, InternalError
from distxla.ir.computation import Computation
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ir.structure import Structure
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import ArrayRef, Factors, Tuning
from distxla.ops.support.executable import executable
from distxla.program.abi import ALIGNMENT
from distxla.program.artifact import ImportedKernel
from distxla.targets.code import target_of

WATCHED = 16  # leaves of a kernel's result that it may look at


@dataclass(frozen=True)
class KernelFunction:
    """scratch_bytes: memory that the caller must provide behind the last argument; 64-byte aligned, uninitialised.
    fails: whether it returns a Status.  watched: leaves of the result, of those with data, of which it returns whether
    they have NaN or Inf: an i32 with a bit for each, and one WATCHED places higher if it has looked at all of the leaf,
    not only at the part that it has changed; None where it returns nothing.
    """

    function: ir.Function
    scratch_bytes: int
    fails: bool = False
    watched: frozenset[int] | None = None


class KernelEmitter(BufferEmitter):
    """The LLVM side of ops/support/emit.py's `KernelEmitter`."""

    @property
    def tuning(self) -> Tuning:
        processor = target_of(self.builder).processor
        return Tuning(processor.lanes, processor.cached_bytes)

    def factors(
        self, shape: tuple[int, int, int], types: tuple[ElementType, ElementType], sums: ElementType
    ) -> Factors:
        """How `gemm` wants the factors; see ops/support/emit.py."""
        return exact_products.choose_factors(target_of(self.builder).processor, shape, types, sums)

    def gemm(
        self,
        shape: tuple[int, int, int, int],
        a: MatrixOperand,
        b: MatrixOperand,
        c: MatrixOperand,
        terms: int | None = None,
    ) -> None:
        """c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n]; see ops/support/emit.py."""
        if terms is None:
            contraction.emit_gemm(self, shape, a, b, c)
        else:
            exact_products.emit_exact_products(self, shape, a, b, c, terms)

    # see ops/support/emit.py
    run_products = gemm_micro_kernel.emit_run_products
    elements = emit_elements
    reductions = emit_reductions
    rows = emit_rows


def kernel_key(structure: Structure, step: Kernel) -> Hashable:
    """What a kernel's code depends on: instructions that differ in names only share it. structure: the module's."""
    instruction = step.instruction
    shapes = tuple(o.shape.without_layout() for o in step.computation.operands(instruction))
    op = instruction.op.rename_computations(lambda name: f"#{structure.number(name)}")
    annotations = executable(instruction.op).code_annotations(instruction)
    return op, shapes, instruction.shape.without_layout(), annotations, step.same_places


def kernel_type(operands: Sequence[Shape], results: Sequence[Shape], *, watches: bool = False) -> ir.FunctionType:
    """The LLVM type of a kernel with these operand and result leaves. watches: KernelFunction.watched is not None."""
    return ir.FunctionType(I32 if watches else VOID, [POINTER] * (len(operands) + len(results) + 2))


def declare_kernel(llvm_module: ir.Module, kernel: ImportedKernel) -> KernelFunction:
    """A kernel that the target runs itself, with scratch memory of its own, as a function that the program imports."""
    leaves = [leaf for shape in (*kernel.operands, kernel.instruction.shape) for leaf in shape.leaves()]
    pointers = [POINTER] * (sum(leaf.is_array for leaf in leaves) + 2)
    return KernelFunction(declared(llvm_module, kernel.symbol, I32, pointers), 0, fails=True)


def emit_kernel_function(
    llvm_module: ir.Module, module: Module, step: Kernel, name: str, *, in_place: bool = False, watched: bool = False
) -> KernelFunction:
    """Add the function that computes the step's instruction to `llvm_module`.

    in_place: operands that may have a result's place have it, and are read by the result's pointer, so that no loop
    checks distances.  watched: it looks at what it stores, where it stores element by element.  Tokens have no pointer:
    only leaves with data count as leaves here.  Raises CompileError naming the instruction where its op can't be
    emitted; errors of the user's module pass through.
    """
    instruction = step.instruction
    operands = [step.computation[o].shape for o in instruction.operands]
    operand_leaves = [leaf for shape in operands for leaf in shape.leaves() if leaf.is_array]
    result_leaves = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
    watches = watched and executable(instruction.op).shows_stores(instruction.shape, operands)
    function = ir.Function(llvm_module, kernel_type(operand_leaves, result_leaves, watches=watches), name)
    function.attributes.add("nounwind")
    count = len(operand_leaves)
    shared = positions_in_one_place(step)
    for position, (argument, leaf) in enumerate(zip(function.args[1:-1], [*operand_leaves, *result_leaves])):
        argument.attributes.align = ALIGNMENT
        argument.attributes.dereferenceable = max(1, leaf.byte_size)
        if position not in shared:
            argument.add_attribute("noalias")
    function.args[-1].attributes.align = ALIGNMENT
    function.args[-1].add_attribute("noalias")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emit = KernelEmitter(builder, module, function.args[0], function.args[-1])
    emit.for_instruction(instruction, operands)
    places = list(function.args[1:-1])
    for operand, result in step.same_places if in_place else ():
        places[operand] = places[count + result]
    arrays = [MemoryArray(emit, p, s) for p, s in zip(places[:count], operand_leaves)]
    results = [MemoryArray(emit, p, s) for p, s in zip(places[count:], result_leaves)]
    # code behind the entry block's end, so that scratch addresses and slots may be put into it at any time
    start = builder.append_basic_block("start")
    emit.entry = builder.block
    builder.branch(start)
    builder.position_at_end(start)
    watches_of = _watch(emit, results) if watches else {}
    emit_instruction(emit, module, instruction, operands, arrays, results)
    if not watches:
        builder.ret_void()
        return KernelFunction(function, emit.scratch_bytes)
    found = I32(0)
    for number, watch in watches_of.items():
        if watch.is_used:
            for place, bit in ((number, watch.emit_has_any()), (number + WATCHED, watch.emit_is_whole())):
                found = builder.or_(found, builder.shl(builder.zext(bit, I32), I32(place)))
    builder.ret(found)
    used = frozenset(number for number, watch in watches_of.items() if watch.is_used)
    return KernelFunction(function, emit.scratch_bytes, watched=used)


def _watch(emit: KernelEmitter, results: Sequence[MemoryArray]) -> dict[int, StoredCodes]:
    """Watches of the results, by leaf, as far as they have a bit."""
    found = {}
    for number, result in enumerate(results[:WATCHED]):
        kind = result.shape.dtype
        if kind.has_nan:
            slots = emit.stack_slot(kind_of(kind)), emit.stack_slot(I1)
            found[number] = watch = StoredCodes(emit.builder, *slots, kind)
            watch.begin()
            result.watch = watch
    return found


def emit_instruction(
    emit: KernelEmitter,
    module: Module,
    instruction: Instruction,
    operands: Sequence[Shape],
    arrays: Sequence[MemoryArray],
    results: Sequence[MemoryArray],
) -> None:
    """Emit the code that computes `instruction`. arrays, results: one for each leaf with data; raises as
    `emit_kernel_function`."""
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


def _emit_instruction(
    emit: KernelEmitter,
    module: Module,
    instruction: Instruction,
    operands: Sequence[Shape],
    arrays: Sequence[MemoryArray],
    results: Sequence[MemoryArray],
) -> None:
    op = instruction.op
    if op.lowering is Lowering.KERNEL:
        executable(op).emit_kernel(emit, tuple(results), *arrays)  # type: ignore[arg-type]
    elif op.lowering is Lowering.ELEMENT:
        sources: list[ArrayRef] = list(arrays)  # type: ignore[arg-type]
        emit.elements([element_array(emit, instruction, sources)], results)
    elif op.lowering is Lowering.REDUCTION:
        _emit_reduction_roots(emit, [(instruction, list(arrays))], results)
    elif op.lowering is Lowering.CALL:
        (called,) = op.called_computations
        _emit_fusion(emit, module, module[called], arrays, results)
    else:
        raise InternalError(f"{instruction.name}: {instruction.opcode} is no kernel ({op.lowering.value})")


def _emit_fusion(
    emit: KernelEmitter, module: Module, fused: Computation, arrays: Sequence[Any], results: Sequence[MemoryArray]
) -> None:
    if not any(i.op.lowering is Lowering.CALL for i in fused):
        _emit_loops(emit, fused, arrays, results)
        return

    def stage(fused: Computation, arrays: Sequence[Any], results: Sequence[Any], row: RowView | None) -> None:
        _emit_loops(emit, fused, arrays, results, row)

    emit.rows(module, fused, arrays, results, stage)


def _emit_loops(
    emit: KernelEmitter,
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
    dimension_sizes = {r.shape.dims for r in results}
    if len(dimension_sizes) == 1:
        emit.elements(sources, results)
        return
    for source, result in zip(sources, results):
        emit.elements([source], [result])


def _emit_reduction_roots(
    emit: KernelEmitter,
    roots: Sequence[tuple[Instruction, Sequence[Any]]],
    results: Sequence[Any],
    row: RowView | None = None,
) -> None:
    reductions: list[Reduction] = []
    dimensions: Any = ()
    position = 0
    for result in results:
        if isinstance(result, MemoryArray):
            result.watch = None  # written by other means, too; looked through afterwards
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
    emit.reductions(dimensions, reductions)
