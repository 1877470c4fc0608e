"""HLO `batch-norm-training`, `batch-norm-inference` and `batch-norm-grad`.

Types narrower than f32 are computed in f32 and rounded once at the end. XLA CPU does so for bf16 alone: f16 overflows
there as soon as a sum of squares does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import F32, F64, ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ir.window import SliceDimension
from distxla.ops.slice import Slice
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import register


@register
class BatchNormTraining(ExecutableOp):
    """Normalise over all dimensions but the feature; also the mean and the variance.

    The variance is that of the population. It is found in one pass over the operand, as in XLA, but of differences to
    each feature's first element: E[x^2] - E[x]^2 of the elements themselves cancels where the mean is large.

    Shapes:  (T[..f..], scale T[f], offset T[f]) -> (T[..f..], mean T[f], variance T[f]).
    Errors:  C1 feature_index; C2 types that differ, or are no floats; C3 a vector that isn't one value a feature.
    Source:  StableHLO spec, "batch_norm_training"; Operation Semantics, "BatchNormTraining".
    """

    opcode: ClassVar[str] = "batch-norm-training"
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(3)
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        vector = _check_features(self, self.feature_index, operands[0], operands[1:])
        return Shape.tuple((operands[0].without_layout(), vector, vector))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        x, scale, offset = (operand.astype(np.float64) for operand in operands)
        others = _others(x.ndim, self.feature_index)
        count = np.float64(prod(x.shape[d] for d in others))
        mean = x.sum(others) / count
        deviation = x - _spread(mean, x, self.feature_index)
        variance = (deviation * deviation).sum(others) / count
        factor = scale / np.sqrt(variance + _f32(self.epsilon))
        result = deviation * _spread(factor, x, self.feature_index) + _spread(offset, x, self.feature_index)
        return tuple(array.astype(operands[0].dtype) for array in (result, mean, variance))

    def expand(self, build: Build, instruction: Instruction) -> str:
        features = _Features(build, build.shape(instruction.operands[0]), self.feature_index)
        x, scale, offset = map(features.wide, instruction.operands)
        mean, variance = features.moments(x)
        result = features.normalised(x, scale, offset, mean, variance, _f32(self.epsilon))
        return build.join(*map(features.narrow, (result, mean, variance)))


@register
class BatchNormInference(ExecutableOp):
    """Normalise with a given mean and variance.

    Shapes:  (T[..f..], scale, offset, mean, variance: T[f]) -> T[..f..].
    Errors:  C1 feature_index; C2 types that differ, or are no floats; C3 a vector that isn't one value a feature.
    Source:  StableHLO spec, "batch_norm_inference"; Operation Semantics, "BatchNormInference".
    """

    opcode: ClassVar[str] = "batch-norm-inference"
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(5)
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        _check_features(self, self.feature_index, operands[0], operands[1:])
        return operands[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        x, *vectors = (operand.astype(np.float64) for operand in operands)
        scale, offset, mean, variance = (_spread(vector, x, self.feature_index) for vector in vectors)
        result = (x - mean) / np.sqrt(variance + _f32(self.epsilon)) * scale + offset
        return result.astype(operands[0].dtype)

    def expand(self, build: Build, instruction: Instruction) -> str:
        features = _Features(build, build.shape(instruction.operands[0]), self.feature_index)
        x, scale, offset, mean, variance = map(features.wide, instruction.operands)
        return features.narrow(features.normalised(x, scale, offset, mean, variance, _f32(self.epsilon)))


@register
class BatchNormGrad(ExecutableOp):
    """Gradients of batch-norm-training.

    Shapes:  (T[..f..], scale, mean, variance: T[f], gradient of the output T[..f..]) -> (T[..f..], T[f], T[f]).
    Errors:  C1 feature_index; C2 types that differ, or are no floats; C3 a vector that isn't one value a feature;
             C4 the gradient's shape.
    Source:  StableHLO spec, "batch_norm_grad"; Operation Semantics, "BatchNormGrad".
    """

    opcode: ClassVar[str] = "batch-norm-grad"
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(5)
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        operand, gradient = operands[0], operands[4]
        vector = _check_features(self, self.feature_index, operand, operands[1:4])
        self.require(gradient.compatible(operand), "C4", f"{gradient} is no gradient of {operand}", at="operands")
        return Shape.tuple((operand.without_layout(), vector, vector))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        x, scale, mean, variance, gradient = (operand.astype(np.float64) for operand in operands)
        others = _others(x.ndim, self.feature_index)
        count = np.float64(prod(x.shape[d] for d in others))
        inverse = 1 / np.sqrt(variance + _f32(self.epsilon))
        normalised = (x - _spread(mean, x, self.feature_index)) * _spread(inverse, x, self.feature_index)
        of_offset, of_scale = gradient.sum(others), (gradient * normalised).sum(others)
        common = _spread(of_offset, x, self.feature_index) + normalised * _spread(of_scale, x, self.feature_index)
        of_operand = _spread(scale * inverse, x, self.feature_index) * (gradient - common / count)
        return tuple(array.astype(operands[0].dtype) for array in (of_operand, of_scale, of_offset))

    def expand(self, build: Build, instruction: Instruction) -> str:
        features = _Features(build, build.shape(instruction.operands[0]), self.feature_index)
        x, scale, mean, variance, gradient = map(features.wide, instruction.operands)
        compute, spread = build.compute, features.spread
        deviation = compute("subtract", x, spread(mean))
        shifted = compute("add", variance, features.number(_f32(self.epsilon)))
        inverse = compute("rsqrt", shifted)
        of_offset = build.sum(gradient, features.others)
        weighted = build.sum(compute("multiply", gradient, deviation), features.others)
        of_scale = compute("multiply", weighted, inverse)
        # gradient - mean(gradient) - deviation * mean(gradient * deviation) / variance, times scale / deviation
        count = features.number(features.count)
        slope = compute("divide", compute("divide", weighted, shifted), count)
        left = compute("subtract", gradient, spread(compute("divide", of_offset, count)))
        left = compute("subtract", left, compute("multiply", deviation, spread(slope)))
        of_operand = compute("multiply", left, spread(compute("multiply", scale, inverse)))
        return build.join(*map(features.narrow, (of_operand, of_scale, of_offset)))


class _Features:
    """Builds the instructions that the three have in common, in a type wide enough to compute in."""

    def __init__(self, build: Build, shape: Shape, feature: int) -> None:
        self.build, self.shape, self.feature = build, shape, feature
        self.others = _others(shape.rank, feature)
        self.count = prod(shape.dims[d] for d in self.others)
        self.element_type: ElementType = F64 if shape.dtype is F64 else F32

    def wide(self, operand: str) -> str:
        return self.build.convert(operand, self.element_type)

    def narrow(self, operand: str) -> str:
        return self.build.convert(operand, self.shape.dtype)

    def number(self, value: float) -> str:
        """One a feature."""
        return self.build.constant(value, self.element_type, (self.shape.dims[self.feature],))

    def spread(self, vector: str) -> str:
        """A value a feature as an array of the operand's dimension sizes."""
        return self.build.broadcast(vector, self.shape.dims, (self.feature,))

    def moments(self, x: str) -> tuple[str, str]:
        """Mean and variance, by two sums over the same elements, which become one loop."""
        build, compute = self.build, self.build.compute
        count = self.number(self.count)
        if not self.shape.size:
            mean = compute("divide", self.number(0), count)
            return mean, mean
        dims = self.shape.dims
        first = build.add(
            Slice(
                slice=tuple(
                    SliceDimension(0, dimension_size if d == self.feature else 1)
                    for d, dimension_size in enumerate(dims)
                )
            ),
            x,
        )
        origin = build.reshape(first, (dims[self.feature],))
        origin = build.select(compute("is-finite", origin), origin, self.number(0))
        difference = compute("subtract", x, self.spread(origin))
        sums = [build.sum(values, self.others) for values in (difference, compute("multiply", difference, difference))]
        mean, square = (compute("divide", found, count) for found in sums)
        variance = compute("subtract", square, compute("multiply", mean, mean))
        # Rounding may leave less than nothing of a variance near zero.
        return compute("add", origin, mean), compute("maximum", variance, self.number(0))

    def normalised(self, x: str, scale: str, offset: str, mean: str, variance: str, epsilon: float) -> str:
        compute = self.build.compute
        deviation = compute("rsqrt", compute("add", variance, self.number(epsilon)))
        centered = compute("subtract", x, self.spread(mean))
        scaled = compute("multiply", centered, self.spread(compute("multiply", deviation, scale)))
        return compute("add", scaled, self.spread(offset))


def _others(rank: int, feature: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != feature)


def _f32(epsilon: float) -> float:
    """As XLA holds it, whatever the operands' type."""
    return float(np.float32(epsilon))


def _spread(vector: Any, like: Any, feature: int) -> Any:
    """A value a feature, with dimension sizes that broadcast against `like`."""
    return vector.reshape(tuple(-1 if d == feature else 1 for d in range(like.ndim)))


def _check_features(op: Op, feature: int, operand: Shape, vectors: Sequence[Shape]) -> Shape:
    """The shape of one value a feature, which all `vectors` must have."""
    op.require(
        operand.is_array and 0 <= feature < operand.rank,
        "C1",
        f"feature_index={feature} for {operand}",
        at="feature_index",
    )
    op.require(operand.dtype.is_float, "C2", f"{operand.dtype} is no float type", at="operands")
    want = Shape(operand.dtype, (operand.dims[feature],))
    for vector in vectors:
        op.require(vector.is_array and vector.dtype is operand.dtype, "C2", f"{vector} for {operand}", at="operands")
        op.require(vector.dims == want.dims, "C3", f"{vector} is not {want}", at="operands")
    return want
