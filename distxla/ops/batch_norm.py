"""HLO `batch-norm-training`, `batch-norm-inference` and `batch-norm-grad`."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class BatchNormTraining(Op):
    """Normalise over all dimensions but the feature; also the mean and the variance."""

    opcode = "batch-norm-training"
    lowering = Lowering.NONE
    min_operands = 3
    max_operands = 3
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")


@register
class BatchNormInference(Op):
    """Normalise with a given mean and variance."""

    opcode = "batch-norm-inference"
    lowering = Lowering.NONE
    min_operands = 5
    max_operands = 5
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")


@register
class BatchNormGrad(Op):
    """Gradients of batch-norm-training."""

    opcode = "batch-norm-grad"
    lowering = Lowering.NONE
    min_operands = 5
    max_operands = 5
    epsilon: float = attribute("float")
    feature_index: int = attribute("int")
