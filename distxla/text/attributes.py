"""One reader and one writer for every kind of attribute of an op (`distxla.ir.attribute.KINDS`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from distxla.ir.shape import Shape
from distxla.text import groups, windows
from distxla.text.lexer import BLANK, Lexer, quoted
from distxla.text.literals import read_literal, starts_literal
from distxla.text.shapes import print_shape, read_shape, starts_shape

_PLAIN_INTS = re.compile(rf"{BLANK}\{{((?:[0-9]{{1,18}}(?:,[0-9]{{1,18}})*)?)\}}")
_BARE = re.compile(rf"{BLANK}([^\s,(){{}}\[\]\"]+)")


class Reading(Protocol):
    """The parser's interface for readers."""

    lexer: Lexer

    def called_computation(self) -> str:
        """A computation's name, or an inline computation in braces; the name in the module."""


Aliasing = tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]


class AttributeKind(NamedTuple):
    """read: from the position after `=`.  write: the text after `=`."""

    read: Callable[[Reading], Any]
    write: Callable[[Any], str]


def _read_ints(reading: Reading) -> tuple[int, ...]:
    match = _PLAIN_INTS.match(reading.lexer.text, reading.lexer.pos)
    if match is None:
        return groups.read_ints(reading.lexer)
    reading.lexer.pos = match.end()
    digits = match.group(1)
    return tuple(map(int, digits.split(","))) if digits else ()


def _read_computations(reading: Reading) -> tuple[str, ...]:
    if not reading.lexer.at("{"):
        return (reading.called_computation(),)
    return tuple(reading.called_computation() for _ in reading.lexer.separated("{", "}", "a computation"))


def _read_pairs(reading: Reading) -> tuple[tuple[int, int], ...]:
    lexer = reading.lexer
    begin = lexer.skip()
    lists = groups.read_id_lists(lexer)
    if all(len(pair) == 2 for pair in lists):
        return lists  # type: ignore[return-value]
    lexer.pos = begin  # once more, to point at the one that is wrong
    for _ in lexer.separated("{", "}", "a pair"):
        start = lexer.skip()
        pair = groups.read_ints(lexer)
        if len(pair) != 2:
            raise lexer.error(f"expected a pair of integers, found {len(pair)} of them", start)
    raise AssertionError


def _read_precision(reading: Reading) -> tuple[str, ...]:
    lexer = reading.lexer
    return tuple(lexer.word("a precision") for _ in lexer.separated("{", "}", "a precision"))


def _read_aliasing(reading: Reading) -> Aliasing:
    """`{{0}: (1, {}), {1}: (0, {2})}`."""
    lexer = reading.lexer
    found: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
    for _ in lexer.separated("{", "}", "an alias"):
        output = groups.read_ints(lexer)
        lexer.expect(":")
        lexer.expect("(")
        operand = lexer.integer("the number of an operand", 0)
        lexer.expect(",")
        index = groups.read_ints(lexer)
        lexer.expect(")")
        found.append((output, operand, index))
    return tuple(found)


def _write_aliasing(aliasing: Aliasing) -> str:
    parts = (f"{groups.print_ints(o)}: ({k}, {groups.print_ints(i)})" for o, k, i in aliasing)
    return "{" + ", ".join(parts) + "}"


def _read_shapes(reading: Reading) -> tuple[Shape, ...]:
    return tuple(read_shape(reading.lexer) for _ in reading.lexer.separated("{", "}", "a shape"))


def _write_shapes(shapes: tuple[Shape, ...]) -> str:
    return "{" + ", ".join(map(print_shape, shapes)) + "}"


def _read_comparison(reading: Reading) -> str:
    lexer = reading.lexer
    start = lexer.skip()
    word = lexer.word("a comparison type")
    if word not in ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"):
        raise lexer.error(f"expected FLOAT, TOTALORDER, SIGNED or UNSIGNED, found {word!r}", start)
    return word


def _read_order(reading: Reading) -> str:
    """The comparison that an order is: of floats that of IEEE 754 is PARTIAL."""
    lexer = reading.lexer
    start = lexer.skip()
    word = lexer.word("an order")
    if word not in ("TOTAL", "PARTIAL"):
        raise lexer.error(f"expected TOTAL or PARTIAL, found {word!r}", start)
    return "TOTALORDER" if word == "TOTAL" else "FLOAT"


def _read_raw(reading: Reading) -> str:
    """A value that stays text: something in brackets, a string, a word, a number, a shape and perhaps its literal."""
    lexer = reading.lexer
    start = lexer.skip()
    if lexer.at("("):
        lexer.balanced("(")
    elif starts_shape(lexer):
        shape = read_shape(lexer)
        if starts_literal(lexer):
            read_literal(lexer, shape)
    elif lexer.at("{"):
        lexer.balanced()
    elif lexer.at('"'):
        lexer.string()
    else:
        match = _BARE.match(lexer.text, lexer.pos)
        if match is None:
            raise lexer.expected("a value")
        lexer.pos = match.end()
    return lexer.text[start : lexer.pos]


KIND_TEXTS: dict[str, AttributeKind] = {
    "int": AttributeKind(lambda r: r.lexer.integer(), str),
    "float": AttributeKind(lambda r: r.lexer.number(), lambda value: repr(float(value))),
    "bool": AttributeKind(lambda r: r.lexer.boolean(), lambda value: "true" if value else "false"),
    "string": AttributeKind(lambda r: r.lexer.string(), quoted),
    "word": AttributeKind(lambda r: r.lexer.word("a word"), str),
    "int_list": AttributeKind(_read_ints, groups.print_ints),
    "computation": AttributeKind(lambda r: r.called_computation(), lambda name: f"%{name}"),
    "computation_list": AttributeKind(
        _read_computations, lambda names: "{" + ", ".join(f"%{name}" for name in names) + "}"
    ),
    "window": AttributeKind(lambda r: windows.read_window(r.lexer), windows.print_window),
    "dim_labels": AttributeKind(lambda r: windows.read_dim_labels(r.lexer), windows.print_dim_labels),
    "padding": AttributeKind(lambda r: windows.read_padding(r.lexer), windows.print_padding),
    "slice": AttributeKind(lambda r: windows.read_slice(r.lexer), windows.print_slice),
    "replica_groups": AttributeKind(lambda r: groups.read_replica_groups(r.lexer), groups.print_replica_groups),
    "group_mode": AttributeKind(lambda r: groups.read_group_mode(r.lexer), groups.print_group_mode),
    "pairs": AttributeKind(_read_pairs, groups.print_int_lists),
    "int_list_list": AttributeKind(lambda r: groups.read_int_lists(r.lexer), groups.print_int_lists),
    "precision": AttributeKind(_read_precision, lambda words: "{" + ",".join(words) + "}"),
    "aliasing": AttributeKind(_read_aliasing, _write_aliasing),
    "shape_list": AttributeKind(_read_shapes, _write_shapes),
    "comparison": AttributeKind(_read_comparison, str),
    "order": AttributeKind(_read_order, str),
    "domain": AttributeKind(lambda r: r.lexer.balanced(), str),
    "raw": AttributeKind(_read_raw, str),
}
BETWEEN_PARENTHESES = ("number", "literal")
