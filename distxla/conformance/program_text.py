"""HLO text of small programs: parameters, one collective or a few lines, the counts in the header."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distxla.conformance.case import Case
from distxla.conformance.groups import Groups
from distxla.conformance.values import Values
from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass

# name in a case: opcode of the computation
REDUCTIONS = {
    "add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip


def reduction(name: str, kind: ElementType) -> str:
    """The computation `combine` of two numbers. name: of REDUCTIONS, or `add-in-f32`: widened, added, rounded."""
    t = f"{kind}[]"
    head = f"combine {{\n  a = {t} parameter(0)\n  b = {t} parameter(1)\n  "
    if name == "add-in-f32":
        wide = "x = f32[] convert(a)\n  y = f32[] convert(b)\n  s = f32[] add(x, y)\n  "
        return f"{head}{wide}ROOT r = {t} convert(s)\n}}\n"
    return f"{head}ROOT r = {t} {REDUCTIONS[name]}(a, b)\n}}\n"


@dataclass(frozen=True)
class Collective:
    """One instruction. attributes: its text behind the operands.  computations: that they name.  is_tuple: also of one
    result."""

    opcode: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    attributes: str
    computations: str = ""
    is_tuple: bool = False

    @property
    def result(self) -> str:
        """The shape, as text."""
        return one_or_tuple(self.results, is_tuple=self.is_tuple)

    def line(self, operands: Sequence[str], name: str = "r") -> str:
        return f"{name} = {self.result} {self.opcode}({', '.join(operands)}), {self.attributes}"


def one_or_tuple(shapes: Sequence[Shape], *, is_tuple: bool = False) -> str:
    return str(shapes[0]) if len(shapes) == 1 and not is_tuple else f"({', '.join(map(str, shapes))})"


def parameters(shapes: Sequence[Shape]) -> list[str]:
    """x0, x1, …"""
    return [f"x{k} = {shape} parameter({k})" for k, shape in enumerate(shapes)]


def computation(head: str, lines: Sequence[str]) -> str:
    """The last line is the root."""
    body = [*lines[:-1], f"ROOT {lines[-1]}"]
    return f"{head} {{\n" + "".join(f"  {line}\n" for line in body) + "}\n"


def program(name: str, replicas: int, partitions: int, lines: Sequence[str], computations: str = "") -> str:
    """A module whose entry has the lines; the last one is the root."""
    head = f"HloModule {re.sub(r'[^a-z0-9]+', '_', name)}, replica_count={replicas}, num_partitions={partitions}\n\n"
    return f"{head}{computations}{computation('ENTRY main', lines)}"


def case_of(name: str, groups: Groups, collective: Collective, values: Values, *, any_order: bool = False) -> Case:
    """The collective alone, of the program's parameters."""
    lines = [*parameters(collective.operands), collective.line([f"x{k}" for k in range(len(collective.operands))])]
    text = program(name, groups.replicas, groups.partitions, lines, collective.computations)
    return Case(name, text, groups.replicas, groups.partitions, collective.operands, values, any_order)
