"""How many bytes a computation needs while its instructions run in a given order.

The model of `compiler/plan/planner.py`, for one computation at a time and any order of it, without offsets. Values are
those of `ops/support/liveness.py`: tuples, their elements, views and values that a loop passes on are other names for
the same bytes. A value takes a place when it is computed and keeps it until its last reader has run. It takes over the
place of an operand that is read for the last time there, if its op says so. Nothing is counted here for parameters and
constants, which are never freed, nor for values that are computed straight into memory of the caller: the entry's
results, the state of a loop. Memory that a loop or a conditional needs inside is counted while it runs. Sizes are
rounded up as in the arena, so the peak is the arena's size if places always fitted into one another: mostly its size,
and where not, less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import cast

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.support.liveness import Value, Values, analyse, is_alias, overwritable

ALIGNMENT = 64  # of the arena
SHARED_BYTES = 4096  # from here on members share a result that is the same for all, and overwrite nothing for it
SWAPPED_BYTES = 4096  # from here on a loop's new and old state exchange their places instead of being copied

# A place that is not counted: in the caller's memory.
OUTSIDE = -1


class Role(Enum):
    """The caller of a computation, and so where its result has to be."""

    ENTRY = "entry"
    BODY = "body"
    CONDITION = "condition"
    BRANCH = "branch"


@dataclass(slots=True)
class BufferPlace:
    """Bytes that a value needs, and those that take it over. start, end: positions in the order, inclusive; an `end`
    behind the last one is the computation's end."""

    owner: str
    size: int
    start: int
    end: int


@dataclass(frozen=True)
class Profile:
    """The memory of a computation in one order, in bytes, by position in it.

    running: bytes in use while the instruction there runs.  inside: of these, the bytes that the computations need that
    it calls.  added: taken by its results before it.  freed: given back when it is over.  places: all, by `start`.
    """

    running: tuple[int, ...]
    inside: tuple[int, ...]
    added: tuple[int, ...]
    freed: tuple[int, ...]
    places: tuple[BufferPlace, ...]

    @property
    def peak(self) -> int:
        return max(self.running, default=0)

    @property
    def peak_position(self) -> int:
        """The first position of the peak."""
        return self.running.index(self.peak)

    def at(self, position: int) -> list[BufferPlace]:
        """The places in use while the instruction there runs, the largest first."""
        held = [p for p in self.places if p.size and p.start <= position <= p.end]
        return sorted(held, key=lambda p: -p.size)


class ModuleMemory:
    """The memory of a module's computations; `settle` them in the module's order, called ones first."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.roles = _roles(module)
        self.profiles: dict[str, Profile] = {}
        self.swapped: dict[str, frozenset[int]] = {}  # of settled bodies, leaves of the state that need two places
        self._values: dict[str, Values] = {}

    def values(self, name: str) -> Values:
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = analyse(self.module, self.module[name], self.values)
        return found

    def of(self, computation: Computation) -> ComputationMemory:
        """The memory of a computation that the entry runs; the computations that it calls must be settled."""
        return ComputationMemory(self, computation, self.roles[computation.name])

    def settle(self, memory: ComputationMemory, order: Sequence[int]) -> None:
        """Decide on the order of a computation, by positions in its text."""
        name = memory.computation.name
        self.profiles[name] = memory.profile(order)
        self.swapped[name] = memory.swapped(order)

    def peak_inside(self, instruction: Instruction) -> int:
        """The bytes that the computations need that a control instruction runs, one at a time."""
        return max((self.profiles[name].peak for name in instruction.op.called_computations), default=0)


def _roles(module: Module) -> dict[str, Role]:
    """The computations that the entry runs as a whole: itself, and those that control instructions call."""
    roles = {module.entry: Role.ENTRY}
    pending = [module.entry]
    while pending:
        for instruction in module[pending.pop()]:
            op = instruction.op
            if op.lowering is not Lowering.CONTROL:
                continue
            for name in op.called_computations:
                role = Role.BRANCH
                if op.role.is_loop:
                    role = Role.BODY if name == op.loop_body else Role.CONDITION
                if name not in roles:
                    roles[name] = role
                    pending.append(name)
    return roles


@dataclass
class ComputationMemory:
    """The properties that are the same in every order. Instructions are numbered by their position in the text.

    runs: whether an instruction runs code of its own.  reads, makes: the values that it reads and computes.  size: by
    value.  takes: by value, the operand's value whose place it takes over if it is the last to read it.  maker: by
    value, the instruction.  inside: by instruction, bytes that the computations need that it calls.
    """

    module: ModuleMemory
    computation: Computation
    role: Role
    runs: list[bool] = field(init=False, default_factory=list)
    reads: list[tuple[int, ...]] = field(init=False, default_factory=list)
    makes: list[tuple[int, ...]] = field(init=False, default_factory=list)
    size: list[int] = field(init=False, default_factory=list)
    takes: dict[int, int] = field(init=False, default_factory=dict)
    maker: dict[int, int] = field(init=False, default_factory=dict)
    inside: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        values = self._known = self.module.values(self.computation.name)
        self.size = [rounded(i.shape.leaf(leaf).byte_size) for i, leaf in values.producer]
        self._constants = {v for v, (i, _) in enumerate(values.producer) if i.op.role.is_constant}
        self._names = [i.name for i, _ in values.producer]
        self._copied_from: dict[int, set[int]] = {}  # by loop, initial values that are copied into its state
        self._shared: set[int] = set()  # results that members of a group have in common, unless they are overwritten
        self._grouped: set[int] = set()  # results of collectives, which need no copy of what they don't overwrite
        self._two_places: set[int] = set()  # loop states whose old and new value are needed at the same time
        copied: dict[str, list[int]] = {}
        for number, instruction in enumerate(self.computation):
            op = instruction.op
            constant = op.role.is_constant
            runs = not (op.role.is_parameter or constant or is_alias(self.computation, instruction))
            self.runs.append(runs)
            self.inside.append(self.module.peak_inside(instruction) if op.lowering is Lowering.CONTROL else 0)
            self.reads.append(())
            self.makes.append(())
            if not runs:
                continue
            read = list(dict.fromkeys(v for v in values.operands(instruction) if v is not None))
            made = self._made(instruction, number)
            if op.lowering in (Lowering.COMMUNICATION, Lowering.HOST):
                copies = [self._copy(v, instruction, number) for v in read if v in self._constants]
                made.extend(copies)
                (copied.setdefault(instruction.name, []) if op.start_done.starts_pair else read).extend(copies)
                if op.start_done.completes:
                    read.extend(copied.get(instruction.operands[0], ()))
            self.reads[number], self.makes[number] = tuple(read), tuple(made)

    def _made(self, instruction: Instruction, number: int) -> list[int]:
        """The values that an instruction computes: those of its leaves that are no other name for something."""
        op, values, found = instruction.op, self._known, []
        swapped: frozenset[int] = frozenset()
        if op.loop_body is not None:
            swapped = self.module.swapped.get(op.loop_body, swapped)
            kept, initial = self.module.values(op.loop_body).invariant, values.operands(instruction)
            passed_on = {initial[k] for k in kept}
            self._copied_from[number] = {v for v in initial if v is not None and v not in passed_on}
        for leaf, value in enumerate(values.leaves[instruction.name]):
            if value is None or values.producer[value] != (instruction, leaf):
                continue
            found.append(value)
            self.maker[value] = number
            if leaf in swapped:
                self._two_places.add(value)
            if op.round.same_for_all and self.size[value] >= SHARED_BYTES:
                self._shared.add(value)
            if op.round.has_groups:
                self._grouped.add(value)
            source = overwritable(values, instruction, leaf)
            if source is not None:
                self.takes[value] = source
        return found

    def _copy(self, constant: int, instruction: Instruction, number: int) -> int:
        """A constant that others read is copied to memory that they see."""
        value = len(self.size)
        self.size.append(self.size[constant])
        self._names.append(instruction.name)
        self.maker[value] = number
        return value

    @property
    def results(self) -> frozenset[int]:
        """The values that the caller gets."""
        return frozenset(value for value in self._known.root if value is not None)

    def made_of(self, number: int) -> frozenset[int]:
        """The values of an instruction's result, its operands' among them where it is another name for them."""
        leaves = self._known.leaves[self.computation.instructions[number].name]
        return frozenset(value for value in leaves if value is not None)

    # --- in an order ------------------------------------------------------------------------------------------------

    def profile(self, order: Sequence[int]) -> Profile:
        """The memory in this order of the instructions."""
        length = len(order)
        places, gone = self._places(order)
        added, freed = [0] * length, [0] * (length + 1)
        for place in places:
            added[place.start] += place.size
            freed[min(place.end, length)] += place.size
        inside = [self.inside[i] for i in order]
        running, live = [], 0
        for position in range(length):
            live += added[position]
            running.append(max(live, live - gone.get(position, 0) + inside[position]))
            live -= freed[position]
        return Profile(tuple(running), tuple(inside), tuple(added), tuple(freed[:length]), tuple(places))

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes that are in use at a time."""
        return self.profile(order).peak

    def swapped(self, order: Sequence[int]) -> frozenset[int]:
        """Of a loop's body: leaves of the state whose new value is computed while the old one is still read."""
        return frozenset(self._swapped(*self._positions(order)))

    def _swapped(self, position: Sequence[int], last: Sequence[int]) -> Iterator[int]:
        values = self._known
        if self.role is not Role.BODY:
            return
        for leaf, (value, occupant) in enumerate(zip(values.root, values.parameters[0], strict=True)):
            if value is None or occupant is None or value not in self.maker or values.root_counts[value] > 1:
                continue
            made = position[self.maker[value]]
            in_place = self.takes.get(value) == occupant and last[occupant] == made
            if self.size[value] >= SWAPPED_BYTES and last[occupant] >= made and not in_place:
                yield leaf

    def _positions(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """By instruction its position; by value the position of its last reader, the order's length for results."""
        position, last = [0] * len(order), [-1] * len(self.size)
        for place, number in enumerate(order):
            position[number] = place
            for value in self.reads[number]:
                last[value] = place
        for result in self.results:
            last[result] = len(order)
        return position, last

    def _places(self, order: Sequence[int]) -> tuple[list[BufferPlace], dict[int, int]]:
        """All places; and, by the position of a loop, the bytes of initial values that it only reads at its start."""
        position, last = self._positions(order)
        outside, taken = self._outside(position, last)
        shared = self._shared - {
            source
            for value, source in self.takes.items()
            if last[source] == position[self.maker[value]] and value not in self._grouped
        }
        place_of: dict[int, int] = {}
        found: list[BufferPlace] = []
        gone: dict[int, int] = {}

        def new(value: int, start: int) -> int:
            found.append(BufferPlace(self._names[value], self.size[value], start, start))
            return len(found) - 1

        for now, number in enumerate(order):
            for value in self.makes[number]:
                source = self.takes.get(value)
                if value in outside:
                    place_of[value] = OUTSIDE
                elif (
                    source is not None
                    and last[source] == now
                    and shared.isdisjoint((value, source))
                    and self._may_take(source, outside, taken)
                ):
                    place_of[value] = place_of.get(source, OUTSIDE)
                else:
                    place_of[value] = new(value, now)
                held = place_of[value]
                if held != OUTSIDE:
                    found[held].end = max(found[held].end, last[value])
                if value in self._two_places:
                    second = found[new(value, now if held == OUTSIDE else found[held].start)]
                    second.end = max(now, last[value])
            if number in self._copied_from:
                held_on = {place_of[value] for value in self.makes[number]}
                copied = {place_of.get(value, OUTSIDE) for value in self._copied_from[number]} - held_on - {OUTSIDE}
                gone[now] = sum(found[place].size for place in copied if found[place].end == now)
        return sorted(found, key=lambda place: place.start), gone

    def _may_take(self, source: int, outside: set[int], taken: set[int]) -> bool:
        """Whether a value may be computed in the place of `source`, since that is this computation's to overwrite."""
        if source in self.maker:
            return source not in outside
        return self.role is Role.BODY and source not in self._constants | taken | self._invariant()

    def _invariant(self) -> set[int]:
        given = self._known.parameters[0]
        return {v for k in self._known.invariant if (v := given[k]) is not None}

    def _outside(self, position: Sequence[int], last: Sequence[int]) -> tuple[set[int], set[int]]:
        """The values that are computed where the caller needs a result, and, of a loop's body, the leaves of the old
        state whose places are kept for that."""
        outside: set[int] = set()
        taken: set[int] = set()
        if self.role is Role.CONDITION:
            return outside, taken
        for value, occupant in self._targets():
            if self._put_outside(value, occupant, position, last, outside) and occupant is not None:
                taken.add(occupant)
        if self.role is Role.ENTRY:
            outside -= self._two_places
        for leaf in self._swapped(position, last):  # counted with the loop
            outside.add(cast(int, self._known.root[leaf]))
        return outside, taken

    def _targets(self) -> Iterator[tuple[int, Value]]:
        """The results, and for each the value that is in its place at the start."""
        values = self._known
        occupants: Sequence[Value] = values.parameters[0] if self.role is Role.BODY else (None,) * len(values.root)
        for value, occupant in zip(values.root, occupants, strict=True):
            if value is not None:
                yield value, occupant

    def _put_outside(
        self, value: int, occupant: Value, position: Sequence[int], last: Sequence[int], outside: set[int]
    ) -> bool:
        """Let a result, and the operand that it overwrites, be computed in the result's place, if no reader is left."""
        found = False
        while value in self.maker and value not in outside:
            made = position[self.maker[value]]
            source = self.takes.get(value)
            if source is not None and last[source] != made:
                source = None
            if occupant is not None and last[occupant] >= made and source != occupant:
                break
            outside.add(value)
            found = True
            if source is None or source == occupant:
                break
            value = source
        return found


def rounded(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


__all__ = ["BufferPlace", "ComputationMemory", "ModuleMemory", "Profile", "Role"]
