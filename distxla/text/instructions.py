"""Reads computations' bodies: instructions, their operands and attributes, inline computations, async sugar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from distxla.errors import DistxlaError, VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op, RuleViolation
from distxla.ir.shape import ProgramShape, Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.support.registry import op_class, op_classes, with_similar_opcode
from distxla.text.annotations import ANNOTATIONS, read_annotation
from distxla.text.asynchronous import Sugar, sugar_of
from distxla.text.attributes import BETWEEN_PARENTHESES, KIND_TEXTS, Reading
from distxla.text.fresh_names import FreshNames
from distxla.text.lexer import BLANK, MAX_DEPTH, NAME, WORD, Lexer, Spans
from distxla.text.literals import read_literal
from distxla.text.operands import OperandReader, Scope
from distxla.text.printed_lines import PrintedLines
from distxla.text.shapes import known_shape, print_shape, read_shape, starts_shape
from distxla.time_limit import at

_HEAD = re.compile(rf"{BLANK}(?:(ROOT)(?=[\s%/]){BLANK})?(?:%({NAME})|({WORD})){BLANK}=")
_OPCODE = re.compile(rf"{BLANK}(?P<opcode>[A-Za-z][A-Za-z0-9_\-]*){BLANK}\(")
# as XLA prints it: ` f32[2]{0} add(`
_PRINTED = re.compile(r" *(\w+\[[0-9,]*\](?:\{[0-9,]*\})?) (?P<opcode>[A-Za-z][A-Za-z0-9_\-]*)\(")
_FIRST_WORD = re.compile(WORD)
_ATTRIBUTE = re.compile(rf"{BLANK},{BLANK}({WORD}){BLANK}=")


class _Plan(NamedTuple):
    """How the text of an opcode is read.

    between: the (kind, field) of the text between the parentheses, None for operands.  readers: text name ->
    (field, reader).  required: (field, text name) of the attributes that must not be missing.
    """

    between: tuple[str, str] | None
    readers: dict[str, tuple[str, str, Callable[[Reading], Any]]]
    required: tuple[tuple[str, str], ...]


_plans: dict[type[Op], _Plan] = {}


def _plan(op: type[Op]) -> _Plan:
    plan = _plans.get(op)
    if plan is None:
        specs = op.attributes()
        between = [(s.kind, s.field) for s in specs if s.kind in BETWEEN_PARENTHESES]
        written = [s for s in specs if s.kind not in BETWEEN_PARENTHESES]
        plan = _plans[op] = _Plan(
            between[0] if between else None,
            {
                name: (s.field, s.text, KIND_TEXTS[kind].read)
                for s in written
                for name, kind in ((s.text, s.kind), *([s.also] if s.also else []))
            },
            tuple((s.field, s.text) for s in written if s.required),
        )
    return plan


@dataclass(slots=True)
class _Draft:
    """An instruction under construction; offsets: of its parts in the text."""

    name: str
    start: int
    offsets: dict[str, tuple[int, int]]
    opcode: str = ""
    shape: Shape | None = None
    operands: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)


class InstructionReader:
    """Reads instructions into the scope at hand; also the context (`Reading`) in which attribute values are read.

    computations: those defined so far, by name, in text order; inline and async ones are added as they are met.
    """

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.computations: dict[str, Computation] = {}
        self._scope = Scope("")
        self._depth = 0
        self._names = FreshNames(lexer.text)
        self._operands = OperandReader(lexer, self._names, self._read_nested)
        self._printed_lines = PrintedLines(lexer)
        self._ops = op_classes()

    def read_body(self, name: str, start: int) -> Computation:
        """`{ instructions }`."""
        lexer = self.lexer
        at(name)
        outer, self._scope = self._scope, Scope(name)
        opened = lexer.skip()
        lexer.expect("{", "'{' and the computation's instructions")
        while not lexer.accept("}"):
            if lexer.pos >= len(lexer.text):
                raise lexer.error(
                    "expected the matching '}' of this computation, found the end of the text", opened, opened + 1
                )
            self._read_instruction()
        computation = self._finish(self._scope, start, lexer.pos)
        self._scope = outer
        return computation

    def _finish(self, scope: Scope, start: int, end: int) -> Computation:
        if not scope.instructions:
            raise self.lexer.error(f"expected at least one instruction in computation {scope.name!r}", start, end)
        self._check_parameters(scope.instructions.values())
        return Computation(
            scope.name,
            tuple(scope.instructions.values()),
            scope.root or next(reversed(scope.instructions)),
            span=self.lexer.lines.span(start, end),
        )

    def _check_parameters(self, instructions: Iterable[Instruction]) -> None:
        parameters = {}
        for instruction in instructions:
            if not instruction.op.role.is_parameter:
                continue
            number: int = instruction.op.number  # type: ignore[attr-defined]
            if number in parameters:
                raise self._violation(instruction, f"parameter.number: parameter({number}) is given twice")
            parameters[number] = instruction
        for number, instruction in parameters.items():
            if number >= len(parameters):
                raise self._violation(
                    instruction,
                    f"parameter.number: {len(parameters)} parameters have the numbers 0 to {len(parameters) - 1}, "
                    f"found {number}",
                )

    def _violation(self, instruction: Instruction, message: str) -> VerificationError:
        span = instruction.attribute_spans.get("operands") or instruction.span
        assert span is not None
        return VerificationError(message, self.lexer.locate(span))

    def read_single_instruction(self, name: str) -> Computation:
        """A computation of that name around one instruction; operands that carry a shape become its parameters."""
        lexer = self.lexer
        self._scope = scope = Scope(name, invents=True)
        if _HEAD.match(lexer.text, lexer.pos):
            self._read_instruction()
        else:
            scope.add(self.read_right_hand_side(None, lexer.pos, nested=False))
        return self._finish(scope, 0, lexer.pos)

    # --- instructions -------------------------------------------------------------------------------------------

    def _read_instruction(self) -> None:
        """`[ROOT] name = ...`, added to the scope."""
        lexer, scope = self.lexer, self._scope
        if self._printed_lines.read(scope):
            return
        match = _HEAD.match(lexer.text, lexer.pos)
        if match is None:
            lexer.accept_word("ROOT")
            lexer.name("an instruction, as in `name = shape opcode(operands)`, or '}'")
            raise lexer.expected("'=' after the instruction's name")
        is_root, quoted_name, plain_name = match.groups()
        name = quoted_name or plain_name
        start = match.start(2) - 1 if quoted_name else match.start(3)
        if name in scope.instructions:
            raise lexer.error(
                f"instruction {name!r} is defined twice in computation {scope.name!r}", start, match.end() - 1
            )
        if is_root and scope.root is not None:
            raise lexer.error(f"a second ROOT in computation {scope.name!r}", match.start(1), match.end(1))
        line, count = lexer.pos, len(self.computations)
        lexer.pos = match.end()
        instruction = self.read_right_hand_side(name, start, nested=False)
        scope.add(instruction)
        if is_root:
            scope.root = name
        if len(self.computations) == count:
            self._printed_lines.learn(line, instruction)

    def read_right_hand_side(self, name: str | None, start: int, nested: bool) -> Instruction:
        """`[shape] opcode(operands)[, attributes]`; nested ones (operands) have no attributes."""
        lexer = self.lexer
        text = lexer.text
        offsets: dict[str, tuple[int, int]] = {}
        match = _PRINTED.match(text, lexer.pos)
        shape = None if match is None else known_shape(match.group(1))
        if match is not None and shape is not None:
            offsets["shape"] = match.span(1)
        else:
            at = lexer.skip()
            if starts_shape(lexer):
                shape = read_shape(lexer)
                offsets["shape"] = at, lexer.pos
            match = _OPCODE.match(text, lexer.pos)
            if match is None:
                raise self._no_opcode(shape)
        opcode = match.group("opcode")
        offsets["opcode"] = match.span("opcode")
        if name is None:
            name = self._names.instruction(opcode)
        else:
            offsets["name"] = start, start + len(name) + (text[start] == "%")
        lexer.pos = match.end()
        draft = _Draft(name, start, offsets, opcode, shape)
        op = self._ops.get(opcode)
        sugar = sugar_of(opcode) if op is None else None
        if op is None and sugar is None:
            error = lexer.error(f"HLO has no opcode {opcode!r}", *match.span("opcode"))
            raise with_similar_opcode(error, opcode)
        read_as = op or sugar.read_as  # type: ignore[union-attr]
        plan = _plan(read_as)
        self._read_between(draft, plan, match.end() - 1)
        if not nested:
            self._read_attributes(draft, plan)
        if sugar is not None:
            return self._desugar(draft, sugar)
        return self._build(draft, read_as)

    def _no_opcode(self, shape: Shape | None) -> DistxlaError:
        lexer = self.lexer
        lexer.skip()
        if shape is None and (lexer.at("(") or not lexer.at_end()):
            match = _FIRST_WORD.match(lexer.text, lexer.pos)
            if match is None:
                return lexer.expected("a shape or an opcode")
            if lexer.text.startswith("[", match.end()):
                return lexer.error(f"expected a shape, found element type {match.group()!r}", *match.span())
            lexer.pos = match.end()
            return lexer.expected(f"'(' after opcode {match.group()!r}")
        match = _FIRST_WORD.match(lexer.text, lexer.pos)
        if match is None:
            return lexer.expected("an opcode")
        lexer.pos = match.end()
        return lexer.expected(f"'(' after opcode {match.group()!r}")

    def _read_between(self, draft: _Draft, plan: _Plan, start: int) -> None:
        """The text between the parentheses, the closing one included; `start` is the opening one."""
        lexer = self.lexer
        between = plan.between
        if between is None:
            draft.operands = self._operands.read(self._scope)
        else:
            kind, field_name = between
            if draft.shape is None:
                raise self._shape_needed(draft)
            if kind == "number":
                draft.values[field_name] = lexer.integer("the number of a parameter", 0, 2**31)
            else:
                draft.values[field_name] = read_literal(lexer, draft.shape)
            lexer.expect(")")
        draft.offsets["operands"] = start, lexer.pos

    def _read_nested(self, start: int, other: str) -> Instruction:
        """An operand that is itself an instruction. other: what else may stand here, for the error."""
        lexer = self.lexer
        if not starts_shape(lexer) and not _OPCODE.match(lexer.text, lexer.pos):
            raise lexer.expected(f"an operand{other}")
        if self._depth >= MAX_DEPTH:
            raise lexer.error(f"instructions are nested deeper than {MAX_DEPTH}", start, start + 1)
        self._depth += 1
        instruction = self.read_right_hand_side(None, start, nested=True)
        self._depth -= 1
        return instruction

    # --- attributes ---------------------------------------------------------------------------------------------

    def _read_attributes(self, draft: _Draft, plan: _Plan) -> None:
        lexer = self.lexer
        readers = plan.readers
        while True:
            match = _ATTRIBUTE.match(lexer.text, lexer.pos)
            if match is None:
                if lexer.accept(","):
                    lexer.word("an attribute, as in `name=value`")
                    raise lexer.expected("'=' after the attribute's name")
                return
            name = match.group(1)
            start = match.start(1)
            if name in draft.offsets:
                raise lexer.error(f"attribute {name!r} is given twice", *match.span(1))
            lexer.pos = match.end()
            if name in readers:
                field_name, text_name, read = readers[name]
                if field_name in draft.values:
                    raise lexer.error(f"{name!r} says again what another attribute says here", *match.span(1))
                draft.values[field_name] = read(self)
                draft.offsets[text_name] = start, lexer.pos
            elif name in ANNOTATIONS:
                read_annotation(lexer, name, draft.annotations)
            else:
                raise lexer.error(
                    f"{draft.opcode} has no attribute {name!r}, only {', '.join(sorted([*readers, *ANNOTATIONS]))}",
                    *match.span(1),
                )
            draft.offsets[name] = start, lexer.pos

    def called_computation(self) -> str:
        """A computation's name, or an inline computation `{...}`, which gets a fresh name."""
        lexer = self.lexer
        start = lexer.skip()
        if not lexer.at("{"):
            name = lexer.name("a computation's name or '{'")
            if name not in self.computations:
                raise lexer.error(f"expected the name of a computation defined above, found {name!r}", start)
            return name
        if self._depth >= MAX_DEPTH // 2:
            raise lexer.error(f"computations are nested deeper than {MAX_DEPTH // 2}", start, start + 1)
        self._depth += 1
        name = self._names.computation("region")
        self.computations[name] = self.read_body(name, start)
        self._depth -= 1
        return name

    # --- instructions from drafts -------------------------------------------------------------------------------

    def _shape_needed(self, draft: _Draft) -> DistxlaError:
        start, end = draft.offsets["opcode"]
        return self.lexer.error(
            f"expected the result's shape before {draft.opcode}, which can't be inferred", start, end
        )

    def _build(self, draft: _Draft, op_type: type[Op], span_end: int | None = None) -> Instruction:
        lexer = self.lexer
        for field_name, text_name in _plan(op_type).required:
            if field_name not in draft.values:
                raise (
                    lexer.expected(f"attribute {text_name}= of {draft.opcode}")
                    if lexer.at_end()
                    else lexer.error(f"{draft.opcode} needs attribute {text_name}=", *draft.offsets["opcode"])
                )
        try:
            op = op_type(**draft.values)
        except RuleViolation as violation:
            raise self._located(draft, violation) from violation
        wanted, count = op.operand_count, len(draft.operands)
        if not wanted.allows(count):
            operands = "operand" if wanted.least == 1 else "operands"
            raise lexer.violation(
                f"{draft.opcode}.operands: expected {wanted} {operands}, found {count}", *draft.offsets["operands"]
            )
        known = self._scope.instructions
        for name in draft.annotations.get("control_predecessors", ()):
            if name not in known:
                raise lexer.error(
                    f"expected the name of an instruction defined above, found {name!r}",
                    *draft.offsets["control-predecessors"],
                )
        return Instruction(
            draft.name,
            draft.shape if draft.shape is not None else self._infer_shape(draft, op),
            op,
            draft.operands,
            span=lexer.lines.span(draft.start, lexer.pos if span_end is None else span_end),
            attribute_spans=Spans(lexer.lines, draft.offsets),
            **draft.annotations,
        )

    def _infer_shape(self, draft: _Draft, op: Op) -> Shape:
        if op.needs_shape:
            raise self._shape_needed(draft)
        known = self._scope.instructions
        try:
            shape = op.inferred_result([known[name].shape for name in draft.operands], self._program_shape)
        except RuleViolation as violation:
            raise self._located(draft, violation) from violation
        if shape is None:
            raise self._shape_needed(draft)
        return shape

    def _located(self, draft: _Draft, violation: RuleViolation) -> VerificationError:
        start, end = draft.offsets.get(violation.at or "", (draft.start, self.lexer.pos))
        return self.lexer.violation(violation.message, start, end)

    def _program_shape(self, computation: str) -> ProgramShape:
        return self.computations[computation].program_shape

    def _desugar(self, draft: _Draft, sugar: Sugar) -> Instruction:
        """`<opcode>-start` and so on: async-start around a computation that holds the opcode."""
        lexer = self.lexer
        if draft.shape is None:
            raise self._shape_needed(draft)
        async_class = op_class(sugar.async_opcode)
        own = _plan(async_class).readers
        values = {own[n][0]: draft.values.pop(own[n][0]) for n in sugar.own_attributes if own[n][0] in draft.values}
        if sugar.wraps:
            elements = draft.shape.elements or ()
            if len(elements) < 2 or not elements[0].is_tuple or len(elements[0].elements or ()) != len(draft.operands):
                raise lexer.violation(
                    f"{draft.opcode}.shape: expected ((operands), result, ...) as the shape, "
                    f"found {print_shape(draft.shape, False)}",
                    *draft.offsets["shape"],
                )
            values["calls"] = self._wrap(draft, sugar, elements[1], values.get("async_execution_thread"))
        else:
            self._check_wrapped(draft, sugar)
        draft.values = values
        return self._build(draft, async_class)

    def _check_wrapped(self, draft: _Draft, sugar: Sugar) -> None:
        """`<opcode>-done` ends what `<opcode>-start` began; an operand of another kind is left to the verifier."""
        known = self._scope.instructions
        start = known[draft.operands[0]] if draft.operands else None
        while start is not None and start.op.start_done.completes and start.op.start_done.starts_pair:
            start = known[start.operands[0]]
        calls = getattr(start.op, "calls", None) if start is not None and start.op.start_done.starts_pair else None
        if start is None or calls is None:
            return
        wrapped = self.computations[calls].root_instruction.opcode
        if wrapped != sugar.wrapped:
            raise self.lexer.violation(
                f"{sugar.async_opcode}.pair: {draft.opcode} needs a start of {sugar.wrapped}, "
                f"{start.name} begins {wrapped}",
                *draft.offsets["opcode"],
            )

    def _wrap(self, draft: _Draft, sugar: Sugar, result: Shape, thread: str | None) -> str:
        """The computation that holds the wrapped opcode alone; returns its name."""
        name = self._names.computation(f"async_{sugar.wrapped}")
        outer, self._scope = self._scope, Scope(name)
        end = self.lexer.pos
        parameter = op_class("parameter")
        for number, operand in enumerate(draft.operands):
            shape = outer.instructions[operand].shape
            self._scope.add(Instruction(f"param_{number}", shape, parameter(number=number)))  # type: ignore[call-arg]
        inner = _Draft(sugar.wrapped, draft.start, draft.offsets, sugar.wrapped, result, values=draft.values)
        # XLA copies the attributes of the wrapped op to the start, and prints them there alone
        inner.annotations = {key: text for key, text in draft.annotations.items() if key == "backend_config"}
        inner.operands = tuple(self._scope.instructions)
        self._scope.add(self._build(inner, op_class(sugar.wrapped), end))
        wrapped = self._finish(self._scope, draft.start, end)
        self.computations[name] = Computation(name, wrapped.instructions, wrapped.root, thread, wrapped.span)
        self._scope = outer
        return name
