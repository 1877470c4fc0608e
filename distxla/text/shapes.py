"""Shapes and layouts as text: `f32[2,<=3]{1,0:T(8,128)S(1)}`, `(s32[], token[])`, `b(f32[2])`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from distxla.ir.element_type import ELEMENT_TYPES, ElementType
from distxla.ir.shape import UNBOUNDED, Layout, ProgramShape, Shape
from distxla.text.lexer import BLANK, MAX_DEPTH, Lexer

MAX_RANK: Final = 64
MAX_BYTES: Final = 2**62  # of one array: sizes and offsets must fit in 64 bits with room for sums

# `{` after a shape opens a layout only before an integer or `:`; elsewhere it opens a computation's body.
_ARRAY = re.compile(
    rf"{BLANK}([a-z][a-z0-9]*)\[([0-9,]*)\](\{{[0-9:][0-9,]*(?::[A-Za-z0-9,()*#:]*)?\}}(?![{{}}]))?(?!{BLANK}\{{[0-9:\s/])"
)
_TYPE = re.compile(rf"{BLANK}([a-z][a-z0-9]*)(?=[ \t\r\n]*\[)")
_SHAPE_START = re.compile(
    rf"{BLANK}(?:\(|b[ \t\r\n]*\(|(?:{'|'.join(sorted(ELEMENT_TYPES, key=len, reverse=True))})(?=[ \t\r\n]*\[))"
)
_BUFFER = re.compile(rf"{BLANK}b(?={BLANK}\()")
_LAYOUT_START = re.compile(rf"{BLANK}\{{(?={BLANK}[0-9:])")
_PROPERTY = re.compile(rf"{BLANK}(SC|[DTLESPM#*])(?=\()")

# XLA reads the properties of a layout in this order only.
_PROPERTY_ORDER: Final = ("D", "T", "L", "#", "*", "E", "S", "SC", "P", "M")

_cache: dict[str, Shape] = {}
known_shape = _cache.get  # the array shape that a text describes, if it has been read lately


def starts_shape(lexer: Lexer) -> bool:
    """Whether a shape is at the current position rather than an opcode or a name."""
    return _SHAPE_START.match(lexer.text, lexer.pos) is not None


def read_shape(lexer: Lexer, depth: int = 0) -> Shape:
    """Any shape, with its layout if it has one."""
    match = _ARRAY.match(lexer.text, lexer.pos)
    if match is not None:
        key = lexer.text[match.start(1) : match.end()]
        shape = _cache.get(key)
        if shape is None:
            shape = _read_array(lexer)
            if lexer.pos != match.end():
                return shape
            if len(_cache) > 10_000:
                _cache.clear()
            _cache[key] = shape
        lexer.pos = match.end()
        return shape
    if lexer.at("("):
        if depth >= MAX_DEPTH:
            raise lexer.error(f"tuples are nested deeper than {MAX_DEPTH}", lexer.pos, lexer.pos + 1)
        return Shape.tuple([read_shape(lexer, depth + 1) for _ in lexer.separated("(", ")", "a shape")])
    if _BUFFER.match(lexer.text, lexer.pos):
        return _read_buffer(lexer)
    return _read_array(lexer)


def _read_buffer(lexer: Lexer) -> Shape:
    """`b(f32[2,3]{1,0})`: an array that is changed in place."""
    lexer.expect("b")
    lexer.expect("(")
    start = lexer.skip()
    shape = _read_array(lexer)
    if not shape.is_array:
        raise lexer.error(f"expected an array shape in b(...), found {shape}", start)
    lexer.expect(")")
    return replace(shape, is_buffer=True)


def _read_array(lexer: Lexer) -> Shape:
    start = lexer.skip()
    match = _TYPE.match(lexer.text, start)
    if match is None:
        raise lexer.expected("a shape")
    if match.group(1) not in ELEMENT_TYPES:
        raise lexer.error(f"expected an element type, found {match.group(1)!r}", match.start(1), match.end(1))
    element_type = ELEMENT_TYPES[match.group(1)]
    lexer.pos = match.end()
    dims, dynamic = _read_dims(lexer)
    shape = Shape(element_type, tuple(dims), tuple(dynamic))
    _check_dimension_size(lexer, shape, element_type, start)
    if element_type.is_data and _LAYOUT_START.match(lexer.text, lexer.pos):
        layout = read_layout(lexer, len(dims))
        if dims or layout != Layout(()):  # a scalar's empty layout says nothing, and is not printed
            shape = Shape(element_type, shape.dims, shape.dynamic, layout)
    return shape


def _read_dims(lexer: Lexer) -> tuple[list[int], list[bool]]:
    dims: list[int] = []
    dynamic: list[bool] = []
    for _ in lexer.separated("[", "]", "a size"):
        if lexer.accept("?"):
            dims.append(UNBOUNDED)
            dynamic.append(True)
        else:
            dynamic.append(lexer.accept("<="))
            dims.append(lexer.integer("a size", 0))
    return dims, dynamic


def _check_dimension_size(lexer: Lexer, shape: Shape, element_type: ElementType, start: int) -> None:
    if not element_type.is_data and shape.dims:
        raise lexer.error(f"{element_type} has no dimensions", start)
    if shape.rank > MAX_RANK:
        raise lexer.error(f"expected at most {MAX_RANK} dimensions, found {shape.rank}", start)
    size = element_type.byte_size
    for dimension_size in shape.dims:
        size *= max(dimension_size, 1)
        if size > MAX_BYTES:
            raise lexer.error(f"an array of this shape is larger than {MAX_BYTES} bytes", start)


def read_layout(lexer: Lexer, rank: int) -> Layout:
    """`{1,0:T(8,128)(2,1)S(1)}` of an array of `rank` dimensions."""
    start = lexer.skip()
    lexer.expect("{")
    order: list[int] = []
    if not lexer.at(":") and not lexer.at("}"):
        order.append(lexer.integer("a dimension number", 0))
        while lexer.accept(","):
            order.append(lexer.integer("a dimension number", 0))
    if sorted(order) != list(range(rank)):
        raise lexer.error(f"expected a permutation of the {rank} dimensions as the layout, found {order}", start)
    found: dict[str, list[str]] = {}
    if lexer.accept(":"):
        while not lexer.at("}"):
            _read_property(lexer, found)
    lexer.expect("}", "a layout property or '}'")
    if "P" in found and "D" not in found:
        raise lexer.error("the layout has a physical shape, but no types of dimension levels: it is dense", start)
    space, bits = (int(found.pop(letter, ["0"])[0]) for letter in "SE")
    tiles = tuple(
        tuple(
            -1 if dimension_size.strip() == "*" else int(dimension_size)
            for dimension_size in tile.split(",")
            if dimension_size
        )
        for tile in found.pop("T", ())
    )
    other = tuple(
        (letter, "".join(f"({part})" for part in found[letter])) for letter in _PROPERTY_ORDER if letter in found
    )
    return Layout(tuple(order), tiles, space, bits, tuple((letter, text[1:-1]) for letter, text in other))


_ARGUMENT = {
    "T": re.compile(r"\(\s*((?:[0-9]{1,18}|\*)(?:\s*,\s*(?:[0-9]{1,18}|\*))*|)\s*\)"),
    "S": re.compile(r"\((-?[0-9]{1,18})\)"),
    "E": re.compile(r"\(([0-9]{1,18})\)"),
    "SC": re.compile(r"\(([0-9]+:[0-9]+(?:,[0-9]+)*)\)"),
    "D": re.compile(r"\(([DCSH]\+?~?(?:,[DCSH]\+?~?)*)\)"),
    "L": re.compile(r"\(([1-9][0-9]{0,17})\)"),
    "#": re.compile(r"\((u(?:8|16|32|64))\)"),
    "*": re.compile(r"\((u(?:8|16|32|64))\)"),
    "M": re.compile(r"\(([0-9]{1,18})\)"),
}
_EXPECTED = {
    "D": "types of dimension levels: D, C, S or H for each, perhaps with + and ~",
    "L": "a positive number of elements",
    "#": "an unsigned integer type",
    "*": "an unsigned integer type",
}


def _read_property(lexer: Lexer, found: dict[str, list[str]]) -> None:
    """One property with all its arguments: tiles, and the split of each dimension, repeat the parentheses."""
    match = _PROPERTY.match(lexer.text, lexer.pos)
    if match is None:
        raise lexer.expected("a layout property (one of " + ", ".join(_PROPERTY_ORDER) + ") or '}'")
    letter = match.group(1)
    if letter in found:
        raise lexer.error(f"the layout has {letter!r} twice", match.start(1), match.end(1))
    lexer.pos = match.end()
    arguments = found.setdefault(letter, [])
    if letter == "P":
        start = lexer.pos
        lexer.expect("(")
        shape = read_shape(lexer, MAX_DEPTH - 1)
        lexer.expect(")")
        arguments.append(print_shape(shape))
        if not shape.is_array:
            raise lexer.error("expected an array shape as the physical shape", start)
        return
    pattern = _ARGUMENT[letter]
    while True:
        argument = pattern.match(lexer.text, lexer.pos)
        if argument is None:
            what = _EXPECTED.get(letter, "its argument")
            raise lexer.expected(f"{what} in parentheses, after layout property {letter!r}")
        arguments.append(argument.group(1))
        lexer.pos = argument.end()
        if letter not in ("T", "SC") or not lexer.text.startswith("(", lexer.pos):
            return


def read_program_shape(lexer: Lexer) -> ProgramShape:
    """`(f32[2]{0}, s32[])->f32[2]{0}`; parameters may carry names: `(x: f32[2], y f32[2]) -> f32[2]`."""
    parameters: list[Shape] = []
    for _ in lexer.separated("(", ")", "a parameter's shape"):
        if not starts_shape(lexer):
            lexer.name("a parameter")
            lexer.accept(":")
        parameters.append(read_shape(lexer))
    lexer.expect("->")
    return ProgramShape(tuple(parameters), read_shape(lexer))


def parse_shape(text: str) -> Shape:
    """The shape that `text` describes; HloSyntaxError if it is none."""
    lexer = Lexer(text)
    shape = read_shape(lexer)
    if not lexer.at_end():
        raise lexer.expected("the end of the shape")
    return shape


def print_layout(layout: Layout) -> str:
    """`{1,0:T(8,128)S(1)}`."""
    properties = {letter: f"{letter}({text})" for letter, text in layout.other}
    if layout.tiles:
        properties["T"] = "T" + "".join(
            "(" + ",".join("*" if dimension_size == -1 else str(dimension_size) for dimension_size in tile) + ")"
            for tile in layout.tiles
        )
    if layout.element_bits:
        properties["E"] = f"E({layout.element_bits})"
    if layout.memory_space:
        properties["S"] = f"S({layout.memory_space})"
    tail = "".join(properties[letter] for letter in _PROPERTY_ORDER if letter in properties)
    order = ",".join(map(str, layout.minor_to_major))
    if not tail and not order:
        return ""
    return "{" + order + (":" + tail if tail else "") + "}"


def print_shape(shape: Shape, layouts: bool = True) -> str:
    """HLO text of a shape, with its layouts or without; long tuples get `/*index=5*/` comments as XLA writes them."""
    if shape.elements is not None:
        parts = [print_shape(element, layouts) for element in shape.elements]
        return "(" + ", ".join(f"/*index={k}*/{p}" if k and k % 5 == 0 else p for k, p in enumerate(parts)) + ")"
    if shape.is_buffer:
        return f"b({print_shape(shape.contents, layouts)})"
    if not layouts or shape.layout is None:
        return str(shape)
    return str(shape) + print_layout(shape.layout)
