"""Which values of a partitioned module a manual region declared the same on several devices.

A result of `shard_map` leaves its region by the custom-call SPMDShardToFullShape, whose sharding says where copies of
it are. The partitioner makes a copy of it, which says nothing any more. XLA dumps the module before the partitioner,
too. Values of both are matched by the operation's name and the instruction that made the value, so nothing has to be
added to the module that XLA gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from distxla.errors import HloSyntaxError
from distxla.ir.sharding import DECLARED_SHARDING, Placement
from distxla.lazy_dataclass import dataclass
from distxla.text.lexer import Lexer
from distxla.text.shardings import read_sharding

BORDER: Final = b"SPMDShardToFullShape"  # in a module with regions that have results
_INTO: Final = 'custom_call_target="SPMDFullToShardShape"'
_OUT_OF: Final = 'custom_call_target="SPMDShardToFullShape"'
_COMPUTATION: Final = re.compile(r"^(?:ENTRY )?%(\S+) .*\{$")
_INSTRUCTION: Final = re.compile(r"^  (?:ROOT )?%(\S+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\(([^()]*)\)(.*)$")
_OPERAND: Final = re.compile(r"%([^\s,)]+)")
_INDEX: Final = re.compile(r", index=(\d+)")
_OP_NAME: Final = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SHARDING: Final = re.compile(r", sharding=(\{.*?\})(?=, (?:metadata|frontend_attributes|backend_config|origin)=|$)")
_NOT_OF_NAME: Final = re.compile(r"(?:_spmd)?(?:\.clone(?:\.\d+)?)*$")
_BODY: Final = "to_apply=%xla.sdy.inlinable_manual_computation_body"


@dataclass(frozen=True)
class _Line:
    """An instruction as it is printed. operand: the first, "" without any.  rest: what follows the operands."""

    number: int
    name: str
    shape: str
    kind: str
    operand: str
    rest: str

    @property
    def op_name(self) -> str:
        found = _OP_NAME.search(self.rest)
        return found[1] if found else ""


@dataclass(frozen=True)
class _Value:
    """What both modules tell of a value that leaves a region: the computation, the operation's name, the instruction
    that made it, by opcode, name and number of results, and which of its results it is."""

    computation: str
    op_name: str
    kind: str
    made_by: str
    results: int
    index: int
    is_of_region: bool


def with_declared_values(partitioned: str, before: str) -> str:
    """HLO text of a partitioned module, with the attribute DECLARED_SHARDING at the values that leave a manual region.

    before: of the module before the partitioner. A value that can't be told from another of other shards has none.
    """
    declared: dict[_Value, str | None] = {}
    entering: set[_Value] = set()
    for name, lines in _computations(before).items():
        for line in lines.values():
            if line.kind != "custom-call" or not (_OUT_OF in line.rest or _INTO in line.rest):
                continue
            value = _value(_base(name), line.op_name, lines, line.operand)
            sharding = _SHARDING.search(line.rest)
            if value is None:
                continue
            if _INTO in line.rest:
                entering.add(value)
            elif sharding is not None:
                declared[value] = sharding[1] if declared.get(value, sharding[1]) == sharding[1] else None
    printed = partitioned.split("\n")
    for name, lines in _computations(partitioned).items():
        marked: set[_Value] = set()
        for line in lines.values():
            if line.kind != "copy":
                continue
            value = _value(_base(name), line.op_name, lines, line.operand)
            if value is None or value in marked or (value in entering and not value.is_of_region):
                continue
            text = declared.get(value)
            if text is not None and _says_where_copies_are(text):
                marked.add(value)
                printed[line.number] = _with_attribute(printed[line.number], text)
    return "\n".join(printed)


def _computations(text: str) -> dict[str, dict[str, _Line]]:
    found: dict[str, dict[str, _Line]] = {}
    lines: dict[str, _Line] = {}
    for number, printed in enumerate(text.split("\n")):
        if (match := _INSTRUCTION.match(printed)) is not None:
            operand = _OPERAND.search(match[4])
            lines[match[1]] = _Line(number, match[1], match[2], match[3], operand[1] if operand else "", match[5])
        elif (match := _COMPUTATION.match(printed)) is not None:
            lines = found[match[1]] = {}
    return found


def _base(computation: str) -> str:
    """The partitioner calls its computations `…_spmd`, and clones those with several callers."""
    return _NOT_OF_NAME.sub("", computation)


def _value(computation: str, op_name: str, lines: Mapping[str, _Line], name: str) -> _Value | None:
    """The value of this name, through copies; None where too little is known to recognise it."""
    index = -1
    while (line := lines.get(name)) is not None and line.kind in ("copy", "get-tuple-element"):
        if line.kind == "get-tuple-element":
            found = _INDEX.search(line.rest)
            if index >= 0 or found is None:
                return None
            index = int(found[1])
        name = line.operand
    if line is None:
        return None
    is_of_region = line.kind == "call" and _BODY in line.rest
    if not is_of_region and (not op_name or line.kind in ("parameter", "constant")):
        return None
    results = line.shape.count("[") if line.shape.startswith("(") else 1
    return _Value(computation, op_name, line.kind, line.op_name, results, index, is_of_region)


def _says_where_copies_are(text: str) -> bool:
    """False of the shardings of a region within another, which are about a part of the devices."""
    lexer = Lexer(text)
    try:
        sharding = read_sharding(lexer)
    except HloSyntaxError:
        return False
    kinds = {kind for kind in sharding.last_tile_dims if kind != "replicated"}
    return lexer.pos == len(text) and not kinds and sharding.placement in (Placement.WHOLE, Placement.TILED)


def _with_attribute(line: str, sharding: str) -> str:
    attribute = f'{DECLARED_SHARDING}="{sharding}"'
    if ", frontend_attributes={" in line:
        return line.replace(", frontend_attributes={", f", frontend_attributes={{{attribute},", 1)
    before, comma, metadata = line.partition(", metadata=")
    return f"{before}, frontend_attributes={{{attribute}}}{comma}{metadata}"


__all__ = ["BORDER", "with_declared_values"]
