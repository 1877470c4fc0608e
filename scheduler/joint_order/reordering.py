"""Other orders of a program's instructions with effects: which pairs stay in order, and which may change places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from distxla.collectives.channels import is_end
from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.support.collective_start_done import single_collective
from distxla.scheduler.simulation.communication import Communication, CommunicationSite

OrderedPair = tuple[str, str]  # (earlier, later): names of instructions of one computation
OrderedPairs = dict[int, dict[str, tuple[OrderedPair, ...]]]  # by program and computation
HOST = "host"  # feeds, transfers to the host, custom-calls with effects, random states: as the host sees them


class Lines:
    """The instructions of a computation, and the pairs of which the order is settled from the start."""

    def __init__(
        self,
        computation: Computation,
        effects: Sequence[Instruction],
        kept: Iterable[OrderedPair],
        keys: Mapping[str, tuple[Hashable, ...]] | None = None,
    ) -> None:
        """effects: those instructions that have any.  kept: besides operands and control predecessors.  keys: by the
        name of an instruction with effects, the keys of its kind (Reordering)."""
        self.computation = computation
        self.effects = effects
        self.keys = keys or {}
        self.before: dict[str, tuple[str, ...]] = {}  # the direct predecessors of an instruction
        earlier: dict[str, list[str]] = defaultdict(list)
        for one, other in kept:
            earlier[other].append(one)
        for instruction in computation:
            names = (*instruction.operands, *instruction.control_predecessors, *earlier[instruction.name])
            self.before[instruction.name] = tuple(dict.fromkeys(names))

    @cached_property
    def position(self) -> dict[str, int]:
        """Places in the text."""
        return {instruction.name: place for place, instruction in enumerate(self.computation)}

    @property
    def is_settled(self) -> bool:
        """Whether no two instructions with effects could change places."""
        return all(self._needs(later, earlier) for earlier, later in pairwise(self.effects))

    @property
    def early_starts(self) -> tuple[OrderedPair, ...]:
        """(start, done) where the start could come before the waits directly before it."""
        found, waits = [], []
        for instruction in self.effects:
            if instruction.op.start_done.completes:
                waits.append(instruction)
                continue
            if instruction.op.start_done.starts_pair or is_end(instruction):
                found += [(instruction.name, wait.name) for wait in waits if not self._needs(instruction, wait)]
            waits = []
        return tuple(found)

    def _needs(self, later: Instruction, earlier: Instruction) -> bool:
        return bool(self._earlier[later.name] >> self.position[earlier.name] & 1)

    @cached_property
    def _earlier(self) -> dict[str, int]:
        """Bit sets, by position, of all predecessors."""
        found: dict[str, int] = {}
        for instruction in self.computation:
            bits = 0
            for name in self.before[instruction.name]:
                bits |= found[name] | 1 << self.position[name]
            found[instruction.name] = bits
        return found

    def ordered(self, further: Iterable[OrderedPair]) -> tuple[Instruction, ...] | None:
        """The text's order, but with predecessors that are behind in the text moved to just before the instruction that
        needs them; None where the pairs contradict each other."""
        more: dict[str, list[str]] = defaultdict(list)
        for earlier, later in further:
            more[later].append(earlier)
        found: list[Instruction] = []
        done: set[str] = set()
        begun: set[str] = set()
        for instruction in self.computation:
            pending = [instruction.name]
            while pending:
                name = pending[-1]
                if name in done:
                    pending.pop()
                    continue
                missing = [n for n in (*self.before[name], *more.get(name, ())) if n not in done]
                if not missing:
                    done.add(name)
                    found.append(self.computation[name])
                    pending.pop()
                elif name in begun:
                    return None
                else:
                    begun.add(name)
                    pending += sorted(missing, key=self.position.__getitem__, reverse=True)
        return tuple(found)


class Reordering:
    """A program of a run. read: its computations with several effects.  lines: those of them in which something may
    change places; of a scheduled program none."""

    def __init__(self, communication: Communication, number: int) -> None:
        self.communication, self.number = communication, number
        self.devices, self.module = communication.programs[number]
        self._effectful = effectful_computations(self.module)
        self._keys: dict[str, tuple[Hashable, ...]] = {}
        self.read: dict[str, Lines] = {}
        self.lines: dict[str, Lines] = {}
        self._levels: dict[str, int] = {}
        self._home: dict[int, str] = {}
        self._callers: dict[str, list[OrderedPair]] = defaultdict(list)  # computation -> (computation, its instruction)
        for computation in self.module.reached():
            if computation.name in self._effectful:
                self._read(computation)

    def _read(self, computation: Computation) -> None:
        effects: list[Instruction] = []
        last: dict[Hashable, str] = {}
        kept: list[OrderedPair] = []
        keys: dict[str, tuple[Hashable, ...]] = {}
        for instruction in computation:
            if not self._acts(instruction):
                continue
            if effects and self.module.is_scheduled:
                kept.append((effects[-1].name, instruction.name))
            effects.append(instruction)
            self._home[id(instruction)] = computation.name
            if not instruction.op.start_done.completes:
                for name in instruction.op.called_computations:
                    self._callers[name].append((computation.name, instruction.name))
            keys[instruction.name] = self._keys_of(computation, instruction)
            for key in keys[instruction.name]:
                if key in last:
                    kept.append((last[key], instruction.name))
                last[key] = instruction.name
        if len(effects) > 1:
            found = Lines(computation, effects, kept, keys)
            self.read[computation.name] = found
            if not found.is_settled:
                self.lines[computation.name] = found

    def _acts(self, instruction: Instruction) -> bool:
        return _acts(instruction, self._effectful)

    # --- pairs that stay in order

    def _keys_of(self, computation: Computation, instruction: Instruction) -> tuple[Hashable, ...]:
        """Instructions with a key in common stay in the order of the text, which tells the k-th of them for all: of a
        group's rounds those that do the same, of a channel's transfers those between the same devices."""
        op = instruction.op
        if op.advances_state or op.effects in (Effects.FEED, Effects.CUSTOM):
            return (HOST,)
        if op.effects is Effects.CHANNEL and op.stream is not None:
            return (HOST,)
        site = self._site(computation, instruction)
        if site is not None:
            sends = site.acting.op.transfer.sends
            return (
                *((sends, edge) for edge, _ in site.edges.values()),
                *dict.fromkeys(
                    (id(rendezvous), site.signature) for rendezvous in site.rendezvous_by_device[0].values()
                ),
            )
        if op.start_done.completes:
            return ()
        found: dict[Hashable, None] = {}
        for name in op.called_computations:
            if name not in self._keys:
                called = self.module[name]
                inner = (self._keys_of(called, i) for i in called if self._acts(i))
                self._keys[name] = tuple(dict.fromkeys(key for keys in inner for key in keys))
            found.update(dict.fromkeys(self._keys[name]))
        return tuple(found)

    def _site(self, computation: Computation, instruction: Instruction) -> CommunicationSite | None:
        """Of an instruction that begins a round or a transfer, as the tracer has it."""
        acting = instruction
        if instruction.op.begun_computation is not None:
            called = self.module[instruction.op.begun_computation]
            if single_collective(called) is None:
                return None
            acting = called.root_instruction
        elif instruction.op.start_done.completes or not (instruction.op.is_collective or is_end(instruction)):
            return None
        shapes = tuple(operand.shape for operand in computation.operands(instruction))
        return self.communication.site(self.number, instruction, acting, shapes)

    def level(self, name: str) -> int:
        """How many calls deep a computation is."""
        if name not in self._levels:
            self._levels[name] = 1 + max((self.level(caller) for caller, _ in self._callers.get(name, ())), default=-1)
        return self._levels[name]

    # --- pairs that may change places

    def exchanges(self, waits: Instruction, needed: Instruction) -> Iterator[tuple[str, str, str]]:
        """(computation, earlier, later): pairs of which one, if `needed` is to be executed before `waits`."""
        mine, theirs = self._around(waits), self._around(needed)
        for name in self.lines:
            for later in mine.get(name, ()):
                for earlier in theirs.get(name, ()):
                    if earlier != later:
                        yield name, earlier, later

    def _around(self, instruction: Instruction) -> Mapping[str, set[str]]:
        """By computation: the instruction itself, or those through which it is called."""
        found: dict[str, set[str]] = defaultdict(set)
        home = self._home.get(id(instruction))
        if home is None:
            return found
        found[home].add(instruction.name)
        waiting, seen = [home], {home}
        while waiting:
            for caller, name in self._callers[waiting.pop()]:
                found[caller].add(name)
                if caller not in seen:
                    seen.add(caller)
                    waiting.append(caller)
        return found

    def reordered(self, pairs: Mapping[str, Iterable[OrderedPair]]) -> Module | None:
        """The program with further pairs, by computation, in order; None where they contradict each other."""
        changed = {}
        for name, further in pairs.items():
            ordered = self.lines[name].ordered(further)
            if ordered is None:
                return None
            changed[name] = replace(self.module[name], instructions=ordered)
        if not changed:
            return self.module
        return self.module.replace(computations=tuple(changed.get(c.name, c) for c in self.module.computations))


def is_settled(module: Module) -> bool:
    """Whether data and control predecessors leave no choice in a program; other reasons are not looked at."""
    effectful = effectful_computations(module)
    return all(
        Lines(computation, [i for i in computation if _acts(i, effectful)], ()).is_settled
        for computation in module.reached()
        if computation.name in effectful
    )


def _acts(instruction: Instruction, effectful: frozenset[str]) -> bool:
    return has_effects(instruction, effectful) or instruction.op.advances_state


__all__ = ["Lines", "OrderedPair", "OrderedPairs", "Reordering", "is_settled"]
