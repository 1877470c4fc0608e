"""Groups over several hosts: the same bits as on one host, whoever lives where; and what ends a run that goes wrong."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from distxla.collectives.protocols import control_block
from distxla.collectives.protocols import group as group_words
from distxla.collectives.transports.tcp.early_ready import EarlyRounds
from distxla.collectives.transports.tcp.frames import (
    Ask,
    Large,
    Message,
    Part,
    Partial,
    Ready,
    Received,
    Receiving,
    Region,
    Result,
    Taken,
    Value,
    ValuePart,
)
from distxla.collectives.transports.tcp.loaded_programs import LoadedPrograms
from distxla.collectives.transports.tcp.proxy import LONG_S, Proxy
from distxla.compiler.abi import Status
from distxla.compiler.artifact import CompiledProgram
from distxla.compiler.compile import compile_module
from distxla.compiler.passes.rounds_in_order import with_rounds_in_order
from distxla.errors import ClusterError
from distxla.runtime.serve import support_program
from distxla.text.parser import parse_module
from distxla.wire.frame import Frame
from distxla.wire.frame import frame as declared
from tests.collectives.transports.tcp.hosts_in_process import Hosts
from tests.compiler.runner import Devices
from tests.stopwatch import Stopwatch, eventually

TWO, ONE_AND_THREE, THREE_HOSTS = [[0, 1], [2, 3]], [[0], [1, 2, 3]], [[0], [1, 2], [3]]
INTERLEAVED = [[0, 2], [1, 3]]
HEADER = "HloModule m, replica_count={devices}\n"
ADD = "add {{ a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] add(a, b) }}\n"


def compiled(text: str, devices: int = 4) -> CompiledProgram:
    return compile_module(parse_module(HEADER.format(devices=devices) + text, "<test>"), replicas=devices, partitions=1)


def on_one_host(program: CompiledProgram, args: Sequence[Sequence[Any]]) -> list[list[np.ndarray[Any, Any]]]:
    devices = Devices(program)
    try:
        return devices(args)
    finally:
        devices.close()


def arguments(program: CompiledProgram, devices: int = 4) -> list[list[np.ndarray[Any, Any]]]:
    """Random bits that are no NaNs, different on every device."""
    found = []
    for device in range(devices):
        rng = np.random.default_rng(device)
        row = []
        for leaf in program.parameter_leaves:
            if leaf.dtype.is_float or leaf.dtype.is_complex:
                row.append(rng.standard_normal(leaf.dims).astype(leaf.dtype.dtype))
            else:
                row.append(rng.integers(0, 2 if leaf.dtype.name == "pred" else 7, leaf.dims).astype(leaf.dtype.dtype))
        found.append(row)
    return found


def hold_together(program: CompiledProgram, placement: Sequence[Sequence[int]], repeat: int = 2) -> None:
    """Several runs over these hosts give the bits that one host gives."""
    devices = sum(map(len, placement))
    args = arguments(program, devices)
    want = on_one_host(program, args)
    with Hosts(placement, program) as hosts:
        for _ in range(repeat):
            outs = hosts.run(args)
            assert not hosts.failures
            for device in range(devices):
                for found, expected in zip(outs[device], want[device], strict=True):
                    assert found.tobytes() == expected.tobytes(), f"device {device}"


def entry(op: str, operand: str, result: str) -> str:
    return f"ENTRY e {{ x = {operand} parameter(0)\n ROOT y = {result} {op} }}\n"


def collectives(n: int) -> dict[str, str]:
    """One instruction each; n: elements of the largest dimension, a multiple of 4."""
    all_, pairs = "replica_groups={{0,1,2,3}}", "replica_groups={{3,1},{0,2}}"
    v, w = f"f32[{n}]", f"f32[4,{n // 4}]"
    t = f"f32[3,{n}]"
    return {
        "all-reduce": ADD.format(t="f32") + entry(f"all-reduce(x), {all_}, to_apply=add", v, v),
        "all-reduce in odd order": ADD.format(t="f32")
        + entry("all-reduce(x), replica_groups={{2,0,3,1}}, to_apply=add", v, v),
        "all-reduce of pairs": ADD.format(t="f32") + entry(f"all-reduce(x), {pairs}, to_apply=add", v, v),
        "all-reduce of ragged groups": ADD.format(t="f32")
        + entry("all-reduce(x), replica_groups={{0,2,3},{1}}, to_apply=add", v, v),
        "all-reduce of two": ADD.format(t="f32")
        + f"ENTRY e {{ x = {v} parameter(0)\n z = f32[7] parameter(1)\n"
        + f" ROOT y = ({v}, f32[7]) all-reduce(x, z), {all_}, to_apply=add }}\n",
        "all-gather": entry(f"all-gather(x), {all_}, dimensions={{0}}", v, f"f32[{4 * n}]"),
        "all-gather of columns": entry(f"all-gather(x), {all_}, dimensions={{1}}", t, f"f32[3,{4 * n}]"),
        "all-gather of pairs": entry(f"all-gather(x), {pairs}, dimensions={{0}}", v, f"f32[{2 * n}]"),
        "reduce-scatter": ADD.format(t="f32")
        + entry(f"reduce-scatter(x), {all_}, dimensions={{0}}, to_apply=add", v, f"f32[{n // 4}]"),
        "reduce-scatter of columns": ADD.format(t="f32")
        + entry(f"reduce-scatter(x), {all_}, dimensions={{1}}, to_apply=add", t, f"f32[3,{n // 4}]"),
        "all-to-all": entry(f"all-to-all(x), {all_}, dimensions={{0}}", v, v),
        "all-to-all of columns": entry(f"all-to-all(x), {all_}, dimensions={{1}}", t, t),
        "all-to-all of tuples": f"ENTRY e {{ a = {v} parameter(0)\n b = {v} parameter(1)\n c = {v} parameter(2)\n"
        + f" d = {v} parameter(3)\n ROOT y = ({v}, {v}, {v}, {v}) all-to-all(a, b, c, d), {all_} }}\n",
        "broadcast": entry("collective-broadcast(x), replica_groups={{2,0,1,3}}", w, w),
        "broadcast of pairs": entry(f"collective-broadcast(x), {pairs}", w, w),
    }


# elements, and two placements for each: what travels along with READY, in one piece, in many
SIZES = {16: (THREE_HOSTS, INTERLEAVED), 20_000: (ONE_AND_THREE, INTERLEAVED), 300_000: (TWO, THREE_HOSTS)}


@pytest.mark.parametrize("n", list(SIZES))
@pytest.mark.parametrize("name", list(collectives(16)))
def test_the_same_bits_as_on_one_host(name, n):
    program = compiled(collectives(n)[name])
    for placement in SIZES[n]:
        hold_together(program, placement)


@pytest.mark.parametrize("kind", ["pred", "s4", "u8", "s64", "f8e4m3fn", "bf16", "f16", "f64", "c128"])
def test_types(kind):
    """Reduces along the hosts, of elements of every width."""
    text = ADD.format(t=kind).replace(" add(a, b)", " or(a, b)" if kind == "pred" else " add(a, b)")
    v = f"{kind}[40000]"
    groups = "replica_groups={{0,1,2,3}}"
    hold_together(compiled(text + entry(f"all-reduce(x), {groups}, to_apply=add", v, v)), THREE_HOSTS, 1)


@pytest.mark.parametrize("n", [16, 20_000])
@pytest.mark.parametrize("order", ["tree", "ring"])
def test_other_orders_of_reduction(order, n):
    """Reduces that need all operands at once."""
    collective = f"all-reduce(x), replica_groups={{{{0,1,2,3}}}}, to_apply=add, reduction_order={order}"
    program = compiled(ADD.format(t="f32") + entry(collective, f"f32[{n}]", f"f32[{n}]"))
    for placement in (TWO, THREE_HOSTS):
        hold_together(program, placement, 1)


LOOP = """c { p = (s32[], V) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 m = s32[] constant(11)
 ROOT l = pred[] compare(i, m), direction=LT }
b { p = (s32[], V) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 v = V get-tuple-element(p), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 w = V collective-permute(v), RING
 a = V add(w, v)
 ROOT t = (s32[], V) tuple(j, a) }
ENTRY e { x = V parameter(0)
 z = s32[] constant(0)
 t = (s32[], V) tuple(z, x)
 w = (s32[], V) while(t), condition=c, body=b
 ROOT y = V get-tuple-element(w), index=1 }
"""


def permutes(n: int) -> dict[str, str]:
    v = f"f32[{n}]"
    ring = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
    both = f"ENTRY e {{ x = {v} parameter(0)\n z = s8[11] parameter(1)\n"
    return {
        "ring": entry(f"collective-permute(x), {ring}", v, v),
        "some": entry("collective-permute(x), source_target_pairs={{3,0},{0,2},{1,1}}", v, v),
        "two operands": both + f" ROOT y = ({v}, s8[11]) collective-permute(x, z), {ring} }}\n",
        "in a loop": LOOP.replace("V", v).replace("RING", ring),
        "started": f"ENTRY e {{ x = {v} parameter(0)\n s = ({v}, {v}) collective-permute-start(x), {ring}\n"
        f" y = {v} multiply(x, x)\n d = {v} collective-permute-done(s)\n ROOT r = {v} add(d, y) }}\n",
    }


@pytest.mark.parametrize("n", [5, 400_000])
@pytest.mark.parametrize("name", list(permutes(5)))
def test_permutes_give_the_same_bits(name, n):
    program = compiled(permutes(n)[name])
    for placement in (TWO, THREE_HOSTS):
        hold_together(program, placement)


RAGGED = """ENTRY main {
  input = f32[ROWS,3] parameter(0)
  output = f32[ROWS,3] parameter(1)
  input_offsets = s32[4] parameter(2)
  send_sizes = s32[4] parameter(3)
  output_offsets = s32[4] parameter(4)
  recv_sizes = s32[4] parameter(5)
  ROOT r = f32[ROWS,3] ragged-all-to-all(input, output, input_offsets, send_sizes, output_offsets, recv_sizes),
    replica_groups={{0,1,2,3}}
}
"""


@pytest.mark.parametrize("placement", [THREE_HOSTS, INTERLEAVED], ids=str)
@pytest.mark.parametrize("rows", [40, 40_000])
def test_ragged_all_to_all(rows, placement):
    program, rng = compiled(RAGGED.replace("ROWS", str(rows))), np.random.default_rng(3)
    sizes = rng.integers(0, rows // 8, (4, 4)).astype(np.int32)
    args = []
    for d in range(4):
        starts = (np.cumsum(sizes[d]) - sizes[d]).astype(np.int32)
        there = (np.cumsum(sizes, axis=0) - sizes)[d].astype(np.int32)
        values = [rng.standard_normal((rows, 3)).astype(np.float32) for _ in range(2)]
        args.append([*values, starts, sizes[d], there, sizes[:, d]])
    want = on_one_host(program, args)
    with Hosts(placement, program) as hosts:
        outs = hosts.run(args)
    for device in range(4):
        np.testing.assert_array_equal(outs[device][0], want[device][0])


def test_members_with_other_instructions_are_told_whatever_their_hosts():
    """Group {0,1,2,3}: devices 0 and 1 run one program, 2 and 3 another one."""
    v = "f32[8]"
    text = ADD.format(t="f32") + entry("all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add", v, v)
    texts = [text, text.replace(" add(a, b)", " multiply(a, b)")]
    with Hosts(TWO, [compiled(text) for text in texts], [0, 0, 1, 1]) as hosts:
        for device in range(4):
            hosts.home[device].store(device, [np.ones(8, np.float32)])
        assert set(hosts.statuses(range(4)).values()) == {Status.MISMATCH}
        for device in range(4):
            other = hosts.home[device].record(device, control_block.R_MISMATCH_DEVICE)
            assert (other < 2) != (device < 2)
        assert not hosts.failures


def permuted(n: int) -> str:
    return entry("collective-permute(x), source_target_pairs={{0,2},{2,0}}", f"f32[{n}]", f"f32[{n}]")


@pytest.mark.parametrize("sizes", [(8, 16), (100_000, 200_000), (8, 200_000), (200_000, 8)])
def test_pairs_with_other_instructions_are_told(sizes):
    programs = [compiled(permuted(n)) for n in sizes]
    with Hosts(TWO, programs, [0, 0, 1, 1]) as hosts:
        statuses = hosts.statuses([0, 2], seconds=6)
        assert Status.MISMATCH in statuses.values(), (statuses, hosts.failures)
        assert not hosts.failures


def test_a_lost_host_ends_the_waits_of_the_others():
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO, program) as hosts:
        found: dict[int, int | None] = {}
        thread = threading.Thread(target=lambda: found.update(hosts.statuses([0, 1], seconds=10)))
        thread.start()
        time.sleep(0.2)
        watch = Stopwatch()
        hosts.hosts[1].proxy.close()
        assert eventually(lambda: bool(hosts.failures))
        assert hosts.failures[0][:2] == (0, 1)
        hosts.release()
        thread.join()
        assert watch.seconds < 5
        assert set(found.values()) == {Status.ABORTED}


def test_after_a_failed_call_the_next_one_is_whole():
    program = compiled(collectives(20_000)["all-reduce"])
    args = arguments(program)
    want = on_one_host(program, args)
    with Hosts(TWO, program) as hosts:
        for epoch in range(1, 4):
            statuses = hosts.statuses([0, 1, 2], seconds=0.3)  # device 3 does not come
            assert set(statuses.values()) <= {None, Status.ABORTED}
            hosts.begin_anew(epoch)
            outs = hosts.run(args)
            assert [row[0].tobytes() for row in outs] == [row[0].tobytes() for row in want]
            hosts.begin_anew(epoch + 100)
        assert not hosts.failures


def test_what_a_proxy_was_about_to_say_of_a_failed_call_is_not_said_in_the_next_one(monkeypatch):
    program = compiled(collectives(20_000)["all-reduce"])
    args = arguments(program)
    want = on_one_host(program, args)
    plan = LoadedPrograms.plan

    def slow(loaded: LoadedPrograms, area: Any, signature: int, site: int, device: int) -> Any:
        first = any(host.proxy.epoch == 0 for host in hosts.hosts if host.proxy._loaded is loaded)
        found = plan(loaded, area, signature, site, device)
        time.sleep(1.0 if first else 0)
        return found

    monkeypatch.setattr(LoadedPrograms, "plan", slow)
    with Hosts(TWO, program) as hosts:
        hosts.statuses([0, 1, 2], seconds=0.1)
        hosts.begin_anew(1)
        time.sleep(1.0)
        outs = hosts.run(args)
        assert [row[0].tobytes() for row in outs] == [row[0].tobytes() for row in want]
        assert not hosts.failures


@declared(9)
class Unknown(Frame):
    """Of a kind that no proxy knows."""


def test_proxies_without_the_secret_are_refused():
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO, program) as hosts:
        assert not hosts.failures
    host = hosts.hosts[0]
    one = Proxy(0, host.control, host.memories, TWO, bytes(32), support_program())
    other = Proxy(1, host.control, host.memories, TWO, bytes(31) + b"x", support_program())
    try:
        addresses = [("127.0.0.1", proxy.listen("127.0.0.1")) for proxy in (one, other)]
        with pytest.raises(ClusterError, match="cannot talk"):
            other.connect(addresses)
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (Ready(0, 64, 0), 1 << 20),
        (Ready(0, control_block.fixed_bytes(4), 0), 16),  # the group has two members there
        (Unknown(), 16),
        (Region(0, 64, 0, 0, 0), 16),
        (Partial(0, 64, 0, 1, 0, 0), 16),
        (Result(0, 64, 0, 0, 0), 16),
        *((kind(0, 64, 1), 16) for kind in (Message, Large, Taken, Receiving, Received)),
        (Ask(0, 64, 1, 7), 0),
        (Part(0, 64, 1, 2**32 - 1, 2**64 - 1), 16),
        *((ValuePart(0, pair, 1, 0, 0), 16) for pair in (64, 65, 2**32 - 64)),
        (ValuePart(0, 64, 1, 255, 2**64 - 1), 16),
        (Value(0, 64, 0, 1), 16),
        (Value(0, 64, 1, 1), 16),
    ],
    ids=lambda value: getattr(value, "NAME", value),
)
def test_frames_that_no_proxy_sends_end_the_connection(frame, size):
    """A host that sends nonsense is reported, and nothing is written anywhere."""
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO, program) as hosts:
        control = hosts.hosts[0].control.segment.bytes
        at = control_block.fixed_bytes(4)
        before = control[at : at + (1 << 16)].copy()
        hosts.hosts[1].proxy.post(0, frame, [bytes(size)])
        assert eventually(lambda: (0, 1) in [failure[:2] for failure in hosts.failures])
        np.testing.assert_array_equal(control[at : at + (1 << 16)], before)


def say_ready(hosts: Hosts, number: int) -> None:
    """As host 1 tells host 0 that it is ready for a round of the group of all devices, with two members there."""
    frame = Ready(0, hosts.hosts[0].areas[0][0], number)
    hosts.hosts[1].proxy.post(0, frame, [bytes(32)])


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (
            [group_words.ROUNDS + 3, 3, 2 * group_words.ROUNDS + 3],
            "is ready for round 20 of a group, which may begin after round 12",
        ),
        ([3, 3], "ready twice"),
        ([(1 << 40) + 3], "may begin after round"),
    ],
)
def test_a_host_further_ahead_than_may_be_is_refused(numbers, reason):
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO, program) as hosts:
        for number in numbers:
            say_ready(hosts, number)
        assert eventually(lambda: any(f[:2] == (0, 1) and reason in f[2] for f in hosts.failures)), hosts.failures


def test_rounds_that_are_over_and_groups_without_this_host_are_bounded():
    early = EarlyRounds({})
    for number in range(group_words.ROUNDS):
        early.keep(1, (64, number), memoryview(b""))
        early.keep(2, (64, number), memoryview(b""))
    with pytest.raises(ClusterError, match="more than 8 rounds of a group without this host"):
        early.keep(1, (64, group_words.ROUNDS), memoryview(b""))
    early.keep(1, (128, 77), memoryview(b"x"))
    assert early.take((128, 77)) == {1: b"x"}
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO, program) as hosts:
        hosts.run(arguments(program), repeat=2 * group_words.ROUNDS)
        say_ready(hosts, group_words.ROUNDS)
        assert eventually(lambda: bool(hosts.failures))
        assert any("round 9 of a group, which is over" in failure[2] for failure in hosts.failures), hosts.failures


def test_a_proxy_tells_for_which_host_it_waits():
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO, program) as hosts:
        thread = threading.Thread(target=hosts.statuses, args=([0, 1, 2], 1, 20.0))
        thread.start()
        assert eventually(lambda: bool(hosts.hosts[0].proxy.waits()))
        lines = hosts.hosts[0].proxy.waits()
        assert not hosts.hosts[1].proxy.waits(), "device 3 is on that host itself"
        hosts.release()
        thread.join()
    what = "to be ready for round 1 in y of devices 0-3"
    (line,) = lines
    found = re.fullmatch(rf"host 0 has waited (\d+\.\d) s for host 1 \(last heard of \d+\.\d s ago\) {what}", line)
    assert found is not None, line
    assert float(found[1]) >= LONG_S


def test_groups_of_programs_that_run_elsewhere_only_wait():
    """Devices 0 and 1 run a program whose group spans both hosts, 2 and 3 another one."""
    v = "f32[8]"
    texts = [
        ADD.format(t="f32") + entry(f"all-reduce(x), replica_groups={{{groups}}}, to_apply=add", v, v)
        for groups in ("{0,1,2,3}", "{0,2},{1,3}")
    ]
    with Hosts(TWO, [compiled(text) for text in texts], [0, 0, 1, 1]) as hosts:
        statuses = hosts.statuses(range(4), seconds=0.5)
        assert set(statuses.values()) <= {None, Status.ABORTED}
        assert not hosts.failures


CHAIN = """v = f32[8] parameter(0)
  one = f32[8] all-reduce(v), to_apply=add
  n = f32[8] negate(one)
  two = f32[8] all-reduce(n), to_apply=add
  near = f32[8] collective-permute(v), source_target_pairs={{0,2},{1,3},{2,1},{3,0}}
"""
PARTS = "(f32[8], f32[8], f32[8])"
GROUPED = f"""chain {{
  {CHAIN}  ROOT o = {PARTS} tuple(one, two, near)
}}
ENTRY e {{
  x = f32[8] parameter(0)
  b = ((f32[8]), {PARTS}, s32[]) async-start(x), calls=chain
  own = f32[8] all-reduce(x), to_apply=add
  d = {PARTS} async-done(b)
  ROOT r = ({PARTS}, f32[8]) tuple(d, own)
}}
"""
ONE_BY_ONE = f"""ENTRY e {{
  {CHAIN}  own = f32[8] all-reduce(v), to_apply=add
  ROOT r = ({PARTS}, f32[8]) tuple(OUTS, own)
}}
""".replace("tuple(OUTS", "tuple(o").replace("  ROOT r", f"  o = {PARTS} tuple(one, two, near)\n  ROOT r")


@pytest.mark.parametrize("running", [[0, 0, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], ids=str)
def test_a_group_meets_the_same_one_by_one(running: list[int]) -> None:
    """Rounds of an asynchronous computation, on each device in the order of the text, whatever the others run."""
    modules = [parse_module("HloModule m\n" + ADD.format(t="f32") + text) for text in (GROUPED, ONE_BY_ONE)]
    programs = [compile_module(with_rounds_in_order(module), replicas=4, partitions=1) for module in modules]
    xs = [np.arange(8, dtype=np.float32) + 100 * d for d in range(4)]
    total = np.sum(xs, axis=0, dtype=np.float32)
    with Hosts(TWO, programs, running) as hosts:
        for _ in range(2):
            outs = hosts.run([[x] for x in xs])
            assert not hosts.failures
            for device, source in enumerate((3, 2, 0, 1)):
                for got, want in zip(outs[device], (total, -4 * total, xs[source], total), strict=True):
                    np.testing.assert_array_equal(got, want)
