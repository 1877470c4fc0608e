"""Programs over shared words, for the models of the protocols: the accesses of a process, one after the other.

    with the words of group.py:    p.store(E_PHASE, 2)    p.load("now", E_PHASE)    p.add("arrived", E_ARRIVED, 1)

Every access has the order that its word declares (layout.py). Nothing but integers, names of registers and comparisons
of two of them: so a program can be explored, drawn, and compared with emitted code. The program that explores a model
decides which orders of accesses weak memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from distxla.collectives.protocols.layout import Order, Word
from distxla.lazy_dataclass import dataclass, field, replace

Value = int | str  # a number, or the register that holds it
Condition = tuple[str, str, Value]  # register, one of ==, !=, <, >=, value
Place = tuple[str, int]  # a word, and of which instance (slot, member, message)

OK, ABORTED, MISMATCH = 1, 2, 3
ALWAYS: Condition = ("", "==", "")
NEVER: Condition = ("", "!=", "")
NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}


@dataclass(frozen=True)
class ModelStep:
    """One step of a process.

    kind: load, store, add, swap, cas, fence, sleep, nap, await, wake, assign, increment, jump, check, end, call.
    word: None for memory that is no shared word.  tag: for mutants.  routine: the shared routine that the step belongs
    to ("wait", "work"), with its arguments.  again: a pass of a loop over members or leaves after the first.  depth:
    of branches and loops around it.  role: of a jump: when, else, leave, again, repeat; of a sleep: timed; of a fence:
    release; of an await: or, where the next step is another reason to go on.
    """

    kind: str
    place: Place = ("", 0)
    register: str = ""
    value: Value = 0
    order: Order = Order.PLAIN
    condition: Condition = ALWAYS
    target: int = -1
    word: Word | None = None
    tag: str = ""
    routine: str = ""
    again: bool = False
    depth: int = 0
    role: str = ""


NOTHING = ModelStep("jump", condition=NEVER)


@dataclass
class Process:
    """The steps of one process.

    start: registers that are not 0 at its begin; a branch that none of the starts takes is stated, but not explored.
    """

    name: str
    start: Mapping[str, int] = field(default_factory=dict)
    steps: list[ModelStep] = field(default_factory=list)
    tag: str = ""
    part_of: str = ""
    is_again: bool = False
    depth: int = 0
    last_when: int = -1

    def _add(self, kind: str, **fields: object) -> None:
        around = {"tag": self.tag, "routine": self.part_of, "again": self.is_again, "depth": self.depth}
        self.steps.append(ModelStep(kind, **around, **fields))  # type: ignore[arg-type]

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Name the steps of the with-body, within the names around it."""
        kept, self.tag = self.tag, f"{self.tag}/{tag}" if self.tag else tag
        yield
        self.tag = kept

    @contextmanager
    def routine(self, name: str, *words: Word) -> Iterator[None]:
        """The with-body is the part of a shared routine that uses these words."""
        kept = self.part_of
        self.part_of = self.part_of or " ".join([name, *(f"[{word.name}]" for word in words)])
        yield
        self.part_of = kept

    def each(self, numbers: Sequence[int]) -> Iterator[int]:
        """The body of a for-statement, for members or leaves: in the code it is a loop."""
        kept = self.is_again
        for place, number in enumerate(numbers):
            self.is_again = kept or place > 0
            yield number
        self.is_again = kept

    def assign(self, register: str, value: Value) -> None:
        """Set a register."""
        self._add("assign", register=register, value=value)

    def increment(self, register: str, other: str) -> None:
        """Set a register to another one plus 1."""
        self._add("increment", register=register, value=other)

    def load(self, register: str, word: Word, at: int = 0) -> None:
        """Read a word, with acquire order if it publishes."""
        order = Order.RELEASE if word.order.publishes else word.order
        self._add("load", place=_place(word, at), register=register, order=order, word=word)

    def load_in_race(self, register: str, word: Word, at: int = 0) -> None:
        """Read a word with seq_cst order."""
        self._add("load", place=_place(word, at), register=register, order=Order.FENCED, word=word)

    def store(self, word: Word, value: Value, at: int = 0) -> None:
        """Write a word as declared; one that is updated by several is reset plainly."""
        order = Order.PLAIN if word.order is Order.UPDATED else word.order
        self._add("store", place=_place(word, at), value=value, order=order, word=word)

    def store_in_race(self, word: Word, value: Value, at: int = 0) -> None:
        """Write a word with seq_cst order, which is stronger than declared."""
        self._add("store", place=_place(word, at), value=value, order=Order.FENCED, word=word)

    def load_own(self, register: str, word: Word, at: int = 0) -> None:
        """Read a word plainly: this process is its only writer."""
        self._add("load", place=_place(word, at), register=register, order=Order.PLAIN, word=word)

    def data(self, name: str, value: Value, at: int = 0) -> None:
        """Write memory that is no shared word: operands, results, payloads."""
        self._add("store", place=(name, at), value=value)

    def read(self, register: str, name: str, at: int = 0) -> None:
        """Read such memory."""
        self._add("load", place=(name, at), register=register)

    def add(self, register: str, word: Word, amount: int, at: int = 0) -> None:
        """Add to a word, a full fence; the value before."""
        self._add("add", place=_place(word, at), register=register, value=amount, order=word.order, word=word)

    def swap(self, register: str, word: Word, value: Value, at: int = 0) -> None:
        """Exchange a word, a full fence; the value before."""
        self._add("swap", place=_place(word, at), register=register, value=value, order=word.order, word=word)

    def compare_and_swap(self, register: str, word: Word, expected: Value, value: Value, at: int = 0) -> None:
        """Set a word if it has the expected value, a full fence; 1 if it had, else 0."""
        condition = ("", "==", expected)
        place = _place(word, at)
        self._add("cas", place=place, register=register, value=value, order=word.order, condition=condition, word=word)

    def fence(self, *, acquire: bool = False, release: bool = False) -> None:
        """A full fence. acquire, release: the code has only such a one, which the exploration takes for a full one."""
        self._add("fence", order=Order.RELEASE if acquire or release else Order.FENCED, role="release" * release)

    def sleep(self, word: Word, value: Value, at: int = 0, *, timed: bool = False) -> None:
        """A full fence; sleep if the word has this value. timed: it has a time limit, which is never reached here."""
        role = "timed" if timed else ""
        self._add("sleep", place=_place(word, at), value=value, order=word.order, word=word, role=role)

    def nap(self, word: Word, value: Value, at: int = 0) -> None:
        """Sleep with a time limit: it may return at any time, so it needs no wake."""
        self._add("nap", place=_place(word, at), value=value, order=word.order, word=word)

    def await_any(self, *reasons: tuple[Word, str, Value, int]) -> None:
        """Go on once one of these holds: a word, how it compares with a value, its instance. Stands for a loop that
        looks again and again; only explore_deaths.py knows it."""
        for number, (word, relation, value, at) in enumerate(reasons):
            role = "or" if number + 1 < len(reasons) else ""
            condition = ("", relation, value)
            self._add("await", place=_place(word, at), order=word.order, condition=condition, word=word, role=role)

    def wake(self, word: Word, at: int = 0) -> None:
        """Wake all processes that sleep there. Models take it for no fence."""
        self._add("wake", place=_place(word, at), word=word)

    def call(self, routine: str) -> None:
        """A shared routine that the model leaves out; it changes no word of it."""
        with self.routine(routine):
            self._add("call")

    def check(self, register: str, value: Value, tag: str) -> None:
        """What must hold here: the register has this value. tag: a name of the condition."""
        self.steps.append(ModelStep("check", condition=(register, "==", value), tag=tag, routine=self.part_of))

    def end(self, status: int = OK) -> None:
        """Leave the protocol."""
        self._add("end", value=status)

    @contextmanager
    def when(self, register: str, relation: str, value: Value) -> Iterator[None]:
        """The with-body runs where this holds."""
        at = len(self.steps)
        self._add("jump", condition=(register, NEGATED[relation], value), role="when")
        self.depth += 1
        yield
        self.depth -= 1
        self._aim(at)
        self.last_when = at

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The with-body runs where the condition of the `when` just before does not hold."""
        at = len(self.steps)
        assert self.steps[self.last_when].target == at, "`otherwise` must follow its `when` directly"
        self._add("jump", role="else")
        self._aim(self.last_when)
        self.depth += 1
        yield
        self.depth -= 1
        self._aim(at)

    @contextmanager
    def block(self) -> Iterator[Loop]:
        """The with-body once, until `leave`."""
        block = Loop(self, len(self.steps), [])
        yield block
        for at in block.leaves:
            self._aim(at)

    @contextmanager
    def forever(self) -> Iterator[Loop]:
        """The with-body again and again, until `leave`."""
        self._add("jump", condition=NEVER, role="repeat")
        self.depth += 1
        loop = Loop(self, len(self.steps), [])
        yield loop
        self._add("jump", target=loop.begin, role="again")
        self.depth -= 1
        for at in loop.leaves:
            self._aim(at)

    def _aim(self, at: int) -> None:
        """Let a jump lead to the next step."""
        self.steps[at] = replace(self.steps[at], target=len(self.steps))


@dataclass
class Loop:
    """A loop or a block that is being written."""

    process: Process
    begin: int
    leaves: list[int]

    def leave(self, register: str, relation: str, value: Value) -> None:
        """Go on behind it where this holds."""
        self.leaves.append(len(self.process.steps))
        self.process._add("jump", condition=(register, relation, value), role="leave")


def title(word: Word) -> str:
    """How programs call a word: its area and its name."""
    return f"{word.area.name}: {word.name}"


def _place(word: Word, at: int) -> Place:
    return title(word), at
