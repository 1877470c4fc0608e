"""Programs that deadlock when they run, and their harmless neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distxla.ir.module import Module
from distxla.text.parser import parse_module
from tests.channel_case import annotated
from tests.deadlock_pieces import CROSSING, HALF, INTEGERS, MOST, WAITING, WHOLE

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}"""


@dataclass(frozen=True)
class Case:
    """programs: (devices, text); every program takes f32[4] x.  items: what the infeed of each device gets, which is
    closed behind it.  deadlocks: whether somebody can never go on."""

    name: str
    replicas: int
    programs: tuple[tuple[Sequence[int], str], ...]
    deadlocks: bool = True
    items: Mapping[int, Sequence[Any]] = field(default_factory=dict)

    def modules(self) -> list[tuple[tuple[int, ...], Module]]:
        return [
            (tuple(devices), parse_module(text, f"{chr(ord('a') + k)}.hlo"))
            for k, (devices, text) in enumerate(self.programs)
        ]


SCHEDULED = "HloModule main, is_scheduled=true\n"  # whose order is not changed where it deadlocks


def alone(lines: str) -> str:
    """A program of these lines, which name their result r."""
    return f"ENTRY main {{\n  x = f32[4] parameter(0)\n  t = token[] after-all()\n{_indented(lines)}}}\n"


def by_device(*bodies: str, lines: str = "") -> str:
    """A program whose replica d runs body d, lines from p: f32[4] to ROOT f32[4], in a branch of its own."""
    kinds = list(dict.fromkeys(bodies))
    computations = "\n".join(f"b{k} {{\n  p = f32[4] parameter(0)\n{_indented(body)}}}" for k, body in enumerate(kinds))
    names = ", ".join(f"b{kinds.index(body)}" for body in bodies)
    values = ", ".join(["x"] * len(bodies))
    return f"""{SUM}
{computations}
ENTRY main {{
  x = f32[4] parameter(0)
{_indented(lines)}  id = u32[] replica-id()
  which = s32[] convert(id)
  ROOT r = f32[4] conditional(which, {values}), branch_computations={{{names}}}
}}
"""


def _indented(lines: str) -> str:
    return "".join(f"  {line.strip()}\n" for line in lines.strip().splitlines())


def reduce(name: str, operand: str, groups: str = "{}") -> str:
    return f"{name} = f32[4] all-reduce({operand}), replica_groups={groups}, to_apply=sum"


def send(name: str, channel: int, pairs: str = "") -> str:
    rest = f", {annotated(pairs)}" if pairs else ""
    return f"{name} = (f32[4], u32[], token[]) send(x, t), channel_id={channel}{rest}"


def recv(name: str, channel: int, pairs: str = "") -> str:
    rest = f", {annotated(pairs)}" if pairs else ""
    return f"{name} = (f32[4], u32[], token[]) recv(t), channel_id={channel}{rest}"


def send_done(name: str, operand: str, channel: int) -> str:
    return f"{name} = token[] send-done({operand}), channel_id={channel}"


def recv_done(name: str, operand: str, channel: int) -> str:
    return f"{name} = (f32[4], token[]) recv-done({operand}), channel_id={channel}"


GOT = "ROOT r = f32[4] get-tuple-element(rd), index=0"


def exchange(*order: str) -> str:
    """A program that sends on one channel and receives on another, the four instructions in this order and no other.

    order: s1, sd1, r2, rd2 and so on: what, and the channel.
    """
    lines = []
    for word in order:
        what, channel = word.rstrip("0123456789"), int(word.lstrip("sdr"))
        make = {
            "s": lambda c: send("s", c),
            "r": lambda c: recv("c", c),
            "sd": lambda c: send_done("sd", "s", c),
            "rd": lambda c: recv_done("rd", "c", c),
        }[what]
        lines.append(make(channel))
    return SCHEDULED + alone("\n".join([*lines, GOT]))


def ring(count: int) -> Case:
    """Every member waits for what comes before it sends on."""
    programs = []
    for d in range(count):
        out, into = d + 1, (d - 1) % count + 1
        order = (f"r{into}", f"rd{into}", f"s{out}", f"sd{out}")
        programs.append(((d,), exchange(*order)))
    return Case(f"ring_{count}", count, tuple(programs))


def ring_with_one_turned_round(count: int) -> Case:
    """The same ring with one member that sends before it receives."""
    found = ring(count)
    first = ((0,), exchange("s1", f"r{count}", f"rd{count}", "sd1"))
    return Case(f"ring_{count}_with_one_turned_round", count, (first, *found.programs[1:]), deadlocks=False)


def ring_of_groups(count: int) -> Case:
    """Members meet their neighbours in groups of two, each first the one before it, who does the same."""
    pairs = [f"{{{min(d, (d + 1) % count)},{max(d, (d + 1) % count)}}}" for d in range(count)]

    def groups(pair: int) -> str:
        both = {pair, (pair + 1) % count}
        alone = ",".join(f"{{{d}}}" for d in range(count) if d not in both)
        return f"{{{pairs[pair]},{alone}}}"

    bodies = [f"{reduce('a', 'p', groups((d - 1) % count))}\n{reduce('ROOT b', 'a', groups(d))}" for d in range(count)]
    return Case(f"ring_of_groups_{count}", count, ((range(count), by_device(*bodies)),))


def loop(body: str, count: str, name: str = "w") -> str:
    """Computations of a loop over (s32[] i, s32[] n, f32[4] v); body: lines from v to u."""
    state = "(s32[], s32[], f32[4])"
    return f"""
{name}_body {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] get-tuple-element(q), index=1
  v = f32[4] get-tuple-element(q), index=2
{_indented(body)}  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT o = {state} tuple(j, n, u)
}}
{name}_more {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] get-tuple-element(q), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}}"""


def looped(body: str, count: str, computations: str = "") -> str:
    """A program that runs a body as often as `count` (lines that give s32[] count) says."""
    return f"""{SUM}{computations}{loop(body, count)}
ENTRY main {{
  x = f32[4] parameter(0)
{_indented(count)}  zero = s32[] constant(0)
  q = (s32[], s32[], f32[4]) tuple(zero, count, x)
  w = (s32[], s32[], f32[4]) while(q), condition=w_more, body=w_body
  ROOT r = f32[4] get-tuple-element(w), index=2
}}
"""


BY_DEVICE = """id = u32[] replica-id()
d = s32[] convert(id)
two = s32[] constant(2)
count = s32[] add(d, two)"""
BY_INFEED = """t = token[] after-all()
f = (s32[], token[]) infeed(t)
count = s32[] get-tuple-element(f), index=0"""
STEP = reduce("u", "v")

INNER = loop(reduce("u", "v"), "", "inner")
NESTED = """state = (s32[], s32[], f32[4]) tuple(i, n, v)
zero = s32[] constant(0)
id = u32[] replica-id()
d = s32[] convert(id)
two = s32[] constant(2)
late = pred[] compare(i, two), direction=GE
late_number = s32[] convert(late)
more = s32[] multiply(d, late_number)
base = s32[] constant(3)
m = s32[] add(base, more)
k = (s32[], s32[], f32[4]) tuple(zero, m, v)
inside = (s32[], s32[], f32[4]) while(k), condition=inner_more, body=inner_body
u = f32[4] get-tuple-element(inside), index=2"""
FIVE = "count = s32[] constant(5)"

ODD = """
even {
  p = f32[4] parameter(0)
  ROOT c = f32[4] all-reduce(p), replica_groups={}, to_apply=sum
}
odd {
  p = f32[4] parameter(0)
  h = f32[2] slice(p), slice={[0:2]}
  d = f32[2] all-reduce(h), replica_groups={}, to_apply=sum
  ROOT r = f32[4] concatenate(d, d), dimensions={0}
}"""
LATE = """id = u32[] replica-id()
d = s32[] convert(id)
last = s32[] constant(999)
here = s32[] multiply(d, last)
now = pred[] compare(i, last), direction=EQ
mine = pred[] compare(here, last), direction=EQ
both = pred[] and(now, mine)
u = f32[4] conditional(both, v, v), true_computation=odd, false_computation=even"""

STARTS = """sa = f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=sum
sb = f32[4] all-reduce-start(p), replica_groups={{1,0}}, to_apply=sum
db = f32[4] all-reduce-done(sb)
da = f32[4] all-reduce-done(sa)
ROOT r = f32[4] add(da, db)"""

TAKES = "\n".join(["t = token[] after-all()", recv("c", 1, "{{0,1}}"), recv_done("rd", "c", 1), GOT])
GIVES = "\n".join(["t = token[] after-all()", send("s", 1, "{{0,1}}").replace("(x,", "(p,"), send_done("sd", "s", 1),
                   "ROOT r = f32[4] copy(p)"])  # fmt: skip


def begun(*lines: str) -> str:
    """A branch with tokens."""
    return "\n".join(["t = token[] after-all()", *lines])


ROUND = ["sa = f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=sum", "da = f32[4] all-reduce-done(sa)"]
GIVE = [send("s", 1, "{{0,1}}").replace("(x,", "(p,"), send_done("sd", "s", 1)]
TAKE = [recv("c", 1, "{{0,1}}"), recv_done("rd", "c", 1)]
GIVES_IN_LOOP = looped(begun(send("s", 1).replace("(x,", "(v,"), send_done("sd", "s", 1), "u = f32[4] copy(v)"), FIVE)
TAKES_IN_LOOP = looped(begun(recv("c", 1), recv_done("rd", "c", 1), "u = f32[4] get-tuple-element(rd), index=0"), FIVE)
GIVES_IN_CALL = """gives {
  x = f32[4] parameter(0)
  t = token[] after-all()
  SEND
  DONE
  ROOT r = f32[4] negate(x)
}
ENTRY main {
  x = f32[4] parameter(0)
  ROOT r = f32[4] call(x), to_apply=gives
}
""".replace("SEND", send("s", 1)).replace("DONE", send_done("sd", "s", 1))
TAKES_IN_BRANCH = """takes {
  x = f32[4] parameter(0)
  t = token[] after-all()
  RECV
  DONE
  ROOT r = f32[4] get-tuple-element(rd), index=0
}
leaves {
  x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x)
}
ENTRY main {
  x = f32[4] parameter(0)
  c = pred[] constant(true)
  ROOT r = f32[4] conditional(c, x, x), true_computation=takes, false_computation=leaves
}
""".replace("RECV", recv("c", 1)).replace("DONE", recv_done("rd", "c", 1))

CASES = [
    Case(
        "recv_done_before_send_on_both_sides",
        2,
        (((0,), exchange("r1", "rd1", "s2", "sd2")), ((1,), exchange("r2", "rd2", "s1", "sd1"))),
    ),
    Case(
        "send_done_before_the_peers_recv",
        2,
        (((0,), exchange("s1", "sd1", "r2", "rd2")), ((1,), exchange("s2", "sd2", "r1", "rd1"))),
    ),
    Case(
        "posted_early",
        2,
        (((0,), exchange("r1", "s2", "rd1", "sd2")), ((1,), exchange("r2", "s1", "rd2", "sd1"))),
        deadlocks=False,
    ),
    Case(
        "out_of_order_but_independent",
        2,
        (((0,), exchange("s2", "r1", "sd2", "rd1")), ((1,), exchange("r2", "rd2", "s1", "sd1"))),
        deadlocks=False,
    ),
    Case("groups_that_receive_before_others_send", 2, tuple(((d,), SCHEDULED + WAITING[d]) for d in range(2))),
    Case("groups_that_send_and_receive", 2, tuple(((d,), SCHEDULED + CROSSING[d]) for d in range(2)), deadlocks=False),
    *(ring(count) for count in (2, 3, 8)),
    *(ring_of_groups(count) for count in (3, 8)),
    *(ring_with_one_turned_round(count) for count in (2, 3, 8)),
    Case(
        "two_channels_crossed",
        2,
        (
            (
                (0,),
                SCHEDULED
                + alone(
                    "\n".join(
                        [
                            send("s1", 1),
                            send_done("sd1", "s1", 1),
                            send("s2", 2),
                            send_done("sd2", "s2", 2),
                            "ROOT r = f32[4] copy(x)",
                        ]
                    )
                ),
            ),
            (
                (1,),
                SCHEDULED
                + alone(
                    "\n".join([recv("r2", 2), recv_done("rd2", "r2", 2), recv("r1", 1), recv_done("rd", "r1", 1), GOT])
                ),
            ),
        ),
    ),
    Case(
        "all_reduces_in_different_orders",
        4,
        (
            (
                range(4),
                by_device(
                    f"{reduce('a', 'p', '{{0,1},{2,3}}')}\n{reduce('ROOT b', 'a')}",
                    *[f"{reduce('b', 'p')}\n{reduce('ROOT a', 'b', '{{0,1},{2,3}}')}"] * 3,
                ),
            ),
        ),
    ),
    Case(
        "a_collective_in_one_branch_only",
        3,
        ((range(3), by_device("ROOT c = f32[4] negate(p)", *[reduce("ROOT c", "p")] * 2)),),
    ),
    Case(
        "different_collectives_in_the_branches",
        2,
        (
            (
                range(2),
                by_device(reduce("ROOT c", "p"), "ROOT d = f32[4] all-to-all(p), replica_groups={}, dimensions={0}"),
            ),
        ),
    ),
    Case(
        "disjoint_groups_in_branches",
        4,
        (
            (
                range(4),
                by_device(
                    *[reduce("ROOT c", "p", "{{0,1},{2,3}}")] * 2,
                    *["ROOT d = f32[4] all-to-all(p), replica_groups={{0,1},{2,3}}, dimensions={0}"] * 2,
                ),
            ),
        ),
        deadlocks=False,
    ),
    Case("loops_by_device", 2, ((range(2), looped(STEP, BY_DEVICE)),)),
    Case(
        "loops_by_infeed",
        2,
        ((range(2), looped(STEP, BY_INFEED)),),
        items={0: [np.int32(3)], 1: [np.int32(5)]},
    ),
    Case(
        "equal_loops_by_infeed",
        2,
        ((range(2), looped(STEP, BY_INFEED)),),
        deadlocks=False,
        items={0: [np.int32(4)], 1: [np.int32(4)]},
    ),
    Case("nested_loops", 2, ((range(2), looped(NESTED, FIVE, INNER)),)),
    Case(
        "a_program_that_ends_early",
        2,
        ((range(2), by_device("ROOT r = f32[4] negate(p)", TAKES, GIVES)),),
    ),
    Case(
        "another_shape_in_round_1000",
        2,
        ((range(2), looped(LATE, "count = s32[] constant(1100)", ODD)),),
    ),
    Case("an_async_pair_that_encloses_another", 2, ((range(2), by_device(STARTS, STARTS)),), deadlocks=False),
    Case(
        "an_async_pair_around_a_collective_that_the_other_side_runs_later",
        2,
        (
            (
                range(2),
                by_device(
                    STARTS,
                    """sa = f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=sum
                    da = f32[4] all-reduce-done(sa)
                    h = f32[4] all-reduce-start(da), replica_groups={{0},{1}}, to_apply=sum
                    hd = f32[4] all-reduce-done(h)
                    ROOT r = f32[4] negate(hd)""",
                ),
            ),
        ),
    ),
    Case(
        "a_chain_of_permutes",
        4,
        (
            (
                range(4),
                alone("""c0 = f32[4] collective-permute(x), source_target_pairs={{0,1}}
                c1 = f32[4] collective-permute(c0), source_target_pairs={{2,3}}
                c2 = f32[4] collective-permute(c1), source_target_pairs={{1,2}}
                ROOT r = f32[4] add(c0, c2)"""),
            ),
        ),
        deadlocks=False,
    ),
    Case("equal_loops", 2, ((range(2), looped(STEP, FIVE)),), deadlocks=False),
    Case(
        "groups_that_differ",
        4,
        ((range(4), by_device(*[reduce("ROOT c", "p", "{{0,1},{2,3}}")] * 2, *[reduce("ROOT d", "p")] * 2)),),
    ),
    Case(
        "reductions_that_differ",
        2,
        ((range(2), MOST + by_device(reduce("ROOT c", "p"), reduce("ROOT d", "p").replace("=sum", "=most"))),),
    ),
    Case("shapes_that_differ", 2, ((range(2), by_device(reduce("ROOT c", "p"), HALF)),)),
    Case("types_that_differ", 2, ((range(2), WHOLE + by_device(reduce("ROOT c", "p"), INTEGERS)),)),
    Case(
        "a_round_begun_before_a_transfer",
        2,
        (
            (
                range(2),
                by_device(
                    begun(ROUND[0], *GIVE, ROUND[1], "ROOT r = f32[4] negate(da)"),
                    begun(*ROUND, *TAKE, GOT),
                ),
            ),
        ),
        deadlocks=False,
    ),
    Case(
        "a_round_begun_behind_a_transfer_that_waits_for_it",
        2,
        (
            (
                range(2),
                SCHEDULED
                + by_device(
                    begun(*GIVE, *ROUND, "ROOT r = f32[4] negate(da)"),
                    begun(*ROUND, *TAKE, GOT),
                ),
            ),
        ),
    ),
    Case("loops_that_correspond", 2, (((0,), GIVES_IN_LOOP), ((1,), TAKES_IN_LOOP)), deadlocks=False),
    Case(
        "loops_that_do_not_correspond",
        2,
        (((0,), GIVES_IN_LOOP), ((1,), TAKES_IN_LOOP.replace("constant(5)", "constant(6)"))),
    ),
    Case("a_call_and_a_branch_that_correspond", 2, (((0,), GIVES_IN_CALL), ((1,), TAKES_IN_BRANCH)), deadlocks=False),
    Case(
        "a_branch_without_what_the_other_side_sends",
        2,
        (((0,), GIVES_IN_CALL), ((1,), TAKES_IN_BRANCH.replace("constant(true)", "constant(false)"))),
    ),
]
NAMED = {case.name: case for case in CASES}
