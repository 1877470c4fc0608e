"""Declarations of shared words: name, offset, width, writer, memory order.

    ROUND = Area("round of a group", "..")
    E_ARRIVED = ROUND.u32(0, "arrived", "members", Order.UPDATED, "members that have come")

A word is its byte offset in its area, an int, so that `offset + E_ARRIVED` is an address. Emitted accesses are checked
against the declaration (emit/atomics_builder.py): a plain store to a word that publishes others is
an error.

Readers of a word that publishes (Order.publishes) read it with acquire order, unless they are its only writer. One rule
for sleeping: a seq_cst store followed by an acquire load is no fence on every processor (the load may be an LDAPR).
A side that stores a word and then reads another one that the other side stores before it reads this one needs a fence
in between. Going to sleep is one; `fetch_add` and `fence` of atomics_builder.py are one; a release store is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from struct import Struct

from distxla.errors import InternalError
from distxla.lazy_dataclass import dataclass, field


class Order(Enum):
    """How a word is written."""

    PLAIN = "plain"  # read by its writer alone, or published by another word
    MONOTONIC = "monotonic"  # written by several at once; publishes nothing
    RELEASE = "release"  # publishes all that was written before
    FENCED = "seq_cst"  # publishes, and takes part in a store-then-load race
    UPDATED = "read-modify-write"  # publishes, and is a full fence

    @property
    def publishes(self) -> bool:
        return self not in (Order.PLAIN, Order.MONOTONIC)


class Word(int):
    """The offset of a shared word in its area, in bytes, and its declaration.

    bits: its width.  writer: its writer while programs run.  futex: waiters sleep on it.  count: of an array, its
    words; 0: as many as the instance has.  reset: it is also stored plainly by a writer that is alone with it.
    is_ordered: whether it is no plain one.
    """

    area: Area
    name: str
    bits: int
    signed: bool
    writer: str
    order: Order
    meaning: str
    futex: bool
    count: int
    reset: bool
    is_ordered: bool

    @property
    def kind(self) -> str:
        """Its type: `u32`, `u64[4]`, `u64[]`."""
        array = "" if self.count == 1 else f"[{self.count or ''}]"
        return f"{'i' if self.signed else 'u'}{self.bits}{array}"

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return int(self) + self.bits // 8 * max(1, self.count)

    def read(self, area: bytes) -> int:
        """Its value in a copy of its area's bytes, little-endian; of an array the first one."""
        return int.from_bytes(area[self : self + self.bits // 8], "little", signed=self.signed)

    def require_store(self, bits: int, order: str | None) -> None:
        """InternalError where an emitted store of `bits` bits is weaker than declared. order: LLVM's; None: plain."""
        for word in self._covered(bits):
            if order is None and not word.reset and word.order is not Order.PLAIN:
                raise InternalError(
                    f"{word.area.name}: {word.name} is written with {word.order.value} order, not plainly"
                )
            if word.order is Order.FENCED and order != "seq_cst":
                raise InternalError(f"{word.area.name}: {word.name} is written with seq_cst order, not {order}")
            if word.order is Order.RELEASE and order == "monotonic":
                raise InternalError(f"{word.area.name}: {word.name} is written with release order, not {order}")

    def require_load(self, bits: int, order: str | None, *, own: bool) -> None:
        """InternalError where an emitted load is weaker than declared. own: the reader is the word's only writer."""
        for word in self._covered(bits):
            if order != "acquire" and order != "seq_cst" and word.order.publishes and not own:
                raise InternalError(f"{word.area.name}: {word.name} publishes: it is read with acquire order")
            if order is None and word.order is Order.MONOTONIC:
                raise InternalError(f"{word.area.name}: {word.name} is written by several at once: read it atomically")

    def require_update(self, bits: int) -> None:
        """InternalError where a word that is not declared so is changed by read-modify-write."""
        if self.order is not Order.UPDATED or bits != self.bits:
            raise InternalError(f"{self.area.name}: {self.name} is a {self.kind} of {self.order.value} order")

    def require_exchange(self, bits: int) -> None:
        """InternalError where a compare-and-swap of all of it is not as strong as its declared order, or wider."""
        if self.order not in (Order.UPDATED, Order.FENCED) or bits != self.bits:
            raise InternalError(f"{self.area.name}: {self.name} is a {self.kind} of {self.order.value} order")

    def _covered(self, bits: int) -> Iterator[Word]:
        """The words that an access reaches: the low part of one, or several whole ones."""
        if bits <= self.bits:
            yield self
            return
        end = int(self) + bits // 8
        found = [word for word in self.area.words if int(self) <= int(word) < end]
        if max(word.end for word in found) > end or sum(word.bits for word in found) != bits:
            raise InternalError(f"{self.area.name}: an access of {bits} bits at {self.name} covers parts of words")
        yield from found


def u32_words(values: Mapping[Word, int]) -> tuple[int, ...]:
    """The values of words that lie one behind the other as u32 words, from the first word's offset on."""
    found: list[int] = []
    begin = min(values)
    for word, value in values.items():
        if word != begin + 4 * len(found):
            raise InternalError(f"{word.area.name}: {word.name} is not behind the word before it")
        found += [value >> shift & 0xFFFFFFFF for shift in range(0, word.bits, 32)]
    return tuple(found)


@dataclass(frozen=True)
class Part:
    """Another area within an area: where, and how often (0: as often as the instance has)."""

    offset: int
    name: str
    area: Area
    count: int
    meaning: str

    @property
    def end(self) -> int:
        return self.offset + self.area.size * max(1, self.count)


@dataclass(frozen=True, eq=False)
class Area:
    """A piece of shared memory with words in it.

    name: for messages and documentation.  fixed: its bytes; 0: those of its words.
    """

    name: str
    meaning: str
    fixed: int = 0
    words: list[Word] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes up to the end of its last word, or as many as were declared."""
        ends = [word.end for word in self.words] + [part.end for part in self.parts]
        return self.fixed or max(ends, default=0)

    def u32(
        self,
        at: int,
        name: str,
        by: str,
        order: Order,
        meaning: str,
        *,
        futex: bool = False,
        count: int = 1,
        reset: bool = False,
    ) -> Word:
        return self._declare(at, name, 32, by, order, meaning, futex=futex, count=count, reset=reset)

    def u64(self, at: int, name: str, by: str, order: Order, meaning: str, *, count: int = 1) -> Word:
        return self._declare(at, name, 64, by, order, meaning, count=count)

    def i32(self, at: int, name: str, by: str, order: Order, meaning: str) -> Word:
        return self._declare(at, name, 32, by, order, meaning, signed=True)

    def u16(self, at: int, name: str, by: str, order: Order, meaning: str) -> Word:
        return self._declare(at, name, 16, by, order, meaning)

    def i16(self, at: int, name: str, by: str, order: Order, meaning: str) -> Word:
        return self._declare(at, name, 16, by, order, meaning, signed=True)

    def place(self, word: Word, at: int, by: str) -> Word:
        """Declare a word of another area, which is within this one, from `at` on."""
        return self._declare(
            at + word, word.name, word.bits, by, word.order, word.meaning, signed=word.signed, count=word.count
        )

    def part(self, at: int, name: str, area: Area, meaning: str, *, count: int = 1) -> int:
        """Place another area within this one; its offset."""
        self._require_free(at, at + area.size * max(1, count), name)
        self.parts.append(Part(at, name, area, count, meaning))
        return at

    def _declare(
        self,
        at: int,
        name: str,
        bits: int,
        by: str,
        order: Order,
        meaning: str,
        *,
        signed: bool = False,
        futex: bool = False,
        count: int = 1,
        reset: bool = False,
    ) -> Word:
        word = Word(at)
        word.area, word.name, word.bits, word.signed, word.writer, word.order = self, name, bits, signed, by, order
        word.meaning, word.futex, word.count, word.reset = meaning, futex, count, reset
        word.is_ordered = order is not Order.PLAIN
        if at % (bits // 8):
            raise InternalError(f"{self.name}: {name} at {at} is not aligned")
        self._require_free(at, word.end, name)
        self.words.append(word)
        return word

    def _require_free(self, begin: int, end: int, name: str) -> None:
        if self.fixed and end > self.fixed:
            raise InternalError(f"{self.name}: {name} ends at {end}, behind the {self.fixed} bytes of the area")
        for word in self.words:
            if begin < word.end and int(word) < end:
                raise InternalError(f"{self.name}: {name} at {begin} overlaps {word.name}")
        for part in self.parts:
            if begin < part.end and part.offset < end:
                raise InternalError(f"{self.name}: {name} at {begin} overlaps {part.name}")


def packed(*words: Word) -> Struct:
    """Reads and writes adjacent words at once, little-endian; InternalError where they are not adjacent."""
    for before, word in pairwise(words):
        if before.end != word:
            raise InternalError(f"{word.area.name}: {word.name} does not follow {before.name}")
    return Struct("<" + "".join(_CODES[word.bits, word.signed] * word.count for word in words))


_CODES = {(16, False): "H", (16, True): "h", (32, False): "I", (32, True): "i", (64, False): "Q", (64, True): "q"}


def areas(module: Mapping[str, object]) -> list[Area]:
    """The areas that a module declares (its `vars`), in order."""
    return [value for value in module.values() if isinstance(value, Area)]
