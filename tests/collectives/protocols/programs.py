"""Programs over shared words, prepared for exploration: numbered places and registers, and what may still come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from distxla.collectives.protocols.layout import Order
from tests.collectives.protocols.models.machine import ALWAYS, NEVER, NOTHING, Condition, ModelStep, Place, Process

UNREACHED = ModelStep("end")
JUMPS = frozenset({"jump", "check", "assign", "increment", "end"})  # steps that touch registers only
RELATIONS = {"==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, ">=": int.__ge__}


@dataclass(frozen=True, slots=True)
class Ready:
    """A step whose place, registers and values are numbers; see machine.ModelStep.

    at: the place.  value_register: the register that holds the value, -1 where `value` does.
    """

    kind: str
    place: Place
    tag: str
    order: Order
    at: int
    register_number: int
    value: int
    value_register: int
    left: int
    relation: str
    right: int
    right_register: int
    target: int

    def holds(self, registers: tuple[int, ...]) -> bool:
        if not self.relation:
            return True
        right = self.right if self.right_register < 0 else registers[self.right_register]
        return bool(RELATIONS[self.relation](registers[self.left], right))


@dataclass(frozen=True, slots=True)
class Future:
    """What a process may still do from a step on: sets of places, as bits; fences: 1 if there is any full fence."""

    loads: int = 0
    writes: int = 0
    newest: int = 0
    fences: int = 0

    def joined(self, other: Future) -> Future:
        return Future(
            self.loads | other.loads,
            self.writes | other.writes,
            self.newest | other.newest,
            self.fences | other.fences,
        )


@dataclass
class Program:
    """The steps of a process, ready. start: its registers.  futures, live: by step; live: registers read later."""

    steps: list[Ready]
    start: tuple[int, ...]
    futures: list[Future] = field(default_factory=list)
    live: list[tuple[bool, ...]] = field(default_factory=list)
    known: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)

    def kept(self, pc: int, registers: tuple[int, ...]) -> tuple[int, ...]:
        """The registers that are still read; 0 in the places of others."""
        found = self.known.get((pc, registers))
        if found is None:
            found = tuple([value if live else 0 for value, live in zip(registers, self.live[pc], strict=True)])
            self.known[pc, registers] = found
        return found


def compiled(processes: Sequence[Process]) -> tuple[list[Program], list[Place]]:
    """The programs, and their places in order. Branches that the registers at the begin rule out are left out, and
    stores that nobody reads."""
    reachable = [_specialised(process) for process in processes]
    read = {s.place for steps in reachable for s in steps if s.kind in ("load", "add", "swap", "cas", "sleep", "await")}
    reachable = [[NOTHING if s.kind == "store" and s.place not in read else s for s in p] for p in reachable]
    titles = sorted({s.place for steps in reachable for s in steps if s.place[0]})
    programs = [_program(p, steps, titles) for p, steps in zip(processes, reachable, strict=True)]
    return programs, titles


def _specialised(process: Process) -> list[ModelStep]:
    """The steps with conditions on registers that never change decided; what is never reached does nothing."""
    written = {s.register for s in process.steps if s.register}
    steps = []
    for step in process.steps:
        if step.kind == "jump" and step.condition != ALWAYS and step.condition[0] not in written:
            left, relation, right = step.condition
            value = right if isinstance(right, int) else process.start.get(right, 0)
            if isinstance(right, int) or right not in written:
                taken = RELATIONS[relation](process.start.get(left, 0), value)
                step = replace(step, condition=ALWAYS if taken else NEVER)
        steps.append(step)
    reached: set[int] = set()
    todo = [0]
    while todo:
        at = todo.pop()
        if at not in reached:
            reached.add(at)
            todo += following(steps, at)
    return [step if at in reached else UNREACHED for at, step in enumerate(steps)]


def following(steps: Sequence[ModelStep], at: int) -> list[int]:
    """The steps that may come after one."""
    step = steps[at]
    if step.kind == "end":
        return []
    if step.kind != "jump":
        return [at + 1]
    if step.condition == ALWAYS:
        return [step.target]
    return [at + 1] if _is_never(step.condition) else [at + 1, step.target]


def _is_never(condition: Condition) -> bool:
    return condition == NEVER


def _program(process: Process, steps: Sequence[ModelStep], titles: Sequence[Place]) -> Program:
    used = {s.register for s in steps} | {s.condition[0] for s in steps} | set(process.start)
    used |= {v for s in steps for v in (s.value, s.condition[2]) if isinstance(v, str)}
    names = sorted(used - {"", "_"})
    numbers = {name: i for i, name in enumerate(names)}
    index = {place: i for i, place in enumerate(titles)}
    ready = [_ready(step, at, numbers, index) for at, step in enumerate(steps)]
    program = Program(ready, tuple(process.start.get(name, 0) for name in names))
    program.futures = _futures(steps, ready)
    program.live = _live(steps, ready, len(names))
    return program


def _ready(step: ModelStep, at: int, registers: dict[str, int], places: dict[Place, int]) -> Ready:
    left, relation, right = step.condition
    target = at + 1 if step.kind == "call" or _is_never(step.condition) else step.target
    return Ready(
        kind="jump" if step.kind == "call" else step.kind,
        place=step.place,
        tag=step.tag,
        order=step.order,
        at=places.get(step.place, -1),
        register_number=registers.get(step.register, -1),
        value=step.value if isinstance(step.value, int) else 0,
        value_register=registers[step.value] if isinstance(step.value, str) else -1,
        left=registers.get(left, -1),
        relation=relation if left or step.kind == "await" else "",
        right=right if isinstance(right, int) else 0,
        right_register=registers[right] if isinstance(right, str) and right else -1,
        target=target,
    )


def _own_future(step: Ready) -> Future:
    bit = 1 << step.at if step.at >= 0 else 0
    if step.kind in ("load", "await"):
        return Future(loads=bit, fences=int(step.order is Order.FENCED))
    if step.kind == "store":
        return Future(writes=bit, fences=int(step.order is Order.FENCED))
    if step.kind in ("add", "swap", "cas"):
        return Future(writes=bit, newest=bit, fences=1)
    if step.kind == "sleep":
        return Future(newest=bit, fences=1)
    return Future(fences=int(step.kind in ("fence", "nap")))


def _futures(steps: Sequence[ModelStep], ready: Sequence[Ready]) -> list[Future]:
    """By step what may come from it on; backwards until nothing changes."""
    found = [Future()] * len(steps)
    changed = True
    while changed:
        changed = False
        for at in reversed(range(len(steps))):
            future = _own_future(ready[at])
            for after in following(steps, at):
                future = future.joined(found[after])
            if future != found[at]:
                found[at], changed = future, True
    return found


def _live(steps: Sequence[ModelStep], ready: Sequence[Ready], count: int) -> list[tuple[bool, ...]]:
    """By step which registers are read from it on, before they are written."""
    found = [frozenset[int]()] * len(steps)
    changed = True
    while changed:
        changed = False
        for at in reversed(range(len(steps))):
            step = ready[at]
            after = frozenset[int]().union(*(found[next_] for next_ in following(steps, at)))
            used = {step.value_register, step.right_register, step.left if step.relation else -1} - {-1}
            live = (after - {step.register_number}) | used
            if live != found[at]:
                found[at], changed = live, True
    return [tuple(i in live for i in range(count)) for live in found]


def rotations(processes: Sequence[Process], titles: Sequence[Place]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each rotation of the members but the first: whose place each one takes, and from where each place comes.

    Instances of a word that has one for each member are turned with them. AssertionError where the programs differ.
    """
    count = len(processes)
    by_member = {name for name, _ in titles if {at for n, at in titles if n == name} == set(range(count))}

    def turned(place: Place, by: int) -> Place:
        return (place[0], (place[1] + by) % count) if place[0] in by_member else place

    read = set(titles)

    def compared(step: ModelStep) -> ModelStep:
        return ModelStep("store") if step.kind == "store" and step.place not in read else step

    first = [compared(s) for s in processes[0].steps]
    for who, process in enumerate(processes):
        own = [compared(replace(s, place=turned(s.place, -who))) for s in process.steps]
        assert own == first, f"{process.name} differs"
    index = {place: i for i, place in enumerate(titles)}
    return [
        (
            tuple((who + by) % count for who in range(count)),
            tuple(index[turned(place, by)] for place in titles),
        )
        for by in range(1, count)
    ]
