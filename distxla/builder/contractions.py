"""Products: dot and convolution."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.builder.accepted_values import (
    ElementTypeLike,
    as_element_type,
    as_integer,
    as_integers,
    as_sequence,
    as_word,
)
from distxla.builder.blame import broken_rule
from distxla.builder.recorder import Recorder
from distxla.builder.windows import (
    ConvolutionDimensionsLike,
    DotDimensionNumbers,
    DotDimensionsLike,
    PaddingLike,
    as_convolution_dimensions,
    as_dot_dimensions,
    as_window,
)
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ir.element_type import S32
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.convolution import Convolution
from distxla.ops.dot import Dot
from distxla.ops.ragged_and_scaled_dot import RaggedDot

PRECISIONS = ("default", "high", "highest", "packed_nibble")


class Contractions(Recorder):
    """Pages Dot, DotGeneral, Conv, ConvWithGeneralPadding.

    precision_config: of each operand ("default", "high", "highest"), or one word for both; every product is
    computed in full.  preferred_element_type: the result's.
    """

    def dot(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
    ) -> XlaOp:
        """The product of vectors and matrices: over the last dimension of lhs and the first one of rhs."""
        left, right = self._factors(lhs, rhs)
        if not (1 <= left.rank <= 2 and 1 <= right.rank <= 2):
            raise broken_rule(f"dot.rank: {left.shape} and {right.shape} must be vectors or matrices; see dot_general")
        numbers = DotDimensionNumbers((left.rank - 1,), (0,))
        return self.dot_general(left, right, numbers, precision_config, preferred_element_type)

    def matmul(self, lhs: OperandLike, rhs: OperandLike) -> XlaOp:
        """`lhs @ rhs`: `dot`, and of equal ranks above 2 the products of the matrices in the last two."""
        left, right = self._factors(lhs, rhs)
        if left.rank != right.rank or left.rank <= 2:
            return self.dot(left, right)
        batch = tuple(range(left.rank - 2))
        numbers = DotDimensionNumbers((left.rank - 1,), (left.rank - 2,), batch, batch)
        return self.dot_general(left, right, numbers)

    def dot_general(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        dimension_numbers: DotDimensionsLike,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
    ) -> XlaOp:
        """Sums of products over contracting dimensions, for each index of the batch dimensions.

        The result has the batch dimensions, then the others of lhs, then those of rhs.
        """
        left, right = self._factors(lhs, rhs)
        numbers = as_dot_dimensions(dimension_numbers)
        op = Dot(
            lhs_batch_dims=tuple(numbers.lhs_batch_dimensions),
            lhs_contracting_dims=tuple(numbers.lhs_contracting_dimensions),
            rhs_batch_dims=tuple(numbers.rhs_batch_dimensions),
            rhs_contracting_dims=tuple(numbers.rhs_contracting_dimensions),
            operand_precision=self._precision(precision_config),
        )
        return self._product(op, left, right, preferred_element_type)

    def ragged_dot(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        group_sizes: OperandLike,
        dimension_numbers: DotDimensionsLike,
        lhs_ragged_dimensions: Sequence[int],
        rhs_group_dimensions: Sequence[int] = (),
        precision_config: str | Sequence[str] | None = None,
    ) -> XlaOp:
        """A product in which one dimension of lhs is cut into groups of `group_sizes`."""
        left, right = self._factors(lhs, rhs)
        numbers = as_dot_dimensions(dimension_numbers)
        op = RaggedDot(
            lhs_batch_dims=tuple(numbers.lhs_batch_dimensions),
            lhs_contracting_dims=tuple(numbers.lhs_contracting_dimensions),
            rhs_batch_dims=tuple(numbers.rhs_batch_dimensions),
            rhs_contracting_dims=tuple(numbers.rhs_contracting_dimensions),
            lhs_ragged_dims=as_integers(lhs_ragged_dimensions, "lhs_ragged_dimensions"),
            rhs_group_dims=as_integers(rhs_group_dimensions, "rhs_group_dimensions"),
            operand_precision=self._precision(precision_config),
        )
        return self._add(op, [left, right, self._array(group_sizes, S32)])

    def conv(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        window_strides: Sequence[int],
        padding: PaddingLike = "valid",
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
    ) -> XlaOp:
        """padding: "same" (as many windows as elements, without strides) or "valid" (none).

        lhs is [batch, features, spatial..], rhs [output features, input features, window..], the result as lhs.
        """
        return self.conv_general_dilated(
            lhs, rhs, window_strides, padding,
            feature_group_count=feature_group_count, batch_group_count=batch_group_count,
            precision_config=precision_config, preferred_element_type=preferred_element_type,
        )  # fmt: skip

    def conv_with_general_padding(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        window_strides: Sequence[int],
        padding: PaddingLike,
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
    ) -> XlaOp:
        """padding: (low, high) zeros for each spatial dimension; negative numbers remove elements."""
        return self.conv_general_dilated(
            lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
            feature_group_count=feature_group_count, batch_group_count=batch_group_count,
            precision_config=precision_config, preferred_element_type=preferred_element_type,
        )  # fmt: skip

    def conv_with_general_dimensions(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        window_strides: Sequence[int],
        padding: PaddingLike,
        dimension_numbers: ConvolutionDimensionsLike,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
    ) -> XlaOp:
        """`conv` with the dimensions in another order."""
        return self.conv_general(
            lhs, rhs, window_strides, padding, dimension_numbers, feature_group_count, batch_group_count,
            precision_config, preferred_element_type,
        )  # fmt: skip

    def conv_general(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        window_strides: Sequence[int],
        padding: PaddingLike,
        dimension_numbers: ConvolutionDimensionsLike,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
    ) -> XlaOp:
        """`conv_with_general_padding` with the dimensions in another order."""
        return self.conv_general_dilated(
            lhs, rhs, window_strides, padding, None, None, dimension_numbers, feature_group_count, batch_group_count,
            precision_config, preferred_element_type,
        )  # fmt: skip

    def conv_general_dilated(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        window_strides: Sequence[int],
        padding: PaddingLike,
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        dimension_numbers: ConvolutionDimensionsLike = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: str | Sequence[str] | None = None,
        preferred_element_type: ElementTypeLike | None = None,
        window_reversal: Sequence[bool] | None = None,
    ) -> XlaOp:
        """dimension_numbers: labels such as `b01f_01io->b01f`; the order of `conv` if left out.

        A dilation of d puts d - 1 zeros between neighbours of lhs (rhs); window_reversal reverses the kernel.
        """
        left, right = self._factors(lhs, rhs)
        labels = as_convolution_dimensions(dimension_numbers, left.rank)
        if left.rank < 2 or left.rank != right.rank or len(labels.input_spatial) != left.rank - 2:
            raise broken_rule(
                f"convolution.C1: {left.shape} and {right.shape} must have a batch, a feature and as many spatial "
                "dimensions as dimension_numbers names"
            )
        window = as_window(
            [left.shape.dims[d] for d in labels.input_spatial],
            [right.shape.dims[d] for d in labels.kernel_spatial],
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            window_reversal,
            base="lhs_dilation",
            window="rhs_dilation",
        )
        op = Convolution(
            window=window,
            dim_labels=labels,
            feature_group_count=as_integer(feature_group_count, "feature_group_count"),
            batch_group_count=as_integer(batch_group_count, "batch_group_count"),
            operand_precision=self._precision(precision_config),
        )
        return self._product(op, left, right, preferred_element_type)

    def _factors(self, lhs: OperandLike, rhs: OperandLike) -> tuple[XlaOp, XlaOp]:
        """Constants take the element type of the other factor."""
        if isinstance(rhs, XlaOp) and not isinstance(lhs, XlaOp):
            right = self._array(rhs)
            return self._array(lhs, right.dtype), right
        left = self._array(lhs)
        return left, self._array(rhs, left.dtype)

    def _product(self, op: Op, lhs: XlaOp, rhs: XlaOp, preferred: ElementTypeLike | None) -> XlaOp:
        """The result's type is stated, or the wider operand's."""
        if preferred is None:
            return self._add(op, [lhs, rhs])
        element_type = as_element_type(preferred, "preferred_element_type")
        inferred = self._verified(op, [lhs.shape, rhs.shape], None)
        return self._add(op, [lhs, rhs], Shape(element_type, inferred.dims, inferred.dynamic))

    def _precision(self, given: str | Sequence[str] | None) -> tuple[str, ...]:
        words = (
            (given, given)
            if isinstance(given, str)
            else as_sequence(() if given is None else given, "precision_config")
        )
        found = tuple(as_word(word, "precision_config").lower() for word in words)
        if any(word not in PRECISIONS for word in found):
            raise broken_rule(f"precision: {list(words)} are not of {', '.join(PRECISIONS)}", "precision_config")
        return found
