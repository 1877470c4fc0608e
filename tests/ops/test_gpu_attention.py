"""cuDNN's fused attention in HLO of XLA's GPU backend: by both executors against formulas in f64, and against JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices
from tests.ops.gpu_attention_cases import CASES, Case
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, compare


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("name", CASES)
def test_forward(name: str) -> None:
    case = CASES[name]
    arguments = case.drawn()
    weights, sums, _, _, v = case.softmax(*arguments)
    out = np.where(case.queries_seen(), weights @ v, 0)
    call = case.forward(f"f32[2,4,{case.queries}]")
    compare(call, [*arguments, *case.length_arrays], [out, sums, []], ulps=16)


BACKWARD = [name for name in CASES if CASES[name].type == "f32" and not CASES[name].target]


@pytest.mark.sampled(one_in=12, first=("a bias",))
@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name: str) -> None:
    case = CASES[name]
    arguments = case.drawn()
    weights, sums, q, k, v = case.softmax(*arguments)
    random = np.random.default_rng(5)
    grad = random.standard_normal((2, 4, case.queries, 7))
    seen = np.where(case.queries_seen(), grad, 0)
    of_weights = seen @ v.swapaxes(2, 3)
    of_logits = weights * (of_weights - (of_weights * weights).sum(3, keepdims=True))
    shared = (2, case.heads, 4 // case.heads, 5)
    wanted = [
        case.scale * of_logits @ k,
        case.scale * (of_logits.swapaxes(2, 3) @ q).reshape(*shared, 6).sum(2),
        (weights.swapaxes(2, 3) @ seen).reshape(*shared, 7).sum(2),
    ]
    more = []
    if case.bias is not None:
        more = [f"f32[{','.join(map(str, case.bias))}]"]
        repeated = tuple(d for d, n in enumerate(case.bias) if n != of_logits.shape[d])
        wanted.append(of_logits.sum(repeated, keepdims=True))
    out = np.where(case.queries_seen(), weights @ v, 0)
    as_given = [case.by_head(x).astype(np.float32) for x in (grad, out)]
    operands = [*arguments[:3], sums.astype(np.float32), as_given[0], *arguments[3:], as_given[1], *case.length_arrays]
    compare(case.backward(*more), operands, [*wanted, np.zeros(3)], ulps=32)


def test_a_gradient_of_the_bias_that_nobody_wants() -> None:
    call = CASES["a bias"].backward()
    assert not obstacles(call.module)


def masked(case: Case, *results: str) -> LibraryCall:
    """With an array for a mask, behind V."""
    call = case.forward()
    name = call.target.replace("Softmax", "MaskSoftmax" if case.bias else "ScaleMaskSoftmax")
    operands = [*call.operands[:3], f"{case.type}[2,1,{case.queries},5]", *call.operands[3:]]
    return replace(call, target=name, results=[call.results[0], *results], operands=operands)


@pytest.mark.parametrize("case", [Case(), Case(bias=(2, 4, 3, 5)), Case(target="__cudnn$fmhaSoftmaxDropout")])
def test_a_mask_that_is_an_array(case: Case) -> None:
    """And the softmax as a result, behind the workspace, as older versions have both."""
    q, k, v, *bias = case.drawn()
    marks = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]], np.float32)
    marks = np.stack([marks, marks[::-1]])[:, None]
    least = np.where(marks, 0, -1e4)  # so little that a row without any is even after all
    total = np.where(marks.any(-1, keepdims=True), sum(bias, np.float64(0)) + least, 0)
    weights, _, _, _, values = case.softmax(q, k, v, total)
    even = ~np.broadcast_to(marks.any(-1, keepdims=True), weights.shape)
    weights = np.where(even, 0.2, weights)
    call = masked(case, "u8[6]", f"{case.type}[2,4,3,5]")
    compare(call, [q, k, v, marks, *bias], [weights @ values, np.zeros(6), weights], ulps=16)


F8 = "f8e4m3fn"
SCALES = [2.0, 0.5, 1.5, 1 / 256, 256.0, 4.0]  # of Q, K, V, of the softmax, to the softmax, to the result


def of_f8(case: Case, *results: str) -> LibraryCall:
    one = "f32[1,1,1,1]"
    shapes = [f"{F8}[2,4,3,7]{{3,1,2,0}}", one, one, *results, "u8[0]"]
    return LibraryCall("__cudnn$fmhaSoftmaxF8", shapes, [*case.operands, *[one] * 6], case.config(False))


@pytest.mark.parametrize("case", [Case(type=F8), Case("CAUSAL", type=F8, heads=2, by_row=True)])
def test_attention_of_8_bits(case: Case) -> None:
    arguments = case.drawn()
    of_q, of_k, of_v, of_s, to_s, to_result = SCALES
    weights, sums, _, _, v = replace(case, scale=case.scale * of_q * of_k).softmax(*arguments)
    rounded = (weights * to_s).astype(np.float32).astype(arguments[0].dtype).astype(np.float64)
    out = rounded @ v * of_s * of_v
    wanted = [np.clip(out * to_result, -448, 448), np.full((1, 1, 1, 1), weights.max()), np.abs(out).max(), sums, []]
    wanted[2] = np.full((1, 1, 1, 1), wanted[2])
    scales = [np.full((1, 1, 1, 1), scale, np.float32) for scale in SCALES]
    compare(of_f8(case, "f32[2,4,3]"), [*arguments, *scales], wanted, ulps=64)


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "dropout": (
        Case().forward(dropout_rate=0.1),
        "cudnn_fmha_backend_config.dropout_rate=0.1: this version executes only 0",
    ),
    "alibi": (Case("ALIBI").forward(), "mask_type='ALIBI': this version executes only NO_MASK, PADDING"),
    "an unknown mask": (Case("BLOCKS").forward(), "mask_type='BLOCKS', which is not one of NO_MASK"),
    "packed segments": (Case().forward(max_seg_per_batch=2), "max_seg_per_batch=2: this version executes one segment"),
    "pages": (Case().forward(is_paged_attention=True), "is_paged_attention=True: this version executes only false"),
    "a window without an end": (Case(window=2).forward(), "executes windows of causal masks only"),
    "padding of 8 bits": (
        of_f8(Case("PADDING", type=F8)),
        "mask_type='PADDING': this version executes only NO_MASK and",
    ),
    "an unknown field": (Case().forward(sink=1), "does not know the field cudnn_fmha_backend_config.sink"),
    "no lengths": (
        replace(Case().forward(), config=Case("PADDING").config(False)),
        "takes Q, K, V, lengths of queries, lengths of keys, the operands are",
    ),
    "a bias that doesn't fit": (Case(bias=(2, 3, 3, 5)).forward(), "the bias f32[2,3,3,5] does not fit f32[2,4,3,5]"),
    "heads that can't be shared": (Case(heads=3).forward(), "(2, 4) batches and heads of queries do not share (2, 3)"),
    "no scale": (
        replace(Case().forward(), config={"cudnn_fmha_backend_config": {"mask_type": "NO_MASK"}}),
        "backend_config has no 'cudnn_fmha_backend_config.fmha_scale'",
    ),
    "the sums of other logits": (
        replace(Case().backward(), operands=[*Case().operands, "f32[2,4,5]", *["f32[2,4,3,7]"] * 2]),
        "sums of dimension sizes (2, 4, 5) do not fit logits f32[2,4,3,5]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", CASES)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(CASES[name].forward())
    assert_xla_reads(CASES[name].backward())


# --- as JAX writes them for a GPU -----------------------------------------------------------------------------


def attention(**options: Any) -> Callable[..., Any]:
    """JAX's own answer on the CPU."""
    jax = pytest.importorskip("jax")
    return lambda q, k, v, *bias: jax.nn.dot_product_attention(q, k, v, *bias, implementation="xla", **options)


LOWERED: dict[str, tuple[Mapping[str, Any], bool, Mapping[str, Any]]] = {
    # what cuDNN's function is asked for, whether there is a bias, and what JAX's is
    "plain": ({}, False, {}),
    "causal with bias": ({"mask": "CAUSAL"}, True, {"is_causal": True}),
    "sliding window": (
        {"mask": "CAUSAL", "sliding_window_length": 3},
        False,
        {"is_causal": True, "local_window_size": (2, 0)},
    ),
    "padding": (
        {"mask": "PADDING", "q_seqlen": [6, 3], "kv_seqlen": [8, 5]},
        False,
        {"query_seq_lengths": [6, 3], "key_value_seq_lengths": [8, 5]},
    ),
}


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("name", LOWERED)
def test_what_jax_lowers_for_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and gradients, with fewer heads of keys; cuDNN itself isn't needed to write the call down."""
    jax = pytest.importorskip("jax")
    cudnn = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")

    class Installed:
        @staticmethod
        def cudnn_get_version() -> int:
            return 91000

    monkeypatch.setattr(cudnn, "cuda_versions", Installed)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    asked, has_bias, options = LOWERED[name]
    asked = dict(asked)
    mask = cudnn.MaskType[asked.pop("mask", "NO_MASK")]
    lengths = {key: jax.numpy.array(asked.pop(key), np.int32) for key in ("q_seqlen", "kv_seqlen") if key in asked}
    options = {k: jax.numpy.array(x, np.int32) if "lengths" in k else x for k, x in options.items()}

    def fused(q: Any, k: Any, v: Any, *bias: Any) -> Any:
        return cudnn.dot_product_attention(q, k, v, *bias, scale=0.25, mask_type=mask, **lengths, **asked)

    def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
        def both(grad: Any, *arguments: Any) -> Any:
            out, gradients = jax.vjp(function, *arguments)
            return out, *gradients(grad.astype(out.dtype))

        return both

    random = np.random.default_rng(1)
    half = np.dtype(jax.numpy.bfloat16)
    shapes = [(2, 8, 4, 16), (2, 8, 4, 16), (2, 8, 2, 16), (2, 8, 2, 16), *[(1, 4, 8, 8)] * has_bias]
    arguments = [random.standard_normal(dims).astype(half) for dims in shapes]
    lowered = jax.jit(with_gradients(fused)).trace(*arguments).lower(lowering_platforms=("cuda",))
    module = parse_module(lowered.as_text(dialect="hlo"), "<jax>")
    verify_module(module)
    assert not obstacles(module)
    own = with_gradients(attention(scale=0.25, **options))
    wanted = own(*(jax.numpy.asarray(a, np.float32) for a in arguments))
    reference = run_reference(module, [arguments], Counts(1, 1))[0]
    compiled = run_devices(compile_module(module, Counts(1, 1)), [arguments])[0]
    for results in (reference, compiled):
        for got, right in zip(results, wanted, strict=True):
            # the result of the forward call is rounded to bf16 before it comes back
            np.testing.assert_allclose(got.astype(np.float32), right, rtol=0.02, atol=0.02)
