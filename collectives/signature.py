"""A number that says what a communicating instruction does, whatever the names in its module are."""

from __future__ import annotations

import hashlib

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape


def signature(module: Module, instruction: Instruction, operands: tuple[Shape, ...]) -> int:
    """u64 from opcode, attributes but for the groups, operand shapes without layout, and the called computations."""
    op = instruction.op
    parts = [op.opcode, *(str(o.without_layout()) for o in operands)]
    for spec in op.attributes():
        value = getattr(op, spec.field)
        if spec.kind == "computation" and value is not None:
            value = structure(module, module[value])
        if spec.kind != "replica_groups":
            parts.append(f"{spec.text}={value!r}")
    return int.from_bytes(hashlib.blake2b("\n".join(parts).encode(), digest_size=8).digest(), "little")


def structure(module: Module, computation: Computation) -> str:
    """The computation with numbers for names: equal for computations that compute the same in the same way."""
    numbers = {instruction.name: i for i, instruction in enumerate(computation)}
    lines = []
    for instruction in computation:
        op = instruction.op.rename_computations(lambda name: structure(module, module[name]))
        operands = ",".join(str(numbers[name]) for name in instruction.operands)
        lines.append(f"{numbers[instruction.name]}={instruction.shape} {op.opcode} {_attributes(op)}({operands})")
    return "; ".join(lines) + f"; root {numbers[computation.root]}"


def _attributes(op: object) -> str:
    from distxla.ir.literal import Literal
    from distxla.ops.op import Op

    assert isinstance(op, Op)
    values = []
    for spec in op.attributes():
        value = getattr(op, spec.field)
        if isinstance(value, Literal):
            value = None if value.array is None else (str(value.shape), value.array.tobytes().hex())
        values.append(f"{spec.text}={value!r}")
    return " ".join(values)
