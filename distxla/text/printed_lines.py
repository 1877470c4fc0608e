"""Reads instructions as XLA prints most of them, each by one expression: a third of the time of reading part by part.

    %name = f32[2,3]{1,0} add(%a, %b), metadata={op_name="jit(f)/add"}

A line that is not so, or is wrong, is left to the reader of parts (instructions.py), which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from distxla.ir.instruction import Instruction, Span
from distxla.ir.op import Op, RuleViolation
from distxla.ops.support.registry import op_classes
from distxla.text.annotations import printed_metadata
from distxla.text.attributes import BETWEEN_PARENTHESES
from distxla.text.lexer import NAME, WORD, Lexer, LineIndex, Spans
from distxla.text.operands import Scope
from distxla.text.shapes import known_shape

_SHAPE: Final = r"\w+\[[0-9,]*\](?:\{[0-9,]*\})?"
_HEAD: Final = re.compile(
    rf"[ \n]*(ROOT )?(%{NAME}|{WORD}) = ({_SHAPE}) ([a-z][a-z0-9\-]*)(\(([^()/#\n]*)\))(?=[,\n ])"
)
_PARTS: Final = {"shape": 3, "opcode": 4, "name": 2, "operands": 5}
_STATED: Final = re.compile(rf"({_SHAPE}) %({NAME})(?:, |$)")
_METADATA: Final = ", metadata={"

Offsets = dict[str, tuple[int, int]]


class LineSpans(Mapping[str, Span]):
    """The spans of a line's parts, found by reading it again: few of a module's are ever asked for.

    attributes: their offsets from the end of the operands.
    """

    __slots__ = ("_attributes", "_lines", "_start", "_text")

    def __init__(self, lines: LineIndex, text: str, start: int, attributes: Offsets) -> None:
        self._lines, self._text, self._start, self._attributes = lines, text, start, attributes

    def _offsets(self) -> Offsets:
        match = _HEAD.match(self._text, self._start)
        assert match is not None
        offsets = {key: match.span(group) for key, group in _PARTS.items()}
        begin, end = match.end(), self._text.find("\n", match.end())
        offsets |= {key: (begin + first, begin + last) for key, (first, last) in self._attributes.items()}
        metadata = self._text.find(_METADATA, begin, end)
        if metadata >= 0:
            offsets["metadata"] = metadata + len(", "), len(self._text[:end].rstrip(" "))
        return offsets

    def __reduce__(self) -> tuple[type[Spans], tuple[LineIndex, Offsets]]:
        """Without the text."""
        return Spans, (self._lines, self._offsets())

    def __getitem__(self, key: str) -> Span:
        return self._lines.span(*self._offsets()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets())

    def __len__(self) -> int:
        return len(self._offsets())


class PrintedLines:
    """Of one text. An opcode's attributes are read once for all lines that write them in the same way."""

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._known: dict[tuple[str, str], tuple[Op, Offsets] | None] = {}  # by opcode and text of its attributes

    def read(self, scope: Scope) -> bool:
        """Add the instruction at hand to the scope; False, and nothing is read, where the line is no such one."""
        lexer = self._lexer
        text, start = lexer.text, lexer.pos
        match = _HEAD.match(text, start)
        if match is None:
            return False
        is_root, name, shape_text, opcode, _, operand_text = match.groups()
        written, metadata_text, end = self._rest(match.end())
        found = self._known.get((opcode, written), ())
        if found == ():
            found = None if written else self._plain(opcode)
        if name[0] == "%":
            name = name[1:]
        known = scope.instructions
        if not found or name in known or (is_root and scope.root is not None):
            return False
        op, attributes = found
        shape = known_shape(shape_text)
        operands = self._operands(operand_text, known)
        if shape is None or operands is None or not op.operand_count.allows(len(operands)):
            return False
        metadata = None
        if metadata_text:
            metadata = printed_metadata(metadata_text)
            if metadata is None:
                return False
        lexer.pos = end
        known[name] = Instruction(
            name,
            shape,
            op,
            operands,
            metadata=metadata,
            span=lexer.lines.span(match.start(2), end),
            attribute_spans=LineSpans(lexer.lines, text, start, attributes),
        )
        if is_root:
            scope.root = name
        return True

    def learn(self, start: int, instruction: Instruction) -> None:
        """Keep how the line at `start`, which has been read part by part into the instruction, writes attributes.

        The caller knows that the line defines nothing but the instruction.
        """
        match = _HEAD.match(self._lexer.text, start)
        if match is None or match.group(4) != instruction.opcode or not _has_operands(type(instruction.op)):
            return
        written, metadata_text, end = self._rest(match.end())
        others = (instruction.sharding, instruction.backend_config)
        if others != (None, None) or instruction.frontend_attributes or instruction.control_predecessors:
            return
        read = self._lexer.pos  # behind the blanks that follow, where the line holds nothing else
        is_whole = (
            end <= read and not self._lexer.text[end:read].strip() and "//" not in written and "/*" not in written
        )
        is_whole = is_whole and (not metadata_text or printed_metadata(metadata_text) is not None)
        if is_whole and not instruction.other and isinstance(instruction.attribute_spans, Spans):
            begin, offsets = match.end(), instruction.attribute_spans.offsets
            attributes = {
                key: (first - begin, last - begin)
                for key, (first, last) in offsets.items()
                if key not in _PARTS and key != "metadata"
            }
            self._known[instruction.opcode, written] = instruction.op, attributes

    def _rest(self, begin: int) -> tuple[str, str, int]:
        """(the attributes behind the operands, the metadata behind these, the end of the line without blanks)"""
        text = self._lexer.text
        end = text.find("\n", begin)
        if end < 0:
            end = len(text)
        while text[end - 1] == " ":
            end -= 1
        metadata = text.find(_METADATA, begin, end)
        if metadata < 0:
            return text[begin:end], "", end
        return text[begin:metadata], text[metadata + len(_METADATA) - 1 : end], end

    def _operands(self, text: str, known: Mapping[str, Instruction]) -> tuple[str, ...] | None:
        if "[" not in text:
            names = [name[1:] if name[0] == "%" else name for name in text.split(", ") if name]
            return tuple(names) if all(name in known for name in names) else None
        names, length = [], -2
        for match in _STATED.finditer(text):
            stated, instruction = known_shape(match.group(1)), known.get(match.group(2))
            if stated is None or instruction is None:
                return None
            if stated is not instruction.shape and not stated.compatible(instruction.shape):
                return None
            names.append(match.group(2))
            length += len(match.group()) if match.group().endswith(" ") else len(match.group()) + 2
        return tuple(names) if length == len(text) else None

    def _plain(self, opcode: str) -> tuple[Op, Offsets] | None:
        """The opcode without attributes; None for one that needs some."""
        found = op_classes().get(opcode)
        made = None
        if found is not None and _has_operands(found) and not any(spec.required for spec in found.attributes()):
            try:
                made = found()
            except RuleViolation:
                made = None
        self._known[opcode, ""] = None if made is None else (made, {})
        return self._known[opcode, ""]


def _has_operands(op: type[Op]) -> bool:
    """Whether operands, and not a value, are between the parentheses."""
    return not any(spec.kind in BETWEEN_PARENTHESES for spec in op.attributes())


__all__ = ["PrintedLines"]
