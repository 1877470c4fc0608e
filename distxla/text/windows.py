"""`window={...}`, `dim_labels=...`, `padding=...` and `slice={...}`."""

from __future__ import annotations

import re
from typing import Final

from distxla.ir.window import ConvolutionDimensions, PaddingDimension, SliceDimension, Window, WindowDimension
from distxla.text.lexer import BLANK, Lexer

_INTEGER: Final = r"-?[0-9]{1,18}"
_LIST = re.compile(rf"{BLANK}({_INTEGER}(?:x{_INTEGER})*)(?![\w.])")
_PAIRS = re.compile(rf"{BLANK}({_INTEGER}_{_INTEGER}(?:x{_INTEGER}_{_INTEGER})*)(?![\w.])")
_PADDING = re.compile(
    rf"{BLANK}({_INTEGER}_{_INTEGER}(?:_{_INTEGER})?(?:x{_INTEGER}_{_INTEGER}(?:_{_INTEGER})?)*)(?![\w.])"
)
_LABELS = re.compile(rf"{BLANK}([0-9a-z?]+)_([0-9a-z?]+)->([0-9a-z?]+)(?![\w.])")
_NO_PADDING = re.compile(rf"{BLANK}(?={BLANK}(?:[,}})\n]|$))")


def read_window(lexer: Lexer) -> Window:
    """`{size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x1}`; `{}` has no dimensions."""
    start = lexer.skip()
    lexer.expect("{")
    found: dict[str, list[tuple[int, ...]]] = {}
    while not lexer.accept("}"):
        at = lexer.skip()
        key = lexer.word("a part of the window: size, stride, pad, lhs_dilate, rhs_dilate, rhs_reversal or '}'")
        if key not in ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"):
            raise lexer.error(f"expected a part of the window, found {key!r}", at)
        if key in found:
            raise lexer.error(f"the window has {key!r} twice", at)
        lexer.expect("=")
        pattern, what = (_PAIRS, "low_high for every dimension") if key == "pad" else (_LIST, "integers joined by x")
        match = pattern.match(lexer.text, lexer.pos)
        if match is None:
            raise lexer.expected(what)
        lexer.pos = match.end()
        found[key] = [tuple(int(n) for n in item.split("_")) for item in match.group(1).split("x")]
        if len(found[key]) != len(next(iter(found.values()))):
            raise lexer.error("all parts of the window need the same number of dimensions", at)
    if found and "size" not in found:
        raise lexer.error("expected the window to have a size", start)
    return Window(tuple(_dimension(lexer, found, k, start) for k in range(len(found.get("size", ())))))


def _dimension(lexer: Lexer, found: dict[str, list[tuple[int, ...]]], k: int, start: int) -> WindowDimension:
    def single(key: str, default: int) -> int:
        return found[key][k][0] if key in found else default

    low, high = found["pad"][k] if "pad" in found else (0, 0)
    values = single("size", 1), single("stride", 1), single("lhs_dilate", 1), single("rhs_dilate", 1)
    if min(values) < 0 or min(values[1:]) < 1:
        raise lexer.error("expected sizes that are not negative and positive strides and dilations", start)
    size, stride, base, window = values
    return WindowDimension(size, stride, low, high, base, window, bool(single("rhs_reversal", 0)))


def print_window(window: Window) -> str:
    """Only the parts that say more than the default."""
    dims = window.dimensions
    parts: list[str] = []
    if dims:
        parts.append("size=" + "x".join(str(d.size) for d in dims))
    if any(d.stride != 1 for d in dims):
        parts.append("stride=" + "x".join(str(d.stride) for d in dims))
    if any(d.padding_low or d.padding_high for d in dims):
        parts.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims))
    if any(d.base_dilation != 1 for d in dims):
        parts.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in dims))
    if any(d.window_dilation != 1 for d in dims):
        parts.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in dims))
    if any(d.reversal for d in dims):
        parts.append("rhs_reversal=" + "x".join(str(int(d.reversal)) for d in dims))
    return "{" + " ".join(parts) + "}"


def read_dim_labels(lexer: Lexer) -> ConvolutionDimensions:
    """`b01f_01io->b01f`; `?` marks a dimension that the convolution knows nothing of: `bf01?_io01?->bf01?`."""
    match = _LABELS.match(lexer.text, lexer.pos)
    if match is None:
        raise lexer.expected("dimension labels such as b01f_01io->b01f")
    lexer.pos = match.end()
    found = []
    for group, special in ((1, "bf"), (2, "io"), (3, "bf")):
        labels = match.group(group)
        named = labels.replace("?", "")
        wanted = special + "".join(map(str, range(len(match.group(1).replace("?", "")) - 2)))
        if len(labels) > 12 or sorted(named) != sorted(wanted):
            raise lexer.error(
                f"expected the letters {special[0]} and {special[1]} and each of the digits from 0 once in every part",
                match.start(group),
                match.end(group),
            )
        found.append([labels.index(label) for label in wanted])
    (ib, if_, *spatial), (ki, ko, *kernel), (ob, of, *output) = found
    return ConvolutionDimensions(ib, if_, tuple(spatial), ki, ko, tuple(kernel), ob, of, tuple(output))


def print_dim_labels(dims: ConvolutionDimensions) -> str:
    def labels(first: int, second: int, letters: tuple[str, str], spatial: tuple[int, ...]) -> str:
        out = ["?"] * (max(first, second, *spatial) + 1)
        out[first], out[second] = letters
        for k, d in enumerate(spatial):
            out[d] = str(k)
        return "".join(out)

    lhs = labels(dims.input_batch, dims.input_feature, ("b", "f"), dims.input_spatial)
    kernel = labels(dims.kernel_input_feature, dims.kernel_output_feature, ("i", "o"), dims.kernel_spatial)
    output = labels(dims.output_batch, dims.output_feature, ("b", "f"), dims.output_spatial)
    return f"{lhs}_{kernel}->{output}"


def read_padding(lexer: Lexer) -> tuple[PaddingDimension, ...]:
    """`0_1_0x2_2`; nothing at all for rank 0."""
    match = _PADDING.match(lexer.text, lexer.pos)
    if match is None:
        if _NO_PADDING.match(lexer.text, lexer.pos):
            return ()
        raise lexer.expected("padding such as 0_1_0x2_2 (low, high, interior)")
    lexer.pos = match.end()
    dims = [PaddingDimension(*(int(n) for n in item.split("_"))) for item in match.group(1).split("x")]
    if any(d.interior < 0 for d in dims):
        raise lexer.error("expected interior padding that is not negative", match.start(1), match.end(1))
    return tuple(dims)


def print_padding(dims: tuple[PaddingDimension, ...]) -> str:
    interior = any(d.interior for d in dims)
    return "x".join(f"{d.low}_{d.high}" + (f"_{d.interior}" if interior else "") for d in dims)


def read_slice(lexer: Lexer) -> tuple[SliceDimension, ...]:
    """`{[0:2], [1:9:2]}`."""
    dims: list[SliceDimension] = []
    for _ in lexer.separated("{", "}", "a range"):
        lexer.expect("[")
        start = lexer.integer("the start of a range")
        lexer.expect(":")
        limit = lexer.integer("the limit of a range")
        stride = lexer.integer("a stride", 1) if lexer.accept(":") else 1
        lexer.expect("]", "':' or ']'" if stride == 1 else None)
        dims.append(SliceDimension(start, limit, stride))
    return tuple(dims)


def print_slice(dims: tuple[SliceDimension, ...]) -> str:
    ranges = (f"[{d.start}:{d.limit}" + (f":{d.stride}" if d.stride != 1 else "") + "]" for d in dims)
    return "{" + ", ".join(ranges) + "}"
