"""cuDNN's fused attention of 8-bit floats."""

from __future__ import annotations

from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.attention import (
    PRODUCTS,
    canonical,
    divisor,
    exponentials,
    for_every_head,
    free,
    options,
    product,
    scaled_logits,
)
from distxla.ops.custom_calls.target import Call, target


@target("__cudnn$fmhaSoftmaxF8")
class AttentionF8(ExpandedTarget):
    """Attention of 8-bit floats with scales; the softmax is rounded to 8 bits, too, before it meets V.

    Operands:  Q, K, V; the factors of Q, K, V and of the rounded softmax; the factors of the softmax before it is
               rounded, and of the result. Scales have one element.
    Results:   the result, saturated; the largest magnitudes of the softmax and of the result before they are scaled;
               the logarithm of each softmax's sum, f32[batch, head, query], if it is stated; a workspace.
    Masks:     none, or CAUSAL.
    Source:    XLA, cudnn_custom_call_compiler.cc; JAX, which writes these calls.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields, asked = options(call)
        fields.require(not asked.padding, "mask_type", f"only NO_MASK and CAUSAL of {call.name}")
        fields.require(not asked.window, "sliding_window_length", f"only 0 of {call.name}")
        steps.operands_required(call, [9], "Q, K, V, the scales of Q, K, V and S, to S and to the result")
        first, second = (fields.dot_dimensions(name) for name in PRODUCTS[:2])
        of_q, of_k, of_v, of_s, to_s, to_result = operands[3:]
        q = canonical(build, operands[0], first.lhs_batch, free(build, operands[0], first, 0), first.lhs_contracting)
        k = canonical(build, operands[1], first.rhs_batch, free(build, operands[1], first, 1), first.rhs_contracting)
        v = canonical(build, operands[2], second.rhs_batch, second.rhs_contracting, free(build, operands[2], second, 1))
        k, v = (for_every_head(build, x, q) for x in (k, v))
        logits = scaled_logits(build, q, k, asked.scale, None)
        for scale in (of_q, of_k):
            logits = steps.scaled_by(build, logits, scale)
        weights, total, highest = exponentials(build, logits, asked, ())
        softmax = build.compute("divide", weights, divisor(build, total, asked, weights))
        narrow = steps.narrowed(build, steps.scaled_by(build, softmax, to_s), call.operands[0].dtype)
        x = product(build, build.convert(narrow, build.shape(v).dtype), v)
        for scale in (of_s, of_v):
            x = steps.scaled_by(build, x, scale)
        shapes = steps.result_shapes(call)
        if len(shapes) < 3 or not all(shape.is_array for shape in shapes):
            raise ConfigError(f"gives a result and two magnitudes, the text says {call.shape}")
        magnitudes = [
            build.reshape(build.convert(steps.largest_magnitude(build, value), shape.dtype), shape.dims)
            for value, shape in zip((softmax, x), shapes[1:])
        ]
        values = [steps.narrowed(build, steps.scaled_by(build, x, to_result), shapes[0].dtype), *magnitudes]
        if len(shapes) > 3 and not steps.is_workspace(shapes[3]):
            values.append(build.compute("add", highest, build.compute("log", total)))
        return steps.joined(call, build, values)
