"""Infeed, outfeed and host transfers: every element type, nesting, order, nested computations; compiled and not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.errors import ArgumentError, StreamEndError, UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, ElementType, element_type
from distxla.oracle.lockstep import run_programs
from distxla.oracle.streams import Streams as ReferenceStreams
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices
from tests.ops.feed_cases import Array, Feed, compiled, evaluated, parsed, same, taken
from tests.ops.feed_programs import CHANNELS, PIPELINE, TAKERS, echo, sums

F32 = np.float32


class Runner(Protocol):
    """Runs a program on one device after `feed` has put items; (results, streams)."""

    def __call__(self, text: str, args: Sequence[Any], feed: Feed) -> tuple[list[Array], Any]: ...


@pytest.fixture(params=[compiled, evaluated])
def run(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


def values_of(element: ElementType) -> Array:
    """All bit patterns of narrow types, some of wide ones."""
    rng = np.random.default_rng(7)
    if element.kind == "pred":
        return np.array([True, False, True])
    if element.bits < 8 and element.is_integer:
        low = -(1 << (element.bits - 1)) if element.is_signed else 0
        return np.arange(low, low + (1 << element.bits)).astype(element.dtype)
    if element.bits < 8:
        return np.arange(16, dtype=np.uint8).view(element.dtype)
    if element.bits == 8:
        return np.arange(256).astype(np.uint8).view(element.dtype)
    return rng.integers(0, 256, 37 * element.byte_size, np.uint8).view(element.dtype)


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("element", DATA_TYPES, ids=str)
def test_every_element_type_passes_unchanged(run: Runner, element: ElementType) -> None:
    value = values_of(element)
    _, streams = run(echo(f"{element}[{value.size}]"), [], lambda s: s.infeed(0).put(value))
    (found,) = taken(streams, 1)
    assert same(found, value)


A, B, C = np.arange(6, dtype=F32).reshape(2, 3), np.int8(-3), np.array([True, False])
ITEMS: list[tuple[str, Any, Any]] = [
    ("f32[2,3]{0,1}", A.T.copy().T, A),
    ("f32[2,3]{1,0}", (A,), A),
    ("(f32[2,3])", A, (A,)),
    ("((f32[2,3]))", ((A,),), ((A,),)),
    ("(f32[2,3], s8[])", (A, B), (A, B)),
    ("(f32[2,3]{0,1}, (s8[], pred[2]))", (A, (B, C)), (A, (B, C))),
    ("(f32[2,3], (s8[], pred[2]))", (A, B, C), (A, (B, C))),
    ("(f32[2,3], (s8[], pred[2]))", [A, [B, C]], (A, (B, C))),
    ("((), f32[2,3], (f32[0], ()))", ((), A, (np.zeros(0, F32), ())), ((), A, (np.zeros(0, F32), ()))),
    ("()", (), ()),
    ("f32[0,4]", np.zeros((0, 4), F32), np.zeros((0, 4), F32)),
    ("f32[100000]", np.arange(100000, dtype=F32), np.arange(100000, dtype=F32)),
]


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(("shape", "given", "expected"), ITEMS, ids=[f"{s} {i}" for i, (s, _, _) in enumerate(ITEMS)])
def test_items_are_nested_tuples(run: Runner, shape: str, given: Any, expected: Any) -> None:
    _, streams = run(echo(shape), [], lambda s: s.infeed(0).put(given))
    (found,) = taken(streams, 1)
    assert same(found, expected)


def test_a_loop_takes_an_item_in_each_iteration(run: Runner) -> None:
    items = [np.full(4, 10.0**n, F32) for n in range(5)]
    (out,), streams = run(sums(5), [np.ones(4, F32)], lambda s: s.infeed(0).put_all(items))
    totals = np.cumsum([np.ones(4, F32), *items], axis=0, dtype=F32)
    assert same(out, totals[-1])
    assert all(map(same, taken(streams, 5), totals[1:]))


@pytest.mark.parametrize("which", [True, False])
def test_feeds_run_in_the_order_of_the_text_where_nothing_reads_them(run: Runner, which: bool) -> None:
    a = np.array([1, 2], F32)
    bf16 = element_type("bf16").dtype
    first = np.array([5, 6], F32)
    items = [first, *([np.int32(7)] if which else []), (np.arange(3, dtype=np.uint8), (True,)), np.array(1.5, bf16)]
    (out,), streams = run(TAKERS, [a, np.array(which)], lambda s: s.infeed(0).put_all(items))
    assert same(out, a)
    assert all(map(same, taken(streams, 3), [first, np.int32(7) if which else a, np.array(3, bf16)]))
    assert streams.infeed(0).pending == 0


def test_receives_may_end_in_another_order_than_they_began(run: Runner) -> None:
    items = [np.array([n, n], F32) for n in (5, 3, 9)]
    outs, streams = run(CHANNELS, [], lambda s: s.infeed(0, 3).put_all(items))
    assert all(map(same, outs, items))
    assert same(taken(streams, 1, channel=0)[0], np.array([2, 2], F32))
    assert streams.infeed(0, 3).pending == 1


def test_a_receive_may_be_in_flight_round_a_loop(run: Runner) -> None:
    items = [np.array([n, 1], F32) for n in (1, 2, 3, 4, 50)]
    outs, _ = run(PIPELINE, [np.zeros(2, F32)], lambda s: s.infeed(0, 1).put_all(items))
    assert all(map(same, outs, [np.array([10, 4], F32), items[-1]]))


def test_items_that_are_left_go_to_the_next_run() -> None:
    devices = Devices(compile_module(parsed(CHANNELS), Counts(1, 1)))
    try:
        feed = devices.streams.infeed(0, 3)
        feed.put_all([np.array([n, n], F32) for n in range(6)])
        for n in range(3):
            (outs,) = devices([[]])
            assert [out[0] for out in outs] == [2 * n, 2 * n + 1]
        assert feed.pending == 0
    finally:
        devices.close()


WRONG: list[tuple[Any, str]] = [
    (np.zeros(3, F32), r"expected \(f32\[2\], s32\[\]\), found f32\[3\]"),
    ((np.zeros(2, F32), np.int64(1)), r"found \(f32\[2\], s64\[\]\)"),
    ((np.int32(1), np.zeros(2, F32)), r"found \(s32\[\], f32\[2\]\)"),
    ((np.zeros(2, F32), (np.int32(1), ())), r"found \(f32\[2\], \(s32\[\], \(\)\)\)"),
    ((), r"found \(\)"),
]


@pytest.mark.parametrize(("item", "message"), WRONG)
def test_an_item_of_another_type_is_named(item: Any, message: str) -> None:
    good = (np.ones(2, F32), np.int32(4))
    streams = ReferenceStreams()
    module = parsed(echo("(f32[2], s32[])"))
    streams.infeed(0).put_all([good, item, good])
    run_programs({0: module}, {0: []}, Counts(1, 1), streams=streams)
    with pytest.raises(ArgumentError, match=r"feed.hlo:4:3.* f on device 0: item 1 of the infeed: .*" + message):
        run_programs({0: module}, {0: []}, Counts(1, 1), streams=streams)
    run_programs({0: module}, {0: []}, Counts(1, 1), streams=streams)
    assert all(same(item, good) for item in taken(streams, 2))


def test_without_streams_an_infeed_has_ended_and_an_outfeed_goes_nowhere() -> None:
    with pytest.raises(StreamEndError, match="wants item 0: the infeed was closed after 0 items"):
        run_programs({0: parsed(echo("f32[2]"))}, {0: []}, Counts(1, 1))


@pytest.mark.parametrize("item", ["f32[<=4]", "(s32[], f32[2,<=4])", "(f32[2], token[])"])
def test_what_has_no_static_bytes_is_refused(item: str) -> None:
    text = f"""HloModule dynamic
ENTRY main {{
  t = token[] after-all()
  f = ({item}, token[]) infeed(t)
  ROOT u = token[] get-tuple-element(f), index=1
}}
"""
    with pytest.raises(UnsupportedOpError, match=r"this version cannot execute infeed of .*\["):
        parsed(text)
    module = parse_module(text)
    with pytest.raises(UnsupportedOpError, match="this version cannot execute infeed of "):
        run_programs({0: module}, {0: []}, Counts(1, 1))
