"""What test_gpu_attention.py shares with other tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.ops.case import Array
from tests.ops.library_call import LibraryCall, drawn, widened

PRODUCTS = [f"{name}_dot_dimension_numbers" for name in (
    "bmm1", "bmm2", "bmm1_grad_gemm1", "bmm1_grad_gemm2", "bmm2_grad_gemm1", "bmm2_grad_gemm2"
)]  # fmt: skip

# contracting left and right, batches left and right, of the products in that order; features last in both layouts
BY_HEAD = ["33 01 01", "32 01 01", "22 01 01", "32 01 01", "22 01 01", "33 01 01"]  # [batch, head, row, feature]

BY_ROW = ["33 02 02", "31 01 02", "21 01 02", "31 01 02", "21 01 02", "33 02 02"]  # [batch, row, head, feature]


@dataclass(frozen=True)
class Case:
    """Attention of f32 (or `type`), 2 batches, 4 heads of queries, 3 queries, 5 keys, 6 features."""

    mask: str = "NO_MASK"
    bias: tuple[int, int, int, int] | None = None
    window: int = 0
    heads: int = 4  # of keys and values
    scale: float = 0.5
    by_row: bool = False
    queries: int = 3
    type: str = "f32"
    lengths: tuple[Sequence[int], Sequence[int]] = ((2, 3), (5, 2))
    target: str = ""

    @property
    def padding(self) -> bool:
        return "PADDING" in self.mask

    def config(self, backward: bool, **more: Any) -> Mapping[str, Any]:
        fields: dict[str, Any] = {
            "algorithm": {"algo_id": "0", "is_cudnn_frontend": True},
            "fmha_scale": self.scale,
            "dropout_rate": 0.0,
            "seed": 42,
            "is_flash_attention": True,
            "mask_type": self.mask,
            "sliding_window_length": self.window,
            "max_seg_per_batch": 1,
            "is_paged_attention": False,
        }
        numbers = zip(PRODUCTS, BY_ROW if self.by_row else BY_HEAD)
        for name, text in list(numbers)[slice(2, 6) if backward else slice(0, 2)]:
            contracting, left, right = text.split()
            fields[name] = {
                "lhs_contracting_dimensions": [contracting[0]],
                "rhs_contracting_dimensions": [contracting[1]],
                "lhs_batch_dimensions": list(left),
                "rhs_batch_dimensions": list(right),
            }
        return {"operation_queue_id": "0", "cudnn_fmha_backend_config": fields | more}

    def name(self, backward: bool) -> str:
        return self.target or f"__cudnn$fmha{'ScaleBias' if self.bias else ''}Softmax{'Backward' if backward else ''}"

    def shape(self, heads: int, rows: int, features: int) -> str:
        dims = (2, rows, heads, features) if self.by_row else (2, heads, rows, features)
        return f"{self.type}[{','.join(map(str, dims))}]"

    @property
    def operands(self) -> list[str]:
        """Q, K, V, which has 7 features."""
        return [self.shape(4, self.queries, 6), self.shape(self.heads, 5, 6), self.shape(self.heads, 5, 7)]

    @property
    def bias_shape(self) -> list[str]:
        return [] if self.bias is None else [f"{self.type}[{','.join(map(str, self.bias))}]"]

    @property
    def length_shapes(self) -> list[str]:
        return ["s32[2]", "s32[2]"] if self.padding else []

    def forward(self, *results: str, **more: Any) -> LibraryCall:
        shapes = [f"{self.type}[2,4,{self.queries},7]{{3,1,2,0}}", *results, "u8[0]"]
        operands = [*self.operands, *self.bias_shape, *self.length_shapes]
        return LibraryCall(self.name(False), shapes, operands, self.config(False, **more))

    def backward(self, *results: str) -> LibraryCall:
        rows = [(4, self.queries, 6), (self.heads, 5, 6), (self.heads, 5, 7)]
        grads = [f"{self.type}[2,{heads},{n},{features}]" for heads, n, features in rows]
        out = self.shape(4, self.queries, 7)
        operands = [*self.operands, f"f32[2,4,{self.queries}]", out, *self.bias_shape, out, *self.length_shapes]
        return LibraryCall(self.name(True), [*grads, *results, "u8[3]"], operands, self.config(True))

    def drawn(self, seed: int = 0) -> list[Array]:
        """Operands of the forward call, without lengths."""
        random = np.random.default_rng(seed)
        return [drawn(shape, random) for shape in replace(self, mask="NO_MASK").forward().shapes]

    @property
    def length_arrays(self) -> list[Array]:
        return [np.array(n, np.int32) for n in self.lengths] if self.padding else []

    def by_head(self, x: Array) -> Array:
        """[batch, head, row, feature] in f64; the way back is the same."""
        return widened(x.swapaxes(1, 2) if self.by_row else x)

    def softmax(self, q: Array, k: Array, v: Array, bias: Any = 0.0) -> tuple[Array, Array, Array, Array, Array]:
        """Weights, logarithms of their sums, and Q, K, V for every head of the queries."""
        q, k, v = map(self.by_head, (q, k, v))
        k, v = (np.repeat(x, 4 // self.heads, 1) for x in (k, v))
        logits = self.scale * q @ k.swapaxes(2, 3) + np.asarray(bias, np.float64)
        i, j = np.ogrid[: self.queries, :5]
        visible = np.ones(logits.shape, bool)
        if "CAUSAL" in self.mask:
            visible &= (j <= i) & ((j > i - self.window) | (self.window == 0))
        if self.padding:
            visible &= (j[None] < np.array(self.lengths[1])[:, None, None])[:, None]
        e = np.where(visible, np.exp(logits), 0)
        total = e.sum(3, keepdims=True)
        with np.errstate(divide="ignore"):
            return e / np.where(total, total, 1), np.log(total)[..., 0], q, k, v

    def queries_seen(self) -> Array:
        if not self.padding:
            return np.ones((2, 1, self.queries, 1), bool)
        return (np.arange(self.queries) < np.array(self.lengths[0])[:, None])[:, None, :, None]


CASES: dict[str, Case] = {
    "no mask": Case(),
    "rows before heads": Case(by_row=True),
    "causal": Case("CAUSAL"),
    "causal, more queries than keys": Case("CAUSAL", queries=7),
    "causal, a sliding window": Case("CAUSAL", window=2, queries=5),
    "sliding past all keys": Case("CAUSAL", window=1, queries=7),
    "padding": Case("PADDING"),
    "padding, no keys": Case("PADDING", lengths=((3, 2), (0, 4))),
    "padding and causal": Case("PADDING_CAUSAL", by_row=True, queries=5),
    "a bias": Case(bias=(2, 4, 3, 5)),
    "a bias for all batches and queries": Case(bias=(1, 4, 1, 5), by_row=True),
    "fewer heads of keys": Case(heads=2),
    "one head of keys, causal with bias": Case("CAUSAL", bias=(2, 1, 3, 5), heads=1, by_row=True),
    "f16": Case(type="f16"),
    "bf16, padding": Case("PADDING", type="bf16"),
    "dropout of nothing": Case(target="__cudnn$fmhaSoftmaxDropout"),
}
