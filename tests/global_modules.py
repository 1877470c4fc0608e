"""A program in the two forms in which JAX writes shard_map: with Shardy, and with GSPMD. What it computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

PARTITIONS = 8

# for the lines below to fit: what these words stand for
_WORDS = {
    "ALL_SHARDINGS": r"<@mesh, [{\"y\"}, {\"x\"}]>, <@mesh, [{\"x\"}]>, <@mesh, []>",
    "MANUAL_AXES": r'xla.sdy.manual_axes="#sdy<manual_axes{\"y\", \"x\"}>"',
    "BY_X": "devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate",
}


def _spelt_out(text: str) -> str:
    for word, meaning in _WORDS.items():
        text = text.replace(word, meaning)
    return text


COMMON = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
body {
  a = f32[2,2] parameter(0)
  b = f32[2] parameter(1)
  c = f32[] parameter(2)
  zero = f32[] constant(0)
  sum = f32[] reduce(a, zero), dimensions={0,1}, to_apply=add
  all = f32[] all-reduce(sum), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}},
    use_global_device_ids=true, to_apply=add
  shift = f32[] add(all, c)
  wide = f32[2,2] broadcast(shift), dimensions={}
  a1 = f32[2,2] add(a, wide)
  id = u32[] partition-id()
  idf = f32[] convert(id)
  ids = f32[2] broadcast(idf), dimensions={}
  zeros = f32[2] subtract(ids, ids)
  b1 = f32[2] add(b, zeros)
  ROOT t = (f32[2,2], f32[2], f32[]) tuple(a1, b1, shift)
}
"""

SHARDY = _spelt_out(
    'HloModule shardy, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["y"=2, "x"=4]>}}\n'
    + COMMON
    + r"""ENTRY main {
  a = f32[4,8] parameter(0), sharding={devices=[2,4]<=[8]},
    frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"y\"}, {\"x\"}]>"}
  b = f32[8] parameter(1)
  c = f32[] parameter(2), sharding={replicated}
  in = (f32[2,2], f32[2], f32[]) custom-call(a, b, c), custom_call_target="xla.sdy.GlobalToLocalShape",
    frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[ALL_SHARDINGS]>",MANUAL_AXES}
  a1 = f32[2,2] get-tuple-element(in), index=0
  b1 = f32[2] get-tuple-element(in), index=1
  c1 = f32[] get-tuple-element(in), index=2
  done = (f32[2,2], f32[2], f32[]) call(a1, b1, c1), to_apply=body
  a2 = f32[2,2] get-tuple-element(done), index=0
  b2 = f32[2] get-tuple-element(done), index=1
  c2 = f32[] get-tuple-element(done), index=2
  out = (f32[4,8], f32[8], f32[]) custom-call(a2, b2, c2), custom_call_target="xla.sdy.LocalToGlobalShape",
    frontend_attributes={MANUAL_AXES,xla.sdy.out_shardings="#sdy.sharding_per_value<[ALL_SHARDINGS]>"}
  a3 = f32[4,8] get-tuple-element(out), index=0
  a4 = f32[4,8] custom-call(a3), custom_call_target="xla.sdy.FuncResultSharding",
    frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\"y\"}, {\"x\"}]>]>"}
  same = f32[4,8] reshape(a4), sharding={devices=[2,4]<=[8]}
  b3 = f32[8] get-tuple-element(out), index=1
  c3 = f32[] get-tuple-element(out), index=2
  one = f32[] constant(1)
  c4 = f32[] add(c3, one)
  ROOT r = (f32[4,8], f32[8], f32[]) tuple(same, b3, c4)
}
"""
)

GSPMD = _spelt_out(
    "HloModule gspmd\n"
    + COMMON
    + """ENTRY main {
  a = f32[4,8] parameter(0)
  a0 = f32[4,8] custom-call(a), custom_call_target="Sharding", sharding={devices=[2,4]<=[8]}
  a1 = f32[2,2] custom-call(a0), custom_call_target="SPMDFullToShardShape", sharding={manual}
  b = f32[8] parameter(1), sharding={BY_X}
  b0 = f32[8] custom-call(b), custom_call_target="Sharding", sharding={BY_X}
  b1 = f32[2] custom-call(b0), custom_call_target="SPMDFullToShardShape", sharding={manual}
  c = f32[] parameter(2), sharding={replicated}
  c1 = f32[] custom-call(c), custom_call_target="SPMDFullToShardShape", sharding={manual}
  done = (f32[2,2], f32[2], f32[]) call(a1, b1, c1), to_apply=body
  a2 = f32[2,2] get-tuple-element(done), index=0
  a3 = f32[2,2] custom-call(a2), custom_call_target="Sharding", sharding={manual}
  a4 = f32[4,8] custom-call(a3), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,4]<=[8]}
  b2 = f32[2] get-tuple-element(done), index=1
  b3 = f32[8] custom-call(b2), custom_call_target="SPMDShardToFullShape",
    sharding={BY_X}
  c2 = f32[] get-tuple-element(done), index=2
  c3 = f32[] custom-call(c2), custom_call_target="SPMDShardToFullShape", sharding={replicated}
  one = f32[] constant(1)
  c4 = f32[] add(c3, one)
  ROOT r = (f32[4,8], f32[8], f32[]) tuple(a4, b3, c4),
    sharding={{devices=[2,4]<=[8]}, {BY_X}, {replicated}}
}
"""
)

ARGUMENTS = (np.arange(32, dtype=np.float32).reshape(4, 8), np.arange(8, dtype=np.float32), np.float32(3))


def expected() -> list[Any]:
    """The global results for ARGUMENTS."""
    a, b, c = ARGUMENTS
    shift = a.sum() + c
    return [a + shift, b, shift + 1]


def shards_of_a(array: Any) -> list[Any]:
    """The shards of the 4 x 8 array, by device."""
    return [array[2 * y : 2 * y + 2, 2 * x : 2 * x + 2] for y in range(2) for x in range(4)]
