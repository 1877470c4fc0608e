"""What is advised to two devices that reach one round with different instructions."""

from __future__ import annotations

import pytest

from distxla.ir.counts import Counts
from distxla.scheduler.deadlocks import examine
from distxla.text.parser import parse_module

ROUND = "channel_id={}, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add"
WIDE = f"a = f32[4] all-reduce(x), {ROUND.format(1)}"
NARROW = f"n = f32[2] slice(x), slice={{[0:2]}}\n  b = f32[2] all-reduce(n), {ROUND.format(2)}"
PROGRAM = """HloModule m, num_partitions=2

add {{ p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q) }}

ENTRY main {{
  x = f32[4] parameter(0)
  {}
}}
"""


@pytest.mark.parametrize(
    ("one", "other", "hint"),
    [
        (f"{WIDE}", f"{NARROW}\n  {WIDE}", "move a (1.hlo:11:3), which device 0 has reached, before b (1.hlo:10:3)"),
        (
            f"{WIDE}\n  {NARROW}",
            f"{NARROW}\n  {WIDE}",
            "device 0 runs a (0.hlo:9:3) before b (0.hlo:11:3), device 1 the",
        ),
    ],
    ids=["the other comes to it later", "each comes to the other's"],
)
def test_of_a_pair(one: str, other: str, hint: str) -> None:
    programs = [((k,), parse_module(PROGRAM.format(text), f"{k}.hlo")) for k, text in enumerate((one, other))]
    verdict = examine(programs, Counts(1, 2))
    assert verdict.diagnosis is not None
    (found,) = verdict.diagnosis.hints
    assert found.startswith(hint)
