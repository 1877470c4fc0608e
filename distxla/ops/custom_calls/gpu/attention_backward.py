"""The gradient of cuDNN's fused attention."""

from __future__ import annotations

from math import inf

from distxla.ir.shape import Shape
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.attention import (
    PRODUCTS,
    along_rows,
    canonical,
    finite,
    for_every_head,
    free,
    mask,
    only_queries,
    options,
    product,
    product_of_rows,
    rounded,
    scaled_logits,
)
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.dot_dimensions import DotDimensions
from distxla.ops.support.expansion import Build


@target(
    "__cudnn$fmhaSoftmaxBackward",
    "__cudnn$fmhaScaleBiasSoftmaxBackward",
    "__cudnn$fmhaSoftmaxDropoutBackward",
    "__cudnn$fmhaScaleBiasSoftmaxDropoutBackward",
)
class AttentionBackward(ExpandedTarget):
    """The gradients of attention for Q, K, V and the bias, computed in f32 and rounded once.

    Operands:  Q, K, V; the logarithms of the sums that the forward call gave; the gradient of its result; the bias, if
               the target has one; its result; the lengths of queries and keys, if the mask has padding.
    Results:   gradients of Q, K and V as [batch, head, row, feature]; that of the bias, if it is stated; a workspace.
    Source:    XLA, cudnn_custom_call_compiler.cc; JAX, which writes these calls.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields, asked = options(call)
        has_bias = "Bias" in call.name
        what = "Q, K, V, the sums, the result's gradient" + ", a bias" * has_bias + ", the result"
        what += ", lengths of queries, lengths of keys" * asked.padding
        steps.operands_required(call, [6 + has_bias + 2 * asked.padding], what)
        lengths = operands[-2:] if asked.padding else ()
        dims = [fields.dot_dimensions(name) for name in PRODUCTS[2:]]
        # dK = dS^T Q, dQ = dS K, dV = P^T dO: the sum is over rows; dP = dO V^T: over features
        q, k, grad, out = (
            canonical(build, x, d.rhs_batch, d.rhs_contracting, free(build, x, d, 1))
            for x, d in zip((*operands[:2], operands[4], operands[5 + has_bias]), (dims[0], dims[1], dims[2], dims[2]))
        )
        v = canonical(
            build, operands[2], dims[3].rhs_batch, free(build, operands[2], dims[3], 1), dims[3].rhs_contracting
        )
        heads = build.shape(k).dims[1]
        k, v = (for_every_head(build, x, q) for x in (k, v))
        if lengths:
            grad = only_queries(build, grad, lengths[0])
        bias = operands[5] if has_bias else None
        logits = scaled_logits(build, q, k, asked.scale, bias)
        visible = mask(build, logits, asked, lengths)
        if visible is not None:
            logits = build.select(visible, logits, steps.like(build, -inf, logits))
        sums = finite(build, build.convert(operands[3], build.shape(logits).dtype), asked)
        if build.shape(sums).dims != build.shape(logits).dims[:3]:
            raise ConfigError(
                f"sums of dimension sizes {build.shape(sums).dims} do not fit logits {build.shape(logits)}"
            )
        weights = build.compute("exponential", build.compute("subtract", logits, along_rows(build, sums, logits)))
        mean = along_rows(build, build.sum(build.compute("multiply", grad, out), [3]), logits)
        of_weights = product_of_rows(build, grad, v)
        of_logits = build.compute("multiply", weights, build.compute("subtract", of_weights, mean))
        values = [
            steps.scaled(build, product(build, of_logits, k), asked.scale),
            steps.scaled(build, _of_heads(build, _transposed_product(build, of_logits, q), heads), asked.scale),
            _of_heads(build, _transposed_product(build, weights, grad), heads),
        ]
        shapes = steps.result_shapes(call)
        if bias is not None and len(shapes) - steps.is_workspace(shapes[-1]) == 4:
            values.append(_of_bias(build, of_logits, build.shape(bias)))
        return steps.joined(call, build, [rounded(build, x, shape) for x, shape in zip(values, shapes)])


def _transposed_product(build: Build, a: str, b: str) -> str:
    """[.., k, m] and [.., k, n] give [.., m, n]."""
    return steps.dot(build, DotDimensions((0, 1), (2,), (0, 1), (2,)), a, b, build.shape(a).dtype)


def _of_heads(build: Build, x: str, heads: int) -> str:
    """The sums over the queries' heads that share one of the keys'."""
    batch, all_heads, rows, columns = build.shape(x).dims
    if all_heads == heads:
        return x
    return build.sum(build.reshape(x, (batch, heads, all_heads // heads, rows, columns)), [2])


def _of_bias(build: Build, of_logits: str, bias: Shape) -> str:
    """Summed where the bias was repeated."""
    dims = build.shape(of_logits).dims
    repeated = [d for d, size in enumerate(bias.dims) if size != dims[d]]
    if repeated:
        of_logits = build.sum(of_logits, repeated)
    return build.reshape(of_logits, bias.dims)
