"""Programs with asynchronous pairs against XLA CPU, which takes those of all-reduce and collective-permute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.xla import Xla
from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices

pytest.importorskip("jax")

DEVICES = 4
HEAD = f"""HloModule pairs, num_partitions={DEVICES}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
"""
GROUP = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
HALVES = "replica_groups={{0,1},{2,3}}, use_global_device_ids=true"
RING = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
PROGRAMS = {
    "two pairs, the first ends first": """ENTRY e {
  x = f32[64] parameter(0)
  s = f32[64] all-reduce-start(x), channel_id=1, GROUP, to_apply=add
  t = f32[64] all-reduce-start(x), channel_id=2, HALVES, to_apply=add
  n = f32[64] negate(x)
  d = f32[64] all-reduce-done(s)
  e = f32[64] all-reduce-done(t)
  ROOT r = (f32[64], f32[64], f32[64]) tuple(d, e, n)
}
""",
    "two pairs, the second ends first": """ENTRY e {
  x = f32[64] parameter(0)
  s = f32[64] all-reduce-start(x), channel_id=1, GROUP, to_apply=add
  t = (f32[64], f32[64]) collective-permute-start(x), channel_id=2, RING
  e = f32[64] collective-permute-done(t)
  n = f32[64] multiply(e, x)
  d = f32[64] all-reduce-done(s)
  ROOT r = (f32[64], f32[64]) tuple(d, n)
}
""",
    "another round of the group between": """ENTRY e {
  x = f32[64] parameter(0)
  s = f32[64] all-reduce-start(x), channel_id=1, GROUP, to_apply=add
  y = f32[64] all-reduce(x), channel_id=2, GROUP, to_apply=add
  z = f32[64] subtract(y, x)
  d = f32[64] all-reduce-done(s)
  ROOT r = f32[64] multiply(d, z)
}
""",
    "in a loop": """more {
  t = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  t = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[64] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  s = (f32[64], f32[64]) collective-permute-start(x), channel_id=1, RING
  h = f32[64] add(x, x)
  d = f32[64] collective-permute-done(s)
  k = f32[64] subtract(h, d)
  ROOT r = (s32[], f32[64]) tuple(j, k)
}
ENTRY e {
  x = f32[64] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[64]) tuple(z, x)
  w = (s32[], f32[64]) while(t), condition=more, body=body
  ROOT r = f32[64] get-tuple-element(w), index=1
}
""",
}


@pytest.fixture(scope="module")
def xla() -> Iterator[Xla]:
    with Xla(DEVICES) as opened:
        yield opened


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_xla(name: str, xla: Xla, tmp_path: Path) -> None:
    text = HEAD + PROGRAMS[name].replace("GROUP", GROUP).replace("HALVES", HALVES).replace("RING", RING)
    arguments = [[np.random.default_rng(d).integers(-9, 9, 64).astype(np.float32)] for d in range(DEVICES)]
    xla.compile(text, arguments)
    xla.results(tmp_path / "out.npz")
    module = parse_module(text)
    by_code = run_devices(compile_module(module, Counts(1, DEVICES)), arguments)
    by_reference = run_reference(module, arguments, Counts(1, DEVICES))
    answers: Sequence[Sequence[Sequence[Any]]] = (by_code, by_reference)
    with np.load(tmp_path / "out.npz") as wanted:
        for outs in answers:
            for device, leaves in enumerate(outs):
                for k, leaf in enumerate(leaves):
                    np.testing.assert_array_equal(leaf, wanted[f"out{k}@{device}"])
