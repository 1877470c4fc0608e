"""A graph of element ops as arrays that compute their elements: the generator's form of a fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.compiler.lower.arrays import ComputedArray, Index, MemoryArray
from distxla.compiler.lower.scalar_code import ScalarCode
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ops.support.emit import ArrayRef
from distxla.ops.support.executable import executable


def element_array(emit: ScalarCode, instruction: Instruction, operands: Sequence[ArrayRef]) -> ArrayRef:
    """An ELEMENT instruction as an array over its operands."""
    op = executable(instruction.op)

    def compute(index: Index) -> ScalarValue:
        value: Any = op.emit_element(emit, instruction.shape, index, *operands)  # type: ignore[arg-type]
        return value  # type: ignore[no-any-return]

    return ComputedArray(emit, instruction.shape, compute)  # type: ignore[return-value]


def element_arrays(emit: ScalarCode, computation: Computation, parameters: Sequence[ArrayRef]) -> dict[str, ArrayRef]:
    """Every parameter and ELEMENT instruction of a fused computation by name; other instructions are left out."""
    arrays: dict[str, ArrayRef] = {}
    for instruction in computation:
        op = instruction.op
        if op.role.is_parameter:
            source = parameters[op.number]  # type: ignore[attr-defined]
            memory = source if isinstance(source, MemoryArray) else None
            arrays[instruction.name] = ComputedArray(emit, instruction.shape, source.load, memory)  # type: ignore[assignment,arg-type]
        elif op.lowering is Lowering.ELEMENT:
            operands = [arrays[name] for name in instruction.operands]
            arrays[instruction.name] = element_array(emit, instruction, operands)
    return arrays


def apply_scalar(
    emit: ScalarCode, computation: Computation, arguments: Sequence[ScalarValue], result: str | None = None
) -> tuple[ScalarValue, ...]:
    """Inline a computation of scalars; one value a leaf of the root, or of the instruction `result`.

    Every scalar is computed once; arrays on the way (a table that is indexed, say) element by element when one is read.
    """
    values: dict[str, tuple[ArrayRef, ...]] = {}
    for instruction in computation:
        op = instruction.op
        if op.role.is_parameter:
            values[instruction.name] = (emit.scalar_array(arguments[op.number]),)  # type: ignore[attr-defined]
            continue
        operands = [values[name] for name in instruction.operands]
        if op.lowering is Lowering.ELEMENT:
            array = element_array(emit, instruction, [leaves[0] for leaves in operands])
            values[instruction.name] = (array if instruction.shape.rank else _computed(emit, array),)
        elif op.lowering is Lowering.ALIAS:
            shapes = [computation[name].shape for name in instruction.operands]
            values[instruction.name] = tuple(op.result_leaves(shapes, operands))
        elif op.lowering is Lowering.CALL:
            (called,) = op.called_computations
            inner: list[Any] = [leaf.load(()) for leaves in operands for leaf in leaves]
            values[instruction.name] = tuple(emit.scalar_array(leaf) for leaf in emit.apply(called, *inner))
        else:
            raise InternalError(
                f"{instruction.name}: {instruction.opcode} inside the scalar computation {computation.name}"
            )
    return tuple(leaf.load(()) for leaf in values[result or computation.root])  # type: ignore[misc]


def _computed(emit: ScalarCode, array: ArrayRef) -> ArrayRef:
    """A rank 0 array whose element is computed here and now."""
    return emit.scalar_array(array.load(()))  # type: ignore[arg-type]


def is_single_operation(computation: Computation) -> bool:
    """Whether it is one element op of two parameters: then the order of a float reduction may be chosen freely."""
    others = [i for i in computation if not i.op.role.is_parameter]
    return len(others) == 1 and others[0].op.lowering is Lowering.ELEMENT and len(computation.parameters) == 2
