"""cuDNN's fused attention, and the parts that its gradient (attention_backward.py) shares with it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import Fields, gpu_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.dot_dimensions import DotDimensions
from distxla.ops.support.expansion import Build

MASKS = ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL", "ALIBI")  # as XLA numbers them
PRODUCTS = (
    "bmm1_dot_dimension_numbers",
    "bmm2_dot_dimension_numbers",
    "bmm1_grad_gemm1_dot_dimension_numbers",
    "bmm1_grad_gemm2_dot_dimension_numbers",
    "bmm2_grad_gemm1_dot_dimension_numbers",
    "bmm2_grad_gemm2_dot_dimension_numbers",
)
FIELDS = {
    *PRODUCTS,
    "fmha_scale",
    "dropout_rate",
    "mask_type",
    "is_causal_mask",
    "sliding_window_length",
    "max_seg_per_batch",
    "is_paged_attention",
    # of the implementation, or implied by the shapes; the seed is dropout's
    "algorithm",
    "intermediate_tensor_shape",
    "is_flash_attention",
    "force_deterministic",
    "seed",
}


@dataclass(frozen=True)
class Options:
    """The settings of the configuration. window: how many keys a query sees, itself included; 0 for all."""

    scale: float
    causal: bool
    padding: bool
    window: int

    @property
    def masks(self) -> bool:
        return self.causal or self.padding


def options(call: Call) -> tuple[Fields, Options]:
    """Raises ConfigError for features that this version does not execute."""
    fields = gpu_fields(call, "cudnn_fmha_backend_config")
    fields.only(FIELDS)
    if "fmha_scale" not in fields:
        raise ConfigError(f"backend_config has no {fields.name('fmha_scale')!r}")
    fields.require(fields.number("dropout_rate") == 0, "dropout_rate", "only 0")
    mask = fields.choice("mask_type", MASKS)
    fields.require(mask != "ALIBI", "mask_type", f"only {', '.join(MASKS[:-1])}")
    fields.require(fields.integer("max_seg_per_batch") <= 1, "max_seg_per_batch", "one segment a batch")
    fields.require(not fields.flag("is_paged_attention"), "is_paged_attention", "only false")
    causal = mask in ("CAUSAL", "PADDING_CAUSAL") or fields.flag("is_causal_mask")
    window = max(0, fields.integer("sliding_window_length"))
    fields.require(causal or not window, "sliding_window_length", "windows of causal masks only")
    return fields, Options(fields.number("fmha_scale"), causal, mask.startswith("PADDING"), window)


@target(
    "__cudnn$fmhaSoftmax",
    "__cudnn$fmhaScaleBiasSoftmax",
    "__cudnn$fmhaSoftmaxDropout",
    "__cudnn$fmhaScaleBiasSoftmaxDropout",
    "__cudnn$fmhaScaleMaskSoftmax",
    "__cudnn$fmhaScaleMaskSoftmaxDropout",
    "__cudnn$fmhaScaleBiasMaskSoftmax",
    "__cudnn$fmhaScaleBiasMaskSoftmaxDropout",
)
class Attention(ExpandedTarget):
    """Attention: softmax(scale Q K^T + bias) V, computed in f32 and rounded once; there must be no dropout.

    Operands:  Q, K, V; a mask, if the target has one, which is 0 where logits become the least number; a bias, if the
               target has one; the lengths of queries and keys, s32[batch], if the mask has padding. Dimension sizes of
               mask and bias may be 1. K and V may have fewer heads, each for several of Q.
    Results:   [batch, head, query, feature]; the logarithm of each softmax's sum, f32[batch, head, query], or the
               softmax itself, whichever is stated; a workspace, which older versions put in front of these.
    Masks:     CAUSAL: query i sees keys 0 to i, with a sliding window the last ones of these; PADDING: keys behind
               their length are not seen, queries behind theirs give 0, as do queries that see nothing.
    Source:    XLA, cudnn_custom_call_compiler.cc; JAX, which writes these calls.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields, asked = options(call)
        has_mask, has_bias = "Mask" in call.name, "Bias" in call.name
        what = "Q, K, V" + ", a mask" * has_mask + ", a bias" * has_bias
        what += ", lengths of queries, lengths of keys" * asked.padding
        steps.operands_required(call, [3 + has_mask + has_bias + 2 * asked.padding], what)
        first, second = (fields.dot_dimensions(name) for name in PRODUCTS[:2])
        q = canonical(build, operands[0], first.lhs_batch, free(build, operands[0], first, 0), first.lhs_contracting)
        k = canonical(build, operands[1], first.rhs_batch, free(build, operands[1], first, 1), first.rhs_contracting)
        v = canonical(build, operands[2], second.rhs_batch, second.rhs_contracting, free(build, operands[2], second, 1))
        k, v = (for_every_head(build, x, q) for x in (k, v))
        logits = scaled_logits(build, q, k, asked.scale, operands[3 + has_mask] if has_bias else None)
        if has_mask:
            marks = spread(build, operands[3], logits, "mask")
            kept = build.compare("NE", marks, steps.like(build, 0, marks))
            least = -steps.largest_finite(build.shape(logits).dtype)
            logits = build.select(kept, logits, steps.like(build, least, logits))
        lengths = operands[-2:] if asked.padding else ()
        weights, total, highest = exponentials(build, logits, asked, lengths)
        values = [build.compute("divide", product(build, weights, v), divisor(build, total, asked, v))]
        if lengths:
            values[0] = only_queries(build, values[0], lengths[0])
        shapes = steps.result_shapes(call)
        workspace = 1 if len(shapes) == 3 and steps.is_workspace(shapes[1]) else len(shapes) - 1
        stated = [shape for k, shape in enumerate(shapes) if k != workspace or not steps.is_workspace(shape)]
        if len(stated) > 1 and stated[1].rank == 4:
            values.append(build.compute("divide", weights, divisor(build, total, asked, weights)))
        elif len(stated) > 1:
            values.append(build.compute("add", highest, build.compute("log", total)))
        narrowed = [rounded(build, x, shape) for x, shape in zip(values, stated)]
        return steps.joined(call, build, narrowed, workspace)


def exponentials(build: Build, logits: str, asked: Options, lengths: Sequence[str]) -> tuple[str, str, str]:
    """Each row's exponentials, less its largest logit, where masks let see it; their sum; that logit."""
    visible = mask(build, logits, asked, lengths)
    if visible is not None:
        logits = build.select(visible, logits, steps.like(build, -inf, logits))
    highest = finite(build, steps.largest(build, logits, [3], -inf), asked)
    weights = build.compute("exponential", build.compute("subtract", logits, along_rows(build, highest, logits)))
    return weights, build.sum(weights, [3]), highest


def free(build: Build, operand: str, dims: DotDimensions, side: int) -> tuple[int, ...]:
    rank = build.shape(operand).rank
    return dims.rhs_free(rank) if side else dims.lhs_free(rank)


def canonical(build: Build, operand: str, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> str:
    """An operand as [batch dimensions, rows, columns], in the type of the computation."""
    shape, order = build.shape(operand), (*batch, *rows, *columns)
    if len(rows) != 1 or len(columns) != 1 or len(batch) != 2 or sorted(order) != list(range(shape.rank)):
        raise ConfigError(
            f"{shape} has not batch dimensions {list(batch)} and two more, {list(rows)} and {list(columns)}"
        )
    if not shape.dtype.is_float:
        raise ConfigError(f"attends to floats, not {shape}")
    return build.convert(steps.transposed(build, operand, order), steps.compute_type(shape.dtype))


def for_every_head(build: Build, x: str, queries: str) -> str:
    """Keys or values repeated, so that there are as many heads as of the queries."""
    shape, wanted = build.shape(x), build.shape(queries)
    batch, heads, rows, columns = shape.dims
    if (batch, heads) == wanted.dims[:2]:
        return x
    if batch != wanted.dims[0] or not heads or wanted.dims[1] % heads:
        raise ConfigError(f"{wanted.dims[:2]} batches and heads of queries do not share {shape.dims[:2]} of keys")
    group = wanted.dims[1] // heads
    apart = build.broadcast(x, (batch, heads, group, rows, columns), (0, 1, 3, 4))
    return build.reshape(apart, (batch, wanted.dims[1], rows, columns))


def product(build: Build, a: str, b: str) -> str:
    """[.., m, k] times [.., k, n]."""
    return steps.dot(build, DotDimensions((0, 1), (3,), (0, 1), (2,)), a, b, build.shape(a).dtype)


def product_of_rows(build: Build, a: str, b: str) -> str:
    """[.., m, k] times [.., n, k]."""
    return steps.dot(build, DotDimensions((0, 1), (3,), (0, 1), (3,)), a, b, build.shape(a).dtype)


def scaled_logits(build: Build, q: str, k: str, scale: float, bias: str | None) -> str:
    """[batch, head, query, key], before masks."""
    logits = steps.scaled(build, product_of_rows(build, q, k), scale)
    if bias is None:
        return logits
    return build.compute("add", logits, spread(build, bias, logits, "bias"))


def spread(build: Build, array: str, logits: str, what: str) -> str:
    """An array whose dimension sizes may be 1, at every logit and in their type."""
    shape, wanted = build.shape(array), build.shape(logits)
    if shape.rank != wanted.rank or any(
        n not in (1, dimension_size) for n, dimension_size in zip(shape.dims, wanted.dims)
    ):
        raise ConfigError(f"the {what} {shape} does not fit {wanted}")
    kept = [d for d, dimension_size in enumerate(shape.dims) if dimension_size == wanted.dims[d]]
    array = build.reshape(build.convert(array, wanted.dtype), [shape.dims[d] for d in kept])
    return build.broadcast(array, wanted.dims, kept)


def mask(build: Build, logits: str, asked: Options, lengths: Sequence[str]) -> str | None:
    """Which keys each query sees; None where all see all."""
    dims = build.shape(logits).dims
    if not asked.masks:
        return None
    queries, keys = (build.iota(S32, dims, d) for d in (2, 3))
    parts = []
    if asked.causal:
        parts.append(build.compare("LE", keys, queries))
        if asked.window:
            reach = build.compute("add", keys, build.constant(asked.window, S32, dims))
            parts.append(build.compare("GT", reach, queries))
    if asked.padding:
        parts.append(build.compare("LT", keys, spread_lengths(build, lengths[1], dims)))
    visible = parts[0]
    for part in parts[1:]:
        visible = build.compute("and", visible, part)
    return visible


def spread_lengths(build: Build, lengths: str, dims: Sequence[int]) -> str:
    shape = build.shape(lengths)
    if shape.size != dims[0] or shape.dtype is not S32:
        raise ConfigError(f"lengths are s32[{dims[0]}], not {shape}")
    return build.broadcast(build.reshape(lengths, (dims[0],)), dims, (0,))


def only_queries(build: Build, x: str, lengths: str) -> str:
    """Rows behind the queries' lengths set to 0."""
    dims = build.shape(x).dims
    inside = build.compare("LT", build.iota(S32, dims, 2), spread_lengths(build, lengths, dims))
    return build.select(inside, x, steps.like(build, 0, x))


def finite(build: Build, x: str, asked: Options) -> str:
    """With masks -inf, where a query sees nothing, becomes 0."""
    if not asked.masks:
        return x
    nothing = build.compare("EQ", x, steps.like(build, -inf, x))
    return build.select(nothing, steps.like(build, 0, x), x)


def divisor(build: Build, total: str, asked: Options, like: str) -> str:
    """The sum of each row's weights in as many columns as `like` has; 1 where masks leave none."""
    if asked.masks:
        nothing = build.compare("EQ", total, steps.like(build, 0, total))
        total = build.select(nothing, steps.like(build, 1, total), total)
    dims = (*build.shape(total).dims, build.shape(like).dims[-1])
    return build.broadcast(total, dims, range(3))


def along_rows(build: Build, x: str, like: str) -> str:
    """One number a row at every element of it."""
    return build.broadcast(x, build.shape(like).dims, range(3))


def rounded(build: Build, x: str, shape: Shape) -> str:
    if not shape.is_array:
        raise ConfigError(f"a result is {shape}, not an array")
    return steps.narrowed(build, x, shape.dtype)
