"""One order of communication for all programs of a run, such that no device waits for ever.

The text's order is kept where it is safe. Where it isn't, devices are followed until they can't go on; the cycle in
which they wait names pairs of instructions of which one has to change places (joint_order/conflicts.py). Each is tried,
and its own cycles are resolved in the same way: a search that finds an order wherever there is one, unless it takes too
long. Where the first attempts fail, orders of all instructions at once are tried, too (joint_order/merged_order.py). An
order counts only if it has been proved as for any other program, so nothing here has to be trusted. Scheduled programs
are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from distxla.ir.counts import Counts
from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.rewrites.executed_form import executed_form

Programs = Sequence[tuple[Iterable[int], Module]]


@dataclass(frozen=True)
class Move:
    """An instruction that is executed before others that the text has before it.

    program: its number.  first_of: of those the first in the text.
    """

    program: int
    instruction: Instruction
    location: Location | None
    first_of: Instruction
    first_location: Location | None


@dataclass(frozen=True)
class JointOrder:
    """modules: the modules to execute, in the order of the programs; unchanged ones are the same objects.

    is_safe: whether that has been proved to end.  is_complete: whether all orders have been considered, if the text's
    isn't safe.
    """

    programs: tuple[tuple[tuple[int, ...], Module], ...]
    modules: tuple[Module, ...]
    is_safe: bool = False
    is_complete: bool = True

    @property
    def is_changed(self) -> bool:
        return any(new is not old for new, (_, old) in zip(self.modules, self.programs, strict=True))

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Which instructions with effects come earlier than in the text, in the new order."""
        found = []
        for number, ((_, old), new) in enumerate(zip(self.programs, self.modules, strict=True)):
            if new is not old:
                found += [
                    Move(number, moved, old.locate(moved), first, old.locate(first))
                    for moved, first in _moved(executed_form(old), new)
                ]
        return tuple(found)


_known: list[tuple[tuple[object, ...], JointOrder]] = []  # the last two answers that took work


def order_communication(programs: Programs, counts: Counts) -> JointOrder:
    """An order for all programs of a run, each given with the flattened ids of its devices.

    Their channels must pair up (compiler/verify/world.py). The last result is remembered, so asking again for the same
    modules, or for those that were found, costs nothing.
    """
    given = tuple((tuple(devices), module) for devices, module in programs)
    if not _may_differ(given):
        return JointOrder(given, tuple(module for _, module in given))
    key = (tuple(devices for devices, _ in given), counts)
    for asked, order in _known:
        if asked == key:
            if all(mine is module for (_, mine), (_, module) in zip(order.programs, given, strict=True)):
                return order
            if all(mine is module for mine, (_, module) in zip(order.modules, given, strict=True)):
                return JointOrder(given, order.modules, order.is_safe, order.is_complete)
    order = _ordered(given, counts)
    _known.append((key, order))
    del _known[:-2]
    return order


def _may_differ(programs: Sequence[tuple[tuple[int, ...], Module]]) -> bool:
    """Whether devices may enter their common rounds and transfers in different orders, and a program could be changed.

    Devices that run one program, without channels and without collectives in branches, have one order.
    """
    if all(module.is_scheduled for _, module in programs):
        return False
    between = (Effects.COLLECTIVE, Effects.CHANNEL)
    acting = [any(i.op.effects in between for c in module.reached() for i in c) for _, module in programs]
    if not any(acting):
        return False
    if len(programs) > 1:
        return True
    module = programs[0][1]
    reached = module.reached()
    if any(i.op.is_device_transfer for c in reached for i in c):
        return True
    return any(
        i.op.effects in between
        for c in reached
        for branching in c
        if branching.op.role.is_conditional
        for called in module.reached(*branching.op.called_computations)
        for i in called
    )


def _ordered(programs: tuple[tuple[tuple[int, ...], Module], ...], counts: Counts) -> JointOrder:
    # with all that follows programs, which most don't need
    from distxla.scheduler.joint_order.order_search import Search
    from distxla.scheduler.joint_order.reordering import is_settled

    executed = tuple((devices, executed_form(module)) for devices, module in programs)
    if all(module.is_scheduled or is_settled(module) for _, module in executed):
        return JointOrder(programs, tuple(module for _, module in programs))
    search = Search(executed, counts)
    found = [
        old if new is before else new
        for new, (_, before), (_, old) in zip(search.run(), executed, programs, strict=True)
    ]
    return JointOrder(programs, tuple(found), search.is_safe, search.is_complete)


def _moved(old: Module, new: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """(instruction, the first one that it is executed before although it is behind it in the text)."""
    effectful = effectful_computations(old)
    for before, after in zip(old.computations, new.computations, strict=True):
        if before is after:
            continue
        place = {i.name: k for k, i in enumerate(before)}
        first: Instruction | None = None
        found = []
        for instruction in reversed(after.instructions):
            if not has_effects(instruction, effectful):
                continue
            if first is not None and place[first.name] < place[instruction.name]:
                found.append((instruction, first))
            else:
                first = instruction
        yield from reversed(found)


__all__ = ["JointOrder", "Move", "order_communication"]
