"""Changes to a program that deadlocks: the instructions to swap on each device, the instruction that a device leaves
out, and the origin of that decision.

All of it comes from the devices' places, from the text of their programs, and from the histories where these are
known. So `check` and a run of the same program give the same hints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from distxla.collectives.signature import GROUPS, differing, summary
from distxla.diagnosis.communicating import Enclosing, Located, enclosing, found, has_passed, start_of
from distxla.diagnosis.counterparts import counterpart, is_same, needs_result
from distxla.diagnosis.deciding import decided_by
from distxla.diagnosis.facts.blocked import DeviceState
from distxla.diagnosis.facts.findings import Divergence
from distxla.diagnosis.graph import Deadlock
from distxla.errors import DeadlockError
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.channel import ChannelOp
from distxla.wording import named

MOST_HINTS = 4
MOST_PAIRS = 64  # of a cycle that are looked at, and of waits for those that have ended
SAME_NUMBER = "all devices that communicate in it must run the same number of iterations"


@dataclass(frozen=True)
class _Order:
    """A device that waits in `before`, while another one waits for it to execute `after`."""

    device: int
    before: Located
    after: Located


@dataclass(frozen=True)
class _Hint:
    """A sentence. devices: those that are named between each part of it and the next one."""

    parts: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        text = self.parts[0]
        for devices, part in zip(self.devices, self.parts[1:], strict=True):
            verb = " run " if len(set(devices)) > 1 and part.startswith(" runs ") else ""
            text += named(devices) + (verb + part.removeprefix(" runs ") if verb else part)
        return text


@dataclass(frozen=True)
class Hints:
    """devices: the state of each.  modules: the program of each, by device, where that is known.  logical: the id that
    a device has in its program, where that is another one."""

    devices: Mapping[int, DeviceState]
    modules: Mapping[int, Module]
    logical: Mapping[int, int] = field(default_factory=dict)

    def of(
        self, deadlock: Deadlock, pair: tuple[int, int] | None = None, divergences: Sequence[Divergence] = ()
    ) -> tuple[str, ...]:
        """Changes that could help, most certain first; none where none is known.

        pair: devices that met with instructions that do not belong together.  divergences: of histories.
        """
        hints = [] if pair is None else [_Hint((text,)) for text in self._of_pair(*pair)]
        hints += [hint for cycle in deadlock.cycles for hint in self._of_cycle(cycle)]
        skipped = {device: text for one in divergences for device, text in self._skipped(one).items()}
        hints += [_Hint(("", text), ((device,),)) for device, text in skipped.items()]
        for waiter, ended in deadlock.without_end[:MOST_PAIRS]:
            hint = None if ended in skipped else self._of_ended(waiter, ended)
            if hint is not None:
                hints.append(hint)
        return tuple(dict.fromkeys(_merged(hints)))[:MOST_HINTS]

    def of_unmatched(self, error: DeadlockError) -> tuple[str, ...]:
        """Of a send or a recv without a counterpart: the ends that nearly are one, and why they are not."""
        return error.near_misses[:MOST_HINTS]

    # --- cycles

    def _of_cycle(self, cycle: tuple[int, ...]) -> list[_Hint]:
        orders: list[_Order] = []
        tied: list[_Order] = []
        others: list[str] = []
        for waiter, device in [*zip(cycle, (*cycle[1:], cycle[0]), strict=True)][:MOST_PAIRS]:
            wanted, here = self._counterpart(waiter, device), self._at(device)
            if wanted is None or here is None:
                continue
            if wanted.computation is not here.computation:
                others += self._elsewhere(waiter, device, wanted, here)
            elif wanted.position > here.position:
                (tied if needs_result(wanted, here) else orders).append(_Order(device, here, wanted))
        if len(cycle) == 2 and len(orders) == 2 and _are_crossed(*orders):
            return [_swap(*orders)]
        moves: dict[str, list[int]] = {}
        for order in orders:
            moves.setdefault(f"move {order.after} before {order.before}", []).append(order.device)
        if len(tied) == len(cycle):
            first = tied[0]
            needs = f" uses the result of {first.before}, likewise on the other devices of the cycle: "
            needs += "one device must start from a value that it does not receive"
            return [_Hint((f"no other order helps: {first.after} on ", needs), ((first.device,),))]
        if not moves:
            return [_Hint((text,)) for text in dict.fromkeys(others)]
        (text, on), *more = [*moves.items()][:2]
        if not more:
            return [_Hint((f"{text} on ", ""), (tuple(on),))]
        (text2, on2) = more[0]
        return [_Hint((f"{text} on ", f", or {text2} on ", "; one of these is enough"), (tuple(on), tuple(on2)))]

    def _elsewhere(self, waiter: int, device: int, wanted: Located, here: Located) -> list[str]:
        """Why a device that is in one computation does not reach an instruction of another one."""
        around, mine = _around(wanted), _around(here)
        if around is not None and not around.is_loop:
            if mine is not None and mine.is_same(around):
                one = self._at(waiter) or wanted
                ends = sorted(((waiter, one), (device, here)), key=lambda end: end[0])
                return [_same_branch(ends, around.by)]
            return [f"let {named([device])} run {wanted}, which is in a branch of {around.by}, before {here}"]
        if around is not None:
            return [
                f"{wanted} is in loop {around.by}, which {named([device])} has left or has not reached: "
                f"{SAME_NUMBER}{decided_by(around.by)}"
            ]
        if mine is not None and mine.is_loop:
            return [
                f"{wanted} comes after loop {mine.by}, which {named([device])} has not left: "
                f"{SAME_NUMBER}{decided_by(mine.by)}"
            ]
        return []

    # --- instructions that don't belong together

    def _of_pair(self, one: int, other: int) -> list[str]:
        """The place of the instruction with which a device should have entered the round, if it has one."""
        mine, theirs = self._at(one), self._at(other)
        if mine is None or theirs is None:
            return []
        if isinstance(mine.instruction.op, ChannelOp):
            return [f"give {mine} and {theirs} the same type and shape"]
        wanted, back = self._counterpart(one, other), self._counterpart(other, one)
        if wanted is None or not is_same(wanted, start_of(mine)):
            is_met = back is not None and is_same(back, start_of(theirs))
            names = [] if is_met else _differing(mine, theirs)
            if names and names != ["opcode"]:
                return [_made_same(mine, theirs, names)]
            return [f"the program of device {other} has no instruction that matches {mine} on device {one}"]
        if wanted.computation is not theirs.computation:
            return self._elsewhere(one, other, wanted, theirs)
        if back is not None and is_same(back, start_of(theirs)) and back.computation is mine.computation:
            first, second = _Order(one, mine, back), _Order(other, theirs, wanted)
            if first.after.position > mine.position and wanted.position > theirs.position:
                return [str(_swap(first, second))]
        if wanted.position > theirs.position:
            return [f"move {wanted}, which device {one} has reached, before {theirs} on device {other}"]
        return [
            f"device {other} has already run {wanted}, which device {one} reaches only now: both must run the "
            "collectives of their group equally often and in the same order"
        ]

    # --- instructions that a device has left out

    def _of_ended(self, waiter: int, ended: int) -> _Hint | None:
        """Why a device has ended that another one waits for."""
        waiting = self._at(waiter)
        if waiting is None or ended not in self.modules:
            return None
        wanted = self._counterpart(waiter, ended)
        if wanted is None:
            text = f" has no instruction that matches {waiting} on "
            return _Hint(("the program of ", text, ""), ((ended,), (waiter,)))
        around = _around(wanted)
        if around is None:
            return _Hint(("", f" ran {wanted} less often than ", ""), ((ended,), (waiter,)))
        if not around.is_loop:
            return _Hint(("", _skips(wanted, around)), ((ended,),))
        theirs = _around(waiting)
        if theirs is None or not theirs.is_loop:  # then it is not for a loop that something is lacking
            text = f" has no instruction left that matches {waiting} on "
            return _Hint(("the program of ", text, ""), ((ended,), (waiter,)))
        than = "" if theirs.is_same(around) else f" of loop {theirs.by}"
        text = f" runs fewer iterations of loop {around.by}, which contains {wanted}, than "
        return _Hint(("", text, f"{than}: {SAME_NUMBER}{decided_by(around.by)}"), ((ended,), (waiter,)))

    def _skipped(self, divergence: Divergence) -> dict[int, str]:
        """For devices that left out an instruction that others reached where their histories diverge, a sentence on
        that; none where neither continues with an instruction that the other one executes later."""
        ends = (
            (divergence.device, divergence.one_event, divergence.also),
            (divergence.other_device, divergence.other_event, divergence.other_also),
        )
        for (one, mine, _), (other, theirs, also) in (ends, ends[::-1]):
            is_known = one in self.devices and other in self.devices and other in self.modules
            if not is_known or mine < 0 or theirs < 0:
                continue
            event, instead = self.devices[one].events[mine], self.devices[other].events[theirs]
            later = {e.instruction for e in self.devices[one].events[mine + 1 :]}
            came_later = event.instruction in {e.instruction for e in self.devices[other].events[theirs:]}
            if event.instruction == instead.instruction or instead.instruction not in later or came_later:
                continue
            left_out = found(self.modules[other], event.instruction, event.computation)
            around = None if left_out is None else _around(left_out)
            if left_out is None or around is None:
                continue
            here = found(self.modules[other], instead.instruction, instead.computation)
            if here is None or not has_passed(here, left_out):  # else it is executed, but the device has no part in it
                return dict.fromkeys((other, *also), _left_out(left_out, around))
        return {}

    # --- the text

    def _at(self, device: int) -> Located | None:
        """The instruction that a device is in."""
        state, module = self.devices.get(device), self.modules.get(device)
        return None if state is None or module is None else found(module, state.instruction, state.computation)

    def _counterpart(self, waiter: int, device: int) -> Located | None:
        """The instruction that `device` would have to execute so that `waiter` can go on."""
        waiting, module = self._at(waiter), self.modules.get(device)
        if waiting is None or module is None:
            return None
        ids = (self.logical.get(one, one) for one in (waiter, device))
        return counterpart(waiting, self._at(device), module, *ids)


def _merged(hints: Iterable[_Hint]) -> list[str]:
    """Those that say the same of several devices as one."""
    known: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for hint in hints:
        devices = known.setdefault(hint.parts, [()] * len(hint.devices))
        known[hint.parts] = [(*one, *other) for one, other in zip(devices, hint.devices, strict=True)]
    return [str(_Hint(parts, tuple(devices))) for parts, devices in known.items()]


def _around(located: Located) -> Enclosing | None:
    """The innermost loop or conditional."""
    return next(reversed(enclosing(located.module, located.computation.name)), None)


def _left_out(wanted: Located, around: Enclosing) -> str:
    """Behind the name of a device that did not execute this, but others did."""
    if around.is_loop:
        by = around.by
        return f" runs fewer iterations of loop {by}, which contains {wanted}: {SAME_NUMBER}{decided_by(by)}"
    return _skips(wanted, around)


def _skips(wanted: Located, around: Enclosing) -> str:
    is_transfer = isinstance(wanted.instruction.op, ChannelOp)
    both = "both ends of its transfer must run" if is_transfer else "all members of its group must take that branch"
    neither = "neither" if is_transfer else "none"
    return f" skipped {wanted}, which is in a branch of {around.by}: either {both} or {neither}{decided_by(around.by)}"


def _same_branch(ends: Sequence[tuple[int, Located]], by: Located) -> str:
    """Of two devices that are in different branches."""
    (one, mine), (other, theirs) = ends
    names = _differing(mine, theirs)
    both = f"let {named((one, other))} take"
    if not names or "opcode" in names:
        return f"{both} branches of {by} that run the same collectives in the same order{decided_by(by)}"
    return f"{_made_same(mine, theirs, names)}, or {both} the same branch of {by}{decided_by(by)}"


def _differing(one: Located, other: Located) -> list[str]:
    """The names of the facets in which two collectives that meet differ; ["opcode"] where that does."""
    starts = [start_of(located) for located in (one, other)]
    names = differing(*(summary(start.module, start.instruction, start.operands) for start in starts))
    return ["opcode"] if "opcode" in names else names


def _made_same(one: Located, other: Located, names: Sequence[str]) -> str:
    leaves = [[leaf for shape in start_of(located).operands for leaf in shape.leaves()] for located in (one, other)]
    have_same_dims = [leaf.dims for leaf in leaves[0]] == [leaf.dims for leaf in leaves[1]]
    of_operands = f"operand {'types' if have_same_dims else 'shapes'}"
    wanted = [of_operands if name == "operands" else name for name in names if name != GROUPS or len(names) == 1]
    return f"give {start_of(one)} and {start_of(other)} the same {' and '.join(wanted)}"


def _are_crossed(one: _Order, other: _Order) -> bool:
    """Whether both run the same two instructions, in different orders."""
    return is_same(one.before, other.after) and is_same(one.after, other.before)


def _swap(first: _Order, second: _Order) -> _Hint:
    runs = f" runs {first.before} before {first.after}, "
    other = " the other way round: swap the two on one of them"
    return _Hint(("", runs, other), ((first.device,), (second.device,)))


__all__ = ["Hints"]
