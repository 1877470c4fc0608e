"""Channels between devices of the lock step."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.text.parser import parse_module
from tests.channel_case import ChannelCase, annotated
from tests.channel_programs import CASES
from tests.joined_channel_programs import CASES as JOINED


@pytest.mark.parametrize("case", [*CASES, *JOINED], ids=lambda case: case.name)
def test_values_arrive(case: ChannelCase) -> None:
    programs = {}
    for devices, module in case.modules():
        verify_module(module, case.replicas, case.partitions)
        programs |= dict.fromkeys(devices, module)
    arguments = {device: case.arguments(device) for device in programs}
    outs = run_programs(programs, arguments, Counts(case.replicas, case.partitions), time_limit=60)
    assert not case.wrong(outs)


def two_sided(first: str, second: str) -> str:
    """Both devices run `first`, then `second`."""
    return f"""
ENTRY main {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  {first}
  {second}
  ROOT z = f32[2] copy(x)
}}"""


def run_both(module: Module) -> None:
    run_reference(module, [[np.zeros(2, np.float32)]] * 2, Counts(2, 1))


SEND = f"s = (f32[2], u32[], token[]) send(x, t), {annotated('{{0,1},{1,0}}')}"
RECV = f"r = (f32[2], u32[], token[]) recv(t), {annotated('{{0,1},{1,0}}')}"
SENT, RECEIVED = "sd = token[] send-done(s)", "rd = (f32[2], token[]) recv-done(r)"


@pytest.mark.parametrize(
    ("first", "second", "done", "line"),
    [
        (f"{SEND} {SENT}", f"{RECV} {RECEIVED}", "sd", 5),
        (f"{RECV} {RECEIVED}", f"{SEND} {SENT}", "rd", 5),
    ],
)
def test_a_cycle_of_dones_is_a_deadlock(first: str, second: str, done: str, line: int) -> None:
    module = parse_module(two_sided(first, second), "cycle.hlo")
    with pytest.raises(DeadlockError) as caught:
        run_both(module)
    assert caught.value.diagnosis is not None
    lines = caught.value.diagnosis.text().splitlines()
    for device, text in enumerate(lines[:2]):
        assert text.startswith(f"  device {device} waits in {done} (cycle.hlo:{line}:")
        assert f") for device {1 - device}: " in text
    assert lines[2:4] == ["  2 of 2 devices can never end", "  cycle: 0 -> 1 -> 0"]


def test_sends_do_not_wait_for_their_recvs() -> None:
    run_both(parse_module(two_sided(f"{SEND} {RECV}", f"{RECEIVED} {SENT}")))


def test_other_shapes_at_run_time_are_a_mismatch() -> None:
    """Two chains of different shapes that one device runs in another order: only the run can tell."""
    pairs = annotated("{{0,1}}")
    text = f"""
first {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  a = (f32[2], u32[], token[]) send(x, t), {pairs}
  ad = token[] send-done(a)
  y = f32[1] slice(x), slice={{[0:1]}}
  b = (f32[1], u32[], token[]) send(y, t), {pairs}
  bd = token[] send-done(b)
  ROOT z = f32[2] copy(x)
}}
second {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  b = (f32[1], u32[], token[]) recv(t), {pairs}
  bd = (f32[1], token[]) recv-done(b)
  a = (f32[2], u32[], token[]) recv(t), {pairs}
  ad = (f32[2], token[]) recv-done(a)
  ROOT z = f32[2] get-tuple-element(ad), index=0
}}
ENTRY main {{
  x = f32[2] parameter(0)
  r = u32[] replica-id()
  i = s32[] convert(r)
  ROOT z = f32[2] conditional(i, x, x), branch_computations={{first, second}}
}}"""
    wanted = (
        r"a transfer from device 0 to device 1 on channel \d: device 0 enters with a \(mixed.*, device 1 with bd "
        r"\(mixed.hlo:16:.*; they differ in value: f32\[2\] and f32\[1\]"
    )
    with pytest.raises(CollectiveMismatchError, match=wanted):
        run_both(parse_module(text, "mixed.hlo"))


def test_programs_that_cannot_be_paired_do_not_begin() -> None:
    module = parse_module(two_sided(SEND, SENT), "half.hlo")
    with pytest.raises(DeadlockError, match=r"no program of the run has a recv on channel 0 for s"):
        run_both(module)
