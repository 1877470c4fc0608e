"""Words are loaded and stored as they declare; what a word's order forbids is an error."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distxla.collectives.protocols.layout import Area, Order, Word, packed
from distxla.collectives.transports import shared_words
from distxla.collectives.transports.shared_words import CopiedWords, SharedWords
from distxla.errors import InternalError
from distxla.targets.registry import atomics
from distxla.targets.target import Atomics

AREA = Area("test", "words of each order")
PLAIN = AREA.u32(0, "plain", "a", Order.PLAIN, "")
PLAIN_LONG = AREA.u64(8, "plain long", "a", Order.PLAIN, "")
MONOTONIC = AREA.u64(16, "monotonic", "a", Order.MONOTONIC, "")
RELEASE = AREA.u32(24, "release", "a", Order.RELEASE, "", reset=True)
NEXT = AREA.u32(28, "next", "a", Order.PLAIN, "")
RELEASE_LONG = AREA.u64(32, "release long", "a", Order.RELEASE, "")
FENCED = AREA.u32(40, "fenced", "a", Order.FENCED, "")
UPDATED = AREA.u32(44, "updated", "a", Order.UPDATED, "")
UPDATED_LONG = AREA.u64(48, "updated long", "a", Order.UPDATED, "")
AT = 64

# what a load and a store of each word calls
CALLS = {
    PLAIN: ([], []),
    PLAIN_LONG: ([], []),
    MONOTONIC: (["read_long"], ["publish_long"]),
    RELEASE: (["read"], ["publish"]),
    RELEASE_LONG: (["read_long"], ["publish_long"]),
    FENCED: (["read"], ["publish_fenced"]),
}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the atomic accesses that are made from here on."""
    found: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        def call(*arguments: int) -> Any:
            found.append(name)
            return getattr(atomics(), name)(*arguments)

        return call

    monkeypatch.setattr(shared_words, "atomics", lambda: Atomics(*map(noted, Atomics._fields)))
    return found


@pytest.fixture
def words(called: list[str]) -> Iterator[SharedWords]:
    made = SharedWords(memoryview(mmap.mmap(-1, 4096)))
    yield made
    made.close()


@pytest.mark.parametrize("word", CALLS, ids=lambda word: word.name)
def test_a_word_is_accessed_in_its_order(word: Word, words: SharedWords, called: list[str]) -> None:
    value = (1 << word.bits) - 2
    words.store(word, value, AT)
    assert called == CALLS[word][1]
    called.clear()
    assert words.load(word, AT) == value
    assert called == CALLS[word][0]
    assert Counter(words.view) == Counter({0: 4096 - word.bits // 8, 255: word.bits // 8 - 1, 254: 1})
    assert CopiedWords(bytes(words.view[AT:]), AT).load(word, AT) == value


def test_a_fence_is_one(words: SharedWords, called: list[str]) -> None:
    words.fence()
    assert called == ["fence"]


def test_a_row_of_words_is_written_at_once(words: SharedWords, called: list[str]) -> None:
    words.row(packed(RELEASE, NEXT), RELEASE, AT)(5, 6)
    assert called == []
    assert (words.load(RELEASE, AT), words.load(NEXT, AT)) == (5, 6)
    assert words.load_at(AT + NEXT) == words.load_own(NEXT, AT) == 6


def test_a_row_is_copied_and_pasted(words: SharedWords, called: list[str]) -> None:
    row = packed(RELEASE, NEXT)
    words.row(row, RELEASE, AT)(5, 6)
    copied = words.copy(row, RELEASE, AT)
    assert row.unpack(copied) == (5, 6)
    words.paste(row, RELEASE, copied, 2 * AT)
    assert called == []
    assert (words.load(RELEASE, 2 * AT), words.load(NEXT, 2 * AT)) == (5, 6)
    with pytest.raises(ValueError, match="different"):
        words.paste(row, RELEASE, copied[1:], AT)


def test_a_payload_is_written_in_place(words: SharedWords) -> None:
    words.payload(NEXT, 3, AT)[:] = b"abc"
    assert words.load(NEXT, AT) == int.from_bytes(b"abc\0", "little")


@pytest.mark.parametrize("word", [MONOTONIC, RELEASE_LONG, FENCED, UPDATED], ids=lambda word: word.name)
def test_a_word_that_publishes_is_not_written_plainly(word: Word, words: SharedWords) -> None:
    with pytest.raises(InternalError, match=rf"{word.name} is written with {word.order.value} order, not plainly"):
        words.reset(word, 1, AT)


def test_a_word_that_several_update_is_not_stored(words: SharedWords) -> None:
    with pytest.raises(InternalError, match="updated, of read-modify-write order, is not stored by Python"):
        words.store(UPDATED, 1)


def test_a_long_word_is_exchanged_where_it_is_what_was_expected(words: SharedWords, called: list[str]) -> None:
    assert words.exchange(UPDATED_LONG, 0, 5 << 40, AT) == 0
    assert words.exchange(UPDATED_LONG, 0, 7, AT) == 5 << 40
    assert called == ["compare_exchange_long"] * 2
    assert words.load_in_race(UPDATED_LONG, AT) == 5 << 40
    assert called[2:] == ["read_long_fenced"]
    for word in (UPDATED, RELEASE_LONG):
        with pytest.raises(InternalError, match=rf"{word.name} is a {word.kind} of {word.order.value} order"):
            words.exchange(word, 0, 1, AT)
