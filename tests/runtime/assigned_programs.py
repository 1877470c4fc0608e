"""Programs for tests of device assignments, on one host and on several."""

from __future__ import annotations

import numpy as np

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
SIZE = 3
SWAPPED, ONE_WAY = (
    f'frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}' for pairs in ("{{0,1},{1,0}}", "{{0,1}}")
)
ALL, BOTH = (f"replica_groups={groups}, use_global_device_ids=true" for groups in ("{{2,0,3,1}}", "{{0,1}}"))
# replica-id and partition-id, a group across replicas, one of all, a permute, and a channel
MEETING = f"""HloModule meeting, replica_count=2, num_partitions=2
{ADD}ENTRY main {{
  x = f32[{SIZE}] parameter(0)
  rid = u32[] replica-id()
  pid = u32[] partition-id()
  ten = u32[] constant(10)
  tens = u32[] multiply(rid, ten)
  id = u32[] add(tens, pid)
  s = f32[{SIZE}] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add
  g = f32[{4 * SIZE}] all-gather(x), channel_id=1, {ALL}, dimensions={{0}}
  c = f32[{SIZE}] collective-permute(x), channel_id=2, source_target_pairs={{{{0,1}}}}
  t = token[] after-all()
  sent = (f32[{SIZE}], u32[], token[]) send(s, t), channel_id=3, {SWAPPED}
  got = (f32[{SIZE}], u32[], token[]) recv(t), channel_id=3, {SWAPPED}
  done = (f32[{SIZE}], token[]) recv-done(got), channel_id=3
  over = token[] send-done(sent), channel_id=3
  v = f32[{SIZE}] get-tuple-element(done), index=0
  ROOT r = (u32[], f32[{SIZE}], f32[{4 * SIZE}], f32[{SIZE}], f32[{SIZE}]) tuple(id, s, g, c, v)
}}
"""
# device 1 of the program takes the rounds the other way round where its parameter says so
CROSSED = f"""HloModule crossed, num_partitions=2
{ADD}one {{
  x = f32[2] parameter(0)
  s = f32[2] all-reduce(x), channel_id=1, {BOTH}, to_apply=add
  p = f32[2] collective-permute(x), channel_id=2, source_target_pairs={{{{0,1}},{{1,0}}}}, control-predecessors={{s}}
  y = f32[2] add(p, x)
  ROOT r = (f32[2], f32[2]) tuple(s, y)
}}
other {{
  x = f32[2] parameter(0)
  p = f32[2] collective-permute(x), channel_id=2, source_target_pairs={{{{0,1}},{{1,0}}}}
  s = f32[2] all-reduce(x), channel_id=1, {BOTH}, to_apply=add, control-predecessors={{p}}
  y = f32[2] add(p, x)
  ROOT r = (f32[2], f32[2]) tuple(s, y)
}}
ENTRY main {{
  x = f32[2] parameter(0)
  k = s32[] parameter(1)
  ROOT r = (f32[2], f32[2]) conditional(k, x, x), branch_computations={{one, other}}
}}
"""
LONELY = f"""HloModule lonely, num_partitions=2
ENTRY main {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, {ONE_WAY}
  ROOT d = token[] send-done(s), channel_id=1
}}
"""
GLOBAL = """HloModule doubled, num_partitions=2
ENTRY main {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  i = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
  y = f32[2] add(i, i), sharding={manual}
  ROOT z = f32[4] custom-call(y), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}
}
"""


def meeting_args(seed: int) -> list[list[np.ndarray]]:
    return [[np.arange(SIZE, dtype=np.float32) + 10 * device + 100 * seed] for device in range(4)]


def expected_meeting(seed: int) -> list[list[object]]:
    """The results of MEETING, by the program's own ids."""
    (x,) = zip(*meeting_args(seed), strict=True)
    gathered = np.concatenate([x[2], x[0], x[3], x[1]])
    sums = [x[d % 2] + x[d % 2 + 2] for d in range(4)]
    return [
        [
            10 * (d // 2) + d % 2,
            sums[d].tolist(),
            gathered.tolist(),
            (x[d - 1] if d % 2 else np.zeros(SIZE)).tolist(),
            sums[d ^ 1].tolist(),
        ]
        for d in range(4)
    ]
