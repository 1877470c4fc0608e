"""The flight recorder: how a ring is read, and what native code writes into it."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from distxla.collectives import recorder
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.collectives.protocols.event import EVENTS
from distxla.collectives.recorder import CycleClock, RecordedEvent
from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.program.abi import COMMUNICATE_SYMBOL, ROUND_SYMBOL
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from tests.collectives.recorder_cases import LOOP, TRANSFER, check_times
from tests.compiler.runner import Devices


class Snapshot:
    """`recorder.Recorded` of a control block."""

    def __init__(self, control: Any) -> None:
        self._control = control

    def row(self, device: int) -> bytes:
        begin = control_words.record_offset(device)
        return bytes(self._control[begin : begin + control_words.RECORD_BYTES])

    def ring(self, device: int) -> bytes:
        return b"".join(bytes(self._control[at : at + size]) for at, size in recorder.pieces(self.row(device), device))


def histories(
    text: str, *, replicas: int = 2, partitions: int = 1, calls: int = 1, traced: bool = False, dim_size: int = 4
) -> list[list[RecordedEvent]]:
    """Each device's events after `calls` runs of a module with one argument."""
    module = parse_module(text)
    devices = Devices(compile_module(module, Counts(replicas, partitions), CompileOptions(traced=traced)))
    try:
        for _ in range(calls):
            devices([[np.ones(dim_size, np.float32)]] * devices.count)
        snapshot = Snapshot(devices.control)
        return [recorder.events(snapshot, device) for device in range(devices.count)]
    finally:
        devices.close()


def row_of(count: int, clock: Sequence[int] = (0, 0, 0, 0), event: bytes = b"", **fields: int) -> bytes:
    """event: the one in the record."""
    row = bytearray(control_words.RECORD_BYTES)
    row[control_words.R_EVENT : control_words.R_EVENT + len(event)] = event
    struct.pack_into("<Q", row, control_words.R_EVENTS, count)
    struct.pack_into("<QQQQ", row, control_words.R_CLOCK, *clock)
    for name, value in fields.items():
        struct.pack_into("<Q", row, getattr(control_words, name), value)
    return bytes(row)


def event_bytes(number: int, **fields: int) -> bytes:
    found = bytearray(event_words.EVENT_BYTES)
    struct.pack_into("<I", found, event_words.E_NUMBER, (number + 1) & 0xFFFFFFFF)
    wide = dict.fromkeys(("E_BEGUN", "E_ENDED", "E_WAITED", "E_RESUMED", "E_ROUND"), "<Q")
    kinds = wide | {"E_PROGRAM": "<H", "E_WAITS_FOR": "<h"}
    for name, value in fields.items():
        struct.pack_into(kinds.get(name, "<I"), found, getattr(event_words, name), value)
    return bytes(found)


# --- reading


def test_an_event_is_a_cache_line_and_a_ring_what_the_block_has_room_for() -> None:
    assert event_words.EVENT_BYTES == 64
    assert EVENTS * event_words.EVENT_BYTES == control_words.RECORDER_BYTES
    assert EVENTS & (EVENTS - 1) == 0
    assert control_words.recorder_offset(0) % 64 == 0
    assert control_words.recorder_offset(0) >= control_words.record_offset(control_words.MOST_DEVICES)
    assert control_words.fixed_bytes(3) >= control_words.recorder_offset(3)


@pytest.mark.parametrize(
    ("count", "most", "places"),
    [
        (0, EVENTS, []),
        (3, EVENTS, [(0, 3)]),
        (EVENTS, EVENTS, [(0, EVENTS)]),
        (EVENTS + 5, EVENTS, [(5, EVENTS - 5), (0, 5)]),
        (EVENTS + 5, 5, [(0, 5)]),
        (2 * EVENTS, 7, [(EVENTS - 7, 7)]),
        (EVENTS + 2, 6, [(EVENTS - 4, 4), (0, 2)]),
    ],
)
def test_where_the_last_events_lie(count: int, most: int, places: list[tuple[int, int]]) -> None:
    begin = control_words.recorder_offset(2)
    wanted = [(begin + first * event_words.EVENT_BYTES, size * event_words.EVENT_BYTES) for first, size in places]
    assert list(recorder.pieces(row_of(count), 2, most)) == wanted


def test_a_larger_ring_elsewhere() -> None:
    mask = 4 * EVENTS - 1
    row = row_of(4 * EVENTS + 1, R_RING=1 << 20, R_RING_MASK=mask)
    begin = control_words.recorder_offset(1) + (1 << 20)
    assert list(recorder.pieces(row, 1, 2)) == [
        (begin + mask * event_words.EVENT_BYTES, event_words.EVENT_BYTES),
        (begin, event_words.EVENT_BYTES),
    ]


def test_every_field_of_an_event() -> None:
    clock = (1000, 10_000, 3000, 11_000)  # two ticks a nanosecond
    data = event_bytes(
        7, E_BEGUN=3000, E_ENDED=3400, E_WAITED=3100, E_RESUMED=3200, E_ROUND=5, E_EDGE=6, E_SITE=2, E_PROGRAM=3,
        E_WAITS_FOR=-1, E_RUN=4, E_ITERATION=9,
    )  # fmt: skip
    (found,) = recorder.decode(data, row_of(8, clock), 1)
    assert found == RecordedEvent(
        device=1, number=7, program=3, site=2, step=None, run=4, round=5, edge=6, iteration=9, begun=11_000,
        ended=11_200, waited=11_050, resumed=11_100, waits_for=-1,
    )  # fmt: skip
    moved = found.shifted(-1000)
    assert (moved.begun, moved.ended, moved.waited, moved.resumed) == (10_000, 10_200, 10_050, 10_100)


def test_an_interrupted_device_does_not_set_the_clock_of_its_host() -> None:
    begin, end, second = 1_000_000, 1_000_000 + 20_000_000_000, 1_000_000_000  # two ticks a nanosecond
    right = begin, second, end, 11 * second
    late = begin + 100, second + 50, end + 8000, 11 * second + 10  # it was interrupted before it read the counter
    of_old = begin, second, begin + 20_000, second + 20_000
    none = (0, 0, 0, 0)
    data = event_bytes(0, E_BEGUN=end - 400)
    for moments in permutations([right, late, of_old, none]):
        rows = [row_of(1, each) for each in moments]
        clock = CycleClock.of(*rows)
        assert (clock.ticks, clock.nanoseconds) == right[2:]
        (times,) = {next(recorder.decode(data, row, device, clock)).begun for device, row in enumerate(rows)}
        assert times == pytest.approx(11 * second - 200, abs=1)
    assert CycleClock.of() == CycleClock.of(row_of(1)) == CycleClock(0, 0, 1.0)


def test_an_event_in_flight_is_in_the_record() -> None:
    data = event_bytes(0, E_BEGUN=1, E_ENDED=5, E_ROUND=1)
    current = event_bytes(1, E_BEGUN=6, E_WAITED=7, E_WAITS_FOR=3, E_ROUND=41)
    first, last = recorder.decode(data, row_of(1, event=current, R_BEFORE=30, R_NOW=9), 0)
    assert (first.number, first.round, first.ended, first.waits_for) == (0, 1, 5, None)
    assert (last.number, last.round, last.begun, last.ended) == (1, 11, 6, None)
    assert (last.waited, last.resumed, last.waits_for) == (7, None, 3)


def test_the_last_event_is_in_the_record_until_the_next_one_begins() -> None:
    data = event_bytes(0, E_BEGUN=1, E_ENDED=5) + event_bytes(1 - EVENTS, E_BEGUN=2)
    current = event_bytes(1, E_BEGUN=6, E_ROUND=41)
    _, last = recorder.decode(data, row_of(2, event=current, R_BEFORE=30, R_NOW=9), 0)
    assert (last.number, last.round, last.begun, last.ended) == (1, 11, 6, 9)


@pytest.mark.parametrize(
    ("count", "mark", "number"), [(0, 0, None), (0, 1, 0), (5, 5, 4), (5, 6, 5), (5, 0, None), (5, 4, None)]
)
def test_the_number_of_the_event_in_the_record(count: int, mark: int, number: int | None) -> None:
    assert recorder.number_of(row_of(count, event=event_bytes(mark - 1))) == number


def test_what_an_earlier_event_left_is_no_wait() -> None:
    (found,) = recorder.decode(event_bytes(0, E_BEGUN=5, E_ENDED=6, E_RESUMED=3, E_WAITS_FOR=1), row_of(1), 0)
    assert (found.waited, found.resumed, found.waits_for) == (None, None, None)


def test_a_step_is_none_of_the_sites() -> None:
    (found,) = recorder.decode(event_bytes(0, E_BEGUN=1, E_ENDED=2, E_SITE=event_words.STEP | 12), row_of(1), 0)
    assert (found.site, found.step) == (None, 12)


def test_an_event_that_is_replaced_meanwhile_is_left_out() -> None:
    torn = bytearray(event_bytes(1, E_BEGUN=5))
    torn[event_words.E_NUMBER : event_words.E_NUMBER + 4] = bytes(4)
    newer = event_bytes(2 + EVENTS, E_BEGUN=9)
    found = recorder.decode(event_bytes(0, E_BEGUN=1) + bytes(torn) + newer, row_of(3), 0)
    assert [event.number for event in found] == [0]


def test_numbers_go_on_beyond_32_bits() -> None:
    count = (1 << 32) + 1
    found = recorder.decode(event_bytes(count - 2) + event_bytes(count - 1), row_of(count), 0)
    assert [event.number for event in found] == [count - 2, count - 1]


# --- writing


def test_a_loop_with_rounds() -> None:
    for device, events in enumerate(histories(LOOP.format(n=4, times=5))):
        assert [event.number for event in events] == list(range(10))
        assert [event.site for event in events] == [0, 1] * 5
        assert [event.round for event in events] == [1 + k // 2 for k in range(10)]
        assert [event.iteration for event in events] == [1 + k // 2 for k in range(10)]
        assert {event.run for event in events} == {1}
        assert {event.waits_for for event in events} <= {None, control_words.WAITS_FOR_GROUP, 1 - device}
        check_times(events)


def test_only_the_last_events_are_kept() -> None:
    for events in histories(LOOP.format(n=4, times=100), calls=2):
        assert [event.number for event in events] == list(range(400 - EVENTS, 400))
        assert {event.run for event in events} == {1, 2}
        assert events[-1].round == 200
        check_times(events)


def test_both_ends_of_a_transfer_meet() -> None:
    sites = {0: "recv", 1: "send", 2: "recv-done", 3: "send-done"}
    found = [{sites[event.site or 0]: event for event in row} for row in histories(TRANSFER, replicas=1, partitions=2)]
    for source, target in ((0, 1), (1, 0)):
        edges = {
            found[source]["send"].edge,
            found[source]["send-done"].edge,
            found[target]["recv"].edge,
            found[target]["recv-done"].edge,
        }
        assert len(edges) == 1
        assert edges != {0}
        received = found[target]["recv-done"]
        assert received.ended is not None
        assert found[source]["send"].begun < received.ended
        assert received.round == found[source]["send"].round == 1
    assert found[0]["send"].edge != found[1]["send"].edge


def test_loops_that_are_counted_are_named() -> None:
    program = compile_module(parse_module(LOOP.format(n=4, times=5), "loop.hlo"), Counts(2, 1))
    for site in program.sites:
        assert [(loop.instruction, loop.computation) for loop in site.loops] == [("w", "e")]
        assert str(site.loops[0].location).startswith("loop.hlo:")


def test_iterations_of_nested_loops() -> None:
    text = """HloModule nested, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
below3 { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
inner { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)
  y = f32[4] all-reduce(x), to_apply=add ROOT t = (s32[], f32[4]) tuple(j, y) }
outer { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one) zero = s32[] constant(0)
  u = (s32[], f32[4]) tuple(zero, x) v = (s32[], f32[4]) while(u), condition=below3, body=inner
  y = f32[4] get-tuple-element(v), index=1 ROOT t = (s32[], f32[4]) tuple(j, y) }
ENTRY e { x = f32[4] parameter(0) zero = s32[] constant(0) t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=below3, body=outer ROOT r = f32[4] get-tuple-element(w), index=1 }
"""
    devices = Devices(compile_module(parse_module(text), Counts(2, 1)))
    try:
        devices([[np.ones(4, np.float32)]] * 2)
        snapshot = Snapshot(devices.control)
        assert [e.iteration for e in recorder.events(snapshot, 0)] == [1, 2, 3] * 3
        assert recorder.iterations(snapshot, 0)[:3] == (3, 3, 0)
        assert [len(site.loops) for site in devices.program.sites] == [2]
    finally:
        devices.close()


def test_an_event_costs_little() -> None:
    """Processor time with and without, side by side: about 10 ns where nobody waits."""
    text = """HloModule alone
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
cond { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(50000)
  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)
  y = f32[4] all-reduce(x), to_apply=add ROOT t = (s32[], f32[4]) tuple(j, y) }
ENTRY e { x = f32[4] parameter(0) zero = s32[] constant(0) t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=cond, body=body ROOT r = f32[4] get-tuple-element(w), index=1 }
"""
    devices = Devices(compile_module(parse_module(text), Counts(1, 1)))
    try:
        devices([[np.ones(4, np.float32)]])
        names = (ROUND_SYMBOL, COMMUNICATE_SYMBOL)
        tables = [(ctypes.c_void_p * 1)(devices.image.address_of(name.format(site=0))) for name in names]
        best = [float("inf")] * 2
        for _ in range(20):
            for k, table in enumerate(tables):
                devices.contexts[0].communicate = ctypes.addressof(table)
                begin = time.thread_time()
                devices.run()
                best[k] = min(best[k], time.thread_time() - begin)
        assert (best[1] - best[0]) / 50_000 < 100e-9
    finally:
        devices.close()


@pytest.mark.parametrize("dim_size", [4, 4096])
def test_a_traced_program_records_its_steps(dim_size: int) -> None:
    program = compile_module(parse_module(LOOP.format(n=dim_size, times=3)), Counts(2, 1), CompileOptions(traced=True))
    for events in histories(LOOP.format(n=dim_size, times=3), traced=True, dim_size=dim_size):
        steps = [event for event in events if event.step is not None]
        kinds: Mapping[str, int] = {}
        for event in steps:
            kind = program.debug.steps[event.step or 0].kind
            kinds = {**kinds, kind: kinds.get(kind, 0) + 1}
        assert kinds["loop"] == 1
        assert kinds["kernel"] >= 6  # three iterations, each adds and compares
        (loop,) = (event for event in steps if program.debug.steps[event.step or 0].kind == "loop")
        assert loop.iteration == 3
        rounds = [event for event in events if event.site is not None]
        assert len(rounds) == 6
        assert loop.ended is not None
        assert all(loop.begun <= event.begun and (event.ended or 0) <= loop.ended for event in rounds)
        assert all(event.ended is not None and event.begun <= event.ended for event in steps)
