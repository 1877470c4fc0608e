"""HLO `convolution`: sums of products under a window; ops/support/convolution_kernel.py has its code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.dynamic_shape import Agreement
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.ops.support.convolution_kernel import emit_convolution
from distxla.ops.support.dot_dimensions import check_precision, check_result_type, product_type
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.matrix_views import accumulation_type
from distxla.ops.support.registry import register
from distxla.ops.support.window_position import array_positions, check_positive


@register
class Convolution(ExecutableOp):
    """Sum of products of the input under a window with a kernel, for every window and output feature.

    Shapes:   input [batch, features, spatial], kernel [features / groups, output features, window], in the orders
              that dim_labels gives -> [batch / batch groups, output features, windows].
    Groups:   output features are cut into feature_group_count (or batch_group_count) runs; run g sees only run g of
              the input's features (or of its batch).
    Types:    as dot.
    Errors:   C1 ranks; C2 the window's rank; C3 C6 C8 a stride or dilation below 1; C10 C11 C14 to C16 dimension sizes
              that don't fit the groups; C13 C18 C20 dim_labels; C21 C22 a group count below 1; C23 both above 1; C24
              operand_precision; C25 the result's dimension sizes; C27 its type; size: the window differs from the
              kernel;
              kind: no such convolution_kind.
    Source:   StableHLO spec, "convolution"; Operation Semantics, "ConvGeneralDilated".
    """

    opcode: ClassVar[str] = "convolution"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(2)
    window: Window = attribute("window", default=Window())
    dim_labels: ConvolutionDimensions = attribute("dim_labels")
    feature_group_count: int = attribute("int", default=1)
    batch_group_count: int = attribute("int", default=1)
    convolution_kind: str | None = attribute("word", default=None, also=("conv_kind", "word"))
    sparsity_config: str | None = attribute("raw", default=None)
    operand_precision: tuple[str, ...] = attribute("precision", default=())

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        lhs, rhs = operands
        self._check_dimensions(lhs, rhs)
        self._check_groups(lhs, rhs)
        check_precision(self, "C24", self.operand_precision)
        kinds = (None, "unset", "fprop", "dgrad", "wgrad")
        known = self.convolution_kind in kinds
        self.require(known, "kind", f"{self.convolution_kind} is none of {', '.join(kinds[1:])}", at="convolution_kind")
        labels, rank = self.dim_labels, lhs.rank
        dims = [0] * rank
        dims[labels.output_batch] = lhs.dims[labels.input_batch] // self.batch_group_count
        dims[labels.output_feature] = rhs.dims[labels.kernel_output_feature]
        for number, window in enumerate(self.window.dimensions):
            dimension_size = lhs.dims[labels.input_spatial[number]]
            dims[labels.output_spatial[number]] = window.output_size(dimension_size)
        return Shape(product_type(lhs, rhs), tuple(dims))

    def _check_dimensions(self, lhs: Shape, rhs: Shape) -> None:
        labels, window = self.dim_labels, self.window
        self.require(lhs.is_array and rhs.is_array, "C1", "convolves arrays", at="operands")
        self.require(lhs.rank == rhs.rank, "C1", f"{lhs} and {rhs} differ in rank", at="operands")
        rank = lhs.rank
        self.require(
            window.rank == rank - 2,
            "C2",
            f"the window has {window.rank} dimensions, {lhs} has {rank - 2} spatial ones",
            at="window",
        )
        check_positive(self, window, ("size", "C3", "C6", "C8"))
        for rule, what, numbers in (
            ("C13", "input", (labels.input_batch, labels.input_feature, *labels.input_spatial)),
            ("C18", "kernel", (labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial)),
            ("C20", "output", (labels.output_batch, labels.output_feature, *labels.output_spatial)),
        ):
            self.require(
                sorted(numbers) == list(range(rank)),
                rule,
                f"the {what} labels don't name the {rank} dimensions once each",
                at="dim_labels",
            )
        for number, dimension in enumerate(window.dimensions):
            dimension_size = rhs.dims[labels.kernel_spatial[number]]
            self.require(
                dimension.size == dimension_size,
                "size",
                f"window dimension {number} has size {dimension.size}, the kernel {dimension_size}",
                at="window",
            )

    def _check_groups(self, lhs: Shape, rhs: Shape) -> None:
        labels, features, batches = self.dim_labels, self.feature_group_count, self.batch_group_count
        self.require(features >= 1, "C21", f"feature_group_count={features}", at="feature_group_count")
        self.require(batches >= 1, "C22", f"batch_group_count={batches}", at="batch_group_count")
        self.require(features == 1 or batches == 1, "C23", "both group counts are above 1", at="batch_group_count")
        batch, feature = lhs.dims[labels.input_batch], lhs.dims[labels.input_feature]
        kernel_in, kernel_out = rhs.dims[labels.kernel_input_feature], rhs.dims[labels.kernel_output_feature]
        for rule, dimension_size, groups, at in (
            ("C10", batch, batches, "batch_group_count"),
            ("C11", feature, features, "feature_group_count"),
            ("C15", kernel_out, batches, "batch_group_count"),
            ("C16", kernel_out, features, "feature_group_count"),
        ):
            self.require(dimension_size % groups == 0, rule, f"{dimension_size} is no multiple of {groups}", at=at)
        self.require(
            kernel_in == feature // features,
            "C14",
            f"the kernel has {kernel_in} input features, a group of the input has {feature // features}",
            at="operands",
        )

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        inferred = self.infer_shape(operands, called)
        self.require(
            shape.is_array and shape.dims == inferred.dims,
            "C25",
            f"the result is {inferred}, the text says {shape}",
            at="shape",
        )
        check_result_type(self, shape, *operands, rule="C27")

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        if (self.sparsity_config or "{}").strip("{} "):
            return "this version cannot execute convolution of sparse operands (sparsity_config)"
        return super().obstacle(shape, operands)

    def agreeing_dimensions(self, operands: Sequence[Shape]) -> tuple[Agreement, ...]:
        labels = self.dim_labels
        return (((0, labels.input_feature), (1, labels.kernel_input_feature)),) if self.feature_group_count == 1 else ()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        """One matrix product for each group and each place in the window, on all windows at once."""
        labels, element_type = self.dim_labels, run.shape.dtype
        wide = accumulation_type(element_type).dtype
        lhs = operands[0].astype(wide).transpose(labels.input_batch, labels.input_feature, *labels.input_spatial)
        rhs = operands[1].astype(wide)
        rhs = rhs.transpose(labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial)
        order = (labels.output_batch, labels.output_feature, *labels.output_spatial)
        dims = tuple(run.shape.dims[d] for d in order)
        windows, spatial = dims[2:], lhs.shape[2:]
        features, batches = self.feature_group_count, self.batch_group_count
        groups = max(features, batches)
        result = np.zeros(dims, wide)
        if lhs.size == 0:
            return result.transpose(np.argsort(order)).astype(element_type.dtype)
        for place in np.ndindex(tuple(d.size for d in self.window.dimensions)):
            positions, inside = array_positions(self.window, place, windows, spatial)
            seen = np.where(inside, lhs[(slice(None), slice(None), *positions)], wide.type(0))
            at = tuple(d.size - 1 - p if d.reversal else p for p, d in zip(place, self.window.dimensions))
            weights = rhs[(slice(None), slice(None), *at)]
            for group in range(groups):
                part = seen
                if features > 1:
                    part = _run(part, 1, group, groups)
                if batches > 1:
                    part = _run(part, 0, group, groups)
                product = np.tensordot(part, _run(weights, 1, group, groups), axes=(1, 0))
                _run(result, 1, group, groups)[...] += np.moveaxis(product, -1, 1)
        return result.transpose(np.argsort(order)).astype(element_type.dtype)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        emit_convolution(
            emit,
            self.window,
            self.dim_labels,
            (self.feature_group_count, self.batch_group_count),
            results[0],
            *operands,
        )


def _run(array: Any, axis: int, group: int, groups: int) -> Any:
    """The part of `array` that belongs to a group along an axis, as a view."""
    dimension_size = array.shape[axis] // groups
    return array[(slice(None),) * axis + (slice(group * dimension_size, (group + 1) * dimension_size),)]
