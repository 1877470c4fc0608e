"""HLO `batch-norm-training`, `batch-norm-inference` and `batch-norm-grad`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class BatchNormTraining(Op):
    """Normalise over all dimensions but the feature; also the mean and the variance.

    Shapes:  (T[..f..], scale T[f], offset T[f]) -> (T[..f..], mean T[f], variance T[f]).
    Errors:  C1 feature_index; C2 types that differ; C3 a vector that isn't one value a feature.
    Source:  StableHLO spec, "batch_norm_training"; Operation Semantics, "BatchNormTraining".
    """

    opcode: ClassVar[str] = "batch-norm-training"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 3
    max_operands: ClassVar[int | None] = 3
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        vector = _check_features(self, self.feature_index, operands[0], operands[1:])
        return Shape.tuple((operands[0].without_layout(), vector, vector))


@register
class BatchNormInference(Op):
    """Normalise with a given mean and variance.

    Shapes:  (T[..f..], scale, offset, mean, variance: T[f]) -> T[..f..].
    Errors:  C1 feature_index; C2 types that differ; C3 a vector that isn't one value a feature.
    Source:  StableHLO spec, "batch_norm_inference"; Operation Semantics, "BatchNormInference".
    """

    opcode: ClassVar[str] = "batch-norm-inference"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 5
    max_operands: ClassVar[int | None] = 5
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        _check_features(self, self.feature_index, operands[0], operands[1:])
        return operands[0].without_layout()


@register
class BatchNormGrad(Op):
    """Gradients of batch-norm-training.

    Shapes:  (T[..f..], scale, mean, variance: T[f], gradient of the output T[..f..]) -> (T[..f..], T[f], T[f]).
    Errors:  C1 feature_index; C2 types that differ; C3 a vector that isn't one value a feature; C4 the
             gradient's shape.
    Source:  StableHLO spec, "batch_norm_grad"; Operation Semantics, "BatchNormGrad".
    """

    opcode: ClassVar[str] = "batch-norm-grad"
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 5
    max_operands: ClassVar[int | None] = 5
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        operand, gradient = operands[0], operands[4]
        vector = _check_features(self, self.feature_index, operand, operands[1:4])
        self.require(gradient.compatible(operand), "C4", f"{gradient} is no gradient of {operand}", at="operands")
        return Shape.tuple((operand.without_layout(), vector, vector))


def _check_features(op: Op, feature: int, operand: Shape, vectors: Sequence[Shape]) -> Shape:
    """The shape of one value a feature, which all `vectors` must have."""
    op.require(
        operand.is_array and 0 <= feature < operand.rank,
        "C1",
        f"feature_index={feature} for {operand}",
        at="feature_index",
    )
    want = Shape(operand.dtype, (operand.dims[feature],))
    for vector in vectors:
        op.require(vector.is_array and vector.dtype is operand.dtype, "C2", f"{vector} for {operand}", at="operands")
        op.require(vector.dims == want.dims, "C3", f"{vector} is not {want}", at="operands")
    return want
