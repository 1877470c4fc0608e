"""Native collectives that can't end well: other instructions in a round, waits that are aborted, wrong shapes."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import permute as permute_words
from distxla.ir.element_type import F32, S32
from distxla.ir.shape import Shape
from distxla.ops.all_gather import AllGather
from distxla.ops.all_reduce import AllReduce
from distxla.ops.collective_permute import CollectivePermute
from distxla.program.abi import Status
from tests.collectives.devices import Code, World, module_of, program_shapes
from tests.collectives.transports.shared_memory.emitter_cases import Case, case_of


def test_members_with_different_instructions_get_mismatch() -> None:
    one, two = Shape(F32, (4,)), Shape(F32, (5,))
    cases = [case_of(AllReduce(to_apply="combine"), [one], 3), case_of(AllReduce(to_apply="combine"), [two], 3)]
    world = World(Code([c.module for c in cases], 3, 1), 3, 1, 4096)

    def program(device: int) -> int:
        status = world.call(device, int(device == 1), [64], [256])
        if status == Status.MISMATCH:
            world.release()
        return status

    statuses = world.run([functools.partial(program, d) for d in range(3)])
    assert set(statuses) <= {Status.MISMATCH, Status.ABORTED}
    assert Status.MISMATCH in statuses
    assert [world.record(d, control_words.R_SITE) for d in range(3)] == [0, 1, 0]
    for d in (d for d in range(3) if statuses[d] == Status.MISMATCH):
        assert world.record(d, control_words.R_MISMATCH_SITE) == int(d != 1)
        assert world.record(d, control_words.R_MISMATCH_DEVICE) in ((0, 2) if d == 1 else (1,))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_mismatch_is_seen_when_the_second_member_comes(order: tuple[int, int]) -> None:
    """The third one never does."""
    shapes = (Shape(F32, (4,)), Shape(S32, (4,)))
    cases = [case_of(AllReduce(to_apply="combine"), [shape], 3) for shape in shapes]
    world = World(Code([c.module for c in cases], 3, 1), 3, 1, 4096)
    first, second = order
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(world.call(first, first, [64], [256])))
    waiting.start()
    end = time.monotonic() + 10
    while world.record(first, control_words.R_STATE) != control_words.ReplicaState.WAITING and time.monotonic() < end:
        time.sleep(0.001)
    assert world.call(second, second, [64], [256]) == Status.MISMATCH
    assert (
        world.record(second, control_words.R_MISMATCH_DEVICE),
        world.record(second, control_words.R_MISMATCH_SITE),
    ) == (
        first,
        first,
    )
    world.release()
    waiting.join(10)
    assert found == [Status.ABORTED]


@pytest.mark.parametrize("bytes_", [4, 4 * permute_words.MAILBOX_BYTES])
def test_permutes_that_differ_get_mismatch(bytes_: int) -> None:
    op = CollectivePermute(source_target_pairs=((0, 1),))
    shapes = [Shape(F32, (bytes_ // 4,)), Shape(S32, (bytes_ // 4,))]
    world = World(Code([Case(op, (s,), s).module for s in shapes], 2, 1), 2, 1, 4 * bytes_ + 4096)
    release = functools.partial(world.call, 0, 0, [64], [64 + 2 * bytes_])

    def target() -> int:
        status = world.call(1, 1, [64], [64 + 2 * bytes_])
        world.release()
        return status

    statuses = world.run([release, target])
    assert statuses[1] == Status.MISMATCH
    assert statuses[0] == (Status.OK if bytes_ == 4 else Status.ABORTED)
    assert (world.record(1, control_words.R_MISMATCH_DEVICE), world.record(1, control_words.R_MISMATCH_SITE)) == (0, 0)


@pytest.mark.parametrize(
    ("op", "size", "waits_for"),
    [
        (AllReduce(to_apply="combine"), 4, -1),
        (AllReduce(to_apply="combine"), 1 << 20, -1),
        (CollectivePermute(source_target_pairs=((2, 0), (1, 2))), 4, 2),
        (CollectivePermute(source_target_pairs=((2, 0),)), 1 << 20, 2),
    ],
    ids=["small", "large", "permute", "large permute"],
)
def test_a_wait_names_its_devices_and_can_be_aborted(op: Any, size: int, waits_for: int) -> None:
    shape = Shape(F32, (size // 4,))
    world = World(Code([Case(op, (shape,), shape).module], 3, 1), 3, 1, 64 + 2 * size + 128)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(world.call(0, 0, [64], [128 + size])))
    thread.start()
    end = time.monotonic() + 10
    while world.record(0, control_words.R_STATE) != control_words.ReplicaState.WAITING and time.monotonic() < end:
        time.sleep(0.001)
    assert world.record(0, control_words.R_WAITS_FOR) == waits_for & 0xFFFFFFFF
    assert world.record(0, control_words.R_WAIT_WORD) > 0
    assert world.record(0, control_words.R_ROUND) == 1
    assert world.release() == []
    thread.join(10)
    assert found == [Status.ABORTED]
    assert world.record(0, control_words.R_STATE) == control_words.ReplicaState.RUNNING
    assert world.call(0, 0, [64], [128 + size]) == Status.ABORTED


def test_stated_shapes_are_checked_against_the_groups() -> None:
    shape = Shape(F32, (4,))
    module = module_of(AllGather(dimensions=(0,)), [shape], Shape(F32, (12,)))
    root = module.entry_computation.root_instruction
    root.op.verify(root.shape, (shape,), program_shapes(module))
    with pytest.raises(Exception, match=r"all-gather\.shape: with groups of 4 the result is f32\[16\]"):
        Code([module], 4, 1)
