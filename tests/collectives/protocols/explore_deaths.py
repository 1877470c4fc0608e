"""Every execution of processes over shared words where any process may die, in one order of all accesses.

Weaker orders are explore.py's. Here a process that may die can do so between any two steps, in any state: it does
nothing any more, and a word tells so. In each execution everybody who lives has to reach its end, but those who serve:
they may sleep for ever. From every state an end without another death must be within reach.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.collectives.protocols.models.machine import Place, Process
from tests.collectives.protocols.programs import JUMPS, RELATIONS, Program, Ready, compiled

RUNS, ASLEEP, ENDED, DEAD = range(4)
WHATEVER = -1  # is expected by a compare-and-swap: a store that tells that it has succeeded
MOST_STEPS = 10_000  # that nobody can come between
Local = tuple[int, int, int, tuple[int, ...]]  # next step, mode, where it sleeps, registers
State = tuple[tuple[Local, ...], tuple[int, ...], int]  # processes, memory, how many may still die
HAS_ENDED: Local = (-1, ENDED, -1, ())
HAS_DIED: Local = (-1, DEAD, -1, ())


@dataclass(frozen=True)
class Found:
    """What an exploration has seen. problem: the first wrong execution's, or nothing; path: its steps."""

    states: int
    problem: str
    path: tuple[str, ...] = ()


class Wrong(Exception):
    """An execution does what it must not."""


class _Explorer:
    def __init__(self, processes: Sequence[Process], mortal: dict[int, Place], serving: Sequence[int]) -> None:
        self.processes, self.serving = processes, frozenset(serving)
        self.programs, self.titles = compiled(processes)
        self.width = len(self.titles)
        places = {place: number for number, place in enumerate(self.titles)}
        self.mortal = {who: places.get(place, -1) for who, place in mortal.items()}
        # by process and step: places as bits that it may still write, or look at
        self.writes = [[*(f.writes for f in p.futures), 0] for p in self.programs]
        self.looks = [[*(f.loads | f.newest for f in p.futures), 0] for p in self.programs]
        self.is_or = [[step.role == "or" for step in p.steps] for p in processes]
        self.tells = 0  # places that a death writes
        for at in self.mortal.values():
            self.tells |= 1 << at if at >= 0 else 0

    def explore(self, deaths: int, most: int) -> Found:
        try:
            begin = self.settled([(0, RUNS, -1, p.start) for p in self.programs], [0] * self.width, deaths)
        except Wrong as error:
            return Found(0, str(error))
        numbers = {begin: 0}
        before: list[list[int]] = [[]]  # by state those that it follows but by a death
        first: list[tuple[int, str]] = [(0, "")]  # the state that found it, and by which step
        waiting, ends = [begin], []
        while waiting:
            state = waiting.pop()
            number = numbers[state]
            try:
                for text, after in self.following(state):
                    found = numbers.setdefault(after, len(before))
                    if found == len(before):
                        before.append([])
                        first.append((number, text))
                        waiting.append(after)
                    if text[0] != "†":
                        before[found].append(number)
            except Wrong as error:
                return Found(len(numbers), str(error), self._path(first, number))
            if self.is_end(state):
                ends.append(number)
            if len(numbers) > most:
                raise AssertionError(f"more than {most} states")
        return self._endless(numbers, before, first, ends)

    def is_end(self, state: State) -> bool:
        """Whether all have ended or died, but those who serve."""
        return all(
            local[1] in (ENDED, DEAD) or (local[1] == ASLEEP and who in self.serving)
            for who, local in enumerate(state[0])
        )

    def _endless(
        self,
        numbers: dict[State, int],
        before: list[list[int]],
        first: list[tuple[int, str]],
        ends: list[int],
    ) -> Found:
        good, waiting = bytearray(len(before)), list(ends)
        while waiting:
            number = waiting.pop()
            if not good[number]:
                good[number] = 1
                waiting += before[number]
        bad = good.find(0)
        return Found(len(numbers), *(("", ()) if bad < 0 else ("never ends", self._path(first, bad))))

    def _path(self, first: list[tuple[int, str]], number: int) -> tuple[str, ...]:
        path = []
        while number:
            number, text = first[number]
            path.append(text)
        return tuple(reversed(path))

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        procs, memory, deaths = state
        for who, (pc, mode, _, _) in enumerate(procs):
            step = self.programs[who].steps[pc] if mode == RUNS else None
            after = self._after_await(who, procs[who], memory) if step is not None and step.kind == "await" else 1
            if step is not None and after:
                locals_, words = list(procs), list(memory)
                if step.kind == "await":
                    locals_[who] = after, mode, -1, procs[who][3]
                else:
                    self.perform(locals_, words, who, step)
                yield (
                    f"{self.processes[who].name}: {step.kind} {step.place} [{step.tag}]",
                    self.settled(locals_, words, deaths),
                )
            if deaths and mode in (RUNS, ASLEEP) and who in self.mortal:
                locals_, words = list(procs), list(memory)
                locals_[who] = HAS_DIED
                if self.mortal[who] >= 0:
                    words[self.mortal[who]] = 1
                yield f"† {self.processes[who].name} dies", self.settled(locals_, words, deaths - 1)

    def _after_await(self, who: int, local: Local, memory: Sequence[int]) -> int:
        """The step behind those of which one says that the process may go on; 0 where none does."""
        steps, (pc, _, _, registers) = self.programs[who].steps, local
        holds = False
        while steps[pc].kind == "await":
            step = steps[pc]
            right = step.right if step.right_register < 0 else registers[step.right_register]
            holds = holds or RELATIONS[step.relation](memory[step.at], right)
            pc += 1
            if not self.is_or[who][pc - 1]:
                break
        return pc if holds else 0

    def settled(self, locals_: list[Local], words: list[int], deaths: int) -> State:
        """Behind all steps that nobody can come between; without what nobody looks at any more."""
        changed, left = True, MOST_STEPS
        while changed:
            changed = False
            for who, program in enumerate(self.programs):
                while locals_[who][1] == RUNS:
                    step = program.steps[locals_[who][0]]
                    if step.kind not in JUMPS and not self._is_local(locals_, who, step, deaths):
                        break
                    self.perform(locals_, words, who, step)
                    changed = True
                    if (left := left - 1) < 0:
                        raise Wrong(f"never ends: {self.processes[who].name} looks at nothing any more")
        looked_at = 0
        for who, (pc, mode, place, registers) in enumerate(locals_):
            looked_at |= self.looks[who][pc]
            if mode in (RUNS, ASLEEP):
                locals_[who] = pc, mode, place, self.programs[who].kept(pc, registers)
        kept = tuple([value if looked_at >> at & 1 else 0 for at, value in enumerate(words)])
        return tuple(locals_), kept, deaths

    def _is_local(self, locals_: Sequence[Local], who: int, step: Ready, deaths: int) -> bool:
        bit = 1 << step.at if step.at >= 0 else 0
        if step.kind in ("fence", "nap"):
            return step.kind == "fence"
        written = self.tells if deaths else 0
        looked = 0
        for other, local in enumerate(locals_):
            if other != who:
                written |= self.writes[other][local[0]]
                looked |= self.looks[other][local[0]]
        if step.kind == "load":
            return not written & bit
        return step.kind == "store" and not (written | looked) & bit

    def perform(self, locals_: list[Local], words: list[int], who: int, step: Ready) -> None:
        pc, mode, place, registers = locals_[who]
        kind, at = step.kind, step.at
        value = step.value if step.value_register < 0 else registers[step.value_register]
        found: int | None = None
        after = pc + 1
        if kind == "jump":
            after = step.target if step.holds(registers) else after
        elif kind == "sleep":
            if words[at] == value:
                locals_[who] = pc, ASLEEP, at, registers
                return
        elif kind == "load":
            found = words[at]
        elif kind == "store":
            words[at] = value
        elif kind in ("add", "swap"):
            found, words[at] = words[at], words[at] + value if kind == "add" else value
        elif kind == "cas":
            expected = step.right if step.right_register < 0 else registers[step.right_register]
            found = int(expected in (WHATEVER, words[at]))
            words[at] = value if found else words[at]
        elif kind in ("assign", "increment"):
            found = value + (kind == "increment")
        elif kind == "wake":
            for other, (its_pc, its_mode, its_place, its_registers) in enumerate(locals_):
                if its_mode == ASLEEP and its_place == at:
                    locals_[other] = its_pc + 1, RUNS, -1, its_registers
        elif kind == "check":
            if not step.holds(registers):
                raise Wrong(f"{self.processes[who].name}: not {step.tag}")
        elif kind == "end":
            locals_[who] = HAS_ENDED
            return
        if found is not None and step.register_number >= 0:
            number = step.register_number
            registers = (*registers[:number], found, *registers[number + 1 :])
        locals_[who] = after, mode, place, registers


def explore(
    processes: Sequence[Process],
    mortal: dict[int, Place],
    *,
    deaths: int = 0,
    serving: Sequence[int] = (),
    most: int = 3_000_000,
) -> Found:
    """All executions. mortal: who may die, and the word that is then 1.  deaths: how many at most.  serving: who may
    sleep at the end."""
    was_enabled = gc.isenabled()
    gc.disable()  # states form no cycles, and a collection looks at all of them
    try:
        return _Explorer(processes, mortal, serving).explore(deaths, most)
    finally:
        if was_enabled:
            gc.enable()


__all__ = ["Found", "Program", "explore"]
