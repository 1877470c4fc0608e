"""Where every array of a program lives, and the steps that the program executes over those places.

`plan` turns a scheduled module into a list of steps (kernels, copies, communication, loops, branches) whose operands
and results are `Buffer`s. Tuples exist at compile time only: a tuple is the list of its leaves' buffers.

A buffer is in the caller's memory (parameters, results), among the image's constants, or in the arena, where buffers
that are never alive together share bytes.

A collective's result that is the same for all members needs to exist once for each group. Such a buffer has a place in
an arena that the group's members share, and one in the device's own. Why a round may write to the shared one: each
member posts the offset of the shared arena at which it takes the result, and the lifetimes ensure that the bytes there
hold nothing any more that this member still reads, from the round's begin on. The round writes there only if all
members posted the same offset, and only after all have arrived; so the overwritten bytes are dead for every member,
whichever instruction, iteration or program each of them is in. Otherwise each member gets its own copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import accumulate

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.support.liveness import Values
from distxla.program.abi import ALIGNMENT
from distxla.program.artifact import SharedArena
from distxla.program.options import InPlace


class MemoryRegion(Enum):
    """The memory that a buffer is in."""

    PARAMETER = "parameter"  # number: leaf of the entry's parameters; never written
    RESULT = "result"  # number: leaf of the entry's result
    CONSTANT = "constant"  # number: index in Plan.constants; never written, not in device memory
    ARENA = "arena"  # number: offset in bytes
    SHARED = "shared"  # number: offset in the arena, used where `shared_number` in the shared arena can't be; never
    # overwritten in place
    NONE = "none"  # a token: no memory


@dataclass(eq=False, slots=True)
class Buffer:
    """One array's memory.

    size: bytes.  owner: name of the instruction that first writes it.  start, end: first and last step, inclusive, at
    which the bytes matter; loops count as a stretch of steps.  shared_arena, shared_number: of MemoryRegion.SHARED, the
    number of the shared arena and the offset in it.  swaps: a loop exchanges its place with another buffer's, both in
    the arena, so that it is known at run time only.
    """

    size: int
    region: MemoryRegion = MemoryRegion.ARENA
    number: int = 0
    owner: str = ""
    start: int = -1
    end: int = -1
    shared_arena: int = -1
    shared_number: int = 0
    swaps: bool = False

    @property
    def is_writable(self) -> bool:
        return self.region in (MemoryRegion.ARENA, MemoryRegion.RESULT)

    def __str__(self) -> str:
        if self.region is MemoryRegion.NONE:
            return "-"
        if self.region is MemoryRegion.ARENA:
            return f"arena[{self.number}:{self.number + self.size}]"
        if self.region is MemoryRegion.SHARED:
            return f"shared{self.shared_arena}[{self.shared_number}:{self.shared_number + self.size}]"
        return f"{self.region.value}[{self.number}]"


TOKEN = Buffer(0, MemoryRegion.NONE)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Call the kernel function of an instruction; one buffer a leaf of the operands and of the result.

    same_places: (leaf of the operands, leaf of the result), of those with data, that the caller may have given one
    place: the kernel reads each element where it writes it (plan/same_places.py).
    """

    computation: Computation
    instruction: Instruction
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    same_places: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy `source` to `target`, of equal sizes, which don't overlap; for the sake of `instruction`.

    on_device: within the memory of kernels that have one of their own (plan/transfers.py).
    """

    instruction: Instruction
    source: Buffer
    target: Buffer
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copy a buffer from the host's memory to the same place in the kernels' own, or back (plan/transfers.py)."""

    instruction: Instruction
    buffer: Buffer
    to_device: bool


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange the places of two buffers of equal sizes in the arena; for the sake of `instruction`."""

    instruction: Instruction
    first: Buffer
    second: Buffer


@dataclass(frozen=True, slots=True)
class Communicate:
    """Call the context's routine for a site; all buffers are in device memory.

    on_device: the arrays are in the memory of kernels that have one of their own (plan/transfers.py).
    """

    computation: Computation
    instruction: Instruction
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    on_device: bool = False

    @property
    def operand_leaves(self) -> tuple[Shape, ...]:
        """The shapes of the instruction's operand leaves."""
        operands = self.computation.operands(self.instruction)
        return tuple(leaf for operand in operands for leaf in operand.shape.leaves())


@dataclass(frozen=True, slots=True)
class Loop:
    """Execute `condition`; while the byte in `predicate` is not 0, execute `body` and begin again."""

    instruction: Instruction
    condition: tuple[PlanStep, ...]
    predicate: Buffer
    body: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Execute one of `branches`: by a predicate the first if it holds, else the second; by an s32 index the one of
    that number, the last one if there is none."""

    instruction: Instruction
    selector: Buffer
    by_predicate: bool
    branches: tuple[tuple[PlanStep, ...], ...]


@dataclass(frozen=True, slots=True)
class Invoke:
    """Execute the steps of a routine of the plan, by its number. communicates: whether one of them does."""

    instruction: Instruction
    routine: int
    communicates: bool


PlanStep = Kernel | Copy | Transfer | Swap | Communicate | Loop | Branch | Invoke


@dataclass(eq=False, slots=True)
class Routine:
    """A computation that is executed from several places. Its buffers have a part of the arena that no other step uses
    while it runs: callers copy arguments to `parameters` and results from `results`.

    arena_bytes: of that part, which begins at `base`.  calls: numbers of the routines that it executes.
    """

    name: str
    parameters: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    steps: tuple[PlanStep, ...]
    buffers: tuple[Buffer, ...]
    arena_bytes: int
    calls: tuple[int, ...]
    base: int = 0


@dataclass(frozen=True)
class Plan:
    """The entry's steps. arena_bytes: without the kernels' scratch memory, a multiple of the alignment.  shared: the
    arenas that members of groups share.  routines: called ones before their callers.  in_place: (result leaf, parameter
    leaf) that may have the same memory in a call.  copied: the results of these that begin as a copy of the parameter,
    where both have places of their own."""

    steps: tuple[PlanStep, ...]
    constants: tuple[Literal, ...]
    arena_bytes: int
    buffers: tuple[Buffer, ...] = field(repr=False)
    shared: tuple[SharedArena, ...] = ()
    routines: tuple[Routine, ...] = ()
    in_place: InPlace = ()
    copied: tuple[int, ...] = ()

    def walk(self) -> Iterator[PlanStep]:
        """All steps, those inside of loops and branches after the step that holds them; those of routines last."""
        pending = list(reversed((*self.steps, *(step for routine in self.routines for step in routine.steps))))
        while pending:
            step = pending.pop()
            yield step
            if isinstance(step, Loop):
                pending.extend(reversed((*step.condition, *step.body)))
            elif isinstance(step, Branch):
                pending.extend(inner for branch in reversed(step.branches) for inner in reversed(branch))

    def dump(self) -> str:
        """The plan as text: places, lifetimes, steps."""
        lines = [f"arena: {self.arena_bytes} bytes"]
        for number, arena in enumerate(self.shared):
            lines.append(f"shared{number}: {arena.bytes} bytes for each of {len(arena.groups)} group(s)")
        lines.append("")
        for number, literal in enumerate(self.constants):
            lines.append(f"constant[{number}]: {literal.shape}")
        placed = [b for b in self.buffers if b.region in (MemoryRegion.ARENA, MemoryRegion.SHARED)]
        for buffer in sorted(placed, key=lambda b: (b.start, b.number)):
            lines.append(f"{buffer!s:<28} steps {buffer.start:>4} to {buffer.end:>4}  {buffer.owner}")
        lines.append("")
        lines.extend(_dump_steps(self.steps, ""))
        for number, routine in enumerate(self.routines):
            lines += [
                "",
                f"routine {number}: {routine.name}, arena[{routine.base}:{routine.base + routine.arena_bytes}]",
            ]
            lines.extend(_dump_steps(routine.steps, "  "))
        return "\n".join(lines) + "\n"


def shares(buffers: Iterable[Buffer]) -> bool:
    """Whether one of them may exist once for all members of a group."""
    return any(buffer.region is MemoryRegion.SHARED for buffer in buffers)


def _dump_steps(steps: tuple[PlanStep, ...], indent: str) -> Iterator[str]:
    for step in steps:
        name = step.instruction.name
        if isinstance(step, Loop):
            yield f"{indent}loop {name}"
            yield from _dump_steps(step.condition, indent + "  ")
            yield f"{indent}  while {step.predicate}"
            yield from _dump_steps(step.body, indent + "  ")
        elif isinstance(step, Branch):
            yield f"{indent}branch {name} on {step.selector}"
            for number, branch in enumerate(step.branches):
                yield f"{indent}  case {number}"
                yield from _dump_steps(branch, indent + "    ")
        elif isinstance(step, Invoke):
            yield f"{indent}routine {step.routine} for {name}"
        elif isinstance(step, Copy):
            place = "device copy" if step.on_device else "copy"
            yield f"{indent}{place} {step.target} <- {step.source}  for {name}"
        elif isinstance(step, Transfer):
            yield f"{indent}copy {step.buffer} to the {'device' if step.to_device else 'host'}  for {name}"
        elif isinstance(step, Swap):
            yield f"{indent}swap {step.first}, {step.second}  for {name}"
        else:
            kind = "kernel"
            if isinstance(step, Communicate):
                kind = "device communicate" if step.on_device else "communicate"
            results, operands = ", ".join(map(str, step.results)), ", ".join(map(str, step.operands))
            yield f"{indent}{kind} {name} ({step.instruction.opcode}): {results} <- {operands}"


def place_routines(routines: Sequence[Routine], entry_calls: Iterable[int], entry_bytes: int) -> int:
    """Give each routine its part of the arena, behind the parts of all its callers; returns the bytes of the whole
    arena. routines: callees before callers."""
    total = entry_bytes
    for number in entry_calls:
        routines[number].base = entry_bytes
    for routine in reversed(routines):
        end = routine.base + routine.arena_bytes
        total = max(total, end)
        for number in routine.calls:
            routines[number].base = max(routines[number].base, end)
    for routine in routines:
        for buffer in routine.buffers:
            buffer.number += routine.base
    return total


@dataclass
class SharedState:
    """State that the planners of the entry and of all routines share."""

    constants: list[Literal] = field(default_factory=list)
    by_literal: dict[Literal, Buffer] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)
    routines: list[Routine] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # of routines, by computation


def place(buffers: list[Buffer]) -> int:
    """Give buffers their offsets in the arena; returns its size. Buffers that are alive together don't overlap."""
    offsets, total = _offsets(buffers)
    for buffer, offset in zip(buffers, offsets, strict=True):
        buffer.number = offset
    return total


def place_shared(buffers: list[Buffer], groups: Sequence[tuple[tuple[int, ...], ...]]) -> tuple[SharedArena, ...]:
    """Give buffers of MemoryRegion.SHARED their offsets in the arenas of these groups, by `shared_arena`."""
    arenas = []
    for number, members in enumerate(groups):
        inside = [b for b in buffers if b.shared_arena == number]
        offsets, total = _offsets(inside)
        for buffer, offset in zip(inside, offsets, strict=True):
            buffer.shared_number = offset
        arenas.append(SharedArena(members, total))
    return tuple(arenas)


def _offsets(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Each buffer's offset, and the bytes that all of them need.

    First placed in the order of time, which is quick. Where that takes more than the bytes alive at once, they are
    placed with the largest first, which mostly takes no more.
    """
    sizes = [(buffer.size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT for buffer in buffers]
    in_time = _offsets_in_time(buffers, sizes)
    if in_time[1] == _alive_at_once(buffers, sizes):
        return in_time
    return min(in_time, _offsets_by_size(buffers, sizes), key=lambda found: found[1])


def _alive_at_once(buffers: Sequence[Buffer], sizes: Sequence[int]) -> int:
    """The most bytes at any step: no placing needs less."""
    events = [(b.start, size) for b, size in zip(buffers, sizes, strict=True)]
    events += [(b.end + 1, -size) for b, size in zip(buffers, sizes, strict=True)]
    return max(accumulate(size for _, size in sorted(events)), default=0)


def _offsets_by_size(buffers: Sequence[Buffer], sizes: Sequence[int]) -> tuple[list[int], int]:
    """The largest first: each takes the smallest hole that fits among those that are alive together with it."""
    found = [0] * len(buffers)
    total = 0
    order = sorted((k for k, size in enumerate(sizes) if size), key=lambda k: (-sizes[k], buffers[k].start))
    start, end = (np.array([getattr(buffers[k], name) for k in order], np.int64) for name in ("start", "end"))
    low, high = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    for number, k in enumerate(order):
        meets = (start[:number] <= end[number]) & (end[:number] >= start[number])
        above, best = 0, None
        for bottom, top in sorted(zip(low[:number][meets].tolist(), high[:number][meets].tolist(), strict=True)):
            if bottom - above >= sizes[k] and (best is None or bottom - above < best[0]):
                best = bottom - above, above
            above = max(above, top)
        found[k] = above if best is None else best[1]
        low[number], high[number] = found[k], found[k] + sizes[k]
        total = max(total, found[k] + sizes[k])
    return found, total


def _offsets_in_time(buffers: Sequence[Buffer], sizes: Sequence[int]) -> tuple[list[int], int]:
    """A sweep over time with a list of holes: each buffer takes the smallest hole that fits, or extends the arena."""
    holes: list[tuple[int, int]] = []  # (offset, size), by offset, never adjacent
    active: list[tuple[int, int, int]] = []  # (end, offset, size)
    found = [0] * len(buffers)
    total = 0
    for number, buffer in sorted(enumerate(buffers), key=lambda b: (b[1].start, -b[1].size)):
        size = sizes[number]
        if not size:
            continue
        ended = [a for a in active if a[0] < buffer.start]
        if ended:
            active = [a for a in active if a[0] >= buffer.start]
            holes = _joined(holes + [(offset, length) for _, offset, length in ended])
        fitting = min(((length, offset) for offset, length in holes if length >= size), default=None)
        if fitting is not None:
            length, offset = fitting
            holes.remove((offset, length))
            if length > size:
                holes = _joined([*holes, (offset + size, length - size)])
        elif holes and holes[-1][0] + holes[-1][1] == total:
            offset, _ = holes.pop()  # grow the last hole
            total = offset + size
        else:
            offset, total = total, total + size
        found[number] = offset
        active.append((buffer.end, offset, size))
    return found, total


def _joined(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for offset, size in sorted(holes):
        if joined and joined[-1][0] + joined[-1][1] == offset:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((offset, size))
    return joined
