"""What dead-code keeps of asynchronous pairs, and that what it leaves is a valid module."""

from __future__ import annotations

import pytest

from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.expand import Expand
from distxla.compiler.verify.verifier import verify_module
from tests.compiler.passes.equivalence import changed, opcodes

MODULE = """HloModule m, replica_count=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
begun { p = f32[4] parameter(0)  ROOT r = f32[4] INSTRUCTION }
ENTRY e {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4], s32[]) async-start(x), calls=begun
  u = ((f32[4]), f32[4], s32[]) async-update(s)
  d = f32[4] async-done(u)
  ROOT y = f32[4] negate(x)
}
"""
COLLECTIVES = {
    "all-reduce": "all-reduce(p), to_apply=add",
    "collective-permute": "collective-permute(p), source_target_pairs={{0,1},{1,0}}",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_async_done_of_a_collective_stays_without_users(name: str) -> None:
    """Other devices take part in the round that its async-start begins."""
    text = MODULE.replace("INSTRUCTION", COLLECTIVES[name])
    module = changed(text, DeadCode())
    assert opcodes(module)[:3] == ["async-start", "async-update", "async-done"]
    verify_module(Expand().run(module), 2, 1)


def test_a_computation_without_effects_and_users_goes() -> None:
    module = changed(MODULE.replace("INSTRUCTION", "sine(p)"), DeadCode())
    assert opcodes(module) == ["negate"]
