"""Every execution of a few processes over shared words, weak memory included (models/machine.py).

Memory is that of release and acquire with views: a word has the values that were stored in it, in order, and a process
a view, the oldest value of each word that it may still read. A load reads any value from there on. A release store
carries its writer's view along, an acquire load takes it over. Updates, and the kernel's comparison before a sleep,
read the newest value. Full fences (updates and sleeps, too) share one view, each with all before; a seq_cst store
notes itself there, and a seq_cst load of the word reads nothing older.

So stores may be seen late and in another order, and loads may be early, as far as the declared orders allow. A store
is never seen before the loads that precede it in its program (load buffering).

A process may die anywhere: to die is to do nothing any more, and every execution in which it does nothing for a while
is explored anyway. So states in which all others sleep or have ended are looked at as if it had died there. From every
state that is seen an end must be within reach, else the processes run for ever.

Fewer states than executions have, none of them lost:

    steps that nobody can tell from the same step earlier follow the step before at once (`_is_local`)
    a load of a word that nobody else writes any more is the only step that is explored where it stands
    what nobody reads any more (values, registers, parts of views) is dropped; so is what a store tells, if all know it
    of states that are the same but for a rotation of the members one is kept
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distxla.collectives.protocols.layout import Order
from tests.collectives.protocols.models.machine import Process
from tests.collectives.protocols.programs import JUMPS, Program, Ready, compiled, rotations
from tests.collectives.protocols.views import BITS, FIELD, Permutation, View, earlier, later, lowered, pack, words_of

RUNS, ASLEEP, ENDED = range(3)
MOST_STEPS = 10_000  # of all processes at once
MOST_VALUES = 40  # of a word that somebody may still read; right models have 5
NOWHERE = -1  # the next step of a process that has ended: the last of its futures, which is empty
Message = tuple[int, View]  # a value, and what its writer had seen; 0: nothing that others have yet to see
Memory = tuple[tuple[Message, ...], ...]
Local = tuple[int, int, int, tuple[int, ...], View]  # next step, mode, where it sleeps, registers, view
State = tuple[tuple[Local, ...], View, View, Memory]  # processes, what fences share, the newest values, all values
HAS_ENDED: Local = (NOWHERE, ENDED, -1, (), 0)


@dataclass(frozen=True)
class Found:
    """What an exploration has seen. problem: the first wrong execution's, or nothing; path: its steps."""

    states: int
    problem: str
    path: tuple[str, ...] = ()


class Wrong(Exception):
    """An execution does what it must not."""


class _Work:
    """A state that is being changed."""

    __slots__ = ("fenced", "memory", "modes", "newest", "pcs", "places", "registers", "views")

    def __init__(self, state: State) -> None:
        procs, self.fenced, self.newest, memory = state
        self.pcs = [p[0] for p in procs]
        self.modes = [p[1] for p in procs]
        self.places = [p[2] for p in procs]
        self.registers = [p[3] for p in procs]
        self.views = [p[4] for p in procs]
        self.memory = list(memory)

    def set_register(self, who: int, number: int, value: int) -> None:
        old = self.registers[who]
        self.registers[who] = (*old[:number], value, *old[number + 1 :])

    def see(self, who: int, at: int, number: int) -> None:
        view, shift = self.views[who], at * BITS
        self.views[who] = view + (number - (view >> shift & FIELD) << shift)

    def append(self, who: int, at: int, value: int, *, release: bool) -> None:
        messages = self.memory[at]
        if len(messages) == MOST_VALUES:
            raise Wrong("never ends: values pile up")
        self.see(who, at, len(messages))
        self.newest += 1 << at * BITS
        self.memory[at] = (*messages, (value, self.views[who] if release else 0))

    def fence(self, who: int) -> None:
        self.views[who] = self.fenced = later(self.views[who], self.fenced)


class _Explorer:
    def __init__(self, processes: Sequence[Process], *, kills: int, symmetric: bool) -> None:
        self.processes, self.kills = processes, kills
        self.programs, self.titles = compiled(processes)
        self.width = len(self.titles)
        turned = rotations(processes, self.titles) if symmetric else []
        self.rotations = [(whose, places, Permutation(places)) for whose, places in turned]
        self.is_aborter = [p.name == "aborter" for p in processes]
        stored = [step for p in self.programs for step in p.steps if step.kind in ("store", "add", "swap", "cas")]
        self.carrying = sorted({step.at for step in stored if step.order.publishes})  # places whose values carry views
        # by process and step: places as bits, and as a view's words
        self.writes = [[*(f.writes for f in p.futures), 0] for p in self.programs]
        self.newest_read = [[*(f.newest for f in p.futures), 0] for p in self.programs]
        self.fences = [[*(f.fences for f in p.futures), 0] for p in self.programs]
        self.unread = [
            [pack(0 if f.loads >> at & 1 else FIELD for at in range(self.width)) for f in p.futures]
            for p in self.programs
        ]

    def start(self) -> State:
        procs = tuple((0, RUNS, -1, program.start, 0) for program in self.programs)
        work = _Work((procs, 0, 0, (((0, 0),),) * self.width))
        self.settle(work)
        return self.frozen(work)

    def explore(self, most: int) -> Found:
        begin = self.start()
        numbers = {begin: 0}
        before: list[list[int]] = [[]]  # by state those that it follows, the one that found it first
        waiting = [begin]
        ends = []
        while waiting:
            state = waiting.pop()
            number = numbers[state]
            try:
                self.require_progress(state)
                for _, work in self.following(state):
                    after = self.frozen(work)
                    found = numbers.setdefault(after, len(before))
                    if found == len(before):
                        before.append([])
                        waiting.append(after)
                    before[found].append(number)
            except Wrong as error:
                return Found(len(numbers), str(error), self._path(numbers, before, number))
            if not any(local[1] != ENDED for local in state[0]):
                ends.append(number)
            if len(numbers) > most:
                raise AssertionError(f"more than {most} states")
        return Found(len(numbers), *self._endless(numbers, before, ends))

    def _endless(
        self, numbers: dict[State, int], before: list[list[int]], ends: list[int]
    ) -> tuple[str, tuple[str, ...]]:
        """What is wrong where some state is followed by no end, and how it reaches that."""
        good, waiting = bytearray(len(before)), list(ends)
        while waiting:
            number = waiting.pop()
            if not good[number]:
                good[number] = 1
                waiting += before[number]
        bad = good.find(0)
        return ("", ()) if bad < 0 else ("never ends", self._path(numbers, before, bad))

    def _path(self, numbers: dict[State, int], before: list[list[int]], number: int) -> tuple[str, ...]:
        """The steps from the begin to a state."""
        states = list(numbers)
        path = []
        while number:
            previous = before[number][0]
            path += [text for text, work in self.following(states[previous]) if numbers[self.frozen(work)] == number][
                :1
            ]
            number = previous
        return tuple(reversed(path))

    def require_progress(self, state: State) -> None:
        """Wrong where some sleep, and nobody is left to wake them, or could die now."""
        asleep = [p.name for p, local in zip(self.processes, state[0], strict=True) if local[1] == ASLEEP]
        running = [i for i, local in enumerate(state[0]) if local[1] == RUNS]
        if asleep and len(running) <= self.kills and not any(self.is_aborter[i] for i in running):
            raise Wrong(f"asleep for ever: {', '.join(asleep)}")

    def following(self, state: State) -> Iterator[tuple[str, _Work]]:
        running = [i for i, local in enumerate(state[0]) if local[1] == RUNS]
        pcs = [local[0] for local in state[0]]
        for who in running:
            step = self.programs[who].steps[pcs[who]]
            if step.kind == "load" and not self._others(self.writes, who, pcs) >> step.at & 1:
                running = [who]
                break
        for who in running:
            yield from self.performed(state, who)

    def performed(self, state: State, who: int) -> Iterator[tuple[str, _Work]]:
        step = self.programs[who].steps[state[0][who][0]]
        if step.kind == "load":
            messages = state[3][step.at]
            for number in range(self.oldest(state[0][who][4], state[1], step), len(messages)):
                work = _Work(state)
                self.load(work, who, step, number)
                yield self.settled(work, who, step, f" = {messages[number][0]}")
        else:
            work = _Work(state)
            self.perform(work, who, step)
            yield self.settled(work, who, step, "")

    def settled(self, work: _Work, who: int, step: Ready, more: str) -> tuple[str, _Work]:
        self.settle(work)
        return f"{self.processes[who].name}: {step.kind} {step.place[0]} [{step.place[1]}]{more}", work

    @staticmethod
    def oldest(view: View, fenced: View, step: Ready) -> int:
        shift = step.at * BITS
        own = view >> shift & FIELD
        return max(own, fenced >> shift & FIELD) if step.order is Order.FENCED else own

    def settle(self, work: _Work) -> None:
        """Perform the steps that nobody can come between."""
        changed, left = True, MOST_STEPS
        while changed:
            changed = False
            for who, program in enumerate(self.programs):
                while work.modes[who] == RUNS:
                    step = program.steps[work.pcs[who]]
                    if step.kind not in JUMPS and not self._is_local(work, who, step):
                        break
                    self.perform(work, who, step)
                    changed = True
                    if (left := left - 1) < 0:
                        raise Wrong(f"{self.processes[who].name} never reaches rest")

    def _is_local(self, work: _Work, who: int, step: Ready) -> bool:
        """Whether nobody can tell that the step comes at once, and it does only one thing.

        Others' loads may still read what was there before a store. A load comes at once where there is but one value.
        """
        kind, pcs = step.kind, work.pcs
        if kind == "load":
            only = len(work.memory[step.at]) - 1
            return (
                self.oldest(work.views[who], work.fenced, step) == only
                and not self._others(self.writes, who, pcs) >> step.at & 1
            )
        if kind == "store":
            touched = self._others(self.writes, who, pcs) | self._others(self.newest_read, who, pcs)
            return not touched >> step.at & 1 and not (
                step.order is Order.FENCED and self._others(self.fences, who, pcs)
            )
        return kind == "fence" and not self._others(self.fences, who, pcs)

    @staticmethod
    def _others(table: Sequence[Sequence[int]], who: int, pcs: Sequence[int]) -> int:
        """What the table says of the others' steps, joined."""
        found = 0
        for i, pc in enumerate(pcs):
            if i != who:
                found |= table[i][pc]
        return found

    def perform(self, work: _Work, who: int, step: Ready) -> None:
        kind, at = step.kind, step.at
        registers = work.registers[who]
        value = step.value if step.value_register < 0 else registers[step.value_register]
        if kind == "jump":
            work.pcs[who] = step.target if step.holds(registers) else work.pcs[who] + 1
            return
        if kind == "sleep":
            self.sleep(work, who, at, value)
            return
        if kind == "load":
            self.load(work, who, step, len(work.memory[at]) - 1)
            return
        work.pcs[who] += 1
        if kind == "store":
            work.append(who, at, value, release=step.order.publishes)
            if step.order is Order.FENCED:
                shift = at * BITS
                work.fenced += len(work.memory[at]) - 1 - (work.fenced >> shift & FIELD) << shift
        elif kind in ("add", "swap"):
            old = self.newest(work, who, step)
            self.update(work, who, step, old + value if kind == "add" else value)
            if step.register_number >= 0:
                work.set_register(who, step.register_number, old)
        elif kind == "cas":
            self.compare_and_swap(work, who, step, value)
        elif kind in ("fence", "nap"):
            work.fence(who)
        elif kind == "assign":
            work.set_register(who, step.register_number, value)
        elif kind == "increment":
            work.set_register(who, step.register_number, value + 1)
        elif kind == "wake":
            for other, mode in enumerate(work.modes):
                if mode == ASLEEP and work.places[other] == at:
                    work.modes[other], work.places[other] = RUNS, -1
                    work.pcs[other] += 1
        elif kind == "check":
            if not step.holds(registers):
                raise Wrong(f"{self.processes[who].name}: not {step.tag}")
        else:
            work.modes[who], work.pcs[who] = ENDED, NOWHERE

    def load(self, work: _Work, who: int, step: Ready, number: int) -> None:
        value, carried = work.memory[step.at][number]
        work.see(who, step.at, number)
        if carried and step.order.publishes:
            work.views[who] = later(work.views[who], carried)
        if step.register_number >= 0:
            work.set_register(who, step.register_number, value)
        work.pcs[who] += 1

    @staticmethod
    def newest(work: _Work, who: int, step: Ready) -> int:
        """What an update finds; it is a full fence unless it was made a plain one."""
        old, carried = work.memory[step.at][-1]
        work.see(who, step.at, len(work.memory[step.at]) - 1)
        if step.order.publishes:
            if carried:
                work.views[who] = later(work.views[who], carried)
            work.fence(who)
        return old

    @staticmethod
    def update(work: _Work, who: int, step: Ready, value: int) -> None:
        """Store what an update has made; a plain one carries on what the value before did."""
        carried = work.memory[step.at][-1][1]
        work.append(who, step.at, value, release=step.order.publishes)
        if step.order.publishes:
            work.fence(who)
        else:
            work.memory[step.at] = (*work.memory[step.at][:-1], (value, carried))

    def compare_and_swap(self, work: _Work, who: int, step: Ready, value: int) -> None:
        expected = step.right if step.right_register < 0 else work.registers[who][step.right_register]
        succeeds = self.newest(work, who, step) == expected
        if succeeds:
            self.update(work, who, step, value)
        work.set_register(who, step.register_number, int(succeeds))

    def sleep(self, work: _Work, who: int, at: int, expected: int) -> None:
        if work.memory[at][-1][0] == expected:
            work.modes[who], work.places[who] = ASLEEP, at
        else:
            work.see(who, at, len(work.memory[at]) - 1)
            work.pcs[who] += 1
        work.fence(who)

    def frozen(self, work: _Work) -> State:
        """The state without what nobody reads any more, by the rotation of the members that is the first."""
        low, procs = work.newest, list[Local]()  # low: by place the oldest value that somebody may still read
        for mode, pc, view, unread in zip(work.modes, work.pcs, work.views, self.unread, strict=True):
            if mode != ENDED:
                low = earlier(low, view | unread[pc])
        for i, program in enumerate(self.programs):
            if work.modes[i] == ENDED:
                procs.append(HAS_ENDED)
                continue
            pc, view = work.pcs[i], work.views[i]
            registers = program.kept(pc, work.registers[i])
            procs.append((pc, work.modes[i], work.places[i], registers, lowered(view, low) if low else view))
        if all(local is HAS_ENDED for local in procs):
            return tuple(procs), 0, 0, ()
        if not low:
            return self._least((tuple(procs), work.fenced, work.newest, tuple(work.memory)))
        fenced = lowered(work.fenced, low)
        return self._least((tuple(procs), fenced, work.newest - low, self._without(work.memory, low)))

    def _without(self, memory: Sequence[tuple[Message, ...]], low: View) -> Memory:
        """The memory without each place's first values. low: how many each."""
        found, changed, rest = list(memory), words_of(low), low
        while rest:
            at = (rest.bit_length() - 1) // BITS
            first = rest >> at * BITS
            found[at] = found[at][first:]
            rest -= first << at * BITS
        for at in self.carrying:
            for _, view in found[at]:
                if view & changed:
                    found[at] = tuple([(value, lowered(view, low)) for value, view in found[at]])
                    break
        return tuple(found)

    def _least(self, state: State) -> State:
        """The least rotation of a state: that in which the members' steps are least, by the rest where several are."""
        if not self.rotations:
            return state
        procs = state[0]
        keys = [[procs[old][:2] for old in whose] for whose, _, _ in self.rotations]
        own = [local[:2] for local in procs]
        least = min(own, *keys)
        found = [self.rotated(state, by) for key, by in zip(keys, self.rotations, strict=True) if key == least]
        return min([*found, state] if own == least else found)

    def rotated(self, state: State, by: tuple[tuple[int, ...], tuple[int, ...], Permutation]) -> State:
        """The same state where every member is called otherwise. by: what members, places and views come from."""
        procs, fenced, newest, memory = state
        whose, places, turn = by
        turned = []
        for old in whose:
            pc, mode, asleep_at, registers, view = procs[old]
            turned.append((pc, mode, places.index(asleep_at) if asleep_at >= 0 else -1, registers, turn(view)))
        carried = [memory[p] for p in places]
        for at, messages in enumerate(carried):
            if any(view for _, view in messages):
                carried[at] = tuple([(value, turn(view)) for value, view in messages])
        return tuple(turned), turn(fenced), turn(newest), tuple(carried)


def explore(processes: Sequence[Process], *, kills: int = 0, symmetric: bool = False, most: int = 3_000_000) -> Found:
    """All executions. kills: so many processes, but not the aborter, may end anywhere.

    symmetric: the processes are the same but for a rotation; AssertionError if they are not.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # states form no cycles, and a collection looks at all of them
    try:
        return _Explorer(processes, kills=kills, symmetric=symmetric).explore(most)
    finally:
        if was_enabled:
            gc.enable()


__all__ = ["Found", "Program", "explore"]
