"""What test_columns.py shares with other tests."""

from __future__ import annotations

import numpy as np

import distxla as dx
from distxla.runtime.arrays.columns import Column, ColumnCalls, put_column

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"

STEP = f"""HloModule step, num_partitions=2
{ADD}ENTRY main {{
  x = f32[2048] parameter(0)
  n = s32[] parameter(1)
  one = s32[] constant(1)
  m = s32[] add(n, one)
  half = f32[] constant(0.5)
  halves = f32[2048] broadcast(half), dimensions={{}}
  y = f32[2048] multiply(x, halves)
  s = f32[2048] all-reduce(y), channel_id=1, use_global_device_ids=true, replica_groups={{{{0,1}}}}, to_apply=add
  ROOT r = (f32[2048], s32[]) tuple(s, m)
}}
"""

STUCK = """HloModule stuck, num_partitions=2
ENTRY main {
  x = f32[2048] parameter(0)
  t = token[] after-all()
  r = (f32[2048], u32[], token[]) recv(t), channel_id=1, frontend_attributes={PAIRS}
  rd = (f32[2048], token[]) recv-done(r), channel_id=1
  v = f32[2048] get-tuple-element(rd), index=0
  s = (f32[2048], u32[], token[]) send(v, t), channel_id=1, frontend_attributes={PAIRS}
  sd = token[] send-done(s), channel_id=1
  ROOT o = (f32[2048]) tuple(v)
}
""".replace("PAIRS", '_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"')


def arguments(cluster: dx.Cluster, step: ColumnCalls) -> list[Column]:
    x, n = step.executable.parameters
    rows = [np.arange(2048, dtype=np.float32), np.ones(2048, np.float32)]
    return [put_column(cluster, (0, 1), x, rows), put_column(cluster, (0, 1), n, [np.int32(5)])]
