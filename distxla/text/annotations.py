"""The attributes that any instruction may carry: metadata, frontend_attributes, backend_config, sharding and others."""

from __future__ import annotations

import re
from typing import Any, Final

from distxla.ir.instruction import Instruction, Metadata
from distxla.text.groups import print_ints, read_ints
from distxla.text.lexer import BLANK, Lexer, quoted, string_or_dict
from distxla.text.shardings import read_sharding

ANNOTATIONS: Final = (
    "backend_config",
    "control-predecessors",
    "frontend_attributes",
    "metadata",
    "origin",
    "parameter_replication",
    "sharding",
    "statistics",
)
# Parts of metadata={...}; the last four are no longer written by XLA.
METADATA: Final = {
    "op_type": "string",
    "op_name": "string",
    "source_file": "string",
    "source_line": "int",
    "source_end_line": "int",
    "source_column": "int",
    "source_end_column": "int",
    "profile_type": "int_list",
    "deduplicated_name": "string",
    "scheduling_name": "string",
    "stack_frame_id": "int",
    "metadata_payload": "raw",
    "preserve_layout": "bool",
    "size_of_generated_code_in_bytes": "int",
    "size_of_memory_working_set_in_bytes": "int",
    "logical_creation_pass_id": "int",
}
_FLAT = re.compile(r'\{(?:[^"{}/\\]++|"[^"\\\n]*+")*\}')
# as XLA prints it: parts in this order, in ASCII and without escapes
_PRINTED_PARTS: Final = (
    "op_type",
    "op_name",
    "source_file",
    *(name for name, kind in METADATA.items() if kind == "int"),
)
_VALUES: Final = {"string": r'"([^"\\]*)"', "int": "([0-9]{1,18})"}
_PRINTED = re.compile(r"\{" + "".join(f"(?:{name}={_VALUES[METADATA[name]]} ?)?" for name in _PRINTED_PARTS) + r"\}")
_REPLICATION = re.compile(r"\{\s*(?:(?:true|false)(?:\s*,\s*(?:true|false))*)?\s*\}")
_STATISTICS = re.compile(rf"\{{{BLANK}(?:[\w.\-]+={BLANK}-?[\w.+\-]+(?:{BLANK},{BLANK}|(?={BLANK}\}})))*{BLANK}\}}")
_JSON_VALUE = re.compile(rf"{BLANK}\{{")

_cache: dict[str, Metadata] = {}


def read_annotation(lexer: Lexer, name: str, fields: dict[str, Any]) -> None:
    """Read the value of annotation `name` into the keyword arguments of an Instruction."""
    if name == "metadata":
        fields["metadata"] = read_metadata(lexer)
    elif name == "sharding":
        fields["sharding"] = read_sharding(lexer)
    elif name == "frontend_attributes":
        fields["frontend_attributes"] = read_frontend_attributes(lexer)
    elif name == "backend_config":
        fields["backend_config"] = _string_or_dict(lexer)
    elif name == "control-predecessors":
        fields["control_predecessors"] = tuple(
            lexer.name("an instruction's name") for _ in lexer.separated("{", "}", "an instruction's name")
        )
    else:
        fields["other"] = (*fields.get("other", ()), (name, _read_other(lexer, name)))


def _string_or_dict(lexer: Lexer) -> str:
    """A string without its quotes, or a JSON dictionary, unchanged."""
    if _JSON_VALUE.match(lexer.text, lexer.pos):
        return lexer.json_dict()
    return lexer.string("a string or a JSON dictionary")


def _read_other(lexer: Lexer, name: str) -> str:
    start = lexer.skip()
    pattern, what = {
        "parameter_replication": (_REPLICATION, "{true,false,...}"),
        "statistics": (_STATISTICS, "{name=number,...}"),
    }.get(name, (None, ""))
    if pattern is None:
        return lexer.balanced()
    match = pattern.match(lexer.text, start)
    if match is None:
        raise lexer.expected(what)
    lexer.pos = match.end()
    return match.group()


def read_frontend_attributes(lexer: Lexer) -> tuple[tuple[str, str], ...]:
    """`{key="value",key={json}}`."""
    found: dict[str, str] = {}
    for _ in lexer.separated("{", "}", "a frontend attribute"):
        start = lexer.skip()
        key = lexer.word("the name of a frontend attribute")
        if key in found:
            raise lexer.error(f"frontend attribute {key!r} is given twice", start)
        lexer.expect("=")
        found[key] = _string_or_dict(lexer)
    return tuple(found.items())


def print_frontend_attributes(attributes: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f"{key}={string_or_dict(value)}" for key, value in attributes) + "}"


def read_metadata(lexer: Lexer) -> Metadata:
    """`{op_type="add" op_name="jit(f)/add" stack_frame_id=3}`; blanks or commas between the parts."""
    flat = _FLAT.match(lexer.text, lexer.skip())
    if flat is None:
        return _read_parts(lexer)
    text = flat.group()
    metadata = _cache.get(text)
    if metadata is None:
        metadata = _printed(text)
        if metadata is None:
            metadata = _read_parts(lexer)
            if flat.end() != lexer.pos:
                return metadata
        _keep(text, metadata)
    lexer.pos = flat.end()
    return metadata


def printed_metadata(text: str) -> Metadata | None:
    """Metadata from its text, `{...}` without braces inside; None where it has to be read in detail."""
    metadata = _cache.get(text)
    if metadata is None:
        metadata = _printed(text)
        if metadata is not None:
            _keep(text, metadata)
    return metadata


def _keep(text: str, metadata: Metadata) -> None:
    if len(_cache) > 10_000:
        _cache.clear()
    _cache[text] = metadata


def _printed(text: str) -> Metadata | None:
    """Metadata as XLA prints it; None for any other, which is then read in detail."""
    match = _PRINTED.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    found = [(name, part) for name, part in zip(_PRINTED_PARTS, match.groups()) if part is not None]
    return Metadata(tuple((name, int(part) if METADATA[name] == "int" else part) for name, part in found))


def _read_parts(lexer: Lexer) -> Metadata:
    lexer.expect("{")
    found: dict[str, Any] = {}
    while not lexer.accept("}"):
        at = lexer.skip()
        key = lexer.word("a part of the metadata or '}'")
        if key not in METADATA:
            raise lexer.error(f"expected a part of the metadata (one of {', '.join(METADATA)}), found {key!r}", at)
        if key in found:
            raise lexer.error(f"the metadata has {key!r} twice", at)
        lexer.expect("=")
        found[key] = _read_metadata_value(lexer, METADATA[key])
        lexer.accept(",")
    return Metadata(tuple(found.items()))


def _read_metadata_value(lexer: Lexer, kind: str) -> Any:
    if kind == "string":
        return lexer.string()
    if kind == "int":
        return lexer.integer()
    if kind == "bool":
        return lexer.boolean()
    if kind == "int_list":
        return read_ints(lexer)
    return lexer.string() if lexer.at('"') else lexer.balanced()


def _print_metadata_value(key: str, value: Any) -> str:
    kind = METADATA.get(key)
    if kind == "raw":
        return string_or_dict(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return print_ints(value) if isinstance(value, tuple) else str(value)


def print_metadata(metadata: Metadata) -> str:
    return "{" + " ".join(f"{key}={_print_metadata_value(key, value)}" for key, value in metadata.fields) + "}"


def print_annotations(instruction: Instruction) -> list[str]:
    """`name=value` of every annotation the instruction has."""
    parts: list[str] = []
    if instruction.sharding is not None:
        parts.append(f"sharding={instruction.sharding.text}")
    if instruction.frontend_attributes:
        parts.append("frontend_attributes=" + print_frontend_attributes(instruction.frontend_attributes))
    if instruction.control_predecessors:
        names = ", ".join(f"%{name}" for name in instruction.control_predecessors)
        parts.append(f"control-predecessors={{{names}}}")
    if instruction.metadata is not None:
        parts.append("metadata=" + print_metadata(instruction.metadata))
    parts += [f"{name}={text}" for name, text in instruction.other]
    if instruction.backend_config is not None:
        parts.append("backend_config=" + string_or_dict(instruction.backend_config))
    return parts
