"""The driver's wait for a call: it spins where that pays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from distxla.collectives.protocols import call_loops
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_memory import emit_call_loops
from distxla.collectives.transports.shared_memory.emit_call_loops import FIRST_PENALTY, compile_call_loops
from distxla.runtime.replica.serve import CALL_TYPE
from distxla.targets.registry import load_image

MILLISECOND = 1_000_000


@pytest.fixture
def block() -> Iterator[ControlBlock]:
    made = ControlBlock.create(1)
    made.store(control_words.H_CORES, 2)
    yield made
    made.close()


def wait(block: ControlBlock, nanoseconds: int, begin: Callable[[], object] = lambda: None) -> int:
    """For the end of a call that is in flight. begin: called just before, when the code has been compiled."""
    image = load_image(compile_call_loops())
    begin()
    found = int(CALL_TYPE(image.address_of(call_loops.CALL))(block.segment.address, 0, 1, nanoseconds))
    image.close()
    return found


def state(block: ControlBlock) -> tuple[int, int]:
    return block.load(control_words.H_SPIN_SKIP), block.load(control_words.H_SPIN_PENALTY)


def test_a_wait_that_spins_in_vain_makes_the_next_ones_sleep_at_once(block: ControlBlock) -> None:
    assert wait(block, MILLISECOND) == call_loops.CALL_AGAIN
    assert state(block) == (FIRST_PENALTY, FIRST_PENALTY)
    assert wait(block, MILLISECOND) == call_loops.CALL_AGAIN
    assert state(block) == (FIRST_PENALTY - 1, FIRST_PENALTY)
    block.store(control_words.H_SPIN_SKIP, 0)
    wait(block, MILLISECOND)
    assert state(block) == (2 * FIRST_PENALTY, 2 * FIRST_PENALTY)


def test_a_wait_that_needs_no_sleep_ends_the_penalty(block: ControlBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_call_loops, "CALL_SPINS", 1 << 40)
    block.store(control_words.H_SPIN_PENALTY, FIRST_PENALTY)
    late = threading.Timer(0.5, lambda: block.configure(control_words.H_DONE, 1))
    assert wait(block, MILLISECOND, begin=late.start) == call_loops.CALL_DONE
    late.join()
    assert state(block) == (0, 0)


def test_where_devices_need_all_cores_nothing_spins(block: ControlBlock) -> None:
    block.store(control_words.H_CORES, 1)
    wait(block, MILLISECOND)
    assert state(block) == (0, 0)
