"""cuDNN's layer normalisation."""

from __future__ import annotations

from math import prod

from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import gpu_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.expansion import Build

KINDS = ("LAYER_FWD_INFER", "LAYER_FWD_TRAIN", "LAYER_BWD")  # as XLA numbers them


@target("__cudnn$norm")
class Norm(ExpandedTarget):
    """Layer normalisation, or its gradient: (x - mean) rsqrt(variance + epsilon) scale + bias.

    The mean and the variance are those along the dimensions in which the scale has the dimension sizes of x; in the
    others its dimension sizes, and those of the bias, are 1. Computed in f32 where x is a narrower float.

    LAYER_FWD_INFER: x, scale, bias -> the result, a workspace.
    LAYER_FWD_TRAIN: x, scale, bias -> the result, the mean, rsqrt(variance + epsilon), a workspace.
    LAYER_BWD:       x, scale, the result's gradient, the mean, rsqrt(..) -> gradients of x, scale and bias, a
                     workspace.
    Source:          XLA, cudnn_norm_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = gpu_fields(call, "cudnn_norm_backend_config")
        fields.only({"epsilon", "kind", "algorithm"})
        kind = fields.choice("kind", KINDS)
        backward = kind == "LAYER_BWD"
        what = "x, scale, gradient, mean, rsqrt(variance)" if backward else "x, scale, bias"
        steps.operands_required(call, [5 if backward else 3], what)
        x, scale = call.operands[:2]
        if not x.dtype.is_float or scale.rank != x.rank or any(n not in (1, m) for n, m in zip(scale.dims, x.dims)):
            raise ConfigError(f"the scale {scale} does not fit {x}")
        along = [d for d, size in enumerate(scale.dims) if size == x.dims[d]]
        norm = _Norm(build, along, [d for d in range(x.rank) if d not in along])
        wide = steps.compute_type(x.dtype)
        values = [build.convert(operand, wide) for operand in operands]
        if backward:
            results = norm.gradients(*values)
        else:
            results = norm.normalised(fields.number("epsilon"), *values)[: 1 if kind == "LAYER_FWD_INFER" else 3]
        shapes = steps.result_shapes(call)
        if len(shapes) < len(results) or not all(shape.is_array for shape in shapes):
            raise ConfigError(f"gives {len(results)} arrays, the text says {call.shape}")
        narrowed = [
            build.reshape(steps.narrowed(build, value, shape.dtype), shape.dims)
            for value, shape in zip(results, shapes)
        ]
        return steps.joined(call, build, narrowed)


class _Norm:
    """along: the dimensions that are normalised.  batch: the others."""

    def __init__(self, build: Build, along: list[int], batch: list[int]) -> None:
        self.build, self.along, self.batch = build, along, batch

    def normalised(self, epsilon: float, x: str, scale: str, bias: str) -> list[str]:
        build = self.build
        mean = self.mean(x)
        centred = build.compute("subtract", x, self.over_batch(mean, x))
        variance = self.mean(build.compute("multiply", centred, centred))
        factor = build.compute("rsqrt", build.compute("add", variance, steps.like(build, epsilon, variance)))
        x = build.compute("multiply", centred, self.over_batch(factor, x))
        x = build.compute("multiply", x, self.for_all(scale, x))
        return [build.compute("add", x, self.for_all(bias, x)), mean, factor]

    def gradients(self, x: str, scale: str, grad: str, mean: str, factor: str) -> list[str]:
        build = self.build
        factor = self.over_batch(factor, x)
        unit = build.compute("multiply", build.compute("subtract", x, self.over_batch(mean, x)), factor)
        of_unit = build.compute("multiply", grad, self.for_all(scale, x))
        along_unit = self.over_batch(self.mean(build.compute("multiply", of_unit, unit)), x)
        of_x = build.compute("subtract", of_unit, self.over_batch(self.mean(of_unit), x))
        of_x = build.compute("subtract", of_x, build.compute("multiply", unit, along_unit))
        of_scale = build.sum(build.compute("multiply", grad, unit), self.batch)
        return [build.compute("multiply", of_x, factor), of_scale, build.sum(grad, self.batch)]

    def mean(self, x: str) -> str:
        """One number for each place of the batch."""
        count = prod(self.build.shape(x).dims[d] for d in self.along)
        total = self.build.sum(x, self.along)
        return self.build.compute("divide", total, steps.like(self.build, count, total))

    def over_batch(self, numbers: str, x: str) -> str:
        """Numbers of the batch's places, whatever dimensions of size 1 they have besides, at every element of x."""
        dims = self.build.shape(x).dims
        return self.build.broadcast(self.build.reshape(numbers, [dims[d] for d in self.batch]), dims, self.batch)

    def for_all(self, numbers: str, x: str) -> str:
        """Numbers of the normalised places at every element of x."""
        dims = self.build.shape(x).dims
        return self.build.broadcast(self.build.reshape(numbers, [dims[d] for d in self.along]), dims, self.along)
