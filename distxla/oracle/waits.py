"""Waits of the lock step's devices: conditions, rounds of collectives, computations that run beside a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from typing import Any, ClassVar, cast

from distxla.collectives.signature import differences, signature, summary
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.errors import CollectiveMismatchError
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.ops.support.executable import CollectiveOp
from distxla.oracle.execution import Execution
from distxla.wording import mismatch_of, round_called


class Wait(ABC):
    """Why a device has given the token back."""

    # whether something outside the lock step may make it ready: then it is no deadlock if no device can go on
    from_outside: ClassVar[bool] = False

    @abstractmethod
    def ready(self) -> bool:
        """Whether the device can go on. Asked by the world between runs of fibers; changes nothing and does not
        block."""

    @property
    def waiter(self) -> Execution | None:
        """The instruction that waits; None before a computation's first."""
        return getattr(self, "run", None)

    @property
    def others(self) -> tuple[int, ...]:
        """The devices that have to do something, every one of them, before it is ready."""
        return ()

    @property
    def beside(self) -> Outcome | None:
        """The computation beside the program that has to end before it is ready."""
        return None

    def state(self) -> DeviceState:
        """The device's state, for a diagnosis."""
        run = self.waiter
        assert run is not None
        instruction, module = run.instruction, run.device.module
        holder = module.holder_of(instruction)
        return DeviceState(
            run.device.id,
            Doing.WAITS,
            module.name,
            instruction.name,
            instruction.opcode,
            module.locate(instruction),
            "" if holder is None else holder.name,
            channel=instruction.op.channel,
            waits_for=self.others,
            op_name=instruction.metadata.op_name if instruction.metadata else "",
            peer_action=instruction.op.transfer.peer_action,
        )


@dataclass(frozen=True)
class Pending(Wait):
    """A value that one instruction begins and another one waits for; may be used as one of any shape in between.

    run: the instruction that began it, or the one that waits.
    """

    run: Execution

    def awaited_by(self, run: Execution) -> Pending:
        return replace(self, run=run)

    @property
    @abstractmethod
    def result(self) -> Any:
        """The value; may be asked when `ready`."""


@dataclass(frozen=True)
class Settled(Pending):
    """A value that needs no other device."""

    value: Any

    def ready(self) -> bool:
        return True

    @property
    def result(self) -> Any:
        return self.value


@dataclass
class Round:
    """One execution of a collective by a group. number: from 1.

    arrived: by member that has, its instruction and operands.  answers: once all have.
    """

    members: tuple[int, ...]
    number: int = 1
    arrived: dict[int, tuple[Execution, tuple[Any, ...]]] = field(default_factory=dict)
    answers: dict[int, Any] | None = None

    def come(self, run: Execution, operands: tuple[Any, ...]) -> None:
        """The device of `run` has arrived; the last one evaluates the round.

        CollectiveMismatchError where its instruction differs from the first one's.
        """
        self.arrived[run.device.id] = (run, operands)
        check_same(next(iter(self.arrived.values()))[0], run, round_called(self.members))
        if len(self.arrived) < len(self.members):
            return
        ordered = [self.arrived[member] for member in self.members]
        runs = [run for run, _ in ordered]
        op = cast(CollectiveOp, run.instruction.op)
        found = op.evaluate_group(self.members, [operands for _, operands in ordered], runs[0])
        self.answers = dict(zip(self.members, found, strict=True))


@dataclass(frozen=True)
class PendingRound(Pending):
    """A device's share in a round that it has reached."""

    round: Round
    device: int

    def ready(self) -> bool:
        return self.round.answers is not None

    @property
    def came(self) -> Execution:
        """The instruction in which the device reached the round."""
        return self.round.arrived[self.device][0]

    @property
    def missing(self) -> list[int]:
        """The members that have not arrived."""
        return [member for member in self.round.members if member not in self.round.arrived]

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(self.missing)

    def state(self) -> DeviceState:
        members, missing = self.round.members, tuple(self.missing)
        return replace(super().state(), round=self.round.number, group=members, missing=missing)

    @property
    def result(self) -> Any:
        assert self.round.answers is not None
        return self.round.answers[self.device]


class Rounds:
    """Rounds of all groups: a member's k-th coming to a group belongs to the group's k-th round."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, ...], list[Round]] = defaultdict(list)
        self._begun: Counter[tuple[int, ...]] = Counter()
        self.wanted: PendingRound | None = None

    def come(self, run: Execution, members: tuple[int, ...], operands: tuple[Any, ...]) -> Pending:
        """Raises CollectiveMismatchError where another member reached the round with another instruction; `wanted` is
        then the round that the device has reached."""
        waiting, device = self._open[members], run.device.id
        found = next((r for r in waiting if device not in r.arrived), None)
        if found is None:
            self._begun[members] += 1
            found = Round(members, self._begun[members])
            waiting.append(found)
        self.wanted = pending = PendingRound(run, found, device)
        found.come(run, operands)
        if found.answers is not None:
            waiting.remove(found)
        return pending


@dataclass
class Outcome:
    """The outcome of a computation that runs beside its device's program."""

    finished: bool = False
    value: Any = None


@dataclass(frozen=True)
class PendingComputation(Pending):
    """A computation that was started beside the device's program."""

    outcome: Outcome

    def ready(self) -> bool:
        return self.outcome.finished

    @property
    def beside(self) -> Outcome:
        return self.outcome

    @property
    def result(self) -> Any:
        return self.outcome.value


def check_same(first: Execution, other: Execution, what: str) -> None:
    """CollectiveMismatchError unless both do the same: opcode, shapes, attributes, structure of called computations.

    what: the round or transfer that both have reached.
    """
    if first.instruction is other.instruction and first.device.module is other.device.module:
        return
    mine, theirs = (signature(run.device.module, run.instruction, run.operand_shapes) for run in (first, other))
    if mine != theirs:
        raise mismatch(what, first, other)


def mismatch(what: str, first: Execution, other: Execution) -> CollectiveMismatchError:
    """Two devices have reached `what` with these instructions, which do not belong together."""
    one, two = sorted((first, other), key=lambda run: run.device.id)
    known = [(run.device.id, name_of(run)) for run in (one, two)]
    text = mismatch_of(what, known[0], known[1], _differing(one, two))
    error = CollectiveMismatchError(text, one.device.module.locate(one.instruction))
    error.pair = one.device.id, two.device.id
    return error


def differing(one: Wait, other: Wait) -> str:
    """How the instructions of two waits differ, of rounds those that reached them: signature.differences."""
    mine, theirs = (wait.came if isinstance(wait, PendingRound) else wait.waiter for wait in (one, other))
    return "" if mine is None or theirs is None else _differing(mine, theirs)


def _differing(one: Execution, other: Execution) -> str:
    mine, theirs = (summary(run.device.module, run.instruction, run.operand_shapes) for run in (one, other))
    return differences(mine, theirs)


def name_of(run: Execution) -> str:
    """`all-reduce.7 (ring.hlo:14:3)`."""
    location = run.device.module.locate(run.instruction)
    name = run.instruction.name
    return f"{name} ({location})" if location else name


__all__ = [
    "Outcome",
    "Pending",
    "PendingComputation",
    "PendingRound",
    "Rounds",
    "Settled",
    "Wait",
    "differing",
    "mismatch",
    "name_of",
]
