"""Small programs in the form that XLA's GPU backend gives them: library calls among fusions, loops and collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.ops.case import Array
from tests.ops.program_case import compiled, evaluated

GEMM = """custom_call_target="__cublas$gemm", backend_config={"operation_queue_id":"0","gemm_backend_config":{
  "alpha_real":1,"alpha_imag":0,"beta":0,"epilogue":"DEFAULT","dot_dimension_numbers":{
    "lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],
    "lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}"""

# text with `GEMM` for the attributes of a product, sizes of the arguments, the answer
PROGRAMS: dict[str, tuple[str, tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "an asynchronous call": (
        """
HloModule asynchronous
ENTRY main {
  a = f32[3,4] parameter(0)
  b = f32[4,5] parameter(1)
  start = ((f32[3,4], f32[4,5]), (f32[3,5], s8[64]), u32[]) custom-call-start(a, b), GEMM
  done = (f32[3,5], s8[64]) custom-call-done(start)
  ROOT product = f32[3,5] get-tuple-element(done), index=0
}""",
        ((3, 4), (4, 5)),
        lambda a, b: a @ b,
    ),
    "a call wrapped by an async-start": (
        """
HloModule wrapped
%gemm (x: f32[3,4], y: f32[4,5]) -> f32[3,5] {
  %x = f32[3,4] parameter(0)
  %y = f32[4,5] parameter(1)
  ROOT %g = f32[3,5] custom-call(%x, %y), GEMM
}
ENTRY main {
  a = f32[3,4] parameter(0)
  b = f32[4,5] parameter(1)
  start = ((f32[3,4], f32[4,5]), f32[3,5]) async-start(a, b), calls=%gemm
  ROOT done = f32[3,5] async-done(start)
}""",
        ((3, 4), (4, 5)),
        lambda a, b: a @ b,
    ),
    "a loop, and a call's workspace that leaves it": (
        """
HloModule loop
body {
  state = (s32[], f32[3,3], f32[3,3], s8[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[3,3] get-tuple-element(state), index=1
  w = f32[3,3] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  gemm = (f32[3,3], s8[4]) custom-call(x, w), GEMM
  y = f32[3,3] get-tuple-element(gemm), index=0
  scratch = s8[4] get-tuple-element(gemm), index=1
  ROOT again = (s32[], f32[3,3], f32[3,3], s8[4]) tuple(next, y, w, scratch)
}
condition {
  state = (s32[], f32[3,3], f32[3,3], s8[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  a = f32[3,3] parameter(0)
  b = f32[3,3] parameter(1)
  zero = s32[] constant(0)
  ones = s8[4] constant({1, 1, 1, 1})
  state = (s32[], f32[3,3], f32[3,3], s8[4]) tuple(zero, a, b, ones)
  end = (s32[], f32[3,3], f32[3,3], s8[4]) while(state), condition=condition, body=body
  x = f32[3,3] get-tuple-element(end), index=1
  scratch = s8[4] get-tuple-element(end), index=3
  wide = f32[4] convert(scratch)
  flat = f32[9] reshape(x)
  ROOT both = f32[13] concatenate(flat, wide), dimensions={0}
}""",
        ((3, 3), (3, 3)),
        lambda a, b: np.concatenate([(a @ b @ b @ b).reshape(-1), np.zeros(4)]),
    ),
    "fusions of Triton, cuDNN and a kernel of the user's": (
        """
HloModule fusions
%triton_gemm (x: f32[3,4], y: f32[4,5]) -> f32[3,5] {
  %x = f32[3,4]{1,0} parameter(0)
  %y = f32[4,5]{1,0} parameter(1)
  ROOT %d = f32[3,5]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%triton_softmax (x: f32[3,5]) -> f32[3,5] {
  %x = f32[3,5]{1,0} parameter(0)
  ROOT %e = f32[3,5]{1,0} exponential(%x)
}
%cudnn (x: f32[1,1,3,5], w: f32[1,1,2,2]) -> f32[1,1,2,4] {
  %x = f32[1,1,3,5]{3,2,1,0} parameter(0)
  %w = f32[1,1,2,2]{3,2,1,0} parameter(1)
  ROOT %c = f32[1,1,2,4]{3,2,1,0} convolution(%x, %w), window={size=2x2}, dim_labels=bf01_oi01->bf01
}
ENTRY main {
  a = f32[3,4] parameter(0)
  b = f32[4,5] parameter(1)
  g = f32[3,5] fusion(a, b), kind=kCustom, calls=%triton_gemm,
    backend_config={"fusion_backend_config":{"kind":"__triton_gemm","triton_gemm_config":{"block_m":"16"}}}
  s = f32[3,5] fusion(g), kind=kCustom, calls=%triton_softmax,
    backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"1"}}}
  image = f32[1,1,3,5] reshape(s)
  one = f32[] constant(1)
  w = f32[1,1,2,2] broadcast(one), dimensions={}
  ROOT c = f32[1,1,2,4] fusion(image, w), kind=kCustom, calls=%cudnn,
    backend_config={"fusion_backend_config":{"kind":"__cudnn$fusion","cudnn_fusion_config":{"plan_id":"0"}}}
}""",
        ((3, 4), (4, 5)),
        lambda a, b: sum(np.exp(a @ b)[i : 2 + i, j : 4 + j] for i in (0, 1) for j in (0, 1))[None, None],
    ),
    "a product of a slice, in the fusion that cuts it": (
        """
HloModule sliced
%dynamic_slice_fusion (x: f32[2,3,4], y: f32[4,5]) -> (f32[3,5], s8[16]) {
  %x = f32[2,3,4] parameter(0)
  %y = f32[4,5] parameter(1)
  %s = f32[1,3,4] slice(%x), slice={[1:2], [0:3], [0:4]}
  %b = f32[3,4] bitcast(%s)
  %g = (f32[3,5], s8[16]) custom-call(%b, %y), GEMM
  %v = f32[3,5] get-tuple-element(%g), index=0
  %w = s8[16] get-tuple-element(%g), index=1
  ROOT %t = (f32[3,5], s8[16]) tuple(%v, %w)
}
ENTRY main {
  a = f32[2,3,4] parameter(0)
  b = f32[4,5] parameter(1)
  f = (f32[3,5], s8[16]) fusion(a, b), kind=kCustom, calls=%dynamic_slice_fusion,
    backend_config={"fusion_backend_config":{"kind":"__custom_fusion","custom_fusion_config":{"name":"address_computation"}}}
  ROOT v = f32[3,5] get-tuple-element(f), index=0
}""",
        ((2, 3, 4), (4, 5)),
        lambda a, b: a[1] @ b,
    ),
    "a result in column-major order that a bitcast reads": (
        """
HloModule column_major
ENTRY main {
  a = f32[3,4] parameter(0)
  b = f32[4,5] parameter(1)
  g = f32[3,5]{0,1} custom-call(a, b), GEMM
  ROOT t = f32[5,3]{1,0} bitcast(g)
}""",
        ((3, 4), (4, 5)),
        lambda a, b: (a @ b).T,
    ),
    "a collective, started and ended around a product": (
        """
HloModule overlapped, replica_count=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY main {
  a = f32[3,4] parameter(0)
  b = f32[4,4] parameter(1)
  start = f32[3,4] all-reduce-start(a), replica_groups={{0,1}}, to_apply=add,
    backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":false,"no_parallel_custom_call":false}}
  g = f32[3,4] custom-call(a, b), GEMM
  done = f32[3,4] all-reduce-done(start)
  ROOT s = f32[3,4] add(g, done)
}""",
        ((3, 4), (4, 4)),
        lambda a, b: a @ b + 2 * a,
    ),
}


def program(name: str) -> tuple[str, list[Array], Array]:
    text, dims, answer = PROGRAMS[name]
    random = np.random.default_rng(7)
    arguments = [random.standard_normal(sizes).astype(np.float32) for sizes in dims]
    header, rest = text.replace("GEMM", GEMM).lstrip().split("\n", 1)
    text = f"{header}, is_scheduled=true\n{rest}"  # as all dumps are
    return text, arguments, answer(*(a.astype(np.float64) for a in arguments))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text, arguments, wanted = program(name)
    replicas = parse_module(text).replica_count or 1
    for run in (evaluated, compiled):
        (got,) = run(text, *arguments, replicas=replicas)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_are_read_again(name: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = parse_module(program(name)[0])
    printed = print_module(module)
    assert parse_module(printed) == module
    parse_module(hlo.hlo_module_from_text(printed).to_string())
