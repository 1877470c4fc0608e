"""What test_recorder.py shares with other tests."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.collectives.recorder import RecordedEvent

LOOP = """HloModule loop, replica_count=2
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
cond {{ s = (s32[], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({times})
  ROOT c = pred[] compare(i, n), direction=LT }}
body {{ s = (s32[], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{n}] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[{n}] all-reduce(x), to_apply=add
  z = f32[{n}] collective-permute(y), source_target_pairs={{{{0,1}},{{1,0}}}}
  ROOT t = (s32[], f32[{n}]) tuple(j, z) }}
ENTRY e {{ x = f32[{n}] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[{n}]) tuple(zero, x)
  w = (s32[], f32[{n}]) while(t), condition=cond, body=body
  ROOT r = f32[{n}] get-tuple-element(w), index=1 }}
"""

TRANSFER = """HloModule transfer, num_partitions=2
ENTRY e { x = f32[4] parameter(0)
  k = token[] after-all()
  r = (f32[4], u32[], token[]) recv(k), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}
  s = (f32[4], u32[], token[]) send(x, k), channel_id=1, control-predecessors={r},
    frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}
  d = (f32[4], token[]) recv-done(r), channel_id=1
  f = token[] send-done(s), channel_id=1
  ROOT y = f32[4] get-tuple-element(d), index=0 }
"""


def check_times(events: Sequence[RecordedEvent]) -> None:
    """Events follow one another, and their moments are in order."""
    last = 0.0
    for event in events:
        moments = [event.begun, event.waited, event.resumed, event.ended]
        known = [moment for moment in moments if moment is not None]
        assert known == sorted(known)
        assert event.begun >= last
        assert (event.waited is None) == (event.resumed is None)
        assert event.ended is not None
        last = event.ended
