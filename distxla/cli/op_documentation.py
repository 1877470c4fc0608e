"""The reference of the op set, made from the op classes: pages for `distxla ops`, tables for the documentation."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from distxla.errors import ArgumentError
from distxla.ir.attribute import KINDS
from distxla.ir.op import Lowering, Op
from distxla.ir.replica_groups import ReplicaGroups
from distxla.lazy_dataclass import dataclass
from distxla.ops.custom_calls.target import built_in_targets
from distxla.ops.support.registry import op_class, op_classes, with_similar_opcode

ROOT = Path(__file__).resolve().parents[2]

SUPPORT: dict[Lowering, str] = {
    Lowering.ELEMENT: "compiled, fuses",
    Lowering.REDUCTION: "compiled, fuses with what it reads",
    Lowering.KERNEL: "compiled",
    Lowering.ALIAS: "compiled, costs nothing",
    Lowering.CONTROL: "compiled",
    Lowering.COMMUNICATION: "compiled, joins devices",
    Lowering.HOST: "runs in Python",
    Lowering.CALL: "inlined",
    Lowering.EXPANSION: "compiled, as other ops",
    Lowering.NONE: "parsed and verified only",
}


@dataclass(frozen=True, slots=True)
class OpRow:
    """One row of the op table. support: a value of SUPPORT.  summary: the docstring's first sentence."""

    opcode: str
    support: str
    summary: str


def table() -> list[OpRow]:
    """Every opcode of HLO in alphabetical order."""
    return [OpRow(name, SUPPORT[op.lowering], _summary(op)) for name, op in op_classes().items()]


def describe(opcode: str) -> str:
    """The page of one opcode, as plain text ending in a newline.

    Raises ArgumentError, whose note names a similar opcode, where HLO has none of that name.
    """
    try:
        op = op_class(opcode)
    except KeyError:
        raise with_similar_opcode(ArgumentError(f"HLO has no opcode {opcode!r}"), opcode) from None
    documentation = textwrap.indent(inspect.cleandoc(op.__doc__ or ""), "  ", lambda line: bool(line.strip()))
    lines = [opcode, "", documentation, ""]
    if op.attributes():
        lines.append("Attributes:")
        lines.extend(_attribute_lines(op))
    else:
        lines.append("Attributes: none")
    lines.append(f"Operands:   {_operands(op)}")
    if op.needs_shape:
        lines.append("Shape:      must stand in the text")
    lines.append(f"Effects:    {op.effects.value}")
    lines.append(f"Execution:  {SUPPORT[op.lowering]}")
    lines.append(f"Source:     {location(op)}")
    return "\n".join(lines) + "\n"


def location(op: type[Op]) -> str:
    """`distxla/ops/dot.py:31`: where the class, or its row of a table, begins."""
    file = Path(inspect.getfile(op))
    lines = file.read_text(encoding="utf-8").splitlines()
    starts = (f"class {op.__name__}(", f'"{op.opcode}"')
    line = next((n for start in starts for n, text in enumerate(lines, 1) if start in text), 1)
    return f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}:{line}"


def markdown_table() -> str:
    """The table of docs/ops.md; ends with a newline."""
    rows = [f"| `{row.opcode}` | {row.support} | {row.summary.replace('|', chr(92) + '|')} |" for row in table()]
    return "\n".join(["| opcode | support | summary |", "|---|---|---|", *rows]) + "\n"


def markdown_targets() -> str:
    """The table of docs/guide/custom_calls.md: every target that comes with distxla; ends with a newline."""
    names: dict[type[Any], list[str]] = {}
    for name, target in sorted(built_in_targets().items()):
        names.setdefault(type(target), []).append(name)
    files = {found: Path(inspect.getfile(found)).relative_to(ROOT) for found in names}
    rows = []
    for found in sorted(names, key=lambda found: (files[found].as_posix(), names[found])):
        summary = _summary(found).replace("|", "\\|")
        rows.append(f"| {', '.join(f'`{name}`' for name in names[found])} | {summary} | `{files[found]}` |")
    return "\n".join(["| targets | what they compute | file |", "|---|---|---|", *rows]) + "\n"


def _summary(documented: type[Any]) -> str:
    """The first sentence of a class's docstring."""
    first = inspect.cleandoc(documented.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[^.]\.) (?=[A-Z])", first)[0]


def _attribute_lines(op: type[Op]) -> list[str]:
    rows = [(a.text, a.kind, "required" if a.required else f"default {_shown(a.default)}") for a in op.attributes()]
    names, kinds, defaults = (max(len(row[i]) for row in rows) for i in range(3))
    return [f"  {name:<{names}}  {kind:<{kinds}}  {default:<{defaults}}  {KINDS[kind]}" for name, kind, default in rows]


def _shown(default: Any) -> str:
    if default is None or default == () or default == ReplicaGroups():
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _operands(op: type[Op]) -> str:
    count = op.operand_count
    if count.most is None:
        return f"{count.least} or more" if count.least else "any number"
    return str(count)
