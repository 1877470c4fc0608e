"""What to change in a program that deadlocks: which instructions to swap, or which member skipped what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from distxla.collectives.report import DeviceReport, Difference, named
from distxla.collectives.signature import GROUPS, differing, structure, summary
from distxla.collectives.wait_graph import Verdict
from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.channel import ChannelOp, Recv, RecvDone, Send, SendDone
from distxla.ops.control_flow import Conditional, While
from distxla.ops.effects import COMMUNICATING
from distxla.ops.op import Op

MOST_HINTS = 4
MOST_PAIRS = 64  # of a cycle that are looked at, and of waits for those that have ended
WAITERS = "\0"  # in a sentence, in the place of those who wait


@dataclass(frozen=True)
class _Act:
    """A communicating instruction. position: in its computation, which is the order of execution."""

    module: Module
    computation: Computation
    position: int
    instruction: Instruction

    @property
    def name(self) -> str:
        """`all-reduce.7 (step.hlo:12)`."""
        where = self.module.locate(self.instruction)
        return f"{self.instruction.name} ({where.file}:{where.line})" if where else self.instruction.name


@dataclass(frozen=True)
class _Order:
    """A device that waits in `before`, while somebody waits for it to run `after`."""

    device: int
    before: _Act
    after: _Act


@dataclass(frozen=True)
class _Hint:
    """A sentence. devices: those that are named between each part of it and the next one."""

    parts: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        text = self.parts[0]
        for devices, part in zip(self.devices, self.parts[1:], strict=True):
            verb = " run " if len(devices) > 1 and part.startswith(" runs ") else ""
            text += named(devices) + (verb + part.removeprefix(" runs ") if verb else part)
        return text


def _merged(hints: Iterable[_Hint]) -> list[str]:
    """Those that say the same of several devices as one."""
    found: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for hint in hints:
        known = found.setdefault(hint.parts, [()] * len(hint.devices))
        found[hint.parts] = [(*one, *other) for one, other in zip(known, hint.devices, strict=True)]
    return [str(_Hint(parts, tuple(devices))) for parts, devices in found.items()]


def hints(
    verdict: Verdict,
    devices: Mapping[int, DeviceReport],
    modules: Mapping[int, Module],
    pair: tuple[int, int] | None = None,
    differences: Sequence[Difference] = (),
) -> tuple[str, ...]:
    """What could help, most certain first; nothing where it isn't known.

    modules: what each device runs, by device, where that is known.  pair: of devices that met with what does not
    belong together.  differences: where histories part.
    """
    found: list[str] = [] if pair is None else _of_pair(*pair, devices, modules)
    found += _merged(hint for cycle in verdict.cycles for hint in _of_cycle(cycle, devices, modules))
    skipped = {over: text for one in differences for over, text in _skipped(one, devices, modules).items()}
    found += _merged(_Hint(("", text), ((over,),)) for over, text in skipped.items())
    enders: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for waiter, over in verdict.without_end[:MOST_PAIRS]:
        sentence = None if over in skipped else _of_ender(waiter, over, devices, modules)
        if sentence is not None:
            overs, waiters = enders.setdefault(sentence, ([], []))
            overs.append(over)
            waiters.append(waiter)
    for (before, after), (overs, waiters) in enders.items():
        found.append(f"{before}{named(overs)}{after}".replace(WAITERS, named(waiters)))
    return tuple(dict.fromkeys(found))[:MOST_HINTS]


def _of_cycle(
    cycle: tuple[int, ...], devices: Mapping[int, DeviceReport], modules: Mapping[int, Module]
) -> list[_Hint]:
    orders: list[_Order] = []
    tied: list[_Order] = []
    others: list[str] = []
    for waiter, device in [*zip(cycle, (*cycle[1:], cycle[0]), strict=True)][:MOST_PAIRS]:
        wanted = _counterpart(waiter, device, devices, modules)
        here = _act(devices, device, modules)
        if wanted is None or here is None:
            continue
        if wanted.computation is not here.computation:
            others += _elsewhere(device, wanted, here)
        elif wanted.position > here.position:
            (tied if _needs(wanted, here) else orders).append(_Order(device, here, wanted))
    if len(cycle) == 2 and len(orders) == 2 and _crossed(*orders):
        return [_swap(*orders)]
    moves: dict[str, list[int]] = {}
    for order in orders:
        moves.setdefault(f"move {order.after.name} before {order.before.name}", []).append(order.device)
    if len(tied) == len(cycle):
        first = tied[0]
        needs = f" {first.after.name} needs what {first.before.name} gives"
        return [_Hint(("no other order helps: on ", needs), ((first.device,),))]
    if not moves:
        return [_Hint((text,)) for text in others]
    (text, on), *more = [*moves.items()][:2]
    if not more:
        return [_Hint((f"{text} on ", ""), (tuple(on),))]
    (text2, on2) = more[0]
    return [_Hint((f"{text} on ", f", or {text2} on ", "; one of these is enough"), (tuple(on), tuple(on2)))]


def _of_pair(one: int, other: int, devices: Mapping[int, DeviceReport], modules: Mapping[int, Module]) -> list[str]:
    """Where the instruction stands that a device should have come with, if it has one."""
    mine, theirs = _act(devices, one, modules), _act(devices, other, modules)
    if mine is None or theirs is None or isinstance(mine.instruction.op, ChannelOp):
        return []
    wanted = _counterpart(one, other, devices, modules)
    back = _counterpart(other, one, devices, modules)
    if wanted is None or not _same(wanted, _begin(mine)):
        if (back is None or not _same(back, _begin(theirs))) and (made_alike := _made_alike(mine, theirs)):
            return [made_alike]
        return [f"the program of device {other} has nothing that {mine.name} on device {one} could meet"]
    if wanted.computation is not theirs.computation:
        return _elsewhere(other, wanted, theirs)
    if back is not None and _same(back, _begin(theirs)) and back.computation is mine.computation:
        first, second = _Order(one, mine, back), _Order(other, theirs, wanted)
        if first.after.position > mine.position and wanted.position > theirs.position:
            return [str(_swap(first, second))]
    if wanted.position > theirs.position:
        return [f"device {other} runs {wanted.name}, which device {one} has come to, only behind {theirs.name}"]
    return [f"device {other} has run {wanted.name} already, which device {one} comes to only now"]


def _made_alike(mine: _Act, theirs: _Act) -> str:
    """What must not differ between two that meet and that nothing else could meet; "" for different collectives."""
    one, other = _begin(mine), _begin(theirs)
    names = differing(*(summary(act.module, act.instruction, _operands(act)) for act in (one, other)))
    wanted = ["operand types" if name == "operands" else name for name in names if name != GROUPS]
    if not wanted or "opcode" in wanted:
        return ""
    return f"give {one.name} and {other.name} the same {' and '.join(wanted)}"


def _needs(one: _Act, other: _Act) -> bool:
    """Whether an instruction can only run behind another one of its computation, as it takes what that makes.

    Two rounds may change places with what they take: not so values that are sent or received.
    """
    if not any(isinstance(act.instruction.op, ChannelOp) for act in (one, other)):
        return False
    names, seen = [one.instruction.name], {one.instruction.name}
    while names:
        instruction = one.computation[names.pop()]
        for name in (*instruction.operands, *instruction.control_predecessors):
            if name == other.instruction.name:
                return True
            if name not in seen:
                seen.add(name)
                names.append(name)
    return False


def _crossed(one: _Order, other: _Order) -> bool:
    """Whether both run the same two instructions, in different orders."""
    return _same(one.before, other.after) and _same(one.after, other.before)


def _swap(first: _Order, second: _Order) -> _Hint:
    runs = f" runs {first.before.name} before {first.after.name}, "
    other = " the other way round: swap the two on one of them"
    return _Hint(("", runs, other), ((first.device,), (second.device,)))


def _same(one: _Act, other: _Act) -> bool:
    mine, theirs = one.instruction.op, other.instruction.op
    if isinstance(mine, ChannelOp) or isinstance(theirs, ChannelOp):
        return False
    if one.instruction is other.instruction:
        return True
    if type(mine) is not type(theirs) or not _alike(one, other):
        return False
    return (mine == theirs and one.module is other.module) or _does(one) == _does(other)


def _does(act: _Act) -> Op:
    """Its op, called computations by what they compute: their names may mean something else in another module."""
    return act.instruction.op.rename_computations(lambda name: _computes(act.module, name))


def _computes(module: Module, name: str) -> str:
    known = _known(_Key(module))[2]
    if name not in known:
        known[name] = structure(module, module[name])
    return known[name]


def _alike(one: _Act, other: _Act) -> bool:
    """Whether the types of both are the same, operands' too: members of a round must agree on them."""
    mine, theirs = ([act.instruction.shape, *_operands(act)] for act in (one, other))
    return [*map(_type, mine)] == [*map(_type, theirs)]


def _operands(act: _Act) -> tuple[Shape, ...]:
    return tuple(operand.shape for operand in act.computation.operands(act.instruction))


def _type(shape: Shape) -> str:
    return str(shape.without_layout())


def _elsewhere(device: int, wanted: _Act, here: _Act) -> list[str]:
    """Why a device that is in one computation does not come to an instruction of another one."""
    caller = _callers(wanted.module).get(wanted.computation.name)
    mine = _callers(here.module).get(here.computation.name)
    if caller is not None and isinstance(caller.instruction.op, Conditional):
        if mine is not None and mine.instruction is caller.instruction:
            first, second = sorted((wanted, here), key=lambda act: (act.computation.name, act.position))
            return [
                f"{caller.name} runs {first.name} in one branch and {second.name} in another: devices that meet must "
                "take branches that run the same collectives in the same order"
            ]
        return [f"{wanted.name} is in a branch of {caller.name} that {named([device])} has not come to"]
    if caller is not None and isinstance(caller.instruction.op, While):
        return [
            f"{wanted.name} is in loop {caller.name}, which {named([device])} has left or has not come to: its number "
            "of iterations must not differ between devices that meet in it"
        ]
    if mine is not None and isinstance(mine.instruction.op, While):
        return [
            f"{named([device])} is still in loop {mine.name}, behind which {wanted.name} stands: its number of "
            "iterations must not differ between devices that meet in it"
        ]
    return []


def _of_ender(
    waiter: int, over: int, devices: Mapping[int, DeviceReport], modules: Mapping[int, Module]
) -> tuple[str, str] | None:
    """Why a device has ended that another one waits for: a sentence before and behind the names of such devices."""
    waiting = devices.get(waiter)
    if waiting is None or over not in modules:
        return None
    wanted = _counterpart(waiter, over, devices, modules)
    if wanted is None:
        return "the program of ", f" has nothing that {waiting.instruction} on {WAITERS} could meet"
    return "", _left_out(wanted) or f" ran {wanted.name} less often than {WAITERS}"


def _left_out(wanted: _Act) -> str:
    """Of a device that did not execute this, behind its name; "" where neither a loop nor a branch is around it."""
    caller = _callers(wanted.module).get(wanted.computation.name)
    while caller is not None and not isinstance(caller.instruction.op, While | Conditional):
        caller = _callers(wanted.module).get(caller.computation.name)
    if caller is None:
        return ""
    if isinstance(caller.instruction.op, While):
        return (
            f" ran {wanted.name} less often: loop {caller.name} around it must have the same number of iterations on "
            "all devices that meet in it"
        )
    return (
        f" skipped {wanted.name}, which is in a branch of {caller.name}: either all members of its group must take "
        "that branch or none"
    )


def _skipped(
    difference: Difference, devices: Mapping[int, DeviceReport], modules: Mapping[int, Module]
) -> dict[int, str]:
    """The devices that left out what the other ones came to first where their histories part, and how that is said;
    none where neither goes on with what the other one does later."""
    ends = (
        (difference.device, difference.one_event, difference.also),
        (difference.other_device, difference.other_event, difference.other_also),
    )
    for (one, mine, _), (other, theirs, also) in (ends, ends[::-1]):
        if one not in devices or other not in devices or other not in modules or mine < 0 or theirs < 0:
            continue
        event, instead = devices[one].events[mine], devices[other].events[theirs]
        later = {e.instruction for e in devices[one].events[mine + 1 :]}
        came_later = event.instruction in {e.instruction for e in devices[other].events[theirs:]}
        if event.instruction == instead.instruction or instead.instruction not in later or came_later:
            continue
        act = next((act for act in _acts(modules[other]) if act.instruction.name == event.instruction), None)
        if act is not None:
            return dict.fromkeys((other, *also), _left_out(act) or f" skipped {act.name}")
    return {}


def _act(devices: Mapping[int, DeviceReport], device: int, modules: Mapping[int, Module]) -> _Act | None:
    """The instruction that a device is in."""
    report, module = devices.get(device), modules.get(device)
    if report is None or module is None:
        return None
    named_so = [act for act in _acts(module) if act.instruction.name == report.instruction]
    there = [act for act in named_so if act.computation.name == report.computation]
    return next(iter(there or named_so), None)


def _counterpart(
    waiter: int, device: int, devices: Mapping[int, DeviceReport], modules: Mapping[int, Module]
) -> _Act | None:
    """The instruction that `device` would have to run so that `waiter` can go on."""
    waiting, module = _act(devices, waiter, modules), modules.get(device)
    if waiting is None or module is None:
        return None
    op = waiting.instruction.op
    if isinstance(op, ChannelOp):
        kind = Send if isinstance(op, RecvDone) else Recv if isinstance(op, SendDone) else RecvDone
        return next(_on_channel(module, kind, op.channel_id or 0, _ends(waiter, device, op)), None)
    begun, here = _begin(waiting), _act(devices, device, modules)
    alike = [act for act in _acts(module) if _same(act, begun)]
    near = [act for act in alike if here is not None and act.computation is here.computation]
    if module is waiting.module and (not near or any(act.instruction is begun.instruction for act in near)):
        return begun
    near = [act for act in near if here is not None and act.position > here.position] or near  # it is to come
    alike = near or alike or [act for act in _acts(module) if act.instruction.opcode == begun.instruction.opcode]
    return alike[0] if alike else None


def _ends(waiter: int, device: int, op: ChannelOp) -> tuple[int, int]:
    """(source, target) of the transfer that a device waits for."""
    return (device, waiter) if isinstance(op, RecvDone) else (waiter, device)


def _on_channel(module: Module, kind: type[ChannelOp], channel: int, ends: tuple[int, int]) -> Iterator[_Act]:
    """Sends, recvs or recv-dones of a channel, those first whose pairs name this transfer; where it has none, such of
    other channels that may have been joined to it (joined_channels.py)."""
    from distxla.collectives.channels import read_end

    every = [(act, op.channel_id or 0) for act in _acts(module) if isinstance(op := act.instruction.op, kind)]
    found = [act for act, number in every if number == channel]
    for act in found or [act for act, _ in every]:
        if kind is RecvDone:
            continue
        try:
            pairs = read_end(act.instruction).pairs
        except VerificationError:
            pairs = None
        if pairs is not None and ends in pairs:
            yield act
    yield from found


def _begin(act: _Act) -> _Act:
    """Of an asynchronous pair the instruction that comes to the round; any other one itself."""
    instruction = act.instruction
    while instruction.opcode.endswith(("-done", "-update")) and instruction.operands:
        instruction = act.computation[instruction.operands[0]]
    position = next(i for i, other in enumerate(act.computation) if other is instruction)
    return _Act(act.module, act.computation, position, instruction)


def _acts(module: Module) -> tuple[_Act, ...]:
    """All communicating instructions of a module."""
    return _known(_Key(module))[0]


def _callers(module: Module) -> Mapping[str, _Act]:
    """By computation one instruction that calls it."""
    return _known(_Key(module))[1]


class _Key:
    """A module by identity: comparing modules costs more than reading them."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __hash__(self) -> int:
        return id(self.module)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.module is self.module


@lru_cache(maxsize=16)
def _known(key: _Key) -> tuple[tuple[_Act, ...], dict[str, _Act], dict[str, str]]:
    acts: list[_Act] = []
    callers: dict[str, _Act] = {}
    for computation in key.module.computations:
        for position, instruction in enumerate(computation):
            act = _Act(key.module, computation, position, instruction)
            if instruction.op.effects in COMMUNICATING:
                acts.append(act)
            for name in instruction.op.called_computations:
                callers.setdefault(name, act)
    return tuple(acts), callers, {}


__all__ = ["hints"]
