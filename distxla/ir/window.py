"""Windows, dimension numbers and padding: attributes of convolution, reduce-window, select-and-scatter and pad."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of `window={size=.. stride=.. pad=l_h lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}`.

    base_dilation is lhs_dilate, window_dilation rhs_dilate. Padding may be negative.
    """

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    @property
    def dilated_size(self) -> int:
        """Size from the window's first to its last element."""
        return (self.size - 1) * self.window_dilation + 1 if self.size else 0

    def output_size(self, dimension_size: int) -> int:
        """How many windows fit over an operand dimension of `size`."""
        dilated = (dimension_size - 1) * self.base_dilation + 1 if dimension_size else 0
        padded = dilated + self.padding_low + self.padding_high
        if padded < self.dilated_size or padded <= 0:
            return 0
        return (padded - self.dilated_size) // self.stride + 1


@dataclass(frozen=True, slots=True)
class Window:
    dimensions: tuple[WindowDimension, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dimensions)


@dataclass(frozen=True, slots=True)
class ConvolutionDimensions:
    """`dim_labels=b01f_01io->b01f` taken apart; each number is a dimension of that array.

    An array may have dimensions without a label, which no convolution can compute but a custom-call may.
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PaddingDimension:
    """One dimension of `padding=low_high_interior`; low and high may be negative."""

    low: int
    high: int
    interior: int = 0


@dataclass(frozen=True, slots=True)
class SliceDimension:
    """One dimension of `slice={[start:limit:stride]}`."""

    start: int
    limit: int
    stride: int = 1
