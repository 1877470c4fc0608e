"""Reports on programs that many devices run: short, with the place in the user's own program and with the cause."""

from __future__ import annotations

import numpy as np
import pytest

import distxla as dx
from distxla.errors import CollectiveMismatchError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs, run_reference

DEVICES = 8
SKIPPED = """HloModule train, replica_count=8

FileNames
1 "model.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=42 end_line=42 column=12 end_column=40}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
yes { p = f32[4] parameter(0)
  ROOT g = f32[4] all-reduce(p), replica_groups={}, to_apply=sum }
no { p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p) }
ENTRY main { x = f32[4] parameter(0)
  i = u32[] replica-id()
  k = u32[] constant(3)
  c = pred[] compare(i, k), direction=NE
  r = f32[4] conditional(c, x, x), true_computation=yes, false_computation=no
  ROOT q = f32[4] all-reduce(r), replica_groups={}, to_apply=sum, metadata={op_name="jit(step)/psum" stack_frame_id=1}
}
"""
LINES = """\
    from model.py:42:12 in step
  devices 0-2, 4-7 wait in q (train.hlo:27:8) for device 3: all-reduce, group {0,1,2,3,4,5,6,7}, round 2, \
from model.py:42:12 in step (jit(step)/psum)
  device 3 has ended after q (train.hlo:27:8)
  7 of 8 devices can never end
  history: to begin with devices 0-2, 4-7 reached g (all-reduce), round 1, device 3 reached q (all-reduce), round 1
    devices 0-2, 4-7: > g 1, q 2
    device 3: > q 1
  they diverge at r (train.hlo:26:3)
  hint: device 3 skipped g (train.hlo:19:8), which is in a branch of r (train.hlo:26:3): either all members of its \
group must take that branch or none; replica-id i (train.hlo:23:3) decides it"""


def test_a_member_that_skipped_a_collective_long_before_it_shows() -> None:
    """Its next one met the others' one before: what is wrong is not where they wait."""
    with pytest.raises(dx.DeadlockError) as caught:
        run_reference(dx.parse(SKIPPED, "train.hlo"), [[np.zeros(4, np.float32)]] * DEVICES, Counts(DEVICES, 1))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("device 0 waits in q (train.hlo:27:8) for device 3, whose program has ended")
    assert "\n".join(lines[3:]) == LINES
    assert caught.value.diagnosis is not None
    found = caught.value.diagnosis.as_json()
    assert found["devices"][0]["op_name"] == "jit(step)/psum"
    assert [found["divergences"][0][key] for key in ("devices", "also")] == [[0, 3], [1, 2, 4, 5, 6, 7]]
    page = caught.value.diagnosis.page()
    assert "model.py:42:12 in step jit(step)/psum" in page
    assert page.count('<li class="first">') == 2  # a row for each history


SUM = "sum { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b) }"
PAIR = 'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}'
RECEIVES = f"""HloModule receives, is_scheduled=true

{SUM}
ENTRY main {{ x = f32[4] parameter(0)
  t = token[] after-all()
  u1 = f32[4] all-reduce(x), replica_groups={{}}, to_apply=sum
  c = (f32[4], u32[], token[]) recv(t), {PAIR}
  rd = (f32[4], token[]) recv-done(c), channel_id=1
  g = f32[4] get-tuple-element(rd), index=0
  ROOT u2 = f32[4] all-reduce(OPERAND), replica_groups={{}}, to_apply=sum
}}
"""
SENDS = f"""HloModule sends, is_scheduled=true

{SUM}
ENTRY main {{ x = f32[4] parameter(0)
  t = token[] after-all()
  v1 = f32[4] all-reduce(x), replica_groups={{}}, to_apply=sum
  v2 = f32[4] all-reduce(v1), replica_groups={{}}, to_apply=sum
  s = (f32[4], u32[], token[]) send(v2, t), {PAIR}
  sd = token[] send-done(s), channel_id=1
  ROOT r = f32[4] add(v2, v2)
}}
"""


@pytest.mark.parametrize(
    ("operand", "hint"),
    [
        ("x", "hint: move u2 (a.hlo:12:8) before rd (a.hlo:10:3) on device 0"),
        (
            "g",
            "hint: no other order helps: s (b.hlo:10:3) on device 1 uses the result of v2 (b.hlo:9:3), likewise on the "
            "other devices of the cycle: one device must start from a value that it does not receive",
        ),
    ],
)
def test_no_hint_moves_an_instruction_before_what_it_takes(operand: str, hint: str) -> None:
    """Of the second round of three all-reduces that are alike."""
    programs = {0: dx.parse(RECEIVES.replace("OPERAND", operand), "a.hlo"), 1: dx.parse(SENDS, "b.hlo")}
    args = [np.zeros(4, np.float32)]
    with pytest.raises(dx.DeadlockError) as caught:
        run_programs(programs, {0: args, 1: args}, Counts(2, 1))
    assert str(caught.value).splitlines()[-1].strip() == hint


MEETS = """HloModule meets

sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main { x = f32[4] parameter(0)
  ROOT u = f32[4] all-reduce(x), replica_groups={}, to_apply=sum }
"""
BROADCAST = "collective-broadcast(x), replica_groups={{0,1}}"


@pytest.mark.parametrize(
    ("other", "hint"),
    [
        (MEETS.replace("add", "maximum"), "give u (a.hlo:7:8) and u (b.hlo:7:8) the same to_apply"),
        (MEETS.replace("f32", "s32"), "give u (a.hlo:7:8) and u (b.hlo:7:8) the same operand types"),
        (
            MEETS.replace(
                "all-reduce(x), replica_groups={}, to_apply=sum", "collective-broadcast(x), replica_groups={{0,1}}"
            ),
            "the program of device 1 has no instruction that matches u (a.hlo:7:8) on device 0",
        ),
        (
            MEETS.replace("to_apply", "channel_id=7, to_apply").replace("add", "maximum"),
            "give u (a.hlo:7:8) and u (b.hlo:7:8) the same channel_id and to_apply",
        ),
    ],
)
def test_two_programs_that_meet_with_what_nothing_else_could_meet(other: str, hint: str) -> None:
    programs = {0: dx.parse(MEETS, "a.hlo"), 1: dx.parse(other, "b.hlo")}
    args = {0: [np.zeros(4, np.float32)], 1: [np.zeros(4, np.int32 if "s32" in other else np.float32)]}
    with pytest.raises(CollectiveMismatchError) as caught:
        run_programs(programs, args, Counts(2, 1))
    assert str(caught.value).splitlines()[-1] == f"  hint: {hint}"


BRANCH_AND_TRANSFER = """HloModule m, is_scheduled=true

sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
one { y = f32[4] parameter(0)
  ROOT u = f32[4] all-reduce(y), replica_groups={}, to_apply=sum }
other { z = f32[4] parameter(0)
  ROOT v = f32[4] negate(z) }
ENTRY main { x = f32[4] parameter(0)
  t = token[] after-all()
  p = pred[] constant(true)
"""
BRANCH = "  q = f32[4] conditional(p, x, x), true_computation=one, false_computation=other\n"


def test_a_branch_that_a_device_should_take_before_it_waits() -> None:
    """Device 0 runs the all-reduce before it sends, device 1 behind its recv."""
    channel = 'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}'
    sends = f"  s = (f32[4], u32[], token[]) send(x, t), {channel}\n  ROOT sd = token[] send-done(s), channel_id=1 }}\n"
    gets = f"  c = (f32[4], u32[], token[]) recv(t), {channel}\n  cd = (f32[4], token[]) recv-done(c), channel_id=1\n"
    root = "  ROOT r = f32[4] copy(q) }\n"
    texts = (f"{BRANCH_AND_TRANSFER}{BRANCH}{sends}", f"{BRANCH_AND_TRANSFER}{gets}{BRANCH}{root}")
    programs = {device: dx.parse(text, f"{'ab'[device]}.hlo") for device, text in enumerate(texts)}
    args = {device: [np.zeros(4, np.float32)] for device in programs}
    with pytest.raises(dx.DeadlockError) as caught:
        run_programs(programs, args, Counts(2, 1))
    assert str(caught.value).splitlines()[-1] == (
        "  hint: let device 1 run u (b.hlo:7:8), which is in a branch of q (b.hlo:15:3), before cd (b.hlo:14:3)"
    )


CROSSED = """HloModule crossed, is_scheduled=true

ENTRY main { x = f32[4] parameter(0)
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=HERE
  sd = token[] send-done(s), channel_id=HERE
  c = (f32[4], u32[], token[]) recv(t), channel_id=THERE
  cd = (f32[4], token[]) recv-done(c), channel_id=THERE
  ROOT r = f32[4] get-tuple-element(cd), index=0
}
"""


def test_cycles_that_are_alike_get_one_hint() -> None:
    """Two pairs of devices hold each other in the same instructions of the same two programs."""
    one, other = ("1", "{{0,2},{1,3}}"), ("2", "{{2,0},{3,1}}")
    programs = {}
    for number, (name, (mine, there)) in enumerate((("a.hlo", (one, other)), ("b.hlo", (other, one)))):
        text = CROSSED
        for word, (channel, pairs) in (("THERE", there), ("HERE", mine)):
            ends = f'{channel}, frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}'
            text = text.replace(f"), channel_id={word}", f"), channel_id={ends}")
        module = dx.parse(text, name)
        programs |= {2 * number: module, 2 * number + 1: module}
    args = {device: [np.zeros(4, np.float32)] for device in programs}
    with pytest.raises(dx.DeadlockError) as caught:
        run_programs(programs, args, Counts(4, 1))
    assert str(caught.value).splitlines()[-2:] == [
        "  cycles: 0 -> 2 -> 0, 1 -> 3 -> 1",
        "  hint: move c (b.hlo:7:3) before sd (b.hlo:6:3) on devices 2, 3, or move c (a.hlo:7:3) before sd (a.hlo:6:3) "
        "on devices 0, 1; one of these is enough",
    ]
