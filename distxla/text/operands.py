"""Reads operands: names, names with shapes, elements of tuples (`call#0`), nested instructions, shapes alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

from distxla.ir.instruction import Instruction
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.support.registry import op_class
from distxla.text.fresh_names import FreshNames
from distxla.text.lexer import BLANK, NAME, WORD, Lexer, Spans
from distxla.text.shapes import known_shape, read_shape, starts_shape

_NAMES_ONLY = re.compile(rf"(?:{BLANK}%?{NAME}{BLANK}(?:,{BLANK}%?{NAME}{BLANK})*)?\)")
_EACH_NAME = re.compile(NAME)
# as XLA prints it: `f32[2]{0} %x,`
_PRINTED = re.compile(rf"[ \n]*(?:/\*index=\d+\*/)?(\w+\[[0-9,]*\](?:\{{[0-9,]*\}})?) %({NAME})[ \n]*[,)]")
_NAME_ONLY = re.compile(rf"{BLANK}(?:%({NAME}+)|({WORD}+)){BLANK}(?![(\[])")


@dataclass(slots=True)
class Scope:
    """The computation that is being read.

    invents: unknown operands with a shape become parameters.  elements: the get-tuple-element of element
    `number` of instruction `name`, by (name, number).
    """

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str | None = None
    invents: bool = False
    elements: dict[tuple[str, int], str] = field(default_factory=dict)

    def add(self, instruction: Instruction) -> None:
        self.instructions[instruction.name] = instruction


class OperandReader:
    """read_nested: reads the instruction that starts at an offset; its second argument ends the error message."""

    def __init__(self, lexer: Lexer, names: FreshNames, read_nested: Callable[[int, str], Instruction]) -> None:
        self._lexer, self._names, self._read_nested = lexer, names, read_nested

    def read(self, scope: Scope) -> tuple[str, ...]:
        """The operands' names, the closing parenthesis included; instructions that the text implies join the scope."""
        lexer = self._lexer
        match = _NAMES_ONLY.match(lexer.text, lexer.pos)
        if match is not None and "/" not in match.group():
            names = _EACH_NAME.findall(match.group())
            known = scope.instructions
            if all(name in known for name in names):
                lexer.pos = match.end()
                return tuple(names)
        operands, is_whole = self._printed(scope)
        if is_whole or (not operands and lexer.accept(")")):
            return tuple(operands)
        for place in count(len(operands)):
            name = self._operand(scope, place)
            if name is not None:
                operands.append(name)
            if lexer.accept(")"):
                break
            if not lexer.accept(","):
                raise lexer.expected("',' or ')' after an operand")
        return tuple(operands)

    def _printed(self, scope: Scope) -> tuple[list[str], bool]:
        """The operands as XLA prints them, up to one that is not or is wrong; whether the last one has been read."""
        text, known, pos = self._lexer.text, scope.instructions, self._lexer.pos
        operands: list[str] = []
        is_whole = False
        while not is_whole and (match := _PRINTED.match(text, pos)) is not None:
            text_of_shape, name = match.groups()
            stated, instruction = known_shape(text_of_shape), known.get(name)
            if stated is None or instruction is None:
                break
            if stated is not instruction.shape and not stated.compatible(instruction.shape):
                break
            operands.append(name)
            pos = match.end()
            is_whole = text[pos - 1] == ")"
        self._lexer.pos = pos
        return operands, is_whole

    def _operand(self, scope: Scope, place: int) -> str | None:
        """None for a shape alone, which XLA's parser passes over; in a single instruction it is a parameter."""
        lexer = self._lexer
        start = lexer.skip()
        shape = read_shape(lexer) if starts_shape(lexer) else None
        match = _NAME_ONLY.match(lexer.text, lexer.pos)
        if match is None:
            if shape is not None and (lexer.at(",") or lexer.at(")")):
                fresh = self._names.instruction(f"_{place}")
                return self._parameter(scope, shape, fresh, start) if scope.invents else None
            lexer.pos = start
            instruction = self._read_nested(start, " or ')'" if place == 0 else "")
            scope.add(instruction)
            return instruction.name
        name: str = match.group(1) or match.group(2)
        at = match.start(1) - 1 if match.group(1) else match.start(2)
        lexer.pos = match.end()
        end = at + len(name) + (1 if match.group(1) else 0)
        if name not in scope.instructions:
            if not scope.invents or shape is None:
                hint = "; an operand of a single instruction needs a shape" if scope.invents else ""
                raise lexer.error(
                    f"expected the name of an instruction defined above in computation {scope.name!r}, "
                    f"found {name!r}{hint}",
                    at,
                    end,
                )
            return self._parameter(scope, shape, name, start)
        while lexer.accept("#"):
            number = lexer.integer("the number of a tuple's element")
            end = lexer.pos
            name = self._element(scope, name, number, at)
        if shape is not None and not shape.compatible(scope.instructions[name].shape):
            have = scope.instructions[name].shape
            raise lexer.violation(
                f"operands.shape: {lexer.text[at:end]} is {have}, here it is said to be {shape}", start, end
            )
        return name

    def _parameter(self, scope: Scope, shape: Shape, name: str, start: int) -> str:
        """A parameter of the computation around a single instruction."""
        number = sum(i.op.role.is_parameter for i in scope.instructions.values())
        parameter = op_class("parameter")(number=number)  # type: ignore[call-arg]
        scope.add(Instruction(name, shape, parameter, span=self._lexer.lines.span(start, self._lexer.pos)))
        return name

    def _element(self, scope: Scope, name: str, number: int, start: int) -> str:
        """The get-tuple-element of `name#number`: one for all its uses in the computation, before the first of them."""
        lexer, known = self._lexer, scope.elements.get((name, number))
        if known is not None:
            return known
        elements = scope.instructions[name].shape.elements
        if elements is None or not 0 <= number < len(elements):
            raise lexer.error(
                f"{name} is {scope.instructions[name].shape}, which has no element {number}", start, lexer.pos
            )
        fresh = self._names.instruction(f"{name}_{number}")
        op = op_class("get-tuple-element")(index=number)  # type: ignore[call-arg]
        span = lexer.lines.span(start, lexer.pos)
        offsets = Spans(lexer.lines, {"operands": (start, lexer.pos)})
        shape = elements[number].without_layout()
        scope.add(Instruction(fresh, shape, op, (name,), span=span, attribute_spans=offsets))
        scope.elements[name, number] = fresh
        return fresh
