"""Writes HLO text that `distxla.text.parser` reads back to an equal module and that XLA accepts."""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.text.annotations import print_annotations
from distxla.text.attributes import BETWEEN_PARENTHESES, KIND_TEXTS
from distxla.text.header import print_header
from distxla.text.lexer import as_name, quoted
from distxla.text.literals import print_literal
from distxla.text.shapes import print_shape


def print_module(module: Module) -> str:
    """The whole module; computations in their order, which defines before it uses."""
    parts = [print_header(module)]
    parts += [print_computation(c, is_entry=c.name == module.entry) for c in module.computations]
    return "\n".join(parts)


def print_computation(computation: Computation, is_entry: bool = False) -> str:
    """`[ENTRY] %name (parameters) -> result { instructions }`, ends with a newline."""
    # without % as XLA prints them, but for names that would read as something else
    parameters = ", ".join(f"{as_name(p.name)}: {print_shape(p.shape, False)}" for p in computation.parameters)
    result = print_shape(computation.root_instruction.shape, False)
    lines = [f"{'ENTRY ' if is_entry else ''}%{computation.name} ({parameters}) -> {result} {{"]
    for instruction in computation.instructions:
        root = "ROOT " if instruction.name == computation.root else ""
        lines.append(f"  {root}{print_instruction(instruction)}")
    thread = computation.execution_thread
    lines.append("}" if thread is None else f"}}, execution_thread={quoted(thread)}")
    return "\n".join(lines) + "\n"


def print_instruction(instruction: Instruction) -> str:
    """`%name = shape opcode(%operands), attributes`: one line without indentation."""
    op = instruction.op
    between: str | None = None
    attributes: list[str] = []
    for spec in op.attributes():
        value = getattr(op, spec.field)
        if spec.kind in BETWEEN_PARENTHESES:
            between = print_literal(value) if spec.kind == "literal" else str(value)
            continue
        if value is None or (not spec.required and spec.kind != "replica_groups" and value == spec.default):
            continue
        attributes.append(f"{spec.text}={KIND_TEXTS[spec.kind].write(value)}")
    if between is None:
        names = (f"%{name}" for name in instruction.operands)
        between = ", ".join(f"/*index={k}*/{n}" if k and k % 5 == 0 else n for k, n in enumerate(names))
    parts = [f"%{instruction.name} = {print_shape(instruction.shape)} {op.opcode}({between})"]
    return ", ".join([*parts, *attributes, *print_annotations(instruction)])
