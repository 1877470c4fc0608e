"""The operation of a communicating instruction, independent of the names in its module: as a number, and in words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass

GROUPS = "replica_groups"
LONG = 1 << 16


@dataclass(frozen=True)
class Facet:
    """One thing that an instruction says and that the members of a round must agree on.

    shown: for people.  key: equal where it is the same thing; the groups are in no signature, since members of other
    groups have other communicators.
    """

    name: str
    shown: str
    key: str


def facets(module: Module, instruction: Instruction, operands: tuple[Shape, ...]) -> tuple[Facet, ...]:
    """Opcode, operand shapes without layout, every attribute; of called computations their structure."""
    op = instruction.op
    opcode = op.round_opcode
    shapes = ", ".join(str(o.without_layout()) for o in operands)
    found = [Facet("opcode", opcode, opcode), Facet("operands", shapes, shapes)]
    for spec in op.attributes():
        value = getattr(op, spec.field)
        key = _key(module, spec.kind, value)
        called = spec.kind == "computation" and value is not None
        found.append(Facet(spec.text, _computation(module[value], key) if called else _text(value), key))
    return tuple(found)


def signature(module: Module, instruction: Instruction, operands: tuple[Shape, ...]) -> int:
    """u64 from all facets but the groups."""
    op = instruction.op
    parts = [f"opcode={op.round_opcode}"]
    parts.append(f"operands={', '.join(str(o.without_layout()) for o in operands)}")
    for spec in op.attributes():
        if spec.text != GROUPS:
            parts.append(f"{spec.text}={_key(module, spec.kind, getattr(op, spec.field))}")
    return int.from_bytes(_digest("\n".join(parts)), "little")


def _key(module: Module, kind: str, value: Any) -> str:
    return structure(module, module[value]) if kind == "computation" and value is not None else repr(value)


def meaning(module: Module, instruction: Instruction, operands: tuple[Shape, ...]) -> str:
    """Equal for instructions that compute the same in the same way, in whichever modules they are."""
    op = instruction.op.rename_computations(lambda name: structure(module, module[name]))
    shapes = ", ".join(str(o.without_layout()) for o in operands)
    return f"{op.opcode} {_attributes(op)}({shapes})"


def summary(module: Module, instruction: Instruction, operands: tuple[Shape, ...]) -> tuple[tuple[str, str], ...]:
    """The facets that `differences` compares, each as name and text; of transfers between devices the value's type."""
    if instruction.op.effects is Effects.CHANNEL:
        parts = instruction.shape.elements
        leaves = operands[:-2] if parts is None else tuple(parts[0].leaves())
        return (("value", ", ".join(str(leaf.without_layout()) for leaf in leaves)),)
    return tuple((f.name, f.shown) for f in facets(module, instruction, operands))


def differences(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> str:
    """`operands: f32[4] and f32[8]; to_apply: add and maximum`; "" where nothing is seen to differ."""
    mine, theirs = dict(one), dict(other)
    return "; ".join(
        f"{name}: {mine.get(name) or 'none'} and {theirs.get(name) or 'none'}" for name in differing(one, other)
    )


def differing(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> list[str]:
    """The names of the facets that differ."""
    mine, theirs = dict(one), dict(other)
    names = [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]
    if "opcode" in names:  # then the attributes differ because of it
        names = [name for name in names if name in ("opcode", "operands", GROUPS)]
    return names


def _text(value: object) -> str:
    """A value of an attribute as HLO text has it, nearly."""
    if isinstance(value, ReplicaGroups):
        value = value.groups
    if isinstance(value, tuple):
        return "{" + ",".join(map(_text, value)) + "}"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _computation(computation: Computation, structure_: str) -> str:
    """`add` for a computation that is only that, otherwise its name and a digest of its structure."""
    root, others = computation.root_instruction, [i for i in computation if not i.op.role.is_parameter]
    if others == [root] and root.operands == tuple(p.name for p in computation.parameters):
        return root.opcode
    return f"{computation.name}#{_digest(structure_).hex()[:6]}"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def structure(module: Module, computation: Computation, known: dict[str, str] | None = None) -> str:
    """The computation with numbers for names: equal for computations that compute the same in the same way.

    known: cache of the texts of the module's computations. Callers contain a long text as its digest, because texts
    would grow exponentially if each computation called the one before twice.
    """
    known = {} if known is None else known

    def called(name: str) -> str:
        if name not in known:
            text = structure(module, module[name], known)
            known[name] = text if len(text) <= LONG else f"#{_digest(text).hex()}"
        return known[name]

    numbers = {instruction.name: i for i, instruction in enumerate(computation)}
    lines = []
    for instruction in computation:
        op = instruction.op.rename_computations(called)
        operands = ",".join(str(numbers[name]) for name in instruction.operands)
        lines.append(f"{numbers[instruction.name]}={instruction.shape} {op.opcode} {_attributes(op)}({operands})")
    return "; ".join(lines) + f"; root {numbers[computation.root]}"


def _attributes(op: Op) -> str:
    values = []
    for spec in op.attributes():
        value = getattr(op, spec.field)
        if isinstance(value, Literal):
            value = None if value.array is None else (str(value.shape), value.array.tobytes().hex())
        values.append(f"{spec.text}={value!r}")
    return " ".join(values)
