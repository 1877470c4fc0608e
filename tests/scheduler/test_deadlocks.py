"""What is known of deadlocks before a run: the verdict of each case, word by word, and no alarm where none is due."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.cli.programs import read_world
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from tests.channel_case import permute, ring
from tests.channel_programs import pipelined_text
from tests.collectives.random_channels import RandomChannels
from tests.deadlock_programs import (
    BY_DEVICE,
    CASES,
    NAMED,
    STEP,
    Case,
    alone,
    by_device,
    looped,
    recv,
    recv_done,
    reduce,
    send,
    send_done,
)

PROGRAMS = sorted((Path(__file__).parent.parent / "programs").rglob("*.hlo"))


def verdict_of(case: Case):  # type: ignore[no-untyped-def]
    return examine(case.modules(), case.replicas, 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdicts_agree_with_what_happens(case: Case) -> None:
    """A program of which it is known that it runs is never called a deadlock, and the other way round."""
    found = verdict_of(case).outcome
    assert found is not (Outcome.SAFE if case.deadlocks else Outcome.DEADLOCK)


TEXTS = {
    "recv_done_before_send_on_both_sides": """\
deadlock: devices 0, 1 wait for each other in a cycle; 2 of 2 devices never end
  device 0 waits in rd (a.hlo:6:3) for device 1 to send on channel 1; device 1 would in s (b.hlo:7:3), but waits in rd \
(b.hlo:6:3)
  device 1 waits in rd (b.hlo:6:3) for device 0 to send on channel 2; device 0 would in s (a.hlo:7:3), but waits in rd \
(a.hlo:6:3)
  hint: let device 1 execute s before rd""",
    "send_done_before_the_peers_recv": """\
deadlock: devices 0, 1 wait for each other in a cycle; 2 of 2 devices never end
  device 0 waits in sd (a.hlo:6:3) for device 1 to execute its recv on channel 1; device 1 would in c (b.hlo:7:3), \
but waits in sd (b.hlo:6:3)
  device 1 waits in sd (b.hlo:6:3) for device 0 to execute its recv on channel 2; device 0 would in c (a.hlo:7:3), \
but waits in sd (a.hlo:6:3)
  hint: let device 1 execute c before sd""",
    "posted_early": "deadlock: none can happen on the 2 devices",
    "out_of_order_but_independent": "deadlock: none can happen on the 2 devices",
    "ring_3": """\
deadlock: devices 0-2 wait for each other in a cycle; 3 of 3 devices never end
  device 0 waits in rd (a.hlo:6:3) for device 2 to send on channel 3; device 2 would in s (c.hlo:7:3), but waits in rd \
(c.hlo:6:3)
  device 2 waits in rd (c.hlo:6:3) for device 1 to send on channel 2; device 1 would in s (b.hlo:7:3), but waits in rd \
(b.hlo:6:3)
  device 1 waits in rd (b.hlo:6:3) for device 0 to send on channel 1; device 0 would in s (a.hlo:7:3), but waits in rd \
(a.hlo:6:3)
  hint: let device 2 execute s before rd""",
    "ring_8_with_one_turned_round": "deadlock: none can happen on the 8 devices",
    "two_channels_crossed": """\
deadlock: devices 0, 1 wait for each other in a cycle; 2 of 2 devices never end
  device 0 waits in sd1 (a.hlo:6:3) for device 1 to execute its recv on channel 1; device 1 would in r1 (b.hlo:7:3), \
but waits in rd2 (b.hlo:6:3)
  device 1 waits in rd2 (b.hlo:6:3) for device 0 to send on channel 2; device 0 would in s2 (a.hlo:7:3), but waits in \
sd1 (a.hlo:6:3)
  hint: let device 1 execute r1 before rd2""",
    "all_reduces_in_different_orders": """\
deadlock: devices 0, 1 wait for each other in a cycle; 4 of 4 devices never end
  device 0 waits in a (a.hlo:9:3) for device 1 to come to round 1 of devices 0, 1; device 1 would in a (a.hlo:15:8), \
but waits in b (a.hlo:14:3)
  device 1 waits in b (a.hlo:14:3) for device 0 to come to round 1 of devices 0-3; device 0 would in b (a.hlo:10:8), \
but waits in a (a.hlo:9:3)
  behind them: devices 2, 3
  their ways part at r (a.hlo:21:8)
  hint: let device 1 execute a before b""",
    "a_collective_in_one_branch_only": """\
deadlock: device 1 waits for what never happens; 2 of 3 devices never end
  device 1 waits in c (a.hlo:13:8) for device 0 to come to round 1 of devices 0-2; device 0 has ended
  behind them: devices 2
  their ways part at r (a.hlo:19:8)
  hint: device 0 lacks what c of device 1 needs""",
    "different_collectives_in_the_branches": """\
mismatch: round 1 of devices 0, 1: device 0 comes with c (a.hlo:9:8), device 1 with d (a.hlo:13:8); they differ in \
opcode: all-reduce and all-to-all
  their ways part at r (a.hlo:19:8)
  hint: device 1 has nothing later that matches c (a.hlo:9:8)""",
    "disjoint_groups_in_branches": "deadlock: none can happen on the 4 devices",
    "loops_by_device": """\
deadlock: device 1 waits for what never happens; 1 of 2 devices never end
  device 1 waits in u (a.hlo:12:3) for device 0 to come to round 3 of devices 0, 1; device 0 has ended
  their ways part at w (a.hlo:31:3)
  hint: device 0 lacks what u of device 1 needs""",
    "loops_by_infeed": """\
warning: whether all devices go on can't be known before the run
  w (a.hlo:30:3) is decided by f (a.hlo:26:3): how often it turns may differ between devices, and u \
(a.hlo:12:3) inside needs others (devices 0, 1)""",
    "nested_loops": """\
deadlock: device 1 waits for what never happens; 1 of 2 devices never end
  device 1 waits in u (a.hlo:12:3) for device 0 to come to round 16 of devices 0, 1; device 0 has ended
  their ways part at inside (a.hlo:39:3)
  hint: device 0 lacks what u of device 1 needs""",
    "a_program_that_ends_early": """\
deadlock: device 1 waits for what never happens; 1 of 2 devices never end
  device 1 waits in rd (a.hlo:15:3) for device 0 to send on channel 1; device 0 has ended
  their ways part at r (a.hlo:29:8)
  hint: device 0 lacks what rd of device 1 needs""",
    "another_shape_in_round_1000": """\
mismatch: round 1000 of devices 0, 1: device 1 comes with d (a.hlo:14:3), device 0 with c (a.hlo:9:8); they differ in \
operands: f32[2] and f32[4]
  their ways part at u (a.hlo:29:3)
  hint: device 0 has nothing later that matches d (a.hlo:14:3)""",
    "an_async_pair_that_encloses_another": "deadlock: none can happen on the 2 devices",
    "a_chain_of_permutes": "deadlock: none can happen on the 4 devices",
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_the_verdict(name: str) -> None:
    assert verdict_of(NAMED[name]).text == TEXTS[name]


SUM = "sum { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b) }\n"
ARGUMENT = "count = s32[] parameter(1)"
SUMMED = "k = s32[] parameter(1)\ncount = s32[] all-reduce(k), to_apply=isum, replica_groups={groups}"


def decided(count: str, body: str = STEP) -> str:
    return SUM.replace("sum {", "isum {") + looped(body, count)


def branching(predicate: str, yes: str, no: str) -> str:
    """A program with a conditional; predicate: lines that give pred[] c."""
    return f"""sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
yes {{
  p = f32[4] parameter(0)
  {yes}
}}
no {{
  p = f32[4] parameter(0)
  {no}
}}
ENTRY main {{
  x = f32[4] parameter(0)
  {predicate}
  ROOT r = f32[4] conditional(c, x, x), true_computation=yes, false_computation=no
}}
"""


GIVEN, HALVES = "c = pred[] parameter(1)", "{{0,1},{2,3}}"
STATIC = [  # name, devices, text, outcome, a part of the verdict
    ("all devices sum what decides", 4, decided(SUMMED.replace("{groups}", "{}")), Outcome.SAFE, ""),
    ("groups sum what decides, and meet in the same groups", 4,
     decided(SUMMED.replace("{groups}", HALVES), reduce("u", "v", HALVES)), Outcome.SAFE, ""),
    ("groups sum what decides, but all meet", 4, decided(SUMMED.replace("{groups}", HALVES)), Outcome.UNKNOWN,
     "w (a.hlo:32:3) is decided by count"),
    ("an argument decides how often", 2, decided(ARGUMENT), Outcome.UNKNOWN, "is decided by count (a.hlo:28:3)"),
    ("an argument decides, but nobody else is concerned", 2, decided(ARGUMENT, reduce("u", "v", "{{0},{1}}")),
     Outcome.SAFE, ""),
    ("a hundred million turns", 2, decided("count = s32[] constant(100000000)"), Outcome.SAFE, ""),
    ("as many turns as the device's id and a hundred million say", 2,
     decided(BY_DEVICE.replace("constant(2)", "constant(100000000)")), Outcome.UNKNOWN, "how often it turns may"),
    ("many turns, which are not counted by steps of one size", 2,
     decided("count = s32[] constant(2000000000)").replace("add(i, one)", "multiply(i, two)")
     .replace("  one = s32[] constant(1)\n", "  two = s32[] constant(2)\n").replace("constant(0)", "constant(1)"),
     Outcome.SAFE, ""),
    ("a million turns, which are not counted by steps of one size", 2,
     decided("count = s32[] constant(1000000)").replace("add(i, one)", "subtract(i, one)")
     .replace("constant(1)\n", "constant(-1)\n"), Outcome.SAFE, ""),
    ("an argument decides between the same", 2,
     branching(GIVEN, reduce("ROOT a", "p"), f"n = f32[4] negate(p)\n  {reduce('ROOT b', 'n')}"), Outcome.SAFE, ""),
    ("an argument decides whether to meet", 2, branching(GIVEN, reduce("ROOT a", "p"), "ROOT b = f32[4] negate(p)"),
     Outcome.UNKNOWN, "r (a.hlo:17:8) is decided by c (a.hlo:16:3): which branch is taken may differ"),
    ("an argument decides whether to meet in the other order", 4,
     branching(GIVEN, f"{reduce('a', 'p')}\n  {reduce('ROOT b', 'a', HALVES)}",
               f"{reduce('a', 'p', HALVES)}\n  {reduce('ROOT b', 'a')}"), Outcome.UNKNOWN, "which branch"),
    ("a constant decides", 2,
     branching("c = pred[] constant(false)", reduce("ROOT a", "p"), "ROOT b = f32[4] negate(p)"), Outcome.SAFE, ""),
    ("ids decide alike for each group", 4,
     branching("id = u32[] replica-id()\n  two = u32[] constant(2)\n  c = pred[] compare(id, two), direction=LT",
               reduce("ROOT a", "p", HALVES), "ROOT b = f32[4] negate(p)"), Outcome.SAFE, ""),
    ("ids decide differently in a group", 4,
     branching("id = u32[] replica-id()\n  two = u32[] constant(1)\n  c = pred[] compare(id, two), direction=LT",
               reduce("ROOT a", "p", HALVES), "ROOT b = f32[4] negate(p)"), Outcome.DEADLOCK,
     "device 0 waits in a (a.hlo:8:8) for device 1 to come to round 1 of devices 0, 1; device 1 has ended"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "devices", "text", "outcome", "part"), STATIC, ids=[case[0] for case in STATIC])
def test_what_decides(name: str, devices: int, text: str, outcome: Outcome, part: str) -> None:
    found = examine([(range(devices), parse_module(text, "a.hlo"))], devices, 1)
    assert found.outcome is outcome, found.text
    assert part in found.text


def test_a_device_that_only_receives_lets_any_number_be_sent() -> None:
    pairs = "{{0,1}}"
    lines = [send(f"s{k}", 1, pairs) for k in range(9)] + [recv(f"c{k}", 1, pairs) for k in range(9)]
    lines += [recv_done(f"d{k}", f"c{k}", 1) for k in range(9)] + [send_done(f"e{k}", f"s{k}", 1) for k in range(9)]
    text = alone("\n".join([*lines, "ROOT r = f32[4] negate(x)"]))
    assert examine([(range(2), parse_module(text, "a.hlo"))], 2, 1).outcome is Outcome.SAFE


def test_a_ninth_send_needs_the_first_one_received() -> None:
    """Both send nine times before they receive: with eight under way neither can."""
    pairs = "{{0,1},{1,0}}"
    lines = [send(f"s{k}", 1, pairs) for k in range(9)] + [recv(f"c{k}", 1, pairs) for k in range(9)]
    lines += [recv_done(f"d{k}", f"c{k}", 1) for k in range(9)] + [send_done(f"e{k}", f"s{k}", 1) for k in range(9)]
    text = alone("\n".join([*lines, "ROOT r = f32[4] negate(x)"]))
    found = examine([(range(2), parse_module(text, "a.hlo"))], 2, 1)
    assert found.outcome is Outcome.DEADLOCK
    assert found.cycle[0].place.instruction == "s8"
    assert found.cycle[0].until == "to receive one of those under way on channel 1"


def test_what_depends_on_the_executor_is_unknown() -> None:
    """Compiled permutes wait for their own source only, and device 0 has none; in the reference the rounds mix."""
    permute_ = "collective-permute(p), source_target_pairs={{0,1}}"
    text = by_device(
        f"q = f32[4] {permute_}\n{reduce('ROOT a', 'q')}", f"{reduce('a', 'p')}\nROOT q = f32[4] {permute_}"
    )
    found = examine([(range(2), parse_module(text, "a.hlo"))], 2, 1)
    assert found.outcome is Outcome.UNKNOWN
    assert found.summary == "whether all devices go on depends on how rounds and transfers are carried out"
    assert found.undecided[0].why.startswith(
        "round 1 of devices 0, 1: device 0 comes with q (a.hlo:9:3), device 1 with a (a.hlo:14:3); they differ in "
        "opcode: collective-permute and all-reduce"
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_alarm_on_programs_that_run(path: Path) -> None:
    world = read_world([str(path)], None, None)
    programs = [(p.devices, p.module) for p in world.programs]
    assert examine(programs, world.replicas, world.partitions).outcome is Outcome.SAFE


@pytest.mark.parametrize("seed", range(12))
def test_no_alarm_on_random_transfers_that_run(seed: int) -> None:
    found = RandomChannels(seed)
    count = found.replicas * found.partitions
    module = parse_module(found.text)
    assert examine([(range(count), module)], found.replicas, found.partitions).outcome is Outcome.SAFE


@pytest.mark.parametrize("bound", ["constant(5)", "constant(100000000)"])
def test_contexts_that_go_round_a_loop(bound: str) -> None:
    text = pipelined_text(3, 5, 1, ring(3)).replace("constant(5)", bound)
    assert examine([(range(3), parse_module(text))], 3, 1).outcome is Outcome.SAFE


def test_a_chain_in_which_each_device_waits_for_the_one_before_it() -> None:
    """Devices that do the same wait at different places; no two of them for each other."""
    pairs = "{" + ",".join(f"{{{d},{d + 1}}}" for d in range(7)) + "}"
    lines = [recv("c", 1, pairs), recv_done("rd", "c", 1), send("s", 1, pairs), send_done("sd", "s", 1)]
    text = alone("\n".join([*lines, "ROOT r = f32[4] get-tuple-element(rd), index=0"]))
    assert examine([(range(8), parse_module(text))], 8, 1).outcome is Outcome.SAFE
    closed = examine([(range(8), parse_module(text.replace("{6,7}", "{6,7},{7,0}")))], 8, 1)
    assert closed.outcome is Outcome.DEADLOCK
    assert len(closed.cycle) == 8


@pytest.mark.slow
def test_a_thousand_devices_with_a_thousand_transfers() -> None:
    """Devices that do the same are handled once: 0.1 s."""
    pairs = ring(1000)
    body = "".join(permute(f"v{k + 1}", f"v{k}", "f32[4]", pairs) for k in range(250))
    text = f"ENTRY main {{\n  v0 = f32[4] parameter(0){body}\n  ROOT r = f32[4] negate(v250)\n}}"
    assert examine([(range(1000), parse_module(text))], 1000, 1).outcome is Outcome.SAFE


def test_pairs_that_both_programs_name_differently_by_device() -> None:
    """Members whose programs are different texts meet all the same."""
    one = by_device(*[reduce("ROOT c", "p")] * 2)
    other = alone(reduce("ROOT c", "x")).replace("ENTRY", "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
                                                          "  ROOT r = f32[] add(a, b)\n}\nENTRY")  # fmt: skip
    modules = [((0,), parse_module(one, "a.hlo")), ((1,), parse_module(other, "b.hlo"))]
    assert examine(modules, 2, 1).outcome is Outcome.SAFE
