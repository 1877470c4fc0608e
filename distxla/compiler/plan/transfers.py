"""Where arrays move between the host's memory and a memory of the kernels' own, such as a GPU's.

The host executes the plan: it computes some kernels itself, communicates, and looks at predicates. All other kernels
work in their own memory, where every buffer has the same place. A buffer is copied when one side reads what only the
other one has, and no sooner: between two kernels nothing moves.

    kernel a: arena[0:64] <- parameter[0]          copy parameter[0] to the device
    kernel b: arena[64:128] <- arena[0:64]         kernel a, kernel b
    send: arena[64:128]                            copy arena[64:128] to the host, send

Most collectives exchange arrays between the kernels' memories (`Communicate.on_device`); then nothing is copied for
them, either. The ticket that an async start writes for its done stays on the host.

For each buffer the walk knows which of the two memories has its value. Where paths meet, at a loop's head and behind a
branch, each path gets the copies that make them agree. A loop is walked until what its head expects is what its body
leaves, so what a loop only reads is copied once, before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum

from distxla.compiler.plan.buffers import (
    Branch,
    Buffer,
    Communicate,
    Copy,
    Invoke,
    Kernel,
    Loop,
    MemoryRegion,
    Plan,
    PlanStep,
    Routine,
    Swap,
    Transfer,
)
from distxla.errors import InternalError
from distxla.ir.instruction import Instruction
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of

SMALL_BYTES = 8  # constants up to here are copied by the host: they count iterations, and the host looks at the count
MOST_WALKS = 8  # of a loop's body, after which its end gets the copies that its head needs


class Holder(Enum):
    """Which memory has the value of a buffer."""

    HOST = "host"
    DEVICE = "device"
    BOTH = "both"


State = dict[Buffer, Holder]  # without buffers that nothing has written; buffers are equal if they are identical


def place_transfers(plan: Plan, on_device: Callable[[Kernel | Communicate], bool]) -> Plan:
    """The plan with the copies that it needs if the steps of which `on_device` holds have a memory of their own.

    Arguments are in the host's memory at the begin, results at the end; constants are in both all the time.
    """
    routines = tuple(_routine(plan, routine, on_device) for routine in plan.routines)
    walk, state = _Walk(plan, on_device), State()
    steps = [*walk.steps(plan.steps, state)]
    results = [buffer for buffer in state if buffer.region is MemoryRegion.RESULT]
    if plan.steps:
        steps += walk.to_host(results, plan.steps[-1].instruction, state)
    return replace(plan, steps=tuple(steps), routines=routines)


def _routine(plan: Plan, routine: Routine, on_device: Callable[[Kernel | Communicate], bool]) -> Routine:
    """Callers pass arguments, and take results, in the host's memory."""
    walk = _Walk(plan, on_device)
    state: State = dict.fromkeys(filter(_has_memory, routine.parameters), Holder.HOST)
    steps = [*walk.steps(routine.steps, state)]
    if routine.steps:
        steps += walk.to_host(routine.results, routine.steps[-1].instruction, state)
    return replace(routine, steps=tuple(steps))


class _Walk:
    """Over the steps of the entry or of a routine, in the order of execution."""

    def __init__(self, plan: Plan, on_device: Callable[[Kernel | Communicate], bool]) -> None:
        self.plan, self.on_device = plan, on_device

    def steps(self, steps: Iterable[PlanStep], state: State) -> Iterator[PlanStep]:
        """These steps and the transfers among them. state: before them; afterwards that behind them."""
        for step in steps:
            if isinstance(step, Kernel):
                yield from self.kernel(step, state)
            elif isinstance(step, Copy):
                yield self.copy(step, state)
            elif isinstance(step, Swap):
                first, second = state.pop(step.first, None), state.pop(step.second, None)
                _set(state, step.first, second)
                _set(state, step.second, first)
                yield step
            elif isinstance(step, Communicate):
                yield from self.communicate(step, state)
            elif isinstance(step, Loop):
                yield from self.loop(step, state)
            elif isinstance(step, Branch):
                yield from self.branch(step, state)
            elif isinstance(step, Invoke):
                routine = self.plan.routines[step.routine]
                yield from self.to_host(routine.parameters, step.instruction, state)
                yield step
                _write(state, routine.results, Holder.HOST)
            else:
                raise InternalError("transfers are placed once")

    def kernel(self, step: Kernel, state: State) -> Iterator[PlanStep]:
        if self.on_device(step):
            yield from self.to_device(step.operands, step.instruction, state)
            _write(state, step.results, Holder.DEVICE)
        else:
            yield from self.to_host(step.operands, step.instruction, state)
            _write(state, step.results, Holder.HOST)
        yield step

    def communicate(self, step: Communicate, state: State) -> Iterator[PlanStep]:
        if not self.on_device(step):
            yield from self.to_host(step.operands, step.instruction, state)
            yield step
            _write(state, step.results, Holder.HOST)
            return
        on_host = ticket_buffer(step)
        yield from self.to_device((b for b in step.operands if b is not on_host), step.instruction, state)
        yield replace(step, on_device=True)
        _write(state, step.results, Holder.DEVICE)
        if on_host is not None:
            state[on_host] = Holder.HOST

    def copy(self, step: Copy, state: State) -> PlanStep:
        """By the host where only it has the source."""
        is_small = step.source.region is MemoryRegion.CONSTANT and step.source.size <= SMALL_BYTES
        holder = _holder(step.source, state)
        on_device = holder is Holder.DEVICE or (holder is Holder.BOTH and not is_small)
        _write(state, (step.target,), Holder.DEVICE if on_device else Holder.HOST)
        return replace(step, on_device=on_device)

    def loop(self, step: Loop, state: State) -> Iterator[PlanStep]:
        head, made, back, behind = dict(state), step, State(), State()
        for number in range(MOST_WALKS + 1):
            back = dict(head)
            condition = [*self.steps(step.condition, back)]
            condition += self.to_host((step.predicate,), step.instruction, back)
            behind = dict(back)
            body = [*self.steps(step.body, back)]
            head = dict.fromkeys((b for b in back if b.region is MemoryRegion.PARAMETER), Holder.HOST) | head
            expected = {buffer: back[buffer] for buffer in head}  # in both where the body copies and nobody writes
            if number == MOST_WALKS:
                body += self.agree(back, head, step.instruction)
                expected = head
            made = replace(step, condition=tuple(condition), body=tuple(body))
            if expected == head:
                break
            head = expected
        yield from self.agree(state, head, step.instruction)
        yield made
        state.clear()
        state.update(behind)

    def branch(self, step: Branch, state: State) -> Iterator[PlanStep]:
        yield from self.to_host((step.selector,), step.instruction, state)
        states, made = [], []
        for steps in step.branches:
            behind = dict(state)
            made.append([*self.steps(steps, behind)])
            states.append(behind)
        everywhere = set(states[0]).intersection(*states)
        wanted = {b: _joined([behind[b] for behind in states]) for b in states[0] if b in everywhere}
        for added, behind in zip(made, states, strict=True):
            added += self.agree(behind, wanted, step.instruction)
        yield replace(step, branches=tuple(map(tuple, made)))
        state.clear()
        state.update(wanted)

    # --- copies

    def to_host(self, buffers: Iterable[Buffer], instruction: Instruction, state: State) -> Iterator[PlanStep]:
        """What of these only the device has."""
        for buffer in buffers:
            if _has_memory(buffer) and _holder(buffer, state) is Holder.DEVICE:
                state[buffer] = Holder.BOTH
                yield Transfer(instruction, buffer, to_device=False)

    def to_device(self, buffers: Iterable[Buffer], instruction: Instruction, state: State) -> Iterator[PlanStep]:
        """What of these only the host has."""
        for buffer in buffers:
            if _has_memory(buffer) and _holder(buffer, state) is Holder.HOST:
                state[buffer] = Holder.BOTH
                yield Transfer(instruction, buffer, to_device=True)

    def agree(self, state: State, wanted: State, instruction: Instruction) -> Iterator[PlanStep]:
        """What has to be copied so that all is where it is wanted."""
        for buffer, holder in wanted.items():
            if holder is not Holder.DEVICE:
                yield from self.to_host((buffer,), instruction, state)
            if holder is not Holder.HOST:
                yield from self.to_device((buffer,), instruction, state)


def ticket_buffer(step: Communicate) -> Buffer | None:
    """The buffer of the ticket that an async start writes for its done; None of any other step."""
    part = async_part_of(step.instruction.op)
    if part is AsyncPart.SYNCHRONOUS:
        return None
    return (step.results if part is AsyncPart.START else step.operands)[-1]


def _holder(buffer: Buffer, state: State) -> Holder | None:
    """None if nothing has written the buffer."""
    if buffer.region is MemoryRegion.CONSTANT:
        return Holder.BOTH
    return state.get(buffer, Holder.HOST if buffer.region is MemoryRegion.PARAMETER else None)


def _has_memory(buffer: Buffer) -> bool:
    return buffer.region is not MemoryRegion.NONE and buffer.size > 0


def _write(state: State, buffers: Iterable[Buffer], holder: Holder) -> None:
    state.update(dict.fromkeys(filter(_has_memory, buffers), holder))


def _set(state: State, buffer: Buffer, holder: Holder | None) -> None:
    if holder is not None:
        state[buffer] = holder


def _joined(holders: list[Holder]) -> Holder:
    """Of paths that meet: the device where some path has a value only there."""
    if all(holder is Holder.BOTH for holder in holders):
        return Holder.BOTH
    return Holder.DEVICE if Holder.DEVICE in holders else Holder.HOST


__all__ = ["Holder", "place_transfers", "ticket_buffer"]
