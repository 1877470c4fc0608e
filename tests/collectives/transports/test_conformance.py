"""What every transport must do: the reference's bits, a status for each fault, whole calls after a failed one.

A transport is tested by where four devices live: all on one host, each on a host of its own, or some of both.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from distxla.collectives.protocols import control_block
from distxla.collectives.protocols import group as group_words
from distxla.collectives.transports.abort import abort
from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.program.abi import Status
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from tests.collectives.matrix import Case, cases, check
from tests.collectives.transports.hosts_in_process import Hosts
from tests.collectives.transports.programs import (
    ADD,
    HEADER,
    RAGGED,
    THREE_HOSTS,
    TWO_HOSTS,
    collectives,
    compiled,
    entry,
    made,
    permuted,
    permutes,
    reference,
    require_bits,
)
from tests.stopwatch import eventually

every_transport = pytest.mark.parametrize(
    "placement",
    [
        pytest.param([[0, 1, 2, 3]], id="shared memory"),
        pytest.param([[0], [1], [2], [3]], id="tcp"),
        pytest.param(TWO_HOSTS, id="two hosts"),
        pytest.param([[0, 2], [1, 3]], id="interleaved", marks=pytest.mark.exhaustive),
        pytest.param(THREE_HOSTS, id="three hosts", marks=pytest.mark.exhaustive),
    ],
)


def require_reference(text: str, placement: Sequence[Sequence[int]], times: int = 1) -> None:
    program, args, expected = made(text)
    with Hosts(placement, program) as hosts:
        for _ in range(times):
            require_bits(hosts.run(args), expected)
            assert not hosts.failures


# --- numbers --------------------------------------------------------------------------------------------------------


@every_transport
@pytest.mark.parametrize("n", [16, 20_000, 300_000])  # along with READY, in one piece, in many
@pytest.mark.parametrize("name", list(collectives(16)))
def test_collectives(name, n, placement):
    require_reference(collectives(n)[name], placement, 2)


@every_transport
@pytest.mark.parametrize("kind", ["pred", "s4", "u8", "s64", "f8e4m3fn", "bf16", "f16", "f64", "c128"])
def test_sums_of_every_width(kind, placement):
    text = ADD.format(t=kind).replace(" add(a, b)", " or(a, b)" if kind == "pred" else " add(a, b)")
    v = f"{kind}[40000]"
    require_reference(text + entry("all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add", v, v), placement)


@every_transport
@pytest.mark.parametrize("n", [16, 20_000])
@pytest.mark.parametrize("order", ["tree", "ring"])
def test_other_orders_of_reduction(order, n, placement):
    """They need all operands at once. The reference has one order only, so sums of small integers are compared."""
    collective = f"all-reduce(x), replica_groups={{{{0,1,2,3}}}}, to_apply=add, reduction_order={order}"
    program = compiled(ADD.format(t="f32") + entry(collective, f"f32[{n}]", f"f32[{n}]"))
    args = [[np.arange(d, n + d, dtype=np.float32)] for d in range(4)]
    with Hosts(placement, program) as hosts:
        require_bits(hosts.run(args), [[np.sum([row[0] for row in args], axis=0)]] * 4)


@every_transport
@pytest.mark.parametrize("n", [5, 400_000])
@pytest.mark.parametrize("name", list(permutes(5)))
def test_permutes(name, n, placement):
    require_reference(permutes(n)[name], placement, 2)


@every_transport
@pytest.mark.parametrize("rows", [40, 40_000])
def test_ragged_all_to_all(rows, placement):
    text = RAGGED.replace("ROWS", str(rows))
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, rows // 8, (4, 4)).astype(np.int32)
    args = []
    for d in range(4):
        starts = (np.cumsum(sizes[d]) - sizes[d]).astype(np.int32)
        there = (np.cumsum(sizes, axis=0) - sizes)[d].astype(np.int32)
        values = [rng.standard_normal((rows, 3)).astype(np.float32) for _ in range(2)]
        args.append([*values, starts, sizes[d], there, sizes[:, d]])
    with Hosts(placement, compiled(text)) as hosts:
        require_bits(hosts.run(args), reference(parse_module(HEADER.format(devices=4) + text), args))


@every_transport
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases((4, 1)))
def test_matrix(placement: Sequence[Sequence[int]], case: Case) -> None:
    """One collective somewhere in a program: of any kind, type and shape, in any order of groups."""

    def run(case: Case) -> Sequence[Sequence[Any]]:
        module = parse_module(case.text)
        verify_module(module, *case.counts)
        with Hosts(placement, compile_module(module, Counts(4, 1))) as hosts:
            return hosts.run(case.args)

    check(case, run)


@every_transport
def test_many_rounds_in_flight(placement):
    """Members may be ahead of each other by as many rounds as a group has room for."""
    program, args, expected = made(collectives(16)["all-reduce"])
    with Hosts(placement, program) as hosts:
        require_bits(hosts.run(args, repeat=5 * group_words.ROUNDS), expected)


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


@every_transport
@pytest.mark.parametrize("running", [[0, 0, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], ids=str)
def test_a_group_meets_the_same_one_by_one(running: list[int], placement: list[list[int]]) -> None:
    """Rounds of an asynchronous computation, on each device in the order of the text, whatever the others run."""
    modules = [parse_module("HloModule m\n" + ADD.format(t="f32") + text) for text in (GROUPED, ONE_BY_ONE)]
    programs = [compile_module(module, Counts(4, 1), CompileOptions(apart=True)) for module in modules]
    xs = [np.arange(8, dtype=np.float32) + 100 * d for d in range(4)]
    total = np.sum(xs, axis=0, dtype=np.float32)
    with Hosts(placement, programs, running) as hosts:
        for _ in range(2):
            outs = hosts.run([[x] for x in xs])
            assert not hosts.failures
            for device, source in enumerate((3, 2, 0, 1)):
                for got, want in zip(outs[device], (total, -4 * total, xs[source], total), strict=True):
                    np.testing.assert_array_equal(got, want)


# --- faults ---------------------------------------------------------------------------------------------------------


@every_transport
def test_members_with_other_instructions_are_told(placement):
    """Devices 0 and 1 run one program, 2 and 3 another one."""
    v = "f32[8]"
    text = ADD.format(t="f32") + entry("all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add", v, v)
    texts = [text, text.replace(" add(a, b)", " multiply(a, b)")]
    with Hosts(placement, [compiled(text) for text in texts], [0, 0, 1, 1]) as hosts:
        for device in range(4):
            hosts.home[device].store(device, [np.ones(8, np.float32)])
        statuses = hosts.statuses(range(4))
        told = [device for device, status in statuses.items() if status == Status.MISMATCH]
        assert told, statuses
        for device in told:
            other = hosts.home[device].record(device, control_block.R_MISMATCH_DEVICE)
            assert (other < 2) != (device < 2)
        assert not hosts.failures
        if len(placement) > 1 and all(len({d < 2 for d in devices}) == 1 for devices in placement):
            # all arrive on every host, so proxies end the round for all its members
            assert len(told) == 4


@every_transport
@pytest.mark.parametrize("sizes", [(8, 16), (100_000, 200_000), (8, 200_000), (200_000, 8)])
def test_pairs_with_other_instructions_are_told(sizes, placement):
    programs = [compiled(permuted(n)) for n in sizes]
    with Hosts(placement, programs, [0, 0, 1, 1]) as hosts:
        statuses = hosts.statuses([0, 2], seconds=6)
        assert Status.MISMATCH in statuses.values(), (statuses, hosts.failures)
        assert not hosts.failures


@every_transport
def test_a_wait_for_a_member_that_never_comes_is_aborted(placement):
    program, args, _ = made(collectives(20_000)["all-reduce"])
    with Hosts(placement, program) as hosts:
        for device in range(3):
            hosts.home[device].store(device, args[device])
        found: dict[int, int | None] = {}
        waiting = threading.Thread(target=lambda: found.update(hosts.statuses(range(3), seconds=60)))
        waiting.start()
        assert eventually(lambda: all(is_waiting(hosts, device) for device in range(3)))
        for host in hosts.hosts:
            abort(host.control)
        assert eventually(lambda: [host.release() for host in hosts.hosts] and not waiting.is_alive())
        assert found == dict.fromkeys(range(3), Status.ABORTED)


@every_transport
def test_after_a_failed_call_the_next_one_is_whole(placement):
    program, args, expected = made(collectives(20_000)["all-reduce"])
    with Hosts(placement, program) as hosts:
        for epoch in range(1, 4):
            statuses = hosts.statuses([0, 1, 2], seconds=0.3)  # device 3 does not come
            assert set(statuses.values()) <= {None, Status.ABORTED}
            hosts.begin_anew(epoch)
            require_bits(hosts.run(args), expected)
            hosts.begin_anew(epoch + 100)
        assert not hosts.failures


@every_transport
def test_groups_of_programs_that_run_elsewhere_only_wait(placement):
    """Devices 0 and 1 run a program with a group of all four, 2 and 3 another one."""
    v = "f32[8]"
    texts = [
        ADD.format(t="f32") + entry(f"all-reduce(x), replica_groups={{{groups}}}, to_apply=add", v, v)
        for groups in ("{0,1,2,3}", "{0,2},{1,3}")
    ]
    with Hosts(placement, [compiled(text) for text in texts], [0, 0, 1, 1]) as hosts:
        statuses = hosts.statuses(range(4), seconds=0.5)
        assert set(statuses.values()) <= {None, Status.ABORTED}
        assert not hosts.failures


@every_transport
def test_a_program_goes_while_another_one_stays(placement):
    texts = [collectives(16)["all-reduce"], collectives(16)["all-gather"]]
    programs = [made(text)[0] for text in texts]
    with Hosts(placement, programs, [1, 1, 1, 1]) as hosts:
        for host in hosts.hosts:
            host.unload(0)
        _, args, expected = made(texts[1])
        require_bits(hosts.run(args), expected)


@every_transport
def test_ends_close_twice(placement):
    with Hosts(placement, made(collectives(16)["all-reduce"])[0]) as hosts:
        for host in hosts.hosts:
            for transport in (*host.transports, *host.transports):
                transport.close()


def is_waiting(hosts: Hosts, device: int) -> bool:
    return hosts.home[device].record(device, control_block.R_STATE) == control_block.ReplicaState.WAITING
