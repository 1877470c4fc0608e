"""The first line of a module and the tables of the user's source lines after it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from distxla.ir.module import FileLocation, FrameTables, Module, StackFrame
from distxla.ir.shape import ProgramShape
from distxla.lazy_dataclass import dataclass, field
from distxla.text.annotations import print_frontend_attributes, read_frontend_attributes
from distxla.text.groups import read_ints
from distxla.text.lexer import BLANK, MAX_DIGITS, Lexer, as_name, quoted
from distxla.text.shapes import print_shape, read_program_shape

ATTRIBUTES: Final = (
    "alias_passthrough_params",
    "allow_spmd_sharding_propagation_to_output",
    "allow_spmd_sharding_propagation_to_parameters",
    "buffer_donor",
    "entry_computation_layout",
    "frontend_attributes",
    "input_output_alias",
    "is_scheduled",
    "num_partitions",
    "origin_recovery_table",
    "replica_count",
)
_BOOLEANS = re.compile(rf"{BLANK}(\{{\s*(?:(?:true|false)(?:\s*,\s*(?:true|false))*)?\s*\}}|(?:true|false)\b)")
_TABLE = re.compile(rf"{BLANK}(FileNames|FunctionNames|FileLocations|StackFrames)(?!{BLANK}[(\{{=])(?![\w.\-])")
_TABLE_WITH_ROWS = re.compile(rf"{BLANK}(FileNames|FunctionNames|FileLocations|StackFrames)(?=\s*\n?\s*[0-9])")
_ROW_ID = re.compile(rf"{BLANK}([0-9]+)(?=\s)")
_ROW = re.compile(r"\s*\{[ \t]*((?:[a-z_]+=[0-9]{1,9}(?:[ \t,]+|(?=\})))*)\}")
_Row = TypeVar("_Row", FileLocation, StackFrame)


@dataclass(slots=True)
class Header:
    """The header's content, as Module takes it."""

    name: str
    is_scheduled: bool = False
    replica_count: int | None = None
    num_partitions: int | None = None
    entry_layout: ProgramShape | None = None
    other: list[tuple[str, str]] = field(default_factory=list)


def read_header(lexer: Lexer) -> Header:
    """`HloModule name, attribute=value, ...` or `HloModule name: ...`; the word HloModule has been read."""
    header = Header(lexer.name("the module's name"))
    if lexer.text.startswith(":", lexer.pos):
        lexer.pos += 1
    seen: set[str] = set()
    while lexer.accept(","):
        start = lexer.skip()
        name = lexer.word("a module attribute")
        if name not in ATTRIBUTES:
            raise lexer.error(f"expected a module attribute (one of {', '.join(ATTRIBUTES)}), found {name!r}", start)
        if name in seen:
            raise lexer.error(f"module attribute {name!r} is given twice", start)
        seen.add(name)
        lexer.expect("=")
        _read_attribute(lexer, name, header)
    return header


def _read_attribute(lexer: Lexer, name: str, header: Header) -> None:
    if name == "is_scheduled":
        header.is_scheduled = lexer.boolean()
    elif name == "replica_count":
        header.replica_count = lexer.integer("a number of replicas", 0, 2**31) or None  # 0 says nothing
    elif name == "num_partitions":
        header.num_partitions = lexer.integer("a number of partitions", 0, 2**31) or None
    elif name == "entry_computation_layout":
        lexer.expect("{")
        header.entry_layout = read_program_shape(lexer)
        lexer.expect("}")
    else:
        header.other.append((name, _read_text(lexer, name)))


def _read_text(lexer: Lexer, name: str) -> str:
    """Attributes that stay text, after a look at their form."""
    start = lexer.skip()
    if name == "frontend_attributes":
        return print_frontend_attributes(read_frontend_attributes(lexer))
    if name == "alias_passthrough_params":
        return "true" if lexer.boolean() else "false"
    if name.startswith("allow_spmd_sharding_propagation"):
        match = _BOOLEANS.match(lexer.text, lexer.pos)
        if match is None:
            raise lexer.expected("true, false or {true,false,...}")
        lexer.pos = match.end()
        return match.group(1)
    if name == "origin_recovery_table":
        return lexer.balanced()
    for _ in lexer.separated("{", "}", "an entry"):
        if name == "input_output_alias":
            read_ints(lexer)
            lexer.expect(":")
        lexer.expect("(")
        lexer.integer("the number of a parameter", 0)
        lexer.expect(",")
        read_ints(lexer)
        if name == "input_output_alias" and lexer.accept(","):
            at = lexer.skip()
            if lexer.word("may-alias or must-alias") not in ("may-alias", "must-alias"):
                raise lexer.error("expected may-alias or must-alias", at)
        lexer.expect(")")
    return lexer.text[start : lexer.pos]


def read_tables(lexer: Lexer) -> FrameTables:
    """FileNames, FunctionNames, FileLocations and StackFrames, as many of them as follow the header."""
    found: dict[str, tuple[tuple[int, object], ...]] = {}
    while match := _TABLE_WITH_ROWS.match(lexer.text, lexer.pos) or _TABLE.match(lexer.text, lexer.pos):
        table = match.group(1)
        if table in found:
            raise lexer.error(f"table {table} is given twice", match.start(1), match.end(1))
        lexer.pos = match.end()
        rows: dict[int, object] = {}
        for row, start in _row_ids(lexer):
            if row in rows:
                raise lexer.error(f"table {table} has row {row} twice", start)
            if table in ("FileNames", "FunctionNames"):
                rows[row] = lexer.string()
            elif table == "FileLocations":
                rows[row] = _read_row(lexer, FileLocation)
            else:
                rows[row] = _read_row(lexer, StackFrame)
        found[table] = tuple(rows.items())
    return FrameTables(
        found.get("FileNames", ()),  # type: ignore[arg-type]
        found.get("FunctionNames", ()),  # type: ignore[arg-type]
        found.get("FileLocations", ()),  # type: ignore[arg-type]
        found.get("StackFrames", ()),  # type: ignore[arg-type]
    )


def _row_ids(lexer: Lexer) -> Iterator[tuple[int, int]]:
    """The number at the start of every row of a table, and its position."""
    while match := _ROW_ID.match(lexer.text, lexer.pos):
        if len(match.group(1)) > MAX_DIGITS:
            raise lexer.error("expected the number of a row", match.start(1), match.end(1))
        lexer.pos = match.end()
        yield int(match.group(1)), match.start(1)


def _read_row(lexer: Lexer, row_class: type[_Row]) -> _Row:
    """`{file_name_id=1 line=36}`."""
    match = _ROW.match(lexer.text, lexer.pos)
    if match is None:
        if lexer.at("{") and "}" not in lexer.text[lexer.pos :]:
            lexer.pos = len(lexer.text)  # the missing brace is at the end
        raise lexer.expected("a row such as {key=1 key=2}")
    values: dict[str, int] = {}
    for item in match.group(1).replace(",", " ").split():
        key, _, number = item.partition("=")
        if key in values or key not in row_class.__dataclass_fields__:
            allowed = ", ".join(row_class.__dataclass_fields__)
            raise lexer.error(f"expected each of {allowed} once, found {key!r}", match.start(1), match.end(1))
        values[key] = int(number)
    lexer.pos = match.end()
    return row_class(**values)


def print_header(module: Module) -> str:
    """The first line, then the tables if any has a row; ends with a newline."""
    parts = [f"HloModule {as_name(module.name)}"]
    if module.is_scheduled:
        parts.append("is_scheduled=true")
    if module.entry_layout is not None:
        parts.append(f"entry_computation_layout={{{print_program_shape(module.entry_layout)}}}")
    parts += [f"{name}={text}" for name, text in module.header]
    if module.replica_count is not None:
        parts.append(f"replica_count={module.replica_count}")
    if module.num_partitions is not None:
        parts.append(f"num_partitions={module.num_partitions}")
    return ", ".join(parts) + "\n" + _print_tables(module.frames)


def _print_tables(frames: FrameTables) -> str:
    if frames == FrameTables():
        return ""
    lines = ["", "FileNames", *(f"{row} {quoted(name)}" for row, name in frames.file_names)]
    lines += ["", "FunctionNames", *(f"{row} {quoted(name)}" for row, name in frames.function_names)]
    for title, rows in (("FileLocations", frames.file_locations), ("StackFrames", frames.stack_frames)):
        lines += ["", title]
        for row, values in rows:
            fields = " ".join(f"{key}={getattr(values, key)}" for key in type(values).__dataclass_fields__)
            lines.append(f"{row} {{{fields}}}")
    return "\n".join(lines) + "\n"


def print_program_shape(shape: ProgramShape, layouts: bool = True) -> str:
    """`(f32[2]{0}, s32[])->f32[2]{0}`."""
    parameters = ", ".join(print_shape(parameter, layouts) for parameter in shape.parameters)
    return f"({parameters})->{print_shape(shape.result, layouts)}"
