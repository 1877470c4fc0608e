"""Every execution of a few processes over shared words, weak memory included (collectives/protocols/machine.py).

Memory is that of release and acquire with views: a word has the values that were stored in it, in order, and a process
a view, the oldest value of each word that it may still read. A plain load reads any value from there on. A release
store carries its writer's view along, an acquire load takes it over. Updates, and the kernel's comparison in
FUTEX_WAIT, read the newest value. Full fences (updates and FUTEX_WAIT, too) share one view, each with all before.

So stores may be seen late and in another order, and loads may be early, as far as the declared orders allow. A store
is never seen before the loads that precede it in its program (load buffering).

Plain stores, and steps that touch registers only, follow the step before at once: the values that were there before
may still be read, so no execution is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from distxla.collectives.protocols.layout import Order
from distxla.collectives.protocols.machine import Process, Step

T = TypeVar("T")
RUNS, ASLEEP, ENDED, KILLED = range(4)
View = tuple[int, ...]
Message = tuple[int, View | None]  # a value, and what its writer had seen where the store was a release


class State(NamedTuple):
    """pcs: of each process its next step.  modes: RUNS, ..; places: the word on which each sleeps, -1 for none."""

    pcs: tuple[int, ...]
    modes: tuple[int, ...]
    places: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    views: tuple[View, ...]
    fenced: View
    memory: tuple[tuple[Message, ...], ...]


@dataclass(frozen=True)
class Found:
    """What an exploration has seen. problem: the first wrong execution's, or nothing."""

    states: int
    problem: str


class Wrong(Exception):
    """An execution does what it must not."""


class _Explorer:
    def __init__(self, processes: Sequence[Process], kills: bool) -> None:
        self.processes, self.kills = processes, kills
        places = sorted({s.place for p in processes for s in p.steps if s.place[0]})
        self.index = {place: i for i, place in enumerate(places)}
        self.names = [sorted({s.register for s in p.steps if s.register}) for p in processes]
        self.steps = [tuple(p.steps) for p in processes]

    def start(self) -> State:
        count, width = len(self.processes), len(self.index)
        zero = (0,) * width
        state = State(
            (0,) * count,
            (RUNS,) * count,
            (-1,) * count,
            tuple((0,) * len(names) for names in self.names),
            (zero,) * count,
            zero,
            (((0, None),),) * width,
        )
        for who in range(count):
            state = self.settle(state, who)
        return state

    def explore(self, most: int) -> Found:
        seen = {begin := self.start()}
        waiting = [begin]
        while waiting:
            state = waiting.pop()
            try:
                following = list(self.following(state))
            except Wrong as error:
                return Found(len(seen), str(error))
            if not following and any(mode in (RUNS, ASLEEP) for mode in state.modes):
                stuck = [p.name for p, mode in zip(self.processes, state.modes, strict=True) if mode == ASLEEP]
                return Found(len(seen), f"asleep for ever: {', '.join(stuck)}")
            for after in following:
                after = canonical(after)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
            if len(seen) > most:
                raise AssertionError(f"more than {most} states")
        return Found(len(seen), "")

    def following(self, state: State) -> Iterator[State]:
        for who, mode in enumerate(state.modes):
            if mode == RUNS:
                for after in self.perform(state, who, self.steps[who][state.pcs[who]]):
                    yield self.settle(after, who)
        if self.kills and KILLED not in state.modes:
            for who, mode in enumerate(state.modes):
                if mode in (RUNS, ASLEEP) and self.processes[who].name != "aborter":
                    yield state._replace(modes=_with(state.modes, who, KILLED))

    def settle(self, state: State, who: int) -> State:
        """Perform steps that nobody can come between."""
        while state.modes[who] == RUNS:
            step = self.steps[who][state.pcs[who]]
            is_plain = step.kind == "store" and step.order in (Order.PLAIN, Order.MONOTONIC)
            if step.kind not in ("jump", "check", "end") and not is_plain:
                return state
            (state,) = self.perform(state, who, step)
        return state

    def value(self, state: State, who: int, step: Step) -> int:
        if isinstance(step.value, int):
            return step.value
        return int(step.value(dict(zip(self.names[who], state.registers[who], strict=True))))

    def perform(self, state: State, who: int, step: Step) -> Iterator[State]:
        onwards = state._replace(pcs=_with(state.pcs, who, state.pcs[who] + 1))
        at = self.index.get(step.place, -1)
        if step.kind == "load":
            for number in range(state.views[who][at], len(state.memory[at])):
                yield self.load(onwards, who, at, number, step)
        elif step.kind == "store":
            yield self.append(onwards, who, at, self.value(state, who, step), release=step.order.publishes)
        elif step.kind in ("add", "swap"):
            newest = len(state.memory[at]) - 1
            old = state.memory[at][newest][0]
            after = self.fence(self.load(onwards, who, at, newest, step), who)
            value = self.value(state, who, step)
            after = self.append(after, who, at, old + value if step.kind == "add" else value, release=True)
            yield self.fence(after, who)
        elif step.kind == "fence":
            yield self.fence(onwards, who)
        elif step.kind == "sleep":
            yield self.sleep(state, onwards, who, at, step)
        elif step.kind == "wake":
            woken = [i for i, m in enumerate(state.modes) if m == ASLEEP and state.places[i] == at]
            for other in woken:
                pcs = _with(onwards.pcs, other, onwards.pcs[other] + 1)
                modes, places = _with(onwards.modes, other, RUNS), _with(onwards.places, other, -1)
                onwards = self.settle(onwards._replace(pcs=pcs, modes=modes, places=places), other)
            yield onwards
        elif step.kind == "jump":
            yield state._replace(pcs=_with(state.pcs, who, step.target)) if self.value(state, who, step) else onwards
        elif step.kind == "check":
            if not self.value(state, who, step):
                raise Wrong(f"{self.processes[who].name}: not {step.tag}")
            yield onwards
        else:
            yield state._replace(modes=_with(state.modes, who, ENDED))

    def load(self, state: State, who: int, at: int, number: int, step: Step) -> State:
        value, carried = state.memory[at][number]
        view = _with(state.views[who], at, number)
        if carried is not None and step.order.publishes:
            view = _join(view, carried)
        registers = state.registers
        if step.register and step.register != "_":
            mine = _with(registers[who], self.names[who].index(step.register), value)
            registers = _with(registers, who, mine)
        return state._replace(registers=registers, views=_with(state.views, who, view))

    def append(self, state: State, who: int, at: int, value: int, *, release: bool) -> State:
        view = _with(state.views[who], at, len(state.memory[at]))
        messages = (*state.memory[at], (value, view if release else None))
        return state._replace(memory=_with(state.memory, at, messages), views=_with(state.views, who, view))

    def fence(self, state: State, who: int) -> State:
        joined = _join(state.views[who], state.fenced)
        return state._replace(views=_with(state.views, who, joined), fenced=joined)

    def sleep(self, state: State, onwards: State, who: int, at: int, step: Step) -> State:
        newest = len(state.memory[at]) - 1
        if state.memory[at][newest][0] == self.value(state, who, step):
            asleep = state._replace(modes=_with(state.modes, who, ASLEEP), places=_with(state.places, who, at))
            return self.fence(asleep, who)
        seen = onwards._replace(views=_with(state.views, who, _with(state.views[who], at, newest)))
        return self.fence(seen, who)


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _join(a: View, b: View) -> View:
    return tuple(map(max, a, b))


def canonical(state: State) -> State:
    """The same state without values that nobody can read any more, nor registers and views of who has ended."""
    live = [i for i, mode in enumerate(state.modes) if mode in (RUNS, ASLEEP)]
    if not live:
        return State(state.pcs, state.modes, state.places, (), (), (), ())
    low = tuple(map(min, *(state.views[i] for i in live))) if len(live) > 1 else state.views[live[0]]

    def rebased(view: View) -> View:
        return tuple(max(0, a - b) for a, b in zip(view, low, strict=True))

    def kept(message: Message) -> Message:
        return message[0], None if message[1] is None else rebased(message[1])

    memory = tuple(tuple(kept(m) for m in messages[first:]) for messages, first in zip(state.memory, low, strict=True))
    nothing = (0,) * len(low)
    views = tuple(rebased(view) if i in live else nothing for i, view in enumerate(state.views))
    registers = tuple(r if i in live else () for i, r in enumerate(state.registers))
    return state._replace(views=views, registers=registers, fenced=rebased(state.fenced), memory=memory)


def explore(processes: Sequence[Process], *, kills: bool = False, most: int = 1_000_000) -> Found:
    """All executions. kills: one process, but for the aborter, may end anywhere."""
    return _Explorer(processes, kills).explore(most)
