"""Padding kinds, dimension numbers and windows as the pages write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from distxla.builder.accepted_values import as_flag, as_integers, as_sequence
from distxla.builder.blame import broken_rule
from distxla.errors import HloSyntaxError
from distxla.ir.window import ConvolutionDimensions, Window, WindowDimension
from distxla.lazy_dataclass import dataclass
from distxla.text.lexer import Lexer
from distxla.text.windows import read_dim_labels

# "same", "valid", or (low, high) for each dimension
PaddingLike: TypeAlias = "str | Sequence[Sequence[int]]"
# "bf01_oi01->bf01", or None for batch, feature, spatial; kernels: output, input feature, spatial
ConvolutionDimensionsLike: TypeAlias = "ConvolutionDimensions | str | None"


@dataclass(frozen=True, slots=True)
class DotDimensionNumbers:
    """Which dimensions of lhs and rhs are summed over, and which number independent products; paired by position."""

    lhs_contracting_dimensions: Sequence[int] = ()
    rhs_contracting_dimensions: Sequence[int] = ()
    lhs_batch_dimensions: Sequence[int] = ()
    rhs_batch_dimensions: Sequence[int] = ()


# DotDimensionNumbers, its fields in a dict, or ((lhs contracting, rhs contracting), (lhs batch, rhs batch))
DotDimensionsLike: TypeAlias = "DotDimensionNumbers | Mapping[str, Sequence[int]] | Sequence[Sequence[Sequence[int]]]"


def as_dot_dimensions(value: DotDimensionsLike) -> DotDimensionNumbers:
    """Dimension numbers as tuples of integers."""
    name = "dimension_numbers"
    if isinstance(value, DotDimensionNumbers):
        fields: dict[str, Any] = {field: getattr(value, field) for field in DotDimensionNumbers.__slots__}
    elif isinstance(value, Mapping):
        fields = dict(value)
        unknown = sorted(set(fields) - set(DotDimensionNumbers.__slots__))
        if unknown:
            raise broken_rule(f"dot.dimension_numbers: there is no {', '.join(unknown)}", name)
    else:
        try:
            (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = value
        except (TypeError, ValueError):
            raise broken_rule(
                "dot.dimension_numbers: must be DotDimensionNumbers or ((lhs contracting, rhs contracting), "
                f"(lhs batch, rhs batch)), not {value!r}",
                name,
            ) from None
        fields = dict(zip(DotDimensionNumbers.__slots__, (lhs_contracting, rhs_contracting, lhs_batch, rhs_batch)))
    return DotDimensionNumbers(**{field: as_integers(numbers, name) for field, numbers in fields.items()})


def as_convolution_dimensions(value: ConvolutionDimensionsLike, rank: int) -> ConvolutionDimensions:
    """dim_labels taken apart; None is the order of the pages."""
    if isinstance(value, ConvolutionDimensions):
        return value
    if value is None:
        spatial = tuple(range(2, rank))
        return ConvolutionDimensions(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)
    try:
        lexer = Lexer(value)
        labels = read_dim_labels(lexer)
        if not lexer.at_end():
            raise lexer.expected("the end of the labels")
    except (HloSyntaxError, TypeError) as error:
        message = getattr(error, "message", error)
        raise broken_rule(f"convolution.dimension_numbers: {value!r}: {message}", "dimension_numbers") from None
    return labels


def as_window(
    dimension_sizes: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: PaddingLike,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
    window_reversal: Sequence[bool] | None = None,
    *,
    base: str = "base_dilations",
    window: str = "window_dilations",
) -> Window:
    """A window over an array of `dimension_sizes`; strides and dilations of 1 if left out.

    base, window: the caller's names of the two dilations.
    """
    sizes = as_integers(window_dimensions, "window_dimensions")
    rank = len(sizes)
    given = (("window_strides", window_strides), (base, base_dilations), (window, window_dilations))
    strides, bases, dilations = (_for_each(values, rank, name) for name, values in given)
    if len(dimension_sizes) != rank:
        raise broken_rule(
            f"window.rank: the window has {rank} dimensions, the array under it {len(dimension_sizes)}",
            "window_dimensions",
        )
    for name, values in (("window_strides", strides), (base, bases), (window, dilations)):
        if any(value < 1 for value in values):
            raise broken_rule(f"window: {name}={list(values)} must be positive", name)
    reversal = (
        [False] * rank
        if window_reversal is None
        else [as_flag(flag, "window_reversal") for flag in as_sequence(window_reversal, "window_reversal")]
    )
    if len(reversal) != rank:
        raise broken_rule(f"window: {len(reversal)} flags for {rank} dimensions", "window_reversal")
    dimensions = [
        WindowDimension(size, stride, 0, 0, b, w, flag)
        for size, stride, b, w, flag in zip(sizes, strides, bases, dilations, reversal, strict=True)
    ]
    pads = _pads(dimension_sizes, dimensions, padding)
    return Window(
        tuple(
            WindowDimension(d.size, d.stride, low, high, d.base_dilation, d.window_dilation, d.reversal)
            for d, (low, high) in zip(dimensions, pads, strict=True)
        )
    )


def _for_each(values: Sequence[int] | None, rank: int, argument: str) -> tuple[int, ...]:
    if values is None:
        return (1,) * rank
    found = as_integers(values, argument)
    if len(found) != rank:
        raise broken_rule(f"window: {argument}={list(found)} for a window of {rank} dimensions", argument)
    return found


def _pads(
    dimension_sizes: Sequence[int], dimensions: Sequence[WindowDimension], padding: PaddingLike
) -> Sequence[tuple[int, int]]:
    """(low, high) for each dimension."""
    if not isinstance(padding, str):
        if not isinstance(padding, (tuple, list)) or len(padding) != len(dimensions):
            raise broken_rule(f"window: padding {padding!r} for {len(dimensions)} dimensions", "padding")
        pairs = [as_integers(pair, "padding") for pair in padding]
        if any(len(pair) != 2 for pair in pairs):
            raise broken_rule(f"window: padding {padding!r} is not (low, high) for each dimension", "padding")
        return [(low, high) for low, high in pairs]
    kind = padding.lower().removeprefix("k")
    if kind == "valid":
        return [(0, 0)] * len(dimensions)
    if kind != "same":
        raise broken_rule(f"window: padding {padding!r} is neither 'same' nor 'valid'", "padding")
    return [
        _same(dimension_size, dimension) for dimension_size, dimension in zip(dimension_sizes, dimensions, strict=True)
    ]


def _same(dimension_size: int, dimension: WindowDimension) -> tuple[int, int]:
    """As many windows as strides fit into the array; an odd element more at the end."""
    dilated = (dimension_size - 1) * dimension.base_dilation + 1 if dimension_size else 0
    windows = -(-dilated // dimension.stride)
    missing = max((windows - 1) * dimension.stride + dimension.dilated_size - dilated, 0)
    return missing // 2, missing - missing // 2
