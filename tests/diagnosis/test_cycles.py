"""Many cycles, and cycles of devices that have done the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DeadlockError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.scheduler.deadlocks import examine
from distxla.text.parser import parse_module

# each device receives before it sends what it has received
EXCHANGE = """token = token[] after-all()
  r = (f32[4], u32[], token[]) recv(token), channel_id=1, frontend_attributes={pairs}
  rd = (f32[4], token[]) recv-done(r), channel_id=1
  left = f32[4] get-tuple-element(rd), index=0
  s = (f32[4], u32[], token[]) send(left, token), channel_id=1, frontend_attributes={pairs}
  sd = token[] send-done(s), channel_id=1"""
STRAIGHT = """HloModule straight, num_partitions={count}

ENTRY main {{
  x = f32[4] parameter(0)
  {exchange}
  ROOT out = f32[4] copy(left)
}}
"""
LOOP = """HloModule loop, num_partitions={count}

body {{
  state = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {exchange}
  ROOT out = (s32[], f32[4]) tuple(next, left)
}}

condition {{
  now = (s32[], f32[4]) parameter(0)
  k = s32[] get-tuple-element(now), index=0
  n = s32[] constant(31)
  ROOT less = pred[] compare(k, n), direction=LT
}}

ENTRY main {{
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  first = (s32[], f32[4]) tuple(zero, x)
  while = (s32[], f32[4]) while(first), condition=condition, body=body
  ROOT result = f32[4] get-tuple-element(while), index=1
}}
"""


def program(text: str, pairs: Sequence[tuple[int, int]]) -> Module:
    written = "{" + ",".join(f"{{{one},{other}}}" for one, other in pairs) + "}"
    exchange = EXCHANGE.format(pairs=f'{{_xla_send_recv_source_target_pairs="{written}"}}')
    return parse_module(text.format(count=len(pairs), exchange=exchange), "made.hlo")


def diagnoses(module: Module) -> list[Diagnosis]:
    """What check and the reference say."""
    count = module.num_partitions or 1
    counts, devices = Counts(1, count), range(count)
    before = examine([(devices, module)], counts).diagnosis
    arguments: dict[int, list[Any]] = {device: [np.ones(4, np.float32)] for device in devices}
    with pytest.raises(DeadlockError) as caught:
        run_programs(dict.fromkeys(devices, module), arguments, counts, time_limit=60)
    assert before is not None
    assert caught.value.diagnosis is not None
    return [before, caught.value.diagnosis]


@pytest.mark.parametrize("count", [8, 9, 128])
def test_each_of_many_cycles_is_told(count: int) -> None:
    module = program(STRAIGHT, [(device, device ^ 1) for device in range(2 * count)])
    for found in diagnoses(module):
        wanted = tuple((device, device + 1) for device in range(0, 2 * count, 2))
        assert found.cycles == wanted
        assert found.behind == ()
        told = found.as_json()
        assert told["cycles"] == [[*cycle] for cycle in wanted]
        assert told["behind"] == []
        (line,) = [line for line in found.text().splitlines() if line.startswith("  cycle")]
        assert line.endswith("14 -> 15 -> 14" if count == 8 else f"14 -> 15 -> 14, … ({count} in all)")
        assert "behind" not in found.text()


def test_devices_in_the_same_iteration_diverge_nowhere() -> None:
    for found in diagnoses(program(LOOP, [(device, (device + 1) % 4) for device in range(4)])):
        assert {loop.iteration for device in found.devices for loop in device.loops} == {1}
        assert found.cycles == ((0, 3, 2, 1),)
        assert found.diverge_at is None
        assert found.as_json()["divergence"] is None
        assert "they diverge" not in found.text()
