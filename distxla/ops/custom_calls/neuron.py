"""Custom-calls of AWS Neuron: what torch-neuronx and transformers-neuronx write into a module for its compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.annotation import Annotation
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.expansion import Build


@target("AwsNeuronTransferWithStaticRing")
class Transfer(Annotation):
    """The operand itself: a parameter of a model, which the chip's memory gets in another way than other arrays.

    Source: torch-neuronx, TransferWithStaticRing, whose gradient is its own operand, too.
    """


class _Dense(ExpandedTarget):
    """Computes in f32 where the operands are narrower, and rounds once."""

    def wide(self, call: Call, build: CallBuild, *operands: str) -> tuple[ElementType, list[str]]:
        """The type to compute in and the operands in it; ConfigError for other operands than floats."""
        if not all(shape.is_array and shape.dtype.is_float for shape in call.operands):
            raise ConfigError(f"takes arrays of floats, the operands are ({', '.join(map(str, call.operands))})")
        kind = steps.compute_type(call.operands[0].dtype)
        return kind, [build.convert(operand, kind) for operand in operands]

    def narrow(self, call: Call, build: CallBuild, value: str) -> str:
        """The value in the result's type, which may be another one than the operands'."""
        kind = call.shape.element_type
        if kind is None or not kind.is_float:
            raise ConfigError(f"gives floats, the text says {call.shape}")
        return build.convert(value, kind)

    def dimension(self, call: Call) -> int:
        """backend_config: the dimension along which to normalise, in decimal digits."""
        text, shape = call.instruction.backend_config or "", call.operands[0]
        if not text.isdecimal() or not int(text) < shape.rank:
            raise ConfigError(f"backend_config is {text!r}, not the number of a dimension of {shape}")
        return int(text)


def _gelu_derivative(build: Build, x: str) -> str:
    """(1 + erf(x / sqrt(2))) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)."""
    bend = build.compute("erf", steps.scaled(build, x, 1 / sqrt(2)))
    below = steps.scaled(build, build.compute("add", bend, steps.like(build, 1, x)), 0.5)
    square = build.compute("multiply", x, x)
    density = steps.scaled(build, build.compute("exponential", steps.scaled(build, square, -0.5)), 1 / sqrt(2 * pi))
    return build.compute("add", below, build.compute("multiply", x, density))


_ACTIVATIONS: Mapping[str, Callable[[Build, str], str]] = {
    "AwsNeuronGelu": steps.gelu,
    "AwsNeuronGeluBackward": _gelu_derivative,
}


@target(*_ACTIVATIONS)
class Gelu(_Dense):
    """GELU by the error function, x / 2 (1 + erf(x / sqrt(2))), or its derivative at x, without the gradient.

    Source: torch-neuronx, which computes torch's gelu without approximation by them; the caller multiplies the
    derivative by the gradient.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        steps.operands_required(call, [1], "one array")
        _, (x,) = self.wide(call, build, *operands)
        return self.narrow(call, build, _ACTIVATIONS[call.name](build, x))


@target("AwsNeuronSoftmax")
class Softmax(_Dense):
    """exp(x - max) / sum along the dimension that backend_config names.

    Source: torch-neuronx, the reference beside Softmax.forward_impl.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        steps.operands_required(call, [1], "one array")
        dimension = self.dimension(call)
        _, (x,) = self.wide(call, build, *operands)
        most = steps.largest(build, x, [dimension], float("-inf"))
        power = build.compute("exponential", build.compute("subtract", x, _over(build, most, x, dimension)))
        total = _over(build, build.sum(power, [dimension]), x, dimension)
        return self.narrow(call, build, build.compute("divide", power, total))


@target("AwsNeuronSoftmaxBackward")
class SoftmaxBackward(_Dense):
    """The gradient for softmax's operand, y (g - sum(g y)), of its result's gradient g and its result y.

    Source: torch-neuronx, the reference beside Softmax.backward_impl.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        steps.operands_required(call, [2], "a gradient and a softmax")
        _same_dims(call.operands)
        dimension = self.dimension(call)
        _, (gradient, result) = self.wide(call, build, *operands)
        total = build.sum(build.compute("multiply", gradient, result), [dimension])
        rest = build.compute("subtract", gradient, _over(build, total, gradient, dimension))
        return self.narrow(call, build, build.compute("multiply", result, rest))


@target("AwsNeuronRmsNorm")
class RmsNorm(_Dense):
    """x rsqrt(mean(x^2) + epsilon) weight, the mean and the weight along the dimension that backend_config names.

    Shapes: x T[.., n, ..], weight [n], epsilon [] -> [.., n, ..], any floats.
    Source: transformers-neuronx, which computes the same by other operations where n is 1.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        steps.operands_required(call, [3], "an array, a weight and an epsilon")
        dimension = self.dimension(call)
        shape, weight, epsilon = call.operands
        if weight.dims != (shape.dims[dimension],) or epsilon.size != 1:
            raise ConfigError(
                f"the weight {weight} or the epsilon {epsilon} does not fit dimension {dimension} of {shape}"
            )
        _, (x, weights, small) = self.wide(call, build, *operands)
        squares = build.sum(build.compute("multiply", x, x), [dimension])
        mean = steps.scaled(build, squares, 1 / max(1, shape.dims[dimension]))
        small = build.broadcast(build.reshape(small, ()), build.shape(mean).dims)
        factor = build.compute("rsqrt", build.compute("add", mean, small))
        unit = build.compute("multiply", x, _over(build, factor, x, dimension))
        return self.narrow(
            call, build, build.compute("multiply", unit, build.broadcast(weights, shape.dims, [dimension]))
        )


def _over(build: Build, values: str, array: str, dimension: int) -> str:
    """Values without that dimension, repeated along it."""
    shape = build.shape(array)
    return build.broadcast(values, shape.dims, [d for d in range(shape.rank) if d != dimension])


def _same_dims(shapes: Sequence[Shape]) -> None:
    if any(shape.dims != shapes[0].dims for shape in shapes):
        raise ConfigError(f"the operands differ in their dimension sizes: {', '.join(map(str, shapes))}")
