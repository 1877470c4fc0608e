"""Programs over shared words, for the models of the protocols: what a process does, one access after the other.

    with the words of group.py:    p.store(E_PHASE, 2)    p.load("now", E_PHASE)    p.add("arrived", E_ARRIVED, 1)

Every access has the order that its word declares (layout.py). Values are integers or functions of the registers. What
may follow what, with weak memory, is decided by who explores a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from distxla.collectives.protocols.layout import Order, Word

Registers = Mapping[str, int]
Value = int | Callable[[Registers], int]
Place = tuple[str, int]  # a word, and of which instance (slot, member, message)

OK, ABORTED = 1, 2


@dataclass(frozen=True)
class Step:
    """One step of a process. kind: load, store, add, swap, fence, sleep, wake, jump, check, end."""

    kind: str
    place: Place = ("", 0)
    register: str = ""
    value: Value = 0
    order: Order = Order.PLAIN
    target: int = -1
    tag: str = ""


@dataclass
class Process:
    """The steps of one process. tag: of the steps that are written while it is set, for mutants."""

    name: str
    steps: list[Step] = field(default_factory=list)
    tag: str = ""

    def _add(self, kind: str, **fields: object) -> None:
        self.steps.append(Step(kind, tag=self.tag, **fields))  # type: ignore[arg-type]

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Name the steps of the with-body."""
        kept, self.tag = self.tag, tag
        yield
        self.tag = kept

    def load(self, register: str, word: Word, at: int = 0) -> None:
        """Read a word, with acquire order if it publishes."""
        self._add("load", place=_place(word, at), register=register, order=word.order)

    def store(self, word: Word, value: Value, at: int = 0) -> None:
        """Write a word as declared; one that is updated by several is reset plainly."""
        order = Order.PLAIN if word.order is Order.UPDATED else word.order
        self._add("store", place=_place(word, at), value=value, order=order)

    def data(self, name: str, value: Value, at: int = 0) -> None:
        """Write memory that is no shared word: operands, results, payloads."""
        self._add("store", place=(name, at), value=value)

    def read(self, register: str, name: str, at: int = 0) -> None:
        """Read such memory."""
        self._add("load", place=(name, at), register=register)

    def add(self, register: str, word: Word, amount: int, at: int = 0) -> None:
        """Add to a word, a full fence; the value before."""
        self._add("add", place=_place(word, at), register=register, value=amount, order=word.order)

    def swap(self, register: str, word: Word, value: Value, at: int = 0) -> None:
        """Exchange a word, a full fence; the value before."""
        self._add("swap", place=_place(word, at), register=register, value=value, order=word.order)

    def fence(self) -> None:
        """A full fence."""
        self._add("fence")

    def sleep(self, word: Word, value: Value, at: int = 0) -> None:
        """A full fence; sleep if the word has this value."""
        self._add("sleep", place=_place(word, at), value=value)

    def wake(self, word: Word, at: int = 0) -> None:
        """Wake all who sleep there."""
        self._add("wake", place=_place(word, at))

    def check(self, holds: Callable[[Registers], int], tag: str) -> None:
        """What must hold here."""
        with self.tagged(tag):
            self._add("check", value=holds)

    def end(self, status: int) -> None:
        """Leave the protocol."""
        self._add("end", value=status)

    @contextmanager
    def when(self, holds: Callable[[Registers], int]) -> Iterator[None]:
        """The with-body runs where this holds."""
        at = len(self.steps)
        self._add("jump")
        yield
        self.steps[at] = Step("jump", value=lambda r: not holds(r), target=len(self.steps), tag=self.steps[at].tag)

    @contextmanager
    def forever(self) -> Iterator[Loop]:
        """The with-body again and again, until `leave`."""
        loop = Loop(self, len(self.steps), [])
        yield loop
        self._add("jump", value=1, target=loop.begin)
        for at, holds in loop.leaves:
            self.steps[at] = Step("jump", value=holds, target=len(self.steps), tag=self.steps[at].tag)


@dataclass
class Loop:
    """A loop that is being written."""

    process: Process
    begin: int
    leaves: list[tuple[int, Callable[[Registers], int]]]

    def leave(self, holds: Callable[[Registers], int]) -> None:
        """Go on behind the loop where this holds."""
        self.leaves.append((len(self.process.steps), holds))
        self.process._add("jump")


def _place(word: Word, at: int) -> Place:
    return f"{word.area.name}: {word.name}", at
