"""What is known of deadlocks before a run, and no alarm where none is due; tests/diagnosis has the words."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.cli.programs import read_world
from distxla.diagnosis.facts.blocked import Need
from distxla.ir.counts import Counts
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from distxla.text.parser import parse_module
from tests.channel_case import permute, ring
from tests.channel_programs import pipelined_text
from tests.collectives.random_channels import RandomChannels
from tests.contradicting_programs import CASES as CONTRADICTING
from tests.deadlock_programs import (
    BY_DEVICE,
    CASES,
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
    return examine(case.modules(), Counts(case.replicas, 1))


@pytest.mark.parametrize("case", [*CASES, *CONTRADICTING], ids=lambda case: case.name)
def test_verdicts_agree_with_what_happens(case: Case) -> None:
    """A program of which it is known that it runs is never called a deadlock, and the other way round."""
    found = verdict_of(case).outcome
    assert found is not (Outcome.SAFE if case.deadlocks else Outcome.DEADLOCK)


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
    ("an argument that all have to be given alike", 2, decided(ARGUMENT), Outcome.UNKNOWN,
     "u (a.hlo:15:3) inside needs others; give all of them the same count (devices 0, 1)"),
    ("an argument decides, but nobody else is concerned", 2, decided(ARGUMENT, reduce("u", "v", "{{0},{1}}")),
     Outcome.SAFE, ""),
    ("a hundred million turns", 2, decided("count = s32[] constant(100000000)"), Outcome.SAFE, ""),
    ("as many turns as the device's id and a hundred million say", 2,
     decided(BY_DEVICE.replace("constant(2)", "constant(100000000)")), Outcome.UNKNOWN,
     "w (a.hlo:34:3) is decided by count (a.hlo:31:3): how many iterations it runs may"),
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
     "device 0 waits in a (a.hlo:8:8) for device 1, whose program has ended"),
]  # fmt: skip


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("name", "devices", "text", "outcome", "part"), STATIC, ids=[case[0] for case in STATIC])
def test_what_decides(name: str, devices: int, text: str, outcome: Outcome, part: str) -> None:
    found = examine([(range(devices), parse_module(text, "a.hlo"))], Counts(devices, 1))
    assert found.outcome is outcome, found.text
    assert part in found.text


FEED = """t = token[] after-all()
f = (f32[4], token[]) infeed(t)
v = f32[4] get-tuple-element(f), index=0
"""
GIVE_OUT = """t = token[] after-all()
given = token[] outfeed(v, t), outfeed_shape=f32[4]
u = f32[4] copy(v), control-predecessors={given}"""


@pytest.mark.parametrize(
    "text",
    [
        by_device(f"{FEED}{reduce('ROOT c', 'v')}", reduce("ROOT c", "p")),
        looped(GIVE_OUT, "count = s32[] constant(1000000)"),
    ],
    ids=["infeed", "outfeed"],
)
def test_the_host_is_taken_to_feed_and_to_empty(text: str) -> None:
    """A starving infeed and an outfeed that nobody reads are seen in the run."""
    assert examine([(range(2), parse_module(text, "a.hlo"))], Counts(2, 1)).outcome is Outcome.SAFE


def test_a_chain_of_permutes_over_partitions() -> None:
    """Each has members of its own, and who is in none of its pairs goes on."""
    links = ["{{0,1}}", "{{2,3}}", "{{1,2}}"]
    lines = [
        f"c{k} = f32[4] collective-permute({'x' if not k else f'c{k - 1}'}), channel_id={k + 1}, "
        f"source_target_pairs={pairs}"
        for k, pairs in enumerate(links)
    ]
    module = parse_module(alone("\n".join([*lines, "ROOT r = f32[4] add(c0, c2)"])), "a.hlo")
    assert examine([(range(4), module)], Counts(1, 4)).outcome is Outcome.SAFE


DECIDED = decided(SUMMED.replace("{groups}", "{}"))


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        (DECIDED, DECIDED, Outcome.SAFE),
        (DECIDED, DECIDED.replace("isum", "add_integers"), Outcome.SAFE),
        (DECIDED, DECIDED.replace("constant(0)", "constant(1)"), Outcome.UNKNOWN),  # turns once less
        (DECIDED, DECIDED.replace("direction=LT", "direction=LE"), Outcome.UNKNOWN),
        (decided(SUMMED.replace("{groups}", HALVES)), decided(SUMMED.replace("{groups}", HALVES)), Outcome.UNKNOWN),
    ],
)
def test_programs_that_sum_what_decides(one: str, other: str, outcome: Outcome) -> None:
    """Members of a group that have executed the same rounds get the same, whichever programs they run."""
    programs = [(range(2), parse_module(one, "a.hlo")), (range(2, 4), parse_module(other, "b.hlo"))]
    assert examine(programs, Counts(4, 1)).outcome is outcome


def test_a_device_that_only_receives_lets_any_number_be_sent() -> None:
    pairs = "{{0,1}}"
    lines = [send(f"s{k}", 1, pairs) for k in range(9)] + [recv(f"c{k}", 1, pairs) for k in range(9)]
    lines += [recv_done(f"d{k}", f"c{k}", 1) for k in range(9)] + [send_done(f"e{k}", f"s{k}", 1) for k in range(9)]
    text = alone("\n".join([*lines, "ROOT r = f32[4] negate(x)"]))
    assert examine([(range(2), parse_module(text, "a.hlo"))], Counts(2, 1)).outcome is Outcome.SAFE


def test_a_ninth_send_needs_the_first_one_received() -> None:
    """Both send nine times before they receive: with eight in flight neither can."""
    pairs = "{{0,1},{1,0}}"
    lines = [send(f"s{k}", 1, pairs) for k in range(9)] + [recv(f"c{k}", 1, pairs) for k in range(9)]
    lines += [recv_done(f"d{k}", f"c{k}", 1) for k in range(9)] + [send_done(f"e{k}", f"s{k}", 1) for k in range(9)]
    text = alone("\n".join([*lines, "ROOT r = f32[4] negate(x)"]))
    found = examine([(range(2), parse_module(text, "a.hlo"))], Counts(2, 1))
    assert found.outcome is Outcome.DEADLOCK
    assert found.diagnosis is not None
    blocked = found.diagnosis.blocked[0]
    assert blocked.place.instruction == "s8"
    assert blocked.needs == (Need(1, "receive a value that is on its way on channel 1"),)


def test_what_depends_on_the_executor_is_unknown() -> None:
    """Compiled permutes wait for their own source only, and device 0 has none; in the reference the rounds mix."""
    permute_ = "collective-permute(p), source_target_pairs={{0,1}}"
    text = by_device(
        f"q = f32[4] {permute_}\n{reduce('ROOT a', 'q')}", f"{reduce('a', 'p')}\nROOT q = f32[4] {permute_}"
    )
    found = examine([(range(2), parse_module(text, "a.hlo"))], Counts(2, 1))
    assert found.outcome is Outcome.UNKNOWN
    assert found.summary == "whether all devices go on depends on how rounds and transfers are carried out"
    assert found.diagnosis is not None
    assert found.diagnosis.undecided[0].why.startswith(
        "a round of devices 0, 1: device 0 enters with q (a.hlo:9:3), device 1 with a (a.hlo:14:3); they differ in "
        "opcode: collective-permute and all-reduce"
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_alarm_on_programs_that_run(path: Path) -> None:
    world = read_world([str(path)], None, None)
    programs = [(p.devices, p.module) for p in world.programs]
    assert examine(programs, world.counts).outcome is Outcome.SAFE


@pytest.mark.parametrize("seed", range(12))
def test_no_alarm_on_random_transfers_that_run(seed: int) -> None:
    found = RandomChannels(seed)
    count = found.replicas * found.partitions
    module = parse_module(found.text)
    assert examine([(range(count), module)], Counts(found.replicas, found.partitions)).outcome is Outcome.SAFE


@pytest.mark.parametrize("bound", ["constant(5)", "constant(100000000)"])
def test_contexts_that_go_round_a_loop(bound: str) -> None:
    text = pipelined_text(3, 5, 1, ring(3)).replace("constant(5)", bound)
    assert examine([(range(3), parse_module(text))], Counts(3, 1)).outcome is Outcome.SAFE


def test_a_chain_in_which_each_device_waits_for_the_one_before_it() -> None:
    """Devices that do the same wait at different places; no two of them for each other."""
    pairs = "{" + ",".join(f"{{{d},{d + 1}}}" for d in range(7)) + "}"
    lines = [recv("c", 1, pairs), recv_done("rd", "c", 1), send("s", 1, pairs), send_done("sd", "s", 1)]
    text = alone("\n".join([*lines, "ROOT r = f32[4] get-tuple-element(rd), index=0"]))
    assert examine([(range(8), parse_module(text))], Counts(8, 1)).outcome is Outcome.SAFE
    closed = examine([(range(8), parse_module(text.replace("{6,7}", "{6,7},{7,0}")))], Counts(8, 1))
    assert closed.outcome is Outcome.DEADLOCK
    assert closed.diagnosis is not None
    assert len(closed.diagnosis.cycle) == 8


def test_rounds_behind_a_loop_that_is_not_followed_have_no_numbers() -> None:
    """A hundred thousand turns, each with a round, and one round more that device 1 leaves out."""
    more = f"more {{\n  p = f32[4] parameter(0)\n  {reduce('ROOT m', 'p')}\n}}\n"
    none = "none {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n"
    text = decided("count = s32[] constant(100000)").replace("ENTRY", f"{more}{none}ENTRY")
    last = next(
        line for line in text.splitlines() if line.strip().startswith("ROOT") and "get-tuple-element(w)" in line
    )
    shown = last.replace("ROOT ", "").split(" = ")[0].strip()
    text = text.replace(
        last,
        f"""{last.replace("ROOT ", "")}
  who = u32[] replica-id()
  nobody = u32[] constant(0)
  c = pred[] compare(who, nobody), direction=EQ
  ROOT last = f32[4] conditional(c, {shown}, {shown}), true_computation=more, false_computation=none""",
    )
    found = examine([(range(2), parse_module(text, "a.hlo"))], Counts(2, 1))
    assert found.outcome is Outcome.DEADLOCK
    assert found.diagnosis is not None
    assert found.diagnosis.blocked[0].needs == (Need(1, "enter a round of devices 0, 1"),)


def test_a_thousand_devices_with_a_thousand_transfers() -> None:
    """Devices that do the same are handled once: 0.1 s."""
    pairs = ring(1000)
    body = "".join(permute(f"v{k + 1}", f"v{k}", "f32[4]", pairs) for k in range(250))
    text = f"ENTRY main {{\n  v0 = f32[4] parameter(0){body}\n  ROOT r = f32[4] negate(v250)\n}}"
    assert examine([(range(1000), parse_module(text))], Counts(1000, 1)).outcome is Outcome.SAFE


def test_pairs_that_both_programs_name_differently_by_device() -> None:
    """Members whose programs are different texts meet all the same."""
    one = by_device(*[reduce("ROOT c", "p")] * 2)
    other = alone(reduce("ROOT c", "x")).replace("ENTRY", "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
                                                          "  ROOT r = f32[] add(a, b)\n}\nENTRY")  # fmt: skip
    modules = [((0,), parse_module(one, "a.hlo")), ((1,), parse_module(other, "b.hlo"))]
    assert examine(modules, Counts(2, 1)).outcome is Outcome.SAFE


SUMS = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[4] parameter(0)
  ROOT c = f32[4] all-reduce(x), replica_groups={}, to_apply=sum
}
"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [(" add(", " maximum(", "to_apply"), ("f32", "f16", "operand types"), ("[4]", "[8]", "operand shapes")],
)
def test_what_two_programs_have_to_make_equal(old: str, new: str, what: str) -> None:
    modules = [((0,), parse_module(SUMS, "a.hlo")), ((1,), parse_module(SUMS.replace(old, new), "b.hlo"))]
    found = examine(modules, Counts(2, 1))
    assert found.diagnosis is not None
    assert found.diagnosis.kind == "mismatch"
    assert found.diagnosis.hints == (f"give c (a.hlo:8:8) and c (b.hlo:8:8) the same {what}",)


def test_how_often_two_programs_do_what_both_have_to() -> None:
    """Rounds in loops of two programs; behind a choice it isn't known, and nothing is said of it."""
    short, long = (decided(f"count = s32[] constant({turns})") for turns in (2, 5))
    found = examine([((0,), parse_module(short, "a.hlo")), ((1,), parse_module(long, "b.hlo"))], Counts(2, 1))
    assert found.diagnosis is not None
    assert found.diagnosis.notes == (
        "device 0 enters 2 rounds of devices 0, 1, last in u (a.hlo:15:3) in loop w (a.hlo:31:3), device 1 "
        "enters 5, last in u (b.hlo:15:3) in loop w (b.hlo:31:3)",
    )
    assert found.diagnosis.hints == (
        "device 0 runs fewer iterations of loop w (a.hlo:31:3), which contains u (a.hlo:15:3), than device 1 of loop "
        "w (b.hlo:31:3): all devices that communicate in it must run the same number of iterations; "
        "constant count (a.hlo:28:3) decides it",
    )
    far = [decided(f"count = s32[] constant({turns})") for turns in (100_000, 100_000)]
    head, _, rest = far[1].rpartition("ROOT r")
    more = f"{head}v{rest.replace('}', '')}  {reduce('ROOT r', 'v')}\n}}\n"
    found = examine([((0,), parse_module(far[0], "a.hlo")), ((1,), parse_module(more, "b.hlo"))], Counts(2, 1))
    assert found.diagnosis is not None
    assert found.diagnosis.notes == ()
    assert found.diagnosis.hints == (
        "the program of device 0 has no instruction left that matches r (b.hlo:34:8) on device 1",
    )
