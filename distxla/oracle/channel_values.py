"""Channels between devices of the lock step: values in the order in which they were sent, and the waits of their dones.

A transfer that a send or recv begins is named by a ticket, a number in the u32[] of its context, so the context may
travel through tuples and loops. A send returns at once, whatever is in flight.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from distxla.collectives.channels import ProgramTransfers, instruction_ends, pair_up, payload_of
from distxla.collectives.transfer import Transfer
from distxla.diagnosis.facts.blocked import DeviceState
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.oracle.execution import Execution
from distxla.oracle.waits import Wait, mismatch
from distxla.program.channel_end import End
from distxla.wording import transfer_called

NOTHING = 0  # the ticket of a device that takes no part


@dataclass
class Flow:
    """The values from one device to another on a stream of a channel. sent: by number, until received."""

    transfer: Transfer
    sends: int = 0
    recvs: int = 0
    sent: dict[int, tuple[Execution, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _TransferDone(Wait):
    """Until the other device has executed its instruction. number: of the transfer, from 0."""

    run: Execution
    flow: Flow
    number: int

    def state(self) -> DeviceState:
        return replace(super().state(), round=self.number + 1)


class _SendDone(_TransferDone):
    """Until the target's recv has been executed."""

    def ready(self) -> bool:
        return self.flow.recvs > self.number

    @property
    def others(self) -> tuple[int, ...]:
        return (self.flow.transfer.target,)


class _RecvDone(_TransferDone):
    """Until the source's send has been executed."""

    def ready(self) -> bool:
        return self.flow.sends > self.number

    @property
    def others(self) -> tuple[int, ...]:
        return (self.flow.transfer.source,)


class Channels:
    """All transfers between the devices of a run."""

    def __init__(self, programs: Mapping[int, Module], counts: Counts) -> None:
        """programs: by flattened device id. Raises VerificationError for ends that can't be paired."""
        modules = {id(module): module for module in programs.values()}
        devices = {key: tuple(d for d, m in sorted(programs.items()) if id(m) == key) for key in modules}
        self._ends: dict[int, End] = {}
        sides = []
        for key, module in modules.items():
            ends = {id(instruction): end for instruction, end in instruction_ends(module)}
            self._ends.update(ends)
            sides.append(ProgramTransfers(devices[key], tuple(ends.values())))
        found = pair_up(sides, counts)
        self._routes: dict[tuple[int, End], tuple[Flow, tuple[int, int] | None]] = {}
        for transfer in found:
            flow = Flow(transfer)
            for device, routes in ((transfer.source, transfer.sends), (transfer.target, transfer.recvs)):
                for route in routes:
                    self._routes[device, route.end] = (flow, route.bounds)
        self._executions: Counter[tuple[int, int]] = Counter()
        self._tickets: dict[int, tuple[Flow, int]] = {}
        self._numbers = itertools.count(NOTHING + 1)

    def is_idle(self, device: int, instruction: Instruction, computation: Computation) -> bool:
        """Whether a device has no part in any execution of a send or recv, or of its done in the same computation."""
        begun = (instruction, *(computation[name] for name in instruction.operands))
        end = next((self._ends[id(one)] for one in begun if id(one) in self._ends), None)
        return end is not None and (device, end) not in self._routes

    def send(self, run: Execution, value: Any) -> int:
        """Hand `value` to the channel; the ticket."""
        flow = self._flow(run)
        if flow is None:
            return NOTHING
        flow.sent[flow.sends] = (run, value)
        flow.sends += 1
        return self._ticket(flow, flow.sends - 1)

    def receive(self, run: Execution) -> int:
        """Be ready for the next value; the ticket."""
        flow = self._flow(run)
        if flow is None:
            return NOTHING
        flow.recvs += 1
        return self._ticket(flow, flow.recvs - 1)

    def sent(self, run: Execution, ticket: int) -> Wait | None:
        """The wait of a send-done."""
        flow, number = self._tickets.pop(ticket, (None, 0))
        return None if flow is None else _SendDone(run, flow, number)

    def received(self, run: Execution, ticket: int) -> _RecvDone | None:
        """The wait of a recv-done."""
        flow, number = self._tickets.pop(ticket, (None, 0))
        return None if flow is None else _RecvDone(run, flow, number)

    def take(self, done: _RecvDone) -> Any:
        """The value that a recv-done has waited for; CollectiveMismatchError where it is of another shape."""
        sender, value = done.flow.sent.pop(done.number)
        sent = payload_of(sender.instruction).without_layout()
        want = done.run.operand_shapes[0].elements
        if want is None or not sent.compatible(want[0]):
            transfer, channel = done.flow.transfer, self._ends[id(sender.instruction)].channel
            what = transfer_called(transfer.source, transfer.target, channel)
            raise mismatch(what, sender, done.run)
        return value

    def _flow(self, run: Execution) -> Flow | None:
        """Where this execution of a send or recv takes part; None where it does nothing."""
        device, instruction = run.device.id, run.instruction
        number = self._executions[device, id(instruction)]
        self._executions[device, id(instruction)] += 1
        flow, bounds = self._routes.get((device, self._ends[id(instruction)]), (None, None))
        return flow if bounds is None or bounds[0] <= number <= bounds[1] else None

    def _ticket(self, flow: Flow, number: int) -> int:
        ticket = next(self._numbers)
        self._tickets[ticket] = (flow, number)
        return ticket
