"""The layout of streams: where items go in an area, where leaves lie in an item, which types are the same."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distxla.collectives.protocols import stream as streams
from distxla.text.shapes import parse_shape

BEGIN, CAPACITY = 4096, 1024
SIZES = st.integers(1, CAPACITY // streams.ALIGNMENT).map(lambda n: n * streams.ALIGNMENT)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(SIZES, st.none()), max_size=60))
def test_items_in_an_area_never_overlap_and_none_waits_in_vain(steps: list[int | None]) -> None:
    """None takes the oldest item; a number puts one of that size."""
    in_flight: deque[tuple[int, int]] = deque()
    write = BEGIN
    for size in steps:
        if size is None:
            if in_flight:
                in_flight.popleft()
            continue
        place = streams.room(in_flight[0][0] if in_flight else None, write, size, BEGIN, BEGIN + CAPACITY)
        if place is None:
            assert in_flight  # an item that fits at all has room in an empty area
            continue
        assert place % streams.ALIGNMENT == 0
        assert BEGIN <= place <= BEGIN + CAPACITY - size
        assert all(place + size <= begin or begin + length <= place for begin, length in in_flight)
        in_flight.append((place, size))
        write = place + size


def test_an_area_is_used_from_its_begin_as_soon_as_it_is_empty() -> None:
    assert streams.room(None, BEGIN + 640, 64, BEGIN, BEGIN + CAPACITY) == BEGIN


@pytest.mark.parametrize(
    ("first", "write", "size", "place"),
    [
        (0, 64, 64, 64),
        (0, 1024, 64, None),  # full
        (64, 1024, 64, 0),  # round the end, up to the first item
        (64, 1024, 128, None),
        (64, 64, 64, None),  # full
        (512, 128, 384, 128),
        (512, 128, 448, None),
        (256, 960, 128, 0),  # does not fit before the end
    ],
)
def test_where_the_next_item_goes(first: int, write: int, size: int, place: int | None) -> None:
    found = streams.room(BEGIN + first, BEGIN + write, size, BEGIN, BEGIN + CAPACITY)
    assert found == (None if place is None else BEGIN + place)


@pytest.mark.parametrize(
    ("shape", "begins", "size"),
    [
        ("f32[4]", [0], 64),
        ("f32[16]", [0], 64),
        ("(f32[17], s8[], (pred[2], f64[8]))", [0, 128, 192, 256], 320),
        ("()", [], 64),
        ("(f32[0], s4[3])", [0, 0], 64),
    ],
)
def test_leaves_lie_one_behind_the_other(shape: str, begins: list[int], size: int) -> None:
    assert streams.places(parse_shape(shape)) == (begins, size)


SAME = [
    ("f32[2,3]{0,1}", "f32[2,3]"),
    ("(f32[2,3])", "f32[2,3]"),
    ("((f32[2,3]), s8[])", "(f32[2,3]{0,1}, s8[])"),
]
DIFFERENT = [
    ("f32[2,3]", "f32[3,2]"),
    ("f32[2]", "s32[2]"),
    ("(f32[2], (s8[], s8[]))", "(f32[2], s8[], s8[])"),
    ("(f32[2], s8[])", "(s8[], f32[2])"),
    ("f32[]", "f32[1]"),
    ("(f32[2], ())", "f32[2]"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_types_that_are_the_same(a: str, b: str) -> None:
    assert streams.type_number(parse_shape(a)) == streams.type_number(parse_shape(b))


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_types_that_differ(a: str, b: str) -> None:
    assert streams.type_number(parse_shape(a)) != streams.type_number(parse_shape(b))


def test_an_item_may_come_nested_or_as_its_leaves() -> None:
    nested, leaves = streams.accepted_types(parse_shape("(f32[2], (s8[], s8[]))"))
    assert nested == streams.type_number(parse_shape("(f32[2], (s8[], s8[]))"))
    assert leaves == streams.type_number(parse_shape("(f32[2], s8[], s8[])"))
