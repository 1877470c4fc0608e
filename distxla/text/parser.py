"""Reads HLO text: the module's header and computations. The files beside this one read their contents."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from distxla.errors import DistxlaError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import FrameTables, Module
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.support.registry import op_class
from distxla.text.annotations import read_metadata
from distxla.text.header import Header, read_header, read_tables
from distxla.text.instructions import InstructionReader
from distxla.text.lexer import BLANK, NAME, WORD, Lexer
from distxla.text.other_formats import BYTE_ORDER_MARK, decoded, format_of_text, with_notes
from distxla.text.shapes import read_program_shape

_BODY = re.compile(
    rf"{BLANK}(?:ENTRY(?=[\s%{{])|(?:%{NAME}|{WORD}){BLANK}"
    rf"(?:\{{|\({BLANK}(?:\){BLANK}->|%?{NAME}{BLANK}:)))"
)
_METADATA = re.compile(r"metadata=(?=\{)")
_ENTRY_NAME: Final = "entry"


def parse_module(text: str | bytes, file: str = "<string>") -> Module:
    """The module that `text` describes, bytes in UTF-8; `file` is the name used in messages.

    Raises HloSyntaxError where the text is not HLO and VerificationError where an instruction breaks a rule of its
    opcode that reading depends on (its operands' number, an omitted result shape). Nothing else but
    ArgumentError for bytes that are no text. MLIR and protocol buffers are recognised: notes of the error say how to
    get HLO text of them.
    """
    text = decoded(text, file) if isinstance(text, bytes) else text.removeprefix(BYTE_ORDER_MARK)
    with _without_collections():
        return _Parser(text, file).module()


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collections would take a third of a long text's time, and find nothing: what is read is kept."""
    was_on = gc.isenabled()
    try:  # before the collector is off: a signal handler may raise behind each call
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()


class _Parser:
    """One module being read."""

    def __init__(self, text: str, file: str) -> None:
        self._lexer = Lexer(text, file)
        self._lexer.frame_of = self._frame_of
        self._frames = FrameTables()
        self._reader = InstructionReader(self._lexer)
        self._entry: str | None = None

    def module(self) -> Module:
        lexer = self._lexer
        if lexer.accept_word("HloModule"):
            header = read_header(lexer)
            self._frames = read_tables(lexer)
            self._read_computations()
        elif (other := format_of_text(lexer.text, lexer.file)) is not None:
            start = lexer.skip()
            raise with_notes(lexer.error(f"expected HLO text, found {other.what}", start, start + 1), other)
        elif _BODY.match(lexer.text, lexer.pos):
            self._read_computations()
            header = Header(f"module_{self._entry or next(reversed(self._reader.computations))}")
        else:
            self._read_single_instruction()
            header = Header(f"module_{_ENTRY_NAME}")
        entry = self._entry or next(reversed(self._reader.computations))
        return Module(
            name=header.name,
            computations=tuple(self._reader.computations.values()),
            entry=entry,
            is_scheduled=header.is_scheduled,
            replica_count=header.replica_count,
            num_partitions=header.num_partitions,
            entry_layout=header.entry_layout,
            header=tuple(header.other),
            frames=self._frames,
            source=lexer.source,
        )

    def _read_computations(self) -> None:
        lexer = self._lexer
        while not lexer.at_end():
            is_entry = lexer.accept_word("ENTRY")
            start = lexer.skip()
            name = lexer.name("a computation's name" + ("" if is_entry else ", ENTRY or the end of the text"))
            if lexer.text.startswith(":", lexer.pos):
                lexer.pos += 1
            if name in self._reader.computations:
                raise lexer.error(f"computation {name!r} is defined twice", start)
            if is_entry and self._entry is not None:
                raise lexer.error(f"a second ENTRY; the first one is {self._entry!r}", start)
            signature: ProgramShape | None = None
            result_at = start, start + 1
            if lexer.at("("):
                result_at = lexer.pos, lexer.pos
                signature = read_program_shape(lexer)
                result_at = result_at[0], lexer.pos
            computation = self._reader.read_body(name, start)
            if signature is not None and not signature.result.compatible(computation.root_instruction.shape):
                raise lexer.violation(
                    f"computation.signature: the result of {name} is {computation.root_instruction.shape}, "
                    f"its signature says {signature.result}",
                    *result_at,
                )
            if lexer.accept(","):
                if not lexer.accept_word("execution_thread"):
                    raise lexer.expected("execution_thread=")
                lexer.expect("=")
                thread = lexer.string()
                computation = Computation(name, computation.instructions, computation.root, thread, computation.span)
            self._reader.computations[name] = computation
            if is_entry:
                self._entry = name
        if not self._reader.computations:
            raise lexer.expected("a computation")

    def _read_single_instruction(self) -> None:
        lexer = self._lexer
        if lexer.at_end():
            raise lexer.expected("HloModule, a computation or an instruction")
        computation = self._reader.read_single_instruction(_ENTRY_NAME)
        if not lexer.at_end():
            raise lexer.expected("',' or the end of the text")
        self._reader.computations[_ENTRY_NAME] = computation

    def _frame_of(self, line: str) -> str | None:
        """The user's source line that the metadata in a line of text names."""
        match = _METADATA.search(line)
        if match is None:
            return None
        lexer = Lexer(line)
        lexer.pos = match.end()
        try:
            metadata = read_metadata(lexer)
        except DistxlaError:
            return None
        probe = Instruction("", Shape.token(), op_class("after-all")(), metadata=metadata)
        return Module("", (), "", frames=self._frames).frame(probe)
