"""Declarations of shared words: what may not be declared, and which emitted accesses are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from llvmlite import ir

from distxla.collectives.protocols import control_block, event, group, permute, proxy_queue, stream
from distxla.collectives.protocols.layout import Area, Order, Word, packed, u32_words
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, POINTER, VOID, i32, i64
from distxla.errors import InternalError
from docs.protocol_tables import MODULES, declared
from docs.update_tables import PROTOCOLS, updated_protocols

EXAMPLE = Area("example", "for tests", 64)
PLAIN = EXAMPLE.u32(0, "plain", "a", Order.PLAIN, "data")
PAIRED = EXAMPLE.u32(4, "paired", "a", Order.RELEASE, "beside it")
FLAG = EXAMPLE.u32(8, "flag", "a", Order.RELEASE, "publishes", futex=True)
COUNT = EXAMPLE.u32(12, "count", "all", Order.UPDATED, "counts", reset=True)
RACE = EXAMPLE.u32(16, "race", "a", Order.FENCED, "stored before another word is read")
SHARED = EXAMPLE.u32(20, "shared", "all", Order.MONOTONIC, "written by several")
LONG = EXAMPLE.u64(24, "long", "a", Order.PLAIN, "wide")

Access = Callable[[AtomicsBuilder, ir.Value], object]
ALLOWED: dict[str, Access] = {
    "plain store of data": lambda atomics, base: atomics.store(i32(1), base, PLAIN),
    "plain load of data": lambda atomics, base: atomics.load(I32, base, PLAIN),
    "low half of a wide word": lambda atomics, base: atomics.load(I32, base, LONG),
    "release store": lambda atomics, base: atomics.release(i32(1), base, FLAG),
    "stronger than declared": lambda atomics, base: atomics.sequential_store(i32(1), base, FLAG),
    "acquire load": lambda atomics, base: atomics.acquire(base, FLAG),
    "the writer's own load": lambda atomics, base: atomics.load_own(I32, base, FLAG),
    "two words at once": lambda atomics, base: atomics.release(i64(1), base, PLAIN),
    "read-modify-write": lambda atomics, base: atomics.fetch_add(1, base, COUNT),
    "reset": lambda atomics, base: atomics.store(i32(0), base, COUNT),
}
REFUSED: dict[str, tuple[Access, str]] = {
    "plain store": (lambda atomics, base: atomics.store(i32(1), base, FLAG), "flag is written with release order"),
    "plain store of two": (lambda atomics, base: atomics.store(i64(1), base, PLAIN), "paired is written with release"),
    "plain load": (lambda atomics, base: atomics.load(I32, base, FLAG), "flag publishes: it is read with acquire"),
    "release in a race": (lambda atomics, base: atomics.release(i32(1), base, RACE), "race is written with seq_cst"),
    "plain load of racing stores": (
        lambda atomics, base: atomics.load(I32, base, SHARED),
        "written by several at once",
    ),
    "plain store among others": (
        lambda atomics, base: atomics.store(i32(1), base, SHARED),
        "monotonic order, not plainly",
    ),
    "parts of words": (lambda atomics, base: atomics.load(I64, base, SHARED), "covers parts of words"),
    "update of a plain word": (
        lambda atomics, base: atomics.fetch_add(1, base, PLAIN),
        "plain is a u32 of plain order",
    ),
}


def _emit(access: Access) -> None:
    function, atomics = AtomicsBuilder.function(ir.Module("test"), "f", VOID, [POINTER])
    access(atomics, function.args[0])


@pytest.mark.parametrize("name", ALLOWED)
def test_accesses_as_declared_are_emitted(name: str) -> None:
    _emit(ALLOWED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_weaker_accesses_are_refused(name: str) -> None:
    access, message = REFUSED[name]
    with pytest.raises(InternalError, match=message):
        _emit(access)


def test_what_overlaps_or_lies_outside_is_no_declaration() -> None:
    area = Area("one", "", 16)
    area.u64(0, "first", "a", Order.PLAIN, "")
    for at, message in ((4, "overlaps first"), (6, "not aligned"), (16, "behind the 16 bytes")):
        with pytest.raises(InternalError, match=message):
            area.u32(at, "second", "a", Order.PLAIN, "")
    with pytest.raises(InternalError, match="behind the 16 bytes"):
        area.part(0, "part", EXAMPLE, "")


def test_adjacent_words_are_read_at_once() -> None:
    assert packed(*stream.SLOT.words).format == "<QQQIII"
    assert packed(*event.EVENT.words).size == event.EVENT_BYTES
    with pytest.raises(InternalError, match="taken does not follow posted"):
        packed(stream.T_POSTED, stream.T_TAKEN)


def test_a_word_is_its_offset() -> None:
    assert stream.T_TAKEN == 64
    assert str(stream.T_TAKEN) == "64"
    assert 64 + group.E_PHASE == 128
    kinds = [word.kind for word in (stream.T_TAKEN, stream.T_BLOCK, control_block.R_ITERATIONS)]
    assert kinds == ["u32", "u64", f"u32[{control_block.LOOP_DEPTHS}]"]


def test_words_that_somebody_sleeps_on_publish() -> None:
    futexes = [word for _, area in declared() for word in area.words if word.futex]
    assert futexes
    for word in futexes:
        assert word.order.publishes, f"{word.area.name}: {word.name}"


def test_every_word_of_a_module_is_in_one_area() -> None:
    known = {id(word) for _, area in declared() for word in area.words}
    for module in MODULES:
        for name, value in vars(module).items():
            assert not isinstance(value, Word) or id(value) in known, f"{module.__name__}.{name}"


def test_the_documentation_is_the_generated_one() -> None:
    text = PROTOCOLS.read_text()
    assert text == updated_protocols(text), "run `make ops-table`"


def test_values_as_u32_words() -> None:
    area = Area("an area", "")
    first, wide, far = (
        area.u32(8, "first", "driver", Order.PLAIN, ""),
        area.u64(16, "wide", "driver", Order.PLAIN, ""),
        area.u32(24, "far", "driver", Order.PLAIN, ""),
    )
    assert u32_words({wide: 5 | 7 << 32, far: 9}) == (5, 7, 9)
    with pytest.raises(InternalError, match="an area: wide is not behind the word before it"):
        u32_words({first: 1, wide: 2})
    with pytest.raises(InternalError, match="an area: far is not behind"):
        u32_words({far: 1, wide: 2})


def test_rounds_of_a_permutes_messages() -> None:
    rounds = [permute.round_of(use, slot) for use in (1, 2) for slot in range(permute.RING)]
    assert rounds == list(range(1, 2 * permute.RING + 1))


def test_parts_of_a_queues_entry() -> None:
    entry = (0xFFFFFFFF << proxy_queue.NUMBER_SHIFT) + 128 + ProxyEvent.SENT
    assert proxy_queue.parts_of(entry) == (128, ProxyEvent.SENT, 0xFFFFFFFF)
