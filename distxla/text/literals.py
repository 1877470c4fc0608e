"""Literals: `3`, `{{1, 2}, {3, 4}}`, `(1, {2, 3})`, `-nan`, `nan(0x7f)`, `(1, -2)`, `{...}`."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from distxla.errors import HloSyntaxError
from distxla.ir.element_type import ElementType
from distxla.ir.literal import Literal
from distxla.ir.shape import UNBOUNDED, Shape
from distxla.text.lexer import BLANK, MAX_DEPTH, MAX_DIGITS, Lexer

_START = re.compile(rf"{BLANK}(?:[{{(0-9\-.]|(?:nan|inf|true|false)\b)")
_ELIDED = re.compile(rf"{BLANK}\.\.\.(?:[\s,]|{BLANK})*")
_ELIDED_TUPLE = re.compile(rf"{BLANK}\{{{BLANK}\.\.\.{BLANK}\}}")
_CHUNK = re.compile(r"[^{}]*+")
_TOKEN = re.compile(r"\((?:[^(){}]|\(0x[0-9a-fA-F]+\))*\)|[^\s,(){}]+(?:\([^(){}]*\))?|.", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SCALAR = re.compile(
    rf"{BLANK}(\((?:[^(){{}}]|\(0x[0-9a-fA-F]+\))*\)|-?nan\(0x[0-9a-fA-F]+\)|-?[A-Za-z0-9_.]+(?:(?<=[eE])[+-][0-9]+)?)"
)
_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|-?inf")
_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]{1,16})\))?")
_COMPLEX = re.compile(r"\(\s*([^\s,()]+(?:\([^()]*\))?)\s*,\s*([^\s,()]+(?:\([^()]*\))?)\s*\)")

# Bits of the mantissa, of types with NaNs that carry a payload.
_MANTISSA: Final = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}
# The one NaN of the others (and whether its sign may differ); f4e2m1fn has none.
_SINGLE_NAN: Final = {
    "f8e4m3fn": (0x7F, True),
    "f8e4m3b11fnuz": (0x80, False),
    "f8e5m2fnuz": (0x80, False),
    "f8e4m3fnuz": (0x80, False),
    "f8e8m0fnu": (0xFF, False),
}


class _Bad(Exception):
    """Token `index` of a row is not an element; `message` says why."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(index, message)
        self.index, self.message = index, message


def starts_literal(lexer: Lexer) -> bool:
    """Whether a literal may begin at the current position."""
    return _START.match(lexer.text, lexer.pos) is not None


def read_literal(lexer: Lexer, shape: Shape, depth: int = 0) -> Literal:
    """The literal of `shape` (its layout doesn't matter) at the current position."""
    if shape.elements is not None:
        if depth >= MAX_DEPTH:
            raise lexer.error(f"tuples are nested deeper than {MAX_DEPTH}", lexer.skip(), lexer.pos + 1)
        elided = _ELIDED_TUPLE.match(lexer.text, lexer.pos)
        if elided is not None:
            lexer.pos = elided.end()
            return Literal(shape.without_layout())
        return _read_tuple(lexer, shape, depth)
    if not shape.is_array or UNBOUNDED in shape.dims:
        raise lexer.error(f"a value of shape {shape} has no literal", lexer.skip(), lexer.pos + 1)
    element_type = shape.dtype
    if not shape.dims:
        match = _SCALAR.match(lexer.text, lexer.pos)
        if match is None:
            raise lexer.expected(f"a literal of type {element_type}")
        lexer.pos = match.end()
        try:
            array = _convert([match.group(1)], element_type)
        except _Bad as bad:
            raise lexer.error(bad.message, match.start(1), match.end(1)) from None
        return Literal(shape.without_layout(), array.reshape(()))
    start = lexer.skip()
    if not lexer.at("{"):
        raise _no_array(lexer, shape)
    rows: list[np.ndarray[Any, Any]] = []
    if not _read_rows(lexer, shape, 0, rows):
        return Literal(shape.without_layout())
    array = np.concatenate(rows) if rows else np.empty(0, element_type.dtype)
    if array.size != shape.size:
        raise lexer.error(f"expected {shape.size} elements of {shape}, found {array.size}", start)
    return Literal(shape.without_layout(), array.reshape(shape.dims))


def _no_array(lexer: Lexer, shape: Shape) -> HloSyntaxError:
    """The error for text that is no array's literal; a scalar instead of one is a common slip in hand-made modules."""
    match = _SCALAR.match(lexer.text, lexer.pos)
    if match is None:
        return lexer.expected(f"'{{' of dimension 0 of a literal of shape {shape}")
    try:
        _convert([match.group(1)], shape.dtype)
    except _Bad:
        return lexer.expected(f"'{{' of dimension 0 of a literal of shape {shape}")
    scalar, array = match.group(1), shape.without_layout()
    return lexer.error(
        f"expected a literal of shape {array} in braces, found the scalar {scalar}, which XLA's parser takes for the "
        f"first element, with 0 for all others; if every element is meant, write "
        f"{array} broadcast({shape.dtype}[] constant({scalar})), dimensions={{}}",
        match.start(1),
        match.end(1),
    )


def _read_tuple(lexer: Lexer, shape: Shape, depth: int) -> Literal:
    assert shape.elements is not None
    elements: list[Literal] = []
    lexer.expect("(", f"'(' of a literal of shape {shape}")
    for index, element in enumerate(shape.elements):
        if index:
            lexer.expect(",", f"',' and element {index} of a literal of shape {shape}")
        elements.append(read_literal(lexer, element, depth + 1))
    lexer.expect(")", f"')' after the {len(shape.elements)} elements of the literal")
    return Literal(shape.without_layout(), elements=tuple(elements))


def _read_rows(lexer: Lexer, shape: Shape, dimension: int, rows: list[np.ndarray[Any, Any]]) -> bool:
    """One `{...}` of `dimension`, appended to `rows`; False if any of it is elided."""
    start = lexer.skip()
    lexer.expect("{", f"'{{' of dimension {dimension} of a literal of shape {shape}")
    elided = _ELIDED.match(lexer.text, lexer.pos)
    if elided is not None:
        lexer.pos = elided.end()
        lexer.expect("}")
        return False
    dimension_size = shape.dims[dimension]
    if dimension == shape.rank - 1:
        return _read_row(lexer, shape.dtype, dimension_size, start, rows)
    complete, count = True, 0
    while not lexer.accept("}"):
        match = _ELIDED.match(lexer.text, lexer.pos)
        if match is not None:
            lexer.pos, complete = match.end(), False
            continue
        complete &= _read_rows(lexer, shape, dimension + 1, rows)
        lexer.accept(",")
        count += 1
    if complete and count != dimension_size:
        raise lexer.error(
            f"expected {dimension_size} rows in dimension {dimension} of {shape}, found {count}", start, start + 1
        )
    return complete


def _read_row(
    lexer: Lexer, element_type: ElementType, dimension_size: int, start: int, rows: list[np.ndarray[Any, Any]]
) -> bool:
    """The elements up to the closing brace; the opening one, at `start`, has been read."""
    first = lexer.pos
    match = _CHUNK.match(lexer.text, first)
    assert match is not None
    chunk = match.group()
    if "/" in chunk:
        chunk = _COMMENT.sub(lambda comment: " " * len(comment.group()), chunk)
    tokens = _split(chunk)
    elided = tokens[-1:] == ["..."]
    if elided:
        tokens.pop()
    try:
        rows.append(_convert(tokens, element_type))
    except _Bad as bad:
        where = [m for m in _TOKEN.finditer(chunk) if m.group() != "," and not m.group().isspace()][bad.index]
        raise lexer.error(bad.message, first + where.start(), first + where.end()) from None
    lexer.pos = match.end()
    lexer.expect("}")
    if elided:
        return False
    if len(tokens) != dimension_size:
        raise lexer.error(f"expected {dimension_size} elements, found {len(tokens)}", start)
    return True


def _split(chunk: str) -> list[str]:
    if "(" not in chunk and ")" not in chunk:
        return chunk.replace(",", " ").split()
    return [token for token in _TOKEN.findall(chunk) if token != "," and not token.isspace()]


# --- from text to elements ----------------------------------------------------------------------------------------


def _convert(tokens: list[str], element_type: ElementType) -> np.ndarray[Any, Any]:
    """A flat array of `element_type`; _Bad names the token that is no such element."""
    if element_type.is_float:
        return _convert_floats(tokens, element_type)
    if element_type.is_complex:
        return _convert_complex(tokens, element_type)
    if element_type.kind == "pred":
        return np.array([_convert_pred(k, token) for k, token in enumerate(tokens)], np.bool_)
    low, high = _integer_range(element_type)
    values: list[int] = []
    for k, token in enumerate(tokens):
        if _INTEGER.fullmatch(token) is None:
            raise _Bad(k, f"expected a literal of type {element_type}, found {token[:40]!r}")
        value = int(token) if len(token) <= MAX_DIGITS else high + 1
        if not low <= value <= high:
            if not (element_type.name == "u64" and -(2**63) <= value < 0):  # the bits of a negative number
                raise _Bad(k, f"{token[:40]} is out of range for {element_type}, from {low} to {high}")
            value += 2**64
        values.append(value)
    wide = np.array(values, np.uint64 if element_type.name == "u64" else np.int64)
    return wide.astype(element_type.dtype)


def _integer_range(element_type: ElementType) -> tuple[int, int]:
    if element_type.is_signed:
        return -(2 ** (element_type.bits - 1)), 2 ** (element_type.bits - 1) - 1
    return 0, 2**element_type.bits - 1


def _convert_pred(index: int, token: str) -> bool:
    if token in ("true", "1"):
        return True
    if token in ("false", "0"):
        return False
    if len(token) <= MAX_DIGITS and _INTEGER.fullmatch(token):
        return int(token) != 0
    raise _Bad(index, f"expected true, false or an integer as a literal of type pred, found {token[:40]!r}")


def _convert_floats(tokens: list[str], element_type: ElementType) -> np.ndarray[Any, Any]:
    values: list[float] = []
    nans: dict[int, int] = {}
    for k, token in enumerate(tokens):
        if _FLOAT.fullmatch(token) is not None:
            values.append(float(token))
            continue
        nan = _NAN.fullmatch(token)
        if nan is None:
            raise _Bad(k, f"expected a literal of type {element_type}, found {token[:40]!r}")
        nans[k] = _nan_bits(k, element_type, bool(nan.group(1)), nan.group(2))
        values.append(1.0)
    wide = np.array(values, np.float64)
    for k in np.flatnonzero(np.signbit(wide) & (wide == 0)).tolist():
        if _INTEGER.fullmatch(tokens[k]):  # -0 is an integer, which XLA's parser converts; -0.0 is a float
            wide[k] = 0.0
    with np.errstate(all="ignore"):
        array = wide.astype(element_type.dtype)
        back = array.astype(np.float64)
    _check_float_range(tokens, element_type, wide, back)
    if nans:
        bits = array.view(f"u{element_type.byte_size}")
        for k, pattern in nans.items():
            bits[k] = pattern
    return array


def _check_float_range(
    tokens: list[str], element_type: ElementType, wide: np.ndarray[Any, Any], back: np.ndarray[Any, Any]
) -> None:
    """A finite number must not become infinite or NaN; zero and negatives where the type has none are errors, too."""
    bad = ~np.isfinite(back) & np.isfinite(wide)
    bad |= np.isinf(wide) & np.array(["inf" not in token for token in tokens], np.bool_)
    if element_type.name == "f4e2m1fn":
        bad |= np.abs(wide) > 7.0  # halfway to the next power of two; the type has neither infinity nor NaN
    if element_type.name == "f8e8m0fnu":
        bad |= (wide < 2.0**-127) | (wide > 2.0**127)
    if bad.any():
        k = int(np.argmax(bad))
        raise _Bad(k, f"{tokens[k][:40]} is out of range for {element_type}")


def _nan_bits(index: int, element_type: ElementType, negative: bool, payload: str | None) -> int:
    """The bits of `nan`, `-nan`, `nan(0x7f)`."""
    name = element_type.name
    sign = int(negative) << (element_type.bits - 1)
    if name in _MANTISSA:
        width = _MANTISSA[name]
        mantissa = 1 << (width - 1) if payload is None else int(payload, 16)
        if not 0 < mantissa < 1 << width:
            raise _Bad(index, f"a NaN of {name} carries a payload from 0x1 to {(1 << width) - 1:#x}, found 0x{payload}")
        exponent = ((1 << (element_type.bits - 1 - width)) - 1) << width
        return sign | exponent | mantissa
    if name not in _SINGLE_NAN:
        raise _Bad(index, f"{name} has no NaN")
    if payload is not None:
        raise _Bad(index, f"a NaN of {name} carries no payload")
    bits, signed = _SINGLE_NAN[name]
    return bits | sign if signed else bits


def _convert_complex(tokens: list[str], element_type: ElementType) -> np.ndarray[Any, Any]:
    parts: list[str] = []
    for k, token in enumerate(tokens):
        match = _COMPLEX.fullmatch(token)
        if match is None:
            raise _Bad(k, f"expected a literal of type {element_type}, as (real, imaginary), found {token[:40]!r}")
        parts += match.groups()
    try:
        flat = _convert_floats(parts, element_type.real_part)
    except _Bad as bad:
        raise _Bad(bad.index // 2, bad.message) from None
    return flat.view(element_type.dtype)


# --- from elements to text ----------------------------------------------------------------------------------------


def print_literal(literal: Literal) -> str:
    """HLO text that reads back to the same bits (given the shape)."""
    if literal.elements is not None:
        return "(" + ", ".join(print_literal(element) for element in literal.elements) + ")"
    if literal.array is None:
        return "{...}"
    element_type = literal.shape.dtype
    if not literal.shape.dims and element_type.kind == "pred":
        return "true" if literal.array else "false"
    tokens = _print_elements(literal.array.reshape(-1), element_type)
    return _nest(tokens, literal.shape.dims, 0, len(tokens))


def _nest(tokens: list[str], dims: tuple[int, ...], start: int, count: int) -> str:
    if not dims:
        return tokens[start]
    if len(dims) == 1:
        return "{" + ", ".join(tokens[start : start + count]) + "}"
    step = count // dims[0] if dims[0] else 0
    rows = [_nest(tokens, dims[1:], start + k * step, step) for k in range(dims[0])]
    return "{" + ", ".join(rows) + "}"


def _print_elements(flat: np.ndarray[Any, Any], element_type: ElementType) -> list[str]:
    if element_type.is_complex:
        parts = _print_floats(flat.view(element_type.real_part.dtype), element_type.real_part)
        return [f"({real}, {imaginary})" for real, imaginary in zip(parts[::2], parts[1::2], strict=True)]
    if element_type.is_float:
        return _print_floats(flat, element_type)
    if element_type.kind == "pred":
        return ["1" if element else "0" for element in flat.tolist()]
    return [str(int(element)) for element in flat.tolist()]


def _print_floats(flat: np.ndarray[Any, Any], element_type: ElementType) -> list[str]:
    """The shortest decimal of every element that reads back as the same bits."""
    if element_type.name in ("f64", "f32", "f16"):
        texts = [text if text == "-0.0" else text.removesuffix(".0") for text in flat.astype(str).tolist()]
        odd = np.flatnonzero(np.isnan(flat))
    else:
        with np.errstate(all="ignore"):
            wide = flat.astype(np.float64)
        known: dict[float, str] = {}
        texts = []
        for value in wide.tolist():
            text = known.get(value) if value else None  # 0.0 and -0.0 are one key
            if text is None:
                text = known[value] = _shortest(value, element_type)
            texts.append(text)
        odd = np.flatnonzero(np.isnan(wide))
    if odd.size:
        bits = flat.view(f"u{element_type.byte_size}")
        for k in odd.tolist():
            texts[k] = _print_nan(int(bits[k]), element_type)
    return texts


def _shortest(value: float, element_type: ElementType) -> str:
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0"
    if not np.isfinite(value):
        return str(value)
    if element_type.name == "f8e8m0fnu":  # a shorter text of its least value would be below the type's range
        return repr(value).removesuffix(".0")
    for digits in range(1, 17):
        text = f"{value:.{digits}g}"
        with np.errstate(all="ignore"):
            if float(np.float64(text).astype(element_type.dtype)) == value:
                return text
    return repr(value)


def _print_nan(bits: int, element_type: ElementType) -> str:
    name = element_type.name
    width = _MANTISSA.get(name)
    if width is None:
        return "-nan" if _SINGLE_NAN[name][1] and bits >> (element_type.bits - 1) else "nan"
    sign = "-" if bits >> (element_type.bits - 1) else ""
    mantissa = bits & ((1 << width) - 1)
    return f"{sign}nan" if mantissa == 1 << (width - 1) else f"{sign}nan({mantissa:#x})"
